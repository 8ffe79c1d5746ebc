"""Which forecasters of windows there are, and how each is built."""

from pathlib import Path

from castgym.tools.forecasters import timesfm_model
from castgym.tools.forecasters import windows_classical as classical
from castgym.tools.forecasters.batches import BATCH
from castgym.tools.forecasters.chronos_models import DTYPE
from castgym.tools.forecasters.pool import ForecasterEntry, default_entries
from castgym.tools.forecasters.sources import models_folder, models_pins
from castgym.tools.forecasters.windows_base import WindowEntry, WindowTask
from castgym.tools.forecasters.windows_checkpoints import Checkpoints, default_checkpoints
from castgym.tools.forecasters.windows_foundation import (
    CHRONOS_INFO,
    ChronosWindows,
    TargetForecaster,
    chronos_source,
    timesfm_source,
)
from castgym.tools.forecasters.windows_neural import NEURAL_INFOS, NeuralForecaster, neural_identity

CAST_R1_MODELS = ("arima", "chronos", "patchtst", "itransformer")
"""The candidate pool of the paper (Cast-R1, section 3.3)."""

_SERIES_MODELS = ("castgym_bolt", "fracast")
"""Forecasters of single series that are offered for windows; their weights come with their packages."""

_CPU_ROWS = 2
"""Windows of a forward pass of Chronos-2 on a CPU."""


def window_entries(
    checkpoints: Path | None = None, models: Path | None = None, device: str = "cpu"
) -> tuple[WindowEntry, ...]:
    """Every forecaster of windows. None is loaded, nor its package imported, before it is asked for.

    Args:
        checkpoints: folder of trained forecasters; `window_models` in castgym's cache folder by default.
        models: folder of downloaded models; by default the one named by `$CASTGYM_MODELS`, whose pins count in any
            case.
        device: torch device of the networks.

    Raises:
        ConfigError: `$CASTGYM_MODELS` names no folder.
    """
    trained = Checkpoints(checkpoints or default_checkpoints())
    models, pins = models or models_folder(), models_pins()
    entries = [
        WindowEntry(classical.SEASONAL_NAIVE_INFO, lambda _task: classical.SeasonalNaive()),
        WindowEntry(
            classical.ARIMA_INFO,
            build=lambda task: classical.Arima(_arima_order(trained, task)),
            identity=lambda task: classical.arima_identity(_arima_order(trained, task)),
            per_dataset=True,
        ),
    ]
    entries += [_neural_entry(name, trained, device) for name in NEURAL_INFOS]
    rows = _CPU_ROWS if device == "cpu" else BATCH
    entries.append(
        WindowEntry(
            CHRONOS_INFO,
            build=lambda _task: ChronosWindows(chronos_source(models, pins), device, rows),
            identity=lambda _task: chronos_source(models, pins).identity(DTYPE, "covariates"),
        )
    )
    entries.append(
        WindowEntry(
            timesfm_model.INFO,
            build=lambda _task: TargetForecaster(
                timesfm_model.TimesFM25(timesfm_source(models, pins), device, 1 if device == "cpu" else BATCH)
            ),
            identity=lambda _task: timesfm_source(models, pins).identity(),
        )
    )
    series = {entry.info.name: entry for entry in default_entries(models, device)}
    entries += [_series_entry(series[name]) for name in _SERIES_MODELS]
    return tuple(entries)


def _arima_order(trained: Checkpoints, task: WindowTask) -> classical.ArimaOrder | None:
    """The order chosen for the data set, or `None`: ARIMA runs without a choice."""
    folder = trained.find(task, classical.ARIMA_INFO.name)
    return None if folder is None else classical.read_arima_order(folder)


def _neural_entry(name: str, trained: Checkpoints, device: str) -> WindowEntry:
    return WindowEntry(
        NEURAL_INFOS[name],
        build=lambda task: NeuralForecaster(trained.require(task, name), name, device),
        identity=lambda task: neural_identity(trained.require(task, name), name),
        per_dataset=True,
    )


def _series_entry(entry: ForecasterEntry) -> WindowEntry:
    identity = entry.identity
    return WindowEntry(
        entry.info,
        build=lambda _task: TargetForecaster(entry.build()),
        identity=None if identity is None else lambda _task: identity(),
    )
