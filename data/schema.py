"""Cases, targets and frozen case sets.

A `Case` is what an agent may know. The truth lives in `Target` objects in a `TargetStore`, which no case and no
case set refers to: whoever scores joins the two by `case_id`.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from castgym.data.contract import TARGET_HOURS, ContractTerms
from castgym.data.errors import ConfigError, DataError
from castgym.data.files import canonical_json, sha256_hex
from castgym.data.frozen import FrozenDict, frozen
from castgym.data.tariff import Tariff

HISTORY_HOURS = 336
"""Hourly observations that a case shows."""

VISIBILITY_LAG = timedelta(hours=3)
"""The last visible hour starts this long before the decision."""

Domain = Literal["electricity", "cycle_hire"]
Family = Literal["day_ahead", "week_ahead"]
Split = Literal["train", "calibration", "test"]

FloatArray = NDArray[np.float64]

LEAD_DAYS: Mapping[Family, int] = MappingProxyType({"day_ahead": 1, "week_ahead": 7})
"""Days from the decision to the start of the target day."""

_HOUR = timedelta(hours=1)
NAME = re.compile(r"\w[\w .:&+-]*")
_LEAST_STEP = 1e-5
"""Smallest step between capacities, physical units: ten times the tolerance of grading."""
_LARGEST = sys.float_info.max


def readonly(values: Any, *, shape: tuple[int, ...], what: str) -> NDArray[np.float64]:
    """A read-only float64 copy of finite values.

    Raises:
        DataError: the shape differs or a value is not finite.
    """
    array = np.array(values, dtype=np.float64)
    if array.shape != shape:
        raise DataError(f"{what}: expected shape {shape}, found {array.shape}")
    if not np.isfinite(array).all():
        raise DataError(f"{what}: expected finite values, found {int((~np.isfinite(array)).sum())} that are not")
    array.flags.writeable = False
    return array


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One decision: 336 visible hours, a target day ahead and a contract.

    Attributes:
        case_id: unique name, such as `AZPS-2026-07-17-week_ahead`.
        group_id: the cluster of the bootstrap: balancing authority or docking station.
        series_id: the name under which the tools know the visible series.
        domain: `electricity` or `cycle_hire`.
        unit: physical unit of demand and capacity, such as `MW`.
        family: `day_ahead` or `week_ahead`.
        cohort: season and domain, such as `electricity-july`.
        split: `train`, `calibration` or `test`.
        timezone: the calendar on which the target is one local day, such as `UTC`.
        as_of: the decision time, UTC.
        target_start: first target hour, UTC.
        history: visible values, shape (336,), physical units, read-only, ending at `last_visible`.
        terms: the contract, in normalised units.
        scale: s, the mean of the history, physical units.
    """

    case_id: str
    group_id: str
    series_id: str
    domain: Domain
    unit: str
    family: Family
    cohort: str
    split: Split
    timezone: str
    as_of: datetime
    target_start: datetime
    history: NDArray[np.float64]
    terms: ContractTerms
    scale: float

    def __post_init__(self) -> None:
        for name in ("case_id", "group_id", "series_id"):
            if not isinstance(getattr(self, name), str) or not NAME.fullmatch(getattr(self, name)):
                raise DataError(
                    f"expected {name} of letters, digits, spaces and . : & + _ -, found {getattr(self, name)!r}: it "
                    "becomes part of prompts and file names"
                )
        for name, allowed in (("domain", Domain), ("family", Family), ("split", Split)):
            if getattr(self, name) not in get_args(allowed):
                raise DataError(
                    f"{self.case_id}: expected {name} to be one of {get_args(allowed)}, found {getattr(self, name)!r}"
                )
        for name in ("as_of", "target_start"):
            value = getattr(self, name)
            if value.tzinfo is None:
                raise DataError(f"{self.case_id}: expected a timezone-aware {name}, found {value}")
            object.__setattr__(self, name, value.astimezone(UTC))
        if self.target_start - self.as_of != timedelta(days=LEAD_DAYS[self.family]):
            raise DataError(f"{self.case_id}: target_start is not {LEAD_DAYS[self.family]} days after as_of")
        object.__setattr__(self, "history", readonly(self.history, shape=(HISTORY_HOURS,), what=self.case_id))
        if self.history.min() < 0:
            raise DataError(f"{self.case_id}: expected demand >= 0, found {self.history.min()}")
        if not (np.isfinite(self.scale) and self.scale > 0):
            raise DataError(f"{self.case_id}: expected a scale > 0, found {self.scale}")
        if self.scale * float(np.min(np.diff(self.terms.grid), initial=1.0)) < _LEAST_STEP:
            raise DataError(
                f"{self.case_id}: with a scale of {self.scale:g} {self.unit} neighbouring capacities are closer than "
                f"{_LEAST_STEP:g}, so answers could not be told apart: state demand in a smaller unit"
            )

    def __deepcopy__(self, memo: Any) -> "Case":
        return self  # nothing in it can change

    def __reduce__(self) -> tuple[Any, ...]:
        # NumPy forgets on pickling that an array is read-only; the constructor remembers.
        return Case, tuple(getattr(self, field.name) for field in fields(self))

    @property
    def last_visible(self) -> datetime:
        """Start of the last hour that the agent may see."""
        return self.as_of - VISIBILITY_LAG

    @property
    def history_start(self) -> datetime:
        """Start of the first visible hour."""
        return self.last_visible - (HISTORY_HOURS - 1) * _HOUR

    @property
    def target_end(self) -> datetime:
        """End of the target day, exclusive."""
        return self.target_start + TARGET_HOURS * _HOUR

    @property
    def expected_horizon(self) -> int:
        """Steps from the first hour after `last_visible` through the last target hour (50 or 194)."""
        return int((self.target_end - self.last_visible) / _HOUR) - 1

    @property
    def history_hours(self) -> pd.DatetimeIndex:
        """Starts of the visible hours, UTC, shape (336,)."""
        return pd.date_range(self.history_start, periods=HISTORY_HOURS, freq="h")

    @property
    def target_hours(self) -> pd.DatetimeIndex:
        """Starts of the target hours, UTC, shape (24,)."""
        return pd.date_range(self.target_start, periods=TARGET_HOURS, freq="h")

    @property
    def digest(self) -> str:
        """Content hash of the case."""
        facts = canonical_json(self.describe()).encode()
        return sha256_hex(facts, self.terms.model_dump_json().encode(), self.history.astype("<f8").tobytes())

    def describe(self) -> dict[str, Any]:
        """Everything but history and terms, as JSON."""
        return {
            "case_id": self.case_id,
            "group_id": self.group_id,
            "series_id": self.series_id,
            "domain": self.domain,
            "unit": self.unit,
            "family": self.family,
            "cohort": self.cohort,
            "split": self.split,
            "timezone": self.timezone,
            "as_of": self.as_of.isoformat(),
            "target_start": self.target_start.isoformat(),
            "scale": self.scale,
        }


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """The demand of a case's target day, shape (24,), physical units, read-only. Never reaches an agent."""

    case_id: str
    actual: NDArray[np.float64]

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "actual", readonly(self.actual, shape=(TARGET_HOURS,), what=f"target of {self.case_id}")
        )

    def __deepcopy__(self, memo: Any) -> "Target":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Target, (self.case_id, self.actual)


