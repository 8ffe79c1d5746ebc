"""Accuracy and cost of the forecasters that need no download, against seasonal naives, on series none was trained on.

    python benchmarks/bench_forecasters.py [--data FOLDER] [--windows 200] [--model NAME ...]

FOLDER holds `ETTh1.csv.gz`, ... and `eia930_demand_mw_2021.csv.gz`, ...; without it (or `$CASTGYM_SHARED_DATA`) only
simulated demand of an unused seed is measured. Every window has 336 steps of context; the pinball loss is taken at
the protocol's target: the last 24 of 50 and of 194 steps. It is scaled by the mean absolute difference of the context
from one period before, averaged over the windows, and printed relative to that of `seasonal_naive`.

References: `seasonal_naive` says the value of the last observed period (24 steps; 96 for 15-minute data) at every
quantile; `seasonal_empirical` is the tool of that name (the same of 168 steps, no week in 15-minute data);
`hour_of_day` has the quantiles of all past values at the same step of the period.
"""

import argparse
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from castgym.data.eia930 import read_eia930
from castgym.data.screening import screen_demand
from castgym.data.simulate import simulate_demand
from castgym.tools.forecasters.base import QUANTILE_LEVELS, FloatArray, checked_forecast, pinball_loss
from castgym.tools.forecasters.pool import ForecasterPool, default_entries

CONTEXT, TARGET = 336, 24
HORIZONS = (50, 194)
MODELS = ("fracast", "castgym_bolt")
UNUSED_SEED = 8000
DATA_VARIABLE = "CASTGYM_SHARED_DATA"


@dataclass(frozen=True, eq=False)
class Windows:
    """Sampled windows of a data set, shape (N, 336 + 194), and its period in steps."""

    name: str
    values: FloatArray
    period: int = 24


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get(DATA_VARIABLE))
    parser.add_argument("--windows", type=int, default=60, help="windows of each data set")
    parser.add_argument("--model", action="append", help="forecaster; repeat")
    options = parser.parse_args()
    models = tuple(options.model or MODELS)
    pool = ForecasterPool(default_entries())
    for name in models:  # loaded, and its library warm, before any time is taken
        pool.forecast(name, np.arange(CONTEXT, dtype=np.float64), HORIZONS[-1])
    ratios: dict[str, dict[str, float]] = {}
    seconds = {(name, horizon): [0.0, 0] for name in models for horizon in HORIZONS}
    for data in datasets(options.data, options.windows):
        for horizon in HORIZONS:
            forecasts = references(data, horizon)
            for name in models:
                started = time.process_time()
                forecasts[name] = checked_forecast(pool.get(name), data.values[:, :CONTEXT], horizon)
                seconds[name, horizon][0] += time.process_time() - started
                seconds[name, horizon][1] += len(data.values)
            ratios[f"{data.name} {horizon}"] = compared(forecasts, data)
    table = pd.DataFrame(ratios).T
    for name in models[1:]:
        table[f"{name} / {models[0]}"] = table[name] / table[models[0]]
    table.loc["mean"] = table.mean()
    print(f"\npinball loss relative to seasonal_naive ({options.windows} windows a row)")
    print(table.round(3).to_string())
    for (name, horizon), (total, count) in seconds.items():
        print(f"{name}: {1000 * total / count:.1f} CPU-ms a forecast of {horizon} steps, many at once")


def datasets(folder: Path | None, count: int) -> Iterator[Windows]:
    """The data sets that are there."""
    yield sampled("simulated", simulate_demand(UNUSED_SEED), count)
    if folder is None:
        print(f"no real data: give --data or set {DATA_VARIABLE}")
        return
    for name, period in (("ETTh1", 24), ("ETTh2", 24), ("ETTm1", 96), ("ETTm2", 96)):
        yield sampled(name, pd.read_csv(Path(folder) / f"{name}.csv.gz", index_col="date"), count, period)
    demand, _ = read_eia930(sorted(Path(folder).glob("eia930_demand_mw_*.csv.gz")))
    yield sampled("EIA-930 2021-2023", screen_demand(demand)[0], count)


def sampled(name: str, table: pd.DataFrame, count: int, period: int = 24) -> Windows:
    """Random windows of all columns, without a missing value and with a context that moves as the column does."""
    rng = np.random.default_rng(0)
    columns, length = table.to_numpy(dtype=np.float64).T, CONTEXT + HORIZONS[-1]
    usual = np.nanmean(seasonal_change(columns, period), axis=1)
    found: list[FloatArray] = []
    while len(found) < count:
        column, start = int(rng.integers(len(columns))), int(rng.integers(columns.shape[1] - length + 1))
        window = columns[column, start : start + length]
        if np.isfinite(window).all() and seasonal_change(window[:CONTEXT], period).mean() > 0.05 * usual[column]:
            found.append(window)
    return Windows(name, np.stack(found), period)


def seasonal_change(values: FloatArray, period: int) -> FloatArray:
    """Absolute differences from one period before, along the last axis."""
    return np.abs(values[..., period:] - values[..., :-period])


def references(data: Windows, horizon: int) -> dict[str, FloatArray]:
    """Quantiles of the three naives, shape (N, horizon, 9) each."""
    context = data.values[:, :CONTEXT]
    # Phases are counted back from the end of the context, so that a cut-off first period does no harm.
    steps = np.arange(horizon) % data.period
    last = context[:, CONTEXT - data.period + steps]
    whole = CONTEXT // data.period * data.period
    cycles: NDArray[np.float64] = context[:, -whole:].reshape(len(context), -1, data.period)
    daily = np.moveaxis(np.quantile(cycles, QUANTILE_LEVELS, axis=1), 0, -1)
    weekly = checked_forecast(ForecasterPool(default_entries()).get("seasonal_empirical"), context, horizon)
    return {
        "seasonal_naive": np.repeat(last[:, :, None], len(QUANTILE_LEVELS), axis=2),
        "seasonal_empirical": weekly,
        "hour_of_day": daily[:, steps],
    }


def compared(forecasts: dict[str, FloatArray], data: Windows) -> dict[str, float]:
    """Mean scaled pinball loss of each forecaster, relative to `seasonal_naive`."""
    scale = seasonal_change(data.values[:, :CONTEXT], data.period).mean(axis=1)
    means = {}
    for name, values in forecasts.items():
        actual = data.values[:, CONTEXT : CONTEXT + values.shape[1]]
        losses = [pinball_loss(q[-TARGET:], y[-TARGET:]) for q, y in zip(values, actual, strict=True)]
        means[name] = float((np.array(losses) / scale).mean())
    return {name: value / means["seasonal_naive"] for name, value in means.items()}


if __name__ == "__main__":
    main()
