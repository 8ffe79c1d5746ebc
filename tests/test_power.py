"""Repeats (flips, pass^k) and the minimum detectable difference."""

import itertools
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_runs import WEIGHTS, Result, Subject, config_of, result_row, subjects, write_run

from castgym.data.errors import ConfigError
from castgym.evaluation.aggregate import case_means, cohort_shares, index_mean, rows_frame, unit_means
from castgym.evaluation.bootstrap import paired_intervals, resampled_means
from castgym.evaluation.power import case_weights, detectable_effect
from castgym.evaluation.repeats import pair_disagreement, pass_power, repeatability, winner_flips

CASES = subjects()


@given(
    st.integers(1, 7).flatmap(lambda n: st.tuples(st.lists(st.booleans(), min_size=n, max_size=n), st.integers(1, n)))
)
def test_pass_power_is_the_share_of_subsets_without_a_failure(drawn: tuple[list[bool], int]) -> None:
    outcomes, k = drawn
    subsets = list(itertools.combinations(outcomes, k))
    assert pass_power(sum(outcomes), len(outcomes), k) == pytest.approx(sum(map(all, subsets)) / len(subsets))


@given(st.lists(st.sampled_from("abc"), min_size=2, max_size=8))
def test_disagreement_is_the_share_of_pairs_that_differ(items: list[str]) -> None:
    pairs = list(itertools.combinations(items, 2))
    expected = sum(a != b for a, b in pairs) / len(pairs)
    assert pair_disagreement({name: items.count(name) for name in set(items)}) == pytest.approx(expected)


@pytest.mark.parametrize(("c", "n", "k"), [(3, 2, 1), (-1, 2, 1), (1, 2, 0), (1, 2, 3)])
def test_impossible_counts_are_refused(c: int, n: int, k: int) -> None:
    with pytest.raises(ValueError, match="expected 0 <= c <= n"):
        pass_power(c, n, k)


def test_repeatability_of_a_hand_worked_run(tmp_path: Path) -> None:
    """Four cases, three repeats: always valid, valid twice, never valid, and one that lost two repeats."""
    cases = subjects(groups=1, dates=1)

    def decide(case: Subject, repeat: int) -> Result:
        if case.number == 0:
            return Result(0.05 + 0.01 * repeat, plan=(repeat,) * 8)
        if case.number == 1:
            return Result(None if repeat == 2 else 0.05)
        if case.number == 2:
            return Result(None)
        return Result(lost=repeat > 0)

    found = repeatability(write_run(tmp_path, "a", decide, cases, repeats=3))
    assert (found.cases, found.left_out) == (3, 1)
    assert found.valid_flips == pytest.approx((0 + 2 / 3 + 0) / 3)
    assert found.cases_flipped == pytest.approx(1 / 3)
    assert found.plan_flips == pytest.approx((1 + 2 / 3 + 0) / 3)
    assert found.passes == {
        1: pytest.approx((1 + 2 / 3 + 0 + 1) / 4),  # the case with one repeat counts for k = 1 alone
        2: pytest.approx((1 + 1 / 3 + 0) / 3),
        3: pytest.approx((1 + 0 + 0) / 3),
    }
    S = [0.5 * (0.05 + 0.01 * repeat) / 0.05 for repeat in range(3)]
    flipped = [0.5, 0.5, 0.5 * 2.0 / 0.05]
    assert found.S_noise == pytest.approx(math.sqrt((np.var(S, ddof=1) + np.var(flipped, ddof=1) + 0) / 3))


def test_one_repeat_flips_nothing_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--repeats 2"):
        repeatability(write_run(tmp_path, "a", lambda case, repeat: Result()))


def test_the_winner_flips_where_repeats_disagree(tmp_path: Path) -> None:
    a = write_run(tmp_path, "a", lambda case, repeat: Result(0.05), repeats=2)
    # B wins every repeat of even cases, and one of two repeats of odd ones.
    b = write_run(tmp_path, "b", lambda case, repeat: Result(0.06 if case.number % 2 and repeat else 0.04), repeats=2)
    assert winner_flips(a, b) == pytest.approx(0.5)
    assert winner_flips(a, a) == 0.0


