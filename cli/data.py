"""`castgym data`: build case sets and look at them."""

from calendar import monthrange
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, cast

import pandas as pd
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from castgym.cli.console import Out, Overwrite, say
from castgym.data.bikes import BikeUnit, bike_cases
from castgym.data.builder import BuiltCases, summary
from castgym.data.cohorts import FAMILIES, Cohort
from castgym.data.eia930 import COHORTS as EIA930_COHORTS
from castgym.data.eia930 import eia930_cases
from castgym.data.errors import ConfigError
from castgym.data.schema import Domain, Family
from castgym.data.simulate import simulated_cases
from castgym.data.tfl import COHORTS as BIKE_COHORTS
from castgym.data.tfl import SELECTION_DAYS, STATIONS, tfl_cases
from castgym.data.tfl_files import TflLayout
from castgym.envs.casesets import load_cases, write_built

app = typer.Typer(no_args_is_help=True, help="Build case sets and look at them.")

TestYear = Annotated[
    int | None, typer.Option(min=1990, max=2100, help="Year of the test cohorts; the latest by default.")
]
Cohorts = Annotated[
    list[str] | None,
    typer.Option(
        "--cohort",
        help="Test cohort as MONTH:DAY,DAY or MONTH:all (decision dates; for bikes target dates); repeat. "
        "Default the protocol's.",
    ),
]
Leads = Annotated[list[str] | None, typer.Option("--lead", help="day_ahead or week_ahead; repeat. Default both.")]
TrainStride = Annotated[int, typer.Option(min=1, help="Days between train decisions.")]


@app.command()
def simulate(
    out: Out,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the generator.")] = 0,
    overwrite: Overwrite = False,
) -> None:
    """Simulate hourly demand and cut cases from it; no file and no network needed."""
    _write(out, simulated_cases(seed=seed), overwrite)


@app.command()
def eia930(
    files: Annotated[list[Path], typer.Argument(help="EIA-930 balance files or wide tables, plain or gzip.")],
    out: Out,
    test_year: TestYear = None,
    cohort: Cohorts = None,
    lead: Leads = None,
    authority: Annotated[list[str] | None, typer.Option(help="Balancing authority; repeat. Default all.")] = None,
    train_stride: TrainStride = 3,
    overwrite: Overwrite = False,
) -> None:
    """Cut cases from EIA-930 hourly demand."""
    built = eia930_cases(
        files,
        test_year=test_year,
        cohorts=_cohorts("electricity", cohort) or EIA930_COHORTS,
        families=_families(lead),
        authorities=authority,
        train_stride=train_stride,
    )
    _write(out, built, overwrite)


@app.command()
def tfl(
    files: Annotated[list[Path], typer.Argument(help="TfL journey extracts of one layout, plain or gzip.")],
    out: Out,
    layout: Annotated[
        str, typer.Option(help="official (the header tells which), or seconds-2019 for files without a header.")
    ] = "official",
    test_year: TestYear = None,
    cohort: Cohorts = None,
    lead: Leads = None,
    station: Annotated[
        list[str] | None, typer.Option(help="Id of a start station; repeat. Default the most active ones.")
    ] = None,
    n_stations: Annotated[int, typer.Option(min=1, help="How many of the most active stations.")] = STATIONS,
    selection_start: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%d"], help="First day on which activity is measured; April 1 of the test year by default."
        ),
    ] = None,
    selection_days: Annotated[int, typer.Option(min=1, help="Days on which activity is measured.")] = SELECTION_DAYS,
    train_stride: TrainStride = 3,
    overwrite: Overwrite = False,
) -> None:
    """Cut cases from London cycle-hire journeys: departures by start station and hour."""
    built = tfl_cases(
        files,
        layout=cast(TflLayout, layout),  # checked there
        test_year=test_year,
        cohorts=_cohorts("cycle_hire", cohort) or BIKE_COHORTS,
        families=_families(lead),
        stations=station,
        n_stations=n_stations,
        selection_start=selection_start.date() if selection_start else None,
        selection_days=selection_days,
        train_stride=train_stride,
    )
    _write(out, built, overwrite)
    counts = ", ".join(f"{count} {name}" for name, count in built.source["journeys"].items())
    say(f"journeys: {counts}; {built.source['hours']['unknown']} hours unknown")


