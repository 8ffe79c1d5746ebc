"""One file of London cycle-hire journeys to start minutes in UTC and start stations.

Three layouts are read. The header tells the two official ones apart; their columns may stand in any order, and case,
spaces and underscores in a column's name do not matter. A file without a header is never guessed: its layout must be
named.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from castgym.data.csv_files import quoted, read_content, read_header, read_table, refuse_repeated
from castgym.data.errors import ConfigError, DataError

TIMEZONE = "Europe/London"

TflLayout = Literal["official", "seconds-2019"]
"""`official`: the header tells which of TfL's extracts it is. `seconds-2019`: no header; start station, end station,
seconds from 2019-01-01 00:00 to the start on the local clock, duration in seconds."""

REASONS = (
    "invalid_number",
    "invalid_start_time",
    "skipped_hour",
    "ambiguous_hour",
    "invalid_start_station",
)
"""Why a row is no journey that can be counted; where several hold, the first is named."""

_OFFICIAL: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        "official-2022": ("Number", "Start date", "Start station number"),
        "official-2012": ("Rental Id", "Start Date", "StartStation Id"),
    }
)
_SECONDS_COLUMNS = 4
_TIMES = ("%d/%m/%Y %H:%M", "%d/%m/%Y %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S")
_ORIGIN = np.datetime64("2019-01-01T00:00:00", "s")
_LARGEST_NUMBER = 2**53  # a column with blanks is read as float64, which holds whole numbers exactly up to here
_LONGEST = 50 * 366 * 86_400
_MOST_UNREADABLE = 0.01
_STATION = re.compile(r"[0-9A-Za-z_-]+")


@dataclass(frozen=True, slots=True, eq=False)
class JourneyFile:
    """The journeys of one file.

    Attributes:
        name: file name without folder.
        sha256: hash of the file's bytes.
        layout: `official-2022`, `official-2012` or `seconds-2019`.
        rows: rows of the file.
        excluded: rows that are no countable journey, by reason.
        number: journey numbers, int64, shape (N,); None for a layout without numbers.
        minute: start in minutes since 1970 UTC, int64, shape (N,).
        station: positions in `stations`, int64, shape (N,).
        stations: ids of start stations, sorted.
    """

    name: str
    sha256: str
    layout: str
    rows: int
    excluded: Mapping[str, int]
    number: NDArray[np.int64] | None
    minute: NDArray[np.int64]
    station: NDArray[np.int64]
    stations: tuple[str, ...]


def read_journeys(path: Path, layout: TflLayout = "official") -> JourneyFile:
    """Read one file, plain or gzip-compressed.

    Args:
        path: the file.
        layout: see `TflLayout`.

    Raises:
        DataError: the file does not have the layout, more than 1% of its start times cannot be read, or no row is a
            countable journey.
        ConfigError: there is no such layout.
    """
    if layout not in get_args(TflLayout):
        raise ConfigError(f"expected a layout of {', '.join(get_args(TflLayout))}, found {layout!r}")
    text, digest = read_content(path, what="a CSV file of cycle-hire journeys", example="JourneyDataExtract.csv")
    if layout == "official":
        found, number, start, station = _official(path, text)
    else:
        found, number, start, station = layout, None, *_seconds(path, text)
    local = (_clock_times if layout == "official" else _second_times)(start.cat.categories)
    start_code, station_code = start.cat.codes.to_numpy(), station.cat.codes.to_numpy()
    _refuse_unreadable(path, start, np.isnat(local), layout)
    utc, skipped, ambiguous = _utc(local)
    ids = [station_id(name) for name in station.cat.categories]
    names = tuple(sorted({name for name in ids if name is not None}))
    place: dict[str | None, int] = {None: -1, **{name: row for row, name in enumerate(names)}}
    codes = np.array([place[name] for name in ids], dtype=np.int64)
    problem = np.select(
        [
            np.zeros(len(start), dtype=np.bool_) if number is None else number < 0,
            _take(np.isnat(local), start_code, True),
            _take(skipped, start_code, True),
            _take(ambiguous, start_code, True),
            _take(codes < 0, station_code, True),
        ],
        range(len(REASONS)),
        default=-1,
    )
    fine = problem < 0
    excluded = Counter(REASONS[row] for row in problem[~fine].tolist())
    if not fine.any():
        reasons = ", ".join(f"{reason} {count}" for reason, count in excluded.items())
        raise DataError(f"{path}: expected journeys, found none in {len(start)} rows ({reasons})")
    return JourneyFile(
        name=path.name,
        sha256=digest,
        layout=found,
        rows=len(start),
        excluded=dict(excluded),
        number=None if number is None else number[fine],
        minute=utc[start_code[fine]],
        station=codes[station_code[fine]],
        stations=names,
    )


def station_id(value: object) -> str | None:
    """The id of a station: a number with leading zeros to six digits, other names as they are; None if it is none.

    >>> station_id(1057), station_id(" 001057 "), station_id("1057.0"), station_id("0"), station_id("300006-1")
    ('001057', '001057', '001057', None, '300006-1')
    """
    text = str(value).strip()
    text = re.sub(r"^([0-9]+)\.0+$", r"\1", text)
    if not _STATION.fullmatch(text):
        return None
    if not text.isdigit():
        return text
    digits = text.lstrip("0")
    return digits.zfill(6) if digits else None


def _official(path: Path, text: bytes) -> tuple[str, NDArray[np.int64], pd.Series, pd.Series]:
    """Layout, numbers (-1: invalid), start times and start stations (categories) of an official extract."""
    header = read_header(path, text)
    plain = [_plain_name(name) for name in header]
    missing: dict[str, list[str]] = {}
    for layout, columns in _OFFICIAL.items():
        missing[layout] = [name for name in columns if _plain_name(name) not in plain]
        if missing[layout]:
            continue
        refuse_repeated(path, [name for name in plain if name in map(_plain_name, columns)])
        number, start, station = (header[plain.index(_plain_name(name))] for name in columns)
        kinds = {start: "category", station: "category"}
        # Without `index_col`, rows that end in a comma would shift all columns by one.
        rows = read_table(path, text, usecols=[number, start, station], dtype=kinds, index_col=False)
        return layout, _numbers(rows[number]), rows[start], rows[station]
    hint = ""
    if header and all(re.fullmatch(r"[0-9.]*", cell.strip()) for cell in header):
        hint = ". The first line holds numbers: a file without a header needs its layout named, such as seconds-2019"
    lost = min(missing.values(), key=len)
    new, old = (quoted(list(columns)) for columns in _OFFICIAL.values())
    raise DataError(
        f"{path}: missing column(s) {quoted(lost)}; found {quoted(header)}. Expected a TfL journey extract with the "
        f"columns {new}, or an older one with {old}{hint}"
    )


def _plain_name(name: str) -> str:
    return re.sub(r"[\s_]", "", name).lower()


def _seconds(path: Path, text: bytes) -> tuple[pd.Series, pd.Series]:
    """Start times and start stations (categories) of a file without a header."""
    first = read_header(path, text)
    numeric = all(re.fullmatch(r"[0-9.]*", cell.strip()) for cell in first)
    if len(first) != _SECONDS_COLUMNS or not numeric:
        raise DataError(
            f"{path}: expected no header and {_SECONDS_COLUMNS} columns of numbers (start station, end station, "
            f"seconds since 2019-01-01 00:00 local time, duration), found {quoted(first)}"
        )
    rows = read_table(path, text, header=None, usecols=[0, 2], dtype={0: "category", 2: "category"}, index_col=False)
    return rows[2], rows[0]


def _numbers(column: pd.Series) -> NDArray[np.int64]:
    """Journey numbers, -1 where there is none."""
    if column.dtype == np.int64:
        return column.to_numpy(dtype=np.int64)
    values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    whole = (values >= 0) & (values < _LARGEST_NUMBER) & (np.floor(values) == values)
    return np.where(whole, values, -1.0).astype(np.int64)


def _clock_times(texts: pd.Index) -> NDArray[np.datetime64]:
    """Local times from texts such as `31/12/2016 23:59` or `2023-12-31 23:59`, NaT where none is."""
    strings = texts.astype("str").str.strip()
    times = np.full(len(texts), "NaT", dtype="datetime64[s]")
    for layout in _TIMES:
        left = np.flatnonzero(np.isnat(times))
        if not len(left):
            break
        times[left] = pd.to_datetime(strings[left], format=layout, errors="coerce").to_numpy().astype("datetime64[s]")
    return times


def _second_times(texts: pd.Index) -> NDArray[np.datetime64]:
    """Local times from seconds since the start of 2019 on the local clock, NaT where none is."""
    seconds = pd.to_numeric(pd.Series(texts), errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    fine = (seconds >= 0) & (seconds < _LONGEST)
    times = _ORIGIN + np.where(fine, seconds, 0.0).astype(np.int64).astype("timedelta64[s]")
    return np.where(fine, times, np.datetime64("NaT", "s"))


def _refuse_unreadable(path: Path, start: pd.Series, unreadable: NDArray[np.bool_], layout: TflLayout) -> None:
    """Refuse a file in another format of dates; single damaged cells are only counted.

    Dates with the month first would be wrong, unnoticed, on the first twelve days of a month, so a share decides.
    """
    rows = _take(unreadable, start.cat.codes.to_numpy(), False)
    if rows.sum() > max(1.0, _MOST_UNREADABLE * len(rows)) or rows.all():
        line = int(rows.argmax())
        expected = "a local time as DD/MM/YYYY HH:MM or YYYY-MM-DD HH:MM" if layout == "official" else "whole seconds"
        raise DataError(
            f"{path}: {int(rows.sum())} of {len(rows)} start times cannot be read; expected {expected}, found "
            f"{str(start.iloc[line])!r} in line {line + (2 if layout == 'official' else 1)}"
        )


def _utc(local: NDArray[np.datetime64]) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Minutes since 1970 UTC, and which local times do not exist (spring) or exist twice (autumn)."""
    times = pd.DatetimeIndex(local)
    known = ~np.isnat(local)
    winter = times.tz_localize(TIMEZONE, ambiguous=np.zeros(len(times), dtype=np.bool_), nonexistent="NaT")
    once = times.tz_localize(TIMEZONE, ambiguous="NaT", nonexistent="NaT")
    skipped = known & np.asarray(winter.isna())
    ambiguous = known & np.asarray(once.isna()) & ~skipped
    return once.tz_convert("UTC").as_unit("s").asi8 // 60, skipped, ambiguous


def _take(values: NDArray[np.bool_], codes: NDArray[np.integer], blank: bool) -> NDArray[np.bool_]:
    """Values of the categories by row; a cell without a category (code -1) is `blank`."""
    rows: NDArray[np.bool_] = np.append(values, blank)[codes]
    return rows
