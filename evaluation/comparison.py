"""Two runs against each other: the effect, its interval, and where it comes from.

The aggregate is a weighted sum of case differences, so any partition of the cases (by cohort and lead, by who bought
forecasts, by who was valid) splits the effect into contributions that add up to it exactly, in the estimate and in
every resample. A contribution is large where a part is large or its difference is.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from castgym.data.errors import ConfigError
from castgym.envs.scoring import COMBINED, Objective
from castgym.evaluation.aggregate import case_means, cohort_shares
from castgym.evaluation.bootstrap import (
    LEVEL,
    RESAMPLES,
    SEED,
    Interval,
    Intervals,
    case_set_difference,
    draw_counts,
    paired_intervals,
    rescored,
    run_frame,
)
from castgym.evaluation.power import case_weights
from castgym.evaluation.runs import Run, RunConfig

PURCHASES = ("neither buys", "only A buys", "only B buys", "both buy")
VALIDITY = ("both valid", "only A valid", "only B valid", "neither valid")


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a partition of the cases.

    Attributes:
        name: which cases.
        cases: how many.
        share: their weight in the aggregate; the parts' sum to 1.
        contribution: what they contribute to S_A - S_B; the parts' sum to it.
    """

    name: str
    cases: int
    share: float
    contribution: Interval

    @property
    def mean(self) -> float:
        """Mean difference within the part."""
        return self.contribution.estimate / self.share


