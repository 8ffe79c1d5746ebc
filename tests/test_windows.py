"""Windows of public data sets: what a window may show, the splits, the official files and their faults."""

import copy
import gzip
import itertools
import json
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from castgym.data.errors import ConfigError, DataError
from castgym.data.schema import FloatArray
from castgym.data.windows import WINDOW_SPLITS, Window, WindowSplit, WindowTarget, WindowTargets
from castgym.data.windows_files import EPF_ROWS, LAYOUTS, read_window_set
from castgym.data.windows_set import WindowSet
from castgym.data.windows_simulate import simulated_windows
from castgym.data.windows_store import MANIFEST, load_window_sets, save_window_sets

TEMPERATURE, PRICE, WIND = simulated_windows(0)
EPF_NAMES = ("NP", "PJM", "BE", "FR", "DE")
HOUR = timedelta(hours=1)


def counting(rows: int = 100, **changes: object) -> WindowSet:
    """Two channels whose values tell their row: r and 1000 + r."""
    settings_: dict[str, object] = {
        "name": "COUNT",
        "start": datetime(2020, 1, 1),
        "step": HOUR,
        "channels": ("target", "other"),
        "values": np.column_stack([np.arange(rows), 1000 + np.arange(rows)]).astype(np.float64),
        "length": 5,
        "horizon": 3,
        "ratio": (6, 2, 2),
    }
    return WindowSet(**{**settings_, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("item", [TEMPERATURE, PRICE, WIND], ids=lambda item: item.name)
class TestLeakage:
    @settings(max_examples=60, deadline=None)
    @given(data=st.data())
    def test_no_value_at_or_after_the_origin_reaches_a_window_but_the_known_series_over_its_horizon(
        self, item: WindowSet, data: st.DataObject
    ) -> None:
        split = data.draw(st.sampled_from(WINDOW_SPLITS))
        origin = data.draw(st.sampled_from(list(item.origins(split, stride=item.align))))
        row = int((origin - item.start) // item.step)
        garbage = np.random.default_rng(data.draw(st.integers(0, 9))).normal(0.0, 1e6, item.values.shape)
        changed = item.values.copy()
        changed[row:] = garbage[row:]
        known = [item.channels.index(name) for name in item.known]
        changed[row : row + item.horizon, known] = item.values[row : row + item.horizon, known]
        perturbed = replace(item, values=changed)
        assert perturbed.window(split, origin).digest == item.window(split, origin).digest
        assert not np.array_equal(
            perturbed.target_at(split, origin).actual, item.target_at(split, origin).actual
        )  # the change is real

    @settings(max_examples=30, deadline=None)
    @given(data=st.data())
    def test_every_value_that_a_window_may_show_reaches_it(self, item: WindowSet, data: st.DataObject) -> None:
        split = data.draw(st.sampled_from(WINDOW_SPLITS))
        origin = data.draw(st.sampled_from(list(item.origins(split))))
        row = int((origin - item.start) // item.step)
        channel = data.draw(st.integers(0, len(item.channels) - 1))
        after = item.horizon if item.channels[channel] in item.known else 0
        touched = data.draw(st.integers(row - item.length, row + after - 1))
        changed = item.values.copy()
        changed[touched, channel] += 1.0
        perturbed = replace(item, values=changed)
        assert perturbed.window(split, origin).digest != item.window(split, origin).digest

    @settings(max_examples=20, deadline=None)
    @given(seed=st.integers(0, 99))
    def test_training_statistics_read_the_training_split_only(self, item: WindowSet, seed: int) -> None:
        end = item.borders["train"][1]
        changed = item.values.copy()
        changed[end:] = np.random.default_rng(seed).normal(0.0, 1e6, changed[end:].shape)
        later = replace(item, values=changed).statistics
        np.testing.assert_array_equal(later.mean, item.statistics.mean)
        np.testing.assert_array_equal(later.std, item.statistics.std)
        changed[end - 1] += 1.0
        assert (replace(item, values=changed).statistics.mean != item.statistics.mean).all()

    def test_a_window_owns_its_arrays_and_refers_to_nothing_larger(self, item: WindowSet) -> None:
        window = next(item.windows("test"))
        for array, shape in ((window.history, item.length), (window.known_future, item.horizon)):
            assert array.base is None  # no way back to the whole table
            assert len(array) == shape
            assert not array.flags.writeable
        simple = (str, tuple, datetime, timedelta, np.ndarray)
        assert all(isinstance(getattr(window, entry.name), simple) for entry in fields(Window))

    def test_the_context_does_not_depend_on_any_value(self, item: WindowSet) -> None:
        other = replace(item, values=np.random.default_rng(1).normal(size=item.values.shape))
        for split in WINDOW_SPLITS:
            assert [w.context for w in item.windows(split)][:20] == [w.context for w in other.windows(split)][:20]


class TestSplitsAndOrigins:
    def test_history_ends_and_horizon_begins_at_the_origin(self) -> None:
        item = counting()
        window = item.window("test", datetime(2020, 1, 1) + 83 * HOUR)
        np.testing.assert_array_equal(window.history, [[row, 1000 + row] for row in range(78, 83)])
        np.testing.assert_array_equal(item.target_at("test", window.origin).actual, [83, 84, 85])
        assert window.window_id == "COUNT-test-2020-01-04T11:00"
        assert list(window.history_times) == list(item.times[78:83])
        assert list(window.horizon_times) == list(item.times[83:86])
        assert window.known_future.shape == (3, 0)
        assert (window.length, window.horizon, window.context) == (5, 3, "")

    def test_known_series_are_shown_over_the_horizon(self) -> None:
        window = counting(known=("other",)).window("test", datetime(2020, 1, 1) + 80 * HOUR)
        np.testing.assert_array_equal(window.known_future, [[1080], [1081], [1082]])
        assert window.known_channels == ("other",)

    @given(
        rows=st.integers(60, 400),
        length=st.integers(1, 10),
        horizon=st.integers(1, 6),
        ratio=st.sampled_from([(6, 2, 2), (7, 1, 2)]),
        align=st.sampled_from([1, 2, 6]),
    )
    def test_splits_are_chronological_cover_all_rows_and_hold_every_horizon(
        self, rows: int, length: int, horizon: int, ratio: tuple[int, int, int], align: int
    ) -> None:
        rows -= rows % align
        item = counting(rows, length=length, horizon=min(horizon, rows // 20), ratio=ratio, align=align)
        borders = [item.borders[split] for split in WINDOW_SPLITS]
        assert borders[0][0] == 0
        assert borders[-1][1] == rows
        assert all(before[1] == after[0] for before, after in itertools.pairwise(borders))
        blocks = rows // align
        assert borders[0][1] == blocks * ratio[0] // 10 * align
        assert rows - borders[2][0] == blocks * 2 // 10 * align
        for split, (first, end) in zip(WINDOW_SPLITS, borders, strict=True):
            starts = [(origin - item.start) // HOUR for origin in item.origins(split, stride=align)]
            assert all(first <= row and row + item.horizon <= end and row >= length for row in starts)
            assert all(row % align == 0 for row in starts)
            assert starts == sorted(set(starts))

    def test_test_windows_neither_overlap_nor_leave_rows_out_and_training_uses_every_origin(self) -> None:
        item = counting()
        assert list(item.origins("test")) == list(item.times[80:98:3])
        assert list(item.origins("train")) == list(item.times[5:58])
        assert list(item.origins("train", stride=10)) == list(item.times[5:58:10])

    def test_windows_and_targets_have_the_same_ids_in_the_same_order(self) -> None:
        for item in (TEMPERATURE, PRICE, WIND):
            for split in WINDOW_SPLITS:
                assert [w.window_id for w in item.windows(split)] == list(item.targets(split))

    def test_a_window_whose_target_has_a_gap_is_left_out_and_a_gap_in_history_stays(self) -> None:
        values = counting().values.copy()
        values[84, 0] = np.nan
        item = counting(values=values)
        assert list(item.origins("test", stride=1)) == [item.times[row] for row in (80, 81, *range(85, 98))]
        assert np.isnan(item.window("test", item.times[85]).history[4, 0])
        with pytest.raises(ConfigError, match="no window at"):
            item.window("test", item.times[83])
        values[:79, 0] = np.nan
        with pytest.raises(DataError, match="'target' has no known value in the training split"):
            counting(values=values)
        values[0, 0] = 1.0
        assert item.times[79] not in counting(values=values).origins("validation", stride=1)
        assert item.times[79] not in counting(values=values, length=4).origins("validation", stride=1)

    @pytest.mark.parametrize(
        "origin",
        [
            datetime(2020, 1, 1) + 79 * HOUR,  # validation
            datetime(2020, 1, 1) + 98 * HOUR,  # horizon past the end
            datetime(2020, 1, 4, 10, 30),  # between rows
            datetime(2030, 1, 1),
            datetime(1990, 1, 1),
            datetime(2020, 1, 4, 10, tzinfo=UTC),
        ],
    )
    def test_an_origin_without_a_window_is_refused(self, origin: datetime) -> None:
        with pytest.raises(ConfigError, match="the test split has no window at"):
            counting().window("test", origin)
        with pytest.raises(ConfigError, match="the test split has no window at"):
            counting().target_at("test", origin)

    def test_wrong_splits_and_strides_are_refused(self) -> None:
        wrong: WindowSplit = "calibration"  # type: ignore[assignment]
        with pytest.raises(ConfigError, match="expected a split of train, validation, test"):
            counting().origins(wrong)
        with pytest.raises(ConfigError, match="expected a split of train, validation, test"):
            counting().window(wrong, datetime(2020, 1, 4))
        with pytest.raises(ConfigError, match="multiple of 1, found 0"):
            counting().origins("test", stride=0)
        with pytest.raises(ConfigError, match="multiple of 24, found 25"):
            PRICE.origins("test", stride=25)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"name": "a b"}, "letters, digits and _"),
            ({"start": datetime(2020, 1, 1, tzinfo=UTC)}, "without time zone"),
            ({"step": timedelta(seconds=90)}, "whole minutes"),
            ({"horizon": 0}, ">= 1"),
            ({"ratio": (7, 0, 3)}, ">= 1"),
            ({"channels": ("target", "target")}, "different channels"),
            ({"known": ("target",)}, "expected known series among"),
            ({"align": 24}, "whole blocks of 24 rows, found 100"),
            ({"horizon": 21}, "the validation split has 20 of 100 rows, too few"),
            ({"length": 58}, "the train split has 60 of 100 rows, too few"),
            ({"values": np.full((100, 2), np.inf)}, "found infinity"),
            ({"values": np.zeros((100, 3))}, "expected shape"),
        ],
    )
    def test_settings_that_do_not_fit_are_refused(self, changes: dict[str, object], message: str) -> None:
        with pytest.raises((ConfigError, DataError), match=message):
            counting(**changes)

    def test_statistics_are_those_of_the_known_training_values(self) -> None:
        values = counting().values.copy()
        values[:10, 0] = np.nan
        values[:, 1] = 7.0
        statistics = counting(values=values).statistics
        np.testing.assert_allclose(statistics.mean, [np.arange(10, 60).mean(), 7.0])
        np.testing.assert_allclose(statistics.std, [np.arange(10, 60).std(), 1.0])
        assert not statistics.mean.flags.writeable

    def test_copies_and_pickles_stay_read_only_and_equal(self) -> None:
        for item in (TEMPERATURE, PRICE):
            window, target = next(item.windows("test")), item.target_at("test", item.origins("test")[0])
            again = pickle.loads(pickle.dumps((item, window, target)))
            assert again[0].fingerprint == item.fingerprint
            assert again[1].digest == window.digest
            assert again[2].window_id == window.window_id
            arrays = (again[0].values, again[1].history, again[1].known_future, again[2].actual)
            assert not any(array.flags.writeable for array in arrays)
            assert copy.deepcopy(window) is window

    def test_the_fingerprint_changes_with_values_and_settings_but_not_with_the_source(self) -> None:
        item = counting()
        changed = item.values.copy()
        changed[99, 1] += 1e-9
        others = [
            replace(item, values=changed),
            replace(item, horizon=2),
            replace(item, ratio=(7, 1, 2)),
            replace(item, known=("other",)),
            replace(item, start=datetime(2020, 1, 2)),
            replace(item, unit="MW"),
        ]
        assert len({other.fingerprint for other in [item, *others]}) == 7
        assert replace(item, source={"kind": "elsewhere"}).fingerprint == item.fingerprint

    def test_targets_of_other_windows_are_refused(self) -> None:
        with pytest.raises(DataError, match="belong to other windows"):
            TEMPERATURE.targets("test")["PRICE-test-2020-01-01T00:00"]
        with pytest.raises(DataError, match="duplicates"):
            WindowTargets([WindowTarget("a", np.zeros(3)), WindowTarget("a", np.zeros(3))])
        with pytest.raises(DataError, match="finite"):
            WindowTarget("a", np.array([1.0, np.nan]))


class TestContext:
    @pytest.mark.parametrize(
        ("name", "day", "line"),
        [
            ("NP", "2018-12-25", "Target day: Tuesday 2018-12-25, winter, weekday, public holiday in Norway, Sweden, "),
            ("NP", "2018-06-06", "Wednesday 2018-06-06, summer, weekday, public holiday in Sweden, hours 00:00 to 23"),
            ("PJM", "2018-07-04", "Wednesday 2018-07-04, summer, weekday, public holiday in Illinois, hours 00:00"),
            ("BE", "2016-07-21", "Thursday 2016-07-21, summer, weekday, public holiday in Belgium, hours"),
            ("FR", "2016-07-14", "Thursday 2016-07-14, summer, weekday, public holiday in France, hours"),
            ("DE", "2017-10-03", "Tuesday 2017-10-03, autumn, weekday, public holiday in Germany, hours"),
            ("DE", "2017-03-05", "Sunday 2017-03-05, spring, weekend, no public holiday, hours 00:00 to 23:00."),
        ],
    )
    def test_a_market_names_the_day_and_its_holidays(self, name: str, day: str, line: str) -> None:
        market = LAYOUTS[name].market
        assert market is not None
        text = market.text(pd.date_range(day, periods=24, freq="h"))
        assert line in text
        assert len(text.splitlines()) == 3
        assert ("USD/MWh" if name == "PJM" else "EUR/MWh") in text.splitlines()[0]

    def test_a_horizon_of_two_days_has_a_line_for_each(self) -> None:
        window = next(PRICE.with_lengths(horizon=48).windows("test"))
        days = re.findall(r"Target day: \w+ (\S+),", window.context)
        assert days == [f"{window.origin:%Y-%m-%d}", f"{window.origin + timedelta(days=1):%Y-%m-%d}"]


class TestSimulated:
    GOLDEN = ("5f4cf9a28be614ef", "67d7eb511df5e8e1", "c62b299d33b22b5d")

    def test_the_sets_of_seed_0_never_change(self) -> None:
        assert tuple(item.fingerprint[:16] for item in (TEMPERATURE, PRICE, WIND)) == self.GOLDEN

    def test_seeds_differ_and_repeat(self) -> None:
        first, again = ([item.fingerprint for item in simulated_windows(5)] for _ in range(2))
        assert first == again
        assert not set(first) & {item.fingerprint for item in (TEMPERATURE, PRICE, WIND)}

    def test_some_prices_are_negative_and_most_are_not(self) -> None:
        negative = float((PRICE.values[:, 0] < 0).mean())
        assert 0.005 < negative < 0.05

    def test_values_are_hundredths_within_bounds(self) -> None:
        for item in (TEMPERATURE, PRICE, WIND):
            np.testing.assert_array_equal(np.rint(item.values * 100) / 100, item.values)
        assert WIND.values[:, 0].min() >= 0
        assert WIND.values[:, 0].max() <= 100


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
