"""The tools of Cast-R1 over one window: five diagnostics, the forecaster pool, and backtests on the recent past.

The tools see a `Window`, which holds nothing at or after its origin but the declared known series, and for backtests
windows whose horizons had ended by that origin. They hold no target of the window itself.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Protocol

import numpy as np
from pydantic import Field

from castgym.data.errors import DataError
from castgym.data.schema import FloatArray
from castgym.data.windows import Window, readonly_with_gaps
from castgym.tools import diagnostics
from castgym.tools.diagnostics import SUMMARY_BUDGET, DiagnosticReport
from castgym.tools.forecasters.base import BackendError
from castgym.tools.forecasters.windows_base import WindowForecast, season_length
from castgym.tools.toolbox import Toolbox, ToolError

DIAGNOSTIC_TOOLS: tuple[str, ...] = (
    "extract_data_quality",
    "extract_basic_statistics",
    "extract_within_channel_dynamics",
    "extract_event_summary",
    "extract_forecast_residuals",
)
"""Names of the diagnostic tools (Cast-R1, section 3.3 and Appendix C.1)."""

PREDICTION_TOOL = "predict_time_series"
"""Name of the tool that runs a forecaster."""

BACKTEST_TOOL = "backtest_forecasters"
"""Name of the tool that measures the forecasters on the recent past; castgym's own, not the paper's."""

_MOST_DECIMALS = 320

ModelName = Annotated[str, Field(description="Forecaster to run, one of those that the prompt names.")]


class ForecastPool(Protocol):
    """What the tools need of a pool of forecasters, such as `WindowForecasterPool`."""

    def forecast(self, name: str, window: Window) -> WindowForecast:
        """Forecast a window; raises `BackendError` where the forecaster fails."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class PastWindow:
    """A window whose horizon had ended by the forecast origin, with what was observed in it.

    Attributes:
        window: what was known at its own origin.
        actual: the target over its horizon, shape (H,), raw scale, NaN where missing, read-only.
    """

    window: Window
    actual: FloatArray

    def __post_init__(self) -> None:
        what = f"observed horizon of {self.window.window_id}"
        actual = readonly_with_gaps(self.actual, shape=(self.window.horizon,), what=what)
        object.__setattr__(self, "actual", actual)

    def ended_by(self, origin: datetime) -> bool:
        """Whether nothing of it lies at or after a time."""
        return self.window.origin + self.window.horizon * self.window.step <= origin


