"""How a script of typer options runs on its own."""

import sys
from collections.abc import Callable

import typer

from castgym.data.errors import CastgymError


def run_command(command: Callable[..., None]) -> None:
    """Run a command with the script's arguments; a `CastgymError` prints its message and exits with code 2."""
    try:
        typer.run(command)
    except (CastgymError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
