"""Pictures: right values, no overlapping labels, no truth unless given, no global state."""

import math
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch
from matplotlib.transforms import Bbox

from castgym.data.contract import hourly_priority, protocol_terms
from castgym.data.errors import ConfigError
from castgym.data.schema import HISTORY_HOURS, Case
from castgym.envs.plots import figure_array, plot_plans, save_png, shorten
from castgym.evaluation.plots import FrontierPoint, plot_frontier, spread
from castgym.tools.planning.contract import CapacityContract

BUDGET = 113_726


def make_case(history: Any = None, **changes: Any) -> Case:
    values = 900 + 200 * np.sin(np.arange(HISTORY_HOURS) * 2 * np.pi / 24) if history is None else history
    as_of = datetime(2024, 7, 17, tzinfo=UTC)
    fields: dict[str, Any] = {
        "case_id": "AZPS-2024-07-17-week_ahead",
        "group_id": "AZPS",
        "series_id": "demand",
        "domain": "electricity",
        "unit": "MW",
        "family": "week_ahead",
        "cohort": "electricity-july",
        "split": "test",
        "timezone": "UTC",
        "as_of": as_of,
        "target_start": as_of + timedelta(days=7),
        "history": values,
        "terms": protocol_terms(date(2024, 7, 24)),
        "scale": float(np.mean(values)) or 1.0,
    }
    return Case(**{**fields, **changes})


CASE = make_case()
PLAN = (8, 9, 10, 11, 12, 13, 14, 15)
OTHER = (12,) * 8
ACTUAL = 850 + 200 * np.cos(np.arange(24) / 4)


def steps(figure: Figure) -> list[StepPatch]:
    return [patch for patch in figure.axes[1].patches if isinstance(patch, StepPatch)]


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for box in figure.legends for text in box.get_texts()]


def test_capacities_are_drawn_in_physical_units() -> None:
    figure = plot_plans(CASE, {"hour of day": OTHER}, committed=PLAN, actual=ACTUAL, oracle=OTHER)
    grid = CapacityContract.of(CASE).capacity_grid
    drawn = [patch.get_data()[0] for patch in steps(figure)]
    for values, expected in zip(drawn, (ACTUAL, grid[list(PLAN)], grid[list(OTHER)], grid[list(OTHER)]), strict=True):
        np.testing.assert_allclose(values, expected)
    assert legend(figure) == ["true demand", "committed", "hour of day", "perfect-demand plan"]
    assert [axes.get_ylabel() for axes in figure.axes] == ["MW", ""]
    assert "UTC" in figure.axes[0].get_xlabel()


def test_the_last_visible_week_is_drawn_hour_by_hour() -> None:
    figure = plot_plans(CASE, {}, committed=None)
    (line,) = figure.axes[0].get_lines()
    hours: Any = line.get_xdata(orig=True)
    values = np.asarray(line.get_ydata())
    assert hours[0] == CASE.last_visible - timedelta(hours=167)
    assert hours[-1] == CASE.last_visible + timedelta(hours=1)  # the end of the last visible hour
    np.testing.assert_array_equal(values[:-1], CASE.history[-168:])


def test_truth_and_oracle_are_drawn_only_where_given() -> None:
    figure = plot_plans(CASE, {"a": OTHER}, committed=None)
    assert legend(figure) == ["a"]
    assert len(steps(figure)) == 1
    assert legend(plot_plans(CASE, {}, committed=None)) == []


def test_the_picture_has_one_size_and_is_deterministic() -> None:
    bare = figure_array(plot_plans(CASE, {}, committed=None))
    many = {f"p{number} {'x' * 50}": OTHER for number in range(12)}
    full = figure_array(plot_plans(CASE, many, committed=PLAN, actual=ACTUAL, oracle=PLAN))
    assert bare.shape == full.shape == (540, 1000, 3)
    assert bare.dtype == np.uint8
    assert (bare == 255).mean() > 0.5  # white paper
    np.testing.assert_array_equal(bare, figure_array(plot_plans(CASE, {}, committed=None)))
    assert (bare != full).any()


def test_the_commitment_is_bolder_than_plans() -> None:
    _, committed, considered = steps(plot_plans(CASE, {"a": OTHER}, committed=PLAN, actual=ACTUAL))
    assert committed.get_linewidth() > 2 * considered.get_linewidth()


def test_plans_that_coincide_are_set_apart() -> None:
    figure = plot_plans(CASE, {"a": OTHER, "b": OTHER}, committed=None)
    figure_array(figure)
    low, high = (patch.get_transform().transform((0.0, 900.0))[1] for patch in steps(figure))
    assert 1 < high - low < 4


