"""Reading a forecast: what counts, what is refused, and that no text breaks the reader."""

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castgym.envs.forecast_answers import FORECAST_REJECTIONS, canonical_timestamp, read_forecast

HORIZON = [f"2017-10-20 {hour:02d}:00:00" for hour in range(4)]
LINES = [f"{stamp} {value}" for stamp, value in zip(HORIZON, (26.5, -1, 2e1, 0.25), strict=True)]
VALUES = (26.5, -1.0, 20.0, 0.25)


def tagged(lines: list[str]) -> str:
    return "<answer>\n" + "\n".join(lines) + "\n</answer>"


def test_a_full_answer_is_read_with_its_thinking() -> None:
    answer = read_forecast("<think>It falls. <answer>no</answer></think>" + tagged(LINES), HORIZON)
    assert (answer.values, answer.rejection, answer.line) == (VALUES, None, None)
    assert answer.timestamps == tuple(HORIZON)
    assert answer.thinking == "It falls. <answer>no</answer>"


def test_a_chat_message_is_read_like_its_text() -> None:
    message = {"role": "assistant", "content": tagged(LINES), "reasoning_content": "It falls."}
    answer = read_forecast(message, HORIZON)
    assert (answer.values, answer.thinking) == (VALUES, "It falls.")


@pytest.mark.parametrize(
    "lines",
    [
        [line.replace(" ", "T", 1) for line in LINES],
        [line.replace(":00:00 ", ":00 ") for line in LINES],
        [f"  {line}\r" for line in LINES],
        [line.replace(" ", "  ").replace(":00  ", ":00\t") for line in LINES],
        ["", LINES[0], "", *LINES[1:], ""],
    ],
)
def test_other_spacing_and_iso_timestamps_are_the_same_answer(lines: list[str]) -> None:
    answer = read_forecast(tagged(lines), HORIZON)
    assert (answer.values, answer.rejection) == (VALUES, None)
    assert answer.timestamps == tuple(HORIZON)


def test_text_around_the_pair_is_not_read() -> None:
    answer = read_forecast(f"{LINES[0]}\nMy forecast:{tagged(LINES)}{LINES[1]} {{", HORIZON)
    assert (answer.values, answer.rejection) == (VALUES, None)


@pytest.mark.parametrize(
    ("text", "rejection"),
    [
        (None, "nontext_response"),
        (7, "nontext_response"),
        (b"<answer></answer>", "nontext_response"),
        ("", "no_answer"),
        ("\n".join(LINES), "no_answer"),
        ("\n".join(LINES) + "</answer>", "no_answer"),
        (tagged(LINES).replace("answer", "Answer"), "no_answer"),
        ("<think>" + tagged(LINES), "no_answer"),
        ("<think>" + tagged(LINES) + "</think>", "no_answer"),
        (tagged(LINES) + "</think>", "no_answer"),
        ("<answer>" + "\n".join(LINES), "unclosed_answer"),
        ("</answer><answer>" + "\n".join(LINES), "unclosed_answer"),
    ],
)
def test_without_a_pair_of_tags_there_is_no_answer(text: object, rejection: str) -> None:
    answer = read_forecast(text, HORIZON)
    assert (answer.values, answer.rejection) == (None, rejection)


@pytest.mark.parametrize(
    "text",
    [
        tagged(LINES) + tagged(LINES),
        "<answer>" + tagged(LINES) + "</answer>",
        "<answer>" + tagged(LINES),
        tagged(LINES) + "</answer>",
        "</answer>" + tagged(LINES),
    ],
)
def test_a_pair_among_further_tags_is_ambiguous_and_no_value_counts(text: str) -> None:
    answer = read_forecast(text, HORIZON)
    assert (answer.values, answer.rejection) == ((), "ambiguous_answer")


@pytest.mark.parametrize(
    ("third", "rejection"),
    [
        ("2017-10-20 02:00:00", "malformed_line"),
        ("20.0", "malformed_line"),
        ("```", "malformed_line"),
        ("2017-10-20 02:00:00: 20.0", "malformed_line"),
        ("2017-10-20 02:00:00+00:00 20.0", "malformed_line"),
        ("2017-10-20 02:00:00 20.0 21.0", "malformed_line"),
        ("2017-10-20 02:00:00, 20.0", "malformed_line"),
        ("2017-10-20 02:00:00 " + "1" * 200, "malformed_line"),
        ("2017-10-20 02:00:00 " + "1" * 65, "malformed_number"),
        ("2017-10-20 02:00:00 20.0C", "malformed_number"),
        ("2017-10-20 02:00:00 +20.0", "malformed_number"),
        ("2017-10-20 02:00:00 0x14", "malformed_number"),
        ("2017-10-20 02:00:00 2_0", "malformed_number"),
        ("2017-10-20 02:00:00 \u0662\u0660", "malformed_number"),
        ("2017-10-20 02:00:00 1,020.0", "thousands_separator"),
        ("2017-10-20 02:00:00 NaN", "nonfinite_number"),
        ("2017-10-20 02:00:00 -Infinity", "nonfinite_number"),
        ("2017-10-20 02:00:00 1e999", "nonfinite_number"),
        ("2017-10-20 01:00:00 20.0", "repeated_timestamp"),
        ("2017-10-20 03:00:00 20.0", "skipped_timestamp"),
        ("2017-10-19 02:00:00 20.0", "foreign_timestamp"),
    ],
)
def test_what_stands_before_the_first_fault_counts(third: str, rejection: str) -> None:
    answer = read_forecast(tagged([*LINES[:2], third, *LINES[2:]]), HORIZON)
    assert (answer.values, answer.rejection, answer.line) == (VALUES[:2], rejection, 3)


