"""Windows of public data sets: what a window may show, the splits, and the simulated sets."""

import copy
import itertools
import pickle
import re
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from castgym.data.errors import ConfigError, DataError
from castgym.data.windows import WINDOW_SPLITS, Window, WindowSplit, WindowTarget, WindowTargets
from castgym.data.windows_files import LAYOUTS
from castgym.data.windows_set import WindowSet
from castgym.data.windows_simulate import simulated_windows

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
