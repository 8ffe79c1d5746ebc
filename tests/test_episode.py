"""The episode: limits, outcomes, both prompt modes, both answer forms."""

import json
from typing import Any

import numpy as np
import pytest
from factories import SCRIPTED_TARIFF, ScriptedForecaster, make_case, make_episode, scripted_pool
from hypothesis import given, settings
from hypothesis import strategies as st

from castgym.data.errors import ConfigError, ForecasterUnavailableError
from castgym.data.schema import Case
from castgym.envs.episode import Episode, EpisodeConfig, pool_models
from castgym.envs.memory import Memory
from castgym.tools.calls import ToolCall
from castgym.tools.forecasters.base import ForecasterInfo
from castgym.tools.forecasters.pool import ForecasterEntry, ForecasterPool

SERIES = "TEST00"
HOURLY = ToolCall("hourly_history_plan", {"series_id": SERIES})


def markup(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def submission_of(episode: Episode) -> str:
    plan = episode.memory.plans[-1]
    from castgym.tools.planning.contract import CapacityContract

    return json.dumps(CapacityContract.of(episode.case).submission(plan.grid_index))


class TestOutcomes:
    def test_a_feasible_answer_completes(self) -> None:
        episode = make_episode()
        episode.act(HOURLY)
        end = episode.act(submission_of(episode))
        assert (end.outcome, end.rejection) == ("completed", None)
        assert end.submission is not None

    @pytest.mark.parametrize(
        ("answer", "reason"),
        [
            ("", "empty_response"),
            ("I would rather not.", "no_complete_json"),
            ('{"decisions": []}', "missing_or_extra_decisions"),
            ('{"decisions": [', "malformed_decision_candidate"),
        ],
    )
    def test_an_answer_that_is_no_plan_is_invalid_with_its_published_reason(self, answer: str, reason: str) -> None:
        end = make_episode().act(answer)
        assert (end.outcome, end.rejection, end.submission) == ("invalid_submission", reason, None)

    def test_a_plan_off_the_grid_is_invalid(self) -> None:
        answer = {"decisions": [{"id": f"b{number:02d}", "action": 1.0} for number in range(8)]}
        assert make_episode().act(json.dumps(answer)).rejection == "off_grid"

    def test_a_call_past_the_limit_ends_without_a_submission(self) -> None:
        episode = make_episode()
        for _ in range(12):
            assert not episode.act(HOURLY).done
        end = episode.act(HOURLY)
        assert (end.outcome, end.submission) == ("budget_exhausted", None)
        assert len(episode.memory.calls) == 12

    def test_an_answer_after_the_twelfth_call_still_counts(self) -> None:
        episode = make_episode()
        for _ in range(12):
            episode.act(HOURLY)
        assert episode.act(submission_of(episode)).outcome == "completed"

    def test_a_cut_response_is_its_own_outcome_even_if_it_reads_as_an_answer(self) -> None:
        episode = make_episode()
        episode.act(HOURLY)
        text = submission_of(episode)
        assert episode.act(text, truncated=True).outcome == "truncated"
        again = make_episode()
        assert again.act({"role": "assistant", "content": text, "finish_reason": "length"}).outcome == "truncated"
        counted = make_episode(count_tokens=lambda text: len(text.split()), max_response_tokens=5)
        assert counted.act("one two three four five six").outcome == "truncated"

    def test_nothing_can_follow_the_end(self) -> None:
        episode = make_episode()
        episode.act("done")
        with pytest.raises(ConfigError, match="has ended"):
            episode.act("again")


class TestCalls:
    def test_the_log_tells_which_response_made_each_call(self) -> None:
        episode = make_episode()
        for response in (HOURLY, "<tool_call>{broken</tool_call>", HOURLY):
            episode.act(response)
        assert [record.step for record in episode.memory.calls] == [1, 2, 3]
        assert Memory.from_json(json.loads(json.dumps(episode.memory.to_json()))) == episode.memory

    @pytest.mark.parametrize(
        "response",
        [
            markup("hourly_history_plan", series_id=SERIES),
            "<think>which?</think>" + markup("hourly_history_plan", series_id=SERIES),
            json.dumps({"name": "hourly_history_plan", "arguments": {"series_id": SERIES}}),
            HOURLY,
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "hourly_history_plan", "arguments": json.dumps({"series_id": SERIES})},
                    }
                ],
            },
        ],
    )
    def test_all_forms_of_a_call_do_the_same(self, response: Any) -> None:
        episode = make_episode()
        transition = episode.act(response)
        assert transition.result is not None
        assert transition.result.ok
        assert [plan.source for plan in episode.memory.plans] == ["hourly_history_plan"]

    def test_a_call_inside_thinking_is_no_call(self) -> None:
        end = make_episode().act(f"<think>{markup('hourly_history_plan', series_id=SERIES)}</think>")
        assert (end.outcome, end.rejection) == ("invalid_submission", "empty_response")

    @pytest.mark.parametrize(
        ("response", "kind"),
        [
            ("<tool_call>{broken</tool_call>", "malformed_json"),
            ("<tool_call>{}", "unclosed_tool_call"),
            (markup("no_such_tool"), "unknown_tool"),
            (markup("history", series_id=SERIES, limit=0), "invalid_arguments"),
            (markup("catalog") + markup("catalog"), "parallel_calls"),
        ],
    )
    def test_a_bad_call_counts_is_explained_in_the_next_prompt_and_runs_nothing(self, response: str, kind: str) -> None:
        episode = make_episode()
        transition = episode.act(response)
        assert not transition.done
        assert transition.result is not None
        assert transition.result.error == kind
        assert len(episode.memory.calls) == 1
        assert kind in episode.observe().text
        assert episode.spent == 0

    @settings(max_examples=100, deadline=None)
    @given(
        text=st.text(max_size=200) | st.sampled_from(["<tool_call>" * 50, "[" * 5000, '{"a":' * 5000, "\x00", "\ud800"])
    )
    def test_no_text_makes_it_raise(self, text: str) -> None:
        episode = make_episode()
        transition = episode.act(text)
        assert transition.done or transition.result is not None
        json.dumps(episode.state())

    @pytest.mark.parametrize("mode", ["memory", "chat"])
    @pytest.mark.parametrize(
        "arguments",
        [10**5000, {"a": object()}, {1, 2}, "deep", {"\ud800": "\udfff"}],
        ids=["huge", "object", "set", "deep", "surrogates"],
    )
    def test_messages_that_are_no_json_are_unreadable_calls(self, mode: str, arguments: Any) -> None:
        if arguments == "deep":
            arguments = {}
            for _ in range(5000):
                arguments = {"a": arguments}
        function = {"name": "catalog", "arguments": arguments}
        for response in (
            {"content": "", "tool_calls": [{"id": "a", "type": "function", "function": function}]},
            ToolCall("catalog", arguments),
        ):
            episode = make_episode(prompt_mode=mode)
            transition = episode.act(response)
            assert transition.result is not None
            assert not transition.result.ok
            text = episode.observe().text
            text.encode("utf-8")
            json.dumps(episode.state())

    def test_a_missing_forecaster_is_the_infrastructures_fault_and_charges_nothing(self) -> None:
        def missing() -> Any:
            raise ForecasterUnavailableError("not installed")

        pool = ForecasterPool([ForecasterEntry(ForecasterInfo("scripted", ""), missing)])
        episode = make_episode(pool=pool, models=("scripted",))
        with pytest.raises(ForecasterUnavailableError):
            episode.act(
                ToolCall(
                    "forecast_and_plan",
                    {"series_id": SERIES, "model": "scripted", "horizon": 50, "context_steps": 336},
                )
            )
        assert episode.spent == 0
        assert not episode.done


