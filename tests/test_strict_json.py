import json
import math
import pickle
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from castgym.data.errors import CastgymError
from castgym.tools.strict_json import (
    JSON_FAULTS,
    MAX_DEPTH,
    StrictJsonError,
    check_value,
    is_number_literal,
    loads,
    loads_unlimited,
    parse_number,
    scan_value,
)

relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy

STRINGS = st.text(st.characters(exclude_characters="\x00", exclude_categories=("Cs",)))
NUMBERS = st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | STRINGS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(STRINGS, inner, max_size=4),
    max_leaves=12,
)
# Pieces that often combine into nearly or exactly valid JSON.
PIECES = ["{", "}", "[", "]", ",", ":", '"a"', '"b\\n"', '"\\x"', '"', "0", "-1", "01", "1.5", "1.", "2e3", ".5", "-"]
PIECES += ["true", "nul", "null", "NaN", "-Infinity", "+1", " ", "\n", "\u00a0", '"a":', '{"a":1', "[1"]


def fault_of(text: str) -> str:
    with pytest.raises(StrictJsonError) as caught:
        loads(text)
    assert isinstance(caught.value, CastgymError)
    return caught.value.kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "malformed_json"),
        ("\ufeff{}", "malformed_json"),
        ("{} {}", "malformed_json"),
        ("{'a': 1}", "malformed_json"),
        ("[1,]", "malformed_json"),
        ("[01]", "malformed_json"),
        ("[1.]", "malformed_json"),
        ('["\t"]', "malformed_json"),
        ('["\x00"]', "malformed_json"),
        ('["\\ud83"]', "malformed_json"),
        ('{"a": 1, "b": {"c": 1, "c": 1}}', "duplicate_key"),
        ('{"a": 1, "\\u0061": 1}', "duplicate_key"),
        ("NaN", "nonfinite_number"),
        ('{"a": [-Infinity]}', "nonfinite_number"),
        ("1e999", "number_overflow"),
        ("1" * 5000, "number_overflow"),
        ("-" + "9" * 309, "number_overflow"),
        ('["\\ud800"]', "invalid_character"),
        ('["\ud800"]', "invalid_character"),
        ('{"\\u0000": 1}', "invalid_character"),
        ("[" * 3000 + "]" * 3000, "nested_too_deep"),
        ('{"a":' * (MAX_DEPTH + 1) + "1" + "}" * (MAX_DEPTH + 1), "nested_too_deep"),
    ],
)
def test_each_fault_has_its_name(text: str, kind: str) -> None:
    assert kind in JSON_FAULTS
    assert fault_of(text) == kind


def test_nesting_up_to_the_limit_is_read() -> None:
    assert loads("[" * MAX_DEPTH + "]" * MAX_DEPTH) is not None


def test_a_surrogate_pair_is_one_character() -> None:
    assert loads('"\\ud83d\\ude00"') == "\U0001f600"


def test_the_largest_integers_of_float64_are_read_exactly() -> None:
    largest = int(1.7976931348623157e308)
    assert loads(str(largest)) == largest
    assert loads(str(-largest)) == -largest


def test_a_fault_says_where_the_text_breaks() -> None:
    with pytest.raises(StrictJsonError, match=r"unexpected '}' at line 2, column 7"):
        loads('{\n "a": }')
    with pytest.raises(StrictJsonError, match="ends before the JSON value is complete"):
        loads('{"a": 1')


@relaxed
@given(VALUES, st.sampled_from([None, 1]), st.booleans())
def test_what_the_standard_library_writes_is_read_back(value: object, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert loads(f" \t\r\n{text}\n") == value
    check_value(value)


@relaxed
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | st.text())
def test_the_grammar_agrees_with_the_standard_parser(text: str) -> None:
    try:
        json.loads(text)
    except ValueError:
        standard = False
    else:
        standard = True
    scan = scan_value(text)
    assert (scan.complete and not text[scan.end :].strip(" \t\r\n")) == standard


@relaxed
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), st.integers(0, 5))
def test_the_extent_agrees_with_the_standard_parser(text: str, start: int) -> None:
    bare = text[start:].lstrip(" \t\r\n")
    try:
        _, end = json.JSONDecoder().raw_decode(bare)
    except ValueError:
        assert not scan_value(text, start).complete
    else:
        scan = scan_value(text, start)
        assert scan.complete
        assert scan.end == len(text) - len(bare) + end


