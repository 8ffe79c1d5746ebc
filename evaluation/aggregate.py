"""The protocol's aggregate: from one row an episode to the few numbers of a table.

Episodes of a case (its repeats) are averaged first, then the dates of a unit, that is of a (cohort, group, lead); then
the units of a cohort, each equal; then the cohorts, by their weights (FWBench section 3.4 and 4.1). So neither a
group with many dates nor a cohort with many groups weighs more.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from castgym.data.errors import ConfigError, DataError
from castgym.envs.outcomes import OUTCOMES
from castgym.evaluation.rows import ResultRow

METRICS = ("loss", "credits", "R", "S")
"""What is averaged, all in the same way."""

UNIT = ("cohort", "domain", "group_id", "family")
"""What dates are averaged within; `domain` keeps apart two groups that happen to share an id."""

INFRASTRUCTURE_LIMIT = 0.0
"""Largest share of episodes that the infrastructure may have failed in a ranked run."""

_COLUMNS = ("case_id", "repeat", *UNIT, "outcome", "valid", "fault", "loss", "floor", "credits", "R", "S")
_NUMBERS = ("loss", "floor", "credits", "R", "S")
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Aggregate:
    """The numbers of one run.

    Attributes:
        loss: decision loss, normalised units, invalid penalties included.
        credits: credits a case.
        R: normalised excess loss.
        S: score, lower is better.
        S_v: score of the valid episodes alone, weights renormalised; `None` without any.
        episodes: rows, the infrastructure's faults included.
        scored: rows that entered.
        valid: feasible plans.
        outcomes: episodes by outcome class, all five classes.
        faults: scored episodes by the named reason of their failure, most frequent first.
    """

    loss: float
    credits: float
    R: float
    S: float
    S_v: float | None
    episodes: int
    scored: int
    valid: int
    outcomes: Mapping[str, int]
    faults: Mapping[str, int]

    @property
    def infrastructure_share(self) -> float:
        """Share of episodes left out because the machinery failed."""
        return 1.0 - self.scored / self.episodes


def rows_frame(rows: Iterable[ResultRow]) -> pd.DataFrame:
    """Rows as a table.

    Args:
        rows: one row an episode.

    Returns:
        One row an episode, numbers as float64 (NaN for `infrastructure_error`), without answers and calls.

    Raises:
        DataError: a scored row lacks a number.
    """
    frame = pd.DataFrame([[getattr(row, name) for name in _COLUMNS] for row in rows], columns=list(_COLUMNS))
    frame = frame.astype({**dict.fromkeys(_NUMBERS, "float64"), "valid": "bool"})
    scores = frame.loc[frame["outcome"] != "infrastructure_error", list(_NUMBERS)]
    bad = ~np.isfinite(scores.to_numpy()).all(axis=1)
    if bad.any():
        case_id = frame.loc[scores.index[bad][0], "case_id"]
        raise DataError(f"case {case_id}: expected finite loss, floor, credits, R and S in a scored row; run it again")
    return frame


def scored(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows that enter averages."""
    return frame[frame["outcome"] != "infrastructure_error"]


def check_scores(frame: pd.DataFrame, sigma: Mapping[str, float], budget: int) -> None:
    """Recompute R and S of every row from its loss, floor and credits, Eq. (2).

    Args:
        frame: from `rows_frame`.
        sigma: scale of the excess loss by domain.
        budget: B.

    Raises:
        DataError: a row's numbers disagree: the file was edited, or written under another sigma or budget.
    """
    rows = scored(frame)
    if unknown := sorted(set(rows["domain"]) - set(sigma)):
        raise DataError(f"expected sigma for every domain of the rows, found none for {', '.join(unknown)}")
    R = (rows["loss"] - rows["floor"]) / rows["domain"].map(dict(sigma)).astype("float64")
    S = 0.5 * (R + rows["credits"] / budget)
    agree = np.isclose(R, rows["R"], _TOLERANCE, _TOLERANCE) & np.isclose(S, rows["S"], _TOLERANCE, _TOLERANCE)
    agree &= (rows["valid"] == (rows["outcome"] == "completed")).to_numpy()
    agree &= (rows["loss"] >= rows["floor"] - _TOLERANCE).to_numpy() & rows["credits"].between(0, budget).to_numpy()
    if not agree.all():
        row = rows[~agree].iloc[0]
        raise DataError(
            f"case {row['case_id']}, repeat {row['repeat']}: outcome, loss, floor and credits do not give the R and S "
            f"that its row states ({row['R']:g}, {row['S']:g}); the rows were changed, run them again"
        )


