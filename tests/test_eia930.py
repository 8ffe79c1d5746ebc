"""EIA-930 files of both layouts, their faults, and the cases cut from them."""

import csv
import gzip
import hashlib
import io
from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from castgym.data.cohorts import PROTOCOL_COHORTS, Cohort
from castgym.data.eia930 import COHORTS, eia930_cases, read_eia930
from castgym.data.errors import ConfigError, DataError
from castgym.data.simulate_electricity import simulate_electricity

HEADER = (
    "Balancing Authority", "Data Date", "Hour Number", "Local Time at End of Hour", "UTC Time at End of Hour",
    "Demand Forecast (MW)", "Demand (MW)", "Net Generation (MW)", "Demand (MW) (Imputed)", "Demand (MW) (Adjusted)",
)  # fmt: skip
UTC_END, DEMAND, IMPUTED, ADJUSTED = 4, 6, 8, 9
HOUR = pd.Timedelta("1h")


def end_of_hour(start: pd.Timestamp) -> str:
    end = start + HOUR
    return f"{end:%m/%d/%Y} {(end.hour - 1) % 12 + 1}:00:00 {'AM' if end.hour < 12 else 'PM'}"


def number(value: float) -> str:
    return "" if np.isnan(value) else f"{value:,.0f}"


def balance_rows(demand: pd.DataFrame) -> list[list[str]]:
    """Rows of an official balance file: authority by authority, with thousands commas."""
    return [
        [
            name,
            f"{start:%m/%d/%Y}",
            "1",
            "see UTC",
            end_of_hour(start),
            "1,234",
            number(value),
            "9,876",
            "",
            number(value),
        ]
        for name in demand.columns
        for start, value in demand[name].items()
    ]


def write(path: Path, rows: Iterable[list[str]], header: Iterable[str] = HEADER, encoding: str = "utf-8") -> Path:
    stream = io.StringIO()
    csv.writer(stream).writerows([list(header), *rows])
    content = stream.getvalue().encode(encoding)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def write_wide(path: Path, demand: pd.DataFrame) -> Path:
    table = demand.set_axis(demand.index + HOUR).tz_localize(None)
    table.to_csv(path, index_label="utc_hour_ending")
    return path


def simulate(start: str, end: str, names: tuple[str, ...] = ("AZPS", "ERCO", "TAL")) -> pd.DataFrame:
    hours = pd.date_range(start, end, freq="h", tz="UTC", inclusive="left")
    table = simulate_electricity(hours, 5).iloc[:, [9, 11, 0]]
    return table.set_axis(list(names), axis=1)


@pytest.fixture(scope="module")
def week() -> pd.DataFrame:
    table = simulate("2021-03-01", "2021-03-08")
    table.iloc[30:33, 1] = np.nan
    return table


@pytest.fixture(scope="module")
def two_years() -> pd.DataFrame:
    return simulate("2021-01-01", "2022-10-01")


# Reading


