"""Select the collected episodes that a student imitates (Cast-R1, 3.5.1), and say what was dropped and why.

    python training/selection.py runs/teacher --out runs/selected --per-dataset 120 --bar reference

Writes `episodes.jsonl`, trajectories like those that went in, and `selection.json`, the report. `castgym select` is the
same command.
"""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from castgym.data.errors import DataError
from castgym.data.files import append_lines, folder_atomic, write_json_atomic
from castgym.training.collect_folder import EPISODES
from castgym.training.command import run_command
from castgym.training.selecting import SelectionReport, SelectionSettings
from castgym.training.selecting import select as select_episodes
from castgym.training.step_rows import read_trajectories

REPORT = "selection.json"


def select(
    collections: Annotated[list[Path], typer.Argument(help="Folders that `castgym collect` wrote.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to create.")],
    per_dataset: Annotated[int | None, typer.Option(min=1, help="Windows kept of each data set.")] = None,
    bar: Annotated[str, typer.Option(help="none, or reference: the best must be no worse than it.")] = "none",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing folder.")] = False,
) -> None:
    """Select the collected episodes that a student imitates, and report what was dropped and why."""
    settings = SelectionSettings(per_dataset, bar)  # type: ignore[arg-type]  # checked there
    paths = [folder / EPISODES for folder in collections]
    kept, report = select_episodes(read_trajectories(paths), settings)
    if not kept:
        raise DataError(f"no episode is left to learn from; dropped: {_reasons(report)}")
    if overwrite and out.is_dir() and any(out.iterdir()) and not (out / REPORT).is_file():
        raise DataError(f"{out} holds something else than a selection: it is not replaced; choose another folder")
    with folder_atomic(out, overwrite=overwrite) as folder:
        append_lines(folder / EPISODES, (json.dumps(trajectory.to_json(), allow_nan=False) for trajectory in kept))
        write_json_atomic(folder / REPORT, _record(paths, settings, report))
    console = Console()
    console.print(report_table(report))
    console.print(
        f"{len(kept)} of {report.episodes} episodes in {out}; dropped: {_reasons(report)}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def report_table(report: SelectionReport) -> Table:
    """What is kept of each data set and how its error compares."""
    table = Table(box=SIMPLE_HEAD)
    for name in ("data set", "kept", "mean error, valid", "mean error, kept"):
        table.add_column(name, justify="left" if name == "data set" else "right")
    for name, before in report.error_before.items():
        after = report.error_kept.get(name)
        kept = str(report.kept.get(name, 0))
        table.add_row(name, kept, f"{before:.4g}", "" if after is None else f"{after:.4g}")
    return table


def _reasons(report: SelectionReport) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in report.dropped.items() if count) or "none"


def _record(paths: list[Path], settings: SelectionSettings, report: SelectionReport) -> dict[str, Any]:
    inputs = [{"path": str(path.resolve()), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()} for path in paths]
    return {"inputs": inputs, "settings": asdict(settings), "report": asdict(report)}


if __name__ == "__main__":
    run_command(select)
