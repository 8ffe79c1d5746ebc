"""Forecasts on disk, found by content and shared by processes.

One small file a forecast, in two levels of folders: `<first two hex digits>/<digest>.forecast`. The digest covers what
determines a forecast: the model's identity, the horizon and the context's bytes. A file is a checksum followed by the
quantiles. It appears under its name only when it is whole, so readers need no lock; a damaged file counts as absent
and is written anew. Nothing is ever stale: whatever changes a forecast changes its digest. The folder may be deleted
at any time.
"""

import hashlib
import logging
import os
import tempfile
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
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writable = True

    def get(self, key: str, horizon: int) -> FloatArray | None:
        """The forecast of that key, shape (H, 9), read-only; `None` where there is none or it was damaged."""
        try:
            content = self._path(key).read_bytes()
        except OSError:
            return None
        checksum, values = content[:_CHECKSUM_BYTES], content[_CHECKSUM_BYTES:]
        if hashlib.sha256(values).digest() != checksum or len(values) != 8 * horizon * len(QUANTILE_LEVELS):
            _logger.warning("the cached forecast %s is damaged and will be computed again", self._path(key))
            return None
        return np.frombuffer(values, dtype="<f8").reshape(horizon, len(QUANTILE_LEVELS))

    def put(self, key: str, quantiles: FloatArray) -> None:
        """Keep a forecast, shape (H, 9)."""
        if not self._writable:
            return
        values = np.ascontiguousarray(quantiles, dtype="<f8").tobytes()
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