@relaxed
@given(st.text(st.characters(exclude_categories=())) | st.lists(st.sampled_from(PIECES)).map("".join))
def test_no_text_raises_anything_but_a_named_fault(text: str) -> None:
    try:
        loads(text)
    except StrictJsonError as fault:
        assert fault.kind in JSON_FAULTS
        assert fault.detail.isascii()


@pytest.mark.parametrize(
    "text",
    [
        "[" * 10**6,
        '{"a":' * 200_000,
        '"' + "\\n" * 500_000,
        '["' * 500_000,
        "1" * 10**6,
        "[" + "1," * 500_000,
        " " * 10**6,
    ],
    ids=["brackets", "objects", "escapes", "quotes", "digits", "items", "blanks"],
)
def test_a_megabyte_is_judged_in_linear_time(text: str) -> None:
    started = time.process_time()
    with pytest.raises(StrictJsonError):
        loads(text)
    assert time.process_time() - started < 10


@pytest.mark.parametrize("text", ["0", "-0", "12", "-1.50", "1e3", "2E-7", "1.0e+10"])
def test_number_literals_have_the_value_that_json_gives(text: str) -> None:
    assert is_number_literal(text)
    number = parse_number(text)
    assert number == json.loads(text)
    assert type(number) is type(json.loads(text))


class TestUnlimited:
    """For callers that ignore what they do not need."""

    @relaxed
    @given(VALUES)
    def test_depth_changes_no_value(self, value: object) -> None:
        text = json.dumps(value)
        assert loads_unlimited(text) == value
        deep = loads_unlimited("[" * (MAX_DEPTH + 6) + f" {text}\n" + "]" * (MAX_DEPTH + 6))
        for _ in range(MAX_DEPTH + 6):
            (deep,) = deep
        assert deep == value
        assert [type(item) for item in (deep if isinstance(deep, list) else [])] == [
            type(item) for item in (value if isinstance(value, list) else [])
        ]

    def test_any_character_and_any_number_is_read(self) -> None:
        for opening, closing in (("", ""), ("[" * 100, "]" * 100)):
            value = loads_unlimited(f'{opening}["\\u0000", "\\ud800", -1e999, {"1" * 5000}]{closing}')
            for _ in opening:
                (value,) = value
            assert value == ["\x00", "\ud800", -math.inf, math.inf]

    @pytest.mark.parametrize("depth", [0, 3000])
    @pytest.mark.parametrize(
        ("text", "kind"),
        [
            ('{"a": 1, "a": 1}', "duplicate_key"),
            ("NaN", "nonfinite_number"),
            ("-Infinity", "nonfinite_number"),
            ("[1,]", "malformed_json"),
            ("1 1", "malformed_json"),
        ],
    )
    def test_what_is_wrong_at_any_depth_has_its_name(self, text: str, kind: str, depth: int) -> None:
        with pytest.raises(StrictJsonError) as caught:
            loads_unlimited('{"a": [' * depth + text + "]}" * depth)
        assert caught.value.kind == kind

    def test_the_time_is_linear_and_no_depth_overflows_the_stack(self) -> None:
        started = time.process_time()
        for depth in (3000, 200_000):
            assert loads_unlimited("[" * depth + "]" * depth) is not None
            assert loads_unlimited('{"a":' * depth + "1" + "}" * depth) is not None
        assert time.process_time() - started < 15


@pytest.mark.parametrize("text", ["", " 1", "1 ", "1\n", "+1", "01", "1.", ".5", "1_000", "1,000", "0x1", "NaN", "١"])
def test_what_is_no_json_number_is_no_number_literal(text: str) -> None:
    assert not is_number_literal(text)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({"a": math.nan}, "nonfinite_number"),
        ([10**400], "number_overflow"),
        ({1: 2}, "malformed_json"),
        ({"a": object()}, "malformed_json"),
        ({"\ud800": 1}, "invalid_character"),
    ],
)
def test_decoded_values_are_held_to_the_same_rules(value: object, kind: str) -> None:
    with pytest.raises(StrictJsonError) as caught:
        check_value(value)
    assert caught.value.kind == kind


def test_a_fault_crosses_process_borders() -> None:
    fault = pickle.loads(pickle.dumps(StrictJsonError("duplicate_key", "twice")))
    assert (fault.kind, fault.detail, str(fault)) == ("duplicate_key", "twice", "duplicate_key: twice")


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(StrictJsonError, match="nested_too_deep"):
        check_value(loop)
