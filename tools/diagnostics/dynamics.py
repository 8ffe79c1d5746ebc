"""Dynamics within a channel: change points, stable segments, steepest moves, peaks, permutation entropy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from castgym.tools.diagnostics.change_points import pelt
from castgym.tools.diagnostics.permutation_entropy import permutation_entropy
from castgym.tools.diagnostics.summary import DiagnosticReport, compact, short_name
from castgym.tools.diagnostics.window import Channel, FloatArray, channels_of

MIN_SEGMENT = 4
"""Least number of observed values in a segment between change points."""

PEAK_PROMINENCE = 1.0
"""Least prominence of a peak, standard deviations of the channel."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch without a change in mean.

    Attributes:
        start: first observed step a, counted from 0 at the window's start.
        end: last observed step b, included.
        slope: average slope (v_b - v_a) / (b - a), raw units a step; 0 for a single step.
    """

    start: int
    end: int
    slope: float


@dataclass(frozen=True, slots=True)
class ChannelDynamics:
    """Dynamics of one channel.

    Attributes:
        name: channel.
        change_points: first observed step of every stable segment but the first.
        segments: the stable segments, in order of time; none without observations.
        largest_slope: difference of neighbouring steps with the greatest magnitude, signed, raw units; 0 without any.
        largest_second_difference: v_{t+1} - 2 v_t + v_{t-1} with the greatest magnitude, signed, raw units.
        peak_count: local maxima at least one standard deviation prominent, gaps interpolated.
        peak_width: their mean width at half prominence, steps; 0 without peaks.
        peak_spacing: mean distance of successive peaks, steps; 0 with fewer than two.
        permutation_entropy: normalised, in [0, 1], order 3, delay 1.
    """

    name: str
    change_points: tuple[int, ...]
    segments: tuple[Segment, ...]
    largest_slope: float
    largest_second_difference: float
    peak_count: int
    peak_width: float
    peak_spacing: float
    permutation_entropy: float


@dataclass(frozen=True, slots=True)
class WithinChannelDynamics(DiagnosticReport):
    """Dynamics of a window.

    Attributes:
        channels: one entry a channel, target first.
    """

    channels: tuple[ChannelDynamics, ...]

    def _lines(self) -> list[list[str]]:
        return [
            [
                f"{short_name(item.name)}: change points {len(item.change_points)}",
                f"permutation entropy {compact(item.permutation_entropy)}",
                f"peaks {item.peak_count}",
                f"peak width {compact(item.peak_width)}",
                f"peak spacing {compact(item.peak_spacing)}",
                f"largest slope {compact(item.largest_slope)}",
                f"largest second difference {compact(item.largest_second_difference)}",
                # The latest regime matters most to a forecast.
                *(f"steps {part.start}-{part.end} slope {compact(part.slope)}" for part in item.segments[:-4:-1]),
            ]
            for item in self.channels
        ]


def extract_within_channel_dynamics(values: npt.ArrayLike, names: Sequence[str] | None = None) -> WithinChannelDynamics:
    """Find regimes, steep moves and peaks of every channel (Cast-R1, Appendix C.1).

    Change points minimise the squared error around segment means plus 2 s^2 log n each (PELT): the BIC of one level
    and one position, with s^2 the variance of the whole channel. That penalty needs no noise estimate, which in a
    series with a daily cycle would be far too small and cut the cycle into pieces.

    Args:
        values: (L, C) or (L,) visible window, target first; NaN is missing. Segments are found on the observed
            values; slopes and second differences use adjacent observed steps only.
        names: C names of the channels.

    Raises:
        DataError: the window or the names do not have that form.
    """
    channels = channels_of(values, names)
    varying = [channel for channel in channels if not channel.constant]
    found = pelt(
        [channel.deviation / channel.std for channel in varying],
        [2 * math.log(channel.count) for channel in varying],
        MIN_SEGMENT,
    )
    positions = {channel.name: cuts for channel, cuts in zip(varying, found, strict=True)}
    return WithinChannelDynamics(tuple(_describe(channel, positions.get(channel.name, ())) for channel in channels))


def _describe(channel: Channel, cuts: tuple[int, ...]) -> ChannelDynamics:
    grid = channel.gapped(np.nan)
    count, width, spacing = _peaks(channel)
    return ChannelDynamics(
        name=channel.name,
        change_points=tuple(int(channel.index[cut]) for cut in cuts),
        segments=_segments(channel, cuts),
        largest_slope=channel.raw_difference(_extreme(np.diff(grid))),
        largest_second_difference=channel.raw_difference(_extreme(np.diff(grid, n=2))),
        peak_count=count,
        peak_width=width,
        peak_spacing=spacing,
        permutation_entropy=permutation_entropy(grid),
    )


def _segments(channel: Channel, cuts: tuple[int, ...]) -> tuple[Segment, ...]:
    if not channel.count:
        return ()
    segments = []
    for first, after in zip((0, *cuts), (*cuts, channel.count), strict=True):
        start, end = int(channel.index[first]), int(channel.index[after - 1])
        rise = float(channel.deviation[after - 1] - channel.deviation[first])
        segments.append(Segment(start, end, channel.raw_difference(rise / max(end - start, 1))))
    return tuple(segments)


def _extreme(differences: FloatArray) -> float:
    """The number of greatest magnitude, with its sign; 0 without any."""
    known = differences[~np.isnan(differences)]
    return float(known[np.abs(known).argmax()]) if len(known) else 0.0


def _peaks(channel: Channel) -> tuple[int, float, float]:
    """Count, mean width and mean spacing of the prominent peaks."""
    if channel.constant:
        return 0, 0.0, 0.0
    from scipy.signal import find_peaks  # takes most of a second to import: every command would pay for it

    peaks, found = find_peaks(channel.filled(), prominence=PEAK_PROMINENCE * channel.std, width=0)
    if not len(peaks):
        return 0, 0.0, 0.0
    spacing = float(peaks[-1] - peaks[0]) / (len(peaks) - 1) if len(peaks) > 1 else 0.0
    return len(peaks), float(found["widths"].mean()), spacing
