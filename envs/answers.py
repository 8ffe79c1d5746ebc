"""Reading the final text of an episode: the protocol's `format-v1`, and the separate `plan` answer form.

The final text must hold exactly one JSON value, alone, in a Markdown fence or amid prose. What counts:

* A *candidate* is a complete JSON object or array. Two candidates are refused, whatever they hold: none is picked.
* In prose, `[24]` and `[0, 24]`, an array of one or two numbers, is a reference or an interval and no candidate, and
  neither are the half-open `[0, 24)` and `(0, 24]`. Any longer list could be a plan, so it counts.
* A bracket that opens no complete JSON is prose where it closes again (`[note]`, `{0.40, 0.45, ..., 2.00}`, LaTeX),
  unless it begins like an object or an array of objects, or assigns to a name of the answer's fields (`b00: 5`): then
  it is a malformed candidate, and the text is refused. The inside of a prose bracket is never searched.
* A bracket that never closes or was never opened is refused too: it may be what is left of a cut or broken value.

Thinking and tool calls are removed before (`castgym.tools.calls.parse_response`).
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from castgym.tools.planning.submission import (
    ACTION_FIELD,
    ACTION_FIELDS,
    DECISIONS_KEY,
    DEFAULT_BLOCK_IDS,
    ID_FIELD,
    ID_FIELDS,
    SubmissionFault,
    is_finite_number,
    raw_actions,
    stated_fields,
)
from castgym.tools.strict_json import (
    JsonFault,
    Scan,
    StrictJsonError,
    is_number_literal,
    loads_unlimited,
    parse_number,
    scan_value,
)

TextRejection = Literal[
    "nontext_response",  # the response is not text
    "empty_response",  # nothing but whitespace
    "no_complete_json",  # no JSON object or array
    "ambiguous_candidates",  # two or more
    "malformed_decision_candidate",  # broken, cut or stray JSON
    "duplicate_json_key",  # an object that states a key twice
    "nonfinite_json_number",  # the words NaN, Infinity or -Infinity
    "not_a_decision_submission",  # complete JSON that is no submission, such as a tool call
]
Rejection = Literal[
    TextRejection,
    SubmissionFault,
    "not_a_numeric_literal",  # a quoted action that is not exactly a JSON number: units, commas, arithmetic, "NaN"
]
REJECTIONS: tuple[Rejection, ...] = get_args(Rejection)
"""The published names of `format-v1`."""

Operation = Literal[
    "stripped_bom",
    "markdown_fence",
    "prose_removed",
    "bare_array",
    "block_object",
    "metadata_ignored",
    "field_alias",
    "reordered",
    "quoted_number",
]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)
"""Every normalisation that the reader applies, in this order; none changes a numerical value."""

PlanRejection = Literal[
    TextRejection,
    "unknown_plan",  # no plan of that name is in memory
    "bad_adjustment",  # not an object of known blocks and whole grid steps within the limit
]
PLAN_REJECTIONS: tuple[PlanRejection, ...] = get_args(PlanRejection)

PLAN_KEY = "plan"
ADJUST_KEY = "adjust"
MAX_ADJUSTMENT = 8
"""Largest adjustment of a block in grid steps, up or down."""

_JSON_REJECTIONS: Mapping[JsonFault, TextRejection] = {
    "duplicate_key": "duplicate_json_key",
    "nonfinite_number": "nonfinite_json_number",
}
_BRACKET = re.compile(r"[\[\]{}]")
_NONBLANK = re.compile(r"\S")
_CLOSES = {"[": "]", "{": "}"}
# Two short terms and one comma, as in [0, 24) and (t, t+3]: bounded, so that a match costs constant time.
_INTERVAL_FROM = re.compile(r'\[[^\[\]{}"\n,]{1,40}+,[^\[\]{}"\n,)]{1,40}+\)')
_INTERVAL_TO = re.compile(r'\([^\[\]{}"\n,(]{1,40}+,[^\[\]{}"\n,(]{1,40}+\]')
_LONGEST_INTERVAL = 84
_FENCE = "```"


class ReadSubmission(NamedTuple):
    """What a final text says.

    Attributes:
        payload: canonical, `{"decisions": [{"id": "b00", "action": 1234.5}, ...]}` in block order; `None` if refused.
        operations: the normalisations that were applied, of `OPERATIONS`; empty if refused.
        rejection: the published reason of the refusal; `None` if accepted.
    """

    payload: dict[str, Any] | None
    operations: tuple[Operation, ...]
    rejection: Rejection | None


@dataclass(frozen=True, slots=True)
class PlanAnswer:
    """An answer that names a plan.

    Attributes:
        plan: name of a plan in memory.
        adjust: grid steps up (positive) or down for some blocks.
    """

    plan: str
    adjust: Mapping[str, int] = field(default_factory=dict)


class _RejectedError(Exception):
    """Carries the name of a refusal out of the reading."""

    def __init__(self, reason: Any) -> None:
        super().__init__(reason)
        self.reason = reason


def read_submission(text: object, block_ids: Sequence[str] = DEFAULT_BLOCK_IDS) -> ReadSubmission:
    """Read a submission from the final text by the rules of `format-v1` (protocol, "Reading the final text").

    Accepted are `{"decisions": [...]}`, the bare array of decision records and the object whose keys are exactly the
    block IDs. Each action is a finite JSON number or the same in quotes. Keys beside `decisions` and further keys of
    a record are ignored, whatever they hold. Values are not rounded, clamped or snapped: the contract judges them.

    Args:
        text: the final text, without thinking. Anything but `str` is refused as `nontext_response`.
        block_ids: the blocks to decide, in order.

    Returns:
        (payload, operations, rejection). No text raises an exception; the time is linear in its length.
    """
    try:
        value, operations = _read_value(text, (DECISIONS_KEY, *ID_FIELDS, *ACTION_FIELDS, *block_ids))
        payload, more = _decisions(value, block_ids)
    except _RejectedError as rejected:
        return ReadSubmission(None, (), rejected.reason)
    return ReadSubmission(payload, (*operations, *more), None)


def read_plan_answer(
    text: object, plan_ids: Collection[str], block_ids: Sequence[str] = DEFAULT_BLOCK_IDS
) -> tuple[PlanAnswer | None, PlanRejection | None]:
    """Read the `plan` form of an answer: `{"plan": "<name>", "adjust": {"b03": 1, "b04": -2}}`.

    The JSON is found by the same rules as a submission's. `adjust` may be absent. Other keys are ignored, except that
    an object with `decisions` or a block ID beside `plan` states two answers and is refused.

    Args:
        text: the final text, without thinking.
        plan_ids: names of the plans in memory.
        block_ids: the blocks, in order.

    Returns:
        (answer, None) or (None, one of `PLAN_REJECTIONS`).
    """
    try:
        value, _ = _read_value(text, (PLAN_KEY, ADJUST_KEY, DECISIONS_KEY, *block_ids))
        return _plan(value, plan_ids, block_ids), None
    except _RejectedError as rejected:
        return None, rejected.reason


def _read_value(text: object, field_names: Iterable[str]) -> tuple[Any, list[Operation]]:
    """The one JSON value of the text, and how it was freed from what surrounds it."""
    if not isinstance(text, str):
        raise _RejectedError("nontext_response")
    operations: list[Operation] = []
    text = text.strip()
    if text.startswith("\ufeff"):
        operations.append("stripped_bom")
        text = text[1:].strip()
    if not text:
        raise _RejectedError("empty_response")
    start, end = _find_candidate(text, field_names)
    operations.extend(_describe_surroundings(text[:start], text[end:]))
    try:
        return loads_unlimited(text[start:end]), operations
    except StrictJsonError as fault:
        raise _RejectedError(_JSON_REJECTIONS.get(fault.kind, "malformed_decision_candidate")) from None


def _find_candidate(text: str, field_names: Iterable[str]) -> tuple[int, int]:
    """Extent of the only candidate in a stripped text."""
    whole = scan_value(text)
    if whole.complete and whole.end == len(text):
        return 0, len(text)
    names = "|".join(map(re.escape, field_names))
    assignment = re.compile(rf"""\b(?:{names})\b["']?+\s*+[:=]""")
    found: list[tuple[int, int]] = []
    position = 0
    while bracket := _BRACKET.search(text, position):
        start = bracket.start()
        if bracket[0] in "]}":
            position = _skip_closer(text, start)
            continue
        scan = scan_value(text, start)
        if not scan.complete:
            position = _skip_prose(text, start, scan, assignment)
            continue
        position = scan.end
        if not _is_reference(text[start : scan.end]):
            found.append((start, scan.end))
        if len(found) > 1:
            raise _RejectedError("ambiguous_candidates")
    if not found:
        raise _RejectedError("no_complete_json")
    start, end = found[0]
    # A quoted key before the value: it was the member of an object whose braces are gone.
    before = text[:start].rstrip()
    if before.endswith(":") and before[:-1].rstrip().endswith(('"', "'")):
        raise _RejectedError("malformed_decision_candidate")
    return start, end


