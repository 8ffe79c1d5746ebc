"""What the visible hours say about each block of the target day, in whole grid steps.

A small policy cannot average 336 numbers. This is the same history, read off the `history` tool's result and never
anything else, in the unit of its decision: steps of the capacity grid.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from castgym.data.contract import TARGET_HOURS

FloatArray = NDArray[np.float64]

WEEK_HOURS = 168
LARGEST_SHIFT = 3
"""Largest `shift` of a block, grid steps: beyond it the evidence of one day is more often an outlier than a trend."""

_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class BlockEvidence:
    """The history against its own mean, in whole grid steps.

    Blocks are those of the target day: a block's hours are the visible hours at the same hours of day.

    Attributes:
        hours: visible hours that it was made from.
        day: the newest 24 hours as a whole, above (+) or below (-) the mean.
        last: the newest value of each block's hours, above or below the block's mean.
        week: the visible days with the target's weekday, likewise; `None` where no such day is visible.
        mid: the mean of `day`, `last` and `week` before rounding.
    """

    hours: int
    day: int
    last: tuple[int, ...]
    week: tuple[int, ...] | None
    mid: tuple[int, ...]


def grid_step(grid: Sequence[float]) -> float:
    """Mean distance of neighbouring capacities; infinite for a grid of one."""
    return (grid[-1] - grid[0]) / (len(grid) - 1) if len(grid) > 1 else float("inf")


def is_even(grid: Sequence[float]) -> bool:
    """All neighbouring capacities are equally far apart."""
    return len(grid) > 1 and bool(np.allclose(np.diff(grid), grid_step(grid), rtol=0, atol=grid_step(grid) * 1e-6))


def block_evidence(history: Mapping[str, Any], task: Mapping[str, Any]) -> BlockEvidence | None:
    """The evidence in a result of the `history` tool.

    Args:
        history: the tool's result, n hours.
        task: the task's facts.

    Returns:
        The evidence; `None` where fewer than 24 hours were read, so that some block has no value.
    """
    values = np.asarray(history["values"], dtype=np.float64)
    if len(values) < TARGET_HOURS:
        return None
    contract = task["contract"]
    first, target = (datetime.fromisoformat(text) for text in (history["timestamps"][0], task["target_start"]))
    offset = (target - first) // timedelta(hours=1)
    unit = grid_step(contract["capacity_grid"])
    ahead = np.arange(len(values)) - offset  # hours from the target's start, negative
    hour = ahead % TARGET_HOURS
    mean = _hourly_mean(values, hour)
    newest = np.empty(TARGET_HOURS)
    newest[hour[-TARGET_HOURS:]] = values[-TARGET_HOURS:]
    day = float((newest - mean).mean()) / unit
    n_blocks = len(task["block_ids"])
    last = _blocks((newest - mean) / unit, n_blocks)
    parts = [np.full(n_blocks, day), last]
    same = ahead % WEEK_HOURS < TARGET_HOURS
    week = None
    if same.sum() >= TARGET_HOURS:
        week = _blocks((_hourly_mean(values[same], hour[same]) - mean) / unit, n_blocks)
        parts.append(week)
    return BlockEvidence(
        len(values),
        round(day),
        _whole(last),
        None if week is None else _whole(week),
        _whole(np.mean(parts, axis=0)),
    )


def reachable_shift(plan: Sequence[int], mid: Sequence[int], task: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The steps that move a plan by `mid`, as far as size, ramp and grid allow.

    Blocks are taken in order, each as close to its `mid` as the block before it leaves room. Moving a feasible plan by
    the shift is feasible, and so is moving it by f(shift) for any f that rises by at most 1 a step, never falls, and
    stays on the grid.

    Args:
        plan: grid index of each block of a feasible plan.
        mid: wanted steps of each block.
        task: the task's facts.

    Returns:
        Steps of each block; `None` where the grid is uneven, so that a step has no fixed size.
    """
    contract = task["contract"]
    grid = [capacity / contract["scale"] for capacity in contract["capacity_grid"]]
    if not is_even(grid):
        return None
    room = ramp_steps(task)
    moved: list[int] = []
    for index, wanted in zip(plan, mid, strict=True):
        goal = index + max(-LARGEST_SHIFT, min(LARGEST_SHIFT, wanted))
        moved.append(max(moved[-1] - room, min(moved[-1] + room, goal)) if moved else goal)
    top = len(grid) - 1
    return tuple(max(0, min(top, goal)) - index for goal, index in zip(moved, plan, strict=True))


def ramp_steps(task: Mapping[str, Any]) -> int:
    """Grid steps by which neighbouring blocks may differ, on an even grid."""
    contract = task["contract"]
    step = grid_step(contract["capacity_grid"]) / contract["scale"]
    return int(contract["ramp"] / step + _TOLERANCE)


def _hourly_mean(values: FloatArray, hour: NDArray[np.int64]) -> FloatArray:
    sums = np.bincount(hour, values, TARGET_HOURS)
    return sums / np.bincount(hour, minlength=TARGET_HOURS)


def _blocks(hourly: FloatArray, n_blocks: int) -> FloatArray:
    means: FloatArray = hourly.reshape(n_blocks, -1).mean(axis=1)
    return means


def _whole(values: FloatArray) -> tuple[int, ...]:
    return tuple(int(value) for value in np.rint(values))
