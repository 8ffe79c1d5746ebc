"""Public forecasting data sets from the files that users have: ETT, Wind and electricity prices (EPF).

Layouts, lengths and splits are those of Cast-R1 (sections 4.1 and A.1 to A.3). Names of columns are compared without
leading and trailing spaces; the first column holds the time, whatever its name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pandas as pd

from castgym.data.csv_files import parse_numbers, quoted, read_content, read_header, read_table, refuse_repeated
from castgym.data.errors import ConfigError, DataError
from castgym.data.windows_context import HolidayRegion, MarketContext
from castgym.data.windows_set import WindowSet

EPF_ROWS = 14_496
"""Hours of each price set in the paper (Table 2); the last ones of a longer file are taken: 604 whole days."""

_TIME = "(time)"


@dataclass(frozen=True, slots=True)
class Layout:
    """Columns of an official file and how windows are cut from it.

    Attributes:
        target: column to forecast.
        covariates: the other columns.
        step: time between rows.
        length: rows of history, L.
        horizon: rows to forecast, H.
        ratio: parts of train, validation and test.
        unit: unit of the target.
        market: context of a price; a file that has one is cut to its last `EPF_ROWS`, its covariates are known over
            the horizon and its windows begin at midnight.
    """

    target: str
    covariates: tuple[str, ...]
    step: timedelta
    length: int
    horizon: int
    ratio: tuple[int, int, int]
    unit: str
    market: MarketContext | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns but the time, the target first."""
        return (self.target, *self.covariates)


def _ett(minutes: int) -> Layout:
    loads = ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL")
    return Layout("OT", loads, timedelta(minutes=minutes), 96, 96, (6, 2, 2), "degrees Celsius")


def _wind() -> Layout:
    weather = ("pred_w_speed", "pred_w_dir", "pred_temp", "pred_pressure", "pred_humidity", "ture_w_speed")
    return Layout("target", weather, timedelta(minutes=15), 96, 96, (7, 1, 2), "wind power, unit as in the file")


def _price(
    name: str, columns: tuple[str, str, str], known: str, *regions: HolidayRegion, currency: str = "EUR"
) -> Layout:
    market = MarketContext(f"{name}, hourly day-ahead price", f"{currency}/MWh", f"{known} (MW)", regions)
    return Layout(columns[0], columns[1:], timedelta(hours=1), 168, 24, (7, 1, 2), market.unit, market)


LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        "ETTh1": _ett(60),
        "ETTh2": _ett(60),
        "ETTm1": _ett(15),
        "ETTm2": _ett(15),
        "Wind": _wind(),
        "NP": _price(
            "Nord Pool (NP)",
            ("Price", "Grid load forecast", "Wind power forecast"),
            "day-ahead forecasts of grid load and of wind power",
            HolidayRegion("Norway", "NO"),
            HolidayRegion("Sweden", "SE"),
            HolidayRegion("Finland", "FI"),
            HolidayRegion("Denmark", "DK"),
        ),
        "PJM": _price(
            "PJM, zone of Commonwealth Edison (COMED)",
            ("Zonal COMED price", "System load forecast", "Zonal COMED load foecast"),  # as the file spells it
            "day-ahead forecasts of system load and of zonal COMED load",
            HolidayRegion("Illinois", "US", "IL"),
            currency="USD",
        ),
        "BE": _price(
            "Belgium (BE)",
            ("Prices", "Generation forecast", "System load forecast"),
            "day-ahead forecasts of generation and of system load in France",  # the same two as of FR
            HolidayRegion("Belgium", "BE"),
        ),
        "FR": _price(
            "France (FR)",
            ("Prices", "Generation forecast", "System load forecast"),
            "day-ahead forecasts of generation and of system load in France",
            HolidayRegion("France", "FR"),
        ),
        "DE": _price(
            "Germany (DE)",
            ("Price", "Ampirion Load Forecast", "PV+Wind Forecast"),
            "day-ahead forecasts of load in the Amprion area and of solar and wind power",
            HolidayRegion("Germany", "DE"),
        ),
    }
)
"""Layouts by official name."""