def _skip_closer(text: str, position: int) -> int:
    """Pass a closing bracket that nothing opened, if it ends an interval such as (0, 24]."""
    window = text[max(0, position + 1 - _LONGEST_INTERVAL) : position + 1]
    opening = window.rfind("(")
    if opening < 0 or not _INTERVAL_TO.fullmatch(window, opening):
        raise _RejectedError("malformed_decision_candidate")
    return position + 1


def _skip_prose(text: str, start: int, scan: Scan, assignment: re.Pattern[str]) -> int:
    """Pass a bracket that opens no complete JSON, if it is prose; else the candidate is malformed.

    A closing bracket before the place where the grammar broke would mean that the two readings of the text disagree
    about quotes. Refusing that also bounds the time: what was scanned lies within what is passed.
    """
    if interval := _INTERVAL_FROM.match(text, start):
        end = interval.end()
    else:
        end = _closing(text, start)
        first = _NONBLANK.search(text, start + 1)
        begins_value = first is not None and first[0] in ('"[{' if text[start] == "[" else '"')
        if end <= scan.end or begins_value:
            raise _RejectedError("malformed_decision_candidate")
    if assignment.search(text, start, end):
        raise _RejectedError("malformed_decision_candidate")
    return end


def _closing(text: str, start: int) -> int:
    """One past the bracket that closes the one at `start`, counting all brackets alike; `start` if none does."""
    expected: list[str] = []
    for bracket in _BRACKET.finditer(text, start):
        if bracket[0] in _CLOSES:
            expected.append(_CLOSES[bracket[0]])
        elif bracket[0] != expected.pop():
            break
        if not expected:
            return bracket.end()
    return start


