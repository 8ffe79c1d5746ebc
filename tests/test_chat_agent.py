"""Agents behind an endpoint: the real openai client against a real local HTTP server that misbehaves on demand."""

import asyncio
import json
import logging
import pickle
import re
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from email.utils import formatdate
from typing import Any

import pytest

pytest.importorskip("openai")

from chat_server import Answer, ChatServer, completion, fault, native_call

from castgym.agents.base import Policy
from castgym.agents.chat import ChatAgent
from castgym.agents.concurrency import Backoff
from castgym.agents.endpoint_errors import (
    ConnectionFailedError,
    ContextOverflowError,
    EndpointError,
    MalformedReplyError,
    RateLimitedError,
    RequestRefusedError,
    RequestTimeoutError,
    ServerFaultError,
)
from castgym.agents.replies import Usage
from castgym.agents.sampling import SamplingSettings
from castgym.data.errors import ConfigError, InfrastructureError
from castgym.envs.episode import Episode
from castgym.envs.prompts import Prompt
from castgym.tools.calls import parse_response

KEY = "sk-secret-0123456789"
KEY_VARIABLE = "CASTGYM_TEST_KEY"

Make = Callable[..., ChatAgent]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(KEY_VARIABLE, KEY)


@pytest.fixture
def make() -> Iterator[Make]:
    """Agents for a server, closed at the end; they wait little between attempts."""
    agents = []

    def agent(server: ChatServer, **settings: Any) -> ChatAgent:
        made = ChatAgent("asked-model", server.url, **{"key_variable": KEY_VARIABLE, **settings})
        made._backoff = Backoff(first=0.01, most=1.0)
        agents.append(made)
        return made

    yield agent
    for made in agents:
        made.close()


@pytest.fixture(scope="module")
def prompt(new_episode: Callable[..., Episode]) -> Prompt:
    return new_episode().observe()


def ask(agent: ChatAgent, prompt: Prompt, **arguments: Any) -> Any:
    return asyncio.run(agent.respond(prompt, **arguments))


# What is sent and what comes back


def test_a_reply_holds_message_usage_and_the_model_that_answered(make: Make, prompt: Prompt) -> None:
    call = native_call("catalog", {})
    said = completion("Let me see.", [call], finish="tool_calls", usage=(321, 12), reasoning_content="Hm.")
    with ChatServer([said]) as server:
        agent = make(server)
        reply = ask(agent, prompt)
    assert reply.message == {
        "role": "assistant",
        "content": "Let me see.",
        "finish_reason": "tool_calls",
        "tool_calls": [call],
        "reasoning_content": "Hm.",
    }
    assert (reply.usage, reply.attempts, reply.model) == (Usage(321, 12), 1, "served-model")
    assert 0 < reply.seconds < 30
    assert parse_response(reply.message).calls[0].name == "catalog"


def test_usage_is_summed_and_may_be_missing(make: Make, prompt: Prompt) -> None:
    with ChatServer([completion("a", usage=(5, 2)), completion("b", usage=None), completion("c", usage=(7, 3))]) as s:
        agent = make(s)
        assert [ask(agent, prompt).usage for _ in range(3)] == [Usage(5, 2), None, Usage(7, 3)]
    assert agent.usage == Usage(12, 5)


def test_the_protocols_decoding_is_the_default(make: Make, prompt: Prompt) -> None:
    with ChatServer([completion("x")]) as server:
        ask(make(server), prompt)
        body = dict(server.requests[0].body)
    assert server.requests[0].path == "/v1/chat/completions"
    assert body.pop("messages") == [dict(message) for message in prompt.messages]
    assert body.pop("tools") == [dict(tool) for tool in prompt.tools]
    assert body == {
        "model": "asked-model",
        "temperature": 0.7,
        "top_p": 0.8,
        "top_k": 20,
        "max_tokens": 16_384,
        "seed": 1701,
    }


def test_settings_that_are_none_are_not_sent_and_thinking_goes_to_the_template(make: Make, prompt: Prompt) -> None:
    sampling = SamplingSettings(temperature=None, top_p=None, top_k=None, seed=None, max_tokens=9, thinking=False)
    with ChatServer([completion("x")]) as server:
        ask(make(server, sampling=sampling, extra_body={"reasoning_effort": "low"}), prompt)
        body = server.requests[0].body
    assert body.keys() == {"model", "messages", "tools", "max_tokens", "chat_template_kwargs", "reasoning_effort"}
    assert body["chat_template_kwargs"] == {"enable_thinking": False}


