"""Window sets from official files, their faults, and the folder that keeps them."""

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from castgym.data.errors import ConfigError, DataError
from castgym.data.schema import FloatArray
from castgym.data.windows import WINDOW_SPLITS
from castgym.data.windows_files import EPF_ROWS, LAYOUTS, read_window_set
from castgym.data.windows_simulate import simulated_windows
from castgym.data.windows_store import MANIFEST, load_window_sets, save_window_sets

TEMPERATURE, PRICE, WIND = simulated_windows(0)
EPF_NAMES = ("NP", "PJM", "BE", "FR", "DE")


def write_official(path: Path, name: str, rows: int, *, edit: Callable[[list[str]], None] | None = None) -> Path:
    """A file of an official layout: leading spaces in the header, values r + channel / 8."""
    layout = LAYOUTS[name]
    times = pd.date_range("2015-01-01", periods=rows, freq=layout.step)
    lines = [", ".join(["" if name == "DE" else "date", *layout.columns])]
    lines += [",".join([str(time), *(f"{row + at / 8}" for at in range(len(layout.columns)))]) for row, time in
              enumerate(f"{time:%Y-%m-%d %H:%M:%S}" for time in times)]  # fmt: skip
    if edit is not None:
        edit(lines)
    content = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def expected_values(name: str, rows: range) -> FloatArray:
    values: FloatArray = np.array([[row + at / 8 for at in range(len(LAYOUTS[name].columns))] for row in rows])
    return values


