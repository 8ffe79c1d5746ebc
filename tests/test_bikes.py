"""Wide tables of hourly counts at bike stations: reading, closed hours, calendars, and the cases cut from them."""

import gzip
import json
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from castgym.data.bikes import bike_cases, parse_closed_hours, read_bikes
from castgym.data.builder import summary
from castgym.data.cohorts import Cohort
from castgym.data.errors import ConfigError, DataError
from castgym.data.simulate_cycle_hire import simulate_cycle_hire

JULY = (Cohort("cycle_hire", 7, (20, 21, 22), 1.0),)


def simulate(start: str, end: str) -> pd.DataFrame:
    hours = pd.date_range(start, end, freq="h", tz="UTC", inclusive="left")
    return simulate_cycle_hire(hours, 5).iloc[:, :3].set_axis(["north:1", "north:2", "south:7"], axis=1)


def write(path: Path, counts: pd.DataFrame) -> Path:
    counts.tz_localize(None).to_csv(path, index_label="utc_hour_start", float_format="%.0f")
    return path


def without_nights(counts: pd.DataFrame, timezone: str = "Europe/Oslo") -> pd.DataFrame:
    """The rows of the local hours 06 to 23, as a file of a system that closes at night has them."""
    return counts[pd.DatetimeIndex(counts.index).tz_convert(timezone).hour >= 6]


@pytest.fixture(scope="module")
def summer() -> pd.DataFrame:
    return simulate("2023-06-01", "2023-08-01")


# Reading


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_blank_cells_and_absent_hours_are_unknown(tmp_path: Path, name: str) -> None:
    counts = simulate("2023-06-01", "2023-06-03")
    counts.iloc[5, 1] = np.nan
    rows = counts.drop(counts.index[[10, 11, 20]])
    write(tmp_path / name, rows)
    read = read_bikes([tmp_path / name]).counts
    expected = counts.copy()
    expected.iloc[[10, 11, 20]] = np.nan
    pd.testing.assert_frame_equal(read, expected, check_freq=False, check_index_type=False)


def test_the_order_of_rows_does_not_matter_and_files_are_joined(tmp_path: Path) -> None:
    counts = simulate("2023-06-01", "2023-06-05")
    shuffled = write(tmp_path / "a.csv", counts.sample(frac=1, random_state=0))
    parts = [write(tmp_path / "b.csv", counts.iloc[:60, [1, 0]]), write(tmp_path / "c.csv", counts.iloc[40:])]
    expected = counts.copy()
    expected.iloc[:40, 2] = np.nan
    assert read_bikes([shuffled]).counts.equals(counts.set_axis(read_bikes([shuffled]).counts.index))
    for order in (parts, parts[::-1]):
        pd.testing.assert_frame_equal(read_bikes(order).counts, expected, check_freq=False, check_index_type=False)


