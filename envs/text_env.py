"""What castgym's Gymnasium environments share: text in, text out, one `AgentEpisode` at a time."""

import copy
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from castgym.data.errors import ConfigError
from castgym.envs.core import AgentEpisode, Transition
from castgym.envs.messages import Response
from castgym.envs.prompts import Prompt
from castgym.envs.spaces import Utf8Text
from castgym.tools.calls import ToolCall

RENDER_MODES = ("ansi", "rgb_array")


class TextEnv(gym.Env[str, Response]):
    """An environment whose observations are prompts and whose actions are responses of a language model.

    The reward is 0 until the end, unless a kind of episode says otherwise. `terminated`: an answer was committed,
    valid or not. `truncated`: a limit ended the episode. A missing forecaster raises `InfrastructureError` and scores
    nothing.

    Args:
        longest_observation: most characters of a prompt.
        longest_response: most characters of a response.
        render_mode: `ansi` (text) or `rgb_array` (plot).
    """

    metadata: dict[str, Any] = {  # noqa: RUF012  # Gymnasium declares it so
        "render_modes": list(RENDER_MODES),
        "render_fps": 1,
    }
    subject_key: ClassVar[str]
    """Name of the subject's id in options and infos."""

    def __init__(self, longest_observation: int, longest_response: int, render_mode: str | None) -> None:
        self.render_mode = render_mode
        self.observation_space = Utf8Text(longest_observation)
        self.action_space = Utf8Text(longest_response)
        self._episode: AgentEpisode | None = None
        self._judged: Mapping[str, Any] | None = None

    @property
    @abstractmethod
    def _subject_ids(self) -> Sequence[str]:
        """Ids that `reset` draws from."""

    @abstractmethod
    def _begin(self, subject_id: str, state: Mapping[str, Any] | None) -> AgentEpisode:
        """A new episode, or a saved one."""

    @abstractmethod
    def _judge(self) -> tuple[float, Mapping[str, Any]]:
        """Reward of the last step and score as JSON, once the episode has ended."""

    @abstractmethod
    def _draw(self) -> str | NDArray[np.uint8]:
        """What `render` returns in the mode that was asked for."""

    def _running(self) -> AgentEpisode:
        if self._episode is None:
            raise ConfigError("no episode is running: call reset() first")
        return self._episode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: seeds the draw of the subject; episodes with equal seed and options begin with equal prompts.
            options: `{"case_id": ...}` or `{"window_id": ...}` chooses the subject; `{"state": ...}` continues a
                saved episode (`env.unwrapped.state()`).

        Returns:
            The first prompt and `info`.

        Raises:
            ConfigError: an option or subject is unknown.
        """
        super().reset(seed=seed)
        chosen = dict(options or {})
        state, subject_id = chosen.pop("state", None), chosen.pop(self.subject_key, None)
        if chosen:
            raise ConfigError(f"expected the options {self.subject_key!r} or 'state', found {sorted(chosen)}")
        if state is not None:
            subject_id = state["subject_id"] if isinstance(state, Mapping) and "subject_id" in state else subject_id
        if subject_id is None:
            subject_id = self._subject_ids[int(self.np_random.integers(len(self._subject_ids)))]
        self._episode = self._begin(subject_id, state)
        self._judged = self._judge()[1] if self._episode.done else None
        prompt = self._episode.observe()
        return prompt.text, self._info(prompt)

    def step(self, action: Response) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take a response of the policy.

        Args:
            action: text, an OpenAI chat message, or a `ToolCall`.

        Returns:
            Prompt, reward, terminated, truncated, info.

        Raises:
            ConfigError: no episode is running, or it has ended.
            TypeError: the action is something else.
        """
        if not isinstance(action, str | Mapping | ToolCall):
            raise TypeError(f"expected a response as str, chat message or ToolCall, found {type(action).__name__}")
        if isinstance(action, Mapping) and not {"content", "tool_calls"} & set(action):
            raise TypeError(
                f"expected a chat message with content or tool_calls, found the keys {sorted(map(str, action))}"
            )
        episode = self._running()
        transition = episode.act(action)
        reward = self._step_reward()
        if transition.done:
            last, self._judged = self._judge()
            reward += last
        prompt = episode.observe()
        info = {**self._info(prompt), **self._step_info(transition)}
        terminated = transition.outcome in ("completed", "invalid_submission")
        return prompt.text, reward, terminated, transition.done and not terminated, info

    def state(self) -> dict[str, Any]:
        """The running episode as JSON, for `reset(options={"state": ...})` here or in another process."""
        return self._running().state()

    def render(self) -> str | NDArray[np.uint8] | None:
        """The episode as text or as a plot; the truth appears only after its end."""
        if self.render_mode is None:
            gym.logger.warn("render() needs render_mode='ansi' or 'rgb_array' in gym.make")
            return None
        return self._draw()

    def _step_reward(self) -> float:
        """Reward of the response that was just taken, apart from that of the end."""
        return 0.0

    def _step_info(self, transition: Transition) -> dict[str, Any]:
        """What the last response led to."""
        if transition.result is None:
            return {}
        return {"result": copy.deepcopy(dict(transition.result.content)), "error": transition.result.error}

    def _info(self, prompt: Prompt) -> dict[str, Any]:
        episode = self._running()
        info: dict[str, Any] = {
            self.subject_key: episode.subject_id,
            "prompt": {"messages": list(prompt.messages), "tools": copy.deepcopy(list(prompt.tools))},
            "task": prompt.task,
            "calls": len(prompt.memory.calls),
        }
        if self._judged is not None:
            info["outcome"] = episode.end.outcome
            info["score"] = dict(self._judged)
        return info


def check_render_mode(render_mode: str | None) -> None:
    """Refuse an unknown render mode.

    Raises:
        ConfigError: it is none of `RENDER_MODES`.
    """
    if render_mode not in (None, *RENDER_MODES):
        raise ConfigError(f"expected render_mode in {list(RENDER_MODES)}, found {render_mode!r}")
