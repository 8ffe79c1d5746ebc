"""Tables of the forecasting benchmark: MSE and MAE a data set, wins, relative reduction, and paired intervals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from castgym.data.errors import ConfigError
from castgym.evaluation.block_bootstrap import FloatArray, block_length, resampled_means
from castgym.evaluation.bootstrap import LEVEL, RESAMPLES, SEED, Interval
from castgym.evaluation.forecast_runs import ForecastRun

METRICS = ("mse", "mae")


@dataclass(frozen=True, slots=True, eq=False)
class ForecastTable:
    """Results of several policies on the same windows.

    Attributes:
        means: one row a policy and data set: `mse`, `mae`, `reward`, `valid` (share), `windows`, `left_out`.
        wins: one row a policy: data sets where its mean is lowest (`mse`, `mae`), hindsight references left out.
        reduction: one row a policy: relative reduction of the MSE against the reference in percent (Cast-R1, A.5),
            with its interval; NaN for the reference.
        differences: one row a policy and data set: difference of the mean MSE to the reference, with its interval.
        reference: the policy that the others are compared with.
        hindsight: policies that know the truth.
    """

    means: pd.DataFrame
    wins: pd.DataFrame
    reduction: pd.DataFrame
    differences: pd.DataFrame
    reference: str
    hindsight: frozenset[str]


def forecast_frame(run: ForecastRun) -> pd.DataFrame:
    """The rows of a complete run as a table; those that the infrastructure failed have no numbers.

    Raises:
        ConfigError: episodes are missing.
    """
    run.require_complete()
    return pd.DataFrame(
        [
            {
                "dataset": row.dataset,
                "origin": row.origin,
                "case_id": row.case_id,
                "repeat": row.repeat,
                "mse": np.nan if row.mse is None else row.mse,
                "mae": np.nan if row.mae is None else row.mae,
                "reward": np.nan if row.reward is None else row.reward,
                "valid": float(row.valid) if row.scored else np.nan,
            }
            for row in run.rows
        ]
    )


def compare_forecasts(
    runs: Sequence[ForecastRun],
    reference: str | None = None,
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
    level: float = LEVEL,
) -> ForecastTable:
    """Compare complete runs over the same windows.

    A window that the infrastructure failed for one policy, in all its repeats, is left out for all.

    Args:
        runs: one run a policy.
        reference: the policy that the others are compared with; by default the one that is no hindsight reference and
            has the lowest mean relative MSE.
        resamples: number of resamples.
        seed: of the draws.
        level: confidence level.

    Raises:
        ConfigError: runs are incomplete, over different windows or data, or the reference is unknown.
    """
    _check_same(runs)
    windows = {run.config.policy: _window_means(forecast_frame(run)) for run in runs}
    names = list(windows)
    kept = sorted(set.intersection(*({*frame.index[frame["mse"].notna()]} for frame in windows.values())))
    if not kept:
        raise ConfigError("no window was scored for every policy: run the ones that the infrastructure failed again")
    total = len(next(iter(windows.values())))
    frames = {name: frame.loc[kept] for name, frame in windows.items()}
    means = pd.concat({name: _means(frame, windows[name]) for name, frame in frames.items()}, names=["policy"])
    hindsight = frozenset(run.config.policy for run in runs if run.config.hindsight)
    agents = [name for name in names if name not in hindsight] or names
    chosen = reference or _best(means, agents)
    if chosen not in names:
        raise ConfigError(f"no run of {chosen!r} to compare with; given: {', '.join(names)}")
    draws = _draws(frames, runs[0].config.selection, resamples, seed)
    mse = means["mse"].unstack("dataset").loc[names, list(draws)].to_numpy(dtype=np.float64)
    base, tail = names.index(chosen), (1 - level) / 2
    differences, reductions = [], []
    for position, name in enumerate(names):
        for column, (dataset, drawn) in enumerate(draws.items()):
            low, high = _quantiles(drawn[:, position] - drawn[:, base], tail)
            differences.append((name, dataset, mse[position, column] - mse[base, column], low, high))
        if position == base:
            reductions.append((name, math.nan, math.nan, math.nan))
            continue
        point = 100 * float(np.mean((mse[base] - mse[position]) / mse[base]))
        relative = [(drawn[:, base] - drawn[:, position]) / drawn[:, base] for drawn in draws.values()]
        reductions.append((name, point, *_quantiles(100 * np.mean(relative, axis=0), tail)))
    return ForecastTable(
        means=means.assign(left_out=total - len(kept)),
        wins=_wins(means, agents),
        reduction=pd.DataFrame(reductions, columns=["policy", "reduction", "low", "high"]).set_index("policy"),
        differences=pd.DataFrame(differences, columns=["policy", "dataset", "difference", "low", "high"]).set_index(
            ["policy", "dataset"]
        ),
        reference=chosen,
        hindsight=hindsight,
    )


def mse_interval(table: ForecastTable, policy: str, dataset: str) -> Interval:
    """The difference of a policy's MSE to the reference's on a data set; negative favours the policy."""
    row = table.differences.xs((policy, dataset)).to_numpy(dtype=np.float64)
    return Interval(*map(float, row))


def _check_same(runs: Sequence[ForecastRun]) -> None:
    if not runs:
        raise ConfigError("no run was given")
    names = [run.config.policy for run in runs]
    if len(set(names)) < len(names):
        raise ConfigError(f"expected one run a policy, found {', '.join(sorted(names))}")
    first = runs[0].config
    for run in runs[1:]:
        if dict(run.config.window_sets) != dict(first.window_sets):
            raise ConfigError(f"{run.config.policy} and {first.policy} ran on different data: they cannot be compared")
        if run.config.case_ids != first.case_ids:
            raise ConfigError(
                f"{run.config.policy} ({run.config.n_cases} windows) and {first.policy} ({first.n_cases} windows) "
                "cannot be compared: they ran on different windows; run both with the same selection"
            )


def _window_means(frame: pd.DataFrame) -> pd.DataFrame:
    """Means over the repeats of each window, indexed by data set, origin and id, in that order."""
    return frame.groupby(["dataset", "origin", "case_id"]).mean().drop(columns="repeat").sort_index()


def _means(kept: pd.DataFrame, every: pd.DataFrame) -> pd.DataFrame:
    by_set = kept.groupby("dataset")
    table = by_set[["mse", "mae", "reward"]].mean()
    return table.assign(valid=every.groupby("dataset")["valid"].mean(), windows=by_set.size())


def _best(means: pd.DataFrame, agents: Sequence[str]) -> str:
    mse = means["mse"].unstack("dataset").loc[list(agents)]
    return str((mse / mse.min()).mean(axis=1).idxmin())


def _wins(means: pd.DataFrame, agents: Sequence[str]) -> pd.DataFrame:
    counts = {}
    for metric in METRICS:
        values = means[metric].unstack("dataset").loc[list(agents)]
        counts[metric] = values.idxmin().value_counts().reindex(list(agents), fill_value=0)
    return pd.DataFrame(counts).rename_axis("policy")


def _draws(
    frames: Mapping[str, pd.DataFrame], selection: Mapping[str, object], resamples: int, seed: int
) -> dict[str, FloatArray]:
    """For each data set the resampled mean MSE of each policy, shape (resamples, policies)."""
    rng = np.random.default_rng(seed)
    table = np.column_stack([frame["mse"].to_numpy() for frame in frames.values()])
    datasets = next(iter(frames.values())).index.get_level_values("dataset")
    overlap = int(str(selection.get("overlap") or 1))
    drawn = {}
    for dataset in datasets.unique():
        values = table[datasets == dataset]
        length = block_length(len(values), overlap)
        if len(values) >= 2 * length:
            drawn[str(dataset)] = resampled_means(values, length, resamples, rng)
        else:  # too few windows for an interval: the numbers stand without one
            drawn[str(dataset)] = np.full((resamples, table.shape[1]), np.nan)
    return drawn


def _quantiles(values: FloatArray, tail: float) -> tuple[float, float]:
    if np.isnan(values).any():
        return math.nan, math.nan
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)
