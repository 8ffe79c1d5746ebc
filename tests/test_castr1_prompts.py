"""Prompts of the forecasting episode: what stages show, size by part, and that nothing of the future is in them."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from castr1_helpers import (
    DIAGNOSE,
    MODELS,
    PRICE,
    TEMPERATURE,
    WIND,
    answer_of,
    call,
    make_episode,
    make_pool,
    predict,
    window_of,
    with_future,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from castgym.data.windows import Window
from castgym.data.windows_set import WindowSet
from castgym.envs.forecast_source import ForecastSource
from castgym.envs.prompt_size import PromptTooLongError
from castgym.tools.forecasting_tools import DIAGNOSTIC_TOOLS, decimals_of, number_text

ALL = "".join(call(name) for name in DIAGNOSTIC_TOOLS)


class TestStages:
    def test_preparation_shows_the_whole_history_and_the_context(self) -> None:
        prompt = make_episode().observe()
        window = window_of()
        user = str(prompt.messages[1]["content"])
        assert len(prompt.messages) == 2
        assert f"all {window.length} observations of price" in user
        for time in (window.history_times[0], window.history_times[-1]):
            assert f"\n{time:%Y-%m-%d %H:%M} " in user
        assert window.context in user
        assert "renewable_forecast: " in user
        assert "Stage: preparation" in user
        assert "Analysis History\n" not in user
        assert "predict_time_series" not in user

    def test_forecasting_shows_history_and_analysis_and_what_each_forecaster_is(self) -> None:
        episode = make_episode()
        episode.act(DIAGNOSE)
        user = str(episode.observe().messages[1]["content"])
        assert "all 168 observations" in user
        assert str(episode.memory.analysis[0].content["summary"]) in user
        assert "- last_value: Repeats the last observation." in user
        assert "Stage: forecasting" in user
        assert "extract_data_quality" not in user

    def test_refinement_shows_recent_observations_analysis_and_forecasts_as_lines(self) -> None:
        episode = make_episode(recent_steps=24)
        episode.act(DIAGNOSE)
        episode.act(predict(*MODELS))
        user = str(episode.observe().messages[1]["content"])
        window = window_of()
        assert f"\n{window.history_times[-24]:%Y-%m-%d %H:%M} " in user
        assert f"{window.history_times[-25]:%Y-%m-%d %H:%M}" not in user
        assert window.context in user
        assert str(episode.memory.analysis[1].content["summary"]) in user
        for record in episode.memory.predictions:
            assert "\n".join([f"[{record.content['model_name']}]", *record.content["forecast"]]) in user
        assert "<think>" in user
        assert "<answer>" in user

    def test_earlier_responses_never_appear_in_memory_mode(self) -> None:
        episode = make_episode()
        episode.act("A MARK in a thought. " + DIAGNOSE)
        episode.act(f"<think>A MARK</think>{predict('last_value')}")
        assert "A MARK" not in json.dumps(episode.observe().messages)

    def test_without_memory_the_conversation_holds_everything_and_its_beginning_never_changes(self) -> None:
        episode = make_episode(prompt_mode="chat")
        first = episode.observe()
        episode.act("A MARK in a thought. " + DIAGNOSE)
        episode.act(predict("last_value"))
        later = episode.observe()
        assert later.messages[:2] == first.messages
        assert later.tools == first.tools
        assert [message["role"] for message in later.messages[2:]] == ["assistant", "tool", "tool", "assistant", "tool"]
        assert "A MARK" in str(later.messages[2])

    def test_negative_prices_are_no_reason_to_revise_and_the_rule_is_for_prices_only(self) -> None:
        rule = "a negative value alone is no reason to revise it"
        for window, expected in ((window_of(PRICE), True), (window_of(TEMPERATURE), False)):
            episode = make_episode(window, diagnostics=())
            assert rule not in episode.observe().text
            episode.act(predict("last_value"))
            assert (rule in episode.observe().text) == expected

    def test_the_last_response_asks_for_the_answer(self) -> None:
        episode = make_episode(max_steps=2)
        episode.act(DIAGNOSE)
        text = episode.observe().text
        assert "only a final answer counts now" in text
        assert "24 lines `timestamp value`" in text


def test_an_answer_in_the_shown_form_is_read_whole() -> None:
    """What the prompt asks for and what the reader reads are one form: the shown example, filled in, is complete."""
    for window_set in (TEMPERATURE, PRICE, WIND):
        episode = make_episode(window_of(window_set), diagnostics=())
        episode.act(predict("seasonal_naive"))
        assert episode.act(answer_of(episode)).outcome == "completed"


class TestCompact:
    CONDITIONS: dict[str, Any] = {"prompt_style": "compact", "answer_form": "forecast"}  # noqa: RUF012

    @pytest.mark.parametrize("window_set", [TEMPERATURE, PRICE, WIND])
    def test_compact_prompts_stay_below_1600_characters_in_every_stage(self, window_set: WindowSet) -> None:
        episode = make_episode(window_of(window_set), **self.CONDITIONS)
        sizes = []
        for response in (ALL, predict(*MODELS), '<answer>{"forecast": "last_value"}</answer>'):
            sizes.append(len(episode.observe().text))
            episode.act(response)
        assert max(sizes) < 1600
        assert episode.end.outcome == "completed"

    def test_they_say_which_tools_there_are_so_that_no_template_need_do_so(self) -> None:
        prompt = make_episode(**self.CONDITIONS).observe()
        assert prompt.template_tools == ()
        assert all(name in prompt.text for name in (*DIAGNOSTIC_TOOLS, "predict_time_series", *MODELS))

    def test_errors_are_shown(self) -> None:
        episode = make_episode(**self.CONDITIONS)
        episode.act(predict("last_value"))
        assert "stage_forbids_tool" in episode.observe().text


class TestSize:
    def test_the_size_is_reported_by_part(self) -> None:
        episode = make_episode()
        episode.act(ALL)
        episode.act(predict("last_value") + "<tool_call>")
        sizes = episode.observe().sizes
        assert set(sizes) == {
            "system", "task", "history", "known", "analysis", "predictions", "errors", "instructions", "total"
        }  # fmt: skip
        assert sizes["total"] == sum(size for name, size in sizes.items() if name != "total")
        message = sum(len(str(message["content"])) for message in episode.observe().messages)
        assert sizes["total"] <= message <= sizes["total"] + 20  # line breaks between the parts

    def test_a_prompt_over_the_limit_is_an_error_that_names_each_part_and_is_never_cut(self) -> None:
        with pytest.raises(PromptTooLongError, match=r"more than the limit of 1000: system \d+, .*history \d+"):
            make_episode(max_prompt_size=1000).observe()
        limit = make_episode().observe().sizes["total"]
        assert make_episode(max_prompt_size=limit).observe().text == make_episode().observe().text

    def test_tokens_are_counted_where_a_counter_is_given(self) -> None:
        words = make_episode(count_tokens=lambda text: len(text.split()), max_prompt_size=3000).observe().sizes
        assert words["total"] < 3000
        with pytest.raises(PromptTooLongError, match="tokens"):
            make_episode(count_tokens=lambda text: len(text.split()), max_prompt_size=100).observe()

    def test_no_response_can_make_a_rebuilt_prompt_long(self) -> None:
        episode = make_episode()
        before = episode.observe().sizes["total"]
        episode.act(call("x" * 10_000, y="z" * 10_000) * 32)
        assert episode.observe().sizes["total"] < before + 4000


@given(value=st.floats(allow_nan=False, allow_infinity=False), scale=st.integers(-300, 300))
def test_shown_numbers_are_json_and_close(value: float, scale: int) -> None:
    values = np.array([0.0, 10.0**scale])
    decimals = decimals_of(values)
    text = number_text(value, decimals)
    assert len(text) <= 64
    assert json.loads(text) == pytest.approx(value, rel=1e-11, abs=0.006 * 10.0**scale)


@pytest.mark.parametrize("history", ["gaps", "constant", "huge", "tiny", "one value"])
@pytest.mark.parametrize("style", ["full", "compact"])
def test_odd_histories_play_to_the_end(history: str, style: str) -> None:
    window = window_of(TEMPERATURE)
    values = window.history.copy()
    if history == "gaps":
        values[10:30] = np.nan
    elif history == "constant":
        values[:] = 3.0
    elif history == "one value":
        values[1:, 0] = np.nan
    else:
        values *= 1e290 if history == "huge" else 1e-290
    form = "forecast" if style == "compact" else "values"
    episode = make_episode(replace_history(window, values), prompt_style=style, answer_form=form)
    episode.act(ALL)
    assert ("missing" in episode.observe().text) or history not in ("gaps", "one value")
    assert [result.error for result in episode.act(predict(*MODELS)).results] == [None, None]
    answer = '<answer>{"forecast": "last_value"}</answer>' if form == "forecast" else answer_of(episode)
    assert episode.act(answer).outcome == "completed"


def replace_history(window: Window, values: np.ndarray) -> Window:
    return replace(window, history=values)


SCRIPT = [
    ALL + call("backtest_forecasters") + predict("last_value", "nobody") + "<tool_call>{bad</tool_call>",
    predict(*MODELS, "failing", "nobody") + DIAGNOSE,
    "Let me see.",
    call("predict_time_series", model="x"),
]


@pytest.mark.parametrize("mode", ["memory", "chat"])
@pytest.mark.parametrize("style", ["full", "compact"])
@given(seed=st.integers(0, 2**32), number=st.integers(0, 3), kind=st.sampled_from(["PRICE", "TEMPERATURE", "WIND"]))
@settings(max_examples=8, deadline=None)
def test_nothing_at_or_after_the_origin_but_declared_series_reaches_any_observation(
    mode: str, style: str, seed: int, number: int, kind: str
) -> None:
    """Every row from the origin on becomes another, the truth included: prompts, facts and errors stay the same."""
    window_set = {"PRICE": PRICE, "TEMPERATURE": TEMPERATURE, "WIND": WIND}[kind]
    rng = np.random.default_rng(seed)
    origin = window_set.origins("test")[number]
    row = int(window_set.times.get_loc(origin))
    other = with_future(window_set, row, lambda values: values * rng.normal(0, 5, values.shape) + 7)
    assert not np.allclose(other.values[row:, 0], window_set.values[row:, 0])
    transcripts = []
    for item in (window_set, other):
        source = ForecastSource(
            item,
            "test",
            forecasters=make_pool(),
            models=(*MODELS, "failing"),
            backtests=2,
            prompt_mode=mode,
            prompt_style=style,
            answer_form="forecast",
        )
        episode = source.episode(f"{item.name}-test-{origin:%Y-%m-%dT%H:%M}")
        seen = []
        for response in SCRIPT:
            prompt = episode.observe()
            seen.append(json.dumps([prompt.text, prompt.task, prompt.tools, prompt.memory.to_json()]))
            seen.append(json.dumps([result.content for result in episode.act(response).results]))
        transcripts.append([*seen, episode.observe().text, json.dumps(episode.state())])
    assert transcripts[0] == transcripts[1]
