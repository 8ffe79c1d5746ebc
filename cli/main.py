"""Entry point of the `castgym` command."""

import os
import sys

import typer
from rich.console import Console

import castgym
from castgym.data.errors import CastgymError

app = typer.Typer(
    name="castgym",
    help="Environments in which a language-model agent buys forecasts and commits a decision.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(castgym.__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Show the version."),
) -> None:
    del version


def _add_commands() -> None:
    from castgym.cli.collect import collect
    from castgym.cli.compare import compare, contrasts, power
    from castgym.cli.data import app as data_app
    from castgym.cli.demo import demo
    from castgym.cli.evaluate import evaluate
    from castgym.cli.forecasts import app as forecasts_app
    from castgym.cli.release import export, release
    from castgym.cli.replay import replay
    from castgym.cli.report import report
    from castgym.cli.select import select
    from castgym.cli.tiny_model import tiny_model
    from castgym.cli.train_forecasters import train_forecasters
    from castgym.cli.verify import verify
    from castgym.cli.windows import windows

    data_app.command()(release)
    data_app.command()(export)
    data_app.command()(windows)
    app.add_typer(data_app, name="data")
    app.add_typer(forecasts_app, name="forecast-cache")
    app.command()(evaluate)
    app.command()(report)
    app.command()(replay)
    app.command()(verify)
    app.command()(compare)
    app.command()(contrasts)
    app.command()(power)
    app.command()(collect)
    app.command()(select)
    app.command("tiny-model")(tiny_model)
    app.command("train-forecasters")(train_forecasters)
    app.command()(demo)


_add_commands()


def run() -> None:
    """Run the command line.

    A `CastgymError`, or a file that cannot be read or written, prints its message and exits with code 2.
    """
    # Small models run side by side in threads; several threads inside each would only get in each other's way.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        app()
    except (CastgymError, OSError) as error:
        Console(stderr=True).print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)
