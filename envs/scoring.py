"""The objective: joins a committed plan with the truth, outside of any episode."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from castgym.data.schema import Case, Target
from castgym.tools.planning.batch import realized_losses
from castgym.tools.planning.contract import CapacityContract


@dataclass(frozen=True, slots=True)
class Score:
    """Score of one case (FWBench Eq. (2)).

    Attributes:
        valid: a feasible plan was committed.
        fault: why not, a named reason.
        loss: decision loss, or the invalid penalty.
        floor: loss with known demand, F.
        credits: credits charged.
        R: normalised excess loss, (loss - floor) / sigma.
        S: 0.5 * (R + credits / budget).
        grid_index: committed plan, `None` where invalid.
    """

    valid: bool
    fault: str | None
    loss: float
    floor: float
    credits: int
    R: float
    S: float
    grid_index: tuple[int, ...] | None

    def to_json(self) -> dict[str, Any]:
        """JSON object."""
        return asdict(self)


def objective(excess: float, spent: int, sigma: float, budget: int) -> tuple[float, float]:
    """R and S of an excess loss and a spending (FWBench section 3.4)."""
    normalised = excess / sigma
    return normalised, 0.5 * (normalised + spent / budget)


def score_submission(
    case: Case,
    target: Target,
    submission: Mapping[str, Any] | None,
    *,
    spent: int,
    sigma: float,
    budget: int,
    rejection: str | None = None,
) -> Score:
    """Grade a submission and compute its score.

    Args:
        case: the case.
        target: its truth.
        submission: parsed answer; `None` where there is none.
        spent: credits charged in the episode.
        sigma: scale of the excess loss in the case's domain.
        budget: credits of a case, B.
        rejection: why there is no submission, where the reader of the final text named a reason.

    Raises:
        ValueError: the target belongs to another case.
    """
    if case.case_id != target.case_id:
        raise ValueError(f"the target of {target.case_id} cannot score {case.case_id}")
    grade = CapacityContract.of(case).grade(submission, target.actual)
    R, S = objective(grade.excess, spent, sigma, budget)
    fault = grade.fault if submission is not None or rejection is None else rejection
    return Score(grade.valid, fault, grade.loss, grade.floor, spent, R, S, grade.grid_index)


def score_plans(
    cases: Sequence[Case],
    targets: Mapping[str, Target],
    plans: NDArray[np.intp],
    spent: Sequence[int],
    sigma: Mapping[str, float],
    budget: int,
) -> list[Score]:
    """Score feasible plans of many cases at once; the numbers are those of `score_submission`.

    Args:
        cases: N cases.
        targets: truth by case id.
        plans: grid index of each block, shape (N, B), within the ramp limit.
        spent: credits charged in each case.
        sigma: scale of the excess loss by domain.
        budget: credits of a case, B.
    """
    demand = np.stack([targets[case.case_id].actual for case in cases])
    losses, floors = realized_losses(cases, plans, demand)
    scores = []
    for case, plan, loss, floor, charged in zip(cases, plans, losses.tolist(), floors.tolist(), spent, strict=True):
        R, S = objective(loss - floor, charged, sigma[case.domain], budget)
        scores.append(Score(True, None, loss, floor, charged, R, S, tuple(map(int, plan))))
    return scores
