"""Reward of a forecast: golden and hand-worked parts, its invariances, and answers that try to cheat it."""

import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from castgym.envs.forecast_answers import read_forecast
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


# Red team: what an answer can do without forecasting. Each window is (history values, truth, season).

Window = tuple[FloatArray, FloatArray, int]
Policy = Callable[[FloatArray, int], str]


def simulated_windows(name: str) -> list[Window]:
    """Windows of hourly series with the make-up of load, temperature and price data."""
    rng = np.random.default_rng(7)
    hours = np.arange(40 * 96)
    day, week = np.sin(2 * np.pi * hours / 24), np.sin(2 * np.pi * hours / 168)
    noise = np.zeros(len(hours))
    for step in range(1, len(hours)):
        noise[step] = 0.9 * noise[step - 1] + rng.normal()
    if name == "load":
        values = 1000 + 120 * day + 40 * week + 12 * noise
    elif name == "temperature":
        values = 15 + 5 * day + 0.05 * np.cumsum(rng.normal(size=len(hours))) + 0.5 * noise
    else:
        values = np.exp(3.5 + 0.3 * day + 0.2 * np.sin(4 * np.pi * hours / 24) + 0.04 * noise)
    return [(values[o - 96 : o], values[o : o + 96], 24) for o in range(96, len(values) - 96, 96)]


def etth1_windows() -> list[Window]:
    values = pd.read_csv(SHARED_DATA / "ETTh1.csv.gz")["OT"].to_numpy(np.float64)[13936:]
    return [(values[o - 96 : o], values[o : o + 96], 24) for o in range(96, len(values) - 96, 84)]


def windows_of(name: str) -> list[Window]:
    if name != "ETTh1":
        return simulated_windows(name)
    if not (SHARED_DATA / "ETTh1.csv.gz").is_file():
        pytest.skip(f"ETTh1 is not in {SHARED_DATA}")
    return etth1_windows()


def stamps(first: str, count: int) -> list[str]:
    return [str(stamp) for stamp in pd.date_range(first, periods=count, freq="h")]


HISTORY_STAMPS = stamps("2020-01-01 00:00:00", 96)
HORIZON_STAMPS = stamps("2020-01-05 00:00:00", 96)
LONG_STAMPS = stamps("2020-01-05 00:00:00", 20_000)


def answer(timestamps: list[str], values: Any) -> str:
    lines = "\n".join(f"{stamp} {value}" for stamp, value in zip(timestamps, values, strict=False))
    return f"<think>Done.</think><answer>\n{lines}\n</answer>"


def seasonal(history: FloatArray, season: int) -> FloatArray:
    return np.resize(history[-season:], 96)


def ripple(level: float) -> FloatArray:
    return level + 1e-6 * np.cos(np.pi * np.arange(96) / 2)


NAIVE: dict[str, Policy] = {
    "last value": lambda h, s: answer(HORIZON_STAMPS, np.full(96, h[-1])),
    "seasonal naive": lambda h, s: answer(HORIZON_STAMPS, seasonal(h, s)),
}
TRICKS: dict[str, Policy] = {
    "constant: zero": lambda h, s: answer(HORIZON_STAMPS, np.zeros(96)),
    "constant: the first value": lambda h, s: answer(HORIZON_STAMPS, np.full(96, h[0])),
    "constant: the history's mean": lambda h, s: answer(HORIZON_STAMPS, np.full(96, h.mean())),
    "constant: 1e308": lambda h, s: answer(HORIZON_STAMPS, np.full(96, 1e308)),
    "copy of the history, its timestamps": lambda h, s: answer(HISTORY_STAMPS, h),
    "copy of the history, the horizon's timestamps": lambda h, s: answer(HORIZON_STAMPS, h),
    "right shape, a quarter long": lambda h, s: answer(HORIZON_STAMPS, seasonal(h, s)[:24]),
    "right shape, half long": lambda h, s: answer(HORIZON_STAMPS, seasonal(h, s)[:48]),
    "one value": lambda h, s: answer(HORIZON_STAMPS, h[-1:]),
    "NaN everywhere": lambda h, s: answer(HORIZON_STAMPS, np.full(96, np.nan)),
    "NaN at step 49": lambda h, s: answer(HORIZON_STAMPS, [*seasonal(h, s)[:48], np.nan, *seasonal(h, s)[49:]]),
    "1e308 at one step": lambda h, s: answer(HORIZON_STAMPS, [1e308, *seasonal(h, s)[1:]]),
    "1e999 at one step": lambda h, s: answer(HORIZON_STAMPS, ["1e999", *seasonal(h, s)[1:]]),
    "20,000 lines of zero": lambda h, s: answer(LONG_STAMPS, np.zeros(20_000)),
    "20,000 values without timestamps": lambda h, s: "<answer>" + "\n".join(["15.0"] * 20_000) + "</answer>",
    "one timestamp 96 times": lambda h, s: answer(HORIZON_STAMPS[:1] * 96, seasonal(h, s)),
    "each timestamp twice": lambda h, s: answer(sorted(HORIZON_STAMPS * 2), np.repeat(seasonal(h, s), 2)),
    "an answer outside the tags": lambda h, s: answer(HORIZON_STAMPS, seasonal(h, s))[21:].replace("answer>", "a>"),
    "an answer inside the thinking": lambda h, s: f"<think>{answer(HORIZON_STAMPS, seasonal(h, s))[21:]}</think>",
    "two answers": lambda h, s: answer(HORIZON_STAMPS, seasonal(h, s)) + answer(HORIZON_STAMPS, np.zeros(96)),
}
# Flat lines meet every extremum of the published reward, so that on ETTh1 even the last value beats seasonal naive,
# and the history's mean beats both.
FLAT = {"constant: the first value", "constant: the history's mean"}


