"""Journey extracts in every official layout, written for tests."""

import csv
import gzip
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd

from castgym.data.simulate_cycle_hire import simulate_cycle_hire

NEW = (
    "Number", "Start date", "Start station number", "Start station", "End date", "End station number", "End station",
    "Bike number", "Bike model", "Total duration", "Total duration (ms)",
)  # fmt: skip
OLD = (
    "Rental Id", "Duration", "Bike Id", "End Date", "EndStation Id", "EndStation Name",
    "Start Date", "StartStation Id", "StartStation Name",
)  # fmt: skip
LONDON = ZoneInfo("Europe/London")
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


@dataclass(frozen=True)
class Journey:
    """A row as text."""

    number: str
    start: str
    station: str


def write(
    path: Path,
    journeys: Iterable[Journey],
    header: Sequence[str] = NEW,
    places: tuple[str, str, str] = ("Number", "Start date", "Start station number"),
    encoding: str = "utf-8",
) -> Path:
    """An extract: the three columns that are read hold the journeys, the others some text."""
    where = [header.index(name) for name in places]
    rows = []
    for journey in journeys:
        row = ["Strand, Strand" if "tation" in name else "9" for name in header]
        for place, text in zip(where, (journey.number, journey.start, journey.station), strict=True):
            row[place] = text
        rows.append(row)
    stream = io.StringIO()
    csv.writer(stream).writerows([list(header), *rows])
    content = stream.getvalue().encode(encoding)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def write_old(path: Path, journeys: Iterable[Journey], **options: str) -> Path:
    return write(path, journeys, OLD, ("Rental Id", "Start Date", "StartStation Id"), **options)


def hourly(start: str, hours: int, stations: Sequence[str] = ("001057",), first: int = 1000) -> list[Journey]:
    """One journey an hour of the UTC clock from each station, stamped with London time."""
    begin = datetime.fromisoformat(start).replace(tzinfo=LONDON).astimezone(UTC)
    return [
        Journey(str(first + hour * len(stations) + place), stamp(begin + hour * HOUR + 7 * MINUTE), station)
        for hour in range(hours)
        for place, station in enumerate(stations)
    ]


def stamp(time: datetime) -> str:
    return f"{time.astimezone(LONDON):%Y-%m-%d %H:%M}"


def utc(text: str) -> pd.Timestamp:
    return pd.Timestamp(text, tz="UTC")


SIMULATED = tuple(f"{1001 + 57 * place:06}" for place in range(12))
FILLER = "200999"


def season(start: str, end: str, seed: int = 5) -> pd.DataFrame:
    """Simulated departures of 12 stations, and a last one that has a journey in every hour."""
    hours = pd.date_range(start, end, freq="h", tz="UTC", inclusive="left")
    table = simulate_cycle_hire(hours, seed).set_axis(list(SIMULATED), axis=1)
    return table.assign(**{FILLER: 1.0})


def write_season(folder: Path, departures: pd.DataFrame, days: int = 30) -> list[Path]:
    """Extracts in the new layout that hold these departures; each file begins with the last hour of the one before."""
    row, column = np.nonzero(departures.to_numpy())
    counts = departures.to_numpy()[row, column].astype(np.int64)
    row, column = np.repeat(row, counts), np.repeat(column, counts)
    minute = np.random.default_rng(0).integers(0, 60, len(row))
    starts = departures.index[row] + pd.to_timedelta(minute, unit="min")
    table = pd.DataFrame(dict.fromkeys(NEW, "x"), index=range(len(row)))
    table["Number"] = np.arange(len(row)) + 130_000_000
    table["Start date"] = starts.tz_convert(LONDON).strftime("%Y-%m-%d %H:%M")
    table["Start station number"] = departures.columns.to_numpy()[column]
    paths = []
    for first in range(0, len(departures), days * 24):
        part = (row >= first - 1) & (row < first + days * 24)
        paths.append(folder / f"{first:05}JourneyDataExtract.csv")
        table[part].to_csv(paths[-1], index=False)
    return paths
