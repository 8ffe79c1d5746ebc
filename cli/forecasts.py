"""`castgym forecast-cache`: compute forecasts ahead of the runs that will ask for them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, get_args

import typer
from rich.console import Console
from rich.progress import Progress, TaskID

from castgym.cli.console import progress_columns, say
from castgym.data.cache import cache_folder
from castgym.data.errors import ConfigError
from castgym.data.schema import HISTORY_HOURS, Case, Split
from castgym.data.tariff import Tariff
from castgym.envs.casesets import EMBEDDED, load_cases
from castgym.tools.forecasters.cache import DiskCache
from castgym.tools.forecasters.pool import ForecasterPool, default_entries

FORECAST_THREADS = 2
"""Batches of forecasts side by side; each uses one thread of torch."""

app = typer.Typer(no_args_is_help=True, help="Compute forecasts ahead of the runs that will ask for them.")


@dataclass(slots=True)
class Tally:
    """Forecasts that were cached, and that were computed."""

    cached: int = 0
    computed: int = 0


@app.callback()
def _root() -> None:
    """Keep `warm` a subcommand while it is the only one."""


@app.command()
def warm(
    cases: Annotated[str, typer.Option(help="`embedded` or a case set folder.")] = EMBEDDED,
    split: Annotated[str, typer.Option(help="Split: train, calibration or test.")] = "test",
    model: Annotated[
        list[str] | None, typer.Option("--model", "-m", help="Forecaster; repeat. Default all that the cases sell.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Batches computed side by side.")] = FORECAST_THREADS,
    device: Annotated[str, typer.Option(help="Torch device of the foundation models, such as cuda.")] = "cpu",
) -> None:
    """Compute the forecasts that the fixed policies and the catalog oracle need.

    Only what is not cached yet is computed: the same command continues an interrupted one.
    """
    if split not in get_args(Split):
        raise ConfigError(f"expected --split to be one of {', '.join(get_args(Split))}, found {split!r}")
    case_set = load_cases(cases).case_set
    unsold = sorted(set(model or ()) - set(case_set.models))
    if unsold:
        raise ConfigError(f"{case_set.name} does not sell {', '.join(unsold)}; it sells {', '.join(case_set.models)}")
    folder = cache_folder() / "forecasts"
    pool = ForecasterPool(default_entries(device=device), cache=DiskCache(folder))
    names = [name for name in case_set.models if (not model or name in model) and pool.on_disk(name)]
    if not names:
        raise ConfigError(f"none of {', '.join(model or case_set.models)} is worth a cache on disk")
    chosen = case_set.where(lambda case: case.split == split)
    pool.require(names)
    reports = []
    with Progress(*progress_columns(), console=Console()) as progress:
        for name in names:
            needed = affordable(chosen.cases, name, case_set.tariff)
            task = progress.add_task(name, total=len(needed))
            started = time.perf_counter()
            tally = Tally()

            def count(cached: int, computed: int, task: TaskID = task, tally: Tally = tally) -> None:
                tally.cached += cached
                tally.computed += computed
                progress.update(task, completed=tally.cached + tally.computed)

            warm_forecasts(pool, name, needed, workers, count)
            reports.append(
                f"{name}: {len(needed)} forecasts for {len(chosen)} {split} cases; {tally.cached} were cached, "
                f"{tally.computed} computed in {time.perf_counter() - started:.1f} s; "
                f"{len(chosen) - len(needed)} cases cannot pay one"
            )
    for report in reports:
        say(report)
    say(f"kept in {folder}")


def affordable(cases: Sequence[Case], model: str, tariff: Tariff) -> list[Case]:
    """The cases that can pay the model's forecast from full context, as the fixed policies buy it."""
    return [
        case for case in cases if tariff.price(model, case.expected_horizon, HISTORY_HOURS).credits <= tariff.budget
    ]


def warm_forecasts(
    pool: ForecasterPool, model: str, cases: Sequence[Case], workers: int, progress: Callable[[int, int], None]
) -> None:
    """Compute and keep the full-context forecasts of cases.

    Args:
        pool: forecasters and cache.
        model: a forecaster.
        cases: cases that buy it.
        workers: batches computed side by side.
        progress: told how many further forecasts were found in the cache, and how many computed.
    """
    for horizon in sorted({case.expected_horizon for case in cases}):
        contexts = [case.history for case in cases if case.expected_horizon == horizon]
        pool.forecast_many(model, contexts, horizon, workers, progress)