def _is_reference(text: str) -> bool:
    """Whether complete JSON is an array of one or two numbers."""
    if not (text.startswith("[") and len(text) <= _LONGEST_INTERVAL):
        return False
    terms = [term.strip() for term in text[1:-1].split(",")]
    return len(terms) <= 2 and all(map(is_number_literal, terms))


def _describe_surroundings(before: str, after: str) -> list[Operation]:
    operations: list[Operation] = []
    before, after = before.rstrip(), after.lstrip()
    line = before[before.rfind("\n") + 1 :].lower()
    if line.lstrip() in (_FENCE, f"{_FENCE}json") and after.startswith(_FENCE):
        operations.append("markdown_fence")
        before, after = before[: len(before) - len(line)], after[len(_FENCE) :]
    if before.strip() or after.strip():
        operations.append("prose_removed")
    return operations


def _decisions(value: Any, block_ids: Sequence[str]) -> tuple[dict[str, Any], list[Operation]]:
    operations: list[Operation] = []
    if isinstance(value, list):
        calls = [item for item in value if isinstance(item, dict) and {"name", "arguments"} <= item.keys()]
        if calls or (value and not any(isinstance(item, dict) for item in value)):
            raise _RejectedError("not_a_decision_submission")
        value = {DECISIONS_KEY: value}
        operations.append("bare_array")
    actions, fault, _ = raw_actions(value, block_ids)
    if actions is None:
        raise _RejectedError(fault)
    records = value.get(DECISIONS_KEY)
    if records is None:
        operations.append("block_object")
    else:
        stated = [(*ids, *names) for ids, names in map(stated_fields, records)]
        if len(value) > 1 or any(len(record) > 2 for record in records):
            operations.append("metadata_ignored")
        if any(names != (ID_FIELD, ACTION_FIELD) for names in stated):
            operations.append("field_alias")
        if [record[names[0]] for record, names in zip(records, stated, strict=True)] != list(block_ids):
            operations.append("reordered")
    if any(isinstance(action, str) for action in actions):
        operations.append("quoted_number")
    decided = [{ID_FIELD: name, ACTION_FIELD: _action(action)} for name, action in zip(block_ids, actions, strict=True)]
    return {DECISIONS_KEY: decided}, operations


def _action(value: Any) -> int | float:
    if isinstance(value, str):
        if not is_number_literal(value):
            raise _RejectedError("not_a_numeric_literal")
        value = parse_number(value)
    if not is_finite_number(value):
        raise _RejectedError("nonfinite_or_nonnumeric_action")
    number: int | float = value
    return number


def _plan(value: Any, plan_ids: Collection[str], block_ids: Sequence[str]) -> PlanAnswer:
    if not isinstance(value, dict) or PLAN_KEY not in value or {"name", "arguments"} <= value.keys():
        raise _RejectedError("not_a_decision_submission")
    if DECISIONS_KEY in value or any(name in value for name in block_ids):
        raise _RejectedError("not_a_decision_submission")
    plan = value[PLAN_KEY]
    if not isinstance(plan, str) or plan not in plan_ids:
        raise _RejectedError("unknown_plan")
    adjust = value.get(ADJUST_KEY, {})
    if not isinstance(adjust, dict) or not all(
        name in block_ids and type(steps) is int and abs(steps) <= MAX_ADJUSTMENT for name, steps in adjust.items()
    ):
        raise _RejectedError("bad_adjustment")
    return PlanAnswer(plan, adjust)
