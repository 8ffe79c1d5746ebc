"""`castgym data windows`: windows of public forecasting data sets."""

from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from castgym.cli.console import say
from castgym.data.errors import ConfigError
from castgym.data.windows import WINDOW_SPLITS
from castgym.data.windows_files import read_window_set
from castgym.data.windows_set import WindowSet
from castgym.data.windows_simulate import simulated_windows
from castgym.data.windows_store import save_window_sets


def windows(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="ETTh1.csv, Wind.csv, EPF_NP.csv, ..., plain or gzip; without any, the simulated sets."),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Official name of the one file whose own name does not tell it.")
    ] = None,
    length: Annotated[int | None, typer.Option(min=1, help="Steps of history; the paper's by default.")] = None,
    horizon: Annotated[int | None, typer.Option(min=1, help="Steps to forecast; the paper's by default.")] = None,
    whole_file: Annotated[
        bool, typer.Option("--whole-file", help="Keep all hours of price files, not the last 14,496.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder to create for the manifest.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing folder.")] = False,
) -> None:
    """Cut windows from public forecasting data sets: ETT, Wind and electricity prices."""
    if dataset is not None and len(files or ()) != 1:
        raise ConfigError(f"--dataset names the set of one file, found {len(files or ())} files: give one")
    if files:
        sets = [
            read_window_set(file, dataset=dataset, length=length, horizon=horizon, whole_file=whole_file)
            for file in files
        ]
    else:
        sets = [item.with_lengths(length, horizon) for item in simulated_windows()]
    Console().print(_table(sets))
    if out is not None:
        save_window_sets(out, sets, overwrite=overwrite)
        say(f"{out}: {', '.join(f'{item.name} {item.fingerprint[:12]}' for item in sets)}")


def _table(sets: list[WindowSet]) -> Table:
    splits = " / ".join(WINDOW_SPLITS)
    table = Table(
        "set", "rows", "channels", "step", "L", "H", f"windows {splits}", "target", "mean", "std", box=SIMPLE_HEAD
    )
    for item in sets:
        table.add_row(
            item.name,
            f"{len(item):,}",
            str(len(item.channels)),
            f"{item.step.total_seconds() / 60:g} min",
            str(item.length),
            str(item.horizon),
            " / ".join(f"{len(item.origins(split)):,}" for split in WINDOW_SPLITS),
            item.target,
            f"{item.statistics.mean[0]:.3f}",
            f"{item.statistics.std[0]:.3f}",
        )
    return table
