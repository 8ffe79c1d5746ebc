"""Verification of a run of the forecasting benchmark, as `castgym.evaluation.verify` does it for decisions.

* `scores`: the configuration against the window sets; the answer read again; MSE and MAE from the truth, or from the
  fallback where the answer could not be judged.
* `episodes`: where the run kept its episodes, every prompt and result must come out the same, and so must the row.

Rows do not say which calls stood in one response, so they cannot be executed again without their episodes.
"""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from castgym.data.errors import ConfigError
from castgym.envs.forecast_answers import read_forecast
from castgym.envs.forecast_source import ForecastSource, Windows
from castgym.envs.trajectory import ReplayMismatchError, Trajectory, replay
from castgym.evaluation.forecast_runner import fallback_errors, forecast_row
from castgym.evaluation.forecast_runs import ForecastRow, ForecastRun, ForecastRunConfig
from castgym.evaluation.playing import Played
from castgym.evaluation.verify import TOLERANCE, Depth, Mismatch, Verification, check_attempts, read_episodes
from castgym.tools.calls import parse_response
from castgym.tools.forecasting_tools import horizon_timestamps

_UNCHECKED = ("seconds", "error")
"""Fields of a row that another execution cannot find again."""


def source_of(config: ForecastRunConfig, windows: Windows | None = None, files: Path | None = None) -> ForecastSource:
    """The episodes that a run played.

    Args:
        config: the run's configuration.
        windows: its window sets; where it found them by default.
        files: folder of the official files.

    Raises:
        ConfigError: the configuration names conditions that this version does not know.
        DataError: the window sets are not there.
    """
    conditions = {**config.conditions, "models": tuple(config.conditions["models"])}
    selection = config.selection
    try:
        return ForecastSource(
            windows or config.case_source,
            selection["split"],
            stride=selection.get("stride"),
            datasets=sorted(config.window_sets),
            files=files,
            **conditions,
        )
    except TypeError as error:
        raise ConfigError(f"the run was made under conditions that this version does not know: {error}") from error


def verify_forecast_run(
    path: Path,
    source: ForecastSource,
    *,
    depth: Depth = "episodes",
    progress: Callable[[int, int], None] | None = None,
) -> Verification:
    """Verify a complete run of the forecasting benchmark.

    Args:
        path: the run folder.
        source: from `source_of`.
        depth: `scores`, or `episodes` where the run kept them; `actions` is `scores` here.
        progress: told of (finished, total) rows.

    Returns:
        What was checked and what differs.

    Raises:
        ConfigError: the run is incomplete, or was made on other windows.
        DataError: a file is damaged.
    """
    run = ForecastRun(path)
    found = {item.name: item.fingerprint for item in source.loaded.sets}
    if dict(run.config.window_sets) != found:
        raise ConfigError(f"{path} was run on other window sets than {source.loaded.source} (fingerprints differ)")
    run.require_complete()
    result = Verification(path, len(run.rows))
    if dict(run.config.conditions) != source.config.describe():
        stated = dict(run.config.conditions)
        result.mismatches.append(Mismatch("config.json", "conditions", stated, source.config.describe()))
    result.mismatches += check_attempts(path / "rows.jsonl")
    kept = read_episodes(path / "episodes.jsonl") if depth == "episodes" else {}
    for number, row in enumerate(run.rows, start=1):
        where = f"{row.case_id}, repeat {row.repeat}"
        saved = kept.get((row.case_id, row.repeat))
        result.mismatches += [Mismatch(where, *difference) for difference in _check(row, source, saved, result)]
        if progress is not None:
            progress(number, len(run.rows))
    if bare := result.checked["scores"]:
        result.notes.append(f"{bare:,} rows were verified without their episodes: their calls were not executed again")
    return result


def _check(
    row: ForecastRow, source: ForecastSource, saved: Trajectory | None, result: Verification
) -> Iterator[tuple[str, Any, Any]]:
    try:
        origin = source.loaded.window(row.case_id).origin.isoformat()
    except ConfigError:
        yield "the window", row.case_id, "no such window"
        return
    for name, found in (("dataset", source.dataset(row.case_id)), ("origin", origin)):
        if getattr(row, name) != found:
            yield name, getattr(row, name), found
    if not row.scored:
        result.lost += 1
        for name in ("mse", "mae", "reward"):
            if getattr(row, name) is not None:
                yield f"{name} of a lost episode", getattr(row, name), None
    elif saved is None:
        result.checked["scores"] += 1
        yield from _check_errors(row, source)
    else:
        result.checked["episodes"] += 1
        yield from _check_episode(row, source, saved)


def _check_episode(row: ForecastRow, source: ForecastSource, saved: Trajectory) -> Iterator[tuple[str, Any, Any]]:
    episode = source.episode(row.case_id)
    try:
        replay(saved, episode)
    except (ReplayMismatchError, ConfigError) as error:
        yield "the kept episode", "as in episodes.jsonl", str(error)
        return
    response = saved.steps[-1].response if saved.steps else None
    answer = response if isinstance(response, str) else row.answer
    again = Trajectory(saved.case_id, saved.repeat, saved.conditions)
    found = forecast_row(source, row.case_id, row.repeat, Played(episode, again, answer, "", row.seconds))
    for field in fields(ForecastRow):
        if field.name not in _UNCHECKED:
            yield from _differ(field.name, getattr(row, field.name), getattr(found, field.name))
    if saved.score is not None and dict(saved.score) != json.loads(json.dumps(again.score)):
        yield "score of the kept episode", dict(saved.score), again.score


def _check_errors(row: ForecastRow, source: ForecastSource) -> Iterator[tuple[str, Any, Any]]:
    actual = source.loaded.target(row.case_id).actual
    if not row.valid:
        expected = fallback_errors(source.loaded.window(row.case_id), actual)
    elif row.answer is None or source.config.answer_form != "values" or not source.config.refinement:
        return  # a stored forecast is the answer: only its episode knows it
    else:
        read = read_forecast(parse_response(row.answer).text, horizon_timestamps(source.loaded.window(row.case_id)))
        if read.values is None or len(read.values) != len(actual):
            yield "answer", row.answer, f"not read as a whole forecast: {read.rejection}"
            return
        miss = np.asarray(read.values) - actual
        expected = (float(np.mean(miss**2)), float(np.mean(np.abs(miss))))
    for name, value in zip(("mse", "mae"), expected, strict=True):
        yield from _differ(name, getattr(row, name), value)


def _differ(name: str, saved: Any, found: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(saved, float) and isinstance(found, float):
        if not math.isclose(saved, found, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            yield name, saved, found
    elif json.loads(json.dumps(saved)) != json.loads(json.dumps(found)):
        yield name, saved, found
