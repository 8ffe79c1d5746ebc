"""The `plan` form of an answer."""

import json
from typing import Any

import pytest
from answer_texts import (
    OFFICIAL,
    PROSE,
    relaxed,
)
from hypothesis import given
from hypothesis import strategies as st

from castgym.envs.answers import (
    MAX_ADJUSTMENT,
    PLAN_REJECTIONS,
    PlanAnswer,
    read_plan_answer,
)
from castgym.tools.planning.submission import (
    DEFAULT_BLOCK_IDS,
)

PLANS = ["weekly_repeat", "chronos2#1"]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('{"plan": "weekly_repeat"}', PlanAnswer("weekly_repeat")),
        ('I take\n```json\n{"plan": "chronos2#1", "adjust": {}}\n```', PlanAnswer("chronos2#1")),
        (
            '{"plan": "weekly_repeat", "adjust": {"b03": 1, "b04": -8}, "why": "peak"}',
            PlanAnswer("weekly_repeat", {"b03": 1, "b04": -8}),
        ),
    ],
)
def test_a_plan_answer_is_read(text: str, answer: PlanAnswer) -> None:
    assert read_plan_answer(text, PLANS) == (answer, None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "nontext_response"),
        ("", "empty_response"),
        ("weekly_repeat", "no_complete_json"),
        ('{"plan": "weekly_repeat"} {"plan": "weekly_repeat"}', "ambiguous_candidates"),
        ('{"plan": "weekly_repeat",}', "malformed_decision_candidate"),
        ("{plan: weekly_repeat}", "malformed_decision_candidate"),
        ('{"plan": "weekly_repeat", "plan": "chronos2#1"}', "duplicate_json_key"),
        ('{"plan": "weekly_repeat", "adjust": {"b00": NaN}}', "nonfinite_json_number"),
        (OFFICIAL, "not_a_decision_submission"),
        (OFFICIAL[:-1] + ', "plan": "weekly_repeat"}', "not_a_decision_submission"),
        ('{"plan": "weekly_repeat", "b00": 5}', "not_a_decision_submission"),
        ('{"name": "x", "arguments": {}, "plan": "weekly_repeat"}', "not_a_decision_submission"),
        ('["weekly_repeat"]', "not_a_decision_submission"),
        ('{"plan": "weekly"}', "unknown_plan"),
        ('{"plan": ["weekly_repeat"]}', "unknown_plan"),
        ('{"plan": null}', "unknown_plan"),
        *[
            (f'{{"plan": "weekly_repeat", "adjust": {adjust}}}', "bad_adjustment")
            for adjust in ('{"b08": 1}', '{"b00": 9}', '{"b00": -9}', '{"b00": 1.0}', '{"b00": "1"}', '{"b00": true}')
        ],
        *[
            (f'{{"plan": "weekly_repeat", "adjust": {adjust}}}', "bad_adjustment")
            for adjust in ("null", "[]", "1", '{"b00": 1e999}', f'{{"b00": {"1" * 5000}}}')
        ],
    ],
)
def test_each_refusal_of_a_plan_answer_is_named(text: object, reason: str) -> None:
    assert reason in PLAN_REJECTIONS
    assert read_plan_answer(text, PLANS) == (None, reason)


@relaxed
@given(
    st.sampled_from(PLANS),
    st.dictionaries(st.sampled_from(DEFAULT_BLOCK_IDS), st.integers(-MAX_ADJUSTMENT, MAX_ADJUSTMENT)),
    PROSE,
    st.floats(0, 1, exclude_max=True),
)
def test_a_plan_answer_amid_prose_reads_back_equal_and_cut_never(
    plan: str, adjust: dict[str, Any], prose: str, share: float
) -> None:
    text = json.dumps({"plan": plan, "adjust": adjust})
    assert read_plan_answer(f"{prose} {text} {prose}", PLANS) == (PlanAnswer(plan, adjust), None)
    assert read_plan_answer(f"{prose} {text[: int(share * len(text))]}", PLANS)[0] is None
