"""Verification: honest runs pass at every depth, and whatever is altered in one is found."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from castr1_helpers import MODELS, PRICE, TEMPERATURE, make_pool
from factories import SCRIPTED_TARIFF, ScriptedForecaster, make_loaded, scripted_pool
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from castgym.agents.base import Desk, Policy, answer, classical_call
from castgym.agents.forecast_agents import forecast_agents
from castgym.agents.registry import make_policies
from castgym.cli.verify import describe
from castgym.cli.verify import verify as verify_command
from castgym.data.errors import ConfigError
from castgym.data.store import save_case_set
from castgym.data.tariff import Tariff
from castgym.envs.casesets import LoadedCases, load_cases
from castgym.envs.forecast_source import ForecastSource
from castgym.envs.messages import Response
from castgym.envs.prompts import Prompt
from castgym.evaluation.forecast_runner import ForecastSettings, evaluate_forecasts, forecast_run_config
from castgym.evaluation.forecast_runs import ForecastRun
from castgym.evaluation.runner import EvaluationSettings, evaluate
from castgym.evaluation.runs import Run
from castgym.evaluation.verify import DEPTHS, Depth, Mismatch, Verification, verify_run
from castgym.evaluation.verify_forecasts import verify_forecast_run
from castgym.tools.calls import ToolCall
from castgym.tools.forecasters.pool import ForecasterPool

LOADED = make_loaded(tariff=Tariff(12_000, SCRIPTED_TARIFF.rates), models=("seasonal_empirical", "scripted"))
"""Six cases; the budget pays one forecast of 50 steps and none of 194."""


def play(
    folder: Path,
    policy: str | Policy,
    *,
    loaded: LoadedCases = LOADED,
    forecaster: ScriptedForecaster | None = None,
    **options: Any,
) -> tuple[Path, ForecasterPool]:
    """A run of all cases, and the forecasters that it used."""
    pool = scripted_pool(forecaster or ScriptedForecaster())
    desk = Desk(loaded.case_set.tariff, loaded.case_set.models, pool)
    chosen = make_policies([policy], loaded, desk)[0] if isinstance(policy, str) else policy
    conditions = EvaluationSettings(**{"keep_episodes": True, **options})
    evaluate(chosen, loaded, loaded.case_set, {"split": "test"}, conditions, desk, folder, lambda done, total: None)
    return folder, pool


class Scripted(Policy):
    """Gives its responses one after another, whatever the prompt."""

    def __init__(self, *responses: Callable[[Prompt], Response]) -> None:
        self.name = "scripted-policy"
        self._responses = responses

    def act(self, prompt: Prompt) -> Response:
        step = len(prompt.memory.calls)
        return self._responses[min(step, len(self._responses) - 1)](prompt)


def free_plan(prompt: Prompt) -> Response:
    return classical_call(prompt.task["series_id"], "weekly_repeat")


def commit(prompt: Prompt) -> Response:
    return answer(prompt.memory.plans[-1], prompt)


def buy(horizon: int = 50, tool: str = "forecast_and_plan", **more: Any) -> Callable[[Prompt], Response]:
    return lambda prompt: ToolCall(
        tool,
        {"series_id": prompt.task["series_id"], "model": "scripted", "horizon": horizon, "context_steps": 336, **more},
    )


WAYS: Mapping[str, Policy] = {
    "completed": Scripted(free_plan, commit),
    "prose": Scripted(lambda prompt: "I would rather not."),
    "off the grid": Scripted(
        lambda prompt: json.dumps({"decisions": [{"id": f"b0{n}", "action": 1.5} for n in range(8)]})
    ),
    "endless calls": Scripted(free_plan),
    "cut": Scripted(lambda prompt: {"role": "assistant", "content": "so", "finish_reason": "length"}),
    "chat answer": Scripted(free_plan, lambda prompt: {"role": "assistant", "content": commit(prompt)}),
    "unreadable call": Scripted(lambda prompt: "<tool_call>{'name': 1}</tool_call>", free_plan, commit),
    "unknown tool": Scripted(lambda prompt: ToolCall("oracle", {"x": [1, {"y": None}]}), free_plan, commit),
    "parallel calls": Scripted(
        lambda prompt: '<tool_call>{"name": "catalog", "arguments": {}}</tool_call>' * 2, free_plan, commit
    ),
    "too short, charged": Scripted(buy(horizon=24), free_plan, commit),
    "too dear": Scripted(buy(), buy(horizon=194), free_plan, commit),
    "past forecast": Scripted(
        buy(tool="replay_forecast", origin="2026-07-15T00:00:00+00:00", context_steps=96, horizon=24), free_plan, commit
    ),
    "no context": Scripted(buy(tool="replay_forecast", origin="2026-07-03T00:00:00+00:00"), free_plan, commit),
}


@pytest.mark.parametrize("way", WAYS)
def test_however_an_episode_ended_its_run_verifies(tmp_path: Path, way: str) -> None:
    folder, pool = play(tmp_path / "run", WAYS[way])
    for depth in DEPTHS:
        found = verify_run(folder, LOADED, pool, depth=depth)
        assert found.ok, describe(found)
        assert found.checked == {depth: 6}
    (folder / "episodes.jsonl").unlink()
    found = verify_run(folder, LOADED, pool)
    assert found.ok, describe(found)
    assert found.checked == {"actions": 6}


@pytest.mark.parametrize("mode", ["memory", "chat"])
def test_shipped_policies_verify_in_both_prompt_modes(tmp_path: Path, mode: str) -> None:
    for name in ("fixed_scripted", "backtest_4", "catalog_oracle"):
        folder, pool = play(tmp_path / name, name, prompt_mode=mode, repeats=2)
        found = verify_run(folder, LOADED, pool)
        assert found.ok, describe(found)
        assert found.checked == {"episodes": 12}


def test_the_vectorised_path_verifies_from_its_calls(tmp_path: Path) -> None:
    folder, pool = play(tmp_path / "run", "fixed_scripted", vectorised=True)
    found = verify_run(folder, LOADED, pool)
    assert found.ok, describe(found)
    assert found.checked == {"actions": 6}
    assert sum(row.credits or 0 for row in Run(folder).rows) == 3 * 8452  # a week ahead is too dear


def test_plans_named_by_an_answer_are_found_again(tmp_path: Path) -> None:
    policy = Scripted(buy(), free_plan, lambda prompt: '{"plan": "p1", "adjust": {"b03": 1}}')
    for keep in (True, False):
        folder, pool = play(tmp_path / str(keep), policy, answer_form="plan", keep_episodes=keep)
        for depth in DEPTHS:
            assert verify_run(folder, LOADED, pool, depth=depth).ok
        edit(folder, 0, answer='{"plan": "p1"}')
        assert not verify_run(folder, LOADED, pool, depth="actions").ok


def test_scores_need_no_forecaster(tmp_path: Path) -> None:
    folder, _ = play(tmp_path / "run", "fixed_scripted")
    assert verify_run(folder, LOADED, ForecasterPool([]), depth="scores").ok


def test_a_failed_forecaster_cannot_be_repeated_but_its_charge_is_checked(tmp_path: Path) -> None:
    folder, pool = play(tmp_path / "run", "fixed_scripted", forecaster=ScriptedForecaster(fail=True))
    found = verify_run(folder, LOADED, scripted_pool(ScriptedForecaster()))
    assert found.ok, describe(found)
    assert (found.unrepeatable, found.checked) == (3, {"scores": 3, "episodes": 3})
    index = next(n for n, row in enumerate(Run(folder).rows) if row.credits)
    edit(folder, index, credits=0)
    assert not verify_run(folder, LOADED, pool).ok


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ForecasterPool]:
    """Copied by the tests that change it."""
    return play(tmp_path_factory.mktemp("kept") / "run", "fixed_scripted")


def edit(folder: Path, index: int, **changes: Any) -> None:
    """Change fields of a row; a function gets the old row."""
    path = folder / "rows.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    row = lines[index]
    row.update({name: change(row) if callable(change) else change for name, change in changes.items()})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def cheaper(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**call, "credits": 0} for call in row["calls"]]


EDITS: dict[str, dict[str, Any]] = {
    "a lower score": {"S": lambda row: row["S"] - 0.01},
    "a lower loss, consistent R and S": {
        "loss": lambda row: row["loss"] - 0.001,
        "R": lambda row: row["R"] - 0.001 / 0.05,
        "S": lambda row: row["S"] - 0.0005 / 0.05,
    },
    "a higher floor, consistent R and S": {
        "floor": lambda row: row["floor"] + 0.001,
        "R": lambda row: row["R"] - 0.02,
        "S": lambda row: row["S"] - 0.01,
    },
    "no credits": {"credits": 0, "S": lambda row: 0.5 * row["R"]},
    "no credits and free calls": {"credits": 0, "calls": cheaper, "S": lambda row: 0.5 * row["R"]},
    "a call that was refused instead": {
        "calls": lambda row: [{**call, "error": "unaffordable", "credits": 0} for call in row["calls"]],
        "credits": 0,
        "S": lambda row: 0.5 * row["R"],
    },
    "another plan": {"grid_index": lambda row: [row["grid_index"][0] + 1, *row["grid_index"][1:]]},
    "no plan, valid": {"grid_index": None},
    "another answer": {"answer": lambda row: row["answer"].replace("b00", "b01")},
    "another outcome": {"outcome": "truncated"},
    "an invalid answer called valid": {"valid": False},
    "another group": {"group_id": "TEST99"},
    "another lead": {"family": lambda row: "week_ahead" if row["family"] == "day_ahead" else "day_ahead"},
}


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("name", EDITS)
def test_an_altered_row_is_found_at_every_depth(
    kept: tuple[Path, ForecasterPool], tmp_path: Path, name: str, depth: Depth
) -> None:
    folder, pool = Path(shutil.copytree(kept[0], tmp_path / "run")), kept[1]
    index = next(n for n, row in enumerate(Run(folder).rows) if row.credits)
    edit(folder, index, **EDITS[name])
    found = verify_run(folder, LOADED, pool, depth=depth)
    assert not found.ok
    row = Run(folder).rows[index]
    assert {mismatch.where for mismatch in found.mismatches} == {f"{row.case_id}, repeat 0"}


def test_only_kept_episodes_show_that_a_call_was_left_out(tmp_path: Path) -> None:
    folder, pool = play(tmp_path / "run", "fixed_scripted")
    index = next(n for n, row in enumerate(Run(folder).rows) if row.credits)
    edit(folder, index, credits=0, calls=[], S=lambda row: 0.5 * row["R"])
    assert not verify_run(folder, LOADED, pool).ok
    found = verify_run(folder, LOADED, pool, depth="actions")
    assert found.ok  # the plan could have been a guess
    assert any("cannot show that no call was left out" in note for note in found.notes)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ForecasterPool]:
    return play(tmp_path_factory.mktemp("honest") / "run", "fixed_scripted", keep_episodes=False)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    index=st.integers(0, 5),
    field=st.sampled_from(["loss", "floor", "R", "S", "credits", "plan", "credits of a call"]),
    change=st.sampled_from([-1000, -1, 1, 7]),
)
def test_no_number_of_a_row_can_change_unseen(
    honest: tuple[Path, ForecasterPool], index: int, field: str, change: int
) -> None:
    folder, pool = honest
    before = (folder / "rows.jsonl").read_bytes()
    try:
        if field == "plan":
            edit(folder, index, grid_index=lambda row: [*row["grid_index"][:-1], row["grid_index"][-1] + change])
        elif field == "credits of a call":
            edit(
                folder,
                index,
                calls=lambda row: [{**call, "credits": call["credits"] + change} for call in row["calls"]],
            )
        else:
            size = 1 if field == "credits" else 1e-6
            edit(folder, index, **{field: lambda row: row[field] + change * size})
        assert not verify_run(folder, LOADED, pool, depth="scores").ok
    finally:
        (folder / "rows.jsonl").write_bytes(before)


@pytest.mark.parametrize("part", ["prompt", "response", "result", "score", "credits", "ending", "conditions"])
def test_an_altered_episode_is_found(kept: tuple[Path, ForecasterPool], tmp_path: Path, part: str) -> None:
    folder, pool = Path(shutil.copytree(kept[0], tmp_path / "run")), kept[1]
    path = folder / "episodes.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    saved = lines[2]
    if part == "prompt":
        saved["steps"][0]["messages"][0]["content"] += " Think twice."
    elif part == "response":
        saved["steps"][0]["response"]["arguments"]["horizon"] = 51
    elif part == "result":
        saved["steps"][0]["results"][0]["spent"] = 0
    elif part == "score":
        saved["score"]["S"] -= 0.1
    elif part == "credits":
        saved["credits"] = 1
    elif part == "ending":
        saved["end"]["outcome"] = "truncated"
    else:
        saved["conditions"]["max_calls"] = 13
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = verify_run(folder, LOADED, pool)
    assert [mismatch.where for mismatch in found.mismatches] == [f"{saved['case_id']}, repeat 0"]
    assert verify_run(folder, LOADED, pool, depth="actions").ok  # the rows themselves are honest


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"sigma": {"electricity": 0.5}}, "sigma"),
        ({"cohort_weights": {"electricity-july": 2.0}}, "cohort_weights"),
        ({"budget": 999_999}, "budget"),
        ({"whole_index": False}, "whole_index"),
        ({"tariff": "0" * 64}, "tariff"),
    ],
)
def test_a_configuration_made_anew_for_other_scores_is_found(
    tmp_path: Path, changes: dict[str, Any], what: str
) -> None:
    folder, pool = play(tmp_path / "run", "weekly_repeat")
    config = replace(Run(folder).config, **changes)
    (folder / "config.json").write_text(json.dumps(config.to_json()))
    found = verify_run(folder, LOADED, pool)
    assert what in {mismatch.what for mismatch in found.mismatches if mismatch.where == "config.json"}


def test_a_second_attempt_is_found(tmp_path: Path) -> None:
    folder, pool = play(tmp_path / "run", "weekly_repeat")
    path = folder / "rows.jsonl"
    path.write_text(path.read_text() + path.read_text().splitlines(keepends=True)[0])
    found = verify_run(folder, LOADED, pool)
    assert ["a second row" in mismatch.what for mismatch in found.mismatches] == [True]


def test_lost_episodes_are_counted_and_have_no_numbers(tmp_path: Path) -> None:
    folder, pool = play(tmp_path / "run", "weekly_repeat")
    nothing = dict.fromkeys(("loss", "floor", "credits", "R", "S", "grid_index"))
    edit(folder, 0, outcome="infrastructure_error", valid=False, error="gone", **nothing)
    found = verify_run(folder, LOADED, pool)
    assert found.ok
    assert (found.lost, found.rows) == (1, 6)
    edit(folder, 0, S=0.1)
    assert not verify_run(folder, LOADED, pool).ok


def test_incomplete_runs_and_other_case_sets_are_refused(tmp_path: Path) -> None:
    folder, pool = play(tmp_path / "run", "weekly_repeat")
    with pytest.raises(ConfigError, match="another case set"):
        verify_run(folder, make_loaded(), pool)
    path = folder / "rows.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(ConfigError, match="1 of 6 episodes are missing"):
        verify_run(folder, LOADED, pool)


def test_the_command_exits_with_1_where_something_differs(tmp_path: Path) -> None:
    targets = LOADED.targets
    loaded = make_loaded()
    save_case_set(tmp_path / "cases", loaded.case_set, targets)
    stored = load_cases(tmp_path / "cases")
    folder, _ = play(tmp_path / "run", "weekly_repeat", loaded=stored)
    app = typer.Typer()
    app.command()(verify_command)
    shown = CliRunner().invoke(app, [str(folder)])
    assert shown.exit_code == 0, shown.output
    assert "verified: 6 rows; 6 kept episodes played again" in shown.output
    edit(folder, 1, S=0.0)
    shown = CliRunner().invoke(app, [str(folder)])
    assert shown.exit_code == 1
    assert "S: saved 0.0, found 0." in shown.output.replace("\n", " ")


def test_a_long_list_of_differences_is_cut(tmp_path: Path) -> None:
    result = Verification(tmp_path, 30, mismatches=[Mismatch(f"case {n}", "S", 0.0, 1.0) for n in range(30)])
    assert describe(result)[-1].strip() == "and 10 more"


class Speechless(Policy):
    """Never answers."""

    name = "speechless"

    def act(self, prompt: Prompt) -> Response:
        return "no"


WINDOWS = ForecastSource(TEMPERATURE, "test", forecasters=make_pool(), models=MODELS)


def forecast_run(folder: Path, policy: Policy, *, keep: bool = True) -> Path:
    ids, conditions = WINDOWS.ids[:3], ForecastSettings(keep_episodes=keep)
    config = forecast_run_config(policy, WINDOWS, ids, selection={"split": "test"}, settings=conditions)
    evaluate_forecasts(policy, WINDOWS, ids, config, conditions, folder, lambda done, total: None)
    return folder


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "rows only"])
@pytest.mark.parametrize("name", ["fixed_last_value", "speechless"])
def test_forecast_runs_verify(tmp_path: Path, name: str, keep: bool) -> None:
    policy = Speechless() if name == "speechless" else forecast_agents(MODELS)[name]
    found = verify_forecast_run(forecast_run(tmp_path / "run", policy, keep=keep), WINDOWS)
    assert found.ok, describe(found)
    assert found.checked == {"episodes" if keep else "scores": 3}


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "rows only"])
@pytest.mark.parametrize("field", ["mse", "mae", "answer", "dataset", "reward", "calls"])
def test_an_altered_forecast_row_is_found(tmp_path: Path, field: str, keep: bool) -> None:
    folder = forecast_run(tmp_path / "run", forecast_agents(MODELS)["fixed_last_value"], keep=keep)
    change: Any = lambda row: row[field] * 0.9  # noqa: E731
    if field == "answer":
        change = lambda row: row["answer"].replace("<answer>", "<answer>\n2000-01-01 00:00:00 1.0")  # noqa: E731
    edit(folder, 1, **{field: "other" if field == "dataset" else [] if field == "calls" else change})
    found = verify_forecast_run(folder, WINDOWS)
    assert found.ok == (not keep and field in ("reward", "calls"))  # which only the episode knows
    if not found.ok:
        assert {mismatch.where for mismatch in found.mismatches} == {f"{ForecastRun(folder).rows[1].case_id}, repeat 0"}


def test_forecast_runs_on_other_windows_are_refused(tmp_path: Path) -> None:
    folder = forecast_run(tmp_path / "run", forecast_agents(MODELS)["fixed_last_value"])
    other = ForecastSource(PRICE, "test", forecasters=make_pool(), models=MODELS)
    with pytest.raises(ConfigError, match="other window sets"):
        verify_forecast_run(folder, other)


def test_the_command_knows_forecast_runs(tmp_path: Path) -> None:
    source = ForecastSource("embedded", "test", datasets=[TEMPERATURE.name], models=("seasonal_naive",))
    policy, ids, conditions = Speechless(), source.ids[:2], ForecastSettings(keep_episodes=True)
    config = forecast_run_config(policy, source, ids, selection={"split": "test", "stride": None}, settings=conditions)
    evaluate_forecasts(policy, source, ids, config, conditions, tmp_path / "run", lambda done, total: None)
    app = typer.Typer()
    app.command()(verify_command)
    shown = CliRunner().invoke(app, [str(tmp_path / "run")])
    assert shown.exit_code == 0, shown.output
    assert "verified: 2 rows; 2 kept episodes played again" in shown.output
