"""Many live episodes with an agent behind a real local server: real cases, real tools, time limits."""

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("openai")

from chat_server import Answer, ChatServer, Request, completion, fault, native_call

from castgym.agents.chat import ChatAgent
from castgym.agents.endpoint_errors import RequestRefusedError
from castgym.agents.limits import TimeLimitError, TimeLimits
from castgym.agents.play import Played, play_many
from castgym.agents.sampling import turn_seed
from castgym.data.errors import InfrastructureError
from castgym.envs.episode import Episode
from castgym.tools.fwbench import FWBENCH_TOOLS, FWBenchTools

Make = Callable[..., ChatAgent]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Agents for a server, closed at the end."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with ExitStack() as stack:
        yield lambda server, **settings: stack.enter_context(ChatAgent("asked-model", server.url, **settings))


def scripted_model(request: Request) -> Answer:
    """A model that asks for the catalog, gets a free plan and submits it, in whatever form it is asked."""
    messages = request.body["messages"]
    task = next(message["content"] for message in messages if message["role"] == "user")
    series = re.search(r"Series (\S+) ", task)[1]  # type: ignore[index]
    results = [
        message["content"]
        for message in messages
        if message["role"] == "tool" or message["content"].startswith("<tool_response>")
    ]
    done = re.search(r"Calls used: (\d+)", messages[-1]["content"])
    step = int(done[1]) if done else len(results)
    if step < 2:
        name, arguments = (("catalog", {}), ("classical_plan", {"series_id": series, "method": "weekday_empirical"}))[
            step
        ]
        if "tools" in request.body:
            return completion(None, [native_call(name, arguments, f"c{step}")], finish="tool_calls")
        return completion(f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>")
    if results:
        result = json.loads(results[-1].removeprefix("<tool_response>").removesuffix("</tool_response>"))
        return completion(json.dumps(result["capacity_plan"]["submission"]))
    values = re.findall(r"(b\d\d)=([\d.]+)", messages[-1]["content"].split("Plans so far:")[1])
    return completion(json.dumps({"decisions": [{"id": name, "action": float(value)} for name, value in values]}))


async def collect(*arguments: Any, **settings: Any) -> list[Played[Episode]]:
    return [played async for played in play_many(*arguments, **settings)]


@pytest.mark.parametrize("tool_calls", ["native", "text"])
@pytest.mark.parametrize("prompt_mode", ["memory", "chat"])
def test_real_episodes_are_played_to_a_valid_plan(
    prompt_mode: str, tool_calls: str, make: Make, new_episode: Callable[..., Episode]
) -> None:
    episodes = [new_episode(number, prompt_mode=prompt_mode) for number in range(12)]
    with ChatServer(scripted_model) as server:
        ended = asyncio.run(collect(make(server, tool_calls=tool_calls), episodes, 8))
    assert sorted(played.index for played in ended) == list(range(12))
    for played in ended:
        assert played.error is None
        assert played.episode is episodes[played.index]
        assert played.episode.end.outcome == "completed", played.episode.end
        assert [call.tool for call in played.episode.memory.calls] == ["catalog", "classical_plan"]
        assert len(played.turns) == 3 and played.turns[-1].transition.done
        assert played.turns[0].prompt.messages[0]["role"] == "system"
        assert played.seconds > 0


def test_a_cut_response_ends_its_episode_as_truncated(make: Make, new_episode: Callable[..., Episode]) -> None:
    with ChatServer([completion("so lo", finish="length")]) as server:
        played = asyncio.run(collect(make(server), [new_episode()]))[0]
    assert played.episode.end.outcome == "truncated" and played.turns[0].reply.truncated


def test_a_fault_stops_its_own_episode_only(make: Make, new_episode: Callable[..., Episode]) -> None:
    def script(request: Request) -> Answer:
        return fault(400, "no") if "SIME01" in json.dumps(request.body) else scripted_model(request)

    with ChatServer(script) as server:
        ended = asyncio.run(collect(make(server), (new_episode(number) for number in range(0, 60, 5))))
    failed = [played for played in ended if played.error is not None]
    assert failed and len(failed) < len(ended) == 12
    for played in ended:
        ours = played.episode.case.series_id == "SIME01"
        assert isinstance(played.error, RequestRefusedError) == ours
        assert played.episode.done != ours


def test_each_response_of_an_episode_has_a_seed_of_its_own(make: Make, new_episode: Callable[..., Episode]) -> None:
    with ChatServer(scripted_model) as server:
        asyncio.run(collect(make(server), [new_episode(0)], seeds=[9]))
        assert [request.body["seed"] for request in server.requests] == [turn_seed(9, turn) for turn in range(3)]


def test_episodes_are_made_only_when_there_is_a_place(make: Make, new_episode: Callable[..., Episode]) -> None:
    live = most = 0

    def episodes() -> Iterator[Episode]:
        nonlocal live, most
        for number in range(10):
            live += 1
            most = max(most, live)
            yield new_episode(number)

    async def play(agent: ChatAgent) -> None:
        nonlocal live
        async for _ in play_many(agent, episodes(), 2):
            live -= 1

    with ChatServer(scripted_model) as server:
        asyncio.run(play(make(server)))
    assert most <= 5


class SlowTools(FWBenchTools):
    tool_names = (*FWBENCH_TOOLS, "sleep")

    def sleep(self) -> Mapping[str, Any]:
        """Take a while."""
        time.sleep(1.0)
        return {}


def test_a_slow_tool_does_not_hold_up_the_event_loop(make: Make, new_episode: Callable[..., Episode]) -> None:
    async def play(agent: ChatAgent) -> tuple[float, list[Played[Episode]]]:
        longest = 0.0

        async def watch() -> None:
            nonlocal longest
            while True:
                before = time.perf_counter()
                await asyncio.sleep(0.01)
                longest = max(longest, time.perf_counter() - before - 0.01)

        watching = asyncio.create_task(watch())
        ended = await collect(agent, [new_episode(0, toolset=SlowTools) for _ in range(2)])
        watching.cancel()
        return longest, ended

    with ChatServer([completion(None, [native_call("sleep", {})])] * 2 + [completion("done")]) as server:
        longest, ended = asyncio.run(play(make(server)))
    assert all(played.seconds > 1.0 for played in ended)
    assert longest < 0.9


@pytest.mark.parametrize(("limit", "words"), [("tool", "in a step"), ("episode", "in turn 1")])
def test_a_limit_that_passes_stops_the_episode_and_is_named(
    limit: str, words: str, make: Make, new_episode: Callable[..., Episode]
) -> None:
    limits = TimeLimits(**{limit: 0.25})
    with ChatServer([completion(None, [native_call("sleep", {})])]) as server:
        played = asyncio.run(collect(make(server), [new_episode(0, toolset=SlowTools)], limits=limits))[0]
    assert isinstance(played.error, TimeLimitError) and isinstance(played.error, InfrastructureError)
    assert str(played.error) == f"the {limit} limit of 0.25 s passed {words}" + (
        f" of an episode: raise TimeLimits.{limit}" if limit == "tool" else f": raise TimeLimits.{limit}"
    )


def test_the_run_limit_ends_the_run_with_its_name(make: Make, new_episode: Callable[..., Episode]) -> None:
    async def play(agent: ChatAgent) -> None:
        async for _ in play_many(agent, [new_episode()], limits=TimeLimits(run=0.3)):
            pass

    with (
        ChatServer([replace(completion("x"), delay=20.0)]) as server,
        pytest.raises(TimeLimitError, match=r"the run limit of 0.3 s passed after 0 episodes"),
    ):
        asyncio.run(play(make(server)))


def test_a_fault_of_the_program_ends_the_run(make: Make, new_episode: Callable[..., Episode]) -> None:
    def episodes() -> Iterator[Episode]:
        yield new_episode()
        raise ZeroDivisionError

    with ChatServer(scripted_model) as server, pytest.raises(ZeroDivisionError):
        asyncio.run(collect(make(server), episodes(), 2))


def test_stopping_early_leaves_nothing_running(make: Make, new_episode: Callable[..., Episode]) -> None:
    async def play(agent: ChatAgent) -> int:
        playing = play_many(agent, (new_episode(number) for number in range(30)), 4)
        async for _ in playing:
            break
        await playing.aclose()
        return len(asyncio.all_tasks())

    with ChatServer(scripted_model) as server:
        assert asyncio.run(play(make(server))) == 1
