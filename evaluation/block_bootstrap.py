"""A circular block bootstrap over windows in time order, paired between policies.

Neighbouring windows are not independent (they overlap, or share weather and level), so runs of neighbours are drawn
instead of single windows (Politis and Romano, "A circular block-resampling procedure for stationary data", 1992).
Two policies are compared on the same draws.
"""

import math

import numpy as np
from numpy.typing import NDArray

from castgym.data.errors import ConfigError

FloatArray = NDArray[np.float64]


def block_length(windows: int, overlap: int = 1) -> int:
    """Windows in a block: the cube root of their number (the rate that is optimal for a mean), at least an overlap.

    Args:
        windows: number of windows of the data set, n.
        overlap: neighbouring windows that share a step to forecast: ceil(horizon / stride).

    >>> block_length(36), block_length(3389, overlap=96)
    (4, 96)
    """
    return max(1, min(windows, max(overlap, math.ceil(math.pow(windows, 1 / 3)))))


def resampled_means(values: FloatArray, length: int, resamples: int, rng: np.random.Generator) -> FloatArray:
    """Means of block resamples.

    Args:
        values: one row a window in time order, one column a quantity; shape (n, m).
        length: windows in a block.
        resamples: number of resamples.
        rng: draws the blocks.

    Returns:
        Shape (resamples, m). Every column uses the same draws.

    Raises:
        ConfigError: fewer than two blocks fit, so that there is nothing to draw from.
    """
    count = len(values)
    if count < 2 * length:
        raise ConfigError(
            f"an interval needs at least two blocks of {length} windows, found {count} windows: evaluate more of them"
        )
    blocks = math.ceil(count / length)
    starts = rng.integers(0, count, (resamples, blocks))
    # Sums of all circular blocks by one running sum.
    running = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(np.vstack([values, values[:length]]), axis=0)])
    sums = running[length : length + count] - running[:count]
    means: FloatArray = sums[starts].sum(axis=1) / (blocks * length)
    return means
