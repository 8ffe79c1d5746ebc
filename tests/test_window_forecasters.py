"""Forecasters of windows: what they may see, that they answer everything, and the pool that serves them."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_tsfm import save_chronos2

from castgym.data.errors import ConfigError, DataError, ForecasterUnavailableError
from castgym.data.windows import Window
from castgym.data.windows_set import WindowSet
from castgym.data.windows_simulate import simulated_windows
from castgym.tools.forecasters import windows_classical as classical
from castgym.tools.forecasters.base import BackendError, FloatArray, ForecasterInfo
from castgym.tools.forecasters.cache import DiskCache
from castgym.tools.forecasters.window_pool import (
    CAST_R1_MODELS,
    WindowEntry,
    WindowForecast,
    WindowForecasterPool,
    WindowTask,
    window_entries,
)
from castgym.tools.forecasters.windows_base import fill_gaps, season_length
from castgym.tools.forecasters.windows_checkpoints import Checkpoints
from castgym.tools.forecasters.windows_neural import NEURAL_INFOS
from castgym.training.fit_network import FitSettings
from castgym.training.train_forecasters import train_forecaster

OFFLINE = ("seasonal_naive", "arima", "dlinear", "patchtst", "itransformer", "castgym_bolt", "fracast")
"""All that runs without a download."""

POINT = ("seasonal_naive", *NEURAL_INFOS)
ONE_EPOCH = FitSettings(epochs=1)


@pytest.fixture(scope="module")
def price() -> WindowSet:
    return simulated_windows(0)[1]


@pytest.fixture(scope="module")
def checkpoints(price: WindowSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The networks of the simulated prices after one epoch."""
    folder = tmp_path_factory.mktemp("window_models")
    for name in NEURAL_INFOS:
        train_forecaster(price, name, Checkpoints(folder), settings=ONE_EPOCH)
    return folder


@pytest.fixture(scope="module")
def pool(checkpoints: Path) -> WindowForecasterPool:
    """Keeps next to nothing in memory, so that every forecast is computed."""
    return WindowForecasterPool(window_entries(checkpoints), cache_entries=0)


@pytest.fixture(scope="module")
def chronos_pool(tmp_path_factory: pytest.TempPathFactory) -> WindowForecasterPool:
    """A pool on a Chronos-2 of the library with random weights."""
    models = tmp_path_factory.mktemp("models")
    save_chronos2(models / "chronos2")
    return WindowForecasterPool(window_entries(models=models), cache_entries=0)


def windows_of(window_set: WindowSet, count: int) -> list[Window]:
    return [window for window, _ in zip(window_set.windows("test"), range(count), strict=False)]


def same(one: WindowForecast, other: WindowForecast) -> bool:
    """Equal to the last bit."""
    if one.quantiles is None or other.quantiles is None:
        quantiles = one.quantiles is other.quantiles
    else:
        quantiles = np.array_equal(one.quantiles, other.quantiles)
    return quantiles and np.array_equal(one.values, other.values) and one.model == other.model


def altered(window: Window, **changes: Any) -> Window:
    """The window with other values."""
    return replace(window, **changes)


def plain_window(
    history: Sequence[float] | FloatArray, horizon: int, step: timedelta = timedelta(hours=1), dataset: str = "PLAIN"
) -> Window:
    """A window of the target alone."""
    values = np.asarray(history, dtype=np.float64)[:, None]
    origin = datetime(2022, 1, 3)
    return Window(f"{dataset}-test", dataset, "test", origin, step, ("y",), values, (), np.empty((horizon, 0)), "", "")


