"""Cases, targets, case sets and the folder they are kept in."""

import copy
import json
import pickle
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from castgym.data.contract import ContractTerms, hourly_priority, protocol_terms
from castgym.data.errors import ConfigError, DataError
from castgym.data.schema import Case, CaseSet, Target, TargetStore
from castgym.data.store import load_case_set, load_targets, save_case_set
from castgym.data.tariff import PROTOCOL_TARIFF, Tariff

AS_OF = datetime(2026, 7, 17, tzinfo=UTC)


def make_case(number: int = 0, **changes: Any) -> Case:
    history = 1000.0 + 7.25 * number + np.arange(336) % 24
    values: dict[str, Any] = {
        "case_id": f"AZPS{number}-2026-07-17-week_ahead",
        "group_id": f"AZPS{number}",
        "series_id": f"AZPS{number}",
        "domain": "electricity",
        "unit": "MW",
        "family": "week_ahead",
        "cohort": "electricity-july",
        "split": "test",
        "timezone": "UTC",
        "as_of": AS_OF,
        "target_start": AS_OF + timedelta(days=7),
        "history": history,
        "terms": protocol_terms(date(2026, 7, 24)),
        "scale": float(history.mean()),
    }
    return Case(**{**values, **changes})


def make_set(cases: tuple[Case, ...] | None = None) -> tuple[CaseSet, TargetStore]:
    cases = cases or (make_case(0), make_case(1), make_case(2, split="train"))
    targets = TargetStore([Target(case.case_id, case.history[:24] * 1.01) for case in cases])
    case_set = CaseSet(
        name="tiny",
        cases=cases,
        cohort_weights={"electricity-july": 1.0, "electricity-winter": 0.0},
        sigma={"electricity": 0.05},
        tariff=PROTOCOL_TARIFF,
        models=("seasonal_empirical",),
        source={"kind": "test"},
        targets_digest=targets.digest([case.case_id for case in cases]),
    )
    return case_set, targets


def test_a_case_knows_the_times_of_the_protocol() -> None:
    week, day = make_case(), make_case(family="day_ahead", target_start=AS_OF + timedelta(days=1))
    assert (week.expected_horizon, day.expected_horizon) == (194, 50)
    assert week.last_visible == AS_OF - timedelta(hours=3)
    assert len(week.history_hours) == 336 and week.history_hours[-1] == week.last_visible
    assert week.target_hours[0] == week.target_start and week.target_hours[-1] + timedelta(hours=1) == week.target_end


@pytest.mark.parametrize(
    ("target", "segments"), [(date(2026, 7, 24), (1, 1, 2, 1.5)), (date(2026, 7, 26), (2, 1.5, 1, 1))]
)
def test_shortage_weights_are_those_of_the_protocol(target: date, segments: tuple[float, ...]) -> None:
    assert hourly_priority(target) == tuple(float(weight) for weight in segments for _ in range(6))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"history": np.ones(335)}, "shape"),
        ({"history": np.full(336, np.nan)}, "finite"),
        ({"history": np.full(336, -1.0)}, ">= 0"),
        ({"scale": 0.0}, "scale"),
        ({"as_of": datetime(2026, 7, 17)}, "timezone-aware"),
        ({"target_start": AS_OF + timedelta(days=6)}, "7 days"),
        ({"family": "month_ahead"}, "family"),
        ({"split": "validation"}, "split"),
    ],
)
def test_an_impossible_case_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        make_case(**changes)


def test_arrays_cannot_be_written_to_and_are_copies() -> None:
    history = np.ones(336)
    case, target = make_case(history=history), Target("x", np.ones(24))
    history[0] = 2.0
    assert case.history[0] == 1.0
    for array in (case.history, target.actual):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 3.0


def test_no_field_of_a_case_or_a_case_set_holds_the_truth() -> None:
    case_set, targets = make_set()
    truths = [targets[case.case_id].actual for case in case_set]
    for holder in (case_set, *case_set):
        for item in fields(holder):
            value = getattr(holder, item.name)
            assert not isinstance(value, Target | TargetStore)
            if isinstance(value, np.ndarray):
                assert all(not np.shares_memory(value, truth) for truth in truths)


def test_a_case_set_comes_back_from_disk_bit_for_bit(tmp_path: Path) -> None:
    case_set, targets = make_set()
    save_case_set(tmp_path / "set", case_set, targets, exclusions="case_id\n")
    loaded = load_case_set(tmp_path / "set")
    truth = load_targets(tmp_path / "set", loaded)
    assert loaded.fingerprint == case_set.fingerprint
    for case, other in zip(case_set, loaded, strict=True):
        assert case.describe() == other.describe() and case.terms == other.terms
        assert case.history.tobytes() == other.history.tobytes() and not other.history.flags.writeable
        assert targets[case.case_id].actual.tobytes() == truth[case.case_id].actual.tobytes()
    assert (tmp_path / "set" / "exclusions.csv").read_text() == "case_id\n"