class TestFiles:
    @pytest.mark.parametrize("name", LAYOUTS)
    @pytest.mark.parametrize("pattern", ["{}.csv", "EPF_{}.csv.gz"])
    def test_each_layout_is_read_plain_or_compressed(self, tmp_path: Path, name: str, pattern: str) -> None:
        rows = 2400
        item = read_window_set(write_official(tmp_path / pattern.format(name), name, rows), whole_file=True)
        assert item.name == name
        assert item.channels == LAYOUTS[name].columns
        np.testing.assert_array_equal(item.values, expected_values(name, range(rows)))
        assert item.known == (item.channels[1:] if name in EPF_NAMES else ())
        assert bool(next(item.windows("test")).context) == (name in EPF_NAMES)

    def test_a_plain_and_a_compressed_copy_are_the_same_set(self, tmp_path: Path) -> None:
        plain = read_window_set(write_official(tmp_path / "ETTh1.csv", "ETTh1", 1000))
        packed = read_window_set(write_official(tmp_path / "etth1.CSV.gz", "ETTh1", 1000))
        assert plain.fingerprint == packed.fingerprint
        assert plain.source["sha256"] != packed.source["sha256"]

    def test_a_price_file_is_cut_to_the_papers_hours_unless_the_whole_file_is_wanted(self, tmp_path: Path) -> None:
        rows = EPF_ROWS + 240
        file = write_official(tmp_path / "EPF_NP.csv", "NP", rows)
        item = read_window_set(file)
        np.testing.assert_array_equal(item.values, expected_values("NP", range(240, rows)))
        assert item.times[0] == pd.Timestamp("2015-01-11")
        assert len(read_window_set(file, whole_file=True)) == rows
        with pytest.raises(DataError, match=r"at least 14,496 hours, found 2,400.*--whole-file"):
            read_window_set(write_official(tmp_path / "NP.csv", "NP", 2400))

    def test_the_header_tells_the_data_set_where_it_fits_one_only(self, tmp_path: Path) -> None:
        assert read_window_set(write_official(tmp_path / "mine.csv", "Wind", 2000)).name == "Wind"
        ett = write_official(tmp_path / "other.csv", "ETTm1", 2000)
        with pytest.raises(ConfigError, match="fits ETTh1, ETTh2, ETTm1, ETTm2; rename the file or pass --dataset"):
            read_window_set(ett)
        assert read_window_set(ett, dataset="ettm1").name == "ETTm1"
        with pytest.raises(ConfigError, match=r"expected a data set of ETTh1, .* found 'ETTh3'"):
            read_window_set(ett, dataset="ETTh3")
        (tmp_path / "x.csv").write_text("a,b\n1,2\n")
        with pytest.raises(ConfigError, match="fits none"):
            read_window_set(tmp_path / "x.csv")

    def test_lengths_can_be_chosen(self, tmp_path: Path) -> None:
        file = write_official(tmp_path / "ETTh1.csv", "ETTh1", 1000)
        item = read_window_set(file, length=48, horizon=24)
        assert (item.length, item.horizon) == (48, 24)
        assert next(item.windows("test")).history.shape == (48, 7)

    def test_an_empty_cell_is_a_missing_value(self, tmp_path: Path) -> None:
        def blank(lines: list[str]) -> None:
            lines[11] = lines[11].rsplit(",", 1)[0] + ","

        item = read_window_set(write_official(tmp_path / "Wind.csv", "Wind", 2000, edit=blank))
        assert np.argwhere(np.isnan(item.values)).tolist() == [[10, 6]]

    @pytest.mark.parametrize(
        ("edit", "message"),
        [
            (lambda lines: lines.__setitem__(0, lines[0].replace("OT", "oil")), "missing 'OT'; found 'date'"),
            (lambda lines: lines.__setitem__(0, lines[0].replace("HULL", "HUFL")), "'HUFL' repeated"),
            (lambda lines: lines.pop(50), r"line 51: expected a row every 1:00:00.*found 2015-01-03 02:00:00 after"),
            (lambda lines: lines.insert(50, lines[49]), "line 51: expected a row every 1:00:00.*drop repeated ones"),
            (lambda lines: lines.__setitem__(slice(1, None), lines[:0:-1]), "line 3: expected a row every.*sort"),
            (lambda lines: lines.__setitem__(5, lines[5].replace("2015-", "15-")), "line 6: expected a time YYYY-MM-"),
            (lambda lines: lines.__setitem__(5, "," + lines[5].split(",", 1)[1]), "line 6: expected a time.*found nan"),
            (lambda lines: lines.__setitem__(5, lines[5].replace(",", "+00:00,", 1)), "line 6: expected a time"),
            (lambda lines: lines.__setitem__(5, lines[5].rsplit(",", 1)[0] + ",x"), "line 6, column 'LULL': .*'x'"),
            (lambda lines: lines.__setitem__(5, lines[5].rsplit(",", 1)[0] + ",inf"), "line 6: expected finite LULL"),
            (lambda lines: lines.__setitem__(5, lines[5] + ",1,2"), "CSV table"),
            (lambda lines: lines.__delitem__(slice(1, None)), "a header but no rows"),
            (lambda lines: lines.__delitem__(slice(300, None)), "too few for a window of 96"),
        ],
    )  # fmt: skip
    def test_a_fault_of_a_file_is_named(self, tmp_path: Path, edit: Callable[[list[str]], None], message: str) -> None:
        with pytest.raises(DataError, match=message):
            read_window_set(write_official(tmp_path / "ETTh1.csv", "ETTh1", 1000, edit=edit))

    def test_prices_of_cut_days_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"expected whole days.*drop the hours of the cut days"):
            read_window_set(write_official(tmp_path / "DE.csv", "DE", 2401), whole_file=True)

    def test_a_file_that_is_not_there_or_no_text_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="cannot read"):
            read_window_set(tmp_path / "ETTh1.csv")
        (tmp_path / "ETTh1.csv").write_bytes(b"PK\0\0")
        with pytest.raises(DataError, match="no CSV text"):
            read_window_set(tmp_path / "ETTh1.csv")


