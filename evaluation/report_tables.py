"""What a report holds, and its tables: Markdown, CSV and the terminal."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from castgym.envs.outcomes import OUTCOMES
from castgym.envs.scoring import COMBINED, Objective
from castgym.evaluation.aggregate import METRICS, Aggregate
from castgym.evaluation.bootstrap import LEVEL, RESAMPLES, SEED, Interval, Intervals
from castgym.evaluation.runs import Run

Section = Literal["policies", "hindsight", "plan_form", "subset", "not_rankable"]

SECTIONS: tuple[Section, ...] = get_args(Section)

TITLES: Mapping[Section, str] = MappingProxyType(
    {
        "policies": "Policies",
        "hindsight": "Hindsight references (not agents)",
        "plan_form": "Answer form `plan` (a separate condition, not ranked)",
        "subset": "Subset, not ranked",
        "not_rankable": "Not rankable",
    }
)

NONE = "–"


@dataclass(frozen=True, slots=True, eq=False)
class PolicyResult:
    """One run of a report.

    Attributes:
        label: the policy's name, with its conditions where the name alone is not unique.
        section: where it stands.
        rank: place among `policies` by S, from 1; `None` elsewhere.
        run: the run.
        aggregate: its numbers.
        cohorts: by cohort and lead, from `breakdown`.
        own: intervals of its own numbers; `None` where there are too few groups.
        versus: intervals of the differences to the reference; `None` for the reference, and where the cases differ.
        notes: what to know about it.
    """

    label: str
    section: Section
    rank: int | None
    run: Run
    aggregate: Aggregate
    cohorts: pd.DataFrame
    own: Intervals | None
    versus: Intervals | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanPicture:
    """Which case `plan.png` shows.

    Attributes:
        case_id: the case.
        policies: labels of the policies drawn.
        candidates: cases among which it was chosen.
    """

    case_id: str
    policies: tuple[str, ...]
    candidates: int


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """A finished report.

    Attributes:
        path: its folder.
        results: all runs, section by section, in each by S.
        reference: label of the policy that the others are compared with; `None` with hindsight references alone.
        chosen_reference: the reference was asked for; otherwise it is the best.
        plan: what `plan.png` shows, `None` without it.
        objective: weights of S.
    """

    path: Path
    results: tuple[PolicyResult, ...]
    reference: str | None
    chosen_reference: bool
    plan: PlanPicture | None
    objective: Objective = COMBINED

    def section(self, name: Section) -> tuple[PolicyResult, ...]:
        """The results of one section."""
        return tuple(result for result in self.results if result.section == name)


def policy_table(report: Report) -> pd.DataFrame:
    """`table.csv`: one row a policy, numbers in full precision, empty where undefined."""
    table = pd.DataFrame([_policy_row(report, result) for result in report.results])
    return table.astype({"rank": "Int64"})


def cohort_table(report: Report) -> pd.DataFrame:
    """`cohorts.csv`: one row a policy, cohort and lead."""
    return pd.concat(
        [result.cohorts.assign(policy=result.label, section=result.section) for result in report.results]
    ).pipe(lambda table: table[["policy", "section", *table.columns.drop(["policy", "section"])]])


def render_table(report: Report) -> Table:
    """The main table for a terminal of 80 characters or more; S_v and R stand in the files."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("policy", min_width=24, max_width=34, overflow="fold")
    for name in ("valid", "loss", "credits", "S"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("S - reference", justify="right", no_wrap=True)
    for name in SECTIONS:
        results = report.section(name)
        if not results:
            continue
        table.add_row(Text(TITLES[name].split(" (")[0].replace("`", ""), style="bold"))
        for result in results:
            numbers = result.aggregate
            table.add_row(
                Text(result.label),
                f"{numbers.valid:,}",
                _number(numbers.loss),
                f"{numbers.credits:,.0f}",
                _number(numbers.S),
                _versus(report, result, "S", digits=2),
            )
    return table


def markdown(report: Report) -> str:
    """`report.md`."""
    parts = [
        f"# Report on {report.results[0].run.config.case_set}",
        _setting(report),
        *(_section(report, name) for name in SECTIONS if report.section(name)),
        _reading(report),
        _frontier(report),
        _by_cohort(report),
        _failures(report),
        *([_plan(report.plan)] if report.plan else []),
        _runs(report),
    ]
    return "\n\n".join(parts) + "\n"


def _policy_row(report: Report, result: PolicyResult) -> dict[str, Any]:
    numbers, config = result.aggregate, result.run.config
    row: dict[str, Any] = {
        "section": result.section,
        "rank": result.rank,
        "policy": result.label,
        "cases": config.n_cases,
        "episodes": numbers.episodes,
        "scored": numbers.scored,
        "valid": numbers.valid,
        "loss": numbers.loss,
        "credits": numbers.credits,
        "S": numbers.S,
        "S_v": numbers.S_v,
        "R": numbers.R,
        **numbers.outcomes,
    }
    for metric in METRICS:
        interval = None if result.own is None else result.own[metric]
        row |= {f"{metric}_low": interval and interval.low, f"{metric}_high": interval and interval.high}
    row["reference"] = report.reference
    for metric in METRICS:
        interval = None if result.versus is None else result.versus[metric]
        row |= {
            f"{metric}_minus_reference": interval and interval.estimate,
            f"{metric}_minus_reference_low": interval and interval.low,
            f"{metric}_minus_reference_high": interval and interval.high,
        }
    return {**row, "notes": "; ".join(result.notes)}


def _setting(report: Report) -> str:
    config = report.results[0].run.config
    weights = ", ".join(f"{name} {weight:.4g}" for name, weight in sorted(config.cohort_weights.items()))
    sigma = ", ".join(f"{name} {value:.6g}" for name, value in sorted(config.sigma.items()))
    sizes = sorted({result.run.config.n_cases for result in report.results if result.run.config.whole_index})
    lines = [
        f"* Case set: {config.case_set}, fingerprint `{config.fingerprint[:12]}`"
        + (f", {sizes[0]:,} test cases" if sizes else ""),
        f"* Budget B: {config.budget:,} credits a case",
        f"* Sigma: {sigma}",
        f"* Cohort weights: {weights}",
    ]
    if report.reference is not None:
        how = "as asked for" if report.chosen_reference else "the best policy without hindsight by S"
        lines.append(f"* Reference: {_code(report.reference)} ({how})")
    versions = sorted({result.run.config.version for result in report.results})
    if len(versions) > 1:
        lines.append(f"* The runs were made by different versions of castgym: {', '.join(versions)}")
    return "\n".join(lines)


def _section(report: Report, name: Section) -> str:
    results = report.section(name)
    header = ["#", "policy", "valid", "loss", "credits", "S", f"{LEVEL:.0%} interval", "S_v", "R", "S - reference"]
    rows = []
    for result in results:
        numbers = result.aggregate
        own = NONE if result.own is None else _range(result.own["S"], 4)
        rows.append(
            [
                str(result.rank or ""),
                _code(result.label),
                f"{numbers.valid:,} / {numbers.scored:,}",
                _number(numbers.loss),
                f"{numbers.credits:,.0f}",
                _number(numbers.S),
                own,
                _number(numbers.S_v),
                _number(numbers.R),
                _versus(report, result, "S", bold=True),
            ]
        )
    notes = [f"* {_code(result.label)}: {note}" for result in results for note in result.notes]
    return f"## {TITLES[name]}\n\n" + _table(header, rows) + ("\n\n" + "\n".join(notes) if notes else "")


def _reading(report: Report) -> str:
    return (
        f"Lower is better throughout. {report.objective.formula} with R = (loss - floor) / sigma. Numbers are means "
        "over the episodes of a case, its dates, the groups of a cohort (each equal), then over cohorts by weight. "
        "Invalid submissions keep their loss penalty in loss, R and S; S_v averages the valid ones alone, over subsets "
        "that differ between policies.\n\n"
        f"Intervals: {LEVEL:.0%} percentile intervals of a cluster bootstrap over groups within each domain, "
        f"{RESAMPLES:,} resamples, seed {SEED}; differences to the reference are paired (the same groups drawn for "
        "both), negative favours the policy, bold excludes zero. They are conditional on the dates and not adjusted "
        "for multiple comparisons."
        + (" A dash: no pairing (other cases, or too few groups)." if report.reference else "")
    )


def _frontier(report: Report) -> str:
    return (
        "## Loss and cost\n\n"
        "![Normalised excess loss against forecast credits, with lines of equal S](frontier.png)" + _differences(report)
    )


def _differences(report: Report) -> str:
    compared = [result for result in report.results if result.versus is not None]
    if not compared:
        return ""
    rows = [
        [_code(result.label), *(_versus(report, result, metric, bold=True) for metric in ("S", "R", "loss", "credits"))]
        for result in compared
    ]
    title = f"Differences to {_code(report.reference or '')}, with paired intervals:"
    return f"\n\n{title}\n\n" + _table(["policy", "S", "R", "loss", "credits"], rows)


def _by_cohort(report: Report) -> str:
    keys = sorted({key for result in report.results for key in _keys(result.cohorts)})
    header = ["policy", *(f"{cohort}, {family.replace('_', ' ')}" for cohort, family in keys)]
    rows = []
    for result in report.results:
        scores = dict(zip(_keys(result.cohorts), result.cohorts["S"], strict=True))
        rows.append([_code(result.label), *(_number(scores.get(key)) for key in keys)])
    return "## S by cohort and lead\n\n" + _table(header, rows) + "\n\nMore in `cohorts.csv`."


def _keys(cohorts: pd.DataFrame) -> list[tuple[str, str]]:
    return list(zip(cohorts["cohort"], cohorts["family"], strict=True))


def _failures(report: Report) -> str:
    header = ["policy", *(name.replace("_", " ") for name in OUTCOMES), "named faults"]
    rows = []
    for result in report.results:
        numbers = result.aggregate
        faults = ", ".join(f"{name} {count:,}" for name, count in numbers.faults.items()) or NONE
        counts = [f"{numbers.outcomes[name]:,}" for name in OUTCOMES]
        rows.append([_code(result.label), *counts, faults])
    return (
        "## Outcomes\n\n"
        + _table(header, rows)
        + "\n\nEpisodes by outcome class. Infrastructure errors are no fault of the policy: they are left out of all "
        "averages, and a run with any of them is not ranked: resume it, which plays them again."
    )


def _plan(plan: PlanPicture) -> str:
    names = ", ".join(_code(name) for name in plan.policies)
    return (
        f"## One case\n\n![Plans for {plan.case_id}](plan.png)\n\n"
        f"{_code(plan.case_id)}: of the {plan.candidates:,} cases for which {names} all committed a feasible plan, the "
        "one whose spread of S between them (highest less lowest, first repeat) is the median."
    )


def _runs(report: Report) -> str:
    header = ["policy", "folder", "cases", "repeats", "seed", "tools", "prompts", "answers", "configuration"]
    rows = []
    for result in report.results:
        config = result.run.config
        rows.append(
            [
                _code(result.label),
                _code(result.run.path.name),
                f"{config.n_cases:,}",
                str(config.repeats),
                str(config.seed),
                config.pool,
                config.prompt_mode,
                config.answer_form,
                f"`{config.digest[:12]}`",
            ]
        )
    return "## Runs\n\n" + _table(header, rows)


def _versus(report: Report, result: PolicyResult, metric: str, *, bold: bool = False, digits: int = 4) -> str:
    if result.versus is None:
        return "reference" if result.label == report.reference else NONE
    interval = result.versus[metric]
    digits = 0 if metric == "credits" else digits
    text = f"{_rounded(interval.estimate):+,.{digits}f} {_range(interval, digits)}"
    return f"**{text}**" if bold and interval.excludes_zero else text


def _range(interval: Interval, digits: int) -> str:
    return f"[{_rounded(interval.low):,.{digits}f}, {_rounded(interval.high):,.{digits}f}]"


def _rounded(value: float) -> float:
    """Without the last bits, so that equal numbers print alike, and without a negative zero."""
    return round(value, 9) + 0.0


def _number(value: float | None) -> str:
    return NONE if value is None or value != value else f"{_rounded(value):.4f}"


def _code(text: str) -> str:
    """Text as it is: in Markdown underscores, stars and bars mean something."""
    return f"`{text.replace('`', chr(39))}`".replace("|", r"\|")


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; all columns but the policy's are aligned right."""
    rule = [":---" if name in ("policy", "folder", "named faults") else "---:" for name in header]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, rule, *rows))
