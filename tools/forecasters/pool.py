"""The forecasters of a process: built on first use, forecasts cached by content in memory and on disk."""

import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from castgym.data.cache import cache_folder
from castgym.data.errors import ConfigError
from castgym.data.files import sha256_hex
from castgym.tools.forecasters import chronos_models, fracast_model, seasonal, timesfm_model
from castgym.tools.forecasters.base import FloatArray, Forecaster, ForecasterInfo, checked_forecast
from castgym.tools.forecasters.batches import BATCH, run_batches
from castgym.tools.forecasters.cache import DiskCache, ForecastCache
from castgym.tools.forecasters.limit import FORECAST_SECONDS, TimeLimit
from castgym.tools.forecasters.sources import ModelSource, models_folder, models_pins

CACHE_ENTRIES = 8192
"""Forecasts kept in memory (336 steps of nine quantiles are 24 kB)."""


@dataclass(frozen=True, slots=True)
class ForecasterEntry:
    """A forecaster that can be built: its description, known without its package, and its constructor.

    Attributes:
        info: name and notes.
        build: constructs it.
        identity: text that determines its forecasts, found without building it; `None`: they are not kept on disk.
    """

    info: ForecasterInfo
    build: Callable[[], Forecaster]
    identity: Callable[[], str] | None = None


class ForecasterPool:
    """Name -> forecaster, thread-safe.

    Args:
        entries: what each forecaster is and how to build it (called at most once, on first use).
        cache_entries: forecasts kept in memory, oldest dropped first.
        cache: forecasts kept on disk; `None` keeps none.
        seconds: longest time of a forecast, loading not counted; a batch has that for each of its series.
    """

    def __init__(
        self,
        entries: Sequence[ForecasterEntry],
        cache_entries: int = CACHE_ENTRIES,
        cache: DiskCache | None = None,
        seconds: float = FORECAST_SECONDS,
    ) -> None:
        self._entries = {entry.info.name: entry for entry in entries}
        self._loaded: dict[str, Forecaster] = {}
        self._identities: dict[str, str] = {}
        self._cache = ForecastCache(cache_entries, cache)
        self._limit = TimeLimit(seconds)
        self._load_locks = {name: threading.Lock() for name in self._entries}

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

    def get(self, name: str) -> Forecaster:
        """The forecaster of that name, built on first use.

        Raises:
            ConfigError: the name is unknown.
            ForecasterUnavailableError: its package or weights are missing.
        """
        entry = self._entry(name)
        with self._load_locks[name]:
            if name not in self._loaded:
                self._loaded[name] = entry.build()
            return self._loaded[name]

    def require(self, names: Sequence[str]) -> None:
        """Make sure that package and weights of all named forecasters are there before a run starts.

        A forecaster with an identity is not loaded for this, since all that it will be asked for may be cached.

        Raises:
            ConfigError: a name is unknown.
            ForecasterUnavailableError: a package or weights are missing.
        """
        for name in names:
            if self._identity(name) is None:
                self.get(name)

    def prepare(self, name: str, context: FloatArray, horizon: int) -> None:
        """Make sure that a forecast can be had: it is cached, or its forecaster is loaded now.

        Raises:
            ForecasterUnavailableError: it is not cached, and the package or weights are missing.
        """
        if self._cached(name, self._key(name, _canonical(context), horizon), horizon) is None:
            self.get(name)

    def on_disk(self, name: str) -> bool:
        """Whether forecasts of that name are kept on disk: those of cheap forecasters are not."""
        return self._cache.disk is not None and self._entry(name).identity is not None

    def forecast(self, name: str, context: FloatArray, horizon: int) -> FloatArray:
        """Forecast one series, or return the cached forecast of the same content.

        Args:
            name: forecaster.
            context: observations, shape (L,), physical units.
            horizon: steps, H.

        Returns:
            Quantiles, shape (H, 9), read-only.

        Raises:
            BackendError: the forecaster failed, or took longer than the limit. What it returns later is kept.
            ForecasterUnavailableError: its package or weights are missing.
        """
        values = _canonical(context)
        key = self._key(name, values, horizon)
        found = self._cached(name, key, horizon)
        return found if found is not None else self._compute(name, {key: values}, horizon)[0]

    def forecast_many(
        self,
        name: str,
        contexts: Sequence[FloatArray],
        horizon: int,
        workers: int = 1,
        progress: Callable[[int, int], None] = lambda _cached, _computed: None,
    ) -> FloatArray:
        """Forecast many series: the same values as `forecast` gives one by one, in less time.

        What is not cached is computed in batches and kept after each, so an interrupted call loses little.

        Args:
            name: forecaster.
            contexts: N series of observations, shape (L,) each, physical units.
            horizon: steps, H.
            workers: threads that compute batches side by side; one thread of torch in each is fastest.
            progress: told how many further forecasts were found in a cache, and how many computed.

        Returns:
            Quantiles, shape (N, H, 9).

        Raises:
            BackendError: the forecaster failed, or a batch took longer than the limit.
            ForecasterUnavailableError: its package or weights are missing.
        """
        rows = [_canonical(context) for context in contexts]
        keys = [self._key(name, row, horizon) for row in rows]
        found: dict[str, FloatArray] = {}
        missing: dict[str, FloatArray] = {}
        for key, row in zip(keys, rows, strict=True):
            if key not in found and key not in missing:
                cached = self._cached(name, key, horizon)
                if cached is None:
                    missing[key] = row
                else:
                    found[key] = cached
        progress(sum(key in found for key in keys), 0)
        for key, quantiles in self._computed(name, missing, horizon, workers):
            found[key] = quantiles
            progress(0, keys.count(key))
        return np.stack([found[key] for key in keys])

    def _computed(
        self, name: str, missing: Mapping[str, FloatArray], horizon: int, workers: int
    ) -> Iterator[tuple[str, FloatArray]]:
        """Forecasts of series by key, in any order."""
        by_length: dict[int, list[str]] = {}
        for key, row in missing.items():
            by_length.setdefault(len(row), []).append(key)
        batches = [same[start : start + BATCH] for same in by_length.values() for start in range(0, len(same), BATCH)]

        def run(batch: list[str]) -> list[FloatArray]:
            return self._compute(name, {key: missing[key] for key in batch}, horizon)

        for batch, quantiles in run_batches(batches, run, workers):
            yield from zip(batch, quantiles, strict=True)

    def _compute(self, name: str, rows: Mapping[str, FloatArray], horizon: int) -> list[FloatArray]:
        """Forecast and keep series of one length, by key, shape (H, 9) each, or give up at the time limit."""
        forecaster = self.get(name)

        def run() -> list[FloatArray]:
            computed = list(checked_forecast(forecaster, np.stack(list(rows.values())), horizon))
            for key, quantiles in zip(rows, computed, strict=True):
                self._keep(name, key, quantiles)
            return computed

        return self._limit.run(name, run, len(rows))

    def _cached(self, name: str, key: str, horizon: int) -> FloatArray | None:
        return self._cache.get(key, horizon, on_disk=self.on_disk(name))

    def _keep(self, name: str, key: str, quantiles: FloatArray) -> None:
        self._cache.put(key, quantiles, on_disk=self.on_disk(name))

    def _key(self, name: str, values: FloatArray, horizon: int) -> str:
        """Digest of all that determines a forecast."""
        return sha256_hex((self._identity(name) or name).encode(), str(horizon).encode(), values.tobytes())

    def _identity(self, name: str) -> str | None:
        entry = self._entry(name)
        if entry.identity is None:
            return None
        with self._load_locks[name]:
            if name not in self._identities:
                self._identities[name] = entry.identity()
            return self._identities[name]

    def _entry(self, name: str) -> ForecasterEntry:
        if name not in self._entries:
            raise ConfigError(f"unknown forecaster {name!r}; known: {', '.join(sorted(self._entries))}")
        return self._entries[name]