class TestEveryForecaster:
    @pytest.mark.parametrize("name", OFFLINE)
    def test_a_forecast_is_finite_has_the_horizon_and_the_name_of_what_ran(
        self, pool: WindowForecasterPool, price: WindowSet, name: str
    ) -> None:
        window = windows_of(price, 1)[0]
        forecast = pool.forecast(name, window)
        assert forecast.values.shape == (24,)
        assert np.isfinite(forecast.values).all()
        assert not forecast.values.flags.writeable
        assert forecast.model == name == pool.info(name).name
        assert (forecast.quantiles is None) == (name in POINT)
        if forecast.quantiles is not None:
            assert forecast.quantiles.shape == (24, 9)
            assert (np.diff(forecast.quantiles, axis=1) >= 0).all()
            assert np.array_equal(forecast.values, forecast.quantiles[:, 4])

    @pytest.mark.parametrize("name", OFFLINE)
    def test_a_forecast_never_depends_on_rows_after_the_origin(
        self, pool: WindowForecasterPool, price: WindowSet, name: str
    ) -> None:
        """All rows from the origin on are replaced, except the series that are known over the horizon."""
        window = windows_of(price, 1)[0]
        row = (window.origin - price.start) // price.step
        values = np.array(price.values)
        values[row:, 0] = np.random.default_rng(0).normal(-500, 300, len(values) - row)
        values[row + window.horizon :, 1:] = 1e5
        other = replace(price, values=values).window("test", window.origin)
        assert same(pool.forecast(name, window), pool.forecast(name, other))

    @pytest.mark.parametrize("name", OFFLINE)
    def test_many_forecasts_equal_single_ones_in_every_order(
        self, pool: WindowForecasterPool, price: WindowSet, name: str
    ) -> None:
        windows = windows_of(price, 11)
        many = pool.forecast_many(name, windows, workers=2)
        backwards = pool.forecast_many(name, windows[::-1])[::-1]
        assert all(same(one, other) for one, other in zip(many, backwards, strict=True))
        assert all(same(many[at], pool.forecast(name, windows[at])) for at in (0, 5, 10))

    @pytest.mark.parametrize("name", OFFLINE)
    def test_gaps_and_lost_channels_are_answered(self, pool: WindowForecasterPool, price: WindowSet, name: str) -> None:
        window = windows_of(price, 1)[0]
        history, known = np.array(window.history), np.array(window.known_future)
        history[::7, 0] = history[-30:, 0] = np.nan
        history[:50, 1] = np.nan
        history[:, 2] = np.nan
        known[3:9, 0] = np.nan
        known[:, 1] = np.nan
        assert np.isfinite(pool.forecast(name, altered(window, history=history, known_future=known)).values).all()

    @pytest.mark.parametrize("name", OFFLINE)
    @pytest.mark.parametrize("level", [0.0, -7.5, 1e9])
    def test_constants_are_answered_near_their_level(
        self, pool: WindowForecasterPool, price: WindowSet, name: str, level: float
    ) -> None:
        window = windows_of(price, 1)[0]
        constant = altered(
            window, history=np.full_like(window.history, level), known_future=np.full_like(window.known_future, level)
        )
        values = pool.forecast(name, constant).values
        assert np.isfinite(values).all()
        if name in ("seasonal_naive", "arima"):
            assert (values == level).all()

    def test_a_history_without_a_known_target_is_an_error_that_names_the_window(
        self, pool: WindowForecasterPool, price: WindowSet
    ) -> None:
        window = windows_of(price, 1)[0]
        history = np.array(window.history)
        history[:, 0] = np.nan
        with pytest.raises(BackendError, match=f"arima.*{window.window_id}"):
            pool.forecast("arima", altered(window, history=history))

    def test_only_what_is_documented_looks_at_the_known_series(
        self, pool: WindowForecasterPool, price: WindowSet
    ) -> None:
        window = windows_of(price, 1)[0]
        other = altered(window, known_future=window.known_future * 1.3)
        changed = {name for name in OFFLINE if not same(pool.forecast(name, window), pool.forecast(name, other))}
        assert changed == {"itransformer"}  # arima only where the chosen order is regressed
        regressed = classical.Arima(classical.ArimaOrder((1, 0, 0), regressed=True))
        assert not same(*regressed.predict([window, other]))

    def test_quarter_hours_and_other_lengths_are_served_without_training(self, pool: WindowForecasterPool) -> None:
        wind = simulated_windows(0)[2]
        for window in (windows_of(wind, 1)[0], windows_of(wind.with_lengths(192, 12), 1)[0]):
            for name in ("seasonal_naive", "arima", "castgym_bolt", "fracast"):
                assert pool.forecast(name, window).horizon == window.horizon