@pytest.mark.parametrize(
    "case",
    [
        make_case(np.zeros(HISTORY_HOURS), unit="departures/hour"),
        make_case(np.full(HISTORY_HOURS, 7.0)),
        make_case(
            timezone="Europe/London",
            target_start=datetime(2024, 5, 10, 23, tzinfo=UTC),
            as_of=datetime(2024, 5, 9, 23, tzinfo=UTC),
            family="day_ahead",
        ),
        make_case(terms=protocol_terms(date(2024, 7, 24)).model_copy(update={"hourly_priority": tuple(range(24))})),
        make_case(terms=protocol_terms(date(2024, 7, 24)).model_copy(update={"block_hours": 1})),
    ],
    ids=["zeros", "constant", "London", "a weight an hour", "a block an hour"],
)
def test_unusual_cases_are_drawn(case: Case) -> None:
    plan = [10] * case.terms.n_blocks
    assert figure_array(plot_plans(case, {"a": plan}, committed=plan, actual=np.zeros(24))).shape == (540, 1000, 3)


def test_a_london_day_starts_at_local_midnight() -> None:
    case = make_case(
        timezone="Europe/London",
        target_start=datetime(2024, 5, 10, 23, tzinfo=UTC),
        as_of=datetime(2024, 5, 9, 23, tzinfo=UTC),
        family="day_ahead",
    )
    axes = plot_plans(case, {}, committed=None).axes[1]
    assert [label.get_text() for label in axes.get_xticklabels()][:2] == ["00", "03"]
    assert "Saturday 11 May 2024, one day ahead" in axes.get_title(loc="left")


def test_shortage_weights_stand_over_their_hours() -> None:
    axes = plot_plans(CASE, {}, committed=None).axes[1]
    written = {text.get_position()[0] * 24: text.get_text() for text in axes.texts}
    weights = hourly_priority(date(2024, 7, 24))
    for middle, text in written.items():
        assert text == f"×{weights[int(middle)]:g}"
    assert len(written) == len({round(middle) for middle in written}) >= 3


@pytest.mark.parametrize(
    ("plans", "options", "message"),
    [
        ({"x": (1, 2, 3)}, {"committed": None}, r"x: expected 8 grid indices from 0 to 32, found \[1, 2, 3\]"),
        ({}, {"committed": (33,) * 8}, "the committed plan: expected 8"),
        ({}, {"committed": None, "oracle": (-1,) * 8}, "the oracle's plan: expected 8"),
        ({}, {"committed": None, "actual": np.zeros(23)}, r"demand of 24 hours, found shape \(23,\)"),
    ],
)
def test_plans_that_do_not_fit_are_refused(plans: Any, options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plot_plans(CASE, plans, **options)


def test_odd_names_are_shown_as_they_are() -> None:
    figure = plot_plans(CASE, {"_private $x_1$": OTHER, "50% \\frac": PLAN}, committed=None)
    figure_array(figure)
    assert legend(figure) == ["_private $x_1$", "50% \\frac"]
    figure_array(plot_frontier([FrontierPoint("_a $x_{", 1.0, 0.0)], budget=BUDGET, title="$_{"))


def test_saving_replaces_the_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "plot.png"
    for plans in ({}, {"a": OTHER}):
        save_png(plot_plans(CASE, plans, committed=None), path)
        assert path.read_bytes().startswith(b"\x89PNG")
        assert [entry.name for entry in path.parent.iterdir()] == ["plot.png"]
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        save_png(plot_plans(CASE, {}, committed=None), tmp_path / "taken")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["new", "taken"]


def test_drawing_leaves_no_global_state() -> None:
    before = dict(matplotlib.rcParams)
    figure_array(plot_plans(CASE, {"a": OTHER}, committed=PLAN))
    figure_array(plot_frontier([FrontierPoint("a", 1.0, 0.0)], budget=BUDGET, title="t"))
    assert dict(matplotlib.rcParams) == before
    code = (
        "import sys, castgym.evaluation.plots as p\n"
        "p.plot_frontier([p.FrontierPoint('a', 1.0, 0.0)], budget=10, title='t')\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_shorten_keeps_both_ends() -> None:
    assert shorten("abc", 5) == "abc"
    assert shorten("abcdefgh", 5) == "ab…gh"
    assert len(shorten("x" * 100)) == 40


def label_boxes(figure: Figure, points: list[FrontierPoint]) -> dict[str, Bbox]:
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    names = {shorten(point.name) for point in points}
    return {
        text.get_text(): text.get_window_extent(renderer) for text in figure.axes[0].texts if text.get_text() in names
    }


def assert_legible(points: list[FrontierPoint]) -> None:
    """Every policy has one label inside the figure, apart from all other labels and from all markers."""
    figure = plot_frontier(points, budget=BUDGET, title="title")
    boxes = label_boxes(figure, points)
    assert set(boxes) == {shorten(point.name) for point in points}
    whole = figure.bbox
    for box in boxes.values():
        assert whole.x0 <= box.x0
        assert box.x1 <= whole.x1
        assert whole.y0 <= box.y0
        assert box.y1 <= whole.y1
    for (name, box), (other, another) in combinations(boxes.items(), 2):
        assert not box.overlaps(another), (name, other)
    for x, y in figure.axes[0].transData.transform([(point.credits, point.R) for point in points]):
        for name, box in boxes.items():
            assert not (box.x0 < x < box.x1 and box.y0 < y < box.y1), name


PUBLISHED = {
    "hour_of_day_empirical": (0.5147, 0),
    "lead_matched_selector": (0.5633, 0),
    "weekday_empirical": (0.5726, 0),
    "backtest_selector": (0.6109, 0),
    "backtest_selector_8": (0.6175, 0),
    "Chronos-Bolt Tiny": (0.6014, 39_100),
    "Chronos-2": (0.8651, 108_783),
    "GPT-6 Astra": (0.3964, 2_802),
    "Gemma 4 E4B": (1.0465, 1_209),
    "catalog oracle": (0.2393, 1_053),
    "free-menu oracle": (0.2506, 0),
    "perfect demand": (0.0, 0),
}


def published(**extra: tuple[float, float]) -> list[FrontierPoint]:
    return [
        FrontierPoint(name, 2 * S - spent / BUDGET, spent, "hindsight" if S < 0.3 else "policy")
        for name, (S, spent) in {**PUBLISHED, **extra}.items()
    ]


def test_the_published_policies_are_legible() -> None:
    assert_legible(published())


def test_failing_policies_leave_the_others_legible() -> None:
    assert_legible(published(Qwen=(17.98, 1_176), Gemma_12B=(10.64, 58_104), nano=(2.64, 2_886)))


@settings(max_examples=12, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(0, 3), st.one_of(st.just(0.0), st.floats(0.1, BUDGET), st.floats(2000, 2500)), st.integers(1, 45)
        ),
        min_size=1,
        max_size=16,
    )
)
def test_any_policies_are_legible(values: list[tuple[float, float, int]]) -> None:
    assert_legible([FrontierPoint(f"{number:02d}" + "n" * size, R, c) for number, (R, c, size) in enumerate(values)])