@pytest.mark.parametrize("name", ["EIA930_BALANCE_2021_Jan_Jun.csv", "EIA930_BALANCE_2021_Jan_Jun.csv.gz"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_an_official_file_gives_demand_by_start_of_hour(
    tmp_path: Path, week: pd.DataFrame, name: str, encoding: str
) -> None:
    assert week.to_numpy()[~week.isna().to_numpy()].max() > 1000  # so that thousands commas occur
    demand, refused = read_eia930([write(tmp_path / name, balance_rows(week), encoding=encoding)])
    pd.testing.assert_frame_equal(demand, week, check_freq=False, check_index_type=False)
    assert refused.empty


def test_row_and_column_order_do_not_matter(tmp_path: Path, week: pd.DataFrame) -> None:
    rows = balance_rows(week)
    order = np.random.default_rng(0).permutation(len(rows))
    columns = np.random.default_rng(1).permutation(len(HEADER))
    shuffled = [[rows[row][column] for column in columns] for row in order]
    demand, _ = read_eia930([write(tmp_path / "a.csv", shuffled, [HEADER[column] for column in columns])])
    assert demand.equals(read_eia930([write(tmp_path / "b.csv", rows)])[0])


def test_a_wide_table_gives_the_same_as_official_files(tmp_path: Path, week: pd.DataFrame) -> None:
    wide, _ = read_eia930([write_wide(tmp_path / "wide.csv.gz", week)])
    halves = [write(tmp_path / f"{part}.csv", balance_rows(week.iloc[rows])) for part, rows in (
        ("one", slice(0, 80)), ("two", slice(80, None)))]  # fmt: skip
    assert wide.equals(read_eia930(halves)[0]) and wide.equals(read_eia930(halves[::-1])[0])
    assert wide.index[0] == pd.Timestamp("2021-03-01", tz="UTC")


def test_imputed_adjusted_and_absent_demand_is_unknown(tmp_path: Path, week: pd.DataFrame) -> None:
    rows = balance_rows(week)
    rows[3][IMPUTED] = "1,500"
    rows[5][ADJUSTED] = "77"
    rows[7][DEMAND], rows[7][IMPUTED], rows[7][ADJUSTED] = "", "1,400", "1,400"
    rows[9][ADJUSTED] = ""  # not adjusted
    demand, refused = read_eia930([write(tmp_path / "a.csv", rows)])
    assert np.flatnonzero(demand["AZPS"].isna()).tolist() == [3, 5, 7]
    found = [(row.series, row.hour, row.value, row.reason) for row in refused.itertuples()]
    values = week["AZPS"]
    assert found == [
        ("AZPS", week.index[3], values.iloc[3], "imputed"),
        ("AZPS", week.index[5], values.iloc[5], "adjusted"),
    ]


def test_repeated_rows_that_agree_are_merged_and_others_refused(tmp_path: Path, week: pd.DataFrame) -> None:
    rows = balance_rows(week)
    agreeing, other = list(rows[10]), list(rows[20])
    other[DEMAND] = other[ADJUSTED] = "1,111"
    third = [list(rows[40]), list(rows[40])]
    third[0][IMPUTED] = "5"
    blank = list(rows[60])
    blank[DEMAND] = blank[ADJUSTED] = ""
    demand, refused = read_eia930([write(tmp_path / "a.csv", [blank, *rows, agreeing, other, *third])])
    assert refused["hour"].tolist() == [week.index[20], week.index[40]]
    assert set(refused["reason"]) == {"conflict"} and np.flatnonzero(demand["AZPS"].isna()).tolist() == [20, 40]


def test_overlapping_files_must_agree(tmp_path: Path, week: pd.DataFrame) -> None:
    later = week.iloc[100:].copy()
    later.iloc[5, 2] += 1
    later.iloc[6, 0] = np.nan  # absent there, known in the first file
    paths = [write(tmp_path / "a.csv", balance_rows(week.iloc[:120])), write(tmp_path / "b.csv", balance_rows(later))]
    for order in (paths, paths[::-1]):
        demand, refused = read_eia930(order)
        assert refused[["series", "hour", "reason"]].to_numpy().tolist() == [["TAL", week.index[105], "conflict"]]
        expected = week.copy()
        expected.iloc[105, 2] = np.nan
        assert demand.equals(expected.set_axis(demand.index))


def test_hours_between_files_and_authorities_without_demand(tmp_path: Path, week: pd.DataFrame) -> None:
    rows = balance_rows(week.iloc[:24]) + balance_rows(week.iloc[100:124])
    rows += [["YAD", "", "", "", row[UTC_END], "", "", "500", "", ""] for row in balance_rows(week.iloc[:24, :1])]
    demand, _ = read_eia930([write(tmp_path / "a.csv", rows)])
    assert len(demand) == 124 and demand.iloc[24:100].isna().to_numpy().all()
    assert list(demand.columns) == ["AZPS", "ERCO", "TAL"]


def _cell(row: int, column: int, text: str) -> Callable[[list[list[str]]], None]:
    def edit(rows: list[list[str]]) -> None:
        rows[row][column] = text

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (_cell(4, DEMAND, "n.a."), r"line 6, column 'Demand \(MW\)'.*'n\.a\.'"),
        (_cell(4, IMPUTED, "yes"), r"line 6, column 'Demand \(MW\) \(Imputed\)'.*'yes'"),
        (_cell(4, DEMAND, "inf"), "finite"),
        (_cell(4, UTC_END, "2021-03-01 05:00"), "MM/DD/YYYY HH:MM:SS AM, found '2021-03-01 05:00'"),
        (_cell(4, UTC_END, "03/01/2021 17:00:00"), "MM/DD/YYYY"),
        (_cell(4, UTC_END, "13/01/2021 5:00:00 AM"), "MM/DD/YYYY"),
        (_cell(4, UTC_END, "03/01/2021 5:30:00 AM"), "full hours"),
        (_cell(4, UTC_END, ""), "line 6"),
        (_cell(4, 0, ""), "line 6"),
        (list.clear, "header but no rows"),
    ],
)
def test_faults_in_official_rows_are_named(
    tmp_path: Path, week: pd.DataFrame, edit: Callable[[list[list[str]]], None], message: str
) -> None:
    rows = balance_rows(week)
    edit(rows)
    with pytest.raises(DataError, match=message):
        read_eia930([write(tmp_path / "a.csv", rows)])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"PK\x03\x04\0\0\0\0", "no CSV"),
        ("Balancing Authority".encode("utf-16"), "no CSV"),
        (b"\x1f\x8b\x08damaged", "damaged gzip"),
        (b"\xff\xfe\xfd,x\n1,2\n", "UTF-8"),
        ((",".join(HEADER) + "\n" + "P\xe9,,,,03/01/2021 5:00:00 AM,,1,,,1\n").encode("latin-1"), "UTF-8"),
        (b"just some text\nwithout columns\n", "missing column"),
        (b"a;b;c\n1;2;3\n", "missing column"),
        (
            ",".join(HEADER[:8]).encode(),
            r"missing column\(s\) 'Demand \(MW\) \(Imputed\)', 'Demand \(MW\) \(Adjusted\)'",
        ),
        (",".join([*HEADER[:4], *HEADER[5:]]).encode(), "local times alone are ambiguous"),
        (",".join([*HEADER, HEADER[DEMAND]]).encode(), "repeated"),
        (b"utc_hour_ending\n2021-01-01 01:00:00\n", "a column for each authority"),
        (b"utc_hour_ending,ERCO\n", "no rows"),
        (b"utc_hour_ending,ERCO,ERCO\n2021-01-01 01:00:00,1,2\n", "repeated"),
        (b"utc_hour_ending,ERCO\n2021-01-01 01:00:00,x\n", "line 2, column 'ERCO'"),
        (b"utc_hour_ending,ERCO\n01.02.2021 01:00,5\n", "YYYY-MM-DD"),
        (b"utc_hour_ending,ERCO\n2021-01-01 01:15:00,5\n", "full hours"),
        (b"utc_hour_ending,ERCO\n2021-01-01 01:00:00,5\n2021-01-01 03:00:00,5\n", "consecutive hours"),
        (b"utc_hour_ending,ERCO\n2021-01-01 01:00:00,5\n2021-01-01 01:00:00,5\n", "consecutive hours"),
        (b"utc_hour_ending,ERCO\n2021-01-01 01:00:00,5,6,7\n", "CSV table|consecutive|YYYY"),
        (b"utc_hour_ending,ERCO\n2021-01-01 01:00:00,\n", "found none in any file"),
    ],
)
def test_files_of_another_kind_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "file.csv").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_eia930([tmp_path / "file.csv"])


