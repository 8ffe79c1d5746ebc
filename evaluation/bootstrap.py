"""Confidence intervals: a paired, domain-stratified cluster bootstrap (FWBench section 4.2; protocol, objective).

Cases of one balancing authority or docking station are not independent, so whole groups are drawn, with replacement
and within their domain, and the aggregate is computed anew from the groups drawn. Two policies are compared on the
same draws: what makes a group hard for both cancels out.

A group drawn k times enters its cohorts k times. The mean of a cohort is then a ratio of two sums over groups, both
linear in k, so all resamples of a cohort are two matrix products.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from castgym.data.errors import ConfigError
from castgym.envs.scoring import COMBINED, Objective
from castgym.evaluation.aggregate import (
    METRICS,
    case_means,
    check_scores,
    cohort_shares,
    index_mean,
    rows_frame,
    unit_means,
)
from castgym.evaluation.runs import Run, RunConfig

RESAMPLES = 10_000
SEED = 1701
LEVEL = 0.95

FloatArray = NDArray[np.float64]

_SAME_SET = (
    ("tariff", "a case set built with another tariff"),
    ("sigma", "a case set with another sigma"),
    ("cohort_weights", "a case set with other cohort weights"),
    ("budget", "a case set with another budget"),
    ("case_set", "a case set of another name"),
    ("fingerprint", "another case set"),
)
"""Fields that tell case sets apart, the most telling first, and what a difference means."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and its percentile interval."""

    estimate: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Zero lies outside."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, slots=True)
class Intervals:
    """Intervals of all metrics from the same resamples.

    Attributes:
        by_metric: `loss`, `credits`, `R` and `S`.
        cases: cases that entered.
        left_out: cases of the index that did not, because the infrastructure failed them for a policy.
        resamples: resamples that entered; one without any group of some cohort has no aggregate and is left out.
    """

    by_metric: Mapping[str, Interval]
    cases: int
    left_out: int
    resamples: int

    def __getitem__(self, metric: str) -> Interval:
        return self.by_metric[metric]


def case_set_difference(a: RunConfig, b: RunConfig) -> str | None:
    """Why two runs are not over the same case set, in words; `None` where they are.

    Where they are, they may still be over different cases of it: `case_ids` tells.
    """
    for name, meaning in _SAME_SET:
        if getattr(a, name) != getattr(b, name):
            return f"{meaning} (`{name}` differs: {_short(getattr(a, name))} and {_short(getattr(b, name))})"
    return None


def compare_runs(a: Run, b: Run, *, resamples: int = RESAMPLES, seed: int = SEED, level: float = LEVEL) -> Intervals:
    """Intervals of the differences A - B; negative favours A.

    Args:
        a: complete run.
        b: complete run over the same cases.
        resamples: number of resamples.
        seed: of the draws.
        level: confidence level.

    Raises:
        ConfigError: the runs are over different cases, a run is incomplete, or see `paired_intervals`.
        DataError: a run's rows contradict themselves.
    """
    if difference := case_set_difference(a.config, b.config):
        raise ConfigError(f"{a.config.policy} and {b.config.policy} cannot be compared: {difference}")
    if a.config.case_ids != b.config.case_ids:
        raise ConfigError(
            f"{a.config.policy} ({a.config.n_cases} cases) and {b.config.policy} ({b.config.n_cases} cases) cannot be "
            "compared: they ran on different cases of the set; run both with the same selection"
        )
    partial = not a.config.whole_index
    return paired_intervals(
        run_frame(a),
        run_frame(b),
        a.config.cohort_weights,
        partial=partial,
        resamples=resamples,
        seed=seed,
        level=level,
    )


def run_frame(run: Run) -> pd.DataFrame:
    """The rows of a complete run, as `rows_frame` gives them, with their scores checked.

    Raises:
        ConfigError: episodes are missing.
        DataError: rows contradict themselves.
    """
    run.require_complete()
    frame = rows_frame(run.rows)
    check_scores(frame, run.config.sigma, run.config.budget)
    return frame


def rescored(frame: pd.DataFrame, budget: int, objective: Objective) -> pd.DataFrame:
    """The rows with S under another objective: the saved decisions, weighed anew (FWBench section 4.5)."""
    if objective == COMBINED:
        return frame
    return frame.assign(S=objective.loss_weight * frame["R"] + objective.cost_weight * frame["credits"] / budget)


def own_intervals(
    frame: pd.DataFrame,
    weights: Mapping[str, float],
    *,
    partial: bool = False,
    resamples: int = RESAMPLES,
    seed: int = SEED,
    level: float = LEVEL,
) -> Intervals:
    """Intervals of one policy's own aggregate.

    Args:
        frame: from `rows_frame`.
        weights: weight of each cohort of the test index.
        partial: the rows are a subset of the index (see `cohort_shares`).
        resamples: number of resamples.
        seed: of the draws.
        level: confidence level.

    Raises:
        ConfigError: a domain has fewer than two groups, or see `cohort_shares`.
    """
    shares = cohort_shares(frame, weights, partial=partial)
    cases = case_means(frame)
    units = unit_means(cases)
    values = resampled_means(units, shares, resamples=resamples, seed=seed)
    return _intervals(index_mean(units, shares), values, level, len(cases), frame["case_id"].nunique())


