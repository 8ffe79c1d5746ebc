"""Run folders of real plans over a small world of cases, for tests of reports."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import numpy as np

from castgym.data.contract import protocol_terms
from castgym.data.files import canonical_json, sha256_hex
from castgym.data.schema import HISTORY_HOURS, LEAD_DAYS, Case, CaseSet, Domain, Family, Target, TargetStore
from castgym.data.tariff import PROTOCOL_TARIFF, Tariff
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


def base_runs(folder: Path) -> list[Run]:
    """Five runs: three ranked policies of different skill, one that buys, and a reference with hindsight."""
    return [
        write_run(folder, "weekday_empirical", classical("weekday_empirical")),
        write_run(folder, "hour_of_day_empirical", classical("hour_of_day_empirical")),
        write_run(folder, "often_invalid", often_invalid),
        write_run(folder, "buyer", classical("hour_of_day_empirical", spent=8452)),
        write_run(folder, "perfect_demand", perfect, hindsight=True),
    ]
