"""Classical forecasters of windows: seasonal naive, and ARIMA with a seasonal order chosen on validation windows.

ARIMA (Hyndman and Khandakar, 2008) is fitted to each window anew by `statsforecast`. An automatic search of orders
takes seconds to minutes a window and explodes on some; so the order is fixed for a data set, the forecast is clipped
to the range of its context, and a fit that fails falls back to simpler orders, (1,0,0) and the random walk (0,1,0).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from castgym.data.errors import DataError
from castgym.data.files import canonical_json
from castgym.data.windows import Window
from castgym.tools.forecasters.base import QUANTILE_LEVELS, FloatArray, ForecasterInfo
from castgym.tools.forecasters.sources import missing_package, package_version
from castgym.tools.forecasters.windows_base import WindowForecast, fill_gaps, known_target, season_length
from castgym.tools.forecasters.windows_checkpoints import read_config

SEASONAL_NAIVE_INFO = ForecasterInfo(
    name="seasonal_naive",
    notes="Repeats the last day (the last week of daily data); a point forecast without learning.",
    min_context=1,
)
ARIMA_INFO = ForecasterInfo(
    name="arima",
    notes="Seasonal ARIMA fitted to the window, regressed on the known series where that helps; clipped to its range.",
    min_context=1,
)

PACKAGE = "statsforecast"

ARIMA_CONTEXT = 336
"""Latest steps that ARIMA is fitted to: a longer context costs time (0.3 s here) and gains little."""

LONGEST_SEASON = 48
"""Longest season of an ARIMA: the filter's state grows with it, and so does the time of a fit."""

SEASONS_NEEDED = 3
"""A seasonal order needs so many seasons of context."""

CENTRAL_INTERVALS = (20, 40, 60, 80)
"""Central prediction intervals in percent whose ends are the levels 0.4/0.6, 0.3/0.7, 0.2/0.8 and 0.1/0.9."""


class SeasonalNaive:
    """Each step repeats the latest known value at the same phase of the season."""

    @property
    def info(self) -> ForecasterInfo:
        """Name and notes."""
        return SEASONAL_NAIVE_INFO

    def predict(self, windows: Sequence[Window]) -> list[WindowForecast]:
        """Point forecasts. A phase without a known value takes the latest known value of all."""
        return [WindowForecast(_last_season(window), None, SEASONAL_NAIVE_INFO.name) for window in windows]


def _last_season(window: Window) -> FloatArray:
    history, season = window.history[:, 0], season_length(window.step)
    latest = known_target(window)[-1]
    phases = np.full(season, latest)
    for phase in range(min(season, len(history))):
        # Rows of this phase, the phase of the first step of the horizon being 0.
        same = history[(len(history) + phase) % season :: season]
        known = same[np.isfinite(same)]
        if len(known):
            phases[phase] = known[-1]
    forecast: FloatArray = phases[np.arange(window.horizon) % season]
    return forecast


@dataclass(frozen=True, slots=True)
class ArimaOrder:
    """Orders of a seasonal ARIMA.

    Attributes:
        order: p, d, q.
        seasonal: P, D, Q of the natural season of the window's step.
        regressed: whether the series known over the horizon are regressors.
    """

    order: tuple[int, int, int]
    seasonal: tuple[int, int, int] = (0, 0, 0)
    regressed: bool = False

    def fits(self, window: Window) -> bool:
        """Whether the window is long enough, its season short enough, and what the order regresses on is there."""
        season = season_length(window.step)
        seasonal = not any(self.seasonal) or (1 < season <= LONGEST_SEASON and window.length >= SEASONS_NEEDED * season)
        return seasonal and (not self.regressed or bool(window.known_channels))

    def to_json(self) -> dict[str, Any]:
        """JSON object."""
        return {"order": list(self.order), "seasonal": list(self.seasonal), "regressed": self.regressed}

    @staticmethod
    def from_json(value: dict[str, Any]) -> "ArimaOrder":
        """Read back what `to_json` wrote."""
        p, d, q = value["order"]
        seasonal_p, seasonal_d, seasonal_q = value["seasonal"]
        return ArimaOrder((p, d, q), (seasonal_p, seasonal_d, seasonal_q), bool(value["regressed"]))

    def __str__(self) -> str:
        parts = ["({},{},{})".format(*self.order)]
        if any(self.seasonal):
            parts.append("({},{},{})".format(*self.seasonal))
        return "".join(parts) + (" regressed" if self.regressed else "")


_BASIC = (
    ArimaOrder((1, 0, 0), (1, 0, 0)),
    ArimaOrder((2, 0, 0), (1, 0, 0)),
    ArimaOrder((1, 0, 1), (1, 0, 0)),
    ArimaOrder((1, 1, 1), (1, 0, 0)),
    ArimaOrder((1, 0, 0), (0, 1, 1)),
    ArimaOrder((1, 0, 0), (1, 1, 0)),
    ArimaOrder((1, 0, 0)),
    ArimaOrder((2, 0, 0)),
    ArimaOrder((1, 1, 1)),
    ArimaOrder((0, 1, 1)),
)

