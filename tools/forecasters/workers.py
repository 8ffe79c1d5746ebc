"""Forecasts in processes of their own, for forecasters that hold the interpreter's lock."""

import functools
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

from castgym.tools.forecasters.base import BackendError, FloatArray, Forecaster, checked_forecast


def forecast_apart(
    build: Callable[[], Forecaster], contexts: Mapping[str, FloatArray], horizon: int, workers: int
) -> Iterator[tuple[str, FloatArray]]:
    """Forecast series in worker processes, each with a forecaster of its own on one thread.

    Args:
        build: a module's function or class that makes the forecaster.
        contexts: series by key, shape (L,) each.
        horizon: steps, H.
        workers: processes.

    Yields:
        Key and quantiles (H, 9), as they come.

    Raises:
        BackendError: the forecaster failed, or a process ended.
        ForecasterUnavailableError: its package or weights are missing.
    """
    # Spawned, not forked: a fork of a process whose torch has started threads may hang.
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_start)
    try:
        tasks = {pool.submit(_forecast_one, build, row, horizon): key for key, row in contexts.items()}
        for done in as_completed(tasks):
            quantiles = done.result()
            quantiles.flags.writeable = False
            yield tasks[done], quantiles
    except BrokenProcessPool as error:
        raise BackendError(
            "a forecasting process ended unexpectedly. A script that uses several workers must keep its own start "
            'under `if __name__ == "__main__":`; otherwise memory may have run out'
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _start() -> None:
    # Ctrl-C is for the parent, which then ends the workers; and side by side, one thread each is fastest.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@functools.cache
def _built(build: Callable[[], Forecaster]) -> Forecaster:
    return build()


def _forecast_one(build: Callable[[], Forecaster], context: FloatArray, horizon: int) -> FloatArray:
    quantiles: FloatArray = checked_forecast(_built(build), context[None], horizon)[0]
    return quantiles
