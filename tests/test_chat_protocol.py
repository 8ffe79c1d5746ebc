"""Prompts as messages that endpoints take."""

import json

import pytest
from chat_server import native_call

from castgym.agents.chat_protocol import native_messages, text_messages
from castgym.envs.casesets import load_cases
from castgym.envs.episode import Episode, EpisodeConfig
from castgym.envs.prompts import Prompt
from castgym.tools.calls import parse_response


@pytest.fixture(scope="module")
def prompt() -> Prompt:
    cases = load_cases("embedded").case_set
    return Episode(cases.cases[0], EpisodeConfig.of(cases, cases.cases[0])).observe()


def test_what_strict_endpoints_refuse_is_not_sent_back() -> None:
    call = native_call("catalog", {}, "c1")
    said = {"role": "assistant", "content": "", "tool_calls": [{**call, "index": 0}], "finish_reason": "tool_calls"}
    result = {"role": "tool", "content": "{}", "tool_call_id": "c1"}
    sent = native_messages([{"role": "user", "content": "go"}, {**said, "reasoning_content": "hm"}, result])
    assert sent[1] == {"role": "assistant", "content": "", "tool_calls": [call]}
    assert sent[2] == result


@pytest.mark.parametrize("arguments", ['{"series_id": ', "[1]", '"text"', "[" * 100_000])
def test_a_broken_call_is_sent_back_as_text_so_that_the_next_request_stands(arguments: str) -> None:
    said = {"role": "assistant", "content": "Now:", "tool_calls": [native_call("catalog", arguments, "c1")]}
    sent = native_messages([said, {"role": "tool", "content": '{"error": "x"}', "tool_call_id": "c1"}])
    assert [message["role"] for message in sent] == ["assistant", "user"]
    assert arguments in sent[0]["content"] and "<tool_call>" in sent[0]["content"]
    assert sent[1]["content"] == '<tool_response>\n{"error": "x"}\n</tool_response>'
    assert not any("tool_calls" in message for message in sent)


def test_results_of_one_response_form_one_user_message() -> None:
    calls = [native_call("catalog", "[1]", "c1"), native_call("catalog", "{}", "c2")]
    results = [{"role": "tool", "content": f"r{n}", "tool_call_id": f"c{n}"} for n in (1, 2)]
    sent = native_messages([{"role": "assistant", "content": "", "tool_calls": calls}, *results])
    assert [message["role"] for message in sent] == ["assistant", "user"]
    assert sent[1]["content"].count("<tool_response>") == 2


def test_text_mode_writes_tools_and_calls_into_the_messages(prompt: Prompt) -> None:
    call = native_call("classical_plan", {"series_id": "A"}, "c1")
    history = [*prompt.messages, {"role": "assistant", "content": "", "tool_calls": [call]}]
    sent = text_messages([*history, {"role": "tool", "content": "{}", "tool_call_id": "c1"}], prompt.tools)
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "user"]
    assert sent[0]["content"].startswith(str(prompt.messages[0]["content"]))
    listed = sent[0]["content"].split("<tools>\n")[1].split("\n</tools>")[0]
    assert [json.loads(line) for line in listed.splitlines()] == [dict(tool) for tool in prompt.tools]
    parsed = parse_response(sent[2]["content"])
    assert (parsed.calls[0].name, parsed.calls[0].arguments) == ("classical_plan", {"series_id": "A"})
