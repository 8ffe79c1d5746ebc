"""The diagnostic tools: finite on every finite window, and invariant where they must be."""

import itertools
import json
import math
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from castgym.data.errors import ConfigError, DataError
from castgym.tools.diagnostics import (
    SUMMARY_BUDGET,
    DiagnosticReport,
    extract_basic_statistics,
    extract_data_quality,
    extract_event_summary,
    extract_forecast_residuals,
    extract_within_channel_dynamics,
    permutation_entropy,
)

TOOLS: tuple[Callable[..., DiagnosticReport], ...] = (
    extract_data_quality,
    extract_basic_statistics,
    extract_within_channel_dynamics,
    extract_event_summary,
    extract_forecast_residuals,
)
LARGEST = sys.float_info.max

finite_or_gap = st.one_of(
    st.floats(allow_nan=True, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 5e-324, -1e-300, 1e300, LARGEST, -LARGEST, math.nan]),
)
windows = arrays(np.float64, array_shapes(min_dims=1, max_dims=2, max_side=40), elements=finite_or_gap)
seeds = st.integers(0, 2**32 - 1)


def wandering(seed: int, length: int = 96, width: int = 3) -> np.ndarray:
    """Integers around a daily cycle with a level shift and a few gaps: sums and differences are exact."""
    rng = np.random.default_rng(seed)
    steps = np.arange(length)[:, None]
    cycle = 300 * np.sin(2 * np.pi * steps / 24 + np.arange(width))
    table = np.round(cycle + rng.normal(0, 100, (length, width)) + 700 * (steps >= rng.integers(length)))
    table[rng.random(table.shape) < 0.05] = np.nan
    return table


def numbers_in(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [number for item in value.values() for number in numbers_in(item)]
    if isinstance(value, list):
        return [number for item in value for number in numbers_in(item)]
    return [value] if isinstance(value, int | float) else []


def close(first: Any, second: Any, tolerance: float = 1e-9) -> bool:
    """Equal structure, numbers up to rounding."""
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(close(first[key], second[key], tolerance) for key in first)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(close, first, second, itertools.repeat(tolerance)))
    if isinstance(first, float):
        return math.isclose(first, second, rel_tol=tolerance, abs_tol=tolerance)
    return bool(first == second)


def without(report: DiagnosticReport, *fields: str) -> list[dict[str, Any]]:
    """The channels of a report, less some fields."""
    channels: list[dict[str, Any]] = report.to_json()["channels"]
    return [{key: value for key, value in channel.items() if key not in fields} for channel in channels]


def check_report(tool: Callable[..., DiagnosticReport], values: np.ndarray) -> None:
    before = values.copy()
    with warnings.catch_warnings(), np.errstate(over="raise", divide="raise", invalid="raise"):
        warnings.simplefilter("error")
        report = tool(values)
    np.testing.assert_array_equal(values, before)
    content = report.to_json()
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert all(math.isfinite(number) for number in numbers_in(content))
    assert tool(values) == report
    for budget in (0, 3, 40, 200, SUMMARY_BUDGET):
        assert len(report.summary(budget)) <= budget


@pytest.mark.parametrize("tool", TOOLS)
@settings(max_examples=100, deadline=None)
@given(values=windows)
def test_every_finite_window_gives_finite_numbers_without_a_warning(
    tool: Callable[..., DiagnosticReport], values: np.ndarray
) -> None:
    check_report(tool, values)


EDGE_CASES = {
    "all missing": np.full((30, 2), np.nan),
    "one value": np.array([5.0]),
    "one value between gaps": np.array([np.nan, 5.0, np.nan]),
    "two values": np.array([1.0, 2.0]),
    "constant": np.full(168, 0.1),
    "alternating": np.tile([LARGEST, -LARGEST], 84),
    "huge": 1e300 * wandering(1, 168, 7) / 2000,
    "tiny": 1e-303 * wandering(2, 168, 7),
    "denormal": 5e-324 * np.arange(48.0),
    "last digit": np.where(np.arange(48) % 5 == 0, 1.0, np.nextafter(1.0, 2.0)),
    "huge beside tiny": np.tile([1e300, 1e-300, 0.0], 30),
    "one empty channel": np.stack([wandering(3)[:, 0], np.full(96, np.nan)], axis=1),
}


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("values", EDGE_CASES.values(), ids=EDGE_CASES.keys())
def test_edge_cases_give_finite_numbers(tool: Callable[..., DiagnosticReport], values: np.ndarray) -> None:
    check_report(tool, values)


SCALE_FREE: tuple[tuple[Callable[..., DiagnosticReport], tuple[str, ...]], ...] = (
    (extract_data_quality, ()),
    (
        extract_basic_statistics,
        (
            *("mean", "median", "std", "mean_absolute_deviation", "median_absolute_deviation"),
            *("minimum", "maximum", "quantiles"),
        ),
    ),
    (extract_within_channel_dynamics, ("segments", "largest_slope", "largest_second_difference")),
    (extract_event_summary, ()),
    (extract_forecast_residuals, ("mean", "mean_absolute", "std", "max_absolute")),
)
LOCATION_FREE = (
    (extract_data_quality, ()),
    (extract_basic_statistics, ("mean", "median", "minimum", "maximum", "quantiles")),
    (extract_within_channel_dynamics, ()),
    (extract_event_summary, ()),
    (extract_forecast_residuals, ()),
)


