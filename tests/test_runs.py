"""Run folders survive what happens to long runs: kills, other configurations, a second process, edits by hand."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from castgym.data.errors import ConfigError, DataError
from castgym.evaluation.rows import ResultRow
from castgym.evaluation.runs import Run, RunConfig, open_run

CASES = [f"case-{number:03d}" for number in range(300)]

CONFIG = RunConfig(
    policy="hour_of_day_empirical",
    hindsight=False,
    case_set="set",
    case_source="embedded",
    fingerprint="f" * 64,
    tariff="t" * 64,
    selection={"split": "test"},
    case_ids="c" * 64,
    n_cases=len(CASES),
    whole_index=True,
    cohort_weights={"winter": 1.0},
    sigma={"electricity": 0.05},
    budget=113_726,
    pool="full",
    answer_form="decisions",
    prompt_mode="memory",
    repeats=1,
    seed=0,
    version="0",
    options={},
)


def row(case_id: str, repeat: int = 0, **changes: Any) -> ResultRow:
    """The row of a case: a function of its name alone, as a deterministic policy's would be."""
    loss = int(case_id[-3:]) / 1000
    base = ResultRow(
        case_id=case_id,
        repeat=repeat,
        group_id="A",
        domain="electricity",
        family="day_ahead",
        cohort="winter",
        outcome="completed",
        valid=True,
        fault=None,
        loss=loss,
        floor=0.0,
        credits=0,
        R=loss / 0.05,
        S=loss / 0.1,
        grid_index=(1, 2, 3, 4, 5, 6, 7, 8),
        answer='{"decisions": "ü"}',
        calls=({"tool": "catalog", "arguments": {}, "error": None, "credits": 0},),
        seconds=0.5,
    )
    return replace(base, **changes)


def lost(case_id: str) -> ResultRow:
    nothing: Any = dict.fromkeys(("loss", "floor", "credits", "R", "S", "grid_index"))
    return row(case_id, outcome="infrastructure_error", valid=False, error="server gone", **nothing)


CHILD = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_runs import CASES, CONFIG, row
from castgym.evaluation.runs import open_run

mode, folder = sys.argv[2], Path(sys.argv[3])
with open_run(folder, CONFIG) as writer:
    print("open", flush=True)
    for case_id, repeat in writer.pending(CASES):
        if mode == "append":
            writer.append([row(case_id, repeat)])
    time.sleep(60)
