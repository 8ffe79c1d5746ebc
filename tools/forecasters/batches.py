"""Many forecasts at once: batches, in several threads if wanted."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

Batch = TypeVar("Batch")
Result = TypeVar("Result")

BATCH = 32
"""Series computed between two writes to the cache."""


def run_batches(
    batches: Sequence[Batch], run: Callable[[Batch], Result], workers: int = 1
) -> Iterator[tuple[Batch, Result]]:
    """Compute batches side by side.

    Args:
        batches: what `run` takes.
        run: thread-safe where `workers` is above 1.
        workers: threads.

    Yields:
        Each batch with its result, as they are done.
    """
    if workers == 1 or len(batches) <= 1:
        for batch in batches:
            yield batch, run(batch)
        return
    threads = ThreadPoolExecutor(workers)
    try:
        running = {threads.submit(run, batch): batch for batch in batches}
        for done in as_completed(running):
            yield running[done], done.result()
    finally:  # an interrupt or a fault does not wait for what has not begun
        threads.shutdown(cancel_futures=True)
