"""Windows, pools and scripts for the tests of the forecasting episode."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from castgym.data.errors import ForecasterUnavailableError
from castgym.data.schema import FloatArray
from castgym.data.windows import Window
from castgym.data.windows_set import WindowSet
from castgym.data.windows_simulate import simulated_windows
from castgym.envs.forecast_config import ForecastConfig
from castgym.envs.forecast_episode import ForecastEpisode
from castgym.tools.forecasters.base import ForecasterInfo
from castgym.tools.forecasters.window_pool import WindowEntry, WindowForecasterPool, WindowTask
from castgym.tools.forecasters.windows_base import WindowForecast, known_target
from castgym.tools.forecasters.windows_classical import SEASONAL_NAIVE_INFO, SeasonalNaive

TEMPERATURE, PRICE, WIND = simulated_windows(seed=0)
MODELS = ("seasonal_naive", "last_value")


class LastValue:
    """Repeats the last observation."""

    info = ForecasterInfo("last_value", "Repeats the last observation.", min_context=1)

    def predict(self, windows: Sequence[Window]) -> list[WindowForecast]:
        return [
            WindowForecast(np.full(window.horizon, known_target(window)[-1]), None, "last_value") for window in windows
        ]


class Failing:
    """Fails on every window."""

    info = ForecasterInfo("failing", "Fails.", min_context=1)

    def predict(self, windows: Sequence[Window]) -> list[WindowForecast]:
        raise OSError("the backend went away")


def _missing(task: WindowTask) -> Any:
    raise ForecasterUnavailableError("missing needs weights that nobody has")


def make_pool() -> WindowForecasterPool:
    """Forecasters that need no package, one that fails and one that is missing."""
    missing = WindowEntry(ForecasterInfo("missing", "Is not there.", 1), _missing, _missing)
    return WindowForecasterPool(
        [
            WindowEntry(SEASONAL_NAIVE_INFO, lambda task: SeasonalNaive()),
            WindowEntry(LastValue.info, lambda task: LastValue()),
            WindowEntry(Failing.info, lambda task: Failing()),
            missing,
        ]
    )


def window_of(window_set: WindowSet = PRICE, number: int = 0) -> Window:
    """A test window."""
    return window_set.window("test", window_set.origins("test")[number].to_pydatetime())


def make_episode(window: Window | None = None, **conditions: Any) -> ForecastEpisode:
    """An episode of a price window."""
    return ForecastEpisode(window or window_of(), ForecastConfig(**{"models": MODELS, **conditions}), make_pool())


def call(name: str, **arguments: Any) -> str:
    """A tool call as markup."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def predict(*models: str) -> str:
    """Calls of forecasters in one response."""
    return "".join(call("predict_time_series", model_name=model) for model in models)


DIAGNOSE = call("extract_basic_statistics") + call("extract_event_summary")


def answer_of(episode: ForecastEpisode, number: int = 0) -> str:
    """The final answer that keeps a stored forecast."""
    lines = "\n".join(episode.memory.predictions[number].content["forecast"])
    return f"<think>Keep it.</think><answer>\n{lines}\n</answer>"


def with_future(window_set: WindowSet, row: int, change: Callable[[FloatArray], FloatArray]) -> WindowSet:
    """The set with other values from a row on, except those known over the horizon."""
    values = window_set.values.copy()
    kept = [window_set.channels.index(name) for name in window_set.known]
    changed = change(values[row:])
    changed[:, kept] = values[row:, kept]
    values[row:] = changed
    return replace(window_set, values=values)