class TestClassical:
    def test_seasonal_naive_repeats_the_latest_known_value_of_each_phase(self) -> None:
        week = timedelta(days=1)
        window = plain_window([1, 2, 3, 4, 5, 6, 7, 11, np.nan, 13], 9, week)
        forecast = classical.SeasonalNaive().predict([window])[0]
        assert forecast.values.tolist() == [4, 5, 6, 7, 11, 2, 13, 4, 5]
        assert forecast.quantiles is None

    def test_seasonal_naive_takes_the_last_value_where_the_history_is_shorter_than_a_season(self) -> None:
        forecast = classical.SeasonalNaive().predict([plain_window([3, 5], 4)])[0]
        assert forecast.values.tolist() == [5, 5, 5, 5]

    @pytest.mark.parametrize("order", classical.ARIMA_CANDIDATES, ids=str)
    def test_arima_of_every_candidate_stays_in_its_contexts_range_and_under_a_second(
        self, price: WindowSet, order: classical.ArimaOrder
    ) -> None:
        window = windows_of(price, 1)[0]
        arima = classical.Arima(order)
        started = time.thread_time()
        forecast = arima.predict([window])[0]
        assert time.thread_time() - started < 1.0
        assert forecast.quantiles is not None
        for values in (forecast.values, forecast.quantiles):
            assert values.min() >= window.history[:, 0].min()
            assert values.max() <= window.history[:, 0].max()

    @settings(max_examples=15, deadline=None)
    @given(data=st.data())
    def test_arima_answers_any_short_series_within_its_range(self, data: st.DataObject) -> None:
        value = st.floats(-1e6, 1e6) | st.sampled_from([0.0, 1.0, np.nan])
        history = [*data.draw(st.lists(value, max_size=30)), data.draw(st.floats(-1e6, 1e6))]
        order = data.draw(st.sampled_from(classical.ARIMA_CANDIDATES))
        values = classical.Arima(order).predict([plain_window(history, 5)])[0].values
        assert np.nanmin(history) <= values.min() <= values.max() <= np.nanmax(history)

    def test_an_explosive_series_is_clipped(self) -> None:
        history = 1.2 ** np.arange(72)
        values = classical.Arima(classical.ArimaOrder((1, 1, 1), (1, 0, 0))).predict([plain_window(history, 48)])[0]
        assert values.values.max() <= history.max()

    def test_a_season_that_is_too_long_or_a_context_that_is_too_short_takes_an_order_without_season(self) -> None:
        seasonal = classical.ArimaOrder((1, 0, 0), (1, 0, 0))
        assert seasonal.fits(plain_window(np.zeros(72), 4))
        assert not seasonal.fits(plain_window(np.zeros(71), 4))
        assert not seasonal.fits(plain_window(np.zeros(400), 4, timedelta(minutes=15)))
        assert not replace(seasonal, regressed=True).fits(plain_window(np.zeros(72), 4))

    def test_a_strong_daily_shape_is_forecast(self) -> None:
        t = np.arange(144)
        history = np.sin(2 * np.pi * t / 24) + np.random.default_rng(0).normal(0, 0.05, 144)
        values = classical.Arima().predict([plain_window(history[:120], 24)])[0].values
        assert np.abs(values - history[120:]).mean() < 0.25


class TestHelpers:
    @given(minutes=st.integers(1, 10_000))
    def test_a_season_has_at_least_one_step(self, minutes: int) -> None:
        assert season_length(timedelta(minutes=minutes)) >= 1

    def test_the_season_is_a_day_of_short_steps_and_a_week_of_days(self) -> None:
        found = [season_length(timedelta(minutes=minutes)) for minutes in (15, 30, 60, 24 * 60, 7 * 24 * 60)]
        assert found == [96, 48, 24, 7, 1]

    @given(values=st.lists(st.floats(-1e9, 1e9) | st.just(np.nan), min_size=1, max_size=30))
    def test_filled_gaps_are_finite_keep_what_is_known_and_stay_between_it(self, values: list[float]) -> None:
        column = np.array(values)
        filled = fill_gaps(column[:, None], empty=3.0)[:, 0]
        known = np.isfinite(column)
        assert np.array_equal(filled[known], column[known])
        if known.any():
            assert column[known].min() <= filled.min() <= filled.max() <= column[known].max()
        else:
            assert (filled == 3.0).all()

    def test_a_forecast_that_is_not_finite_or_of_a_wrong_shape_cannot_be_made(self) -> None:
        with pytest.raises(DataError, match="finite"):
            WindowForecast(np.array([1.0, np.nan]), None, "x")
        with pytest.raises(DataError, match="shape"):
            WindowForecast(np.ones(3), np.ones((2, 9)), "x")


