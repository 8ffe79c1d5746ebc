"""A time limit around forecasts, so that a forecaster that hangs does not hang who asked for it.

A running computation cannot be stopped from outside in one process. So it runs in a thread of its own; at the limit
the caller gets an error and the thread is left behind. It may still finish and keep its result.
"""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from castgym.data.errors import ConfigError
from castgym.tools.forecasters.base import BackendError

FORECAST_SECONDS = 120.0
"""Longest time of a forecast; the slowest shipped model takes about two seconds on one core."""

MOST_LATE = 4
"""Computations of one forecaster that may run past their limit at a time; further requests are refused at once."""

_GRACE_SECONDS = 5.0
"""How long an interrupt waits for the running computation: a process that ends during native code may crash."""

Result = TypeVar("Result")


class TimeLimit:
    """Runs computations with a time limit, thread-safe.

    Args:
        seconds: limit of a computation of weight 1.

    Raises:
        ConfigError: the limit is not positive.
    """

    def __init__(self, seconds: float = FORECAST_SECONDS) -> None:
        if not seconds > 0:
            raise ConfigError(f"expected a time limit > 0 seconds, found {seconds}")
        self._seconds = seconds
        self._late: Counter[str] = Counter()
        self._lock = threading.Lock()

    def run(self, name: str, compute: Callable[[], Result], weight: int = 1) -> Result:
        """The result of a computation.

        Args:
            name: the forecaster, for messages and to count what is late.
            compute: runs in a daemon thread of its own.
            weight: how many times the limit it may take, such as the series of a batch.

        Raises:
            BackendError: it took longer, or too many earlier ones of that name still run.
            BaseException: whatever `compute` raised.
        """
        with self._lock:
            if self._late[name] >= MOST_LATE:
                raise BackendError(f"{name} hangs: {MOST_LATE} of its forecasts run past their time limit")
        seconds = min(self._seconds * weight, threading.TIMEOUT_MAX)
        future: Future[Result] = Future()
        threading.Thread(target=_fill, args=(future, compute), name=f"forecast-{name}", daemon=True).start()
        try:
            return future.result(seconds)
        except TimeoutError:
            if future.done():  # it is the computation's own error, or it has just ended
                return future.result()
            self._count_until_it_ends(name, future)
            raise BackendError(f"{name} took longer than {seconds:g} s") from None
        except (KeyboardInterrupt, SystemExit):
            wait([future], _GRACE_SECONDS)
            raise

    def _count_until_it_ends(self, name: str, future: "Future[Result]") -> None:
        def end(_: "Future[Result]") -> None:
            with self._lock:
                self._late[name] -= 1

        with self._lock:
            self._late[name] += 1
        future.add_done_callback(end)


def _fill(future: "Future[Result]", compute: Callable[[], Result]) -> None:
    try:
        result = compute()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
