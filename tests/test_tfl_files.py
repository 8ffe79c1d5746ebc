"""London journeys of every layout, their faults, and the count by station and UTC hour."""

import gzip
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tfl_extracts import HOUR, LONDON, MINUTE, NEW, OLD, Journey, hourly, utc, write, write_old

from castgym.data.errors import ConfigError, DataError
from castgym.data.tfl import read_tfl
from castgym.data.tfl_files import station_id

# Reading


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_both_official_layouts_give_the_same_departures(tmp_path: Path, name: str, encoding: str) -> None:
    journeys = hourly("2023-04-03", 48, ["001057", "300001"])
    old_style = [
        Journey(row.number, f"{datetime.fromisoformat(row.start):%d/%m/%Y %H:%M}", row.station.lstrip("0"))
        for row in journeys
    ]
    new = read_tfl([write(tmp_path / name, journeys, encoding=encoding)])
    old = read_tfl([write_old(tmp_path / f"old-{name}", old_style, encoding=encoding)])
    expected = pd.DataFrame(
        1.0,
        index=pd.date_range("2023-04-02 23:00", periods=48, freq="h", tz="UTC"),
        columns=["001057", "300001"],
    )
    for found in (new, old):
        pd.testing.assert_frame_equal(found.table(), expected, check_freq=False, check_index_type=False)
        assert found.journeys == {"rows": 96, "departures": 96}
    assert [found.files[0]["layout"] for found in (new, old)] == ["official-2022", "official-2012"]


@pytest.mark.parametrize("text", ["{:%d/%m/%Y %H:%M:%S}", "{:%Y-%m-%d %H:%M:%S}", " {:%d/%m/%Y %H:%M} "])
def test_every_format_of_times_is_read(tmp_path: Path, text: str) -> None:
    journeys = hourly("2023-04-03", 24)
    other = [Journey(row.number, text.format(datetime.fromisoformat(row.start)), row.station) for row in journeys]
    found = read_tfl([write(tmp_path / "a.csv", other)])
    assert found.table().equals(read_tfl([write(tmp_path / "b.csv", journeys)]).table())


def test_the_order_of_columns_and_the_spelling_of_their_names_do_not_matter(tmp_path: Path) -> None:
    journeys = hourly("2023-04-03", 24)
    header = ("StartStation Id", "Start_Date", "StartStation Name", "Duration_Seconds", "rental id", "", "")
    found = read_tfl([write(tmp_path / "a.csv", journeys, header, ("rental id", "Start_Date", "StartStation Id"))])
    assert found.table().equals(read_tfl([write(tmp_path / "b.csv", journeys)]).table())


def test_rows_that_end_in_a_comma_are_not_shifted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", hourly("2023-04-03", 24))
    head, *rows = path.read_text().splitlines()
    path.write_text("\n".join([head, *(f"{row}," for row in rows)]))
    assert read_tfl([path]).journeys == {"rows": 24, "departures": 24}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1057, "001057"), ("1057", "001057"), ("001057", "001057"), (" 1057 ", "001057"), ("1057.0", "001057"),
        (1057.0, "001057"), ("1234567", "1234567"), ("300006-1", "300006-1"), ("001057_old", "001057_old"),
        ("0", None), ("000", None), ("", None), ("1 2", None), ("-", "-"), ("1.5", None), ("²", None), ("a,b", None),
    ],
)  # fmt: skip
def test_ids_of_stations_are_written_alike(value: object, expected: str | None) -> None:
    assert station_id(value) == expected


def test_stations_written_differently_are_one(tmp_path: Path) -> None:
    journeys = hourly("2023-04-03", 24)
    mixed = [
        Journey(row.number, row.start, ["1057", "001057", "1057.0"][place % 3]) for place, row in enumerate(journeys)
    ]
    assert read_tfl([write(tmp_path / "a.csv", mixed)]).stations == ("001057",)


# The clocks


