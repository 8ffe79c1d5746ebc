"""Saved states of an episode: they continue anywhere, and what is damaged or foreign is refused."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from factories import make_case, make_episode

from castgym.data.errors import DataError
from castgym.envs.episode import Episode
from castgym.envs.memory import Memory
from castgym.tools.calls import ToolCall
from castgym.tools.planning.contract import CapacityContract

SERIES = "TEST00"
HOURLY = ToolCall("hourly_history_plan", {"series_id": SERIES})


def submission_of(episode: Episode) -> str:
    return json.dumps(CapacityContract.of(episode.case).submission(episode.memory.plans[-1].grid_index))


class TestState:
    def test_an_episode_continues_in_another_process(self, tmp_path: Path) -> None:
        episode = make_episode(prompt_mode="chat", ledger_path=tmp_path / "ledger.jsonl")
        buy = {"series_id": SERIES, "model": "seasonal_empirical", "horizon": 50, "context_steps": 336}
        episode.act(ToolCall("forecast_and_plan", buy))
        (tmp_path / "state.json").write_text(json.dumps(episode.state()))
        script = (
            "import json, sys; from pathlib import Path; sys.path.insert(0, sys.argv[2]);"
            "from factories import *; from castgym.envs.episode import Episode;"
            "folder = Path(sys.argv[1]); state = json.loads((folder / 'state.json').read_text());"
            "episode = Episode.from_state(state, make_case(), make_episode(prompt_mode='chat').config,"
            " scripted_pool(ScriptedForecaster()), folder / 'again.jsonl');"
            "print(episode.observe().text, episode.spent, sep='|||', end='')"
        )
        output = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path), str(Path(__file__).parent)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        text, spent = output.split("|||")
        assert text == episode.observe().text
        assert int(spent) == episode.spent == 1027

    def test_an_ended_episode_stays_ended(self) -> None:
        episode = make_episode()
        episode.act(HOURLY)
        episode.act(submission_of(episode))
        again = Episode.from_state(json.loads(json.dumps(episode.state())), make_case(), episode.config)
        assert again.end == episode.end

    def test_plans_and_ids_go_on_where_they_stopped(self) -> None:
        episode = make_episode()
        episode.act(HOURLY)
        again = Episode.from_state(episode.state(), make_case(), episode.config)
        again.act(HOURLY)
        assert [plan.plan_id for plan in again.memory.plans] == ["p1", "p2"]

    def test_foreign_states_are_refused(self) -> None:
        episode = make_episode()
        with pytest.raises(DataError, match="belongs to TEST00"):
            Episode.from_state(episode.state(), make_case(1), episode.config)
        with pytest.raises(DataError, match="of other content"):
            Episode.from_state(episode.state(), make_case(scale=1.0), episode.config)
        with pytest.raises(DataError, match="saved under"):
            Episode.from_state(episode.state(), make_case(), make_episode(max_calls=99).config)

    @pytest.mark.parametrize(
        "change",
        [
            lambda state: state.pop("memory"),
            lambda state: state.update(chat=5),
            lambda state: state["charges"].clear(),
            lambda state: state["charges"][0].update(credits=-(10**7)),
            lambda state: state["charges"][0].update(credits=1),
            lambda state: state["charges"][0].update(number=3),
            lambda state: state["charges"][0].update(status="gift"),
            lambda state: state["charges"].extend([state["charges"][0]] * 30),
            lambda state: state["end"].update(outcome="won"),
            lambda state: state["memory"]["calls"].append({"tool": "x"}),
            lambda state: state.update(end=None),
        ],
    )
    def test_damaged_states_are_refused(self, change: Any) -> None:
        episode = make_episode()
        buy = {"series_id": SERIES, "model": "scripted", "horizon": 50, "context_steps": 336}
        episode.act(ToolCall("forecast_and_plan", buy))
        state = json.loads(json.dumps(episode.state()))
        change(state)
        with pytest.raises(DataError):
            Episode.from_state(state, make_case(), episode.config)

    def test_a_continued_ledger_needs_a_journal_of_its_own(self, tmp_path: Path) -> None:
        episode = make_episode(ledger_path=tmp_path / "ledger.jsonl")
        buy = {"series_id": SERIES, "model": "scripted", "horizon": 50, "context_steps": 336}
        episode.act(ToolCall("forecast_and_plan", buy))
        with pytest.raises(DataError, match="exists already"):
            Episode.from_state(episode.state(), make_case(), episode.config, ledger_path=tmp_path / "ledger.jsonl")

    def test_memory_reads_back_what_it_writes(self) -> None:
        episode = make_episode()
        episode.act(HOURLY)
        memory = episode.memory
        assert Memory.from_json(json.loads(json.dumps(memory.to_json()))) == memory
