"""Train the forecasters of windows of one data set: `dlinear`, `patchtst`, `itransformer`, and the order of `arima`.

Networks learn from the training split, standardised by its statistics, and stop on the validation split; ARIMA's order
is the candidate with the least absolute error on validation windows. Checkpoints lie where `Checkpoints` finds them.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch

from castgym.data.errors import ConfigError, DataError
from castgym.data.files import folder_atomic, write_json_atomic
from castgym.data.windows import Window
from castgym.data.windows_set import WindowSet
from castgym.tools.forecasters.sources import CONFIG_FILE
from castgym.tools.forecasters.windows_checkpoints import FORMAT, Checkpoints, TrainedOn
from castgym.tools.forecasters.windows_classical import ARIMA_CANDIDATES, ARIMA_INFO, Arima, ArimaOrder
from castgym.tools.forecasters.windows_networks import SETTINGS, build_network
from castgym.tools.forecasters.windows_neural import save_network
from castgym.training.fit_network import FitSettings, Progress, fit_network
from castgym.training.window_arrays import WindowArrays

TRAINABLE = (*SETTINGS, ARIMA_INFO.name)
"""Names of what can be trained."""

RATES: Mapping[str, float] = MappingProxyType({"dlinear": 1.0e-3, "patchtst": 1.0e-3, "itransformer": 3.0e-4})
"""First learning rates."""

ARIMA_SECONDS = 1.0
"""An order that took more CPU time on a validation window is not chosen: an agent waits for the forecast."""

ARIMA_WINDOWS = 24
"""Validation windows on which the orders are compared."""


@dataclass(frozen=True, slots=True)
class TrainedForecaster:
    """What came of training one forecaster.

    Attributes:
        model: its name.
        folder: its checkpoint.
        seconds: that it took; 0 where the checkpoint was there already.
        summary: one line on the result.
    """

    model: str
    folder: Path
    seconds: float
    summary: str


def train_forecaster(
    window_set: WindowSet,
    model: str,
    checkpoints: Checkpoints,
    *,
    settings: FitSettings | None = None,
    overwrite: bool = False,
    progress: Progress = lambda _done, _total: None,
) -> TrainedForecaster:
    """Train one forecaster of a data set, unless its checkpoint is there.

    Args:
        window_set: training and validation splits are read, the test split is not.
        model: one of `TRAINABLE`.
        checkpoints: where to keep it.
        settings: of the networks.
        overwrite: train again and replace the checkpoint.
        progress: told how many epochs (orders, for `arima`) are done, and how many there are at most.

    Raises:
        ConfigError: there is no such model.
        DataError: a split has no usable window.
    """
    if model not in TRAINABLE:
        raise ConfigError(f"expected a model of {', '.join(TRAINABLE)}, found {model!r}")
    folder = checkpoints.path(window_set, model)
    if (folder / CONFIG_FILE).is_file() and not overwrite:
        return TrainedForecaster(model, folder, 0.0, "trained already")
    started = time.perf_counter()
    with folder_atomic(folder, overwrite=overwrite or folder.exists()) as temporary:
        if model == ARIMA_INFO.name:
            summary = _choose_arima(window_set, temporary, progress)
        else:
            summary = _train_network(window_set, model, temporary, settings or FitSettings(), progress)
    return TrainedForecaster(model, folder, time.perf_counter() - started, summary)


def _train_network(window_set: WindowSet, model: str, folder: Path, settings: FitSettings, progress: Progress) -> str:
    arrays = WindowArrays.of(window_set)
    build = partial(build_network, model, window_set.length, window_set.horizon, arrays.known, SETTINGS[model])
    fit = fit_network(build, arrays, RATES[model], settings, progress)
    record = {
        "mean": window_set.statistics.mean.tolist(),
        "std": window_set.statistics.std.tolist(),
        "training": {
            "windows": len(arrays.training),
            "validation_windows": len(arrays.validation),
            "batch": settings.batch,
            "rate": RATES[model],
            "seed": settings.seed,
            "epochs": fit.epochs,
            "best_epoch": fit.best_epoch,
            "validation_mse": round(fit.validation_mse, 6),
            "torch": str(torch.__version__),
        },
    }
    save_network(folder, model, fit.network, SETTINGS[model], TrainedOn.of(window_set), record)
    return f"best of {fit.epochs} epochs: {fit.best_epoch}, validation MSE {fit.validation_mse:.4f} (standardised)"


@dataclass(frozen=True, slots=True)
class OrderResult:
    """An ARIMA order on validation windows.

    Attributes:
        order: the order.
        mae: mean absolute error, raw scale.
        mse: mean squared error, raw scale.
        slowest: CPU seconds of the slowest window.
    """

    order: ArimaOrder
    mae: float
    mse: float
    slowest: float


def compare_arima_orders(
    window_set: WindowSet,
    candidates: Sequence[ArimaOrder] = ARIMA_CANDIDATES,
    progress: Progress = lambda _done, _total: None,
) -> list[OrderResult]:
    """Measure orders on validation windows that lie evenly over the split.

    Args:
        window_set: its validation split is read.
        candidates: orders; those that do not fit the data set are left out.
        progress: told how many orders are done, and how many there are.

    Raises:
        DataError: there is no validation window.
    """
    windows = list(window_set.windows("validation"))
    if not windows:
        raise DataError(f"{window_set.name}: expected validation windows to choose an ARIMA order on, found none")
    chosen = [windows[int(at)] for at in np.unique(np.linspace(0, len(windows) - 1, ARIMA_WINDOWS).round())]
    targets = window_set.targets("validation")
    fitting = [order for order in candidates if order.fits(chosen[0])]
    results = []
    for done, order in enumerate(fitting, start=1):
        forecaster = Arima(order)
        seconds = [0.0]
        errors = np.stack([_timed(forecaster, window, seconds) - targets[window.window_id].actual for window in chosen])
        results.append(OrderResult(order, float(np.abs(errors).mean()), float((errors**2).mean()), max(seconds)))
        progress(done, len(fitting))
    return results


def _timed(forecaster: Arima, window: Window, seconds: list[float]) -> np.ndarray:
    started = time.thread_time()
    values = forecaster.predict([window])[0].values
    seconds.append(time.thread_time() - started)
    return values


def _choose_arima(window_set: WindowSet, folder: Path, progress: Callable[[int, int], None]) -> str:
    results = compare_arima_orders(window_set, progress=progress)
    quick = [item for item in results if item.slowest <= ARIMA_SECONDS]
    if not quick:
        raise DataError(
            f"{window_set.name}: every ARIMA order took more than {ARIMA_SECONDS} CPU-s a window: shorten the history"
        )
    best = min(quick, key=lambda item: item.mae)
    config = {
        "format": FORMAT,
        "model": ARIMA_INFO.name,
        "trained_on": TrainedOn.of(window_set).to_json(),
        "chosen": best.order.to_json(),
        "validation": [
            {**item.order.to_json(), "mae": round(item.mae, 6), "mse": round(item.mse, 6)} for item in results
        ],
    }
    write_json_atomic(folder / CONFIG_FILE, config)
    return f"{best.order} of {len(results)} orders: validation MAE {best.mae:.4f}, slowest window {best.slowest:.2f} s"
