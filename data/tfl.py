"""Cases from London cycle-hire journeys (FWBench section 4.1).

Journeys are read from official extracts (`castgym.data.tfl_files`) and counted by start station and UTC hour. An
hour counts as known when the system has a journey in it and a file holds its whole day; a station without a journey in
a known hour has a true zero. Nothing is filled in.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from castgym.data.builder import BuiltCases, build_cases
from castgym.data.cohorts import FAMILIES, PROTOCOL_COHORTS, Cohort, latest_year, schedule, span
from castgym.data.csv_files import consecutive_hours
from castgym.data.errors import ConfigError, DataError
from castgym.data.schema import Family
from castgym.data.tfl_files import TIMEZONE, JourneyFile, TflLayout, read_journeys, station_id

COHORTS: tuple[Cohort, ...] = tuple(cohort for cohort in PROTOCOL_COHORTS if cohort.domain == "cycle_hire")
"""The protocol's cycle-hire cohort: target days May 3, 11, 19, 27."""

STATIONS = 20
SELECTION_DAYS = 7

_HOUR = pd.Timedelta("1h")


@dataclass(frozen=True, slots=True, eq=False)
class Departures:
    """Departures by station and hour, most of them zero.

    Attributes:
        stations: ids of the start stations, sorted.
        hours: consecutive UTC hour starts from the first to the last known hour, shape (T,).
        known: whether an hour is known, bool, shape (T,).
        cells: positions hour * S + station of the pairs that have departures, int64, shape (K,), sorted.
        counts: their departures, int64, shape (K,).
        conflicts: positions of pairs that are unknown because journeys with one number contradict each other.
        journeys: `rows` of all files, `departures` counted, and rows not counted by reason.
        files: name and sha256 of each file.
    """

    stations: tuple[str, ...]
    hours: pd.DatetimeIndex
    known: NDArray[np.bool_]
    cells: NDArray[np.int64]
    counts: NDArray[np.int64]
    conflicts: NDArray[np.int64]
    journeys: Mapping[str, int]
    files: tuple[Mapping[str, str], ...]

    def table(self, stations: Sequence[str] | None = None) -> pd.DataFrame:
        """Departures of some stations, by default all.

        Args:
            stations: ids as in `stations`.

        Returns:
            Shape (T, N), float64, columns = ids in the order asked for, NaN = unknown.

        Raises:
            ConfigError: a station is not in the files.
        """
        names = list(self.stations if stations is None else stations)
        place = {name: number for number, name in enumerate(self.stations)}
        if unknown := [name for name in names if name not in place]:
            raise ConfigError(
                f"no station {', '.join(unknown)} in the files, which have {len(self.stations)} start stations from "
                f"{self.stations[0]} to {self.stations[-1]}"
            )
        column = np.full(len(self.stations), -1)
        column[[place[name] for name in names]] = np.arange(len(names))
        values = np.zeros((len(self.hours), len(names)))
        for cells, found in ((self.cells, self.counts), (self.conflicts, np.nan)):
            row, target = cells // len(self.stations), column[cells % len(self.stations)]
            wanted = target >= 0
            values[row[wanted], target[wanted]] = np.broadcast_to(found, cells.shape)[wanted]
        values[~self.known] = np.nan
        return pd.DataFrame(values, index=self.hours, columns=names)

    def most_active(self, first: date, days: int = SELECTION_DAYS, number: int = STATIONS) -> list[str]:
        """The stations with most departures on some London days, ties by station id (FWBench section 4.1).

        Args:
            first: first day.
            days: how many days.
            number: how many stations; fewer come back where fewer have departures.

        Raises:
            DataError: an hour of these days is unknown.
            ConfigError: `days` or `number` is less than 1.
        """
        if days < 1 or number < 1:
            raise ConfigError(f"expected at least one day and one station for the selection, found {days} and {number}")
        last = first + timedelta(days=days)
        start, end = (pd.Timestamp(day).tz_localize(TIMEZONE).tz_convert("UTC") for day in (first, last))
        wanted = pd.date_range(start, end, freq="h", inclusive="left")
        unknown = wanted.difference(self.hours[self.known])
        if len(unknown):
            covered = span(self.hours[0].to_pydatetime(), (self.hours[-1] + _HOUR).to_pydatetime())
            raise DataError(
                f"the stations are chosen by their departures from {first} to {last - timedelta(days=1)}, but "
                f"{len(unknown)} of these {len(wanted)} hours are unknown, the first {unknown[0]:%Y-%m-%d %H:%M} UTC; "
                f"the files cover {covered}. Add files, or give selection_start and selection_days, or stations"
            )
        window = (self.hours >= start) & (self.hours < end)
        chosen = window[self.cells // len(self.stations)]
        departures = np.bincount(
            self.cells[chosen] % len(self.stations), weights=self.counts[chosen], minlength=len(self.stations)
        )
        order = np.argsort(-departures, kind="stable")  # the stations are sorted, so ties stay in the order of ids
        return [self.stations[place] for place in order[:number] if departures[place] > 0]


def read_tfl(paths: Sequence[Path], *, layout: TflLayout = "official") -> Departures:
    """Read journey files and count departures by start station and UTC hour.

    Rows with one journey number, start minute and start station are one journey, counted once (files overlap at
    their borders). Rows with one number and different starts contradict each other: none is counted, and the hours of
    the stations that they name are unknown. Journeys of the hour that the clocks repeat in autumn cannot be assigned,
    so its two UTC hours are unknown.

    Args:
        paths: CSV files of one layout, plain or gzip-compressed, in any order.
        layout: `official`, or `seconds-2019` for files without header.

    Raises:
        DataError: there is no file, one does not have the layout, or the files do not fit together.
    """
    if not paths:
        raise DataError("expected at least one file of journeys, found none")
    files = [read_journeys(Path(path), layout) for path in paths]
    _refuse_mixture(files)
    stations = tuple(sorted({name for file in files for name in file.stations}))
    minute = np.concatenate([file.minute for file in files])
    station = np.concatenate([np.searchsorted(stations, file.stations)[file.station] for file in files])
    number = np.concatenate([file.number for file in files if file.number is not None] or [np.arange(len(minute))])
    duplicate, conflict = _repeated(number, minute, station)
    by_file = [_covered_hours(file.minute // 60) for file in files]
    if layout != "official":
        _refuse_overlap(files, by_file)
    covered = np.unique(np.concatenate(by_file))
    if not len(covered):
        raise DataError(
            f"expected at least one whole day of journeys, found none in {', '.join(file.name for file in files)}: at "
            "the ends of a file a day counts when journeys start in its first and in its last hour, London time"
        )
    hours = consecutive_hours(*(pd.Timestamp(int(hour) * 3600, unit="s", tz="UTC") for hour in covered[[0, -1]]))
    known = np.zeros(len(hours), dtype=np.bool_)
    known[covered - covered[0]] = True
    row = minute // 60 - covered[0]
    outside = ~_at(known, row)
    counted = ~(duplicate | conflict | outside)
    cells, counts = np.unique(row[counted] * len(stations) + station[counted], return_counts=True)
    unsure = conflict & ~outside
    excluded = sum((Counter(file.excluded) for file in files), Counter[str]())
    excluded["duplicate"] += int(duplicate.sum())
    excluded["conflicting_number"] += int(conflict.sum())
    excluded["partly_covered_day"] += int((outside & ~duplicate & ~conflict).sum())
    return Departures(
        stations=stations,
        hours=hours,
        known=known,
        cells=cells,
        counts=counts.astype(np.int64),
        conflicts=np.unique(row[unsure] * len(stations) + station[unsure]),
        journeys={"rows": sum(file.rows for file in files), "departures": int(counted.sum()), **+excluded},
        files=tuple({"name": file.name, "sha256": file.sha256, "layout": file.layout} for file in files),
    )


def tfl_cases(
    paths: Sequence[Path],
    *,
    layout: TflLayout = "official",
    test_year: int | None = None,
    cohorts: Sequence[Cohort] = COHORTS,
    families: Sequence[Family] = FAMILIES,
    stations: Sequence[str | int] | None = None,
    n_stations: int = STATIONS,
    selection_start: date | None = None,
    selection_days: int = SELECTION_DAYS,
    train_stride: int = 3,
) -> BuiltCases:
    """Build cases from London cycle-hire journeys.

    Args:
        paths: CSV files of one layout.
        layout: `official`, or `seconds-2019` for files without header.
        test_year: year of the test cohorts; by default the latest one in which the files cover all of them. In a year
            that is named, windows that the files do not cover are excluded.
        cohorts: test cohorts of the domain `cycle_hire`; days are target days.
        families: leads.
        stations: ids of start stations to take, such as `001057` or 1057; by default the most active ones.
        n_stations: how many of the most active ones.
        selection_start: first London day of the window in which activity is measured; by default April 1 of the test
            year.
        selection_days: length of that window.
        train_stride: days between train dates.

    Raises:
        DataError: a file is not as documented, the files do not cover a year or the selection window, or no test case
            is left.
        ConfigError: a station is not in the files, or options do not fit together.
    """
    departures = read_tfl(paths, layout=layout)
    hours = departures.hours
    first, end = hours[0].to_pydatetime(), (hours[-1] + _HOUR).to_pydatetime()
    year = latest_year(cohorts, first, end, families=families) if test_year is None else test_year
    decisions = schedule(year, cohorts, data_start=first, families=families, train_stride=train_stride)
    selection: dict[str, Any] | None = None
    if stations is None:
        start = selection_start or date(year, 4, 1)
        chosen = departures.most_active(start, selection_days, n_stations)
        selection = {"start": start.isoformat(), "days": selection_days, "stations": n_stations}
    else:
        chosen = _named(stations)
    table = departures.table(chosen).add_prefix("TFL-")
    source: dict[str, Any] = {
        "kind": "tfl",
        "files": [dict(file) for file in departures.files],
        "options": {
            "layout": layout,
            "test_year": year,
            "cohorts": {cohort.name: list(cohort.days) for cohort in cohorts},
            "families": list(families),
            "stations": chosen,
            "selection": selection,
            "train_stride": train_stride,
        },
        "journeys": dict(departures.journeys),
        "hours": {"known": int(departures.known.sum()), "unknown": int((~departures.known).sum())},
        "station_hours_in_conflict": len(departures.conflicts),
    }
    return build_cases(
        table,
        decisions,
        name=f"tfl-{year}",
        domains=dict.fromkeys(table.columns, "cycle_hire"),
        source=source,
        cohorts=cohorts,
    )


def _named(stations: Sequence[str | int]) -> list[str]:
    names = [station_id(name) for name in stations]
    if not names or None in names:
        raise ConfigError(f"expected ids of stations such as 001057, found {', '.join(map(repr, stations)) or 'none'}")
    return list(dict.fromkeys(name for name in names if name is not None))


def _refuse_mixture(files: Sequence[JourneyFile]) -> None:
    """Refuse files of several layouts: TfL numbered its stations anew between them, so one id names two stations."""
    if len({file.layout for file in files}) > 1:
        found = ", ".join(f"{file.name} ({file.layout})" for file in {file.layout: file for file in files}.values())
        raise DataError(
            f"expected files of one layout, found {found}: they number the stations differently, so that a station "
            "would seem to have no departures in the other files; build a case set from each"
        )


def _repeated(
    number: NDArray[np.int64], minute: NDArray[np.int64], station: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Rows that repeat an equal one, and rows whose number has different starts, each of shape (N,)."""
    duplicate, conflict = np.zeros((2, len(number)), dtype=np.bool_)
    order = np.argsort(number, kind="stable")
    again = np.append(False, number[order[1:]] == number[order[:-1]])
    rows = order[again | np.append(again[1:], False)]  # all rows of numbers that occur twice or more
    rows = rows[np.lexsort((station[rows], minute[rows], number[rows]))]
    same_number = np.append(False, number[rows[1:]] == number[rows[:-1]])[: len(rows)]
    same_start = same_number.copy()
    for values in (minute, station):
        same_start[1:] &= values[rows[1:]] == values[rows[:-1]]
    duplicate[rows[same_start]] = True
    conflict[np.isin(number, number[rows[same_number & ~same_start]])] = True
    return duplicate, conflict & ~duplicate


def _covered_hours(hours: NDArray[np.int64]) -> NDArray[np.int64]:
    """The hours (since 1970 UTC) that one file holds, sorted: those with a journey on days that it holds wholly.

    From each end of the file, days are left out up to the first one with journeys in its first and its last hour: the
    others are cut off, or a wrong date.
    """
    found = np.unique(hours)
    local = pd.to_datetime(found * 3600, unit="s", utc=True).tz_convert(TIMEZONE).tz_localize(None)
    days = local.normalize()
    whole = days[local.hour == 0].intersection(days[local.hour == 23])
    if whole.empty:
        return found[:0]
    return found[(days >= whole.min()) & (days <= whole.max())]


def _refuse_overlap(files: Sequence[JourneyFile], hours: Sequence[NDArray[np.int64]]) -> None:
    """Refuse files without journey numbers that overlap: their duplicates could not be told from journeys."""
    for place, later in enumerate(hours):
        for other, earlier in enumerate(hours[:place]):
            if np.intersect1d(earlier, later).size:
                raise DataError(
                    f"{files[other].name} and {files[place].name} cover the same hours: their journeys have no "
                    "numbers, so those that both hold would count twice; give each day once"
                )


def _at(known: NDArray[np.bool_], row: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Values at positions, False outside."""
    inside = (row >= 0) & (row < len(known))
    return inside & known[np.where(inside, row, 0)]
