"""Chronos models through their own library: Chronos-Bolt Tiny, Chronos-2, and castgym's own small Bolt.

A forecast does not depend on its neighbours: a forward pass always has the same number of rows (the last one is
filled up with copies), so that every row meets the same arithmetic wherever it stands. On a CPU this was measured to
give the same bits for any order and any neighbours; passes of different sizes differ in the seventh digit.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from castgym.data.errors import ForecasterUnavailableError
from castgym.tools.forecasters.base import QUANTILE_LEVELS, FloatArray, ForecasterInfo
from castgym.tools.forecasters.sources import ModelSource, missing_package

PACKAGE = "chronos-forecasting"

BOLT_TINY_INFO = ForecasterInfo(
    name="chronos_bolt_tiny",
    notes="Chronos-Bolt Tiny, a pretrained foundation model of 9M parameters; 64 steps at once, longer in blocks.",
)
BOLT_TINY = ModelSource("chronos_bolt_tiny", PACKAGE, hub_id="amazon/chronos-bolt-tiny")

CHRONOS2_INFO = ForecasterInfo(
    name="chronos2", notes="Chronos-2, a pretrained foundation model of 120M parameters; up to 1,024 steps at once."
)
CHRONOS2 = ModelSource("chronos2", PACKAGE, hub_id="amazon/chronos-2")

CASTGYM_BOLT_INFO = ForecasterInfo(
    name="castgym_bolt",
    notes="A small Chronos-Bolt (1.1M parameters) trained on simulated series only; 200 steps at once.",
)
CASTGYM_BOLT = ModelSource("castgym_bolt", PACKAGE, local=Path(__file__).parent / "weights" / "castgym_bolt")

MODELS = ((BOLT_TINY_INFO, BOLT_TINY, 4), (CHRONOS2_INFO, CHRONOS2, 2), (CASTGYM_BOLT_INFO, CASTGYM_BOLT, 8))
"""Description, weights, and rows of a forward pass on a CPU: the single forecasts of episodes take at most 1.6 times
as long as alone, many take 0.2 to 0.7 of the time."""

DTYPE = "float32"
"""Arithmetic of the shipped models, whatever their files hold."""


class Chronos:
    """A Chronos model behind the `Forecaster` protocol.

    Horizons past the model's own are the library's extension: it appends each of nine quantile paths to the context,
    forecasts again, and takes the quantiles of all paths.

    Args:
        info: name and notes.
        source: weights.
        device: torch device.
        dtype: `float32` or `bfloat16`, the arithmetic of the model.
        batch_size: rows of a forward pass. An extended horizon counts its nine paths, so it takes fewer series.

    Raises:
        ForecasterUnavailableError: the package or the weights are missing, or the weights are no Chronos model.
    """

    def __init__(
        self,
        info: ForecasterInfo,
        source: ModelSource,
        device: str = "cpu",
        dtype: str = DTYPE,
        batch_size: int = 8,
    ) -> None:
        try:
            import torch
            from chronos import BaseChronosPipeline
        except ImportError as error:
            raise missing_package(info.name, PACKAGE, error) from error
        folder = source.folder()
        try:
            with _quiet_loading():
                self._pipeline: Any = BaseChronosPipeline.from_pretrained(folder, device_map=device, dtype=dtype)
        except Exception as error:  # the libraries raise many kinds of errors for unfit weights
            raise ForecasterUnavailableError(f"the weights of {info.name} in {folder} do not load: {error}") from error
        if not set(QUANTILE_LEVELS) <= set(self._pipeline.quantiles):
            raise ForecasterUnavailableError(
                f"expected a model with the quantiles {QUANTILE_LEVELS}, found {self._pipeline.quantiles} in {folder}"
            )
        self._torch = torch
        self._info = info
        self._batch_size = batch_size

    @property
    def info(self) -> ForecasterInfo:
        """Name and notes."""
        return self._info

    @property
    def pipeline(self) -> Any:
        """The library's pipeline, for inputs that `predict` does not know, such as covariates."""
        return self._pipeline

    def predict(self, context: FloatArray, horizon: int) -> FloatArray:
        """The library's quantiles of each series, shape (N, H, 9)."""
        extended = horizon > self._pipeline.model_prediction_length
        rows = max(1, self._batch_size // len(QUANTILE_LEVELS)) if extended else self._batch_size
        parts = []
        for start in range(0, len(context), rows):
            part = context[start : start + rows]
            filled = np.concatenate([part, np.repeat(part[-1:], rows - len(part), axis=0)])
            parts.append(self._quantiles(filled, horizon)[: len(part)])
        return np.concatenate(parts)

    def _quantiles(self, context: FloatArray, horizon: int) -> FloatArray:
        # Both pipelines read (batch, variates, steps) or rows; Chronos-2 answers with one tensor a series.
        inputs = [self._torch.from_numpy(row.astype(np.float32)) for row in context]
        quantiles, _ = self._pipeline.predict_quantiles(
            inputs, prediction_length=horizon, quantile_levels=list(QUANTILE_LEVELS)
        )
        if isinstance(quantiles, list):
            quantiles = self._torch.cat(quantiles)
        return np.asarray(quantiles.numpy(), dtype=np.float64)


@contextmanager
def _quiet_loading() -> Iterator[None]:
    """Loading takes a fraction of a second: transformers' progress bars would only disturb those of the commands."""
    from transformers.utils import logging

    bars: Any = logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()
