"""What the simulators are made of: random draws and autoregressions.

The draws are the same bits on every machine and with every NumPy version.

NumPy promises the raw stream of a bit generator, not that of `Generator` methods, and a compiler may change the last
bits of sums and special functions. So uniform numbers are made from raw 64-bit words by exact arithmetic, and normal
numbers are sums of twelve 16-bit words (exact in integers; kurtosis -0.1, no tail beyond 6).
"""

import math

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

_WORDS_A_NORMAL = 3
_SHIFTS = np.array([0, 16, 32, 48], dtype=np.uint64)


class Draws:
    """A stream of random numbers that a seed and a path of names determine.

    Args:
        seed: the user's seed, >= 0.
        path: integers that tell this stream from the others of the seed.
    """

    def __init__(self, seed: int, *path: int) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=path))

    def uniform(self, *shape: int) -> FloatArray:
        """Numbers in [0, 1), multiples of 2**-53."""
        words = self._bits.random_raw(int(np.prod(shape, dtype=np.int64)))
        fractions: FloatArray = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return fractions.reshape(shape)

    def normal(self, *shape: int) -> FloatArray:
        """Approximately standard normal numbers: twelve uniform 16-bit integers, summed and centred."""
        size = int(np.prod(shape, dtype=np.int64))
        words = self._bits.random_raw(size * _WORDS_A_NORMAL).reshape(size, _WORDS_A_NORMAL, 1)
        sixteen_bits = (words >> _SHIFTS) & np.uint64(0xFFFF)
        total = sixteen_bits.sum(axis=(1, 2), dtype=np.int64)  # integers: exact in any order
        centred: FloatArray = (total.astype(np.float64) + 6.0) / 65536.0 - 6.0
        return centred.reshape(shape)


def autoregressive(noise: FloatArray, memory: float) -> FloatArray:
    """A stationary first-order autoregression of unit variance, driven by unit normal noise.

    Args:
        noise: shape (T, N).
        memory: correlation of neighbouring steps, in [0, 1).

    Returns:
        Shape (T, N).
    """
    values = np.empty_like(noise)
    innovation = math.sqrt(1.0 - memory * memory)
    values[0] = noise[0]
    for step in range(1, len(noise)):
        values[step] = memory * values[step - 1] + innovation * noise[step]
    return values


def hourly(daily: FloatArray, hours: int) -> FloatArray:
    """Straight lines between daily values placed at 00:00 UTC, shape (D, N) to (hours, N); D > hours / 24."""
    day, hour = np.divmod(np.arange(hours), 24)
    part = (hour / 24.0)[:, None]
    line: FloatArray = daily[day] * (1.0 - part) + daily[day + 1] * part
    return line