def read_window_set(
    path: Path,
    *,
    dataset: str | None = None,
    length: int | None = None,
    horizon: int | None = None,
    whole_file: bool = False,
) -> WindowSet:
    """Read one official file, plain or gzip-compressed.

    Args:
        path: such as `ETTh1.csv`, `Wind.csv.gz` or `EPF_NP.csv.gz`.
        dataset: official name; by default the file's name tells it, else the header where it fits one layout only.
        length: rows of history; the paper's by default.
        horizon: rows to forecast; the paper's by default.
        whole_file: keep all hours of a price file instead of the last 14,496.

    Raises:
        ConfigError: the data set has no known name, or length or horizon is below 1.
        DataError: it is no such file; the message says what was expected and found.
    """
    text, digest = read_content(path, what="a CSV file of ETT, Wind or EPF", example="ETTh1.csv")
    header = [cell.strip() for cell in read_header(path, text)]
    refuse_repeated(path, header)
    name = _dataset(path, header, dataset)
    layout = LAYOUTS[name]
    if missing := [column for column in layout.columns if column not in header[1:]]:
        raise DataError(
            f"{path}: expected the columns of {name}, a time and then {quoted([*layout.columns])}; missing "
            f"{quoted(missing)}; found {quoted(header)}"
        )
    rows = read_table(
        path,
        text,
        header=0,
        names=[_TIME, *header[1:]],
        dtype={_TIME: "str"},
        skipinitialspace=True,
    )
    times = _regular_times(path, rows[_TIME], layout.step)
    values = np.column_stack([parse_numbers(path, rows[column], what=column) for column in layout.columns])
    if layout.market is not None:
        _refuse_cut_days(path, times)
        if not whole_file:
            if len(values) < EPF_ROWS:
                raise DataError(
                    f"{path}: expected at least {EPF_ROWS:,} hours, found {len(values):,}: give the official file, or "
                    "take all hours with --whole-file (whole_file=True)"
                )
            times, values = times[-EPF_ROWS:], values[-EPF_ROWS:]
    priced = layout.market is not None
    return WindowSet(
        name=name,
        start=times[0].to_pydatetime(),
        step=layout.step,
        channels=layout.columns,
        values=values,
        length=layout.length if length is None else length,
        horizon=layout.horizon if horizon is None else horizon,
        ratio=layout.ratio,
        known=layout.covariates if priced else (),
        align=24 if priced else 1,
        unit=layout.unit,
        market=layout.market,
        source={"kind": "file", "file": path.name, "sha256": digest, "whole_file": whole_file},
    )


def _dataset(path: Path, header: list[str], dataset: str | None) -> str:
    """The official name: as given, or by the file's name, or by a header that fits one layout only."""
    official = {name.lower(): name for name in LAYOUTS}
    wanted = path.name.lower().split(".")[0].removeprefix("epf_") if dataset is None else dataset.lower()
    if wanted in official:
        return official[wanted]
    if dataset is not None:
        raise ConfigError(f"expected a data set of {', '.join(LAYOUTS)}, found {dataset!r}")
    fitting = [name for name, layout in LAYOUTS.items() if set(layout.columns) <= set(header[1:])]
    if len(fitting) == 1:
        return fitting[0]
    found = f"its header fits {', '.join(fitting)}" if fitting else f"its header {quoted(header)} fits none"
    raise ConfigError(
        f"{path}: cannot tell the data set: the name is none of {', '.join(LAYOUTS)}, and {found}; rename the file or "
        "pass --dataset NAME"
    )


def _regular_times(path: Path, column: "pd.Series[str]", step: timedelta) -> pd.DatetimeIndex:
    """Parse the first column.

    Raises:
        DataError: a time has another format or a zone, or rows are not exactly a step apart.
    """
    times = pd.to_datetime(column, format="%Y-%m-%d %H:%M:%S", errors="coerce")
    if times.isna().any():
        line = int(times.isna().to_numpy().argmax()) + 2
        raise DataError(
            f"{path}, line {line}: expected a time YYYY-MM-DD HH:MM:SS in the first column, found "
            f"{column.iloc[line - 2]!r}"
        )
    gaps = (times - times.shift()).iloc[1:]
    if (wrong := (gaps != pd.Timedelta(step)).to_numpy()).any():
        line = int(wrong.argmax()) + 3
        raise DataError(
            f"{path}, line {line}: expected a row every {step}, in order, found {times.iloc[line - 2]} after "
            f"{times.iloc[line - 3]}: sort the rows, drop repeated ones, and keep the row of a missing value with "
            "empty cells"
        )
    return pd.DatetimeIndex(times)


def _refuse_cut_days(path: Path, times: pd.DatetimeIndex) -> None:
    """Refuse prices that do not cover whole days: day-ahead series are known for whole days."""
    if times[0].hour != 0 or times[-1].hour != 23:
        raise DataError(
            f"{path}: expected whole days, from 00:00 to 23:00, found {times[0]} to {times[-1]}: drop the hours of the "
            "cut days"
        )