def test_in_spring_journeys_of_the_skipped_hour_are_left_out_and_no_utc_hour_is_lost(tmp_path: Path) -> None:
    journeys = [*hourly("2023-03-25", 71), Journey("7", "2023-03-26 01:30", "001057")]
    found = read_tfl([write(tmp_path / "a.csv", journeys)])
    assert found.hours[0] == utc("2023-03-25 00:00") and len(found.hours) == 71 and found.known.all()
    assert found.journeys == {"rows": 72, "departures": 71, "skipped_hour": 1}
    assert (found.table() == 1).to_numpy().all()


def test_in_autumn_the_repeated_hour_is_unknown_for_every_station(tmp_path: Path) -> None:
    found = read_tfl([write(tmp_path / "a.csv", hourly("2023-10-28", 73, ["001057", "300001"]))])
    assert found.hours[0] == utc("2023-10-27 23:00") and len(found.hours) == 73
    unknown = found.hours[~found.known]
    assert list(unknown) == [utc("2023-10-29 00:00"), utc("2023-10-29 01:00")]
    assert found.table().loc[unknown].isna().to_numpy().all()
    assert found.journeys == {"rows": 146, "departures": 142, "ambiguous_hour": 4}


# Coverage


def test_an_hour_without_any_journey_is_unknown_and_a_quiet_station_is_zero(tmp_path: Path) -> None:
    journeys = hourly("2023-04-03", 72)
    gone = [row for row in journeys if row.start[:13] != "2023-04-04 11"]
    found = read_tfl([write(tmp_path / "a.csv", [*gone, Journey("7", "2023-04-03 08:00", "000900")])])
    table = found.table()
    assert table.index[table["001057"].isna()].tolist() == [utc("2023-04-04 10:00")]
    quiet = table["000900"]
    assert quiet.sum() == 1 and (quiet == 0).sum() == 70 and quiet.isna().sum() == 1


@pytest.mark.parametrize(("cut", "kept"), [(1, 48), (23, 48), (24, 48), (25, 24)])
def test_days_that_a_file_holds_partly_are_unknown(tmp_path: Path, cut: int, kept: int) -> None:
    """A file of three days loses its first or last `cut` hours."""
    journeys = hourly("2023-04-03", 72)
    for rows, day in ((journeys[cut:], 5), (journeys[:-cut], 3)):
        found = read_tfl([write(tmp_path / "a.csv", rows)])
        assert len(found.hours) == kept and found.known.all()
        assert found.journeys.get("partly_covered_day", 0) == 72 - cut - kept
        assert found.table().loc[utc(f"2023-04-0{day} 12:00"), "001057"] == 1


def test_a_wrong_date_covers_nothing(tmp_path: Path) -> None:
    strange = [Journey("7", "1900-01-01 00:00", "001057"), Journey("8", "2099-01-01 23:59", "001057")]
    found = read_tfl([write(tmp_path / "a.csv", [*hourly("2023-04-03", 48), *strange])])
    assert len(found.hours) == 48 and found.journeys["partly_covered_day"] == 2


def test_a_day_that_one_file_holds_partly_is_known_from_another(tmp_path: Path) -> None:
    journeys = hourly("2023-04-03", 72)
    late = write(tmp_path / "b.csv", journeys[40:])  # begins with a few journeys of the day before
    early = write(tmp_path / "a.csv", journeys[:48])
    for paths in ([early, late], [late, early]):
        found = read_tfl(paths)
        assert len(found.hours) == 72 and found.known.all() and (found.table() == 1).to_numpy().all()
        assert found.journeys == {"rows": 80, "departures": 72, "duplicate": 8}


def test_hours_between_files_are_unknown(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / "a.csv", hourly("2023-04-03", 24)),
        write(tmp_path / "b.csv", hourly("2023-04-06", 24, first=9000)),
    ]
    found = read_tfl(paths)
    assert len(found.hours) == 96 and found.known.sum() == 48 and found.table().isna().sum().item() == 48


# Journey numbers


