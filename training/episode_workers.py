"""Threads that run the episodes' own work (tools, forecasts, scoring) beside generation, with a limit on each step.

A thread cannot be stopped from outside. A step that passes its limit is given up: its thread ends with it, whenever
that is, and another takes its place, so that a hanging tool neither blocks the others nor the end of the process.
"""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Generic, TypeVar, cast

from castgym.agents.limits import TimeLimitError
from castgym.data.errors import ConfigError, InfrastructureError

T = TypeVar("T")

POLL_SECONDS = 0.05
"""How often running steps are compared with their limit."""


class Job(Generic[T]):
    """One step of an episode: waiting, running, then with a result, with a fault, or given up.

    Args:
        work: what to do.

    Attributes:
        seconds: how long it ran.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._started: float | None = None
        self._value: T | None = None
        self._error: BaseException | None = None
        self.seconds = 0.0

    @property
    def ended(self) -> bool:
        """It has a result or a fault, or was given up."""
        return self._ended.is_set()

    def run(self) -> bool:
        """Do the work; returns whether anyone still waited for it."""
        self._started = time.monotonic()
        value, fault = None, None
        try:
            value = self._work()
        except BaseException as error:  # handed to whoever asks for the result
            fault = error
        with self._lock:
            if self.ended:
                return False
            self._value, self._error = value, fault
            self.seconds = time.monotonic() - self._started
            self._ended.set()
            return True

    def expire(self, limit: float) -> bool:
        """Give it up if it has run for longer than the limit (waiting for a thread does not count)."""
        with self._lock:
            started = self._started
            if self.ended or started is None or time.monotonic() - started <= limit:
                return False
            self._error = TimeLimitError("tool", limit, "in a step of an episode")
            self.seconds = limit
            self._ended.set()
            return True

    def wait(self, seconds: float) -> None:
        """Wait for its end, but no longer than this."""
        self._ended.wait(seconds)

    def result(self) -> T:
        """What the work returned.

        Raises:
            InfrastructureError: the machinery failed, or the limit passed.
            BaseException: whatever else the work raised.
        """
        if self._error is not None:
            raise self._error
        return cast(T, self._value)


class EpisodeWorkers:
    """A fixed number of threads for the steps of episodes; a context manager.

    Args:
        count: threads, at least 1.
        limit: seconds that a step may run, `None` for no limit.
        attempts: tries of a step whose infrastructure fails. A failed step leaves its episode as it was.
    """

    def __init__(self, count: int = 2, limit: float | None = None, attempts: int = 2) -> None:
        if count < 1 or attempts < 1 or (limit is not None and not limit > 0):
            raise ConfigError(f"expected count and attempts >= 1 and limit > 0, found {count}, {attempts}, {limit}")
        self._limit = limit
        self._attempts = attempts
        self._count = count
        self._queue: queue.SimpleQueue[Job[Any] | None] = queue.SimpleQueue()
        self._open: list[Job[Any]] = []

    def __enter__(self) -> "EpisodeWorkers":
        for _ in range(self._count):
            self._start_thread()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _ in range(self._count):
            self._queue.put(None)

    def submit(self, work: Callable[[], T]) -> Job[T]:
        """Start a step as soon as a thread is free."""
        job = Job(lambda: self._try(work))
        self._open.append(job)
        self._queue.put(job)
        return job

    def wait(self, jobs: Sequence[Job[Any]]) -> None:
        """Wait until each of these jobs has ended. Others that pass their limit are given up as well."""
        while True:
            if self._limit is not None:
                for job in self._open:
                    if job.expire(self._limit):
                        self._start_thread()
            self._open = [job for job in self._open if not job.ended]
            waiting = [job for job in jobs if not job.ended]
            if not waiting:
                return
            waiting[0].wait(POLL_SECONDS)

    def _try(self, work: Callable[[], T]) -> T:
        for _ in range(self._attempts - 1):
            try:
                return work()
            except InfrastructureError:
                continue
        return work()

    def _start_thread(self) -> None:
        threading.Thread(target=self._serve, name="episode-worker", daemon=True).start()

    def _serve(self) -> None:
        while (job := self._queue.get()) is not None:
            if not job.run():
                return