def test_a_seed_given_with_the_prompt_takes_the_place_of_the_settings_own(make: Make, prompt: Prompt) -> None:
    with ChatServer([completion("x")]) as server:
        ask(make(server), prompt, seed=77)
        assert server.requests[0].body["seed"] == 77


def test_openai_itself_gets_the_new_name_of_the_token_limit(prompt: Prompt) -> None:
    with ChatAgent("gpt", key_variable=KEY_VARIABLE) as agent:
        body = agent.request_body(prompt)
    assert body["max_completion_tokens"] == 16_384 and "max_tokens" not in body


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"top_p": 0.0},
        {"top_k": 0},
        {"max_tokens": 1.5},
        {"max_tokens": None},
        {"seed": -1},
        {"seed": True},
    ],
)
def test_sampling_settings_out_of_range_are_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        SamplingSettings(**wrong)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tool_calls": "xml"}, "tool_calls"),
        ({"request_timeout": 0}, "request_timeout"),
        ({"retries": -1}, "retries"),
        ({"concurrency": 0}, "concurrency"),
        ({"extra_body": {"model": "other"}}, "extra_body"),
        ({"base_url": "127.0.0.1:8000"}, "http"),
        ({"base_url": "http://me:pass@host/v1"}, "without credentials"),
        ({"base_url": "http://host/v1?key=abc"}, "without credentials"),
        ({"base_url": None, "key_variable": "CASTGYM_NO_SUCH_KEY"}, "CASTGYM_NO_SUCH_KEY"),
    ],
)
def test_wrong_settings_are_refused_when_the_agent_is_made(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        ChatAgent("m", **{"base_url": "http://127.0.0.1:1/v1", **settings})
    assert "pass" not in str(caught.value) and "abc" not in str(caught.value)


# Faults


RETRIED = [
    pytest.param(fault(429, "slow down", retry_after="0"), RateLimitedError, "429", id="429"),
    pytest.param(fault(500, "oh no"), ServerFaultError, "500 (oh no)", id="500"),
    pytest.param(fault(503), ServerFaultError, "503", id="503"),
    pytest.param(Answer(b"<html>bad gateway</html>", 502), ServerFaultError, "502", id="502 without JSON"),
    pytest.param(Answer(reset=True), ConnectionFailedError, "broke the connection", id="reset"),
    pytest.param(replace(completion("cut off"), send=40), ConnectionFailedError, "broke the connection", id="cut body"),
]

FINAL = [
    pytest.param(fault(400, "top_k is unknown"), RequestRefusedError, "400 (top_k is unknown)", id="400"),
    pytest.param(fault(401, "bad key"), RequestRefusedError, KEY_VARIABLE, id="401"),
    pytest.param(fault(404, "no model asked-model"), RequestRefusedError, "check the model's name", id="wrong model"),
    pytest.param(completion("late"), RequestTimeoutError, "request_timeout = 0.3 s", id="slow"),
    pytest.param(Answer(b'{"id": "x", "choices": [{"mess'), MalformedReplyError, "no complete JSON", id="cut JSON"),
    pytest.param(Answer(b"[" * 100_000), MalformedReplyError, "JSON", id="deep JSON"),
    pytest.param(Answer([1]), MalformedReplyError, "no JSON object", id="no object"),
    pytest.param(Answer({"id": "x"}), MalformedReplyError, "no choices", id="no choices"),
    pytest.param(Answer({"choices": []}), MalformedReplyError, "no choices", id="empty choices"),
    pytest.param(Answer({"choices": [{}]}), MalformedReplyError, "without a message", id="no message"),
    pytest.param(completion(content=7), MalformedReplyError, "no text", id="content no text"),  # type: ignore[arg-type]
    pytest.param(completion(None, tool_calls={}), MalformedReplyError, "no list", id="calls no list"),
    pytest.param(
        fault(400, "This model's maximum context length is 2048 tokens."), ContextOverflowError, "2048", id="context"
    ),
    pytest.param(fault(400, "no", "context_length_exceeded"), ContextOverflowError, "max_tokens", id="context code"),
]


@pytest.mark.parametrize(("answer", "kind", "words"), RETRIED)
def test_a_fault_that_may_pass_is_retried(
    answer: Answer, kind: type[EndpointError], words: str, make: Make, prompt: Prompt
) -> None:
    with ChatServer([answer, answer, completion("at last")]) as server:
        reply = ask(make(server), prompt)
        assert (reply.text, reply.attempts, len(server.requests)) == ("at last", 3, 3)


@pytest.mark.parametrize(("answer", "kind", "words"), RETRIED)
def test_a_fault_that_does_not_pass_is_an_infrastructure_error_with_all_attempts(
    answer: Answer, kind: type[EndpointError], words: str, make: Make, prompt: Prompt
) -> None:
    with ChatServer([answer]) as server:
        with pytest.raises(kind, match=re.escape(words)) as caught:
            ask(make(server, retries=2), prompt)
        assert len(server.requests) == 3
    assert caught.value.attempts == 3 and "(3 attempts)" in str(caught.value)
    assert server.url.split("/")[2] in str(caught.value)
    assert isinstance(caught.value, InfrastructureError)


@pytest.mark.parametrize(("answer", "kind", "words"), FINAL)
def test_a_fault_that_would_come_again_is_not_retried(
    answer: Answer, kind: type[EndpointError], words: str, make: Make, prompt: Prompt
) -> None:
    slow = kind is RequestTimeoutError
    with ChatServer([replace(answer, delay=5.0) if slow else answer]) as server:
        with pytest.raises(kind, match=re.escape(words)) as caught:
            ask(make(server, request_timeout=0.3 if slow else 60), prompt)
        assert len(server.requests) == 1
    assert "(1 attempt)" in str(caught.value)
    assert isinstance(caught.value, InfrastructureError)


def test_a_server_that_is_not_there_is_named(make: Make, prompt: Prompt) -> None:
    with ChatServer([]) as server:
        agent = make(server, retries=1)
    with pytest.raises(ConnectionFailedError, match=r"127\.0\.0\.1:\d+ could not be reached.*2 attempts.*base_url"):
        agent.act(prompt)


def test_the_agent_waits_as_long_as_the_server_asks(make: Make, prompt: Prompt) -> None:
    with ChatServer([fault(429, retry_after="0.4"), completion("x")]) as server:
        assert ask(make(server), prompt).seconds >= 0.4


@pytest.mark.parametrize("value", ["3600", formatdate(time.time() + 3600, usegmt=True)])
def test_a_long_wait_that_the_server_asks_for_is_capped(value: str, make: Make, prompt: Prompt) -> None:
    with ChatServer([fault(429, retry_after=value), completion("x")]) as server:
        assert 1.0 <= ask(make(server), prompt).seconds < 20


def test_a_retry_after_that_cannot_be_read_is_passed_over(make: Make, prompt: Prompt) -> None:
    with ChatServer([fault(429, retry_after="soon"), completion("x")]) as server:
        assert ask(make(server), prompt).attempts == 2


# Keys


def everything_about(error: BaseException | None) -> Iterator[str]:
    """An error and all that hangs on it, as text: its chain, and the local variables of every frame but the test's."""
    while error is not None:
        yield from (str(error), repr(error), pickle.dumps(error).decode("latin-1"), str(vars(error)))
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if frame.f_globals["__name__"] != __name__:
                yield repr(frame.f_locals)
        error = error.__cause__ or error.__context__


def test_the_key_is_sent_and_shows_nowhere_else(
    make: Make, prompt: Prompt, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    echo = fault(401, f"Incorrect API key provided: {KEY}")
    with ChatServer([completion("x"), echo, Answer(reset=True), Answer(b"{")]) as server:
        agent = make(server, retries=0)
        ask(agent, prompt)
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
        shown = [repr(agent), str(vars(agent)), json.dumps(agent.options), repr(agent.__getstate__())]
        for kind in (RequestRefusedError, ConnectionFailedError, MalformedReplyError):
            with pytest.raises(kind) as caught:
                ask(agent, prompt)
            shown += everything_about(caught.value)
    shown += [caplog.text, *capfd.readouterr(), pickle.dumps(agent).decode("latin-1")]
    assert any("Incorrect API key provided: ***" in text for text in shown)
    assert "chat/completions" in caplog.text
    for text in shown:
        assert KEY not in text


def test_a_pickled_agent_asks_the_same_with_the_key_of_where_it_wakes(
    make: Make, prompt: Prompt, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ChatServer([completion("x")]) as server:
        agent = make(server, tool_calls="text", sampling=SamplingSettings(top_k=3), extra_body={"a": 1})
        ask(agent, prompt)
        data = pickle.dumps(agent)
        monkeypatch.setenv(KEY_VARIABLE, "another")
        with pickle.loads(data) as woken:
            ask(woken, prompt)
            assert woken.options == agent.options
        first, second = server.requests
    assert first.body == second.body
    assert second.headers["authorization"] == "Bearer another"


def test_options_are_json_without_address_or_key(make: Make) -> None:
    with ChatServer([]) as server:
        options = json.loads(json.dumps(make(server, sampling=SamplingSettings(thinking=True)).options))
    assert options["model"] == "asked-model" and options["sampling"]["thinking"] is True
    assert "127.0.0.1" not in json.dumps(options) and KEY_VARIABLE not in json.dumps(options)


def test_text_mode_sends_no_tools_field_and_reads_calls_from_text(make: Make, new_episode: Any) -> None:
    episode = new_episode()
    text = '<think>first</think><tool_call>{"name": "catalog", "arguments": {}}</tool_call>'
    with ChatServer([completion(text)]) as server:
        reply = ask(make(server, tool_calls="text"), episode.observe())
        assert "tools" not in server.requests[0].body
        assert "<tools>" in server.requests[0].body["messages"][0]["content"]
    assert episode.act(reply.message).result.tool == "catalog"


# Threads, loops and concurrency


def test_the_agent_is_a_policy_that_threads_and_loops_may_share(make: Make, prompt: Prompt) -> None:
    with ChatServer([replace(completion("x"), delay=0.05)]) as server:
        agent = make(server)
        assert isinstance(agent, Policy) and agent.name == "asked-model"
        with ThreadPoolExecutor(8) as threads:
            messages = list(threads.map(agent.act, [prompt] * 16))
        for _ in range(2):
            assert ask(agent, prompt).text == "x"
        assert server.most_in_flight > 1
    assert all(isinstance(message, Mapping) and message["content"] == "x" for message in messages)


def test_a_closed_agent_says_so_and_leaves_no_thread(make: Make, prompt: Prompt) -> None:
    with ChatServer([completion("x")]) as server:
        agent = make(server)
        agent.act(prompt)
        assert any(thread.name == "chat asked-model" for thread in threading.enumerate())
        agent.close()
        agent.close()
    assert not any(thread.name == "chat asked-model" for thread in threading.enumerate())
    with pytest.raises(ConfigError, match="closed"):
        agent.act(prompt)


def test_no_more_requests_are_in_flight_than_allowed(make: Make, prompt: Prompt) -> None:
    async def many(agent: ChatAgent) -> None:
        await asyncio.gather(*(agent.respond(prompt) for _ in range(20)))

    with ChatServer([replace(completion("x"), delay=0.02)]) as server:
        asyncio.run(many(make(server, concurrency=3)))
        assert server.most_in_flight == 3


def test_concurrency_falls_to_what_the_server_takes_and_nothing_is_lost(make: Make, prompt: Prompt) -> None:
    """A server that answers 429 beyond four requests at a time."""

    async def many(agent: ChatAgent) -> list[str]:
        return [reply.text for reply in await asyncio.gather(*(agent.respond(prompt) for _ in range(60)))]

    with ChatServer([]) as server:
        server._script = lambda _: (
            fault(429, retry_after="0.02") if server.in_flight >= 4 else replace(completion("x"), delay=0.02)
        )
        agent = make(server, concurrency=32, retries=30)
        assert asyncio.run(many(agent)) == ["x"] * 60
        refused = len(server.requests) - 60
    assert agent.concurrency < 16
    assert refused < 150  # each request tried at full concurrency would be refused many times over


def test_giving_up_on_a_response_frees_its_place(make: Make, prompt: Prompt) -> None:
    async def give_up(agent: ChatAgent) -> str:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(agent.respond(prompt), 0.2)
        return (await agent.respond(prompt)).text

    with ChatServer([replace(completion("x"), delay=20.0), completion("y")]) as server:
        assert asyncio.run(give_up(make(server, concurrency=1))) == "y"
