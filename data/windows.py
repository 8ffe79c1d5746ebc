"""Windows of one data set: what an agent may know at a forecast origin, and, apart from it, the truth.

A `Window` refers to no `WindowTarget` and to no larger table: whoever scores joins the two by `window_id`. The ORIGIN
is the time of the first step to forecast. A window shows rows before it, and of the rows at or after it only the
channels that the data set declares known over the horizon (Cast-R1, sections 3.1 and A.4). Values are on the raw scale.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from castgym.data.errors import DataError
from castgym.data.files import canonical_json, sha256_hex
from castgym.data.schema import FloatArray, readonly

WindowSplit = Literal["train", "validation", "test"]
WINDOW_SPLITS: tuple[WindowSplit, ...] = get_args(WindowSplit)

MINUTE = timedelta(minutes=1)


def readonly_with_gaps(values: Any, *, shape: tuple[int, ...], what: str) -> FloatArray:
    """A read-only float64 copy in C order that owns its memory; NaN is a missing value.

    Raises:
        DataError: the shape differs or a value is infinite.
    """
    array: FloatArray = np.array(values, dtype=np.float64, order="C")
    if array.shape != shape:
        raise DataError(f"{what}: expected shape {shape}, found {array.shape}")
    if np.isinf(array).any():
        raise DataError(f"{what}: expected finite values or NaN, found infinity")
    array.flags.writeable = False
    return array


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """What an agent may know at a forecast origin.

    Attributes:
        window_id: unique name, such as `ETTh1-test-2018-03-05T07:00`.
        dataset: name of the data set.
        split: `train`, `validation` or `test`.
        origin: time of the first step to forecast, on the clock of the data set.
        step: time between neighbouring rows.
        channels: names of the columns of `history`; the first is the target.
        history: values before the origin, shape (L, C), raw scale, NaN where missing, read-only.
        known_channels: the channels whose values over the horizon are known at the origin.
        known_future: their values, shape (H, K), raw scale, NaN where missing, read-only; K may be 0.
        unit: unit of the target.
        context: text known at the origin; empty where the data set has none.
    """

    window_id: str
    dataset: str
    split: WindowSplit
    origin: datetime
    step: timedelta
    channels: tuple[str, ...]
    history: FloatArray
    known_channels: tuple[str, ...]
    known_future: FloatArray
    unit: str
    context: str

    def __post_init__(self) -> None:
        shape = (len(self.history), len(self.channels))
        object.__setattr__(
            self, "history", readonly_with_gaps(self.history, shape=shape, what=f"history of {self.window_id}")
        )
        shape = (len(self.known_future), len(self.known_channels))
        known = readonly_with_gaps(self.known_future, shape=shape, what=f"known series of {self.window_id}")
        object.__setattr__(self, "known_future", known)

    def __deepcopy__(self, memo: Any) -> "Window":
        return self  # nothing in it can change

    def __reduce__(self) -> tuple[Any, ...]:
        # NumPy forgets on pickling that an array is read-only; the constructor remembers.
        return Window, tuple(getattr(self, item.name) for item in fields(self))

    @property
    def length(self) -> int:
        """Steps of history, L."""
        return len(self.history)

    @property
    def horizon(self) -> int:
        """Steps to forecast, H."""
        return len(self.known_future)

    @property
    def history_times(self) -> pd.DatetimeIndex:
        """Times of the rows of `history`, shape (L,)."""
        return pd.date_range(self.origin - self.length * self.step, periods=self.length, freq=self.step)

    @property
    def horizon_times(self) -> pd.DatetimeIndex:
        """Times to forecast, shape (H,)."""
        return pd.date_range(self.origin, periods=self.horizon, freq=self.step)

    @property
    def digest(self) -> str:
        """Content hash: equal for windows that say the same."""
        facts = {
            "window_id": self.window_id,
            "dataset": self.dataset,
            "split": self.split,
            "origin": self.origin.isoformat(),
            "step_minutes": self.step / MINUTE,
            "channels": list(self.channels),
            "known_channels": list(self.known_channels),
            "unit": self.unit,
            "context": self.context,
        }
        arrays = (self.history.astype("<f8").tobytes(), self.known_future.astype("<f8").tobytes())
        return sha256_hex(canonical_json(facts).encode(), *arrays)


@dataclass(frozen=True, slots=True, eq=False)
class WindowTarget:
    """The target over the horizon of a window, shape (H,), raw scale, read-only. Never reaches an agent."""

    window_id: str
    actual: FloatArray

    def __post_init__(self) -> None:
        actual = readonly(self.actual, shape=(len(self.actual),), what=f"target of {self.window_id}")
        object.__setattr__(self, "actual", actual)

    def __deepcopy__(self, memo: Any) -> "WindowTarget":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return WindowTarget, (self.window_id, self.actual)


class WindowTargets(Mapping[str, WindowTarget]):
    """Targets by `window_id`, held by scorers only."""

    def __init__(self, targets: Sequence[WindowTarget]) -> None:
        self._targets = {target.window_id: target for target in targets}
        if len(self._targets) != len(targets):
            raise DataError("expected one target for each window, found duplicates")

    def __getitem__(self, window_id: str) -> WindowTarget:
        if window_id not in self._targets:
            raise DataError(f"no target for window {window_id!r}: the targets belong to other windows")
        return self._targets[window_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._targets)

    def __len__(self) -> int:
        return len(self._targets)