def _canonical(context: FloatArray) -> FloatArray:
    return np.ascontiguousarray(context, dtype="<f8")


def default_entries(
    models: Path | None = None, device: str = "cpu", pins: Mapping[str, str] | None = None
) -> tuple[ForecasterEntry, ...]:
    """Every forecaster that castgym knows. None is loaded, nor its package imported, before it is asked for.

    Args:
        models: folder of downloaded models; by default the one named by `$CASTGYM_MODELS`, if it is set.
        device: torch device of the foundation models.
        pins: hub models to take in place of the shipped ones, forecaster name to `org/name@revision`; by default those
            of `$CASTGYM_MODELS`.

    Raises:
        ConfigError: `$CASTGYM_MODELS` names no folder, or a pin fits no forecaster.
    """
    models = models or models_folder()
    pins = models_pins() if pins is None else pins
    shipped_sources = (*(source for _, source, _ in chronos_models.MODELS), timesfm_model.SOURCE)
    if unknown := sorted(set(pins) - {source.name for source in shipped_sources}):
        known = ", ".join(source.name for source in shipped_sources if source.hub_id)
        raise ConfigError(f"no hub model is pinned for {', '.join(unknown)}: expected one of {known}")

    def chosen(source: ModelSource) -> ModelSource:
        return source.at(pins[source.name]) if source.name in pins else source.within(models)

    entries = [
        ForecasterEntry(seasonal.INFO, seasonal.SeasonalEmpirical),
        ForecasterEntry(fracast_model.INFO, fracast_model.Fracast, fracast_model.package_identity),
    ]
    for info, shipped, cpu_rows in chronos_models.MODELS:
        source = chosen(shipped)
        rows = cpu_rows if device == "cpu" else BATCH
        build = partial(chronos_models.Chronos, info, source, device=device, batch_size=rows)
        entries.append(ForecasterEntry(info, build, partial(source.identity, chronos_models.DTYPE)))
    timesfm = chosen(timesfm_model.SOURCE)
    build_timesfm = partial(timesfm_model.TimesFM25, timesfm, device=device, batch_size=1 if device == "cpu" else BATCH)
    entries.append(ForecasterEntry(timesfm_model.INFO, build_timesfm, timesfm.identity))
    return tuple(entries)


def shared_pool() -> ForecasterPool:
    """The pool of this process, so that environments side by side load each model once.

    Its forecasts are kept in the folder `forecasts` of castgym's cache folder, which all processes share.
    """
    with _BUILDING:
        return _pool_of_this_process()


_BUILDING = threading.Lock()  # functools.cache alone lets threads build several at first


@functools.cache
def _pool_of_this_process() -> ForecasterPool:
    return ForecasterPool(default_entries(), cache=DiskCache(cache_folder() / "forecasts"))
