"""Kept episodes of a run: replayed where they are whole, and named where they are not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from factories import ScriptedForecaster, make_loaded, scripted_pool

from castgym.agents.base import Desk
from castgym.agents.fixed import ClassicalPolicy
from castgym.data.errors import CastgymError, ConfigError, DataError
from castgym.envs.casesets import LoadedCases
from castgym.evaluation.replay import replay_run
from castgym.evaluation.runner import EvaluationSettings, evaluate
from castgym.tools.forecasters.pool import ForecasterPool

LOADED = make_loaded()
POOL: ForecasterPool = scripted_pool(ScriptedForecaster())


def run(folder: Path, loaded: LoadedCases = LOADED, keep: bool = True) -> Path:
    desk = Desk(loaded.case_set.tariff, loaded.case_set.models, POOL)
    settings = EvaluationSettings(keep_episodes=keep)
    policy = ClassicalPolicy("weekly_repeat")
    evaluate(policy, loaded, loaded.case_set, {}, settings, desk, folder, lambda _done, _total: None)
    return folder


def edit(folder: Path, change: Callable[[list[str]], list[str]], name: str = "episodes.jsonl") -> None:
    path = folder / name
    path.write_text("".join(line + "\n" for line in change(path.read_text().splitlines())))


def test_a_whole_run_is_replayed(tmp_path: Path) -> None:
    assert replay_run(run(tmp_path), LOADED, POOL) == len(LOADED.case_set)


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "",
        "[]",
        "7",
        "null",
        "{}",
        "[" * 100_000,
        '{"case_id": 5}',
        '{"schema": 1, "case_id": ["x"], "repeat": {}, "steps": 3}',
    ],
)
def test_a_line_that_is_no_episode_is_named(tmp_path: Path, line: str) -> None:
    run(tmp_path)
    edit(tmp_path, lambda lines: [lines[0], line, *lines[1:]])
    with pytest.raises(DataError, match=r"episodes\.jsonl, line 2"):
        replay_run(tmp_path, LOADED, POOL)


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    run(tmp_path)
    path = tmp_path / "episodes.jsonl"
    path.write_bytes(path.read_bytes() + b'{"case_id": "\xff\xfe"}\n')
    with pytest.raises(DataError, match=rf"episodes\.jsonl, line {len(LOADED.case_set) + 1}"):
        replay_run(tmp_path, LOADED, POOL)


@pytest.mark.parametrize("field", ["steps", "outcome", "case_id", "repeat"])
@pytest.mark.parametrize("value", [None, 5, "x", [], {}, [[]], [None]])
def test_no_value_of_another_kind_gets_through(tmp_path: Path, field: str, value: Any) -> None:
    run(tmp_path)

    def change(lines: list[str]) -> list[str]:
        return [json.dumps({**json.loads(lines[0]), field: value}), *lines[1:]]

    edit(tmp_path, change)
    if (field, value) == ("repeat", 5):  # an episode without a row: a crash came between the two
        assert replay_run(tmp_path, LOADED, POOL) == len(LOADED.case_set) - 1
        return
    with pytest.raises(CastgymError):
        replay_run(tmp_path, LOADED, POOL)


def test_a_run_without_episodes_or_of_other_cases_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="kept no episodes"):
        replay_run(run(tmp_path / "bare", keep=False), LOADED, POOL)
    other = make_loaded(list(LOADED.case_set)[:2])
    with pytest.raises(ConfigError, match="another case set"):
        replay_run(run(tmp_path / "whole"), other, POOL)


@pytest.mark.parametrize("line", ["{", "[" * 100_000, "not JSON"])
def test_an_interrupted_run_with_a_damaged_last_episode_says_what_to_do(tmp_path: Path, line: str) -> None:
    run(tmp_path)
    edit(tmp_path, lambda lines: [*lines, line])
    with pytest.raises(DataError, match=r"the last line is no episode .*remove it or the run"):
        run(tmp_path)


def test_an_interrupted_run_cuts_the_episodes_that_have_no_row(tmp_path: Path) -> None:
    run(tmp_path)
    whole = (tmp_path / "episodes.jsonl").read_text()
    edit(tmp_path, lambda lines: lines[:-2], "rows.jsonl")
    run(tmp_path)
    again = (tmp_path / "episodes.jsonl").read_text()
    assert [json.loads(line)["case_id"] for line in again.splitlines()] == [
        json.loads(line)["case_id"] for line in whole.splitlines()
    ]
    assert replay_run(tmp_path, LOADED, POOL) == len(LOADED.case_set)
