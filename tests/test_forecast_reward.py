"""Reward of a forecast: golden and hand-worked parts, and its invariances."""

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from castgym.envs.forecast_reward import (
    PUBLIC_PENALTIES,
    TABLE4,
    FloatArray,
    ForecastReward,
    PenaltySettings,
    RewardWeights,
    copied_timestamps_penalty,
    decompose,
    error_score,
    local_maxima,
    unprepared_penalty,
    useful_call_bonus,
)
from castgym.envs.rewards import forecast_reward

SHARED_DATA = Path(os.environ.get("CASTGYM_SHARED_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
GOLDEN = SHARED_DATA.parent / "golden" / "reward_parts.json"
GOLDEN_NAMES = {
    "e_pred": "e_pred",
    "q_pred": "q_pred",
    "e_seas": "e_seas",
    "e_trend": "e_trend",
    "h_max": "hit_max",
    "h_min": "hit_min",
    "p": "length_factor",
}


def golden_cases() -> list[dict[str, Any]]:
    return json.loads(GOLDEN.read_bytes())["cases"] if GOLDEN.is_file() else []


@pytest.mark.skipif(not GOLDEN.is_file(), reason=f"the golden values are not at {GOLDEN}")
def test_golden_cases_are_there() -> None:
    assert len(golden_cases()) >= 18


@pytest.mark.parametrize("case", golden_cases(), ids=range(len(golden_cases())))
def test_every_part_agrees_with_the_golden_values_to_1e_4(case: dict[str, Any]) -> None:
    reward = forecast_reward(case["prediction"], case["truth"])
    for name, golden in GOLDEN_NAMES.items():
        assert getattr(reward, name) == pytest.approx(case[golden], rel=1e-4, abs=1e-8), name
    terms = 0.10 + 0.70 * case["q_pred"] + 0.10 * (case["hit_max"] + case["hit_min"])
    terms += 0.05 / (1 + math.log1p(case["e_seas"])) + 0.15 / (1 + math.log1p(case["e_trend"]))
    assert reward.total == pytest.approx(case["length_factor"] * terms, rel=1e-4)


# Hand-worked cases.

WAVE = [0.0, 1.0, 0.0, -1.0, 0.0, 1.0, 0.0, -1.0]  # mean 0, variance 1/2


def test_an_error_of_one_variance_at_every_step_gives_the_hand_worked_reward() -> None:
    shift = math.sqrt(0.5)  # a constant error of one standard deviation: all of it is trend
    reward = forecast_reward([value + shift for value in WAVE], WAVE)
    assert (reward.p, reward.h_max, reward.h_min) == (1.0, 1.0, 1.0)
    assert reward.e_pred == pytest.approx(1.0)
    assert reward.e_trend == pytest.approx(1.0)
    assert reward.e_seas == pytest.approx(0.0, abs=1e-24)
    q = 1 / (1 + math.log(2))
    assert reward.total == pytest.approx(0.10 + 0.70 * q + 0.05 + 0.15 * q + 0.20)


def test_without_an_answer_the_reward_is_minus_one_and_without_a_value_zero() -> None:
    assert forecast_reward(None, WAVE) == ForecastReward(-1.0)
    assert forecast_reward([], WAVE) == ForecastReward(0.0)
    assert forecast_reward([math.nan, *WAVE[1:]], WAVE) == ForecastReward(0.0)


def test_a_short_forecast_is_judged_on_its_steps_and_scaled_by_its_share() -> None:
    reward = forecast_reward(WAVE[:6], WAVE)
    assert (reward.p, reward.e_pred) == (0.75, 0.0)
    assert reward.total == pytest.approx(0.75 * 1.2)


def test_fewer_than_five_points_have_no_extrema() -> None:
    assert forecast_reward(WAVE[:4], WAVE).h_max == 0.0
    assert forecast_reward(WAVE[:5], WAVE).h_max == 1.0


def test_a_value_that_is_not_finite_ends_the_forecast() -> None:
    for broken in (math.nan, math.inf, -math.inf, 10**400):
        assert forecast_reward([*WAVE[:6], broken, 0.0], WAVE) == forecast_reward(WAVE[:6], WAVE)


def test_values_beyond_the_horizon_are_ignored() -> None:
    assert forecast_reward([*WAVE, 5.0, math.nan], WAVE) == forecast_reward(WAVE, WAVE)


def test_the_kernel_is_odd_and_half_the_length_within_3_and_25() -> None:
    for length, kernel in ((1, 3), (5, 3), (8, 5), (24, 13), (26, 13), (50, 25), (96, 25)):
        impulse = np.zeros(length)
        impulse[length // 2] = 1.0
        seasonal, trend = decompose(impulse)
        assert trend.max() == pytest.approx(1 / kernel if length > 1 else 1.0)
        assert seasonal + trend == pytest.approx(impulse)


def test_extrema_count_edges_and_equal_neighbours() -> None:
    assert local_maxima(np.array([3.0, 1, 1, 2, 0, 0, 5])).tolist() == [0, 3, 6]
    assert local_maxima(np.array([0.0, 4, 4, 0, 0, 1])).tolist() == [1, 2, 5]
    assert local_maxima(np.zeros(5)).tolist() == [0, 1, 2, 3, 4]


def test_extrema_are_matched_one_to_one_and_as_many_as_possible() -> None:
    truth = np.zeros(13)
    truth[[3, 6]] = 2.0
    truth += np.linspace(0, 1e-3, 13)  # no plateaus; the last point is a maximum too
    assert local_maxima(truth).tolist() == [3, 6, 12]
    forecast = np.linspace(0, 1e-3, 13)
    forecast[[1, 4]] += 1.0  # 3 takes 1 although 4 is nearer, and leaves 4 for 6
    assert local_maxima(forecast).tolist() == [1, 4, 12]
    assert forecast_reward(forecast, truth).h_max == 1.0
    forecast[1] -= 1.0
    assert forecast_reward(forecast, truth).h_max == pytest.approx(2 / 3)


def test_strict_alignment_divides_by_the_longer_list() -> None:
    flat = np.zeros(8)
    assert forecast_reward(flat, WAVE).h_max == 1.0
    assert forecast_reward(flat, WAVE, strict_alignment=True).h_max == pytest.approx(2 / 8)
    assert forecast_reward(WAVE, WAVE, strict_alignment=True).total == pytest.approx(1.2)


@pytest.mark.parametrize(
    ("variant", "lost"),
    [
        ("cast-r1", 0.0),
        ("w/o length", 0.10),
        ("w/o error", 0.70),
        ("w/o trend", 0.20),
        ("w/o align", 0.20),
    ],
)
def test_an_ablation_of_table_4_takes_away_its_terms_only(variant: str, lost: float) -> None:
    assert forecast_reward(WAVE, WAVE, TABLE4[variant]).total == pytest.approx(1.2 - lost)
    assert len(TABLE4) == 5


@pytest.mark.parametrize("bad", [-0.1, math.nan, math.inf])
def test_a_weight_that_is_negative_or_not_finite_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="weight error"):
        RewardWeights(error=bad)


@pytest.mark.parametrize("truth", [[], [[1.0, 2.0]], [1.0, math.nan], [1e200, 0.0]])
def test_a_truth_that_cannot_judge_is_refused(truth: Any) -> None:
    with pytest.raises(ValueError, match="truth"):
        forecast_reward([1.0, 2.0], truth)


@pytest.mark.parametrize("prediction", [["a", "b"], [[1.0], [2.0]], [None, 1.0, "x"]])
def test_a_prediction_that_is_no_row_of_numbers_is_refused(prediction: Any) -> None:
    with pytest.raises(ValueError, match="prediction"):
        forecast_reward(prediction, [1.0, 2.0, 3.0])


# Properties.

lengths = st.integers(1, 60)
any_float = st.floats(width=64)
whole = st.integers(-50, 50).map(float)


def rows(elements: st.SearchStrategy[float], length: st.SearchStrategy[int] = lengths) -> st.SearchStrategy[FloatArray]:
    return hnp.arrays(np.float64, length, elements=elements)


@given(rows(st.floats(-1e100, 1e100)), rows(any_float, st.integers(0, 80)), st.booleans())
def test_every_part_is_finite_and_the_reward_within_0_and_1_2(truth: Any, forecast: Any, strict: bool) -> None:
    reward = forecast_reward(forecast, truth, strict_alignment=strict)
    parts = [getattr(reward, name) for name in ForecastReward.__slots__]
    assert all(math.isfinite(part) for part in parts)
    assert 0 <= reward.total <= 1.2 * reward.p + 1e-12
    assert all(0 <= part <= 1 for part in (reward.p, reward.q_pred, reward.q_seas, reward.q_trend))
    assert 0 <= reward.h_max <= 1 and 0 <= reward.h_min <= 1


@given(rows(st.floats(-1e6, 1e6)))
def test_the_truth_itself_earns_all_that_its_extrema_allow_and_no_forecast_more(truth: Any) -> None:
    reward = forecast_reward(truth, truth)
    alignment = 0.20 if len(truth) >= 5 else 0.0
    assert reward.total == pytest.approx(1.0 + alignment)


@given(st.data(), st.integers(1, 40), st.sampled_from([0.25, 0.5, 2.0, 1024.0]), whole)
def test_a_common_scale_and_shift_change_nothing(data: Any, length: int, scale: float, shift: float) -> None:
    truth = data.draw(rows(whole, st.just(length)))
    forecast = data.draw(rows(whole, st.just(length)))
    if truth.std() == 0:  # its standard deviation is floored: an absolute measure
        truth[0] += 1.0
    if truth.std() == 0:
        return
    one = forecast_reward(forecast, truth)
    other = forecast_reward(scale * forecast + shift, scale * truth + shift)
    for name in ForecastReward.__slots__:
        assert getattr(other, name) == pytest.approx(getattr(one, name), rel=1e-9, abs=1e-12), name


@given(rows(st.floats(-1e6, 1e6), st.integers(5, 60)), st.data())
def test_every_further_perfect_step_earns_more(truth: Any, data: Any) -> None:
    n = data.draw(st.integers(0, len(truth) - 1))
    assert forecast_reward(truth[:n], truth).total < forecast_reward(truth[: n + 1], truth).total


@given(st.floats(0, 1e300), st.floats(0, 1e300))
def test_a_larger_error_never_scores_higher(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert 0 < error_score(high) <= error_score(low) <= 1


@given(rows(whole, st.integers(5, 30)), rows(whole, st.integers(5, 30)))
def test_strict_alignment_never_raises_the_reward(truth: Any, forecast: Any) -> None:
    strict = forecast_reward(forecast, truth, strict_alignment=True).total
    assert strict <= forecast_reward(forecast, truth).total + 1e-12


# Penalties.


def test_penalties_are_off_by_default_and_have_the_published_values() -> None:
    off, on = PenaltySettings(), PUBLIC_PENALTIES
    assert [unprepared_penalty(0, 0, settings) for settings in (off, on)] == [0.0, -0.5]
    assert unprepared_penalty(1, 0, on) == unprepared_penalty(0, 1, on) == 0.0
    assert [copied_timestamps_penalty("abc", "abcd", settings) for settings in (off, on)] == [0.0, -1.0]
    assert [useful_call_bonus(1, 3, settings) for settings in (off, on)] == [0.0, 0.05]
    assert useful_call_bonus(1, 1, on) == 0.0


def test_copying_is_over_half_of_the_shorter_list_of_timestamps() -> None:
    assert copied_timestamps_penalty("ab", "abcdefgh", PUBLIC_PENALTIES) == -1.0
    assert copied_timestamps_penalty("abwxyz", "abcd", PUBLIC_PENALTIES) == 0.0
    assert copied_timestamps_penalty("abcwxyz", "abcd", PUBLIC_PENALTIES) == -1.0
    assert copied_timestamps_penalty("", "abcd", PUBLIC_PENALTIES) == 0.0


@pytest.mark.parametrize("setting", [{"unprepared": 0.5}, {"copied_timestamps": math.nan}, {"useful_call": -0.05}])
def test_a_penalty_of_the_wrong_sign_is_refused(setting: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(setting))):
        PenaltySettings(**setting)