class TestPrompts:
    def play(self, mode: str) -> Episode:
        episode = make_episode(prompt_mode=mode)
        episode.act("Looking first." + markup("history", series_id=SERIES, limit=4))
        episode.act(markup("classical_plan", series_id=SERIES, method="weekly_repeat"))
        episode.act(markup("nonsense"))
        return episode

    def test_memory_mode_rebuilds_one_user_message_without_earlier_responses(self) -> None:
        prompt = self.play("memory").observe()
        assert [message["role"] for message in prompt.messages] == ["system", "user"]
        assert "Looking first." not in prompt.text
        assert "<tool_call>" not in prompt.text
        for part in ("history(", "p1 from classical_plan:weekly_repeat", "unknown_tool", "Calls used: 3 of 12"):
            assert part in prompt.text

    def test_chat_mode_appends_and_keeps_every_earlier_message(self) -> None:
        episode = make_episode(prompt_mode="chat")
        seen: list[Any] = []
        for response in (markup("history", series_id=SERIES, limit=4), markup("nonsense"), HOURLY):
            messages = list(episode.observe().messages)
            assert messages[: len(seen)] == seen
            seen = messages
            episode.act(response)
        roles = [message["role"] for message in episode.observe().messages]
        assert roles == ["system", "user"] + ["assistant", "tool"] * 3

    def test_a_chat_answers_every_call_id(self) -> None:
        episode = make_episode(prompt_mode="chat")
        calls = [
            {"id": f"c{number}", "type": "function", "function": {"name": "catalog", "arguments": ""}}
            for number in range(2)
        ]
        episode.act({"role": "assistant", "content": "", "tool_calls": calls})
        replies = [message for message in episode.observe().messages if message["role"] == "tool"]
        assert [reply["tool_call_id"] for reply in replies] == ["c0", "c1"]

    def test_a_structured_call_gets_an_id_and_an_answer_to_it(self) -> None:
        episode = make_episode(prompt_mode="chat")
        for _ in range(2):
            episode.act(ToolCall("catalog", {}))
        messages = episode.observe().messages
        ids = [message["tool_calls"][0]["id"] for message in messages if message["role"] == "assistant"]
        assert ids == [message["tool_call_id"] for message in messages if message["role"] == "tool"]
        assert len(set(ids)) == 2

    @pytest.mark.parametrize("mode", ["memory", "chat"])
    def test_the_first_prompt_states_the_whole_contract(self, mode: str) -> None:
        case = make_case()
        text = make_episode(case, prompt_mode=mode).observe().text
        for part in ("b00", "b07", "MW", "2026-07-18T00:00:00", "113726", "minimise S = 0.5 x", "weights"):
            assert part in text
        assert f"{round(case.scale * 0.4, 6):.10g}" in text

    @pytest.mark.parametrize("mode", ["memory", "chat"])
    @pytest.mark.parametrize("form", ["decisions", "plan"])
    def test_prompts_depend_on_nothing_that_was_not_visible(self, mode: str, form: str) -> None:
        """The same visible history gives the same bytes, whatever the future was: an episode cannot hold a target."""
        first, second = (make_episode(prompt_mode=mode, answer_form=form) for _ in range(2))
        assert first.observe().text == second.observe().text
        assert not [name for name in Case.__dataclass_fields__ if "target" in name and name != "target_start"]

    def test_observing_twice_changes_nothing(self) -> None:
        episode = self.play("memory")
        assert episode.observe().text == episode.observe().text

    def test_a_policy_cannot_change_the_episode_through_a_prompt(self) -> None:
        episode = self.play("memory")
        text = episode.observe().text
        episode.observe().memory.plans.clear()
        episode.observe().task["contract"]["capacity_grid"][0] = -1.0
        assert episode.observe().text == text
        assert episode.observe().task["contract"]["capacity_grid"][0] > 0

    def test_in_compact_style_a_call_may_leave_out_the_only_series(self) -> None:
        call = '{"name": "history", "arguments": {"limit": 2}}'
        compact, full = make_episode(prompt_style="compact").act(call), make_episode().act(call)
        assert compact.result is not None and compact.result.ok
        assert full.result is not None and full.result.error == "invalid_arguments"

    def test_what_was_called_stays_as_it_was_called(self) -> None:
        episode = make_episode()
        arguments = {"series_id": SERIES, "limit": 2}
        episode.act(ToolCall("history", arguments))
        text = episode.observe().text
        arguments["limit"] = 336
        assert episode.observe().text == text


