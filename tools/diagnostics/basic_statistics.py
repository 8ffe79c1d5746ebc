"""Global statistics: level, spread, quantiles, autocorrelation, spectrum, stability and co-movement."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from castgym.tools.diagnostics.summary import DiagnosticReport, compact, short_name
from castgym.tools.diagnostics.window import (
    Channel,
    FloatArray,
    autocorrelation,
    channels_of,
    check_at_least,
    ratio,
)

QUANTILE_LEVELS = (0.05, 0.25, 0.75, 0.95)
_LEVELS = np.array([*QUANTILE_LEVELS, 0.5, *(eighth / 8 for eighth in (1, 2, 3, 5, 6, 7))])


@dataclass(frozen=True, slots=True)
class ChannelStatistics:
    """Statistics of one channel; `None` from `mean` to `quantile_kurtosis` without observations.

    Attributes:
        name: channel.
        mean: mean, raw units.
        median: median, raw units.
        std: population standard deviation, raw units.
        mean_absolute_deviation: (1/n) sum |v - mean|, raw units.
        median_absolute_deviation: median of |v - median|, raw units, not scaled to a normal sigma.
        minimum: least observed value, raw units.
        maximum: greatest observed value, raw units.
        quantiles: at `QUANTILE_LEVELS`, raw units, linear between order statistics.
        acf_1: autocorrelation at lag 1.
        acf_season: autocorrelation at the season; 0 where the window is not longer than it.
        dominant_frequency: cycles a step with the greatest power, 0 excluded; 0 for a constant.
        spectral_entropy: entropy of the power over the non-zero frequencies, divided by its maximum, in [0, 1].
        cusum_max: max_t |sum_{i<=t} (v_i - mean)| / (std sqrt n); above 1.36 a stable mean of independent values is
            rejected at 5%.
        quantile_kurtosis: ((E7 - E5) + (E3 - E1)) / (E6 - E2) of the octiles (Moors, 1988): 1.233 for a normal
            distribution, 1 for a uniform one; 0 where the middle half is constant.
        target_correlation: Pearson correlation with the target over the steps that both observed, 0 where either is
            constant there; `None` for the target itself.
    """

    name: str
    mean: float | None = None
    median: float | None = None
    std: float | None = None
    mean_absolute_deviation: float | None = None
    median_absolute_deviation: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    quantiles: tuple[float, ...] | None = None
    acf_1: float | None = None
    acf_season: float | None = None
    dominant_frequency: float | None = None
    spectral_entropy: float | None = None
    cusum_max: float | None = None
    quantile_kurtosis: float | None = None
    target_correlation: float | None = None


@dataclass(frozen=True, slots=True)
class BasicStatistics(DiagnosticReport):
    """Statistics of a window.

    Attributes:
        season: lag of `acf_season`, steps.
        channels: one entry a channel, target first.
        first_component_share: share of the total variance of the standardised channels on their first principal
            component, gaps at the mean; 0 where every channel is constant.
    """

    season: int
    channels: tuple[ChannelStatistics, ...]
    first_component_share: float

    def _lines(self) -> list[list[str]]:
        target, *others = self.channels
        lines = [_target_phrases(target, self.season)]
        if others:
            lines.append([f"first principal component's share {compact(self.first_component_share)}"])
        return lines + [
            [
                f"{short_name(item.name)}: correlation {compact(item.target_correlation)}",
                f"mean {compact(item.mean)}",
                f"std {compact(item.std)}",
                f"acf1 {compact(item.acf_1)}",
            ]
            for item in others
        ]


def extract_basic_statistics(
    values: npt.ArrayLike, names: Sequence[str] | None = None, season: int = 24
) -> BasicStatistics:
    """Describe distribution, dependence and spectrum of every channel (Cast-R1, Appendix C.1).

    Args:
        values: (L, C) or (L,) visible window, target first; NaN is missing. The autocorrelation skips pairs with a
            gap, the spectrum interpolates gaps linearly.
        names: C names of the channels.
        season: steps of a season, at least 1.

    Raises:
        DataError: the window or the names do not have that form.
        ConfigError: the season is below 1.
    """
    check_at_least("season", season, 1)
    channels = channels_of(values, names)
    grids = np.stack([_standardised(channel) for channel in channels])
    target = channels[0].gapped(np.nan)
    return BasicStatistics(
        season=season,
        channels=tuple(
            _describe(channel, season, None if number == 0 else _correlation(target, channel.gapped(np.nan)))
            for number, channel in enumerate(channels)
        ),
        first_component_share=_first_share(grids),
    )


def _describe(channel: Channel, season: int, target_correlation: float | None) -> ChannelStatistics:
    if not channel.count:
        return ChannelStatistics(channel.name, target_correlation=target_correlation)
    quantiles = np.quantile(channel.scaled, _LEVELS)
    shown = len(QUANTILE_LEVELS)
    median, e1, e2, e3, e5, e6, e7 = map(float, quantiles[shown:])
    grid = channel.gapped(0.0)
    frequency, entropy = _spectrum(channel)
    absolute = np.abs(channel.deviation)
    return ChannelStatistics(
        name=channel.name,
        mean=channel.raw(channel.centre),
        median=channel.raw(median),
        std=channel.raw_difference(channel.std),
        mean_absolute_deviation=channel.raw_difference(float(absolute.mean())),
        median_absolute_deviation=channel.raw(float(np.median(np.abs(channel.scaled - median)))),
        minimum=channel.raw(float(channel.scaled.min())),
        maximum=channel.raw(float(channel.scaled.max())),
        quantiles=tuple(channel.raw(float(value)) for value in quantiles[:shown]),
        acf_1=autocorrelation(grid, 1),
        acf_season=autocorrelation(grid, season),
        dominant_frequency=frequency,
        spectral_entropy=entropy,
        cusum_max=ratio(float(np.abs(np.cumsum(channel.deviation)).max()), channel.std * math.sqrt(channel.count)),
        quantile_kurtosis=ratio((e7 - e5) + (e3 - e1), e6 - e2),
        target_correlation=target_correlation,
    )


def _spectrum(channel: Channel) -> tuple[float, float]:
    """Dominant frequency (cycles a step) and normalised spectral entropy of the periodogram."""
    if channel.constant:
        return 0.0, 0.0
    filled = channel.filled()
    power = np.abs(np.fft.rfft(filled - filled.mean())[1:]) ** 2
    share = power / power.sum()
    frequency = (int(share.argmax()) + 1) / channel.length
    if len(share) < 2:
        return frequency, 0.0
    positive = share[share > 0]
    entropy = -float(positive @ np.log(positive)) / math.log(len(share))
    return frequency, min(max(0.0, entropy), 1.0)


def _correlation(first: FloatArray, second: FloatArray) -> float:
    """Pearson correlation over the steps where both are numbers."""
    both = ~(np.isnan(first) | np.isnan(second))
    if np.count_nonzero(both) < 2:
        return 0.0
    left, right = (_unit(values[both]) for values in (first, second))
    return min(max(float(left @ right), -1.0), 1.0)


def _unit(values: FloatArray) -> FloatArray:
    """Centred values of unit length; zeros for constant ones."""
    offset: FloatArray = values - values[0]
    largest = float(np.abs(offset).max())
    if largest == 0:
        return offset
    offset /= largest
    centred: FloatArray = offset - offset.mean()
    return centred / math.sqrt(float(centred @ centred))


def _standardised(channel: Channel) -> FloatArray:
    """(L,) z-scores with gaps at the mean; zeros for a constant channel."""
    grid = channel.gapped(0.0)
    return grid if channel.constant else grid / channel.std


def _first_share(grids: FloatArray) -> float:
    """Largest eigenvalue of the channels' product matrix over its trace."""
    product = grids @ grids.T
    trace = float(np.trace(product))
    return min(float(np.linalg.eigvalsh(product)[-1]) / trace, 1.0) if trace else 0.0


def _target_phrases(item: ChannelStatistics, season: int) -> list[str]:
    name = short_name(item.name)
    if item.quantiles is None:
        return [f"{name}: no observations"]
    levels = " ".join(
        f"q{round(100 * level)}={compact(value)}" for level, value in zip(QUANTILE_LEVELS, item.quantiles, strict=True)
    )
    return [
        f"{name}: mean {compact(item.mean)}",
        f"std {compact(item.std)}",
        f"acf1 {compact(item.acf_1)}",
        f"acf{season} {compact(item.acf_season)}",
        f"dominant frequency {compact(item.dominant_frequency)} a step",
        f"median {compact(item.median)}",
        levels,
        f"min {compact(item.minimum)}",
        f"max {compact(item.maximum)}",
        f"cusum {compact(item.cusum_max)}",
        f"spectral entropy {compact(item.spectral_entropy)}",
        f"mean abs. deviation {compact(item.mean_absolute_deviation)}",
        f"median abs. deviation {compact(item.median_absolute_deviation)}",
        f"quantile kurtosis {compact(item.quantile_kurtosis)}",
    ]
