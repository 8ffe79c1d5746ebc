"""What scripted teachers share: how they are seeded, how often they explore, and the form of what they say."""

import hashlib
import time
from abc import abstractmethod
from typing import Any

import numpy as np

from castgym.agents.base import Policy
from castgym.agents.replies import Reply
from castgym.agents.sampling import turn_seed
from castgym.data.errors import ConfigError
from castgym.envs.messages import Response
from castgym.envs.prompts import Prompt


class ScriptedTeacher(Policy):
    """A stochastic rule that says why it does what it does.

    The same prompt with the same seed gives the same response, whatever was played before.

    Args:
        exploration: chance of each deviation from the rule.
        seed: base of the seeds that `act` derives from the case or window and the turn.

    Raises:
        ConfigError: a setting is wrong.
    """

    def __init__(self, *, exploration: float = 0.1, seed: int = 0) -> None:
        if not 0.0 <= exploration <= 1.0:
            raise ConfigError(f"expected exploration from 0 to 1, found {exploration!r}")
        self.exploration = exploration
        self.seed = seed

    @property
    def options(self) -> dict[str, Any]:
        """What its responses depend on, as JSON, for run configurations; their seeds are the collector's."""
        return {"agent": self.name, "exploration": self.exploration}

    def act(self, prompt: Prompt) -> Response:
        """The response to a prompt, its draws seeded by the case or window and the turn."""
        subject = str(prompt.task.get("case_id") or prompt.task.get("window_id"))
        key = int.from_bytes(hashlib.sha256(subject.encode()).digest()[:8], "big")
        episode = int(np.random.SeedSequence([self.seed, key]).generate_state(1)[0])
        return self._say(prompt, np.random.default_rng(turn_seed(episode, len(prompt.memory.calls))))

    async def respond(self, prompt: Prompt, *, seed: int | None = None) -> Reply:
        """The response to a prompt, its draws from `seed`; without one as `act`."""
        started = time.perf_counter()
        text = self.act(prompt) if seed is None else self._say(prompt, np.random.default_rng(seed))
        message = {"role": "assistant", "content": text, "finish_reason": "stop"}
        return Reply(message, None, time.perf_counter() - started, model=self.name)

    @abstractmethod
    def _say(self, prompt: Prompt, rng: np.random.Generator) -> str:
        """The response's text: a reason in `<think>`, then calls or the answer."""

    def _explores(self, rng: np.random.Generator) -> bool:
        return bool(rng.random() < self.exploration)


def one_of(rng: np.random.Generator, *ways: str) -> str:
    """One way to say it, drawn evenly."""
    return ways[int(rng.integers(len(ways)))]
