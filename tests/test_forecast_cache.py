"""Forecasts on disk: exact, shared by processes, rebuilt when damaged; and many forecasts at once."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from factories import ScriptedForecaster, demand, make_case, make_loaded
from hypothesis import given, settings
from hypothesis import strategies as st

from castgym.data.cache import cache_folder
from castgym.data.errors import ForecasterUnavailableError
from castgym.data.store import save_case_set
from castgym.tools.forecasters import fracast_model
from castgym.tools.forecasters.base import BackendError, FloatArray
from castgym.tools.forecasters.cache import DiskCache
from castgym.tools.forecasters.pool import ForecasterEntry, ForecasterPool, default_entries

KEY = "ab" * 32
VALUES = np.random.default_rng(0).normal(1000, 100, (50, 9))


class Echo(ScriptedForecaster):
    """Answers with what it was given, so that every context has a forecast of its own."""

    def predict(self, context: FloatArray, horizon: int) -> FloatArray:
        return super().predict(context, horizon) + context.mean(axis=1)[:, None, None]


def pool_with(
    folder: Path | None, forecaster: ScriptedForecaster | None = None, identity: str | None = "weights 1"
) -> ForecasterPool:
    """A pool on a folder; without a forecaster, one whose model is gone."""

    def build() -> ScriptedForecaster:
        if forecaster is None:
            raise ForecasterUnavailableError("the model is gone")
        return forecaster

    entry = ForecasterEntry(ScriptedForecaster.info, build, identity=(lambda: identity) if identity else None)
    return ForecasterPool([entry], cache=None if folder is None else DiskCache(folder))


class TestDiskCache:
    def test_a_forecast_comes_back_bit_for_bit_and_read_only(self, tmp_path: Path) -> None:
        cache = DiskCache(tmp_path / "forecasts")
        assert cache.get(KEY, 50) is None
        cache.put(KEY, VALUES)
        found = DiskCache(tmp_path / "forecasts").get(KEY, 50)
        assert found is not None
        assert found.tobytes() == VALUES.tobytes()
        with pytest.raises(ValueError, match="read-only"):
            found[0, 0] = 0.0

    @settings(max_examples=40, deadline=None)
    @given(data=st.data())
    def test_a_damaged_file_counts_as_absent_and_is_written_anew(
        self, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        cache = DiskCache(tmp_path_factory.mktemp("cache"))
        cache.put(KEY, VALUES)
        path = next(cache.folder.rglob("*.forecast"))
        content = bytearray(path.read_bytes())
        if data.draw(st.booleans()):
            content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
        else:
            del content[data.draw(st.integers(0, len(content) - 1)) :]
        path.write_bytes(content)
        assert cache.get(KEY, 50) is None
        cache.put(KEY, VALUES)
        found = cache.get(KEY, 50)
        assert found is not None
        assert np.array_equal(found, VALUES)

    def test_a_forecast_of_another_horizon_is_not_this_one(self, tmp_path: Path) -> None:
        cache = DiskCache(tmp_path)
        cache.put(KEY, VALUES)
        assert cache.get(KEY, 49) is None

    def test_processes_that_write_and_read_at_once_never_see_half_a_file(self, tmp_path: Path) -> None:
        code = (
            "import sys, numpy as np; from pathlib import Path;"
            "from castgym.tools.forecasters.cache import DiskCache;"
            "cache = DiskCache(Path(sys.argv[1]));"
            "rows = [np.full((336, 9), float(i)) for i in range(20)];"
            "[cache.put(f'{i:064x}', row) for _ in range(30) for i, row in enumerate(rows)]"
        )
        writers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(3)]
        cache, seen = DiskCache(tmp_path), 0
        while any(writer.poll() is None for writer in writers):
            for number in range(20):
                path = tmp_path / f"{number:064x}"[:2] / f"{number:062x}.forecast"
                existed = path.exists()
                found = cache.get(f"{number:064x}", 336)
                assert found is not None or not existed
                if found is not None:
                    seen += 1
                    assert (found == number).all()
        assert [writer.returncode for writer in writers] == [0, 0, 0]
        assert seen > 0
        assert len(list(tmp_path.rglob("*.forecast"))) == 20
        assert not [path for path in tmp_path.rglob(".*") if path.is_file()]

    def test_a_folder_that_cannot_be_written_is_reported_once(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "file").write_text("in the way")
        pool = pool_with(tmp_path / "file" / "forecasts", Echo())
        for seed in range(3):
            assert pool.forecast("scripted", demand(seed, 48), 5).shape == (5, 9)
        assert len(caplog.records) == 1
        assert "not kept on disk" in caplog.text


class TestPoolOnDisk:
    def test_another_process_needs_no_model_for_what_is_cached(self, tmp_path: Path) -> None:
        first = pool_with(tmp_path, Echo()).forecast("scripted", demand(0, 336), 50)
        later = pool_with(tmp_path)
        later.require(["scripted"])
        assert later.forecast("scripted", demand(0, 336), 50).tobytes() == first.tobytes()
        with pytest.raises(ForecasterUnavailableError):
            later.forecast("scripted", demand(1, 336), 50)

    def test_other_weights_horizons_and_contexts_are_other_forecasts(self, tmp_path: Path) -> None:
        pool_with(tmp_path, Echo()).forecast("scripted", demand(0, 336), 50)
        with pytest.raises(ForecasterUnavailableError):
            pool_with(tmp_path, identity="weights 2").forecast("scripted", demand(0, 336), 50)
        for context, horizon in ((demand(0, 336), 51), (demand(0, 336)[1:], 50)):
            with pytest.raises(ForecasterUnavailableError):
                pool_with(tmp_path).forecast("scripted", context, horizon)

    def test_without_an_identity_nothing_is_kept_on_disk(self, tmp_path: Path) -> None:
        pool = pool_with(tmp_path, Echo(), identity=None)
        pool.forecast("scripted", demand(0, 336), 50)
        assert not pool.on_disk("scripted")
        assert not list(tmp_path.iterdir())

    def test_a_damaged_forecast_is_computed_again(self, tmp_path: Path) -> None:
        first = pool_with(tmp_path, Echo()).forecast("scripted", demand(0, 336), 50)
        path = next(tmp_path.rglob("*.forecast"))
        path.write_bytes(path.read_bytes()[:-1])
        forecaster = Echo()
        assert np.array_equal(pool_with(tmp_path, forecaster).forecast("scripted", demand(0, 336), 50), first)
        assert len(forecaster.contexts) == 1
        assert np.array_equal(pool_with(tmp_path).forecast("scripted", demand(0, 336), 50), first)

    def test_a_failed_forecast_is_not_kept(self, tmp_path: Path) -> None:
        with pytest.raises(BackendError):
            pool_with(tmp_path, Echo(fail=True)).forecast("scripted", demand(0, 336), 50)
        assert not list(tmp_path.rglob("*.forecast"))

    def test_the_cache_folder_is_the_variables(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CASTGYM_CACHE", str(tmp_path))
        assert cache_folder() == tmp_path


class TestForecastMany:
    def test_many_are_the_same_as_one_by_one(self) -> None:
        contexts = [demand(seed, steps) for seed in range(5) for steps in (336, 200)]
        together = pool_with(None, Echo()).forecast_many("scripted", contexts, 50)
        alone = pool_with(None, Echo())
        for row, context in zip(together, contexts, strict=True):
            assert np.array_equal(row, alone.forecast("scripted", context, 50))

    def test_only_what_is_missing_is_computed_and_in_batches(self, tmp_path: Path) -> None:
        contexts = [demand(seed, 48) for seed in range(200)]
        pool_with(tmp_path, Echo()).forecast_many("scripted", contexts[:70], 5)
        forecaster, told = Echo(), []
        pool = pool_with(tmp_path, forecaster)
        pool.forecast_many(
            "scripted", [*contexts, contexts[150]], 5, progress=lambda found, new: told.append((found, new))
        )
        assert [len(batch) for batch in forecaster.contexts] == [32, 32, 32, 32, 2]
        assert told[0] == (70, 0)
        assert sum(new for _, new in told) == 131
        pool.forecast_many("scripted", contexts, 5)
        assert len(forecaster.contexts) == 5

    def test_an_interrupted_call_keeps_its_finished_batches(self, tmp_path: Path) -> None:
        contexts = [demand(seed, 48) for seed in range(100)]

        def interrupt(found: int, new: int) -> None:
            del found
            if new and len(list(tmp_path.rglob("*.forecast"))) == 64:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            pool_with(tmp_path, Echo()).forecast_many("scripted", contexts, 5, progress=interrupt)
        forecaster = Echo()
        pool_with(tmp_path, forecaster).forecast_many("scripted", contexts, 5)
        assert sum(map(len, forecaster.contexts)) == 36

    def test_threads_give_what_one_gives(self) -> None:
        contexts = [demand(seed, 200 + seed % 3) for seed in range(150)]
        alone = pool_with(None, Echo()).forecast_many("scripted", contexts, 5)
        assert np.array_equal(pool_with(None, Echo()).forecast_many("scripted", contexts, 5, workers=4), alone)

    @pytest.mark.parametrize("workers", [1, 3])
    def test_a_fault_ends_the_call(self, workers: int) -> None:
        contexts = [demand(seed, 48) for seed in range(100)]
        with pytest.raises(BackendError, match="the backend went away"):
            pool_with(None, Echo(fail=True)).forecast_many("scripted", contexts, 5, workers)


class TestFracastOnDisk:
    """The real package."""

    def test_its_identity_is_found_without_importing_it(self) -> None:
        code = (
            "import sys; from castgym.tools.forecasters.fracast_model import package_identity;"
            "print(package_identity()); assert 'torch' not in sys.modules and 'fracast' not in sys.modules"
        )
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        assert re.fullmatch(r"fracast\|fracast=[\d.]+\|[0-9a-f]{64}", result.stdout.strip())
        assert result.stdout.strip() == fracast_model.package_identity()

    def test_the_command_warms_continues_and_then_has_nothing_to_do(self, tmp_path: Path) -> None:
        cases = [make_case(seed, family) for seed in range(3) for family in ("day_ahead", "week_ahead")]
        loaded = make_loaded(cases, models=("seasonal_empirical", "fracast"))
        save_case_set(tmp_path / "cases", loaded.case_set, loaded.targets)
        pool = ForecasterPool(default_entries(), cache=DiskCache(tmp_path / "cache" / "forecasts"))
        first = pool.forecast("fracast", cases[0].history, cases[0].expected_horizon)
        said = self.warm(tmp_path)
        assert "fracast: 6 forecasts for 6 test cases; 1 were cached, 5 computed" in said
        again = self.warm(tmp_path)
        assert "6 were cached, 0 computed" in again
        fresh = ForecasterPool(default_entries(), cache=DiskCache(tmp_path / "cache" / "forecasts"))
        assert np.array_equal(fresh.forecast("fracast", cases[0].history, cases[0].expected_horizon), first)

    def test_the_command_refuses_what_the_cases_do_not_sell(self, tmp_path: Path) -> None:
        loaded = make_loaded(models=("seasonal_empirical", "fracast"))
        save_case_set(tmp_path / "cases", loaded.case_set, loaded.targets)
        for options, part in (
            (["--model", "chronos2"], "does not sell chronos2"),
            (["--split", "best"], "--split"),
            (["--model", "seasonal_empirical"], "worth a cache"),
        ):
            result = self.run(tmp_path, *options)
            assert result.returncode == 2
            assert part in result.stderr
            assert "Traceback" not in result.stderr

    def warm(self, folder: Path) -> str:
        result = self.run(folder)
        assert result.returncode == 0, result.stderr
        return result.stdout

    def run(self, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(Path(sys.executable).parent / "castgym"), "forecast-cache", "warm", "--cases", "cases", *options],
            cwd=folder,
            capture_output=True,
            text=True,
            env={**os.environ, "COLUMNS": "160", "CASTGYM_CACHE": str(folder / "cache")},
            timeout=300,
        )
