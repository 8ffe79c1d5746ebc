"""From a demand table and a schedule to cases, targets and the list of what was left out.

A window is left out only for the quality of its record: an hour of its history or of its target day is unknown
(absent, imputed, adjusted, screened) or lies outside the table, an electricity value is not positive, or a complete
local day of a cycle-hire history has no departure (FWBench section 4.1). No value of demand decides otherwise.
"""

import csv
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from castgym.data.cohorts import PROTOCOL_COHORTS, UNITS, Cohort, DecisionDate, cohort_weights
from castgym.data.contract import TARGET_HOURS, protocol_terms
from castgym.data.errors import ConfigError, DataError
from castgym.data.schema import HISTORY_HOURS, Case, Domain, Family, Split, Target, TargetStore

Reason = Literal[
    "outside_data",
    "history_unknown",
    "target_unknown",
    "history_nonpositive",
    "target_nonpositive",
    "empty_local_day",
]
"""Why a window was left out; where several reasons hold, the first of this list is named."""

REASONS: tuple[Reason, ...] = get_args(Reason)


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A window that became no case.

    Attributes:
        case_id: the id that the case would have had.
        group_id: balancing authority or docking station.
        family: `day_ahead` or `week_ahead`.
        cohort: name of season and domain.
        split: `train`, `calibration` or `test`.
        as_of: decision time, UTC.
        reason: why.
        count: hours (`empty_local_day`: days) to which the reason applies.
    """

    case_id: str
    group_id: str
    family: Family
    cohort: str
    split: Split
    as_of: datetime
    reason: Reason
    count: int


@dataclass(frozen=True, eq=False)
class BuiltCases:
    """Cases as built, before prices and sigma make them a `CaseSet`.

    Attributes:
        name: short name for tables.
        cases: in the order of the schedule (train, calibration, test), then of the table's columns.
        targets: the truth of all cases.
        exclusions: windows left out, in the same order.
        cohort_weights: weights of the test cohorts present; they sum to 1.
        source: provenance, JSON.
    """

    name: str
    cases: tuple[Case, ...]
    targets: TargetStore
    exclusions: tuple[Exclusion, ...]
    cohort_weights: Mapping[str, float]
    source: Mapping[str, Any]


def build_cases(
    demand: pd.DataFrame,
    decisions: Sequence[DecisionDate],
    *,
    name: str,
    domains: Mapping[str, Domain],
    source: Mapping[str, Any],
    cohorts: Sequence[Cohort] = PROTOCOL_COHORTS,
    units: Mapping[Domain, str] = UNITS,
) -> BuiltCases:
    """Cut every decision's window out of every series of its domain.

    Args:
        demand: wide table, shape (T, N), physical units: index = consecutive UTC hour starts, columns = series names
            (they become `group_id`, `series_id` and the start of the case id), NaN = unknown.
        decisions: from `castgym.data.cohorts.schedule`; those of one domain share a calendar.
        name: short name of the result.
        domains: the domain of each column.
        source: provenance, JSON; the counts of cases and exclusions are added.
        cohorts: test cohorts with their weights.
        units: unit of each domain's values.

    Raises:
        DataError: the table has another form, or no test case is left.
        ConfigError: a column has no domain.
    """
    check_demand(demand)
    if missing := [str(column) for column in demand.columns if column not in domains]:
        raise ConfigError(f"expected a domain for every column, found none for {', '.join(missing)}")
    kept: list[tuple[int, Case, Target]] = []
    exclusions: list[tuple[int, Exclusion]] = []
    for domain in dict.fromkeys(decision.domain for decision in decisions):
        table = demand[[column for column in demand.columns if domains[column] == domain]]
        numbered = [(number, decision) for number, decision in enumerate(decisions) if decision.domain == domain]
        cut = _cut(table, domain, units[domain], [row for _, row in numbered])
        for (number, _), rows in zip(numbered, cut, strict=True):
            for row in rows:
                if isinstance(row, Exclusion):
                    exclusions.append((number, row))
                else:
                    kept.append((number, *row))
    kept.sort(key=lambda numbered: numbered[0])
    exclusions.sort(key=lambda numbered: numbered[0])
    cases, targets = [case for _, case, _ in kept], [target for _, _, target in kept]
    return _collect(name, cases, targets, [row for _, row in exclusions], source, cohorts)


def exclusions_csv(built: BuiltCases) -> str:
    """The windows left out, as CSV text with a header: one row an `Exclusion`."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(("case_id", "group_id", "family", "cohort", "split", "as_of", "reason", "count"))
    for row in built.exclusions:
        writer.writerow(
            (row.case_id, row.group_id, row.family, row.cohort, row.split, row.as_of.isoformat(), row.reason, row.count)
        )
    return stream.getvalue()


