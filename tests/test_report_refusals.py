"""Runs that no report takes, and folders that no report replaces."""

from dataclasses import replace
from pathlib import Path

import pytest
from report_runs import WORLD, base_runs, classical, world, write_run

from castgym.data.errors import ConfigError, DataError
from castgym.data.files import canonical_json, sha256_hex
from castgym.data.tariff import PROTOCOL_TARIFF, Tariff
from castgym.evaluation.report import build_report
from castgym.evaluation.runs import Run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Read only: a test that changes a run writes its own."""
    return base_runs(tmp_path_factory.mktemp("base"))


def test_a_folder_that_is_no_report_is_left_alone(runs: list[Run], tmp_path: Path) -> None:
    for out in (runs[0].path.parent, runs[0].path):
        with pytest.raises(ConfigError, match="something else than an earlier report"):
            build_report(runs, None, out)
    assert Run(runs[0].path).complete
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="something else than an earlier report"):
        build_report(runs, None, tmp_path / "file")


def test_an_incomplete_run_is_refused(runs: list[Run], tmp_path: Path) -> None:
    short = write_run(tmp_path / "runs", "short", classical("weekly_repeat"), n_cases=30)
    with pytest.raises(ConfigError, match=r"short .*: 6 of 30 episodes are missing: resume it with .*castgym evaluate"):
        build_report([*runs, short], None, tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_runs_over_different_case_sets_are_refused(runs: list[Run], tmp_path: Path) -> None:
    dear = Tariff(
        PROTOCOL_TARIFF.budget, tuple(replace(rate, credits=rate.credits + 1) for rate in PROTOCOL_TARIFF.rates)
    )
    tariff = sha256_hex(canonical_json(dear.to_json()).encode())
    other = write_run(
        tmp_path / "runs",
        "x",
        classical("weekly_repeat"),
        tariff=tariff,
        fingerprint=world(tariff=dear).case_set.fingerprint,
    )
    with pytest.raises(ConfigError, match=r"a case set built with another tariff \(`tariff` differs"):
        build_report([*runs, other], None, tmp_path / "report")
    other = write_run(
        tmp_path / "runs", "y", classical("weekly_repeat"), fingerprint=world(seed=1).case_set.fingerprint
    )
    with pytest.raises(ConfigError, match=r"another case set \(`fingerprint` differs"):
        build_report([*runs, other], None, tmp_path / "report")
    with pytest.raises(ConfigError, match="expected the case set of the runs, fingerprint"):
        build_report(runs, None, tmp_path / "report", world(seed=1).case_set, WORLD.targets)
    with pytest.raises(ConfigError, match="together"):
        build_report(runs, None, tmp_path / "report", WORLD.case_set)


def test_two_runs_that_claim_the_whole_index_must_agree_on_it(runs: list[Run], tmp_path: Path) -> None:
    fewer = WORLD.case_set.cases[1:]
    other = write_run(tmp_path / "runs", "x", classical("weekly_repeat"), cases=fewer, whole_index=True)
    with pytest.raises(ConfigError, match="both claim the whole test index"):
        build_report([*runs, other], None, tmp_path / "report")


def test_duplicate_policies_are_refused(runs: list[Run], tmp_path: Path) -> None:
    again = write_run(tmp_path / "runs", "buyer", classical("hour_of_day_empirical"), seed=1)
    with pytest.raises(ConfigError, match=r"expected each policy once, found 'buyer' in .* and .*: leave one out"):
        build_report([*runs, again], None, tmp_path / "report")


def test_an_unknown_reference_is_refused(runs: list[Run], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"one of weekday_empirical, hour_of_day_empirical, .* found 'nobody'"):
        build_report(runs, "nobody", tmp_path / "report")
    with pytest.raises(ConfigError, match="at least one run"):
        build_report([], None, tmp_path / "report")


def test_rows_that_were_edited_are_refused(runs: list[Run], tmp_path: Path) -> None:
    edited = write_run(tmp_path / "runs", "edited", classical("hour_of_day_empirical", spent=8452))
    path = edited.path / "rows.jsonl"
    path.write_text(path.read_text().replace('"credits": 8452', '"credits": 0'))
    with pytest.raises(DataError, match="do not give the R and S"):
        build_report([*runs, Run(edited.path)], None, tmp_path / "report")