def test_a_folder_a_missing_file_and_no_file_are_refused(tmp_path: Path) -> None:
    for paths, message in (([tmp_path], "is a folder"), ([tmp_path / "no.csv"], "cannot read"), ([], "at least one")):
        with pytest.raises(DataError, match=message):
            read_eia930(paths)


@pytest.mark.parametrize(("start", "end"), [("2021-03-10", "2021-03-20"), ("2021-11-03", "2021-11-12")])
def test_local_times_in_the_utc_column_are_noticed_where_clocks_change(tmp_path: Path, start: str, end: str) -> None:
    demand = simulate(start, end)
    local = (demand.index + HOUR).tz_convert("America/Chicago").tz_localize(None) - HOUR
    rows = balance_rows(demand)
    texts = [end_of_hour(time) for time in local] * len(demand.columns)
    for row, text in zip(rows, texts, strict=True):
        row[UTC_END] = text
    with pytest.raises(DataError, match="local times"):
        read_eia930([write(tmp_path / "a.csv", rows)])


def test_a_gap_of_one_authority_on_a_changing_day_is_no_local_time(tmp_path: Path) -> None:
    demand = simulate("2021-03-10", "2021-03-20")
    demand.loc[pd.Timestamp("2021-03-14 02:00", tz="UTC"), "TAL"] = np.nan
    read, _ = read_eia930([write(tmp_path / "a.csv", balance_rows(demand))])
    assert read.isna().to_numpy().sum() == 1


