"""The reader of final texts: what it accepts, what it refuses and under which name."""

import json
import random
import time

import pytest
from answer_texts import (
    ARRAY,
    BLOCKS,
    FORMS,
    FRAGMENTS,
    METADATA,
    NUMBERS,
    OFFICIAL,
    PAYLOAD,
    PROSE,
    RECORDS,
    VALUES,
    relaxed,
)
from hypothesis import given
from hypothesis import strategies as st

from castgym.envs.answers import (
    OPERATIONS,
    PLAN_REJECTIONS,
    REJECTIONS,
    read_plan_answer,
    read_submission,
)
from castgym.tools.planning.submission import (
    ACTION_FIELDS,
    DEFAULT_BLOCK_IDS,
    ID_FIELDS,
    block_ids,
    decision_values,
    raw_actions,
)


def rejection(text: object) -> str | None:
    payload, operations, reason = read_submission(text)
    assert (payload is None) == (reason is not None)
    assert reason is None or operations == ()
    return reason


@st.composite
def submissions(draw: st.DrawFn) -> tuple[str, list[int | float]]:
    """A valid submission in any allowed form, and its values in block order."""
    values = draw(st.lists(NUMBERS, min_size=8, max_size=8))
    stated: list[object] = [json.dumps(value) if draw(st.booleans()) else value for value in values]
    form = draw(st.sampled_from(["official", "array", "blocks"]))
    indent = draw(st.sampled_from([None, 2]))
    if form == "blocks":
        return json.dumps(dict(zip(DEFAULT_BLOCK_IDS, stated, strict=True)), indent=indent), values
    records: list[dict[str, object]] = [
        {draw(st.sampled_from(ID_FIELDS)): name, draw(st.sampled_from(ACTION_FIELDS)): value, **draw(METADATA)}
        for name, value in zip(DEFAULT_BLOCK_IDS, stated, strict=True)
    ]
    records = draw(st.permutations(records))
    value = {**draw(METADATA), "decisions": records} if form == "official" else records
    return json.dumps(value, indent=indent), values


@relaxed
@given(submissions(), PROSE, PROSE, st.booleans(), st.booleans())
def test_a_submission_in_any_allowed_wrapping_reads_back_equal(
    submission: tuple[str, list[int | float]], before: str, after: str, fence: bool, bom: bool
) -> None:
    text, values = submission
    wrapped = f"```json\n{text}\n```" if fence else text
    payload, operations, reason = read_submission(("\ufeff" if bom else "") + f"{before}\n{wrapped}\n{after}")
    assert reason is None
    assert payload == {
        "decisions": [{"id": name, "action": value} for name, value in zip(DEFAULT_BLOCK_IDS, values, strict=True)]
    }
    assert [type(record["action"]) for record in payload["decisions"]] == [type(value) for value in values]
    assert set(operations) <= set(OPERATIONS)
    assert list(operations) == sorted(operations, key=OPERATIONS.index)
    assert ("markdown_fence" in operations, "stripped_bom" in operations) == (fence, bom)
    assert decision_values(payload) == ([float(value) for value in values], None, "")