def test_timestamps_after_a_fault_are_still_stated() -> None:
    history = [f"2017-10-19 {hour:02d}:00:00 1.5" for hour in range(4)]
    answer = read_forecast(tagged(history), HORIZON)
    assert (answer.values, answer.rejection, answer.line) == ((), "foreign_timestamp", 1)
    assert answer.timestamps == tuple(line[:19] for line in history)


def test_unsorted_lines_end_where_the_order_breaks() -> None:
    answer = read_forecast(tagged([LINES[0], LINES[2], LINES[1], LINES[3]]), HORIZON)
    assert (answer.values, answer.rejection, answer.line) == (VALUES[:1], "skipped_timestamp", 2)


def test_short_long_and_empty_answers_are_named() -> None:
    short = read_forecast(tagged(LINES[:3]), HORIZON)
    assert (short.values, short.rejection, short.line) == (VALUES[:3], "too_few_lines", None)
    long = read_forecast(tagged([*LINES, "2017-10-20 04:00:00 1"]), HORIZON)
    assert (long.values, long.rejection, long.line) == (VALUES, "too_many_lines", 5)
    empty = read_forecast("<answer> \n </answer>", HORIZON)
    assert (empty.values, empty.rejection, empty.line) == ((), "empty_answer", None)


def test_daily_horizons_may_be_dates() -> None:
    answer = read_forecast(tagged(["2017-10-20 1", "2017-10-21 00:00 2"]), ["2017-10-20", "2017-10-21"])
    assert (answer.values, answer.rejection) == ((1.0, 2.0), None)


@pytest.mark.parametrize("expected", [["tomorrow"], ["2017-10-20", "2017-10-20 00:00:00"]])
def test_a_horizon_that_cannot_be_compared_is_refused(expected: list[str]) -> None:
    with pytest.raises(ValueError, match="expected"):
        read_forecast(tagged(LINES), expected)


def test_a_canonical_timestamp_is_its_own_form() -> None:
    assert canonical_timestamp("2017-10-20T05:15") == "2017-10-20 05:15:00"
    assert canonical_timestamp("2017-10-20 05:15:00") == "2017-10-20 05:15:00"
    assert canonical_timestamp("20/10/2017") is None


pieces = st.one_of(
    st.sampled_from(["<answer>", "</answer>", "<think>", "</think>", "<tool_call>", "\n", " ", "NaN", "{", "1e400"]),
    st.sampled_from([f"{line}\n" for line in LINES]),
    st.text(max_size=8),
)


@given(st.lists(pieces, max_size=14).map("".join))
def test_no_text_raises_and_only_finite_values_in_horizon_order_count(text: str) -> None:
    answer = read_forecast(text, HORIZON)
    assert answer.rejection is None or answer.rejection in FORECAST_REJECTIONS
    if answer.values is not None:
        assert len(answer.values) <= len(HORIZON)
        assert all(map(math.isfinite, answer.values))
        assert answer.rejection is not None or len(answer.values) == len(HORIZON)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=4, max_size=4))
def test_finite_floats_survive_writing_and_reading(values: list[float]) -> None:
    lines = [f"{stamp} {value!r}" for stamp, value in zip(HORIZON, values, strict=True)]
    assert read_forecast(tagged(lines), HORIZON).values == tuple(values)


@pytest.mark.parametrize(
    "text",
    [
        "<answer>" * 200_000,
        "<answer>" + "</answer>" * 200_000,
        "<answer>" + "2017-10-20 00:00:00 1\n" * 100_000 + "</answer>",
        "<answer>" + "2017-10-20 " * 200_000 + "</answer>",
        "<answer>2017-10-20" + " " * 2_000_000 + "1</answer>",
        "<answer>2017-10-20 00:00:00 " + "9" * 2_000_000 + "</answer>",
        "<answer>" + "\n" * 2_000_000 + "</answer>",
        "<think>" * 300_000,
    ],
    ids=range(8),
)
def test_megabytes_are_read_in_linear_time(text: str) -> None:
    start = time.perf_counter()
    answer = read_forecast(text, HORIZON)
    assert answer.values is None or len(answer.values) <= 1
    assert time.perf_counter() - start < 3.0