def test_rows_with_one_number_and_different_starts_make_their_hours_unknown(tmp_path: Path) -> None:
    journeys = hourly("2023-04-03", 48, ["001057", "300001"])
    other = [
        Journey(journeys[20].number, journeys[30].start, "300001"),  # another hour and station
        Journey(journeys[40].number, journeys[40].start, journeys[40].station),  # the same
    ]
    found = read_tfl([write(tmp_path / "a.csv", [*journeys, *other])])
    table = found.table()
    assert [(str(time), name) for name in table for time in table.index[table[name].isna()]] == [
        ("2023-04-03 09:00:00+00:00", "001057"),
        ("2023-04-03 14:00:00+00:00", "300001"),
    ]
    assert found.journeys == {"rows": 98, "departures": 95, "duplicate": 1, "conflicting_number": 2}


@pytest.mark.parametrize(
    ("journey", "reason"),
    [
        (Journey("", "2023-04-03 08:00", "001057"), "invalid_number"),
        (Journey("12.5", "2023-04-03 08:00", "001057"), "invalid_number"),
        (Journey("1e300", "2023-04-03 08:00", "001057"), "invalid_number"),
        (Journey("-3", "2023-04-03 08:00", "001057"), "invalid_number"),
        (Journey("7", "", "001057"), "invalid_start_time"),
        (Journey("7", "yesterday", "001057"), "invalid_start_time"),
        (Journey("7", "2023-02-30 08:00", "001057"), "invalid_start_time"),
        (Journey("7", "2023-04-03 08:00", ""), "invalid_start_station"),
        (Journey("7", "2023-04-03 08:00", "0"), "invalid_start_station"),
        (Journey("7", "2023-04-03 08:00", "Strand, Strand"), "invalid_start_station"),
        (Journey("", "", ""), "invalid_number"),
    ],
)
def test_a_row_that_is_no_countable_journey_is_left_out_and_counted(
    tmp_path: Path, journey: Journey, reason: str
) -> None:
    found = read_tfl([write(tmp_path / "a.csv", [*hourly("2023-04-03", 24), journey])])
    assert found.journeys == {"rows": 25, "departures": 24, reason: 1}
    assert (found.table() == 1).to_numpy().all()


def naive_count(files: list[list[Journey]]) -> tuple[dict[tuple[str, datetime], float], set[datetime]]:
    """Departures (NaN: conflict) and known hours, counted journey by journey with the standard library."""
    by_number: dict[str, set[tuple[datetime, str]]] = {}
    known: set[datetime] = set()
    for rows in files:
        hours = set()
        for row in rows:
            try:
                local = datetime.strptime(row.start, "%Y-%m-%d %H:%M")
            except ValueError:
                continue
            both = {local.replace(tzinfo=LONDON, fold=fold).astimezone(UTC) for fold in (0, 1)}
            if len(both) > 1 or not row.number or not row.station:
                continue
            start = both.pop()
            by_number.setdefault(row.number, set()).add((start, row.station))
            hours.add(start.replace(minute=0))
        whole = [
            day
            for day in {hour.astimezone(LONDON).date() for hour in hours}
            if {0, 23} <= {hour.astimezone(LONDON).hour for hour in hours if hour.astimezone(LONDON).date() == day}
        ]
        if whole:
            known |= {hour for hour in hours if min(whole) <= hour.astimezone(LONDON).date() <= max(whole)}
    counts: dict[tuple[str, datetime], float] = Counter()
    for starts in by_number.values():
        for start, station in starts:
            counts[station, start.replace(minute=0)] += 1 if len(starts) == 1 else float("nan")
    return counts, known


