"""Progress of a collection: a bar with rate and time left on a terminal, else a line now and then."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_LINE_SECONDS = 10.0
"""Time between two lines where there is no terminal."""


class Rate:
    """Episodes a second since the first report, and the time that the rest takes at that rate.

    Args:
        clock: seconds, for tests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first: tuple[float, int] | None = None

    def measure(self, done: int, total: int) -> tuple[float, float | None]:
        """Rate and seconds left; 0 and `None` before anything ended. What an earlier call finished does not count."""
        now = self._clock()
        if self._first is None:
            self._first = (now, done)
        started, before = self._first
        rate = (done - before) / (now - started) if now > started else 0.0
        return rate, (total - done) / rate if rate > 0 else None


def progress_line(done: int, total: int, faults: int, rate: float, left: float | None) -> str:
    """One line of progress.

    >>> progress_line(300, 1000, 0, 45.2, 15.5)
    '300/1000 episodes, 45.2 a second, 16 s left'
    """
    line = f"{done}/{total} episodes, {rate:.1f} a second"
    line += f", {left:.0f} s left" if left is not None else ""
    return line + (f", {faults} faults" if faults else "")


@contextmanager
def collect_progress(console: Console) -> Iterator[Callable[[int, int, int], None]]:
    """A callback for `collect` that shows its progress."""
    rate = Rate()
    if not console.is_terminal:
        shown = 0.0

        def line(done: int, total: int, faults: int) -> None:
            nonlocal shown
            measured = rate.measure(done, total)
            if done == total or time.monotonic() - shown >= _LINE_SECONDS:
                shown = time.monotonic()
                console.print(progress_line(done, total, faults, *measured), highlight=False)

        yield line
        return
    columns = (
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bars:
        bar = bars.add_task("collect", total=None, rate="")

        def move(done: int, total: int, faults: int) -> None:
            speed, _ = rate.measure(done, total)
            text = f"{speed:.1f}/s" + (f", {faults} faults" if faults else "")
            bars.update(bar, completed=done, total=total, rate=text)

        yield move