class TargetStore(Mapping[str, Target]):
    """Targets by `case_id`, held by scorers only."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._targets = {target.case_id: target for target in targets}
        if len(self._targets) != len(targets):
            raise DataError("expected one target for each case, found duplicates")

    def __getitem__(self, case_id: str) -> Target:
        if case_id not in self._targets:
            raise DataError(f"no target for case {case_id!r}: the targets belong to another case set")
        return self._targets[case_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._targets)

    def __len__(self) -> int:
        return len(self._targets)

    def digest(self, case_ids: Sequence[str]) -> str:
        """Content hash of the targets of some cases, in their order."""
        values = b"".join(self[case_id].actual.astype("<f8").tobytes() for case_id in case_ids)
        return sha256_hex(canonical_json(list(case_ids)).encode(), values)


def _scales(values: Mapping[str, float], what: str, *, positive: bool) -> FrozenDict[float]:
    """A read-only mapping of names to finite numbers, none negative.

    Raises:
        DataError: it is something else.
    """
    if not isinstance(values, Mapping):
        raise DataError(f"expected {what} by name as a JSON object, found {type(values).__name__}")
    least = "> 0" if positive else ">= 0"
    for name, value in values.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not isinstance(name, str) or not is_number or not 0 <= value <= _LARGEST or (positive and value == 0):
            raise DataError(f"expected {what} {least} for {name}, found {value!r}")
    return FrozenDict(values)


@dataclass(frozen=True, eq=False)
class CaseSet:
    """A frozen index of cases with all that scoring them needs, except the truth.

    Attributes:
        name: short name for tables.
        cases: the index, in its frozen order.
        cohort_weights: weight of each cohort in the aggregate, read-only; sums to 1 over the test cohorts.
        sigma: scale of the excess loss of each domain, sigma_j in Eq. (2), read-only.
        tariff: rates and budget.
        models: forecasters that agents may buy, by name.
        source: where the cases come from, JSON, read-only at every level.
        targets_digest: content hash of the targets of the whole set (a sub-index keeps it).
    """

    name: str
    cases: tuple[Case, ...]
    cohort_weights: Mapping[str, float]
    sigma: Mapping[str, float]
    tariff: Tariff
    models: tuple[str, ...]
    source: Mapping[str, Any]
    targets_digest: str
    _positions: Mapping[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        positions = {case.case_id: position for position, case in enumerate(self.cases)}
        if len(positions) != len(self.cases):
            raise DataError("expected unique case ids, found duplicates")
        object.__setattr__(self, "_positions", positions)
        if not isinstance(self.source, Mapping):
            raise DataError(f"expected the source as a JSON object, found {type(self.source).__name__}")
        object.__setattr__(self, "source", frozen(self.source))
        object.__setattr__(self, "sigma", _scales(self.sigma, "sigma", positive=True))
        object.__setattr__(self, "cohort_weights", _scales(self.cohort_weights, "a weight", positive=False))
        tested = {case.cohort for case in self.cases if case.split == "test"}
        if unweighted := ", ".join(sorted(tested - set(self.cohort_weights))):
            raise DataError(f"expected a weight for every cohort with test cases, found none for {unweighted}")
        unpriced = sorted(set(self.models) - set(self.tariff.models))
        if unpriced:
            raise DataError(f"the tariff has no rate for {', '.join(unpriced)}: add rates or leave the model out")
        lost = sorted({case.domain for case in self.cases} - set(self.sigma))
        if lost:
            raise DataError(f"expected sigma for every domain, found none for {', '.join(lost)}")

    def __len__(self) -> int:
        return len(self.cases)

    def __iter__(self) -> Iterator[Case]:
        return iter(self.cases)

    def __contains__(self, case_id: object) -> bool:
        return case_id in self._positions

    def by_id(self, case_id: str) -> Case:
        """The case of that name.

        Raises:
            ConfigError: there is none.
        """
        if case_id not in self._positions:
            raise ConfigError(f"case set {self.name!r} has no case {case_id!r} (it has {len(self)} cases)")
        return self.cases[self._positions[case_id]]

    def where(self, condition: Callable[[Case], bool]) -> "CaseSet":
        """The sub-index of cases that meet a condition. It has a fingerprint of its own.

        Raises:
            ConfigError: no case meets it.
        """
        cases = tuple(case for case in self.cases if condition(case))
        if not cases:
            raise ConfigError(f"no case of {self.name!r} is left by this selection")
        return replace(self, cases=cases)

    def split(self, split: Split) -> "CaseSet":
        """The cases of one split.

        Raises:
            ConfigError: there are none.
        """
        return self.where(lambda case: case.split == split)

    @cached_property
    def fingerprint(self) -> str:
        """Hash that changes when anything in the set changes: a value, a weight, a price, a target."""
        header = {
            "name": self.name,
            "cohort_weights": dict(self.cohort_weights),
            "sigma": dict(self.sigma),
            "tariff": self.tariff.to_json(),
            "models": list(self.models),
            "source": dict(self.source),
            "targets_digest": self.targets_digest,
        }
        parts = [canonical_json(header).encode()]
        terms = {case.terms: case.terms.model_dump_json().encode() for case in self.cases}
        for case in self.cases:
            parts += [canonical_json(case.describe()).encode(), terms[case.terms]]
            parts.append(case.history.astype("<f8").tobytes())
        return sha256_hex(*parts)
