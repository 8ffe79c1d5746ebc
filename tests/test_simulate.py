"""Simulated demand: reproducible to the byte, and as hard as real demand."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from castgym.data.builder import BuiltCases
from castgym.data.cohorts import PROTOCOL_COHORTS
from castgym.data.errors import ConfigError
from castgym.data.simulate import demand_sha256, simulate_demand
from castgym.data.simulate_calendar import free_days
from castgym.data.simulate_parts import Draws, autoregressive
from castgym.tools.planning.batch import classical_plans, realized_losses
from castgym.tools.planning.classical import CLASSICAL_METHODS

SEED_0 = "c9f7338edf0d785d9412da1d3bb90426ea48ad772c1921da616970a4f5a28555"
SIGMA = {"electricity": 0.054206794827132906, "cycle_hire": 0.04340576638915502}


@pytest.fixture(scope="module")
def demand() -> pd.DataFrame:
    return simulate_demand(0)


def test_seed_0_gives_known_bytes(demand: pd.DataFrame) -> None:
    assert demand_sha256(demand) == SEED_0


def test_no_installed_calendar_moves_a_value() -> None:
    """Packages of public holidays add and rename days from one version to the next."""
    code = (
        "import sys; sys.modules['holidays'] = None;"
        "from castgym.data.simulate import *; print(demand_sha256(simulate_demand(0)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.strip() == SEED_0, run.stderr


def test_years_without_written_holidays_are_refused() -> None:
    with pytest.raises(KeyError):
        free_days(pd.date_range("2031-01-01", periods=24, freq="h", tz="UTC"), "England")


@pytest.mark.parametrize(
    "environment",
    [
        {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        {"OPENBLAS_NUM_THREADS": "2", "NPY_DISABLE_CPU_FEATURES": "vector"},
    ],
)
def test_threads_and_vector_instructions_change_no_byte(environment: dict[str, str]) -> None:
    """NumPy's scalar and vector code differ in the last bit of cos and exp; whole numbers must not."""
    found = np.__config__.CONFIG["SIMD Extensions"].get("found", [])
    if environment.get("NPY_DISABLE_CPU_FEATURES") == "vector":
        if not found:
            pytest.skip("NumPy uses no optional vector instructions here")
        environment = {**environment, "NPY_DISABLE_CPU_FEATURES": " ".join(found)}
    code = "from castgym.data.simulate import *; print(demand_sha256(simulate_demand(0)))"
    run = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == SEED_0


def test_the_table_is_what_it_says(demand: pd.DataFrame) -> None:
    assert demand.shape == (26280, 36) and str(demand.index[0]) == "2021-01-01 00:00:00+00:00"
    values = demand.to_numpy()
    assert (values == np.round(values)).all() and values.min() >= 0
    electricity, cycle_hire = demand.filter(like="SIME"), demand.filter(like="SIMC")
    assert electricity.shape[1] == 24 and cycle_hire.shape[1] == 12
    assert electricity.to_numpy().min() > 0
    assert electricity.mean().max() / electricity.mean().min() > 50
    night = cycle_hire.index.tz_convert("Europe/London").hour.isin([2, 3, 4])  # type: ignore[attr-defined]
    assert (cycle_hire[night] == 0).mean().mean() > 0.5


def test_another_seed_gives_another_table(demand: pd.DataFrame) -> None:
    other = simulate_demand(1)
    assert demand_sha256(other) != SEED_0
    assert (other == demand).to_numpy().mean() < 0.2
    with pytest.raises(ConfigError, match="seed >= 0"):
        simulate_demand(-1)


def test_the_case_set_is_complete_and_small(simulated: BuiltCases) -> None:
    assert not simulated.exclusions
    counts = {split: sum(case.split == split for case in simulated.cases) for split in ("train", "calibration", "test")}
    assert counts["test"] == 24 * 3 * 4 * 2 + 12 * 4 * 2 and counts["calibration"] == 36 * 7 * 2
    assert 3_000 < counts["train"] <= 12_000
    assert {case.cohort for case in simulated.cases if case.split == "test"} == {c.name for c in PROTOCOL_COHORTS}
    assert simulated.cohort_weights["cycle-hire-may"] == 0.5
    ids = {case.case_id for case in simulated.cases}
    assert {"SIME01-2023-07-17-week_ahead", "SIMC12-2023-05-03-day_ahead"} <= ids
    assert all(case_id.startswith("SIM") for case_id in ids)
    assert simulated.source["demand_sha256"] == SEED_0


