"""`castgym data`: build case sets and look at them."""

from calendar import monthrange
from datetime import date
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from rich.console import Console
from rich.table import Table

from castgym.data.builder import BuiltCases, summary
from castgym.data.cohorts import FAMILIES, Cohort
from castgym.data.eia930 import COHORTS, eia930_cases
from castgym.data.errors import ConfigError
from castgym.data.schema import Family
from castgym.data.simulate import simulated_cases
from castgym.envs.casesets import load_cases, write_built

app = typer.Typer(no_args_is_help=True, help="Build case sets and look at them.")

Out = Annotated[Path, typer.Option("--out", "-o", help="Folder to create.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing folder.")]


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
    test_year: Annotated[int | None, typer.Option(help="Year of the test cohorts; the latest by default.")] = None,
    cohort: Annotated[
        list[str] | None,
        typer.Option(
            help="Test cohort as MONTH:DAY,DAY or MONTH:all (decision dates); repeat. Default the protocol's."
        ),
    ] = None,
    lead: Annotated[list[str] | None, typer.Option(help="day_ahead or week_ahead; repeat. Default both.")] = None,
    authority: Annotated[list[str] | None, typer.Option(help="Balancing authority; repeat. Default all.")] = None,
    train_stride: Annotated[int, typer.Option(min=1, help="Days between train decisions.")] = 3,
    overwrite: Overwrite = False,
) -> None:
    """Cut cases from EIA-930 hourly demand."""
    built = eia930_cases(
        files,
        test_year=test_year,
        cohorts=tuple(map(_cohort, cohort)) if cohort else COHORTS,
        families=tuple(map(_family, lead)) if lead else FAMILIES,
        authorities=authority,
        train_stride=train_stride,
    )
    _write(out, built, overwrite)


def _cohort(text: str) -> Cohort:
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
    return Cohort("electricity", month, days, 1.0)


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
    console.print(f"{case_set.name}: {len(case_set)} cases, fingerprint {case_set.fingerprint[:12]}", highlight=False)
    console.print(
        f"sigma: {sigma}; budget {case_set.tariff.budget}; models {', '.join(case_set.models)}", highlight=False
    )
    counts: dict[tuple[str, str, str], list[date]] = {}
    for case in case_set:
        counts.setdefault((case.split, case.cohort, case.family), []).append(case.as_of.date())
    table = Table("split", "cohort", "family", "cases", "first decision", "last decision")
    for (split, cohort, family), dates in counts.items():
        table.add_row(split, cohort, family, str(len(dates)), str(min(dates)), str(max(dates)))
    console.print(table)


def _write(out: Path, built: BuiltCases, overwrite: bool) -> None:
    if not built.cases:
        raise ConfigError("no case could be cut: every window was excluded")
    case_set = write_built(out, built, overwrite=overwrite)
    console = Console()
    table = Table("split", "cohort", "cases", "left out", "why", title="Windows")
    for row in _by_cohort(summary(built)).itertuples(index=False):
        table.add_row(*map(str, row))
    console.print(table)
    splits = ", ".join(
        f"{sum(case.split == split for case in case_set)} {split}" for split in ("train", "calibration", "test")
    )
    console.print(f"{out}: {len(case_set)} cases ({splits}), fingerprint {case_set.fingerprint[:12]}", highlight=False)
    if built.exclusions:
        console.print(f"{len(built.exclusions)} windows left out: see {out / 'exclusions.csv'}", highlight=False)


def _by_cohort(counts: pd.DataFrame) -> pd.DataFrame:
    """The builder's counts for people: train months in one row, reasons in words."""
    reasons = [name for name in counts.columns if name not in ("split", "cohort", "series", "cases", "excluded")]
    shown = counts.assign(cohort=counts["cohort"].where(counts["split"] != "train", "(all)"))
    totals = dict.fromkeys(["cases", "excluded", *reasons], "sum")
    grouped = shown.groupby(["split", "cohort"], sort=False).agg(totals).reset_index()
    why = [", ".join(f"{name} {row[name]}" for name in reasons if row[name]) for _, row in grouped.iterrows()]
    return grouped[["split", "cohort", "cases", "excluded"]].assign(why=why)
