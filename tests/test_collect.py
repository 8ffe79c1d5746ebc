"""Collections hold every finished episode, whatever happens to the process, and none that is not for training."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from chat_server import ChatServer, completion
from factories import make_case, make_loaded
from typer.testing import CliRunner

from castgym.agents.chat import ChatAgent
from castgym.agents.replies import Reply
from castgym.agents.teachers import DecisionTeacher, ForecastTeacher
from castgym.data.errors import ConfigError, DataError, InfrastructureError
from castgym.envs.casesets import LoadedCases
from castgym.envs.forecast_source import ForecastSource
from castgym.envs.prompts import Prompt
from castgym.envs.sources import DecisionSource
from castgym.envs.trajectory import Trajectory, replay
from castgym.training.collect import collect as collect_command
from castgym.training.collect_folder import open_collection
from castgym.training.collect_progress import Rate
from castgym.training.collecting import CollectSettings, chosen_subjects, collect, episode_seed
from castgym.training.step_rows import read_trajectories

ROOT = Path(__file__).parents[1]
CONDITIONS: dict[str, Any] = {"prompt_style": "compact", "answer_form": "plan"}


def loaded(split: str = "train") -> LoadedCases:
    cases = [make_case(seed, family, split=split) for seed in range(4) for family in ("day_ahead", "week_ahead")]
    return make_loaded(cases)


def source(**conditions: Any) -> DecisionSource:
    return DecisionSource(loaded(), "train", **{**CONDITIONS, **conditions})


def gather(folder: Path, settings: CollectSettings | None = None, teacher: Any = None) -> list[Trajectory]:
    """A whole collection, in the order of window and repetition, without what differs from run to run."""
    episodes = source()
    collect(episodes, teacher or DecisionTeacher(), chosen_subjects(episodes), settings or CollectSettings(), folder)
    return rows(folder)


def rows(folder: Path) -> list[Trajectory]:
    found = list(read_trajectories([folder / "episodes.jsonl"]))
    for trajectory in found:
        trajectory.meta = {name: value for name, value in trajectory.meta.items() if name != "seconds"}
    return sorted(found, key=lambda trajectory: (trajectory.case_id, trajectory.repeat))


class TestEpisodes:
    def test_one_row_an_episode_and_each_plays_again(self, tmp_path: Path) -> None:
        found = gather(tmp_path, CollectSettings(per_window=2))
        assert [(row.case_id, row.repeat) for row in found] == sorted((i, r) for i in source().ids for r in (0, 1))
        for row in found:
            replay(row, source().episode(row.case_id))
            assert row.score is not None
            assert row.score["valid"] is True
            assert row.score["error"] == row.score["parts"]["S"] == -row.score["reward"]

    def test_rows_say_who_played_what_and_with_which_seed(self, tmp_path: Path) -> None:
        row = gather(tmp_path)[0]
        assert row.meta == {
            "agent": "scripted_teacher",
            "models": ["scripted_teacher"],
            "seed": episode_seed(0, row.case_id, 0),
            "source": "test-cases",
            "split": "train",
            "fingerprint": source().fingerprint,
            "dataset": "electricity",
            "reference_error": pytest.approx(row.meta["reference_error"]),
        }

    def test_the_reference_is_what_the_free_plan_scores(self, tmp_path: Path) -> None:
        for row in gather(tmp_path):
            episode = source().episode(row.case_id)
            episode.act(f'{{"name": "hourly_history_plan", "arguments": {{"series_id": "{episode.case.series_id}"}}}}')
            episode.act('{"plan": "p1"}')
            assert source().score(episode).error == pytest.approx(row.meta["reference_error"])

    def test_order_and_concurrency_change_no_episode(self, tmp_path: Path) -> None:
        settings = CollectSettings(per_window=2, concurrency=1)
        alone = gather(tmp_path / "alone", settings, DecisionTeacher(exploration=0.5))
        together = gather(tmp_path / "together", replace(settings, concurrency=7), DecisionTeacher(exploration=0.5))
        assert alone == together

    def test_repetitions_and_seeds_differ(self, tmp_path: Path) -> None:
        seeds = {episode_seed(seed, name, repeat) for seed in (0, 1) for name in source().ids for repeat in (0, 1)}
        assert len(seeds) == 4 * len(source().ids)
        first, second = (
            gather(tmp_path / str(seed), CollectSettings(seed=seed), DecisionTeacher(exploration=1.0))
            for seed in (0, 1)
        )
        assert [row.steps for row in first] != [row.steps for row in second]

    def test_forecasting_episodes_are_collected_alike(self, tmp_path: Path) -> None:
        windows = ForecastSource("embedded", "train", models=("seasonal_naive",), stride=240, answer_form="forecast")
        done = collect(windows, ForecastTeacher(), windows.ids[:3], CollectSettings(), tmp_path)
        assert done.episodes == 3
        for row in rows(tmp_path):
            replay(row, windows.episode(row.case_id))
            assert row.score is not None
            # The teacher answered with the only forecast, which is the reference itself, rounded.
            assert row.score["error"] == pytest.approx(row.meta["reference_error"], rel=1e-2)

    def test_an_answer_without_a_finite_error_is_strict_json(self, tmp_path: Path) -> None:
        windows = ForecastSource("embedded", "train", models=("seasonal_naive",), stride=240)
        collect(windows, Mute(), windows.ids[:1], CollectSettings(), tmp_path)
        text = (tmp_path / "episodes.jsonl").read_text()
        assert "Infinity" not in text
        assert json.loads(text)["score"]["error"] is None

    def test_a_model_behind_an_endpoint_is_a_teacher_too(self, tmp_path: Path) -> None:
        with (
            ChatServer([completion('{"plan": "p1"}', usage=(70, 9))]) as server,
            ChatAgent("served", server.url) as agent,
        ):
            found = gather(tmp_path, teacher=agent)
        assert {row.end["outcome"] for row in found} == {"invalid_submission"}
        assert {row.meta["agent"] for row in found} == {"served"}
        assert all(row.meta["prompt_tokens"] == 70 and row.meta["completion_tokens"] == 9 for row in found)


class Mute(DecisionTeacher):
    """Never answers."""

    async def respond(self, prompt: Prompt, *, seed: int | None = None) -> Reply:
        return Reply({"role": "assistant", "content": "no"}, None, 0.0)


class TestTrainingOnly:
    @pytest.mark.parametrize("split", ["test", "calibration"])
    def test_other_cases_are_refused_before_anything_is_written(self, tmp_path: Path, split: Any) -> None:
        other = DecisionSource(loaded(split), split, **CONDITIONS)
        with pytest.raises(ConfigError, match="train split only"):
            collect(other, DecisionTeacher(), other.ids, CollectSettings(), tmp_path / "out")
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize("split", ["validation", "test"])
    def test_other_windows_are_refused(self, tmp_path: Path, split: Any) -> None:
        windows = ForecastSource("embedded", split, models=("seasonal_naive",))
        with pytest.raises(ConfigError, match="train split only"):
            collect(windows, ForecastTeacher(), windows.ids[:1], CollectSettings(), tmp_path / "out")

    def test_a_case_of_another_split_is_no_case_of_the_source(self, tmp_path: Path) -> None:
        cases = [make_case(0, split="train"), make_case(1, split="test")]
        mixed = DecisionSource(make_loaded(cases), "train", **CONDITIONS)
        assert mixed.ids == (cases[0].case_id,)
        with pytest.raises(ConfigError, match="no case"):
            collect(mixed, DecisionTeacher(), [cases[1].case_id], CollectSettings(), tmp_path)


class TestChoice:
    def test_windows_come_evenly_from_the_data_sets(self) -> None:
        bikes = [make_case(seed, split="train", domain="cycle_hire") for seed in range(10, 12)]
        mixed = DecisionSource(make_loaded([*loaded().case_set.cases, *bikes]), "train", **CONDITIONS)
        chosen = chosen_subjects(mixed, 4)
        assert [mixed.dataset(name) for name in chosen] == ["cycle_hire", "electricity"] * 2
        assert sorted(chosen_subjects(mixed)) == sorted(mixed.ids)

    def test_a_larger_choice_begins_with_the_smaller_one(self) -> None:
        assert chosen_subjects(source(), 5)[:3] == chosen_subjects(source(), 3)


CHILD = """
import asyncio, sys
sys.path.insert(0, "tests")
from pathlib import Path
from test_collect import chosen_subjects, collect, source, CollectSettings, DecisionTeacher

