"""Strict JSON for text that a language model wrote.

The standard parser accepts more than RFC 8259 allows (NaN, repeated keys), recurses once a level and refuses long
integers with an unnamed `ValueError`. Here every fault has a name, nothing is repaired, and no text of any length or
nesting raises anything but `StrictJsonError`. The grammar is checked first by `scan_value`, without recursion and in
linear time; `json.loads` then builds the value.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, NoReturn, get_args

from castgym.data.errors import CastgymError

JsonFault = Literal[
    "malformed_json",  # not exactly one value of the JSON grammar
    "nested_too_deep",  # more than MAX_DEPTH levels
    "duplicate_key",  # an object that states a key twice
    "nonfinite_number",  # the words NaN, Infinity or -Infinity
    "number_overflow",  # a number beyond the range of float64
    "invalid_character",  # a string that holds NUL or a lone surrogate
]
JSON_FAULTS: tuple[JsonFault, ...] = get_args(JsonFault)

MAX_DEPTH = 64
"""Levels of nesting that are read: far above any sensible message, far below the interpreter's recursion limit."""

WHITESPACE = " \t\n\r"

# Possessive quantifiers keep the match linear. NaN and the infinities are tokens, so that they get their own name.
_NUMBER_PATTERN = r"-?+(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+"
_TOKEN = re.compile(
    rf"""[ \t\n\r]*+(?:
        ([{{}}\[\],:])
      | ("(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{{4}}))*+")
      | ({_NUMBER_PATTERN}|true|false|null|NaN|-?Infinity)
    )""",
    re.VERBOSE,
)
# What may follow: a punctuation mark, a string (s) or another scalar (v).
_VALUE = "sv{["
_ITEM_OR_END = "sv{[]"
_KEY = "s"
_KEY_OR_END = "s}"
_COLON = ":"
_AFTER_MEMBER = ",}"
_AFTER_ITEM = ",]"

_NUMBER = re.compile(_NUMBER_PATTERN)
_NONBLANK = re.compile(r"[^ \t\n\r]")
_FORBIDDEN = re.compile("[\x00\ud800-\udfff]")
_MAX_INT_DIGITS = 310  # float64 ends below 10**309; the leading minus sign is the 310th character


class StrictJsonError(CastgymError, ValueError):
    """The text is not the strict JSON that was expected.

    Attributes:
        kind: one of `JSON_FAULTS`.
        detail: the fault in words.
    """

    def __init__(self, kind: JsonFault, detail: str) -> None:
        super().__init__(kind, detail)
        self.kind: JsonFault = kind
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


class Scan(NamedTuple):
    """What the grammar says about the text from some position on.

    Attributes:
        complete: a whole JSON value starts there.
        end: one past the value where it is complete, else the first position that breaks the grammar.
        depth: deepest nesting met; a scalar has depth 0.
    """

    complete: bool
    end: int
    depth: int


def scan_value(text: str, start: int = 0) -> Scan:
    """Find the extent of the JSON value that starts at `start` (leading whitespace allowed), without building it.

    Args:
        text: any text.
        start: position of the value's first character.

    Returns:
        The extent. Words for non-finite numbers count as values; `loads` refuses them by name.
    """
    openers: list[str] = []
    depth = 0
    allowed = _VALUE
    position = start
    while True:
        token = _TOKEN.match(text, position)
        symbol = _symbol(token) if token else "end"
        if token is None or symbol not in allowed:
            return Scan(False, _skip_blank(text, position), depth)
        position = token.end()
        if symbol in "{[":
            openers.append(symbol)
            depth = max(depth, len(openers))
            allowed = _KEY_OR_END if symbol == "{" else _ITEM_OR_END
        elif symbol == ":":
            allowed = _VALUE
        elif symbol == ",":
            allowed = _KEY if openers[-1] == "{" else _VALUE
        elif allowed in (_KEY, _KEY_OR_END) and symbol == "s":
            allowed = _COLON
        else:
            if symbol in "}]":
                openers.pop()
            if not openers:
                return Scan(True, position, depth)
            allowed = _AFTER_MEMBER if openers[-1] == "{" else _AFTER_ITEM


def _skip_blank(text: str, position: int) -> int:
    found = _NONBLANK.search(text, position)
    return found.start() if found else len(text)


def _symbol(token: re.Match[str]) -> str:
    return token[1] if token.lastindex == 1 else "s" if token.lastindex == 2 else "v"


def loads(text: str) -> Any:
    """Read exactly one JSON value.

    Args:
        text: the value, with JSON whitespace around it.

    Returns:
        `dict`, `list`, `str`, `int`, `float`, `bool` or `None`; integers stay `int`.

    Raises:
        StrictJsonError: with one of `JSON_FAULTS`.
    """
    scan = _scan_whole(text)
    if scan.depth > MAX_DEPTH:
        raise StrictJsonError("nested_too_deep", f"{scan.depth} levels of nesting; at most {MAX_DEPTH} are read")

    def read_number(literal: str, kind: type[int] | type[float]) -> int | float:
        number = parse_number(literal, kind)
        if math.isinf(number):
            raise StrictJsonError("number_overflow", f"{_excerpt(literal)} is beyond the range of float64")
        return number

    value = json.loads(
        text,
        object_pairs_hook=_unique_keys,
        parse_constant=_refuse_constant,
        parse_int=lambda literal: read_number(literal, int),
        parse_float=lambda literal: read_number(literal, float),
    )
    check_value(value)
    return value


