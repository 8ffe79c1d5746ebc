"""Selection keeps the best valid episode of each window, shares fairly, and accounts for everything it drops."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from factories import make_case, make_loaded
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from castgym.agents.teachers import DecisionTeacher
from castgym.data.errors import ConfigError, DataError
from castgym.envs.sources import DecisionSource
from castgym.envs.trajectory import Step, Trajectory
from castgym.training.collecting import CollectSettings, chosen_subjects, collect
from castgym.training.selecting import DROP_REASONS, SelectionSettings, invalidity, select
from castgym.training.selection import select as select_command
from castgym.training.step_rows import read_trajectories

CALL = '<tool_call>\n{"name": "hourly_history_plan", "arguments": {"series_id": "A"}}\n</tool_call>'


def episode(case_id: str = "a", error: float | None = 0.5, repeat: int = 0, **changes: Any) -> Trajectory:
    """A valid decision episode of two responses."""
    steps = [
        Step(({"role": "user", "content": "?"},), CALL, ({"plan_id": "p1"},), (None,)),
        Step(({"role": "user", "content": "?"},), '{"plan": "p1"}'),
    ]
    fields: dict[str, Any] = {
        "conditions": {},
        "steps": steps,
        "end": {"outcome": "completed", "submission": {"decisions": []}, "rejection": None},
        "score": {"reward": None if error is None else -error, "error": error, "valid": True, "parts": {}},
    }
    meta = {"split": "train", "dataset": "electricity", "reference_error": 0.5, "agent": "t", "seed": repeat}
    meta |= changes.pop("meta", {})
    return Trajectory(case_id, repeat, **{"toolsets": [()], **fields, **changes}, meta=meta)


def ended(outcome: str, rejection: str | None = None, submission: Any = None) -> dict[str, Any]:
    return {"outcome": outcome, "rejection": rejection, "submission": submission}


def stages(*names: str) -> list[Step]:
    calls = [Step((), {"name": name, "arguments": {}}, ({},), (None,)) for name in names]
    return [*calls, Step((), "<answer>1</answer>")]


FORECAST: dict[str, Any] = {
    "stages": True,
    "planning": True,
    "diagnostics": ["extract_data_quality"],
    "models": ["arima"],
}

INVALID: dict[str, tuple[Trajectory, str, str]] = {
    "out of calls": (episode(end=ended("budget_exhausted", "call_limit_exceeded")), "no_answer", "call_limit_exceeded"),
    "cut": (episode(end=ended("truncated")), "no_answer", "truncated"),
    "prose": (episode(end=ended("invalid_submission", "no_complete_json")), "no_answer", "no_complete_json"),
    "off the ramp": (
        episode(end=ended("invalid_submission", "ramp_exceeded", {"decisions": []})),
        "invalid_answer",
        "ramp_exceeded",
    ),
    "a refused call": (
        episode(steps=[Step((), CALL, ({},), ("unknown_tool",)), *episode().steps]),
        "failed_call",
        "unknown_tool",
    ),
    "no call": (episode(steps=[Step((), '{"plan": "p1"}')]), "missing_stage", ""),
    "no forecast": (episode(conditions=FORECAST, steps=stages("extract_data_quality")), "missing_stage", ""),
    "no analysis": (episode(conditions=FORECAST, steps=stages("predict_time_series")), "missing_stage", ""),
    "not finite": (episode(error=float("nan")), "not_finite", ""),
    "no error": (episode(error=None), "not_finite", ""),
    "no score": (episode(score=None), "not_finite", ""),
}


class TestValidity:
    def test_a_proper_episode_is_valid(self) -> None:
        assert invalidity(episode()) is None

    @pytest.mark.parametrize("name", INVALID)
    def test_each_fault_has_its_reason(self, name: str) -> None:
        trajectory, reason, detail = INVALID[name]
        assert invalidity(trajectory) == (reason, detail)
        with_valid = [trajectory, episode("valid")]
        kept, report = select(with_valid)
        assert [member.case_id for member in kept] == ["valid"]
        assert report.dropped[reason] == 1
        assert report.windows_without_valid == 1
        assert report.details == ({f"{reason}: {detail}": 1} if detail else {})

    @pytest.mark.parametrize(
        ("conditions", "called"),
        [
            (FORECAST, ("extract_data_quality", "predict_time_series")),
            ({**FORECAST, "diagnostics": []}, ("predict_time_series",)),
            ({**FORECAST, "models": []}, ("extract_data_quality",)),
            ({**FORECAST, "planning": False}, ()),
            ({**FORECAST, "stages": False}, ()),
        ],
        ids=["all stages", "w/o features", "w/o prediction", "w/o planning", "free"],
    )
    def test_a_stage_that_an_ablation_removes_is_not_missed(
        self, conditions: dict[str, Any], called: tuple[str, ...]
    ) -> None:
        assert invalidity(episode(conditions=conditions, steps=stages(*called))) is None


class TestQuality:
    def test_the_least_error_of_each_window_is_kept(self) -> None:
        members = [episode("a", 0.5, 0), episode("a", 0.2, 1), episode("a", 0.9, 2), episode("b", 0.7, 0)]
        kept, report = select(members)
        assert [(member.case_id, member.repeat) for member in kept] == [("a", 1), ("b", 0)]
        assert report.dropped["not_best"] == 2
        assert report.error_before == {"electricity": pytest.approx((0.5 + 0.2 + 0.9 + 0.7) / 4)}
        assert report.error_kept == {"electricity": pytest.approx(0.45)}

    def test_of_equals_the_shortest_then_the_first_is_kept(self) -> None:
        long = episode("a", 0.5, 0, steps=[episode().steps[0], *episode().steps])
        kept, _ = select([long, episode("a", 0.5, 2), episode("a", 0.5, 1)])
        assert kept[0].repeat == 1

    def test_an_invalid_episode_never_wins(self) -> None:
        broken = episode("a", 0.0, 0, end=ended("truncated"))
        kept, _ = select([broken, episode("a", 0.9, 1)])
        assert [member.repeat for member in kept] == [1]

    def test_the_bar_keeps_what_is_no_worse_than_the_free_reference(self) -> None:
        members = [episode("better", 0.4), episode("equal", 0.5), episode("worse", 0.6)]
        kept, report = select(members, SelectionSettings(bar="reference"))
        assert [member.case_id for member in kept] == ["better", "equal"]
        assert report.dropped["worse_than_reference"] == 1

    def test_the_bar_needs_a_reference(self) -> None:
        with pytest.raises(ConfigError, match="no error of the free reference"):
            select([episode(meta={"reference_error": None})], SelectionSettings(bar="reference"))


class TestShares:
    def test_each_data_set_gets_the_same_number_as_far_as_it_reaches(self) -> None:
        members = [episode(f"e{number}") for number in range(5)]
        members += [episode(f"c{number}", meta={"dataset": "cycle_hire"}) for number in range(2)]
        kept, report = select(members, SelectionSettings(per_dataset=3))
        assert report.kept == {"cycle_hire": 2, "electricity": 3}
        assert report.dropped["over_share"] == 2
        assert len(kept) == 5

    def test_easy_windows_get_no_preference(self) -> None:
        hard_first, easy_first = (
            [episode(f"w{number}", float(number) * sign) for number in range(9)] for sign in (1, -1)
        )
        one, other = (
            [member.case_id for member in select(members, SelectionSettings(per_dataset=4))[0]]
            for members in (hard_first, easy_first)
        )
        assert one == other


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcdef"),
            st.integers(0, 3),
            st.floats(-1, 2),
            st.sampled_from([None, *(name for name in INVALID if name not in ("no score", "no error"))]),
        ),
        unique_by=lambda item: item[:2],
        min_size=1,
    ),
    st.sampled_from([None, 1, 2]),
    st.sampled_from(["none", "reference"]),
    st.randoms(use_true_random=False),
)
def test_every_episode_is_kept_or_dropped_once_in_whatever_order_they_come(
    items: list[tuple[str, int, float, str | None]], per_dataset: int | None, bar: Any, random: Any
) -> None:
    members = []
    for case_id, repeat, error, fault in items:
        member = episode(case_id, error, repeat, meta={"dataset": "first" if case_id < "c" else "second"})
        if fault is not None:
            broken = INVALID[fault][0]
            member.steps, member.end, member.score = broken.steps, broken.end, broken.score
            member.conditions = broken.conditions
        members.append(member)
    wanted = SelectionSettings(per_dataset, bar)
    kept, report = select(members, wanted)
    assert len(kept) + sum(report.dropped.values()) == report.episodes == len(members)
    assert sum(report.kept.values()) == len(kept)
    assert tuple(report.dropped) == DROP_REASONS
    assert len({member.case_id for member in kept}) == len(kept)
    assert all(count <= (per_dataset or len(members)) for count in report.kept.values())
    assert all(invalidity(member) is None for member in kept)
    assert select(kept, wanted)[0] == kept  # selecting again changes nothing
    random.shuffle(members)
    assert select(members, wanted) == (kept, report)


class TestInput:
    def test_only_training_episodes_are_selected(self) -> None:
        with pytest.raises(ConfigError, match="train split only"):
            select([episode(meta={"split": "test"})])

    def test_what_is_no_collected_episode_is_refused(self) -> None:
        bare = episode()
        bare.meta = {}
        with pytest.raises(DataError, match="select what `castgym collect` wrote"):
            select([bare])

    def test_the_same_collection_twice_is_refused_and_another_seed_is_not(self) -> None:
        with pytest.raises(DataError, match="occurs twice"):
            select([episode(), episode()])
        kept, report = select([episode(), episode(meta={"seed": 99}), episode(meta={"agent": "other"})])
        assert (len(kept), report.episodes) == (1, 3)

    @pytest.mark.parametrize("wrong", [{"bar": "high"}, {"per_dataset": 0}], ids=str)
    def test_wrong_settings_are_refused(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            SelectionSettings(**wrong)


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("collection")
    loaded = make_loaded([make_case(seed, split="train") for seed in range(4)])
    source = DecisionSource(loaded, "train", prompt_style="compact", answer_form="plan")
    settings = CollectSettings(per_window=3)
    collect(source, DecisionTeacher(exploration=0.6), chosen_subjects(source), settings, folder)
    return folder


class TestCommand:
    def run(self, *arguments: object) -> Any:
        app = typer.Typer()
        app.command()(select_command)
        return CliRunner().invoke(app, list(map(str, arguments)))

    def test_collected_episodes_are_selected_and_reported(self, collection: Path, tmp_path: Path) -> None:
        result = self.run(collection, "--out", tmp_path / "out", "--per-dataset", 3)
        assert result.exit_code == 0, result.output
        kept = list(read_trajectories([tmp_path / "out" / "episodes.jsonl"]))
        all_of_them = list(read_trajectories([collection / "episodes.jsonl"]))
        assert len(kept) == 3
        for member in kept:
            assert member in all_of_them
            rivals = [rival.score["error"] for rival in all_of_them if rival.case_id == member.case_id and rival.score]
            assert member.score is not None
            assert member.score["error"] == min(rivals)
        record = json.loads((tmp_path / "out" / "selection.json").read_text())
        assert record["settings"] == {"per_dataset": 3, "bar": "none"}
        assert record["report"]["dropped"]["not_best"] == 8
        assert record["report"]["dropped"]["over_share"] == 1
        assert "3 of 12 episodes" in result.output

    def test_a_folder_is_replaced_on_demand_only_and_never_a_foreign_one(
        self, collection: Path, tmp_path: Path
    ) -> None:
        assert self.run(collection, "--out", tmp_path / "out").exit_code == 0
        assert isinstance(self.run(collection, "--out", tmp_path / "out").exception, DataError)
        assert self.run(collection, "--out", tmp_path / "out", "--overwrite").exit_code == 0
        assert isinstance(self.run(collection, "--out", collection, "--overwrite").exception, DataError)
        assert (collection / "config.json").exists()

    def test_nothing_left_is_an_error_that_says_why(self, tmp_path: Path) -> None:
        lost = episode(end=ended("truncated"))
        (tmp_path / "episodes.jsonl").write_text(json.dumps(lost.to_json()) + "\n")
        result = self.run(tmp_path, "--out", tmp_path / "out")
        assert isinstance(result.exception, DataError)
        assert "1 no_answer" in str(result.exception)
        assert not (tmp_path / "out").exists()
