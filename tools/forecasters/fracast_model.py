"""Fracast-0: a compact pretrained forecaster whose weights come inside its Python package, so it runs offline."""

from typing import Any

import numpy as np

from castgym.data.errors import ForecasterUnavailableError
from castgym.tools.forecasters.base import QUANTILE_LEVELS, FloatArray, ForecasterInfo
from castgym.tools.forecasters.sources import ModelSource, missing_package, module_folder

INFO = ForecasterInfo(
    name="fracast",
    notes="Fracast-0, a compact pretrained neural forecaster; beyond 48 steps it feeds its median back.",
    min_context=8,
)

_PACKAGE_FILES = ("config.json", "model.int8.safetensors", "w8_manifest.json")


class Fracast:
    """The `fracast` package (85 thousand parameters, nine native quantiles, 48 native steps).

    Longer horizons feed the median back, as the package does; its intervals are then too narrow.

    Args:
        source: a local directory or hub id of weights; `None` takes those in the package.
        device: torch device.

    Raises:
        ForecasterUnavailableError: the package or the weights are missing.
    """

    def __init__(self, source: str | None = None, device: str = "cpu") -> None:
        try:
            from fracast import FracastModel
        except ImportError as error:
            raise missing_package(INFO.name, "fracast", error) from error
        try:
            self._model: Any = FracastModel.from_pretrained(source, device=device)
        except Exception as error:  # the libraries raise many kinds of errors for unfit weights
            raise ForecasterUnavailableError(f"no fracast weights at {source!r}: {error}") from error
        if tuple(self._model.quantiles) != QUANTILE_LEVELS:
            raise ForecasterUnavailableError(f"expected quantiles {QUANTILE_LEVELS}, found {self._model.quantiles}")

    @property
    def info(self) -> ForecasterInfo:
        """Name and notes."""
        return INFO

    def predict(self, context: FloatArray, horizon: int) -> FloatArray:
        """Quantiles of each series, shape (N, H, 9).

        Rows run one at a time: batching gains nothing on a CPU, and a forecast must not depend on its neighbours.
        """
        return np.stack([np.asarray(self._model.forecast(row, horizon=horizon), dtype=np.float64) for row in context])


def package_identity() -> str:
    """What determines the forecasts of the weights in the package.

    Raises:
        ForecasterUnavailableError: the package is missing.
    """
    folder = module_folder(INFO.name, "fracast") / "weights"
    return ModelSource(INFO.name, "fracast", local=folder, files=_PACKAGE_FILES).identity()
