"""Forecasts found by content: in the memory of a process, and on disk, shared by processes.

On disk it is one small file a forecast, in two levels of folders: `<first two hex digits>/<digest>.forecast`. The
digest covers what determines a forecast: the model's identity, the horizon and the context's bytes. A file is a
checksum followed by the numbers. It appears under its name only when it is whole, so readers need no lock; a damaged
file counts as absent and is written anew. Nothing is ever stale: whatever changes a forecast changes its digest. The
folder may be deleted at any time.
"""

import hashlib
import logging
import os
import tempfile
import threading
from collections import OrderedDict
from pathlib import Path

import numpy as np

from castgym.tools.forecasters.base import QUANTILE_LEVELS, FloatArray

_CHECKSUM_BYTES = 32
_logger = logging.getLogger(__name__)


class DiskCache:
    """A folder of forecasts.

    A folder that cannot be written to is reported once and then only read: a full disk must not end a run.

    Args:
        folder: where the files lie; created when the first forecast is kept.
        columns: numbers kept of each step; a folder holds forecasts of one width.
    """

    def __init__(self, folder: Path, columns: int = len(QUANTILE_LEVELS)) -> None:
        self.folder = folder
        self._columns = columns
        self._writable = True

    def get(self, key: str, horizon: int) -> FloatArray | None:
        """The forecast of that key, shape (H, columns), read-only; `None` where there is none or it was damaged."""
        try:
            content = self._path(key).read_bytes()
        except OSError:
            return None
        checksum, values = content[:_CHECKSUM_BYTES], content[_CHECKSUM_BYTES:]
        if hashlib.sha256(values).digest() != checksum or len(values) != 8 * horizon * self._columns:
            _logger.warning("the cached forecast %s is damaged and will be computed again", self._path(key))
            return None
        return np.frombuffer(values, dtype="<f8").reshape(horizon, self._columns)

    def put(self, key: str, forecast: FloatArray) -> None:
        """Keep a forecast, shape (H, columns)."""
        if not self._writable:
            return
        values = np.ascontiguousarray(forecast, dtype="<f8").tobytes()
        try:
            self._write(self._path(key), hashlib.sha256(values).digest() + values)
        except OSError as error:
            self._writable = False
            _logger.warning("forecasts are not kept on disk from now on: %s: %s", self.folder, error)

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}.forecast"

    def _write(self, path: Path, content: bytes) -> None:
        """Write under a temporary name, then rename. No sync: after a power cut the checksum tells."""
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".")
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


class ForecastCache:
    """Forecasts in memory, the least recently used dropped first, and behind them those on disk. Thread-safe.

    Args:
        entries: forecasts kept in memory.
        disk: forecasts on disk; `None` keeps none.
    """

    def __init__(self, entries: int, disk: DiskCache | None) -> None:
        self.disk = disk
        self._entries = entries
        self._memory: OrderedDict[str, FloatArray] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str, horizon: int, *, on_disk: bool) -> FloatArray | None:
        """The forecast of that key, read-only, or `None`.

        Args:
            key: digest of all that determines the forecast.
            horizon: its steps.
            on_disk: whether forecasts of this kind are kept on disk: those of cheap forecasters are not.
        """
        with self._lock:
            if key in self._memory:
                self._memory.move_to_end(key)
                return self._memory[key]
        if self.disk is None or not on_disk:
            return None
        found = self.disk.get(key, horizon)
        if found is not None:
            self._remember(key, found)
        return found

    def put(self, key: str, forecast: FloatArray, *, on_disk: bool) -> None:
        """Keep a forecast; the array must not change any more."""
        self._remember(key, forecast)
        if self.disk is not None and on_disk:
            self.disk.put(key, forecast)

    def _remember(self, key: str, forecast: FloatArray) -> None:
        with self._lock:
            self._memory[key] = forecast
            self._memory.move_to_end(key)
            while len(self._memory) > self._entries:
                self._memory.popitem(last=False)