def test_the_visible_part_loads_without_the_targets(tmp_path: Path) -> None:
    case_set, targets = make_set()
    save_case_set(tmp_path / "set", case_set, targets)
    (tmp_path / "set" / "targets" / "actual.npy").unlink()
    loaded = load_case_set(tmp_path / "set")
    assert loaded.fingerprint == case_set.fingerprint
    with pytest.raises(DataError, match="expected the targets"):
        load_targets(tmp_path / "set", loaded)


def _edit_json(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        manifest = json.loads((folder / "manifest.json").read_text())
        change(manifest)
        (folder / "manifest.json").write_text(json.dumps(manifest))

    return edit


def _flip(name: str) -> Callable[[Path], None]:
    def flip(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[-3] ^= 1
        (folder / name).write_bytes(content)

    return flip


@pytest.mark.parametrize(
    "tamper",
    [
        _flip("history.npy"),
        _flip("cases.jsonl"),
        _flip("targets/actual.npy"),
        _edit_json(lambda manifest: manifest["sigma"].update(electricity=0.06)),
        _edit_json(lambda manifest: manifest["tariff"].update(budget=200_000)),
        _edit_json(lambda manifest: manifest["tariff"]["rates"][0].update(credits=1)),
        _edit_json(lambda manifest: manifest["cohort_weights"].update({"electricity-july": 0.5})),
        _edit_json(lambda manifest: manifest["contracts"][0].update(reservation=0.1)),
        _edit_json(lambda manifest: manifest["source"].update(kind="other")),
        _edit_json(lambda manifest: manifest["models"].append("chronos2")),
        _edit_json(lambda manifest: manifest.update(format=99)),
        _edit_json(lambda manifest: manifest.pop("contracts")),
        lambda folder: (folder / "manifest.json").write_text("{"),
        lambda folder: (folder / "history.npy").unlink(),
    ],
)
def test_a_changed_folder_is_refused(tmp_path: Path, tamper: Callable[[Path], Any]) -> None:
    case_set, targets = make_set()
    save_case_set(tmp_path / "set", case_set, targets)
    tamper(tmp_path / "set")
    with pytest.raises(DataError):
        load_targets(tmp_path / "set", load_case_set(tmp_path / "set"))


def test_targets_of_another_set_are_refused(tmp_path: Path) -> None:
    case_set, _ = make_set()
    strangers = TargetStore([Target(case.case_id, np.ones(24)) for case in case_set])
    with pytest.raises(DataError, match="another set"):
        save_case_set(tmp_path / "set", case_set, strangers)
    assert not (tmp_path / "set").exists()


def test_an_existing_folder_is_replaced_only_on_request(tmp_path: Path) -> None:
    case_set, targets = make_set()
    save_case_set(tmp_path / "set", case_set, targets)
    with pytest.raises(DataError, match="exists"):
        save_case_set(tmp_path / "set", case_set, targets)
    other, other_targets = make_set((make_case(5),))
    save_case_set(tmp_path / "set", other, other_targets, overwrite=True)
    assert load_case_set(tmp_path / "set").fingerprint == other.fingerprint
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def _with_case(**changes: Any) -> Callable[[CaseSet], CaseSet]:
    def change(case_set: CaseSet) -> CaseSet:
        return replace(case_set, cases=(make_case(0, **changes), *case_set.cases[1:]))

    return change


def _cheaper(tariff: Tariff) -> Tariff:
    first, *others = tariff.rates
    return Tariff(tariff.budget, (replace(first, credits=first.credits - 1), *others))


_NUDGED = make_case(0).history.copy()
_NUDGED[17] = np.nextafter(_NUDGED[17], np.inf)


@pytest.mark.parametrize(
    "change",
    [
        _with_case(history=_NUDGED),
        _with_case(scale=float(np.nextafter(make_case(0).scale, 0.0))),
        _with_case(terms=ContractTerms(hourly_priority=hourly_priority(date(2026, 7, 24)), ramp=0.35)),
        _with_case(cohort="electricity-winter"),
        _with_case(split="train"),
        _with_case(group_id="OTHER"),
        lambda case_set: replace(case_set, name="other"),
        lambda case_set: replace(case_set, cohort_weights={"electricity-july": 0.9}),
        lambda case_set: replace(case_set, sigma={"electricity": 0.051}),
        lambda case_set: replace(case_set, tariff=_cheaper(case_set.tariff)),
        lambda case_set: replace(case_set, tariff=Tariff(113_727, case_set.tariff.rates)),
        lambda case_set: replace(case_set, models=("seasonal_empirical", "chronos2")),
        lambda case_set: replace(case_set, source={"kind": "other"}),
        lambda case_set: replace(case_set, targets_digest="0" * 64),
        lambda case_set: replace(case_set, cases=case_set.cases[::-1]),
        lambda case_set: case_set.split("test"),
    ],
)
def test_the_fingerprint_changes_when_anything_changes(change: Callable[[CaseSet], CaseSet]) -> None:
    case_set, _ = make_set()
    assert make_set()[0].fingerprint == case_set.fingerprint
    assert change(case_set).fingerprint != case_set.fingerprint


def test_the_digest_of_targets_changes_with_one_bit() -> None:
    case_set, targets = make_set()
    names = [case.case_id for case in case_set]
    values = {name: targets[name].actual.copy() for name in names}
    values[names[1]][23] = np.nextafter(values[names[1]][23], 0.0)
    assert TargetStore([Target(name, values[name]) for name in names]).digest(names) != targets.digest(names)


def test_a_selection_that_leaves_nothing_is_an_error() -> None:
    case_set, _ = make_set()
    assert [case.split for case in case_set.split("train")] == ["train"]
    with pytest.raises(ConfigError, match="no case"):
        case_set.split("calibration")
    with pytest.raises(ConfigError, match="has no case"):
        case_set.by_id("nobody")


def test_a_case_set_that_does_not_fit_together_is_refused() -> None:
    case_set, _ = make_set()
    with pytest.raises(DataError, match="unique"):
        replace(case_set, cases=(case_set.cases[0], case_set.cases[0]))
    with pytest.raises(DataError, match="no rate for fracast"):
        replace(case_set, models=("fracast",))
    with pytest.raises(DataError, match="sigma"):
        replace(case_set, sigma={})
    with pytest.raises(DataError, match="a weight for every cohort with test cases, found none for electricity-july"):
        replace(case_set, cohort_weights={"electricity-august": 1.0})
    with pytest.raises(DataError, match="source as a JSON object, found list"):
        replace(case_set, source=["test"])  # type: ignore[arg-type]
    with pytest.raises(DataError, match="belong to another"):
        TargetStore([])["AZPS"]


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf"), 10**400, "0.5", True, None])
@pytest.mark.parametrize("name", ["cohort_weights", "sigma"])
def test_weights_and_sigma_are_finite_numbers_and_not_negative(name: str, value: Any) -> None:
    case_set, _ = make_set()
    key = {"cohort_weights": "electricity-july", "sigma": "electricity"}[name]
    with pytest.raises(DataError, match=rf"expected .* >=? ?0 for {key}, found"):
        replace(case_set, **{name: {**getattr(case_set, name), key: value}})


def test_nobody_can_change_what_a_case_set_says_of_itself() -> None:
    case_set = replace(make_set()[0], source={"kind": "test", "options": {"days": [1, 9]}})
    mappings: tuple[Any, ...] = (case_set.cohort_weights, case_set.sigma, case_set.source, case_set.source["options"])
    for mapping in mappings:
        name = next(iter(mapping))
        for change in (
            lambda mapping: mapping.update(more=1),
            lambda mapping, name=name: mapping.__setitem__(name, 1),
            lambda mapping, name=name: mapping.pop(name),
            lambda mapping: mapping.clear(),
            lambda mapping: mapping.__ior__({"more": 1}),
            lambda mapping: mapping.setdefault("more", 1),
        ):
            with pytest.raises(TypeError, match="cannot be changed"):
                change(mapping)
    with pytest.raises(AttributeError):
        case_set.source["options"]["days"].append(2)
    given = {"electricity": 0.05}
    kept = replace(case_set, sigma=given)
    given["electricity"] = 1.0
    assert kept.sigma["electricity"] == 0.05


def test_read_only_mappings_are_pickled_copied_and_written() -> None:
    case_set = replace(make_set()[0], source={"kind": "test", "options": {"days": [1, 9]}})
    for again in (pickle.loads(pickle.dumps(case_set)), copy.deepcopy(case_set), copy.copy(case_set)):
        assert again.fingerprint == case_set.fingerprint
        assert again.source == case_set.source
        with pytest.raises(TypeError, match="cannot be changed"):
            again.source["kind"] = "other"
    assert json.loads(json.dumps(case_set.source)) == {"kind": "test", "options": {"days": [1, 9]}}
    changeable = dict(case_set.sigma)
    changeable["cycle_hire"] = 1.0
    assert "cycle_hire" not in case_set.sigma
