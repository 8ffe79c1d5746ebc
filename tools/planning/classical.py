"""The eight classical methods: distributions of the 24 target hours from the visible history alone.

Everything is arithmetic on hour counts: a sample belongs to a target hour when both fall on the same hour of the
24-hour (or 168-hour) cycle of UTC hours. So one index table serves a whole batch of cases with the same lead.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from castgym.data.contract import TARGET_HOURS
from castgym.data.errors import DataError

DAY = 24
WEEK = 168
_TREND_HOURS = 336.0
FloatArray = NDArray[np.float64]


class HistoryTooShortError(ValueError):
    """A method needs more visible hours than there are."""


@dataclass(frozen=True, slots=True, eq=False)
class Distributions:
    """Weighted samples of demand for a batch of cases.

    Attributes:
        samples: physical units, shape (N, H, S), H = 24, or H = 1 where every target hour has the same distribution.
        weights: masses, shape (S,), or (H, S) where hours have different numbers of samples (padding has mass 0).
    """

    samples: FloatArray
    weights: FloatArray


def _same_phase(history: FloatArray, offset: int, period: int, newest: int | None = None) -> Distributions:
    """Visible values at the target hours' phase of a cycle; `newest` keeps only so many of the last ones."""
    length = history.shape[1]
    first = np.arange(offset, offset + TARGET_HOURS) % period
    counts = (length - first + period - 1) // period
    if counts.min() == 0:
        raise HistoryTooShortError(
            f"a history of {length} hours has no value for some target hour of a {period}-hour cycle"
        )
    used = counts if newest is None else np.minimum(counts, newest)
    width = int(used.max())
    position = np.arange(width)
    index = first[:, None] + period * ((counts - used)[:, None] + position)
    if used.min() == width:
        return Distributions(history[:, index], np.full(width, 1.0 / width))
    weights = (position < used[:, None]) / used[:, None]
    return Distributions(history[:, np.minimum(index, length - 1)], weights)


def _recent(history: FloatArray, hours: int) -> Distributions:
    """The last values, the same for every target hour."""
    recent = history[:, None, -hours:]
    return Distributions(recent, np.full(recent.shape[2], 1.0 / recent.shape[2]))


def _weekday_empirical(history: FloatArray, offset: int) -> Distributions:
    return _same_phase(history, offset, WEEK)


def _weekly_repeat(history: FloatArray, offset: int) -> Distributions:
    return _same_phase(history, offset, WEEK, newest=1)


def _hour_of_day_empirical(history: FloatArray, offset: int) -> Distributions:
    return _same_phase(history, offset, DAY)


def _all_hour_empirical(history: FloatArray, offset: int) -> Distributions:
    del offset
    return _recent(history, history.shape[1])


def _recent_week_empirical(history: FloatArray, offset: int) -> Distributions:
    del offset
    return _recent(history, WEEK)


def _recent_day_empirical(history: FloatArray, offset: int) -> Distributions:
    del offset
    return _recent(history, DAY)


def _level_adjusted_weekly(history: FloatArray, offset: int) -> Distributions:
    if history.shape[1] < WEEK + DAY:
        raise HistoryTooShortError(
            f"level_adjusted_weekly needs {WEEK + DAY} hours of history, found {history.shape[1]}"
        )
    repeat = _weekly_repeat(history, offset)
    level = history[:, -DAY:].mean(axis=1) - history[:, -WEEK - DAY : -WEEK].mean(axis=1)
    return Distributions(np.maximum(repeat.samples + level[:, None, None], 0.0), repeat.weights)


def _calendar_design(hours: NDArray[np.int64]) -> FloatArray:
    """[1, t/336, sin and cos of 2*pi*k*t/P for P in {24, 168}, k in {1, 2, 3}], t in hours since the first one."""
    t = hours.astype(np.float64)
    columns = [np.ones_like(t), t / _TREND_HOURS]
    for period in (DAY, WEEK):
        for harmonic in (1, 2, 3):
            angle = 2.0 * np.pi * harmonic * t / period
            columns += [np.sin(angle), np.cos(angle)]
    return np.stack(columns, axis=1)


def _calendar_residual(history: FloatArray, offset: int) -> Distributions:
    length = history.shape[1]
    past = _calendar_design(np.arange(length))
    solve = np.linalg.pinv(past)
    # einsum instead of matmul: its sums do not depend on the batch, so one case and a thousand agree to the last bit.
    coefficients = np.einsum("nt,kt->nk", history, solve)
    residuals = history - np.einsum("nk,tk->nt", coefficients, past)
    target = _calendar_design(np.arange(offset, offset + TARGET_HOURS))
    prediction = np.einsum("nk,hk->nh", coefficients, target)
    samples = np.maximum(prediction[:, :, None] + residuals[:, None, :], 0.0)
    return Distributions(samples, np.full(length, 1.0 / length))


CLASSICAL_METHODS: Mapping[str, Callable[[FloatArray, int], Distributions]] = MappingProxyType(
    {
        "weekday_empirical": _weekday_empirical,
        "weekly_repeat": _weekly_repeat,
        "all_hour_empirical": _all_hour_empirical,
        "recent_week_empirical": _recent_week_empirical,
        "recent_day_empirical": _recent_day_empirical,
        "hour_of_day_empirical": _hour_of_day_empirical,
        "calendar_residual": _calendar_residual,
        "level_adjusted_weekly": _level_adjusted_weekly,
    }
)
"""The methods by their protocol names, in the protocol's order."""


def classical_batch(method: str, history: FloatArray, offset: int) -> Distributions:
    """Distributions of the target hours by one method, for cases with the same lead (protocol, eight methods).

    Args:
        method: a name in `CLASSICAL_METHODS`.
        history: visible values, shape (N, L), physical units.
        offset: hours from the first visible hour to the first target hour.

    Raises:
        HistoryTooShortError: the history is too short for the method.
    """
    return CLASSICAL_METHODS[method](history, offset)


def classical_distributions(history: pd.Series, hours: pd.DatetimeIndex) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Distributions of the target hours by all eight methods.

    Args:
        history: visible hourly values, shape (336,), physical units, indexed by UTC hour starts.
        hours: the target hours' starts, shape (24,).

    Returns:
        Method name -> (samples (24, S) in physical units, weights (S,)).

    Raises:
        DataError: the index is not hourly, the hours are not 24 consecutive ones after it, or a value is not finite.
    """
    index = history.index
    if (
        not isinstance(index, pd.DatetimeIndex)
        or not _hourly(index)
        or not _hourly(hours)
        or len(hours) != TARGET_HOURS
    ):
        raise DataError("expected an hourly history (DatetimeIndex) and 24 consecutive target hours")
    if (index.tz is None) != (hours.tz is None):
        raise DataError("expected history and target hours both with a timezone, or both without")
    offset = int((hours[0] - index[0]) / pd.Timedelta(hours=1))
    values = history.to_numpy(dtype=np.float64)[None]
    if offset < len(history) or not np.isfinite(values).all():
        raise DataError("expected finite values and target hours that lie after the history")
    result = {}
    for method in CLASSICAL_METHODS:
        found = classical_batch(method, values, offset)
        result[method] = (
            np.array(np.broadcast_to(found.samples[0], (TARGET_HOURS, found.samples.shape[2]))),
            found.weights,
        )
    return result


def _hourly(index: pd.DatetimeIndex) -> bool:
    return len(index) > 1 and bool((index[1:] - index[:-1] == pd.Timedelta(hours=1)).all())
