"""Residuals of an autoregressive baseline: how far the last few values explain the next one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from castgym.tools.diagnostics.summary import DiagnosticReport, compact, short_name
from castgym.tools.diagnostics.window import (
    Channel,
    FloatArray,
    IntArray,
    autocorrelation,
    channels_of,
    check_at_least,
)

EXCEEDANCE_SIGMAS = 2.0
TAIL_SHARE = 0.1

_ROUNDING = 1e-12
"""Share of the largest deviation up to which a residual is rounding of a perfect fit; likewise their mean."""


@dataclass(frozen=True, slots=True)
class ChannelResiduals:
    """Residuals of one channel; `None` from `mean` on without observations.

    Attributes:
        name: channel.
        order: lags p of the fitted baseline; 0 is the mean.
        count: fitted steps.
        mean: mean residual, raw units; 0 up to rounding, as the fit has an intercept.
        mean_absolute: mean magnitude, raw units.
        std: population standard deviation sigma, raw units.
        max_absolute: greatest magnitude, raw units.
        exceedance: share of the residuals further than 2 sigma from their mean (0.046 for a normal distribution).
        acf_1: autocorrelation at lag 1.
        tail_concentration: share of the sum of magnitudes in the ceil(n/10) greatest (0.26 for a normal
            distribution); 0 for a perfect fit.
    """

    name: str
    order: int
    count: int
    mean: float | None = None
    mean_absolute: float | None = None
    std: float | None = None
    max_absolute: float | None = None
    exceedance: float | None = None
    acf_1: float | None = None
    tail_concentration: float | None = None


@dataclass(frozen=True, slots=True)
class ForecastResiduals(DiagnosticReport):
    """Residuals of a window.

    Attributes:
        channels: one entry a channel, target first.
    """

    channels: tuple[ChannelResiduals, ...]

    def _lines(self) -> list[list[str]]:
        return [
            [
                f"{short_name(item.name)}: AR({item.order}) residual std {compact(item.std)}",
                f"max abs. {compact(item.max_absolute)}",
                f"beyond 2 sigma {compact(item.exceedance)}",
                f"acf1 {compact(item.acf_1)}",
                f"top decile's share {compact(item.tail_concentration)}",
                f"mean abs. {compact(item.mean_absolute)}",
                f"mean {compact(item.mean)}",
            ]
            for item in self.channels
        ]


def extract_forecast_residuals(
    values: npt.ArrayLike, names: Sequence[str] | None = None, order: int = 3
) -> ForecastResiduals:
    """Fit an AR baseline to every channel's history and describe its residuals (Cast-R1, Appendix C.1).

    r_t = v_t - (c + sum_k phi_k v_{t-k}), least squares over the steps whose lags were all observed; of a singular
    system the smallest solution. The order falls until at least 2 (p + 1) steps remain; 0 is the mean.

    Args:
        values: (L, C) or (L,) visible window, target first; NaN is missing.
        names: C names of the channels.
        order: greatest number of lags, at least 1.

    Raises:
        DataError: the window or the names do not have that form.
        ConfigError: the order is below 1.
    """
    check_at_least("order", order, 1)
    return ForecastResiduals(tuple(_describe(channel, order) for channel in channels_of(values, names)))


def _describe(channel: Channel, order: int) -> ChannelResiduals:
    if not channel.count:
        return ChannelResiduals(channel.name, order=0, count=0)
    lags, steps, residual = _fit(channel, order)
    largest = float(np.abs(residual).max())
    if largest <= _ROUNDING * float(np.abs(channel.deviation).max()):
        residual, largest = np.zeros(len(residual)), 0.0
    unit = residual / largest if largest else residual
    mean = float(unit.mean())
    mean = mean if abs(mean) > _ROUNDING else 0.0
    centred = unit - mean
    std = math.sqrt(float(centred @ centred) / len(unit))
    grid = np.zeros(channel.length)
    grid[steps] = centred
    magnitude = np.sort(np.abs(unit))
    total = float(magnitude.sum())
    tail = float(magnitude[-math.ceil(TAIL_SHARE * len(unit)) :].sum())
    return ChannelResiduals(
        name=channel.name,
        order=lags,
        count=len(unit),
        mean=channel.raw_difference(mean * largest),
        mean_absolute=channel.raw_difference(total / len(unit) * largest),
        std=channel.raw_difference(std * largest),
        max_absolute=channel.raw_difference(largest),
        exceedance=float((np.abs(centred) > EXCEEDANCE_SIGMAS * std).mean()),
        acf_1=autocorrelation(grid, 1),
        tail_concentration=tail / total if total else 0.0,
    )


def _fit(channel: Channel, order: int) -> tuple[int, IntArray, FloatArray]:
    """Lags used, fitted steps and their residuals in units of the channel's deviations."""
    grid = channel.gapped(np.nan)
    for lags in range(min(order, channel.length - 1), 0, -1):
        rows = np.lib.stride_tricks.sliding_window_view(grid, lags + 1)
        complete = np.flatnonzero(~np.isnan(rows).any(axis=1))
        if len(complete) >= 2 * (lags + 1):
            design = rows[complete].copy()
            outcome = design[:, -1].copy()
            design[:, -1] = 1.0
            coefficients = np.linalg.lstsq(design, outcome, rcond=None)[0]
            return lags, complete + lags, outcome - design @ coefficients
    return 0, channel.index, channel.deviation - channel.deviation.mean()
