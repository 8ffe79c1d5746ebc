"""An event loop in a thread of its own, for code that is called from threads and from other loops."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from castgym.data.errors import ConfigError

T = TypeVar("T")


class BackgroundLoop:
    """An event loop that starts with the first coroutine and runs until it is closed or the process ends.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine in the loop. Cancelling the future cancels it.

        Raises:
            ConfigError: the loop was closed.
        """
        with self._lock:
            if self._closed:
                work.close()
                raise ConfigError(f"{self._name} was closed: make another")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self, last: Coroutine[Any, Any, object]) -> None:
        """Cancel what runs, run a last coroutine and end the thread. A second call does nothing.

        Args:
            last: frees what the other coroutines used.
        """
        with self._lock:
            loop, thread = self._loop, self._thread
            started = loop is not None and not self._closed
            self._closed = True
        if not started or loop is None or thread is None:
            last.close()
            return
        asyncio.run_coroutine_threadsafe(_finish(last), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _finish(last: Coroutine[Any, Any, object]) -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await last
