import json
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from castgym.tools.calls import CALL_ERROR_KINDS, ParsedResponse, ToolCall, parse_response

relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy

STRINGS = st.text(st.characters(exclude_characters="\x00<", exclude_categories=("Cs",)), max_size=8)
ARGUMENTS = st.dictionaries(
    STRINGS,
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63)
        | st.floats(allow_nan=False, allow_infinity=False)
        | STRINGS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(STRINGS, inner, max_size=3),
        max_leaves=5,
    ),
    max_size=4,
)
CALLS = st.tuples(STRINGS.filter(bool), ARGUMENTS)
PIECES = [
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    '{"name": "catalog", "arguments": {}}',
    '{"name":',
    "[",
    "]",
]
PIECES += ["{", "}", "```json\n", "\n```", "text", " ", '"', "NaN", "\ud800", "\x00", "\ufeff"]
FRAGMENTS = st.lists(st.sampled_from(PIECES), max_size=20).map("".join)


def markup(name: str, arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def kinds(response: ParsedResponse) -> list[str]:
    return [error.kind for error in response.errors]


def chat(*functions: object, content: object = None) -> dict[str, object]:
    entries = [{"id": f"call_{i}", "type": "function", "function": function} for i, function in enumerate(functions)]
    return {"role": "assistant", "content": content, "tool_calls": entries}


def test_markup_gives_thinking_text_and_calls_in_order() -> None:
    calls = markup("catalog", {}) + "\n" + markup("history", {"series_id": "X", "limit": 3})
    response = parse_response(f"<think>\nwhich?\n</think>\n\nLet me look.\n{calls}")
    assert response == ParsedResponse(
        thinking="which?",
        text="Let me look.",
        calls=(ToolCall("catalog", {}), ToolCall("history", {"series_id": "X", "limit": 3})),
    )
    assert not response.is_answer


@relaxed
@given(st.lists(CALLS, max_size=3), st.sampled_from(["", "thought"]))
def test_calls_written_as_markup_are_read_back(calls: list[tuple[str, dict[str, object]]], thought: str) -> None:
    text = f"<think>{thought}</think>said" + "".join(markup(*call) for call in calls)
    response = parse_response(text)
    assert response == ParsedResponse(thought, "said", tuple(ToolCall(*call) for call in calls))
    assert response.is_answer == (not calls)


@relaxed
@given(st.lists(CALLS, max_size=3), st.booleans())
def test_calls_of_a_chat_message_are_read_back(calls: list[tuple[str, dict[str, object]]], decoded: bool) -> None:
    functions = [
        {"name": name, "arguments": arguments if decoded else json.dumps(arguments)} for name, arguments in calls
    ]
    response = parse_response({**chat(*functions, content="said"), "reasoning_content": " thought\n"})
    expected = tuple(ToolCall(name, arguments, f"call_{i}") for i, (name, arguments) in enumerate(calls))
    assert response == ParsedResponse("thought", "said", expected)


@relaxed
@given(
    CALLS,
    st.sampled_from(["{}", " \n{}\n", "```json\n{}\n```", "```\n{}\n```", "<think>hm</think>\n{}", "hm</think>{}"]),
)
def test_a_bare_call_is_read_where_it_is_the_whole_visible_text(
    call: tuple[str, dict[str, object]], frame: str
) -> None:
    text = frame.replace("{}", json.dumps({"name": call[0], "arguments": call[1]}))
    response = parse_response(text)
    assert response.calls == (ToolCall(*call),)
    assert response.text == ""
    assert not response.errors


@pytest.mark.parametrize(
    "text",
    [
        'I call {"name": "catalog", "arguments": {}}',
        '{"name": "catalog", "arguments": {}} {"name": "catalog", "arguments": {}}',
        '{"name": "catalog"}',
        '{"name": "catalog", "arguments": {}, "id": 1}',
        '{"name": "catalog", "arguments": "{}"}',
        '{"name": "", "arguments": {}}',
        '{"name": 5, "arguments": {}}',
        '{"name": "catalog", "arguments": {},}',
        '```python\n{"name": "catalog", "arguments": {}}\n```',
        '{"decisions": []}',
    ],
)
def test_what_is_not_exactly_a_bare_call_is_the_answer(text: str) -> None:
    response = parse_response(text)
    assert response.is_answer
    assert response.text == text


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("", "malformed_json"),
        ("catalog()", "malformed_json"),
        ("{'name': 'catalog', 'arguments': {}}", "malformed_json"),
        ('{"name": "catalog", "arguments": {},}', "malformed_json"),
        ('{"name": "a", "arguments": {}} {"name": "b", "arguments": {}}', "malformed_json"),
        ('{"name": "a", "arguments": {"x": "\x00"}}', "malformed_json"),
        ('{"name": "a", "arguments": {"x": "\\u0000"}}', "invalid_character"),
        ('{"name": "\ud800", "arguments": {}}', "invalid_character"),
        ('{"name": "a", "name": "b", "arguments": {}}', "duplicate_key"),
        ('{"name": "a", "arguments": {"limit": 1, "limit": 2}}', "duplicate_key"),
        ('{"name": "a", "arguments": {"limit": NaN}}', "nonfinite_number"),
        ('{"name": "a", "arguments": {"limit": ' + "1" * 5000 + "}}", "number_overflow"),
        ('{"name": "a", "arguments": ' + "[" * 3000 + "]" * 3000 + "}", "nested_too_deep"),
        ("[" * 3000, "malformed_json"),
        ('[{"name": "a", "arguments": {}}]', "not_an_object"),
        ('"catalog"', "not_an_object"),
        ('{"arguments": {}}', "missing_name"),
        ('{"name": null, "arguments": {}}', "missing_name"),
        ('{"name": "", "arguments": {}}', "missing_name"),
        ('{"function": "a", "arguments": {}}', "missing_name"),
        ('{"name": "a", "parameters": {"limit": 1}}', "unexpected_key"),
        ('{"name": "a", "arguments": {}, "id": 1}', "unexpected_key"),
        ('{"name": "a", "arguments": null}', "arguments_not_an_object"),
        ('{"name": "a", "arguments": "{}"}', "arguments_not_an_object"),
        ('{"name": "a", "arguments": []}', "arguments_not_an_object"),
    ],
)
def test_a_broken_call_is_named_and_never_repaired(body: str, kind: str) -> None:
    assert kind in CALL_ERROR_KINDS
    response = parse_response(f"before <tool_call>{body}</tool_call> after")
    assert response.calls == ()
    assert kinds(response) == [kind]
    assert response.errors[0].detail.isascii()
    assert response.text == "before  after"
    assert not response.is_answer