ARIMA_CANDIDATES = _BASIC + tuple(ArimaOrder(item.order, item.seasonal, regressed=True) for item in _BASIC)
"""Orders from which one is chosen on validation windows. Two seasonal autoregressive terms took over a second."""

DEFAULT_ORDERS = (ArimaOrder((1, 0, 0), (1, 0, 0)), ArimaOrder((1, 0, 0)))
"""Without a choice for a data set, the first that fits the window is taken."""


class Arima:
    """Seasonal ARIMA behind the `WindowForecaster` protocol, with normal prediction intervals as quantiles.

    Args:
        chosen: order of the data set; `None` takes the first of `DEFAULT_ORDERS` that fits.

    Raises:
        ForecasterUnavailableError: `statsforecast` is missing.
    """

    def __init__(self, chosen: ArimaOrder | None = None) -> None:
        try:
            from statsforecast.models import ARIMA
        except ImportError as error:
            raise missing_package(ARIMA_INFO.name, PACKAGE, error) from error
        self._model: Any = ARIMA
        self._orders = DEFAULT_ORDERS if chosen is None else (chosen, *DEFAULT_ORDERS[1:])

    @property
    def info(self) -> ForecasterInfo:
        """Name and notes."""
        return ARIMA_INFO

    def predict(self, windows: Sequence[Window]) -> list[WindowForecast]:
        """One fit a window."""
        return [self._forecast(window) for window in windows]

    def _forecast(self, window: Window) -> WindowForecast:
        target = known_target(window)[-ARIMA_CONTEXT:]
        low, high = float(target.min()), float(target.max())
        quantiles = self._quantiles(window, target) if high > low else None
        if quantiles is None:  # a constant, or a context that no order can be fitted to: the random walk
            quantiles = np.full((window.horizon, len(QUANTILE_LEVELS)), target[-1])
        quantiles = np.clip(quantiles, low, high)
        return WindowForecast(quantiles[:, QUANTILE_LEVELS.index(0.5)], quantiles, ARIMA_INFO.name)

    def _quantiles(self, window: Window, target: FloatArray) -> FloatArray | None:
        """Quantiles of the first order that can be fitted, shape (H, 9), or `None`."""
        centre, spread = float(target.mean()), float(target.std())
        scaled = (target - centre) / spread
        for order in self._orders:
            if not order.fits(window):
                continue
            try:
                with np.errstate(all="ignore"):  # the library divides by zero on very short contexts
                    found = self._fit(order, window, scaled)
            except (RuntimeError, ValueError, ArithmeticError, np.linalg.LinAlgError):
                continue  # the library has no fit of this order for this context
            if np.isfinite(found).all():
                quantiles: FloatArray = found * spread + centre
                return quantiles
        return None

    def _fit(self, order: ArimaOrder, window: Window, scaled: FloatArray) -> FloatArray:
        season = season_length(window.step) if any(order.seasonal) else 1
        model = self._model(order=order.order, season_length=season, seasonal_order=order.seasonal)
        past, future = _regressors(window, len(scaled)) if order.regressed else (None, None)
        result = model.forecast(y=scaled, h=window.horizon, X=past, X_future=future, level=list(CENTRAL_INTERVALS))
        lower = [result[f"lo-{level}"] for level in reversed(CENTRAL_INTERVALS)]
        upper = [result[f"hi-{level}"] for level in CENTRAL_INTERVALS]
        return np.column_stack([*lower, result["mean"], *upper]).astype(np.float64)


def _regressors(window: Window, steps: int) -> tuple[FloatArray | None, FloatArray | None]:
    """The known series over the last steps of the history and over the horizon, standardised; constants left out."""
    columns = [window.channels.index(name) for name in window.known_channels]
    past = fill_gaps(window.history[-steps:, columns])
    spread = past.std(axis=0)
    varying = spread > 1e-9 * np.maximum(1.0, np.abs(past).max(axis=0))
    if not varying.any():
        return None, None
    past, spread = past[:, varying], spread[varying]
    centre = past.mean(axis=0)
    # A gap in the known horizon continues the history.
    whole = fill_gaps(np.concatenate([past, window.known_future[:, varying]]))
    scaled = (whole - centre) / spread
    return scaled[:steps], scaled[steps:]


def arima_identity(chosen: ArimaOrder | None) -> str:
    """What determines the forecasts: library version and order.

    Raises:
        ForecasterUnavailableError: `statsforecast` is missing.
    """
    orders = "default" if chosen is None else canonical_json(chosen.to_json())
    return f"{ARIMA_INFO.name}|{PACKAGE}={package_version(ARIMA_INFO.name, PACKAGE)}|{ARIMA_CONTEXT}|{orders}"


def read_arima_order(folder: Path) -> ArimaOrder:
    """Read the order that was chosen for a data set.

    Args:
        folder: checkpoint of `arima`.

    Raises:
        DataError: the config is missing or damaged.
    """
    config, _ = read_config(folder, ARIMA_INFO.name)
    try:
        return ArimaOrder.from_json(config["chosen"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{folder}: expected a chosen ARIMA order: {error!r}; train it again") from error
