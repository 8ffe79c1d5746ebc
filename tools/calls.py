"""Tool calls in model output: what was thought, said and called, and what was meant as a call but is broken.

Three forms are read: Hermes/Qwen markup (`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`), the OpenAI chat
message (a mapping with `content` and `tool_calls`), and a bare JSON call that is the whole visible text. Nothing is
guessed: a broken call becomes a `CallError` of a closed set of kinds, whose text can go into the next prompt.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from castgym.tools.strict_json import WHITESPACE, JsonFault, StrictJsonError, check_value, loads

CallErrorKind = Literal[
    JsonFault,  # the call's JSON, or its arguments, has a fault of the strict reader
    "unclosed_tool_call",  # <tool_call> without </tool_call>
    "unopened_tool_call",  # </tool_call> without <tool_call>
    "not_an_object",  # the call is JSON but no object
    "missing_name",  # no name, or one that is not a non-empty string
    "unexpected_key",  # keys other than name and arguments, such as "parameters"
    "arguments_not_an_object",  # arguments that are no JSON object
    "malformed_message",  # a chat message that does not have the documented shape
]
CALL_ERROR_KINDS: tuple[CallErrorKind, ...] = get_args(CallErrorKind)

_CALL_OPEN = "<tool_call>"
_CALL_CLOSE = "</tool_call>"
_THINK_TAG = re.compile("</?think>")
_FENCE = "```"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One well-formed call. Whether the tool exists and accepts the arguments is for the toolbox to say.

    Attributes:
        name: a non-empty string.
        arguments: a JSON object.
        call_id: the identifier that a chat message gave to the call.
    """

    name: str
    arguments: Mapping[str, Any]
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class CallError:
    """Something meant as a call that cannot be read as one.

    Attributes:
        kind: one of `CALL_ERROR_KINDS`.
        detail: what was found, in words that a model can act on.
        call_id: the identifier that a chat message gave to the call.
    """

    kind: CallErrorKind
    detail: str
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class ParsedResponse:
    """A response taken apart.

    Attributes:
        thinking: what stood in `<think>` tags or in `reasoning_content`.
        text: the visible text without thinking and call markup, stripped.
        calls: the well-formed calls, in order.
        errors: the broken calls, in order.
    """

    thinking: str
    text: str
    calls: tuple[ToolCall, ...] = ()
    errors: tuple[CallError, ...] = ()

    @property
    def is_answer(self) -> bool:
        """No call was made or attempted, so that `text` is the final answer."""
        return not self.calls and not self.errors


def parse_response(message: str | Mapping[str, Any]) -> ParsedResponse:
    """Take a model's response apart.

    Thinking is removed first, so that a call inside it is no call. A `<think>` that is never closed runs to the end
    of the text; a `</think>` that was never opened ends thinking that began with the text (chat templates write the
    opening tag into the prompt). A call's markup ends at the first `</tool_call>`.

    In markup `arguments` may be absent, in a chat message it may be absent or `""`; both stand for no arguments. A
    bare JSON call needs `name` and `arguments`, and neither text nor further keys beside them: what is not exactly
    that is visible text.

    Args:
        message: the decoded text, or an OpenAI chat message with `content`, `tool_calls` and `reasoning_content`.

    Returns:
        The parts. No text, however long, nested or broken, raises an exception; the time is linear in its length.

    Raises:
        TypeError: `message` is neither text nor a mapping.
    """
    if isinstance(message, str):
        return _parse_text(message)
    if isinstance(message, Mapping):
        return _parse_message(message)
    raise TypeError(f"expected a response as str or as a chat message mapping, found {type(message).__name__}")


def _parse_text(text: str, *, bare: bool = True) -> ParsedResponse:
    thinking, visible = _split_thinking(text)
    if bare and (call := _bare_call(visible)) is not None:
        return ParsedResponse(thinking, "", (call,))
    return _parse_markup(thinking, visible)


def _split_thinking(text: str) -> tuple[str, str]:
    thoughts: list[str] = []
    visible: list[str] = []
    cursor = 0
    inside = False
    for tag in _THINK_TAG.finditer(text):
        opening = tag[0] == "<think>"
        if inside and opening:
            continue
        part = text[cursor : tag.start()]
        if inside:
            thoughts.append(part)
        elif opening:
            visible.append(part)
        else:
            thoughts.extend([*visible, part])
            visible.clear()
        inside = opening
        cursor = tag.end()
    (thoughts if inside else visible).append(text[cursor:])
    return "\n".join(filter(None, map(str.strip, thoughts))), "".join(visible).strip()


def _parse_markup(thinking: str, visible: str) -> ParsedResponse:
    calls: list[ToolCall] = []
    errors: list[CallError] = []
    said: list[str] = []
    cursor = 0
    while True:
        opening = visible.find(_CALL_OPEN, cursor)
        before, stray, rest = visible[cursor : opening if opening >= 0 else None].partition(_CALL_CLOSE)
        if stray:
            errors.append(CallError("unopened_tool_call", f"{_CALL_CLOSE} stands without {_CALL_OPEN} before it"))
            before += rest.replace(_CALL_CLOSE, "")
        said.append(before)
        if opening < 0:
            break
        start = opening + len(_CALL_OPEN)
        end = visible.find(_CALL_CLOSE, start)
        if end < 0:
            errors.append(CallError("unclosed_tool_call", f"{_CALL_OPEN} is never followed by {_CALL_CLOSE}"))
            break
        try:
            calls.append(_read_call(visible[start:end]))
        except _BrokenCallError as broken:
            errors.append(broken.error)
        cursor = end + len(_CALL_CLOSE)
    return ParsedResponse(thinking, "".join(said).strip(), tuple(calls), tuple(errors))


