"""Scripted forecasting agents: they see prompts alone, follow their rule, and survive failing forecasters."""

from typing import Any

import numpy as np
import pytest
from castr1_helpers import MODELS, PRICE, TEMPERATURE, make_pool

from castgym.agents.forecast_agents import (
    BacktestBlend,
    BacktestRouter,
    EqualBlend,
    FixedForecaster,
    ForecastAgent,
    forecast_agents,
)
from castgym.data.errors import ConfigError
from castgym.envs.forecast_episode import ForecastEpisode
from castgym.envs.forecast_source import ForecastSource


def source(**conditions: Any) -> ForecastSource:
    settings = {"models": MODELS, "forecasters": make_pool(), "backtests": 2, **conditions}
    return ForecastSource([PRICE, TEMPERATURE], "test", **settings)


def play(agent: ForecastAgent, episodes: ForecastSource, window_id: str) -> ForecastEpisode:
    episode = episodes.episode(window_id)
    while not episode.done:
        episode.act(agent.act(episode.observe()))
    return episode


@pytest.mark.parametrize("agent", forecast_agents(MODELS).values(), ids=forecast_agents(MODELS))
@pytest.mark.parametrize(
    "conditions",
    [
        {},
        {"prompt_mode": "chat"},
        {"prompt_style": "compact", "answer_form": "forecast"},
        {"backtests": 0},
        {"diagnostics": ()},
        {"planning": False},
        {"refinement": False},
        {"stages": False},
    ],
    ids=str,
)
def test_every_agent_completes_in_three_responses_without_a_fault(
    agent: ForecastAgent, conditions: dict[str, Any]
) -> None:
    episodes = source(**conditions)
    for window_id in (episodes.ids[0], episodes.ids[-1]):
        episode = play(agent, episodes, window_id)
        assert episode.end.outcome == "completed"
        assert episode.turns <= 3
        assert all(record.error is None for record in episode.memory.calls)


def test_a_fixed_forecaster_commits_what_its_forecaster_returned() -> None:
    episodes = source()
    episode = play(FixedForecaster("last_value"), episodes, episodes.ids[0])
    assert episode.end.submission is not None
    assert episode.end.submission["values"] == episode.stored_forecasts()["last_value"].tolist()


def test_the_router_runs_the_forecaster_that_was_best_on_the_recent_past() -> None:
    episodes = source()
    chosen = set()
    for window_id in episodes.ids[:12]:
        episode = play(BacktestRouter(), episodes, window_id)
        errors = next(record.content["mse"] for record in episode.memory.analysis if "mse" in record.content)
        (model,) = episode.stored_forecasts()
        assert errors[model] == min(errors.values())
        chosen.add(model)
    assert chosen <= set(MODELS)


def test_the_blend_weighs_by_inverse_recent_error() -> None:
    episodes = source()
    episode = play(BacktestBlend(), episodes, episodes.ids[0])
    errors = next(record.content["mse"] for record in episode.memory.analysis if "mse" in record.content)
    weights = {name: 1 / error for name, error in errors.items()}
    stored = episode.stored_forecasts()
    expected = sum(weights[name] * stored[name] for name in MODELS) / sum(weights.values())
    assert episode.end.submission is not None
    assert np.allclose(episode.end.submission["values"], expected, atol=0.06)
    plain = play(EqualBlend(), episodes, episodes.ids[0]).end.submission
    assert plain is not None
    assert np.allclose(plain["values"], sum(stored.values()) / 2, atol=0.06)


def test_both_answer_forms_commit_the_same_forecast() -> None:
    by_lines = play(BacktestBlend(), source(), source().ids[0]).end.submission
    by_name = play(BacktestBlend(), source(answer_form="forecast"), source().ids[0]).end.submission
    assert by_lines is not None
    assert by_name is not None
    assert np.allclose(by_lines["values"], by_name["values"], atol=0.06)


@pytest.mark.parametrize("agent", [FixedForecaster("failing"), BacktestRouter(), BacktestBlend(), EqualBlend()])
def test_a_failing_forecaster_is_left_out(agent: ForecastAgent) -> None:
    episodes = source(models=("failing", "last_value"), backtests=0)
    episode = play(agent, episodes, episodes.ids[0])
    assert episode.end.outcome == "completed"
    assert list(episode.stored_forecasts()) == ["last_value"]


def test_where_every_forecaster_fails_the_last_value_is_the_answer() -> None:
    episodes = source(models=("failing",))
    episode = play(EqualBlend(), episodes, episodes.ids[0])
    assert episode.end.submission is not None
    last = episode.window.history[-1, 0]
    assert np.allclose(episode.end.submission["values"], last, atol=0.06)


def test_a_forecaster_that_is_not_on_offer_is_refused() -> None:
    episodes = source()
    episode = episodes.episode(episodes.ids[0])
    episode.act(FixedForecaster("last_value").act(episode.observe()))
    with pytest.raises(ConfigError, match="fixed_arima"):
        FixedForecaster("arima").act(episode.observe())
