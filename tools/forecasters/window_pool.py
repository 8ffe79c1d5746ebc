"""The forecasters of windows: built on first use, forecasts cached by content in memory and on disk."""

import functools
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from castgym.data.cache import cache_folder
from castgym.data.errors import ConfigError, ForecasterUnavailableError, InfrastructureError
from castgym.data.files import sha256_hex
from castgym.data.windows import Window
from castgym.data.windows_set import WindowSet
from castgym.tools.forecasters.base import QUANTILE_LEVELS, BackendError, FloatArray, ForecasterInfo
from castgym.tools.forecasters.batches import BATCH, run_batches
from castgym.tools.forecasters.cache import DiskCache, ForecastCache
from castgym.tools.forecasters.limit import FORECAST_SECONDS, TimeLimit
from castgym.tools.forecasters.pool import CACHE_ENTRIES
from castgym.tools.forecasters.windows_base import WindowEntry, WindowForecast, WindowForecaster, WindowTask
from castgym.tools.forecasters.windows_checkpoints import training_fingerprint
from castgym.tools.forecasters.windows_entries import CAST_R1_MODELS, window_entries

__all__ = [
    "CAST_R1_MODELS",
    "WindowEntry",
    "WindowForecast",
    "WindowForecaster",
    "WindowForecasterPool",
    "WindowTask",
    "shared_window_pool",
    "window_cache",
    "window_entries",
]

_COLUMNS = 1 + len(QUANTILE_LEVELS)
"""Numbers kept of a step: the point forecast and the quantiles, NaN for a declared point forecast."""


class WindowForecasterPool:
    """Name -> forecaster of windows, thread-safe.

    A window names its data set, but not the version of it. `require` with the `WindowSet` ties the two together: from
    then on only checkpoints that were trained on exactly that data serve its windows.

    Args:
        entries: what each forecaster is and how to build it (called at most once a data set, on first use).
        cache: forecasts kept on disk, as `window_cache` makes it; `None` keeps none.
        cache_entries: forecasts kept in memory, least recently used dropped first.
        seconds: longest time of a forecast, loading not counted; a batch has that for each of its windows.
    """

    def __init__(
        self,
        entries: Sequence[WindowEntry],
        cache: DiskCache | None = None,
        cache_entries: int = CACHE_ENTRIES,
        seconds: float = FORECAST_SECONDS,
    ) -> None:
        self._entries = {entry.info.name: entry for entry in entries}
        self._cache = ForecastCache(cache_entries, cache)
        self._limit = TimeLimit(seconds)
        self._loaded: dict[tuple[str, WindowTask | None], WindowForecaster] = {}
        self._identities: dict[tuple[str, WindowTask | None], str] = {}
        self._meant: dict[WindowTask, frozenset[str]] = {}
        self._lock = threading.Lock()
        self._locks = {name: threading.Lock() for name in self._entries}

    @property
    def names(self) -> tuple[str, ...]:
        """Forecasters that can be asked for."""
        return tuple(self._entries)

    def info(self, name: str) -> ForecasterInfo:
        """What the forecaster is, without building it.

        Raises:
            ConfigError: the name is unknown.
        """
        return self._entry(name).info

    def available(self, name: str, dataset: WindowSet | Window) -> bool:
        """Whether the forecaster can serve a data set: package, weights and checkpoint are there. Loads no weights.

        Args:
            name: forecaster.
            dataset: the window set, whose training data are compared with the checkpoint's, or one of its windows.

        Raises:
            ConfigError: the name is unknown.
        """
        try:
            self._prove(name, self._task_of(dataset))
        except ForecasterUnavailableError:
            return False
        return True

    def require(self, names: Sequence[str], dataset: WindowSet | Window) -> None:
        """Make sure, before a run starts, that package, weights and checkpoint of all named forecasters are there.

        Args:
            names: forecasters.
            dataset: the window set, which the pool remembers as the one that windows of its name belong to; or a
                window, whose name alone is compared.

        Raises:
            ConfigError: a name is unknown, or several checkpoints fit.
            ForecasterUnavailableError: something is missing; the message says what to install, download or train.
        """
        task = self._task_of(dataset)
        for name in names:
            self._prove(name, task)
        if isinstance(dataset, WindowSet):
            plain = replace(task, fingerprints=frozenset())
            with self._lock:
                self._meant[plain] = self._meant.get(plain, frozenset()) | task.fingerprints

    def forecast(self, name: str, window: Window) -> WindowForecast:
        """Forecast one window, or return the cached forecast of the same content.

        Raises:
            ConfigError: the name is unknown, or the checkpoint does not fit the window.
            BackendError: the forecaster failed, returned what is no forecast, or took longer than the limit. What it
                returns later is kept.
            ForecasterUnavailableError: its package, weights or checkpoint is missing.
        """
        return self.forecast_many(name, [window])[0]

    def forecast_many(
        self,
        name: str,
        windows: Sequence[Window],
        workers: int = 1,
        progress: Callable[[int, int], None] = lambda _cached, _computed: None,
    ) -> list[WindowForecast]:
        """Forecast many windows: the same values as `forecast` gives one by one, in less time.

        What is not cached is computed in batches and kept after each, so an interrupted call loses little.

        Args:
            name: forecaster.
            windows: of any data sets.
            workers: threads that compute batches side by side; one thread of torch in each is fastest.
            progress: told how many further forecasts were found in a cache, and how many computed.

        Returns:
            A forecast for each window, in their order.

        Raises:
            ConfigError: the name is unknown, or a checkpoint does not fit its windows.
            BackendError: the forecaster failed, returned what is no forecast, or took longer than the limit.
            ForecasterUnavailableError: its package, weights or checkpoint is missing.
        """
        tasks = [self._task_of(window) for window in windows]
        keys = [self._key(name, task, window) for task, window in zip(tasks, windows, strict=True)]
        found: dict[str, WindowForecast] = {}
        missing: dict[WindowTask, dict[str, Window]] = {}
        for key, task, window in zip(keys, tasks, windows, strict=True):
            if key in found or key in missing.get(task, {}):
                continue
            cached = self._cache.get(key, window.horizon, on_disk=self._on_disk(name))
            if cached is None:
                missing.setdefault(task, {})[key] = window
            else:
                found[key] = _unpacked(cached, name)
        wanted = Counter(keys)
        progress(sum(wanted[key] for key in found), 0)
        for batch, forecasts in run_batches(_batches(missing), partial(self._run, name), workers):
            found.update(zip(batch.windows, forecasts, strict=True))
            progress(0, sum(wanted[key] for key in batch.windows))
        return [found[key] for key in keys]

    def _run(self, name: str, batch: "_Batch") -> Sequence[WindowForecast]:
        """Forecast and keep the windows of a batch, or give up at the time limit."""
        forecaster = self._get(name, batch.task)

        def compute() -> Sequence[WindowForecast]:
            forecasts = _checked(forecaster, name, list(batch.windows.values()))
            for key, forecast in zip(batch.windows, forecasts, strict=True):
                self._cache.put(key, _packed(forecast), on_disk=self._on_disk(name))
            return forecasts

        return self._limit.run(name, compute, len(batch.windows))

    def _on_disk(self, name: str) -> bool:
        return self._entry(name).identity is not None

    def _get(self, name: str, task: WindowTask) -> WindowForecaster:
        entry = self._entry(name)
        where = (name, task if entry.per_dataset else None)
        with self._locks[name]:
            if where not in self._loaded:
                self._loaded[where] = entry.build(task)
            return self._loaded[where]

    def _prove(self, name: str, task: WindowTask) -> None:
        """Raise unless the forecaster can serve the task."""
        if self._identity(name, task) is None:
            self._get(name, task)

    def _identity(self, name: str, task: WindowTask) -> str | None:
        entry = self._entry(name)
        if entry.identity is None:
            return None
        where = (name, task if entry.per_dataset else None)
        with self._locks[name]:
            if where not in self._identities:
                self._identities[where] = entry.identity(task)
            return self._identities[where]

    def _key(self, name: str, task: WindowTask, window: Window) -> str:
        """Digest of all that determines a forecast."""
        return sha256_hex((self._identity(name, task) or name).encode(), window.digest.encode())

    def _task_of(self, dataset: WindowSet | Window) -> WindowTask:
        task = WindowTask.of(dataset)
        if isinstance(dataset, WindowSet):
            return replace(task, fingerprints=frozenset([training_fingerprint(dataset)]))
        return replace(task, fingerprints=self._meant.get(task, frozenset()))

    def _entry(self, name: str) -> WindowEntry:
        if name not in self._entries:
            raise ConfigError(f"unknown forecaster {name!r}; known: {', '.join(sorted(self._entries))}")
        return self._entries[name]