MARCH_GAP = pd.Timestamp("2021-03-14 02:00", tz="UTC")


def test_a_gap_of_the_only_authority_at_one_change_of_clocks_is_no_proof_of_local_times(tmp_path: Path) -> None:
    demand = simulate("2021-03-10", "2021-03-20")[["TAL"]]
    demand.loc[MARCH_GAP, "TAL"] = np.nan
    read, _ = read_eia930([write(tmp_path / "a.csv", balance_rows(demand))])
    assert read.index[read["TAL"].isna()].tolist() == [MARCH_GAP]


def test_the_only_authority_in_local_times_is_noticed_at_its_second_change_of_clocks(tmp_path: Path) -> None:
    demand = simulate("2021-03-10", "2021-11-12")[["TAL"]]
    local = (demand.index + HOUR).tz_convert("America/Chicago").tz_localize(None) - HOUR
    rows = balance_rows(demand)
    for row, time in zip(rows, local, strict=True):
        row[UTC_END] = end_of_hour(time)
    with pytest.raises(DataError, match="local times"):
        read_eia930([write(tmp_path / "a.csv", rows)])


def test_a_gap_of_all_authorities_is_a_gap_where_local_times_stand_beside_utc(tmp_path: Path) -> None:
    demand = simulate("2021-03-10", "2021-03-20")
    demand.loc[MARCH_GAP] = np.nan
    rows = balance_rows(demand)
    with pytest.raises(DataError, match="local times"):
        read_eia930([write(tmp_path / "without.csv", rows)])
    local = demand.index.tz_convert("America/Chicago").tz_localize(None)
    for row, time in zip(rows, [*local] * len(demand.columns), strict=True):
        row[HEADER.index("Local Time at End of Hour")] = end_of_hour(time)
    read, _ = read_eia930([write(tmp_path / "with.csv", rows)])
    assert read.index[read.isna().all(axis=1)].tolist() == [MARCH_GAP]


# Cases


def test_a_lead_of_one_day_needs_fewer_days_after_the_cohort(tmp_path: Path, two_years: pd.DataFrame) -> None:
    path = write_wide(tmp_path / "wide.csv", two_years.loc[:"2022-08-26"])  # type: ignore[misc]
    built = eia930_cases([path], families=["day_ahead"], train_stride=30)
    assert built.source["options"]["test_year"] == 2022
    assert {case.cohort for case in built.cases if case.split == "test"} == {cohort.name for cohort in COHORTS}
    assert eia930_cases([path], train_stride=30).source["options"]["test_year"] == 2021
    with pytest.raises(DataError, match="no cohort of 2023: each needs 15 days before its first date to the end"):
        eia930_cases([path], test_year=2023, families=["day_ahead"])


