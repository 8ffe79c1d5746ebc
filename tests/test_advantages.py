import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from castgym.data.errors import ConfigError, DataError
from castgym.training.advantages import STD_EPSILON, group_advantages, report_groups, row_weights

NAN = math.nan
returns_and_groups = st.lists(
    st.tuples(st.floats(-5, 5) | st.just(NAN), st.integers(0, 4)), min_size=1, max_size=40
).map(lambda rows: (np.array([r for r, _ in rows]), np.array([g for _, g in rows])))


def test_hand_worked_group():
    # mean 2, deviations -1 0 1, std with divisor n - 1 = 1
    advantages = group_advantages([1.0, 2.0, 3.0], [7, 7, 7])
    np.testing.assert_allclose(advantages, np.array([-1, 0, 1]) / (1 + 1e-4))


def test_hand_worked_groups_that_are_interleaved():
    # group a: 0, 4 -> mean 2, std sqrt(8); group b: -1, -1, 2 -> mean 0, std sqrt(3)
    advantages = group_advantages([0.0, -1.0, 4.0, -1.0, 2.0], ["a", "b", "a", "b", "b"])
    a, b = math.sqrt(8) + STD_EPSILON, math.sqrt(3) + STD_EPSILON
    np.testing.assert_allclose(advantages, [-2 / a, -1 / b, 2 / a, -1 / b, 2 / b])


def test_without_scaling_only_the_mean_is_taken_off():
    np.testing.assert_array_equal(group_advantages([1.0, 2.0, 6.0], [0, 0, 0], scale="none"), [-2, -1, 3])


def test_same_returns_have_advantage_zero_whatever_their_rounding():
    np.testing.assert_array_equal(group_advantages([0.1] * 3 + [0.1 + 1e-12], [1] * 4), np.zeros(4))


def test_a_failure_is_left_out_of_mean_and_std():
    advantages = group_advantages([1.0, NAN, 3.0], [0, 0, 0])
    np.testing.assert_array_equal(
        advantages, [*group_advantages([1.0, 3.0], [0, 0])[:1], 0.0, *group_advantages([1.0, 3.0], [0, 0])[1:]]
    )


def test_a_group_with_one_member_left_says_nothing():
    np.testing.assert_array_equal(group_advantages([5.0, NAN, 1.0, 2.0], [0, 0, 1, 1])[:2], [0, 0])


@given(returns_and_groups, st.randoms(use_true_random=False), st.sampled_from(["group", "none"]))
def test_a_permutation_permutes_the_advantages_bit_by_bit(data, random, scale):
    returns, groups = data
    order = list(range(len(returns)))
    random.shuffle(order)
    np.testing.assert_array_equal(
        group_advantages(returns[order], groups[order], scale), group_advantages(returns, groups, scale)[order]
    )


@given(returns_and_groups)
def test_labels_do_not_matter_and_each_group_sums_to_zero(data):
    returns, groups = data
    advantages = group_advantages(returns, groups)
    np.testing.assert_array_equal(advantages, group_advantages(returns, [f"g{9 - group}" for group in groups]))
    assert np.isfinite(advantages).all()
    for group in np.unique(groups):
        assert abs(advantages[groups == group].sum()) < 1e-9


@given(returns_and_groups, st.floats(-3, 3))
def test_a_constant_added_to_all_returns_changes_nothing(data, shift):
    returns, groups = data
    returns = np.round(returns, 2)  # so that sums of both stay exact enough
    np.testing.assert_allclose(group_advantages(returns + shift, groups), group_advantages(returns, groups), atol=1e-6)


def test_one_step_trajectories_get_trls_own_advantages():
    torch = pytest.importorskip("torch")
    utils = pytest.importorskip("trl.trainer.utils")
    rewards = torch.tensor(np.random.default_rng(0).normal(size=(6, 8)))
    rewards[2, 3] = torch.nan
    expected = (rewards - rewards.nanmean(1, keepdim=True)) / (utils.nanstd(rewards, dim=1)[:, None] + 1e-4)
    advantages = group_advantages(rewards.flatten().numpy(), np.repeat(np.arange(6), 8))
    np.testing.assert_allclose(
        advantages, torch.nan_to_num(expected, nan=0.0).flatten().numpy(), rtol=1e-6
    )  # TRL counts in float32


@pytest.mark.parametrize(
    ("returns", "groups", "scale", "error"),
    [
        ([1.0], [0], "batch", ConfigError),
        ([1.0, 2.0], [0], "group", DataError),
        ([[1.0]], [[0]], "group", DataError),
        ([math.inf, 1.0], [0, 0], "group", DataError),
    ],
)
def test_bad_input_is_refused(returns, groups, scale, error):
    with pytest.raises(error, match="expected"):
        group_advantages(returns, groups, scale)


def test_no_trajectories_have_no_advantages():
    assert group_advantages([], []).shape == (0,)
    assert math.isnan(report_groups([], []).std)


def test_the_report_says_what_can_be_learnt_from():
    #          varied    same      one left   none left
    returns = [0.0, 1.0, 2.0, 2.0, 3.0, NAN, NAN, NAN]
    report = report_groups(returns, [0, 0, 1, 1, 2, 2, 3, 3])
    np.testing.assert_array_equal(report.usable, [1, 1, 1, 1, 0, 0, 0, 0])
    np.testing.assert_array_equal(report.kept("keep"), report.usable)
    np.testing.assert_array_equal(report.kept("drop"), [1, 1, 0, 0, 0, 0, 0, 0])
    assert (report.left_out_share, report.dropped_share, report.zero_variance_share) == (3 / 8, 1 / 2, 1 / 4)
    assert report.std == pytest.approx(math.sqrt(0.5) / 2)


def test_weights_of_tokens_rows_and_trajectories():
    tokens, owners = [2, 4, 4, 0], [5, 5, 9, 9]
    np.testing.assert_array_equal(row_weights(tokens, owners, "token"), [1, 1, 1, 0])
    np.testing.assert_array_equal(row_weights(tokens, owners, "row"), [1 / 2, 1 / 4, 1 / 4, 0])
    np.testing.assert_array_equal(row_weights(tokens, owners, "trajectory"), [1 / 6, 1 / 6, 1 / 4, 0])


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=30))
def test_trajectories_weigh_the_same_in_all(rows):
    tokens, owners = [t for t, _ in rows], [o for _, o in rows]
    mass = row_weights(tokens, owners, "trajectory") * tokens
    for owner in set(owners):
        held = sum(t for t, o in rows if o == owner)
        assert sum(m for m, o in zip(mass, owners, strict=True) if o == owner) == pytest.approx(1.0 if held else 0.0)
