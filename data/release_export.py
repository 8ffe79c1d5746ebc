"""Write a case set in the published layout of episodes, so that readers of a release can use it."""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from castgym.data.contract_json import contract_to_json
from castgym.data.errors import DataError
from castgym.data.files import folder_atomic, iso_utc
from castgym.data.release import INDEX_FORMAT
from castgym.data.schema import Case, CaseSet, TargetStore
from castgym.data.tariff import PUBLISHED_SUFFIX


def export_release(
    path: Path,
    case_set: CaseSet,
    targets: TargetStore,
    *,
    instruction: Callable[[Case], str],
    max_calls: int,
    tools: Sequence[str],
    licence: str,
    overwrite: bool = False,
) -> None:
    """Write all cases of a case set; read back by `read_release` they are equal.

    Args:
        path: folder to create; it appears whole or not at all.
        case_set: the cases.
        targets: their truth, written apart from the episodes.
        instruction: the task's text of a case.
        max_calls: tool calls of an episode.
        tools: names of the tools.
        licence: licence of the data, for the series records.
        overwrite: replace an existing folder.

    Raises:
        DataError: the folder exists, or the targets are not those of the case set.
    """
    if targets.digest([case.case_id for case in case_set]) != case_set.targets_digest:
        raise DataError("the targets do not match the case set: only a whole case set can be exported")
    if overwrite and path.is_dir() and any(path.iterdir()) and not (path / "episodes").is_dir():
        raise DataError(f"{path} holds something else than a release: it is not replaced; choose another folder")
    with folder_atomic(path, overwrite=overwrite) as folder:
        for case in case_set:
            _write_episode(folder / "episodes" / case.case_id, case, case_set, licence)
            _write_json(
                folder / "episodes" / case.case_id / "task.json",
                {
                    "instruction": instruction(case),
                    "as_of": case.as_of.isoformat(),
                    "max_calls": max_calls,
                    "allowed_tools": list(tools),
                },
            )
            _write_json(
                folder / "reproduction_targets" / f"{case.case_id}.json",
                {
                    "actual": targets[case.case_id].actual.tolist(),
                    "timestamps": [iso_utc(hour) for hour in case.target_hours],
                },
            )
        _write_json(
            folder / "index.json",
            {
                "format": INDEX_FORMAT,
                "name": case_set.name,
                "cohort_weights": dict(case_set.cohort_weights),
                "sigma": dict(case_set.sigma),
                "source": dict(case_set.source),
                "cases": {
                    case.case_id: {
                        "group_id": case.group_id,
                        "domain": case.domain,
                        "cohort": case.cohort,
                        "split": case.split,
                        "timezone": case.timezone,
                    }
                    for case in case_set
                },
            },
        )


def _write_episode(folder: Path, case: Case, case_set: CaseSet, licence: str) -> None:
    rows = zip(case.history_hours, case.history.tolist(), strict=True)
    series = "timestamp,value\n" + "".join(f"{iso_utc(hour)},{value!r}\n" for hour, value in rows)
    content = series.encode()
    path = folder / "series" / f"{case.series_id}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    record = {
        "id": case.series_id,
        "name": f"hourly demand of {case.group_id}",
        "unit": case.unit,
        "frequency": "1h",
        "path": f"series/{case.series_id}.csv",
        "sha256": hashlib.sha256(content).hexdigest(),
        "provenance": json.dumps({"case_set": case_set.name, "kind": case_set.source.get("kind")}),
        "licence": licence,
    }
    _write_json(folder / "catalog.json", {"series": [record]})
    _write_json(folder / "business_contract.json", contract_to_json(case.terms, case.scale, case.unit))
    _write_json(folder / "forecast_budget.json", case_set.tariff.to_json())
    models = [{"name": name + PUBLISHED_SUFFIX} for name in case_set.models]
    _write_json(folder / "probabilistic_forecasts.json", {"models": models})


def _write_json(path: Path, value: object) -> None:
    """Plainly: the whole export is renamed into place at its end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", encoding="utf-8")
