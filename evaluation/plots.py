"""The trade-off of decision loss and forecast cost, with lines of equal score (FWBench Fig. 3).

The axes are the two halves of the objective: R up, credits across, so that a line of equal S is exactly
R = 2 S - credits / B (Eq. (2)); with the raw loss it would not be, as each domain has its own sigma. Credits are
linear up to the power of ten below the smallest positive amount and logarithmic above it: free policies, cheap ones
and dear ones all have room.

Many policies are free and near to each other. Their labels stand in one column beside zero, spread as little as keeps
them apart; every other label takes the nearest place that is free.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullLocator
from matplotlib.transforms import Bbox, IdentityTransform
from scipy.optimize import isotonic_regression

from castgym.envs.plots import BLUE, FAINT, GREEN, INK, MUTED, ORANGE, VERMILLION, new_figure, shorten, tidy
from castgym.envs.scoring import COMBINED, Objective

Kind = Literal["policy", "no_tsfm", "plan_form", "hindsight"]

_MARKERS: Mapping[Kind, tuple[str, str, bool, str]] = MappingProxyType(
    {
        "policy": ("o", BLUE, True, "policy"),
        "no_tsfm": ("o", ORANGE, False, "policy without TSFMs"),
        "plan_form": ("s", GREEN, True, "answer form plan (not ranked)"),
        "hindsight": ("*", VERMILLION, True, "hindsight reference"),
    }
)
"""Marker, colour, whether it is filled, and what it means."""
_LINES = "#B8B8B8"
_DPI = 120
_LEFT, _RIGHT, _BOTTOM, _TOP = 0.75, 0.45, 0.65, 0.85
"""Margins in inches."""
_WIDTH, _LEAST_HEIGHT = 10.0, 5.6
_LINE = 17.0
"""Distance of labels, pixels."""
_GAP = 30.0
"""From a free policy's marker to its label, pixels."""
_PAD = 88.0
"""Left of zero, where the lines of equal score are labelled, pixels."""
_MARKER = 7.0
"""Half the side of the square that a marker needs, pixels."""


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """One policy.

    Attributes:
        name: its label.
        R: normalised excess loss.
        credits: credits a case.
        kind: how it is marked.
        reference: it gets a ring, as the policy that others are compared with.
    """

    name: str
    R: float
    credits: float
    kind: Kind = "policy"
    reference: bool = False


@dataclass(frozen=True, slots=True)
class _Scale:
    """The horizontal axis: pixels of its three parts, and where the logarithm begins."""

    threshold: float
    right: float
    zone: float
    decade: float

    def apply(self, axes: Axes) -> None:
        """Set scale, limits and ticks."""
        # matplotlib gives the linear part linscale / 0.9 decades.
        axes.set_xscale("symlog", linthresh=self.threshold, linscale=0.9 * self.zone / self.decade)
        axes.set_xlim(-self.threshold * _PAD / self.zone, self.right)
        exponents = range(round(math.log10(self.threshold)), math.floor(math.log10(self.right)) + 1)
        ticks = [0.0, *(10.0**exponent for exponent in exponents)]
        axes.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
        axes.xaxis.set_minor_locator(NullLocator())


def plot_frontier(
    points: Sequence[FrontierPoint], *, budget: int, title: str, objective: Objective = COMBINED
) -> Figure:
    """Draw policies by loss and cost.

    Args:
        points: at least one policy.
        budget: credits of a case, B.
        title: heading.
        objective: weights of the lines of equal S.

    Returns:
        A figure 1200 pixels wide; the more labels, the higher.
    """
    height = max(_LEAST_HEIGHT, _TOP + _BOTTOM + (len(points) + 4) * _LINE / _DPI)
    figure = new_figure((_WIDTH, height), _DPI)
    axes = figure.add_axes(
        (
            _LEFT / _WIDTH,
            _BOTTOM / height,
            1 - (_LEFT + _RIGHT) / _WIDTH,
            1 - (_BOTTOM + _TOP) / height,
        )
    )
    tidy(axes)
    axes.grid(visible=False)
    scale = _horizontal(figure, points, budget)
    scale.apply(axes)
    _vertical(axes, [point.R for point in points])
    _equal_scores(axes, scale, budget, objective)
    _mark(axes, points)
    _label(figure, axes, points, scale)
    axes.axvline(0.0, color=FAINT, linewidth=1.0, zorder=0)
    axes.axvline(budget, color=MUTED, linewidth=1.0, linestyle=(0, (2, 2)), zorder=1)
    _note(axes, f"budget {budget:,}", (budget, axes.get_ylim()[1]), (0, 4), "center", "bottom")
    axes.set_xlabel("forecast credits a case", fontsize=9, color=INK)
    axes.set_ylabel("normalised excess loss R", fontsize=9, color=INK)
    figure.text(_LEFT / _WIDTH, 1 - 0.13 / height, title, fontsize=11, color=INK, va="top", parse_math=False)
    _legend(figure, points, height)
    return figure


