"""The protocol that every forecaster meets, and the quantiles that it returns."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from castgym.data.errors import InfrastructureError

FloatArray = NDArray[np.float64]

QUANTILE_LEVELS: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Levels that every forecaster returns."""

QUANTILE_MASSES: tuple[float, ...] = (0.15, *(0.10 for _ in range(7)), 0.15)
"""Mass of each quantile value when a forecast enters the optimiser (protocol, the shared optimiser)."""


class BackendError(InfrastructureError):
    """A forecaster started and failed, or returned values that are not a forecast."""


@dataclass(frozen=True, slots=True)
class ForecasterInfo:
    """What an agent is told about a forecaster.

    Attributes:
        name: name in the tariff and in tool calls.
        notes: one sentence on what it is.
        min_context: fewest observations that it accepts.
    """

    name: str
    notes: str
    min_context: int = 2


@runtime_checkable
class Forecaster(Protocol):
    """Probabilistic forecasts of independent hourly series."""

    @property
    def info(self) -> ForecasterInfo:
        """Name and notes."""
        ...

    def predict(self, context: FloatArray, horizon: int) -> FloatArray:
        """Forecast the steps that follow each context.

        Args:
            context: observations, oldest first, shape (N, L), physical units.
            horizon: steps to forecast, H.

        Returns:
            Quantiles at `QUANTILE_LEVELS`, shape (N, H, 9), physical units.
        """
        ...


def checked_forecast(forecaster: Forecaster, context: FloatArray, horizon: int) -> FloatArray:
    """Run a forecaster and hold it to the protocol: shape, finite values, quantiles sorted.

    Native quantiles of a neural forecaster may cross; sorting them is the usual rearrangement.

    Returns:
        Shape (N, H, 9), read-only.

    Raises:
        BackendError: the forecaster raised, or returned a wrong shape or values that are not finite.
    """
    name = forecaster.info.name
    try:
        quantiles = np.asarray(forecaster.predict(context, horizon), dtype=np.float64)
    except InfrastructureError:
        raise
    except Exception as error:
        raise BackendError(f"{name} failed: {type(error).__name__}: {error}") from error
    expected = (len(context), horizon, len(QUANTILE_LEVELS))
    if quantiles.shape != expected:
        raise BackendError(f"{name} returned shape {quantiles.shape}, expected {expected}")
    if not np.isfinite(quantiles).all():
        raise BackendError(f"{name} returned values that are not finite")
    quantiles = np.sort(quantiles, axis=-1)
    quantiles.flags.writeable = False
    return quantiles


def pinball_loss(quantiles: FloatArray, actual: FloatArray) -> float:
    """Mean pinball (quantile) loss over levels and steps, physical units (protocol, replay_forecast).

    Args:
        quantiles: shape (H, 9) at `QUANTILE_LEVELS`.
        actual: shape (H,).
    """
    error = actual[:, None] - quantiles
    levels = np.asarray(QUANTILE_LEVELS)
    return float(np.maximum(levels * error, (levels - 1.0) * error).mean())