def test_cases_come_from_the_latest_year_with_a_whole_summer(tmp_path: Path, two_years: pd.DataFrame) -> None:
    path = write_wide(tmp_path / "wide.csv", two_years)
    built = eia930_cases([path], train_stride=5)
    assert built.name == "eia930-2022" and built.source["options"]["test_year"] == 2022
    test = [case for case in built.cases if case.split == "test"]
    assert len(test) == 3 * 24 and {case.as_of.year for case in test} == {2022}
    assert built.cohort_weights == pytest.approx({cohort.name: 1 / 3 for cohort in COHORTS})
    assert {case.split for case in built.cases} == {"train", "calibration", "test"}
    assert built.source["files"] == [{"name": "wide.csv", "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}]
    cut = eia930_cases([write_wide(tmp_path / "cut.csv", two_years.loc[:"2022-08-30"])], train_stride=5)  # type: ignore[misc]
    assert cut.source["options"]["test_year"] == 2021


def test_a_cohort_that_the_files_do_not_cover_is_left_out_and_named(tmp_path: Path, two_years: pd.DataFrame) -> None:
    path = write_wide(tmp_path / "wide.csv", two_years.loc["2022-03-01":])  # type: ignore[misc]
    built = eia930_cases([path], train_stride=5)
    assert built.source["left_out_cohorts"] == ["electricity-winter"]
    assert built.cohort_weights == pytest.approx({"electricity-july": 0.5, "electricity-august": 0.5})
    calibration = {case.as_of.date() for case in built.cases if case.split == "calibration"}
    assert max(calibration) == date(2022, 6, 23)
    for year, message in ((None, "no year has all"), (2021, "no cohort of 2021")):
        short = write_wide(tmp_path / f"{year}.csv", two_years.loc["2022-03-01":"2022-07-20"])  # type: ignore[misc]
        with pytest.raises(DataError, match=message):
            eia930_cases([short], test_year=year)


def test_options_choose_authorities_leads_and_cohorts(tmp_path: Path, two_years: pd.DataFrame) -> None:
    path = write_wide(tmp_path / "wide.csv", two_years)
    built = eia930_cases(
        [path],
        test_year=2021,
        cohorts=[Cohort("electricity", 9, (2, 3), 1.0)],
        families=["day_ahead"],
        authorities=["TAL"],
        train_stride=2,
    )
    assert {case.group_id for case in built.cases} == {"TAL"} and {case.family for case in built.cases} == {"day_ahead"}
    test = [case.case_id for case in built.cases if case.split == "test"]
    assert test == ["TAL-2021-09-02-day_ahead", "TAL-2021-09-03-day_ahead"]
    assert built.cohort_weights == {"electricity-september": 1.0}
    with pytest.raises(ConfigError, match="no authority NOPE in the files; found AZPS, ERCO, TAL"):
        eia930_cases([path], authorities=["TAL", "NOPE"])


def test_bad_values_exclude_their_windows_and_nothing_else(tmp_path: Path, two_years: pd.DataFrame) -> None:
    damaged = two_years.copy()
    spike = pd.Timestamp("2022-07-20 10:00", tz="UTC")
    damaged.loc[spike, "ERCO"] *= 40
    before = eia930_cases([write_wide(tmp_path / "a.csv", two_years)], train_stride=5)
    after = eia930_cases([write_wide(tmp_path / "b.csv", damaged)], train_stride=5)
    lost = {case.case_id for case in before.cases} - {case.case_id for case in after.cases}
    july_25, august_1 = "ERCO-2022-07-25", "ERCO-2022-08-01"  # both histories hold July 20
    assert lost == {f"{start}-{lead}" for start in (july_25, august_1) for lead in ("day_ahead", "week_ahead")}
    assert {row.reason for row in after.exclusions} == {"history_unknown"}
    assert after.source["unknown_hours"] == {"absent": 0, "far_from_level": 1}


def test_real_files_give_the_known_cases(eia930_files: list[Path]) -> None:
    built = eia930_cases(eia930_files, train_stride=30)
    counts = {
        cohort.name: sum(case.cohort == cohort.name and case.split == "test" for case in built.cases)
        for cohort in PROTOCOL_COHORTS[:3]
    }
    assert counts == {"electricity-winter": 370, "electricity-july": 385, "electricity-august": 365}
    assert len({case.group_id for case in built.cases if case.split == "test"}) == 50


def test_real_demand_in_the_official_layout_reads_the_same(tmp_path: Path, eia930_files: list[Path]) -> None:
    wide, _ = read_eia930(eia930_files[:1])
    part = wide.iloc[1500:1800]
    official, refused = read_eia930([write(tmp_path / "a.csv.gz", balance_rows(part))])
    assert refused.empty
    pd.testing.assert_frame_equal(official, part[list(official.columns)], check_freq=False, check_index_type=False)