def test_files_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    counts = simulate("2023-06-01", "2023-06-03")
    other = counts.iloc[30:].copy()
    other.iloc[4, 2] += 1
    paths = [write(tmp_path / "a.csv", counts), write(tmp_path / "b.csv", other)]
    with pytest.raises(DataError, match=r"b\.csv contradicts an earlier file: station 'south:7', 2023-06-02 10:00 UTC"):
        read_bikes(paths)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"utc_hour_start,a\n", "no rows"),
        (b"utc_hour_start\n2023-06-01 00:00:00\n", "a named column for each station"),
        (b"utc_hour_start,a,\n2023-06-01 00:00:00,1,2\n", "a named column for each station"),
        (b"utc_hour_start,a,a\n2023-06-01 00:00:00,1,2\n", "repeated"),
        (b"hour,a\n2023-06-01 00:00:00,1\n", "first column 'utc_hour_start', found 'hour', 'a'"),
        (b"utc_hour_start,a\n2023-06-01 00:00:00,x\n", "line 2, column 'a': expected a number of journeys"),
        (b"utc_hour_start,a\n2023-06-01 00:00:00,-1\n", "whole number of journeys >= 0, found -1"),
        (b"utc_hour_start,a\n2023-06-01 00:00:00,1\n2023-06-01 01:00:00,1.5\n", "line 3, column 'a'.* found 1.5"),
        (b"utc_hour_start,a\n2023-06-01 00:00:00,inf\n", "finite"),
        (b"utc_hour_start,a\n2023-06-01 00:30:00,1\n", "full hours"),
        (b"utc_hour_start,a\n01.06.2023 00:00,1\n", "UTC start of an hour as YYYY-MM-DD"),
        (b"utc_hour_start,a\n,1\n", "UTC start of an hour"),
        (b"utc_hour_start,a\n2023-06-01 00:00:00,1\n2023-06-01 00:00:00,1\n", "each hour once.*repeated"),
        (b"utc_hour_start,a\n2023-06-01 00:00:00,1,2\n", "as many cells"),
        (b"utc_hour_start,a\n1023-06-01 00:00:00,1\n2023-06-01 00:00:00,1\n", "expected years|YYYY-MM-DD"),
        (b"utc_hour_start,a\xe9\n2023-06-01 00:00:00,1\n", "UTF-8"),
        ("utc_hour_start,a\n2023-06-01 00:00:00,1\n".encode("utf-16"), "no CSV"),
        (gzip.compress(b"utc_hour_start,a\n")[:-4], "damaged gzip"),
    ],
)
def test_files_of_another_kind_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "file.csv").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_bikes([tmp_path / "file.csv"])


def test_a_folder_a_missing_file_and_no_file_are_refused(tmp_path: Path) -> None:
    for paths, message in (([tmp_path], "is a folder"), ([tmp_path / "no.csv"], "cannot read"), ([], "at least one")):
        with pytest.raises(DataError, match=message):
            read_bikes(paths)


# Closed hours


@given(start=st.integers(0, 23), length=st.integers(1, 23))
def test_closed_hours_run_from_the_first_to_the_second_over_midnight_too(start: int, length: int) -> None:
    stop = (start + length) % 24
    assert parse_closed_hours(f"{start:02}-{stop:02}") == [(start + step) % 24 for step in range(length)]


def test_closed_hours_until_midnight_may_end_at_24() -> None:
    assert parse_closed_hours("22-24") == parse_closed_hours("22-00") == [22, 23]
    assert parse_closed_hours("1-24") == list(range(1, 24))


@pytest.mark.parametrize("text", ["", "6", "00-25", "24-06", "05-05", "00-24", "a-b", "00:00-06:00", "-6", "00-06-07"])
def test_other_closed_hours_are_refused(tmp_path: Path, summer: pd.DataFrame, text: str) -> None:
    path = write(tmp_path / "a.csv", summer)
    with pytest.raises(ConfigError, match="HH-HH"):
        bike_cases([path], cohorts=JULY, closed_hours=text)


def test_nights_without_rows_exclude_every_window_until_they_are_declared_closed(
    tmp_path: Path, summer: pd.DataFrame
) -> None:
    open_hours = without_nights(summer)
    path = write(tmp_path / "a.csv", open_hours)
    options = {"cohorts": JULY, "calendar": "Europe/Oslo", "train_stride": 5}
    with pytest.raises(DataError, match=r"history_unknown 18.* local hours 0, 1, 2, 3, 4, 5 are unknown.*closed_hours"):
        bike_cases([path], **options)  # type: ignore[arg-type]
    built = bike_cases([path], closed_hours="00-06", **options)  # type: ignore[arg-type]
    assert {case.split for case in built.cases} == {"train", "calibration", "test"} and not built.exclusions
    for case in built.cases:
        hours = case.history_hours.tz_convert("Europe/Oslo").hour
        known = open_hours[case.group_id.removeprefix("BIKE-")].reindex(case.history_hours)
        assert (case.history[hours < 6] == 0).all()
        assert case.history[hours >= 6].tolist() == known[hours >= 6].tolist()
    lengths = pd.DatetimeIndex(summer.index).tz_convert("Europe/Oslo").hour < 6
    inside = (summer.index >= open_hours.index[0]) & (summer.index <= open_hours.index[-1])
    filled = 3 * int((lengths & inside).sum())
    assert built.source["closed_hours"] == {"local_hours": "00-06", "filled": filled, "busy": 0}


