"""The published layout: what is written reads back equal, and what is damaged or hostile is refused."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories import make_case, make_loaded

from castgym.data.contract import ContractTerms, hourly_priority
from castgym.data.errors import DataError
from castgym.data.release import PUBLISHED_SIGMA, fetch_release, read_release
from castgym.data.release_export import export_release
from castgym.data.schema import CaseSet
from castgym.data.tariff import PROTOCOL_TARIFF
from castgym.envs.casesets import LoadedCases

CASE = "TEST00-2026-07-17-day_ahead"


def write(path: Path, loaded: LoadedCases) -> Path:
    export_release(
        path,
        loaded.case_set,
        loaded.targets,
        instruction=lambda case: f"Decide {case.case_id}.",
        max_calls=12,
        tools=("catalog",),
        licence="CC0-1.0",
    )
    return path


@pytest.fixture
def release(tmp_path: Path) -> Path:
    return write(tmp_path / "release", make_loaded(tariff=PROTOCOL_TARIFF))


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def test_exported_and_read_back_is_equal(tmp_path: Path) -> None:
    general = ContractTerms(
        billing="reservation",
        block_hours=6,
        adjustment=0.05,
        ramp=0.5,
        hourly_priority=hourly_priority(make_case().as_of),
    )
    odd = np.random.default_rng(0).random(336) / 3
    cases = [
        make_case(0),
        make_case(1, "week_ahead", terms=general),
        make_case(2, domain="cycle_hire", unit="departures/hour", cohort="cycle-hire-may", timezone="Europe/London"),
        make_case(3, split="train", history=odd, scale=float(odd.mean())),
    ]
    loaded = make_loaded(cases, tariff=PROTOCOL_TARIFF, models=("seasonal_empirical", "chronos2"))
    case_set, targets = read_release(write(tmp_path / "release", loaded))
    assert case_set.fingerprint == loaded.case_set.fingerprint
    assert targets.digest([case.case_id for case in cases]) == loaded.case_set.targets_digest


def test_a_release_without_castgyms_index_gets_the_published_weights_and_sigma(release: Path) -> None:
    (release / "index.json").unlink()
    case_set, _ = read_release(release)
    case = case_set.by_id(CASE)
    assert dict(case_set.sigma) == {"electricity": PUBLISHED_SIGMA["electricity"]}
    assert dict(case_set.cohort_weights) == {"electricity-july": 1.0}
    assert (case.group_id, case.domain, case.family, case.cohort) == (
        "TEST00",
        "electricity",
        "day_ahead",
        "electricity-july",
    )


def test_legacy_contracts_and_suffixed_tariffs_are_read(release: Path) -> None:
    def legacy(contract: dict[str, Any]) -> None:
        contract["scale_mw"], contract["capacity_grid_mw"] = contract.pop("scale"), contract.pop("capacity_grid")
        del contract["unit"]

    before = read_release(release)[0]
    rates = json.loads((release / "episodes" / CASE / "forecast_budget.json").read_text())["rates"]
    assert all(rate["model"].endswith("_quantiles") for rate in rates)
    edit(release / "episodes" / CASE / "business_contract.json", legacy)
    assert read_release(release)[0].fingerprint == before.fingerprint


def test_targets_stand_apart_from_the_episodes(release: Path) -> None:
    target = json.loads((release / "reproduction_targets" / f"{CASE}.json").read_text())["actual"]
    for path in (release / "episodes").rglob("*"):
        if path.is_file():
            assert not any(repr(value) in path.read_text() for value in target[:3] if value not in make_case().history)


def swap_rows(path: Path) -> None:
    lines = path.read_text().splitlines()
    lines[5], lines[6] = lines[6], lines[5]
    path.write_text("\n".join(lines) + "\n")
    rehash(path)


def repeat_row(path: Path) -> None:
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:6], lines[5], *lines[6:]]) + "\n")
    rehash(path)


def rehash(path: Path) -> None:
    import hashlib

    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    edit(path.parent.parent / "catalog.json", lambda value: value["series"][0].update(sha256=digest))


FAULTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a changed value": (lambda f: (f / "series" / "TEST00.csv").open("a").write("\n") and None, "sha256"),
    "no checksum": (lambda f: edit(f / "catalog.json", lambda v: v["series"][0].pop("sha256")), "sha256"),
    "unsorted times": (lambda f: swap_rows(f / "series" / "TEST00.csv"), "unsorted or repeated"),
    "repeated times": (lambda f: repeat_row(f / "series" / "TEST00.csv"), "unsorted or repeated"),
    "a path upwards": (
        lambda f: edit(f / "catalog.json", lambda v: v["series"][0].update(path="../../x.csv")),
        "leaves the episode",
    ),
    "an absolute path": (
        lambda f: edit(f / "catalog.json", lambda v: v["series"][0].update(path="/etc/passwd")),
        "leaves the episode",
    ),
    "a scale that is not the mean": (
        lambda f: edit(f / "business_contract.json", lambda v: v.update(scale=2 * v["scale"])),
        "not the history's mean",
    ),
    "two scales": (lambda f: edit(f / "business_contract.json", lambda v: v.update(scale_mw=1.0)), "disagree"),
    "a naive time": (lambda f: edit(f / "task.json", lambda v: v.update(as_of="2026-07-17T00:00:00")), "UTC offset"),
    "another tariff": (lambda f: edit(f / "forecast_budget.json", lambda v: v.update(budget=5)), "another tariff"),
    "other models": (
        lambda f: edit(f / "probabilistic_forecasts.json", lambda v: v["models"].append({"name": "chronos2"})),
        "other models",
    ),
    "no series": (lambda f: edit(f / "catalog.json", lambda v: v["series"].clear()), "one series"),
    "a strange unit": (lambda f: edit(f / "business_contract.json", lambda v: v.update(unit="kW")), "kW"),
    "no task": (lambda f: (f / "task.json").unlink(), "task.json"),
    "no JSON": (lambda f: (f / "task.json").write_text("{"), "JSON"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_damaged_and_hostile_episodes_are_refused(release: Path, fault: str) -> None:
    (release / "index.json").unlink()
    damage, message = FAULTS[fault]
    damage(release / "episodes" / CASE)
    with pytest.raises(DataError, match=message):
        read_release(release)


INDEX_FAULTS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "another format": (lambda v: v.update(format=2), "expected an index of format 1, found 2"),
    "no name": (lambda v: v.pop("name"), "of another kind: name"),
    "weights in a list": (lambda v: v.update(cohort_weights=[1.0]), "of another kind: cohort_weights"),
    "a weight as text": (lambda v: v.update(cohort_weights={"electricity-july": "1"}), "a weight >= 0 .* found '1'"),
    "no weight for a cohort": (lambda v: v.update(cohort_weights={}), "found none for electricity-july"),
    "sigma of zero": (lambda v: v.update(sigma={"electricity": 0}), "expected sigma > 0 for electricity, found 0"),
    "no sigma for a domain": (lambda v: v.update(sigma={}), "found none for electricity"),
    "a source as text": (lambda v: v.update(source="test"), "of another kind: source"),
    "no cases": (lambda v: v.update(cases={}), "of another kind: cases"),
    "cases in a list": (lambda v: v.update(cases=[CASE]), "of another kind: cases"),
    "an entry as text": (lambda v: v["cases"].update({CASE: "test"}), "of another kind: cases"),
    "a cohort as a list": (lambda v: v["cases"][CASE].update(cohort=[1]), "of another kind: cases"),
    "an unknown split": (lambda v: v["cases"][CASE].update(split="best"), "split to be one of .* found 'best'"),
    "a case that leaves the folder": (lambda v: v["cases"].update({"../x": {}}), "expected case ids, found '../x'"),
    "a case without a folder": (lambda v: v["cases"].update({"Nobody": {}}), "there is no folder .*Nobody"),
}


@pytest.mark.parametrize("fault", INDEX_FAULTS)
def test_a_damaged_index_is_refused(release: Path, fault: str) -> None:
    damage, message = INDEX_FAULTS[fault]
    edit(release / "index.json", damage)
    with pytest.raises(DataError, match=message):
        read_release(release)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": 1}', "[" * 100_000])
def test_an_index_that_is_no_index_is_refused(release: Path, text: str) -> None:
    (release / "index.json").write_text(text)
    with pytest.raises(DataError, match=r"index\.json"):
        read_release(release)


def test_a_link_out_of_the_episode_is_refused(release: Path, tmp_path: Path) -> None:
    series = release / "episodes" / CASE / "series" / "TEST00.csv"
    (tmp_path / "outside.csv").write_bytes(series.read_bytes())
    series.unlink()
    series.symlink_to(tmp_path / "outside.csv")
    with pytest.raises(DataError, match="leaves the episode"):
        read_release(release)


def test_broken_targets_are_refused(release: Path) -> None:
    path = release / "reproduction_targets" / f"{CASE}.json"
    edit(path, lambda value: value["timestamps"].reverse())
    with pytest.raises(DataError, match="consecutive"):
        read_release(release)
    path.unlink()
    with pytest.raises(DataError, match=CASE):
        read_release(release)


def test_a_folder_that_is_no_release_and_a_source_that_is_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no release"):
        read_release(tmp_path)
    with pytest.raises(DataError, match="hub id"):
        fetch_release("not a source")


def test_a_hub_id_without_network_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(DataError, match="copy the release here"):
        fetch_release("castgym-tests/no-such-data-set")


@pytest.mark.parametrize("revision", [None, "0" * 40])
def test_a_hub_data_set_is_kept_as_plain_files_by_id_and_revision(
    release: Path, tmp_path: Path, revision: str | None
) -> None:
    """The hub's client finds what an earlier download left there, and asks no network."""
    folder = tmp_path / "cache" / "releases" / "org--name" / (revision or "main")
    folder.parent.mkdir(parents=True)
    shutil.copytree(release, folder)
    code = (
        "import sys; from castgym.data.release import fetch_release, read_release;"
        f"folder = fetch_release('org/name', {revision!r}); print(folder); print(read_release(folder)[0].fingerprint)"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "CASTGYM_CACHE": str(tmp_path / "cache")}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert result.stdout.splitlines() == [str(folder), read_release(release)[0].fingerprint], result.stderr


def test_a_revision_that_was_never_downloaded_is_no_other_one(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub.constants

    shutil.copytree(release, tmp_path / "releases" / "org--name" / "main")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("CASTGYM_CACHE", str(tmp_path))
    with pytest.raises(DataError, match="could not download org/name"):
        fetch_release("org/name", "0" * 40)


def test_a_part_of_a_case_set_cannot_pass_for_the_whole(tmp_path: Path) -> None:
    loaded = make_loaded(tariff=PROTOCOL_TARIFF)
    part: CaseSet = loaded.case_set.where(lambda case: case.family == "day_ahead")
    with pytest.raises(DataError, match="whole case set"):
        write(tmp_path / "release", replace(loaded, case_set=part))
    assert not (tmp_path / "release").exists()
