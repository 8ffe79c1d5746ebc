"""The diagnostic tools: right where a hand, a definition or a search can check."""

import itertools
import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from castgym.tools.diagnostics import (
    extract_basic_statistics,
    extract_data_quality,
    extract_event_summary,
    extract_forecast_residuals,
    extract_within_channel_dynamics,
    permutation_entropy,
)
from castgym.tools.diagnostics.change_points import pelt
from castgym.tools.diagnostics.summary import compact, fit_lines

LARGEST = sys.float_info.max
seeds = st.integers(0, 2**32 - 1)


def segment_costs(values: np.ndarray, cuts: tuple[int, ...]) -> float:
    return float(sum(((part - part.mean()) ** 2).sum() for part in np.split(values, cuts)))


def best_segmentation(values: np.ndarray, penalty: float, min_size: int) -> tuple[float, tuple[int, ...]]:
    """All segmentations, one by one."""
    legal = [
        cuts
        for count in range(max(len(values) // min_size, 1))
        for cuts in itertools.combinations(range(1, len(values)), count)
        if min(np.diff((0, *cuts, len(values)))) >= min_size or not cuts
    ]
    return min((segment_costs(values, cuts) + penalty * len(cuts), cuts) for cuts in legal)


@settings(max_examples=60, deadline=None)
@given(
    seed=seeds,
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=4),
    min_size=st.integers(1, 4),
    penalty=st.floats(0.05, 8),
)
def test_pelt_finds_the_optimum_of_all_segmentations(
    seed: int, lengths: list[int], min_size: int, penalty: float
) -> None:
    rng = np.random.default_rng(seed)
    series = [rng.normal(size=length) + 2 * (np.arange(length) > length // 2) for length in lengths]
    for values, cuts in zip(series, pelt(series, [penalty] * len(series), min_size), strict=True):
        if len(values):
            assert cuts == best_segmentation(values, penalty, min_size)[1]
        else:
            assert cuts == ()


def test_pruning_never_loses_the_optimum_of_longer_series() -> None:
    """Against the dynamic programme without pruning; outliers make a removal that comes too early show."""
    for seed in range(80):
        rng = np.random.default_rng(seed)
        min_size, penalty = int(rng.integers(2, 7)), rng.uniform(0.05, 3)
        values = rng.standard_t(2, size=40) + 2 * rng.integers(0, 2, 4).repeat(10)
        best = {0: -penalty}
        for end in range(min_size, 41):
            candidates = [start for start in best if end - start >= min_size]
            best[end] = penalty + min(best[start] + segment_costs(values[start:end], ()) for start in candidates)
        cuts = pelt([values], [penalty], min_size)[0]
        assert segment_costs(values, cuts) + penalty * len(cuts) == pytest.approx(best[40]), seed


def test_a_step_has_its_change_point_where_it_is() -> None:
    noise = np.random.default_rng(0).normal(0, 0.3, 100)
    step = np.where(np.arange(100) < 37, 1.0, 4.0)
    assert extract_within_channel_dynamics(step).channels[0].change_points == (37,)
    assert extract_within_channel_dynamics(step + noise).channels[0].change_points == (37,)
    gapped = step.copy()
    gapped[35:40] = np.nan
    found = extract_within_channel_dynamics(gapped).channels[0]
    assert found.change_points == (40,)
    assert [(part.start, part.end) for part in found.segments] == [(0, 34), (40, 99)]


def test_noise_without_a_change_is_one_segment() -> None:
    counts = [
        len(channel.change_points)
        for channel in extract_within_channel_dynamics(np.random.default_rng(1).normal(size=(168, 50))).channels
    ]
    assert counts.count(0) >= 45


def test_a_ramp_has_one_slope_no_entropy_and_a_perfect_baseline() -> None:
    ramp = 3.0 + 0.5 * np.arange(12)
    dynamics = extract_within_channel_dynamics(ramp).channels[0]
    assert dynamics.permutation_entropy == 0
    assert dynamics.largest_slope == pytest.approx(0.5)
    assert dynamics.largest_second_difference == pytest.approx(0)
    assert all(part.slope == pytest.approx(0.5) for part in dynamics.segments)
    assert dynamics.peak_count == 0
    assert extract_event_summary(ramp).channels[0].labels == ("rise",)
    residuals = extract_forecast_residuals(ramp).channels[0]
    assert (residuals.max_absolute, residuals.exceedance, residuals.tail_concentration) == (0, 0, 0)


def test_a_sine_has_its_frequency_peaks_and_season() -> None:
    sine = 10 + np.sin(2 * np.pi * np.arange(168) / 24)
    statistics = extract_basic_statistics(sine).channels[0]
    assert statistics.dominant_frequency == pytest.approx(1 / 24)
    assert statistics.spectral_entropy == pytest.approx(0, abs=1e-9)
    assert statistics.acf_season == pytest.approx(144 / 168)
    assert statistics.std == pytest.approx(math.sqrt(0.5))
    dynamics = extract_within_channel_dynamics(sine).channels[0]
    assert (dynamics.peak_count, dynamics.peak_spacing) == (7, 24)
    # The first peak rises from the window's edge at half height: 8 steps wide, the others 12.
    assert dynamics.peak_width == pytest.approx(80 / 7, abs=0.01)


def test_white_noise_is_flat_in_spectrum_and_patterns() -> None:
    noise = np.random.default_rng(2).normal(size=5000)
    statistics = extract_basic_statistics(noise).channels[0]
    assert statistics.acf_1 == pytest.approx(0, abs=0.05)
    assert statistics.spectral_entropy == pytest.approx(0.95, abs=0.02)
    assert statistics.quantile_kurtosis == pytest.approx(1.233, abs=0.06)
    assert permutation_entropy(noise) > 0.999
    residuals = extract_forecast_residuals(noise).channels[0]
    assert residuals.std == pytest.approx(1, abs=0.05)
    assert residuals.exceedance == pytest.approx(0.0455, abs=0.01)
    assert residuals.tail_concentration == pytest.approx(0.26, abs=0.02)


def test_the_example_of_the_permutation_entropy_paper() -> None:
    """Bandt & Pompe (2002): 4 7 9 10 6 11 3; 0.918 bits at order 2, 1.522 bits at order 3."""
    values = [4, 7, 9, 10, 6, 11, 3]
    assert permutation_entropy(values, order=2) == pytest.approx(0.918, abs=5e-4)
    assert permutation_entropy(values, order=3) * math.log2(6) == pytest.approx(1.522, abs=5e-4)
    assert permutation_entropy([1, 9, 2, 8, 3, 7, 4, 6], order=3, delay=2) > 0
    assert permutation_entropy([4, 7, math.nan, 9, 10], order=3) == 0


@settings(max_examples=50, deadline=None)
@given(seed=seeds, order=st.integers(2, 5), delay=st.integers(1, 3))
def test_permutation_entropy_sees_only_the_order_of_values(seed: int, order: int, delay: int) -> None:
    values = np.random.default_rng(seed).normal(size=60)
    entropy = permutation_entropy(values, order, delay)
    assert 0 <= entropy <= 1
    assert permutation_entropy(np.exp(values), order, delay) == entropy
    assert permutation_entropy(-values, order, delay) == pytest.approx(entropy)
    assert permutation_entropy(values[::-1], order, delay) == pytest.approx(entropy)


def test_quality_by_hand() -> None:
    values = np.array([0.0, 100, np.nan, np.nan, 0.5, 50, 3.0, 100, np.nan, 99.5])
    quality = extract_data_quality(np.stack([values, np.full(10, 7.0), np.full(10, np.nan)], axis=1), ["a", "b", "c"])
    target = quality.channels[0]
    assert target.missing_ratio == pytest.approx(0.3)
    assert target.longest_gap == 2
    assert target.quantisation == pytest.approx(3 / 7)  # bins 4 wide: 0, 0.5, 3 in the first
    assert target.saturation == pytest.approx(5 / 7)
    assert quality.constant_channels == ("b",)
    assert quality.empty_channels == ("c",)
    assert (quality.channels[1].quantisation, quality.channels[1].saturation) == (1, 1)
    assert (quality.channels[2].longest_gap, quality.channels[2].quantisation) == (10, None)


def test_statistics_by_hand() -> None:
    target = np.array([1.0, 2, 3, 4, 10])
    report = extract_basic_statistics(np.stack([target, -2 * target, [5.0] * 5], axis=1), season=2)
    item = report.channels[0]
    assert (item.mean, item.median, item.minimum, item.maximum) == (4, 3, 1, 10)
    assert item.std == pytest.approx(math.sqrt(10))
    assert item.mean_absolute_deviation == pytest.approx(2.4)
    assert item.median_absolute_deviation == 1
    assert item.quantiles == pytest.approx((1.2, 2, 4, 8.8))
    assert item.acf_1 == pytest.approx((-3 * -2 + -2 * -1 + -1 * 0 + 0 * 6) / 50)
    assert item.acf_season == pytest.approx((-3 * -1 + -2 * 0 + -1 * 6) / 50)
    assert item.cusum_max == pytest.approx(6 / math.sqrt(50))
    assert item.quantile_kurtosis == pytest.approx(((7 - 3.5) + (2.5 - 1.5)) / (4 - 2))
    assert [channel.target_correlation for channel in report.channels] == [None, pytest.approx(-1), 0]
    assert report.first_component_share == pytest.approx(1)


def test_events_by_hand() -> None:
    parts = [np.arange(12.0), np.full(12, 11.0), 11 - np.arange(12.0), np.tile([0.0, 8.0], 6)]
    item = extract_event_summary(np.concatenate([*parts, np.full(12, np.nan), parts[1]])).channels[0]
    assert item.labels == ("rise", "stable", "fall", "oscillation", "stable")
    assert (item.rise, item.fall, item.stable, item.oscillation) == (0.2, 0.2, 0.4, 0.2)
    assert item.dominant == "stable"
    assert extract_event_summary([math.nan] * 5).channels[0].dominant is None


def test_the_baseline_recovers_an_autoregression() -> None:
    rng = np.random.default_rng(3)
    shocks = rng.normal(size=3000)
    values = np.zeros(3000)
    for step in range(2, 3000):
        values[step] = 0.6 * values[step - 1] - 0.3 * values[step - 2] + shocks[step]
    item = extract_forecast_residuals(values).channels[0]
    assert (item.order, item.count) == (3, 2997)
    assert item.std == pytest.approx(shocks.std(), rel=0.01)
    assert item.acf_1 == pytest.approx(0, abs=0.01)


def test_residuals_around_the_mean_where_too_few_steps_remain() -> None:
    item = extract_forecast_residuals([1.0, 3.0]).channels[0]
    assert (item.order, item.count, item.mean, item.std, item.max_absolute) == (0, 2, 0, 1, 1)
    assert (item.mean_absolute, item.acf_1, item.tail_concentration) == (1, -0.5, 0.5)


@settings(max_examples=100, deadline=None)
@given(
    lines=st.lists(st.lists(st.text("ab1.-", min_size=1, max_size=12), min_size=1, max_size=4), max_size=5),
    budget=st.integers(0, 120),
)
def test_a_summary_holds_whole_phrases_only(lines: list[list[str]], budget: int) -> None:
    text = fit_lines(lines, budget)
    assert len(text) <= budget
    whole = "\n".join(", ".join(line) for line in lines)
    if len(whole) <= budget:
        assert text == whole
    elif text:
        kept = text.removesuffix("...").removesuffix(" ")
        phrases = [phrase for line in lines for phrase in line]
        assert text.endswith("...")
        assert (
            kept == "" or kept.replace("\n", ", ").split(", ") == phrases[: len(kept.replace("\n", ", ").split(", "))]
        )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "n/a"),
        (0.0, "0"),
        (-0.0, "0"),
        (12.3456, "12.35"),
        (123456.7, "123457"),
        (-0.00012345, "-0.0001234"),
        (1e300, "1e+300"),
        (-LARGEST, "-1.798e+308"),
        (5e-324, "4.941e-324"),
        (100.0, "100"),
    ],
)
def test_compact_numbers(value: float | None, text: str) -> None:
    assert compact(value) == text
