"""The published layout of episodes: read a release, from a folder or a hub, into a case set.

    episodes/<case_id>/catalog.json                  series records: id, unit, sha256, provenance, licence
    episodes/<case_id>/series/<id>.csv               timestamp,value: the 336 visible hours
    episodes/<case_id>/business_contract.json        scale, capacity grid and terms (generic or legacy names)
    episodes/<case_id>/forecast_budget.json          budget and rates
    episodes/<case_id>/probabilistic_forecasts.json  the models on sale
    episodes/<case_id>/task.json                     instruction, as_of, max_calls, allowed_tools
    reproduction_targets/<case_id>.json              actual (24 values) and timestamps
    index.json                                       written by castgym: what the files above do not say

A release without `index.json` gets the published weights and sigma; domain, family, cohort and cluster follow from the
unit, the times and the case id.
"""

import csv
import hashlib
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from castgym.data.cache import cache_folder
from castgym.data.cohorts import CALENDARS, PROTOCOL_COHORTS, UNITS, cohort_name, cohort_weights
from castgym.data.contract import TARGET_HOURS
from castgym.data.contract_json import contract_from_json
from castgym.data.errors import DataError
from castgym.data.files import read_json
from castgym.data.schema import (
    HISTORY_HOURS,
    LEAD_DAYS,
    NAME,
    VISIBILITY_LAG,
    Case,
    CaseSet,
    Domain,
    Family,
    FloatArray,
    Target,
    TargetStore,
)
from castgym.data.tariff import PUBLISHED_SUFFIX, Tariff

INDEX_FORMAT = 1
"""Version of `index.json`."""

PUBLISHED_SIGMA: Mapping[str, float] = MappingProxyType(
    {"electricity": 0.054206794827132906, "cycle_hire": 0.04340576638915502}
)
"""Scale of the excess loss in the published benchmark (protocol, objective)."""

_DOMAINS: Mapping[str, Domain] = MappingProxyType({unit: domain for domain, unit in UNITS.items()})

_GROUP = re.compile(r"(.+)-\d{4}-\d{2}-\d{2}-(day_ahead|week_ahead)")
_HOUR = timedelta(hours=1)


def read_release(root: Path) -> tuple[CaseSet, TargetStore]:
    """Read every episode of a release with its target.

    Args:
        root: folder that holds `episodes/` and `reproduction_targets/`.

    Raises:
        DataError: a file is missing or damaged, does not match its sha256, leaves its episode's folder, or contradicts
            another one.
    """
    folders = sorted(path for path in (root / "episodes").glob("*") if path.is_dir())
    if not folders:
        raise DataError(f"{root} is no release: expected folders episodes/<case_id>/ and reproduction_targets/")
    index = _index(root / "index.json")
    if index is not None:
        if wrong := [name for name in index["cases"] if not NAME.fullmatch(name)]:
            raise DataError(f"{root / 'index.json'}: expected case ids, found {wrong[0]!r}")
        folders = [root / "episodes" / name for name in index["cases"]]
    episodes = [_Episode(folder) for folder in folders]
    tariff, models = _common(episodes)
    cases, targets = [], []
    for episode in episodes:
        target_start, target = _target(root / "reproduction_targets" / f"{episode.case_id}.json", episode.case_id)
        cases.append(episode.case(target_start, index["cases"][episode.case_id] if index else {}))
        targets.append(target)
    store = TargetStore(targets)
    present = [case.cohort for case in cases if case.split == "test"]
    try:
        case_set = CaseSet(
            name=index["name"] if index else root.name,
            cases=tuple(cases),
            cohort_weights=index["cohort_weights"] if index else cohort_weights(present, PROTOCOL_COHORTS),
            sigma=index["sigma"] if index else {case.domain: PUBLISHED_SIGMA[case.domain] for case in cases},
            tariff=tariff,
            models=models,
            source=index["source"] if index else {"kind": "release", "name": root.name},
            targets_digest=store.digest([case.case_id for case in cases]),
        )
    except (DataError, RecursionError) as error:
        raise DataError(f"{root}: {error}") from error
    return case_set, store


