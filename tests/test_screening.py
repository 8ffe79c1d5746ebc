"""The screen of impossible demand: what it refuses, and what it must let pass."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from castgym.data.eia930 import read_eia930
from castgym.data.screening import FLAT_HOURS, LARGE_FLAT_HOURS, screen_demand
from castgym.data.simulate_electricity import simulate_electricity

HOURS = pd.date_range("2022-01-01", periods=8760, freq="h", tz="UTC")


@pytest.fixture(scope="module")
def clean() -> pd.DataFrame:
    return simulate_electricity(HOURS, 1)[["SIME03", "SIME12", "SIME18"]]


def damaged(clean: pd.DataFrame, start: int, hours: int, factor: float) -> pd.DataFrame:
    table = clean.copy()
    table.iloc[start : start + hours, 0] = (table.iloc[start : start + hours, 0] * factor).round(3)
    return table


def test_clean_demand_passes_whole(clean: pd.DataFrame) -> None:
    kept, refused = screen_demand(clean)
    assert refused.empty
    pd.testing.assert_frame_equal(kept, clean)


@pytest.mark.parametrize("factor", [1e6, 1e3, 50, 10, 2.2, 0.4, 0.05, 1e-3])
@pytest.mark.parametrize("hours", [1, 3])
def test_short_spikes_and_drops_are_refused(clean: pd.DataFrame, factor: float, hours: int) -> None:
    kept, refused = screen_demand(damaged(clean, 4000, hours, factor))
    assert refused["hour"].tolist() == list(HOURS[4000 : 4000 + hours]) and set(refused["series"]) == {"SIME03"}
    assert set(refused["reason"]) <= {"isolated_spike", "far_from_level"}
    assert kept.isna().to_numpy().sum() == hours


@pytest.mark.parametrize(
    ("hours", "factor"),
    [(24 * 3, 30), (24 * 13, 4.5), (24 * 20, 100), (24 * 40, 8), (24 * 60, 1e6), (24 * 20, 0.03), (24 * 60, 0.05)],
)
def test_long_bad_stretches_are_refused_whole(clean: pd.DataFrame, hours: int, factor: float) -> None:
    """Stretches that are longer than half of a rolling window carry its median away with them."""
    kept, _ = screen_demand(damaged(clean, 3000, hours, factor))
    bad = np.zeros(len(clean), dtype=bool)
    bad[3000 : 3000 + hours] = True
    refused = kept["SIME03"].isna().to_numpy()
    assert refused[bad].mean() > 0.99
    assert refused[~bad].sum() <= 6  # at most the hours that touch the stretch


@pytest.mark.parametrize("value", [0.0, -1.0, -5000.0])
def test_values_that_are_not_positive_are_refused(clean: pd.DataFrame, value: float) -> None:
    table = clean.copy()
    table.iloc[10:200, 1] = value
    kept, refused = screen_demand(table)
    assert set(refused["reason"]) == {"nonpositive"} and len(refused) == 190
    assert (refused["value"] == value).all() and kept.isna().to_numpy().sum() == 190


@pytest.mark.parametrize(("level", "limit"), [(300.0, FLAT_HOURS), (30_000.0, LARGE_FLAT_HOURS)])
@pytest.mark.parametrize("more", [-1, 0, 1, 54])
@pytest.mark.parametrize("start", [0, 5000, 8760 - 60])
def test_flat_runs_are_refused_the_sooner_the_larger_the_series(
    clean: pd.DataFrame, level: float, limit: int, more: int, start: int
) -> None:
    table = (clean / clean.median() * level).round(3)
    table.iloc[start : start + limit + more, 2] = table.iloc[start, 2] + 0.0005
    _, refused = screen_demand(table)
    expected = list(HOURS[start : start + limit + more]) if more >= 0 else []
    assert refused["hour"].tolist() == expected and set(refused["reason"]) <= {"flat_run"}


@settings(max_examples=15, deadline=None)
@given(
    bad=st.dictionaries(st.integers(0, 8759), st.sampled_from([np.nan, 0.0, -3.0, 1e7, 1.0]), max_size=40),
    unit=st.sampled_from([1.0, 2.0**-7, 2.0**10]),
)
def test_the_screen_knows_one_series_and_no_unit(clean: pd.DataFrame, bad: dict[int, float], unit: float) -> None:
    table = clean.iloc[:2400, :2].set_axis(["A", "B"], axis=1)
    for row, value in bad.items():
        table.iloc[row % len(table), 0] = value
    kept, refused = screen_demand(table)
    alone, _ = screen_demand(table[["A"]] * unit)
    assert (kept[["A"]].isna().to_numpy() == alone.isna().to_numpy()).all()
    assert not kept["B"].isna().any()
    # What is kept is unchanged, and the list says exactly what was refused.
    lost = table["A"].notna() & kept["A"].isna()
    assert (kept["A"].dropna() == table["A"][kept["A"].notna()]).all()
    assert refused["hour"].tolist() == table.index[lost].tolist()
    assert refused["value"].tolist() == table["A"][lost].tolist()


def test_a_lone_day_of_data_is_not_judged_by_a_level_it_cannot_have() -> None:
    table = simulate_electricity(HOURS[:24], 3)[["SIME01"]]
    assert screen_demand(table)[1].empty


def test_real_defects_go_and_real_extremes_stay(eia930_files: list[Path]) -> None:
    demand, _ = read_eia930(eia930_files)
    kept, refused = screen_demand(demand)
    assert len(refused) / demand.size < 1e-3
    listed = set(zip(refused["series"], refused["value"], strict=True))
    assert {("PJM", 2147480000.0), ("BANC", 3297048.0), ("SWPP", 3621097.0), ("TAL", 631.0), ("SRP", 1076.0)} <= listed
    # The winter storm of February 2021 in Texas, and the summer peaks of large authorities.
    storm = slice("2021-02-10", "2021-02-20")
    for name in ("ERCO", "SWPP", "MISO", "SOCO", "AECI"):
        assert kept[name].loc[storm].notna().all()  # type: ignore[misc]
    for name in ("ERCO", "MISO", "NYIS", "ISNE", "CISO", "SOCO", "DUK", "TVA", "PNM", "IID"):
        assert kept[name].max() == demand[name].max()
