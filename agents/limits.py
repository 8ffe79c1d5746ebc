"""Time limits of episodes, their steps and runs."""

from dataclasses import dataclass
from typing import Literal, get_args

from castgym.data.errors import ConfigError, InfrastructureError

LimitName = Literal["tool", "episode", "run"]


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Seconds that things may take; `None` is no limit. The limit of one request is the agent's own.

    Attributes:
        tool: one step of an episode's own: running a tool, or reading an answer.
        episode: one episode, with its waits for the model.
        run: all episodes.
    """

    tool: float | None = None
    episode: float | None = None
    run: float | None = None

    def __post_init__(self) -> None:
        for name in get_args(LimitName):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"expected the {name} limit as seconds > 0 or None, found {value!r}")


class TimeLimitError(InfrastructureError):
    """Something took longer than its limit. The episode is left out and counted, not scored.

    Args:
        limit: which limit.
        seconds: the limit.
        detail: what it cut short.
    """

    def __init__(self, limit: LimitName, seconds: float, detail: str) -> None:
        super().__init__(limit, seconds, detail)
        self.limit = limit
        self.seconds = seconds
        self.detail = detail

    def __str__(self) -> str:
        return f"the {self.limit} limit of {self.seconds:g} s passed {self.detail}: raise TimeLimits.{self.limit}"