@app.command()
def bikes(
    files: Annotated[list[Path], typer.Argument(help="Wide tables of hourly counts by station, plain or gzip.")],
    out: Out,
    test_year: TestYear = None,
    cohort: Cohorts = None,
    lead: Leads = None,
    station: Annotated[list[str] | None, typer.Option(help="Column of a station; repeat. Default all.")] = None,
    prefix: Annotated[str, typer.Option(help="Beginning of case ids.")] = "BIKE",
    calendar: Annotated[str, typer.Option(help="Time zone whose days are the target days.")] = "Europe/London",
    unit: Annotated[str, typer.Option(help="What is counted: departures/hour or arrivals/hour.")] = "departures/hour",
    closed_hours: Annotated[
        str | None,
        typer.Option(help="Local hours HH-HH in which the system is closed: unknown counts in them are zero."),
    ] = None,
    train_stride: TrainStride = 3,
    overwrite: Overwrite = False,
) -> None:
    """Cut cases from wide tables of hourly counts at bike stations (first column utc_hour_start)."""
    built = bike_cases(
        files,
        test_year=test_year,
        cohorts=_cohorts("cycle_hire", cohort) or BIKE_COHORTS,
        families=_families(lead),
        stations=station,
        prefix=prefix,
        calendar=calendar,
        unit=cast(BikeUnit, unit),  # checked there
        closed_hours=closed_hours,
        train_stride=train_stride,
    )
    _write(out, built, overwrite)
    if closed := built.source["closed_hours"]:
        say(
            f"closed hours {closed['local_hours']}: {closed['filled']} unknown station hours taken as zero; "
            f"{closed['busy']} have a count above zero"
        )


def _cohorts(domain: Domain, texts: list[str] | None) -> tuple[Cohort, ...]:
    return tuple(_cohort(domain, text) for text in texts or ())


def _cohort(domain: Domain, text: str) -> Cohort:
    """Read `7:1,9,17,25` or `7:all`. Cohorts given so weigh the same."""
    month_text, _, days_text = text.partition(":")
    try:
        month = int(month_text)
        if not 1 <= month <= 12:
            raise ValueError(f"no month {month}")
        last = monthrange(2001, month)[1]
        days = tuple(range(1, last + 1)) if days_text == "all" else tuple(sorted(map(int, days_text.split(","))))
        if not days or len(set(days)) < len(days) or not 1 <= days[0] <= days[-1] <= last:
            raise ValueError(f"days must be different ones from 1 to {last}")
    except ValueError as error:
        raise ConfigError(f"expected a cohort such as 7:1,9,17,25 or 7:all, found {text!r} ({error})") from error
    return Cohort(domain, month, days, 1.0)


def _families(texts: list[str] | None) -> tuple[Family, ...]:
    return tuple(map(_family, texts)) if texts else FAMILIES


def _family(text: str) -> Family:
    for family in FAMILIES:
        if text == family:
            return family
    raise ConfigError(f"expected a lead of {', '.join(FAMILIES)}, found {text!r}")


@app.command()
def show(cases: Annotated[str, typer.Argument(help="`embedded` or a case set folder.")] = "embedded") -> None:
    """Describe a case set."""
    loaded = load_cases(cases)
    case_set = loaded.case_set
    console = Console()
    sigma = ", ".join(f"{domain} {value:.4f}" for domain, value in case_set.sigma.items())
    say(f"{case_set.name}: {len(case_set)} cases, fingerprint {case_set.fingerprint[:12]}")
    say(f"sigma: {sigma}; budget {case_set.tariff.budget}; models {', '.join(case_set.models)}")
    counts: dict[tuple[str, str, str], list[date]] = {}
    for case in case_set:
        cohort = "(all)" if case.split == "train" else case.cohort
        counts.setdefault((case.split, cohort, case.family), []).append(case.as_of.date())
    table = Table("split", "cohort", "lead", "cases", "decisions", box=SIMPLE_HEAD)
    for (split, cohort, family), dates in counts.items():
        table.add_row(split, cohort, family, str(len(dates)), f"{min(dates)} to {max(dates)}")
    console.print(table)


def _write(out: Path, built: BuiltCases, overwrite: bool) -> None:
    if not built.cases:
        raise ConfigError("no case could be cut: every window was excluded")
    case_set = write_built(out, built, overwrite=overwrite)
    console = Console()
    table = Table("split", "cohort", "cases", "left out", "why", box=SIMPLE_HEAD)
    for row in _by_cohort(summary(built)).itertuples(index=False):
        table.add_row(*map(str, row))
    console.print(table)
    splits = ", ".join(
        f"{sum(case.split == split for case in case_set)} {split}" for split in ("train", "calibration", "test")
    )
    say(f"{out}: {len(case_set)} cases ({splits}), fingerprint {case_set.fingerprint[:12]}")
    if built.exclusions:
        say(f"{len(built.exclusions)} windows left out: see {out / 'exclusions.csv'}")


def _by_cohort(counts: pd.DataFrame) -> pd.DataFrame:
    """The builder's counts for people: train months in one row, reasons in words."""
    reasons = [name for name in counts.columns if name not in ("split", "cohort", "series", "cases", "excluded")]
    shown = counts.assign(cohort=counts["cohort"].where(counts["split"] != "train", "(all)"))
    totals = dict.fromkeys(["cases", "excluded", *reasons], "sum")
    grouped = shown.groupby(["split", "cohort"], sort=False).agg(totals).reset_index()
    why = [", ".join(f"{name} {row[name]}" for name in reasons if row[name]) for _, row in grouped.iterrows()]
    return grouped[["split", "cohort", "cases", "excluded"]].assign(why=why)
