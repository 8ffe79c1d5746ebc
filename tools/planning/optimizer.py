"""The shared optimiser: exact dynamic programming over blocks, for a batch of cost tables at once."""

from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from castgym.data.contract import TARGET_HOURS, ContractTerms

RAMP_TOLERANCE = 1e-10
"""Slack of the ramp limit (protocol, contract)."""

TIE = 1e-12
"""Expected losses closer than this tie; sums of 24 costs are exact to about 1e-15."""

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]


def block_cost(cost: FloatArray, terms: ContractTerms) -> FloatArray:
    """Sum hourly costs (N, 24, G) over the hours of each block: (N, B, G), divided by 24 hours."""
    blocks = cost.reshape(len(cost), terms.n_blocks, terms.block_hours, cost.shape[-1])
    summed: FloatArray = blocks.sum(axis=2) / TARGET_HOURS
    return summed


def optimal_plans(cost: FloatArray, terms: ContractTerms) -> IndexArray:
    """Plans of least expected loss over the grid, within the ramp limit (protocol, the shared optimiser).

    Ties go to the lowest grid index: first in the last block, then in each earlier one given its successor.

    Args:
        cost: hourly cost of each grid value, shape (N, 24, G).
        terms: the contract; `adjustment` prices each unit of change between blocks, divided by 24 hours.

    Returns:
        Grid index of each block, shape (N, B).
    """
    per_block = block_cost(cost, terms)
    n_plans, n_blocks, n_grid = per_block.shape
    reach, fee = _transitions(terms.grid, terms.ramp, terms.adjustment)
    width = len(fee)
    # value[b, :, reach + g]: least cost of blocks 0..b that end at grid value g; the borders stay unreachable.
    value = np.full((n_blocks, n_plans, n_grid + 2 * reach), np.inf)
    inner = slice(reach, reach + n_grid)
    value[0][:, inner] = per_block[:, 0]
    for block in range(1, n_blocks):
        # moves[k, :, g]: the cost of coming to g from g - reach + k, a view of the row before.
        before = value[block - 1]
        moves = as_strided(before, (width, n_plans, n_grid), (before.strides[1], *before.strides), writeable=False)
        np.add((moves + fee[:, None]).min(axis=0), per_block[:, block], out=value[block][:, inner])

    plans = np.empty((n_plans, n_blocks), dtype=np.intp)
    plans[:, -1] = _lowest_best(value[-1][:, inner])
    every = np.arange(n_plans)[:, None]
    window = np.arange(width)
    for block in range(n_blocks - 1, 0, -1):
        chosen = plans[:, block]
        candidates = value[block - 1][every, chosen[:, None] + window] + fee.T[chosen]
        plans[:, block - 1] = chosen - reach + _lowest_best(candidates)
    return plans


def plan_loss(plans: IndexArray, cost: FloatArray, terms: ContractTerms) -> FloatArray:
    """Mean hourly cost of plans, fees for change included: shape (N,).

    Args:
        plans: grid index of each block, shape (N, B).
        cost: hourly cost of each grid value, shape (N, 24, G).
        terms: the contract.
    """
    hourly = np.repeat(plans, terms.block_hours, axis=1)
    paid = np.take_along_axis(cost, hourly[:, :, None], axis=2)[:, :, 0].sum(axis=1)
    if terms.adjustment > 0:
        paid = paid + terms.adjustment * np.abs(np.diff(np.asarray(terms.grid)[plans], axis=1)).sum(axis=1)
    loss: FloatArray = paid / TARGET_HOURS
    return loss


def _lowest_best(costs: FloatArray) -> IndexArray:
    """First column of the least cost of each row; costs that only rounding tells apart count as equal."""
    lowest: IndexArray = (costs <= costs.min(axis=1, keepdims=True) + TIE).argmax(axis=1)
    return lowest


@lru_cache(maxsize=64)
def _transitions(grid_values: tuple[float, ...], ramp: float, adjustment: float) -> tuple[int, FloatArray]:
    """How many grid steps the ramp allows, and the fee (or infinity) of each move into each grid value.

    Returns:
        The reach in grid steps and a read-only array (2*reach+1, G): row k is the move from grid index g - reach + k
        to g.
    """
    grid = np.asarray(grid_values)
    change = np.abs(grid[:, None] - grid[None, :])
    allowed = change <= ramp + RAMP_TOLERANCE
    steps = np.abs(np.subtract.outer(np.arange(len(grid)), np.arange(len(grid))))
    reach = int(steps[allowed].max())
    source = np.arange(len(grid)) + np.arange(-reach, reach + 1)[:, None]
    inside = (source >= 0) & (source < len(grid))
    source = np.clip(source, 0, len(grid) - 1)
    target = np.arange(len(grid))
    fee = np.where(inside & allowed[source, target], adjustment / TARGET_HOURS * change[source, target], np.inf)
    fee.flags.writeable = False
    return reach, fee
