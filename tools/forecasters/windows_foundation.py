"""Pretrained forecasters of windows: Chronos-2 with covariates, and any `Forecaster` on the target alone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from castgym.data.errors import ForecasterUnavailableError
from castgym.data.windows import Window
from castgym.tools.forecasters.base import QUANTILE_LEVELS, FloatArray, Forecaster, ForecasterInfo
from castgym.tools.forecasters.chronos_models import CHRONOS2, Chronos
from castgym.tools.forecasters.sources import MODELS_VARIABLE, ModelSource
from castgym.tools.forecasters.timesfm_model import SOURCE as TIMESFM
from castgym.tools.forecasters.windows_base import WindowForecast, fill_gaps, known_target

CHRONOS_INFO = ForecasterInfo(
    name="chronos",
    notes="Chronos-2, a pretrained foundation model of 120M parameters, with past and known future covariates.",
    min_context=1,
)

MEDIAN = QUANTILE_LEVELS.index(0.5)


class TargetForecaster:
    """A forecaster of single series on the target's history: no covariates, any step. Its median is the point forecast.

    Args:
        forecaster: such as `castgym_bolt`.
    """

    def __init__(self, forecaster: Forecaster) -> None:
        self._forecaster = forecaster

    @property
    def info(self) -> ForecasterInfo:
        """Name and notes."""
        return self._forecaster.info

    def predict(self, windows: Sequence[Window]) -> list[WindowForecast]:
        """Forecasts from the target without its gaps."""
        contexts = np.stack([known_target(window) for window in windows])
        quantiles = np.sort(self._forecaster.predict(contexts, windows[0].horizon), axis=-1)
        return [WindowForecast(item[:, MEDIAN], item, self.info.name) for item in quantiles]


class ChronosWindows:
    """Chronos-2 on the target, with all other channels as past covariates and the known ones over the horizon.

    Args:
        source: weights.
        device: torch device.
        rows: windows of a forward pass. It is always filled up, so that no forecast depends on its neighbours.

    Raises:
        ForecasterUnavailableError: the package or the weights are missing.
    """

    def __init__(self, source: ModelSource, device: str = "cpu", rows: int = 2) -> None:
        self._chronos = Chronos(CHRONOS_INFO, source, device=device)
        self._rows = rows

    @property
    def info(self) -> ForecasterInfo:
        """Name and notes."""
        return CHRONOS_INFO

    def predict(self, windows: Sequence[Window]) -> list[WindowForecast]:
        """Forecasts of the library; its median is the point forecast."""
        forecasts: list[WindowForecast] = []
        for start in range(0, len(windows), self._rows):
            part = list(windows[start : start + self._rows])
            filled = part + part[-1:] * (self._rows - len(part))
            for quantiles in self._pass(filled)[: len(part)]:
                quantiles = np.sort(quantiles, axis=-1)
                forecasts.append(WindowForecast(quantiles[:, MEDIAN], quantiles, CHRONOS_INFO.name))
        return forecasts

    def _pass(self, windows: Sequence[Window]) -> FloatArray:
        quantiles, _ = self._chronos.pipeline.predict_quantiles(
            [_with_covariates(window) for window in windows],
            prediction_length=windows[0].horizon,
            quantile_levels=list(QUANTILE_LEVELS),
            batch_size=sum(len(window.channels) for window in windows),
        )
        return np.stack([np.asarray(item[0].numpy(), dtype=np.float64) for item in quantiles])


def _with_covariates(window: Window) -> dict[str, Any]:
    """A window in the library's terms."""
    history = fill_gaps(window.history).astype(np.float32)
    task: dict[str, Any] = {"target": known_target(window).astype(np.float32)}
    if len(window.channels) > 1:
        task["past_covariates"] = dict(zip(window.channels[1:], history[:, 1:].T, strict=True))
    if window.known_channels:
        columns = [window.channels.index(name) for name in window.known_channels]
        whole = fill_gaps(np.concatenate([history[:, columns], window.known_future]))  # a gap continues the history
        ahead = whole[len(history) :].astype(np.float32)
        task["future_covariates"] = dict(zip(window.known_channels, ahead.T, strict=True))
    return task


def chronos_source(models: Path | None, pins: Mapping[str, str]) -> ModelSource:
    """Weights of Chronos-2: pinned ones, or those in a folder of downloaded models; else nothing is downloaded.

    Args:
        models: folder of downloaded models.
        pins: hub models, forecaster name to `org/name@revision`.

    Raises:
        ForecasterUnavailableError: they are not there; the message says where to put them.
    """
    remark = "; castgym_bolt is a small Chronos that needs no download"
    return _asked_for(CHRONOS_INFO.name, CHRONOS2, models, pins, remark)


def timesfm_source(models: Path | None, pins: Mapping[str, str]) -> ModelSource:
    """Weights of TimesFM 2.5, found like those of Chronos-2.

    Raises:
        ForecasterUnavailableError: they are not there; the message says where to put them.
    """
    return _asked_for(TIMESFM.name, TIMESFM, models, pins)


def _asked_for(
    name: str, source: ModelSource, models: Path | None, pins: Mapping[str, str], remark: str = ""
) -> ModelSource:
    """The source, if somebody pinned it or put it into `models`: asking what is available starts no other download."""
    if source.name in pins:
        return replace(source.at(pins[source.name]), name=name)
    for folder in () if models is None else (models / source.name, models / source.hub_id):
        if folder.is_dir():
            return replace(source, name=name, local=folder)
    where = f"{models} holds no {source.name}" if models is not None else f"{MODELS_VARIABLE} names no folder"
    raise ForecasterUnavailableError(
        f"{name} needs the weights {source.hub_id}, and {where}: `hf download {source.hub_id} --local-dir "
        f"FOLDER/{source.name}` and set {MODELS_VARIABLE}=FOLDER{remark}"
    )