@pytest.mark.parametrize(
    ("text", "operations"),
    [
        (OFFICIAL, ()),
        (f"\n\t {OFFICIAL} \r\n", ()),
        ("\ufeff" + OFFICIAL, ("stripped_bom",)),
        (f" \ufeff\n{OFFICIAL}", ("stripped_bom",)),
        (f"```json\n{OFFICIAL}\n```", ("markdown_fence",)),
        (f"```\r\n{OFFICIAL}\r\n```", ("markdown_fence",)),
        (f"My plan:\n```JSON\n{OFFICIAL}\n```\nDone.", ("markdown_fence", "prose_removed")),
        (f"```python\n{OFFICIAL}\n```", ("prose_removed",)),
        (f"The plan is {OFFICIAL}.", ("prose_removed",)),
        (f"Decisions: {ARRAY}", ("prose_removed", "bare_array")),
        (ARRAY, ("bare_array",)),
        (BLOCKS, ("block_object",)),
        (json.dumps({**PAYLOAD, "reason": "cheap"}), ("metadata_ignored",)),
        (json.dumps({"decisions": [{**record, "unit": "MW"} for record in RECORDS]}), ("metadata_ignored",)),
        (json.dumps({"decisions": RECORDS[::-1]}), ("reordered",)),
        (OFFICIAL.replace('"id"', '"block"'), ("field_alias",)),
        (OFFICIAL.replace('"action"', '"capacity"'), ("field_alias",)),
        (OFFICIAL.replace("112.5", '"112.5"'), ("quoted_number",)),
    ],
)
def test_each_allowed_form_is_read_and_its_normalisation_named(text: str, operations: tuple[str, ...]) -> None:
    assert read_submission(text) == (PAYLOAD, operations, None)


