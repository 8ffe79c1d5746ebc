"""Rollouts: all live episodes of a batch generate together, step after step, their own work in threads beside it.

The token ids that the sampler read and drew, and its log-probabilities, are kept as they are; nothing is ever
tokenised again.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any

from castgym.agents.rendering import prompt_text, token_ids
from castgym.agents.sampling import turn_seed
from castgym.data.errors import ConfigError, InfrastructureError
from castgym.envs.core import AgentEpisode
from castgym.envs.prompts import Prompt
from castgym.envs.sources import EpisodeScore, EpisodeSource
from castgym.training.episode_workers import EpisodeWorkers, Job

Ids = list[int]
Generate = Callable[[list[Ids], list[int]], tuple[list[Ids], list[list[float]]]]
"""(prompts' ids, a seed for each) -> (responses' ids, log-probability of each of their tokens under the sampler)."""


class PromptTooLongError(InfrastructureError):
    """A prompt has more tokens than the run allows. Prompts are never cut: the episode is left out and counted."""


@dataclass(frozen=True, slots=True)
class RolloutSettings:
    """How episodes are played.

    Attributes:
        workers: threads for the episodes' own work.
        waves: parts of a batch that take turns: while one generates, the others' own work runs. 1 keeps the largest
            generation batch, 2 hides the environments behind generation.
        tool_seconds: limit on one step of an episode's own work, `None` for none.
        attempts: tries of a step whose infrastructure fails.
        max_prompt_tokens: tokens of a prompt.
        thinking: switch of the chat template, `None` to leave it out.
    """

    workers: int = 2
    waves: int = 1
    tool_seconds: float | None = 60.0
    attempts: int = 2
    max_prompt_tokens: int = 8192
    thinking: bool | None = None

    def __post_init__(self) -> None:
        if min(self.workers, self.waves, self.attempts, self.max_prompt_tokens) < 1:
            raise ConfigError("expected workers, waves, attempts and max_prompt_tokens >= 1")


@dataclass(frozen=True, slots=True)
class RolloutTurn:
    """One response, as the sampler saw and drew it.

    Attributes:
        prompt_ids: what the model read.
        response_ids: what it drew, with the token that ended the response.
        logprobs: log-probability of each of these under the sampler.
        truncated: the response was cut at the token limit.
    """

    prompt_ids: Ids
    response_ids: Ids
    logprobs: list[float]
    truncated: bool


@dataclass(slots=True)
class Rollout:
    """One trajectory.

    Attributes:
        subject_id: the case or window.
        turns: its responses.
        outcome: how the episode ended, `None` where the infrastructure stopped it.
        score: what it is worth, `None` where the infrastructure stopped it.
        fault: the infrastructure's fault in words.
    """

    subject_id: str
    turns: list[RolloutTurn] = field(default_factory=list)
    outcome: str | None = None
    score: EpisodeScore | None = None
    fault: str = ""

    @property
    def reward(self) -> float:
        """The return R of the trajectory; NaN where the infrastructure failed: it is not scored."""
        return math.nan if self.score is None else self.score.reward


@dataclass(slots=True)
class RolloutSeconds:
    """Where the time of rollouts went, seconds.

    Attributes:
        generate: in the model.
        render: making token ids of prompts and text of responses.
        wait: waiting for the episodes' own work, during which the model idles.
        environment: the episodes' own work, summed over threads.
    """

    generate: float = 0.0
    render: float = 0.0
    wait: float = 0.0
    environment: float = 0.0


@dataclass(slots=True)
class _Live:
    """An episode in play; its job makes the first episode and prompt, or takes a response."""

    rollout: Rollout
    seed: int
    job: "Job[_Advance]"
    episode: AgentEpisode | None = None
    prompt: Prompt | None = None


@dataclass(frozen=True, slots=True)
class _Advance:
    """What an episode's own work leads to: its next prompt, or its end and score."""

    episode: AgentEpisode
    prompt: Prompt | None = None
    score: EpisodeScore | None = None


