"""Event summary: the window as a sequence of rises, falls, stable stretches and oscillations."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from castgym.tools.diagnostics.summary import DiagnosticReport, compact, short_name
from castgym.tools.diagnostics.window import Channel, FloatArray, channels_of, check_at_least

EventLabel = Literal["rise", "fall", "stable", "oscillation"]
EVENT_LABELS: tuple[EventLabel, ...] = get_args(EventLabel)

STABLE_RANGE = 0.5
"""Largest range of a stable segment, standard deviations of the channel."""

TREND_EFFICIENCY = 0.5
"""Least |net change| / path length of a rise or a fall."""


@dataclass(frozen=True, slots=True)
class ChannelEvents:
    """Events of one channel.

    Attributes:
        name: channel.
        labels: label of each segment with observations, in order of time (S of them).
        rise: prevalence n_c / S of rises; 0 for S = 0, as the next three.
        fall: prevalence of falls.
        stable: prevalence of stable segments.
        oscillation: prevalence of oscillations.
        dominant: label with the greatest prevalence, `None` for S = 0; of equal ones the latest in the window.
    """

    name: str
    labels: tuple[EventLabel, ...]
    rise: float
    fall: float
    stable: float
    oscillation: float
    dominant: EventLabel | None


@dataclass(frozen=True, slots=True)
class EventSummary(DiagnosticReport):
    """Events of a window.

    Attributes:
        segment_length: steps of a segment.
        channels: one entry a channel, target first.
    """

    segment_length: int
    channels: tuple[ChannelEvents, ...]

    def _lines(self) -> list[list[str]]:
        lines = [[f"segments of {self.segment_length} steps, the last ends with the window"]]
        for item in self.channels:
            runs = [(label, sum(1 for _ in run)) for label, run in groupby(reversed(item.labels))]
            shares = zip(EVENT_LABELS, (item.rise, item.fall, item.stable, item.oscillation), strict=True)
            lines.append(
                [
                    f"{short_name(item.name)}: mostly {item.dominant or 'nothing observed'}",
                    *(f"{label} {compact(share)}" for label, share in shares),
                    "latest first: " + " ".join(f"{label} x{count}" for label, count in runs[:6])
                    if runs
                    else "no runs",
                ]
            )
        return lines


def extract_event_summary(
    values: npt.ArrayLike, names: Sequence[str] | None = None, segment_length: int = 12
) -> EventSummary:
    """Label equal segments of every channel as rise, fall, stable or oscillation (Cast-R1, Appendix C.1).

    Segments are counted back from the window's end; the first may be shorter. On the observed values of a segment:
    a range of at most half the channel's standard deviation is stable; otherwise an efficiency |v_b - v_a| /
    sum |v_{i+1} - v_i| (Kaufman, 1995) of at least one half is a rise or a fall; anything else is an oscillation.

    Args:
        values: (L, C) or (L,) visible window, target first; NaN is missing.
        names: C names of the channels.
        segment_length: steps of a segment, at least 2.

    Raises:
        DataError: the window or the names do not have that form.
        ConfigError: the segment length is below 2.
    """
    check_at_least("segment_length", segment_length, 2)
    channels = channels_of(values, names)
    return EventSummary(segment_length, tuple(_describe(channel, segment_length) for channel in channels))


def _describe(channel: Channel, segment_length: int) -> ChannelEvents:
    segment = (channel.index - channel.length) // segment_length
    pieces = np.split(channel.deviation, np.flatnonzero(np.diff(segment)) + 1)
    limit = STABLE_RANGE * channel.std
    labels = tuple(_label(piece, limit) for piece in pieces if len(piece))
    share = {label: labels.count(label) / max(len(labels), 1) for label in EVENT_LABELS}
    return ChannelEvents(
        name=channel.name,
        labels=labels,
        rise=share["rise"],
        fall=share["fall"],
        stable=share["stable"],
        oscillation=share["oscillation"],
        dominant=max(reversed(labels), key=labels.count) if labels else None,
    )


def _label(piece: FloatArray, stable_range: float) -> EventLabel:
    if float(piece.max() - piece.min()) <= stable_range:
        return "stable"
    net = float(piece[-1] - piece[0])
    if abs(net) < TREND_EFFICIENCY * float(np.abs(np.diff(piece)).sum()):
        return "oscillation"
    return "rise" if net > 0 else "fall"
