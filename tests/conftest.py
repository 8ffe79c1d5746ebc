"""Fixtures that several test files share."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from castgym.data.builder import BuiltCases
from castgym.data.simulate import simulated_cases
from castgym.envs.casesets import LoadedCases, load_cases
from castgym.envs.episode import Episode, EpisodeConfig

SHARED_DATA_VARIABLE = "CASTGYM_SHARED_DATA"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real data files, which are no part of the project; tests that need it are skipped without it."""
    folder = Path(os.environ.get(SHARED_DATA_VARIABLE) or Path(__file__).parents[2] / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no real data: set {SHARED_DATA_VARIABLE} to their folder (looked in {folder})")
    return folder


@pytest.fixture(scope="session")
def eia930_files(shared_data: Path) -> list[Path]:
    """Real EIA-930 demand of 2021 to 2023 in the wide layout."""
    files = sorted(shared_data.glob("eia930_demand_mw_*.csv.gz"))
    if len(files) < 3:
        pytest.skip(f"expected eia930_demand_mw_2021..2023.csv.gz in {shared_data}, found {len(files)} files")
    return files


@pytest.fixture(scope="session")
def tfl_sample(shared_data: Path) -> Path:
    """One week of real London journeys without a header, layout `seconds-2019`."""
    return _real_file(shared_data, "tfl_trips_30Sep2020-06Oct2020.csv.gz")


@pytest.fixture(scope="session")
def norway_bikes(shared_data: Path) -> Path:
    """Real hourly arrivals at 60 stations of Oslo, Bergen and Trondheim, wide."""
    return _real_file(shared_data, "norway_bike_arrivals_2021_apr_aug.csv.gz")


def _real_file(folder: Path, name: str) -> Path:
    if not (folder / name).is_file():
        pytest.skip(f"expected {name} in {folder}")
    return folder / name


@pytest.fixture(scope="session")
def simulated() -> BuiltCases:
    """The simulated cases of seed 0, built once."""
    return simulated_cases(0)


@pytest.fixture(scope="session")
def loaded() -> LoadedCases:
    """The embedded cases and their truth."""
    return load_cases("embedded")


@pytest.fixture(scope="session")
def new_episode(loaded: LoadedCases) -> Callable[..., Episode]:
    """Makes an episode of an embedded case: its number, and conditions."""

    def build(number: int = 0, **conditions: Any) -> Episode:
        case = list(loaded.case_set)[number]
        return Episode(case, EpisodeConfig.of(loaded.case_set, case, **conditions))

    return build
