"""Cases from EIA Form 930 hourly electricity demand (FWBench section 4.1).

Files are read as they come (`castgym.data.eia930_files`), joined, screened and cut into cases. Values that are
imputed, adjusted, contradictory, not positive or impossible are unknown, and nothing is filled in.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from castgym.data.builder import BuiltCases, build_cases
from castgym.data.cohorts import FAMILIES, PROTOCOL_COHORTS, Cohort, covers, latest_year, reach, schedule, span
from castgym.data.eia930_files import ABSENT, ADJUSTED_VALUE, CONFLICT, IMPUTED_VALUE, KNOWN, HourlyFile, read_file
from castgym.data.errors import ConfigError, DataError
from castgym.data.schema import Family
from castgym.data.screening import PARAMETERS, list_values, screen_demand

COHORTS: tuple[Cohort, ...] = tuple(cohort for cohort in PROTOCOL_COHORTS if cohort.domain == "electricity")
"""The protocol's electricity cohorts."""

_REFUSED = {IMPUTED_VALUE: "imputed", ADJUSTED_VALUE: "adjusted", CONFLICT: "conflict"}
_HOUR = pd.Timedelta("1h")


def read_eia930(paths: Sequence[Path]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read and join EIA-930 files of either layout.

    Args:
        paths: CSV files, plain or gzip-compressed. Hours that several files hold must agree, else they are refused.

    Returns:
        Demand in MW, shape (T, N): index = consecutive UTC hour starts, columns = authorities in alphabetical order,
        NaN = unknown; and the refused values: columns `series`, `hour`, `value`, `reason` (`imputed`, `adjusted`,
        `conflict`). Authorities without any value are left out.

    Raises:
        DataError: there is no file, or one does not have a documented layout.
    """
    demand, refused, _ = _read(paths)
    return demand, refused


def eia930_cases(
    paths: Sequence[Path],
    *,
    test_year: int | None = None,
    cohorts: Sequence[Cohort] = COHORTS,
    families: Sequence[Family] = FAMILIES,
    authorities: Sequence[str] | None = None,
    train_stride: int = 3,
) -> BuiltCases:
    """Build cases from EIA-930 files.

    Args:
        paths: CSV files of either layout.
        test_year: year of the test cohorts; by default the latest one in which the files cover July and August (or,
            with other `cohorts`, all of them).
        cohorts: test cohorts; one that the files do not cover in the test year is left out and named in the source.
        families: leads.
        authorities: codes to keep; by default all.
        train_stride: days between train dates.

    Raises:
        DataError: a file is not as documented, or the files cover no cohort.
        ConfigError: an authority is not in the files, or options do not fit together.
    """
    demand, refused, files = _read(paths)
    if authorities is not None:
        if unknown := [name for name in authorities if name not in demand.columns]:
            raise ConfigError(f"no authority {', '.join(unknown)} in the files; found {', '.join(demand.columns)}")
        demand = demand[list(dict.fromkeys(authorities))]
        refused = refused[refused["series"].isin(demand.columns)]
    hours = pd.DatetimeIndex(demand.index)
    absent = int(demand.isna().to_numpy().sum()) - len(refused)
    first, end = hours[0].to_pydatetime(), (hours[-1] + _HOUR).to_pydatetime()
    year = _latest_year(cohorts, first, end, families) if test_year is None else test_year
    covered = [cohort for cohort in cohorts if covers(cohort, year, first, end, families=families)]
    if not covered:
        raise DataError(
            f"the files cover {span(first, end)} and no cohort of {year}: each needs {reach(cohorts, families)}"
        )
    screened, screen_list = screen_demand(demand)
    source: dict[str, Any] = {
        "kind": "eia930",
        "files": [{"name": file.name, "sha256": file.sha256} for file in files],
        "options": {
            "test_year": year,
            "cohorts": {cohort.name: list(cohort.days) for cohort in covered},
            "families": list(families),
            "authorities": list(demand.columns),
            "train_stride": train_stride,
        },
        "left_out_cohorts": [cohort.name for cohort in cohorts if cohort not in covered],
        "screen": dict(PARAMETERS),
        "unknown_hours": {
            "absent": absent,
            **Counter(refused["reason"].tolist()),
            **Counter(screen_list["reason"].tolist()),
        },
    }
    decisions = schedule(year, covered, data_start=first, families=families, train_stride=train_stride)
    return build_cases(
        screened,
        decisions,
        name=f"eia930-{year}",
        domains=dict.fromkeys(demand.columns, "electricity"),
        source=source,
        cohorts=covered,
    )


def _read(paths: Sequence[Path]) -> tuple[pd.DataFrame, pd.DataFrame, list[HourlyFile]]:
    if not paths:
        raise DataError("expected at least one EIA-930 file, found none")
    files = [read_file(Path(path)) for path in paths]
    series = sorted({name for file in files for name in file.series})
    start = min(file.start for file in files)
    end = max(file.start + len(file.values) * _HOUR for file in files)
    hours = pd.date_range(start, end, freq="h", inclusive="left")
    values = np.full((len(hours), len(series)), np.nan)
    marks = np.zeros(values.shape, dtype=np.int8)
    for file in files:
        rows = slice((first := (file.start - start) // _HOUR), first + len(file.values))
        columns = np.searchsorted(series, file.series)
        values[rows, columns], marks[rows, columns] = _join(
            values[rows, columns], marks[rows, columns], file.values, file.marks
        )
    kept = (marks != ABSENT).any(axis=0)
    if not kept.any():
        raise DataError("expected reported demand, found none in any file")
    names = [name for name, keep in zip(series, kept, strict=True) if keep]
    reported = pd.DataFrame(values[:, kept], index=hours, columns=names)
    marks = marks[:, kept]
    refused = list_values(reported, [(reason, marks == mark) for mark, reason in _REFUSED.items()])
    return reported.where(marks == KNOWN), refused, files


def _join(
    old: NDArray[np.float64], old_marks: NDArray[np.int8], new: NDArray[np.float64], new_marks: NDArray[np.int8]
) -> tuple[NDArray[np.float64], NDArray[np.int8]]:
    """Values of two sources: what only one reports is taken, what both report must agree."""
    both = (old_marks != ABSENT) & (new_marks != ABSENT)
    fresh = old_marks == ABSENT
    marks = np.where(fresh, new_marks, old_marks)
    marks[both & ((old != new) | (old_marks != new_marks))] = CONFLICT
    return np.where(fresh, new, old), marks


def _latest_year(cohorts: Sequence[Cohort], first: datetime, end: datetime, families: Sequence[Family]) -> int:
    """The latest year with a whole summer; other cohorts only count where there is no summer cohort."""
    summer = [cohort for cohort in cohorts if cohort.month in (7, 8)]
    return latest_year(summer or cohorts, first, end, families=families)