def loads_unlimited(text: str) -> Any:
    """Read exactly one JSON value for a caller that judges each part of it and ignores the rest.

    The grammar, unique keys and the ban on NaN hold as in `loads`. Numbers beyond float64 become the infinity of their
    sign, strings hold any character, and nesting has no limit: what a caller ignores must not decide.

    Args:
        text: the value, with JSON whitespace around it.

    Returns:
        As `loads`. Deeply nested values must not be handed to code that recurses.

    Raises:
        StrictJsonError: `malformed_json`, `duplicate_key` or `nonfinite_number`.
    """
    scan = _scan_whole(text)
    if scan.depth > MAX_DEPTH:
        return _build(text)
    return json.loads(
        text,
        object_pairs_hook=_unique_keys,
        parse_constant=_refuse_constant,
        parse_int=lambda literal: parse_number(literal, int),
        parse_float=lambda literal: parse_number(literal, float),
    )


def _scan_whole(text: str) -> Scan:
    """The extent of the one value of a text.

    Raises:
        StrictJsonError: it is not exactly one value.
    """
    scan = scan_value(text)
    if not scan.complete or text[scan.end :].strip(WHITESPACE):
        raise StrictJsonError("malformed_json", _describe_break(text, scan))
    return scan


def _build(text: str) -> Any:
    """The value of a text whose grammar was checked, without recursion: `json.loads` recurses once a level."""
    open_items: list[list[Any]] = [[]]
    for token in _TOKEN.finditer(text):
        mark, string, scalar = token.groups()
        if mark in ("{", "["):
            open_items.append([])
        elif mark in ("}", "]"):
            items = open_items.pop()
            pairs = list(zip(items[::2], items[1::2], strict=True)) if mark == "}" else []
            open_items[-1].append(_unique_keys(pairs) if mark == "}" else items)
        elif string or scalar:
            open_items[-1].append(_scalar(string or scalar))
    return open_items[0][0]


def _scalar(token: str) -> Any:
    if is_number_literal(token):
        return parse_number(token)
    return json.loads(token, parse_constant=_refuse_constant)


def is_number_literal(text: str) -> bool:
    """Whether the text is exactly one number of the JSON grammar: no sign `+`, spaces, units or leading zeros."""
    return _NUMBER.fullmatch(text) is not None


def parse_number(literal: str, kind: type[int] | type[float] | None = None) -> int | float:
    """The value of a JSON number literal; an infinity where float64 cannot hold it.

    Args:
        literal: text for which `is_number_literal` holds.
        kind: `int` or `float`, where the caller knows it; else an integer literal gives an `int`.
    """
    if kind is None:
        kind = float if any(mark in literal for mark in ".eE") else int
    if kind is float:
        return float(literal)
    if len(literal) <= _MAX_INT_DIGITS:
        number = int(literal)
        try:
            float(number)
        except OverflowError:
            pass
        else:
            return number
    return -math.inf if literal.startswith("-") else math.inf


def check_value(value: object, *, finite: bool = True) -> None:
    """Check that a Python value is one that `loads` could have returned.

    Args:
        value: an already parsed value, such as the arguments of a tool call that a server decoded.
        finite: refuse infinities and integers beyond float64 too.

    Raises:
        StrictJsonError: with one of `JSON_FAULTS`; a type that JSON lacks is `malformed_json`.
    """
    pending: list[tuple[object, int]] = [(value, 0)]
    while pending:
        item, depth = pending.pop()
        if isinstance(item, str):
            if found := _FORBIDDEN.search(item):
                raise StrictJsonError("invalid_character", f"a string holds U+{ord(found[0]):04X}")
        elif item is None or isinstance(item, bool):
            pass
        elif isinstance(item, int | float):
            if finite:
                _check_finite(item)
        elif isinstance(item, list | tuple | Mapping):
            if depth >= MAX_DEPTH:
                raise StrictJsonError("nested_too_deep", f"more than {MAX_DEPTH} levels of nesting")
            if isinstance(item, Mapping):
                pending.extend((key, depth + 1) for key in item)
                if not all(isinstance(key, str) for key in item):
                    raise StrictJsonError("malformed_json", "an object has a key that is not a string")
                pending.extend((entry, depth + 1) for entry in item.values())
            else:
                pending.extend((entry, depth + 1) for entry in item)
        else:
            raise StrictJsonError("malformed_json", f"JSON has no values of type {type(item).__name__}")


def _check_finite(number: int | float) -> None:
    try:
        finite = math.isfinite(number)
    except OverflowError:
        raise StrictJsonError("number_overflow", "an integer is beyond the range of float64") from None
    if not finite:
        raise StrictJsonError("nonfinite_number", f"{number} is not a JSON number")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise StrictJsonError("duplicate_key", f"the key {_excerpt(key)} stands twice in one object")
            seen.add(key)
    return members


def _refuse_constant(word: str) -> NoReturn:
    raise StrictJsonError("nonfinite_number", f"{word} is not a JSON number")


def _describe_break(text: str, scan: Scan) -> str:
    at = _skip_blank(text, scan.end)
    if at >= len(text):
        return "the text ends before the JSON value is complete" if text.strip(WHITESPACE) else "the text is empty"
    line = text.count("\n", 0, at) + 1
    column = at - text.rfind("\n", 0, at)
    after = "after the end of the JSON value " if scan.complete else ""
    return f"unexpected {_excerpt(text[at : at + 20])} {after}at line {line}, column {column}"


def _excerpt(text: str, length: int = 40) -> str:
    """A short ASCII rendering that is safe to print and to send back to a model."""
    return ascii(text if len(text) <= length else text[:length] + "...")
