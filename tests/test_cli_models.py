"""`castgym evaluate --model`: local folders and endpoints become runs like those of any policy."""

import json
from pathlib import Path

import pytest
from chat_server import ChatServer, completion
from typer.testing import CliRunner

from castgym.cli.main import app
from castgym.data.errors import ConfigError
from castgym.evaluation.runs import Run
from castgym.training.tiny_model import TinySize, build_tiny_model, sample_trajectories, transcript_texts

SHORT = ["--prompt-style", "compact", "--answer-form", "plan", "--limit", "3", "--keep-episodes"]


def evaluate(*arguments: str) -> None:
    result = CliRunner().invoke(app, ["evaluate", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    build_tiny_model(folder, transcript_texts(sample_trajectories(4)), TinySize(64, 1, 400))
    return folder


def test_a_local_model_plays_and_the_same_command_gives_the_same_rows(tiny: Path, tmp_path: Path) -> None:
    runs = []
    for folder in ("one", "two"):
        evaluate("--model", str(tiny), *SHORT, "--max-tokens", "12", "--out", str(tmp_path / folder))
        runs.append(Run(tmp_path / folder / "tiny"))
    assert len(runs[0].rows) == 3
    # Random weights say nothing of use, which is the policy's fault and scored.
    assert {row.outcome for row in runs[0].rows} <= {"invalid_submission", "truncated", "budget_exhausted"}
    assert all(row.S is not None and row.S > 1 for row in runs[0].rows)
    assert [row.answer for row in runs[0].rows] == [row.answer for row in runs[1].rows]
    assert runs[0].config.prompt_style == "compact"
    assert runs[0].config.options["sampling"]["max_tokens"] == 12
    result = CliRunner().invoke(app, ["verify", str(runs[0].path)])
    assert result.exit_code == 0, result.output


def test_a_model_behind_an_endpoint_plays(tmp_path: Path) -> None:
    call = '<tool_call>{"name": "hourly_history_plan", "arguments": {}}</tool_call>'
    with ChatServer([completion(call), completion('{"plan": "p1"}')] * 3) as server:
        evaluate("--model", "served", "--base-url", server.url, *SHORT, "--out", str(tmp_path))
    run = Run(tmp_path / "served")
    assert [row.outcome for row in run.rows] == ["completed"] * 3
    assert json.loads(run.rows[0].answer or "") == {"plan": "p1"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give --policy, --model"),
        (["--model", "no/such/folder"], "to be a folder with a transformers model"),
        (["--model", "x", "--base-url", "http://127.0.0.1:9", "--adapter", "a"], "--adapter belongs to a local model"),
        (["-p", "weekly_repeat", "--answer-form", "poem"], "--answer-form to be one of"),
    ],
)
def test_what_cannot_run_is_said_before_anything_starts(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CliRunner().invoke(app, ["evaluate", *arguments], catch_exceptions=False)
