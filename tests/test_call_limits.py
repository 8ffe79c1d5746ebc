"""Responses with very many calls: none is run, and the answer does not grow with them."""

import json

import pytest
from factories import make_episode

from castgym.envs.core import MOST_CALLS_READ


def markup(count: int) -> str:
    return '<tool_call>{"name": "catalog", "arguments": {}}</tool_call>' * count


def message(count: int) -> dict[str, object]:
    function = {"name": "catalog", "arguments": "{}"}
    calls = [{"id": f"call-{number}", "type": "function", "function": function} for number in range(count)]
    return {"role": "assistant", "content": None, "tool_calls": calls}


@pytest.mark.parametrize("form", [markup, message])
@pytest.mark.parametrize("mode", ["memory", "chat"])
def test_up_to_the_cap_each_call_is_answered_and_beyond_it_none_is(form: object, mode: str) -> None:
    answered = make_episode(prompt_mode=mode)
    result = answered.act(form(MOST_CALLS_READ)).result  # type: ignore[operator]
    assert result is not None
    assert result.error == "parallel_calls"

    refused = make_episode(prompt_mode=mode)
    sizes = []
    for count in (MOST_CALLS_READ + 1, 1000):
        before = len(json.dumps(refused.state()))
        result = refused.act(form(count)).result  # type: ignore[operator]
        assert result is not None
        assert result.error == "malformed_message"
        assert f"more than {MOST_CALLS_READ} calls" in str(result.content["message"])
        sizes.append(len(json.dumps(refused.state())) - before)
    assert max(sizes) < 1000
    assert len(refused.memory.calls) == 2
    assert refused.spent == 0
    assert not refused.done


@pytest.mark.parametrize("count", [2, MOST_CALLS_READ, MOST_CALLS_READ + 1])
def test_broken_calls_count_too(count: int) -> None:
    episode = make_episode()
    result = episode.act("<tool_call>{</tool_call>" * count).result
    assert result is not None
    assert result.error == ("malformed_json" if count <= MOST_CALLS_READ else "malformed_message")
