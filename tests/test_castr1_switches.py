"""Switches of the forecasting episode: the paper's ablations and the backtests of our own."""

from typing import Any

import numpy as np
import pytest
from castr1_helpers import DIAGNOSE, MODELS, PRICE, answer_of, call, make_episode, make_pool, predict, window_of

from castgym.data.errors import ConfigError, DataError
from castgym.envs.forecast_config import ForecastConfig
from castgym.envs.forecast_episode import ForecastEpisode
from castgym.envs.windowsets import LoadedWindows
from castgym.tools.forecasting_tools import DIAGNOSTIC_TOOLS, PastWindow


def errors_of(episode: ForecastEpisode, response: str) -> list[str | None]:
    return [result.error for result in episode.act(response).results]


class TestSwitches:
    def test_a_removed_diagnostic_is_unknown_and_not_offered(self) -> None:
        episode = make_episode(diagnostics=DIAGNOSTIC_TOOLS[1:])
        assert "extract_data_quality" not in episode.observe().text
        assert errors_of(episode, call("extract_data_quality")) == ["unknown_tool"]

    def test_a_removed_forecaster_is_unknown_and_not_offered(self) -> None:
        episode = make_episode(diagnostics=(), models=("last_value",))
        assert "seasonal_naive" not in episode.observe().text
        assert errors_of(episode, predict("seasonal_naive")) == ["unknown_model"]

    def test_without_features_the_episode_begins_with_forecasting(self) -> None:
        episode = make_episode(diagnostics=())
        assert episode.stage == "forecasting"
        assert "Analysis History" not in episode.observe().text

    def test_without_prediction_the_answer_follows_the_analysis_and_the_whole_history_stays(self) -> None:
        episode = make_episode(models=())
        episode.act(DIAGNOSE)
        assert episode.stage == "refinement"
        prompt = episode.observe()
        assert not prompt.tools
        assert "all 168 observations" in prompt.text
        assert "predict_time_series" not in prompt.text

    def test_without_planning_the_environment_has_run_the_tools_before_the_first_response(self) -> None:
        episode = make_episode(planning=False)
        prompt = episode.observe()
        assert episode.stage == "refinement"
        assert [record.tool for record in prompt.memory.analysis] == list(DIAGNOSTIC_TOOLS)
        assert list(episode.stored_forecasts()) == ["seasonal_naive"]
        assert not prompt.tools
        assert episode.act(answer_of(episode)).outcome == "completed"
        assert (episode.turns, episode.useful_steps) == (1, 0)

    def test_without_refinement_the_first_stored_forecast_is_the_answer(self) -> None:
        episode = make_episode(refinement=False, models=("failing", *MODELS))
        assert errors_of(episode, "<answer>2021-01-01 1</answer>") == ["stage_forbids_answer"]
        episode.act(DIAGNOSE)
        end = episode.act(predict("failing", "last_value", "seasonal_naive"))
        assert end.outcome == "completed"
        assert end.submission == {"values": episode.stored_forecasts()["last_value"].tolist()}

    @pytest.mark.parametrize(
        "conditions",
        [
            {"diagnostics": ("extract_secrets",)},
            {"diagnostics": "extract_data_quality"},
            {"models": ("a", "a")},
            {"max_steps": 0},
            {"max_steps": True},
            {"backtests": -1},
            {"prompt_mode": "x"},
            {"prompt_style": "compact"},
            {"planning": False, "refinement": False},
            {"planning": 1},
            {"models": (), "refinement": False},
            {"models": (), "answer_form": "forecast"},
            {"stages": False, "planning": False},
            {"max_prompt_size": 0},
        ],
    )
    def test_settings_that_mean_nothing_are_refused(self, conditions: dict[str, Any]) -> None:
        with pytest.raises(ConfigError):
            ForecastConfig(**{"models": MODELS, **conditions})


class TestBacktests:
    def past(self, count: int = 2) -> list[PastWindow]:
        return list(LoadedWindows((PRICE,), "memory").past(window_of(), count))

    def test_a_backtest_measures_forecasts_of_horizons_that_have_ended(self) -> None:
        window, past = window_of(), self.past()
        config = ForecastConfig(models=MODELS, backtests=2)
        episode = ForecastEpisode(window, config, make_pool(), past)
        result = episode.act(call("backtest_forecasters")).result
        assert result is not None
        observed = window.history[-48:, 0]
        naive = window.history[-72:-24, 0]  # a day before
        assert result.content["mse"]["seasonal_naive"] == pytest.approx(np.mean((observed - naive) ** 2), rel=1e-3)
        assert "seasonal_naive: MSE" in episode.observe().text

    def test_past_windows_end_before_the_origin_and_step_back_by_the_horizon(self) -> None:
        window = window_of()
        for number, item in enumerate(self.past(3), start=1):
            assert item.window.origin == window.origin - number * 24 * window.step
            assert np.array_equal(item.actual, PRICE.values[:, 0][PRICE.times.get_loc(item.window.origin) :][:24])

    def test_a_window_that_reaches_beyond_the_origin_is_refused(self) -> None:
        later = PastWindow(window_of(number=1), np.zeros(24))
        with pytest.raises(DataError, match="leak"):
            ForecastEpisode(window_of(), ForecastConfig(models=MODELS, backtests=1), make_pool(), [later])

    def test_without_a_past_the_tool_says_so_and_a_failing_forecaster_has_no_error(self) -> None:
        config = ForecastConfig(models=("failing", "last_value"), backtests=2)
        alone = ForecastEpisode(window_of(), config, make_pool())
        assert errors_of(alone, call("backtest_forecasters")) == ["insufficient_context"]
        episode = ForecastEpisode(window_of(), config, make_pool(), self.past())
        result = episode.act(call("backtest_forecasters")).result
        assert result is not None
        assert result.content["mse"]["failing"] is None

    def test_without_backtests_there_is_no_such_tool(self) -> None:
        assert errors_of(make_episode(), call("backtest_forecasters")) == ["unknown_tool"]