@pytest.mark.parametrize(
    "prose",
    [
        "for hours [0,24) and [t, t+3)",
        "hours (0,24] as well",
        "blocks [00:00, 03:00)",
        "within [0.40, 2.00], see [1]",
        "a footnote [note] and {b}",
        "blocks [b00, b07]",
        "the grid {0.40, 0.45, ..., 2.00} and [0.40, 0.45, ..., 2.00]",
        r"$\mathcal{G}=\{0.40,\ldots,2.00\}$ with $\frac{\sum_{h} z_{h}}{24}$",
        "a [link](https://example.org)",
        'he said [the "hour of day" plan]',
    ],
)
def test_brackets_of_prose_are_no_candidates(prose: str) -> None:
    for text in (f"{prose}: {OFFICIAL}", f"{OFFICIAL} {prose}"):
        assert read_submission(text) == (PAYLOAD, ("prose_removed",), None)
    assert rejection(prose) == "no_complete_json"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "nontext_response"),
        (PAYLOAD, "nontext_response"),
        (OFFICIAL.encode(), "nontext_response"),
        ("", "empty_response"),
        (" \n\ufeff\t", "empty_response"),
        ("I take the hour-of-day plan.", "no_complete_json"),
        ("[0,24)", "no_complete_json"),
        (OFFICIAL + OFFICIAL, "ambiguous_candidates"),
        (f"First {OFFICIAL}, then {BLOCKS}", "ambiguous_candidates"),
        (f"```json\n{OFFICIAL}\n```\n```json\n{OFFICIAL}\n```", "ambiguous_candidates"),
        (f'{{"reason": "cheap"}}\n{OFFICIAL}', "ambiguous_candidates"),
        (f"[100, 110, 120] {OFFICIAL}", "ambiguous_candidates"),
        ("\n".join(map(json.dumps, RECORDS)), "ambiguous_candidates"),
        (OFFICIAL[:-1], "malformed_decision_candidate"),
        (OFFICIAL[:-1] + ",}", "malformed_decision_candidate"),
        (OFFICIAL.replace("}]", "},]"), "malformed_decision_candidate"),
        (OFFICIAL + "}", "malformed_decision_candidate"),
        (OFFICIAL[1:], "malformed_decision_candidate"),
        (OFFICIAL[1:-1], "malformed_decision_candidate"),
        (f'"decisions"{" " * 200}:{" " * 200}{ARRAY}', "malformed_decision_candidate"),
        (f"{{answer: {OFFICIAL}}}", "malformed_decision_candidate"),
        (f"[note: {OFFICIAL}]", "malformed_decision_candidate"),
        (f"{{{' ' * 500}{OFFICIAL}}}", "malformed_decision_candidate"),
        (f"{OFFICIAL} {{b00: 100}}", "malformed_decision_candidate"),
        (str(PAYLOAD), "malformed_decision_candidate"),
        (OFFICIAL.replace("100", "100 MW", 1), "malformed_decision_candidate"),
        (OFFICIAL.replace("112.5", "1,125"), "malformed_decision_candidate"),
        (OFFICIAL.replace("112.5", "45*2.5"), "malformed_decision_candidate"),
        (OFFICIAL.replace("112.5", "+112.5"), "malformed_decision_candidate"),
        ("[" * 3000, "malformed_decision_candidate"),
        ('{"a":' * 3000, "malformed_decision_candidate"),
        ("[" * 3000 + "]" * 3000, "not_a_decision_submission"),
        (OFFICIAL.replace('"id": "b00"', '"id": "b00", "id": "b00"'), "duplicate_json_key"),
        (OFFICIAL[:-1] + ', "decisions": []}', "duplicate_json_key"),
        (OFFICIAL[:-1] + ', "x": {"a": 1, "a": 1}}', "duplicate_json_key"),
        (OFFICIAL.replace("112.5", "NaN"), "nonfinite_json_number"),
        (OFFICIAL.replace("112.5", "-Infinity"), "nonfinite_json_number"),
        ("NaN", "nonfinite_json_number"),
        ("42", "not_a_decision_submission"),
        (json.dumps(OFFICIAL), "not_a_decision_submission"),
        ("[100, 112.5, 125, 130, 120, 110, 100, 97.5]", "not_a_decision_submission"),
        ("{}", "not_a_decision_submission"),
        ('{"plan": "hour_of_day_empirical"}', "not_a_decision_submission"),
        (json.dumps({"answer": PAYLOAD}), "not_a_decision_submission"),
        (json.dumps({"decisions": dict.fromkeys(DEFAULT_BLOCK_IDS, 1)}), "not_a_decision_submission"),
        ('{"decisions": null}', "not_a_decision_submission"),
        (json.dumps({"name": "submit", "arguments": PAYLOAD}), "not_a_decision_submission"),
        (json.dumps([{"name": "submit", "arguments": PAYLOAD}]), "not_a_decision_submission"),
        (json.dumps({"name": "submit", "arguments": {}, **PAYLOAD}), "not_a_decision_submission"),
        (json.dumps({"decisions": []}), "missing_or_extra_decisions"),
        (json.dumps({"decisions": RECORDS[:7]}), "missing_or_extra_decisions"),
        (json.dumps(RECORDS + RECORDS[:1]), "missing_or_extra_decisions"),
        (json.dumps(dict.fromkeys(DEFAULT_BLOCK_IDS[:7], 1)), "missing_or_extra_decisions"),
        (json.dumps(dict.fromkeys(block_ids(9), 1)), "missing_or_extra_decisions"),
        (BLOCKS.replace("b07", "b08"), "missing_or_extra_decisions"),
        (OFFICIAL[:-1] + ', "b00": 5}', "missing_or_extra_decisions"),
        (json.dumps({"decisions": [1] * 8}), "missing_decision_fields"),
        (OFFICIAL.replace('"id": "b03", ', ""), "missing_decision_fields"),
        (OFFICIAL.replace(', "action": 130', ""), "missing_decision_fields"),
        (OFFICIAL.replace('"id": "b03"', '"id": "b03", "block": "b03"'), "missing_decision_fields"),
        (OFFICIAL.replace('"action": 130', '"action": 130, "value": 130'), "missing_decision_fields"),
        (OFFICIAL.replace("b07", "b08"), "unknown_decision_id"),
        (OFFICIAL.replace('"b03"', "3"), "unknown_decision_id"),
        (OFFICIAL.replace('"b03"', '["b03"]'), "unknown_decision_id"),
        (OFFICIAL.replace("b07", "b06"), "duplicate_decision_id"),
        *[
            (OFFICIAL.replace("112.5", f'"{action}"'), "not_a_numeric_literal")
            for action in (
                "112.5 MW",
                "1,125",
                "45*2.5",
                "NaN",
                "Infinity",
                "",
                " 112.5",
                "+112.5",
                "112.",
                "0112",
                "true",
            )
        ],
        *[
            (OFFICIAL.replace("112.5", action), "nonfinite_or_nonnumeric_action")
            for action in ("true", "null", "[112.5]", '{"mw": 112.5}', "1e999", "-1e999", '"1e999"', "1" * 400)
        ],
        (OFFICIAL.replace("112.5", "1" * 5000), "nonfinite_or_nonnumeric_action"),
        (OFFICIAL.replace("112.5", f'"{"1" * 5000}"'), "nonfinite_or_nonnumeric_action"),
    ],
)
def test_each_refusal_has_its_published_name(text: object, reason: str) -> None:
    assert reason in REJECTIONS
    assert rejection(text) == reason


