"""Red team of the forecast reward: what an answer can do without forecasting."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from castgym.envs.forecast_answers import read_forecast
from castgym.envs.forecast_reward import (
    FloatArray,
)
from castgym.envs.rewards import forecast_reward

SHARED_DATA = Path(os.environ.get("CASTGYM_SHARED_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
WAVE = [0.0, 1.0, 0.0, -1.0, 0.0, 1.0, 0.0, -1.0]  # mean 0, variance 1/2

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
