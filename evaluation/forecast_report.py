"""The report of the forecasting benchmark: Markdown, CSV, a plot, and the table for a terminal."""

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table

from castgym.data.files import write_text_atomic
from castgym.evaluation.forecast_runs import ForecastRun
from castgym.evaluation.forecast_table import METRICS, ForecastTable, compare_forecasts

NONE = "–"


def build_forecast_report(runs: Sequence[ForecastRun], reference: str | None, out: Path) -> ForecastTable:
    """Compare runs and write the report folder.

    Args:
        runs: complete runs over the same windows.
        reference: the policy that the others are compared with; the best by default.
        out: folder; `report.md`, `table.csv`, `differences.csv` and `reduction.png` are written into it.

    Raises:
        ConfigError: the runs cannot be compared.
    """
    table = compare_forecasts(runs, reference)
    out.mkdir(parents=True, exist_ok=True)
    table.means.reset_index().to_csv(out / "table.csv", index=False)
    table.differences.reset_index().to_csv(out / "differences.csv", index=False)
    write_text_atomic(out / "report.md", _markdown(table, runs[0]))
    if len(table.reduction) > 1 and not table.reduction["reduction"].isna().all():
        _plot(table).savefig(out / "reduction.png", dpi=110)
    return table


def render_forecast_table(table: ForecastTable) -> Group:
    """For a terminal of 80 characters or more: the MSE of each data set, then wins and relative reductions."""
    mse = table.means["mse"].unstack("dataset")
    errors = _terminal_table("MSE (raw scale)", *map(str, mse.columns))
    overall = _terminal_table(
        f"relative MSE reduction against {table.reference}, % [95%]", "reduction", "wins MSE", "wins MAE", "valid, %"
    )
    valid = table.means["valid"].groupby("policy").mean()
    for policy in _order(table):
        label = f"{policy} (hindsight)" if policy in table.hindsight else policy
        errors.add_row(label, *(f"{value:.4g}" for value in mse.loc[policy]))
        wins = [str(table.wins.loc[policy, metric]) if policy in table.wins.index else NONE for metric in METRICS]
        overall.add_row(label, _reduction_text(table, policy), *wins, f"{100 * float(valid[policy]):.1f}")
    return Group(errors, overall)


def _terminal_table(title: str, *columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, title=title, title_justify="left")
    table.add_column("policy", min_width=20, overflow="fold")
    for name in columns:
        table.add_column(name, justify="right")
    return table


def _order(table: ForecastTable) -> list[str]:
    """Policies from the lowest mean relative MSE to the highest."""
    mse = table.means["mse"].unstack("dataset")
    return [str(name) for name in (mse / mse.min()).mean(axis=1).sort_values().index]


def _reduction_text(table: ForecastTable, policy: str) -> str:
    if policy == table.reference:
        return "reference"
    point, low, high = table.reduction.loc[policy].to_numpy(dtype=np.float64)
    return f"{point:+.1f}" if math.isnan(low) else f"{point:+.1f} [{low:+.1f}, {high:+.1f}]"


def _markdown(table: ForecastTable, run: ForecastRun) -> str:
    selection = ", ".join(f"{name} {value}" for name, value in run.config.selection.items() if value is not None)
    parts = [
        "# Forecasts",
        f"{run.config.n_cases} windows x {run.config.repeats} repeats ({selection}). Errors are on the raw scale of "
        f"each data set. The reference is {table.reference}. Intervals: 95%, circular block bootstrap over windows in "
        "time order, the same draws for every policy. An answer that could not be judged counts with the larger error "
        "of the last value and of the last day repeated.",
    ]
    parts += [f"## {metric.upper()}\n\n{_grid(table, metric)}" for metric in METRICS]
    rows = ["| policy | wins MSE | wins MAE | relative MSE reduction, % [95%] |", "|---|---|---|---|"]
    for policy in _order(table):
        wins = [str(table.wins.loc[policy, metric]) if policy in table.wins.index else NONE for metric in METRICS]
        rows.append(f"| {policy} | {wins[0]} | {wins[1]} | {_reduction_text(table, policy)} |")
    parts.append("## Wins and relative reduction\n\n" + "\n".join(rows))
    return "\n\n".join(parts) + "\n"


def _grid(table: ForecastTable, metric: str) -> str:
    values = table.means[metric].unstack("dataset")
    valid = table.means["valid"].groupby("policy").mean()
    best = values.drop(index=[name for name in table.hindsight if name in values.index]).min()
    lines = [
        "| policy | " + " | ".join(map(str, values.columns)) + " | valid |",
        "|---" * (len(values.columns) + 2) + "|",
    ]
    for policy in _order(table):
        cells = []
        for dataset in values.columns:
            value = float(values[dataset][policy])
            text = f"{value:.4g}"
            cells.append(f"**{text}**" if value == float(best[dataset]) else text)
        label = f"{policy} (hindsight)" if policy in table.hindsight else policy
        lines.append(f"| {label} | " + " | ".join(cells) + f" | {100 * float(valid[policy]):.1f}% |")
    return "\n".join(lines)


def _plot(table: ForecastTable) -> Figure:
    """Relative MSE reduction of each policy with its interval."""
    frame: pd.DataFrame = table.reduction.dropna(subset=["reduction"]).sort_values("reduction")
    with matplotlib.rc_context({"font.size": 9}):
        figure = Figure(figsize=(7, 1.2 + 0.32 * len(frame)), layout="constrained")
        axes = figure.add_subplot()
        point = frame["reduction"].to_numpy(dtype=np.float64)
        low = np.nan_to_num(point - frame["low"].to_numpy(dtype=np.float64))
        high = np.nan_to_num(frame["high"].to_numpy(dtype=np.float64) - point)
        axes.errorbar(point, np.arange(len(frame)), xerr=np.vstack([low, high]), fmt="o", capsize=3, color="#1f5fa8")
        axes.axvline(0, color="0.4", linewidth=0.8)
        axes.set_yticks(np.arange(len(frame)), list(map(str, frame.index)))
        axes.set_xlabel(f"relative MSE reduction against {table.reference}, % (right is better)")
    return figure