def frames_of(rng: np.random.Generator, groups: int, effect: float = 0.0, repeats: int = 1) -> list[pd.DataFrame]:
    """Two policies whose differences have a part of the group, of the date and of the repeat."""
    cases = subjects(groups=groups, dates=2)
    by_group = {(case.domain, case.group_id): rng.normal(0, 0.010) for case in cases}
    by_case = {case.case_id: rng.normal(0, 0.012) for case in cases}
    frames = []
    for sign in (1, 0):
        rows = []
        for case in cases:
            shift = by_group[case.domain, case.group_id] + by_case[case.case_id]
            # S = excess / (2 sigma): the effect on S is the same in both domains.
            size = effect * 2 * (0.05 if case.domain == "electricity" else 0.04)
            for repeat in range(repeats):
                excess = 0.5 + sign * (shift + size) + rng.normal(0, 0.008)
                rows.append(result_row(case, Result(excess), repeat))
        frames.append(rows_frame(rows))
    return frames


def test_case_weights_give_the_aggregate() -> None:
    frame = frames_of(np.random.default_rng(0), 5)[0]
    frame = frame.drop(frame.index[[0, 7, 11]])  # units with other numbers of dates
    shares = cohort_shares(frame, WEIGHTS)
    cases = case_means(frame).reset_index()
    weights = case_weights(cases, shares)
    assert weights.sum() == pytest.approx(1.0)
    assert (weights * cases["S"]).sum() == pytest.approx(index_mean(unit_means(case_means(frame)), shares)["S"])


def test_the_standard_error_is_that_of_the_bootstrap() -> None:
    a, b = frames_of(np.random.default_rng(1), 40)
    found = detectable_effect(a, b, WEIGHTS)
    units = unit_means(case_means(a)) - unit_means(case_means(b))
    drawn = resampled_means(units, WEIGHTS, resamples=4000)[:, 3]
    assert found.standard_error == pytest.approx(drawn.std(), rel=0.05)
    assert found.effect == pytest.approx((1.959964 + 0.841621) * found.standard_error, rel=1e-5)
    assert found.repeat_share is None
    assert found.groups == {"cycle_hire": 40, "electricity": 40}


def test_more_groups_and_more_repeats_shrink_it() -> None:
    a, b = frames_of(np.random.default_rng(2), 20, repeats=2)
    now = detectable_effect(a, b, WEIGHTS)
    four = detectable_effect(a, b, WEIGHTS, groups={"cycle_hire": 80, "electricity": 80})
    assert four.effect == pytest.approx(now.effect / 2)
    more = detectable_effect(a, b, WEIGHTS, repeats=8)
    assert more.effect < now.effect
    assert now.repeat_share is not None and more.repeat_share is not None
    assert 0 < more.repeat_share < now.repeat_share < 1
    assert detectable_effect(a, b, WEIGHTS, power=0.95).effect > now.effect


def test_a_true_effect_of_that_size_is_found_as_often_as_promised() -> None:
    pilot = detectable_effect(
        *frames_of(np.random.default_rng(3), 400), WEIGHTS, groups={"electricity": 15, "cycle_hire": 15}
    )
    found = 0
    for seed in range(100):
        a, b = frames_of(np.random.default_rng([4, seed]), 15, effect=pilot.effect)
        found += paired_intervals(a, b, WEIGHTS, resamples=400, seed=seed)["S"].excludes_zero
    assert 70 <= found <= 93  # 80 expected; percentile intervals of 15 groups are a little narrow


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "mse"}, "expected a metric"),
        ({"groups": {"water": 5}}, "domains of cycle_hire, electricity, found water=5"),
        ({"groups": {"electricity": 1}}, "electricity=1"),
        ({"repeats": 3}, "the pilot runs have one"),
        ({"power": 0.2}, "a power within"),
    ],
)
def test_plans_that_cannot_be_judged_are_refused(options: dict[str, object], message: str) -> None:
    a, b = frames_of(np.random.default_rng(5), 4)
    with pytest.raises(ConfigError, match=message):
        detectable_effect(a, b, WEIGHTS, **options)  # type: ignore[arg-type]


def test_pilots_over_other_cases_are_refused() -> None:
    a, b = frames_of(np.random.default_rng(6), 4)
    with pytest.raises(ConfigError, match="the same cases"):
        detectable_effect(a, b.iloc[1:], WEIGHTS)


def test_config_helper_is_consistent() -> None:
    assert config_of("a", CASES).n_cases == len(CASES) == 32