class RolloutPlayer:
    """Plays many episodes with one model.

    Args:
        tokenizer: with a chat template.
        end_ids: tokens that end a response; a response without one was cut at the token limit.
        settings: how to play.
        most_live: (live episodes here) -> the most live episodes on any process. All processes of a distributed run
            make the same number of calls of the model, which sharded models and vLLM's server need.
        equal_counts: fill up with repeated prompts, so that all processes generate the same number of responses.
    """

    def __init__(
        self,
        tokenizer: Any,
        end_ids: Sequence[int],
        settings: RolloutSettings,
        most_live: Callable[[int], int] = int,
        equal_counts: bool = False,
    ) -> None:
        self.tokenizer = tokenizer
        self.settings = settings
        self.seconds = RolloutSeconds()
        self._end_ids = frozenset(end_ids)
        self._most_live = most_live
        self._equal_counts = equal_counts
        self._filler = token_ids(tokenizer, prompt_text(tokenizer, [{"role": "user", "content": "-"}]))

    def play(
        self, source: EpisodeSource, subject_ids: Sequence[str], seeds: Sequence[int], generate: Generate
    ) -> list[Rollout]:
        """Play one episode for each id.

        Args:
            source: makes and scores the episodes.
            subject_ids: (N,) ids; an id that stands there G times is played G times.
            seeds: (N,) one for each episode, from which each response's seed is derived.
            generate: the model.

        Returns:
            (N,) rollouts in the same order.
        """
        settings = self.settings
        with EpisodeWorkers(settings.workers, settings.tool_seconds, settings.attempts) as workers:
            lives = [
                _Live(Rollout(subject_id), seed, workers.submit(partial(_begin, source, subject_id)))
                for subject_id, seed in zip(subject_ids, seeds, strict=True)
            ]
            waves = [lives[first :: settings.waves] for first in range(settings.waves)]
            while waves:
                waves = [
                    wave for wave in map(partial(self._round, workers, source, generate), waves) if wave is not None
                ]
        return [live.rollout for live in lives]

    def response_text(self, ids: Sequence[int]) -> str:
        """What an episode reads of a response: all its tokens but the one that ended it."""
        kept = ids[:-1] if ids and ids[-1] in self._end_ids else ids
        # Markup such as <tool_call> must stay, also where a tokenizer has it among its special tokens.
        text: str = self.tokenizer.decode(kept, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    def _round(
        self, workers: EpisodeWorkers, source: EpisodeSource, generate: Generate, wave: list[_Live]
    ) -> list[_Live] | None:
        """One response of each live episode of a wave; `None` where no process has a live one left."""
        asked = self._prompts(workers, wave)
        most = self._most_live(len(asked))
        if most == 0:
            return None
        started = perf_counter()
        prompts = [ids for _, ids in asked]
        seeds = [turn_seed(live.seed, len(live.rollout.turns)) for live, _ in asked]
        fill = (most if self._equal_counts else max(1, len(prompts))) - len(prompts)
        responses, logprobs = generate(prompts + [prompts[-1] if prompts else self._filler] * fill, seeds + [0] * fill)
        generated = perf_counter()
        self.seconds.generate += generated - started
        for (live, prompt_ids), ids, logps in zip(asked, responses, logprobs, strict=False):  # without the fillers
            truncated = not ids or ids[-1] not in self._end_ids
            live.rollout.turns.append(RolloutTurn(prompt_ids, ids, logps, truncated))
            act = partial(_act, source, live.episode, self.response_text(ids), truncated)
            live.job = workers.submit(act)
        self.seconds.render += perf_counter() - generated
        return [live for live, _ in asked]

    def _prompts(self, workers: EpisodeWorkers, wave: list[_Live]) -> list[tuple[_Live, Ids]]:
        """The episodes that go on, each with its next prompt's ids."""
        started = perf_counter()
        workers.wait([live.job for live in wave])
        waited = perf_counter()
        asked = []
        for live in wave:
            self.seconds.environment += live.job.seconds
            try:
                advance = live.job.result()
                live.episode = advance.episode
                if advance.prompt is None:
                    live.rollout.outcome, live.rollout.score = advance.episode.end.outcome, advance.score
                else:
                    asked.append((live, self._encode(advance.prompt, live.rollout.subject_id)))
            except InfrastructureError as error:
                live.rollout.fault = f"{type(error).__name__}: {error}"
        self.seconds.wait += waited - started
        self.seconds.render += perf_counter() - waited
        return asked

    def _encode(self, prompt: Prompt, subject_id: str) -> Ids:
        text = prompt_text(self.tokenizer, prompt.messages, prompt.template_tools, self.settings.thinking)
        ids = token_ids(self.tokenizer, text)
        if len(ids) > self.settings.max_prompt_tokens:
            parts = {message["role"]: len(str(message.get("content") or "")) for message in prompt.messages}
            raise PromptTooLongError(
                f"the prompt of {subject_id} has {len(ids)} tokens, more than {self.settings.max_prompt_tokens}; "
                f"characters of its last message a role: {parts}; raise max_prompt_tokens or shorten the prompts"
            )
        return ids


def check_groups(first_prompts: Sequence[object], groups: Sequence[int]) -> None:
    """Refuse groups whose members did not start from the same prompt: their returns cannot be compared.

    Args:
        first_prompts: (N,) the first prompt of each trajectory or a hash of it, `None` where it never got one.
        groups: (N,) group of each trajectory.

    Raises:
        ConfigError: two members of a group had different first prompts.
    """
    seen: dict[int, object] = {}
    for prompt, group in zip(first_prompts, groups, strict=True):
        if prompt is not None and seen.setdefault(group, prompt) != prompt:
            raise ConfigError(
                f"the members of group {group} started from different prompts: episodes of one subject must be "
                "deterministic, and a group must hold one subject"
            )


def _begin(source: EpisodeSource, subject_id: str) -> _Advance:
    episode = source.episode(subject_id)
    return _Advance(episode, episode.observe())


def _act(source: EpisodeSource, episode: AgentEpisode | None, text: str, truncated: bool) -> _Advance:
    assert episode is not None  # it was made before its first prompt
    if not episode.done:  # it has ended where scoring is tried again
        episode.act(text, truncated=truncated)
    if not episode.done:
        return _Advance(episode, episode.observe())
    score = source.score(episode)
    if not math.isfinite(score.reward):
        raise ConfigError(f"the source scored {episode.subject_id} with a reward of {score.reward}")
    return _Advance(episode, score=score)
