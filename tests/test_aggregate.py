"""The aggregate: hand-worked numbers, the protocol's published means, and what it must not depend on."""

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from castgym.data.errors import ConfigError, DataError
from castgym.evaluation.aggregate import aggregate, breakdown, check_scores, cohort_shares, rows_frame
from castgym.evaluation.rows import ResultRow

BUDGET = 113_726
SIGMA = {"electricity": 0.05, "cycle_hire": 0.04}
WEIGHTS = {"winter": 0.25, "may": 0.75}
PROTOCOL_WEIGHTS = {
    "electricity-july": 1 / 6,
    "electricity-winter": 1 / 6,
    "electricity-august": 1 / 6,
    "cycle-hire-may": 1 / 2,
}


def row(
    group: str,
    date: int,
    loss: float,
    *,
    cohort: str = "winter",
    family: str = "day_ahead",
    domain: str = "electricity",
    repeat: int = 0,
    spent: int = 0,
    floor: float = 0.0,
    outcome: Any = "completed",
    fault: str | None = None,
) -> ResultRow:
    """A row whose R and S follow from loss, floor and credits."""
    failed = outcome == "infrastructure_error"
    R = (loss - floor) / SIGMA[domain]
    return ResultRow(
        case_id=f"{group}-{date}-{family}-{cohort}",
        repeat=repeat,
        group_id=group,
        domain=domain,
        family=family,
        cohort=cohort,
        outcome=outcome,
        valid=outcome == "completed",
        fault=fault,
        loss=None if failed else loss,
        floor=None if failed else floor,
        credits=None if failed else spent,
        R=None if failed else R,
        S=None if failed else 0.5 * (R + spent / BUDGET),
        grid_index=(0,) * 8 if outcome == "completed" else None,
        answer=None,
        calls=(),
        seconds=0.1,
        error="machine" if failed else None,
    )


def may(group: str, date: int, loss: float, **options: Any) -> ResultRow:
    return row(group, date, loss, cohort="may", domain="cycle_hire", **options)


def test_dates_then_units_then_cohorts_are_averaged() -> None:
    rows = [row("A", 1, 0.1), row("A", 2, 0.3), row("B", 1, 0.6), may("S", 1, 1.0)]
    found = aggregate(rows_frame(rows), WEIGHTS)
    # winter: ((0.1 + 0.3) / 2 + 0.6) / 2 = 0.4; then 0.4 / 4 + 1.0 * 3 / 4.
    assert found.loss == pytest.approx(0.85)
    assert pytest.approx(0.25 * 0.4 / 0.05 + 0.75 * 1.0 / 0.04) == found.R
    assert pytest.approx(found.R / 2) == found.S
    assert found.S_v == found.S
    assert (found.episodes, found.scored, found.valid) == (4, 4, 4)


def test_each_lead_of_a_group_is_a_unit() -> None:
    rows = [row("A", 1, 0.1), row("A", 1, 0.4, family="week_ahead"), row("B", 1, 0.7), may("S", 1, 0.0)]
    assert aggregate(rows_frame(rows), WEIGHTS).loss == pytest.approx(0.25 * (0.1 + 0.4 + 0.7) / 3)


def test_credits_are_averaged_like_the_loss() -> None:
    rows = [row("A", 1, 0.0, spent=100), row("A", 2, 0.0, spent=300), row("B", 1, 0.0), may("S", 1, 0.0, spent=1000)]
    found = aggregate(rows_frame(rows), WEIGHTS)
    assert found.credits == pytest.approx(0.25 * 100 + 0.75 * 1000)
    assert pytest.approx(0.5 * found.credits / BUDGET) == found.S


def test_repeats_of_a_case_weigh_as_one_date() -> None:
    once = [row("A", 1, 0.2), row("A", 2, 0.6), may("S", 1, 1.0)]
    more = [*once, row("A", 1, 0.4, repeat=1), row("A", 1, 0.0, repeat=2)]
    assert aggregate(rows_frame(more), WEIGHTS).loss == pytest.approx(aggregate(rows_frame(once), WEIGHTS).loss)


@pytest.mark.parametrize(
    ("july", "winter", "august", "cycle", "published"),
    [
        (0.052710, 0.076826, 0.046517, 0.574355, 0.3165),  # hour_of_day
        (0.062911, 0.074643, 0.051571, 0.580908, 0.3220),  # weekday
        (0.051726, 0.066546, 0.044037, 0.563222, 0.3087),  # Chronos-Bolt Tiny
        (0.049270, 0.068910, 0.045788, 0.555382, 0.3050),  # Chronos-2
        (0.016030, 0.014866, 0.017156, 0.519151, 0.2676),  # perfect demand
    ],
)
def test_published_cohort_losses_give_the_published_loss(
    july: float, winter: float, august: float, cycle: float, published: float
) -> None:
    rows = [
        row("A", 1, july, cohort="electricity-july"),
        row("A", 1, winter, cohort="electricity-winter"),
        row("A", 1, august, cohort="electricity-august"),
        row("S", 1, cycle, cohort="cycle-hire-may", domain="cycle_hire"),
    ]
    assert round(aggregate(rows_frame(rows), PROTOCOL_WEIGHTS).loss, 4) == published


