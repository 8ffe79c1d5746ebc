"""What the page shows of every case and every row, in few bytes: numbers in columns, names by number."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from castgym.data.files import iso_utc
from castgym.data.schema import Case
from castgym.envs.casesets import LoadedCases
from castgym.evaluation.report_tables import Report
from castgym.evaluation.rows import ResultRow
from castgym.tools.planning.contract import CapacityContract

RESOLUTION = 1000
"""Steps from 0 to a case's peak in which curves are drawn; a pixel is about 3 of them."""


class Names:
    """Texts by number, each kept once."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """The number of a text."""
        if text not in self._numbers:
            self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return self._numbers[text]


def case_table(report: Report, loaded: LoadedCases | None) -> tuple[dict[str, Any], dict[str, int]]:
    """All cases of a report's runs.

    Args:
        report: from `build_report`.
        loaded: the case set; without it the page has no curves.

    Returns:
        The table, and the position of each case in it.
    """
    rows: dict[str, ResultRow] = {}
    for result in report.results:
        for row in result.run.rows:
            if row.case_id not in rows or rows[row.case_id].floor is None:
                rows[row.case_id] = row
    ids = sorted(rows)
    table: dict[str, Any] = {"id": ids}
    for name in ("group_id", "domain", "family", "cohort"):
        names = Names()
        numbers = [names.number(str(getattr(rows[case_id], name))) for case_id in ids]
        table[name] = {"names": names.texts, "of": numbers}
    table["floor"] = [_rounded(rows[case_id].floor) for case_id in ids]
    if loaded is not None:
        curves = [_curves(loaded.case_set.by_id(case_id), loaded.targets[case_id].actual) for case_id in ids]
        table["curves"] = {name: [curve[name] for curve in curves] for name in curves[0]}
    return table, {case_id: position for position, case_id in enumerate(ids)}


def row_table(report: Report, positions: Mapping[str, int]) -> dict[str, Any]:
    """All rows of a report's runs, policy by policy.

    Args:
        report: from `build_report`.
        positions: position of each case in its table.
    """
    faults, calls = Names(), Names()
    tables = []
    for result in report.results:
        rows = sorted(result.run.rows, key=lambda row: (positions[row.case_id], row.repeat))
        tables.append(
            {
                "case": [positions[row.case_id] for row in rows],
                "repeat": [row.repeat for row in rows],
                "outcome": [row.outcome for row in rows],
                "fault": [-1 if row.fault is None else faults.number(row.fault) for row in rows],
                "loss": [_rounded(row.loss) for row in rows],
                "credits": [row.credits for row in rows],
                "plan": ["" if row.grid_index is None else plan_code(row.grid_index) for row in rows],
                "calls": [[calls.number(_call_text(call)) for call in row.calls] for row in rows],
                "seconds": [round(row.seconds, 2) for row in rows],
            }
        )
    return {"faults": faults.texts, "calls": calls.texts, "of": tables}


def plan_code(index: Sequence[int]) -> str:
    """A plan as text: its grid indices, in base 36."""
    return " ".join(np.base_repr(int(value), 36).lower() for value in index)


def quantised(values: Any, peak: float) -> list[int]:
    """A curve in whole steps of peak / `RESOLUTION`: the first value, then changes."""
    steps = np.rint(np.asarray(values, dtype=np.float64) * (RESOLUTION / peak)).astype(int)
    changes: list[int] = np.diff(steps, prepend=0).tolist()
    return changes


def peak_of(case: Case, actual: Any) -> float:
    """The largest value of a case's curves, or its scale where all are zero."""
    return float(max(case.history.max(), np.max(actual))) or case.scale


def _curves(case: Case, actual: Any) -> dict[str, Any]:
    contract = CapacityContract.of(case)
    peak = peak_of(case, actual)
    return {
        "peak": peak,
        "scale": case.scale,
        "unit": case.unit,
        "last": iso_utc(case.last_visible),
        "target": iso_utc(case.target_start),
        "grid": [round(value, 4) for value in case.terms.grid],
        "block": case.terms.block_hours,
        "weights": list(case.terms.hourly_priority),
        "history": quantised(case.history, peak),
        "actual": quantised(actual, peak),
        "oracle": plan_code(contract.optimize(contract.demand_cost(actual)).tolist()),
    }


def _call_text(call: Mapping[str, Any]) -> str:
    """A call as one line; the series is that of the case."""
    shown = ", ".join(f"{name}={value}" for name, value in call["arguments"].items() if name != "series_id")
    fault = f" [{call['error']}]" if call["error"] else ""
    price = f" -{call['credits']:,}" if call["credits"] else ""
    return f"{call['tool'][:80] or '(unreadable)'}({shown[:200]}){fault}{price}"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
