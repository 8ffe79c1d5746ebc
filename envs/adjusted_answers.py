"""Reading the answer form `forecast`: a stored forecast, or a blend of some, with a simple adjustment.

`<answer>{"forecast": "arima", "scale": 1.1, "shift": -0.5}</answer>` or `<answer>{"blend": {"arima": 2, "chronos":
1}}</answer>`, which suits policies that cannot write a line for each step. castgym's own condition: it says less than
`timestamp value` lines can, and is never compared with the paper.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from castgym.data.schema import FloatArray
from castgym.envs.forecast_answers import ForecastRejection, answer_body
from castgym.tools.strict_json import StrictJsonError, loads

AdjustedRejection = Literal[
    ForecastRejection,  # the pair of tags is missing, unclosed, ambiguous or empty
    "malformed_json",  # no strict JSON object between the tags
    "unexpected_key",  # a key other than forecast, blend, scale, shift; or not exactly one of forecast and blend
    "unknown_forecast",  # a forecast that memory does not hold
    "bad_weights",  # weights that are no numbers >= 0 with a positive sum
    "bad_adjustment",  # a scale or shift that is no finite number
]
ADJUSTED_REJECTIONS: tuple[AdjustedRejection, ...] = get_args(AdjustedRejection)

_KEYS = frozenset({"forecast", "blend", "scale", "shift"})


@dataclass(frozen=True, slots=True)
class AdjustedAnswer:
    """What a response commits.

    Attributes:
        values: the forecast, shape (H,); empty where the answer has a fault, `None` without a pair of tags.
        rejection: the fault, one of `ADJUSTED_REJECTIONS`; `None` for a valid answer.
    """

    values: tuple[float, ...] | None
    rejection: AdjustedRejection | None = None


def read_adjusted(text: str, forecasts: Mapping[str, FloatArray]) -> AdjustedAnswer:
    """Read the forecast that an answer names.

    The committed values are m + scale * (f - m) + shift, f the named forecast or the weighted mean of the blended
    ones and m its mean over the horizon.

    Args:
        text: visible text of the response, its thinking removed.
        forecasts: stored forecasts by model, shape (H,) each.

    Returns:
        The answer. No response raises an exception.
    """
    body, fault = answer_body(text)
    if body is None:
        return AdjustedAnswer(() if fault == "ambiguous_answer" else None, fault)
    if not body.strip():
        return AdjustedAnswer((), "empty_answer")
    try:
        value = loads(body)
    except StrictJsonError:
        return AdjustedAnswer((), "malformed_json")
    if not isinstance(value, dict):
        return AdjustedAnswer((), "malformed_json")
    return _apply(value, forecasts)


def answer_text(model: str | None = None, blend: Mapping[str, float] | None = None) -> str:
    """The answer that names one forecast, or a blend of several."""
    value: dict[str, Any] = {"forecast": model} if blend is None else {"blend": dict(blend)}
    return f"<answer>{json.dumps(value)}</answer>"


def _apply(value: Mapping[str, Any], forecasts: Mapping[str, FloatArray]) -> AdjustedAnswer:
    if value.keys() - _KEYS or ("forecast" in value) == ("blend" in value):
        return AdjustedAnswer((), "unexpected_key")
    weights = {value["forecast"]: 1.0} if isinstance(value.get("forecast"), str) else value.get("blend")
    if not isinstance(weights, dict) or not weights or not weights.keys() <= forecasts.keys():
        return AdjustedAnswer((), "unknown_forecast")
    if not all(_is_number(weight) and weight >= 0 for weight in weights.values()):
        return AdjustedAnswer((), "bad_weights")
    largest = max(weights.values())
    if largest == 0:
        return AdjustedAnswer((), "bad_weights")
    scale, shift = value.get("scale", 1.0), value.get("shift", 0.0)
    if not (_is_number(scale) and _is_number(shift)):
        return AdjustedAnswer((), "bad_adjustment")
    shares = {name: float(weight) / largest for name, weight in weights.items()}  # no sum of weights overflows
    total = sum(shares.values())
    with np.errstate(over="ignore", invalid="ignore"):
        blended = np.sum([share / total * forecasts[name] for name, share in shares.items()], axis=0)
        mean = float(blended.mean())
        adjusted = blended if scale == 1 else mean + float(scale) * (blended - mean)
        adjusted = adjusted + float(shift)
    if not np.isfinite(adjusted).all():
        return AdjustedAnswer((), "bad_adjustment")
    return AdjustedAnswer(tuple(adjusted.tolist()))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
