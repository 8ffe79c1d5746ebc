"""Plans of one case as a picture: the last visible week, the target day, capacities and, where given, the truth.

Figures are made without pyplot, which keeps global state: any number of environments may draw in one process.
"""

import io
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from zoneinfo import ZoneInfo

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.dates import DateFormatter, DayLocator
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch
from matplotlib.transforms import ScaledTranslation
from numpy.typing import ArrayLike, NDArray

from castgym.data.contract import TARGET_HOURS
from castgym.data.errors import ConfigError
from castgym.data.files import write_bytes_atomic
from castgym.data.schema import Case
from castgym.tools.planning.contract import CapacityContract

BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILLION = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"
"""Colours that people with a colour vision deficiency tell apart (Okabe and Ito 2008)."""

INK, MUTED, FAINT = "#222222", "#666666", "#E3E3E3"

_PLAN_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY)
_PLAN_DASHES = ("solid", (0, (4, 1.5)), (0, (1.2, 1.2)))
_WEEK = 168
_SIZE, _DPI = (10.0, 5.4), 100
_LEGEND_WIDTH = 140
"""Characters that fit beside each other, a line sample and its margin counting as seven."""
_LEADS = MappingProxyType({"day_ahead": "one day ahead", "week_ahead": "one week ahead"})

FloatArray = NDArray[np.float64]


def plot_plans(
    case: Case,
    plans: Mapping[str, Sequence[int]],
    *,
    committed: Sequence[int] | None,
    actual: ArrayLike | None = None,
    oracle: Sequence[int] | None = None,
) -> Figure:
    """Draw the plans of one case.

    Args:
        case: the case.
        plans: label -> grid index of each block: plans that were considered, drawn as thin steps. Lines that coincide
            are set apart by a point or so, which is no difference in capacity.
        committed: the plan that was submitted, bold.
        actual: true demand, shape (24,), physical units.
        oracle: the plan of the optimiser that knows the demand.

    Returns:
        A figure of 1000 x 540 pixels, whatever it shows.

    Raises:
        ConfigError: a plan does not fit the contract, or `actual` has another shape.
    """
    contract = CapacityContract.of(case)
    lines = {label: _capacities(contract, plan, label) for label, plan in plans.items()}
    bold = None if committed is None else _capacities(contract, committed, "the committed plan")
    best = None if oracle is None else _capacities(contract, oracle, "the oracle's plan")
    truth = None if actual is None else np.asarray(actual, dtype=np.float64)
    if truth is not None and truth.shape != (TARGET_HOURS,):
        raise ConfigError(f"{case.case_id}: expected the demand of {TARGET_HOURS} hours, found shape {truth.shape}")

    figure = new_figure(_SIZE, _DPI)
    figure.set_layout_engine("constrained", w_pad=0.08, h_pad=0.06)
    past, day = figure.subplots(1, 2, sharey=True, width_ratios=(1.0, 1.25))
    figure.suptitle(f"{case.case_id}: demand and capacity", fontsize=11, color=INK, parse_math=False)
    shown = [line for line in (*lines.values(), bold, best, truth, case.history[-_WEEK:]) if line is not None]
    _limit(past, np.concatenate(shown))
    _draw_history(past, case)
    _dress_target_day(day, case)
    _draw_target_day(figure, day, lines, bold, best, truth)
    return figure