class Stuck(DecisionTeacher):
    responses = 0
    async def respond(self, prompt, *, seed=None):
        self.responses += 1
        if self.responses > 12:
            await asyncio.Event().wait()  # never
        return await super().respond(prompt, seed=seed)

episodes = source()
collect(episodes, Stuck(), chosen_subjects(episodes), CollectSettings(concurrency=2), Path(sys.argv[1]))
"""


def killed_collection(folder: Path) -> None:
    """A collection killed by SIGKILL after its fourth episode, all of them on disk, the fifth in play."""
    process = subprocess.Popen([sys.executable, "-c", CHILD, str(folder)], cwd=ROOT)
    try:
        deadline = time.monotonic() + 120
        while not (folder / "episodes.jsonl").exists() or (folder / "episodes.jsonl").read_bytes().count(b"\n") < 3:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not hasattr(signal, "SIGKILL"):
        pytest.skip("needs SIGKILL")
    folder = tmp_path_factory.mktemp("killed")
    killed_collection(folder)
    return folder


@pytest.mark.parametrize("cut", [0, 1, 1000], ids=["whole lines", "a byte", "half a line"])
def test_a_killed_collection_resumes_to_the_same_episodes(killed: Path, tmp_path: Path, cut: int) -> None:
    shutil.copytree(killed, tmp_path / "killed")
    path = tmp_path / "killed" / "episodes.jsonl"
    before = path.read_bytes()
    finished = before.count(b"\n")
    assert 3 <= finished < len(source().ids)
    path.write_bytes(before + before[:cut])  # where a kill falls into a write, the last line is cut somewhere
    resumed = gather(tmp_path / "killed")
    assert path.read_bytes().startswith(before)  # what was finished is not played again
    assert resumed == gather(tmp_path / "whole")
    assert path.read_bytes().count(b"\n") == len(source().ids)


class TestFolder:
    def test_another_configuration_is_refused_by_name(self, tmp_path: Path) -> None:
        gather(tmp_path)
        with pytest.raises(ConfigError, match="per_window is 1 there and 2 here"):
            gather(tmp_path, CollectSettings(per_window=2))
        with pytest.raises(ConfigError, match="teacher is"):
            gather(tmp_path, teacher=DecisionTeacher(exploration=0.7))

    def test_a_finished_collection_is_left_as_it_is(self, tmp_path: Path) -> None:
        gather(tmp_path)
        before = (tmp_path / "episodes.jsonl").read_bytes()
        episodes = source()
        done = collect(episodes, DecisionTeacher(), chosen_subjects(episodes), CollectSettings(), tmp_path)
        assert (done.played, done.missing, done.episodes) == (0, 0, 8)
        assert (tmp_path / "episodes.jsonl").read_bytes() == before

    def test_a_second_writer_is_refused(self, tmp_path: Path) -> None:
        with (
            open_collection(tmp_path, {"a": 1}),
            pytest.raises(ConfigError, match="another process writes to"),
            open_collection(tmp_path, {"a": 1}),
        ):
            pass

    def test_a_damaged_line_is_named(self, tmp_path: Path) -> None:
        gather(tmp_path)
        path = tmp_path / "episodes.jsonl"
        path.write_bytes(path.read_bytes().replace(b'{"format"', b'{"form', 1))
        with pytest.raises(DataError, match="line 1"):
            gather(tmp_path)

    def test_foreign_folders_are_not_written_to(self, tmp_path: Path) -> None:
        (tmp_path / "episodes.jsonl").write_text("{}\n")
        with pytest.raises(ConfigError, match=r"without a config\.json"):
            gather(tmp_path)
        (tmp_path / "config.json").write_text('{"format": 9}')
        with pytest.raises(ConfigError, match="something else"):
            gather(tmp_path)


class Broken(DecisionTeacher):
    """Fails on some windows, for a while."""

    def __init__(self, windows: set[str], failures: int) -> None:
        super().__init__()
        self.left = dict.fromkeys(windows, failures)

    async def respond(self, prompt: Prompt, *, seed: int | None = None) -> Reply:
        case_id = prompt.task["case_id"]
        if self.left.get(case_id, 0) > 0:
            self.left[case_id] -= 1
            raise InfrastructureError("the line is dead")
        return await super().respond(prompt, seed=seed)


class TestFaults:
    def test_a_fault_is_noted_and_tried_again(self, tmp_path: Path) -> None:
        bad = source().ids[0]
        assert gather(tmp_path / "faulty", teacher=Broken({bad}, 2)) == gather(tmp_path / "sound")
        faults = [json.loads(line) for line in (tmp_path / "faulty" / "faults.jsonl").read_text().splitlines()]
        assert faults == 2 * [{"case_id": bad, "repeat": 0, "fault": "InfrastructureError: the line is dead"}]

    def test_what_keeps_failing_is_left_out_and_counted_until_the_next_call(self, tmp_path: Path) -> None:
        episodes, bad = source(), source().ids[0]
        done = collect(episodes, Broken({bad}, 99), chosen_subjects(episodes), CollectSettings(), tmp_path)
        assert (done.episodes, done.missing) == (7, 1)
        assert len(gather(tmp_path)) == 8

    def test_too_many_faults_stop_the_collection(self, tmp_path: Path) -> None:
        episodes = source()
        settings = CollectSettings(per_window=5, concurrency=1)
        with pytest.raises(InfrastructureError, match="episodes failed, more than 10%"):
            collect(episodes, Broken(set(episodes.ids), 99), chosen_subjects(episodes), settings, tmp_path)
        assert len((tmp_path / "faults.jsonl").read_text().splitlines()) == 20


class TestCommand:
    def run(self, *arguments: str) -> Any:
        app = typer.Typer()
        app.command()(collect_command)
        return CliRunner().invoke(app, list(arguments))

    def test_the_script_is_the_command(self, tmp_path: Path) -> None:
        wrong = subprocess.run(
            [sys.executable, "training/collect.py", "--out", str(tmp_path / "x"), "--teacher", "oracle"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert wrong.returncode == 2
        assert wrong.stderr.startswith("error: expected --teacher to be one of scripted, model")
        assert "--per-window" in self.run("--help").output

    def test_it_collects_embedded_cases_and_tells_the_rate(self, tmp_path: Path) -> None:
        result = self.run("--out", str(tmp_path / "out"), "--limit", "4", "--per-window", "2")
        assert result.exit_code == 0, result.output
        assert "8/8 episodes" in result.output
        assert "8 episodes in" in result.output.replace("\n", "")
        assert {row.meta["dataset"] for row in rows(tmp_path / "out")} == {"electricity", "cycle_hire"}

    def test_windows_too(self, tmp_path: Path) -> None:
        arguments = ("--benchmark", "castr1", "--forecaster", "seasonal_naive", "--stride", "240", "--limit", "2")
        result = self.run("--out", str(tmp_path / "out"), *arguments)
        assert result.exit_code == 0, result.output
        assert len(rows(tmp_path / "out")) == 2

    def test_a_model_needs_its_name(self, tmp_path: Path) -> None:
        result = self.run("--out", str(tmp_path), "--teacher", "model")
        assert isinstance(result.exception, ConfigError)


def test_the_rate_counts_what_this_call_played() -> None:
    times = iter([0.0, 10.0])
    rate = Rate(lambda: next(times))
    assert rate.measure(50, 100) == (0.0, None)
    assert rate.measure(70, 100) == (2.0, 15.0)


@pytest.mark.parametrize(
    "wrong",
    [{"per_window": 0}, {"seed": -1}, {"concurrency": 0}, {"most_faults": 2.0}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        CollectSettings(**wrong)


def test_nothing_to_collect_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no window"):
        collect(source(), DecisionTeacher(), [], CollectSettings(), tmp_path)


def test_collect_runs_inside_no_other_loop(tmp_path: Path) -> None:
    """It starts a loop of its own, so a coroutine calls it in a thread."""

    async def outer() -> int:
        return len(await asyncio.to_thread(gather, tmp_path))

    assert asyncio.run(outer()) == 8