class TestChronos:
    def test_without_weights_chronos_is_unavailable_and_the_message_says_what_to_do(
        self, monkeypatch: pytest.MonkeyPatch, price: WindowSet
    ) -> None:
        monkeypatch.delenv("CASTGYM_MODELS", raising=False)
        pool = WindowForecasterPool(window_entries())
        assert "chronos" in pool.names
        assert not pool.available("chronos", price)
        assert pool.available("castgym_bolt", price)
        with pytest.raises(ForecasterUnavailableError, match=r"(?s)amazon/chronos-2.*CASTGYM_MODELS.*castgym_bolt"):
            pool.require(["castgym_bolt", "chronos"], price)
        for name in ("chronos", "timesfm25"):
            with pytest.raises(ForecasterUnavailableError, match="CASTGYM_MODELS"):
                pool.forecast(name, windows_of(price, 1)[0])

    def test_a_pinned_revision_is_taken_from_the_hub_and_never_replaced(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, price: WindowSet
    ) -> None:
        save_chronos2(tmp_path / "chronos2")
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
        monkeypatch.setenv("CASTGYM_MODELS", f"{tmp_path},chronos2=amazon/chronos-2@0123abc")
        with pytest.raises(ForecasterUnavailableError, match=r"amazon/chronos-2 \(0123abc\)"):
            WindowForecasterPool(window_entries()).require(["chronos"], price)

    def test_it_reads_past_and_known_covariates(self, chronos_pool: WindowForecasterPool, price: WindowSet) -> None:
        chronos_pool.require(["chronos"], price)
        window = windows_of(price, 1)[0]
        forecast = chronos_pool.forecast("chronos", window)
        assert forecast.model == "chronos"
        assert forecast.quantiles is not None
        history = np.array(window.history)
        history[:, 1] = history[::-1, 1]
        for other in (altered(window, history=history), altered(window, known_future=window.known_future[::-1])):
            assert not same(forecast, chronos_pool.forecast("chronos", other))

    def test_many_forecasts_equal_single_ones(self, chronos_pool: WindowForecasterPool, price: WindowSet) -> None:
        windows = windows_of(price, 5)
        many = chronos_pool.forecast_many("chronos", windows)
        assert all(same(one, chronos_pool.forecast("chronos", w)) for one, w in zip(many, windows, strict=True))

    def test_gaps_constants_and_a_lone_target_are_answered(
        self, chronos_pool: WindowForecasterPool, price: WindowSet
    ) -> None:
        window = windows_of(price, 1)[0]
        history, known = np.array(window.history), np.array(window.known_future)
        history[::5] = history[:, 1] = known[2] = np.nan
        for item in (altered(window, history=history, known_future=known), plain_window([4.0] * 40, 24)):
            assert chronos_pool.forecast("chronos", item).horizon == 24


