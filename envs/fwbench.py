"""`FWBench-v0`: the decision benchmark as a Gymnasium environment.

Observations and actions are text. The observation is the prompt; the action is the model's response: a tool call in
any form that `castgym.tools.calls` reads, or the final answer. `info["prompt"]` carries the same prompt as chat
messages and tool schemas.
"""

import copy
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from castgym.data.errors import ConfigError, DataError
from castgym.data.schema import Split
from castgym.envs.casesets import EMBEDDED, LoadedCases, load_cases
from castgym.envs.core import CHARACTERS_PER_TOKEN, MAX_RESPONSE_TOKENS
from castgym.envs.episode import MAX_CALLS, Episode, EpisodeConfig
from castgym.envs.judge import score_episode
from castgym.envs.messages import Response
from castgym.envs.prompt_styles import PromptStyle
from castgym.envs.prompts import AnswerForm, Prompt, PromptMode
from castgym.envs.render import render_array, render_text
from castgym.envs.rewards import decision_reward
from castgym.envs.scoring import COMBINED, Score, find_objective
from castgym.envs.spaces import Utf8Text
from castgym.tools.calls import ToolCall
from castgym.tools.forecasters.pool import ForecasterPool, shared_pool
from castgym.tools.fwbench import FWBenchTools
from castgym.tools.ledger import Ledger

RESULT_CHARACTERS = 50_000
"""Longest result of a tool: a full history has about 15,000."""


