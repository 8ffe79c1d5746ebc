"""`castgym evaluate --windows`: run policies over forecasting windows into resumable run folders."""

from collections.abc import Callable, Sequence
from pathlib import Path

from castgym.agents.base import Policy
from castgym.agents.forecast_agents import forecast_agents
from castgym.agents.registry import imported_policy, wanted_policies
from castgym.cli.console import say
from castgym.cli.run_each import run_each
from castgym.data.errors import ConfigError
from castgym.data.sampling import spread_ids
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

    def run(policy: Policy, path: Path, progress: Callable[[int, int], None]) -> None:
        config = forecast_run_config(policy, source, chosen, selection=selection, settings=settings)
        evaluate_forecasts(policy, source, chosen, config, settings, path, progress)

    everyone = [*_policies(policies, source.config.models), *agents]
    finished = run_each(everyone, len(chosen) * settings.repeats, folder, run)
    say(f"{len(finished)} runs in {folder}. Next: castgym report {folder}/*")
    return finished


def _policies(names: Sequence[str], models: Sequence[str]) -> list[Policy]:
    """Policies by name.

    Raises:
        ConfigError: a name is unknown.
    """
    known = forecast_agents(models)
    wanted = wanted_policies(names, known) if names else []
    return [known[name] if name in known else imported_policy(name) for name in wanted]


def _spread(source: ForecastSource, limit: int | None) -> tuple[str, ...]:
    """All windows, or the same number of each data set, as far as they reach (see `spread_ids`)."""
    if limit is None or limit >= len(source.ids):
        return source.ids
    by_set: dict[str, list[str]] = {}
    for window_id in source.ids:
        by_set.setdefault(source.dataset(window_id), []).append(window_id)
    if limit < len(by_set):
        raise ConfigError(f"expected --limit of at least one window for each of {len(by_set)} sets, found {limit}")
    kept = set(spread_ids(by_set.values(), limit))
    return tuple(window_id for window_id in source.ids if window_id in kept)


def _overlap(source: ForecastSource, stride: int | None) -> int:
    """Neighbouring windows that share a step to forecast."""
    longest = max(item.horizon for item in source.loaded.sets)
    return 1 if stride is None else -(-longest // stride)
