"""One EIA-930 file to hourly values: the official six-month balance files and wide tables.

Both layouts label the END of an hour; what leaves this module labels its START.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from castgym.data.csv_files import (
    parse_hours,
    parse_numbers,
    quoted,
    read_content,
    read_header,
    read_table,
    refuse_repeated,
)
from castgym.data.errors import DataError

AUTHORITY = "Balancing Authority"
UTC_END = "UTC Time at End of Hour"
LOCAL_END = "Local Time at End of Hour"
DEMAND = "Demand (MW)"
IMPUTED = "Demand (MW) (Imputed)"
ADJUSTED = "Demand (MW) (Adjusted)"
OFFICIAL_COLUMNS = (AUTHORITY, UTC_END, DEMAND, IMPUTED, ADJUSTED)
OFFICIAL_TIME = "%m/%d/%Y %I:%M:%S %p"
"""Such as `01/01/2021 8:00:00 AM`; leading zeros may be left out."""

WIDE_END = "utc_hour_ending"

ABSENT, KNOWN, IMPUTED_VALUE, ADJUSTED_VALUE, CONFLICT = range(5)
"""Marks of an hour; only `KNOWN` values may be used."""

_WHAT = "the UTC end of an hour"
_HOUR = pd.Timedelta("1h")


@dataclass(frozen=True, slots=True, eq=False)
class HourlyFile:
    """What one file says.

    Attributes:
        name: file name without folder.
        sha256: hash of the file's bytes.
        start: start of the first hour, UTC.
        series: authorities.
        values: reported demand in MW, shape (T, N), NaN where absent.
        marks: `ABSENT`, `KNOWN`, ... of each value, int8, shape (T, N).
    """

    name: str
    sha256: str
    start: pd.Timestamp
    series: tuple[str, ...]
    values: NDArray[np.float64]
    marks: NDArray[np.int8]


def read_file(path: Path) -> HourlyFile:
    """Read a file of either layout, plain or gzip-compressed; the header tells which.

    Raises:
        DataError: it is no such file; the message says what was expected and found.
    """
    text, digest = read_content(path, what="an EIA-930 CSV file", example="EIA930_BALANCE_2023_Jan_Jun.csv")
    read = _wide if _is_wide(path, text) else _official
    return HourlyFile(path.name, digest, *read(path, text))


def _is_wide(path: Path, text: bytes) -> bool:
    """Tell the layouts apart by the header.

    Raises:
        DataError: the header is of neither.
    """
    header = read_header(path, text)
    refuse_repeated(path, header)
    if header and header[0] == WIDE_END:
        if len(header) < 2:
            raise DataError(f"{path}: expected a column for each authority after {WIDE_END!r}, found none")
        return True
    if missing := [column for column in OFFICIAL_COLUMNS if column not in header]:
        hint = ""
        if UTC_END in missing and LOCAL_END in header:
            hint = "; local times alone are ambiguous when clocks change: use the file that has the UTC column too"
        raise DataError(
            f"{path}: missing column(s) {', '.join(map(repr, missing))}; found {quoted(header)}. Expected an official "
            f"balance file (EIA930_BALANCE_*.csv) or a wide table that begins with {WIDE_END!r}{hint}"
        )
    return False


def _official(path: Path, text: bytes) -> tuple[pd.Timestamp, tuple[str, ...], NDArray[np.float64], NDArray[np.int8]]:
    kinds = {AUTHORITY: "category", UTC_END: "category"}
    rows = read_table(path, text, usecols=list(OFFICIAL_COLUMNS), dtype=kinds, thousands=",")
    if rows[[AUTHORITY, UTC_END]].isna().to_numpy().any():
        line = int(rows[[AUTHORITY, UTC_END]].isna().any(axis=1).to_numpy().argmax()) + 2
        raise DataError(f"{path}, line {line}: expected a balancing authority and a UTC time in every row")
    ends = parse_hours(path, rows[UTC_END].cat.categories, OFFICIAL_TIME, what=_WHAT, expected="MM/DD/YYYY HH:MM:SS AM")
    start = ends.min() - _HOUR
    hour = ((ends - ends.min()) // _HOUR).to_numpy()[rows[UTC_END].cat.codes.to_numpy()]
    series = tuple(str(name) for name in rows[AUTHORITY].cat.categories)
    column = rows[AUTHORITY].cat.codes.to_numpy().astype(np.int64)
    demand, imputed, adjusted = (parse_numbers(path, rows[name], what="MW") for name in (DEMAND, IMPUTED, ADJUSTED))
    marks = np.full(len(rows), KNOWN, dtype=np.int8)
    marks[~np.isnan(adjusted) & (adjusted != demand)] = ADJUSTED_VALUE
    marks[~np.isnan(imputed)] = IMPUTED_VALUE
    marks[np.isnan(demand)] = ABSENT
    shape = (int(hour.max()) + 1, len(series))
    values, table = _scatter(hour * shape[1] + column, demand, marks, shape)
    _refuse_local_time(path, text, start, table)
    return start, series, values, table


def _scatter(
    cell: NDArray[np.int64], demand: NDArray[np.float64], marks: NDArray[np.int8], shape: tuple[int, int]
) -> tuple[NDArray[np.float64], NDArray[np.int8]]:
    """Rows to a table; rows that report demand for the same cell must agree, else the cell is a conflict."""
    reported = marks != ABSENT
    cell, demand, marks = cell[reported], demand[reported], marks[reported]
    values = np.full(shape[0] * shape[1], np.nan)
    table = np.full(shape[0] * shape[1], ABSENT, dtype=np.int8)
    values[cell], table[cell] = demand, marks  # of repeated rows the last one stands, and every other must equal it
    table[cell[(marks != table[cell]) | (demand != values[cell])]] = CONFLICT
    return values.reshape(shape), table.reshape(shape)


def _wide(path: Path, text: bytes) -> tuple[pd.Timestamp, tuple[str, ...], NDArray[np.float64], NDArray[np.int8]]:
    rows = read_table(path, text, dtype={WIDE_END: "str"}, thousands=",")
    ends = parse_hours(path, pd.Index(rows[WIDE_END]), "ISO8601", what=_WHAT, expected="YYYY-MM-DD HH:MM:SS")
    step = np.diff(ends.as_unit("s").asi8)
    if (wrong := np.flatnonzero(step != 3600)).size:
        before, after = ends[wrong[0]], ends[wrong[0] + 1]
        raise DataError(
            f"{path}: expected consecutive hours in {WIDE_END!r}, found {before:%Y-%m-%d %H:%M} followed by "
            f"{after:%Y-%m-%d %H:%M}: keep the row of an unknown hour and leave its cells empty; a missing hour in "
            "March and a repeated one in November mean local times, which are not UTC"
        )
    series = tuple(str(name) for name in rows.columns[1:])
    values = np.column_stack([parse_numbers(path, rows[name], what="MW") for name in rows.columns[1:]])
    marks = np.where(np.isnan(values), ABSENT, KNOWN).astype(np.int8)
    return ends[0] - _HOUR, series, values, marks


def _refuse_local_time(path: Path, text: bytes, start: pd.Timestamp, marks: NDArray[np.int8]) -> None:
    """Refuse a file whose "UTC" hours skip or repeat where United States clocks change.

    In local time an hour that ends at 02:00 or 03:00 (conventions differ) on the second Sunday of March exists for no
    authority, and one that ends at 01:00 or 02:00 on the first Sunday of November has two different values for most.
    One authority at one change is no proof, since its record may have a gap there; and a file whose column of local
    times is hours behind, as in the official files, is in UTC whatever its gaps.
    """
    ends = pd.date_range(start + _HOUR, periods=len(marks), freq="h")
    sunday = ends.day_of_week == 6
    spring = sunday & (ends.month == 3) & (ends.day >= 8) & (ends.day <= 14) & ends.hour.isin([2, 3])
    autumn = sunday & (ends.month == 11) & (ends.day <= 7) & ends.hour.isin([1, 2])
    empty = pd.Series((marks[spring] == ABSENT).all(axis=1)).groupby(ends[spring].date).sum()
    repeated = pd.Series((marks[autumn] == CONFLICT).mean(axis=1) > 0.5).groupby(ends[autumn].date).any()
    signs = int((empty == 1).sum() + repeated.sum())
    witnesses = signs * int((marks != ABSENT).any(axis=0).sum())
    if witnesses > 1 and not _has_local_times(path, text):
        raise DataError(
            f"{path}: the times in {UTC_END!r} skip or repeat an hour where clocks change, so they are local times; "
            "use the official file, whose column is in UTC"
        )


def _has_local_times(path: Path, text: bytes) -> bool:
    """Whether the file states local times beside its UTC ones, hours behind them in most rows."""
    if LOCAL_END not in read_header(path, text):
        return False
    stated = read_table(path, text, usecols=[UTC_END, LOCAL_END], dtype="str")
    times = {name: pd.to_datetime(stated[name], format=OFFICIAL_TIME, errors="coerce") for name in stated}
    behind = (times[UTC_END] - times[LOCAL_END]) / _HOUR
    return bool(behind.between(4, 10).mean() > 0.5)  # from Atlantic summer time to Hawaii
