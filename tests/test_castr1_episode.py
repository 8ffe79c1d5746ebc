"""The forecasting episode: stages that memory decides, parallel calls, faults, answers, switches, saved states."""

import json
import threading
import time
from typing import Any

import numpy as np
import pytest
from castr1_helpers import (
    DIAGNOSE,
    MODELS,
    TEMPERATURE,
    answer_of,
    call,
    make_episode,
    make_pool,
    predict,
    window_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from castgym.data.errors import DataError, ForecasterUnavailableError
from castgym.envs.checks import hostile_texts
from castgym.envs.forecast_config import ForecastConfig
from castgym.envs.forecast_episode import ForecastEpisode
from castgym.envs.trajectory import Trajectory, replay
from castgym.tools.calls import ToolCall
from castgym.tools.forecasters.base import ForecasterInfo
from castgym.tools.forecasters.window_pool import WindowEntry, WindowForecasterPool
from castgym.tools.forecasting_tools import DIAGNOSTIC_TOOLS, forecast_lines, line_values


def errors_of(episode: ForecastEpisode, response: Any) -> list[str | None]:
    return [result.error for result in episode.act(response).results]


class TestStages:
    def test_memory_alone_decides_the_stage(self) -> None:
        episode = make_episode()
        assert episode.stage == "preparation"
        episode.act(DIAGNOSE)
        assert episode.stage == "forecasting"
        episode.act(predict("seasonal_naive"))
        assert episode.stage == "refinement"
        assert episode.act(answer_of(episode)).outcome == "completed"
        assert episode.turns == 3

    def test_each_stage_offers_and_permits_its_own_tools_only(self) -> None:
        episode = make_episode()

        def names() -> list[str]:
            return [tool["function"]["name"] for tool in episode.observe().tools]

        assert names() == list(DIAGNOSTIC_TOOLS)
        assert errors_of(episode, predict("last_value")) == ["stage_forbids_tool"]
        assert errors_of(episode, DIAGNOSE + predict("last_value")) == [None, None, "stage_forbids_tool"]
        assert names() == ["predict_time_series"]
        assert errors_of(episode, DIAGNOSE + predict("last_value")) == ["stage_forbids_tool"] * 2 + [None]
        assert names() == []
        assert errors_of(episode, predict("seasonal_naive")) == ["stage_forbids_tool"]

    def test_without_stages_all_is_permitted_at_any_time(self) -> None:
        episode = make_episode(stages=False)
        assert errors_of(episode, predict("last_value") + DIAGNOSE) == [None] * 3
        assert errors_of(episode, predict("seasonal_naive") + DIAGNOSE) == [None] * 3
        assert episode.act(answer_of(episode)).outcome == "completed"

    def test_an_answer_ends_the_episode_in_every_stage(self) -> None:
        lines = "\n".join(forecast_lines(window_of(), np.zeros(24)))
        end = make_episode().act(f"<answer>{lines}</answer>")
        assert (end.outcome, end.submission) == ("completed", {"values": [0.0] * 24})

    def test_the_budget_of_responses_ends_the_episode(self) -> None:
        episode = make_episode(max_steps=3)
        episode.act(DIAGNOSE)
        assert not episode.act("Let me think.").done
        end = episode.act(predict("last_value"))
        assert (end.outcome, end.submission, end.rejection) == ("budget_exhausted", None, "step_limit_exceeded")
        last = make_episode(max_steps=3)
        last.act(DIAGNOSE)
        last.act(predict("last_value"))
        assert last.act(answer_of(last)).outcome == "completed"


class TestCalls:
    def test_calls_of_one_response_run_in_parallel(self) -> None:
        """Two forecasters that wait for each other both end."""
        meeting = threading.Barrier(2, timeout=20)

        def entry(name: str) -> WindowEntry:
            class Waiting:
                info = ForecasterInfo(name, "Waits for the other.", 1)

                def predict(self, windows: Any) -> Any:
                    meeting.wait()
                    return [forecast_of(window, name) for window in windows]

            return WindowEntry(Waiting.info, lambda task: Waiting())

        from castgym.tools.forecasters.windows_base import WindowForecast

        def forecast_of(window: Any, name: str) -> WindowForecast:
            return WindowForecast(np.zeros(window.horizon), None, name)

        pool = WindowForecasterPool([entry("a"), entry("b")])
        episode = ForecastEpisode(window_of(), ForecastConfig(models=("a", "b"), diagnostics=()), pool)
        assert errors_of(episode, predict("a", "b")) == [None, None]
        assert list(episode.stored_forecasts()) == ["a", "b"]

    def test_results_stand_in_the_order_of_the_calls_whatever_ends_first(self) -> None:
        episode = make_episode()
        results = episode.act("".join(call(name) for name in reversed(DIAGNOSTIC_TOOLS))).results
        assert [result.tool for result in results] == list(reversed(DIAGNOSTIC_TOOLS))

    def test_good_calls_run_beside_broken_ones(self) -> None:
        episode = make_episode()
        errors = errors_of(episode, "<tool_call>{bad</tool_call>" + DIAGNOSE + call("no_tool") + "<tool_call>")
        assert errors == [None, None, "unknown_tool", "malformed_json", "unclosed_tool_call"]
        assert episode.stage == "forecasting"

    @pytest.mark.parametrize(
        ("response", "kind"),
        [
            ("Let me think.", "no_action"),
            ("", "no_action"),
            ("<think><answer>1</answer></think>", "no_action"),
            ("<tool_call>{bad</tool_call>", "malformed_json"),
            (call("catalog"), "unknown_tool"),
            (call("extract_data_quality", colour=1), "invalid_arguments"),
            (call("predict_time_series", model_name="last_value"), "stage_forbids_tool"),
            ("<tool_call>{}</tool_call>" * 40, "malformed_message"),
        ],
    )
    def test_a_fault_costs_a_response_and_stands_in_the_next_prompt_once(self, response: str, kind: str) -> None:
        episode = make_episode()
        assert errors_of(episode, response) == [kind]
        assert f"{kind}: " in episode.observe().text
        assert episode.turns == 1
        episode.act(DIAGNOSE)
        assert kind not in episode.observe().text

    def test_an_unknown_forecaster_is_never_replaced(self) -> None:
        episode = make_episode(diagnostics=())
        transition = episode.act(predict("chronos2"))
        assert transition.result is not None
        assert transition.result.error == "unknown_model"
        assert "seasonal_naive, last_value" in transition.result.content["message"]
        assert not episode.memory.predictions

    def test_a_failing_forecaster_is_an_error_that_the_policy_sees(self) -> None:
        episode = make_episode(models=("failing", "last_value"), diagnostics=())
        assert errors_of(episode, predict("failing")) == ["backend_error"]
        assert "backend_error: failing failed on this window" in episode.observe().text
        assert errors_of(episode, predict("last_value")) == [None]

    def test_a_missing_forecaster_raises_and_leaves_the_episode_as_it_was(self) -> None:
        episode = make_episode(models=("missing", "last_value"), diagnostics=())
        before = episode.state()
        with pytest.raises(ForecasterUnavailableError):
            episode.act(predict("missing", "last_value"))
        assert episode.state() == before
        assert not episode.done

    def test_a_repeated_call_adds_nothing_to_memory(self) -> None:
        episode = make_episode(stages=False)
        episode.act(DIAGNOSE)
        size = episode.observe().sizes["analysis"]
        episode.act(DIAGNOSE)
        assert episode.observe().sizes["analysis"] == size
        assert episode.useful_steps == 1
        episode.act(predict("last_value"))
        assert episode.useful_steps == 2


class TestAnswers:
    def prepared(self, **conditions: Any) -> ForecastEpisode:
        episode = make_episode(**conditions)
        episode.act(DIAGNOSE)
        episode.act(predict(*MODELS))
        return episode

    @pytest.mark.parametrize(
        ("answer", "rejection", "count"),
        [
            ("<answer></answer>", "empty_answer", 0),
            ("<answer>1 2 3", "unclosed_answer", None),
            ("</answer>", "no_answer", None),
            ("<answer>{first}</answer>", "too_few_lines", 1),
            ("<answer>{first}\n{first}</answer>", "repeated_timestamp", 1),
            ("<answer>{first} NaN</answer>", "malformed_line", 0),
            ("<answer>{first}</answer><answer>{first}</answer>", "ambiguous_answer", 0),
        ],
    )
    def test_an_incomplete_answer_is_invalid_and_keeps_what_stands_before_the_fault(
        self, answer: str, rejection: str, count: int | None
    ) -> None:
        episode = self.prepared()
        first = episode.memory.predictions[0].content["forecast"][0]
        end = episode.act(answer.format(first=first))
        assert (end.outcome, end.rejection) == ("invalid_submission", rejection)
        assert (None if end.submission is None else len(end.submission["values"])) == count

    def test_what_follows_a_complete_horizon_costs_nothing(self) -> None:
        episode = self.prepared()
        end = episode.act(answer_of(episode).replace("</answer>", "That is all.</answer>"))
        assert (end.outcome, end.rejection) == ("completed", None)

    def test_a_call_beside_an_answer_is_a_call(self) -> None:
        episode = self.prepared()
        assert not episode.act(answer_of(episode) + DIAGNOSE).done

    def test_a_cut_response_is_truncated_even_if_it_reads_as_an_answer(self) -> None:
        episode = self.prepared()
        assert episode.act(answer_of(episode), truncated=True).outcome == "truncated"
        counted = self.prepared(count_tokens=len, max_response_tokens=200)
        assert counted.act("x" * 201).outcome == "truncated"

    def test_a_stored_forecast_is_committed_as_it_was_shown(self) -> None:
        episode = self.prepared()
        shown = line_values(episode.memory.predictions[1].content["forecast"])
        end = episode.act(answer_of(episode, 1))
        assert end.submission is not None
        assert end.submission["values"] == shown.tolist()
        assert np.allclose(shown, window_of().history[-1, 0], atol=0.05)

    @pytest.mark.parametrize(
        ("answer", "expected"),
        [
            ('{"forecast": "last_value"}', lambda naive, last: last),
            ('{"forecast": "seasonal_naive", "shift": -2}', lambda naive, last: naive - 2),
            ('{"forecast": "seasonal_naive", "scale": 0}', lambda naive, last: np.full(24, naive.mean())),
            ('{"blend": {"seasonal_naive": 3, "last_value": 1}}', lambda naive, last: 0.75 * naive + 0.25 * last),
            ('{"blend": {"seasonal_naive": 1e308, "last_value": 1e308}}', lambda naive, last: (naive + last) / 2),
        ],
    )
    def test_the_forecast_form_names_a_forecast_and_adjusts_it(self, answer: str, expected: Any) -> None:
        episode = self.prepared(answer_form="forecast")
        naive, last = episode.stored_forecasts().values()
        end = episode.act(f"<answer>{answer}</answer>")
        assert end.outcome == "completed"
        assert end.submission is not None
        assert np.allclose(end.submission["values"], expected(naive, last))

    @pytest.mark.parametrize(
        ("answer", "rejection"),
        [
            ("", "empty_answer"),
            ("last_value", "malformed_json"),
            ("[]", "malformed_json"),
            ('{"forecast": "arima"}', "unknown_forecast"),
            ('{"forecast": 1}', "unknown_forecast"),
            ('{"blend": {}}', "unknown_forecast"),
            ('{"blend": {"last_value": -1}}', "bad_weights"),
            ('{"blend": {"last_value": 0}}', "bad_weights"),
            ('{"blend": {"last_value": true}}', "bad_weights"),
            ('{"forecast": "last_value", "blend": {"last_value": 1}}', "unexpected_key"),
            ('{"forecast": "last_value", "values": [1]}', "unexpected_key"),
            ('{"forecast": "last_value", "shift": "up"}', "bad_adjustment"),
            ('{"forecast": "last_value", "shift": 1e999}', "malformed_json"),
            ('{"forecast": "seasonal_naive", "scale": 1e308}', "bad_adjustment"),
        ],
    )
    def test_a_broken_adjustment_is_invalid_with_a_named_reason(self, answer: str, rejection: str) -> None:
        end = self.prepared(answer_form="forecast").act(f"<answer>{answer}</answer>")
        assert (end.outcome, end.rejection, end.submission) == ("invalid_submission", rejection, {"values": []})

    @given(st.text(max_size=80) | st.dictionaries(st.text(max_size=4), st.floats() | st.text(max_size=3)))
    @settings(max_examples=60, deadline=None)
    def test_no_answer_crashes(self, content: Any) -> None:
        text = content if isinstance(content, str) else json.dumps(content)
        for form in ("values", "forecast"):
            make_episode(diagnostics=(), answer_form=form).act(f"<answer>{text}</answer>")


SCRIPT = [
    "Hm.",
    "<tool_call>{bad</tool_call>" + DIAGNOSE,
    ToolCall("predict_time_series", {"model_name": "last_value"}),
]


class TestStates:
    @pytest.mark.parametrize("mode", ["memory", "chat"])
    def test_a_saved_episode_continues_as_if_nothing_had_happened(self, mode: str) -> None:
        episode = make_episode(prompt_mode=mode)
        for response in SCRIPT:
            saved = json.loads(json.dumps(episode.state()))
            again = ForecastEpisode.from_state(saved, episode.window, episode.config, make_pool())
            assert again.observe().text == episode.observe().text
            assert again.act(response).results == episode.act(response).results
            assert again.state() == episode.state()
        fork = episode.fork()
        fork.act("Another branch.")
        assert (episode.turns, fork.turns) == (3, 4)

    def test_a_state_of_another_window_or_other_conditions_is_refused(self) -> None:
        episode = make_episode()
        with pytest.raises(DataError, match="belongs to"):
            ForecastEpisode.from_state(episode.state(), window_of(number=1), episode.config, make_pool())
        with pytest.raises(DataError, match="was saved under"):
            ForecastEpisode.from_state(episode.state(), episode.window, ForecastConfig(models=MODELS[:1]), make_pool())

    @pytest.mark.parametrize("conditions", [{}, {"prompt_mode": "chat"}, {"planning": False}, {"refinement": False}])
    def test_a_trajectory_plays_again(self, conditions: dict[str, Any]) -> None:
        episode = make_episode(**conditions)
        trajectory = Trajectory.begin(episode)
        for response in [*SCRIPT, "<answer>none</answer>"]:
            if not episode.done:
                trajectory.add(episode.observe(), response, episode.act(response))
        trajectory.finish(episode, None)
        saved = Trajectory.from_json(json.loads(json.dumps(trajectory.to_json())))
        replay(saved, make_episode(**conditions))

    def test_nothing_that_a_policy_holds_can_change_the_episode(self) -> None:
        episode = make_episode()
        before = episode.observe().text
        prompt = episode.observe()
        prompt.task["models"].clear()  # type: ignore[attr-defined]
        prompt.tools[0]["function"].clear()
        prompt.memory.calls.clear()
        assert episode.observe().text == before


@pytest.mark.parametrize("name", hostile_texts())
@pytest.mark.parametrize(
    "conditions", [{}, {"prompt_mode": "chat"}, {"refinement": False}, {"answer_form": "forecast"}]
)
def test_no_text_of_a_policy_crashes_any_stage(name: str, conditions: dict[str, Any]) -> None:
    text = hostile_texts()[name]
    for done_before in range(3):
        episode = make_episode(**conditions)
        for response in (DIAGNOSE, predict("last_value"))[:done_before]:
            episode.act(response)
        for response in (text, f"<answer>{text}</answer>", {"content": text}):
            if not episode.done:
                episode.act(response)
                json.dumps(episode.state())
                assert episode.observe().text.encode("utf-8")


def test_a_step_of_all_diagnostics_takes_less_than_a_fifth_of_a_second_once_warm() -> None:
    response = "".join(call(name) for name in DIAGNOSTIC_TOOLS)
    make_episode(window_of(TEMPERATURE)).act(response)
    best = min(_seconds(response) for _ in range(3))
    assert best < 0.2


def _seconds(response: str) -> float:
    episode = make_episode(window_of(TEMPERATURE))
    start = time.process_time()
    episode.observe()
    episode.act(response)
    return time.process_time() - start