def test_twelve_policies_in_one_place_are_legible() -> None:
    assert_legible([FrontierPoint(f"trained-policy-{number}", 0.8, 2000.0) for number in range(12)])
    assert_legible([FrontierPoint(f"free-policy-{number}", 0.8, 0.0) for number in range(12)])


@pytest.mark.parametrize("worst", [0.6, 18.0])
def test_lines_of_equal_score_are_exact(worst: float) -> None:
    axes = plot_frontier(published(worst=(worst, 0)), budget=BUDGET, title="t").axes[0]
    lines = [line for line in axes.get_lines() if np.size(line.get_xdata()) > 50]
    assert len(lines) >= 4
    for line in lines:
        S = 0.5 * (np.asarray(line.get_ydata()) + np.asarray(line.get_xdata()) / BUDGET)
        np.testing.assert_allclose(S, S[0])
    begun = {text.get_text() for text in axes.texts if text.get_text().startswith("S = ")}
    levels = {f"S = {0.5 * float(np.asarray(line.get_ydata())[0]):g}" for line in lines}
    assert begun
    assert begun <= levels


def test_markers_stand_at_their_values_and_kinds_differ() -> None:
    points = [
        FrontierPoint("a", 1.0, 0.0, reference=True),
        FrontierPoint("b", 0.9, 500.0, "no_tsfm"),
        FrontierPoint("c", 0.8, 600.0, "plan_form"),
        FrontierPoint("d", 0.1, 700.0, "hindsight"),
    ]
    figure = plot_frontier(points, budget=BUDGET, title="t")
    markers = [line for line in figure.axes[0].get_lines() if line.get_marker() not in ("None", "", None)]
    places = [(np.asarray(line.get_xdata()).item(), np.asarray(line.get_ydata()).item()) for line in markers]
    assert places == [(0.0, 1.0), (0.0, 1.0), (500.0, 0.9), (600.0, 0.8), (700.0, 0.1)]
    looks = {(line.get_marker(), line.get_markerfacecolor()) for line in markers}
    assert len(looks) == 5
    assert legend(figure) == [
        "policy",
        "policy without TSFMs",
        "answer form plan (not ranked)",
        "hindsight reference",
        "reference",
        "equal S; lower left is better",
    ]


@settings(max_examples=200)
@given(st.lists(st.floats(0, 100), min_size=1, max_size=12).map(sorted), st.floats(0.5, 30))
def test_spread_keeps_order_distance_and_borders(wanted: list[float], distance: float) -> None:
    placed = spread(wanted, distance, 0.0, 100.0)
    fits = min(distance, 100.0 / max(1, len(wanted) - 1))
    assert all(second - first >= fits - 1e-9 for first, second in pairwise(placed))
    assert placed[0] >= -1e-9
    assert placed[-1] <= 100 + 1e-9


def test_spread_moves_as_little_as_it_can() -> None:
    assert spread([10.0, 50.0, 90.0], 20.0, 0.0, 100.0) == [10.0, 50.0, 90.0]
    assert spread([50.0, 50.0, 50.0], 10.0, 0.0, 100.0) == pytest.approx([40.0, 50.0, 60.0])
    assert spread([0.0, 0.0], 10.0, 0.0, 100.0) == pytest.approx([0.0, 10.0])
    assert spread([], 10.0, 0.0, 1.0) == []
    assert math.isclose(spread([100.0, 100.0], 10.0, 0.0, 100.0)[0], 90.0)
