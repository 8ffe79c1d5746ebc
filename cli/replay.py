"""`castgym replay`: play the kept episodes of a run again and compare everything."""

from pathlib import Path
from typing import Annotated

import typer

from castgym.cli.console import say
from castgym.envs.casesets import load_cases
from castgym.evaluation.replay import replay_run
from castgym.evaluation.runs import Run
from castgym.tools.forecasters.pool import shared_pool


def replay(
    run: Annotated[Path, typer.Argument(help="Run folder, made with --keep-episodes.")],
    cases: Annotated[str | None, typer.Option(help="Case set; where the run found its own by default.")] = None,
) -> None:
    """Re-execute saved episodes; any other prompt, result, ending or score is an error."""
    count = replay_run(run, load_cases(cases or Run(run).config.case_source), shared_pool())
    say(f"{run}: {count} episodes played again, all equal")
