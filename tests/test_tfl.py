"""Cases cut from London journeys: choice of stations, cohorts, coverage, and a real week."""

import json
from datetime import UTC, date, datetime
from pathlib import Path

import pandas as pd
import pytest
from tfl_extracts import HOUR, Journey, hourly, season, utc, write, write_season

from castgym.data.builder import BuiltCases
from castgym.data.cohorts import Cohort
from castgym.data.errors import ConfigError, DataError
from castgym.data.tfl import read_tfl, tfl_cases


@pytest.fixture(scope="module")
def departures() -> pd.DataFrame:
    return season("2023-02-28", "2023-05-28 23:00")


@pytest.fixture(scope="module")
def extracts(tmp_path_factory: pytest.TempPathFactory, departures: pd.DataFrame) -> list[Path]:
    return write_season(tmp_path_factory.mktemp("tfl"), departures)


# The choice of stations


def test_the_most_active_stations_come_first_and_ties_by_id(tmp_path: Path) -> None:
    journeys = hourly("2023-04-03", 48, ["000900", "000100", "200000"])
    journeys += [Journey(str(place), "2023-04-04 08:00", "000500") for place in range(100)]
    found = read_tfl([write(tmp_path / "a.csv", journeys)])
    assert found.most_active(date(2023, 4, 3), 2, 3) == ["000500", "000100", "000900"]
    assert found.most_active(date(2023, 4, 3), 1, 20) == ["000100", "000900", "200000"]  # the other one has none
    for first, days in ((date(2023, 4, 2), 2), (date(2023, 4, 4), 2), (date(2024, 4, 1), 7)):
        with pytest.raises(DataError, match="selection_start and selection_days, or stations"):
            found.most_active(first, days, 3)
    with pytest.raises(ConfigError, match="at least one day and one station"):
        found.most_active(date(2023, 4, 3), 0, 3)


# Cases


def cases_of(built: BuiltCases, split: str) -> list[str]:
    return [case.case_id for case in built.cases if case.split == split]


def test_extracts_give_the_departures_that_they_were_made_from(departures: pd.DataFrame, extracts: list[Path]) -> None:
    found = read_tfl(extracts)
    pd.testing.assert_frame_equal(found.table(), departures, check_freq=False, check_index_type=False)
    assert found.journeys["duplicate"] > 0 and found.journeys["departures"] == departures.to_numpy().sum()


def test_cases_are_those_of_the_protocol(departures: pd.DataFrame, extracts: list[Path]) -> None:
    built = tfl_cases(extracts, n_stations=10)
    active = departures.loc["2023-03-31 23:00":"2023-04-07 22:00"].sum()  # type: ignore[misc]
    chosen = sorted(active.index, key=lambda name: (-active[name], name))[:10]
    assert built.name == "tfl-2023" and built.source["options"]["stations"] == chosen
    assert cases_of(built, "test") == [
        f"TFL-{name}-2023-05-{day:02}-{family}"
        for day in (3, 11, 19, 27)
        for family in ("day_ahead", "week_ahead")
        for name in chosen
    ]
    assert not built.exclusions and built.cohort_weights == {"cycle-hire-may": 1.0}
    assert {case.split for case in built.cases} == {"train", "calibration", "test"}
    case = next(case for case in built.cases if case.case_id == f"TFL-{chosen[0]}-2023-05-11-week_ahead")
    assert (case.unit, case.timezone, case.group_id) == ("departures/hour", "Europe/London", f"TFL-{chosen[0]}")
    assert case.target_start == datetime(2023, 5, 10, 23, tzinfo=UTC)
    truth = departures.loc[case.target_start : case.target_end - HOUR, chosen[0]]  # type: ignore[misc]
    assert built.targets[case.case_id].actual.tolist() == truth.tolist()
    visible = departures.loc[case.history_start : case.last_visible, chosen[0]]  # type: ignore[misc]
    assert case.history.tolist() == visible.tolist()
    json.dumps(built.source)


