"""`castgym report`: tables and pictures from run folders."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from castgym.cli.console import say
from castgym.data.errors import ConfigError, DataError
from castgym.envs.casesets import LoadedCases, load_cases
from castgym.envs.scoring import COMBINED, OBJECTIVES, Objective, find_objective
from castgym.evaluation.forecast_runs import ForecastRun, ForecastRunConfig
from castgym.evaluation.run_folder import run_kind
from castgym.evaluation.runs import Run
from castgym.tools.forecasters.pool import shared_pool


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the report.")] = None,
    reference: Annotated[
        str | None, typer.Option(help="Policy that intervals compare with; the best by default.")
    ] = None,
    cases: Annotated[
        str | None, typer.Option(help="Case set for the plan plot; where the runs found theirs by default.")
    ] = None,
    objective: Annotated[str, typer.Option(help="Weights of S: " + ", ".join(OBJECTIVES) + ".")] = COMBINED.name,
) -> None:
    """Score runs in the layout of the paper's Table 2, with paired clustered bootstrap intervals and plots."""
    write_report(runs, out or runs[0].parent / "report", reference, cases, find_objective(objective))


def write_report(
    paths: list[Path], out: Path, reference: str | None, cases: str | None, objective: Objective = COMBINED
) -> None:
    """Read runs, write the report folder, print its table."""
    # Here and not above: plotting takes a second to import, and every other command starts without it.
    from castgym.evaluation.html import write_html
    from castgym.evaluation.report import build_report, render_table

    paths = [path for path in paths if path.name != "report"]
    kinds = {run_kind(path) for path in paths}
    if len(kinds) != 1:
        raise ConfigError(f"expected runs of one benchmark, found {' and '.join(sorted(kinds)) or 'none'}")
    if kinds == {ForecastRunConfig.kind()}:
        _write_forecast_report(paths, out, reference)
        return
    runs = [Run(path) for path in paths]
    loaded = _cases_of(runs, cases)
    built = build_report(
        runs,
        reference,
        out,
        case_set=loaded.case_set if loaded else None,
        targets=loaded.targets if loaded else None,
        objective=objective,
    )
    page = write_html(built, out / "report.html", loaded, shared_pool())
    console = Console()
    console.print(render_table(built))
    if page.kept:
        say(f"{page.transcripts:,} of {page.kept:,} kept episodes are in report.html")
    files = ", ".join(sorted(path.name for path in out.iterdir()))
    say(f"Report in {out}: {files}")


def _write_forecast_report(paths: list[Path], out: Path, reference: str | None) -> None:
    from castgym.evaluation.forecast_report import build_forecast_report, render_forecast_table

    table = build_forecast_report([ForecastRun(path) for path in paths], reference, out)
    Console().print(render_forecast_table(table))
    say(f"Report in {out}: {', '.join(sorted(path.name for path in out.iterdir()))}")


def _cases_of(runs: list[Run], cases: str | None) -> LoadedCases | None:
    """The case set for the plan plot. One that moved is no obstacle to a report; a wrong one given by name is."""
    config = runs[0].config
    try:
        loaded = load_cases(cases or config.case_source)
    except DataError:
        if cases is not None:
            raise
        return None
    if loaded.case_set.fingerprint != config.fingerprint:
        if cases is not None:
            raise ConfigError(f"the runs were made on another case set than {cases} (fingerprints differ)")
        return None
    return loaded
