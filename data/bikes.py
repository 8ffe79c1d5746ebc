"""Cases from a wide table of hourly counts at bike stations, such as arrivals in another city.

The table has the column `utc_hour_start`, then one column a station. A blank cell and an hour without a row are
unknown, never zero. Systems that close at night often have no rows then: `closed_hours` lets the user declare those
hours closed, which makes them known zeros.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from castgym.data.builder import BuiltCases, build_cases
from castgym.data.cohorts import FAMILIES, Cohort, latest_year, schedule
from castgym.data.csv_files import (
    consecutive_hours,
    parse_hours,
    parse_numbers,
    quoted,
    read_content,
    read_header,
    read_table,
    refuse_repeated,
)
from castgym.data.errors import ConfigError, DataError
from castgym.data.schema import Domain, Family
from castgym.data.tfl import COHORTS

HOUR_START = "utc_hour_start"
"""Name of the first column: the START of an hour, UTC."""

BikeUnit = Literal["departures/hour", "arrivals/hour"]

_HOUR = pd.Timedelta("1h")
_MOSTLY = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class BikeCounts:
    """Hourly counts of several files.

    Attributes:
        counts: shape (T, N), float64: index = consecutive UTC hour starts, columns = stations in alphabetical order,
            NaN = unknown.
        files: name and sha256 of each file.
    """

    counts: pd.DataFrame
    files: tuple[Mapping[str, str], ...]


def read_bikes(paths: Sequence[Path]) -> BikeCounts:
    """Read and join wide tables of hourly counts.

    Args:
        paths: CSV files, plain or gzip-compressed. What two files say of one station and hour must agree.

    Raises:
        DataError: there is no file, one does not have the layout, or two contradict each other.
    """
    if not paths:
        raise DataError("expected at least one table of hourly counts, found none")
    tables, files = zip(*(_read(Path(path)) for path in paths), strict=True)
    hours = consecutive_hours(min(table.index[0] for table in tables), max(table.index[-1] for table in tables))
    stations = sorted({name for table in tables for name in table.columns})
    values = np.full((len(hours), len(stations)), np.nan)
    for table, file in zip(tables, files, strict=True):
        cells = np.ix_((table.index - hours[0]) // _HOUR, np.searchsorted(stations, list(table.columns)))
        old, new = values[cells], table.to_numpy()
        differ = ~np.isnan(old) & ~np.isnan(new) & (old != new)
        if differ.any():
            row, column = (int(places[0]) for places in np.nonzero(differ))
            raise DataError(
                f"{file['name']} contradicts an earlier file: station {table.columns[column]!r}, "
                f"{table.index[row]:%Y-%m-%d %H:%M} UTC, {new[row, column]:g} after {old[row, column]:g}"
            )
        values[cells] = np.where(np.isnan(new), old, new)
    return BikeCounts(pd.DataFrame(values, index=hours, columns=stations), files)


def bike_cases(
    paths: Sequence[Path],
    *,
    test_year: int | None = None,
    cohorts: Sequence[Cohort] = COHORTS,
    families: Sequence[Family] = FAMILIES,
    stations: Sequence[str] | None = None,
    prefix: str = "BIKE",
    calendar: str = "Europe/London",
    unit: BikeUnit = "departures/hour",
    closed_hours: str | None = None,
    train_stride: int = 3,
) -> BuiltCases:
    """Build cases from wide tables of hourly counts.

    Args:
        paths: CSV files.
        test_year: year of the test cohorts; by default the latest one in which the files cover all of them.
        cohorts: test cohorts of the domain `cycle_hire`; days are target days.
        families: leads.
        stations: columns to take, by default all.
        prefix: what case and series ids begin with, before `-` and the station.
        calendar: time zone whose days are the target days.
        unit: what is counted.
        closed_hours: local hours in which the system is closed, such as `00-06` (from 00:00 to 06:00; `23-05` runs
            over midnight). Unknown counts in them become zero; known ones stay. Only for systems that are known to
            close then: it is a statement about the system, and is recorded in the source.
        train_stride: days between train dates.

    Raises:
        DataError: a file is not as documented, the files do not cover a year, or no test case is left.
        ConfigError: a station is not in the files, or options do not fit together.
    """
    if not re.fullmatch(r"[0-9A-Za-z_-]+", prefix):
        raise ConfigError(f"expected a prefix of letters, digits, - and _, found {prefix!r}")
    if unit not in get_args(BikeUnit):
        raise ConfigError(f"expected a unit of {', '.join(get_args(BikeUnit))}, found {unit!r}")
    read = read_bikes(paths)
    counts = read.counts if stations is None else _chosen(read.counts, stations)
    hours = pd.DatetimeIndex(counts.index)
    calendars: dict[Domain, str] = {"cycle_hire": calendar}
    first, end = hours[0].to_pydatetime(), (hours[-1] + _HOUR).to_pydatetime()
    if test_year is None:
        test_year = latest_year(cohorts, first, end, families=families, calendars=calendars)
    decisions = schedule(
        test_year, cohorts, data_start=first, families=families, train_stride=train_stride, calendars=calendars
    )
    local_hour = hours.tz_convert(calendar).hour.to_numpy()
    unknown = int(counts.isna().to_numpy().sum())
    closed: dict[str, Any] | None = None
    filled = counts
    if closed_hours is not None:
        rows = np.isin(local_hour, parse_closed_hours(closed_hours))[:, None]
        filled = counts.mask(rows & counts.isna(), 0.0)
        busy = int((rows & (counts.to_numpy() > 0)).sum())
        closed = {"local_hours": closed_hours, "filled": unknown - int(filled.isna().to_numpy().sum()), "busy": busy}
    source: dict[str, Any] = {
        "kind": "bikes",
        "files": [dict(file) for file in read.files],
        "options": {
            "test_year": test_year,
            "cohorts": {cohort.name: list(cohort.days) for cohort in cohorts},
            "families": list(families),
            "stations": list(counts.columns),
            "calendar": calendar,
            "unit": unit,
            "train_stride": train_stride,
        },
        "closed_hours": closed,
        "station_hours": {"all": counts.size, "unknown_in_files": unknown},
    }
    table = filled.add_prefix(f"{prefix}-")
    try:
        return build_cases(
            table,
            decisions,
            name=f"{prefix.lower()}-{test_year}",
            domains=dict.fromkeys(table.columns, "cycle_hire"),
            source=source,
            cohorts=cohorts,
            units={"cycle_hire": unit},
        )
    except DataError as error:
        raise DataError(f"{error}{_hint(filled, local_hour)}") from error


def parse_closed_hours(text: str) -> list[int]:
    """The local hours from `HH` to `HH`, the second one not included.

    Raises:
        ConfigError: the text has another form.

    >>> parse_closed_hours("00-06"), parse_closed_hours("23-02")
    ([0, 1, 2, 3, 4, 5], [23, 0, 1])
    """
    found = re.fullmatch(r"([0-9]{1,2})-([0-9]{1,2})", text.strip())
    start, stop = (int(found[1]), int(found[2])) if found else (24, 24)
    if start > 23 or stop > 24 or start == stop % 24:
        raise ConfigError(f"expected closed hours as HH-HH, such as 00-06 for 00:00 to 06:00, found {text!r}")
    return [hour % 24 for hour in range(start, stop if stop > start else stop + 24)]


def _chosen(counts: pd.DataFrame, stations: Sequence[str]) -> pd.DataFrame:
    if unknown := [name for name in stations if name not in counts.columns]:
        raise ConfigError(f"no station {', '.join(unknown)} in the files; found {quoted(list(counts.columns))}")
    return counts[list(dict.fromkeys(stations))]


def _hint(counts: pd.DataFrame, local_hour: NDArray[np.integer]) -> str:
    """What to do where the same local hours are unknown on most days."""
    share = counts.isna().mean(axis=1).groupby(local_hour).mean()
    if not (absent := [int(hour) for hour in share.index[share > _MOSTLY]]):
        return ""
    return (
        f"; the local hours {', '.join(map(str, absent))} are unknown on most days: if the system is closed then, say "
        "so with closed_hours"
    )


def _read(path: Path) -> tuple[pd.DataFrame, dict[str, str]]:
    """Counts by hour (gaps are possible) and station, and the record of the file."""
    text, digest = read_content(path, what="a CSV table of hourly counts", example="counts.csv")
    header = read_header(path, text)
    if not header or header[0] != HOUR_START:
        raise DataError(f"{path}: expected the first column {HOUR_START!r}, found {quoted(header)}")
    stations = header[1:]
    if not stations or not all(name.strip() for name in stations):
        raise DataError(
            f"{path}: expected a named column for each station after {HOUR_START!r}, found {quoted(header)}"
        )
    refuse_repeated(path, header)
    rows = read_table(path, text, dtype={HOUR_START: "str"})
    texts = pd.Index(rows[HOUR_START])
    hours = parse_hours(path, texts, "ISO8601", what="the UTC start of an hour", expected="YYYY-MM-DD HH:MM:SS")
    if not hours.is_unique:
        twice = hours[int(hours.duplicated().argmax())]
        raise DataError(
            f"{path}: expected each hour once, found {twice:%Y-%m-%d %H:%M} repeated; where clocks change, local times "
            "repeat an hour: give UTC"
        )
    values = np.column_stack([parse_numbers(path, rows[name], what="journeys") for name in stations])
    wrong = ~np.isnan(values) & ((values < 0) | (np.floor(values) != values))
    if wrong.any():
        row, column = (int(places[0]) for places in np.nonzero(wrong))
        raise DataError(
            f"{path}, line {row + 2}, column {stations[column]!r}: expected a whole number of journeys >= 0, found "
            f"{values[row, column]:g}"
        )
    return pd.DataFrame(values, index=hours, columns=stations).sort_index(), {"name": path.name, "sha256": digest}
