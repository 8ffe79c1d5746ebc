"""Case sets on disk: a folder with a manifest, the visible part and, apart from it, the targets.

manifest.json           name, weights, sigma, tariff, models, source, contracts, hashes
cases.jsonl             one case a line, without its history
history.npy             (N, 336) float64
targets/actual.npy      (N, 24) float64, the truth; only scorers open this folder
exclusions.csv          windows that were left out, with the reason (where a builder wrote one)
"""

import io
import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from castgym.data.contract import TARGET_HOURS, ContractTerms
from castgym.data.errors import DataError
from castgym.data.files import folder_atomic, read_json, sha256_hex, write_json_atomic, write_text_atomic
from castgym.data.schema import HISTORY_HOURS, Case, CaseSet, Target, TargetStore
from castgym.data.tariff import Tariff

FORMAT = 1
"""Version of the folder's layout."""


def save_case_set(
    path: Path,
    case_set: CaseSet,
    targets: TargetStore,
    *,
    exclusions: str | None = None,
    overwrite: bool = False,
) -> None:
    """Write a case set and its targets; the folder appears whole or not at all.

    Args:
        path: folder to create.
        case_set: the index.
        targets: the truth; its digest must be the case set's.
        exclusions: text of `exclusions.csv`.
        overwrite: replace an existing folder.

    Raises:
        DataError: the folder exists, or the targets are not those of the case set.
    """
    case_ids = [case.case_id for case in case_set]
    if targets.digest(case_ids) != case_set.targets_digest:
        raise DataError("the targets do not match the case set's digest: they belong to another set")
    if overwrite and path.is_dir() and any(path.iterdir()) and not (path / "manifest.json").is_file():
        raise DataError(f"{path} holds something else than a case set: it is not replaced; choose another folder")
    terms = list(dict.fromkeys(case.terms for case in case_set))
    number = {term: position for position, term in enumerate(terms)}
    rows = [json.dumps({**case.describe(), "contract": number[case.terms]}) for case in case_set]
    text = "".join(row + "\n" for row in rows)
    history = _npy(np.stack([case.history for case in case_set]) if case_ids else np.empty((0, HISTORY_HOURS)))
    actual = _npy(np.stack([targets[case_id].actual for case_id in case_ids]))
    with folder_atomic(path, overwrite=overwrite) as folder:
        write_text_atomic(folder / "cases.jsonl", text)
        (folder / "history.npy").write_bytes(history)
        (folder / "targets").mkdir()
        (folder / "targets" / "actual.npy").write_bytes(actual)
        if exclusions is not None:
            write_text_atomic(folder / "exclusions.csv", exclusions)
        write_json_atomic(
            folder / "manifest.json",
            {
                "format": FORMAT,
                "name": case_set.name,
                "fingerprint": case_set.fingerprint,
                "n_cases": len(case_set),
                "cohort_weights": dict(case_set.cohort_weights),
                "sigma": dict(case_set.sigma),
                "tariff": case_set.tariff.to_json(),
                "models": list(case_set.models),
                "source": dict(case_set.source),
                "targets_digest": case_set.targets_digest,
                "contracts": [term.model_dump(mode="json") for term in terms],
                "sha256": {"cases.jsonl": sha256_hex(text.encode()), "history.npy": sha256_hex(history)},
            },
        )