def cohort_shares(frame: pd.DataFrame, weights: Mapping[str, float], *, partial: bool = False) -> dict[str, float]:
    """Weights that sum to 1 over the cohorts with scored rows.

    Args:
        frame: from `rows_frame`.
        weights: weight of each cohort of the test index.
        partial: the rows are a subset of the index: renormalise over the cohorts present or, where one of them has no
            weight (those of the train and calibration splits), weigh all equally. Such a number is never ranked.

    Raises:
        ConfigError: no row was scored; or `partial` is false and the cohorts are not exactly those of the weights.
    """
    present = sorted(set(scored(frame)["cohort"]))
    if not present:
        raise ConfigError(f"expected scored episodes, found none among {len(frame)}; resume the run")
    if not partial and set(present) != set(weights):
        lost, extra = sorted(set(weights) - set(present)), sorted(set(present) - set(weights))
        parts = [f"no scored episode of {', '.join(lost)}"] if lost else []
        parts += [f"episodes of {', '.join(extra)}, which has no weight"] if extra else []
        raise ConfigError(f"expected episodes of every cohort of the test index, found {' and '.join(parts)}")
    if not set(present) <= set(weights):
        return dict.fromkeys(present, 1.0 / len(present))
    total = sum(weights[name] for name in present)
    if not total > 0:
        raise ConfigError(f"expected cohort weights with a sum > 0, found {dict(weights)}")
    return {name: weights[name] / total for name in present}


def case_means(frame: pd.DataFrame) -> pd.DataFrame:
    """Means over the repeats of each case, scored rows only: indexed by (cohort, domain, group, lead, case)."""
    rows = scored(frame).sort_values(["case_id", "repeat"])  # sums in one order, whatever the order of the rows
    return rows.groupby([*UNIT, "case_id"])[list(METRICS)].mean()


def unit_means(cases: pd.DataFrame) -> pd.DataFrame:
    """Means over the dates of each unit, from `case_means`: indexed by (cohort, domain, group, lead)."""
    return cases.groupby(level=list(UNIT)).mean()


def index_mean(units: pd.DataFrame, shares: Mapping[str, float]) -> dict[str, float]:
    """Mean over the units of each cohort, then over cohorts.

    Args:
        units: from `unit_means`.
        shares: weight of each cohort of the units, renormalised here over those present.

    Returns:
        One number a metric.
    """
    cohorts = units.groupby(level="cohort").mean()
    weights = np.array([shares[str(name)] for name in cohorts.index])
    total = (weights / weights.sum()) @ cohorts.to_numpy()
    return dict(zip(METRICS, total.tolist(), strict=True))


def aggregate(frame: pd.DataFrame, weights: Mapping[str, float], *, partial: bool = False) -> Aggregate:
    """The numbers of one run (FWBench section 3.4).

    Args:
        frame: from `rows_frame`.
        weights: weight of each cohort of the test index.
        partial: see `cohort_shares`.

    Raises:
        ConfigError: see `cohort_shares`.
    """
    shares = cohort_shares(frame, weights, partial=partial)
    rows = scored(frame)
    valid = rows[rows["valid"]]
    outcomes = Counter(frame["outcome"])
    faults = Counter(rows.loc[~rows["valid"], "fault"].fillna("unnamed"))
    return Aggregate(
        **index_mean(unit_means(case_means(frame)), shares),
        S_v=index_mean(unit_means(case_means(valid)), shares)["S"] if len(valid) else None,
        episodes=len(frame),
        scored=len(rows),
        valid=len(valid),
        outcomes={name: outcomes[name] for name in OUTCOMES},
        faults=dict(sorted(faults.items(), key=lambda item: (-item[1], item[0]))),
    )


def breakdown(frame: pd.DataFrame) -> pd.DataFrame:
    """The same means for each cohort and lead, in which each group is equal.

    Args:
        frame: from `rows_frame`.

    Returns:
        One row a cohort and lead, sorted: `cohort`, `family`, `groups`, `episodes`, `scored`, `valid`, the metrics and
        `S_v` (NaN without a valid episode).
    """
    keys = ["cohort", "family"]
    rows = scored(frame)
    units = unit_means(case_means(frame))
    valid = unit_means(case_means(rows[rows["valid"]]))
    by_key = units.groupby(level=keys)
    columns = {
        "groups": by_key.size(),
        "episodes": frame.groupby(keys).size(),
        "scored": rows.groupby(keys).size(),
        "valid": rows.groupby(keys)["valid"].sum(),
    }
    table = pd.DataFrame(columns).fillna(0).astype("int64")
    table = table.join(by_key.mean()).join(valid["S"].groupby(level=keys).mean().rename("S_v"))
    return table.sort_index().reset_index()
