"""Finding window sets by name: the embedded simulated ones, or a folder with a manifest."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import get_args

from castgym.data.errors import ConfigError, DataError
from castgym.data.schema import FloatArray
from castgym.data.windows import Window, WindowSplit, WindowTarget
from castgym.data.windows_set import WindowSet
from castgym.data.windows_simulate import simulated_windows
from castgym.data.windows_store import load_window_sets
from castgym.envs.casesets import EMBEDDED
from castgym.tools.forecasters.window_pool import CAST_R1_MODELS, WindowForecasterPool
from castgym.tools.forecasting_tools import PastWindow

EMBEDDED_MODELS = ("arima", "castgym_bolt", "seasonal_naive")
"""Forecasters of the embedded sets: those of them that are installed. None needs training or a download."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadedWindows:
    """Window sets, truth included, for hosts and scorers.

    Attributes:
        sets: by increasing position; each name once.
        source: the name or folder that they were loaded from.
    """

    sets: tuple[WindowSet, ...]
    source: str

    def __post_init__(self) -> None:
        names = [item.name for item in self.sets]
        if not names or len(set(names)) < len(names):
            raise DataError(f"expected window sets with different names, found {', '.join(names) or 'none'}")

    @property
    def name(self) -> str:
        """Names of the sets, joined."""
        return "+".join(item.name for item in self.sets)

    def default_models(self, pool: WindowForecasterPool) -> tuple[str, ...]:
        """The paper's forecasters; for the embedded sets those of `EMBEDDED_MODELS` that are installed."""
        if self.source != EMBEDDED:
            return CAST_R1_MODELS
        return tuple(name for name in EMBEDDED_MODELS if all(pool.available(name, item) for item in self.sets))

    def only(self, names: Sequence[str] | None) -> "LoadedWindows":
        """The sets of these names; all with `None`.

        Raises:
            ConfigError: a name is unknown.
        """
        if names is None:
            return self
        known = {item.name: item for item in self.sets}
        if unknown := [name for name in names if name not in known]:
            raise ConfigError(f"expected data sets of {', '.join(known)}, found {', '.join(unknown)}")
        return LoadedWindows(tuple(known[name] for name in names), self.source)

    def find(self, window_id: str) -> tuple[WindowSet, WindowSplit, datetime]:
        """Set, split and origin that an id names.

        Raises:
            ConfigError: no set has such a window.
        """
        name, _, rest = window_id.partition("-")
        split, _, origin = rest.partition("-")
        for item in self.sets:
            if item.name == name and split in get_args(WindowSplit):
                try:
                    return item, split, datetime.fromisoformat(origin)  # type: ignore[return-value]
                except ValueError:
                    break
        sets = ", ".join(item.name for item in self.sets)
        raise ConfigError(f"no window {window_id[:80]!r} in {sets}: expected an id such as ETTh1-test-2018-03-05T07:00")

    def window(self, window_id: str) -> Window:
        """The window of an id, without the truth.

        Raises:
            ConfigError: there is none.
        """
        item, split, origin = self.find(window_id)
        return item.window(split, origin)

    def target(self, window_id: str) -> WindowTarget:
        """The truth of a window.

        Raises:
            ConfigError: there is no such window.
        """
        item, split, origin = self.find(window_id)
        return item.target_at(split, origin)

    def past(self, window: Window, count: int) -> tuple[PastWindow, ...]:
        """The latest windows whose horizons had ended by a window's origin, latest first.

        They step back by the horizon, rounded up to whole blocks of `align` rows. Their context may be older than the
        history that the window shows. Fewer than `count` where the table begins.

        Args:
            window: one of these sets.
            count: how many are wanted.
        """
        item = next(item for item in self.sets if item.name == window.dataset)
        stride = -(-window.horizon // item.align) * item.align
        row = (window.origin - item.start) // item.step
        found = []
        for number in range(1, count + 1):
            start = row - number * stride
            if start < window.length:
                break
            found.append(_past(item, window, start))
        return tuple(found)


def load_windows(source: str | Path = EMBEDDED, files: str | Path | None = None) -> LoadedWindows:
    """Load window sets.

    Args:
        source: `embedded`, or a folder that `castgym data windows --out` wrote.
        files: folder of the official files that the manifest names.

    Raises:
        DataError: the folder holds no manifest, a file is missing, or a set is not the one that was saved.
    """
    if str(source) == EMBEDDED:
        return LoadedWindows(tuple(simulated_windows(seed=0)), EMBEDDED)  # built in a twentieth of a second
    path = Path(source)
    return LoadedWindows(load_window_sets(path, Path(files) if files is not None else None), str(path.resolve()))


def _past(item: WindowSet, window: Window, row: int) -> PastWindow:
    origin = item.start + row * item.step
    known = [item.channels.index(name) for name in item.known]
    end = row + window.horizon
    # Its own split, so that a network knows whether it has learnt from these rows.
    split = next(name for name, (first, after) in item.borders.items() if first <= row < after)
    earlier = Window(
        window_id=f"{item.name}-past-{origin:%Y-%m-%dT%H:%M}",
        dataset=item.name,
        split=split,
        origin=origin,
        step=item.step,
        channels=item.channels,
        history=item.values[row - window.length : row],
        known_channels=item.known,
        known_future=item.values[row:end, known],
        unit=item.unit,
        context="",
    )
    actual: FloatArray = item.values[row:end, 0]
    return PastWindow(earlier, actual)
