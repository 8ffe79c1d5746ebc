"""Trajectories: what a policy saw, wrote and got, step by step, as JSON lines; and their re-execution.

The schema stands in `docs/trajectories.md`. A trajectory holds everything that is needed to play it again on its case:
a replay demands the same prompts, results, ending and score.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from castgym.data.errors import CastgymError, DataError
from castgym.envs.core import AgentEpisode, Transition
from castgym.envs.messages import Response
from castgym.envs.prompts import Prompt
from castgym.tools.calls import ToolCall

FORMAT = 2
"""Version of the schema."""


class ReplayMismatchError(CastgymError):
    """A saved trajectory, played again, did not lead to what it says."""


@dataclass(frozen=True, slots=True)
class Step:
    """One prompt, its response and what followed.

    Attributes:
        messages: chat messages of the prompt.
        response: the response as JSON: text, a chat message, or `{"name", "arguments"}` of a structured call.
        results: contents that the tools returned, in the order of the calls; none on the last step.
        errors: kind of the fault of each call, `None` where it succeeded.
        toolset: position in the trajectory's `toolsets` of the tool schemas that a chat template had to render.
    """

    messages: tuple[Mapping[str, Any], ...]
    response: Any
    results: tuple[Mapping[str, Any], ...] = ()
    errors: tuple[str | None, ...] = ()
    toolset: int = 0


class HasJson(Protocol):
    """A score of any kind of episode."""

    def to_json(self) -> dict[str, Any]:
        """JSON object."""
        ...


@dataclass(slots=True)
class Trajectory:
    """One episode from its first prompt to its score.

    Attributes:
        case_id: the case, or the window.
        repeat: number of the repetition.
        conditions: models, prompt mode, answer form and limits of the episode.
        steps: in order.
        end: outcome, submission and rejection.
        credits: credits charged.
        score: the score as JSON, `None` while it is unknown.
        meta: who played and how (agent, seed, seconds, tokens), JSON; nothing in it is needed to play again.
        toolsets: the different sets of tool schemas that prompts came with, each once; an empty one where the prompt's
            style names the tools in its messages.
    """

    case_id: str
    repeat: int
    conditions: Mapping[str, Any]
    steps: list[Step] = field(default_factory=list)
    end: Mapping[str, Any] = field(default_factory=dict)
    credits: int = 0
    score: Mapping[str, Any] | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    toolsets: list[tuple[Mapping[str, Any], ...]] = field(default_factory=list)

    @classmethod
    def begin(cls, episode: AgentEpisode, repeat: int = 0) -> "Trajectory":
        """An empty trajectory of an episode."""
        return cls(episode.subject_id, repeat, episode.conditions.describe())

    def add(self, prompt: Prompt, response: Response, transition: Transition) -> None:
        """Append a step."""
        results = tuple(dict(result.content) for result in transition.results)
        errors = tuple(result.error for result in transition.results)
        tools = prompt.template_tools
        if tools not in self.toolsets:
            self.toolsets.append(tools)
        self.steps.append(Step(prompt.messages, _to_json(response), results, errors, self.toolsets.index(tools)))

    def tools(self, step: Step) -> tuple[Mapping[str, Any], ...]:
        """The tool schemas that the chat template had to render for a step."""
        return self.toolsets[step.toolset]

    def finish(self, episode: AgentEpisode, score: HasJson | None) -> None:
        """Note how the episode ended and what it scored; numbers that are not finite become `None`, which is JSON."""
        self.end = episode.end.ending()
        self.credits = episode.spent
        self.score = None
        if score is not None:
            self.score = {
                name: None if isinstance(value, float) and not math.isfinite(value) else value
                for name, value in score.to_json().items()
            }

    def to_json(self) -> dict[str, Any]:
        """JSON object, one line of a file."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Trajectory":
        """Read `to_json`.

        Raises:
            DataError: another format, or fields that do not belong.
        """
        fields = dict(value)
        if fields.pop("format", None) != FORMAT:
            raise DataError(f"expected a trajectory of format {FORMAT}, found {value.get('format')!r}")
        try:
            steps = [
                Step(**{**step, **{name: tuple(step[name]) for name in ("messages", "results", "errors")}})
                for step in fields.pop("steps")
            ]
            toolsets = [tuple(tools) for tools in fields.pop("toolsets")]
            if not all(0 <= step.toolset < len(toolsets) for step in steps):
                raise DataError("a step names tools that the trajectory does not hold")
            return cls(**fields, steps=steps, toolsets=toolsets)
        except (KeyError, TypeError) as error:
            raise DataError(f"not a saved trajectory: {error!r}") from error


def said(step: Step) -> Response:
    """The response of a step as the policy gave it: a structured call is one again."""
    value = step.response
    if isinstance(value, Mapping) and {"name", "arguments"} <= set(value) <= {"name", "arguments", "call_id"}:
        return ToolCall(value["name"], value["arguments"], value.get("call_id"))
    response: Response = value
    return response


def replay(trajectory: Trajectory, episode: AgentEpisode) -> None:
    """Play a trajectory's responses again, to the end.

    Args:
        trajectory: what was saved.
        episode: a new episode of the same subject and conditions.

    Raises:
        ReplayMismatchError: a prompt, result, ending or spending differs; the message says at which step.
    """
    where = f"{trajectory.case_id}, repeat {trajectory.repeat}"
    _demand(where, "the subjects", trajectory.case_id, episode.subject_id)
    _demand(where, "the conditions", trajectory.conditions, episode.conditions.describe())
    for number, step in enumerate(trajectory.steps, start=1):
        if episode.done:
            raise ReplayMismatchError(f"{where}: the episode ended before step {number}")
        again = Trajectory.begin(episode)
        prompt, response = episode.observe(), said(step)
        truncated = number == len(trajectory.steps) and trajectory.end.get("outcome") == "truncated"
        again.add(prompt, response, episode.act(response, truncated=truncated))
        _demand(f"{where}, step {number}", "the tools", trajectory.tools(step), again.tools(again.steps[0]))
        for name in ("messages", "results", "errors"):
            _demand(f"{where}, step {number}", f"the {name}", getattr(step, name), getattr(again.steps[0], name))
    _demand(where, "the ending", trajectory.end, episode.end.ending())
    _demand(where, "the credits", trajectory.credits, episode.spent)


def _demand(where: str, what: str, saved: Any, found: Any) -> None:
    if saved != found:
        raise ReplayMismatchError(f"{where}: {what} differ: saved {str(saved)[:300]}, found {str(found)[:300]}")


def _to_json(response: Response) -> Any:
    if isinstance(response, ToolCall):
        call = {"name": response.name, "arguments": dict(response.arguments)}
        return call if response.call_id is None else {**call, "call_id": response.call_id}
    return response if isinstance(response, str) else dict(response)
