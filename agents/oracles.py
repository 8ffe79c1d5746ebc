"""Oracles: references that know the truth. They bound what agents can reach and are never ranked among them."""

from collections.abc import Mapping, Sequence

import numpy as np

from castgym.agents.base import Decision, Desk, Policy, answer, classical_call
from castgym.agents.fixed import classical_decision, forecast_call, forecast_decision, forecast_plans
from castgym.data.schema import Case, CaseSet, TargetStore
from castgym.envs.episode import FREE_MODELS
from castgym.envs.messages import Response
from castgym.envs.prompts import Prompt
from castgym.envs.scoring import COMBINED
from castgym.tools.planning.batch import FloatArray, classical_plans, plan_cases, realized_losses
from castgym.tools.planning.classical import CLASSICAL_METHODS, Distributions


class PerfectDemand(Policy):
    """Submits the optimal plan for the true demand: its loss is the floor F.

    Args:
        cases: the case set.
        targets: the truth.
    """

    name = "perfect_demand"
    hindsight = True

    def __init__(self, cases: CaseSet, targets: TargetStore) -> None:
        self._cases = cases
        self._targets = targets

    def act(self, prompt: Prompt) -> Response:
        """Submit at once."""
        return answer(self._plans([self._cases.by_id(prompt.task["case_id"])])[0].grid_index, prompt)

    def decide(self, cases: Sequence[Case], desk: Desk) -> list[Decision]:
        """The same, for many cases."""
        del desk
        return self._plans(cases)

    def _plans(self, cases: Sequence[Case]) -> list[Decision]:
        plans, _ = plan_cases(
            cases, lambda members: Distributions(_demand(members, self._targets)[:, :, None], np.ones(1))
        )
        return [Decision(tuple(map(int, plan))) for plan in plans]


class MenuOracle(Policy):
    """Takes the plan with the least S among the menu's, and pays only for its choice (FWBench section 3.4).

    The menu holds the eight classical methods and the affordable full-context plans of some forecasters.

    Args:
        name: name for tables.
        cases: the case set.
        targets: the truth.
        models: forecasters on the menu.
        desk: prices and forecasters.
    """

    hindsight = True

    def __init__(self, name: str, cases: CaseSet, targets: TargetStore, models: tuple[str, ...], desk: Desk) -> None:
        self.name = name
        self.requires = models
        self._cases = cases
        self._targets = targets
        self._models = models
        self._desk = desk

    def act(self, prompt: Prompt) -> Response:
        """Make the one call that gets the best plan, then submit it."""
        if prompt.memory.plans:
            return answer(prompt.memory.plans[-1], prompt)
        case = self._cases.by_id(prompt.task["case_id"])
        choice = self._choices([case], self._menu([case], self._desk))[0]
        if choice in self._models:
            return forecast_call(case.series_id, choice, case.expected_horizon)
        return classical_call(case.series_id, choice)

    def decide(self, cases: Sequence[Case], desk: Desk) -> list[Decision]:
        """The same, for many cases."""
        menu = self._menu(cases, desk)
        return [menu[choice][position] for position, choice in enumerate(self._choices(cases, menu))]

    def _choices(self, cases: Sequence[Case], menu: Mapping[str, list[Decision]]) -> list[str]:
        """The item with the least S for each case; ties go to the earlier item of the menu."""
        budget = self._cases.tariff.budget
        demand = _demand(cases, self._targets)
        sigma = [self._cases.sigma[case.domain] for case in cases]
        scores = np.empty((len(menu), len(cases)))
        for number, decisions in enumerate(menu.values()):
            plans = np.array([decision.grid_index for decision in decisions], dtype=np.intp)
            losses, floors = realized_losses(cases, plans, demand)
            for position, decision in enumerate(decisions):
                excess = float(losses[position] - floors[position])
                score = COMBINED.score(excess / sigma[position], decision.credits, budget)
                scores[number, position] = score if decision.credits <= budget else np.inf
        return [list(menu)[number] for number in scores.argmin(axis=0)]

    def _menu(self, cases: Sequence[Case], desk: Desk) -> dict[str, list[Decision]]:
        menu = {}
        for method in CLASSICAL_METHODS:
            plans, _ = classical_plans(cases, method)
            menu[method] = [classical_decision(case, method, plan) for case, plan in zip(cases, plans, strict=True)]
        for model in self._models:
            plans, prices = forecast_plans(cases, model, desk)
            menu[model] = [
                forecast_decision(case, model, plan, price)
                for case, plan, price in zip(cases, plans, prices, strict=True)
            ]
        return menu


def catalog_models(models: Sequence[str]) -> tuple[str, ...]:
    """The forecasters of the catalog oracle's menu: the time-series foundation models among those sold."""
    return tuple(model for model in models if model not in FREE_MODELS)


def _demand(cases: Sequence[Case], targets: TargetStore) -> FloatArray:
    return np.stack([targets[case.case_id].actual for case in cases])
