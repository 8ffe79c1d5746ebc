"""`castgym demo`: the whole benchmark on the embedded cases, with what to run next."""

import os
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from castgym.cli.console import say
from castgym.cli.evaluate import evaluate_policies, select_cases
from castgym.cli.report import write_report
from castgym.envs.casesets import EMBEDDED, load_cases
from castgym.evaluation.runner import EvaluationSettings


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of runs and report.")] = Path("runs/demo"),
) -> None:
    """Score every policy and oracle on the embedded cases; no file and no network needed."""
    loaded = load_cases(EMBEDDED)
    chosen, selection = select_cases(loaded.case_set, "test")
    say(f"{loaded.case_set.name}: {len(chosen)} test cases, fingerprint {loaded.case_set.fingerprint[:12]}")
    runs = evaluate_policies(["all"], loaded, chosen, selection, EvaluationSettings(), out)
    write_report(runs, out / "report", None, None)
    # Where the environment is not activated, the commands are given by their path.
    command = "castgym" if shutil.which("castgym") else os.path.relpath(sys.argv[0])
    python = "python" if shutil.which("castgym") else os.path.relpath(sys.executable)
    say("Next:")
    for line in (
        f"{command} data show                                   what the embedded cases are",
        f"{command} data eia930 FILES... --out cases/eia930     cases from real EIA-930 demand",
        f"{command} evaluate --policy all --cases cases/eia930  the same policies on them",
        f"{python} -c 'import castgym, gymnasium; print(gymnasium.make(\"FWBench-v0\").reset(seed=0)[0])'",
    ):
        say(f"  {line}")
