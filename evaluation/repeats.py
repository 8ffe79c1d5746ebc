"""How far a policy repeats itself: flips between the repeats of a case, pass^k, and the noise of repeats in S."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from castgym.data.errors import ConfigError
from castgym.evaluation.aggregate import check_scores, rows_frame, scored
from castgym.evaluation.runs import Run


@dataclass(frozen=True, slots=True)
class Repeatability:
    """How much the repeats of a case agree. Every number is a mean over cases, each equal.

    Attributes:
        cases: cases with at least two scored repeats.
        left_out: cases with fewer.
        valid_flips: probability that two repeats of a case disagree on whether the answer is valid.
        cases_flipped: share of cases with both a valid and an invalid repeat.
        plan_flips: probability that two repeats of a case commit different plans; no plan counts as one of its own.
        passes: pass^k of validity by k, over the cases with at least k scored repeats.
        S_noise: standard deviation of S between the repeats of a case, pooled over cases.
    """

    cases: int
    left_out: int
    valid_flips: float
    cases_flipped: float
    plan_flips: float
    passes: Mapping[int, float]
    S_noise: float


def pass_power(successes: int, repeats: int, k: int) -> float:
    """Unbiased estimate of the probability that k independent repeats of a case all succeed, pass^k.

    pass^k = C(c, k) / C(n, k) for c successes in n repeats: the share of the k-subsets of the repeats without a
    failure (Yao et al., "tau-bench", 2024). A benchmark's pass^k is the mean over its cases. For k = 1 it is the
    success rate; it falls with k unless every case is certain.

    Args:
        successes: c, from 0 to n.
        repeats: n.
        k: from 1 to n.

    Raises:
        ValueError: the numbers do not fit together.

    >>> pass_power(3, 4, 1), pass_power(3, 4, 2), pass_power(3, 4, 4)
    (0.75, 0.5, 0.0)
    """
    if not (0 <= successes <= repeats and 1 <= k <= repeats):
        raise ValueError(f"expected 0 <= c <= n and 1 <= k <= n, found c={successes}, n={repeats}, k={k}")
    return math.comb(successes, k) / math.comb(repeats, k)


def pair_disagreement(counts: Mapping[object, int]) -> float:
    """Share of the pairs among n items that fall into different classes.

    1 - sum_j n_j (n_j - 1) / (n (n - 1)), the unbiased estimate of the probability that two draws differ (Simpson's
    index). It does not grow with n, so that runs of different numbers of repeats can be compared.

    Args:
        counts: items of each class, at least two in all.

    >>> pair_disagreement({"valid": 2, "invalid": 2})
    0.6666666666666667
    """
    total = sum(counts.values())
    return 1.0 - sum(count * (count - 1) for count in counts.values()) / (total * (total - 1))


def repeatability(run: Run) -> Repeatability:
    """Compare the repeats of each case of a run.

    Args:
        run: complete run with at least two repeats. Episodes that the infrastructure failed do not count.

    Raises:
        ConfigError: the run is incomplete, or no case has two scored repeats.
        DataError: the rows contradict themselves.
    """
    run.require_complete()
    frame = rows_frame(run.rows)
    check_scores(frame, run.config.sigma, run.config.budget)
    plans = {(row.case_id, row.repeat): row.grid_index for row in run.rows}
    rows = scored(frame)
    rows = rows.assign(plan=[str(plans[key]) for key in zip(rows["case_id"], rows["repeat"], strict=True)])
    return repeats_of(rows, run.config.policy, run.config.n_cases)


def repeats_of(rows: pd.DataFrame, policy: str, n_cases: int) -> Repeatability:
    """The numbers of `repeatability` from scored rows.

    Args:
        rows: `case_id`, `repeat`, `valid`, `S` and `plan` (any hashable text) of each scored episode.
        policy: name for messages.
        n_cases: cases of the run.

    Raises:
        ConfigError: no case has two scored repeats.
    """
    by_case = rows.groupby("case_id")
    repeats = by_case.size()
    several = repeats[repeats >= 2].index
    if several.empty:
        raise ConfigError(
            f"{policy} has no case with two scored repeats, so nothing can flip: run it with --repeats 2 or more"
        )
    valid = by_case["valid"].sum().astype(int)
    chosen = rows[rows["case_id"].isin(several)]
    validity = chosen.groupby("case_id")["valid"].agg(lambda values: pair_disagreement(values.value_counts().to_dict()))
    plans = chosen.groupby("case_id")["plan"].agg(lambda values: pair_disagreement(values.value_counts().to_dict()))
    passes = {}
    for k in range(1, int(repeats.max()) + 1):
        enough = repeats.index[repeats >= k]
        passes[k] = float(np.mean([pass_power(int(valid[case]), int(repeats[case]), k) for case in enough]))
    variances = chosen.groupby("case_id")["S"].var(ddof=1)
    freedom = repeats[several] - 1
    return Repeatability(
        cases=len(several),
        left_out=n_cases - len(several),
        valid_flips=float(validity.mean()),
        cases_flipped=float((validity > 0).mean()),
        plan_flips=float(plans.mean()),
        passes=passes,
        S_noise=float(np.sqrt((variances * freedom).sum() / freedom.sum())),
    )


def winner_flips(a: Run, b: Run) -> float:
    """Probability that another repeat of both policies turns the winner of a case around.

    For each case, the share of pairs of repeats (i of A and B against j of A and B) whose signs of S_A - S_B differ; a
    tie is a sign of its own. Mean over the cases with at least two repeats scored for both.

    Args:
        a: complete run with at least two repeats.
        b: complete run over the same cases.

    Raises:
        ConfigError: a run is incomplete, or no case has two repeats scored for both.
    """
    scores = []
    for run in (a, b):
        run.require_complete()
        rows = scored(rows_frame(run.rows))
        scores.append(rows.set_index(["case_id", "repeat"])["S"])
    difference = (scores[0] - scores[1]).dropna()
    signs = difference.map(lambda value: 0 if abs(value) <= 1e-12 else 1 if value > 0 else -1)
    by_case = signs.groupby(level="case_id")
    several = by_case.size()
    several = several[several >= 2]
    if several.empty:
        raise ConfigError(
            f"no case has two repeats that were scored for both {a.config.policy} and {b.config.policy}: run both with "
            "--repeats 2 or more"
        )
    flips = by_case.agg(lambda values: pair_disagreement(values.value_counts().to_dict()) if len(values) > 1 else 0.0)
    return float(flips[several.index].mean())
