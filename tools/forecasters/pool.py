"""The forecasters of a process: built on first use, forecasts cached by content."""

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from castgym.data.errors import ConfigError
from castgym.data.files import sha256_hex
from castgym.tools.forecasters import fracast_model, seasonal
from castgym.tools.forecasters.base import FloatArray, Forecaster, ForecasterInfo, checked_forecast
from castgym.tools.forecasters.fracast_model import Fracast

CACHE_ENTRIES = 8192
"""Forecasts kept in memory (336 steps of nine quantiles are 24 kB)."""


@dataclass(frozen=True, slots=True)
class ForecasterEntry:
    """A forecaster that can be built: its description, known without its package, and its constructor."""

    info: ForecasterInfo
    build: Callable[[], Forecaster]


class ForecasterPool:
    """Name -> forecaster, thread-safe.

    Args:
        entries: what each forecaster is and how to build it (called at most once, on first use).
        cache_entries: forecasts kept in memory, oldest dropped first.
    """

    def __init__(self, entries: Sequence[ForecasterEntry], cache_entries: int = CACHE_ENTRIES) -> None:
        self._entries = {entry.info.name: entry for entry in entries}
        self._loaded: dict[str, Forecaster] = {}
        self._cache: OrderedDict[str, FloatArray] = OrderedDict()
        self._cache_entries = cache_entries
        self._lock = threading.Lock()
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
        """Build all named forecasters now, so that a missing package is known before a run starts."""
        for name in names:
            self.get(name)

    def forecast(self, name: str, context: FloatArray, horizon: int) -> FloatArray:
        """Forecast one series, or return the cached forecast of the same content.

        Args:
            name: forecaster.
            context: observations, shape (L,), physical units.
            horizon: steps, H.

        Returns:
            Quantiles, shape (H, 9), read-only.

        Raises:
            BackendError: the forecaster failed.
            ForecasterUnavailableError: its package or weights are missing.
        """
        values = np.ascontiguousarray(context, dtype="<f8")
        key = sha256_hex(name.encode(), str(horizon).encode(), values.tobytes())
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
                return self._cache[key]
        result: FloatArray = checked_forecast(self.get(name), values[None], horizon)[0]
        with self._lock:
            self._cache[key] = result
            while len(self._cache) > self._cache_entries:
                self._cache.popitem(last=False)
        return result

    def _entry(self, name: str) -> ForecasterEntry:
        if name not in self._entries:
            raise ConfigError(f"unknown forecaster {name!r}; known: {', '.join(sorted(self._entries))}")
        return self._entries[name]


def default_entries() -> tuple[ForecasterEntry, ...]:
    """Every forecaster that ships with castgym."""
    return (ForecasterEntry(seasonal.INFO, seasonal.SeasonalEmpirical), ForecasterEntry(fracast_model.INFO, Fracast))


@functools.cache
def shared_pool() -> ForecasterPool:
    """The pool of this process, so that environments side by side load each model once."""
    return ForecasterPool(default_entries())
