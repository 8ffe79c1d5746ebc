"""`CastR1-v0`: the forecasting workflow of Cast-R1 as a Gymnasium environment.

Observations and actions are text. The observation is the prompt of the stage that the memory is in; the action is the
model's response: tool calls in any form that `castgym.tools.calls` reads, several in one response if it likes, or the
final `<think>...</think><answer>...</answer>`.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from castgym.data.windows import WindowSplit
from castgym.envs.casesets import EMBEDDED
from castgym.envs.core import CHARACTERS_PER_TOKEN, MAX_RESPONSE_TOKENS, MOST_CALLS_READ, Transition
from castgym.envs.forecast_config import MAX_STEPS, RECENT_STEPS, ForecastAnswerForm
from castgym.envs.forecast_episode import ForecastEpisode
from castgym.envs.forecast_render import render_array, render_text
from castgym.envs.forecast_reward import PenaltySettings, RewardWeights, useful_call_bonus
from castgym.envs.forecast_source import ForecastSource, Windows
from castgym.envs.prompt_styles import PromptStyle
from castgym.envs.prompts import Prompt, PromptMode
from castgym.envs.sources import EpisodeScore
from castgym.envs.text_env import TextEnv, check_render_mode
from castgym.tools.forecasters.window_pool import WindowForecasterPool
from castgym.tools.forecasting_tools import DIAGNOSTIC_TOOLS

_CHARACTERS_A_VALUE = 64
_FIXED_CHARACTERS = 50_000
_ANALYSIS_TOOLS = len(DIAGNOSTIC_TOOLS) + 1


class CastR1Env(TextEnv):
    r"""One episode is one window: diagnose, run forecasters, then commit a value for each step of the horizon.

    The reward is 0 until the end and then Cast-R1's (`castgym.envs.rewards.forecast_reward`), from -1 without an answer
    to 1.2. `terminated`: an answer was committed, complete or not. `truncated`: a limit ended the episode (responses,
    tokens). On the last step `info` has `outcome` and `score`. A missing forecaster raises `InfrastructureError` when
    the environment is made, or where it is first run.

    Args:
        windows: `embedded`, a folder with a manifest, window sets, or loaded ones that many environments share.
        split: windows that `reset` draws from.
        stride: rows between origins; by default every origin in training, else horizons that do not overlap.
        datasets: names of the sets to play; all by default.
        files: folder of the official files, where `windows` is a folder.
        models: forecasters that may be run; by default the paper's four, for the embedded sets what runs offline.
        diagnostics: diagnostic tools; the paper's five by default.
        planning: the policy chooses tools and forecaster.
        refinement: the policy may revise the forecast.
        stages: each stage permits its own actions only.
        prompt_mode: `memory` rebuilds the prompt from the structured memory, `chat` appends to a conversation.
        prompt_style: `full`, or `compact` for small policies.
        answer_form: `values`, a line for each step; `forecast`, the name of a stored forecast with adjustments.
        backtests: past horizons that the tool `backtest_forecasters` measures; 0 for no such tool, as in the paper.
        max_steps: responses before the episode ends, K_max.
        recent_steps: observations that the refinement prompt shows.
        summary_budget: most characters of a diagnostic's summary.
        max_prompt_size: largest prompt in tokens, or in characters without `count_tokens`.
        max_response_tokens: tokens of a response.
        count_tokens: counts them.
        weights: weights of the reward's terms.
        strict_alignment: superfluous extrema lower the reward's alignment.
        penalties: penalties and bonus of the public implementation; none by default.
        forecasters: pool of forecasters to use instead of the process's own.
        render_mode: `ansi` (text) or `rgb_array` (plot).

    >>> import gymnasium as gym
    >>> import castgym
    >>> env = gym.make("CastR1-v0", models=["seasonal_naive"])
    >>> prompt, info = env.reset(seed=0)
    >>> call = '<tool_call>{"name": "%s", "arguments": {%s}}</tool_call>'
    >>> calls = call % ("extract_basic_statistics", "") + call % ("extract_event_summary", "")
    >>> prompt, reward, terminated, truncated, info = env.step(calls)
    >>> info["task"]["stage"], [len(result["summary"]) <= 600 for result in info["results"]]
    ('forecasting', [True, True])
    >>> *_, info = env.step(call % ("predict_time_series", '"model_name": "seasonal_naive"'))
    >>> lines = "\n".join(info["result"]["forecast"])
    >>> *_, info = env.step(f"<think>Keep it.</think><answer>{lines}</answer>")
    >>> info["outcome"], info["score"]["valid"]
    ('completed', True)
    """

    subject_key = "window_id"

    def __init__(
        self,
        windows: Windows = EMBEDDED,
        *,
        split: WindowSplit = "test",
        stride: int | None = None,
        datasets: Sequence[str] | None = None,
        files: str | Path | None = None,
        models: Sequence[str] | None = None,
        diagnostics: Sequence[str] = DIAGNOSTIC_TOOLS,
        planning: bool = True,
        refinement: bool = True,
        stages: bool = True,
        prompt_mode: PromptMode = "memory",
        prompt_style: PromptStyle = "full",
        answer_form: ForecastAnswerForm = "values",
        backtests: int = 0,
        max_steps: int = MAX_STEPS,
        recent_steps: int = RECENT_STEPS,
        summary_budget: int | None = None,
        max_prompt_size: int | None = None,
        max_response_tokens: int = MAX_RESPONSE_TOKENS,
        count_tokens: Callable[[str], int] | None = None,
        weights: RewardWeights | None = None,
        strict_alignment: bool = False,
        penalties: PenaltySettings | None = None,
        forecasters: WindowForecasterPool | None = None,
        render_mode: str | None = None,
    ) -> None:
        check_render_mode(render_mode)
        self.source = ForecastSource(
            windows,
            split,
            stride=stride,
            datasets=datasets,
            files=files,
            forecasters=forecasters,
            weights=weights,
            strict_alignment=strict_alignment,
            penalties=penalties,
            models=None if models is None else tuple(models),
            diagnostics=tuple(diagnostics),
            planning=planning,
            refinement=refinement,
            stages=stages,
            prompt_mode=prompt_mode,
            prompt_style=prompt_style,
            answer_form=answer_form,
            backtests=backtests,
            max_steps=max_steps,
            recent_steps=recent_steps,
            summary_budget=summary_budget,
            max_prompt_size=max_prompt_size,
            max_response_tokens=max_response_tokens,
            count_tokens=count_tokens,
        )
        longest_response = max_response_tokens * CHARACTERS_PER_TOKEN
        super().__init__(self._longest_prompt(longest_response), longest_response, render_mode)
        self._score: EpisodeScore | None = None
        self._useful = 0

    @property
    def episode(self) -> ForecastEpisode:
        """The running episode.

        Raises:
            ConfigError: `reset` was not called.
        """
        episode = self._running()
        assert isinstance(episode, ForecastEpisode)
        return episode

    @property
    def _subject_ids(self) -> Sequence[str]:
        return self.source.ids

    def _begin(self, subject_id: str, state: Mapping[str, Any] | None) -> ForecastEpisode:
        self._score = None
        episode = self.source.episode(subject_id) if state is None else self.source.continued(state)
        self._useful = episode.useful_steps
        return episode

    def _step_reward(self) -> float:
        before, self._useful = self._useful, self.episode.useful_steps
        return useful_call_bonus(before, self._useful, self.source.penalties)

    def _judge(self) -> tuple[float, Mapping[str, Any]]:
        self._score = self.source.score(self.episode)
        # The bonus of each step was paid when it was earned; the score counts all of them.
        return self._score.reward - float(self._score.parts["bonus"]), self._score.to_json()

    def _draw(self) -> str | NDArray[np.uint8]:
        if self.render_mode == "ansi":
            return render_text(self.episode, self._score)
        actual = self.source.loaded.target(self.episode.subject_id).actual if self.episode.done else None
        return render_array(self.episode, actual)

    def _step_info(self, transition: Transition) -> dict[str, Any]:
        return {
            **super()._step_info(transition),
            "results": [copy.deepcopy(dict(result.content)) for result in transition.results],
            "errors": [result.error for result in transition.results],
        }

    def _info(self, prompt: Prompt) -> dict[str, Any]:
        return {**super()._info(prompt), "prompt_size": dict(prompt.sizes), "tools": list(self.episode.tools)}

    def _longest_prompt(self, longest_response: int) -> int:
        """A bound on the characters of any prompt, for the observation space."""
        config = self.source.config
        values = sum(
            item.length * len(item.channels) + item.horizon * (1 + len(item.known) + len(config.models))
            for item in self.source.loaded.sets
        )
        results = values * _CHARACTERS_A_VALUE + _ANALYSIS_TOOLS * (config.summary_budget or 0) + _FIXED_CHARACTERS
        if config.prompt_mode == "memory":
            return results
        # A conversation holds every response and an answer to each of its calls.
        horizon = max(item.horizon for item in self.source.loaded.sets)
        answers = MOST_CALLS_READ * (horizon * _CHARACTERS_A_VALUE + _FIXED_CHARACTERS)
        return results + config.max_steps * (longest_response + answers)
