"""One data set with the rule that cuts windows from its chronological splits.

A `WindowSet` holds the whole table, truth included: it stays with the host and never reaches an agent.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from castgym.data.errors import ConfigError, DataError
from castgym.data.files import canonical_json, sha256_hex
from castgym.data.schema import FloatArray, readonly
from castgym.data.windows import (
    MINUTE,
    WINDOW_SPLITS,
    Window,
    WindowSplit,
    WindowTarget,
    WindowTargets,
    readonly_with_gaps,
)
from castgym.data.windows_context import MarketContext

_NAME = re.compile(r"[A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True, eq=False)
class TrainingStatistics:
    """Scaling for models, from known values of the training split alone.

    Attributes:
        mean: of each channel, shape (C,), read-only.
        std: population standard deviation of each channel, shape (C,), read-only; 1 for a constant channel, so that
            scaling is defined.
    """

    mean: FloatArray
    std: FloatArray


@dataclass(frozen=True, eq=False)
class WindowSet:
    """One data set and the rule that cuts windows from it. It holds the truth: for the host, not for agents.

    Splits are chronological and cover all rows: with ratio a:b:c and n blocks of `align` rows, training takes the
    first floor(n a / (a+b+c)) blocks, test the last floor(n c / (a+b+c)), validation what is between. The horizon of a
    window lies in its split; its history may reach back into the split before, as is usual.

    Attributes:
        name: letters, digits and `_`, such as `ETTh1`.
        start: time of the first row, on the clock of the data set, without time zone.
        step: time between rows, whole minutes.
        channels: names of the columns; the first is the target.
        values: shape (T, C), raw scale, NaN where missing, read-only.
        length: rows of history, L.
        horizon: rows to forecast, H.
        ratio: parts of train, validation and test, such as (6, 2, 2).
        known: channels whose values over the horizon are known at the origin.
        align: origins and borders of splits are multiples of this many rows; 24 where the known series are published
            for a whole day at a time.
        unit: unit of the target.
        market: rule of the context text; None for no text.
        source: where the values come from, JSON; no part of the fingerprint, so that a compressed copy is the same set.
    """

    name: str
    start: datetime
    step: timedelta
    channels: tuple[str, ...]
    values: FloatArray
    length: int
    horizon: int
    ratio: tuple[int, int, int]
    known: tuple[str, ...] = ()
    align: int = 1
    unit: str = ""
    market: MarketContext | None = None
    source: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise DataError(f"expected a name of letters, digits and _, found {self.name!r}: it becomes part of ids")
        if self.start.tzinfo is not None:
            raise DataError(f"{self.name}: expected times without time zone, found {self.start}")
        if self.step < MINUTE or self.step % MINUTE:
            raise DataError(f"{self.name}: expected a step of whole minutes, found {self.step}")
        if min(self.length, self.horizon, self.align, *self.ratio) < 1:
            raise ConfigError(f"{self.name}: expected length, horizon, align and the parts of the ratio >= 1")
        if not self.channels or len(set(self.channels)) < len(self.channels):
            raise DataError(f"{self.name}: expected different channels, found {self.channels}")
        if wrong := sorted(set(self.known) - set(self.channels[1:])):
            raise DataError(f"{self.name}: expected known series among {self.channels[1:]}, found {', '.join(wrong)}")
        values = readonly_with_gaps(self.values, shape=(len(self.values), len(self.channels)), what=self.name)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "source", MappingProxyType(dict(self.source)))
        if len(values) % self.align:
            raise DataError(f"{self.name}: expected whole blocks of {self.align} rows, found {len(values)} rows")
        for split in WINDOW_SPLITS:
            if not len(self._room(split, self.align)):
                first, end = self.borders[split]
                raise DataError(
                    f"{self.name}: the {split} split has {end - first} of {len(values)} rows, too few for a window of "
                    f"{self.length} + {self.horizon}: give more rows or a shorter length and horizon"
                )
        for position, channel in enumerate(self.channels):
            if np.isnan(self._training[:, position]).all():
                raise DataError(f"{self.name}: channel {channel!r} has no known value in the training split")

    def __deepcopy__(self, memo: Any) -> "WindowSet":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return WindowSet, tuple(
            dict(self.source) if item.name == "source" else getattr(self, item.name) for item in fields(self)
        )

    def __len__(self) -> int:
        return len(self.values)

    @property
    def target(self) -> str:
        """Name of the target channel."""
        return self.channels[0]

    @property
    def times(self) -> pd.DatetimeIndex:
        """Times of the rows, shape (T,)."""
        return pd.date_range(self.start, periods=len(self), freq=self.step)

    @cached_property
    def borders(self) -> Mapping[WindowSplit, tuple[int, int]]:
        """First row of each split and the row after its last one."""
        blocks = len(self.values) // self.align
        train = blocks * self.ratio[0] // sum(self.ratio) * self.align
        test = len(self.values) - blocks * self.ratio[2] // sum(self.ratio) * self.align
        return MappingProxyType({"train": (0, train), "validation": (train, test), "test": (test, len(self.values))})

    @property
    def _training(self) -> FloatArray:
        first, end = self.borders["train"]
        return self.values[first:end]

    @cached_property
    def statistics(self) -> TrainingStatistics:
        """Mean and standard deviation of each channel over the training split."""
        std = np.nanstd(self._training, axis=0)
        shape = (len(self.channels),)
        return TrainingStatistics(
            mean=readonly(np.nanmean(self._training, axis=0), shape=shape, what=self.name),
            std=readonly(np.where(std > 0, std, 1.0), shape=shape, what=self.name),
        )

    def with_lengths(self, length: int | None = None, horizon: int | None = None) -> "WindowSet":
        """The set with another length or horizon; None keeps what it has."""
        return replace(
            self,
            length=self.length if length is None else length,
            horizon=self.horizon if horizon is None else horizon,
        )

    def default_stride(self, split: WindowSplit) -> int:
        """Rows between origins: every origin for training, else horizons that do not overlap."""
        if split == "train":
            return self.align
        return -(-self.horizon // self.align) * self.align

    def origins(self, split: WindowSplit, *, stride: int | None = None) -> pd.DatetimeIndex:
        """Origins of a split, in order.

        Left out are windows whose target is missing somewhere in the horizon (they cannot be scored) or everywhere in
        the history.

        Args:
            split: `train`, `validation` or `test`.
            stride: rows between origins, a multiple of `align`; `default_stride` by default.

        Raises:
            ConfigError: there is no such split, or the stride is no positive multiple of `align`.
        """
        return self.times[self._origin_rows(split, stride)]

    def window(self, split: WindowSplit, origin: datetime) -> Window:
        """The window at an origin, without the truth.

        Raises:
            ConfigError: the split has no window there.
        """
        row = self._row(split, origin)
        known = [self.channels.index(name) for name in self.known]
        return Window(
            window_id=self._window_id(split, row),
            dataset=self.name,
            split=split,
            origin=self.start + row * self.step,
            step=self.step,
            channels=self.channels,
            history=self.values[row - self.length : row],
            known_channels=self.known,
            known_future=self.values[row : row + self.horizon, known],
            unit=self.unit,
            context="" if self.market is None else self.market.text(self._times(row, self.horizon)),
        )

    def windows(self, split: WindowSplit, *, stride: int | None = None) -> Iterator[Window]:
        """The windows of a split at `origins`, made one by one."""
        for row in self._origin_rows(split, stride):
            yield self.window(split, self.start + int(row) * self.step)

    def target_at(self, split: WindowSplit, origin: datetime) -> WindowTarget:
        """The truth of the window at an origin.

        Raises:
            ConfigError: the split has no window there.
        """
        return self._target(split, self._row(split, origin))

    def targets(self, split: WindowSplit, *, stride: int | None = None) -> WindowTargets:
        """The truth of the windows of a split."""
        return WindowTargets([self._target(split, int(row)) for row in self._origin_rows(split, stride)])

    def describe(self) -> dict[str, Any]:
        """Everything but values and source, as JSON."""
        return {
            "name": self.name,
            "start": self.start.isoformat(),
            "step_minutes": self.step // MINUTE,
            "rows": len(self),
            "channels": list(self.channels),
            "length": self.length,
            "horizon": self.horizon,
            "ratio": list(self.ratio),
            "known": list(self.known),
            "align": self.align,
            "unit": self.unit,
            "market": None if self.market is None else self.market.to_json(),
        }

    @cached_property
    def fingerprint(self) -> str:
        """Hash that changes with every value and every setting."""
        return sha256_hex(canonical_json(self.describe()).encode(), self.values.astype("<f8").tobytes())

    def _times(self, row: int, steps: int) -> pd.DatetimeIndex:
        return pd.date_range(self.start + row * self.step, periods=steps, freq=self.step)

    def _window_id(self, split: WindowSplit, row: int) -> str:
        return f"{self.name}-{split}-{self.start + row * self.step:%Y-%m-%dT%H:%M}"

    def _target(self, split: WindowSplit, row: int) -> WindowTarget:
        return WindowTarget(self._window_id(split, row), self.values[row : row + self.horizon, 0])

    def _room(self, split: WindowSplit, stride: int) -> range:
        """Rows at which a window fits, whatever its values."""
        first, end = self.borders[split]
        earliest = -(-max(first, self.length) // self.align) * self.align
        return range(earliest, end - self.horizon + 1, stride)

    @cached_property
    def _scorable(self) -> NDArray[np.bool_]:
        """Rows at which the target is known over the whole horizon and somewhere in the history, shape (T,)."""
        before = np.concatenate([[0], np.cumsum(np.isfinite(self.values[:, 0]))])
        rows = np.arange(len(self))
        past = before[rows] - before[np.maximum(rows - self.length, 0)]
        ahead = before[np.minimum(rows + self.horizon, len(self))] - before[rows]
        scorable: NDArray[np.bool_] = (past > 0) & (ahead == self.horizon)
        return scorable

    def _origin_rows(self, split: WindowSplit, stride: int | None) -> NDArray[np.int64]:
        if split not in WINDOW_SPLITS:
            raise ConfigError(f"expected a split of {', '.join(WINDOW_SPLITS)}, found {split!r}")
        stride = self.default_stride(split) if stride is None else stride
        if stride < 1 or stride % self.align:
            raise ConfigError(f"{self.name}: expected a stride that is a multiple of {self.align}, found {stride}")
        rows = np.array(self._room(split, stride), dtype=np.int64)
        return rows[self._scorable[rows]]

    def _row(self, split: WindowSplit, origin: datetime) -> int:
        if split not in WINDOW_SPLITS:
            raise ConfigError(f"expected a split of {', '.join(WINDOW_SPLITS)}, found {split!r}")
        room = self._room(split, self.align)
        row, rest = divmod(origin - self.start, self.step) if origin.tzinfo is None else (-1, self.step)
        if rest or row not in room or not self._scorable[row]:
            first, last = (self.start + edge * self.step for edge in (room[0], room[-1]))
            raise ConfigError(
                f"{self.name}: the {split} split has no window at {origin}; expected an origin without time zone from "
                f"{first} to {last}, every {self.align * self.step}, with a known target over the whole horizon"
            )
        return row
