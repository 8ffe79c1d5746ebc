"""Runs policies over forecasting windows through real episodes.

What the policy did wrong is scored: where no answer could be judged, the window counts with the larger of the errors
of two forecasts that need no skill, the last value and the last day repeated, so that failing never pays.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

import castgym
from castgym.agents.base import Policy
from castgym.data.schema import FloatArray
from castgym.data.windows import Window
from castgym.envs.forecast_source import ForecastSource
from castgym.evaluation.forecast_runs import ForecastRow, ForecastRunConfig, open_forecast_run
from castgym.evaluation.playing import Played, play
from castgym.evaluation.run_folder import case_ids_digest


@dataclass(frozen=True, slots=True)
class ForecastSettings:
    """How to evaluate.

    Attributes:
        repeats: episodes a window.
        seed: base seed.
        keep_episodes: also write prompts, responses and results of every episode.
    """

    repeats: int = 1
    seed: int = 0
    keep_episodes: bool = False


def fallback_errors(window: Window, actual: FloatArray) -> tuple[float, float]:
    """MSE and MAE that count where no answer could be judged.

    Args:
        window: the visible part.
        actual: the truth, shape (H,).

    Returns:
        The larger ones of the last known value repeated and of the last day repeated.
    """
    history = window.history[:, 0]
    known = history[np.isfinite(history)]
    last = known[-1] if len(known) else 0.0
    season = max(1, min(window.length, round(timedelta(days=1) / window.step)))
    day = np.where(np.isfinite(history[-season:]), history[-season:], last)
    forecasts = (np.full(len(actual), last), np.resize(day, len(actual)))
    errors = [forecast - actual for forecast in forecasts]
    return max(float(np.mean(error**2)) for error in errors), max(float(np.mean(np.abs(error))) for error in errors)


def forecast_run_config(
    policy: Policy,
    source: ForecastSource,
    window_ids: Sequence[str],
    *,
    selection: Mapping[str, Any],
    settings: ForecastSettings,
) -> ForecastRunConfig:
    """The configuration that keys a run folder.

    Args:
        policy: who forecasts.
        source: episodes.
        window_ids: the windows to run.
        selection: how the windows were chosen, JSON.
        settings: repeats and seed.
    """
    return ForecastRunConfig(
        policy=policy.name,
        hindsight=policy.hindsight,
        case_source=source.loaded.source,
        fingerprint=source.fingerprint,
        case_ids=case_ids_digest(window_ids),
        n_cases=len(window_ids),
        repeats=settings.repeats,
        seed=settings.seed,
        version=castgym.__version__,
        options=dict(getattr(policy, "options", {})),
        window_sets={item.name: item.fingerprint for item in source.loaded.sets},
        selection=dict(selection),
        conditions=source.episode(window_ids[0]).conditions.describe(),
    )


def evaluate_forecasts(
    policy: Policy,
    source: ForecastSource,
    window_ids: Sequence[str],
    config: ForecastRunConfig,
    settings: ForecastSettings,
    folder: Path,
    progress: Callable[[int, int], None],
) -> None:
    """Run a policy over windows into a run folder, or finish the run that stands there.

    Args:
        policy: who forecasts.
        source: episodes and truth.
        window_ids: the windows.
        config: from `forecast_run_config`.
        settings: what to keep.
        folder: the run folder.
        progress: told of (finished, total) episodes.

    Raises:
        ConfigError: the folder holds another run.
    """
    with open_forecast_run(folder, config) as writer:
        pending = writer.pending(window_ids)
        total = config.n_cases * config.repeats
        done = total - len(pending)
        progress(done, total)
        for window_id, repeat in pending:
            played = play(policy, lambda window_id=window_id: source.episode(window_id), repeat)  # type: ignore[misc]
            row = forecast_row(source, window_id, repeat, played)
            kept = [played.trajectory.to_json()] if settings.keep_episodes and played.trajectory is not None else []
            writer.append([row], kept)
            done += 1
            progress(done, total)


def forecast_row(source: ForecastSource, window_id: str, repeat: int, played: Played) -> ForecastRow:
    """The row of an episode that was played, or given up."""
    window = source.loaded.window(window_id)
    identity: dict[str, Any] = {
        "case_id": window_id,
        "repeat": repeat,
        "dataset": source.dataset(window_id),
        "origin": window.origin.isoformat(),
        "calls": played.calls,
        "answer": played.answer,
        "seconds": played.seconds,
    }
    episode = played.episode
    if episode is None or played.trajectory is None:
        return ForecastRow(
            **identity,
            outcome="infrastructure_error",
            valid=False,
            fault=None,
            mse=None,
            mae=None,
            reward=None,
            turns=0,
            error=played.fault,
        )
    score = source.score(episode)
    played.trajectory.finish(episode, score)
    errors = (score.parts["mse"], score.parts["mae"]) if score.valid else (None, None)
    if errors[0] is None or errors[1] is None:
        errors = fallback_errors(window, source.loaded.target(window_id).actual)
    return ForecastRow(
        **identity,
        outcome=episode.end.outcome or "invalid_submission",
        valid=score.valid,
        fault=episode.end.rejection,
        mse=errors[0],
        mae=errors[1],
        reward=score.reward,
        turns=episode.turns,
    )
