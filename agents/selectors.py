"""Selectors: pick a free method by its decision loss on recent days of the visible history, then refit."""

from collections.abc import Sequence

import numpy as np

from castgym.agents.base import Call, Decision, Desk, Policy, answer, classical_call
from castgym.agents.fixed import classical_decision
from castgym.data.contract import TARGET_HOURS
from castgym.data.schema import HISTORY_HOURS, Case
from castgym.envs.messages import Response
from castgym.envs.prompts import Prompt
from castgym.tools.calls import ToolCall
from castgym.tools.planning.batch import ContractBatch, FloatArray, classical_plans, histories, homogeneous_groups
from castgym.tools.planning.classical import CLASSICAL_METHODS, HistoryTooShortError, classical_batch
from castgym.tools.planning.contract import CapacityContract

_OLDEST_ORIGIN = 216
"""Short-lead backtests begin after this many visible hours, so that every method has the 192 hours that it needs."""

_SPAN = 70
"""Hours over which lead-matched windows spread where the history leaves no more."""


class BacktestSelector(Policy):
    """Picks the classical method with the least mean decision loss over 24-hour backtests, then refits it.

    Short-lead windows are forecast from all that directly precedes them. Lead-matched windows lie as far ahead of their
    origin as the case's target does, so their history is shorter (72 to 142 hours a week ahead), and methods that
    cannot do without more are not considered. A window is judged by the case's own contract with the hourly weights
    turned to the window's hours of day. Ties go to the method's name. The protocol leaves the windows' positions open;
    these are ours: they end as late as possible and step back evenly.

    Args:
        windows: number of backtests, 4 or 8 in the paper.
        lead_matched: windows at the case's own lead.
    """

    def __init__(self, windows: int = 8, lead_matched: bool = False) -> None:
        self.name = f"lead_matched_{windows}" if lead_matched else f"backtest_{windows}"
        self.windows = windows
        self.lead_matched = lead_matched

    def act(self, prompt: Prompt) -> Response:
        """Read the history, get the plan of the method that would have done best, submit it."""
        series, memory = prompt.task["series_id"], prompt.memory
        if memory.plans:
            return answer(memory.plans[-1], prompt)
        if not memory.analysis:
            return _history_call(series)
        contract = CapacityContract.from_json(prompt.task["contract"])
        history = np.array([memory.analysis[-1].content["values"]])
        batch = ContractBatch(contract.terms, np.array([contract.terms.hourly_priority]), np.array([contract.scale]))
        offset = HISTORY_HOURS + prompt.task["expected_horizon"] - TARGET_HOURS
        return classical_call(series, self._choose(history, batch, offset)[0])

    def decide(self, cases: Sequence[Case], desk: Desk) -> list[Decision]:
        """The same, for many cases."""
        del desk
        chosen = [""] * len(cases)
        for group in homogeneous_groups(cases):
            members = [cases[position] for position in group]
            offset = HISTORY_HOURS + members[0].expected_horizon - TARGET_HOURS
            for position, method in zip(
                group, self._choose(histories(members), ContractBatch.of(members), offset), strict=True
            ):
                chosen[position] = method
        decisions: list[Decision | None] = [None] * len(cases)
        for method in sorted(set(chosen)):
            positions = [position for position, name in enumerate(chosen) if name == method]
            plans, _ = classical_plans([cases[position] for position in positions], method)
            for position, plan in zip(positions, plans, strict=True):
                case = cases[position]
                read = _history_call(case.series_id)
                taken = classical_decision(case, method, plan)
                decisions[position] = Decision(taken.grid_index, (Call(read.name, read.arguments), *taken.calls))
        return [decision for decision in decisions if decision is not None]

    def _choose(self, history: FloatArray, contracts: ContractBatch, offset: int) -> list[str]:
        """The best method of each history (N, 336)."""
        methods = sorted(CLASSICAL_METHODS)
        losses = np.zeros((len(methods), len(history)))
        gap = offset - HISTORY_HOURS if self.lead_matched else 0
        last = HISTORY_HOURS - TARGET_HOURS - gap
        for origin in np.linspace(min(_OLDEST_ORIGIN, last - _SPAN), last, self.windows).round().astype(int):
            start = int(origin) + gap
            turned = np.roll(contracts.priority, (offset - start) % TARGET_HOURS, axis=1)
            window = ContractBatch(contracts.terms, turned, contracts.scale)
            demand = history[:, start : start + TARGET_HOURS]
            for number, method in enumerate(methods):
                try:
                    found = classical_batch(method, history[:, :origin], start)
                except HistoryTooShortError:
                    losses[number] = np.inf
                else:
                    losses[number] += window.realized_losses(window.plan(found)[0][None], demand)[0]
        return [methods[number] for number in losses.argmin(axis=0)]


def _history_call(series_id: str) -> ToolCall:
    return ToolCall("history", {"series_id": series_id, "limit": HISTORY_HOURS})