def summary(built: BuiltCases) -> pd.DataFrame:
    """Counts by split, domain and cohort.

    Returns:
        One row a split and cohort, train first: columns `split`, `cohort`, `series` (with a case), `cases`,
        `excluded` and one column for each reason that occurs.
    """
    kept = Counter((case.split, case.cohort) for case in built.cases)
    left_out = Counter((row.split, row.cohort) for row in built.exclusions)
    reasons = Counter((row.split, row.cohort, row.reason) for row in built.exclusions)
    groups: dict[tuple[str, str], set[str]] = {}
    for case in built.cases:
        groups.setdefault((case.split, case.cohort), set()).add(case.group_id)
    occurring = [reason for reason in REASONS if any(row.reason == reason for row in built.exclusions)]
    order = {split: place for place, split in enumerate(get_args(Split))}
    keys = sorted(dict.fromkeys([*kept, *left_out]), key=lambda key: order[key[0]])
    return pd.DataFrame(
        [
            {
                "split": key[0],
                "cohort": key[1],
                "series": len(groups.get(key, ())),
                "cases": kept[key],
                "excluded": left_out[key],
                **{reason: reasons[(*key, reason)] for reason in occurring},
            }
            for key in keys
        ]
    )


def check_demand(demand: pd.DataFrame) -> None:
    """Check the form that `build_cases` reads.

    Raises:
        DataError: says what differs.
    """
    index = demand.index
    if not isinstance(index, pd.DatetimeIndex) or str(index.tz) != "UTC":
        raise DataError(f"expected a DatetimeIndex in UTC, found {type(index).__name__} {getattr(index, 'tz', '')}")
    if not len(index) or not len(demand.columns):
        raise DataError(f"expected hours and series, found a table of shape {demand.shape}")
    if index[0] != index[0].floor("h") or not (index[1:] - index[:-1] == pd.Timedelta("1h")).all():
        raise DataError("expected consecutive full hours in the index: reindex the table, with NaN for unknown hours")
    if not demand.columns.is_unique or not all(isinstance(column, str) and column for column in demand.columns):
        raise DataError("expected unique, non-empty names of series as columns")
    if not all(dtype == np.float64 for dtype in demand.dtypes):
        raise DataError(f"expected float64 columns, found {sorted({str(dtype) for dtype in demand.dtypes})}")
    if np.isinf(demand.to_numpy()).any():
        raise DataError("expected finite demand or NaN (unknown), found infinite values")


def _collect(
    name: str,
    cases: list[Case],
    targets: list[Target],
    exclusions: list[Exclusion],
    source: Mapping[str, Any],
    cohorts: Sequence[Cohort],
) -> BuiltCases:
    present = {case.cohort for case in cases if case.split == "test"}
    if not present:
        reasons = Counter(row.reason for row in exclusions if row.split == "test")
        found = ", ".join(f"{reason} {count}" for reason, count in reasons.items())
        raise DataError(
            f"no test case is left of {reasons.total()} windows ({found or 'no series'}): give data that cover the "
            "test dates, the 14 days before and the 8 days after them, or choose another test year"
        )
    counts = {
        "cases": dict(Counter(case.split for case in cases)),
        "excluded": dict(Counter(row.reason for row in exclusions)),
    }
    return BuiltCases(
        name=name,
        cases=tuple(cases),
        targets=TargetStore(targets),
        exclusions=tuple(exclusions),
        cohort_weights=cohort_weights(present, cohorts),
        source={**source, "counts": counts},
    )


