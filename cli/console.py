"""What commands share: options, plain lines, and the columns of a progress bar."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

Out = Annotated[Path, typer.Option("--out", "-o", help="Folder to create.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing folder.")]


def say(text: str) -> None:
    """Print a line as it is: brackets in a file's name are no markup, and long paths are not broken."""
    Console().print(text, markup=False, highlight=False, soft_wrap=True)


def progress_columns() -> tuple[ProgressColumn, ...]:
    """Name, bar, count, time taken and time left."""
    return (
        TextColumn("{task.description:<26}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
