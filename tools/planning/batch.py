"""Planning for many cases at once. One case is a batch of one, so both ways give the same bits."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from castgym.data.contract import TARGET_HOURS, ContractTerms
from castgym.data.schema import Case
from castgym.tools.forecasters.base import QUANTILE_MASSES
from castgym.tools.planning.classical import Distributions, classical_batch
from castgym.tools.planning.cost import expected_hourly_cost
from castgym.tools.planning.optimizer import IndexArray, optimal_plans, plan_loss

_CHUNK = 32
"""Rows planned together: small enough that their samples stay in the processor's cache."""

FloatArray = NDArray[np.float64]
_ONE = np.ones(1)


@dataclass(frozen=True, slots=True, eq=False)
class ContractBatch:
    """Contracts that differ in their hourly weights and scale only.

    Attributes:
        terms: what they share; its `hourly_priority` is not read.
        priority: hourly shortage weights, shape (N, 24).
        scale: physical units, shape (N,).
    """

    terms: ContractTerms
    priority: FloatArray
    scale: FloatArray

    @classmethod
    def of(cls, cases: Sequence[Case]) -> "ContractBatch":
        """The contracts of cases whose terms agree apart from the hourly weights."""
        priority = np.array([case.terms.hourly_priority for case in cases])
        return cls(cases[0].terms, priority, np.array([case.scale for case in cases]))

    def plan(self, found: Distributions) -> tuple[IndexArray, FloatArray]:
        """Optimal plans for distributions of demand.

        Args:
            found: N distributions, physical units.

        Returns:
            Grid index of each block, shape (N, B), and expected loss, shape (N,).
        """
        plans, losses = [], []
        for rows in self._chunks():
            samples = found.samples[rows] / self.scale[rows, None, None]
            cost = expected_hourly_cost(samples, found.weights, self.priority[rows], self.terms)
            plans.append(optimal_plans(cost, self.terms))
            losses.append(plan_loss(plans[-1], cost, self.terms))
        return np.concatenate(plans), np.concatenate(losses)

    def realized_losses(self, plans: IndexArray, demand: FloatArray) -> FloatArray:
        """Losses of several plans of each case under true demand.

        Args:
            plans: grid index of each block, shape (M, N, B): M plans of each of N cases.
            demand: shape (N, 24), physical units.

        Returns:
            Shape (M, N), normalised units.
        """
        losses = np.empty(plans.shape[:2])
        for rows in self._chunks():
            samples = demand[rows, :, None] / self.scale[rows, None, None]
            cost = expected_hourly_cost(samples, _ONE, self.priority[rows], self.terms)
            for number, plan in enumerate(plans):
                losses[number, rows] = plan_loss(plan[rows], cost, self.terms)
        return losses

    def perfect(self, demand: FloatArray) -> tuple[IndexArray, FloatArray]:
        """Plans and losses of the optimiser that knows the demand (N, 24): the floor F."""
        return self.plan(Distributions(demand[:, :, None], _ONE))

    def _chunks(self) -> Iterator[slice]:
        for start in range(0, len(self.scale), _CHUNK):
            yield slice(start, start + _CHUNK)


def target_offset(case: Case) -> int:
    """Hours from the first visible hour to the first target hour."""
    return len(case.history) + case.expected_horizon - TARGET_HOURS


def homogeneous_groups(cases: Sequence[Case]) -> list[NDArray[np.intp]]:
    """Positions of cases that can be planned together: same lead, same terms apart from the hourly weights."""
    groups: dict[tuple[int, str], list[int]] = {}
    shared: dict[ContractTerms, str] = {}
    for position, case in enumerate(cases):
        if case.terms not in shared:
            shared[case.terms] = case.terms.model_dump_json(exclude={"hourly_priority"})
        groups.setdefault((target_offset(case), shared[case.terms]), []).append(position)
    return [np.array(positions, dtype=np.intp) for positions in groups.values()]


def histories(cases: Sequence[Case]) -> FloatArray:
    """Visible values of the cases, shape (N, 336)."""
    return np.stack([case.history for case in cases])


def forecast_distributions(quantiles: FloatArray, expected_horizon: int) -> Distributions:
    """Samples of the target hours from quantile forecasts (protocol, the shared optimiser).

    Args:
        quantiles: shape (N, H, 9), H >= expected_horizon, physical units.
        expected_horizon: steps through the last target hour.
    """
    target = quantiles[:, expected_horizon - TARGET_HOURS : expected_horizon]
    return Distributions(target, np.asarray(QUANTILE_MASSES))


def plan_cases(
    cases: Sequence[Case], distributions: Callable[[list[Case]], Distributions]
) -> tuple[IndexArray, FloatArray]:
    """Plans for any cases: grouped, planned group by group, and returned in the order of the cases.

    Args:
        cases: cases of any lead and contract form, but with equally many blocks.
        distributions: the demand distributions of one homogeneous group.

    Returns:
        Grid index of each block, shape (N, B), and expected loss, shape (N,).
    """
    plans = np.empty((len(cases), cases[0].terms.n_blocks), dtype=np.intp)
    losses = np.empty(len(cases))
    for group in homogeneous_groups(cases):
        members = [cases[position] for position in group]
        plans[group], losses[group] = ContractBatch.of(members).plan(distributions(members))
    return plans, losses


def realized_losses(cases: Sequence[Case], plans: IndexArray, demand: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Loss of plans and floor under true demand, for any cases.

    Args:
        cases: N cases.
        plans: grid index of each block, shape (N, B).
        demand: shape (N, 24), physical units.

    Returns:
        Loss and floor, shape (N,) each.
    """
    losses, floors = np.empty(len(cases)), np.empty(len(cases))
    for group in homogeneous_groups(cases):
        contracts = ContractBatch.of([cases[position] for position in group])
        losses[group] = contracts.realized_losses(plans[None, group], demand[group])[0]
        floors[group] = contracts.perfect(demand[group])[1]
    return losses, floors


def classical_plans(cases: Sequence[Case], method: str) -> tuple[IndexArray, FloatArray]:
    """Plans of one classical method.

    Returns:
        Grid index of each block, shape (N, B), and expected loss, shape (N,).
    """
    return plan_cases(cases, lambda members: classical_batch(method, histories(members), target_offset(members[0])))
