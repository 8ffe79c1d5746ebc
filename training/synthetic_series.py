"""A broad family of invented hourly series, on which a small forecaster learns what demand may look like.

A series is a level that moves, plus a calendar shape, plus noise, through a link that may make it positive, a count or
zero at night. Every size is drawn anew for each series, from ranges far wider than those of one kind of demand.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

FloatArray = NDArray[np.float64]

DAY, WEEK = 24, 7
QUARTER_HOURS = 96
OTHER_PERIODS = (6, 7, 12, 36, 48, 120, 144)


def synthetic_series(rng: np.random.Generator, length: int) -> FloatArray:
    """One series of unit scale or so, shape (length,)."""
    shape = _calendar(rng, length) * _lognormal(rng, 1.0, 0.6) * (rng.random() < 0.92)
    slow = _ar1(rng, length, memory=np.exp(-1.0 / _log_uniform(rng, 48.0, 1000.0)))
    shape = shape * (1.0 + rng.uniform(0.0, 0.4) * slow)
    noise = _noise(rng, length, shape) * _log_uniform(rng, 0.03, 1.0)
    return _linked(rng, shape + _level(rng, length) + noise)


def _calendar(rng: np.random.Generator, length: int) -> FloatArray:
    """A repeating shape of unit size: mostly days of 24 steps, some of 96, in weeks with two free days."""
    period = int(rng.choice([DAY, QUARTER_HOURS, rng.choice(OTHER_PERIODS)], p=[0.75, 0.13, 0.12]))
    cycle, step = np.divmod(np.arange(length) + rng.integers(period * WEEK), period)
    work = _profile(rng, period)
    free = work if rng.random() < 0.3 else _mixed(rng, work, _profile(rng, period))
    weekday = cycle % WEEK
    is_free = weekday >= 5
    values = np.where(is_free, free[step], work[step])
    if rng.random() < 0.7:
        values = values + _log_uniform(rng, 0.05, 0.8) * is_free * rng.choice([-1.0, -1.0, 1.0])
    values = values + rng.choice([0.0, 0.05, 0.2]) * rng.normal(size=WEEK)[weekday]
    if rng.random() < 0.5:  # each cycle's swing differs from the others'
        swings = _ar1(rng, int(cycle[-1]) + 1, memory=rng.uniform(0.0, 0.9))
        values = values * (1.0 + rng.uniform(0.05, 0.35) * swings[cycle])
    return np.asarray(values, dtype=np.float64)


def _profile(rng: np.random.Generator, period: int) -> FloatArray:
    """A cycle of zero mean and unit deviation: smooth waves, or a few peaks."""
    angle = 2.0 * np.pi * np.arange(period) / period
    if rng.random() < 0.6:
        order = np.arange(1, max(2, min(9, period // 2)))
        size = rng.normal(size=(2, len(order))) / order ** rng.uniform(0.5, 2.0)
        values = size[0] @ np.cos(np.outer(order, angle)) + size[1] @ np.sin(np.outer(order, angle))
    else:
        peaks = rng.integers(1, 4)
        centre, width = rng.uniform(0.0, 2.0 * np.pi, (peaks, 1)), np.exp(rng.uniform(0.0, 3.0, (peaks, 1)))
        values = (rng.uniform(0.3, 1.0, (peaks, 1)) * np.exp(width * (np.cos(angle - centre) - 1.0))).sum(axis=0)
    values = values - values.mean()
    return np.asarray(values / max(float(values.std()), 1e-6), dtype=np.float64)


def _mixed(rng: np.random.Generator, first: FloatArray, second: FloatArray) -> FloatArray:
    share = rng.uniform(0.0, 0.6)
    return (1.0 - share) * first + share * second


def _level(rng: np.random.Generator, length: int) -> FloatArray:
    """Where the series moves around: drifts, a trend, a random walk, shifts that stay or fade."""
    time = np.arange(length) / 1000.0
    level = rng.choice([0.0, 1.0]) * rng.normal(0.0, 0.4) * time
    for low, high in ((4.0, 48.0), (24.0, 240.0), (240.0, 3000.0)):
        if rng.random() < 0.6:
            level = level + _lognormal(rng, 0.35, 0.8) * _ar1(rng, length, np.exp(-1.0 / _log_uniform(rng, low, high)))
    if rng.random() < 0.15:
        level = level + _log_uniform(rng, 0.005, 0.1) * np.cumsum(rng.normal(size=length))
    if rng.random() < 0.3:
        starts = rng.random(length) < 1.0 / rng.uniform(300.0, 1500.0)
        jumps = starts * rng.normal(0.0, _log_uniform(rng, 0.2, 1.5), length)
        level = level + lfilter([1.0], [1.0, -np.exp(-1.0 / _log_uniform(rng, 24.0, 5000.0))], jumps)
    return np.asarray(level, dtype=np.float64)


def _noise(rng: np.random.Generator, length: int, shape: FloatArray) -> FloatArray:
    """Unit noise, at times remembered, heavy in its tails, or larger where the calendar shape is high."""
    white = rng.standard_t(rng.uniform(3.0, 10.0), length) if rng.random() < 0.25 else rng.normal(size=length)
    memory = rng.uniform(0.0, 0.95) if rng.random() < 0.6 else 0.0
    noise = lfilter([np.sqrt(1.0 - memory**2)], [1.0, -memory], white)
    if rng.random() < 0.35:
        noise = noise * np.exp(rng.uniform(0.2, 0.8) * np.tanh(shape))
    return np.asarray(noise, dtype=np.float64)


def _linked(rng: np.random.Generator, values: FloatArray) -> FloatArray:
    """The series as it is observed."""
    kind = rng.random()
    if kind < 0.35:
        return values
    if kind < 0.60:  # positive, its swings in proportion to its level
        return np.exp(np.clip(rng.uniform(0.1, 0.6) * values, -6.0, 6.0))
    if kind < 0.70:
        return np.maximum(values + rng.uniform(-1.0, 1.5), 0.0)
    if kind < 0.80:  # rare outliers
        return values + (rng.random(len(values)) < 0.002) * rng.normal(0.0, 5.0, len(values))
    rate = _log_uniform(rng, 0.5, 200.0) * np.exp(np.clip(rng.uniform(0.2, 0.9) * values, -6.0, 3.0))
    return rng.poisson(rate).astype(np.float64)


def _ar1(rng: np.random.Generator, length: int, memory: float) -> FloatArray:
    """A stationary first-order autoregression of unit variance."""
    noise = rng.normal(size=length)
    noise[0] /= np.sqrt(max(1.0 - memory**2, 1e-12))
    values: FloatArray = np.sqrt(1.0 - memory**2) * lfilter([1.0], [1.0, -memory], noise)
    return values


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _lognormal(rng: np.random.Generator, median: float, spread: float) -> float:
    return float(median * np.exp(spread * rng.normal()))
