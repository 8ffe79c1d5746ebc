"""Runs policies over cases: through real episodes, or by the vectorised path that gives the same rows."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import castgym
from castgym.agents.base import Desk, Policy, submission_text
from castgym.agents.play import BatchSpeaker, play_batch
from castgym.agents.rendering import response_text
from castgym.data.files import canonical_json, sha256_hex
from castgym.data.schema import Case, CaseSet
from castgym.envs.casesets import LoadedCases
from castgym.envs.episode import POOLS, Episode, EpisodeConfig
from castgym.envs.judge import score_episode
from castgym.envs.prompt_styles import PromptStyle
from castgym.envs.prompts import AnswerForm, PromptMode
from castgym.envs.scoring import COMBINED, Score, score_plans
from castgym.envs.trajectory import Trajectory
from castgym.evaluation.playing import play, row_calls
from castgym.evaluation.rows import ResultRow
from castgym.evaluation.runs import RunConfig, case_ids_digest, open_run
from castgym.tools.forecasters.base import BackendError
from castgym.tools.forecasters.pool import ForecasterPool

_PLAYED_TOGETHER = 32
"""Episodes that a local model plays together, between two writes."""

_BATCH = 256
"""Cases decided together by the vectorised path, between two writes."""


@dataclass(frozen=True, slots=True)
class EvaluationSettings:
    """How to evaluate.

    Attributes:
        pool: `full` or `no_tsfm`.
        prompt_mode: `memory` or `chat`.
        answer_form: `decisions` or `plan`.
        prompt_style: `full` or `compact`.
        objective: what the prompts ask to minimise.
        repeats: episodes a case.
        seed: base seed of policies that draw at random; fixed rules ignore it.
        workers: episodes that run side by side.
        vectorised: decide many cases at once instead of playing episodes.
        keep_episodes: also write prompts, responses and results of every episode.
    """

    pool: str = POOLS[0]
    prompt_mode: PromptMode = "memory"
    answer_form: AnswerForm = "decisions"
    prompt_style: PromptStyle = "full"
    objective: str = COMBINED.name
    repeats: int = 1
    seed: int = 0
    workers: int = 1
    vectorised: bool = False
    keep_episodes: bool = False


def run_config(
    policy: Policy, loaded: LoadedCases, chosen: CaseSet, selection: Mapping[str, Any], settings: EvaluationSettings
) -> RunConfig:
    """The configuration that keys a run folder.

    Args:
        policy: who decides.
        loaded: the whole case set.
        chosen: the cases to run.
        selection: how they were chosen, JSON.
        settings: conditions. Workers, path and kept files do not enter: they do not change a row.
    """
    case_ids = [case.case_id for case in chosen]
    test_ids = [case.case_id for case in loaded.case_set if case.split == "test"]
    return RunConfig(
        policy=policy.name,
        hindsight=policy.hindsight,
        case_set=loaded.case_set.name,
        case_source=loaded.source,
        fingerprint=loaded.case_set.fingerprint,
        tariff=sha256_hex(canonical_json(loaded.case_set.tariff.to_json()).encode()),
        selection=dict(selection),
        case_ids=case_ids_digest(case_ids),
        n_cases=len(case_ids),
        whole_index=case_ids == test_ids,
        cohort_weights=dict(loaded.case_set.cohort_weights),
        sigma=dict(loaded.case_set.sigma),
        budget=loaded.case_set.tariff.budget,
        pool=settings.pool,
        answer_form=settings.answer_form,
        prompt_mode=settings.prompt_mode,
        prompt_style=settings.prompt_style,
        repeats=settings.repeats,
        seed=settings.seed,
        version=castgym.__version__,
        options=dict(getattr(policy, "options", {})),
        objective=settings.objective,
    )


def evaluate(
    policy: Policy,
    loaded: LoadedCases,
    chosen: CaseSet,
    selection: Mapping[str, Any],
    settings: EvaluationSettings,
    desk: Desk,
    folder: Path,
    progress: Callable[[int, int], None],
) -> None:
    """Run a policy over cases into a run folder, or finish the run that stands there.

    Args:
        policy: who decides.
        loaded: the whole case set and its truth.
        chosen: the cases to run.
        selection: how they were chosen, JSON.
        settings: conditions.
        desk: prices and forecasters.
        folder: the run folder.
        progress: told of (finished, total) episodes.

    Raises:
        ConfigError: the folder holds another run.
    """
    config = run_config(policy, loaded, chosen, selection, settings)
    with open_run(folder, config) as writer:
        pending = writer.pending([case.case_id for case in chosen])
        total = config.n_cases * config.repeats
        done = total - len(pending)
        progress(done, total)
        for rows, episodes in _results(policy, loaded, pending, settings, desk):
            writer.append(rows, episodes)
            done += len(rows)
            progress(done, total)


_Results = Iterator[tuple[Sequence[ResultRow], Sequence[Mapping[str, Any]]]]


def _results(
    policy: Policy, loaded: LoadedCases, pending: Sequence[tuple[str, int]], settings: EvaluationSettings, desk: Desk
) -> _Results:
    if settings.vectorised:
        for start in range(0, len(pending), _BATCH):
            yield vectorised_rows(policy, loaded, pending[start : start + _BATCH], desk, settings), ()
        return

    if isinstance(policy, BatchSpeaker):
        for start in range(0, len(pending), _PLAYED_TOGETHER):
            played = batch_rows(policy, loaded, pending[start : start + _PLAYED_TOGETHER], settings, desk.pool)
            kept = [item.to_json() for _, item in played if item is not None] if settings.keep_episodes else []
            yield [row for row, _ in played], kept
        return

    def play_one(item: tuple[str, int]) -> tuple[ResultRow, Trajectory | None]:
        return play_case(policy, loaded, item[0], item[1], settings, desk.pool)

    for row, trajectory in _side_by_side(play_one, pending, settings.workers):
        yield [row], [] if trajectory is None or not settings.keep_episodes else [trajectory.to_json()]


def _side_by_side(
    play_one: Callable[[tuple[str, int]], tuple[ResultRow, Trajectory | None]],
    pending: Sequence[tuple[str, int]],
    workers: int,
) -> Iterator[tuple[ResultRow, Trajectory | None]]:
    """Results in the order in which they end, with few episodes in flight, so that an interrupt is quick."""
    if workers == 1:
        yield from map(play_one, pending)
        return
    items = iter(pending)
    with ThreadPoolExecutor(workers) as threads:
        running: set[Future[tuple[ResultRow, Trajectory | None]]] = {
            threads.submit(play_one, item) for item in islice(items, 2 * workers)
        }
        while running:
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                yield future.result()
                running |= {threads.submit(play_one, item) for item in islice(items, 1)}


def play_case(
    policy: Policy, loaded: LoadedCases, case_id: str, repeat: int, settings: EvaluationSettings, pool: ForecasterPool
) -> tuple[ResultRow, Trajectory | None]:
    """Play one episode to its end and score it; the infrastructure's faults are retried, then counted.

    Returns:
        The row, and the trajectory where the episode ended.
    """
    case = loaded.case_set.by_id(case_id)
    config = _conditions(loaded, case, settings)
    played = play(policy, lambda: Episode(case, config, pool), repeat)
    if not isinstance(played.episode, Episode) or played.trajectory is None:
        return failed_row(case, repeat, played.fault, played.seconds), None
    return _ended(loaded, played.episode, played.trajectory, played.answer, played.seconds)


def batch_rows(
    agent: BatchSpeaker,
    loaded: LoadedCases,
    pending: Sequence[tuple[str, int]],
    settings: EvaluationSettings,
    pool: ForecasterPool,
) -> list[tuple[ResultRow, Trajectory | None]]:
    """Play episodes together: the model answers the prompts of all that are still live in one pass.

    An episode's draws depend on the run's seed, its case and its repeat alone, whatever runs beside it.
    """
    cases = [loaded.case_set.by_id(case_id) for case_id, _ in pending]
    episodes = [Episode(case, _conditions(loaded, case, settings), pool) for case in cases]
    seeds = [_episode_seed(settings.seed, case_id, repeat) for case_id, repeat in pending]
    rows: list[tuple[ResultRow, Trajectory | None]] = []
    for (_, repeat), case, played in zip(pending, cases, play_batch(agent, episodes, seeds=seeds), strict=True):
        if played.error is not None:
            fault = f"{type(played.error).__name__}: {played.error}"
            rows.append((failed_row(case, repeat, fault, played.seconds), None))
            continue
        answer = response_text(played.turns[-1].reply.message)
        rows.append(_ended(loaded, played.episode, played.trajectory(repeat), answer, played.seconds))
    return rows


def _conditions(loaded: LoadedCases, case: Case, settings: EvaluationSettings) -> EpisodeConfig:
    return EpisodeConfig.of(
        loaded.case_set,
        case,
        settings.pool,
        prompt_mode=settings.prompt_mode,
        answer_form=settings.answer_form,
        prompt_style=settings.prompt_style,
        objective=settings.objective,
    )


def _ended(
    loaded: LoadedCases, episode: Episode, trajectory: Trajectory, answer: str | None, seconds: float
) -> tuple[ResultRow, Trajectory]:
    """The row of an episode that was played to its end."""
    score = score_episode(episode, loaded.case_set, loaded.targets)
    trajectory.finish(episode, score)
    outcome = episode.end.outcome or "invalid_submission"
    row = _scored_row(episode.case, trajectory.repeat, outcome, score, answer, row_calls(episode), seconds)
    return row, trajectory


def _episode_seed(seed: int, case_id: str, repeat: int) -> int:
    return int(sha256_hex(f"{seed} {repeat} {case_id}".encode())[:8], 16)


def vectorised_rows(
    policy: Policy,
    loaded: LoadedCases,
    pending: Sequence[tuple[str, int]],
    desk: Desk,
    settings: EvaluationSettings,
) -> list[ResultRow]:
    """The rows of many episodes of a fixed policy, without playing them.

    Where a forecaster fails they are played after all: the failure concerns some of them, and what to do about it
    (keep the charge, fall back) is the business of an episode.
    """
    started = time.perf_counter()
    cases = [loaded.case_set.by_id(case_id) for case_id, _ in pending]
    try:
        decisions = policy.decide(cases, desk)
    except BackendError:
        return [play_case(policy, loaded, case_id, repeat, settings, desk.pool)[0] for case_id, repeat in pending]
    scores = score_plans(
        cases,
        loaded.targets,
        np.array([decision.grid_index for decision in decisions], dtype=np.intp),
        [decision.credits for decision in decisions],
        loaded.case_set.sigma,
        loaded.case_set.tariff.budget,
    )
    seconds = (time.perf_counter() - started) / len(cases)
    return [
        _scored_row(
            case,
            repeat,
            "completed",
            score,
            submission_text(case, decision.grid_index),
            tuple(call.to_json() for call in decision.calls),
            seconds,
        )
        for case, (_, repeat), decision, score in zip(cases, pending, decisions, scores, strict=True)
    ]


def failed_row(case: Case, repeat: int, error: str, seconds: float) -> ResultRow:
    """The row of an episode that the infrastructure failed: no score."""
    return ResultRow(
        **_identity(case, repeat),
        outcome="infrastructure_error",
        valid=False,
        fault=None,
        loss=None,
        floor=None,
        credits=None,
        R=None,
        S=None,
        grid_index=None,
        answer=None,
        calls=(),
        seconds=seconds,
        error=error,
    )


def _scored_row(
    case: Case, repeat: int, outcome: Any, score: Score, answer: str | None, calls: Any, seconds: float
) -> ResultRow:
    return ResultRow(
        **_identity(case, repeat),
        outcome=outcome,
        valid=score.valid,
        fault=score.fault,
        loss=score.loss,
        floor=score.floor,
        credits=score.credits,
        R=score.R,
        S=score.S,
        grid_index=score.grid_index,
        answer=answer,
        calls=calls,
        seconds=seconds,
    )


def _identity(case: Case, repeat: int) -> dict[str, Any]:
    return {
        "case_id": case.case_id,
        "repeat": repeat,
        "group_id": case.group_id,
        "domain": case.domain,
        "family": case.family,
        "cohort": case.cohort,
    }
