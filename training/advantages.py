"""Group-relative advantages of trajectories, and what a trajectory's tokens weigh: pure functions of arrays.

A trajectory of many steps has one return and one advantage, which all tokens of all its responses share (Cast-R1,
Section 3.3). Nothing here knows about models or about how a batch is laid out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from castgym.data.errors import ConfigError, DataError

Scale = Literal["group", "none"]
ZeroVariance = Literal["keep", "drop", "resample"]
Weighting = Literal["token", "row", "trajectory"]

STD_EPSILON = 1e-4
"""Added to a group's standard deviation, as TRL does."""

ZERO_STD = 1e-8
"""Standard deviation up to which a group counts as having none: its differences are rounding."""

LEAST_MEMBERS = 2
"""Scored members without which a group says nothing about its members."""


def group_advantages(returns: npt.ArrayLike, groups: npt.ArrayLike, scale: Scale = "group") -> npt.NDArray[np.float64]:
    """Advantages relative to the group (GRPO; Cast-R1, Section 3.3).

    A_i = (R_i - mean) / (std + 1e-4), mean and std over the members of i's group that have a return. The standard
    deviation has the divisor n - 1, as in TRL, so that trajectories of one step get exactly plain GRPO's advantages.
    With scale `none` the division is left out (Dr. GRPO).

    Sums are rounded once (`math.fsum`), so a permutation of the input permutes the output and changes no bit.

    Args:
        returns: (N,) returns R_i; NaN where the infrastructure failed and nothing was scored.
        groups: (N,) group of each trajectory: any labels that compare equal within a group, in any order.
        scale: `group` or `none`.

    Returns:
        (N,) advantages. 0 for a member without a return, in a group with fewer than two returns, and in a group whose
        returns are all the same.

    Raises:
        ConfigError: the scale is unknown.
        DataError: the arrays do not fit together, or a return is infinite.
    """
    if scale not in get_args(Scale):
        raise ConfigError(f"expected scale to be one of {get_args(Scale)}, found {scale!r}")
    values, members = _grouped(returns, groups)
    advantages = np.zeros(len(values))
    for index in members:
        scored = index[~np.isnan(values[index])]
        if len(scored) < LEAST_MEMBERS:
            continue
        mean, std = _mean_and_std(values[scored])
        if std <= ZERO_STD:
            continue
        advantages[scored] = values[scored] - mean
        if scale == "group":
            advantages[scored] /= std + STD_EPSILON
    return advantages


@dataclass(frozen=True, slots=True)
class GroupReport:
    """Which trajectories can be learnt from.

    Attributes:
        usable: (N,) the trajectory has a return, and at least one other member of its group has one too.
        varied: (N,) usable, and the returns of its group differ.
        left_out_share: share of trajectories without a return.
        dropped_share: share of groups with fewer than two returns.
        zero_variance_share: share of groups with two or more returns, all the same.
        std: mean over groups with two or more returns of their standard deviation; NaN where there is none.
    """

    usable: npt.NDArray[np.bool_]
    varied: npt.NDArray[np.bool_]
    left_out_share: float
    dropped_share: float
    zero_variance_share: float
    std: float

    def kept(self, zero_variance: ZeroVariance) -> npt.NDArray[np.bool_]:
        """(N,) the trajectories that are trained on.

        `keep` leaves groups without variance in: their advantage is 0, but KL acts on them. `drop` takes them out of
        everything, KL and token counts too; `resample` does the same with those that are left after resampling.
        """
        return self.usable if zero_variance == "keep" else self.varied


def report_groups(returns: npt.ArrayLike, groups: npt.ArrayLike) -> GroupReport:
    """Say which trajectories can be learnt from.

    Args:
        returns: (N,) returns, NaN where the infrastructure failed.
        groups: (N,) group of each trajectory.

    Raises:
        DataError: the arrays do not fit together, or a return is infinite.
    """
    values, members = _grouped(returns, groups)
    usable, varied = np.zeros(len(values), bool), np.zeros(len(values), bool)
    stds = []
    for index in members:
        scored = index[~np.isnan(values[index])]
        if len(scored) < LEAST_MEMBERS:
            continue
        stds.append(_mean_and_std(values[scored])[1])
        usable[scored] = True
        varied[scored] = stds[-1] > ZERO_STD
    flat = sum(std <= ZERO_STD for std in stds)
    return GroupReport(
        usable,
        varied,
        left_out_share=float(np.isnan(values).mean()) if len(values) else 0.0,
        dropped_share=1.0 - len(stds) / len(members) if members else 0.0,
        zero_variance_share=flat / len(members) if members else 0.0,
        std=math.fsum(stds) / len(stds) if stds else math.nan,
    )


def row_weights(
    tokens: Sequence[int], trajectories: Sequence[int], weighting: Weighting = "token"
) -> npt.NDArray[np.float64]:
    """What each trained token of a row weighs in the mean over tokens; only ratios matter.

    `token` (the default): all tokens weigh the same, whichever row they are in. It is what the same advantage on every
    token of every step says, what TRL's `dapo` loss does, and the only one whose gradient does not favour short
    responses. `row`: the rows weigh the same. `trajectory`: the trajectories weigh the same (1/|o_i| of the first GRPO
    paper, with o_i all responses of a trajectory), so that long trajectories do not dominate.

    Args:
        tokens: (R,) trained tokens of each row, 0 in a row that is padding.
        trajectories: (R,) trajectory of each row.
        weighting: `token`, `row` or `trajectory`.

    Returns:
        (R,) weight of one token of each row; 0 in a row without tokens.

    Raises:
        ConfigError: the weighting is unknown.
    """
    if weighting not in get_args(Weighting):
        raise ConfigError(f"expected weighting to be one of {get_args(Weighting)}, found {weighting!r}")
    counts: npt.NDArray[np.float64] = np.asarray(tokens, dtype=np.float64)
    shared: npt.NDArray[np.float64]
    if weighting == "token":
        shared = np.ones(len(counts))
    elif weighting == "row":
        shared = counts
    else:
        labels, inverse = np.unique(np.asarray(trajectories), return_inverse=True)
        totals = np.zeros(len(labels))
        np.add.at(totals, inverse, counts)
        shared = totals[inverse]
    return np.divide(1.0, shared, out=np.zeros(len(counts)), where=(counts > 0) & (shared > 0))


def _grouped(
    returns: npt.ArrayLike, groups: npt.ArrayLike
) -> tuple[npt.NDArray[np.float64], list[npt.NDArray[np.intp]]]:
    """The returns, and the positions of each group's members."""
    values, labels = np.asarray(returns, dtype=np.float64), np.asarray(groups)
    if values.ndim != 1 or labels.shape != values.shape:
        raise DataError(f"expected (N,) returns and (N,) groups, found shapes {values.shape} and {labels.shape}")
    if np.isinf(values).any():
        raise DataError("expected finite returns, or NaN where nothing was scored; found an infinite one")
    inverse = np.unique(labels, return_inverse=True)[1]
    order = np.argsort(inverse, kind="stable")
    bounds = np.flatnonzero(np.diff(inverse[order])) + 1
    return values, np.split(order, bounds) if len(values) else []


def _mean_and_std(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Mean, and standard deviation with divisor n - 1."""
    mean = math.fsum(values) / len(values)
    return mean, math.sqrt(math.fsum((values - mean) ** 2) / (len(values) - 1))
