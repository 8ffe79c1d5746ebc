"""Collecting episodes of a teacher on training data: which windows, with which seeds, and every outcome on disk.

Nothing here shows a teacher the truth: the source scores an episode after it has ended.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import castgym
from castgym.agents.limits import TimeLimits
from castgym.agents.play import Played, play_many
from castgym.agents.replies import Reply, Usage
from castgym.data.errors import ConfigError, InfrastructureError
from castgym.data.files import canonical_json, sha256_hex
from castgym.data.sampling import spread_ids
from castgym.envs.prompts import Prompt
from castgym.envs.sources import EpisodeSource
from castgym.envs.trajectory import Trajectory
from castgym.training.collect_folder import CollectFolder, EpisodeKey, open_collection
from castgym.training.references import reference_errors
from castgym.training.training_split import refuse_other_splits

ATTEMPTS = 3
"""Tries of an episode that the infrastructure fails, before it is left out and counted."""

_LEAST_TO_JUDGE = 20
"""Episodes before the share of faults can stop a collection."""


class Teacher(Protocol):
    """Whose episodes are collected: a scripted teacher, or a model behind an endpoint."""

    @property
    def name(self) -> str:
        """Name of the policy."""
        ...

    @property
    def options(self) -> Mapping[str, Any]:
        """What its responses depend on, JSON."""
        ...

    async def respond(self, prompt: Prompt, *, seed: int | None = None) -> Reply:
        """The response to a prompt."""
        ...


@dataclass(frozen=True, slots=True)
class CollectSettings:
    """How to collect.

    Attributes:
        per_window: episodes of each window, with seeds of their own.
        seed: base of all seeds.
        concurrency: episodes live at once; how many changes no episode.
        most_faults: share of episodes failed by the infrastructure beyond which the collection stops.
        limits: time limits.
    """

    per_window: int = 1
    seed: int = 0
    concurrency: int = 16
    most_faults: float = 0.1
    limits: TimeLimits | None = None

    def __post_init__(self) -> None:
        for name, least in (("per_window", 1), ("seed", 0), ("concurrency", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"expected {name} to be a whole number >= {least}, found {value!r}")
        if not 0.0 <= self.most_faults <= 1.0:
            raise ConfigError(f"expected most_faults from 0 to 1, found {self.most_faults!r}")


@dataclass(frozen=True, slots=True)
class Collected:
    """What stands in the folder when a collection ends.

    Attributes:
        episodes: finished episodes.
        missing: episodes that the infrastructure failed in every attempt; the same command tries them again.
        played: episodes that this call played.
        seconds: that it took.
    """

    episodes: int
    missing: int
    played: int
    seconds: float


Report = Callable[[int, int, int], None]
"""Told of finished episodes, all episodes, and faults so far."""


def collect(
    source: EpisodeSource,
    teacher: Teacher,
    subject_ids: Sequence[str],
    settings: CollectSettings,
    folder: Path,
    report: Report | None = None,
) -> Collected:
    """Play a teacher's episodes into a folder, or finish the collection that stands there.

    Args:
        source: episodes of the training split.
        teacher: who plays.
        subject_ids: windows, see `chosen_subjects`.
        settings: how.
        folder: where `episodes.jsonl` is written, one line an episode as it ends.
        report: progress.

    Raises:
        ConfigError: the source is not of the training split, or the folder holds another collection.
        InfrastructureError: too large a share of episodes failed; what is finished is kept.
    """
    refuse_other_splits(source.split)
    started = time.perf_counter()
    with open_collection(folder, collection_config(source, teacher, subject_ids, settings)) as files:
        before = files.count
        references = reference_errors(source, subject_ids)
        work = _Collection(source, teacher, settings, files, references, len(subject_ids), report or _silent)
        for _ in range(ATTEMPTS):
            pending = files.pending(subject_ids, settings.per_window)
            if not pending:
                break
            asyncio.run(work.play(pending))
        missing = len(files.pending(subject_ids, settings.per_window))
        return Collected(files.count, missing, files.count - before, time.perf_counter() - started)


def chosen_subjects(source: EpisodeSource, limit: int | None = None) -> list[str]:
    """Windows to collect from, evenly from the data sets: all, or so many (see `spread_ids`)."""
    strata: dict[str, list[str]] = {}
    for subject_id in source.ids:
        strata.setdefault(source.dataset(subject_id), []).append(subject_id)
    return spread_ids((strata[name] for name in sorted(strata)), limit)


def episode_seed(seed: int, subject_id: str, repeat: int) -> int:
    """The seed of an episode: the same whatever else is collected, and in which order.

    Returns:
        An integer in [0, 2**32).
    """
    subject = int.from_bytes(hashlib.sha256(subject_id.encode()).digest()[:8], "big")
    return int(np.random.SeedSequence([seed, subject, repeat]).generate_state(1)[0])


def collection_config(
    source: EpisodeSource, teacher: Teacher, subject_ids: Sequence[str], settings: CollectSettings
) -> dict[str, Any]:
    """Everything that determines the episodes of a collection, JSON."""
    if not subject_ids:
        raise ConfigError(f"no window of {source.name} to collect from")
    return {
        "kind": "collection",
        "source": source.name,
        "split": source.split,
        "fingerprint": source.fingerprint,
        "conditions": source.episode(subject_ids[0]).conditions.describe(),
        "windows": sha256_hex(canonical_json(sorted(subject_ids)).encode()),
        "n_windows": len(subject_ids),
        "per_window": settings.per_window,
        "seed": settings.seed,
        "teacher": dict(teacher.options),
        "version": castgym.__version__,
    }


class _Collection:
    """One call of `collect`: plays what is pending and keeps what comes of it."""

    def __init__(
        self,
        source: EpisodeSource,
        teacher: Teacher,
        settings: CollectSettings,
        files: CollectFolder,
        references: Mapping[str, float],
        n_windows: int,
        report: Report,
    ) -> None:
        self._source = source
        self._teacher = teacher
        self._settings = settings
        self._files = files
        self._references = references
        self._total = n_windows * settings.per_window
        self._report = report
        self._tried = 0
        self._faults = 0

    async def play(self, pending: Sequence[EpisodeKey]) -> None:
        """One attempt at every pending episode."""
        seeds = [episode_seed(self._settings.seed, *key) for key in pending]
        episodes = (self._source.episode(subject_id) for subject_id, _ in pending)
        self._report(self._files.count, self._total, self._faults)
        async for played in play_many(
            self._teacher,
            episodes,
            min(self._settings.concurrency, len(pending)),
            limits=self._settings.limits,
            seeds=seeds,
        ):
            key = pending[played.index]
            self._tried += 1
            if played.error is None:
                self._files.append(self._trajectory(key, seeds[played.index], played))
            else:
                self._faults += 1
                fault = f"{type(played.error).__name__}: {played.error}"
                self._files.note_fault(key, fault)
                self._stop_on_faults(fault)
            self._report(self._files.count, self._total, self._faults)

    def _trajectory(self, key: EpisodeKey, seed: int, played: Played[Any]) -> Trajectory:
        subject_id, repeat = key
        trajectory = played.trajectory(repeat)
        trajectory.finish(played.episode, self._source.score(played.episode))
        usage = [turn.reply.usage for turn in played.turns if turn.reply.usage is not None]
        trajectory.meta = {
            "agent": self._teacher.name,
            "models": sorted({turn.reply.model for turn in played.turns if turn.reply.model}),
            "seed": seed,
            "source": self._source.name,
            "split": self._source.split,
            "fingerprint": self._source.fingerprint,
            "dataset": self._source.dataset(subject_id),
            "reference_error": self._references[subject_id],
            "seconds": round(played.seconds, 4),
            **_token_counts(usage),
        }
        return trajectory

    def _stop_on_faults(self, fault: str) -> None:
        if self._tried >= _LEAST_TO_JUDGE and self._faults > self._settings.most_faults * self._tried:
            raise InfrastructureError(
                f"{self._faults} of {self._tried} episodes failed, more than {self._settings.most_faults:.0%}; the "
                f"last: {fault}. What is finished is kept: mend it and run the same command again"
            )


def _silent(done: int, total: int, faults: int) -> None:
    del done, total, faults


def _token_counts(usage: Sequence[Usage]) -> dict[str, int]:
    if not usage:
        return {}
    total = sum(usage, Usage())
    return {"prompt_tokens": total.prompt_tokens, "completion_tokens": total.completion_tokens}
