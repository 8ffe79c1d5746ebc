"""Reading a forecast: one `<answer>...</answer>` pair that holds a line `timestamp value` for each step of the horizon.

* Thinking is removed first, by the rule of `castgym.tools.calls.parse_response`: a pair inside it is none, and a
  `<think>` that is never closed hides all that follows.
* Text outside the pair is not read, whatever it holds. Without a pair there is no answer (reward -1).
* More than one opening or closing tag beside a pair, nested pairs included, states several answers; none is picked
  and no value counts.
* The lines must name the horizon's timestamps in order, from the first on. What stands before the first fault counts,
  so that a fault costs the rest of the horizon, and no value can count for another step than the one it names.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from castgym.tools.calls import parse_response
from castgym.tools.strict_json import is_number_literal, parse_number

ForecastRejection = Literal[
    "nontext_response",  # neither text nor a chat message
    "no_answer",  # no <answer> tag outside the thinking
    "unclosed_answer",  # <answer> without a later </answer>
    "ambiguous_answer",  # a pair and further tags
    "empty_answer",  # a pair around blanks
    "malformed_line",  # a line that is not `timestamp value`
    "malformed_number",  # a value that is no JSON number, or has over 64 characters
    "thousands_separator",  # a value with commas
    "nonfinite_number",  # NaN, an infinity, or a number beyond float64
    "repeated_timestamp",  # a step that an earlier line states
    "skipped_timestamp",  # a later step than the one that is due; unsorted lines begin so
    "foreign_timestamp",  # a timestamp outside the horizon
    "too_few_lines",  # faultless, but short
    "too_many_lines",  # the whole horizon, and more
]
FORECAST_REJECTIONS: tuple[ForecastRejection, ...] = get_args(ForecastRejection)

_TAG = re.compile("</?answer>")
_STAMP = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[T \t]+([0-9]{2}:[0-9]{2})(:[0-9]{2})?)?")
_LONGEST_LINE = 128
_LONGEST_NUMBER = 64
_NONFINITE_WORDS = frozenset({"nan", "inf", "infinity", "null", "none"})


@dataclass(frozen=True, slots=True)
class ForecastAnswer:
    """What a response forecasts.

    Attributes:
        values: the values before the first fault, one for each of the horizon's first steps; `None` without a pair of
            tags. `castgym.envs.rewards.forecast_reward` takes it as it is.
        timestamps: every timestamp that a line of the answer states, faulty lines included, in canonical form.
        thinking: what stood in `<think>` tags.
        rejection: the first fault, one of `FORECAST_REJECTIONS`; `None` for exactly the horizon.
        line: number of the line of the first fault within the answer, from 1 and without blank lines; else `None`.
    """

    values: tuple[float, ...] | None
    timestamps: tuple[str, ...] = ()
    thinking: str = ""
    rejection: ForecastRejection | None = None
    line: int | None = None


def read_forecast(message: object, expected_timestamps: Sequence[str]) -> ForecastAnswer:
    """Read the forecast of a final response.

    Args:
        message: the response's text, or a chat message with `content`.
        expected_timestamps: (H,) timestamps of the horizon as the prompt gives them, such as `2017-10-20 00:00:00`.

    Returns:
        The answer. No response raises an exception; the time is linear in its length.

    Raises:
        ValueError: an expected timestamp is no ISO date or date and time, or stands twice.
    """
    expected = _positions(expected_timestamps)
    if not isinstance(message, str | Mapping):
        return ForecastAnswer(None, rejection="nontext_response")
    response = parse_response(message)
    body, fault = answer_body(response.text)
    if body is None:
        values = () if fault == "ambiguous_answer" else None
        return ForecastAnswer(values, thinking=response.thinking, rejection=fault)
    return _read_lines(body, expected, response.thinking)


def canonical_timestamp(text: str) -> str | None:
    """The one form in which timestamps are compared, `YYYY-MM-DD HH:MM:SS`; `None` for anything else.

    `T` or blanks may part date and time, and seconds, or the time at midnight, may be absent. No time zone.
    """
    match = _STAMP.fullmatch(text) if len(text) <= _LONGEST_LINE else None
    if match is None:
        return None
    return f"{match[1]} {match[2] or '00:00'}{match[3] or ':00'}"


def _positions(timestamps: Sequence[str]) -> dict[str, int]:
    positions: dict[str, int] = {}
    for position, text in enumerate(timestamps):
        stamp = canonical_timestamp(text)
        if stamp is None:
            raise ValueError(f"expected the horizon's timestamps as YYYY-MM-DD HH:MM:SS, found {text!r}")
        if stamp in positions:
            raise ValueError(f"expected distinct timestamps of the horizon, found {text!r} twice")
        positions[stamp] = position
    return positions


def has_answer_tag(text: str) -> bool:
    """Whether a text, its thinking removed, means to answer: it holds one of the tags, paired or not."""
    return _TAG.search(text) is not None


def answer_body(text: str) -> tuple[str | None, ForecastRejection | None]:
    """What stands between the only pair of tags, or why there is no such text.

    Args:
        text: visible text of a response, its thinking removed.

    Returns:
        The text between the tags and no fault, or no text and `no_answer`, `unclosed_answer` or `ambiguous_answer`.
    """
    tags = list(_TAG.finditer(text))
    opening = next((tag for tag in tags if tag[0] == "<answer>"), None)
    if opening is None:
        return None, "no_answer"
    closing = next((tag for tag in tags if tag[0] == "</answer>" and tag.start() > opening.start()), None)
    if closing is None:
        return None, "unclosed_answer"
    if len(tags) > 2:
        return None, "ambiguous_answer"
    return text[opening.end() : closing.start()], None


def _read_lines(body: str, expected: Mapping[str, int], thinking: str) -> ForecastAnswer:
    values: list[float] = []
    stated: list[str] = []
    fault: ForecastRejection | None = None
    lines = [line for line in map(str.strip, body.split("\n")) if line]
    for line in lines:
        stamp, literal = _split(line)
        if stamp is not None:
            stated.append(stamp)
        if fault is not None:
            continue
        fault = _place_fault(stamp, len(values), expected)
        if fault is None:
            value, fault = _read_number(literal)
            if fault is None:
                values.append(value)
    at = None if fault is None else len(values) + 1
    if not lines:
        fault = "empty_answer"
    elif fault is None and len(values) < len(expected):
        fault = "too_few_lines"
    return ForecastAnswer(tuple(values), tuple(stated), thinking, fault, at)


def _split(line: str) -> tuple[str | None, str]:
    """Canonical timestamp and literal of a line; no timestamp where the line has another form."""
    if len(line) > _LONGEST_LINE:
        return None, ""
    parts = line.rsplit(None, 1)
    if len(parts) < 2 or ":" in parts[1]:  # a timestamp alone: its time is no value
        return None, ""
    return canonical_timestamp(parts[0].rstrip()), parts[1]


def _place_fault(stamp: str | None, due: int, expected: Mapping[str, int]) -> ForecastRejection | None:
    if stamp is None:
        return "malformed_line"
    if due == len(expected):
        return "too_many_lines"
    position = expected.get(stamp)
    if position is None:
        return "foreign_timestamp"
    if position == due:
        return None
    return "repeated_timestamp" if position < due else "skipped_timestamp"


def _read_number(literal: str) -> tuple[float, ForecastRejection | None]:
    if literal.lower().lstrip("+-") in _NONFINITE_WORDS:
        return math.nan, "nonfinite_number"
    if "," in literal:
        return math.nan, "thousands_separator"
    if len(literal) > _LONGEST_NUMBER or not is_number_literal(literal):
        return math.nan, "malformed_number"
    value = float(parse_number(literal, float))
    return value, None if math.isfinite(value) else "nonfinite_number"
