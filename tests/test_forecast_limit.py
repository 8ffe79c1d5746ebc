"""A forecaster that hangs: who asked gets an error, nobody hangs with it, and what it returns later is kept."""

import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from factories import ScriptedForecaster, demand, make_episode

from castgym.data.errors import ConfigError
from castgym.tools.calls import ToolCall
from castgym.tools.forecasters.base import BackendError
from castgym.tools.forecasters.limit import MOST_LATE, TimeLimit
from castgym.tools.forecasters.pool import ForecasterEntry, ForecasterPool


class Hanging(ScriptedForecaster):
    """Hangs until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()
        self.ended = threading.Semaphore(0)

    def predict(self, context: np.ndarray, horizon: int) -> np.ndarray:
        self.released.wait(60)
        try:
            return super().predict(context, horizon)
        finally:
            self.ended.release()


def pool_of(forecaster: ScriptedForecaster, seconds: float) -> ForecasterPool:
    return ForecasterPool([ForecasterEntry(forecaster.info, lambda: forecaster)], seconds=seconds)


def until(condition: object) -> None:
    deadline = time.monotonic() + 30
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_the_caller_gets_an_error_and_the_late_forecast_is_kept() -> None:
    forecaster = Hanging()
    pool = pool_of(forecaster, 0.05)
    with pytest.raises(BackendError, match=r"scripted took longer than 0\.05 s"):
        pool.forecast("scripted", demand(0, 48), 5)
    forecaster.released.set()
    assert forecaster.ended.acquire(timeout=30)
    until(lambda: not any(thread.name == "forecast-scripted" for thread in threading.enumerate()))
    assert pool.forecast("scripted", demand(0, 48), 5).shape == (5, 9)
    assert len(forecaster.contexts) == 1


def test_an_episode_goes_on_and_keeps_the_charge() -> None:
    forecaster = Hanging()
    pool = pool_of(forecaster, 0.05)
    episode = make_episode(pool=pool, models=("scripted",))
    arguments = {"series_id": episode.case.series_id, "model": "scripted", "horizon": 50, "context_steps": 336}
    result = episode.act(ToolCall("forecast_and_plan", arguments)).result
    assert result is not None
    assert result.error == "backend_error"
    assert episode.spent == result.content["credits"] == 8452
    assert episode.state()["charges"][0]["status"] == "backend_error"
    assert not episode.done
    forecaster.released.set()


def test_few_computations_run_late_at_a_time_and_further_ones_are_refused_at_once() -> None:
    forecaster = Hanging()
    pool = pool_of(forecaster, 0.02)
    for seed in range(MOST_LATE):
        with pytest.raises(BackendError, match="took longer"):
            pool.forecast("scripted", demand(seed, 48), 5)
    before = threading.active_count()
    for seed in range(MOST_LATE, MOST_LATE + 20):
        with pytest.raises(BackendError, match="scripted hangs"):
            pool.forecast("scripted", demand(seed, 48), 5)
    assert threading.active_count() == before
    forecaster.released.set()
    for _ in range(MOST_LATE):
        assert forecaster.ended.acquire(timeout=30)
    until(lambda: not any(thread.name == "forecast-scripted" for thread in threading.enumerate()))
    assert pool_of(forecaster, 30).forecast("scripted", demand(99, 48), 5).shape == (5, 9)
    assert pool.forecast("scripted", demand(0, 48), 5).shape == (5, 9)


def test_a_batch_has_the_limit_of_each_of_its_series() -> None:
    class Slow(ScriptedForecaster):
        def predict(self, context: np.ndarray, horizon: int) -> np.ndarray:
            time.sleep(0.4)
            return super().predict(context, horizon)

    pool = pool_of(Slow(), 0.1)
    assert pool.forecast_many("scripted", [demand(seed, 48) for seed in range(30)], 5).shape == (30, 5, 9)
    with pytest.raises(BackendError, match="took longer"):
        pool.forecast_many("scripted", [demand(seed, 24) for seed in range(2)], 5)


def test_what_a_computation_raises_in_time_is_its_own_error() -> None:
    limit = TimeLimit(30)
    assert limit.run("x", lambda: 7) == 7
    for error in (TimeoutError("the server's own"), ValueError("no")):

        def fail(error: Exception = error) -> None:
            raise error

        with pytest.raises(type(error), match=str(error)):
            limit.run("x", fail)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_a_limit_of_no_time_is_refused(seconds: float) -> None:
    with pytest.raises(ConfigError, match="time limit > 0"):
        ForecasterPool([], seconds=seconds)


def test_a_forecaster_that_hangs_does_not_keep_the_process() -> None:
    code = (
        "import time, numpy as np\n"
        "from castgym.tools.forecasters.base import BackendError\n"
        "from castgym.tools.forecasters.limit import TimeLimit\n"
        "try:\n    TimeLimit(0.05).run('x', lambda: time.sleep(600))\n"
        "except BackendError as error:\n    print(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (0, "x took longer than 0.05 s\n"), result.stderr