def test_a_declaration_changes_no_known_count_and_no_other_hour(tmp_path: Path, summer: pd.DataFrame) -> None:
    damaged = summer.copy()
    night, noon = pd.Timestamp("2023-07-15 01:00", tz="UTC"), pd.Timestamp("2023-07-15 12:00", tz="UTC")
    damaged.loc[[night, noon], "north:1"] = np.nan
    path = write(tmp_path / "a.csv", damaged)
    built = bike_cases([path], cohorts=JULY, calendar="Europe/Oslo", closed_hours="03-04")
    at_three = damaged[pd.DatetimeIndex(damaged.index).tz_convert("Europe/Oslo").hour == 3]
    busy = int((at_three > 0).to_numpy().sum())
    assert built.source["closed_hours"] == {
        "local_hours": "03-04",
        "filled": 1,
        "busy": busy,
    }
    assert {row.case_id for row in built.exclusions if row.split == "test"} == {
        f"BIKE-north:1-2023-07-{day}-day_ahead" for day in (20, 21, 22)
    }
    assert {row.count for row in built.exclusions if row.split == "test"} == {1}  # noon, not the night
    plain = bike_cases([path], cohorts=JULY, calendar="Europe/Oslo")
    assert {row.count for row in plain.exclusions if row.split == "test"} == {2}


# Cases


def test_calendar_unit_and_prefix_are_those_of_the_options(tmp_path: Path, summer: pd.DataFrame) -> None:
    path = write(tmp_path / "a.csv", summer)
    for calendar, first_hour in (("Europe/Oslo", 22), ("Europe/London", 23), ("America/New_York", 4), ("UTC", 0)):
        built = bike_cases(
            [path],
            cohorts=JULY,
            families=["day_ahead"],
            stations=["south:7"],
            prefix="OSL",
            calendar=calendar,
            unit="arrivals/hour",
            train_stride=5,
        )
        test = [case for case in built.cases if case.split == "test"]
        assert [case.case_id for case in test] == [f"OSL-south:7-2023-07-{day}-day_ahead" for day in (20, 21, 22)]
        assert {(case.unit, case.timezone, case.domain) for case in built.cases} == {
            ("arrivals/hour", calendar, "cycle_hire")
        }
        assert {case.target_start.hour for case in built.cases} == {first_hour} and built.name == "osl-2023"
        day = 20 if first_hour < 12 else 19
        assert test[0].target_start == datetime(2023, 7, day, first_hour, tzinfo=UTC)
        truth = summer.loc[test[0].target_start :, "south:7"].iloc[:24]  # type: ignore[misc]
        assert built.targets[test[0].case_id].actual.tolist() == truth.tolist()
        json.dumps(built.source)


def test_a_day_without_a_count_is_a_day_of_the_calendar(tmp_path: Path, summer: pd.DataFrame) -> None:
    quiet = summer.copy()
    quiet.loc["2023-07-14 22:00":"2023-07-15 21:00", "north:2"] = 0.0  # type: ignore[misc]
    path = write(tmp_path / "a.csv", quiet)
    oslo = bike_cases([path], cohorts=JULY, calendar="Europe/Oslo")
    assert {(row.group_id, row.reason) for row in oslo.exclusions if row.split == "test"} == {
        ("BIKE-north:2", "empty_local_day")
    }
    quiet.loc["2023-07-14 22:00", "north:2"] = quiet.loc["2023-07-15 22:00", "north:2"] = 1.0
    assert not bike_cases([write(path, quiet)], cohorts=JULY, calendar="Europe/London").exclusions


