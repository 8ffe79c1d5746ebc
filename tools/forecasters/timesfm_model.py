"""TimesFM 2.5 (200M parameters, Apache-2.0) through its own library, in PyTorch."""

import math
import threading
from typing import Any

import numpy as np

from castgym.data.errors import ForecasterUnavailableError
from castgym.tools.forecasters.base import QUANTILE_LEVELS, FloatArray, ForecasterInfo
from castgym.tools.forecasters.sources import WEIGHTS_FILE, ModelSource, missing_package

PACKAGE = "timesfm"

INFO = ForecasterInfo(
    name="timesfm25",
    notes="TimesFM 2.5, a pretrained foundation model of 200M parameters; 128 steps at once, longer in blocks.",
)
SOURCE = ModelSource("timesfm25", PACKAGE, hub_id="google/timesfm-2.5-200m-pytorch", files=(WEIGHTS_FILE,))


class TimesFM25:
    """TimesFM 2.5 behind the `Forecaster` protocol, with the flags that its authors recommend.

    The library computes in float32 and fills every batch up to `batch_size`, so that a forecast does not depend on its
    neighbours. Runs of several threads take turns, since the library keeps the settings of a request on the model.

    Args:
        source: weights.
        device: torch device.
        batch_size: series of a forward pass.

    Raises:
        ForecasterUnavailableError: the package or the weights are missing, or the weights are of another model.
    """

    def __init__(self, source: ModelSource = SOURCE, device: str = "cpu", batch_size: int = 1) -> None:
        try:
            import torch
            from timesfm import TimesFM_2p5_200M_torch
        except ImportError as error:
            raise missing_package(INFO.name, PACKAGE, error) from error
        folder = source.folder()
        try:
            self._model: Any = TimesFM_2p5_200M_torch.from_pretrained(str(folder), torch_compile=False)
        except Exception as error:  # the libraries raise many kinds of errors for unfit weights
            raise ForecasterUnavailableError(f"the weights of {INFO.name} in {folder} do not load: {error}") from error
        # The library picks the first GPU that it finds; here the caller decides.
        inner = self._model.model
        inner.device, inner.device_count = torch.device(device), 1
        inner.to(inner.device)
        self._batch_size = batch_size
        self._turn = threading.Lock()

    @property
    def info(self) -> ForecasterInfo:
        """Name and notes."""
        return INFO

    def predict(self, context: FloatArray, horizon: int) -> FloatArray:
        """The library's quantiles of each series, shape (N, H, 9); its first output channel, the mean, is left out."""
        from timesfm import ForecastConfig

        patch = self._model.model.p
        settings = ForecastConfig(
            max_context=patch * math.ceil(context.shape[1] / patch),
            max_horizon=horizon,
            normalize_inputs=True,
            per_core_batch_size=self._batch_size,
            use_continuous_quantile_head=True,
            force_flip_invariance=True,
            infer_is_positive=True,
            fix_quantile_crossing=True,
        )
        with self._turn:
            self._model.compile(settings)
            _, output = self._model.forecast(horizon, list(context))
        return np.asarray(output[..., 1 : 1 + len(QUANTILE_LEVELS)], dtype=np.float64)
