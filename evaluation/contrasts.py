"""Runs under other weights, and the same configuration with and without foundation models or thinking."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from castgym.data.errors import ConfigError
from castgym.envs.scoring import OBJECTIVES, Objective
from castgym.evaluation.aggregate import aggregate
from castgym.evaluation.bootstrap import RESAMPLES, SEED, Interval, paired_intervals, rescored, run_frame
from castgym.evaluation.comparison import compare, labels_of, require_same_cases, run_settings
from castgym.evaluation.runs import Run


def weight_sensitivity(
    runs: Sequence[Run],
    objectives: Sequence[Objective] = tuple(OBJECTIVES.values()),
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> pd.DataFrame:
    """Rank saved decisions under other weights of loss and cost (FWBench section 4.5).

    Args:
        runs: complete runs over the same cases.
        objectives: the weights.
        resamples: number of resamples.
        seed: of the draws.

    Returns:
        One row a policy and objective: `objective`, `policy`, `rank` (none for hindsight references, subsets, runs that
        lost episodes and other answer forms), `S`, `best` (the policy without hindsight of least S), and `difference`,
        `low`, `high` to it; NaN for the best itself.

    Raises:
        ConfigError: the runs are over different cases, or one is incomplete.
    """
    for run in runs:
        require_same_cases(runs[0].config, run.config)
    config, labels = runs[0].config, labels_of([run.config for run in runs])
    partial = not config.whole_index
    frames = [run_frame(run) for run in runs]
    rankable = {label for label, run in zip(labels, runs, strict=True) if _rankable(run)}
    table = []
    for objective in objectives:
        weighed = dict(zip(labels, (rescored(frame, config.budget, objective) for frame in frames), strict=True))
        S = {name: aggregate(frame, config.cohort_weights, partial=partial).S for name, frame in weighed.items()}
        ranked = sorted(
            (name for name, run in zip(labels, runs, strict=True) if not run.config.hindsight),
            key=lambda name: (S[name], name),
        )
        for name in (*ranked, *(name for name in labels if name not in ranked)):
            line = {"objective": objective.name, "policy": name, "S": S[name], "best": ranked[0] if ranked else None}
            among = [other for other in ranked if other in rankable]
            line["rank"] = among.index(name) + 1 if name in among else None
            if ranked and name != ranked[0]:
                versus = paired_intervals(
                    weighed[name], weighed[ranked[0]], config.cohort_weights,
                    partial=partial, resamples=resamples, seed=seed,
                )["S"]  # fmt: skip
                line |= {"difference": versus.estimate, "low": versus.low, "high": versus.high}
            table.append(line)
    columns = ["objective", "policy", "rank", "S", "best", "difference", "low", "high"]
    return pd.DataFrame(table, columns=columns).astype({"rank": "Int64", "difference": "float64"})


@dataclass(frozen=True, slots=True)
class Contrast:
    """One line of a contrast: the same configuration with and without something (FWBench Table 4).

    Attributes:
        name: the configuration.
        valid: feasible plans without it.
        episodes: scored episodes without it.
        S: score without it.
        difference: S with it less S without it; negative favours it.
        on_both_valid: the same on the cases valid with and without it; `None` where there are too few.
    """

    name: str
    valid: int
    episodes: int
    S: float
    difference: Interval
    on_both_valid: Interval | None


def access_contrasts(runs: Sequence[Run], *, resamples: int = RESAMPLES, seed: int = SEED) -> list[Contrast]:
    """Full tools less no foundation models, for every configuration that ran with both (FWBench Table 4).

    Raises:
        ConfigError: no configuration ran with both pools, or see `compare`.
    """
    return _contrasts(runs, "pool", ("full", "no_tsfm"), resamples, seed)


def thinking_contrasts(runs: Sequence[Run], *, resamples: int = RESAMPLES, seed: int = SEED) -> list[Contrast]:
    """Thinking less not thinking, for every model that ran both ways (FWBench section 4.3).

    Raises:
        ConfigError: no model ran both ways, or see `compare`.
    """
    return _contrasts(runs, "thinking", (True, False), resamples, seed)


def _rankable(run: Run) -> bool:
    whole = run.config.whole_index and all(row.scored for row in run.rows)
    return whole and run.config.answer_form == "decisions"


def _contrasts(
    runs: Sequence[Run], setting: str, values: tuple[object, object], resamples: int, seed: int
) -> list[Contrast]:
    groups: dict[str, dict[object, Run]] = {}
    for run in runs:
        settings = run_settings(run.config)
        found = next((name for name in settings if name.rsplit(".", 1)[-1] == setting), None)
        if found is None or settings[found] not in values:
            continue
        rest = {name: value for name, value in settings.items() if name != found}
        # A model's run may be named after the setting; what it is stands in its options.
        name = "" if any(key.rsplit(".", 1)[-1] == "model" for key in rest) else run.config.policy
        key = repr((name, sorted((name, repr(value)) for name, value in rest.items())))
        other = groups.setdefault(key, {}).setdefault(settings[found], run)
        if other is not run:
            raise ConfigError(f"{other.path} and {run.path} are runs under the same settings: leave one out")
    pairs = [(group[values[0]], group[values[1]]) for group in groups.values() if len(group) == 2]
    if not pairs:
        raise ConfigError(
            f"expected runs that differ in nothing but {setting} ({values[0]} and {values[1]}), found none among "
            f"{len(runs)}"
        )
    contrasts = []
    for with_it, without in pairs:
        compared = compare(with_it, without, resamples=resamples, seed=seed)
        config = without.config
        numbers = aggregate(run_frame(without), config.cohort_weights, partial=not config.whole_index)
        both = None if compared.on_both_valid is None else compared.on_both_valid["S"]
        contrasts.append(Contrast(config.policy, numbers.valid, numbers.scored, numbers.S, compared.effect["S"], both))
    return contrasts
