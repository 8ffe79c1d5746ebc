"""`FWBench-v0`: the decision benchmark as a Gymnasium environment.

Observations and actions are text. The observation is the prompt; the action is the model's response: a tool call in
any form that `castgym.tools.calls` reads, or the final answer. `info["prompt"]` carries the same prompt as chat
messages and tool schemas.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from castgym.data.errors import ConfigError, DataError
from castgym.data.schema import Split
from castgym.envs.casesets import EMBEDDED, LoadedCases, load_cases
from castgym.envs.core import CHARACTERS_PER_TOKEN, MAX_RESPONSE_TOKENS
from castgym.envs.episode import MAX_CALLS, Episode, EpisodeConfig
from castgym.envs.judge import score_episode
from castgym.envs.prompt_styles import PromptStyle
from castgym.envs.prompts import AnswerForm, Prompt, PromptMode
from castgym.envs.render import render_array, render_text
from castgym.envs.rewards import decision_reward
from castgym.envs.scoring import COMBINED, Score, find_objective
from castgym.envs.text_env import TextEnv, check_render_mode
from castgym.tools.forecasters.pool import ForecasterPool, shared_pool
from castgym.tools.fwbench import FWBenchTools
from castgym.tools.ledger import Ledger

RESULT_CHARACTERS = 50_000
"""Longest result of a tool: a full history has about 15,000."""


class FWBenchEnv(TextEnv):
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

    subject_key = "case_id"

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
        check_render_mode(render_mode)
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
        longest_response = max_response_tokens * CHARACTERS_PER_TOKEN
        longest_chat = (max_calls + 1) * (longest_response + RESULT_CHARACTERS)
        longest_memory = (max_calls + 2) * RESULT_CHARACTERS
        super().__init__(longest_memory if prompt_mode == "memory" else longest_chat, longest_response, render_mode)
        self._score: Score | None = None
        self._journal = ""

    @property
    def episode(self) -> Episode:
        """The running episode.

        Raises:
            ConfigError: `reset` was not called.
        """
        episode = self._running()
        assert isinstance(episode, Episode)
        return episode

    def state(self) -> dict[str, Any]:
        """The running episode as JSON, for `reset(options={"state": ...})` here or in another process."""
        return {**self.episode.state(), "journal": self._journal}

    @property
    def _subject_ids(self) -> Sequence[str]:
        return [case.case_id for case in self.cases.cases]

    def _begin(self, subject_id: str, state: Mapping[str, Any] | None) -> Episode:
        case = self.cases.by_id(subject_id)
        config = EpisodeConfig.of(self.cases, case, self._model_pool, **self._conditions)
        self._score = None
        # A name of its own for every episode: environments side by side never write to one journal.
        self._journal = f"{subject_id}-{uuid.uuid4().hex}.jsonl"
        path = self._ledger_folder / self._journal if self._ledger_folder is not None else None
        if state is None:
            return Episode(case, config, self._forecasters, path)
        return Episode.from_state(self._with_journal(state, config), case, config, self._forecasters, path)

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

    def _judge(self) -> tuple[float, Mapping[str, Any]]:
        objective = find_objective(self._conditions["objective"])
        self._score = score_episode(self.episode, self.cases, self._targets, objective)
        return self._reward(self._score), self._score.to_json()

    def _draw(self) -> str | NDArray[np.uint8]:
        actual = self._targets[self.episode.case.case_id].actual if self.episode.done else None
        if self.render_mode == "ansi":
            return render_text(self.episode, self._score)
        return render_array(self.episode, self._score, actual)

    def _info(self, prompt: Prompt) -> dict[str, Any]:
        return {**super()._info(prompt), "credits": self.episode.spent}