@dataclass(frozen=True, slots=True)
class ToolUse:
    """How a policy used its tools, means over all scored episodes.

    Attributes:
        calls: calls an episode, by tool; calls that could not be read stand under an empty name.
        errors: share of calls that were refused or failed.
        bought: share of episodes that were charged.
        models: forecasts paid for an episode, by model.
    """

    calls: Mapping[str, float]
    errors: float
    bought: float
    models: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A - B; negative favours A.

    Attributes:
        a: label of A.
        b: label of B.
        effect: intervals of all metrics.
        loss_part: what the loss contributes to the difference in S: its weight times that of R.
        cost_part: what the credits contribute.
        cells: contributions by cohort and lead.
        purchases: contributions by who bought forecasts, of `PURCHASES`.
        validity: contributions by who was valid, of `VALIDITY`.
        on_both_valid: the difference on the cases for which both were valid alone, weights renormalised; `None` where
            there are too few of them. It compares what is left after failures, so it ranks nothing.
        tools: how A and B used their tools.
        notes: what to know before believing it.
    """

    a: str
    b: str
    effect: Intervals
    loss_part: float
    cost_part: float
    cells: tuple[Part, ...]
    purchases: tuple[Part, ...]
    validity: tuple[Part, ...]
    on_both_valid: Intervals | None
    tools: tuple[ToolUse, ToolUse]
    notes: tuple[str, ...]


def compare(
    a: Run,
    b: Run,
    *,
    objective: Objective = COMBINED,
    resamples: int = RESAMPLES,
    seed: int = SEED,
    level: float = LEVEL,
) -> Comparison:
    """Compare two complete runs over the same cases.

    Args:
        a: run A.
        b: run B.
        objective: rescores the saved decisions with other weights (FWBench section 4.5).
        resamples: number of resamples.
        seed: of the draws.
        level: confidence level.

    Raises:
        ConfigError: the runs are over different cases, one is incomplete, or there are too few groups.
        DataError: a run's rows contradict themselves.
    """
    require_same_cases(a.config, b.config)
    config = a.config
    frames = [rescored(run_frame(run), config.budget, objective) for run in (a, b)]
    partial = not config.whole_index
    bootstrap = functools.partial(paired_intervals, resamples=resamples, seed=seed, level=level)
    effect = bootstrap(frames[0], frames[1], config.cohort_weights, partial=partial)
    means = [case_means(frame) for frame in frames]
    common = means[0].index.intersection(means[1].index)
    cases = (means[0].loc[common, "S"] - means[1].loc[common, "S"]).rename("d").reset_index()
    shares = cohort_shares(
        frames[0][frames[0]["case_id"].isin(cases["case_id"])], config.cohort_weights, partial=partial
    )

    def parts(names: Sequence[str], order: Sequence[str]) -> tuple[Part, ...]:
        return contributions(cases, names, order, shares, resamples=resamples, seed=seed, level=level)

    ids = cases["case_id"].tolist()
    cells = [
        f"{cohort}, {family.replace('_', ' ')}" for cohort, family in zip(cases["cohort"], cases["family"], strict=True)
    ]
    bought = [_by_case(run, lambda row: bool(row.credits), any) for run in (a, b)]
    valid = [_by_case(run, lambda row: row.valid, all) for run in (a, b)]
    purchases = [PURCHASES[bought[0][case_id] + 2 * bought[1][case_id]] for case_id in ids]
    validity = [VALIDITY[(not valid[1][case_id]) + 2 * (not valid[0][case_id])] for case_id in ids]
    return Comparison(
        *pair_labels(a.config, b.config),
        effect=effect,
        loss_part=objective.loss_weight * effect["R"].estimate,
        cost_part=objective.cost_weight * effect["credits"].estimate / config.budget,
        cells=parts(cells, sorted(set(cells))),
        purchases=parts(purchases, PURCHASES),
        validity=parts(validity, VALIDITY),
        on_both_valid=_on_cases(frames, {i for i in ids if valid[0][i] and valid[1][i]}, config, bootstrap),
        tools=(tool_use(a), tool_use(b)),
        notes=tuple(_notes(a, b, effect, resamples)),
    )


def require_same_cases(a: RunConfig, b: RunConfig) -> None:
    """Refuse runs over different cases.

    Raises:
        ConfigError: the case sets or the chosen cases differ.
    """
    if difference := case_set_difference(a, b):
        raise ConfigError(f"{a.policy} and {b.policy} cannot be compared: {difference}")
    if a.case_ids != b.case_ids:
        raise ConfigError(
            f"{a.policy} ({a.n_cases} cases) and {b.policy} ({b.n_cases} cases) cannot be compared: they ran on "
            "different cases of the set; run both with the same selection"
        )


def contributions(
    cases: pd.DataFrame,
    names: Sequence[str],
    order: Sequence[str],
    shares: Mapping[str, float],
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
    level: float = LEVEL,
) -> tuple[Part, ...]:
    """Split the mean difference by a partition of the cases; the draws are those of `paired_intervals`.

    Args:
        cases: one row a case: the columns of `UNIT` and the difference `d`.
        names: the part of each case.
        order: the parts, in the order of the result; those without a case are left out.
        shares: weight of each cohort.
        resamples: number of resamples.
        seed: of the draws.
        level: confidence level.
    """
    weights = case_weights(cases, shares).to_numpy()
    clusters = pd.MultiIndex.from_arrays([cases["domain"], cases["group_id"]])
    groups = clusters.unique().sort_values()
    counts = draw_counts(
        groups.get_level_values("domain").value_counts(sort=False).sort_index().to_list(), resamples, seed
    )
    cluster = groups.get_indexer(clusters)
    values = weights * cases["d"].to_numpy()
    labels = np.asarray(names)
    present = [name for name in order if (labels == name).any()]
    drawn = {name: np.zeros(resamples) for name in present}
    for cohort in sorted(set(cases["cohort"])):
        of_cohort = (cases["cohort"] == cohort).to_numpy()
        total = weights[of_cohort].sum()
        # How much of the cohort's weight a resample draws: the denominator of its mean.
        size = counts @ np.bincount(cluster[of_cohort], weights[of_cohort], len(groups)) / total
        for name in present:
            rows = of_cohort & (labels == name)
            with np.errstate(invalid="ignore", divide="ignore"):
                drawn[name] += counts @ np.bincount(cluster[rows], values[rows], len(groups)) / size
    parts = []
    for name in present:
        rows = labels == name
        known = drawn[name][np.isfinite(drawn[name])]
        low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
        interval = Interval(float(values[rows].sum()), float(low), float(high))
        parts.append(Part(name, int(rows.sum()), float(weights[rows].sum()), interval))
    return tuple(parts)


def tool_use(run: Run) -> ToolUse:
    """Calls, purchases and refusals of a run's scored episodes."""
    rows = [row for row in run.rows if row.scored]
    calls = [call for row in rows for call in row.calls]
    tools = pd.Series([call["tool"] for call in calls], dtype="object").value_counts(sort=True)
    paid = pd.Series([str(call["arguments"].get("model")) for call in calls if call["credits"]], dtype="object")
    count = max(len(rows), 1)
    return ToolUse(
        calls={str(name): int(number) / count for name, number in tools.items()},
        errors=sum(call["error"] is not None for call in calls) / max(len(calls), 1),
        bought=sum(bool(row.credits) for row in rows) / count,
        models={str(name): int(number) / count for name, number in paid.value_counts().items()},
    )


