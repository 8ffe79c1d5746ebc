"""The objective: joins a committed plan with the truth, outside of any episode."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from castgym.data.errors import ConfigError
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
        S: the score, 0.5 * R + 0.5 * credits / budget unless another objective was stated.
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


@dataclass(frozen=True, slots=True)
class Objective:
    """How loss and forecast cost are weighed (FWBench Eq. (2); its sections 4.4 and 4.5 vary the weights).

    Attributes:
        name: name in settings.
        loss_weight: weight of the normalised excess loss R.
        cost_weight: weight of credits / budget.
    """

    name: str
    loss_weight: float
    cost_weight: float

    def score(self, R: float, spent: float, budget: int) -> float:
        """S of a normalised excess loss and a spending."""
        return self.loss_weight * R + self.cost_weight * (spent / budget)

    @property
    def formula(self) -> str:
        """The formula of S in words."""
        return f"S = {self.loss_weight:g} R + {self.cost_weight:g} credits / B"


COMBINED = Objective("combined", 0.5, 0.5)
"""The official objective."""

OBJECTIVES: Mapping[str, Objective] = MappingProxyType(
    {
        item.name: item
        for item in (
            COMBINED,
            Objective("loss_only", 1.0, 0.0),
            Objective("0.25/0.75", 0.25, 0.75),
            Objective("0.75/0.25", 0.75, 0.25),
        )
    }
)
"""The official objective and the paper's variants, by loss weight / cost weight."""


def find_objective(name: str) -> Objective:
    """The objective of that name.

    Raises:
        ConfigError: there is none.
    """
    if name not in OBJECTIVES:
        raise ConfigError(f"expected an objective of {', '.join(OBJECTIVES)}, found {name!r}")
    return OBJECTIVES[name]


def score_submission(
    case: Case,
    target: Target,
    submission: Mapping[str, Any] | None,
    *,
    spent: int,
    sigma: float,
    budget: int,
    rejection: str | None = None,
    objective: Objective = COMBINED,
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
        objective: weights of loss and cost.

    Raises:
        ValueError: the target belongs to another case.
    """
    if case.case_id != target.case_id:
        raise ValueError(f"the target of {target.case_id} cannot score {case.case_id}")
    grade = CapacityContract.of(case).grade(submission, target.actual)
    R = grade.excess / sigma
    S = objective.score(R, spent, budget)
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
        R = (loss - floor) / sigma[case.domain]
        S = COMBINED.score(R, charged, budget)
        scores.append(Score(True, None, loss, floor, charged, R, S, tuple(map(int, plan))))
    return scores
