"""`castgym data`: build case sets and look at them."""

from datetime import date
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from castgym.data.builder import BuiltCases, summary
from castgym.data.eia930 import eia930_cases
from castgym.data.errors import ConfigError
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
    authority: Annotated[
        list[str] | None, typer.Option(help="Balancing authority to keep; repeat. Default all.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Cut cases from EIA-930 hourly demand."""
    _write(out, eia930_cases(files, test_year=test_year, authorities=authority), overwrite)


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
    table = summary(built)
    if len(table):
        rich = Table(*map(str, table.columns), title="Cases and exclusions")
        for row in table.itertuples(index=False):
            rich.add_row(*map(str, row))
        console.print(rich)
    splits = ", ".join(
        f"{sum(case.split == split for case in case_set)} {split}" for split in ("train", "calibration", "test")
    )
    console.print(f"{out}: {len(case_set)} cases ({splits}), fingerprint {case_set.fingerprint[:12]}", highlight=False)
    if built.exclusions:
        console.print(f"{len(built.exclusions)} windows left out: see {out / 'exclusions.csv'}", highlight=False)
