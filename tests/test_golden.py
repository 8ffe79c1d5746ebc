"""Agreement with values that an independent implementation computed on real EIA-930 demand."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from castgym.tools.forecasters.base import QUANTILE_MASSES
from castgym.tools.forecasters.seasonal import SeasonalEmpirical
from castgym.tools.planning.classical import classical_distributions
from castgym.tools.planning.contract import CapacityContract

SHARED_DATA = Path(os.environ.get("CASTGYM_SHARED_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
GOLDEN = SHARED_DATA.parent / "golden" / "decision.json.gz"

pytestmark = pytest.mark.skipif(not GOLDEN.is_file(), reason=f"the golden values are not at {GOLDEN}")


def golden_cases() -> list[dict[str, Any]]:
    if not GOLDEN.is_file():
        return []
    content = json.loads(gzip.decompress(GOLDEN.read_bytes()))
    return [{**case, "grid": content["grid"]} for case in content["cases"]]


@pytest.mark.parametrize("case", golden_cases(), ids=lambda case: case["name"])
def test_plans_losses_floor_and_penalty_agree_to_1e_9(case: dict[str, Any]) -> None:
    grid = [case["scale"] * value for value in case["grid"]]
    contract = CapacityContract.from_json(
        {"scale": case["scale"], "capacity_grid": grid, "unit": "MW", **case["terms"]}
    )
    demand = np.array(case["actual"])
    true_cost = contract.demand_cost(demand)
    assert contract.floor(demand) == pytest.approx(case["floor"], rel=1e-9)
    assert contract.invalid_loss(demand) == pytest.approx(case["invalid_loss"], rel=1e-9)

    start = pd.Timestamp(case["history_start"])
    history = pd.Series(case["history"], pd.date_range(start, periods=336, freq="h"))
    hours = pd.date_range(pd.Timestamp(case["target_start"]), periods=24, freq="h")
    found = classical_distributions(history, hours)
    horizon = int((hours[-1] - history.index[-1]) / pd.Timedelta(hours=1))
    quantiles = SeasonalEmpirical().predict(history.to_numpy()[None], horizon)[0]
    found["seasonal_empirical"] = (quantiles[-24:], np.array(QUANTILE_MASSES))
    assert sorted(found) == sorted(case["plans"])
    for method, expected in case["plans"].items():
        cost = contract.expected_cost(*found[method])
        plan = contract.optimize(cost)
        assert contract.realized_loss(plan, cost) == pytest.approx(expected["expected_loss"], rel=1e-9, abs=1e-15)
        # A plan may differ only where expected losses tie.
        assert contract.realized_loss(expected["grid_index"], cost) == pytest.approx(
            contract.realized_loss(plan, cost), abs=1e-12
        )
        assert contract.realized_loss(expected["grid_index"], true_cost) == pytest.approx(expected["loss"], rel=1e-9)
