"""Reports on run folders of real plans: what is ranked, what is set apart, what is refused."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from report_runs import WEIGHTS, WORLD, base_runs, classical, failed_row, often_invalid, perfect, write_run
from rich.console import Console

from castgym.data.errors import ConfigError
from castgym.evaluation.aggregate import METRICS, aggregate, rows_frame
from castgym.evaluation.bootstrap import compare_runs, own_intervals
from castgym.evaluation.report import FILES, Report, build_report, render_table
from castgym.evaluation.runs import Run, open_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Read only: a test that changes a run writes its own."""
    return base_runs(tmp_path_factory.mktemp("base"))


def labels(report: Report, section: Any) -> list[str]:
    return [result.label for result in report.section(section)]


def test_policies_are_ranked_by_score_and_hindsight_stands_apart(runs: list[Run], tmp_path: Path) -> None:
    report = build_report(runs, None, tmp_path / "report", WORLD.case_set, WORLD.targets)
    assert labels(report, "hindsight") == ["perfect_demand"]
    ranked = report.section("policies")
    assert [result.rank for result in ranked] == [1, 2, 3, 4]
    scores = [result.aggregate.S for result in ranked]
    assert scores == sorted(scores)
    assert report.section("hindsight")[0].rank is None
    assert pytest.approx(0.0, abs=1e-12) == report.section("hindsight")[0].aggregate.S
    assert report.reference == ranked[0].label == "hour_of_day_empirical"
    assert sorted(path.name for path in (tmp_path / "report").iterdir()) == sorted(set(FILES) - {"report.html"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report"]  # nothing temporary is left


def test_the_table_holds_the_aggregates_and_intervals(runs: list[Run], tmp_path: Path) -> None:
    build_report(runs, "weekday_empirical", tmp_path / "report")
    table = pd.read_csv(tmp_path / "report" / "table.csv").set_index("policy")
    for run in runs:
        frame = rows_frame(run.rows)
        numbers, line = aggregate(frame, WEIGHTS), table.loc[run.config.policy]
        for name in (*METRICS, "S_v"):
            assert line[name] == pytest.approx(getattr(numbers, name), abs=1e-12)
        assert (line["valid"], line["invalid_submission"]) == (numbers.valid, 24 - numbers.valid)
        assert line["S_low"] == pytest.approx(own_intervals(frame, WEIGHTS)["S"].low, abs=1e-12)
        if run.config.policy != "weekday_empirical":
            expected = compare_runs(run, runs[0])
            for metric in METRICS:
                assert line[f"{metric}_minus_reference"] == pytest.approx(expected[metric].estimate, abs=1e-12)
                assert line[f"{metric}_minus_reference_high"] == pytest.approx(expected[metric].high, abs=1e-12)
    assert table.index[table["S_minus_reference"].isna()].tolist() == ["weekday_empirical"]
    assert table.loc["often_invalid", "valid"] == 16
    assert table["rank"].tolist()[:4] == [1, 2, 3, 4]
    cohorts = pd.read_csv(tmp_path / "report" / "cohorts.csv")
    assert len(cohorts) == 5 * 2 * 2
    # Both leads have the same groups, so the mean over a policy's cells, weighted by cohort, is its score.
    mean = cohorts.groupby("policy")["S"].mean()
    for run in runs:
        assert mean[run.config.policy] == pytest.approx(table.loc[run.config.policy, "S"], abs=1e-12)


def test_the_markdown_says_what_it_shows(runs: list[Run], tmp_path: Path) -> None:
    build_report(runs, None, tmp_path / "report", WORLD.case_set, WORLD.targets)
    text = (tmp_path / "report" / "report.md").read_text()
    for phrase in (
        f"fingerprint `{WORLD.case_set.fingerprint[:12]}`, 24 test cases",
        "Sigma: cycle_hire 0.04, electricity 0.05",
        "Cohort weights: cycle-hire-may 0.5, electricity-july 0.5",
        "Reference: `hour_of_day_empirical` (the best policy without hindsight by S)",
        "10,000 resamples, seed 1701",
        "## Hindsight references (not agents)",
        "| `often_invalid` | 16 | 8 | 0 | 0 | 0 | no_submission 8 |",
        "(frontier.png)",
        "(plan.png)",
    ):
        assert phrase in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in tables)
    build_report(runs, "buyer", tmp_path / "report")
    assert "Reference: `buyer` (as asked for)" in (tmp_path / "report" / "report.md").read_text()


def test_the_terminal_table_fits_100_characters(runs: list[Run], tmp_path: Path) -> None:
    long = write_run(tmp_path / "runs", "a_policy_with_a_very_long_name_indeed_of_50_letters", often_invalid)
    console = Console(width=100, record=True, file=(tmp_path / "out").open("w"))
    console.print(render_table(build_report([*runs, long], None, tmp_path / "report")))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 100
    assert "…" not in text
    for phrase in ("hour_of_day_empirical", "reference", "Hindsight references", "8,452", "16"):
        assert phrase in text


def test_an_earlier_report_is_replaced_whole(runs: list[Run], tmp_path: Path) -> None:
    build_report(runs, None, tmp_path / "report", WORLD.case_set, WORLD.targets)
    report = build_report(runs[:2], None, tmp_path / "report")
    assert report.plan is None
    expected = sorted(set(FILES) - {"plan.png", "report.html"})
    assert sorted(path.name for path in (tmp_path / "report").iterdir()) == expected
    before = {path.name: path.read_bytes() for path in (tmp_path / "report").iterdir()}
    with pytest.raises(ConfigError):
        build_report(runs, "nobody", tmp_path / "report")
    assert {path.name: path.read_bytes() for path in (tmp_path / "report").iterdir()} == before


def test_one_policy_under_two_conditions_is_told_apart(runs: list[Run], tmp_path: Path) -> None:
    without = write_run(tmp_path / "runs", "buyer", classical("hour_of_day_empirical"), pool="no_tsfm")
    report = build_report([*runs, without], "buyer (full)", tmp_path / "report")
    assert {"buyer (full)", "buyer (no_tsfm)"} <= set(labels(report, "policies"))
    result = next(result for result in report.results if result.label == "buyer (no_tsfm)")
    assert result.versus is not None
    assert result.versus["credits"].estimate == pytest.approx(-8452)
    assert any("no_tsfm" in note for note in result.notes)
    with pytest.raises(ConfigError, match="found 'buyer'"):
        build_report([*runs, without], "buyer", tmp_path / "report")


def test_the_plan_answer_form_never_ranks(runs: list[Run], tmp_path: Path) -> None:
    best = write_run(tmp_path / "runs", "best", perfect, answer_form="plan")
    report = build_report([*runs, best], None, tmp_path / "report")
    assert labels(report, "plan_form") == ["best"]
    assert report.section("plan_form")[0].rank is None
    assert report.reference == "hour_of_day_empirical"
    assert "## Answer form `plan` (a separate condition, not ranked)" in (tmp_path / "report" / "report.md").read_text()


def test_a_subset_is_flagged_and_not_compared_with_the_whole(runs: list[Run], tmp_path: Path) -> None:
    part = [case for case in WORLD.case_set.cases if case.domain == "electricity"]
    subset = write_run(tmp_path / "runs", "part", perfect, cases=part)
    report = build_report([*runs, subset], None, tmp_path / "report")
    assert labels(report, "subset") == ["part"]
    result = report.section("subset")[0]
    assert (result.rank, result.versus) == (None, None)
    assert result.own is not None
    text = (tmp_path / "report" / "report.md").read_text()
    assert "## Subset, not ranked" in text
    assert "* `part`: 12 cases, not the whole test index" in text


def test_subsets_alone_compare_with_each_other(tmp_path: Path) -> None:
    part = WORLD.case_set.cases[::2]
    runs = [
        write_run(tmp_path / "runs", method, classical(method), cases=part)
        for method in ("weekday_empirical", "hour_of_day_empirical")
    ]
    report = build_report(runs, None, tmp_path / "report", WORLD.case_set, WORLD.targets)
    assert report.reference == min(report.results, key=lambda result: result.aggregate.S).label
    assert [result.rank for result in report.results] == [None, None]
    assert sum(result.versus is not None for result in report.results) == 1
    assert (tmp_path / "report" / "plan.png").exists()


def test_a_run_that_lost_an_episode_to_the_infrastructure_is_not_ranked(runs: list[Run], tmp_path: Path) -> None:
    broken = write_run(tmp_path / "runs", "broken", perfect, failed=1)
    report = build_report([*runs, broken], None, tmp_path / "report")
    assert labels(report, "not_rankable") == ["broken"]
    result = report.section("not_rankable")[0]
    assert (result.rank, result.versus) == (None, None)
    assert pytest.approx(0.0, abs=1e-12) == result.aggregate.S  # left out, not scored
    assert "1 of 24 episodes (4.2%) failed by the infrastructure" in result.notes[0]
    repeated = write_run(tmp_path / "runs", "often", classical("weekday_empirical"), repeats=5)
    rows = list(repeated.rows)
    with open_run(repeated.path, repeated.config) as writer:
        writer.append([failed_row(WORLD.case_set.by_id(rows[0].case_id))])
    report = build_report([*runs, Run(repeated.path)], None, tmp_path / "report")
    lost = next(result for result in report.results if result.label == "often")
    assert (lost.section, lost.aggregate.outcomes["infrastructure_error"]) == ("not_rankable", 1)
    assert "1 of 120 episodes (0.8%)" in lost.notes[0]


def test_a_run_without_a_whole_cohort_is_not_ranked(runs: list[Run], tmp_path: Path) -> None:
    broken = write_run(tmp_path / "runs", "broken", perfect, failed=12)
    report = build_report([*runs, broken], None, tmp_path / "report")
    assert labels(report, "not_rankable") == ["broken"]
    assert any("no scored episode of electricity-july" in note for note in report.section("not_rankable")[0].notes)


def test_one_group_gives_numbers_without_intervals(tmp_path: Path) -> None:
    part = [case for case in WORLD.case_set.cases if case.group_id == "G0"]
    runs = [
        write_run(tmp_path / "runs", method, classical(method), cases=part)
        for method in ("weekday_empirical", "hour_of_day_empirical")
    ]
    report = build_report(runs, None, tmp_path / "report")
    assert [result.own for result in report.results] == [None, None]
    assert [result.versus for result in report.results] == [None, None]
    assert "no interval: an interval needs at least two groups" in (tmp_path / "report" / "report.md").read_text()


def test_hindsight_alone_has_no_reference(runs: list[Run], tmp_path: Path) -> None:
    report = build_report(runs[-1:], None, tmp_path / "report", WORLD.case_set, WORLD.targets)
    assert report.reference is None
    assert "Reference:" not in (tmp_path / "report" / "report.md").read_text()


def test_the_plan_plot_shows_the_case_of_median_spread(runs: list[Run], tmp_path: Path) -> None:
    report = build_report(runs, None, tmp_path / "report", WORLD.case_set, WORLD.targets)
    assert report.plan is not None
    assert report.plan.policies == tuple(labels(report, "policies"))
    by_policy = {run.config.policy: {row.case_id: row for row in run.rows} for run in runs}
    spread = {}
    for case in WORLD.case_set:
        rows = [by_policy[label][case.case_id] for label in report.plan.policies]
        if all(row.valid for row in rows):
            scores = [row.S for row in rows if row.S is not None]
            spread[case.case_id] = max(scores) - min(scores)
    assert report.plan.candidates == len(spread) == 16
    below = sum(value < spread[report.plan.case_id] for value in spread.values())
    assert below == 7
