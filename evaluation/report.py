"""Reports: run folders in, tables, intervals and pictures out.

What could mislead is refused (an incomplete run, another case set, two policies of one name) or set apart (hindsight
references, subsets, another answer form, runs that lost too many episodes): only runs over the whole frozen index, in
the official answer form, are ranked.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from castgym.data.errors import ConfigError, DataError
from castgym.data.files import folder_atomic, write_text_atomic
from castgym.data.schema import CaseSet, TargetStore
from castgym.envs.plots import plot_plans, save_png
from castgym.envs.scoring import COMBINED, Objective
from castgym.evaluation.aggregate import INFRASTRUCTURE_LIMIT, aggregate, breakdown, scored
from castgym.evaluation.bootstrap import (
    RESAMPLES,
    case_set_difference,
    own_intervals,
    paired_intervals,
    rescored,
    run_frame,
)
from castgym.evaluation.plots import FrontierPoint, Kind, plot_frontier
from castgym.evaluation.report_tables import (
    SECTIONS,
    PlanPicture,
    PolicyResult,
    Report,
    Section,
    cohort_table,
    markdown,
    policy_table,
    render_table,
)
from castgym.evaluation.rows import ResultRow
from castgym.evaluation.runs import Run
from castgym.tools.planning.contract import CapacityContract

__all__ = ["FILES", "PolicyResult", "Report", "build_report", "render_table"]

FILES = ("report.md", "table.csv", "cohorts.csv", "frontier.png", "plan.png", "report.html")
"""What a report folder holds; `plan.png` only where case set and targets are given."""

_DRAWN = 4
"""Policies in the plan plot."""

_CONDITIONS = ("pool", "answer_form", "prompt_mode", "prompt_style", "objective")


def build_report(
    runs: Sequence[Run],
    reference: str | None,
    out: Path,
    case_set: CaseSet | None = None,
    targets: TargetStore | None = None,
    objective: Objective = COMBINED,
) -> Report:
    """Write a report folder; it appears whole or not at all, and replaces an earlier report.

    Args:
        runs: complete runs over one case set.
        reference: policy that the others are compared with; the best one without hindsight by default.
        out: the folder.
        case_set: the whole case set, for the plan plot.
        targets: its truth, given with it.
        objective: rescores the saved decisions with other weights (FWBench section 4.5).

    Raises:
        ConfigError: a run is incomplete, the runs' case sets differ, two policies share a name, the reference is
            unknown, the case set is another, or `out` holds something else than a report.
        DataError: a run's rows contradict themselves.
    """
    _check(runs, out, case_set, targets)
    frames = [rescored(run_frame(run), run.config.budget, objective) for run in runs]
    labels = _labels(runs)
    results = [_result(*item) for item in zip(labels, runs, frames, strict=True)]
    lead = _reference(results, reference)
    by_label = dict(zip(labels, frames, strict=True))
    results = _ranked([_compared(result, lead, by_label) for result in results])
    picture = None
    if case_set is not None:
        picture = _plan_picture(results, lead or results[0], objective)
    report = Report(out, tuple(results), lead.label if lead else None, reference is not None, picture, objective)
    with folder_atomic(out, overwrite=True) as folder:
        write_text_atomic(folder / "report.md", markdown(report))
        write_text_atomic(folder / "table.csv", policy_table(report).to_csv(index=False, lineterminator="\n"))
        write_text_atomic(folder / "cohorts.csv", cohort_table(report).to_csv(index=False, lineterminator="\n"))
        _draw_frontier(report, lead or results[0], folder / "frontier.png")
        if picture is not None and case_set is not None and targets is not None:
            _draw_plan(report, picture, case_set, targets, folder / "plan.png")
    return report


def _check(runs: Sequence[Run], out: Path, case_set: CaseSet | None, targets: TargetStore | None) -> None:
    if not runs:
        raise ConfigError("expected at least one run to report on, found none")
    for run in runs:
        if difference := case_set_difference(runs[0].config, run.config):
            raise ConfigError(
                f"{runs[0].path.name} and {run.path.name} do not belong into one report: the second is over "
                f"{difference}; report on them apart, or run one of them again"
            )
    whole = [run for run in runs if run.config.whole_index]
    for run in whole:
        if run.config.case_ids != whole[0].config.case_ids:
            raise ConfigError(
                f"{whole[0].path.name} and {run.path.name} both claim the whole test index, but over other cases; "
                "run both again"
            )
    if (case_set is None) != (targets is None):
        raise ConfigError("expected a case set and its targets together, found one of them")
    if case_set is not None and case_set.fingerprint != runs[0].config.fingerprint:
        raise ConfigError(
            f"expected the case set of the runs, fingerprint {runs[0].config.fingerprint[:12]}, found "
            f"{case_set.name!r} with {case_set.fingerprint[:12]}"
        )
    if out.exists() and (not out.is_dir() or {path.name for path in out.iterdir()} - set(FILES)):
        raise ConfigError(f"{out} holds something else than an earlier report: choose another folder")


def _labels(runs: Sequence[Run]) -> list[str]:
    """Names of the policies; one that occurs under several conditions gets those that differ added."""
    labels = []
    for run in runs:
        same = [other.config for other in runs if other.config.policy == run.config.policy]
        differing = [field for field in _CONDITIONS if len({getattr(config, field) for config in same}) > 1]
        conditions = ", ".join(str(getattr(run.config, field)) for field in differing)
        labels.append(f"{run.config.policy} ({conditions})" if differing else run.config.policy)
    for label, count in Counter(labels).items():
        if count > 1:
            paths = [str(run.path) for run, name in zip(runs, labels, strict=True) if name == label]
            raise ConfigError(f"expected each policy once, found {label!r} in {' and '.join(paths)}: leave one out")
    return labels


def _result(label: str, run: Run, frame: pd.DataFrame) -> PolicyResult:
    config = run.config
    lost = sorted(set(config.cohort_weights) - set(scored(frame)["cohort"]))
    partial = not config.whole_index or bool(lost)
    numbers = aggregate(frame, config.cohort_weights, partial=partial)
    notes = []
    section: Section = "policies"
    if config.answer_form == "plan":
        section = "plan_form"
    if config.hindsight:
        section = "hindsight"
    if not config.whole_index:
        section = "subset"
        notes.append(f"{config.n_cases:,} cases, not the whole test index{', hindsight' if config.hindsight else ''}")
        if config.answer_form == "plan":
            notes.append("answer form plan")
    elif lost or numbers.infrastructure_share > INFRASTRUCTURE_LIMIT:
        section = "not_rankable"
    if numbers.scored < numbers.episodes:
        failed = numbers.episodes - numbers.scored
        notes.append(
            f"{failed:,} of {numbers.episodes:,} episodes ({numbers.infrastructure_share:.1%}) failed by the "
            "infrastructure and are left out; resume the run to play them again"
        )
    if lost and config.whole_index:
        notes.append(f"no scored episode of {', '.join(lost)}; the other cohorts' weights are renormalised")
    if config.pool == "no_tsfm":
        notes.append("without foundation models (pool no_tsfm)")
    if config.objective != COMBINED.name:
        notes.append(f"asked to minimise the objective {config.objective}")
    own = None
    try:
        own = own_intervals(frame, config.cohort_weights, partial=partial)
    except ConfigError as error:
        notes.append(f"no interval: {error}")
    if own is not None and own.resamples < RESAMPLES:
        notes.append(f"{RESAMPLES - own.resamples:,} resamples had no group of some cohort and are left out")
    return PolicyResult(label, section, None, run, numbers, breakdown(frame), own, None, tuple(notes))


def _reference(results: Sequence[PolicyResult], wanted: str | None) -> PolicyResult | None:
    """The policy asked for, or the best without hindsight of the first section that has one."""
    if wanted is not None:
        found = [result for result in results if wanted in (result.label, result.run.config.policy)]
        if len(found) != 1:
            known = ", ".join(result.label for result in results)
            raise ConfigError(f"expected the reference to be one of {known}; found {wanted!r}")
        return found[0]
    for section in SECTIONS:
        candidates = [result for result in results if result.section == section and not result.run.config.hindsight]
        if candidates:
            # Subsets may differ: the best of the one that most runs share.
            shared = Counter(result.run.config.case_ids for result in candidates).most_common(1)[0][0]
            return min((r for r in candidates if r.run.config.case_ids == shared), key=_by_score)
    return None


def _compared(result: PolicyResult, lead: PolicyResult | None, frames: Mapping[str, pd.DataFrame]) -> PolicyResult:
    """The result with its differences to the reference, where they are defined."""
    config = result.run.config
    if lead is None or result.label == lead.label or config.case_ids != lead.run.config.case_ids:
        return result
    if "not_rankable" in (result.section, lead.section) or result.own is None or lead.own is None:
        return result
    a, b = frames[result.label], frames[lead.label]
    try:
        versus = paired_intervals(a, b, config.cohort_weights, partial=not config.whole_index)
    except ConfigError as error:
        return replace(result, notes=(*result.notes, f"no difference to the reference: {error}"))
    if versus.left_out:
        note = f"{versus.left_out:,} cases that one of both lost are left out of the difference to the reference"
        return replace(result, versus=versus, notes=(*result.notes, note))
    return replace(result, versus=versus)


def _ranked(results: Sequence[PolicyResult]) -> list[PolicyResult]:
    """Section by section, in each by S; subsets by their cases first."""
    ordered = sorted(
        results,
        key=lambda result: (
            SECTIONS.index(result.section),
            (-result.run.config.n_cases, result.run.config.case_ids) if result.section == "subset" else (0, ""),
            _by_score(result),
        ),
    )
    return [
        replace(result, rank=place) if result.section == "policies" else result
        for place, result in enumerate(ordered, start=1)
    ]


def _by_score(result: PolicyResult) -> tuple[float, str]:
    return result.aggregate.S, result.label


def _comparable(results: Sequence[PolicyResult], lead: PolicyResult) -> list[PolicyResult]:
    """The results over the reference's cases."""
    case_ids = lead.run.config.case_ids
    return [r for r in results if r.run.config.case_ids == case_ids and r.section != "not_rankable"] or [lead]


