"""Normalised permutation entropy: how evenly a series visits its ordinal patterns."""

import math

import numpy as np
import numpy.typing as npt

from castgym.data.errors import ConfigError, DataError

MAX_ORDER = 10


def permutation_entropy(values: npt.ArrayLike, order: int = 3, delay: int = 1) -> float:
    """Normalised permutation entropy of a series (Bandt & Pompe, 2002; Cast-R1, Appendix D.4).

    -(1 / log order!) sum p log p over the ordinal patterns of (v_t, v_{t+delay}, ..., v_{t+(order-1) delay}).
    Equal values rank in order of time. Patterns with a missing member are left out.

    Args:
        values: (L,) numbers, NaN where missing. Only their order counts, so any increasing map leaves the result.
        order: length m of a pattern, 2 to `MAX_ORDER`.
        delay: steps between its members.

    Returns:
        Entropy in [0, 1]: 0 for a monotone, constant or too short series, near 1 for white noise.

    Raises:
        ConfigError: order or delay out of range.
        DataError: not one-dimensional, or an infinite value.
    """
    if not 2 <= order <= MAX_ORDER or delay < 1:
        raise ConfigError(f"expected order 2 to {MAX_ORDER} and delay >= 1, found order {order} and delay {delay}")
    series = np.asarray(values, dtype=np.float64)
    if series.ndim != 1 or np.isinf(series).any():
        raise DataError(f"expected an (L,) series of finite numbers or NaN, found shape {series.shape}")
    count = len(series) - (order - 1) * delay
    if count < 1:
        return 0.0
    patterns = np.stack([series[member * delay : member * delay + count] for member in range(order)], axis=1)
    patterns = patterns[~np.isnan(patterns).any(axis=1)]
    if not len(patterns):
        return 0.0
    ranking = np.argsort(patterns, axis=1, kind="stable")
    codes = ranking @ (order ** np.arange(order, dtype=np.int64))
    share = np.unique(codes, return_counts=True)[1] / len(codes)
    entropy = -float(share @ np.log(share)) / math.log(math.factorial(order))
    return min(max(0.0, entropy), 1.0)
