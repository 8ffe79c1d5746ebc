"""Reports on run folders of real plans: what is ranked, what is set apart, what is refused."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from castgym.data.contract import protocol_terms
from castgym.data.errors import ConfigError, DataError
from castgym.data.files import canonical_json, sha256_hex
from castgym.data.schema import HISTORY_HOURS, LEAD_DAYS, Case, CaseSet, Domain, Family, Target, TargetStore
from castgym.data.tariff import PROTOCOL_TARIFF, Tariff
from castgym.evaluation.aggregate import METRICS, aggregate, rows_frame
from castgym.evaluation.bootstrap import compare_runs, own_intervals
from castgym.evaluation.report import FILES, Report, build_report, render_table
from castgym.evaluation.rows import ResultRow
from castgym.evaluation.runs import Run, RunConfig, case_ids_digest, open_run
from castgym.tools.planning.batch import classical_plans
from castgym.tools.planning.contract import CapacityContract

SIGMA = {"electricity": 0.05, "cycle_hire": 0.04}
WEIGHTS = {"electricity-july": 0.5, "cycle-hire-may": 0.5}


@dataclass(frozen=True)
class World:
    case_set: CaseSet
    targets: TargetStore


def world(*, tariff: Tariff = PROTOCOL_TARIFF, seed: int = 0) -> World:
    """Two domains, three groups each, two leads, two dates: 24 cases of a daily cycle with noise."""
    rng = np.random.default_rng(seed)
    cases, targets = [], []
    kinds: tuple[tuple[Domain, str, int], ...] = (
        ("electricity", "electricity-july", 7),
        ("cycle_hire", "cycle-hire-may", 5),
    )
    for domain, cohort, month in kinds:
        for group in range(3):
            for family in get_args(Family):
                for day in (4, 12):
                    as_of = datetime(2024, month, day, tzinfo=UTC)
                    hours = np.arange(HISTORY_HOURS + 3 + 24 * 8)
                    demand = 100 + 30 * np.sin(2 * np.pi * hours / 24 + group) + 8 * rng.standard_normal(len(hours))
                    history = demand[:HISTORY_HOURS]
                    start = HISTORY_HOURS + 2 + 24 * LEAD_DAYS[family]
                    target_start = as_of + timedelta(days=LEAD_DAYS[family])
                    case_id = f"{domain[0].upper()}{group}-{as_of:%Y-%m-%d}-{family}"
                    cases.append(
                        Case(
                            case_id, f"G{group}", "demand", domain, "MW", family, cohort, "test", "UTC", as_of,
                            target_start, history, protocol_terms(target_start.date()), float(history.mean()),
                        )
                    )  # fmt: skip
                    targets.append(Target(case_id, demand[start : start + 24]))
    store = TargetStore(targets)
    digest = store.digest([case.case_id for case in cases])
    return World(CaseSet("small", tuple(cases), WEIGHTS, SIGMA, tariff, (), {}, digest), store)


WORLD = world()
Decide = Callable[[Case], tuple[Sequence[int] | None, int]]


def classical(method: str, spent: int = 0) -> Decide:
    return lambda case: (classical_plans([case], method)[0][0].tolist(), spent)


def perfect(case: Case) -> tuple[Sequence[int], int]:
    contract = CapacityContract.of(case)
    return contract.optimize(contract.demand_cost(WORLD.targets[case.case_id].actual)).tolist(), 0


def often_invalid(case: Case) -> tuple[Sequence[int] | None, int]:
    plan = classical_plans([case], "weekday_empirical")[0][0].tolist()
    return (None if case.group_id == "G1" else plan), 100


def result_row(case: Case, plan: Sequence[int] | None, spent: int, repeat: int = 0) -> ResultRow:
    contract = CapacityContract.of(case)
    submission = None if plan is None else contract.submission(plan)
    grade = contract.grade(submission, WORLD.targets[case.case_id].actual)
    R = grade.excess / SIGMA[case.domain]
    return ResultRow(
        case.case_id, repeat, case.group_id, case.domain, case.family, case.cohort,
        "completed" if grade.valid else "invalid_submission", grade.valid, grade.fault, grade.loss, grade.floor,
        spent, R, 0.5 * (R + spent / PROTOCOL_TARIFF.budget), grade.grid_index, None, (), 0.1,
    )  # fmt: skip


def failed_row(case: Case) -> ResultRow:
    return replace(
        result_row(case, None, 0),
        outcome="infrastructure_error",
        fault=None,
        loss=None,
        floor=None,
        credits=None,
        R=None,
        S=None,
        error="server gone",
    )


def write_run(
    folder: Path,
    policy: str,
    decide: Decide,
    *,
    cases: Sequence[Case] | None = None,
    failed: int = 0,
    **changes: Any,
) -> Run:
    """Play a policy over cases into a run folder named after it."""
    chosen = WORLD.case_set.cases if cases is None else cases
    ids = [case.case_id for case in chosen]
    config = RunConfig(
        policy=policy,
        hindsight=False,
        case_set=WORLD.case_set.name,
        case_source="small",
        fingerprint=WORLD.case_set.fingerprint,
        tariff=sha256_hex(canonical_json(PROTOCOL_TARIFF.to_json()).encode()),
        selection={"split": "test"},
        case_ids=case_ids_digest(ids),
        n_cases=len(ids),
        whole_index=cases is None,
        cohort_weights=WEIGHTS,
        sigma=SIGMA,
        budget=PROTOCOL_TARIFF.budget,
        pool="full",
        answer_form="decisions",
        prompt_mode="memory",
        repeats=1,
        seed=0,
        version="0",
        options={},
    )
    config = replace(config, **changes)
    rows = [
        failed_row(case) if number < failed else result_row(case, *decide(case), repeat=repeat)
        for repeat in range(config.repeats)
        for number, case in enumerate(chosen)
    ]
    path = folder / f"{policy}-{config.digest[:6]}"
    with open_run(path, config) as writer:
        writer.append(rows)
    return Run(path)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Read only: a test that changes a run writes its own."""
    folder = tmp_path_factory.mktemp("base")
    return [
        write_run(folder, "weekday_empirical", classical("weekday_empirical")),
        write_run(folder, "hour_of_day_empirical", classical("hour_of_day_empirical")),
        write_run(folder, "often_invalid", often_invalid),
        write_run(folder, "buyer", classical("hour_of_day_empirical", spent=8452)),
        write_run(folder, "perfect_demand", perfect, hindsight=True),
    ]


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
    assert sorted(path.name for path in (tmp_path / "report").iterdir()) == sorted(FILES)
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
    assert sorted(path.name for path in (tmp_path / "report").iterdir()) == sorted(set(FILES) - {"plan.png"})
    before = {path.name: path.read_bytes() for path in (tmp_path / "report").iterdir()}
    with pytest.raises(ConfigError):
        build_report(runs, "nobody", tmp_path / "report")
    assert {path.name: path.read_bytes() for path in (tmp_path / "report").iterdir()} == before


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