def test_electricity_peaks_in_summer_or_winter_and_rests_on_free_days(demand: pd.DataFrame) -> None:
    electricity = demand.filter(like="SIME")
    monthly = electricity.groupby(electricity.index.month).mean()  # type: ignore[attr-defined]
    peaks = monthly.idxmax()
    assert peaks.isin([7, 8]).sum() >= 4 and peaks.isin([12, 1, 2]).sum() >= 4
    local = electricity.index.tz_convert("America/Chicago")  # type: ignore[attr-defined]
    free = free_days(local, "United States")[:, 0]
    assert (electricity[free].mean() < electricity[~free].mean()).all()


def test_neighbours_share_their_weather(demand: pd.DataFrame) -> None:
    daily = np.log(demand.filter(like="SIME").resample("D").mean()).diff(7).dropna()
    correlation = daily.corr().to_numpy()
    climate = np.arange(24) // 4
    same = (climate[:, None] == climate) & ~np.eye(24, dtype=bool)
    assert correlation[same].mean() > 0.4 > 0.2 > abs(correlation[climate[:, None] != climate].mean())


def test_commuters_ride_twice_on_workdays_in_london_time(demand: pd.DataFrame) -> None:
    cycle_hire = demand.filter(like="SIMC")
    local = cycle_hire.index.tz_convert("Europe/London")  # type: ignore[attr-defined]
    free = free_days(local, "England")[:, 0]
    total = cycle_hire.sum(axis=1)
    for season in (local.month.isin([1, 2]), local.month.isin([6, 7])):
        workday = total[season & ~free].groupby(local[season & ~free].hour).mean()
        assert workday.loc[:12].idxmax() == 8 and workday.loc[13:].idxmax() == 17
        leisure = total[season & free].groupby(local[season & free].hour).mean()
        assert 13 <= leisure.idxmax() <= 16
    assert free[(local.month == 5) & (local.day == 8) & (local.year == 2023)].all()  # the coronation


def test_draws_have_the_distributions_that_they_name() -> None:
    uniform, normal = Draws(3, 1).uniform(200_000), Draws(3, 2).normal(200_000)
    assert uniform.min() >= 0 and uniform.max() < 1
    assert stats.kstest(uniform, "uniform").pvalue > 0.001
    assert abs(normal.mean()) < 0.01 and abs(normal.std() - 1) < 0.01 and abs(stats.skew(normal)) < 0.02
    assert stats.kurtosis(normal) == pytest.approx(-0.1, abs=0.03)  # twelve summands: -1.2 / 12
    series = autoregressive(Draws(3, 3).normal(50_000, 1), 0.9)[:, 0]
    assert series.std() == pytest.approx(1.0, abs=0.05)
    assert np.corrcoef(series[1:], series[:-1])[0, 1] == pytest.approx(0.9, abs=0.01)
    assert Draws(3, 1).uniform(4).tolist() == pytest.approx(
        [0.10033602866159974, 0.6325138865874828, 0.5288834801304864, 0.9137885981531676]
    )


def test_the_headroom_is_that_of_real_demand(simulated: BuiltCases) -> None:
    """Scores near those of real EIA-930 years and of the published cycle-hire cohort (docs/data.md has the table)."""
    test = [case for case in simulated.cases if case.split == "test"]
    truth = np.stack([simulated.targets[case.case_id].actual for case in test])
    excess, losses = {}, {}
    for method in CLASSICAL_METHODS:
        plans, _ = classical_plans(test, method)
        losses[method], floors = realized_losses(test, plans, truth)
        excess[method] = losses[method] - floors
    table = pd.DataFrame(excess)
    sigma = np.array([SIGMA[case.domain] for case in test])
    score = table.div(2 * sigma, axis=0)
    score["oracle"] = score.min(axis=1)
    groups = pd.DataFrame({"domain": [case.domain for case in test], "family": [case.family for case in test]})
    means = score.groupby([groups["domain"], groups["family"]]).mean()
    ratios = means.div(means["hour_of_day_empirical"], axis=0)
    electricity = means.loc["electricity", "hour_of_day_empirical"]
    assert electricity["day_ahead"] == pytest.approx(0.298, rel=0.15)
    assert electricity["week_ahead"] == pytest.approx(0.413, rel=0.15)
    for method, real in {
        "weekday_empirical": 1.29,
        "weekly_repeat": 1.49,
        "level_adjusted_weekly": 1.54,
        "oracle": 0.6,
    }.items():
        assert ratios.loc["electricity", method].mean() == pytest.approx(real, rel=0.2)
    cycle = np.array([case.domain == "cycle_hire" for case in test])
    published = {
        "hour_of_day_empirical": 0.574,
        "weekday_empirical": 0.581,
        "weekly_repeat": 0.600,
        "all_hour_empirical": 0.684,
    }
    for method, real in published.items():
        assert losses[method][cycle].mean() == pytest.approx(real, rel=0.06)
    assert floors[cycle].mean() == pytest.approx(0.519, rel=0.06)
    assert 0.012 < floors[~cycle].mean() < 0.018