class FWBenchEnv(gym.Env[str, Response]):
    """One episode is one case: look, buy or take free plans, then commit eight capacities.

    The reward is 0 until the end and then `reward(score)`, by default -S. `terminated`: an answer was committed, valid
    or not. `truncated`: a limit ended the episode (calls, tokens); the protocol scores it as invalid. On the last step
    `info` has `outcome` and `score`. A missing forecaster raises `InfrastructureError` and scores nothing.

    Args:
        cases: `embedded`, a case set folder, or loaded cases.
        split: cases that `reset` draws from.
        prompt_mode: `memory` rebuilds the prompt from the structured memory, `chat` appends to a conversation.
        answer_form: `decisions` is official; `plan` names a plan in memory and is never ranked with it.
        prompt_style: `full`, or `compact` for small policies: the same facts in few tokens.
        pool: `full`, or `no_tsfm` without time-series foundation models.
        objective: what the prompt asks to minimise and the reward measures: `combined` (official), `loss_only`,
            `0.25/0.75` or `0.75/0.25`.
        max_calls: tool calls before the episode ends without a submission.
        max_response_tokens: tokens of a response.
        count_tokens: counts them; without it, only a chat message with `finish_reason` "length" is too long.
        reward: score -> terminal reward.
        forecasters: forecasters to use instead of the process's own.
        toolset: the protocol's tools, or a subclass with more of them.
        ledger_folder: where each episode keeps a journal of charges of its own; in memory without it.
        render_mode: `ansi` (text) or `rgb_array` (plot).

    >>> import gymnasium as gym
    >>> import castgym
    >>> env = gym.make("FWBench-v0")
    >>> prompt, info = env.reset(seed=0)
    >>> series = info["task"]["series_id"]
    >>> call = '{"name": "hourly_history_plan", "arguments": {"series_id": "%s"}}' % series
    >>> prompt, reward, terminated, truncated, info = env.step(f"<tool_call>{call}</tool_call>")
    >>> answer = info["result"]["capacity_plan"]["submission"]
    >>> import json
    >>> *_, info = env.step(json.dumps(answer))
    >>> info["outcome"], info["score"]["valid"]
    ('completed', True)
    """

    metadata: dict[str, Any] = {  # noqa: RUF012  # Gymnasium declares it so
        "render_modes": ["ansi", "rgb_array"],
        "render_fps": 1,
    }

    def __init__(
        self,
        cases: str | Path | LoadedCases = EMBEDDED,
        *,
        split: Split = "test",
        prompt_mode: PromptMode = "memory",
        answer_form: AnswerForm = "decisions",
        prompt_style: PromptStyle = "full",
        pool: str = "full",
        objective: str = COMBINED.name,
        max_calls: int = MAX_CALLS,
        max_response_tokens: int = MAX_RESPONSE_TOKENS,
        count_tokens: Callable[[str], int] | None = None,
        reward: Callable[[Score], float] = decision_reward,
        forecasters: ForecasterPool | None = None,
        toolset: type[FWBenchTools] = FWBenchTools,
        ledger_folder: str | Path | None = None,
        render_mode: str | None = None,
    ) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ConfigError(f"expected render_mode in {self.metadata['render_modes']}, found {render_mode!r}")
        if split not in get_args(Split):
            raise ConfigError(f"expected split in {get_args(Split)}, found {split!r}")
        loaded = cases if isinstance(cases, LoadedCases) else load_cases(cases)
        self.cases = loaded.case_set.split(split)
        self._targets = loaded.targets
        self._conditions: dict[str, Any] = {
            "prompt_mode": prompt_mode,
            "answer_form": answer_form,
            "prompt_style": prompt_style,
            "objective": objective,
            "max_calls": max_calls,
            "max_response_tokens": max_response_tokens,
            "count_tokens": count_tokens,
            "toolset": toolset,
        }
        self._model_pool = pool
        EpisodeConfig.of(self.cases, self.cases.cases[0], pool, **self._conditions)  # refuse bad settings now
        pool_names = (forecasters or shared_pool()).names
        if unknown := sorted(set(self.cases.models) - set(pool_names)):
            raise ConfigError(f"the cases sell {', '.join(unknown)}, which no forecaster is: pass forecasters=")
        self._reward = reward
        self._forecasters = forecasters
        self._ledger_folder = Path(ledger_folder) if ledger_folder is not None else None
        self.render_mode = render_mode
        longest_response = max_response_tokens * CHARACTERS_PER_TOKEN
        longest_chat = (max_calls + 1) * (longest_response + RESULT_CHARACTERS)
        longest_memory = (max_calls + 2) * RESULT_CHARACTERS
        self.observation_space = Utf8Text(longest_memory if prompt_mode == "memory" else longest_chat)
        self.action_space = Utf8Text(longest_response)
        self._episode: Episode | None = None
        self._score: Score | None = None
        self._journal = ""

    @property
    def episode(self) -> Episode:
        """The running episode.

        Raises:
            ConfigError: `reset` was not called.
        """
        if self._episode is None:
            raise ConfigError("no episode is running: call reset() first")
        return self._episode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: seeds the draw of the case; episodes with equal seed and options begin with equal prompts.
            options: `{"case_id": ...}` chooses the case; `{"state": ...}` continues a saved episode (`env.state()`).

        Returns:
            The first prompt and `info`.

        Raises:
            ConfigError: an option or case is unknown.
        """
        super().reset(seed=seed)
        chosen = dict(options or {})
        state, case_id = chosen.pop("state", None), chosen.pop("case_id", None)
        if chosen:
            raise ConfigError(f"expected the options 'case_id' or 'state', found {sorted(chosen)}")
        if state is not None:
            case_id = state["subject_id"] if isinstance(state, Mapping) and "subject_id" in state else case_id
        if case_id is None:
            case_id = self.cases.cases[int(self.np_random.integers(len(self.cases)))].case_id
        case = self.cases.by_id(case_id)
        config = EpisodeConfig.of(self.cases, case, self._model_pool, **self._conditions)
        # A name of its own for every episode: environments side by side never write to one journal.
        self._journal = f"{case_id}-{uuid.uuid4().hex}.jsonl"
        path = self._ledger_folder / self._journal if self._ledger_folder is not None else None
        if state is None:
            self._episode = Episode(case, config, self._forecasters, path)
        else:
            self._episode = Episode.from_state(self._with_journal(state, config), case, config, self._forecasters, path)
        self._score = self._judge() if self._episode.done else None
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
        episode = self.episode
        transition = episode.act(action)
        reward = 0.0
        if transition.done:
            self._score = self._judge()
            reward = self._reward(self._score)
        prompt = episode.observe()
        info = self._info(prompt)
        if transition.result is not None:
            info["result"] = copy.deepcopy(dict(transition.result.content))
            info["error"] = transition.result.error
        terminated = transition.outcome in ("completed", "invalid_submission")
        return prompt.text, reward, terminated, transition.done and not terminated, info

    def state(self) -> dict[str, Any]:
        """The running episode as JSON, for `reset(options={"state": ...})` here or in another process."""
        return {**self.episode.state(), "journal": self._journal}

    def _with_journal(self, state: Mapping[str, Any], config: EpisodeConfig) -> dict[str, Any]:
        """The state with all charges of its journal: one that a crash left behind the state keeps its credits."""
        found = dict(state)
        name = str(found.pop("journal", ""))
        path = self._ledger_folder / Path(name).name if self._ledger_folder is not None and name else None
        if path is None or not path.is_file():
            return found
        charges = Ledger(config.tariff, path).to_json()
        numbers = [(charge["number"], charge["credits"]) for charge in charges]
        saved = [(charge.get("number"), charge.get("credits")) for charge in found.get("charges", ())]
        if numbers[: len(saved)] != saved:
            raise DataError(f"the journal {path} tells of other charges than the state: they do not belong together")
        return {**found, "charges": charges}

    def render(self) -> str | NDArray[np.uint8] | None:
        """The episode as text or as a plot; truth and oracle appear only after its end."""
        if self.render_mode is None:
            gym.logger.warn("render() needs render_mode='ansi' or 'rgb_array' in gym.make")
            return None
        actual = self._targets[self.episode.case.case_id].actual if self.episode.done else None
        if self.render_mode == "ansi":
            return render_text(self.episode, self._score)
        return render_array(self.episode, self._score, actual)

    def _judge(self) -> Score:
        objective = find_objective(self._conditions["objective"])
        return score_episode(self.episode, self.cases, self._targets, objective)

    def _info(self, prompt: Prompt) -> dict[str, Any]:
        info: dict[str, Any] = {
            "case_id": self.episode.case.case_id,
            "prompt": {"messages": list(prompt.messages), "tools": copy.deepcopy(list(prompt.tools))},
            "task": prompt.task,
            "credits": self.episode.spent,
            "calls": len(prompt.memory.calls),
        }
        if self._score is not None:
            info["outcome"] = self.episode.end.outcome
            info["score"] = self._score.to_json()
        return info
