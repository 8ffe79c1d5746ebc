"""Reward of a point forecast: length, error, season, trend and turning points (Cast-R1).

R = p * (w_length + w_error q(e_pred) + w_season q(e_seas) + w_trend q(e_trend) + w_peaks h_max + w_troughs h_min)
with p = min(1, n_pred / n_gt) and q(e) = 1 / (1 + log(1 + e)); -1 without an answer. Source of every formula:
arXiv 2602.13802, Equation 6 and Appendix D.5. `docs/reward.md` explains the parts and what they can and cannot tell.

The prediction is judged on its first n = min(n_pred, n_gt) steps, and the truth's mean and standard deviation are
those of the same n steps.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

NO_ANSWER_REWARD = -1.0
"""Reward of a response without an `<answer>` pair."""

_LEAST_STD = 1e-8
_LONGEST_KERNEL = 25
_SHORTEST_KERNEL = 3
_EXTREMUM_REACH = 2
_LEAST_FOR_EXTREMA = 5
# Standardised values are clipped here, so that squares and moving averages stay finite: q(1e200) is 0.002.
_LARGEST_STANDARDISED = 1e100


@dataclass(frozen=True, slots=True)
class RewardWeights:
    """Weights of the reward's terms; the defaults are the paper's (Table 9) and give a reward of 0 to 1.2.

    Attributes:
        length: constant for an answer of full length; 0 takes the constant away, the factor p stays.
        error: weight of q(e_pred).
        season: weight of q(e_seas).
        trend: weight of q(e_trend).
        peaks: weight of the hit rate of maxima.
        troughs: weight of the hit rate of minima.

    Raises:
        ValueError: a weight is negative or not finite.
    """

    length: float = 0.10
    error: float = 0.70
    season: float = 0.05
    trend: float = 0.15
    peaks: float = 0.10
    troughs: float = 0.10

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"expected the weight {item.name} as a finite number of at least 0, found {value!r}")


TABLE4: Mapping[str, RewardWeights] = MappingProxyType(
    {
        "cast-r1": RewardWeights(),
        "w/o length": RewardWeights(length=0.0),
        "w/o error": RewardWeights(error=0.0),
        "w/o trend": RewardWeights(season=0.0, trend=0.0),
        "w/o align": RewardWeights(peaks=0.0, troughs=0.0),
    }
)
"""The reward ablations of the paper's Table 4, by name. "Trend" there is trend and seasonality together."""


@dataclass(frozen=True, slots=True)
class ForecastReward:
    """A reward and its parts. Every number is finite.

    Attributes:
        total: the reward R, or -1 where there was no answer; the parts are then 0.
        p: length factor, share of the horizon that the prediction covers.
        e_pred: mean squared error of the standardised series, that is MSE / var(truth).
        e_seas: mean squared error of their seasonal parts (what remains beside the moving average).
        e_trend: mean squared error of their moving averages.
        q_pred: q(e_pred), between 0 and 1, as are the next two.
        q_seas: q(e_seas).
        q_trend: q(e_trend).
        h_max: share of the truth's maxima that the prediction's maxima match.
        h_min: share of the truth's minima that the prediction's minima match.
    """

    total: float
    p: float = 0.0
    e_pred: float = 0.0
    e_seas: float = 0.0
    e_trend: float = 0.0
    q_pred: float = 0.0
    q_seas: float = 0.0
    q_trend: float = 0.0
    h_max: float = 0.0
    h_min: float = 0.0