class _BrokenCallError(Exception):
    """Carries a `CallError` out of the reading of one call."""

    def __init__(self, kind: CallErrorKind, detail: str) -> None:
        super().__init__(kind)
        self.error = CallError(kind, detail)


def _read_call(text: str) -> ToolCall:
    value = _load(text, "the call")
    if not isinstance(value, dict):
        raise _BrokenCallError(
            "not_an_object", f'expected {{"name": ..., "arguments": {{...}}}}, found {_json_type(value)}'
        )
    name = _name(value)
    unexpected = [key for key in value if key not in ("name", "arguments")]
    if unexpected:
        raise _BrokenCallError(
            "unexpected_key", f"a call has the keys name and arguments only, found {unexpected[0][:40]!a}"
        )
    arguments = value.get("arguments", {})
    if not isinstance(arguments, dict):
        raise _BrokenCallError(
            "arguments_not_an_object", f"expected arguments as a JSON object, found {_json_type(arguments)}"
        )
    return ToolCall(name, arguments)


def _bare_call(visible: str) -> ToolCall | None:
    candidate = _strip_fence(visible)
    if not (candidate.startswith("{") and candidate.endswith("}")):
        return None
    try:
        value = loads(candidate)
    except StrictJsonError:
        return None
    if value.keys() != {"name", "arguments"} or not isinstance(value["arguments"], dict):
        return None
    name = value["name"]
    return ToolCall(name, value["arguments"]) if isinstance(name, str) and name else None


def _strip_fence(text: str) -> str:
    if not (text.startswith(_FENCE) and text.endswith(_FENCE) and len(text) > 2 * len(_FENCE)):
        return text
    inner = text[len(_FENCE) : -len(_FENCE)]
    first_line, newline, rest = inner.partition("\n")
    return rest.strip(WHITESPACE) if newline and first_line.strip().lower() in ("", "json") else text


def _parse_message(message: Mapping[str, Any]) -> ParsedResponse:
    content = message.get("content")
    reasoning = message.get("reasoning_content")
    entries = message.get("tool_calls")
    errors: list[CallError] = []
    for field, value in (("content", content), ("reasoning_content", reasoning)):
        if not (value is None or isinstance(value, str)):
            errors.append(
                CallError("malformed_message", f"expected {field} as text or null, found {_json_type(value)}")
            )
    if not (entries is None or isinstance(entries, list | tuple)):
        errors.append(CallError("malformed_message", f"expected tool_calls as a list, found {_json_type(entries)}"))
        entries = None
    parsed = _parse_text(content if isinstance(content, str) else "", bare=not entries)
    calls = list(parsed.calls)
    errors.extend(parsed.errors)
    for entry in entries or ():
        call_id = entry.get("id") if isinstance(entry, Mapping) else None
        call_id = call_id if isinstance(call_id, str) else None
        try:
            calls.append(_read_entry(entry, call_id))
        except _BrokenCallError as broken:
            errors.append(CallError(broken.error.kind, broken.error.detail, call_id))
    reasoning = reasoning.strip() if isinstance(reasoning, str) else ""
    thinking = "\n".join(filter(None, (reasoning, parsed.thinking)))
    return ParsedResponse(thinking, parsed.text, tuple(calls), tuple(errors))


def _read_entry(entry: object, call_id: str | None) -> ToolCall:
    function = entry.get("function") if isinstance(entry, Mapping) else None
    if not isinstance(function, Mapping):
        raise _BrokenCallError("malformed_message", 'expected each of tool_calls as {"id", "type", "function"}')
    name = _name(function)
    arguments = function.get("arguments", "")
    if isinstance(arguments, str):
        arguments = _load(arguments, "arguments") if arguments else {}
    try:
        check_value({"name": name, "arguments": arguments})
    except StrictJsonError as fault:
        raise _BrokenCallError(fault.kind, f"in the call: {fault.detail}") from None
    if not isinstance(arguments, Mapping):
        raise _BrokenCallError(
            "arguments_not_an_object", f"expected arguments as a JSON object, found {_json_type(arguments)}"
        )
    return ToolCall(name, arguments, call_id)


def _name(call: Mapping[str, Any]) -> str:
    name = call.get("name")
    if not isinstance(name, str) or not name:
        found = "an empty string" if name == "" else "none" if name is None else _json_type(name)
        raise _BrokenCallError("missing_name", f"expected the tool's name as a string, found {found}")
    return name


def _load(text: str, what: str) -> Any:
    try:
        return loads(text)
    except StrictJsonError as fault:
        raise _BrokenCallError(fault.kind, f"in {what}: {fault.detail}") from None


def _json_type(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return (
        "an object" if isinstance(value, Mapping) else "a list" if isinstance(value, list | tuple) else "no JSON value"
    )
