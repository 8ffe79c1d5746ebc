"""What commands share: options, plain lines, and the columns of a progress bar."""

from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C ends the command with a word about what is saved, not with a traceback."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("interrupted: what is finished is saved, and the same command continues it", err=True)
        raise typer.Exit(130) from None
