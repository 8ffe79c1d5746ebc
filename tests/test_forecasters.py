"""Forecasters behind one protocol, and the pool that loads and caches them."""

import subprocess
import sys
import threading

import numpy as np
import pytest
from factories import ScriptedForecaster, demand, scripted_pool
from hypothesis import given, settings
from hypothesis import strategies as st

from castgym.data.errors import ConfigError, ForecasterUnavailableError
from castgym.tools.forecasters import fracast_model, seasonal
from castgym.tools.forecasters.base import (
    QUANTILE_LEVELS,
    QUANTILE_MASSES,
    BackendError,
    Forecaster,
    checked_forecast,
    pinball_loss,
)
from castgym.tools.forecasters.pool import ForecasterEntry, ForecasterPool, default_entries
from castgym.tools.forecasters.seasonal import SeasonalEmpirical


def test_the_masses_of_the_nine_quantiles_sum_to_one() -> None:
    assert QUANTILE_MASSES == (0.15, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.15)
    assert sum(QUANTILE_MASSES) == pytest.approx(1)


@settings(max_examples=30, deadline=None)
@given(length=st.integers(168, 700), horizon=st.integers(1, 336), seed=st.integers(0, 99))
def test_seasonal_empirical_is_the_inverted_cdf_of_the_same_hour_of_week(length: int, horizon: int, seed: int) -> None:
    context = np.random.default_rng(seed).random((2, length))
    quantiles = SeasonalEmpirical().predict(context, horizon)
    assert quantiles.shape == (2, horizon, 9)
    for step in {0, horizon // 2, horizon - 1}:
        values = context[:, (length + step) % 168 :: 168]
        expected = np.quantile(values, QUANTILE_LEVELS, axis=1, method="inverted_cdf").T
        assert np.array_equal(quantiles[:, step], expected)


def test_pinball_loss_of_the_median_is_half_the_absolute_error() -> None:
    quantiles = np.full((1, 9), 10.0)
    assert pinball_loss(quantiles, np.array([14.0])) == pytest.approx(4 * np.mean(QUANTILE_LEVELS))
    assert pinball_loss(quantiles, np.array([10.0])) == 0


class Crossing(ScriptedForecaster):
    def predict(self, context: np.ndarray, horizon: int) -> np.ndarray:
        return super().predict(context, horizon)[..., ::-1]


class WrongShape(ScriptedForecaster):
    def predict(self, context: np.ndarray, horizon: int) -> np.ndarray:
        return super().predict(context, horizon)[:, :-1]


class NotFinite(ScriptedForecaster):
    def predict(self, context: np.ndarray, horizon: int) -> np.ndarray:
        return np.full_like(super().predict(context, horizon), np.nan)


def test_crossing_quantiles_are_sorted_and_the_result_is_read_only() -> None:
    quantiles = checked_forecast(Crossing(), np.ones((1, 10)), 3)
    assert (np.diff(quantiles, axis=-1) >= 0).all()
    with pytest.raises(ValueError, match="read-only"):
        quantiles[0] = 0


@pytest.mark.parametrize("forecaster", [WrongShape(), NotFinite(), ScriptedForecaster(fail=True)])
def test_what_is_no_forecast_is_a_backend_error(forecaster: Forecaster) -> None:
    with pytest.raises(BackendError, match="scripted"):
        checked_forecast(forecaster, np.ones((1, 10)), 3)


class TestPool:
    def test_equal_content_is_forecast_once(self) -> None:
        forecaster = ScriptedForecaster()
        pool = scripted_pool(forecaster)
        context = demand(0, 336)
        first = pool.forecast("scripted", context, 50)
        assert pool.forecast("scripted", context.copy(), 50) is first
        assert pool.forecast("scripted", context, 51) is not first
        assert pool.forecast("scripted", context[1:], 50) is not first
        assert len(forecaster.contexts) == 3

    def test_the_cache_forgets_the_oldest(self) -> None:
        forecaster = ScriptedForecaster()
        pool = ForecasterPool([ForecasterEntry(forecaster.info, lambda: forecaster)], cache_entries=2)
        for number in (0, 1, 2, 0):
            pool.forecast("scripted", demand(number, 48), 5)
        assert len(forecaster.contexts) == 4

    def test_many_threads_build_a_forecaster_once(self) -> None:
        built = []

        def build() -> ScriptedForecaster:
            built.append(1)
            return ScriptedForecaster()

        pool = ForecasterPool([ForecasterEntry(ScriptedForecaster.info, build)])
        threads = [threading.Thread(target=pool.get, args=("scripted",)) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert built == [1]

    def test_threads_that_ask_first_at_once_share_one_pool(self) -> None:
        """In a process of its own, whose pool takes a while to make."""
        code = (
            "import threading, time\n"
            "from castgym.tools.forecasters import pool\n"
            "make, made, found = pool.default_entries, [], []\n"
            "def slow():\n    made.append(1); time.sleep(0.1); return make()\n"
            "pool.default_entries = slow\n"
            "gate = threading.Barrier(16)\n"
            "def ask():\n    gate.wait(); found.append(pool.shared_pool())\n"
            "threads = [threading.Thread(target=ask) for _ in range(16)]\n"
            "[thread.start() for thread in threads]; [thread.join() for thread in threads]\n"
            "print(len(found), len(set(map(id, found))), len(made))\n"
        )
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        assert result.stdout.split() == ["16", "1", "1"], result.stderr

    def test_descriptions_need_no_package(self) -> None:
        pool = ForecasterPool(default_entries())
        assert pool.info("fracast") == fracast_model.INFO
        assert pool.info("seasonal_empirical") == seasonal.INFO

    def test_unknown_names_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="chronos9"):
            ForecasterPool(default_entries()).get("chronos9")

    def test_a_missing_package_names_the_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "fracast", None)
        with pytest.raises(ForecasterUnavailableError, match=r"castgym\[forecast\]"):
            ForecasterPool(default_entries()).get("fracast")


@pytest.fixture(scope="module")
def pool() -> ForecasterPool:
    pool = ForecasterPool(default_entries())
    pool.require(["fracast"])
    return pool


class TestFracast:
    """The real package with its real weights."""

    def test_forecasts_beat_a_flat_guess_on_seasonal_demand(self, pool: ForecasterPool) -> None:
        series = demand(1, 336 + 50)
        quantiles = pool.forecast("fracast", series[:336], 50)
        assert quantiles.shape == (50, 9)
        flat = np.quantile(series[:336], QUANTILE_LEVELS)
        assert pinball_loss(quantiles, series[336:]) < 0.8 * pinball_loss(np.tile(flat, (50, 1)), series[336:])

    def test_a_forecast_does_not_depend_on_its_neighbours(self, pool: ForecasterPool) -> None:
        contexts = np.stack([demand(seed, 336) for seed in range(3)])
        together = pool.get("fracast").predict(contexts, 50)
        alone = pool.get("fracast").predict(contexts[1:2], 50)
        assert np.array_equal(together[1], alone[0])

    def test_missing_weights_name_the_source(self) -> None:
        with pytest.raises(ForecasterUnavailableError, match="no fracast weights"):
            fracast_model.Fracast(source="/no/such/folder/")