@st.composite
def journey_files(draw: st.DrawFn) -> list[list[Journey]]:
    first = draw(st.sampled_from(["2023-03-25", "2023-10-28", "2023-06-01"]))
    base = hourly(first, draw(st.integers(60, 80)))
    base = base[draw(st.integers(0, 30)) :]
    lost = draw(st.sets(st.integers(0, len(base) - 1), max_size=4))
    base = [row for place, row in enumerate(base) if place not in lost]
    midnight = datetime.fromisoformat(first)
    extra = st.builds(
        Journey,
        number=st.sampled_from(["", "1", "2", "3", "1010", "1020", "1030"]),
        start=st.one_of(
            st.integers(-3 * 60, 80 * 60).map(lambda minutes: f"{midnight + minutes * MINUTE:%Y-%m-%d %H:%M}"),
            st.sampled_from(["", base[0].start, base[20].start, f"{midnight + 25.5 * HOUR:%Y-%m-%d %H:%M}"]),
        ),
        station=st.sampled_from(["", "001057", "000002", "300001"]),
    )
    rows = base + draw(st.lists(extra, max_size=8))
    rows = draw(st.permutations(rows)) if draw(st.booleans()) else rows
    start, stop = sorted(draw(st.tuples(st.integers(0, len(rows)), st.integers(0, len(rows)))))
    return [rows, rows[start:stop]] if stop > start else [rows]


@settings(max_examples=60, deadline=None)
@given(files=journey_files())
def test_the_count_equals_one_journey_by_journey(
    files: list[list[Journey]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("files")
    paths = [write(folder / f"{place}.csv", rows) for place, rows in enumerate(files)]
    counts, known = naive_count(files)
    if not known:
        with pytest.raises(DataError, match=r"whole day|none in"):
            read_tfl(paths)
        return
    try:
        found = read_tfl(paths)
    except DataError as error:
        assert "none in" in str(error)  # a part of only a few rows may hold no journey
        return
    assert set(found.hours[found.known].to_pydatetime()) == known
    table = found.table()
    expected = pd.DataFrame(np.nan, index=table.index, columns=table.columns)
    expected.loc[sorted(known)] = 0.0
    for (station, hour), count in counts.items():
        if hour in known:
            expected.loc[hour, station] = count
    pd.testing.assert_frame_equal(table, expected)
    assert sum(found.journeys.values()) == 2 * found.journeys["rows"]  # every row is counted or has a reason


# Faults


def _rows(edit: Callable[[list[Journey]], list[Journey]]) -> Callable[[Path], Path]:
    return lambda path: write(path, edit(hourly("2023-04-13", 48)))


def _content(content: bytes) -> Callable[[Path], Path]:
    def make(path: Path) -> Path:
        path.write_bytes(content)
        return path

    return make


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_rows(lambda rows: []), "header but no rows"),
        (_rows(lambda rows: [Journey(r.number, f"04/13/2023 {r.start[11:]}", r.station) for r in rows]), "DD/MM/YYYY"),
        (_rows(lambda rows: [Journey(r.number, "soon", r.station) for r in rows[:1]]), "'soon' in line 2"),
        (_rows(lambda rows: [Journey(r.number, r.start, "") for r in rows]), "invalid_start_station 48"),
        (_rows(lambda rows: [Journey("x", r.start, r.station) for r in rows]), "invalid_number 48"),
        (_rows(lambda rows: [Journey(r.number, "", r.station) for r in rows]), "invalid_start_time 48"),
        (_rows(lambda rows: rows[5:20]), "at least one whole day"),
        (_content(b""), "is empty"),
        (_content(b"PK\x03\x04\0\0\0\0"), "no CSV text"),
        (_content(",".join(NEW).encode("utf-16")), "no CSV text"),
        (_content(b"\x1f\x8b\x08damaged"), "damaged gzip"),
        (_content(gzip.compress(b"1,2,3\n" * 99)[:12] + b"\xff" * 20), "damaged gzip"),
        (_content((",".join(NEW) + "\n1,2023-04-03 08:00,1,Caf\xe9,,,,,,,\n").encode("latin-1")), "UTF-8"),
        (
            _content(b"a,b\n1,2\n"),
            r"missing column\(s\) 'Number', 'Start date', 'Start station number'; found 'a', 'b'",
        ),
        (_content(",".join(OLD[:7]).encode()), r"missing column\(s\) 'StartStation Id'; found"),
        (_content(",".join([*NEW, "number"]).encode()), "repeated"),
        (_content(b"430,573,55123200,180\n"), "layout named, such as seconds-2019"),
        (_content((",".join(NEW) + "\n1,2\n1,2,3,4,5,6,7,8,9,10,11,12,13\n").encode()), "CSV table|cannot be read"),
    ],
)
def test_files_of_another_kind_are_refused(tmp_path: Path, make: Callable[[Path], Path], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_tfl([make(tmp_path / "file.csv")])


def test_a_folder_a_missing_file_no_file_and_an_unknown_layout_are_refused(tmp_path: Path) -> None:
    for paths, message in (([tmp_path], "is a folder"), ([tmp_path / "no.csv"], "cannot read"), ([], "at least one")):
        with pytest.raises(DataError, match=message):
            read_tfl(paths)
    with pytest.raises(ConfigError, match="official, seconds-2019, found 'csv'"):
        read_tfl([write(tmp_path / "a.csv", hourly("2023-04-03", 24))], layout="csv")  # type: ignore[arg-type]


def test_files_of_both_official_layouts_are_not_mixed(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / "a.csv", hourly("2023-04-03", 24)),
        write_old(tmp_path / "b.csv", hourly("2023-04-04", 24, first=9000)),
    ]
    with pytest.raises(DataError, match=r"one layout, found a\.csv \(official-2022\), b\.csv \(official-2012\)"):
        read_tfl(paths)