def new_figure(size: tuple[float, float], dpi: int) -> Figure:
    """A white figure with its own canvas; `size` in inches."""
    figure = Figure(figsize=size, dpi=dpi, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def figure_array(figure: Figure) -> NDArray[np.uint8]:
    """Pixels of a figure, shape (height, width, 3)."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    pixels = np.asarray(canvas.buffer_rgba(), dtype=np.uint8)  # type: ignore[no-untyped-call]
    return pixels[..., :3].copy()


def save_png(figure: Figure, path: Path) -> None:
    """Write a figure under a temporary name, then rename it into place."""
    stream = io.BytesIO()
    FigureCanvasAgg(figure).print_png(stream)  # type: ignore[no-untyped-call]
    write_bytes_atomic(path, stream.getvalue())


def shorten(label: str, length: int = 40) -> str:
    """A label of at most so many characters; an ellipsis stands for its middle."""
    if len(label) <= length:
        return label
    tail = (length - 1) // 2
    return f"{label[: length - 1 - tail]}…{label[-tail:]}"


def tidy(axes: Axes) -> None:
    """Faint grid behind the data, no box, muted ticks."""
    axes.set_axisbelow(True)
    axes.grid(color=FAINT, linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(MUTED)
    axes.tick_params(colors=MUTED, labelsize=8)


def _capacities(contract: CapacityContract, plan: Sequence[int], label: str) -> FloatArray:
    """Capacity of each block, physical units."""
    grid = contract.capacity_grid
    index = np.asarray(plan, dtype=np.intp)
    if index.shape != (contract.terms.n_blocks,) or index.min() < 0 or index.max() >= len(grid):
        raise ConfigError(
            f"{label}: expected {contract.terms.n_blocks} grid indices from 0 to {len(grid) - 1}, found {list(plan)}"
        )
    return grid[index]


def _limit(axes: Axes, values: FloatArray) -> None:
    """Room below, and more above: the shortage weights stand there."""
    low, high = float(values.min()), float(values.max())
    span = high - low or max(abs(high), 1.0)
    axes.set_ylim(max(0.0, low - 0.06 * span) if low >= 0 else low - 0.06 * span, high + 0.14 * span)


def _draw_history(axes: Axes, case: Case) -> None:
    tidy(axes)
    zone = ZoneInfo(case.timezone)
    borders = np.array([case.last_visible + timedelta(hours=hour) for hour in range(1 - _WEEK, 2)], dtype=object)
    axes.step(borders, np.append(case.history[-_WEEK:], case.history[-1]), where="post", color=INK, linewidth=1.1)
    axes.margins(x=0.01)
    axes.xaxis.set_major_locator(DayLocator(tz=zone))  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(DateFormatter("%a\n%d %b", tz=zone))  # type: ignore[no-untyped-call]
    axes.set_title("last visible week", loc="left", fontsize=9, color=MUTED)
    axes.set_xlabel(f"day ({case.timezone})", fontsize=9, color=INK)
    axes.set_ylabel(case.unit, fontsize=9, color=INK, parse_math=False)


def _dress_target_day(axes: Axes, case: Case) -> None:
    tidy(axes)
    start = case.target_start.astimezone(ZoneInfo(case.timezone))
    axes.set_xlim(0, TARGET_HOURS)
    ticks = range(0, TARGET_HOURS + 1, 3)
    axes.set_xticks(ticks, [f"{(start.hour + hour) % 24 if hour < TARGET_HOURS else 24:02d}" for hour in ticks])
    axes.set_title(f"target day, {start:%A %d %B %Y}, {_LEADS[case.family]}", loc="left", fontsize=9, color=MUTED)
    axes.set_xlabel(f"hour ({case.timezone}); shading and numbers: shortage weight", fontsize=9, color=INK)
    _shade_weights(axes, case.terms.hourly_priority)


def _shade_weights(axes: Axes, weights: Sequence[float]) -> None:
    segments = []
    hour = 0
    for weight, run in groupby(weights):
        width = len(list(run))
        segments.append((hour, hour + width, weight))
        hour += width
    low, high = min(weights), max(weights)
    for start, end, weight in segments:
        depth = (weight - low) / (high - low) if high > low else 0.0
        axes.axvspan(start, end, color=INK, alpha=0.11 * depth, linewidth=0, zorder=0)
        if len(segments) <= 8:
            place = ((start + end) / 2 / TARGET_HOURS, 0.985)
            axes.text(*place, f"×{weight:g}", transform=axes.transAxes, ha="center", va="top", fontsize=8, color=MUTED)


def _draw_target_day(
    figure: Figure,
    axes: Axes,
    plans: Mapping[str, FloatArray],
    committed: FloatArray | None,
    oracle: FloatArray | None,
    actual: FloatArray | None,
) -> None:
    entries: list[tuple[StepPatch, str]] = []
    if actual is not None:
        entries.append((axes.stairs(actual, baseline=None, color=INK, linewidth=1.7, zorder=3), "true demand"))
    if committed is not None:
        step = axes.stairs(committed, _edges(committed), baseline=None, color=VERMILLION, linewidth=3.6, zorder=4)
        entries.append((step, "committed"))
    for number, (label, capacities) in enumerate(plans.items()):
        raised = (number - (len(plans) - 1) / 2) * 1.6 / 72
        step = axes.stairs(
            capacities,
            _edges(capacities),
            baseline=None,
            color=_PLAN_COLOURS[number % len(_PLAN_COLOURS)],
            linestyle=_PLAN_DASHES[number // len(_PLAN_COLOURS) % len(_PLAN_DASHES)],
            linewidth=1.5,
            zorder=5,
            transform=axes.transData + ScaledTranslation(0, raised, figure.dpi_scale_trans),
        )
        entries.append((step, label))
    if oracle is not None:
        step = axes.stairs(
            oracle, _edges(oracle), baseline=None, color=INK, linestyle=(0, (1, 1.3)), linewidth=1.9, zorder=6
        )
        entries.append((step, "perfect-demand plan"))
    if not entries:
        return
    labels = [shorten(label) for _, label in entries]
    columns = _LEGEND_WIDTH // (max(map(len, labels)) + 7)
    legend = figure.legend(
        [step for step, _ in entries],
        [str(number) for number in range(len(entries))],
        loc="outside lower center",
        ncols=min(columns, len(entries)),
        frameon=False,
        fontsize=8,
        labelcolor=INK,
    )
    # Set afterwards: a legend drops labels that begin with an underscore, and reads dollar signs as mathematics.
    for text, label in zip(legend.get_texts(), labels, strict=True):
        text.set_parse_math(False)
        text.set_text(label)


def _edges(capacities: FloatArray) -> FloatArray:
    return np.linspace(0, TARGET_HOURS, len(capacities) + 1)