class TestCheckpoints:
    def test_training_is_asked_for_by_its_command(self, price: WindowSet, tmp_path: Path) -> None:
        pool = WindowForecasterPool(window_entries(tmp_path))
        assert not pool.available("patchtst", price)
        assert pool.available("arima", price)  # runs with its default order
        with pytest.raises(ForecasterUnavailableError, match=r"SIM_price with L=168, H=24.*castgym train-forecasters"):
            pool.require(CAST_R1_MODELS[2:], price)

    def test_a_checkpoint_of_other_data_is_refused(self, price: WindowSet, checkpoints: Path) -> None:
        pool = WindowForecasterPool(window_entries(checkpoints))
        other = simulated_windows(1)[1]
        assert pool.available("patchtst", price)
        assert not pool.available("patchtst", other)
        with pytest.raises(ForecasterUnavailableError, match="trained on other data"):
            pool.require(["patchtst"], other)
        with pytest.raises(ForecasterUnavailableError, match="L=96"):
            pool.require(["patchtst"], price.with_lengths(length=96))

    def test_a_window_that_the_checkpoint_was_trained_on_is_refused_as_a_test_window(
        self, pool: WindowForecasterPool, price: WindowSet
    ) -> None:
        earlier = replace(price, ratio=(3, 2, 5))
        with pytest.raises(ConfigError, match="trained or validated"):
            pool.forecast("dlinear", windows_of(earlier, 1)[0])
        assert pool.forecast("dlinear", next(price.windows("train"))).horizon == 24  # known as a training window

    def test_a_window_with_other_channels_is_refused(self, pool: WindowForecasterPool, price: WindowSet) -> None:
        window = windows_of(price, 1)[0]
        with pytest.raises(ConfigError, match="the checkpoint was trained on"):
            pool.forecast("itransformer", altered(window, channels=("price", "other", "renewable_forecast"),
                                                  known_channels=("other", "renewable_forecast")))  # fmt: skip

    def test_of_several_versions_the_required_one_serves(self, price: WindowSet, tmp_path: Path) -> None:
        other = simulated_windows(1)[1]
        for item in (price, other):
            train_forecaster(item, "dlinear", Checkpoints(tmp_path), settings=ONE_EPOCH)
        window = windows_of(price, 1)[0]
        with pytest.raises(ConfigError, match="2 versions"):
            WindowForecasterPool(window_entries(tmp_path)).forecast("dlinear", window)
        pools = [WindowForecasterPool(window_entries(tmp_path)) for _ in range(2)]
        for pool, item in zip(pools, (price, other), strict=True):
            pool.require(["dlinear"], item)
        first, second = (pool.forecast("dlinear", window) for pool in pools)
        assert not same(first, second)
        pools[0].require(["dlinear"], other)
        with pytest.raises(ConfigError, match="a pool of its own"):
            pools[0].forecast("dlinear", window)

    def test_a_damaged_checkpoint_is_named(self, price: WindowSet, tmp_path: Path) -> None:
        folder = train_forecaster(price, "dlinear", Checkpoints(tmp_path), settings=ONE_EPOCH).folder
        (folder / "model.safetensors").write_bytes(b"damaged")
        with pytest.raises(ForecasterUnavailableError, match=f"{folder}.*does not load"):
            WindowForecasterPool(window_entries(tmp_path)).forecast("dlinear", windows_of(price, 1)[0])
        (folder / "config.json").write_text("{}")
        with pytest.raises(DataError, match="config of a trained forecaster"):
            WindowForecasterPool(window_entries(tmp_path)).require(["dlinear"], price)


class Scripted:
    """A forecaster that answers as it is told."""

    info = ForecasterInfo("scripted", "Answers as it is told.")

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked = 0

    def predict(self, windows: Sequence[Window]) -> list[WindowForecast]:
        self.asked += len(windows)
        if isinstance(self.answer, Exception):
            raise self.answer
        return [self.answer(window) for window in windows]


def steps(count: int) -> FloatArray:
    return np.arange(count, dtype=np.float64)


@dataclass
class Built:
    """A pool of one scripted forecaster, and how often it was built."""

    forecaster: Scripted
    cache: DiskCache | None = None
    count: int = 0

    def pool(self) -> WindowForecasterPool:
        def build(_task: WindowTask) -> Scripted:
            time.sleep(0.02)
            self.count += 1
            return self.forecaster

        return WindowForecasterPool([WindowEntry(Scripted.info, build, lambda _task: "version 1")], cache=self.cache)