def test_invalid_rows_keep_their_penalty_and_leave_s_v_alone() -> None:
    rows = [
        row("A", 1, 0.1),
        row("A", 2, 3.0, outcome="invalid_submission", fault="ramp_exceeded"),
        row("B", 1, 3.0, outcome="budget_exhausted", fault="budget_exhausted"),
        may("S", 1, 0.2),
        may("T", 1, 0.4),
    ]
    found = aggregate(rows_frame(rows), WEIGHTS)
    assert found.loss == pytest.approx(0.25 * (1.55 + 3.0) / 2 + 0.75 * 0.3)
    # Valid: winter has only the first date of A, may both stations.
    assert found.S_v == pytest.approx(0.5 * (0.25 * 0.1 / 0.05 + 0.75 * 0.3 / 0.04))
    assert found.valid == 3
    assert found.outcomes == {
        "completed": 3,
        "invalid_submission": 1,
        "budget_exhausted": 1,
        "truncated": 0,
        "infrastructure_error": 0,
    }
    assert found.faults == {"budget_exhausted": 1, "ramp_exceeded": 1}


def test_s_v_renormalises_the_weights_of_cohorts_with_valid_cases() -> None:
    rows = [row("A", 1, 0.1), may("S", 1, 3.0, outcome="truncated", fault="truncated")]
    assert aggregate(rows_frame(rows), WEIGHTS).S_v == pytest.approx(0.5 * 0.1 / 0.05)


def test_s_v_is_none_without_a_valid_case() -> None:
    rows = [row("A", 1, 2.0, outcome="truncated"), may("S", 1, 3.0, outcome="truncated")]
    found = aggregate(rows_frame(rows), WEIGHTS)
    assert found.S_v is None
    assert found.faults == {"unnamed": 2}


def test_infrastructure_errors_are_counted_and_not_scored() -> None:
    good = [row("A", 1, 0.1), row("B", 1, 0.5), may("S", 1, 0.2)]
    lost = [row("A", 2, 0.0, outcome="infrastructure_error"), row("C", 1, 0.0, outcome="infrastructure_error")]
    found, without = aggregate(rows_frame([*good, *lost]), WEIGHTS), aggregate(rows_frame(good), WEIGHTS)
    assert (found.loss, found.R, found.S, found.S_v) == (without.loss, without.R, without.S, without.S_v)
    assert (found.episodes, found.scored) == (5, 3)
    assert found.infrastructure_share == pytest.approx(0.4)
    assert found.outcomes["infrastructure_error"] == 2


def test_a_missing_cohort_is_refused() -> None:
    with pytest.raises(ConfigError, match="no scored episode of may"):
        aggregate(rows_frame([row("A", 1, 0.1)]), WEIGHTS)
    lost = [row("A", 1, 0.1), may("S", 1, 0.2, outcome="infrastructure_error")]
    with pytest.raises(ConfigError, match="no scored episode of may"):
        aggregate(rows_frame(lost), WEIGHTS)


def test_a_cohort_without_weight_is_refused() -> None:
    rows = [row("A", 1, 0.1), may("S", 1, 0.2), row("A", 1, 0.1, cohort="october")]
    with pytest.raises(ConfigError, match="october, which has no weight"):
        aggregate(rows_frame(rows), WEIGHTS)


def test_a_subset_renormalises_or_weighs_unknown_cohorts_equally() -> None:
    assert cohort_shares(rows_frame([row("A", 1, 0.1)]), WEIGHTS, partial=True) == {"winter": 1.0}
    train = [row("A", 1, 0.1), row("A", 1, 0.3, cohort="october")]
    assert cohort_shares(rows_frame(train), WEIGHTS, partial=True) == {"october": 0.5, "winter": 0.5}


def test_nothing_scored_is_refused() -> None:
    rows = [row("A", 1, 0.1, outcome="infrastructure_error")]
    with pytest.raises(ConfigError, match="expected scored episodes, found none among 1"):
        aggregate(rows_frame(rows), WEIGHTS, partial=True)


def test_a_scored_row_without_numbers_is_refused() -> None:
    with pytest.raises(DataError, match="case A-1-day_ahead-winter: expected finite loss"):
        rows_frame([replace(row("A", 1, 0.1), S=None)])


