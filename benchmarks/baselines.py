"""Errors of every available forecaster on the test windows of given window sets, one window every H steps.

    castgym data windows ETTh1.csv EPF_NP.csv ... --out sets
    castgym train-forecasters --windows sets --files FOLDER
    python benchmarks/baselines.py --windows sets --files FOLDER [--model NAME ...] [--out baselines.json]

Mean squared and mean absolute error on the raw scale, averaged over steps and then over windows; the standard error
of the MSE over windows; seconds a window, without any cache, of many windows in one call. Without `--windows` the
simulated sets are measured. A forecaster that is missing is named with the reason, and nothing takes its place.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from castgym.data.errors import ForecasterUnavailableError
from castgym.data.files import write_json_atomic
from castgym.data.windows_set import WindowSet
from castgym.data.windows_simulate import simulated_windows
from castgym.data.windows_store import load_window_sets
from castgym.tools.forecasters.window_pool import WindowForecasterPool, window_entries


@dataclass(frozen=True, slots=True)
class Row:
    """Errors of one forecaster on one window set, raw scale."""

    dataset: str
    length: int
    horizon: int
    windows: int
    model: str
    mse: float
    mse_standard_error: float
    mae: float
    seconds_a_window: float
    fingerprint: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=Path, help="folder that `castgym data windows --out` made")
    parser.add_argument("--files", type=Path, help="folder of the official files")
    parser.add_argument("--checkpoints", type=Path, help="folder of trained forecasters; castgym's cache by default")
    parser.add_argument("--dataset", action="append", help="data set of the folder; repeat")
    parser.add_argument("--model", action="append", help="forecaster; repeat; all by default")
    parser.add_argument("--out", type=Path, help="JSON file of the rows")
    options = parser.parse_args()
    sets = simulated_windows() if options.windows is None else load_window_sets(options.windows, options.files)
    rows: list[Row] = []
    for window_set in sets:
        if options.dataset and window_set.name not in options.dataset:
            continue
        # A pool for each set: without a cache, and free to load nothing twice.
        pool = WindowForecasterPool(window_entries(options.checkpoints), cache_entries=0)
        for name in options.model or pool.names:
            try:
                row = measure(pool, name, window_set)
            except ForecasterUnavailableError as error:
                print(f"{window_set.name} {name}: not measured: {error}", flush=True)
                continue
            print(f"{row.dataset} {row.model}: MSE {row.mse:.3f}, MAE {row.mae:.3f}", flush=True)
            rows.append(row)
    print("\n" + markdown(rows))
    if options.out is not None:
        write_json_atomic(options.out, [asdict(row) for row in rows])


def measure(pool: WindowForecasterPool, name: str, window_set: WindowSet) -> Row:
    """Errors of one forecaster on all test windows."""
    pool.require([name], window_set)
    windows, targets = list(window_set.windows("test")), window_set.targets("test")
    pool.forecast(name, windows[0])  # loaded before time is taken
    started = time.perf_counter()
    forecasts = pool.forecast_many(name, windows)
    seconds = time.perf_counter() - started
    actual = np.stack([targets[window.window_id].actual for window in windows])
    errors = np.stack([forecast.values for forecast in forecasts]) - actual
    by_window = (errors**2).mean(axis=1)
    return Row(
        dataset=window_set.name,
        length=window_set.length,
        horizon=window_set.horizon,
        windows=len(windows),
        model=name,
        mse=float(by_window.mean()),
        mse_standard_error=float(by_window.std(ddof=1) / np.sqrt(len(windows))) if len(windows) > 1 else 0.0,
        mae=float(np.abs(errors).mean()),
        seconds_a_window=seconds / len(windows),
        fingerprint=window_set.fingerprint,
    )


def markdown(rows: Sequence[Row]) -> str:
    """A table of `MSE / MAE`, forecasters down, data sets across."""
    found = {(row.model, row.dataset): row for row in rows}
    datasets = list(dict.fromkeys(row.dataset for row in rows))
    lines = ["| MSE / MAE | " + " | ".join(datasets) + " |", "|---" * (1 + len(datasets)) + "|"]
    for model in dict.fromkeys(row.model for row in rows):
        cells = []
        for dataset in datasets:
            row = found.get((model, dataset))
            cells.append("" if row is None else f"{row.mse:.4g} / {row.mae:.3g}")
        lines.append(f"| {model} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
