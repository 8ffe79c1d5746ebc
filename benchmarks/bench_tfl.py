"""Time and memory of counting London journeys and building cases, against straightforward pandas.

    python benchmarks/bench_tfl.py [--journeys 2000000]

Writes extracts of both official layouts with made-up journeys to a temporary folder, then runs each way in a process
of its own. Limits of the project: two million journeys in under 30 s and 1 GB on one core.
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
from typing import Any

import numpy as np
import pandas as pd

from castgym.data.cohorts import schedule
from castgym.data.tfl import COHORTS, TIMEZONE, tfl_cases

FIRST, DAYS, YEAR = "2023-03-01", 90, 2023
STATIONS = 800
FILES = 10
HEADERS = {
    "new": "Number,Start date,Start station number,Start station,End date,End station number,End station,Bike number,"
    "Bike model,Total duration,Total duration (ms)",
    "old": "Rental Id,Duration,Bike Id,End Date,EndStation Id,EndStation Name,Start Date,StartStation Id,"
    "StartStation Name",
}
COLUMNS = {
    "new": ("Number", "Start date", "Start station number"),
    "old": ("Rental Id", "Start Date", "StartStation Id"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--journeys", type=int, default=2_000_000)
    parser.add_argument("--run", choices=["write", *WAYS], help=argparse.SUPPRESS)
    parser.add_argument("--layout", choices=sorted(HEADERS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run == "write":
        print(json.dumps(write_files(options.folder, options.layout, options.journeys)))
        return
    if options.run:
        print(json.dumps(measure(WAYS[options.run], options.folder, options.layout)))
        return
    for layout in HEADERS:
        with tempfile.TemporaryDirectory() as folder:
            arguments = ["--layout", layout, "--folder", folder, "--journeys", str(options.journeys)]
            size = in_a_process("write", arguments)
            print(f"{layout} layout: {options.journeys:,} journeys, {size / 1e6:.0f} MB")
            found = {}
            for way in WAYS:
                found[way] = in_a_process(way, arguments)
                print(way, json.dumps(found[way]))
            ratio = found["plain_pandas"]["seconds"] / found["castgym"]["seconds"]
            print(f"plain pandas takes {ratio:.1f} times as long as castgym")


def in_a_process(task: str, arguments: list[str]) -> Any:
    """Run a task in a process of its own: a child's peak memory begins with that of the process that starts it."""
    command = [sys.executable, __file__, "--run", task, *arguments]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(output.splitlines()[-1])


def measure(way: Callable[[list[Path], str], dict[str, int]], folder: Path, layout: str) -> dict[str, float]:
    started = time.perf_counter()
    parts = way(sorted(folder.glob("*.csv")), layout)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return {"seconds": round(seconds, 2), "peak_gb": round(peak, 2), **parts}


def castgym(paths: list[Path], _: str) -> dict[str, int]:
    built = tfl_cases(paths)
    return {"journeys": built.source["journeys"]["departures"], "cases": len(built.cases)}


def plain_pandas(paths: list[Path], layout: str) -> dict[str, int]:
    """The same cases the usual way: whole tables, timestamps row by row, window by window; no check of coverage."""
    number, start, station = COLUMNS[layout]
    rows = pd.concat([pd.read_csv(path, dtype={station: "str"}) for path in paths]).drop_duplicates()
    local = pd.to_datetime(rows[start], format="%d/%m/%Y %H:%M" if layout == "old" else "%Y-%m-%d %H:%M")
    times = local.dt.tz_localize(TIMEZONE, ambiguous="NaT", nonexistent="NaT").dt.tz_convert("UTC")
    rows["hour"] = times.dt.floor("h")
    counts = rows.groupby(["hour", station])[number].size().unstack(fill_value=0).asfreq("h")
    first = counts.loc[f"{YEAR}-03-31 23:00" : f"{YEAR}-04-07 22:00"]
    chosen = first.sum().sort_index().sort_values(ascending=False, kind="stable").index[:20]
    cases = []
    for decision in schedule(YEAR, COHORTS, data_start=counts.index[0].to_pydatetime()):
        for name in chosen:
            series = counts[name]
            history = series.loc[decision.history_start : decision.as_of - timedelta(hours=3)]
            target = series.loc[decision.target_start : decision.target_end - timedelta(hours=1)]
            if len(history) == 336 and len(target) == 24 and history.notna().all() and target.notna().all():
                cases.append((name, decision, history.to_numpy(), target.to_numpy(), history.mean()))
    return {"journeys": len(rows), "cases": len(cases)}


WAYS: dict[str, Callable[[list[Path], str], dict[str, int]]] = {"castgym": castgym, "plain_pandas": plain_pandas}


def write_files(folder: Path, layout: str, journeys: int) -> int:
    """Extracts of nine whole days and the last 100 journeys before them; returns their size in bytes."""
    rng = np.random.default_rng(0)
    hour = 0.1 + np.maximum(np.sin(np.pi * (np.arange(24) - 5) / 18), 0)
    day = rng.integers(0, DAYS, journeys)
    minute = np.sort(day * 1440 + rng.choice(24, journeys, p=hour / hour.sum()) * 60 + rng.integers(0, 60, journeys))
    popular = rng.zipf(1.5, size=10 * journeys)
    start = (popular[popular <= STATIONS] - 1)[:journeys]
    end = rng.permutation(start)
    length = rng.integers(2, 60, journeys)
    clock = pd.date_range(FIRST, periods=DAYS * 1440 + 60, freq="min")
    texts = clock.strftime("%Y-%m-%d %H:%M" if layout == "new" else "%d/%m/%Y %H:%M").to_numpy()
    names = [f'"Street {place}, Quarter {place % 40}"' for place in range(STATIONS)]
    ids = [f"{1000 + 7 * place:06}" if layout == "new" else str(place + 1) for place in range(STATIONS)]
    lines = []
    for number, (at, here, there, ride) in enumerate(zip(minute, start, end, length, strict=True), 130_000_000):
        begin, stop = texts[at], texts[at + ride]
        if layout == "new":
            lines.append(
                f"{number},{begin},{ids[here]},{names[here]},{stop},{ids[there]},{names[there]},{number % 15_000},"
                f"CLASSIC,{ride}m 0s,{60_000 * ride}"
            )
        else:
            lines.append(
                f"{number},{60 * ride},{number % 15_000},{stop},{ids[there]},{names[there]},{begin},{ids[here]},"
                f"{names[here]}"
            )
    for place in range(FILES):
        first, last = np.searchsorted(minute, [DAYS // FILES * edge * 1440 for edge in (place, place + 1)])
        part = lines[max(first - 100, 0) : last]
        (folder / f"{place}JourneyDataExtract.csv").write_text("\n".join([HEADERS[layout], *part, ""]))
    return sum(path.stat().st_size for path in folder.iterdir())


if __name__ == "__main__":
    main()
