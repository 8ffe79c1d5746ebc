"""Expected cost of every grid capacity in every hour, for weighted samples of demand.

For samples z with masses m and a capacity g, E[(g-z)+] = g W(g) - M(g) and E[(z-g)+] = M - M(g) - g (1 - W(g)), where
W(g) and M(g) are the mass and the first moment of the samples at or below g. Each sample is sorted once into the
interval between two grid values; running sums over the grid then give all capacities at once, so the work is that of
one sort and not samples times grid.
"""

import numpy as np
from numpy.typing import NDArray

from castgym.data.contract import ContractTerms

FloatArray = NDArray[np.float64]

_EVEN = 1e-9
"""Unevenness of a grid, in steps, that its even arithmetic tolerates."""

_CLOSE = 1e-6
"""Distance to a grid value, in steps, within which a value is searched instead: far above all rounding errors."""


def expected_hourly_cost(
    samples: FloatArray, weights: FloatArray, priority: FloatArray, terms: ContractTerms
) -> FloatArray:
    """Expected cost before fees for change (FWBench Eq. (1); emergency and reservation terms: protocol, contract).

    Args:
        samples: normalised demand, shape (N, H, S) with H = 24, or H = 1 for one distribution in every hour;
            negative values count as 0.
        weights: masses, shape (S,) or (H, S); they are divided by their sum over S.
        priority: hourly shortage weights, shape (N, 24).
        terms: the contract; its own `hourly_priority` is not read.

    Returns:
        Cost of each grid value in each hour, shape (N, 24, G), normalised units.

    Raises:
        ValueError: shapes do not fit, a sample is not finite, or weights are negative or sum to 0.
    """
    samples = np.maximum(np.asarray(samples, dtype=np.float64), 0.0)
    weights = np.asarray(weights, dtype=np.float64)
    if (
        samples.ndim != 3
        or samples.shape[1] not in (1, 24)
        or weights.shape not in (samples.shape[2:], samples.shape[1:])
    ):
        raise ValueError(
            f"expected samples (N, 24 or 1, S) and weights (S,), found {samples.shape} and {weights.shape}"
        )
    if not np.isfinite(samples).all():
        raise ValueError("expected finite samples of demand")
    totals = weights.sum(axis=-1, keepdims=True)
    if not (np.isfinite(weights).all() and (weights >= 0).all() and (totals > 0).all()):
        raise ValueError("expected weights >= 0 with a sum > 0 in every hour")
    masses = weights / totals
    grid = np.asarray(terms.grid)

    surplus, shortage = _partial_moments(samples, masses, grid)
    paid = terms.reservation * (surplus if terms.billing == "imbalance" else grid)
    weighted = terms.shortage * shortage
    if terms.emergency > 0:
        weighted = weighted + terms.emergency * _partial_moments(samples, masses, grid + terms.emergency_buffer)[1]
    cost: FloatArray = paid + priority[:, :, None] * weighted
    return cost


def _partial_moments(samples: FloatArray, masses: FloatArray, grid: FloatArray) -> tuple[FloatArray, FloatArray]:
    """E[(g-z)+] and E[(z-g)+] of each distribution for each grid value, both of shape (N, H, G)."""
    rows, bins = samples.shape[0] * samples.shape[1], len(grid) + 1
    interval = _intervals(samples.ravel(), grid).reshape(rows, -1)
    interval += np.arange(0, rows * bins, bins)[:, None]
    flat = interval.ravel()
    shape = (*samples.shape[:2], bins)
    if masses.min() == masses.max():  # equal masses: count first, multiply once
        mass = (np.bincount(flat, minlength=rows * bins) * masses.flat[0]).reshape(shape)
        moment = (np.bincount(flat, samples.ravel(), rows * bins) * masses.flat[0]).reshape(shape)
    else:
        mass = np.bincount(flat, np.broadcast_to(masses, samples.shape).ravel(), rows * bins).reshape(shape)
        moment = np.bincount(flat, (masses * samples).ravel(), rows * bins).reshape(shape)
    mass.cumsum(axis=-1, out=mass)
    moment.cumsum(axis=-1, out=moment)
    below, first = mass[..., :-1], moment[..., :-1]
    surplus = grid * below
    surplus -= first
    # E[(z-g)+] = E[z] - g + E[(g-z)+]
    shortage = surplus + moment[..., -1:]
    shortage -= grid
    return np.maximum(surplus, 0.0, out=surplus), np.maximum(shortage, 0.0, out=shortage)


def _intervals(values: FloatArray, grid: FloatArray) -> NDArray[np.intp]:
    """Number of grid values below each value: `np.searchsorted(grid, values)`, several times faster on an even grid.

    On an even grid a division gives the interval; only values too close to a grid value for its rounding are searched.
    """
    last = len(grid) - 1
    step = (grid[-1] - grid[0]) / last if last else 0.0
    if step == 0.0 or np.abs(grid - (grid[0] + step * np.arange(last + 1))).max() > _EVEN * step:
        return np.searchsorted(grid, values, side="left")
    position = (values - grid[0]) / step
    np.clip(position, -1.0, last + 1.0, out=position)
    interval: NDArray[np.intp] = np.ceil(position).astype(np.intp)
    np.maximum(interval, 0, out=interval)
    close = np.flatnonzero(np.abs(position - np.rint(position)) < _CLOSE)
    interval[close] = np.searchsorted(grid, values[close], side="left")
    return interval
