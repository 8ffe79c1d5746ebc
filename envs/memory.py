"""Structured memory M of an episode: what was found out, what was predicted, which plans stand to choice.

The log of calls is the only state; the parts that prompts show (D, Q, plans) are views of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from castgym.data.errors import DataError
from castgym.tools.fwbench import Plan

PREDICTION_TOOLS = frozenset({"forecast_and_plan", "replay_forecast", "predict_time_series"})
"""Tools whose results belong to Q; all others belong to D."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One counted call.

    Attributes:
        tool: name that was called; empty where no call could be read.
        arguments: arguments as given.
        content: JSON that the agent saw.
        error: kind of the fault, `None` on success.
        credits: credits that the call was charged.
        plan_id: the plan that it proposed.
        step: number of the response that made it, from 1; 0 where no response did.
    """

    tool: str
    arguments: Mapping[str, Any]
    content: Mapping[str, Any]
    error: str | None = None
    credits: int = 0
    plan_id: str | None = None
    step: int = 0


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A plan in memory.

    Attributes:
        plan_id: `p1`, `p2`, ... in the order in which tools proposed them.
        source: the tool and its choice, such as `classical_plan:weekly_repeat`.
        grid_index: grid index of each block.
        expected_loss: the optimiser's own objective, normalised units.
        credits: what it cost.
    """

    plan_id: str
    source: str
    grid_index: tuple[int, ...]
    expected_loss: float
    credits: int


@dataclass(slots=True)
class Memory:
    """What an episode remembers.

    Attributes:
        calls: every counted call, in order.
        plans: every proposed plan, in order.
    """

    calls: list[CallRecord] = field(default_factory=list)
    plans: list[PlanRecord] = field(default_factory=list)

    def copy(self) -> "Memory":
        """A copy that later calls do not change; the records themselves are shared and frozen."""
        return Memory(list(self.calls), list(self.plans))

    def remember_plan(self, plan: Plan) -> str:
        """Keep a proposed plan.

        Returns:
            Its id.
        """
        plan_id = f"p{len(self.plans) + 1}"
        self.plans.append(PlanRecord(plan_id, plan.source, plan.grid_index, plan.expected_loss, plan.credits))
        return plan_id

    def plan(self, plan_id: str) -> PlanRecord:
        """The plan of that id.

        Raises:
            KeyError: there is none.
        """
        for record in self.plans:
            if record.plan_id == plan_id:
                return record
        raise KeyError(plan_id)

    def plan_from(self, source: str) -> PlanRecord | None:
        """The latest plan from a source, or `None`."""
        return next((record for record in reversed(self.plans) if record.source == source), None)

    @property
    def analysis(self) -> tuple[CallRecord, ...]:
        """D: successful calls that looked at the case."""
        return tuple(call for call in self.calls if call.error is None and call.tool not in PREDICTION_TOOLS)

    @property
    def predictions(self) -> tuple[CallRecord, ...]:
        """Q: successful calls that bought a forecast."""
        return tuple(call for call in self.calls if call.error is None and call.tool in PREDICTION_TOOLS)

    @property
    def last_error(self) -> CallRecord | None:
        """The latest call, where it failed."""
        return self.calls[-1] if self.calls and self.calls[-1].error is not None else None

    def to_json(self) -> dict[str, Any]:
        """JSON object."""
        return {"calls": [asdict(call) for call in self.calls], "plans": [asdict(plan) for plan in self.plans]}

    @classmethod
    def from_json(cls, value: Mapping[str, Sequence[Mapping[str, Any]]]) -> "Memory":
        """Read `to_json`.

        Raises:
            DataError: a record has other fields.
        """
        try:
            plans = [PlanRecord(**{**plan, "grid_index": tuple(plan["grid_index"])}) for plan in value["plans"]]
            return cls([CallRecord(**call) for call in value["calls"]], plans)
        except (KeyError, TypeError) as error:
            raise DataError(f"not a saved memory: {error!r}") from error
