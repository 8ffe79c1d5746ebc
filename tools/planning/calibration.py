"""Sigma: the scale of the excess loss, from a calibration week before the first test decision."""

from collections.abc import Sequence

import numpy as np

from castgym.data.builder import BuiltCases
from castgym.data.errors import DataError
from castgym.data.schema import Case, CaseSet, TargetStore
from castgym.data.tariff import Tariff
from castgym.tools.planning.batch import classical_plans, realized_losses

CALIBRATION_METHOD = "hour_of_day_empirical"


def calibrate_sigma(cases: Sequence[Case], targets: TargetStore) -> dict[str, float]:
    """Mean excess loss of the hour-of-day policy by domain (FWBench section 3.4).

    Args:
        cases: calibration cases.
        targets: their truth.

    Returns:
        Domain -> sigma, rounded to 12 significant digits so that it does not depend on the machine.
    """
    demand = np.stack([targets[case.case_id].actual for case in cases])
    plans, _ = classical_plans(cases, CALIBRATION_METHOD)
    losses, floors = realized_losses(cases, plans, demand)
    excess: dict[str, list[float]] = {}
    for case, value in zip(cases, losses - floors, strict=True):
        excess.setdefault(case.domain, []).append(float(value))
    return {domain: float(f"{np.mean(sorted(values)):.12g}") for domain, values in sorted(excess.items())}


def finish_case_set(built: BuiltCases, tariff: Tariff, models: Sequence[str]) -> CaseSet:
    """Freeze built cases into a case set, with sigma from their calibration split.

    Args:
        built: cases, targets and weights from a builder.
        tariff: rates and budget.
        models: forecasters that agents may buy.

    Raises:
        DataError: a domain has no calibration case.
    """
    calibration = [case for case in built.cases if case.split == "calibration"]
    sigma = calibrate_sigma(calibration, built.targets) if calibration else {}
    lost = sorted({case.domain for case in built.cases} - set(sigma))
    if lost:
        raise DataError(
            f"no calibration case is left for {', '.join(lost)}, so sigma is unknown: "
            "give data that covers the week before the first test decision"
        )
    return CaseSet(
        name=built.name,
        cases=built.cases,
        cohort_weights=built.cohort_weights,
        sigma=sigma,
        tariff=tariff,
        models=tuple(models),
        source=built.source,
        targets_digest=built.targets.digest([case.case_id for case in built.cases]),
    )
