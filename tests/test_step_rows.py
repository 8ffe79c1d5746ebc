"""Step rows: the loss covers exactly the responses, prompts are what the policy saw, and nothing is ever cut."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories import make_loaded
from hypothesis import given, settings
from hypothesis import strategies as st
from learning import play_some, write_trajectories

from castgym.agents.fixed import ClassicalPolicy
from castgym.agents.forecast_agents import FixedForecaster
from castgym.agents.rendering import prompt_text, response_text
from castgym.data.errors import ConfigError, DataError
from castgym.envs.forecast_source import ForecastSource
from castgym.envs.sources import DecisionSource
from castgym.envs.trajectory import Step, Trajectory, replay, said
from castgym.tools.calls import ToolCall
from castgym.training.step_rows import (
    IGNORED,
    StepRow,
    check_lengths,
    end_of_turn,
    read_trajectories,
    rows_digest,
    step_rows,
)
from castgym.training.tiny_model import train_tokenizer, transcript_texts

CONDITIONS: list[dict[str, str]] = [
    {"prompt_style": style, "prompt_mode": mode} for style in ("compact", "full") for mode in ("memory", "chat")
]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return train_tokenizer(transcript_texts(play_some(3)), 512)


def spans(row: StepRow) -> list[list[int]]:
    """The runs of tokens with loss."""
    runs: list[list[int]] = []
    inside = False
    for token, label in zip(row.input_ids, row.labels, strict=True):
        if label != IGNORED:
            assert label == token
            runs = runs if inside else [*runs, []]
            runs[-1].append(token)
        inside = label != IGNORED
    return runs


@pytest.mark.parametrize("thinking", [None, True, False])
@pytest.mark.parametrize("thought", ["", "the last week repeats"])
@pytest.mark.parametrize("conditions", CONDITIONS)
def test_the_loss_covers_exactly_the_response(
    tokenizer: Any, conditions: dict[str, str], thought: str, thinking: bool | None
) -> None:
    for trajectory in play_some(2, thought, **conditions):
        rows = step_rows(trajectory, tokenizer, thinking)
        assert [row.step for row in rows] == list(range(len(trajectory.steps))) == [0, 1]
        for row, step in zip(rows, trajectory.steps, strict=True):
            (run,) = spans(row)
            assert tokenizer.decode(run) == response_text(said(step)) + "<|im_end|>"
            assert run[-1] == tokenizer.eos_token_id
            prompt = tokenizer.decode(row.input_ids[: -len(run)])
            ending = "<think>\n\n</think>\n\n" if thinking is False else ""
            assert prompt.endswith("<|im_start|>assistant\n" + ending)
            assert thought in tokenizer.decode(rows[-1].response_ids)


@pytest.mark.parametrize("conditions", CONDITIONS)
def test_a_row_has_the_prompt_that_the_episode_showed(tokenizer: Any, conditions: dict[str, str]) -> None:
    """The schemas that the template renders are not saved in a step, and still the same as in the episode."""
    source = DecisionSource(make_loaded(), "test", **conditions)
    episode = source.episode(source.ids[0])
    trajectory = Trajectory.begin(episode)
    shown = []
    while not episode.done:
        prompt = episode.observe()
        response = ClassicalPolicy("weekly_repeat").act(prompt)
        shown.append(prompt_text(tokenizer, prompt.messages, prompt.template_tools))
        trajectory.add(prompt, response, episode.act(response))
    trajectory.finish(episode, None)
    saved = Trajectory.from_json(json.loads(json.dumps(trajectory.to_json())))
    assert [tokenizer.decode(row.prompt_ids) for row in step_rows(saved, tokenizer)] == shown
    assert ("<tools>" in shown[0]) == (conditions["prompt_style"] == "full")


@pytest.mark.parametrize("mode", ["memory", "chat"])
def test_a_row_is_what_the_chat_template_writes_for_the_whole_conversation(tokenizer: Any, mode: str) -> None:
    for trajectory in play_some(3, prompt_mode=mode):
        for row, step in zip(step_rows(trajectory, tokenizer), trajectory.steps, strict=True):
            call = said(step)
            message: dict[str, Any] = {"role": "assistant", "content": call}
            if isinstance(call, ToolCall):
                function = {"name": call.name, "arguments": call.arguments}
                message = {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [{"type": "function", "function": function}],
                }
            # The template adds an empty thought to the last turn; a thought of our own shows where it stands.
            message["reasoning_content"] = "why"
            whole = tokenizer.apply_chat_template([*step.messages, message], tokenize=False)
            assert whole.replace("<think>\nwhy\n</think>\n\n", "") == tokenizer.decode(row.input_ids) + "\n"


def test_the_form_of_a_response_does_not_change_its_tokens(tokenizer: Any) -> None:
    trajectory = play_some(1)[0]
    arguments = trajectory.steps[0].response["arguments"]
    function = {"name": "classical_plan", "arguments": json.dumps(arguments)}
    forms = [
        {"name": "classical_plan", "arguments": arguments, "call_id": "call_0"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "type": "function", "function": function}]},
        response_text(ToolCall("classical_plan", arguments)),
    ]
    rows = []
    for form in forms:
        trajectory.steps[0] = replace(trajectory.steps[0], response=form)
        rows.append(step_rows(trajectory, tokenizer)[0])
    assert rows[0] == rows[1] == rows[2]
    assert "classical_plan" in tokenizer.decode(rows[0].response_ids)


def test_responses_that_were_cut_are_refused(tokenizer: Any) -> None:
    trajectory = play_some(1)[0]
    for outcome in ("truncated", "infrastructure_error"):
        trajectory.end = {"outcome": outcome}
        with pytest.raises(DataError, match=outcome):
            step_rows(trajectory, tokenizer)


def test_each_prompt_renders_the_tools_that_its_stage_allowed(tokenizer: Any) -> None:
    source = ForecastSource("embedded", "train", models=("seasonal_naive",))
    episode, agent = source.episode(source.ids[0]), FixedForecaster("seasonal_naive")
    trajectory = Trajectory.begin(episode)
    while not episode.done:
        prompt = episode.observe()
        response = agent.act(prompt)
        trajectory.add(prompt, response, episode.act(response))
    trajectory.finish(episode, None)
    trajectory = Trajectory.from_json(json.loads(json.dumps(trajectory.to_json())))
    prompts = [tokenizer.decode(row.prompt_ids) for row in step_rows(trajectory, tokenizer)]
    tools = ["extract_data_quality" in text[: text.find("<|im_start|>user")] for text in prompts]
    assert tools == [True, False, False]
    assert "predict_time_series" in prompts[1][: prompts[1].find("<|im_start|>user")]
    replay(trajectory, source.episode(source.ids[0]))


def test_a_tokenizer_that_ends_a_turn_in_another_way_is_refused(tokenizer: Any) -> None:
    other = train_tokenizer(["some text"], 300)
    assert end_of_turn(other) == other.eos_token_id
    other.eos_token = "<|endoftext|>"
    with pytest.raises(ConfigError, match="im_end"):
        step_rows(play_some(1)[0], other)


def test_files_read_back_and_damage_is_named(tmp_path: Path, tokenizer: Any) -> None:
    trajectories = play_some(4)
    path = write_trajectories(tmp_path / "kept.jsonl", trajectories)
    again = list(read_trajectories([path, path]))
    rows = [row for trajectory in trajectories for row in step_rows(trajectory, tokenizer)]
    assert [row for trajectory in again for row in step_rows(trajectory, tokenizer)] == rows * 2
    with path.open("a") as stream:
        stream.write('{"format": 2, "steps": 3}\n')
    with pytest.raises(DataError, match="line 5"):
        list(read_trajectories([path]))
    with pytest.raises(DataError, match=r"none\.jsonl"):
        list(read_trajectories([tmp_path / "none.jsonl"]))


def test_every_token_counts_for_the_digest(tokenizer: Any) -> None:
    rows = step_rows(play_some(1)[0], tokenizer)
    moved = replace(rows[0], prompt_ids=rows[0].prompt_ids[:-1], response_ids=(rows[0].prompt_ids[-1], 5))
    assert len({rows_digest(rows), rows_digest(rows[::-1]), rows_digest([moved, rows[1]]), rows_digest(rows[:1])}) == 4


def row_of(prompt: int, response: int, case: int = 0) -> StepRow:
    return StepRow(tuple(range(prompt)), tuple(range(response)), f"case{case}", 0, 0)


SIZES = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=20)


@given(SIZES, st.integers(1, 12), st.integers(1, 12))
@settings(max_examples=100, deadline=None)
def test_rows_over_a_limit_are_dropped_or_refused_and_never_cut(
    sizes: list[tuple[int, int]], max_prompt: int, max_response: int
) -> None:
    rows = [row_of(*size, case) for case, size in enumerate(sizes)]
    fitting = [row for row, size in zip(rows, sizes, strict=True) if size[0] <= max_prompt and size[1] <= max_response]
    said_before: list[str] = []
    if len(fitting) == len(rows):
        for over_long in ("refuse", "drop"):
            kept, report = check_lengths(rows, max_prompt, max_response, over_long)  # type: ignore[arg-type]
            assert kept == rows
            assert report.dropped == 0
        return
    with pytest.raises(DataError, match=f"{len(rows) - len(fitting)} of {len(rows)} rows"):
        check_lengths(rows, max_prompt, max_response, "refuse", said_before.append)
    assert "over the limits" in said_before[0]
    if not fitting:
        with pytest.raises(DataError, match="all"):
            check_lengths(rows, max_prompt, max_response, "drop")
        return
    kept, report = check_lengths(rows, max_prompt, max_response, "drop")
    assert kept == fitting
    assert report.dropped == len(rows) - len(fitting)
    assert report.over_prompt == sum(prompt > max_prompt for prompt, _ in sizes)
    assert report.over_response == sum(response > max_response for _, response in sizes)
    assert report.response_tokens == sum(len(row.response_ids) for row in fitting)


def test_the_report_states_rows_trajectories_and_lengths() -> None:
    rows = [row_of(10 * n, n, case=n // 2) for n in range(1, 12)]
    _, report = check_lengths(rows, 100, 100, "drop")
    assert (report.rows, report.trajectories) == (11, 6)
    assert report.lengths["prompt"] == (10, 60, 110, 110)
    assert "1 prompts, 0 responses; 1 rows dropped" in str(report)
    with pytest.raises(DataError, match="at least one"):
        check_lengths([], 1, 1, "drop")


def test_steps_without_calls_are_text() -> None:
    assert said(Step(({"role": "user", "content": "x"},), "an answer")) == "an answer"
