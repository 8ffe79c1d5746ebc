"""Time and memory of reading, screening and building EIA-930 cases, against straightforward pandas.

    python benchmarks/bench_data.py [--years 5] [--authorities 50]

Writes official six-month balance files with simulated demand to a temporary folder, then runs each way in a process
of its own. Limits of the project: five years of 50 authorities in under 60 s and 2 GB on one core.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import numpy as np
import pandas as pd

from castgym.data.builder import build_cases
from castgym.data.cohorts import schedule
from castgym.data.eia930 import COHORTS, read_eia930
from castgym.data.screening import screen_demand
from castgym.data.simulate import simulated_cases
from castgym.data.simulate_electricity import simulate_electricity

LAST_YEAR = 2023
_UNUSED = [
    "Demand Forecast (MW)", "Net Generation (MW)", "Total Interchange (MW)", "Sum(Valid DIBAs) (MW)",
    "Net Generation (MW) from Coal", "Net Generation (MW) from Natural Gas", "Net Generation (MW) from Nuclear",
    "Net Generation (MW) from Hydropower", "Net Generation (MW) from Solar", "Net Generation (MW) from Wind",
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--years", type=int, default=5)
    parser.add_argument("--authorities", type=int, default=50)
    parser.add_argument("--run", choices=sorted(WAYS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(measure(WAYS[options.run], options.folder)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        started = time.perf_counter()
        size = write_files(folder, options.years, options.authorities)
        print(f"wrote {size / 1e6:.0f} MB in {time.perf_counter() - started:.0f} s ({options.years} years)")
        found = {}
        for way in WAYS:
            command = [sys.executable, __file__, "--run", way, "--folder", name]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found[way] = json.loads(output.splitlines()[-1])
            print(way, json.dumps(found[way]))
        ratio = found["plain_pandas"]["seconds"] / found["castgym"]["seconds"]
        print(f"plain pandas takes {ratio:.1f} times as long as castgym, without a screen")


def measure(way: Callable[[Path], dict[str, float]], folder: Path) -> dict[str, float]:
    started = time.perf_counter()
    parts = way(folder)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return {"seconds": round(seconds, 2), "peak_gb": round(peak, 2), **parts}


def castgym(folder: Path) -> dict[str, float]:
    started = time.perf_counter()
    demand, _ = read_eia930(sorted(folder.glob("*.csv")))
    read = time.perf_counter()
    screened, _ = screen_demand(demand)
    cleaned = time.perf_counter()
    decisions = schedule(LAST_YEAR, COHORTS, data_start=demand.index[0].to_pydatetime())
    built = build_cases(
        screened, decisions, name="bench", domains=dict.fromkeys(demand.columns, "electricity"), source={}
    )
    return {
        "read": round(read - started, 2),
        "screen": round(cleaned - read, 2),
        "build": round(time.perf_counter() - cleaned, 2),
        "cases": len(built.cases),
    }


def plain_pandas(folder: Path) -> dict[str, float]:
    started = time.perf_counter()
    tables = [pd.read_csv(path, thousands=",") for path in sorted(folder.glob("*.csv"))]
    rows = pd.concat(tables).drop_duplicates(["Balancing Authority", "UTC Time at End of Hour"])
    ends = pd.to_datetime(rows["UTC Time at End of Hour"], format="%m/%d/%Y %I:%M:%S %p", utc=True)
    rows["hour"] = ends - pd.Timedelta("1h")
    fine = rows["Demand (MW) (Imputed)"].isna() & (rows["Demand (MW)"] == rows["Demand (MW) (Adjusted)"])
    demand = rows[fine].pivot(index="hour", columns="Balancing Authority", values="Demand (MW)").asfreq("h")
    read = time.perf_counter()
    cases = []
    for decision in schedule(LAST_YEAR, COHORTS, data_start=demand.index[0].to_pydatetime()):
        for name in demand.columns:
            series = demand[name]
            history = series.loc[decision.history_start : decision.as_of - timedelta(hours=3)]
            target = series.loc[decision.target_start : decision.target_end - timedelta(hours=1)]
            if len(history) == 336 and len(target) == 24 and (history > 0).all() and (target > 0).all():
                cases.append((name, decision, history.to_numpy(), target.to_numpy(), history.mean()))
    return {"read": round(read - started, 2), "build": round(time.perf_counter() - read, 2), "cases": len(cases)}


def simulated(_: Path) -> dict[str, float]:
    return {"cases": len(simulated_cases(0).cases)}


WAYS: dict[str, Callable[[Path], dict[str, float]]] = {
    "castgym": castgym,
    "plain_pandas": plain_pandas,
    "simulated": simulated,
}


def write_files(folder: Path, years: int, authorities: int) -> int:
    """Official balance files of all half years; returns their size in bytes."""
    hours = pd.date_range(f"{LAST_YEAR + 1 - years}-01-01", f"{LAST_YEAR + 1}-01-01", freq="h", tz="UTC")[:-1]
    tables = [simulate_electricity(hours, seed).add_prefix(f"S{seed}") for seed in range(-(-authorities // 24))]
    demand = pd.concat(tables, axis=1).iloc[:, :authorities]
    rng = np.random.default_rng(0)
    demand = demand.mask(rng.random(demand.shape) < 1e-4)
    for year in sorted(set(hours.year)):
        for name, first in (("Jan_Jun", 1), ("Jul_Dec", 7)):
            part = demand[(hours.year == year) & (hours.month >= first) & (hours.month < first + 6)]
            write_balance(folder / f"EIA930_BALANCE_{year}_{name}.csv", part)
    return sum(path.stat().st_size for path in folder.iterdir())


def write_balance(path: Path, demand: pd.DataFrame) -> None:
    ends = pd.DatetimeIndex(demand.index + pd.Timedelta("1h"))
    texts = ends.strftime("%m/%d/%Y ") + [
        f"{(hour - 1) % 12 + 1}:00:00 {'AM' if hour < 12 else 'PM'}" for hour in ends.hour
    ]
    lines = ["Balancing Authority,Data Date,Hour Number,Local Time at End of Hour,UTC Time at End of Hour,"
             "Demand (MW),Demand (MW) (Imputed),Demand (MW) (Adjusted)," + ",".join(_UNUSED)]  # fmt: skip
    unused = ",".join(['"1,234"'] * len(_UNUSED))
    for series in demand.columns:
        for text, value in zip(texts, demand[series], strict=True):
            number = "" if np.isnan(value) else f'"{value:,.0f}"' if value >= 1000 else f"{value:.0f}"
            lines.append(f"{series},{text[:10]},1,{text},{text},{number},,{number},{unused}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
