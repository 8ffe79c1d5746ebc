"""Data quality: missing values, gaps, quantisation, saturation, constant channels."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from castgym.tools.diagnostics.summary import DiagnosticReport, compact, short_name
from castgym.tools.diagnostics.window import Channel, channels_of

QUANTISATION_BINS = 25
SATURATION_MARGIN = 0.01
"""Distance to the extremes that counts as saturated, share of the span."""


@dataclass(frozen=True, slots=True)
class ChannelQuality:
    """Quality of one channel.

    Attributes:
        name: channel.
        observed: number n of observed values.
        missing_ratio: 1 - n/L.
        longest_gap: most consecutive missing steps.
        quantisation: share of the observed values in the fullest of 25 equal bins from minimum to maximum; 1 for a
            constant channel, `None` without observations.
        saturation: share of the observed values within 1% of the span of the minimum or the maximum; 1 for a
            constant channel, `None` without observations.
        constant: it has observations, all equal.
    """

    name: str
    observed: int
    missing_ratio: float
    longest_gap: int
    quantisation: float | None
    saturation: float | None
    constant: bool


@dataclass(frozen=True, slots=True)
class DataQuality(DiagnosticReport):
    """Quality of a window.

    Attributes:
        length: steps L of the window.
        channels: one entry a channel, target first.
        constant_channels: names of the constant ones.
        empty_channels: names of those without any observation.
    """

    length: int
    channels: tuple[ChannelQuality, ...]
    constant_channels: tuple[str, ...]
    empty_channels: tuple[str, ...]

    def _lines(self) -> list[list[str]]:
        listed = [("constant", self.constant_channels), ("empty", self.empty_channels)]
        head = [f"{self.length} steps"]
        head += [f"{word}: {' '.join(map(short_name, names[:4]))}" for word, names in listed if names]
        return [head] + [
            [
                f"{short_name(item.name)}: missing {compact(item.missing_ratio)}",
                f"longest gap {item.longest_gap}",
                f"quantisation {compact(item.quantisation)}",
                f"saturation {compact(item.saturation)}",
            ]
            for item in self.channels
        ]


def extract_data_quality(values: npt.ArrayLike, names: Sequence[str] | None = None) -> DataQuality:
    """Assess missing values, saturation and constant channels (Cast-R1, Appendix C.1).

    Args:
        values: (L, C) or (L,) visible window, target first; NaN is missing.
        names: C names of the channels.

    Raises:
        DataError: the window or the names do not have that form.
    """
    channels = channels_of(values, names)
    return DataQuality(
        length=channels[0].length,
        channels=tuple(map(_assess, channels)),
        constant_channels=tuple(item.name for item in channels if item.constant and item.count),
        empty_channels=tuple(item.name for item in channels if not item.count),
    )


def _assess(channel: Channel) -> ChannelQuality:
    edges = np.concatenate([[-1], channel.index, [channel.length]])
    quantisation: float | None = None
    saturation: float | None = None
    if channel.count:
        quantisation, saturation = 1.0, 1.0
        if not channel.constant:
            height = channel.scaled - channel.scaled.min()
            position = height / height.max()
            bins = np.minimum((position * QUANTISATION_BINS).astype(np.int64), QUANTISATION_BINS - 1)
            quantisation = float(np.bincount(bins).max()) / channel.count
            near = (position <= SATURATION_MARGIN) | (position >= 1 - SATURATION_MARGIN)
            saturation = float(near.mean())
    return ChannelQuality(
        name=channel.name,
        observed=channel.count,
        missing_ratio=1 - channel.count / channel.length,
        longest_gap=int(np.diff(edges).max()) - 1,
        quantisation=quantisation,
        saturation=saturation,
        constant=channel.constant and channel.count > 0,
    )