class Rewards(NamedTuple):
    published: float
    strict: float


def mean_rewards(windows: list[Window], policy: Policy) -> Rewards:
    rewards = []
    for history, truth, season in windows:
        values = read_forecast(policy(history, season), HORIZON_STAMPS).values
        rewards.append([forecast_reward(values, truth, strict_alignment=strict).total for strict in (False, True)])
    return Rewards(*np.mean(rewards, axis=0).tolist())


@pytest.fixture(scope="module", params=["load", "temperature", "price", "ETTh1"])
def table(request: pytest.FixtureRequest) -> tuple[str, dict[str, Rewards]]:
    windows = windows_of(request.param)[:24]
    policies = {**NAIVE, **TRICKS, "ripple": lambda h, s: answer(HORIZON_STAMPS, ripple(float(h.mean())))}
    return request.param, {name: mean_rewards(windows, policy) for name, policy in policies.items()}


def test_every_trick_earns_less_than_the_best_naive_under_strict_alignment(
    table: tuple[str, dict[str, Rewards]],
) -> None:
    _, rewards = table
    naive = max(rewards[name].strict for name in NAIVE)
    assert naive > 0.65
    assert {name: rewards[name].strict for name in TRICKS if rewards[name].strict >= naive} == {}


def test_every_trick_earns_less_than_the_best_naive_in_the_published_reward_save_the_mean_on_etth1(
    table: tuple[str, dict[str, Rewards]],
) -> None:
    series, rewards = table
    naive = max(rewards[name].published for name in NAIVE)
    assert naive > 0.7
    winners = {name for name in TRICKS if rewards[name].published >= naive}
    assert winners == ({"constant: the history's mean"} if series == "ETTh1" else set())


def test_strict_alignment_takes_most_from_flat_lines_and_part_from_ripples(
    table: tuple[str, dict[str, Rewards]],
) -> None:
    _, rewards = table
    for name in FLAT:
        assert rewards[name].strict < rewards[name].published - 0.15
    assert rewards["ripple"].strict < rewards["ripple"].published - 0.05


@pytest.mark.parametrize(
    ("trick", "least", "most"),
    [
        ("an answer outside the tags", -1.0, -1.0),
        ("an answer inside the thinking", -1.0, -1.0),
        ("two answers", 0.0, 0.0),
        ("copy of the history, its timestamps", 0.0, 0.0),
        ("NaN everywhere", 0.0, 0.0),
        ("1e999 at one step", 0.0, 0.0),
        ("20,000 values without timestamps", 0.0, 0.0),
        ("one timestamp 96 times", 0.0, 1.2 / 96),
        ("each timestamp twice", 0.0, 1.2 / 96),
        ("one value", 0.0, 1.2 / 96),
        ("right shape, a quarter long", 0.0, 1.2 / 4),
        ("NaN at step 49", 0.0, 1.2 / 2),
        ("constant: 1e308", 0.0, 0.36),
        ("1e308 at one step", 0.0, 0.36),
    ],
)
def test_a_trick_earns_no_more_than_its_rule_allows(trick: str, least: float, most: float) -> None:
    for series in ("load", "temperature", "price"):
        for window in simulated_windows(series)[:6]:
            assert least <= mean_rewards([window], TRICKS[trick]).published <= most


def test_tens_of_thousands_of_values_cost_no_more_than_the_horizon() -> None:
    forecast = [0.0] * 2_000_000
    start = time.perf_counter()
    assert forecast_reward(forecast, WAVE).p == 1.0
    assert time.perf_counter() - start < 0.1
