"""The bootstrap against a slow re-implementation, its coverage, and the comparisons that it refuses."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from castgym.data.errors import ConfigError
from castgym.evaluation.aggregate import METRICS, aggregate, case_means, unit_means
from castgym.evaluation.bootstrap import (
    case_set_difference,
    compare_runs,
    draw_counts,
    own_intervals,
    paired_intervals,
    resampled_means,
)
from castgym.evaluation.rows import ResultRow
from castgym.evaluation.runs import Run, RunConfig, case_ids_digest, open_run

WEIGHTS = {"winter": 0.2, "july": 0.3, "may": 0.5}
COHORTS = {"winter": ("electricity", "ABCDE"), "july": ("electricity", "BCDEFG"), "may": ("cycle_hire", "STUV")}


def frame(rng: np.random.Generator, *, dates: int = 3, repeats: int = 1) -> pd.DataFrame:
    """Random results; groups are missing from some cohorts, and some dates from some groups."""
    rows = []
    for cohort, (domain, groups) in COHORTS.items():
        for position, group in enumerate(groups):
            for family in ("day_ahead", "week_ahead"):
                for date in range(dates - position % 2):
                    for repeat in range(repeats):
                        case_id = f"{group}-{cohort}-{date}-{family}"
                        rows.append((case_id, repeat, cohort, domain, group, family, *rng.gamma(2.0, size=4)))
    table = pd.DataFrame(rows, columns=["case_id", "repeat", "cohort", "domain", "group_id", "family", *METRICS])
    return table.assign(outcome="completed", valid=True)


def another(table: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Other results on the same cases."""
    return table.assign(**{metric: rng.gamma(2.0, size=len(table)) for metric in METRICS})


