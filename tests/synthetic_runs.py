"""Run folders of made-up numbers, for tests of what is computed from rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from castgym.data.tariff import PROTOCOL_BUDGET
from castgym.evaluation.rows import ResultRow
from castgym.evaluation.runs import Run, RunConfig, case_ids_digest, open_run

SIGMA = {"electricity": 0.05, "cycle_hire": 0.04}
WEIGHTS = {"electricity-july": 0.5, "cycle-hire-may": 0.5}
FLOOR = 0.02


@dataclass(frozen=True)
class Subject:
    """A case without data."""

    case_id: str
    group_id: str
    domain: str
    family: str
    cohort: str
    number: int


def subjects(groups: int = 4, dates: int = 2) -> list[Subject]:
    """Two domains with a cohort each, so many groups in each, two leads, so many dates."""
    found = []
    for domain, cohort in (("electricity", "electricity-july"), ("cycle_hire", "cycle-hire-may")):
        for group in range(groups):
            for family in ("day_ahead", "week_ahead"):
                for date in range(dates):
                    case_id = f"{domain[0].upper()}{group:03d}-{date}-{family}"
                    found.append(Subject(case_id, f"G{group:03d}", domain, family, cohort, len(found)))
    return found


@dataclass(frozen=True)
class Result:
    """What a policy did on a case: its excess loss, and its credits; no excess stands for an invalid answer."""

    excess: float | None = 0.05
    credits: int = 0
    calls: tuple[dict[str, Any], ...] = ()
    lost: bool = False
    plan: tuple[int, ...] = (0,) * 8


def config_of(policy: str, cases: Sequence[Subject], **changes: Any) -> RunConfig:
    """A configuration over cases; the whole index unless said otherwise."""
    config = RunConfig(
        policy=policy,
        hindsight=False,
        case_set="made-up",
        case_source="memory",
        fingerprint="f" * 64,
        tariff="t" * 64,
        selection={"split": "test"},
        case_ids=case_ids_digest(case.case_id for case in cases),
        n_cases=len(cases),
        whole_index=True,
        cohort_weights=WEIGHTS,
        sigma=SIGMA,
        budget=PROTOCOL_BUDGET,
        pool="full",
        answer_form="decisions",
        prompt_mode="memory",
        repeats=1,
        seed=0,
        version="0",
        options={},
    )
    return replace(config, **changes)


def result_row(case: Subject, result: Result, repeat: int) -> ResultRow:
    """A consistent row."""
    identity = (case.case_id, repeat, case.group_id, case.domain, case.family, case.cohort)
    if result.lost:
        return ResultRow(
            *identity, "infrastructure_error", False, None, None, None, None, None, None, None, None, (), 0.1, "gone"
        )  # type: ignore[arg-type]
    valid = result.excess is not None
    excess = 2.0 if result.excess is None else result.excess
    R = excess / SIGMA[case.domain]
    return ResultRow(
        *identity, "completed" if valid else "invalid_submission", valid, None if valid else "no_complete_json",
        FLOOR + excess, FLOOR, result.credits, R, 0.5 * (R + result.credits / PROTOCOL_BUDGET),
        result.plan if valid else None, None, result.calls, 0.1,
    )  # type: ignore[arg-type]  # fmt: skip


def write_run(
    folder: Path,
    policy: str,
    decide: Callable[[Subject, int], Result],
    cases: Sequence[Subject] | None = None,
    **changes: Any,
) -> Run:
    """Write a run whose result on (case, repeat) is what `decide` says."""
    chosen = subjects() if cases is None else cases
    config = config_of(policy, chosen, **changes)
    path = folder / f"{policy}-{config.digest[:8]}"
    with open_run(path, config) as writer:
        writer.append(
            [result_row(case, decide(case, repeat), repeat) for repeat in range(config.repeats) for case in chosen]
        )
    return Run(path)