class ForecastingTools:
    """The tools of one episode.

    Args:
        window: what the agent may know.
        pool: forecasters.
        models: names of those that may be run here.
        past: recent windows for backtests, latest first.
        summary_budget: most characters of a diagnostic's summary.

    Raises:
        DataError: a past window reaches beyond the origin.
    """

    def __init__(
        self,
        window: Window,
        pool: ForecastPool,
        models: Sequence[str],
        past: Sequence[PastWindow] = (),
        summary_budget: int = SUMMARY_BUDGET,
    ) -> None:
        for item in past:
            if not item.ended_by(window.origin):
                raise DataError(f"{item.window.window_id} had not ended at {window.origin}, the origin: a leak")
        self.window = window
        self._pool = pool
        self._models = tuple(models)
        self._past = tuple(past)
        self._budget = summary_budget

    def toolbox(self, names: Sequence[str]) -> Toolbox:
        """Some of these tools, callable by name."""
        return Toolbox(self, names)

    def extract_data_quality(self) -> Mapping[str, Any]:
        """Assess missing values, gaps, quantisation, saturation and constant channels of the history."""
        return self._summary(diagnostics.extract_data_quality(self.window.history, self.window.channels))

    def extract_basic_statistics(self) -> Mapping[str, Any]:
        """Describe location, spread, autocorrelation, spectrum and correlation of the history's channels."""
        season = season_length(self.window.step)
        return self._summary(
            diagnostics.extract_basic_statistics(self.window.history, self.window.channels, season=season)
        )

    def extract_within_channel_dynamics(self) -> Mapping[str, Any]:
        """Find change points, stable segments with their slopes, steep moves and peaks of the history's channels."""
        return self._summary(diagnostics.extract_within_channel_dynamics(self.window.history, self.window.channels))

    def extract_event_summary(self) -> Mapping[str, Any]:
        """Label segments of the history's channels as rise, fall, stable or oscillation, and tell which prevail."""
        return self._summary(diagnostics.extract_event_summary(self.window.history, self.window.channels))

    def extract_forecast_residuals(self) -> Mapping[str, Any]:
        """Fit a simple autoregression to the history and describe what it leaves: size, outliers, autocorrelation."""
        return self._summary(diagnostics.extract_forecast_residuals(self.window.history, self.window.channels))

    def backtest_forecasters(self) -> Mapping[str, Any]:
        """Measure each forecaster on the latest horizons before the origin: mean squared and mean absolute error."""
        if not self._past:
            raise ToolError("insufficient_context", "no earlier horizon of this data set can be backtested")
        errors = {name: self._errors(name) for name in self._models}
        return {
            "horizons": len(self._past),
            "steps": self.window.horizon,
            "mse": {name: None if found is None else found[0] for name, found in errors.items()},
            "mae": {name: None if found is None else found[1] for name, found in errors.items()},
        }

    def predict_time_series(self, model_name: ModelName) -> Mapping[str, Any]:
        """Forecast the target over the whole horizon with one forecaster."""
        if model_name not in self._models:
            known = ", ".join(self._models)
            raise ToolError("unknown_model", f"no forecaster {model_name[:80]!r}; forecasters: {known}")
        try:
            forecast = self._pool.forecast(model_name, self.window)
        except BackendError as error:
            message = f"{model_name} failed on this window; another forecaster may work"
            raise ToolError("backend_error", message) from error
        return {"model_name": model_name, "forecast": forecast_lines(self.window, forecast.values)}

    def _summary(self, report: DiagnosticReport) -> Mapping[str, Any]:
        return {"summary": report.summary(self._budget)}

    def _errors(self, name: str) -> tuple[float, float] | None:
        """MSE and MAE over all known values of the past horizons, four digits; `None` where the forecaster fails."""
        try:
            misses = [self._pool.forecast(name, item.window).values - item.actual for item in self._past]
        except BackendError:
            return None
        miss = np.concatenate(misses)
        miss = miss[np.isfinite(miss)]
        with np.errstate(over="ignore"):
            squared = float(np.mean(miss**2)) if len(miss) else math.inf
        if not math.isfinite(squared):
            return None
        return float(f"{squared:.4g}"), float(f"{np.mean(np.abs(miss)):.4g}")


def decimals_of(values: FloatArray) -> int:
    """Decimals that show a series to between a hundredth and a thousandth of its standard deviation.

    Args:
        values: shape (L,), NaN where missing.
    """
    known = values[np.isfinite(values)]
    if not len(known):
        return 2
    largest = float(np.abs(known).max())
    spread = float(np.std(known / largest)) * largest if largest > 0 else 0.0
    scale = max(spread, largest / 1000)
    return 2 if scale == 0 else min(max(2 - math.floor(math.log10(scale)), 0), _MOST_DECIMALS)


def number_text(value: float, decimals: int) -> str:
    """A number with at most so many decimals, without superfluous zeros; `missing` for NaN. Valid JSON otherwise."""
    return "missing" if math.isnan(value) else f"{round(value, decimals) + 0.0:.12g}"


def timestamp_text(time: datetime) -> str:
    """A time as prompts and answers write it: to the minute, without time zone."""
    return f"{time:%Y-%m-%d %H:%M}"


def horizon_timestamps(window: Window) -> list[str]:
    """The times to forecast, as text, in order."""
    return [timestamp_text(time) for time in window.horizon_times]


def forecast_lines(window: Window, values: Sequence[float] | FloatArray) -> list[str]:
    """A forecast as `timestamp value` lines, with the decimals of the target's history.

    Args:
        window: whose horizon is forecast.
        values: shape (H,), raw scale.
    """
    return value_lines(horizon_timestamps(window), values, decimals_of(window.history[:, 0]))


def value_lines(timestamps: Sequence[str], values: Sequence[float] | FloatArray, decimals: int) -> list[str]:
    """Lines `timestamp value`, one for each of both."""
    pairs = zip(timestamps, values, strict=True)
    return [f"{stamp} {number_text(float(value), decimals)}" for stamp, value in pairs]


def line_values(lines: Sequence[str]) -> FloatArray:
    """The values of `forecast_lines`, shape (H,)."""
    return np.array([float(line.rsplit(" ", 1)[1]) for line in lines])
