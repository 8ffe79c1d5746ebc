"""The protocol of forecasters of windows, what they return, and what they share.

A forecaster of a window sees the `Window` and nothing else: history of all channels, the series known over the
horizon, and no truth.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, runtime_checkable

import numpy as np

from castgym.data.errors import DataError
from castgym.data.schema import readonly
from castgym.data.windows import Window
from castgym.data.windows_set import WindowSet
from castgym.tools.forecasters.base import QUANTILE_LEVELS, FloatArray, ForecasterInfo

DAY = timedelta(days=1)
DAYS_A_WEEK = 7


@dataclass(frozen=True, slots=True, eq=False)
class WindowForecast:
    """A forecast of the target over the horizon of a window.

    Attributes:
        values: point forecast, shape (H,), raw scale, read-only.
        quantiles: at `QUANTILE_LEVELS`, sorted, shape (H, 9), raw scale, read-only; `None` for a declared point
            forecast.
        model: name of what really ran.

    Raises:
        DataError: a shape is wrong or a value is not finite.
    """

    values: FloatArray
    quantiles: FloatArray | None
    model: str

    def __post_init__(self) -> None:
        steps = len(self.values)
        values = readonly(self.values, shape=(steps,), what=f"point forecast of {self.model}")
        object.__setattr__(self, "values", values)
        if self.quantiles is not None:
            shape = (steps, len(QUANTILE_LEVELS))
            quantiles = readonly(np.sort(self.quantiles, axis=-1), shape=shape, what=f"quantiles of {self.model}")
            object.__setattr__(self, "quantiles", quantiles)

    @property
    def horizon(self) -> int:
        """Steps, H."""
        return len(self.values)


@dataclass(frozen=True, slots=True)
class WindowTask:
    """What a trained forecaster is trained for: one data set at one length and horizon.

    Attributes:
        dataset: name of the data set.
        length: steps of history, L.
        horizon: steps to forecast, H.
        fingerprints: the training data that are meant, as `training_fingerprint` names them; empty where only a window
            is known, which does not tell.
    """

    dataset: str
    length: int
    horizon: int
    fingerprints: frozenset[str] = frozenset()

    @staticmethod
    def of(subject: "WindowSet | Window") -> "WindowTask":
        """The task of a window set or of one of its windows, without fingerprints."""
        name = subject.name if isinstance(subject, WindowSet) else subject.dataset
        return WindowTask(name, subject.length, subject.horizon)

    @property
    def key(self) -> str:
        """Name of its folder, such as `ETTh1-96-96`."""
        return f"{self.dataset}-{self.length}-{self.horizon}"


@runtime_checkable
class WindowForecaster(Protocol):
    """Forecasts of the target of windows of one data set."""

    @property
    def info(self) -> ForecasterInfo:
        """Name and notes."""
        ...

    def predict(self, windows: Sequence[Window]) -> Sequence[WindowForecast]:
        """Forecast the horizon of each window.

        Args:
            windows: of one data set, with the same length, horizon and channels; NaN where a value is missing.

        Returns:
            One forecast a window, in their order; none depends on the other windows.
        """
        ...


@dataclass(frozen=True, slots=True)
class WindowEntry:
    """A forecaster of windows that can be built.

    Attributes:
        info: name and notes.
        build: constructs it for a task.
        identity: text that determines its forecasts of a task, found without building it; `None`: they are cheap, so
            they are not kept on disk.
        per_dataset: whether it depends on the task, as a trained one does.
    """

    info: ForecasterInfo
    build: Callable[[WindowTask], WindowForecaster]
    identity: Callable[[WindowTask], str] | None = None
    per_dataset: bool = False


def season_length(step: timedelta) -> int:
    """Steps of the natural season: a day of steps below a day, a week of daily steps, else 1."""
    if step < DAY:
        return max(1, round(DAY / step))
    return DAYS_A_WEEK if step == DAY else 1


def fill_gaps(values: FloatArray, empty: float = 0.0) -> FloatArray:
    """Close the gaps of each column: linear between known values, the nearest known value at the ends.

    Args:
        values: shape (L, C), NaN where missing.
        empty: value of a column without any known value.

    Returns:
        A finite copy, shape (L, C).
    """
    filled = np.array(values, dtype=np.float64)
    steps = np.arange(len(filled))
    for column in filled.T:
        known = np.isfinite(column)
        if not known.any():
            column[:] = empty
        elif not known.all():
            column[~known] = np.interp(steps[~known], steps[known], column[known])
    return filled


def known_target(window: Window) -> FloatArray:
    """The target's history without gaps, shape (L,), raw scale.

    Raises:
        DataError: no value of it is known.
    """
    target = window.history[:, 0]
    if not np.isfinite(target).any():
        raise DataError(f"{window.window_id}: expected a known value of the target in the history, found none")
    return fill_gaps(target[:, None])[:, 0]