"""


def child(mode: str, folder: Path) -> "subprocess.Popen[str]":
    """A process that holds the folder; it has opened it when this returns."""
    command = [sys.executable, "-c", CHILD, str(Path(__file__).parent), mode, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    return process


def kill(process: "subprocess.Popen[str]") -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def finish(folder: Path) -> list[tuple[str, int]]:
    """Run what is pending, and return it."""
    with open_run(folder, CONFIG) as writer:
        pending = writer.pending(CASES)
        for case_id, repeat in pending:
            writer.append([row(case_id, repeat)])
        assert writer.pending(CASES) == []
    return pending


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
@pytest.mark.parametrize("cut", [0, 1, 100, None], ids=["nothing", "a byte", "half a line", "all but the newline"])
def test_a_run_killed_while_appending_resumes_to_the_same_rows(tmp_path: Path, cut: int | None) -> None:
    folder = tmp_path / "run"
    process = child("append", folder)
    try:
        deadline = time.monotonic() + 30
        while not (folder / "rows.jsonl").exists() or (folder / "rows.jsonl").read_bytes().count(b"\n") < 5:
            assert time.monotonic() < deadline
            time.sleep(0.001)
    finally:
        kill(process)
    # Where the kill fell into a write, the last line is cut somewhere; add such a line, as far as its `cut`-th byte.
    written = Run(folder)
    assert 5 <= len(written.rows) < len(CASES)
    assert written.missing == len(CASES) - len(written.rows)
    following = json.dumps(row(CASES[len(written.rows)]).to_json()).encode()
    content = (folder / "rows.jsonl").read_bytes()
    (folder / "rows.jsonl").write_bytes(content[: content.rfind(b"\n") + 1] + following[:cut])
    assert Run(folder).rows == written.rows

    pending = finish(folder)
    assert [case_id for case_id, _ in pending] == CASES[len(written.rows) :]
    resumed = Run(folder)
    assert resumed.complete
    assert resumed.rows == tuple(row(case_id) for case_id in CASES)
    assert (folder / "rows.jsonl").read_bytes().count(b"\n") == len(CASES)


def test_a_second_process_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    process = child("hold", tmp_path / "run")
    try:
        with pytest.raises(ConfigError, match="another process writes to"), open_run(tmp_path / "run", CONFIG):
            pass
    finally:
        kill(process)
    assert len(finish(tmp_path / "run")) == len(CASES)


def test_a_second_writer_in_one_process_is_refused(tmp_path: Path) -> None:
    with (
        open_run(tmp_path / "run", CONFIG),
        pytest.raises(ConfigError, match="another process writes to"),
        open_run(tmp_path / "run", CONFIG),
    ):
        pass


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 1}, "seed is 0 there and 1 here; choose another folder"),
        ({"policy": "weekday_empirical"}, "policy is 'hour_of_day_empirical' there"),
        ({"options": {"temperature": 1.0}}, "options.temperature is None there"),
        ({"fingerprint": "e" * 64, "repeats": 2}, "fingerprint is .*; repeats is 1 there and 2 here"),
    ],
)
def test_a_run_never_resumes_into_another_configuration(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    finish(tmp_path / "run")
    before = (tmp_path / "run" / "rows.jsonl").read_bytes()
    with pytest.raises(ConfigError, match=message), open_run(tmp_path / "run", replace(CONFIG, **changes)):
        pass
    assert (tmp_path / "run" / "rows.jsonl").read_bytes() == before


def test_where_the_cases_came_from_is_no_other_configuration(tmp_path: Path) -> None:
    finish(tmp_path / "run")
    with open_run(tmp_path / "run", replace(CONFIG, case_source="/moved")) as writer:
        assert writer.pending(CASES) == []


def test_a_configuration_changed_by_hand_is_found(tmp_path: Path) -> None:
    finish(tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    path.write_text(path.read_text().replace('"hindsight": false', '"hindsight": true'))
    with pytest.raises(DataError, match="changed after it was written"):
        Run(tmp_path / "run")
    with pytest.raises(DataError, match="changed after it was written"), open_run(tmp_path / "run", CONFIG):
        pass


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda value: {**value, "format": 99}, "format 2, found 99"),
        (lambda value: {**value, "kind": "forecasts"}, "a run of decisions, found one of 'forecasts'"),
        (lambda value: {**value, "extra": 1}, "other fields than expected: .*'extra'"),
        (lambda value: [value], "found 'list'"),
    ],
)
def test_a_configuration_of_another_form_is_refused(tmp_path: Path, change: Any, message: str) -> None:
    with open_run(tmp_path / "run", CONFIG):
        pass
    path = tmp_path / "run" / "config.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(DataError, match=message):
        Run(tmp_path / "run")


def test_rows_without_a_configuration_are_refused(tmp_path: Path) -> None:
    finish(tmp_path / "run")
    (tmp_path / "run" / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"rows without a config\.json"), open_run(tmp_path / "run", CONFIG):
        pass
    with pytest.raises(DataError, match="is no run"):
        Run(tmp_path / "run")


def test_infrastructure_rows_are_run_again_and_replaced(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", CONFIG) as writer:
        writer.append([row(CASES[0]), lost(CASES[1]), row(CASES[2])])
        assert (CASES[1], 0) in writer.pending(CASES)
    assert [item.outcome for item in Run(tmp_path / "run").rows] == ["completed", "infrastructure_error", "completed"]
    pending = finish(tmp_path / "run")
    assert (CASES[1], 0) in pending
    assert (CASES[0], 0) not in pending
    run = Run(tmp_path / "run")
    assert run.complete
    assert {item.case_id: item for item in run.rows}[CASES[1]] == row(CASES[1])


def test_a_run_that_ends_with_infrastructure_rows_is_complete(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", CONFIG) as writer:
        writer.append([*(row(case_id) for case_id in CASES[1:]), lost(CASES[0])])
    run = Run(tmp_path / "run")
    assert run.complete
    assert [item.case_id for item in run.rows if not item.scored] == [CASES[0]]


def test_each_repeat_has_a_row_of_its_own(tmp_path: Path) -> None:
    config = replace(CONFIG, repeats=2, n_cases=2)
    with open_run(tmp_path / "run", config) as writer:
        assert writer.pending(CASES[:2]) == [(CASES[0], 0), (CASES[1], 0), (CASES[0], 1), (CASES[1], 1)]
        writer.append([row(CASES[0], 1)])
        assert writer.pending(CASES[:2]) == [(CASES[0], 0), (CASES[1], 0), (CASES[1], 1)]
    assert Run(tmp_path / "run").missing == 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{not json}", "line 2"),
        ('{"case_id": "x"}', "line 2: expected a result row with the fields"),
        ("[]", "line 2: expected a result row"),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    with open_run(tmp_path / "run", CONFIG) as writer:
        writer.append([row(CASES[0])])
    path = tmp_path / "run" / "rows.jsonl"
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(DataError, match=message):
        Run(tmp_path / "run")


def test_rows_and_configuration_read_back_as_written(tmp_path: Path) -> None:
    episode = {"case_id": CASES[0], "repeat": 0, "steps": []}
    with open_run(tmp_path / "run", CONFIG) as writer:
        writer.append([row(CASES[0]), lost(CASES[1])], [episode])
    run = Run(tmp_path / "run")
    assert run.config == CONFIG
    assert run.config.digest == CONFIG.digest
    assert run.rows == (row(CASES[0]), lost(CASES[1]))
    assert json.loads((tmp_path / "run" / "episodes.jsonl").read_text()) == episode


def test_episodes_that_a_crash_left_without_a_row_do_not_stay(tmp_path: Path) -> None:
    first, second, third = CASES[:3]
    with open_run(tmp_path, CONFIG) as writer:
        writer.append([row(first)], [{"case_id": first, "repeat": 0}])
    with (tmp_path / "episodes.jsonl").open("a") as stream:
        stream.write(json.dumps({"case_id": second, "repeat": 0}) + "\n")  # whole, but its row never came
        stream.write('{"case_id": "cut')
    with open_run(tmp_path, CONFIG) as writer:
        writer.append([row(third)], [{"case_id": third, "repeat": 0}])
    lines = (tmp_path / "episodes.jsonl").read_text().splitlines()
    assert [json.loads(line)["case_id"] for line in lines] == [first, third]
