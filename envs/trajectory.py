"""Trajectories: what a policy saw, wrote and got, step by step, as JSON lines; and their re-execution.

The schema stands in `docs/trajectories.md`. A trajectory holds everything that is needed to play it again on its case:
a replay demands the same prompts, results, ending and score.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from castgym.data.errors import CastgymError, DataError
from castgym.data.schema import Case
from castgym.envs.episode import Episode, EpisodeConfig, Transition
from castgym.envs.messages import Response
from castgym.envs.prompts import Prompt
from castgym.envs.scoring import Score
from castgym.tools.calls import ToolCall
from castgym.tools.forecasters.pool import ForecasterPool

FORMAT = 1
"""Version of the schema."""


class ReplayMismatchError(CastgymError):
    """A saved trajectory, played again, did not lead to what it says."""


@dataclass(frozen=True, slots=True)
class Step:
    """One prompt, its response and what followed.

    Attributes:
        messages: chat messages of the prompt.
        response: the response as JSON: text, a chat message, or `{"name", "arguments"}` of a structured call.
        result: content that a tool returned; `None` on the last step.
        error: kind of the fault of the call.
    """

    messages: tuple[Mapping[str, Any], ...]
    response: Any
    result: Mapping[str, Any] | None
    error: str | None


@dataclass(slots=True)
class Trajectory:
    """One episode from its first prompt to its score.

    Attributes:
        case_id: the case.
        repeat: number of the repetition.
        conditions: models, prompt mode, answer form and limits of the episode.
        steps: in order.
        end: outcome, submission and rejection.
        credits: credits charged.
        score: the score as JSON, `None` while it is unknown.
    """

    case_id: str
    repeat: int
    conditions: Mapping[str, Any]
    steps: list[Step] = field(default_factory=list)
    end: Mapping[str, Any] = field(default_factory=dict)
    credits: int = 0
    score: Mapping[str, Any] | None = None

    @classmethod
    def begin(cls, episode: Episode, repeat: int = 0) -> "Trajectory":
        """An empty trajectory of an episode."""
        return cls(episode.case.case_id, repeat, episode.config.describe())

    def add(self, prompt: Prompt, response: Response, transition: Transition) -> None:
        """Append a step."""
        result = transition.result
        content = dict(result.content) if result is not None else None
        self.steps.append(
            Step(prompt.messages, _to_json(response), content, result.error if result is not None else None)
        )

    def finish(self, episode: Episode, score: Score | None) -> None:
        """Note how the episode ended and what it scored."""
        self.end = asdict(episode.end) | {"result": None}
        self.credits = episode.spent
        self.score = score.to_json() if score is not None else None

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
            steps = [Step(**{**step, "messages": tuple(step["messages"])}) for step in fields.pop("steps")]
            return cls(**fields, steps=steps)
        except (KeyError, TypeError) as error:
            raise DataError(f"not a saved trajectory: {error!r}") from error


def replay(trajectory: Trajectory, case: Case, config: EpisodeConfig, pool: ForecasterPool | None = None) -> Episode:
    """Play a trajectory's responses again on its case.

    Args:
        trajectory: what was saved.
        case: its case.
        config: its conditions.
        pool: forecasters.

    Returns:
        The ended episode.

    Raises:
        ReplayMismatchError: a prompt, result, ending or spending differs; the message says at which step.
    """
    where = f"{trajectory.case_id}, repeat {trajectory.repeat}"
    _demand(where, "the conditions", trajectory.conditions, config.describe())
    episode = Episode(case, config, pool)
    for number, step in enumerate(trajectory.steps, start=1):
        if episode.done:
            raise ReplayMismatchError(f"{where}: the episode ended before step {number}")
        again = Trajectory.begin(episode)
        prompt, response = episode.observe(), _from_json(step.response)
        truncated = number == len(trajectory.steps) and trajectory.end.get("outcome") == "truncated"
        again.add(prompt, response, episode.act(response, truncated=truncated))
        for name in ("messages", "result", "error"):
            _demand(f"{where}, step {number}", f"the {name}", getattr(step, name), getattr(again.steps[0], name))
    _demand(where, "the ending", trajectory.end, asdict(episode.end) | {"result": None})
    _demand(where, "the credits", trajectory.credits, episode.spent)
    return episode


def _demand(where: str, what: str, saved: Any, found: Any) -> None:
    if saved != found:
        raise ReplayMismatchError(f"{where}: {what} differ: saved {str(saved)[:300]}, found {str(found)[:300]}")


def _to_json(response: Response) -> Any:
    if isinstance(response, ToolCall):
        call = {"name": response.name, "arguments": dict(response.arguments)}
        return call if response.call_id is None else {**call, "call_id": response.call_id}
    return response if isinstance(response, str) else dict(response)


def _from_json(value: Any) -> Response:
    if isinstance(value, Mapping) and {"name", "arguments"} <= set(value) <= {"name", "arguments", "call_id"}:
        return ToolCall(value["name"], value["arguments"], value.get("call_id"))
    response: Response = value
    return response
