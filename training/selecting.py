"""Which collected episodes are imitated: execution validity first, then quality (Cast-R1, 3.5.1).

1. Validity: the episode ended in a valid answer, no tool call failed, every required stage took place, and its score is
   finite. The first reason that applies is counted.
2. Quality: of each window the valid episode with the least error E(tau) is kept; with a bar only if that is no worse
   than the free reference. An episode that ends in the reference's own answer passes: otherwise only the lucky
   deviations from it would be learned.

Then each data set is cut to the same number of windows, in the order of their ids' hashes: the easy windows, whose
errors are smallest, get no preference.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from castgym.data.errors import ConfigError, DataError
from castgym.data.files import sha256_hex
from castgym.envs.memory import PREDICTION_TOOLS
from castgym.envs.trajectory import Step, Trajectory
from castgym.tools.calls import parse_response
from castgym.training.training_split import refuse_other_splits

DropReason = Literal[
    "no_answer",  # the episode ended without a committed answer: budget, token limit, or nothing readable
    "invalid_answer",  # an answer that breaks the rules
    "failed_call",  # a tool call that was refused, failed or could not be read
    "missing_stage",  # no call before a decision; no analysis or no forecast before the answer of a forecasting episode
    "not_finite",  # no score, or one that is not finite
    "not_best",  # another episode of the window has a smaller error, or the same and came first
    "worse_than_reference",  # the window's best is worse than the free reference
    "over_share",  # the data set has its share already
]
DROP_REASONS: tuple[DropReason, ...] = get_args(DropReason)

Bar = Literal["none", "reference"]

_ROUNDING = 1e-9
"""Errors closer than this are equal: reference and episode are scored along different ways."""


@dataclass(frozen=True, slots=True)
class SelectionSettings:
    """What is kept.

    Attributes:
        per_dataset: windows of each data set; all by default.
        bar: `reference` keeps a window only if its best episode is no worse than the free reference.
    """

    per_dataset: int | None = None
    bar: Bar = "none"

    def __post_init__(self) -> None:
        if self.bar not in get_args(Bar):
            raise ConfigError(f"expected bar to be one of {get_args(Bar)}, found {self.bar!r}")
        if self.per_dataset is not None and (isinstance(self.per_dataset, bool) or self.per_dataset < 1):
            raise ConfigError(f"expected per_dataset to be a whole number >= 1, found {self.per_dataset!r}")


@dataclass(frozen=True, slots=True)
class SelectionReport:
    """What was kept and dropped, and why.

    Attributes:
        episodes: episodes that were looked at.
        windows: their windows.
        windows_without_valid: windows of which no episode is valid.
        dropped: episodes by reason; each is counted once.
        details: of `no_answer`, `invalid_answer` and `failed_call`, what exactly happened.
        kept: episodes by data set.
        error_before: mean error of the valid episodes by data set.
        error_kept: mean error of the kept episodes by data set.
    """

    episodes: int
    windows: int
    windows_without_valid: int
    dropped: Mapping[str, int]
    details: Mapping[str, int]
    kept: Mapping[str, int]
    error_before: Mapping[str, float]
    error_kept: Mapping[str, float]


_Key = tuple[str, int, str, str]
"""Window, repeat, agent and seed: what tells episodes apart, also those of several collections."""


@dataclass(slots=True)
class _Counts:
    dropped: Counter[str] = field(default_factory=Counter)
    details: Counter[str] = field(default_factory=Counter)


def select(
    trajectories: Iterable[Trajectory], settings: SelectionSettings | None = None
) -> tuple[list[Trajectory], SelectionReport]:
    """Choose the episodes that a student imitates.

    Args:
        trajectories: collected episodes of training windows.
        settings: what is kept; by default the best valid episode of every window.

    Returns:
        The kept episodes, ordered by data set and window, and the report. The order of the input does not matter.

    Raises:
        ConfigError: an episode is not of the training split, or the bar is asked for where no reference is known.
        DataError: an episode lacks what collected episodes have, or occurs twice.
    """
    settings = settings or SelectionSettings()
    counts = _Counts()
    valid: dict[str, list[Trajectory]] = {}
    keys: set[_Key] = set()
    windows: set[str] = set()
    for trajectory in trajectories:
        _check_collected(trajectory, keys)
        windows.add(trajectory.case_id)
        fault = invalidity(trajectory)
        if fault is None:
            valid.setdefault(trajectory.case_id, []).append(trajectory)
        else:
            counts.dropped[fault[0]] += 1
            if fault[1]:
                counts.details[f"{fault[0]}: {fault[1]}"] += 1
    best = [_best(members, settings.bar, counts) for _, members in sorted(valid.items())]
    kept = _shared_out([trajectory for trajectory in best if trajectory is not None], settings.per_dataset, counts)
    every_valid = [trajectory for members in valid.values() for trajectory in members]
    report = SelectionReport(
        episodes=len(keys),
        windows=len(windows),
        windows_without_valid=len(windows) - len(valid),
        dropped={reason: counts.dropped[reason] for reason in DROP_REASONS},
        details=dict(sorted(counts.details.items())),
        kept=dict(sorted(Counter(map(_dataset, kept)).items())),
        error_before=_mean_errors(every_valid),
        error_kept=_mean_errors(kept),
    )
    return kept, report


def invalidity(trajectory: Trajectory) -> tuple[DropReason, str] | None:
    """Why an episode is not valid, with a detail; `None` where it is."""
    end, score = trajectory.end, trajectory.score or {}
    outcome, rejection = end.get("outcome"), end.get("rejection")
    if outcome != "completed" and end.get("submission") is None:
        return "no_answer", str(rejection or outcome)
    if outcome != "completed" or score.get("valid") is False:
        return "invalid_answer", str(rejection or outcome)
    for step in trajectory.steps:
        for error in step.errors:
            if error is not None:
                return "failed_call", error
    if not _stages_complete(trajectory):
        return "missing_stage", ""
    if not all(_is_finite(score.get(name)) for name in ("reward", "error")):
        return "not_finite", ""
    return None


def _stages_complete(trajectory: Trajectory) -> bool:
    """An analysis or plan came before the answer; where forecasting is a stage of its own, a forecast too.

    A decision episode may buy forecasts but need not. The conditions of a forecasting episode say which stages it has
    (`stages`, `diagnostics`, `models`, `planning`).
    """
    conditions = trajectory.conditions
    called = {name for step in trajectory.steps for name in _called(step)}
    if "stages" not in conditions:
        return bool(called)
    if not (conditions["stages"] and conditions["planning"]):
        return True
    analysed = not conditions["diagnostics"] or bool(called - PREDICTION_TOOLS)
    return analysed and (not conditions["models"] or bool(called & PREDICTION_TOOLS))


def _called(step: Step) -> list[str]:
    response = step.response
    if isinstance(response, Mapping) and "name" in response and "arguments" in response:
        return [str(response["name"])]
    return [call.name for call in parse_response(response).calls]


def _best(members: Sequence[Trajectory], bar: Bar, counts: _Counts) -> Trajectory | None:
    """The valid episode of a window with the least error; of equals the shortest, then the first."""
    best = min(members, key=lambda trajectory: (_error(trajectory), len(trajectory.steps), trajectory.repeat))
    counts.dropped["not_best"] += len(members) - 1
    if bar == "reference" and _error(best) > _reference(best) + _ROUNDING:
        counts.dropped["worse_than_reference"] += 1
        return None
    return best


def _shared_out(best: Sequence[Trajectory], per_dataset: int | None, counts: _Counts) -> list[Trajectory]:
    """Equally many windows of each data set, as far as they reach."""
    datasets: dict[str, list[Trajectory]] = {}
    for trajectory in sorted(best, key=lambda trajectory: sha256_hex(trajectory.case_id.encode())):
        datasets.setdefault(_dataset(trajectory), []).append(trajectory)
    kept: list[Trajectory] = []
    for _, members in sorted(datasets.items()):
        kept += sorted(members[:per_dataset], key=lambda trajectory: trajectory.case_id)
        counts.dropped["over_share"] += len(members) - len(members[:per_dataset])
    return kept


def _check_collected(trajectory: Trajectory, keys: set[_Key]) -> None:
    meta = trajectory.meta
    key = (trajectory.case_id, trajectory.repeat, str(meta.get("agent")), str(meta.get("seed")))
    where = f"{trajectory.case_id}, repeat {trajectory.repeat}"
    for name in ("split", "dataset"):
        if name not in meta:
            raise DataError(f"{where}: expected `{name}` in the episode's meta: select what `castgym collect` wrote")
    refuse_other_splits(meta["split"])
    if key in keys:
        raise DataError(f"{where} occurs twice: select each collection once")
    keys.add(key)


def _mean_errors(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    errors: dict[str, list[float]] = {}
    for trajectory in trajectories:
        errors.setdefault(_dataset(trajectory), []).append(_error(trajectory))
    return {name: math.fsum(values) / len(values) for name, values in sorted(errors.items())}


def _error(trajectory: Trajectory) -> float:
    return float((trajectory.score or {})["error"])


def _reference(trajectory: Trajectory) -> float:
    value = trajectory.meta.get("reference_error")
    if value is None or not _is_finite(value):
        raise ConfigError(f"{trajectory.case_id}: no error of the free reference is known: select without a bar")
    return float(value)


def _dataset(trajectory: Trajectory) -> str:
    return str(trajectory.meta["dataset"])


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