def test_options_choose_stations_cohorts_leads_and_the_window_of_selection(extracts: list[Path]) -> None:
    built = tfl_cases(
        extracts,
        cohorts=[Cohort("cycle_hire", 5, (20, 21), 1.0)],
        families=["day_ahead"],
        stations=["1001", 1058, "001001"],
        train_stride=5,
    )
    assert cases_of(built, "test") == [
        f"TFL-{name}-2023-05-{day}-day_ahead" for day in (20, 21) for name in ("001001", "001058")
    ]
    assert built.source["options"]["selection"] is None
    other = tfl_cases(extracts, selection_start=date(2023, 3, 6), selection_days=2, n_stations=1)
    assert other.source["options"]["selection"] == {"start": "2023-03-06", "days": 2, "stations": 1}
    assert len({case.group_id for case in other.cases}) == 1
    with pytest.raises(ConfigError, match="no station 000077 in the files, which have 13 start stations"):
        tfl_cases(extracts, stations=["77"])
    for nothing in ([], ["no id"]):
        with pytest.raises(ConfigError, match="ids of stations"):
            tfl_cases(extracts, stations=nothing)
    with pytest.raises(DataError, match="chosen by their departures from 2022-05-01 to 2022-05-07"):
        tfl_cases(extracts, selection_start=date(2022, 5, 1))


def test_a_missing_hour_of_the_system_excludes_its_windows(tmp_path: Path, departures: pd.DataFrame) -> None:
    damaged = departures.copy()
    damaged.loc["2023-05-12 10:00"] = 0.0
    built = tfl_cases(write_season(tmp_path, damaged), n_stations=5, train_stride=30)
    lost = {(row.case_id[11:], row.reason, row.count) for row in built.exclusions}
    # The histories of May 19 (day ahead only: a week ahead was decided before May 12) and of May 27 hold that hour.
    assert lost == {
        ("2023-05-19-day_ahead", "history_unknown", 1),
        ("2023-05-27-day_ahead", "history_unknown", 1),
        ("2023-05-27-week_ahead", "history_unknown", 1),
    }
    assert len(built.exclusions) == 15 and built.source["hours"]["unknown"] == 1


def test_a_year_that_is_not_covered_says_what_the_files_cover(extracts: list[Path]) -> None:
    with pytest.raises(DataError, match="no year has all of cycle-hire-june"):
        tfl_cases(extracts, cohorts=[Cohort("cycle_hire", 6, (3,), 1.0)])
    with pytest.raises(DataError, match=r"no test case is left of 16 windows \(outside_data 16\)"):
        tfl_cases(extracts, test_year=2022, stations=["1001", "1058"])


# Real journeys


def test_a_real_week_is_counted_and_too_short_for_cases(tfl_sample: Path) -> None:
    found = read_tfl([tfl_sample], layout="seconds-2019")
    assert found.journeys == {"rows": 158_822, "departures": 158_822}
    assert (len(found.stations), len(found.hours), int(found.known.sum())) == (787, 168, 168)
    assert (found.hours[0], found.hours[-1]) == (utc("2020-09-29 23:00"), utc("2020-10-06 22:00"))
    assert found.most_active(date(2020, 9, 30), 7, 3) == ["000132", "000194", "000154"]
    rows = pd.read_csv(tfl_sample, header=None)
    assert found.table(["000430"]).sum().item() == (rows[0] == 430).sum()
    options = {"layout": "seconds-2019", "selection_start": date(2020, 9, 30)}
    cohort = Cohort("cycle_hire", 10, (4, 5), 1.0)
    with pytest.raises(DataError, match=r"no test case is left of 80 windows \(outside_data 80\)"):
        tfl_cases([tfl_sample], test_year=2020, cohorts=[cohort], **options)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="files cover 2020-09-29 23:00 to 2020-10-06 23:00 UTC: no year has all"):
        tfl_cases([tfl_sample], **options)  # type: ignore[arg-type]


def test_real_journeys_in_the_official_layout_count_the_same(tmp_path: Path, tfl_sample: Path) -> None:
    rows = pd.read_csv(tfl_sample, header=None).iloc[:50_000]
    starts = pd.Timestamp("2019-01-01") + pd.to_timedelta(rows[2], unit="s")
    table = pd.DataFrame({"Rental Id": rows.index, "StartStation Id": rows[0], "Start Date": starts})
    table["Start Date"] = starts.dt.strftime("%d/%m/%Y %H:%M")
    table.to_csv(tmp_path / "official.csv.gz", index=False)
    rows.to_csv(tmp_path / "seconds.csv", header=False, index=False)
    official = read_tfl([tmp_path / "official.csv.gz"])
    seconds = read_tfl([tmp_path / "seconds.csv"], layout="seconds-2019")
    assert official.table().equals(seconds.table()) and len(official.hours) == 24  # and a part of a day
