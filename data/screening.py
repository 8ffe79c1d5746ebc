"""A screen of impossible values in hourly electricity demand.

Reported demand has spikes of 2 to 1,000,000 times the level, hours at a few percent of it, zeros, negative values and
meters that stand still. Each value is judged by the record of its own series alone: no case, no target day and no
forecast is looked at, so the screen cannot favour predictable days. A refused value becomes unknown; nothing is
filled in.

A value is refused when

1. it is not positive;
2. it belongs to a run of at least `FLAT_HOURS` equal values (real runs of small, rounded series reach 5);
3. it lies outside a band around the level of its surroundings. A rolling median alone fails where more than half of
   its window is bad, so the level is taken on a ladder: whole series, half a year, four weeks. Each step judges what
   the wider ones left, so a bad stretch too long for one window is caught by a wider one;
4. it lies outside a band around the median of the seven hours around it.

The bands were set on the 50 authorities of 2021 to 2023 so that real extremes stay: the winter storm of February 2021
reached 1.7 times the four-week level in ERCO and 1.9 in AECI, summer peaks 2.2 times (IID), and true hours stay
within 0.7 and 1.4 times the seven-hour median.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

FLAT_HOURS = 6
"""Length of a run of equal values that is refused."""

LARGE_MW = 1000.0
LARGE_FLAT_HOURS = 4
"""From `LARGE_MW` on a run of this length is refused: the larger a series, the rarer a repeated value."""

LEVEL_BANDS: tuple[tuple[int | None, float, float], ...] = ((None, 0.1, 5.0), (183, 0.15, 3.5), (29, 0.25, 2.5))
"""Days around a value (None: all), and the least and largest ratio to the median of their daily medians."""

NEIGHBOUR_HOURS = 7
NEIGHBOUR_BAND = (0.65, 1.5)
"""Least and largest ratio to the median of `NEIGHBOUR_HOURS` hours."""

_MIN_DAYS = 8
_MIN_NEIGHBOURS = 4

PARAMETERS: Mapping[str, Any] = MappingProxyType(
    {
        "flat_hours": FLAT_HOURS,
        "large_mw": LARGE_MW,
        "large_flat_hours": LARGE_FLAT_HOURS,
        "level_bands": [list(band) for band in LEVEL_BANDS],
        "neighbour_hours": NEIGHBOUR_HOURS,
        "neighbour_band": list(NEIGHBOUR_BAND),
    }
)
"""All thresholds, for the provenance record."""


def screen_demand(demand: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Turn impossible values into unknown ones.

    Args:
        demand: shape (T, N), MW, index = consecutive UTC hour starts, NaN = unknown.

    Returns:
        The screened table, and the refused values: columns `series`, `hour`, `value`, `reason` (`nonpositive`,
        `flat_run`, `far_from_level`, `isolated_spike`), ordered by series, then hour.
    """
    refused: list[tuple[str, NDArray[np.bool_]]] = []
    kept = demand.copy()
    for reason, judge in (("nonpositive", _nonpositive), ("flat_run", _flat)):
        refused.append((reason, judge(kept)))
        kept = kept.mask(refused[-1][1])
    for days, low, high in LEVEL_BANDS:
        refused.append(("far_from_level", _outside(kept, _level(kept, days), low, high)))
        kept = kept.mask(refused[-1][1])
    nearby = kept.rolling(NEIGHBOUR_HOURS, center=True, min_periods=_MIN_NEIGHBOURS).median()
    refused.append(("isolated_spike", _outside(kept, nearby, *NEIGHBOUR_BAND)))
    kept = kept.mask(refused[-1][1])
    return kept, list_values(demand, refused)


def list_values(demand: pd.DataFrame, flags: list[tuple[str, NDArray[np.bool_]]]) -> pd.DataFrame:
    """List flagged values.

    Args:
        demand: shape (T, N).
        flags: pairs of a reason and a mask of shape (T, N).

    Returns:
        Columns `series`, `hour`, `value`, `reason`, ordered by series (in the table's order), then hour.
    """
    hours, series, reasons = [], [], []
    for reason, mask in flags:
        row, column = np.nonzero(mask)
        hours.append(row)
        series.append(column)
        reasons += [reason] * len(row)
    row, column = np.concatenate(hours), np.concatenate(series)
    order = np.lexsort((row, column))
    row, column = row[order], column[order]
    return pd.DataFrame(
        {
            "series": demand.columns.to_numpy()[column],
            "hour": demand.index[row],
            "value": demand.to_numpy()[row, column],
            "reason": np.array(reasons, dtype=object)[order],
        }
    )


def _nonpositive(demand: pd.DataFrame) -> NDArray[np.bool_]:
    return demand.to_numpy() <= 0


def _flat(demand: pd.DataFrame) -> NDArray[np.bool_]:
    """Values in runs of at least `FLAT_HOURS` equal ones, or of `LARGE_FLAT_HOURS` from `LARGE_MW` on."""
    values = demand.to_numpy()
    same = np.zeros(values.shape, dtype=np.int64)
    same[1:] = values[1:] == values[:-1]
    total = np.vstack([np.zeros((1, values.shape[1]), dtype=np.int64), same.cumsum(axis=0)])
    return _runs(total, FLAT_HOURS) | (_runs(total, LARGE_FLAT_HOURS) & (values >= LARGE_MW))


def _runs(total: NDArray[np.int64], length: int) -> NDArray[np.bool_]:
    """Values in runs of at least `length`, from running counts of "equal to the one before".

    A run of n equal values is n - 1 consecutive flags: where a window of that many is full, all its values are marked.
    """
    found = np.zeros((len(total) - 1, total.shape[1]), dtype=np.bool_)
    if len(found) >= length:
        full = total[length:] - total[1 : 1 - length] == length - 1  # row r: the values r .. r + length - 1 are equal
        for shift in range(length):
            found[shift : shift + len(full)] |= full
    return found


def _level(demand: pd.DataFrame, days: int | None) -> pd.DataFrame:
    """Median of the daily medians around each hour; unknown where fewer than eight days are known."""
    daily = demand.resample("D").median()
    if days is None:
        median = daily.median().to_numpy()
        return pd.DataFrame(np.broadcast_to(median, demand.shape), index=demand.index, columns=demand.columns)
    return daily.rolling(days, center=True, min_periods=_MIN_DAYS).median().reindex(demand.index, method="ffill")


def _outside(demand: pd.DataFrame, level: pd.DataFrame, low: float, high: float) -> NDArray[np.bool_]:
    values, around = demand.to_numpy(), level.to_numpy()
    return (values < low * around) | (values > high * around)
