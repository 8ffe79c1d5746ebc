"""Training of forecasters of windows: what it reads, that it stops, repeats and continues."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from castgym.cli.train_forecasters import train_forecasters
from castgym.data.errors import ConfigError, DataError
from castgym.data.files import read_json
from castgym.data.windows_set import WindowSet
from castgym.data.windows_simulate import simulated_windows
from castgym.data.windows_store import save_window_sets
from castgym.tools.forecasters.windows_checkpoints import Checkpoints, TrainedOn, training_fingerprint
from castgym.tools.forecasters.windows_classical import Arima, ArimaOrder, read_arima_order
from castgym.tools.forecasters.windows_networks import SETTINGS, build_network
from castgym.tools.forecasters.windows_neural import NeuralForecaster, standardised
from castgym.training.fit_network import FitSettings, fit_network, validation_mse
from castgym.training.train_forecasters import TRAINABLE, compare_arima_orders, train_forecaster
from castgym.training.window_arrays import MAX_TRAINING_WINDOWS, WindowArrays

NETWORKS = tuple(SETTINGS)
ONE_EPOCH = FitSettings(epochs=1)


@pytest.fixture(scope="module")
def price() -> WindowSet:
    return simulated_windows(0)[1]


def network_builder(name: str, window_set: WindowSet, arrays: WindowArrays) -> "partial[torch.nn.Module]":
    return partial(build_network, name, window_set.length, window_set.horizon, arrays.known, SETTINGS[name])


def with_rows(window_set: WindowSet, first: int, end: int) -> WindowSet:
    """The set with other values in some rows."""
    values = np.array(window_set.values)
    values[first:end] = np.random.default_rng(5).normal(1000, 500, values[first:end].shape)
    return replace(window_set, values=values)


def checkpoint_bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class TestWhatTrainingReads:
    @pytest.mark.parametrize("name", NETWORKS)
    def test_rows_of_the_test_split_change_nothing(self, price: WindowSet, name: str, tmp_path: Path) -> None:
        other = with_rows(price, *price.borders["test"])
        assert other.fingerprint != price.fingerprint
        assert training_fingerprint(other) == training_fingerprint(price)
        first, second = (
            train_forecaster(item, name, Checkpoints(tmp_path / side), settings=ONE_EPOCH).folder
            for item, side in ((price, "a"), (other, "b"))
        )
        assert checkpoint_bytes(first) == checkpoint_bytes(second)

    @pytest.mark.parametrize("name", NETWORKS)
    def test_weights_are_learnt_from_the_training_split_alone(self, price: WindowSet, name: str) -> None:
        other = with_rows(price, price.borders["validation"][0], len(price))
        states = []
        for item in (price, other):
            arrays = WindowArrays.of(item)
            states.append(
                fit_network(network_builder(name, item, arrays), arrays, 1e-3, ONE_EPOCH).network.state_dict()
            )
        assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
        assert training_fingerprint(other) != training_fingerprint(price)

    def test_scaling_comes_from_the_training_split(self, price: WindowSet, tmp_path: Path) -> None:
        folder = train_forecaster(price, "dlinear", Checkpoints(tmp_path), settings=ONE_EPOCH).folder
        config = read_json(folder / "config.json")
        training = price.values[: price.borders["train"][1]]
        assert config["mean"] == pytest.approx(training.mean(axis=0).tolist())
        assert config["std"] == pytest.approx(training.std(axis=0).tolist())

    @settings(max_examples=25, deadline=None)
    @given(length=st.integers(1, 200), horizon=st.integers(1, 48), which=st.integers(0, 2))
    def test_origins_lie_in_their_split(self, length: int, horizon: int, which: int) -> None:
        window_set = simulated_windows(0)[which].with_lengths(length, horizon)
        arrays = WindowArrays.of(window_set)
        train_end, validation_end = window_set.borders["train"][1], window_set.borders["validation"][1]
        assert len(arrays.values) == validation_end
        assert arrays.training.min() >= length
        assert arrays.training.max() + horizon <= train_end
        assert arrays.validation.min() >= train_end
        assert arrays.validation.max() + horizon <= validation_end
        assert (arrays.validation % window_set.align == 0).all()
        assert len(arrays.training) <= MAX_TRAINING_WINDOWS

    def test_training_windows_have_the_values_that_a_forecast_sees_gaps_included(self, price: WindowSet) -> None:
        values = np.array(price.values)
        holes = np.random.default_rng(1).random(values.shape) < 0.1
        holes[:, 0] &= np.arange(len(values)) % 24 < 12
        values[holes] = np.nan
        holed = replace(price, values=values)
        arrays = WindowArrays.of(replace(holed, horizon=1, align=1))
        origin = int(arrays.training[7])
        window = replace(holed, horizon=1, align=1).window("train", holed.start + origin * holed.step)
        history, known = standardised(window, holed.statistics.mean, holed.statistics.std)
        batch = arrays.batch([origin])
        assert np.isnan(window.history).any()
        np.testing.assert_allclose(batch[0][0], history, rtol=1e-6)
        np.testing.assert_allclose(batch[1][0], known, rtol=1e-6)

    def test_windows_with_an_unknown_target_are_left_out(self, price: WindowSet) -> None:
        values = np.array(price.values)
        values[600:610, 0] = np.nan
        arrays = WindowArrays.of(replace(price, values=values))
        assert not set(range(600 - 23, 610)) & set(arrays.training.tolist())
        assert {600 - 24, 610} <= set(arrays.training.tolist())

    def test_a_split_without_usable_windows_is_an_error(self, price: WindowSet) -> None:
        values = np.array(price.values)
        first, end = price.borders["validation"]
        values[first:end:24, 0] = np.nan
        with pytest.raises(DataError, match="expected training and validation windows"):
            WindowArrays.of(replace(price, values=values))


class TestFitting:
    @pytest.mark.parametrize("name", NETWORKS)
    def test_one_seed_gives_one_checkpoint_and_another_seed_another(
        self, price: WindowSet, name: str, tmp_path: Path
    ) -> None:
        folders = [
            train_forecaster(
                price, name, Checkpoints(tmp_path / str(at)), settings=FitSettings(epochs=1, seed=seed)
            ).folder
            for at, seed in enumerate((3, 3, 4))
        ]
        first, second, third = (checkpoint_bytes(folder) for folder in folders)
        assert first == second
        assert first["model.safetensors"] != third["model.safetensors"]

    def test_torchs_global_generator_is_left_alone(self, price: WindowSet) -> None:
        arrays = WindowArrays.of(price)
        before = torch.random.get_rng_state()
        fit_network(network_builder("itransformer", price, arrays), arrays, 1e-3, ONE_EPOCH)
        assert torch.equal(before, torch.random.get_rng_state())

    def test_it_stops_when_patience_ends_and_keeps_the_best_epoch(self, price: WindowSet) -> None:
        arrays = WindowArrays.of(price)
        told: list[tuple[int, int]] = []
        fit = fit_network(
            network_builder("dlinear", price, arrays),
            arrays,
            0.03,
            FitSettings(epochs=200, patience=2),
            lambda done, total: told.append((done, total)),
        )
        assert fit.epochs < 200
        assert fit.epochs == fit.best_epoch + 2
        assert told == [(epoch, 200) for epoch in range(1, fit.epochs + 1)]
        assert validation_mse(fit.network, arrays) == fit.validation_mse

    @pytest.mark.parametrize("name", NETWORKS)
    def test_it_learns(self, price: WindowSet, name: str) -> None:
        arrays = WindowArrays.of(price)
        builder = network_builder(name, price, arrays)
        fresh = validation_mse(builder(), arrays)
        assert fit_network(builder, arrays, 1e-3, FitSettings(epochs=4)).validation_mse < 0.9 * fresh

    @pytest.mark.parametrize("name", NETWORKS)
    def test_a_saved_network_forecasts_as_it_did_in_training(self, price: WindowSet, name: str, tmp_path: Path) -> None:
        """The error of forecasts on the raw scale is the validation error of the training, rescaled."""
        folder = train_forecaster(price, name, Checkpoints(tmp_path), settings=ONE_EPOCH).folder
        forecaster = NeuralForecaster(folder, name)
        assert forecaster.trained_on == TrainedOn.of(price)
        windows = list(price.windows("validation"))
        targets = price.targets("validation")
        errors = [
            forecast.values - targets[window.window_id].actual
            for window, forecast in zip(windows, forecaster.predict(windows), strict=True)
        ]
        recorded = read_json(folder / "config.json")["training"]["validation_mse"]
        assert np.mean(np.square(errors)) / price.statistics.std[0] ** 2 == pytest.approx(recorded, rel=1e-4)

    def test_settings_of_another_network_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="expected a network"):
            build_network("dlinear", 96, 24, (), SETTINGS["patchtst"])
        with pytest.raises(ConfigError, match="expected a network"):
            build_network("transformer", 96, 24, (), {})
        with pytest.raises(ConfigError, match="odd kernel"):
            build_network("dlinear", 96, 24, (), {"kernel": 24})


class TestArima:
    def test_the_order_with_the_least_validation_error_is_kept(self, price: WindowSet, tmp_path: Path) -> None:
        orders = (ArimaOrder((1, 0, 0)), ArimaOrder((0, 1, 1)), ArimaOrder((1, 0, 0), regressed=True))
        results = compare_arima_orders(price, orders)
        assert [item.order for item in results] == list(orders)
        windows, targets = list(price.windows("validation")), price.targets("validation")
        errors = [
            forecast.values - targets[window.window_id].actual
            for window, forecast in zip(windows, Arima(orders[0]).predict(windows), strict=True)
        ]
        assert results[0].mse == pytest.approx(np.mean(np.square(errors)))
        assert min(results, key=lambda item: item.mae).order == orders[2]  # prices follow load and wind

    def test_a_chosen_order_is_stored_with_its_comparison(self, tmp_path: Path) -> None:
        wind = simulated_windows(0)[2]  # no seasonal order fits: the quickest choice
        trained = train_forecaster(wind, "arima", Checkpoints(tmp_path))
        table = read_json(trained.folder / "config.json")["validation"]
        best = min(table, key=lambda row: row["mae"])
        assert read_arima_order(trained.folder) == ArimaOrder.from_json(best)
        assert len(table) == 4
        with pytest.raises(DataError, match="expected a file"):
            read_arima_order(tmp_path / "nowhere")


class TestRuns:
    def test_what_is_there_is_skipped_and_overwritten_on_demand(self, price: WindowSet, tmp_path: Path) -> None:
        checkpoints = Checkpoints(tmp_path)
        first = train_forecaster(price, "dlinear", checkpoints, settings=ONE_EPOCH)
        before = checkpoint_bytes(first.folder)
        skipped = train_forecaster(price, "dlinear", checkpoints, settings=FitSettings(epochs=1, seed=1))
        assert (skipped.summary, skipped.seconds) == ("trained already", 0.0)
        assert checkpoint_bytes(first.folder) == before
        train_forecaster(price, "dlinear", checkpoints, settings=FitSettings(epochs=1, seed=1), overwrite=True)
        assert checkpoint_bytes(first.folder) != before

    def test_an_interrupted_run_leaves_nothing_half_written(self, price: WindowSet, tmp_path: Path) -> None:
        def interrupt(_done: int, _total: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train_forecaster(price, "dlinear", Checkpoints(tmp_path), settings=ONE_EPOCH, progress=interrupt)
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []

    def test_an_unknown_model_is_refused(self, price: WindowSet, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="expected a model of dlinear"):
            train_forecaster(price, "chronos", Checkpoints(tmp_path))


@pytest.fixture
def app() -> Iterator[typer.Typer]:
    application = typer.Typer()
    application.command()(train_forecasters)
    yield application


class TestCommand:
    def test_it_trains_then_skips(self, app: typer.Typer, tmp_path: Path) -> None:
        save_window_sets(tmp_path / "sets", simulated_windows(0))
        arguments = [
            *("--windows", str(tmp_path / "sets"), "--dataset", "SIM_wind", "--out", str(tmp_path / "models")),
            *("--model", "dlinear", "--model", "arima"),
        ]
        first = CliRunner().invoke(app, arguments)
        assert first.exit_code == 0, first.output
        assert "SIM_wind dlinear: best of" in first.output
        assert "validation MAE" in first.output
        again = CliRunner().invoke(app, arguments)
        assert again.output.count("trained already") == 2
        assert set(TRAINABLE) == {*NETWORKS, "arima"}

    def test_unknown_names_are_refused(self, app: typer.Typer) -> None:
        for arguments in (["--model", "chronos"], ["--dataset", "ETTh3"]):
            result = CliRunner().invoke(app, arguments)
            assert isinstance(result.exception, ConfigError)
            assert arguments[1] in str(result.exception)