def _draw_frontier(report: Report, lead: PolicyResult, path: Path) -> None:
    points = []
    for result in _comparable(report.results, lead):
        config = result.run.config
        kind: Kind = "plan_form" if config.answer_form == "plan" else "policy"
        if config.pool == "no_tsfm":
            kind = "no_tsfm"
        if config.hindsight:
            kind = "hindsight"
        numbers = result.aggregate
        points.append(FrontierPoint(result.label, numbers.R, numbers.credits, kind, result.label == report.reference))
    config = lead.run.config
    subset = "" if config.whole_index else ", a subset"
    title = f"Loss and cost: {config.case_set}, {config.n_cases:,} cases{subset}"
    save_png(plot_frontier(points, budget=config.budget, title=title, objective=report.objective), path)


def _plan_picture(results: Sequence[PolicyResult], lead: PolicyResult, objective: Objective) -> PlanPicture | None:
    """Choose the case of the plan plot by a rule that sees spreads only (stated in the report)."""
    policies = sorted(
        (r for r in _comparable(results, lead) if not r.run.config.hindsight or r.label == lead.label), key=_by_score
    )
    drawn = policies[:_DRAWN]
    if lead.label not in {policy.label for policy in drawn}:
        drawn[-1:] = [policy for policy in policies if policy.label == lead.label]
    spreads = []
    plans = [{row.case_id: row for row in result.run.rows if row.repeat == 0} for result in drawn]
    for case_id in plans[0]:
        rows = [rows_of[case_id] for rows_of in plans]
        scores = [_row_score(row, lead.run.config.budget, objective) for row in rows if row.grid_index is not None]
        if len(scores) == len(rows):
            spreads.append((max(scores) - min(scores), case_id))
    if not spreads:
        return None
    _, case_id = sorted(spreads)[(len(spreads) - 1) // 2]
    return PlanPicture(case_id, tuple(result.label for result in drawn), len(spreads))


def _row_score(row: ResultRow, budget: int, objective: Objective) -> float:
    if row.R is None or row.credits is None:
        raise DataError(f"{row.case_id} has a plan but no score: the row was changed, run it again")
    return objective.score(row.R, row.credits, budget)


def _draw_plan(report: Report, picture: PlanPicture, case_set: CaseSet, targets: TargetStore, path: Path) -> None:
    case = case_set.by_id(picture.case_id)
    actual = targets[picture.case_id].actual
    contract = CapacityContract.of(case)
    by_label = {result.label: result for result in report.results}
    plans = {}
    for label in picture.policies:
        row = next(row for row in by_label[label].run.rows if row.case_id == picture.case_id and row.repeat == 0)
        if row.grid_index is not None:
            score = _row_score(row, by_label[label].run.config.budget, report.objective)
            plans[f"{label}, S {score:.3f}"] = row.grid_index
    oracle = contract.optimize(contract.demand_cost(actual)).tolist()
    save_png(plot_plans(case, plans, committed=None, actual=actual, oracle=oracle), path)