def spread(wanted: Sequence[float], distance: float, low: float, high: float) -> list[float]:
    """Move numbers apart: at least `distance` between neighbours, within [low, high], least squares of the moves.

    Args:
        wanted: ascending numbers.
        distance: between neighbours; reduced where they would not fit.
        low: lower border.
        high: upper border.

    Returns:
        The places, ascending.
    """
    if not wanted:
        return []
    steps = np.arange(len(wanted))
    distance = min(distance, (high - low) / max(1, len(wanted) - 1))
    # With the steps taken off, "distance apart" becomes "ascending": isotonic regression; clipping keeps it optimal.
    free = isotonic_regression(np.asarray(wanted) - distance * steps).x
    placed: list[float] = (np.clip(free, low, high - distance * steps[-1]) + distance * steps).tolist()
    return placed


def _horizontal(figure: Figure, points: Sequence[FrontierPoint], budget: int) -> _Scale:
    bought = [point.credits for point in points if point.credits >= 1]
    threshold = 10.0 ** math.floor(math.log10(min([*bought, budget / 100])))
    right = 1.35 * max([*bought, budget])
    free = [_width(figure, point.name) for point in points if point.credits < threshold]
    width = (_WIDTH - _LEFT - _RIGHT) * _DPI - _PAD
    zone = min(0.55 * width, max([60.0, *(_GAP + label + 12.0 for label in free)]))
    return _Scale(threshold, right, zone, (width - zone) / math.log10(right / threshold))


def _vertical(axes: Axes, values: Sequence[float]) -> None:
    """Linear, or logarithmic above 1 where failing policies would press the others together."""
    low, high = min(values), max(values)
    if high > 5:
        axes.set_yscale("symlog", linthresh=1.0, linscale=1.2)
        axes.set_ylim(min(low, 0.0) - 0.06, 1.5 * high)
        ticks = [0, 0.2, 0.4, 0.6, 0.8, 1, 2, 5, *(scale * 10**power for power in range(1, 6) for scale in (1, 2, 5))]
        axes.set_yticks([tick for tick in ticks if tick <= 1.5 * high])
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        margin = max(0.1 * (high - low), 0.2)
        axes.set_ylim(low - margin, high + margin)


def _equal_scores(axes: Axes, scale: _Scale, budget: int, objective: Objective) -> None:
    """Lines of equal S, labelled where they begin and where they leave on the right."""
    low, high = axes.get_ylim()
    area = axes.get_window_extent()
    if axes.get_yscale() == "linear":
        ends = objective.score(low, 0, budget), objective.score(high, scale.right, budget)
        nice = MaxNLocator(10, steps=[1, 2, 2.5, 5, 10])
        levels = [float(level) for level in nice.tick_values(*ends)]
    else:
        levels = [0.1, 0.2, 0.3, 0.4, 0.5, *(step * 10.0**power for power in range(6) for step in (1, 2.5, 5))]
    spent = np.concatenate([np.linspace(0, scale.threshold, 20), np.geomspace(scale.threshold, scale.right, 200)[1:]])
    for level in levels:
        R = (level - objective.cost_weight * spent / budget) / objective.loss_weight
        seen = (low <= R) & (high >= R)
        if level <= 0 or not seen.any():
            continue
        axes.plot(spent, R, color=_LINES, linewidth=0.9, zorder=1)
        # Not at the very border, where the ticks of the other axis stand.
        pixels = axes.transData.transform([(0, R[0]), (scale.right, R[-1])])[:, 1]
        clear = (pixels > area.y0 + 8) & (pixels < area.y1 - 3)
        if clear[0]:
            _note(axes, f"S = {level:g}", (0, float(R[0])), (-14, 0), "right", "center")
        if clear[1]:
            _note(axes, f"{level:g}", (scale.right, float(R[-1])), (5, 0), "left", "center")


def _mark(axes: Axes, points: Sequence[FrontierPoint]) -> None:
    for point in points:
        marker, colour, filled, _ = _MARKERS[point.kind]
        size = 13.0 if marker == "*" else 7.5
        face = colour if filled else "white"
        axes.plot(
            point.credits,
            point.R,
            marker,
            markersize=size,
            markerfacecolor=face,
            markeredgecolor=colour if not filled else "white",
            markeredgewidth=1.6 if not filled else 0.7,
            zorder=4,
            clip_on=False,
        )
        if point.reference:
            axes.plot(point.credits, point.R, "o", markersize=13, markerfacecolor="none", markeredgecolor=INK, zorder=5)


