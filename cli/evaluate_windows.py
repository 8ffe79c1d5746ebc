"""`castgym evaluate --windows`: run policies over forecasting windows into resumable run folders."""

from collections.abc import Sequence
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import Progress

from castgym.agents.base import Policy
from castgym.agents.forecast_agents import forecast_agents
from castgym.agents.registry import imported_policy
from castgym.cli.console import interruptible, progress_columns, say
from castgym.data.errors import ConfigError
from castgym.data.files import sha256_hex
from castgym.data.windows import WindowSplit
from castgym.envs.forecast_source import ForecastSource
from castgym.evaluation.forecast_runner import ForecastSettings, evaluate_forecasts, forecast_run_config


def evaluate_windows(
    policies: Sequence[str],
    agents: Sequence[Policy],
    windows: str,
    *,
    files: Path | None,
    datasets: Sequence[str] | None,
    split: WindowSplit,
    stride: int | None,
    limit: int | None,
    models: Sequence[str] | None,
    backtests: int,
    prompt_mode: str,
    settings: ForecastSettings,
    out: Path | None,
) -> list[Path]:
    """Run each policy into a folder of its own, with a progress bar.

    Args:
        policies: names, `all`, or module:name.
        agents: further policies.
        windows: `embedded`, or a folder that `castgym data windows --out` wrote.
        files: folder of the official files, where `windows` is a folder.
        datasets: sets to run; all by default.
        split: windows to run.
        stride: rows between origins; by default horizons that do not overlap.
        limit: keep so many windows, evenly from the sets.
        models: forecasters that episodes offer; all that are there by default.
        backtests: past horizons on which episodes measure the forecasters when asked.
        prompt_mode: `memory` or `chat`.
        settings: repeats, seed and what to keep.
        out: folder of the run folders.

    Returns:
        The run folders.

    Raises:
        ConfigError: a name or setting is unknown.
    """
    source = ForecastSource(
        windows,
        split,
        stride=stride,
        datasets=datasets,
        files=files,
        models=tuple(models) if models else None,
        backtests=backtests,
        prompt_mode=prompt_mode,
    )
    chosen = _spread(source, limit)
    selection = {
        "split": split,
        "stride": stride,
        "datasets": sorted({source.dataset(name) for name in chosen}),
        "limit": limit,
        "overlap": _overlap(source, stride),
    }
    folder = out or Path("runs") / source.name.replace("+", "-")
    finished = []
    console = Console()
    with Progress(*progress_columns(), console=console, disable=not console.is_terminal) as progress, interruptible():
        for policy in [*_policies(policies, source.config.models), *agents]:
            task = progress.add_task(policy.name, total=len(chosen) * settings.repeats)
            path = folder / policy.name
            evaluate_forecasts(
                policy,
                source,
                chosen,
                forecast_run_config(policy, source, chosen, selection=selection, settings=settings),
                settings,
                path,
                lambda done, total, task=task: progress.update(task, completed=done, total=total),  # type: ignore[misc]
            )
            finished.append(path)
            if not console.is_terminal:
                typer.echo(f"{policy.name}: {len(chosen) * settings.repeats} episodes in {path}")
    say(f"{len(finished)} runs in {folder}. Next: castgym report {folder}/*")
    return finished


def _policies(names: Sequence[str], models: Sequence[str]) -> list[Policy]:
    """Policies by name.

    Raises:
        ConfigError: a name is unknown.
    """
    known = forecast_agents(models)
    wanted = list(dict.fromkeys(name for given in names for name in (known if given == "all" else [given])))
    if unknown := [name for name in wanted if name not in known and ":" not in name]:
        raise ConfigError(
            f"unknown policy {', '.join(unknown)}: expected one of {', '.join(known)}, all, or module:name"
        )
    return [known[name] if name in known else imported_policy(name) for name in wanted]


def _spread(source: ForecastSource, limit: int | None) -> tuple[str, ...]:
    """All windows, or the same number of each data set, spread over them by the hash of their ids."""
    if limit is None or limit >= len(source.ids):
        return source.ids
    by_set: dict[str, list[str]] = {}
    for window_id in source.ids:
        by_set.setdefault(source.dataset(window_id), []).append(window_id)
    if limit < len(by_set):
        raise ConfigError(f"expected --limit of at least one window for each of {len(by_set)} sets, found {limit}")
    share, rest = divmod(limit, len(by_set))
    kept: set[str] = set()
    for number, ids in enumerate(by_set.values()):
        kept |= set(sorted(ids, key=lambda name: sha256_hex(name.encode()))[: share + (number < rest)])
    return tuple(window_id for window_id in source.ids if window_id in kept)


def _overlap(source: ForecastSource, stride: int | None) -> int:
    """Neighbouring windows that share a step to forecast."""
    longest = max(item.horizon for item in source.loaded.sets)
    return 1 if stride is None else -(-longest // stride)
