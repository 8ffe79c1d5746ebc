"""CSV files as users have them: plain or gzip-compressed, checked so that every fault gets a clear message."""

import csv
import gzip
import hashlib
import io
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from castgym.data.errors import DataError

MAX_YEARS = 50
"""Longest span of hours; a longer one is a wrong date, and would not fit into memory."""

PLAUSIBLE_YEARS = (1990, 2100)
"""Years of hourly records; one stray year would blow up every table that spans the file."""


def read_content(path: Path, *, what: str, example: str) -> tuple[bytes, str]:
    """Read the text of a CSV file, plain or gzip-compressed.

    Args:
        path: the file.
        what: what was expected, such as `an EIA-930 CSV file`.
        example: a file name to show to those who give a folder.

    Returns:
        The decompressed bytes, and the SHA-256 of the file as it is stored.

    Raises:
        DataError: the file cannot be read, is empty, damaged or no text.
    """
    if path.is_dir():
        raise DataError(f"{path} is a folder: name the files in it, such as {path / example}")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    digest = hashlib.sha256(content).hexdigest()
    if not content:
        raise DataError(f"{path} is empty: expected {what}")
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{path} is a damaged gzip file: {error}; download it again") from error
    if b"\0" in content[:4096]:
        raise DataError(
            f"{path} is no CSV text (it holds zero bytes, as .xlsx, .zip and UTF-16 files do); save it as CSV, UTF-8"
        )
    return content, digest


def read_header(path: Path, text: bytes) -> list[str]:
    """The cells of the first line.

    Raises:
        DataError: the line is no CSV in UTF-8.
    """
    end = text.find(b"\n")
    line = text if end < 0 else text[:end]
    try:
        return next(csv.reader([line.decode("utf-8-sig").rstrip("\r")]), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: expected a CSV header in UTF-8: {error}") from error


def refuse_repeated(path: Path, names: list[str]) -> None:
    """Refuse a header that names a column twice.

    Raises:
        DataError: it does.
    """
    if repeated := sorted(name for name, count in Counter(names).items() if count > 1):
        raise DataError(f"{path}: expected each column once, found {', '.join(map(repr, repeated))} repeated")


def quoted(names: list[str], limit: int = 8) -> str:
    """Names for an error message, cut after `limit`.

    >>> quoted(["a", "b", "c"], limit=2)
    "'a', 'b', ..."
    """
    return ", ".join(map(repr, names[:limit])) + (", ..." if len(names) > limit else "")


def read_table(path: Path, text: bytes, **options: object) -> pd.DataFrame:
    """Read the rows; `options` go to `pandas.read_csv`.

    Raises:
        DataError: the text is no CSV table in UTF-8, has no rows, or rows have more cells than the header.
    """
    try:
        table: pd.DataFrame = pd.read_csv(  # type: ignore[call-overload]
            io.BytesIO(text), encoding="utf-8-sig", low_memory=False, **options
        )
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: expected UTF-8 text: {error}; save the file as CSV, UTF-8") from error
    except (pd.errors.ParserError, pd.errors.EmptyDataError, ValueError) as error:
        raise DataError(f"{path}: expected a CSV table: {error}") from error
    if table.empty:
        raise DataError(f"{path} has a header but no rows")
    if not isinstance(table.index, pd.RangeIndex):  # pandas took the first column for row names
        raise DataError(f"{path}: expected a CSV table with as many cells in a row as in the header, found more")
    return table


def parse_hours(path: Path, texts: pd.Index, layout: str, *, what: str, expected: str) -> pd.DatetimeIndex:
    """Parse times that must be full hours in UTC.

    Args:
        path: named in errors.
        texts: distinct texts.
        layout: a format of `pandas.to_datetime`, such as `ISO8601`.
        what: what the texts are, such as `the UTC end of an hour`.
        expected: the format in words, such as `YYYY-MM-DD HH:MM:SS`.

    Raises:
        DataError: a text has another format or is not a full hour.
    """
    times = pd.DatetimeIndex(pd.to_datetime(texts, format=layout, utc=True, errors="coerce"))
    if times.isna().any():
        found = texts[int(times.isna().argmax())]
        raise DataError(f"{path}: expected {what} as {expected}, found {found!r}")
    if len(times) and not (PLAUSIBLE_YEARS[0] <= times.min().year and times.max().year <= PLAUSIBLE_YEARS[1]):
        odd = times.min() if times.min().year < PLAUSIBLE_YEARS[0] else times.max()
        raise DataError(f"{path}: expected years from {PLAUSIBLE_YEARS[0]} to {PLAUSIBLE_YEARS[1]}, found {odd}")
    if (uneven := times != times.floor("h")).any():
        raise DataError(f"{path}: expected full hours, found {texts[int(uneven.argmax())]!r}")
    return times


def parse_numbers(path: Path, column: pd.Series, *, what: str) -> NDArray[np.float64]:
    """Parse a column of numbers, thousands commas allowed.

    Args:
        path: named in errors.
        column: cells as pandas read them, from the second line of the file on.
        what: what the numbers are, such as `MW`.

    Returns:
        Values, NaN where a cell is empty.

    Raises:
        DataError: a cell is something else.
    """
    if not pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
        numbers = pd.to_numeric(column.astype("str").str.replace(",", ""), errors="coerce")
        wrong = (numbers.isna() & column.notna()).to_numpy()
        if wrong.any():
            line = int(wrong.argmax()) + 2
            raise DataError(
                f"{path}, line {line}, column {column.name!r}: expected a number of {what} or an empty cell, found "
                f"{column.iloc[line - 2]!r}"
            )
        column = numbers
    values = column.to_numpy(dtype=np.float64, copy=True)
    if np.isinf(values).any():
        raise DataError(f"{path}, line {int(np.isinf(values).argmax()) + 2}: expected finite {what}, found infinity")
    return values


def consecutive_hours(first: pd.Timestamp, last: pd.Timestamp) -> pd.DatetimeIndex:
    """All hours from the first to the last, inclusive.

    Raises:
        DataError: they span more than `MAX_YEARS`.
    """
    if last - first > pd.Timedelta(days=366 * MAX_YEARS):
        raise DataError(
            f"expected hours within {MAX_YEARS} years, found {first:%Y-%m-%d} to {last:%Y-%m-%d}: correct the dates"
        )
    return pd.date_range(first, last, freq="h")