class TestStore:
    def test_saved_sets_rebuild_to_the_same_fingerprint(self, tmp_path: Path) -> None:
        ett = read_window_set(write_official(tmp_path / "mine.csv", "ETTh2", 1000), dataset="ETTh2", horizon=24)
        price = read_window_set(write_official(tmp_path / "EPF_BE.csv.gz", "BE", 2400), whole_file=True)
        sets = [ett, price, PRICE.with_lengths(horizon=48)]
        save_window_sets(tmp_path / "out", sets)
        rebuilt = load_window_sets(tmp_path / "out", tmp_path)
        assert [item.fingerprint for item in rebuilt] == [item.fingerprint for item in sets]
        with pytest.raises(DataError, match=r"built from mine.csv: name the folder"):
            load_window_sets(tmp_path / "out")

    def test_a_changed_file_is_refused(self, tmp_path: Path) -> None:
        file = write_official(tmp_path / "ETTh1.csv", "ETTh1", 1000)
        save_window_sets(tmp_path / "out", [read_window_set(file)])
        file.write_text(file.read_text().replace("999.0", "999.5"))
        with pytest.raises(DataError, match="the file or the rule that cuts windows has changed"):
            load_window_sets(tmp_path / "out", tmp_path)

    def test_folders_are_not_replaced_by_accident_and_damaged_ones_are_named(self, tmp_path: Path) -> None:
        out = tmp_path / "out"
        save_window_sets(out, [PRICE])
        with pytest.raises(DataError, match="exists already"):
            save_window_sets(out, [WIND])
        save_window_sets(out, [WIND], overwrite=True)
        assert [item.name for item in load_window_sets(out)] == ["SIM_wind"]
        with pytest.raises(DataError, match="each data set once"):
            save_window_sets(tmp_path / "two", [WIND, WIND])
        manifest = json.loads((out / MANIFEST).read_text())
        for damage in ({"format": 2}, {"sets": [{}]}, {"sets": 3}):
            (out / MANIFEST).write_text(json.dumps({**manifest, **damage}))
            with pytest.raises(DataError, match=r"expected (format 1|a manifest)"):
                load_window_sets(out)
        (out / MANIFEST).unlink()
        (out / "note.txt").write_text("mine")
        with pytest.raises(DataError, match="holds something else"):
            save_window_sets(out, [WIND], overwrite=True)


class TestRealFiles:
    @pytest.mark.parametrize(
        ("name", "rows", "windows"),
        [
            ("ETTh1", 17_420, (10_261, 36, 36)),
            ("ETTh2", 17_420, (10_261, 36, 36)),
            ("ETTm1", 69_680, (41_617, 145, 145)),
            ("ETTm2", 69_680, (41_617, 145, 145)),
            ("Wind", 48_673, (33_880, 50, 101)),
            *((f"EPF_{name}", 14_496, (415, 62, 120)) for name in EPF_NAMES),
        ],
    )
    def test_official_files_have_the_lengths_of_the_paper(
        self, shared_data: Path, name: str, rows: int, windows: tuple[int, int, int]
    ) -> None:
        file = shared_data / f"{name}.csv.gz"
        if not file.is_file():
            pytest.skip(f"expected {file.name} in {shared_data}")
        item = read_window_set(file)
        assert len(item) == rows
        assert len(item.channels) == (3 if name.startswith("EPF") else 7)
        assert tuple(len(item.origins(split)) for split in WINDOW_SPLITS) == windows
        raw = pd.read_csv(file, skipinitialspace=True)
        np.testing.assert_array_equal(item.values[:, 0], raw[item.target].to_numpy()[-rows:])
        window = list(item.windows("test"))[-1]
        at = len(item.times[item.times < window.origin])
        np.testing.assert_array_equal(
            window.history, raw[list(item.channels)].to_numpy()[-rows:][at - item.length : at]
        )
        assert (window.origin.hour == 0) or not name.startswith("EPF")


def test_the_command_lists_the_simulated_sets_and_writes_their_manifest(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).parent / "castgym"), "data", "windows"]
    result = subprocess.run(
        [*command, "--out", "sets", "--horizon", "24"], cwd=tmp_path, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert all(item.name in result.stdout for item in (TEMPERATURE, PRICE, WIND))
    assert [item.horizon for item in load_window_sets(tmp_path / "sets")] == [24, 24, 24]
    write_official(tmp_path / "mine.csv", "ETTh1", 1000)
    result = subprocess.run([*command, "mine.csv"], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 2
    assert "pass --dataset NAME" in result.stderr
    result = subprocess.run([*command, "mine.csv", "--dataset", "ETTh1"], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "ETTh1" in result.stdout
    result = subprocess.run([*command, "--dataset", "ETTh1"], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 2
    assert "found 0 files" in result.stderr
