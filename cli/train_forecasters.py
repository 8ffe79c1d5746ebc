"""`castgym train-forecasters`: train the forecasters of windows, each data set its own."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, TaskID

from castgym.cli.console import progress_columns, say
from castgym.data.errors import ConfigError, ForecasterUnavailableError
from castgym.data.windows_set import WindowSet
from castgym.data.windows_simulate import simulated_windows
from castgym.data.windows_store import load_window_sets
from castgym.tools.forecasters.windows_checkpoints import Checkpoints, default_checkpoints


def train_forecasters(
    windows: Annotated[
        Path | None,
        typer.Option("--windows", "-w", help="Folder that `castgym data windows --out` made; else the simulated sets."),
    ] = None,
    files: Annotated[Path | None, typer.Option(help="Folder of the official files that the windows come from.")] = None,
    dataset: Annotated[
        list[str] | None, typer.Option("--dataset", "-d", help="Data set of the folder; repeat. All by default.")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", help="dlinear, patchtst, itransformer or arima; repeat. All by default."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of checkpoints; the cache's `window_models` by default.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of weights, order and dropout.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Train again what is there already.")] = False,
) -> None:
    """Train PatchTST, iTransformer and DLinear, and choose ARIMA's order, on training and validation splits.

    What is trained already is skipped, so the same command continues an interrupted one.
    """
    # torch takes a second to import: only this command pays it.
    try:
        from castgym.training.fit_network import FitSettings
        from castgym.training.train_forecasters import TRAINABLE, train_forecaster
    except ImportError as error:
        raise ForecasterUnavailableError(
            f"training forecasters needs torch and transformers ({error}): pip install 'castgym[forecast]'"
        ) from error

    models = tuple(model or TRAINABLE)
    if unknown := sorted(set(models) - set(TRAINABLE)):
        raise ConfigError(f"expected models of {', '.join(TRAINABLE)}, found {', '.join(unknown)}")
    checkpoints = Checkpoints(out or default_checkpoints())
    reports = []
    with Progress(*progress_columns(), console=Console()) as bars:
        for window_set in chosen_sets(windows, files, dataset):
            for name in models:
                bar = bars.add_task(f"{window_set.name} {name}", total=None)

                def show(done: int, total: int, bar: TaskID = bar) -> None:
                    bars.update(bar, completed=done, total=total)

                trained = train_forecaster(
                    window_set,
                    name,
                    checkpoints,
                    settings=FitSettings(seed=seed),
                    overwrite=overwrite,
                    progress=show,
                )
                bars.update(bar, completed=1, total=1)
                reports.append(f"{window_set.name} {name}: {trained.summary}, {trained.seconds:.0f} s")
    for report in reports:
        say(report)
    say(f"kept in {checkpoints.folder}")


def chosen_sets(windows: Path | None, files: Path | None, names: list[str] | None) -> list[WindowSet]:
    """The window sets of a folder, or the simulated ones; of these, the named ones.

    Raises:
        ConfigError: a name is unknown.
        DataError: the folder or a file does not hold what is expected.
    """
    sets = {item.name: item for item in (simulated_windows() if windows is None else load_window_sets(windows, files))}
    if unknown := sorted(set(names or ()) - set(sets)):
        raise ConfigError(f"expected data sets of {', '.join(sets)}, found {', '.join(unknown)}")
    return [item for name, item in sets.items() if not names or name in names]
