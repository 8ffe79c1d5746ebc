"""PatchTST, iTransformer and DLinear of one data set behind the `WindowForecaster` protocol.

A checkpoint is a folder: `config.json` (shape, scaling, what it was trained on) and `model.safetensors`. All three are
declared point forecasts: they are trained on squared error.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from castgym.data.errors import ForecasterUnavailableError
from castgym.data.files import write_json_atomic
from castgym.data.windows import Window
from castgym.tools.forecasters.base import FloatArray, ForecasterInfo
from castgym.tools.forecasters.sources import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    missing_package,
    package_version,
    weights_digest,
)
from castgym.tools.forecasters.windows_base import WindowForecast, fill_gaps
from castgym.tools.forecasters.windows_checkpoints import FORMAT, TrainedOn, read_config

NEURAL_INFOS: Mapping[str, ForecasterInfo] = MappingProxyType(
    {
        "dlinear": ForecasterInfo(
            "dlinear", "Linear map of trend and rest of the target, trained on this data set; point forecast.", 1
        ),
        "patchtst": ForecasterInfo(
            "patchtst", "Transformer on patches of the target, trained on this data set; point forecast.", 1
        ),
        "itransformer": ForecasterInfo(
            "itransformer",
            "Transformer across channels and known future series, trained on this data set; point forecast.",
            1,
        ),
    }
)

ROWS = 8
"""Windows of a forward pass. It is always filled up, so that no forecast depends on its neighbours."""


def standardised(window: Window, mean: FloatArray, std: FloatArray) -> tuple[FloatArray, FloatArray]:
    """What the networks read of a window.

    Args:
        window: raw scale, NaN where missing.
        mean: of each channel over the training split, shape (C,).
        std: likewise.

    Returns:
        History (L, C) and known series (H, K), standardised; gaps interpolated, a channel without any value 0.
    """
    columns = [window.channels.index(name) for name in window.known_channels]
    history = fill_gaps((window.history - mean) / std)
    ahead = (window.known_future - mean[columns]) / std[columns]
    # A gap in the known horizon continues the history.
    known = fill_gaps(np.concatenate([history[:, columns], ahead]))[len(history) :]
    return history, known


class NeuralForecaster:
    """A trained network.

    Args:
        folder: its checkpoint.
        model: `dlinear`, `patchtst` or `itransformer`.
        device: torch device.

    Raises:
        ForecasterUnavailableError: torch or transformers is missing, or the weights do not load.
        DataError: the config is damaged or of another model.
    """

    def __init__(self, folder: Path, model: str, device: str = "cpu") -> None:
        try:
            import torch
            from safetensors.torch import load_file

            from castgym.tools.forecasters.windows_networks import build_network
        except ImportError as error:
            raise missing_package(model, "torch", error) from error
        config, self.trained_on = read_config(folder, model)
        task = self.trained_on
        known = tuple(task.channels.index(name) for name in task.known_channels)
        try:
            network = build_network(model, task.length, task.horizon, known, config["settings"])
            network.load_state_dict(load_file(folder / WEIGHTS_FILE))
            self._mean, self._std = (np.asarray(config[key], dtype=np.float64) for key in ("mean", "std"))
        except Exception as error:  # the libraries raise many kinds of errors for unfit weights
            raise ForecasterUnavailableError(f"the checkpoint of {model} in {folder} does not load: {error}") from error
        self._network = network.to(device).eval()
        self._torch: Any = torch
        self._device = device
        self._info = NEURAL_INFOS[model]

    @property
    def info(self) -> ForecasterInfo:
        """Name and notes."""
        return self._info

    def predict(self, windows: Sequence[Window]) -> list[WindowForecast]:
        """Point forecasts.

        Raises:
            ConfigError: a window is of other data than the checkpoint, or its horizon was trained or validated on.
        """
        for window in windows:
            self.trained_on.refuse_unfit(window)
        inputs = [standardised(window, self._mean, self._std) for window in windows]
        forecasts: list[WindowForecast] = []
        for start in range(0, len(inputs), ROWS):
            part = inputs[start : start + ROWS]
            values = self._pass(part + part[-1:] * (ROWS - len(part)))[: len(part)]
            raw = values * self._std[0] + self._mean[0]
            forecasts.extend(WindowForecast(row, None, self._info.name) for row in raw)
        return forecasts

    def _pass(self, inputs: Sequence[tuple[FloatArray, FloatArray]]) -> FloatArray:
        torch = self._torch
        history, known = (
            torch.from_numpy(np.stack(part).astype(np.float32)).to(self._device) for part in zip(*inputs, strict=True)
        )
        with torch.inference_mode():
            return np.asarray(self._network(history, known).cpu().numpy(), dtype=np.float64)


def save_network(
    folder: Path,
    model: str,
    network: Any,
    settings: Mapping[str, Any],
    trained_on: TrainedOn,
    record: Mapping[str, Any],
) -> None:
    """Write a checkpoint into an empty folder.

    Args:
        folder: exists.
        model: name of the network.
        network: torch module.
        settings: its shape.
        trained_on: its data.
        record: mean, std and what else is worth keeping; JSON.
    """
    from safetensors.torch import save_file

    state = {name: weight.detach().cpu().contiguous() for name, weight in network.state_dict().items()}
    save_file(state, folder / WEIGHTS_FILE)
    config = {
        "format": FORMAT,
        "model": model,
        "settings": dict(settings),
        "trained_on": trained_on.to_json(),
        **record,
    }
    write_json_atomic(folder / CONFIG_FILE, config)


def neural_identity(folder: Path, model: str) -> str:
    """What determines the forecasts of a checkpoint.

    Raises:
        ForecasterUnavailableError: torch or transformers is missing.
        DataError: the config is damaged or of another model.
    """
    read_config(folder, model)
    package_version(model, "torch")
    if model == "patchtst":
        package_version(model, "transformers")
    return f"{model}|{weights_digest(folder, (CONFIG_FILE, WEIGHTS_FILE))}"
