"""What the page shows of whole runs: ranking, differences, tools, outcomes, cohorts. Plain JSON."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from castgym.envs.outcomes import OUTCOMES
from castgym.evaluation.aggregate import METRICS
from castgym.evaluation.bootstrap import LEVEL, RESAMPLES, SEED, Intervals
from castgym.evaluation.comparison import tool_use
from castgym.evaluation.report_tables import SECTIONS, TITLES, PolicyResult, Report
from castgym.tools.fwbench import FWBENCH_TOOLS

UNKNOWN_TOOL, UNREADABLE = "no such tool", "unreadable call"
"""Stand for the names that models make up, of which there may be many, and for calls without a name."""


def summary(report: Report) -> dict[str, Any]:
    """The overview of a report.

    Args:
        report: from `build_report`.
    """
    config = report.results[0].run.config
    policies = [_policy(result) for result in report.results]
    cells = sorted({tuple(cell[:2]) for policy in policies for cell in policy["cells"]})
    return {
        "title": config.case_set,
        "fingerprint": config.fingerprint[:12],
        "budget": config.budget,
        "sigma": dict(config.sigma),
        "weights": dict(config.cohort_weights),
        "objective": {
            "name": report.objective.name,
            "loss": report.objective.loss_weight,
            "cost": report.objective.cost_weight,
            "formula": report.objective.formula,
        },
        "reference": report.reference,
        "bootstrap": {"resamples": RESAMPLES, "level": LEVEL, "seed": SEED},
        "versions": sorted({result.run.config.version for result in report.results}),
        "sections": [{"id": name, "title": TITLES[name].replace("`", "")} for name in SECTIONS if report.section(name)],
        "tools": [*FWBENCH_TOOLS, UNKNOWN_TOOL, UNREADABLE],
        "outcomes": list(OUTCOMES),
        "cells": [list(cell) for cell in cells],
        "policies": policies,
    }


def _policy(result: PolicyResult) -> dict[str, Any]:
    config, numbers = result.run.config, result.aggregate
    use = tool_use(result.run)
    errors = Counter(str(call["error"]) for row in result.run.rows for call in row.calls if call["error"] is not None)
    return {
        "name": result.label,
        "section": result.section,
        "rank": result.rank,
        "hindsight": config.hindsight,
        "pool": config.pool,
        "form": config.answer_form,
        "mode": config.prompt_mode,
        "style": config.prompt_style,
        "asked": config.objective,
        "cases": config.n_cases,
        "repeats": config.repeats,
        "seed": config.seed,
        "digest": config.digest[:12],
        "folder": result.run.path.name,
        "options": dict(config.options),
        "episodes": numbers.episodes,
        "scored": numbers.scored,
        "valid": numbers.valid,
        **{metric: getattr(numbers, metric) for metric in METRICS},
        "S_v": numbers.S_v,
        "own": _bounds(result.own),
        "versus": _bounds(result.versus),
        "outcomes": [numbers.outcomes[name] for name in OUTCOMES],
        "faults": dict(numbers.faults),
        "tools": _known_tools(use.calls),
        "models": dict(use.models),
        "bought": use.bought,
        "call_errors": dict(errors.most_common()),
        "cells": [
            [cell["cohort"], cell["family"], None if cell["S"] != cell["S"] else round(cell["S"], 5)]
            for cell in result.cohorts.to_dict("records")
        ],
        "notes": list(result.notes),
    }


def _known_tools(calls: Mapping[str, float]) -> dict[str, float]:
    counts: dict[str, float] = {}
    for name, count in calls.items():
        shown = name if name in FWBENCH_TOOLS else UNKNOWN_TOOL if name else UNREADABLE
        counts[shown] = counts.get(shown, 0.0) + count
    return counts


def _bounds(intervals: Intervals | None) -> dict[str, list[float]] | None:
    """Estimate, low and high of each metric."""
    if intervals is None:
        return None
    return {name: [item.estimate, item.low, item.high] for name, item in intervals.by_metric.items()}