def test_scores_that_do_not_follow_from_their_parts_are_found() -> None:
    rows = [
        row("A", 1, 0.1, spent=8452, floor=0.02),
        may("S", 1, 0.2),
        row("B", 1, 9.0, outcome="infrastructure_error"),
    ]
    check_scores(rows_frame(rows), SIGMA, BUDGET)
    for changed in (
        replace(rows[0], S=0.123),
        replace(rows[0], loss=0.09),
        replace(rows[0], credits=0),
        replace(rows[0], valid=False),
    ):
        with pytest.raises(DataError, match="A-1-day_ahead-winter, repeat 0"):
            check_scores(rows_frame([changed, *rows[1:]]), SIGMA, BUDGET)
    with pytest.raises(DataError, match="A-1-day_ahead-winter"):
        check_scores(rows_frame(rows), {**SIGMA, "electricity": 0.06}, BUDGET)
    with pytest.raises(DataError, match="none for cycle_hire"):
        check_scores(rows_frame(rows), {"electricity": 0.05}, BUDGET)


def test_breakdown_gives_the_unit_means_of_each_cohort_and_lead() -> None:
    rows = [
        row("A", 1, 0.1),
        row("A", 2, 0.3),
        row("B", 1, 0.6),
        row("B", 1, 5.0, family="week_ahead", outcome="invalid_submission"),
        may("S", 1, 1.0, spent=10),
        may("S", 2, 0.0, outcome="infrastructure_error"),
    ]
    table = breakdown(rows_frame(rows)).set_index(["cohort", "family"])
    assert list(table.index) == [("may", "day_ahead"), ("winter", "day_ahead"), ("winter", "week_ahead")]
    assert table.loc[("winter", "day_ahead"), "loss"] == pytest.approx(0.4)
    counts = table[["groups", "episodes", "scored", "valid"]].to_numpy().tolist()
    assert counts == [[1, 2, 1, 1], [2, 3, 3, 3], [1, 1, 1, 0]]
    assert table.loc[("may", "day_ahead"), "credits"] == 10
    assert table["S_v"].isna().tolist() == [False, False, True]


@st.composite
def results(draw: st.DrawFn) -> list[ResultRow]:
    """Rows of both cohorts: unequal numbers of groups, leads, dates and repeats, some invalid, some lost."""
    rows = [row("A", 0, 0.25), may("S", 0, 0.5)]
    for make, groups in ((row, "ABC"), (may, "STU")):
        for group in groups[: draw(st.integers(0, 3))]:
            rows.extend(
                make(
                    group,
                    date,
                    draw(st.floats(0, 4)),
                    family=draw(st.sampled_from(["day_ahead", "week_ahead"])),
                    repeat=draw(st.integers(0, 2)),
                    spent=draw(st.integers(0, BUDGET)),
                    outcome=draw(st.sampled_from(["completed", "truncated", "infrastructure_error"])),
                )
                for date in range(1, 1 + draw(st.integers(0, 3)))
            )
    return rows


@settings(max_examples=20, deadline=None)
@given(results(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_change_a_bit(rows: list[ResultRow], random: Any) -> None:
    shuffled = random.sample(rows, len(rows))
    assert aggregate(rows_frame(rows), WEIGHTS) == aggregate(rows_frame(shuffled), WEIGHTS)
    pd.testing.assert_frame_equal(breakdown(rows_frame(rows)), breakdown(rows_frame(shuffled)), check_exact=True)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 4), min_size=5, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_repeats_does_not_change_a_bit(losses: list[float], random: Any) -> None:
    rows = [row("A", 1, loss, repeat=repeat) for repeat, loss in enumerate(losses)]
    found = aggregate(rows_frame(rows), {"winter": 1.0})
    assert aggregate(rows_frame(random.sample(rows, len(rows))), {"winter": 1.0}) == found


@settings(max_examples=20, deadline=None)
@given(results(), st.integers(1, 3))
def test_more_dates_do_not_raise_a_groups_weight(rows: list[ResultRow], copies: int) -> None:
    """Every date of one group stands again under other dates: its unit's mean, and so everything, stays."""
    again = [
        replace(item, case_id=f"{item.case_id}-again{copy}")
        for item in rows
        if item.group_id == "A"
        for copy in range(copies)
    ]
    found, expected = aggregate(rows_frame([*rows, *again]), WEIGHTS), aggregate(rows_frame(rows), WEIGHTS)
    for name in ("loss", "credits", "R", "S", "S_v"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name))


@settings(max_examples=20, deadline=None)
@given(results())
def test_the_mean_score_is_the_score_of_the_means(rows: list[ResultRow]) -> None:
    found = aggregate(rows_frame(rows), WEIGHTS)
    assert pytest.approx(0.5 * (found.R + found.credits / BUDGET)) == found.S
