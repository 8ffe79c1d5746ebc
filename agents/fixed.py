"""Fixed policies: one method for every case."""

from collections.abc import Sequence

import numpy as np

from castgym.agents.base import Call, Decision, Desk, Policy, answer, classical_call, classical_source
from castgym.data.schema import HISTORY_HOURS, Case
from castgym.envs.messages import Response
from castgym.envs.prompts import Prompt
from castgym.tools.calls import ToolCall
from castgym.tools.planning.batch import classical_plans, forecast_distributions, plan_cases
from castgym.tools.planning.classical import Distributions
from castgym.tools.planning.optimizer import IndexArray

FALLBACK_METHOD = "hour_of_day_empirical"
"""The free method that a forecast policy falls back to (protocol, reference policies)."""


class ClassicalPolicy(Policy):
    """Takes the free plan of one classical method.

    Args:
        method: a classical method.
    """

    def __init__(self, method: str) -> None:
        self.name = method

    def act(self, prompt: Prompt) -> Response:
        """Get the plan, then submit it."""
        plan = prompt.memory.plan_from(classical_source(self.name))
        return classical_call(prompt.task["series_id"], self.name) if plan is None else answer(plan, prompt)

    def decide(self, cases: Sequence[Case], desk: Desk) -> list[Decision]:
        """The same, for many cases."""
        del desk
        plans, _ = classical_plans(cases, self.name)
        return [classical_decision(case, self.name, plan) for case, plan in zip(cases, plans, strict=True)]


class ForecastPolicy(Policy):
    """Buys one model's forecast with full context for the whole horizon, or falls back where it cannot pay.

    Args:
        model: a forecaster.
    """

    def __init__(self, model: str) -> None:
        self.name = f"fixed_{model}"
        self.model = model
        self.requires = (model,)

    def act(self, prompt: Prompt) -> Response:
        """Buy the forecast and submit its plan; on any refusal, the free plan."""
        task, memory = prompt.task, prompt.memory
        if memory.plans:
            return answer(memory.plans[-1], prompt)
        if memory.last_error is not None:
            return classical_call(task["series_id"], FALLBACK_METHOD)
        return forecast_call(task["series_id"], self.model, task["expected_horizon"])

    def decide(self, cases: Sequence[Case], desk: Desk) -> list[Decision]:
        """The same, for many cases."""
        plans, prices = forecast_plans(cases, self.model, desk)
        fallback, _ = classical_plans(cases, FALLBACK_METHOD)
        return [
            forecast_decision(case, self.model, bought, price)
            if price <= desk.tariff.budget
            else _fallback_decision(case, self.model, free)
            for case, bought, free, price in zip(cases, plans, fallback, prices, strict=True)
        ]


def forecast_call(series_id: str, model: str, horizon: int) -> ToolCall:
    """The call that buys a forecast with full context and gets its plan."""
    arguments = {"series_id": series_id, "model": model, "horizon": horizon, "context_steps": HISTORY_HOURS}
    return ToolCall("forecast_and_plan", arguments)


def classical_decision(case: Case, method: str, plan: IndexArray) -> Decision:
    """Committing a classical plan after the one call that gets it."""
    call = classical_call(case.series_id, method)
    return Decision(tuple(map(int, plan)), (Call(call.name, call.arguments),))


def forecast_decision(case: Case, model: str, plan: IndexArray, price: int) -> Decision:
    """Committing a bought plan after the one call that buys it."""
    call = forecast_call(case.series_id, model, case.expected_horizon)
    return Decision(tuple(map(int, plan)), (Call(call.name, call.arguments, credits=price),))


def _fallback_decision(case: Case, model: str, plan: IndexArray) -> Decision:
    refused = forecast_call(case.series_id, model, case.expected_horizon)
    free = classical_decision(case, FALLBACK_METHOD, plan)
    return Decision(free.grid_index, (Call(refused.name, refused.arguments, "unaffordable"), *free.calls))


def forecast_plans(cases: Sequence[Case], model: str, desk: Desk) -> tuple[IndexArray, list[int]]:
    """Plans and prices of a model's full-context forecasts; cases that cannot pay are not forecast (their plan is 0).

    Args:
        cases: N cases.
        model: a forecaster.
        desk: prices and forecasters.

    Returns:
        Grid index of each block, shape (N, B), and the price of each case.
    """
    prices = [desk.tariff.price(model, case.expected_horizon, HISTORY_HOURS).credits for case in cases]
    payable = [case for case, price in zip(cases, prices, strict=True) if price <= desk.tariff.budget]
    plans = np.zeros((len(cases), cases[0].terms.n_blocks), dtype=np.intp)
    if payable:

        def distributions(members: list[Case]) -> Distributions:
            horizon = members[0].expected_horizon
            quantiles = desk.pool.forecast_many(model, [case.history for case in members], horizon, desk.workers)
            return forecast_distributions(quantiles, horizon)

        plans[np.array(prices) <= desk.tariff.budget] = plan_cases(payable, distributions)[0]
    return plans, prices
