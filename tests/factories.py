"""Small real objects for tests: cases, case sets and a forecaster that can be told to fail."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from castgym.data.contract import protocol_terms
from castgym.data.schema import LEAD_DAYS, Case, CaseSet, Target, TargetStore
from castgym.data.tariff import OFFLINE_TARIFF, Tariff
from castgym.envs.casesets import LoadedCases
from castgym.envs.episode import Episode, EpisodeConfig
from castgym.tools.forecasters.base import QUANTILE_LEVELS, FloatArray, ForecasterInfo
from castgym.tools.forecasters.pool import ForecasterEntry, ForecasterPool, default_entries

AS_OF = datetime(2026, 7, 17, tzinfo=UTC)


def demand(seed: int, hours: int) -> np.ndarray:
    """Hourly demand with a daily and a weekly shape, and noise."""
    rng = np.random.default_rng(seed)
    t = np.arange(hours)
    shape = 1000 + 200 * np.sin(2 * np.pi * t / 24) + 60 * np.cos(2 * np.pi * t / 168)
    return (shape + rng.normal(0, 30, hours)).round(1)


def make_case(seed: int = 0, family: str = "day_ahead", **changes: Any) -> Case:
    """A case on simulated demand."""
    history = demand(seed, 336)
    target_start = AS_OF + timedelta(days=LEAD_DAYS[family])  # type: ignore[index]
    fields: dict[str, Any] = {
        "case_id": f"TEST{seed:02d}-2026-07-17-{family}",
        "group_id": f"TEST{seed:02d}",
        "series_id": f"TEST{seed:02d}",
        "domain": "electricity",
        "unit": "MW",
        "family": family,
        "cohort": "electricity-july",
        "split": "test",
        "timezone": "UTC",
        "as_of": AS_OF,
        "target_start": target_start,
        "history": history,
        "terms": protocol_terms(target_start.date()),
        "scale": float(history.mean()),
    }
    return Case(**{**fields, **changes})


def make_target(case: Case, seed: int = 0) -> Target:
    """The continuation of `make_case`'s demand."""
    return Target(case.case_id, demand(seed, 336 + case.expected_horizon)[-24:])


def make_loaded(
    cases: Sequence[Case] | None = None,
    *,
    tariff: Tariff = OFFLINE_TARIFF,
    models: Sequence[str] = ("seasonal_empirical",),
) -> LoadedCases:
    """A case set in memory with its targets."""
    if cases is None:
        cases = [make_case(seed, family) for seed in range(3) for family in ("day_ahead", "week_ahead")]
    targets = TargetStore([make_target(case, seed) for seed, case in enumerate(cases)])
    case_set = CaseSet(
        name="test-cases",
        cases=tuple(cases),
        cohort_weights=dict.fromkeys(sorted({case.cohort for case in cases}), 1.0),
        sigma={case.domain: 0.05 for case in cases},
        tariff=tariff,
        models=tuple(models),
        source={"kind": "test"},
        targets_digest=targets.digest([case.case_id for case in cases]),
    )
    return LoadedCases(case_set, targets, "memory")


class ScriptedForecaster:
    """A forecaster whose behaviour a test chooses; it records every context that it is given."""

    info = ForecasterInfo("scripted", "For tests.", min_context=2)

    def __init__(self, fail: bool = False, value: float = 1000.0) -> None:
        self.fail = fail
        self.value = value
        self.contexts: list[FloatArray] = []

    def predict(self, context: FloatArray, horizon: int) -> FloatArray:
        self.contexts.append(context.copy())
        if self.fail:
            raise OSError("the backend went away")
        steps = self.value + np.asarray(QUANTILE_LEVELS)
        return np.broadcast_to(steps, (len(context), horizon, len(QUANTILE_LEVELS)))


def scripted_pool(forecaster: ScriptedForecaster) -> ForecasterPool:
    """The shipped forecasters and a scripted one."""
    return ForecasterPool((*default_entries(), ForecasterEntry(forecaster.info, lambda: forecaster)))


SCRIPTED_TARIFF = OFFLINE_TARIFF.with_rates(OFFLINE_TARIFF.renamed("chronos_bolt_tiny", "scripted"))


def make_episode(
    case: Case | None = None,
    pool: ForecasterPool | None = None,
    ledger_path: Path | None = None,
    **conditions: Any,
) -> Episode:
    """An episode with `seasonal_empirical` and a scripted model on sale."""
    fields: dict[str, Any] = {
        "sigma": 0.05,
        "tariff": SCRIPTED_TARIFF,
        "models": ("seasonal_empirical", "scripted"),
        **conditions,
    }
    return Episode(
        case or make_case(), EpisodeConfig(**fields), pool or scripted_pool(ScriptedForecaster()), ledger_path
    )


__all__ = [
    "AS_OF",
    "SCRIPTED_TARIFF",
    "ScriptedForecaster",
    "demand",
    "make_case",
    "make_episode",
    "make_loaded",
    "make_target",
    "scripted_pool",
]
