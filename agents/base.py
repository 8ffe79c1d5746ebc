"""What decides: policies that act on prompts, and their decisions for many cases at once."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from castgym.data.errors import ConfigError
from castgym.data.schema import Case
from castgym.data.tariff import Tariff
from castgym.envs.memory import PlanRecord
from castgym.envs.messages import Response
from castgym.envs.prompts import Prompt
from castgym.tools.calls import ToolCall
from castgym.tools.forecasters.pool import ForecasterPool
from castgym.tools.planning.contract import CapacityContract


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of a policy, as result rows keep it."""

    tool: str
    arguments: Mapping[str, Any]
    error: str | None = None
    credits: int = 0

    def to_json(self) -> dict[str, Any]:
        """JSON object."""
        return {
            "tool": self.tool,
            "arguments": dict(self.arguments),
            "error": self.error,
            "credits": self.credits,
        }


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy committed on one case, and how it got there.

    Attributes:
        grid_index: grid index of each block.
        calls: its tool calls in order.
    """

    grid_index: tuple[int, ...]
    calls: tuple[Call, ...] = ()

    @property
    def credits(self) -> int:
        """Credits charged."""
        return sum(call.credits for call in self.calls)


@dataclass(frozen=True, slots=True)
class Desk:
    """What the vectorised path decides with: the same prices and forecasters as the tools.

    Attributes:
        tariff: rates and budget.
        models: forecasters that may be bought.
        pool: forecasters.
        workers: threads that run them.
    """

    tariff: Tariff
    models: tuple[str, ...]
    pool: ForecasterPool
    workers: int = 1


class Policy(ABC):
    """A fixed rule that plays episodes. It keeps no state between prompts: all that it knows is in the prompt.

    Attributes:
        name: unique name for tables.
        hindsight: it knows the truth: a reference, not an agent.
        requires: forecasters that it may buy.
    """

    name: str
    hindsight: bool = False
    requires: tuple[str, ...] = ()

    @abstractmethod
    def act(self, prompt: Prompt) -> Response:
        """The response to a prompt: a call, or the text of the final answer."""

    def decide(self, cases: Sequence[Case], desk: Desk) -> list[Decision]:
        """The decisions and calls that `act` would lead to, for many cases at once.

        Raises:
            ConfigError: the policy has no vectorised path.
        """
        del cases, desk
        raise ConfigError(f"{self.name} has no vectorised path: run it without --vectorised")


def answer(plan: PlanRecord | Sequence[int], prompt: Prompt) -> str:
    """The text of the official final answer for a plan in memory, or for grid indices."""
    index = plan.grid_index if isinstance(plan, PlanRecord) else plan
    return json.dumps(CapacityContract.from_json(prompt.task["contract"]).submission(index))


def submission_text(case: Case, grid_index: Sequence[int]) -> str:
    """The same text from a case."""
    return json.dumps(CapacityContract.of(case).submission(grid_index))


def classical_call(series_id: str, method: str) -> ToolCall:
    """The call that gets the free plan of a classical method."""
    return ToolCall("classical_plan", {"series_id": series_id, "method": method})


def classical_source(method: str) -> str:
    """The source under which memory keeps that plan."""
    return f"classical_plan:{method}"
