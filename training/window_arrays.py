"""Training and validation windows of a window set as arrays, standardised, for networks.

Training reads rows of the training split only; validation windows may show training rows as history, as everywhere.
No row of the test split is read.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from castgym.data.errors import DataError
from castgym.data.windows_set import WindowSet
from castgym.tools.forecasters.base import FloatArray
from castgym.tools.forecasters.windows_base import fill_gaps

Rows = NDArray[np.int64]
Float32 = NDArray[np.float32]

MAX_TRAINING_WINDOWS = 12_000
"""Windows of an epoch: more are thinned out evenly, since neighbours of 15-minute data are almost equal."""

_VALIDATION_SHARE = 8
"""Validation origins are an eighth of a horizon apart, or `align` rows where that is more."""


@dataclass(frozen=True, eq=False)
class WindowArrays:
    """Standardised rows and the origins of training and validation windows in them.

    Attributes:
        values: rows before the test split, shape (T, C), standardised by training statistics, NaN where missing.
        known: positions of the channels known over the horizon.
        length: steps of history, L.
        horizon: steps to forecast, H.
        training: rows of origins whose history and horizon lie in the training split.
        validation: rows of origins whose horizon lies in the validation split.
    """

    values: FloatArray
    known: tuple[int, ...]
    length: int
    horizon: int
    training: Rows
    validation: Rows

    @staticmethod
    def of(window_set: WindowSet) -> "WindowArrays":
        """Cut the arrays of a set.

        Training takes every origin, also where `align` admits whole days only: a series known a day ahead is known for
        the past at any hour.

        Raises:
            DataError: a split has no window with a known target over the whole horizon.
        """
        (_, train_end), (_, validation_end) = window_set.borders["train"], window_set.borders["validation"]
        scale = window_set.statistics
        values = (window_set.values[:validation_end] - scale.mean) / scale.std
        length, horizon, align = window_set.length, window_set.horizon, window_set.align
        step = max(horizon // _VALIDATION_SHARE, 1) if align == 1 else align
        training = np.arange(length, train_end - horizon + 1)
        validation = np.arange(-(-max(train_end, length) // align) * align, validation_end - horizon + 1, step)
        training, validation = (_scorable(values[:, 0], rows, length, horizon) for rows in (training, validation))
        if not len(training) or not len(validation):
            raise DataError(
                f"{window_set.name}: expected training and validation windows with a known target, found "
                f"{len(training)} and {len(validation)}"
            )
        thinning = -(-len(training) // MAX_TRAINING_WINDOWS)
        return WindowArrays(
            values=values,
            known=tuple(window_set.channels.index(name) for name in window_set.known),
            length=length,
            horizon=horizon,
            training=training[::thinning],
            validation=validation,
        )

    def batch(self, origins: Rows | Sequence[int]) -> tuple[Float32, Float32, Float32]:
        """History (N, L, C), known series (N, H, K) and target (N, H) at some origins, gaps filled as in a forecast."""
        rows = np.asarray(origins)[:, None]
        history = self.values[rows + np.arange(-self.length, 0)]
        ahead = self.values[rows + np.arange(self.horizon)]
        known = ahead[:, :, list(self.known)]
        for index in np.flatnonzero(np.isnan(history).any(axis=(1, 2)) | np.isnan(known).any(axis=(1, 2))):
            history[index] = fill_gaps(history[index])
            whole = np.concatenate([history[index][:, list(self.known)], known[index]])
            known[index] = fill_gaps(whole)[self.length :]
        return history.astype(np.float32), known.astype(np.float32), ahead[:, :, 0].astype(np.float32)


def _scorable(target: FloatArray, rows: Rows, length: int, horizon: int) -> Rows:
    """The origins with a known target over the whole horizon and somewhere in the history."""
    known = np.concatenate([[0], np.cumsum(np.isfinite(target))])
    ahead = known[rows + horizon] - known[rows] == horizon
    past = known[rows] > known[rows - length]
    kept: Rows = rows[ahead & past]
    return kept