def forecast_reward(
    prediction: Sequence[float] | FloatArray | None,
    truth: Sequence[float] | FloatArray,
    weights: RewardWeights | None = None,
    *,
    strict_alignment: bool = False,
) -> ForecastReward:
    """The terminal reward of a forecast (arXiv 2602.13802, Equation 6).

    The prediction counts up to its first value that is not finite, so `[1.0, nan, 2.0]` has length 1. Values beyond
    the truth's length are not read. A prediction without a usable value has p = 0 and earns 0.

    Args:
        prediction: (n_pred,) values in the target's unit; `None` where the response had no `<answer>` pair.
        truth: (n_gt,) observed values, finite.
        weights: weights of the terms; the paper's by default.
        strict_alignment: divide the hits by the longer of both lists of extrema. The published hit rate asks only
            whether the truth's extrema are met, so that a flat line, where every point is an extremum, or a ripple
            of no height meets them all and earns the full 0.20; under this setting they earn next to nothing.

    Returns:
        The reward and its parts.

    Raises:
        ValueError: `truth` is empty, not one-dimensional, not finite, or spreads beyond float64; `prediction` is not
            one-dimensional or not numeric.
    """
    weights = weights or RewardWeights()
    actual = _truth(truth)
    if prediction is None:
        return ForecastReward(NO_ANSWER_REWARD)
    predicted = _usable(prediction, len(actual))
    n = len(predicted)
    if n == 0:
        return ForecastReward(0.0)
    p = n / len(actual)
    actual = actual[:n]
    e_pred, e_seas, e_trend = _errors(predicted, actual)
    q_pred, q_seas, q_trend = map(error_score, (e_pred, e_seas, e_trend))
    h_max = _hit_rate(predicted, actual, strict_alignment)
    h_min = _hit_rate(-predicted, -actual, strict_alignment)
    terms = (
        weights.length
        + weights.error * q_pred
        + weights.season * q_seas
        + weights.trend * q_trend
        + weights.peaks * h_max
        + weights.troughs * h_min
    )
    return ForecastReward(p * terms, p, e_pred, e_seas, e_trend, q_pred, q_seas, q_trend, h_max, h_min)


def error_score(error: float) -> float:
    """q(e) = 1 / (1 + log(1 + e)): 1 for no error, 0.59 for an error as large as the truth's variance (e = 1)."""
    return 1.0 / (1.0 + math.log1p(error))