def test_the_rejections_are_the_published_ones() -> None:
    assert set(REJECTIONS) == {
        "nontext_response",
        "empty_response",
        "no_complete_json",
        "ambiguous_candidates",
        "malformed_decision_candidate",
        "duplicate_json_key",
        "nonfinite_json_number",
        "not_a_decision_submission",
        "missing_or_extra_decisions",
        "missing_decision_fields",
        "unknown_decision_id",
        "duplicate_decision_id",
        "not_a_numeric_literal",
        "nonfinite_or_nonnumeric_action",
    }


@pytest.mark.parametrize("form", FORMS)
def test_cutting_a_submission_anywhere_at_either_end_is_never_accepted(form: str) -> None:
    for cut in range(1, len(form)):
        assert rejection(form[:cut]) is not None
        assert rejection(form[cut:]) is not None
        assert rejection(f"My plan: {form[:cut]} for [0,24).") is not None


@relaxed
@given(submissions(), st.floats(0, 1, exclude_max=True), PROSE)
def test_cutting_any_submission_is_never_accepted(
    submission: tuple[str, list[int | float]], share: float, prose: str
) -> None:
    text = submission[0]
    assert rejection(f"{prose} {text[: int(share * len(text))]}") is not None


@pytest.mark.parametrize("form", FORMS[:3])
@pytest.mark.parametrize("replacement", ["", "twice"])
def test_one_lost_or_doubled_mark_is_never_repaired(form: str, replacement: str) -> None:
    for at, mark in enumerate(form):
        if mark in '{}[]":,':
            assert rejection(form[:at] + (mark * 2 if replacement else "") + form[at + 1 :]) is not None, at


@relaxed
@given(
    submissions(),
    st.sampled_from([*FORMS, "{}", "[]", '["b00"]', "[1, 2, 3]", '{"a": [1]}', "[[1]]"]),
    PROSE,
    st.booleans(),
)
def test_two_candidates_are_never_picked_from(
    submission: tuple[str, list[int | float]], other: str, prose: str, first: bool
) -> None:
    pair = (submission[0], other) if first else (other, submission[0])
    assert rejection(f"{pair[0]}\n{prose}\n{pair[1]}") == "ambiguous_candidates"


@relaxed
@given(FRAGMENTS | st.text(st.characters(exclude_categories=())))
def test_no_text_raises_and_every_refusal_is_named(text: str) -> None:
    payload, operations, reason = read_submission(text)
    assert reason is None or reason in REJECTIONS
    assert set(operations) <= set(OPERATIONS)
    if reason is None:
        assert decision_values(payload).fault is None
    answer, plan_reason = read_plan_answer(text, ["weekly_repeat"])
    assert (answer is None) == (plan_reason in PLAN_REJECTIONS)