def paired_intervals(
    a: pd.DataFrame,
    b: pd.DataFrame,
    weights: Mapping[str, float],
    *,
    partial: bool = False,
    resamples: int = RESAMPLES,
    seed: int = SEED,
    level: float = LEVEL,
) -> Intervals:
    """Intervals of the differences A - B on the same draws; negative favours A.

    A case that the infrastructure failed for one policy, in all its repeats, is left out for both.

    Args:
        a: rows of A, from `rows_frame`.
        b: rows of B, over the same cases.
        weights: weight of each cohort of the test index.
        partial: the rows are a subset of the index (see `cohort_shares`).
        resamples: number of resamples.
        seed: of the draws.
        level: confidence level.

    Raises:
        ConfigError: the cases differ, a domain has fewer than two groups, or see `cohort_shares`.
    """
    keys = ["case_id", "domain", "group_id", "family", "cohort"]
    index_a, index_b = ({tuple(row) for row in frame[keys].to_numpy()} for frame in (a, b))
    if index_a != index_b:
        raise ConfigError(
            f"expected both policies on the same cases, found {len(index_a - index_b)} of the first only and "
            f"{len(index_b - index_a)} of the second only"
        )
    cases_a, cases_b = case_means(a), case_means(b)
    common = cases_a.index.intersection(cases_b.index)
    cases_a, cases_b = cases_a.loc[common], cases_b.loc[common]
    present = a[a["case_id"].isin(common.get_level_values("case_id"))]
    shares = cohort_shares(present, weights, partial=partial)
    units_a, units_b = unit_means(cases_a), unit_means(cases_b)
    # The aggregate is linear once the units are fixed, so the difference is the aggregate of the differences.
    units = units_a - units_b
    values = resampled_means(units, shares, resamples=resamples, seed=seed)
    return _intervals(index_mean(units, shares), values, level, len(common), len(index_a))


def resampled_means(
    units: pd.DataFrame, shares: Mapping[str, float], *, resamples: int = RESAMPLES, seed: int = SEED
) -> FloatArray:
    """The aggregate of each resample.

    Args:
        units: from `unit_means`.
        shares: weight of each cohort of the units.
        resamples: number of resamples.
        seed: of the draws.

    Returns:
        Shape (resamples, metrics); NaN where a resample has no group of some cohort.

    Raises:
        ConfigError: a domain has fewer than two groups.
    """
    units = units.sort_index()
    clusters = pd.MultiIndex.from_arrays([units.index.get_level_values(name) for name in ("domain", "group_id")])
    order = clusters.unique().sort_values()
    domains = order.get_level_values("domain").value_counts(sort=False).sort_index()
    if domains.min() < 2:
        raise ConfigError(
            f"an interval needs at least two groups in each domain, found one in {domains.idxmin()}: "
            "run more groups, or report the numbers without intervals"
        )
    counts = draw_counts(domains.to_list(), resamples, seed)
    cluster = order.get_indexer(clusters)
    cohort = units.index.get_level_values("cohort")
    total = np.zeros((resamples, len(METRICS)))
    for name, share in shares.items():
        rows = np.flatnonzero(cohort == name)
        # A column of ones makes the last sum the number of units drawn, the denominator.
        parts = np.column_stack([units.to_numpy()[rows], np.ones(len(rows))])
        sums = np.zeros((len(order), parts.shape[1]))
        np.add.at(sums, cluster[rows], parts)
        drawn = counts @ sums
        with np.errstate(invalid="ignore"):
            total += share * (drawn[:, :-1] / drawn[:, -1:])
    return total


def draw_counts(groups: list[int], resamples: int, seed: int) -> FloatArray:
    """How often each group is drawn.

    Args:
        groups: number of groups of each domain, the domains in order of their names.
        resamples: number of resamples.
        seed: of the draws.

    Returns:
        Whole numbers, shape (resamples, all groups); those of one domain sum to its number of groups.
    """
    rng = np.random.default_rng(seed)
    parts = []
    for size in groups:
        drawn = rng.integers(0, size, (resamples, size)) + size * np.arange(resamples)[:, None]
        parts.append(np.bincount(drawn.ravel(), minlength=resamples * size).reshape(resamples, size))
    return np.concatenate(parts, axis=1).astype(np.float64)


def _intervals(
    estimate: Mapping[str, float], values: FloatArray, level: float, cases: int, index_size: int
) -> Intervals:
    values = values[~np.isnan(values).any(axis=1)]
    if not len(values):
        raise ConfigError("no resample has a group of every cohort: run more groups")
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)
    by_metric = {
        name: Interval(estimate[name], float(low[column]), float(high[column])) for column, name in enumerate(METRICS)
    }
    return Intervals(by_metric, cases, index_size - cases, len(values))


def _short(value: object) -> str:
    if isinstance(value, Mapping):
        return str(dict(value))
    text = str(value)
    return text if len(text) < 40 else text[:12]  # a hash