def labels_of(configs: Sequence[RunConfig]) -> list[str]:
    """Names of policies; one that occurs several times gets the settings in which its runs differ added."""
    labels = []
    for config in configs:
        same = [run_settings(other) for other in configs if other.policy == config.policy]
        own = run_settings(config)
        differing = [name for name in own if len({repr(settings.get(name)) for settings in same}) > 1]
        shown = ", ".join(f"{name.removeprefix('options.')} {own[name]}" for name in differing)
        labels.append(f"{config.policy} ({shown})" if differing else config.policy)
    return labels


def pair_labels(a: RunConfig, b: RunConfig) -> tuple[str, str]:
    """Names of two runs, told apart."""
    first, second = labels_of([a, b])
    return (first, second) if first != second else (f"{first} (A)", f"{second} (B)")


def run_settings(config: RunConfig) -> dict[str, object]:
    """The conditions of a run, flat (`options.outer.inner`): everything but who, where and on what."""
    names = ("pool", "answer_form", "prompt_mode", "prompt_style", "objective", "repeats", "seed")
    return {**{name: getattr(config, name) for name in names}, **_flat(config.options, "options.")}


def _flat(value: Mapping[str, object], prefix: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, item in value.items():
        found |= _flat(item, f"{prefix}{name}.") if isinstance(item, Mapping) else {f"{prefix}{name}": item}
    return found


def _by_case(run: Run, fact: Callable[..., bool], join: Callable[[list[bool]], bool]) -> dict[str, bool]:
    """A fact of each case, joined over its scored repeats."""
    facts: dict[str, list[bool]] = {}
    for row in run.rows:
        if row.scored:
            facts.setdefault(row.case_id, []).append(fact(row))
    return {case_id: join(found) for case_id, found in facts.items()}


def _on_cases(
    frames: Sequence[pd.DataFrame], case_ids: set[str], config: RunConfig, bootstrap: Callable[..., Intervals]
) -> Intervals | None:
    if not case_ids:
        return None
    chosen = [frame[frame["case_id"].isin(case_ids)] for frame in frames]
    try:
        return bootstrap(chosen[0], chosen[1], config.cohort_weights, partial=True)
    except ConfigError:  # one group of a domain alone
        return None


def _notes(a: Run, b: Run, effect: Intervals, resamples: int) -> list[str]:
    notes = []
    if not a.config.whole_index:
        notes.append(f"{a.config.n_cases:,} cases, not the whole test index: nothing here is ranked")
    if a.config.hindsight or b.config.hindsight:
        notes.append("a hindsight reference knows the truth and is no agent")
    for run in (a, b):
        lost = sum(not row.scored for row in run.rows)
        if lost:
            notes.append(
                f"{run.config.policy}: {lost:,} of {len(run.rows):,} episodes failed by the infrastructure and are "
                "left out; resume the run to play them again"
            )
    if effect.left_out:
        notes.append(f"{effect.left_out:,} cases that one of both lost entirely are left out for both")
    if effect.resamples < resamples:
        notes.append(f"{resamples - effect.resamples:,} resamples had no group of some cohort and are left out")
    for name in ("answer_form", "prompt_mode", "prompt_style", "objective", "version"):
        values = [getattr(run.config, name) for run in (a, b)]
        if values[0] != values[1]:
            notes.append(f"the runs differ in {name.replace('_', ' ')}: {values[0]} and {values[1]}")
    return notes