def load_case_set(path: Path) -> CaseSet:
    """Read the visible part of a case set; the targets are not opened.

    Args:
        path: a folder written by `save_case_set`.

    Raises:
        DataError: the folder is no case set, a file was changed or damaged, or a field is invalid.
    """
    manifest = _manifest(path)
    text, history_bytes = _verified(path, manifest, "cases.jsonl"), _verified(path, manifest, "history.npy")
    try:
        history = _array(history_bytes, HISTORY_HOURS)
        terms = [ContractTerms.model_validate(term) for term in manifest["contracts"]]
        rows = [json.loads(line) for line in text.decode().splitlines()]
        if len(rows) != len(history):
            raise DataError(f"{path}: {len(rows)} cases but {len(history)} histories")
        cases = tuple(_case(row, values, terms) for row, values in zip(rows, history, strict=True))
        case_set = CaseSet(
            name=manifest["name"],
            cases=cases,
            cohort_weights=manifest["cohort_weights"],
            sigma=manifest["sigma"],
            tariff=Tariff.from_json(manifest["tariff"]),
            models=tuple(manifest["models"]),
            source=manifest["source"],
            targets_digest=manifest["targets_digest"],
        )
    except DataError:
        raise
    except (KeyError, TypeError, IndexError, ValueError, AttributeError, RecursionError) as error:
        raise DataError(f"{path} is not a valid case set: {error!r}; build it again") from error
    if case_set.fingerprint != manifest.get("fingerprint"):
        raise DataError(f"{path}: the manifest was changed after it was written; build the case set again")
    return case_set


def load_targets(path: Path, case_set: CaseSet) -> TargetStore:
    """Read the targets that belong to a loaded case set.

    Raises:
        DataError: they are missing, damaged or belong to another set.
    """
    try:
        actual = _array((path / "targets" / "actual.npy").read_bytes(), TARGET_HOURS)
    except OSError as error:
        raise DataError(f"expected the targets in {path / 'targets' / 'actual.npy'}: {error}") from error
    if len(actual) != len(case_set):
        raise DataError(f"{path}: {len(case_set)} cases but {len(actual)} targets")
    targets = TargetStore(
        [Target(case.case_id, values) for case, values in zip(case_set, actual, strict=True)],
    )
    if targets.digest([case.case_id for case in case_set]) != case_set.targets_digest:
        raise DataError(f"{path}: the targets were changed after the case set was written; build it again")
    return targets


def _case(row: Mapping[str, Any], history: NDArray[np.float64], terms: list[ContractTerms]) -> Case:
    fields = dict(row)
    return Case(
        **{
            **{name: value for name, value in fields.items() if name != "contract"},
            "as_of": datetime.fromisoformat(fields["as_of"]),
            "target_start": datetime.fromisoformat(fields["target_start"]),
        },
        history=history,
        terms=terms[fields["contract"]],
    )


def _manifest(path: Path) -> dict[str, Any]:
    if not (path / "manifest.json").is_file():
        raise DataError(
            f"{path} is no case set: expected a folder with manifest.json, cases.jsonl, history.npy and targets/ "
            "(build one with `castgym data simulate` or `castgym data eia930`)"
        )
    manifest = read_json(path / "manifest.json")
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        found = manifest.get("format") if isinstance(manifest, dict) else type(manifest).__name__
        raise DataError(f"{path}: expected a case set of format {FORMAT}, found {found!r}; build it again")
    return manifest


def _verified(path: Path, manifest: Mapping[str, Any], name: str) -> bytes:
    try:
        content = (path / name).read_bytes()
    except OSError as error:
        raise DataError(f"{path}: expected the file {name}: {error}") from error
    hashes = manifest.get("sha256")
    if not isinstance(hashes, dict) or sha256_hex(content) != hashes.get(name):
        raise DataError(f"{path}: {name} does not match its hash in the manifest; build the case set again")
    return content


def _npy(values: NDArray[np.float64]) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values.astype("<f8"), allow_pickle=False)
    return stream.getvalue()


def _array(content: bytes, width: int) -> NDArray[np.float64]:
    try:
        array = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError, OSError, KeyError, OverflowError, MemoryError, SyntaxError) as error:
        raise DataError(f"expected a NumPy array file: {error}") from error
    if not isinstance(array, np.ndarray) or array.dtype != np.dtype("<f8"):
        raise DataError("expected a NumPy array file of float64 values")
    if array.ndim != 2 or array.shape[1] != width:
        raise DataError(f"expected an array of shape (N, {width}), found {array.shape}")
    return np.asarray(array, dtype=np.float64)
