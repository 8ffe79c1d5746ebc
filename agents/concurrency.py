"""How many requests run at once, and how long to wait before another try."""

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class AdaptiveLimit:
    """A limit on requests in flight that halves when the server says 429 and grows by one a round of successes.

    It belongs to one event loop.

    Args:
        most: the limit that it starts with and never exceeds, at least 1.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._limit = float(most)
        self._running = 0
        self._decreases = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def limit(self) -> int:
        """Requests that may be in flight now."""
        return int(self._limit)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[int]:
        """Wait for a place among the requests in flight.

        Yields:
            How often the limit had been lowered when the request began, for `throttled`.
        """
        await self._acquire()
        try:
            yield self._decreases
        finally:
            self._release()

    def throttled(self, decreases: int) -> None:
        """A request was answered 429. Of requests that were in flight together only the first lowers the limit."""
        if decreases == self._decreases:
            self._decreases += 1
            self._limit = max(1.0, self._limit / 2)

    def succeeded(self) -> None:
        """A request was answered."""
        self._limit = min(float(self.most), self._limit + 1.0 / self._limit)

    async def _acquire(self) -> None:
        if self._running < self.limit and not self._waiting:
            self._running += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                with suppress(ValueError):  # its place in the queue was skipped already
                    self._waiting.remove(turn)
                self._wake()
            else:  # it was granted in the same instant
                self._release()
            raise

    def _release(self) -> None:
        self._running -= 1
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self._running < self.limit:
            turn = self._waiting.popleft()
            if not turn.cancelled():
                self._running += 1
                turn.set_result(None)


class Backoff:
    """Waiting times that double from attempt to attempt, with jitter.

    Args:
        first: longest wait after the first attempt, seconds.
        most: longest wait of all, seconds, also where the server asks for more.
        seed: of the jitter.
    """

    def __init__(self, first: float = 0.5, most: float = 60.0, seed: int = 0) -> None:
        self.first = first
        self.most = most
        self._random = random.Random(seed)

    def seconds(self, attempt: int, retry_after: float | None = None) -> float:
        """How long to wait after attempt 1, 2, ...; no less than the server asks, up to the longest wait."""
        doubled = min(self.most, self.first * 2.0 ** min(attempt - 1, 62))
        jittered = doubled * self._random.uniform(0.5, 1.0)
        return min(self.most, max(jittered, retry_after or 0.0))
