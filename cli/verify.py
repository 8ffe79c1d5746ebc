"""`castgym verify`: execute the saved actions of runs again, and compute every score and ledger anew."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, TaskID

from castgym.cli.console import progress_columns, say
from castgym.data.errors import ConfigError
from castgym.envs.casesets import LoadedCases, load_cases
from castgym.evaluation.forecast_runs import ForecastRun, ForecastRunConfig
from castgym.evaluation.run_folder import run_kind
from castgym.evaluation.runs import Run
from castgym.evaluation.verify import DEPTHS, Verification, verify_run
from castgym.evaluation.verify_forecasts import source_of, verify_forecast_run
from castgym.tools.forecasters.pool import shared_pool

_SHOWN = 20
"""Mismatches that are printed."""


def verify(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    cases: Annotated[
        str | None, typer.Option(help="Case set, or folder of windows; where the runs found theirs by default.")
    ] = None,
    files: Annotated[Path | None, typer.Option(help="Folder of the official files, for forecast runs.")] = None,
    depth: Annotated[
        str,
        typer.Option(
            help="scores (no forecaster runs), actions (calls are executed again), or episodes (kept prompts and "
            "results must come out the same too)."
        ),
    ] = DEPTHS[-1],
) -> None:
    """Execute saved actions again, compute every score and ledger anew, and fail on any difference (exit code 1)."""
    chosen = next((name for name in DEPTHS if name == depth), None)
    if chosen is None:
        raise ConfigError(f"expected --depth to be one of {', '.join(DEPTHS)}, found {depth!r}")
    console = Console()
    loaded: dict[str, LoadedCases] = {}
    results = []
    with Progress(*progress_columns(), console=console, disable=not console.is_terminal) as progress:
        for path in runs:
            task = progress.add_task(path.name, total=None)

            def count(done: int, total: int, task: TaskID = task) -> None:
                progress.update(task, completed=done, total=total)

            if run_kind(path) == ForecastRunConfig.kind():
                source = source_of(ForecastRun(path).config, cases, files)
                results.append(verify_forecast_run(path, source, depth=chosen, progress=count))
            else:
                source_name = cases or Run(path).config.case_source
                if source_name not in loaded:
                    loaded[source_name] = load_cases(source_name)
                results.append(verify_run(path, loaded[source_name], shared_pool(), depth=chosen, progress=count))
    for result in results:
        for line in describe(result):
            say(line)
    if not all(result.ok for result in results):
        raise typer.Exit(1)


def describe(result: Verification) -> list[str]:
    """What was verified, and the first differences, in lines."""
    means = {
        "episodes": "kept episodes played again",
        "actions": "executed again from their calls",
        "scores": "ledger and score computed anew",
    }
    parts = [f"{count:,} {means[name]}" for name in reversed(DEPTHS) if (count := result.checked[name])]
    verdict = "verified" if result.ok else f"{len(result.mismatches):,} MISMATCHES"
    lines = [f"{result.path}: {verdict}: {result.rows:,} rows; {'; '.join(parts) or 'none of them scored'}"]
    lines += [f"  {note}" for note in result.notes]
    if result.unrepeatable:
        lines.append(f"  {result.unrepeatable:,} rows hold a call that a failing forecaster ended: not executed again")
    if result.lost:
        lines.append(f"  {result.lost:,} episodes were lost by the infrastructure: the run cannot be ranked; resume it")
    lines += [f"  {mismatch}" for mismatch in result.mismatches[:_SHOWN]]
    if len(result.mismatches) > _SHOWN:
        lines.append(f"  and {len(result.mismatches) - _SHOWN:,} more")
    return lines
