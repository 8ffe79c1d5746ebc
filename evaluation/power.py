"""The smallest difference that a comparison can show, before it is run.

The aggregate is a weighted sum of case differences d_i = S_A - S_B, and groups are independent, so to first order its
variance is a sum over groups of the squared sum of their influences (the linearisation of the ratio estimator that the
bootstrap resamples; Cochran, "Sampling Techniques", 3rd ed., section 6). Two earlier runs over some cases give these
influences; another number of groups or of repeats rescales them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import pandas as pd

from castgym.data.errors import ConfigError
from castgym.evaluation.aggregate import METRICS, UNIT, cohort_shares, scored
from castgym.evaluation.bootstrap import LEVEL

POWER = 0.8
"""The usual chance with which a difference of the detectable size should be found."""


@dataclass(frozen=True, slots=True)
class DetectableEffect:
    """What a planned comparison can show.

    Attributes:
        metric: `S`, `R`, `loss` or `credits`.
        effect: the minimum detectable difference: a true difference of this size gives an interval without zero with
            probability `power`.
        standard_error: of the planned difference.
        repeat_share: share of the planned variance that comes from the repeats' own noise and falls with more of them;
            `None` where the pilot has one repeat, so that it is not known.
        groups: planned groups of each domain.
        repeats: planned repeats.
        level: confidence level.
        power: probability.
    """

    metric: str
    effect: float
    standard_error: float
    repeat_share: float | None
    groups: Mapping[str, int]
    repeats: int
    level: float
    power: float


def detectable_effect(
    a: pd.DataFrame,
    b: pd.DataFrame,
    weights: Mapping[str, float],
    *,
    groups: Mapping[str, int] | None = None,
    repeats: int | None = None,
    metric: str = "S",
    level: float = LEVEL,
    power: float = POWER,
    partial: bool = False,
) -> DetectableEffect:
    """The minimum detectable difference of two policies, from earlier runs that stand for them.

    MDE = (z_(1 - alpha/2) + z_power) * SE, two-sided (Bloom, "Minimum detectable effects", 1995). With G_d groups of
    domain d planned for the pilot's g_d, and r repeats for its r_0,

        SE^2 = sum_d g_d / G_d * (V_d - N_d / r_0 + N_d / r)

    where V_d is the pilot's variance of the aggregate from domain d, and N_d the part of it that the repeats of a case
    cause, for one repeat. N_d is estimated where the pilot has two or more repeats.

    Args:
        a: rows of one policy, from `rows_frame`.
        b: rows of another over the same cases. Two policies that are alike in kind give the best guess; two that decide
            alike give too small a one.
        weights: weight of each cohort of the test index.
        groups: planned groups of each domain; the pilot's by default.
        repeats: planned repeats; the pilot's by default.
        metric: what is to be compared.
        level: confidence level.
        power: probability of finding the difference.
        partial: the rows are a subset of the index (see `cohort_shares`).

    Raises:
        ConfigError: the cases differ, a domain has fewer than two groups, an unknown metric or domain, or another
            number of repeats is planned and the pilot has one only.
    """
    if metric not in METRICS:
        raise ConfigError(f"expected a metric of {', '.join(METRICS)}, found {metric!r}")
    if not (0 < level < 1 and 0.5 <= power < 1):
        raise ConfigError(f"expected a level within (0, 1) and a power within [0.5, 1), found {level} and {power}")
    if set(a["case_id"]) != set(b["case_id"]):
        raise ConfigError("expected two pilot runs over the same cases: run both with the same selection")
    differences = _paired(a, b, metric)
    weighted = _influences(differences, cohort_shares(a, weights, partial=partial))
    pilot_repeats = int(differences["n"].max())
    planned = repeats or pilot_repeats
    if planned != pilot_repeats and pilot_repeats < 2:
        raise ConfigError(
            f"{planned} repeats are planned, but the pilot runs have one, which does not tell how much repeats differ: "
            "run a few cases with --repeats 2 or more"
        )
    counts = weighted.groupby("domain")["group_id"].nunique()
    if counts.min() < 2:
        raise ConfigError(f"expected at least two groups in each domain, found one in {counts.idxmin()}")
    wanted = {str(domain): int(count) for domain, count in counts.items()}
    for name, number in (groups or {}).items():
        if name not in wanted or number < 2:
            raise ConfigError(f"expected groups >= 2 for domains of {', '.join(wanted)}, found {name}={number}")
        wanted[name] = number
    variance, noise = 0.0, 0.0
    for domain, rows in weighted.groupby("domain"):
        size = int(counts[domain])
        sums = rows.groupby("group_id")["influence"].sum().to_numpy()
        between = size / (size - 1) * float(((sums - sums.mean()) ** 2).sum())
        own = float((rows["weight"] ** 2 * rows["noise"]).sum()) if pilot_repeats > 1 else 0.0
        scale = size / wanted[str(domain)]
        # Noise is estimated apart, so that the rest may come out negative by chance: then there is none.
        variance += scale * (max(between - own / pilot_repeats, 0.0) + own / planned)
        noise += scale * own / planned
    error = float(np.sqrt(variance))
    effect = float(NormalDist().inv_cdf((1 + level) / 2) + NormalDist().inv_cdf(power)) * error
    share = None if pilot_repeats < 2 else (noise / variance if variance > 0 else 0.0)
    return DetectableEffect(metric, effect, error, share, wanted, planned, level, power)


def _paired(a: pd.DataFrame, b: pd.DataFrame, metric: str) -> pd.DataFrame:
    """One row a case scored for both: mean difference, number of repeats, and variance between repeats."""
    keys = [*UNIT, "case_id"]
    parts = [scored(frame).groupby(keys)[metric].agg(["mean", "var", "size"]) for frame in (a, b)]
    common = parts[0].index.intersection(parts[1].index)
    first, second = (part.loc[common] for part in parts)
    # The policies' repeats are independent: the variance of a difference is the sum of both.
    noise = first["var"].fillna(0.0) + second["var"].fillna(0.0)
    repeats = np.minimum(first["size"], second["size"])
    table = pd.DataFrame({"d": first["mean"] - second["mean"], "noise": noise, "n": repeats})
    return table.reset_index()


def _influences(cases: pd.DataFrame, shares: Mapping[str, float]) -> pd.DataFrame:
    """Each case's weight in the aggregate, and its influence: the weight times its distance from its cohort's mean."""
    table = cases.assign(weight=case_weights(cases, shares))
    units = table.groupby(list(UNIT))["d"].transform("mean")
    sizes = table.groupby(list(UNIT))["d"].transform("size")
    cohort_mean = (units / sizes).groupby(table["cohort"]).transform("sum") / (1 / sizes).groupby(
        table["cohort"]
    ).transform("sum")
    return table.assign(influence=table["weight"] * (table["d"] - cohort_mean))


def case_weights(cases: pd.DataFrame, shares: Mapping[str, float]) -> pd.Series:
    """Weight of each case in the aggregate (FWBench section 3.4): share of its cohort / units / dates of its unit.

    Args:
        cases: one row a case with the columns of `UNIT`.
        shares: from `cohort_shares`.

    Returns:
        Weights that sum to 1, on the index of `cases`.
    """
    units = cases.drop_duplicates(list(UNIT)).groupby("cohort").size()
    dates = cases.groupby(list(UNIT))["cohort"].transform("size")
    total = sum(shares[str(name)] for name in units.index)
    share = cases["cohort"].map(lambda name: shares[str(name)] / total)
    weights: pd.Series = share / cases["cohort"].map(units) / dates
    return weights.astype("float64")