def _label(figure: Figure, axes: Axes, points: Sequence[FrontierPoint], scale: _Scale) -> None:
    places = axes.transData.transform([(point.credits, point.R) for point in points])
    area = axes.get_window_extent()
    taken = [Bbox.from_extents(x - _MARKER, y - _MARKER, x + _MARKER, y + _MARKER) for x, y in places]
    order = sorted(range(len(points)), key=lambda number: (places[number][1], points[number].name))
    column = [number for number in order if points[number].credits < scale.threshold]
    heights = spread([float(places[number][1]) for number in column], _LINE, area.y0 + _LINE / 2, area.y1 - _LINE / 2)
    for number, height in zip(column, heights, strict=True):
        x, y = places[number]
        box = _box(x + _GAP, height, _width(figure, points[number].name))
        taken.append(box)
        _write(axes, points[number].name, (x, y), box, to_right=True)
    for number in reversed(order):
        if number not in column:
            x, y = places[number]
            box, to_right = _free_place(_width(figure, points[number].name), (x, y), taken, area)
            taken.append(box)
            _write(axes, points[number].name, (x, y), box, to_right=to_right)


def _free_place(width: float, place: tuple[float, float], taken: Sequence[Bbox], area: Bbox) -> tuple[Bbox, bool]:
    """The nearest box beside a marker that meets no other; right of the marker where both sides are free."""
    x, y = place
    candidates = sorted(
        product((13.0, 30.0, 60.0, 100.0, 150.0), (True, False), range(-60, 61)),
        key=lambda option: (option[0] + abs(option[2]) * _LINE / 2 + (0 if option[1] else 4), option[2]),
    )
    first: tuple[Bbox, bool] | None = None
    for distance, to_right, steps in candidates:
        left = x + distance if to_right else x - distance - width
        box = _box(left, y + steps * _LINE / 2, width)
        inside = area.x0 <= box.x0 and box.x1 <= area.x1 and area.y0 <= box.y0 and box.y1 <= area.y1
        if not inside:
            continue
        first = first or (box, to_right)
        if not any(box.overlaps(other) for other in taken):
            return box, to_right
    return first or (_box(x + 13.0, y, width), True)


def _write(axes: Axes, name: str, place: tuple[float, float], box: Bbox, *, to_right: bool) -> None:
    middle = (box.y0 + box.y1) / 2
    axes.annotate(
        shorten(name),
        (box.x0, middle),
        xycoords="figure pixels",
        ha="left",
        va="center_baseline",
        fontsize=8,
        color=INK,
        parse_math=False,
        annotation_clip=False,
        bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
        zorder=6,
    )
    edge = box.x0 - 2 if to_right else box.x1 + 2
    start = place[0] + (_MARKER if to_right else -_MARKER)
    if abs(middle - place[1]) > 2 or abs(edge - start) > 12:
        line = Line2D([start, edge], [place[1], middle], color=MUTED, linewidth=0.7, zorder=3, clip_on=False)
        line.set_transform(IdentityTransform())
        axes.add_artist(line)


def _width(figure: Figure, name: str) -> float:
    """Width of a label, pixels."""
    text = figure.text(0, 0, shorten(name), fontsize=8, parse_math=False)
    extent = text.get_window_extent(FigureCanvasAgg(figure).get_renderer())  # type: ignore[no-untyped-call]
    text.remove()
    return float(extent.width)


def _box(left: float, middle: float, width: float) -> Bbox:
    return Bbox.from_bounds(left, middle - _LINE / 2 + 1, width, _LINE - 2)


def _legend(figure: Figure, points: Sequence[FrontierPoint], height: float) -> None:
    handles = []
    for kind, (marker, colour, filled, meaning) in _MARKERS.items():
        if any(point.kind == kind for point in points):
            face = colour if filled else "white"
            handles.append(
                Line2D([], [], marker=marker, color=colour, markerfacecolor=face, linestyle="none", label=meaning)
            )
    if any(point.reference for point in points):
        handles.append(
            Line2D(
                [], [], marker="o", color=INK, markerfacecolor="none", markersize=9, linestyle="none", label="reference"
            )
        )
    handles.append(Line2D([], [], color=_LINES, linewidth=1.2, label="equal S; lower left is better"))
    figure.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(_LEFT / _WIDTH - 0.012, 1 - 0.36 / height),
        ncols=len(handles),
        frameon=False,
        fontsize=8,
        labelcolor=INK,
        handletextpad=0.3,
        columnspacing=1.4,
    )


def _note(
    axes: Axes,
    text: str,
    place: tuple[float, float],
    offset: tuple[float, float],
    ha: Literal["left", "center", "right"],
    va: Literal["center", "bottom"],
) -> None:
    """Small text some pixels from a point of the data."""
    axes.annotate(
        text, place, offset, textcoords="offset pixels", ha=ha, va=va, fontsize=7.5, color=MUTED, annotation_clip=False
    )
