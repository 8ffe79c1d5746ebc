"""The visible window as checked, safely scaled channels: the common ground of all diagnostics.

A missing value is NaN. Squares of 1e300 overflow and squares of 1e-300 vanish, so every statistic is computed from
deviations that an exact power of two has brought to the order of one, and only its result returns to raw units.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from castgym.data.errors import ConfigError, DataError

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_LARGEST = sys.float_info.max


@dataclass(frozen=True, slots=True)
class Channel:
    """The observed values of one channel.

    Attributes:
        name: its name.
        length: number of steps L of the window, missing ones included.
        index: (n,) observed steps, ascending.
        scaled: (n,) observed values times 2**-exponent, magnitudes at most one.
        exponent: see `scaled`.
        deviation: (n,) observed values minus their mean, times 2**-deviation_exponent, magnitudes at most one.
        deviation_exponent: see `deviation`.
        centre: mean of the observed values, in the units of `scaled`.
        constant: no two observed values differ.
    """

    name: str
    length: int
    index: IntArray
    scaled: FloatArray
    exponent: int
    deviation: FloatArray
    deviation_exponent: int
    centre: float
    constant: bool

    @property
    def count(self) -> int:
        """Number n of observed values."""
        return len(self.index)

    @property
    def std(self) -> float:
        """Population standard deviation of `deviation` (its units); 0 for a constant or empty channel."""
        return math.sqrt(float(self.deviation @ self.deviation) / self.count) if self.count else 0.0

    def raw(self, value: float) -> float:
        """A level in units of `scaled`, in raw units."""
        return saturating_ldexp(value, self.exponent)

    def raw_difference(self, value: float) -> float:
        """A difference in units of `deviation`, in raw units; beyond the largest float, that float."""
        return saturating_ldexp(value, self.deviation_exponent)

    def filled(self) -> FloatArray:
        """(L,) deviations with gaps interpolated linearly, ends held; zeros where nothing was observed."""
        if self.count == self.length:
            return self.deviation
        if not self.count:
            return np.zeros(self.length)
        return np.interp(np.arange(self.length), self.index, self.deviation)

    def gapped(self, gap: float) -> FloatArray:
        """(L,) deviations with `gap` at the missing steps."""
        grid = np.full(self.length, gap)
        grid[self.index] = self.deviation
        return grid


def channels_of(values: npt.ArrayLike, names: Sequence[str] | None = None) -> tuple[Channel, ...]:
    """Check a window and split it into channels.

    Args:
        values: (L, C) or (L,) numbers, the target in column 0; NaN is missing.
        names: C distinct names; default `target`, `covariate_1`, ...

    Raises:
        DataError: not numbers, another shape, no step or channel, an infinite value, or names that do not fit.
    """
    try:
        table = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError("window: expected an (L, C) or (L,) array of numbers with NaN for missing values") from error
    if table.ndim == 1:
        table = table[:, None]
    if table.ndim != 2 or not table.size:
        raise DataError(f"window: expected shape (L, C) or (L,) with L, C >= 1, found {np.shape(values)}")
    if np.isinf(table).any():
        raise DataError("window: expected finite values or NaN for missing ones, found an infinite value")
    width = table.shape[1]
    if names is None:
        names = ["target", *(f"covariate_{number}" for number in range(1, width))]
    if len(names) != width or len(set(names)) != width:
        raise DataError(f"names: expected {width} distinct names, one a channel, found {list(names)}")
    return tuple(_channel(name, column) for name, column in zip(names, table.T, strict=True))


def _channel(name: str, column: FloatArray) -> Channel:
    index = np.flatnonzero(~np.isnan(column))
    if not len(index):
        nothing = np.zeros(0)
        return Channel(name, len(column), index, nothing, 0, nothing, 0, 0.0, True)
    scaled, exponent = _normalised(column[index])
    # Differences to the first value are exact where the values lie close: a large level costs no digits.
    anchor = float(scaled[0])
    offset, shift = _normalised(scaled - anchor)
    mean = float(offset.mean())
    deviation = offset - mean
    constant = not offset.any()
    centre = min(max(anchor + math.ldexp(mean, shift), float(scaled.min())), float(scaled.max()))
    # |offset| < 1 leaves |deviation| < 2: one more halving keeps the documented bound.
    return Channel(
        name, len(column), index, scaled, exponent, deviation / 2, exponent + shift + 1, centre, bool(constant)
    )


def _normalised(values: FloatArray) -> tuple[FloatArray, int]:
    """`values` times 2**-exponent, so that the largest magnitude lies in [0.5, 1); exponent 0 for zeros."""
    exponent = math.frexp(float(np.abs(values).max()))[1]
    return np.ldexp(values, -exponent), exponent


def saturating_ldexp(value: float, exponent: int) -> float:
    """`value` times 2**exponent; beyond the largest float, that float with its sign."""
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.copysign(_LARGEST, value)


def ratio(numerator: float, denominator: float) -> float:
    """Quotient of finite numbers; 0 for a zero denominator, saturating at the largest float."""
    if denominator == 0:
        return 0.0
    mantissa, exponent = math.frexp(numerator)
    lower, shift = math.frexp(denominator)
    return saturating_ldexp(mantissa / lower, exponent - shift)


def autocorrelation(deviation: FloatArray, lag: int) -> float:
    """Autocorrelation of centred values, in [-1, 1].

    sum d_t d_{t+lag} / sum d_t^2 (Box & Jenkins); pairs with a missing member add nothing (Parzen, 1963).

    Args:
        deviation: (L,) centred values of the order of one, 0 where missing.
        lag: steps, at least 1.

    Returns:
        The autocorrelation; 0 for zeros and for a lag not shorter than the series.
    """
    power = float(deviation @ deviation)
    if lag >= len(deviation) or power == 0:
        return 0.0
    return min(max(float(deviation[:-lag] @ deviation[lag:]) / power, -1.0), 1.0)


def check_at_least(name: str, value: int, least: int) -> None:
    """Refuse a setting below its least value.

    Raises:
        ConfigError: it is smaller.
    """
    if value < least:
        raise ConfigError(f"{name}: expected at least {least}, found {value}")
