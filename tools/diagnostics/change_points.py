"""Exact change points in the mean: PELT with the squared-error cost, over several series at once."""

from collections.abc import Sequence

import numpy as np

from castgym.tools.diagnostics.window import FloatArray


def pelt(series: Sequence[FloatArray], penalties: Sequence[float], min_size: int) -> list[tuple[int, ...]]:
    """Segment each series at the minimum of (sum of squared errors around segment means) + penalty * change points.

    Pruned exact linear time search (Killick, Fearnhead & Eckley, 2012). The optimum is that of the full dynamic
    programme F(t) = min_s F(s) + cost(s, t) + penalty: splitting never raises the squared error, so a start s with
    F(s) + cost(s, t) > F(t) loses to t at every later end T, provided that [t, T) is a legal segment. With a least
    segment length that holds from T = t + min_size on, hence the delayed removal. The series share one candidate
    set; a start is removed once every series allows it, which keeps each optimum exact.

    Args:
        series: (n_c,) finite values of the order of one each; lengths may differ.
        penalties: positive cost of a change point, one a series.
        min_size: least length of a segment; a series shorter than two of them has no change point.

    Returns:
        For each series the first positions of all segments but the first, ascending.
    """
    lengths = np.array([len(values) for values in series], dtype=np.int64)
    longest = int(lengths.max(initial=0))
    if longest < 2 * min_size:
        return [() for _ in series]
    # Squares cancel between segmentations: cost(s, t) = const - (sum over [s, t))^2 / (t - s).
    total = np.zeros((longest + 1, len(series)))
    for number, values in enumerate(series):
        total[1 : len(values) + 1, number] = np.cumsum(values - values.mean()) if len(values) else 0.0
    penalty = np.asarray(penalties, dtype=np.float64)
    best = np.full((longest + 1, len(series)), np.inf)
    best[0] = -penalty
    previous = np.zeros((longest + 1, len(series)), dtype=np.int64)
    columns = np.arange(len(series))
    starts = np.zeros(1, dtype=np.int64)
    expiry = np.full(1, longest + 1)
    for end in range(min_size, longest + 1):
        if end >= 2 * min_size:
            starts = np.append(starts, end - min_size)
            expiry = np.append(expiry, longest + 1)
        alive = expiry > end
        if not alive.all():
            starts, expiry = starts[alive], expiry[alive]
        value = best[starts] - (total[end] - total[starts]) ** 2 / (end - starts)[:, None]
        choice = value.argmin(axis=0)
        best[end] = value[choice, columns] + penalty
        previous[end] = starts[choice]
        removable = ((value > best[end]) | (end > lengths)).all(axis=1)
        expiry[removable] = np.minimum(expiry[removable], end + min_size)
    return [_trace(previous[:, number], int(lengths[number]), min_size) for number in range(len(series))]


def _trace(previous: np.ndarray[tuple[int], np.dtype[np.int64]], length: int, min_size: int) -> tuple[int, ...]:
    """Walk back from the end of a series over the best last segments."""
    found: list[int] = []
    end = length if length >= 2 * min_size else 0
    while (end := int(previous[end])) > 0:
        found.append(end)
    return tuple(reversed(found))