def test_unbalanced_markup_is_named() -> None:
    call = '{"name": "catalog", "arguments": {}}'
    assert kinds(parse_response(f"<tool_call>{call}")) == ["unclosed_tool_call"]
    assert kinds(parse_response(f"{call}</tool_call>")) == ["unopened_tool_call"]
    assert parse_response(f"{call}</tool_call>").calls == ()
    assert kinds(parse_response(f"<tool_call><tool_call>{call}</tool_call></tool_call>")) == [
        "malformed_json",
        "unopened_tool_call",
    ]


def test_a_good_call_beside_a_broken_one_keeps_both() -> None:
    response = parse_response(f"{markup('catalog', {})}<tool_call>{{</tool_call>{markup('history', {})}")
    assert [call.name for call in response.calls] == ["catalog", "history"]
    assert kinds(response) == ["malformed_json"]


def test_arguments_may_be_absent_where_a_tool_takes_none() -> None:
    assert parse_response('<tool_call>{"name": "catalog"}</tool_call>').calls == (ToolCall("catalog", {}),)
    assert parse_response(chat({"name": "catalog"})).calls == (ToolCall("catalog", {}, "call_0"),)
    assert parse_response(chat({"name": "catalog", "arguments": ""})).calls == (ToolCall("catalog", {}, "call_0"),)


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        ({"name": "a", "arguments": None}, "arguments_not_an_object"),
        ({"name": "a", "arguments": "null"}, "arguments_not_an_object"),
        ({"name": "a", "arguments": "[]"}, "arguments_not_an_object"),
        ({"name": "a", "arguments": 5}, "arguments_not_an_object"),
        ({"name": "a", "arguments": " "}, "malformed_json"),
        ({"name": "a", "arguments": '{"x": 1'}, "malformed_json"),
        ({"name": "a", "arguments": {"x": float("nan")}}, "nonfinite_number"),
        ({"name": "a", "arguments": {"x": 10**400}}, "number_overflow"),
        ({"name": "a", "arguments": {1: 2}}, "malformed_json"),
        ({"name": "\ud800", "arguments": "{}"}, "invalid_character"),
        ({"name": 3, "arguments": "{}"}, "missing_name"),
        ({"arguments": "{}"}, "missing_name"),
        ("catalog", "malformed_message"),
        (None, "malformed_message"),
    ],
)
def test_a_broken_entry_of_a_chat_message_is_named(function: object, kind: str) -> None:
    response = parse_response(chat(function))
    assert response.calls == ()
    assert kinds(response) == [kind]
    assert response.errors[0].call_id == "call_0"