class TestPool:
    def test_the_papers_pool_and_the_offline_models_are_offered(self, pool: WindowForecasterPool) -> None:
        assert set(pool.names) == {*OFFLINE, "chronos", "timesfm25"}
        assert set(CAST_R1_MODELS) <= set(pool.names)

    def test_an_unknown_name_is_refused_with_the_known_ones(self, pool: WindowForecasterPool, price: WindowSet) -> None:
        window = windows_of(price, 1)[0]
        calls: list[Any] = [
            lambda: pool.info("chronos2"),
            lambda: pool.available("chronos2", price),
            lambda: pool.require(["chronos2"], price),
            lambda: pool.forecast("chronos2", window),
        ]
        for call in calls:
            with pytest.raises(ConfigError, match=r"unknown forecaster 'chronos2'.*arima"):
                call()

    @pytest.mark.parametrize(
        "answer",
        [
            RuntimeError("out of memory"),
            lambda window: WindowForecast(np.full(window.horizon, np.nan), None, "scripted"),
            lambda window: WindowForecast(steps(window.horizon - 1), None, "scripted"),
            lambda window: WindowForecast(steps(window.horizon), None, "another"),
        ],
        ids=["raises", "not finite", "too short", "under another name"],
    )
    def test_a_failure_is_a_backend_error(self, price: WindowSet, answer: Any) -> None:
        with pytest.raises(BackendError, match="scripted"):
            Built(Scripted(answer)).pool().forecast("scripted", windows_of(price, 1)[0])

    def test_a_forecast_that_takes_too_long_is_a_backend_error(self, price: WindowSet) -> None:
        ended = threading.Event()

        def slow(window: Window) -> WindowForecast:
            ended.wait(20.0)
            return WindowForecast(steps(window.horizon), None, "scripted")

        entry = WindowEntry(Scripted.info, lambda _task: Scripted(slow))
        pool = WindowForecasterPool([entry], seconds=0.05)
        with pytest.raises(BackendError, match="took longer than"):
            pool.forecast("scripted", windows_of(price, 1)[0])
        ended.set()

    def test_forecasts_come_from_memory_and_from_disk_without_building(self, price: WindowSet, tmp_path: Path) -> None:
        quantiles = np.sort(np.random.default_rng(0).normal(size=(24, 9)), axis=1)
        for shape in (None, quantiles):
            scripted = Scripted(lambda window, q=shape: WindowForecast(steps(window.horizon), q, "scripted"))
            folder = tmp_path / str(shape is None)
            built = Built(scripted, DiskCache(folder, columns=10))
            windows = windows_of(price, 3)
            pool = built.pool()
            first = pool.forecast_many("scripted", [*windows, windows[0]])
            assert scripted.asked == 3
            told: list[tuple[int, int]] = []
            again = pool.forecast_many("scripted", windows, progress=lambda *counts, to=told: to.append(counts))
            assert told == [(3, 0)]
            fresh = Built(Scripted(RuntimeError("asked again")), DiskCache(folder, columns=10))
            from_disk = fresh.pool().forecast_many("scripted", windows)
            assert fresh.count == 0
            for one, two, three in zip(first[:3], again, from_disk, strict=True):
                assert same(one, two)
                assert same(one, three)

    @pytest.mark.parametrize("field", ["history", "known_future", "context"])
    def test_whatever_changes_in_a_window_is_another_forecast(self, price: WindowSet, field: str) -> None:
        scripted = Scripted(lambda window: WindowForecast(steps(window.horizon), None, "scripted"))
        pool, window = Built(scripted).pool(), windows_of(price, 1)[0]
        value = getattr(window, field)
        pool.forecast("scripted", window)
        pool.forecast("scripted", altered(window, **{field: value + (1.0 if field != "context" else "!")}))
        assert scripted.asked == 2

    def test_threads_build_a_forecaster_once(self, price: WindowSet) -> None:
        built = Built(Scripted(lambda window: WindowForecast(steps(window.horizon), None, "scripted")))
        pool, windows = built.pool(), windows_of(price, 8)
        found: list[WindowForecast] = []
        threads = [
            threading.Thread(target=lambda item=item: found.append(pool.forecast("scripted", item))) for item in windows
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == len(windows)
        assert built.count == 1

    def test_a_window_holds_no_truth_that_a_forecaster_could_reach(self, price: WindowSet) -> None:
        window = windows_of(price, 1)[0]
        assert {item.name for item in fields(window)}.isdisjoint({"actual", "target", "truth"})
        arrays = [value for item in fields(window) if isinstance(value := getattr(window, item.name), np.ndarray)]
        assert all(array.base is None for array in arrays)

    def test_importing_the_pool_loads_no_heavy_library(self) -> None:
        code = (
            "import sys, castgym.tools.forecasters.window_pool as p; p.WindowForecasterPool(p.window_entries());"
            "print(sorted({'torch', 'transformers', 'statsforecast', 'chronos', 'fracast'} & set(sys.modules)))"
        )
        result = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ), timeout=60
        )
        assert result.stdout.strip() == "[]"
