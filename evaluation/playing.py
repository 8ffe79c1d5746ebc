"""Plays one episode of any kind with a policy; what the infrastructure fails is tried again, then counted."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from castgym.agents.base import Policy
from castgym.agents.rendering import response_text
from castgym.data.errors import InfrastructureError
from castgym.envs.core import AgentEpisode
from castgym.envs.messages import Response
from castgym.envs.trajectory import Trajectory
from castgym.tools.calls import ToolCall

ATTEMPTS = 3
"""Tries of an episode whose infrastructure fails, before it is left out and counted."""


@dataclass(frozen=True, slots=True)
class Played:
    """An episode that was played to its end, or given up.

    Attributes:
        episode: the ended episode; `None` where the infrastructure failed every attempt.
        trajectory: what was seen and said, without a score yet.
        answer: the last response as text, `None` where it was a structured call.
        fault: the infrastructure's fault in words, where every attempt failed.
        seconds: wall time of all attempts.
    """

    episode: AgentEpisode | None
    trajectory: Trajectory | None
    answer: str | None
    fault: str
    seconds: float

    @property
    def calls(self) -> tuple[dict[str, Any], ...]:
        """The calls of the episode as result rows keep them."""
        return () if self.episode is None else row_calls(self.episode)


def row_calls(episode: AgentEpisode) -> tuple[dict[str, Any], ...]:
    """The calls of an episode as result rows keep them."""
    return tuple(
        {"tool": call.tool, "arguments": dict(call.arguments), "error": call.error, "credits": call.credits}
        for call in episode.memory.calls
    )


def play(policy: Policy, begin: Callable[[], AgentEpisode], repeat: int = 0, attempts: int = ATTEMPTS) -> Played:
    """Play an episode to its end.

    Args:
        policy: who responds.
        begin: makes the episode anew for each attempt.
        repeat: number of the repetition, noted in the trajectory.
        attempts: tries before the infrastructure's fault stands.
    """
    started = time.perf_counter()
    fault = ""
    for _ in range(attempts):
        episode = begin()
        trajectory = Trajectory.begin(episode, repeat)
        response: Response = ""
        try:
            while not episode.done:
                prompt = episode.observe()
                response = policy.act(prompt)
                trajectory.add(prompt, response, episode.act(response))
        except InfrastructureError as error:
            fault = f"{type(error).__name__}: {error}"
            continue
        answer = None if isinstance(response, ToolCall) else response_text(response)
        return Played(episode, trajectory, answer, "", time.perf_counter() - started)
    return Played(None, None, None, fault, time.perf_counter() - started)