def fetch_release(source: str, revision: str | None = None) -> Path:
    """The folder of a release: a local one, or one that is downloaded from the Hugging Face hub.

    Args:
        source: a folder, or a data set id such as `org/name`.
        revision: branch, tag or commit of the data set.

    Raises:
        DataError: it is neither, the package is missing, or the download failed.
    """
    path = Path(source)
    if path.is_dir():
        return path
    if path.exists() or not re.fullmatch(r"[\w.-]+/[\w.-]+", source):
        raise DataError(f"expected a folder or a hub id such as org/name, found {source!r}")
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise DataError("a hub id needs the package huggingface_hub: pip install 'castgym[hub]'") from error
    try:
        # Plain files: the hub's own cache is made of links, which no episode may have out of its folder.
        folder = cache_folder() / "releases" / source.replace("/", "--") / (revision or "main")
        return Path(snapshot_download(source, repo_type="dataset", revision=revision, local_dir=folder))
    except Exception as error:  # the library raises many kinds, from its HTTP client among others
        raise DataError(
            f"could not download {source} from the hub ({type(error).__name__}: {str(error)[:200]}); "
            "without a network, copy the release here and give its folder"
        ) from error


class _Episode:
    """One episode folder, read and verified."""

    def __init__(self, folder: Path) -> None:
        self.case_id = folder.name
        if not NAME.fullmatch(self.case_id):
            raise DataError(f"{folder}: expected a case id of letters, digits, '.', '_' and '-'")
        if not folder.is_dir():
            raise DataError(f"index.json names the case {self.case_id}, but there is no folder {folder}")
        self._folder = folder
        self._task = _object(folder / "task.json")
        self.tariff = Tariff.from_json(_object(folder / "forecast_budget.json"))
        self.models = _model_names(folder / "probabilistic_forecasts.json")

    def case(self, target_start: datetime, known: Mapping[str, Any]) -> Case:
        """The case; `known` is its entry in `index.json`, empty without one."""
        as_of = _moment(self._task.get("as_of"), f"{self._folder}/task.json: as_of")
        terms, scale, unit = contract_from_json(_object(self._folder / "business_contract.json"))
        series_id, history = self._history(as_of)
        if abs(scale - history.mean()) > 1e-3 * abs(history.mean()):
            raise DataError(
                f"{self.case_id}: the contract's scale {scale:g} is not the history's mean {history.mean():g}"
            )
        domain = known.get("domain") or _look_up(_DOMAINS, unit, f"{self.case_id}: unit")
        family = _family(target_start - as_of, self.case_id)
        group = _GROUP.fullmatch(self.case_id)
        label = target_start if domain == "cycle_hire" else as_of
        return Case(
            case_id=self.case_id,
            group_id=known.get("group_id") or (group[1] if group else self.case_id),
            series_id=series_id,
            domain=domain,
            unit=unit,
            family=family,
            cohort=known.get("cohort") or cohort_name(domain, (label + timedelta(hours=12)).month),
            split=known.get("split", "test"),
            timezone=known.get("timezone") or CALENDARS[domain],
            as_of=as_of,
            target_start=target_start,
            history=history,
            terms=terms,
            scale=scale,
        )

    def _history(self, as_of: datetime) -> tuple[str, FloatArray]:
        records = _object(self._folder / "catalog.json").get("series")
        if not isinstance(records, list) or len(records) != 1 or not isinstance(records[0], dict):
            raise DataError(f"{self._folder}/catalog.json: expected one series record")
        record = records[0]
        series_id = record.get("id")
        if not isinstance(series_id, str) or not series_id:
            raise DataError(f"{self._folder}/catalog.json: expected a series id, found {series_id!r}")
        path = self._inside(record.get("path", f"series/{series_id}.csv"))
        try:
            content = path.read_bytes()
        except OSError as error:
            raise DataError(f"expected the series {path}: {error}") from error
        if hashlib.sha256(content).hexdigest() != record.get("sha256"):
            raise DataError(f"{path} does not match its sha256 in catalog.json: get the release again")
        return series_id, _read_series(content, path, as_of - VISIBILITY_LAG)

    def _inside(self, name: object) -> Path:
        """A path within the episode's folder, links followed."""
        if not isinstance(name, str):
            raise DataError(f"{self._folder}/catalog.json: expected a path as text, found {name!r}")
        path = (self._folder / name).resolve()
        if not path.is_relative_to(self._folder.resolve()):
            raise DataError(f"{self._folder}/catalog.json: the path {name!r} leaves the episode's folder")
        return path