def slow_aggregate(table: pd.DataFrame, clusters: list[tuple[str, str]], metric: str) -> float:
    """The aggregate of a list of clusters, each with its multiplicity, by plain loops."""
    dates: dict[tuple[str, str, str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for item in table.to_dict("records"):
        unit = (item["cohort"], item["domain"], item["group_id"], item["family"])
        dates[unit][item["case_id"]].append(item[metric])
    cohorts: dict[str, list[float]] = defaultdict(list)
    for domain, group in clusters:
        for (cohort, unit_domain, unit_group, _), cases in dates.items():
            if (unit_domain, unit_group) == (domain, group):
                cohorts[cohort].append(float(np.mean([np.mean(repeats) for repeats in cases.values()])))
    return sum(WEIGHTS[cohort] * float(np.mean(values)) for cohort, values in cohorts.items())


def slow_draws(resamples: int, seed: int) -> list[list[tuple[str, str]]]:
    """Clusters of each resample, drawn one domain after the other."""
    rng = np.random.default_rng(seed)
    groups = {"cycle_hire": "STUV", "electricity": "ABCDEFG"}
    drawn = {domain: rng.integers(0, len(names), (resamples, len(names))) for domain, names in groups.items()}
    return [
        [(domain, names[index]) for domain, names in groups.items() for index in drawn[domain][resample]]
        for resample in range(resamples)
    ]


def test_the_differences_agree_with_plain_loops() -> None:
    rng = np.random.default_rng(4)
    a = frame(rng, repeats=2)
    b = another(a, rng)
    found = paired_intervals(a, b, WEIGHTS, resamples=60, seed=7)
    assert (found.cases, found.left_out, found.resamples) == (a["case_id"].nunique(), 0, 60)
    every = sorted({(item["domain"], item["group_id"]) for item in a.to_dict("records")})
    for metric in METRICS:
        differences = [
            slow_aggregate(a, drawn, metric) - slow_aggregate(b, drawn, metric) for drawn in slow_draws(60, 7)
        ]
        assert found[metric].estimate == pytest.approx(
            slow_aggregate(a, every, metric) - slow_aggregate(b, every, metric), abs=1e-12
        )
        assert found[metric].low == pytest.approx(np.quantile(differences, 0.025), abs=1e-12)
        assert found[metric].high == pytest.approx(np.quantile(differences, 0.975), abs=1e-12)


def test_every_resample_agrees_with_plain_loops() -> None:
    a = frame(np.random.default_rng(1))
    found = resampled_means(unit_means(case_means(a)), WEIGHTS, resamples=80, seed=3)
    slow = [[slow_aggregate(a, drawn, metric) for metric in METRICS] for drawn in slow_draws(80, 3)]
    np.testing.assert_allclose(found, slow, rtol=1e-12)


def test_the_estimates_are_the_aggregates() -> None:
    rng = np.random.default_rng(2)
    a = frame(rng).assign(fault=None)
    b = another(a, rng)
    own, paired = own_intervals(a, WEIGHTS, resamples=50), paired_intervals(a, b, WEIGHTS, resamples=50)
    numbers_a, numbers_b = aggregate(a, WEIGHTS), aggregate(b, WEIGHTS)
    for metric in METRICS:
        assert own[metric].estimate == pytest.approx(getattr(numbers_a, metric))
        assert paired[metric].estimate == pytest.approx(getattr(numbers_a, metric) - getattr(numbers_b, metric))
        assert own[metric].low < own[metric].estimate < own[metric].high


def test_counts_keep_the_size_of_each_domain() -> None:
    counts = draw_counts([4, 7], 500, 0)
    assert counts.shape == (500, 11)
    assert (counts[:, :4].sum(axis=1) == 4).all()
    assert (counts[:, 4:].sum(axis=1) == 7).all()
    np.testing.assert_allclose(counts.mean(axis=0), 1.0, atol=0.15)


def test_the_seed_alone_determines_the_intervals() -> None:
    rng = np.random.default_rng(5)
    a = frame(rng)
    b = another(a, rng)
    first = paired_intervals(a, b, WEIGHTS, resamples=200)
    assert first == paired_intervals(a, b, WEIGHTS, resamples=200, seed=1701)
    assert first != paired_intervals(a, b, WEIGHTS, resamples=200, seed=1702)


def test_the_order_of_rows_does_not_change_a_bit() -> None:
    rng = np.random.default_rng(6)
    a = frame(rng, repeats=2)
    b = another(a, rng)
    shuffled = paired_intervals(
        a.sample(frac=1, random_state=1), b.sample(frac=1, random_state=2), WEIGHTS, resamples=99
    )
    assert shuffled == paired_intervals(a, b, WEIGHTS, resamples=99)
    assert own_intervals(a.sample(frac=1, random_state=3), WEIGHTS, resamples=99) == own_intervals(
        a, WEIGHTS, resamples=99
    )


def test_pairing_cancels_what_both_policies_share() -> None:
    a = frame(np.random.default_rng(8))
    b = a.assign(S=a["S"] - 0.25)
    interval = paired_intervals(a, b, WEIGHTS, resamples=200)["S"]
    assert (interval.low, interval.high) == pytest.approx((0.25, 0.25))
    assert interval.excludes_zero
    same = paired_intervals(a, a, WEIGHTS, resamples=200)["S"]
    assert (same.estimate, same.low, same.high) == (0.0, 0.0, 0.0)
    assert not same.excludes_zero


def test_swapping_the_policies_mirrors_the_interval() -> None:
    rng = np.random.default_rng(9)
    a = frame(rng)
    b = another(a, rng)
    one, other = paired_intervals(a, b, WEIGHTS, resamples=200), paired_intervals(b, a, WEIGHTS, resamples=200)
    assert (one["S"].estimate, one["S"].low, one["S"].high) == pytest.approx(
        (-other["S"].estimate, -other["S"].high, -other["S"].low)
    )


def test_intervals_cover_the_truth_about_as_often_as_stated() -> None:
    """Groups differ more than dates within them: taking cases for independent would give too short intervals."""
    rng = np.random.default_rng(10)
    groups, dates, truth, covered, trials = 20, 6, 0.3, 0, 80
    index = pd.DataFrame(
        [
            (f"{domain}{group}", domain, date)
            for domain in ("x", "y")
            for group in range(groups)
            for date in range(dates)
        ],
        columns=["group_id", "domain", "date"],
    )
    index = index.assign(
        case_id=index["group_id"] + "-" + index["date"].astype(str),
        repeat=0,
        cohort=index["domain"],
        family="day_ahead",
        outcome="completed",
        valid=True,
        **dict.fromkeys(METRICS, 0.0),
    )
    for trial in range(trials):
        effect = np.repeat(rng.normal(truth, 1.0, 2 * groups), dates)
        a = index.assign(S=effect + rng.normal(0, 0.5, len(index)))
        interval = paired_intervals(a, index, {"x": 0.5, "y": 0.5}, resamples=300, seed=trial)["S"]
        covered += interval.low <= truth <= interval.high
    assert 0.87 <= covered / trials <= 0.99


def test_resamples_without_a_cohort_are_left_out_and_counted() -> None:
    a = frame(np.random.default_rng(11))
    rare = a[(a["cohort"] != "winter") | (a["group_id"] == "A")]  # one group of seven: absent from a third of the draws
    found = own_intervals(rare, WEIGHTS, resamples=1000)
    assert 1000 * 0.6 < found.resamples < 1000 * 0.72  # 1 - (6/7)**7 = 0.66
    assert np.isfinite([found["S"].low, found["S"].high]).all()


def test_a_case_that_the_infrastructure_failed_is_left_out_for_both() -> None:
    rng = np.random.default_rng(12)
    a = frame(rng)
    b = another(a, rng)
    lost = a["case_id"] == a["case_id"].iloc[0]
    broken = a.assign(outcome=a["outcome"].where(~lost, "infrastructure_error"))
    broken.loc[lost, list(METRICS)] = np.nan
    found = paired_intervals(broken, b, WEIGHTS, resamples=60)
    assert (found.cases, found.left_out) == (a["case_id"].nunique() - 1, 1)
    expected = paired_intervals(a[~lost], b[~lost], WEIGHTS, resamples=60)
    assert found.by_metric == expected.by_metric


def test_one_group_in_a_domain_is_refused() -> None:
    a = frame(np.random.default_rng(13))
    with pytest.raises(ConfigError, match="at least two groups in each domain, found one in cycle_hire"):
        own_intervals(a[(a["domain"] != "cycle_hire") | (a["group_id"] == "S")], WEIGHTS, resamples=10)


def test_other_cases_are_refused() -> None:
    a = frame(np.random.default_rng(14))
    with pytest.raises(ConfigError, match="found 1 of the first only and 0 of the second only"):
        paired_intervals(a, a.iloc[1:], WEIGHTS, resamples=10)
    moved = a.assign(cohort=a["cohort"].where(a.index > 0, "july"))
    with pytest.raises(ConfigError, match="1 of the first only and 1 of the second only"):
        paired_intervals(a, moved, WEIGHTS, resamples=10)


def config(**changes: Any) -> RunConfig:
    fields: dict[str, Any] = {
        "policy": "a",
        "hindsight": False,
        "case_set": "set",
        "case_source": "embedded",
        "fingerprint": "f" * 64,
        "tariff": "t" * 64,
        "selection": {"split": "test"},
        "case_ids": case_ids_digest(f"{group}-1-day_ahead" for group in "ABCD"),
        "n_cases": 4,
        "whole_index": True,
        "cohort_weights": {"winter": 1.0},
        "sigma": {"electricity": 0.05},
        "budget": 1000,
        "pool": "full",
        "answer_form": "decisions",
        "prompt_mode": "memory",
        "repeats": 1,
        "seed": 0,
        "version": "0",
        "options": {},
    }
    return RunConfig(**{**fields, **changes})


def run(path: Path, settings: RunConfig, scores: list[float]) -> Run:
    rows = [
        ResultRow(
            f"{group}-1-day_ahead", 0, group, "electricity", "day_ahead", "winter", "completed", True, None,
            S / 10, 0.0, 0, 2 * S, S, (0,) * 8, None, (), 0.1,
        )
        for group, S in zip("ABCD", scores, strict=False)
    ]  # fmt: skip
    with open_run(path, settings) as writer:
        writer.append(rows)
    return Run(path)


def test_runs_over_the_same_cases_compare(tmp_path: Path) -> None:
    a = run(tmp_path / "a", config(), [1.0, 2.0, 3.0, 4.0])
    b = run(tmp_path / "b", config(policy="b"), [1.5, 2.5, 3.5, 4.5])
    assert compare_runs(a, b, resamples=100)["S"].high == pytest.approx(-0.5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tariff": "u" * 64, "fingerprint": "g" * 64}, "built with another tariff .*`tariff` differs"),
        ({"sigma": {"electricity": 0.06}, "fingerprint": "g" * 64}, "with another sigma"),
        ({"cohort_weights": {"winter": 2.0}, "fingerprint": "g" * 64}, "other cohort weights"),
        ({"fingerprint": "g" * 64}, "another case set .*ffffffffffff and gggggggggggg"),
        ({"case_ids": case_ids_digest("EFGH")}, "different cases of the set"),
    ],
)
def test_runs_over_other_cases_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    a = run(tmp_path / "a", config(), [1.0, 2.0, 3.0, 4.0])
    b = run(tmp_path / "b", config(policy="b", **changes), [1.0, 2.0, 3.0, 4.0])
    with pytest.raises(ConfigError, match=message):
        compare_runs(a, b)


def test_rows_of_renamed_cases_are_refused(tmp_path: Path) -> None:
    a = run(tmp_path / "a", config(case_ids=case_ids_digest("EFGH")), [1.0, 2.0, 3.0, 4.0])
    with pytest.raises(ConfigError, match="other cases than"):
        compare_runs(a, a)


def test_an_incomplete_run_is_refused(tmp_path: Path) -> None:
    a = run(tmp_path / "a", config(), [1.0, 2.0, 3.0])
    with pytest.raises(ConfigError, match="1 of 4 episodes are missing: resume it with"):
        compare_runs(a, run(tmp_path / "b", config(policy="b"), [1.0, 2.0, 3.0, 4.0]))


def test_rows_of_other_episodes_are_refused(tmp_path: Path) -> None:
    a = run(tmp_path / "a", config(n_cases=2, repeats=2), [1.0, 2.0, 3.0, 4.0])
    with pytest.raises(ConfigError, match="found 4 rows of 4 cases and 1 repeats"):
        compare_runs(a, a)


def test_the_same_set_has_no_difference() -> None:
    assert case_set_difference(config(), replace(config(), policy="b", case_source="/elsewhere", seed=5)) is None
