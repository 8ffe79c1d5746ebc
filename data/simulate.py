"""Simulated demand: cases without any download, for tests, training and a first look.

The series are invented, but their statistics are near those of real demand (docs/data.md has the comparison), so
that a policy has as much to gain here as there.
"""

from datetime import UTC, datetime
from typing import Any

import pandas as pd

from castgym.data.builder import BuiltCases, build_cases
from castgym.data.cohorts import schedule
from castgym.data.errors import ConfigError
from castgym.data.files import sha256_hex
from castgym.data.schema import Domain
from castgym.data.simulate_cycle_hire import simulate_cycle_hire
from castgym.data.simulate_electricity import simulate_electricity

FIRST_YEAR = 2021
TEST_YEAR = 2023
"""The last simulated year; its cohorts are the test cases."""

TRAIN_STRIDE = 5
SIMULATOR_VERSION = 1
"""Raised whenever the same seed gives other values."""


def simulate_demand(seed: int = 0) -> pd.DataFrame:
    """Three years of hourly demand: 24 electricity series (MW) and 12 cycle-hire series (departures an hour).

    The values are whole numbers, the same bytes for a seed on every machine.

    Args:
        seed: random seed, >= 0.

    Returns:
        Shape (26280, 36), float64, index = UTC hour starts of 2021 to 2023, columns `SIME01`... and `SIMC01`...

    Raises:
        ConfigError: the seed is negative.
    """
    if seed < 0:
        raise ConfigError(f"expected a seed >= 0, found {seed}")
    hours = pd.date_range(f"{FIRST_YEAR}-01-01", f"{TEST_YEAR + 1}-01-01", freq="h", tz="UTC", inclusive="left")
    return pd.concat([simulate_electricity(hours, seed), simulate_cycle_hire(hours, seed)], axis=1)


def demand_sha256(demand: pd.DataFrame) -> str:
    """Content hash of a demand table: names, first hour and values."""
    header = f"{','.join(demand.columns)} {demand.index[0].isoformat()} {demand.shape}"
    return sha256_hex(header.encode(), demand.to_numpy(dtype="<f8", copy=True).tobytes())


def simulated_cases(seed: int = 0) -> BuiltCases:
    """Cases of all four protocol cohorts in 2023, a calibration week and train cases of 2021 and 2022.

    Args:
        seed: random seed, >= 0.

    Raises:
        ConfigError: the seed is negative.
    """
    demand = simulate_demand(seed)
    domains: dict[str, Domain] = {
        str(name): "electricity" if str(name).startswith("SIME") else "cycle_hire" for name in demand.columns
    }
    decisions = schedule(TEST_YEAR, data_start=datetime(FIRST_YEAR, 1, 1, tzinfo=UTC), train_stride=TRAIN_STRIDE)
    source: dict[str, Any] = {
        "kind": "simulated",
        "seed": seed,
        "simulator_version": SIMULATOR_VERSION,
        "demand_sha256": demand_sha256(demand),
        "options": {"test_year": TEST_YEAR, "train_stride": TRAIN_STRIDE},
    }
    return build_cases(demand, decisions, name=f"simulated-{seed}", domains=domains, source=source)