def _read_series(content: bytes, path: Path, last_visible: datetime) -> FloatArray:
    try:
        rows = list(csv.DictReader(content.decode("utf-8-sig").splitlines()))
        times = [_moment(row["timestamp"], f"{path}: timestamp") for row in rows]
        values = np.array([float(row["value"]) for row in rows])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: expected the columns timestamp,value: {error!r}") from error
    for before, after in pairwise(times):
        if after <= before:
            raise DataError(f"{path}: timestamps are unsorted or repeated at {after.isoformat()}")
    expected = [last_visible - (HISTORY_HOURS - 1 - hour) * _HOUR for hour in range(HISTORY_HOURS)]
    if times != expected:
        raise DataError(
            f"{path}: expected {HISTORY_HOURS} consecutive hours that end at {last_visible.isoformat()}, found "
            f"{len(times)}" + (f" from {times[0].isoformat()} to {times[-1].isoformat()}" if times else "")
        )
    return values


def _target(path: Path, case_id: str) -> tuple[datetime, Target]:
    value = _object(path)
    times, actual = value.get("timestamps"), value.get("actual")
    if not isinstance(times, list) or not isinstance(actual, list) or len(times) != TARGET_HOURS:
        raise DataError(f"{path}: expected 24 timestamps and 24 actual values")
    moments = [_moment(time, f"{path}: timestamps") for time in times]
    if moments != [moments[0] + hour * _HOUR for hour in range(TARGET_HOURS)]:
        raise DataError(f"{path}: expected 24 consecutive hours in order")
    try:
        return moments[0], Target(case_id, np.array(actual, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise DataError(f"{path}: {error}") from error


def _common(episodes: list[_Episode]) -> tuple[Tariff, tuple[str, ...]]:
    """The tariff and the models of all episodes, which must agree."""
    first = episodes[0]
    for episode in episodes:
        if episode.tariff != first.tariff:
            raise DataError(f"{episode.case_id} has another tariff or budget than {first.case_id}: split the release")
        if episode.models != first.models:
            raise DataError(f"{episode.case_id} sells other models than {first.case_id}: split the release")
    return first.tariff, first.models


def _model_names(path: Path) -> tuple[str, ...]:
    models = _object(path).get("models")
    if not isinstance(models, list):
        raise DataError(f"{path}: expected a list of models")
    names = [model.get("name", model.get("id")) if isinstance(model, dict) else model for model in models]
    if not all(isinstance(name, str) for name in names):
        raise DataError(f"{path}: expected models with a name")
    return tuple(str(name).removesuffix(PUBLISHED_SUFFIX) for name in names)


def _index(path: Path) -> Mapping[str, Any] | None:
    if not path.exists():
        return None
    value = _object(path)
    fields: Mapping[str, Callable[[Any], bool]] = {
        "name": lambda item: isinstance(item, str),
        "cohort_weights": lambda item: isinstance(item, dict),
        "sigma": lambda item: isinstance(item, dict),
        "source": lambda item: isinstance(item, dict),
        "cases": lambda item: isinstance(item, dict) and bool(item) and all(map(_is_entry, item.values())),
    }
    wrong = [name for name, check in fields.items() if not check(value.get(name))]
    if value.get("format") != INDEX_FORMAT:
        raise DataError(f"{path}: expected an index of format {INDEX_FORMAT}, found {value.get('format')!r}")
    if wrong:
        raise DataError(f"{path}: expected {', '.join(fields)}; missing or of another kind: {', '.join(wrong)}")
    return value


def _is_entry(item: object) -> bool:
    return isinstance(item, dict) and all(isinstance(text, str) for text in item.values())


def _family(lead: timedelta, case_id: str) -> Family:
    for family, days in LEAD_DAYS.items():
        if lead == timedelta(days=days):
            return family
    raise DataError(f"{case_id}: expected a target 1 or 7 days after as_of, found {lead}")


def _look_up(table: Mapping[str, Domain], key: str, what: str) -> Domain:
    if key not in table:
        raise DataError(f"{what}: expected one of {', '.join(table)}, found {key!r}")
    return table[key]


def _moment(value: object, what: str) -> datetime:
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError as error:
        raise DataError(f"{what}: expected an ISO 8601 time, found {value!r}") from error
    if moment.tzinfo is None:
        raise DataError(f"{what}: expected a time with a UTC offset, found {value!r}")
    return moment.astimezone(UTC)


def _object(path: Path) -> dict[str, Any]:
    value = read_json(path)
    if not isinstance(value, dict):
        raise DataError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value
