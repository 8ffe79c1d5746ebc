"""Saved trajectories: they read back, play again to the same end, and a changed one is found out."""

import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from factories import ScriptedForecaster, make_episode, make_loaded, scripted_pool

from castgym.agents.fixed import ClassicalPolicy
from castgym.data.errors import DataError
from castgym.envs.episode import Episode
from castgym.envs.messages import Response
from castgym.envs.trajectory import ReplayMismatchError, Trajectory, replay
from castgym.evaluation.runner import EvaluationSettings, play_case
from castgym.tools.calls import ToolCall

SERIES = "TEST00"
BUY = ToolCall("forecast_and_plan", {"series_id": SERIES, "model": "scripted", "horizon": 50, "context_steps": 336})
SCRIPT: list[Response] = [
    "<think>look</think><tool_call>{broken</tool_call>",
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "catalog"}}],
    },
    BUY,
    '{"name": "history", "arguments": {"series_id": "TEST00", "limit": 2}}',
    "no plan",
]


def play(mode: str, script: list[Response], episode: Episode | None = None) -> Trajectory:
    episode = episode or make_episode(prompt_mode=mode)
    trajectory = Trajectory.begin(episode)
    for response in script:
        trajectory.add(episode.observe(), response, episode.act(response))
    trajectory.finish(episode, None)
    return trajectory


@pytest.mark.parametrize("mode", ["memory", "chat"])
def test_a_trajectory_survives_json_and_plays_again(mode: str) -> None:
    saved = Trajectory.from_json(json.loads(json.dumps(play(mode, SCRIPT).to_json())))
    episode = make_episode(prompt_mode=mode)
    replay(saved, episode)
    assert episode.end.outcome == "invalid_submission"
    assert episode.spent == saved.credits == 8452


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value["steps"][3].update(results=[{"values": []}]),
        lambda value: value["steps"][1]["messages"][1].update(content="another prompt"),
        lambda value: value["steps"][2].update(errors=["unaffordable"]),
        lambda value: value["steps"].pop(2),
        lambda value: value["end"].update(outcome="completed"),
        lambda value: value.update(credits=0),
        lambda value: value["conditions"].update(max_calls=99),
    ],
)
def test_a_changed_trajectory_is_found_out(change: Callable[[Any], Any]) -> None:
    value = json.loads(json.dumps(play("memory", SCRIPT).to_json()))
    change(value)
    with pytest.raises(ReplayMismatchError, match="TEST00"):
        replay(Trajectory.from_json(value), make_episode())


def test_other_formats_are_refused() -> None:
    for value in ({}, {"format": 99}, {"format": 1, "steps": [{}]}):
        with pytest.raises(DataError):
            Trajectory.from_json(value)


def test_every_way_to_end_plays_again() -> None:
    loaded = make_loaded()
    row, trajectory = play_case(
        ClassicalPolicy("weekly_repeat"),
        loaded,
        loaded.case_set.cases[0].case_id,
        0,
        EvaluationSettings(),
        scripted_pool(ScriptedForecaster()),
    )
    assert trajectory is not None
    assert trajectory.score is not None
    assert trajectory.score["S"] == row.S
    over = make_episode(max_calls=1)
    exhausted = play("memory", [ToolCall("catalog", {})] * 2, over)
    assert exhausted.end["outcome"] == "budget_exhausted"
    replay(exhausted, make_episode(max_calls=1))
    cut = make_episode()
    truncated = Trajectory.begin(cut)
    truncated.add(cut.observe(), "half an", cut.act("half an", truncated=True))
    truncated.finish(cut, None)
    replay(truncated, make_episode())


class TestFork:
    def test_branches_share_the_past_and_not_the_future(self) -> None:
        trunk = make_episode()
        trunk.act(BUY)
        branches = [trunk.fork() for _ in range(3)]
        assert {branch.observe().text for branch in branches} == {trunk.observe().text}
        branches[0].act(BUY)
        branches[1].act("no plan")
        assert (branches[0].spent, branches[1].spent, trunk.spent) == (2 * 8452, 8452, 8452)
        assert branches[1].done
        assert not trunk.done
        assert branches[2].observe().text == trunk.observe().text

    def test_a_branch_continues_as_the_trunk_does(self) -> None:
        trunk = make_episode(prompt_mode="chat")
        for response in SCRIPT[:3]:
            trunk.act(response)
        branch = trunk.fork()
        for episode in (trunk, branch):
            for response in SCRIPT[3:]:
                episode.act(response)
        assert trunk.state() == branch.state()


@pytest.mark.slow
def test_a_thousand_episodes_leak_nothing() -> None:
    """Resident memory stays flat over 1,000 episodes after a warm-up."""
    statm = Path("/proc/self/statm")

    def resident() -> int:
        gc.collect()
        return int(statm.read_text().split()[1]) * 4096

    if not statm.exists():
        pytest.skip("needs /proc")
    for _ in range(200):
        play("chat", SCRIPT)
    before = resident()
    for _ in range(1000):
        play("chat", SCRIPT)
    assert resident() - before < 8_000_000