class TestPlanAnswers:
    def episode(self) -> Episode:
        episode = make_episode(answer_form="plan")
        episode.act(HOURLY)
        return episode

    def test_a_plan_in_memory_can_be_named(self) -> None:
        episode = self.episode()
        end = episode.act('{"plan": "p1"}')
        assert end.outcome == "completed"
        assert end.submission == json.loads(submission_of(episode))

    def test_blocks_can_be_moved_by_grid_steps(self) -> None:
        episode = self.episode()
        before = episode.memory.plans[0].grid_index
        end = episode.act('{"plan": "p1", "adjust": {"b03": 1, "b04": 1}}')
        assert end.submission is not None
        moved = np.array([row["action"] for row in end.submission["decisions"]]) / episode.case.scale
        expected = 0.40 + 0.05 * (np.array(before) + np.array([0, 0, 0, 1, 1, 0, 0, 0]))
        assert np.allclose(moved, expected, atol=1e-6)

    @pytest.mark.parametrize(
        ("answer", "reason"),
        [
            ('{"plan": "p9"}', "unknown_plan"),
            ('{"plan": "p1", "adjust": {"b03": 0.5}}', "bad_adjustment"),
            ('{"plan": "p1", "adjust": {"b03": 8}}', "ramp_exceeded"),
        ],
    )
    def test_impossible_plans_are_invalid(self, answer: str, reason: str) -> None:
        end = self.episode().act(answer)
        assert (end.outcome, end.rejection) == ("invalid_submission", reason)

    def test_moving_past_the_grid_is_invalid(self) -> None:
        episode = self.episode()
        down = json.dumps({"plan": "p1", "adjust": {f"b{number:02d}": -8 for number in range(8)}})
        index = np.array(episode.memory.plans[0].grid_index) - 8
        assert episode.act(down).rejection == ("off_grid" if index.min() < 0 else None)


def test_pools_remove_the_foundation_models() -> None:
    assert pool_models(("seasonal_empirical", "fracast"), "full") == ("seasonal_empirical", "fracast")
    assert pool_models(("seasonal_empirical", "fracast"), "no_tsfm") == ("seasonal_empirical",)
    with pytest.raises(ConfigError, match="pool"):
        pool_models((), "cheap")


def test_unknown_conditions_are_refused() -> None:
    for change in ({"prompt_mode": "shout"}, {"answer_form": "poem"}, {"max_calls": -1}):
        with pytest.raises(ConfigError):
            EpisodeConfig(0.05, SCRIPTED_TARIFF, (), **change)  # type: ignore[arg-type]


def test_two_episodes_side_by_side_do_not_touch_each_other() -> None:
    pool = scripted_pool(ScriptedForecaster())
    first, second = make_episode(pool=pool), make_episode(pool=pool)
    first.act(HOURLY)
    assert not second.memory.plans