def _checked(forecaster: WindowForecaster, name: str, windows: Sequence[Window]) -> Sequence[WindowForecast]:
    """Run a forecaster and hold it to the protocol.

    Raises:
        ConfigError: a checkpoint does not fit a window.
        BackendError: it failed, or returned what is no forecast.
    """
    try:
        forecasts = forecaster.predict(windows)
    except (ConfigError, InfrastructureError):
        raise
    except Exception as error:
        raise BackendError(f"{name} failed on {windows[0].window_id}: {type(error).__name__}: {error}") from error
    expected = [(window.horizon, name) for window in windows]
    if (returned := [(item.horizon, item.model) for item in forecasts]) != expected:
        raise BackendError(
            f"{name}: expected {len(expected)} forecasts of {expected[0]}, found {len(returned)} of {set(returned)}"
        )
    return forecasts


@dataclass(frozen=True, slots=True)
class _Batch:
    """Windows of one task by their key."""

    task: WindowTask
    windows: Mapping[str, Window]


def _batches(missing: Mapping[WindowTask, Mapping[str, Window]]) -> list[_Batch]:
    batches = []
    for task, windows in missing.items():
        keys = list(windows)
        parts = [keys[start : start + BATCH] for start in range(0, len(keys), BATCH)]
        batches += [_Batch(task, {key: windows[key] for key in part}) for part in parts]
    return batches


def _packed(forecast: WindowForecast) -> FloatArray:
    quantiles = forecast.quantiles
    if quantiles is None:
        quantiles = np.full((forecast.horizon, len(QUANTILE_LEVELS)), np.nan)
    packed = np.column_stack([forecast.values, quantiles])
    packed.flags.writeable = False
    return packed


def _unpacked(packed: FloatArray, name: str) -> WindowForecast:
    return WindowForecast(packed[:, 0], None if np.isnan(packed[:, 1:]).any() else packed[:, 1:], name)


def window_cache() -> DiskCache:
    """Forecasts of windows on disk: the folder `window_forecasts` of castgym's cache folder."""
    return DiskCache(cache_folder() / "window_forecasts", columns=_COLUMNS)


def shared_window_pool() -> WindowForecasterPool:
    """The pool of this process, so that environments side by side load each forecaster once.

    Its forecasts are kept in castgym's cache folder, which all processes share.
    """
    with _BUILDING:
        return _pool_of_this_process()


_BUILDING = threading.Lock()  # functools.cache alone lets threads build several at first


@functools.cache
def _pool_of_this_process() -> WindowForecasterPool:
    return WindowForecasterPool(window_entries(), cache=window_cache())
