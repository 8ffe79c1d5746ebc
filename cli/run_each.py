"""Runs policies one after another, each into a folder of its own, with a progress bar."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import Progress, TaskID

from castgym.agents.base import Policy
from castgym.cli.console import interruptible, progress_columns

RunPolicy = Callable[[Policy, Path, Callable[[int, int], None]], None]
"""Runs a policy into a folder and tells of (finished, total) episodes."""


def run_each(
    policies: Sequence[Policy],
    episodes: int,
    folder: Path,
    run: RunPolicy,
    before: Callable[[Progress], None] = lambda _: None,
) -> list[Path]:
    """Run each policy.

    Args:
        policies: in order.
        episodes: of each.
        folder: of the run folders.
        run: runs one.
        before: work that all need first; it may show its own bars.

    Returns:
        The run folders.
    """
    folders = []
    console = Console()
    with Progress(*progress_columns(), console=console, disable=not console.is_terminal) as progress, interruptible():
        before(progress)
        for policy in policies:
            path = folder / policy.name
            run(policy, path, partial(_show, progress, progress.add_task(policy.name, total=episodes)))
            folders.append(path)
            if not console.is_terminal:
                typer.echo(f"{policy.name}: {episodes} episodes in {path}")
    return folders


def _show(progress: Progress, task: TaskID, done: int, total: int) -> None:
    progress.update(task, completed=done, total=total)