@pytest.mark.parametrize(
    "message", [{"content": 5}, {"content": "x", "tool_calls": "y"}, {"tool_calls": [None]}, {"reasoning_content": []}]
)
def test_a_chat_message_of_another_shape_is_named(message: dict[str, object]) -> None:
    assert kinds(parse_response(message)) == ["malformed_message"]


def test_a_chat_message_with_markup_in_its_content_is_read_too() -> None:
    response = parse_response(
        {"content": f"<think>a</think>{markup('catalog', {})}", "reasoning_content": "b", "tool_calls": None}
    )
    assert response == ParsedResponse("b\na", "", (ToolCall("catalog", {}),))


def test_json_in_the_content_is_text_where_the_message_has_calls() -> None:
    content = '{"name": "history", "arguments": {}}'
    response = parse_response(chat({"name": "catalog"}, content=content))
    assert [call.name for call in response.calls] == ["catalog"]
    assert response.text == content


@pytest.mark.parametrize(
    ("text", "thinking", "visible"),
    [
        ("<think>a</think>b", "a", "b"),
        ("a</think>b", "a", "b"),
        ("<think>a", "a", ""),
        ("b<think>a", "a", "b"),
        ("<think></think>\n\nb", "", "b"),
        ("<think>a</think>b<think>c</think>d", "a\nc", "bd"),
        ("<think>a<think>b</think>c", "a<think>b", "c"),
        ("<think>a<think>b</think>c</think>d", "a<think>b\nc", "d"),
        ("no tags", "", "no tags"),
    ],
)
def test_thinking_is_kept_apart(text: str, thinking: str, visible: str) -> None:
    assert parse_response(text) == ParsedResponse(thinking, visible)


@pytest.mark.parametrize("frame", ["<think>{}</think>answer", "{}</think>answer", "answer<think>{}"])
def test_a_call_inside_thinking_is_no_call(frame: str) -> None:
    response = parse_response(frame.replace("{}", markup("catalog", {})))
    assert response.is_answer
    assert response.text == "answer"
    assert "catalog" in response.thinking


def test_a_cut_call_never_becomes_a_call_and_is_an_attempt_once_its_tag_is_whole() -> None:
    text = markup("history", {"series_id": "X", "limit": 3})
    for length in range(len(text)):
        response = parse_response(text[:length])
        assert response.calls == ()
        assert kinds(response) == (["unclosed_tool_call"] if length >= len("<tool_call>") else [])


@relaxed
@given(FRAGMENTS | st.text(st.characters(exclude_categories=())))
def test_no_text_raises_and_every_error_is_of_a_known_kind(text: str) -> None:
    for response in (
        parse_response(text),
        parse_response({"content": text}),
        parse_response(chat({"name": text, "arguments": text})),
    ):
        assert {error.kind for error in response.errors} <= set(CALL_ERROR_KINDS)
        assert response.is_answer == (not response.calls and not response.errors)


@relaxed
@given(
    st.dictionaries(
        st.sampled_from(["content", "tool_calls", "reasoning_content"]),
        st.recursive(
            st.none() | st.integers() | st.text(),
            lambda inner: (
                st.lists(inner) | st.dictionaries(st.sampled_from(["id", "function", "name", "arguments"]), inner)
            ),
            max_leaves=8,
        ),
    )
)
def test_no_chat_message_raises(message: dict[str, object]) -> None:
    assert {error.kind for error in parse_response(message).errors} <= set(CALL_ERROR_KINDS)


@pytest.mark.parametrize("message", [None, 5, b"text", ["text"]])
def test_what_is_neither_text_nor_a_message_is_a_type_error(message: object) -> None:
    with pytest.raises(TypeError, match="str or as a chat message"):
        parse_response(message)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "piece",
    [
        "<tool_call>",
        "</tool_call>",
        "<think>",
        "</think>",
        "[",
        "{",
        "<tool_call>[",
        '<tool_call>"</tool_call>',
        "<think></think>",
    ],
)
def test_a_megabyte_is_parsed_in_linear_time(piece: str) -> None:
    text = piece * (10**6 // len(piece))
    started = time.process_time()
    parse_response(text)
    parse_response(f"<tool_call>{text}</tool_call>")
    parse_response(chat({"name": "a", "arguments": text}))
    assert time.process_time() - started < 10