@pytest.mark.parametrize("share", [1, 2])
def test_single_unreadable_times_are_counted_and_more_than_one_percent_refused(tmp_path: Path, share: int) -> None:
    journeys = hourly("2023-04-03", 24 * 5)
    for place in range(share):
        journeys[50 + place] = Journey("7", "?", "001057")
    path = write(tmp_path / "a.csv", journeys)
    if share == 1:
        assert read_tfl([path]).journeys["invalid_start_time"] == 1
    else:
        with pytest.raises(DataError, match=r"2 of 120 start times cannot be read.* in line 52"):
            read_tfl([path])


# The layout without a header


def write_seconds(path: Path, journeys: list[tuple[int, float | str]]) -> Path:
    path.write_text("".join(f"{station},9,{seconds},60\n" for station, seconds in journeys))
    return path


def test_seconds_are_counted_on_the_local_clock(tmp_path: Path) -> None:
    first = int((datetime(2020, 7, 1) - datetime(2019, 1, 1)).total_seconds())  # in British summer time
    found = read_tfl(
        [write_seconds(tmp_path / "a.csv", [(57, first + 3600 * hour) for hour in range(24)])], layout="seconds-2019"
    )
    assert found.hours[0] == utc("2020-06-30 23:00") and len(found.hours) == 24 and found.stations == ("000057",)


def test_journeys_without_numbers_may_look_alike_and_must_not_overlap(tmp_path: Path) -> None:
    day = [(57, 3600 * hour) for hour in range(24)] * 2
    path = write_seconds(tmp_path / "a.csv", day)
    assert read_tfl([path], layout="seconds-2019").journeys == {"rows": 48, "departures": 48}
    with pytest.raises(DataError, match=r"a\.csv and b\.csv cover the same hours"):
        read_tfl([path, write_seconds(tmp_path / "b.csv", day)], layout="seconds-2019")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"1,2,3\n1,2,3\n", "4 columns of numbers"),
        (b"from,to,seconds,duration\n1,2,3,4\n", "expected no header"),
        (b"1,2,x,4\n", "expected no header"),
        (b"1,2,,4\n1,2,-5,4\n1,2,-6,4\n", "whole seconds, found '?-5'? in line 2"),
        (b"1,2,3,4\n1,2,1e30,4\n1,2,soon,4\n", "2 of 3 start times"),
    ],
)
def test_other_files_without_a_header_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_tfl([tmp_path / "a.csv"], layout="seconds-2019")