def decompose(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Seasonal part and trend of a series: the trend is a centred moving average, the edges repeat the end values.

    The kernel is min(25, n // 2), at least 3, and one longer where that is even.

    Args:
        values: (n,) finite values, n >= 1.

    Returns:
        (seasonal, trend), each (n,), with sum `values`.
    """
    kernel = max(_SHORTEST_KERNEL, min(_LONGEST_KERNEL, len(values) // 2)) | 1
    padded = np.pad(values, kernel // 2, mode="edge")
    trend = np.lib.stride_tricks.sliding_window_view(padded, kernel).mean(axis=1)
    return values - trend, trend


def local_maxima(values: FloatArray) -> NDArray[np.intp]:
    """Positions with no larger value within 2 steps, in order; fewer than 5 values have none.

    Mirroring at the edges adds only values that are compared already, so an edge value needs none larger in the steps
    that exist. Equal neighbours both count: each point of a constant series is a maximum, and a minimum.
    """
    if len(values) < _LEAST_FOR_EXTREMA:
        return np.empty(0, dtype=np.intp)
    padded = np.pad(values, _EXTREMUM_REACH, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * _EXTREMUM_REACH + 1)
    return np.flatnonzero(values >= windows.max(axis=1))


def _truth(truth: Sequence[float] | FloatArray) -> FloatArray:
    actual = np.asarray(truth, dtype=np.float64)
    if actual.ndim != 1 or actual.size == 0:
        raise ValueError(f"expected the truth as one row of values, found shape {actual.shape}")
    if not np.isfinite(actual).all():
        raise ValueError(
            f"expected finite truth, found {np.flatnonzero(~np.isfinite(actual)).size} value(s) that are not"
        )
    if np.abs(actual).max() > _LARGEST_STANDARDISED:
        raise ValueError(f"expected a truth within +-{_LARGEST_STANDARDISED:g}, found {np.abs(actual).max():g}")
    return actual


def _usable(prediction: Sequence[float] | FloatArray, limit: int) -> FloatArray:
    """The values before the first that is not finite, at most `limit`."""
    head: Any = prediction[:limit]
    try:
        try:
            values = np.asarray(head, dtype=np.float64)
        except OverflowError:  # an integer beyond float64 is as good as an infinity
            values = np.array([_as_float(value) for value in head])
    except (TypeError, ValueError) as fault:
        raise ValueError(f"expected the prediction as a row of numbers: {fault}") from None
    if values.ndim != 1:
        raise ValueError(f"expected the prediction as one row of values, found shape {values.shape}")
    broken = np.flatnonzero(~np.isfinite(values))
    return values[: broken[0]] if broken.size else values


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _errors(predicted: FloatArray, actual: FloatArray) -> tuple[float, float, float]:
    """(e_pred, e_seas, e_trend), both series standardised by the truth's mean and standard deviation."""
    mean, std = actual.mean(), max(float(actual.std()), _LEAST_STD)
    with np.errstate(over="ignore"):
        scaled = np.clip((predicted - mean) / std, -_LARGEST_STANDARDISED, _LARGEST_STANDARDISED)
    # The decomposition is linear: the parts of the difference are the differences of the parts.
    difference = scaled - (actual - mean) / std
    seasonal, trend = decompose(difference)
    return float(np.mean(difference**2)), float(np.mean(seasonal**2)), float(np.mean(trend**2))


def _hit_rate(predicted: FloatArray, actual: FloatArray, strict: bool) -> float:
    """Share of the truth's maxima matched by predicted ones, one to one, within 2 steps; 0 where there are none.

    If `strict`, superfluous predicted maxima lower the share: it is that of the longer list.

    Both lists are sorted and every window has the same width, so that pairing the earliest candidates is optimal.
    """
    wanted, offered = local_maxima(actual), local_maxima(predicted)
    if not wanted.size:
        return 0.0
    hits = 0
    candidates = iter(offered.tolist())
    candidate = next(candidates, None)
    for position in wanted.tolist():
        while candidate is not None and candidate < position - _EXTREMUM_REACH:
            candidate = next(candidates, None)
        if candidate is not None and candidate <= position + _EXTREMUM_REACH:
            hits += 1
            candidate = next(candidates, None)
    return hits / (max(len(wanted), len(offered)) if strict else len(wanted))


@dataclass(frozen=True, slots=True)
class PenaltySettings:
    """Penalties and bonus of the public implementation, all off (0) by default.

    Attributes:
        unprepared: added for an answer before any diagnostic or forecast; -0.5 there.
        copied_timestamps: added for an answer that copies more than half of the input's timestamps; -1 there.
        useful_call: added for each step whose tool call did something; 0.05 there.

    Raises:
        ValueError: a penalty is positive, the bonus negative, or one is not finite.
    """

    unprepared: float = 0.0
    copied_timestamps: float = 0.0
    useful_call: float = 0.0

    def __post_init__(self) -> None:
        for name, value, sign in (
            ("unprepared", self.unprepared, -1),
            ("copied_timestamps", self.copied_timestamps, -1),
            ("useful_call", self.useful_call, 1),
        ):
            if not (math.isfinite(value) and value * sign >= 0):
                raise ValueError(f"expected {name} as a finite number {'<=' if sign < 0 else '>='} 0, found {value!r}")


PUBLIC_PENALTIES = PenaltySettings(unprepared=-0.5, copied_timestamps=-1.0, useful_call=0.05)
"""The values of the public implementation."""


def unprepared_penalty(analyses: int, forecasts: int, settings: PenaltySettings) -> float:
    """Penalty of an answer that nothing was done for: no diagnostic and no forecast in memory.

    Args:
        analyses: entries of the analysis history D.
        forecasts: entries of the prediction results Q.
        settings: the penalties.
    """
    return settings.unprepared if analyses == 0 and forecasts == 0 else 0.0


def copied_timestamps_penalty(answered: Sequence[str], history: Sequence[str], settings: PenaltySettings) -> float:
    """Penalty of an answer that copies the input's timestamps: over half of the shorter of both lists.

    So 24 copied lines count as copying although the input has 168, and so do 168 copied among many others.

    Args:
        answered: timestamps of the answer's lines, as `ForecastAnswer.timestamps` gives them.
        history: timestamps of the input, in the same form (`castgym.envs.forecast_answers.canonical_timestamp`).
        settings: the penalties.
    """
    stated, shown = set(answered), set(history)
    return settings.copied_timestamps if 2 * len(stated & shown) > min(len(stated), len(shown)) else 0.0


def useful_call_bonus(results_before: int, results_after: int, settings: PenaltySettings) -> float:
    """Bonus of a step that added a result to memory. A refused, failed or repeated call adds none and earns nothing.

    Args:
        results_before: entries of D and Q before the step.
        results_after: entries after it. A step earns at most one bonus, however many calls it holds.
        settings: the penalties.
    """
    return settings.useful_call if results_after > results_before else 0.0