@pytest.mark.parametrize(("tool", "fields"), LOCATION_FREE)
@settings(max_examples=25, deadline=None)
@given(seed=seeds, shift=st.integers(-(10**6), 10**6))
def test_adding_a_level_changes_only_levels(
    tool: Callable[..., DiagnosticReport], fields: tuple[str, ...], seed: int, shift: int
) -> None:
    values = wandering(seed)
    assert close(without(tool(values), *fields), without(tool(values + shift), *fields), 1e-8)


@pytest.mark.parametrize(("tool", "fields"), SCALE_FREE)
@settings(max_examples=25, deadline=None)
@given(seed=seeds, exponent=st.integers(-1000, 1000))
def test_a_positive_factor_changes_only_quantities_with_units(
    tool: Callable[..., DiagnosticReport], fields: tuple[str, ...], seed: int, exponent: int
) -> None:
    values = wandering(seed)
    scaled = np.ldexp(values, exponent)
    assert close(without(tool(values), *fields), without(tool(scaled), *fields), 0.0)


@settings(max_examples=25, deadline=None)
@given(seed=seeds, exponent=st.integers(-1000, 1000))
def test_quantities_with_units_scale_with_the_window(seed: int, exponent: int) -> None:
    values = wandering(seed)
    for tool, fields in SCALE_FREE:
        plain = tool(values).to_json()["channels"]
        scaled = tool(np.ldexp(values, exponent)).to_json()["channels"]
        for number, field in itertools.product(range(3), set(fields) - {"segments", "quantiles"}):
            assert math.ldexp(plain[number][field], exponent) == scaled[number][field], field


@settings(max_examples=25, deadline=None)
@given(seed=seeds)
def test_a_turned_sign_turns_rises_into_falls_and_slopes_around(seed: int) -> None:
    values = wandering(seed)
    turned = {"rise": "fall", "fall": "rise", "stable": "stable", "oscillation": "oscillation"}
    events, opposite_events = extract_event_summary(values), extract_event_summary(-values)
    for event, opposite in zip(events.channels, opposite_events.channels, strict=True):
        assert tuple(turned[label] for label in event.labels) == opposite.labels
        assert (event.rise, event.fall, event.stable) == (opposite.fall, opposite.rise, opposite.stable)
        assert opposite.dominant == turned[event.dominant or ""]
    dynamics, opposite_dynamics = extract_within_channel_dynamics(values), extract_within_channel_dynamics(-values)
    for plain, mirrored in zip(dynamics.channels, opposite_dynamics.channels, strict=True):
        assert plain.change_points == mirrored.change_points
        assert plain.largest_slope == -mirrored.largest_slope
        assert [part.slope for part in plain.segments] == [-part.slope for part in mirrored.segments]
    statistics, opposite_statistics = extract_basic_statistics(values), extract_basic_statistics(-values)
    for item, turned_item in zip(statistics.channels, opposite_statistics.channels, strict=True):
        assert item.mean == -(turned_item.mean or 0.0)
        assert (item.std, item.acf_1) == (turned_item.std, turned_item.acf_1)


@pytest.mark.parametrize("tool", TOOLS)
@settings(max_examples=15, deadline=None)
@given(seed=seeds)
def test_the_order_of_the_covariates_only_orders_the_report(tool: Callable[..., DiagnosticReport], seed: int) -> None:
    values = wandering(seed, width=4)
    names = ["price", "load", "wind", "sun"]
    order = [0, 3, 1, 2]
    plain = tool(values, names).to_json()
    moved = tool(values[:, order], [names[number] for number in order]).to_json()
    plain["channels"] = [plain["channels"][number] for number in order]
    assert close(plain, moved)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_channel_is_described_as_it_would_be_alone(tool: Callable[..., DiagnosticReport]) -> None:
    values = wandering(5, length=120, width=5)
    for number, together in enumerate(without(tool(values), "name", "target_correlation")):
        assert close(without(tool(values[:, number]), "name", "target_correlation"), [together], 0.0)


@pytest.mark.parametrize("tool", TOOLS)
def test_bad_windows_are_refused(tool: Callable[..., DiagnosticReport]) -> None:
    for bad in ([], [[]], np.zeros((2, 2, 2)), [1.0, math.inf], ["a"]):
        with pytest.raises(DataError, match="window"):
            tool(bad)
    for names in (["a"], ["a", "a"]):
        with pytest.raises(DataError, match="names"):
            tool(np.zeros((3, 2)), names)


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="season"):
        extract_basic_statistics([1.0], season=0)
    with pytest.raises(ConfigError, match="segment_length"):
        extract_event_summary([1.0], segment_length=1)
    with pytest.raises(ConfigError, match="order"):
        extract_forecast_residuals([1.0], order=0)
    with pytest.raises(ConfigError, match="order"):
        permutation_entropy([1.0], order=1)
    with pytest.raises(DataError, match="finite"):
        permutation_entropy([math.inf])


def test_the_default_summary_starts_with_the_target() -> None:
    values = wandering(7, length=168, width=7)
    for tool in TOOLS:
        text = tool(values, ["OT", *"abcdef"]).summary()
        assert "OT: " in "\n".join(text.split("\n")[:2])
    with pytest.raises(ConfigError, match="budget"):
        extract_data_quality(values).summary(-1)