@pytest.mark.parametrize(
    "piece",
    [
        "[",
        "{",
        "{ x ",
        "{x} ",
        "[0,24) ",
        "[1] ",
        '[1,"] ",',
        '[x"] ',
        "b00   ",
        "(0,2] ",
        '{"',
        "<think>",
        "[x",
        "{x [y] }",
    ],
)
def test_the_time_is_linear_in_the_length(piece: str) -> None:
    text = piece * (10**6 // len(piece) if piece in "[{" else 50_000)
    started = time.process_time()
    assert rejection(text) is not None
    assert rejection(text + OFFICIAL) in (None, "malformed_decision_candidate")
    assert time.process_time() - started < 15


def test_a_megabyte_of_prose_around_a_submission_is_read() -> None:
    words = random.Random(0).choices(["load", "[0,24)", "peak,", "{b}", '"x"', "\n"], k=200_000)
    text = " ".join(words)
    assert read_submission(f"{text} {OFFICIAL} {text}") == (PAYLOAD, ("prose_removed",), None)


@pytest.mark.parametrize(
    "metadata",
    [
        r'"a\u0000b"',
        r'"\ud800"',
        '"\ud800"',
        "[" * 3000 + "]" * 3000,
        '{"a":' * 200_000 + "1" + "}" * 200_000,
        "1e999",
        "1" * 5000,
    ],
)
def test_metadata_decides_nothing_whatever_it_holds(metadata: str) -> None:
    for text in (f'{OFFICIAL[:-1]}, "why": {metadata}}}', OFFICIAL.replace('"id"', f'"why": {metadata}, "id"', 1)):
        assert read_submission(text) == (PAYLOAD, ("metadata_ignored",), None)
        assert read_submission(f"My plan: {text}")[0] == PAYLOAD
        assert rejection(text[:-1]) == "malformed_decision_candidate"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("[" * 3000 + "]" * 3000, "nonfinite_or_nonnumeric_action"),
        (r'"112.5\u0000"', "not_a_numeric_literal"),
        ('{"a": ' * 100 + '{"b": 1, "b": 2}' + "}" * 100, "duplicate_json_key"),
        ("[" * 100 + "NaN" + "]" * 100, "nonfinite_json_number"),
    ],
)
def test_an_action_is_judged_at_any_depth(value: str, reason: str) -> None:
    assert rejection(OFFICIAL.replace("112.5", value)) == reason


def test_other_block_counts_are_read() -> None:
    names = block_ids(24)
    assert names[:1] + names[-1:] == ("b00", "b23")
    text = json.dumps(dict.fromkeys(names, 5.5))
    payload, operations, reason = read_submission(text, block_ids=names)
    assert (operations, reason) == (("block_object",), None)
    assert decision_values(payload, names).values == [5.5] * 24
    assert rejection(text) == "missing_or_extra_decisions"


@pytest.mark.parametrize(
    ("payload", "fault"),
    [
        (None, "not_a_decision_submission"),
        (RECORDS, "not_a_decision_submission"),
        ({}, "not_a_decision_submission"),
        ({"name": "a", "arguments": {}}, "not_a_decision_submission"),
        ({"decisions": RECORDS[:7]}, "missing_or_extra_decisions"),
        ({"decisions": [*RECORDS[:7], {"id": "b07"}]}, "missing_decision_fields"),
        ({"decisions": [*RECORDS[:7], {"id": "b09", "action": 1}]}, "unknown_decision_id"),
        ({"decisions": [*RECORDS[:7], {"id": "b00", "action": 1}]}, "duplicate_decision_id"),
        *[
            ({"decisions": [*RECORDS[:7], {"id": "b07", "action": action}]}, "nonfinite_or_nonnumeric_action")
            for action in ("100", True, None, float("nan"), float("inf"), 10**400, [1])
        ],
    ],
)
def test_the_grader_refuses_a_parsed_submission_under_the_same_names(payload: object, fault: str) -> None:
    values, found, detail = decision_values(payload)
    assert (values, found) == (None, fault)
    assert detail.isascii()
    assert detail


def test_the_grader_takes_both_object_forms_in_block_order() -> None:
    expected = [float(value) for value in VALUES]
    assert decision_values({"decisions": RECORDS[::-1]}).values == expected
    assert decision_values(dict(zip(DEFAULT_BLOCK_IDS, VALUES, strict=True))).values == expected
    assert raw_actions({"decisions": RECORDS}).actions == VALUES