def test_where_clocks_change_at_midnight_days_are_still_counted(tmp_path: Path) -> None:
    counts = simulate("2023-07-01", "2023-10-01")  # the clocks of Santiago skip the first hour of September 3
    path = write(tmp_path / "a.csv", counts)
    built = bike_cases(
        [path], cohorts=[Cohort("cycle_hire", 9, (25, 26), 1.0)], calendar="America/Santiago", train_stride=1
    )
    dates = {case.case_id[-len("2023-09-03-day_ahead") :] for case in built.cases if case.family == "day_ahead"}
    assert not built.exclusions and "2023-09-02-day_ahead" in dates and "2023-09-03-day_ahead" not in dates


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"calendar": "Europe/Atlantis"}, "calendar such as Europe/London, found 'Europe/Atlantis'"),
        ({"calendar": "Europe"}, "calendar such as"),
        ({"calendar": ""}, "calendar such as"),
        ({"calendar": "../etc"}, "calendar such as"),
        ({"calendar": "Asia/Kolkata"}, "offsets are whole hours"),
        ({"unit": "bikes"}, "unit of departures/hour, arrivals/hour"),
        ({"prefix": ""}, "prefix"),
        ({"prefix": "a b"}, "prefix"),
        ({"stations": ["north:1", "east:1"]}, "no station east:1 in the files; found 'north:1', 'north:2', 'south:7'"),
        ({"train_stride": 7}, "multiple of 7"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    tmp_path: Path, summer: pd.DataFrame, options: dict[str, object], message: str
) -> None:
    path = write(tmp_path / "a.csv", summer)
    with pytest.raises(ConfigError, match=message):
        bike_cases([path], **{"cohorts": JULY, **options})  # type: ignore[arg-type]


def test_the_latest_year_that_is_covered_is_taken(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", simulate("2022-04-01", "2023-05-20"))
    built = bike_cases([path], train_stride=30)
    assert {case.as_of.year for case in built.cases if case.split == "test"} == {2022}
    with pytest.raises(DataError, match="no year has all of cycle-hire-june"):
        bike_cases([write(path, simulate("2023-04-01", "2023-05-20"))], cohorts=[Cohort("cycle_hire", 6, (3,), 1.0)])


# Real arrivals


def test_real_arrivals_support_no_window_as_they_are(norway_bikes: Path) -> None:
    counts = read_bikes([norway_bikes]).counts
    assert counts.shape == (3522, 60) and int(counts.isna().to_numpy().sum()) == 890 * 60
    cohort = Cohort("cycle_hire", 8, (1, 3, 5, 7, 9, 11), 1.0)
    with pytest.raises(DataError, match=r"no test case is left of 720 windows \(history_unknown 720\).*closed_hours"):
        bike_cases([norway_bikes], cohorts=[cohort], calendar="Europe/Oslo", unit="arrivals/hour")


def test_real_arrivals_with_declared_nights_give_a_whole_set(norway_bikes: Path) -> None:
    built = bike_cases(
        [norway_bikes],
        cohorts=[Cohort("cycle_hire", 8, (1, 3, 5, 7, 9, 11), 1.0)],
        calendar="Europe/Oslo",
        unit="arrivals/hour",
        closed_hours="00-06",
    )
    table = summary(built).groupby("split")[["cases", "excluded"]].sum()
    assert table.loc["test"].tolist() == [415, 305] and table.loc["calibration"].tolist() == [411, 429]
    assert table.loc["train"].tolist() == [295, 2705]
    assert built.source["closed_hours"] == {"local_hours": "00-06", "filled": 52_380, "busy": 49}
    dates = {date.fromisoformat(case.case_id[-20:-10]) for case in built.cases if case.family == "day_ahead"}
    assert min(dates) >= date(2021, 5, 8)
