"""The capacity contract of one case, in physical units: expected cost, optimal plan, loss, floor and grading."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from castgym.data.contract import TARGET_HOURS, ContractTerms
from castgym.data.contract_json import contract_from_json, contract_to_json
from castgym.data.schema import Case
from castgym.tools.planning.cost import FloatArray, expected_hourly_cost
from castgym.tools.planning.optimizer import RAMP_TOLERANCE, IndexArray, optimal_plans, plan_loss
from castgym.tools.planning.submission import block_ids, decision_values

_ONE = np.ones(1)


@dataclass(frozen=True, slots=True)
class Grade:
    """The judgement of one submission.

    Attributes:
        valid: all rules were met.
        loss: realised loss, or the invalid loss; normalised units.
        floor: loss of the optimiser that knows the demand, F.
        fault: why the submission is invalid, a named reason; `None` where it is valid.
        detail: the fault in words.
        grid_index: grid index of each block; `None` where the submission is invalid.
    """

    valid: bool
    loss: float
    floor: float
    fault: str | None = None
    detail: str = ""
    grid_index: tuple[int, ...] | None = None

    @property
    def excess(self) -> float:
        """Loss above the floor."""
        return self.loss - self.floor


@dataclass(frozen=True, slots=True)
class CapacityContract:
    """Terms of a contract together with the scale that turns them into physical capacities.

    Attributes:
        terms: the contract in normalised units.
        scale: s, physical units.
        unit: physical unit.
    """

    terms: ContractTerms
    scale: float
    unit: str = "MW"

    @classmethod
    def of(cls, case: Case) -> "CapacityContract":
        """The contract of a case."""
        return cls(case.terms, case.scale, case.unit)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "CapacityContract":
        """Read a business contract: `scale`, `capacity_grid` (physical units), `unit` and the terms.

        The terms stand beside the scale or under `terms`. Legacy contracts name `scale_mw` and `capacity_grid_mw`
        (unit MW). Without a grid, the protocol's normalised grid holds.

        Args:
            value: the JSON object.

        Raises:
            DataError: a field is missing or invalid, or two aliases of a field disagree.
        """
        return cls(*contract_from_json(value))

    def to_json(self) -> dict[str, Any]:
        """The layout that `from_json` reads, in generic names."""
        return contract_to_json(self.terms, self.scale, self.unit)

    @property
    def capacity_grid(self) -> FloatArray:
        """Allowed capacities in physical units, shape (G,)."""
        grid: FloatArray = self.scale * np.asarray(self.terms.grid)
        return grid

    @property
    def block_ids(self) -> tuple[str, ...]:
        """Names of the blocks, `b00`, `b01`, ..."""
        return block_ids(self.terms.n_blocks)

    def expected_cost(self, samples: FloatArray, weights: FloatArray) -> FloatArray:
        """Expected cost of each capacity in each hour.

        Args:
            samples: demand, physical units, shape (24, S); negative values count as 0.
            weights: masses, shape (S,).

        Returns:
            Shape (24, G), normalised units.

        Raises:
            ValueError: shapes do not fit or values are not finite.
        """
        samples = np.asarray(samples, dtype=np.float64)
        if samples.ndim != 2 or samples.shape[0] != TARGET_HOURS:
            raise ValueError(f"expected samples of shape (24, S), found {samples.shape}")
        priority = np.asarray(self.terms.hourly_priority)[None]
        cost: FloatArray = expected_hourly_cost(samples[None] / self.scale, np.asarray(weights), priority, self.terms)[
            0
        ]
        return cost

    def optimize(self, cost: FloatArray) -> IndexArray:
        """The plan of least expected loss: grid index of each block, shape (B,); ties take the lowest index."""
        plan: IndexArray = optimal_plans(np.asarray(cost)[None], self.terms)[0]
        return plan

    def realized_loss(self, plan: Sequence[int] | IndexArray, cost: FloatArray) -> float:
        """Loss of a plan under a cost table, such as that of the true demand.

        Args:
            plan: grid index of each block, shape (B,).
            cost: shape (24, G).
        """
        index = np.asarray(plan, dtype=np.intp)
        if index.shape != (self.terms.n_blocks,):
            raise ValueError(f"expected a plan of {self.terms.n_blocks} grid indices, found shape {index.shape}")
        return float(plan_loss(index[None], np.asarray(cost)[None], self.terms)[0])

    def demand_cost(self, demand: FloatArray) -> FloatArray:
        """Cost table (24, G) of known demand, shape (24,), physical units."""
        return self.expected_cost(np.asarray(demand, dtype=np.float64)[:, None], _ONE)

    def floor(self, demand: FloatArray) -> float:
        """Loss of the optimiser given the true demand, F."""
        cost = self.demand_cost(demand)
        return self.realized_loss(self.optimize(cost), cost)

    def invalid_loss(self, demand: FloatArray) -> float:
        """Loss of an invalid submission, above every feasible loss (protocol, grading).

        The mean over hours of the dearest grid value, plus the dearest possible fees for change, plus 1.
        """
        dearest = float(self.demand_cost(demand).max(axis=1).mean())
        span = self.terms.grid[-1] - self.terms.grid[0]
        return dearest + self.terms.adjustment * (self.terms.n_blocks - 1) * span / TARGET_HOURS + 1.0

    def submission(self, plan: Sequence[int] | IndexArray) -> dict[str, Any]:
        """The official JSON answer for a plan, capacities rounded to 6 decimals (within the grading tolerance)."""
        grid = self.capacity_grid
        return {
            "decisions": [
                {"id": name, "action": round(float(grid[index]), 6)}
                for name, index in zip(self.block_ids, plan, strict=True)
            ]
        }

    def read_plan(self, submission: Mapping[str, Any]) -> tuple[tuple[int, ...] | None, str | None, str]:
        """Turn a submission into grid indices, or name its fault.

        Each value must lie within 1e-6 + 1e-9*|g| of exactly one grid value g; nothing is rounded or clamped.

        Args:
            submission: parsed JSON, `{"decisions": [...]}` or `{"b00": ...}`.

        Returns:
            (grid indices, None, "") or (None, fault, detail).
        """
        values, fault, detail = decision_values(submission, self.block_ids)
        if values is None:
            return None, fault, detail
        grid = self.capacity_grid
        tolerance = 1e-6 + 1e-9 * np.abs(grid)
        plan = []
        for name, value in zip(self.block_ids, values, strict=True):
            near = np.flatnonzero(np.abs(grid - value) <= tolerance)
            if len(near) != 1:
                return None, "off_grid", f"{name}: {value!r} is not one of the allowed capacities"
            plan.append(int(near[0]))
        change = np.abs(np.diff(np.asarray(self.terms.grid)[plan]))
        if (change > self.terms.ramp + RAMP_TOLERANCE).any():
            worst = int(change.argmax())
            return (
                None,
                "ramp_exceeded",
                f"{self.block_ids[worst]} to {self.block_ids[worst + 1]} changes by {change[worst]:.2f} of the scale; "
                f"the limit is {self.terms.ramp:g}",
            )
        return tuple(plan), None, ""

    def grade(self, submission: Mapping[str, Any] | None, demand: FloatArray) -> Grade:
        """Grade a submission against the true demand.

        Args:
            submission: parsed JSON; `None` stands for no submission.
            demand: shape (24,), physical units.
        """
        floor = self.floor(demand)
        if submission is None:
            return Grade(False, self.invalid_loss(demand), floor, "no_submission", "nothing was submitted")
        plan, fault, detail = self.read_plan(submission)
        if plan is None:
            return Grade(False, self.invalid_loss(demand), floor, fault, detail)
        return Grade(True, self.realized_loss(plan, self.demand_cost(demand)), floor, grid_index=plan)
