"""Comparing two runs: contributions add up, refusals, weights, contrasts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from synthetic_runs import SIGMA, Result, Subject, subjects, write_run
from typer.testing import CliRunner

from castgym.cli.compare import compare as compare_command
from castgym.cli.compare import contrasts as contrasts_command
from castgym.cli.compare import power as power_command
from castgym.data.errors import ConfigError
from castgym.data.tariff import PROTOCOL_BUDGET
from castgym.envs.scoring import OBJECTIVES
from castgym.evaluation.bootstrap import compare_runs
from castgym.evaluation.comparison import Comparison, Part, compare, labels_of, tool_use
from castgym.evaluation.contrasts import access_contrasts, thinking_contrasts, weight_sensitivity
from castgym.evaluation.runs import Run

BOUGHT = {"tool": "forecast_and_plan", "arguments": {"model": "bolt", "horizon": 50}, "error": None, "credits": 8452}
FREE = {"tool": "classical_plan", "arguments": {"method": "weekly_repeat"}, "error": None, "credits": 0}
REFUSED = {"tool": "history", "arguments": {}, "error": "invalid_arguments", "credits": 0}


def plain(case: Subject, repeat: int) -> Result:
    return Result(0.05 + 0.002 * (case.number % 5), calls=(FREE,))


def buyer(case: Subject, repeat: int) -> Result:
    """Buys a day ahead, where it gains; invalid on one group."""
    if case.group_id == "G003" and case.domain == "electricity":
        return Result(None, calls=(REFUSED,))
    if case.family == "day_ahead":
        return Result(0.03, 8452, (FREE, BOUGHT))
    return Result(0.05, calls=(FREE,))


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Run, Run]:
    return write_run(tmp_path, "buyer", buyer), write_run(tmp_path, "plain", plain)


def by_name(parts: tuple[Part, ...]) -> dict[str, Part]:
    return {part.name: part for part in parts}


def test_every_partition_adds_up_to_the_effect(runs: tuple[Run, Run]) -> None:
    found = compare(*runs)
    for parts in (found.cells, found.purchases, found.validity):
        assert sum(part.contribution.estimate for part in parts) == pytest.approx(found.effect["S"].estimate)
        assert sum(part.share for part in parts) == pytest.approx(1.0)
        assert sum(part.cases for part in parts) == 32
    assert found.loss_part + found.cost_part == pytest.approx(found.effect["S"].estimate)
    assert found.effect == compare_runs(*runs)


def test_parts_say_where_the_effect_comes_from(runs: tuple[Run, Run]) -> None:
    found = compare(*runs)
    assert list(by_name(found.purchases)) == ["neither buys", "only A buys"]
    bought = by_name(found.purchases)["only A buys"]
    # 8 of the 16 bike cases, weight 1/2; 6 of the 16 electricity cases
    assert (bought.cases, bought.share) == (14, pytest.approx(0.25 + 6 / 32))
    assert list(by_name(found.validity)) == ["both valid", "only B valid"]
    failed = by_name(found.validity)["only B valid"]
    assert failed.cases == 4
    assert failed.mean == pytest.approx(
        0.5 * (2.0 - np.mean([0.05 + 0.002 * (n % 5) for n in range(12, 16)])) / SIGMA["electricity"]
    )
    assert list(by_name(found.cells)) == [
        "cycle-hire-may, day ahead", "cycle-hire-may, week ahead",
        "electricity-july, day ahead", "electricity-july, week ahead",
    ]  # fmt: skip


def test_a_part_that_is_everything_has_the_interval_of_the_effect(tmp_path: Path) -> None:
    a = write_run(tmp_path, "a", lambda case, repeat: Result(0.03 + 0.001 * (case.number % 7)))
    b = write_run(tmp_path, "b", plain)
    found = compare(a, b)
    (everything,) = found.validity
    assert everything.contribution.low == pytest.approx(found.effect["S"].low, abs=1e-12)
    assert everything.contribution.high == pytest.approx(found.effect["S"].high, abs=1e-12)
    assert found.on_both_valid is not None
    assert found.on_both_valid["S"] == found.effect["S"]


def test_what_both_did_validly_is_compared_apart(runs: tuple[Run, Run]) -> None:
    found = compare(*runs)
    assert found.effect["S"].estimate > 0  # failures outweigh
    assert found.on_both_valid is not None
    assert found.on_both_valid["S"].estimate < 0
    assert found.on_both_valid.cases == 28


def test_tool_use_counts_calls_purchases_and_refusals(runs: tuple[Run, Run]) -> None:
    use = tool_use(runs[0])
    assert use.calls == {"classical_plan": 28 / 32, "forecast_and_plan": 14 / 32, "history": 4 / 32}
    assert use.models == {"bolt": 14 / 32}
    assert (use.bought, use.errors) == (14 / 32, pytest.approx(4 / 46))


def broken(tmp_path: Path, **changes: Any) -> tuple[Run, Run]:
    return write_run(tmp_path, "a", plain), write_run(tmp_path, "b", plain, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fingerprint": "e" * 64}, "another case set"),
        ({"sigma": {"electricity": 0.06, "cycle_hire": 0.04}}, "another sigma"),
        ({"cases": subjects()[:31]}, "different cases of the set"),
    ],
)
def test_runs_over_different_cases_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compare(*broken(tmp_path, **changes))


def test_an_incomplete_run_is_refused(runs: tuple[Run, Run]) -> None:
    path = runs[0].path / "rows.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(ConfigError, match="1 of 32 episodes are missing"):
        compare(Run(runs[0].path), runs[1])


def test_lost_episodes_are_noted_and_left_out(tmp_path: Path) -> None:
    a = write_run(tmp_path, "a", lambda case, repeat: Result(lost=case.number == 0))
    found = compare(a, write_run(tmp_path, "b", plain))
    assert found.effect.cases == 31
    assert any("1 of 32 episodes failed by the infrastructure" in note for note in found.notes)
    assert sum(part.cases for part in found.cells) == 31


def test_the_objective_rescores_both(runs: tuple[Run, Run]) -> None:
    found = compare(*runs, objective=OBJECTIVES["loss_only"])
    assert found.effect["S"].estimate == pytest.approx(found.effect["R"].estimate)
    assert found.cost_part == 0


def test_other_weights_may_turn_the_ranking_around(tmp_path: Path) -> None:
    def dear(case: Subject, repeat: int) -> Result:
        return Result(0.02, 60_000)

    table = weight_sensitivity([write_run(tmp_path, "dear", dear), write_run(tmp_path, "plain", plain)], resamples=500)
    ranks = table.set_index(["objective", "policy"])["rank"]
    assert ranks["loss_only", "dear"] == 1
    assert ranks["0.25/0.75", "plain"] == 1
    combined = table[table["objective"] == "combined"].set_index("policy")
    assert combined.loc["dear", "S"] == pytest.approx(
        0.5 * (0.25 + 0.25) + 0.5 * 60_000 / PROTOCOL_BUDGET - 0.5 * 0.025, abs=0.02
    )
    assert np.isnan(combined.loc[combined.loc["plain", "best"], "difference"])


def test_hindsight_references_have_no_rank(tmp_path: Path) -> None:
    oracle = write_run(tmp_path, "oracle", lambda case, repeat: Result(0.0), hindsight=True)
    table = weight_sensitivity([oracle, write_run(tmp_path, "plain", plain)], resamples=200)
    assert table[table["policy"] == "oracle"]["rank"].isna().all()
    assert set(table["best"]) == {"plain"}


@pytest.mark.parametrize("lack", ["subset", "lost episodes"])
def test_runs_that_do_not_cover_the_index_have_no_rank(tmp_path: Path, lack: str) -> None:
    if lack == "subset":
        given = [write_run(tmp_path, name, plain, whole_index=False) for name in ("a", "b")]
    else:
        lost = write_run(tmp_path, "a", lambda case, repeat: Result(0.01, lost=case.number == 0))
        given = [lost, write_run(tmp_path, "b", plain)]
    table = weight_sensitivity(given, resamples=200)
    assert table[table["policy"] == "a"]["rank"].isna().all()
    assert table[table["policy"] == "b"]["rank"].isna().all() == (lack == "subset")


def offset(size: float) -> Callable[[Subject, int], Result]:
    return lambda case, repeat: Result(0.05 + size + 0.001 * (case.number % 3))


def test_access_is_full_tools_less_none(tmp_path: Path) -> None:
    given = [
        write_run(tmp_path, "model", offset(0.01)),
        write_run(tmp_path, "model", offset(0.0), pool="no_tsfm"),
        write_run(tmp_path, "other", offset(0.0)),
    ]
    (line,) = access_contrasts(given, resamples=500)
    assert (line.name, line.valid, line.episodes) == ("model", 32, 32)
    assert line.difference.estimate == pytest.approx(0.5 * (0.01 / 0.05 + 0.01 / 0.04) / 2)
    assert line.on_both_valid is not None


def test_thinking_pairs_runs_of_one_model(tmp_path: Path) -> None:
    def options(model: str, thinking: bool) -> dict[str, Any]:
        return {"options": {"model": model, "sampling": {"thinking": thinking, "temperature": 0.7}}}

    given = [
        write_run(tmp_path, "small-thinking", offset(0.0), **options("small", True)),
        write_run(tmp_path, "small", offset(0.02), **options("small", False)),
        write_run(tmp_path, "large", offset(0.02), **options("large", False)),
    ]
    (line,) = thinking_contrasts(given, resamples=500)
    assert line.name == "small"
    assert line.difference.estimate < 0


def test_runs_without_a_pair_are_refused(runs: tuple[Run, Run]) -> None:
    with pytest.raises(ConfigError, match="differ in nothing but pool"):
        access_contrasts(runs)
    with pytest.raises(ConfigError, match="differ in nothing but thinking"):
        thinking_contrasts(runs)


def test_labels_tell_runs_of_one_policy_apart(tmp_path: Path) -> None:
    given = [write_run(tmp_path, "a", plain), write_run(tmp_path, "a", plain, pool="no_tsfm", seed=1)]
    assert labels_of([run.config for run in given]) == ["a (pool full, seed 0)", "a (pool no_tsfm, seed 1)"]
    found: Comparison = compare(*given)
    assert (found.a, found.b) == ("a (pool full, seed 0)", "a (pool no_tsfm, seed 1)")


@pytest.fixture
def cli() -> typer.Typer:
    app = typer.Typer()
    for command in (compare_command, contrasts_command, power_command):
        app.command()(command)
    return app


def test_commands_print_what_was_found(cli: typer.Typer, tmp_path: Path) -> None:
    a = write_run(tmp_path, "buyer", buyer, repeats=2)
    b = write_run(tmp_path, "plain", plain, repeats=2)
    shown = CliRunner().invoke(cli, ["compare", str(a.path), str(b.path)])
    assert shown.exit_code == 0, shown.output
    for text in (
        "negative favours A",
        "only A buys",
        "only B valid",
        "invalid submission",
        "fault: no complete json",
        "pass^2 of validity",
        "0.25/0.75",
        "cycle-hire",
    ):
        assert text in shown.output
    shown = CliRunner().invoke(cli, ["power", str(a.path), str(b.path), "--groups", "electricity=50", "--repeats", "4"])
    assert shown.exit_code == 0, shown.output
    assert "50 groups of electricity; 4 repeats" in shown.output
    without = write_run(tmp_path, "plain", plain, repeats=2, pool="no_tsfm")
    shown = CliRunner().invoke(cli, ["contrasts", str(b.path), str(without.path)])
    assert shown.exit_code == 0, shown.output
    assert "full tools less no foundation models" in shown.output