def _cut(
    table: pd.DataFrame, domain: Domain, unit: str, decisions: Sequence[DecisionDate]
) -> Iterator[list[tuple[Case, Target] | Exclusion]]:
    """The windows of each decision, in the order of the columns."""
    values = np.ascontiguousarray(table.to_numpy().T)
    hours = pd.DatetimeIndex(table.index)
    history, target = _starts(hours, decisions)
    problems = _problems(values, hours, domain, decisions[0].timezone, history, target)
    first_problem = np.where(problems.any(axis=0), (problems > 0).argmax(axis=0), -1)
    terms = cache(protocol_terms)
    for row, decision in enumerate(decisions):
        found: list[tuple[Case, Target] | Exclusion] = []
        for column, series in enumerate(table.columns):
            case_id = f"{series}-{decision.label}-{decision.family}"
            problem = int(first_problem[row, column])
            if problem >= 0:
                found.append(
                    Exclusion(
                        case_id,
                        series,
                        decision.family,
                        decision.cohort,
                        decision.split,
                        decision.as_of,
                        REASONS[problem],
                        int(problems[problem, row, column]),
                    )
                )
                continue
            visible = values[column, history[row] : history[row] + HISTORY_HOURS]
            case = Case(
                case_id=case_id,
                group_id=series,
                series_id=series,
                domain=domain,
                unit=unit,
                family=decision.family,
                cohort=decision.cohort,
                split=decision.split,
                timezone=decision.timezone,
                as_of=decision.as_of,
                target_start=decision.target_start,
                history=visible,
                terms=terms(decision.target_date),
                scale=float(visible.mean()),
            )
            found.append((case, Target(case_id, values[column, target[row] : target[row] + TARGET_HOURS])))
        yield found


def _starts(index: pd.DatetimeIndex, decisions: Sequence[DecisionDate]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions of the first history hour and of the first target hour, each of shape (D,)."""
    first = index[0].to_pydatetime()
    hours = [
        (
            (decision.history_start - first).total_seconds() / 3600,
            (decision.target_start - first).total_seconds() / 3600,
        )
        for decision in decisions
    ]
    history, target = np.asarray(hours, dtype=np.float64).round().astype(np.int64).T
    return history, target


def _problems(
    values: NDArray[np.float64],
    index: pd.DatetimeIndex,
    domain: Domain,
    timezone: str,
    history: NDArray[np.int64],
    target: NDArray[np.int64],
) -> NDArray[np.int64]:
    """How often each of `REASONS` applies to a window, shape (6, D, N)."""
    counts = np.zeros((len(REASONS), len(history), len(values)), dtype=np.int64)
    too_early = np.clip(-history, 0, HISTORY_HOURS)
    too_late = np.clip(target + TARGET_HOURS - values.shape[1], 0, TARGET_HOURS)
    counts[0] = (too_early + too_late)[:, None]
    windows = ((history, HISTORY_HOURS), (target, TARGET_HOURS))
    for place, (start, width) in enumerate(windows):
        counts[1 + place] = _count(np.isnan(values), start, start + width)
    if domain == "electricity":
        for place, (start, width) in enumerate(windows):
            counts[3 + place] = _count(values <= 0, start, start + width)
    else:
        if (values < 0).any():
            raise DataError("expected counts of departures >= 0, found negative values")
        counts[5] = _empty_days(values, index, timezone, history)
    return counts


def _count(flags: NDArray[np.bool_], start: NDArray[np.int64], stop: NDArray[np.int64]) -> NDArray[np.int64]:
    """Flags set in [start, stop), shape (D, N), by differences of cumulative sums; outside the table none is set."""
    cumulative = np.zeros((flags.shape[1] + 1, len(flags)), dtype=np.int64)
    np.cumsum(flags.T, axis=0, out=cumulative[1:])
    last = flags.shape[1]
    return cumulative[np.clip(stop, 0, last)] - cumulative[np.clip(start, 0, last)]


def _empty_days(
    values: NDArray[np.float64], index: pd.DatetimeIndex, timezone: str, history: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Complete local days without a departure in each history, shape (D, N)."""
    local = index.tz_convert(timezone).tz_localize(None)  # some calendars skip midnight where clocks change
    local_days = local.normalize()
    borders = np.flatnonzero(np.concatenate([[True], local_days[1:] != local_days[:-1]]))
    totals = np.add.reduceat(np.nan_to_num(values), borders, axis=1)
    ends = np.append(borders[1:], len(index))
    empty = totals == 0
    if local[0] != local_days[0]:
        empty[:, 0] = False  # the table begins within this day
    if (end := local[-1] + pd.Timedelta("1h")) != end.normalize():
        empty[:, -1] = False  # the table ends within this day
    first = np.searchsorted(borders, history, side="left")
    stop = np.searchsorted(ends, history + HISTORY_HOURS, side="right")
    return _count(empty, first, np.maximum(first, stop))
