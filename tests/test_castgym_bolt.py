"""The small Chronos-Bolt that ships with castgym: its weights, what they are worth, and the script that makes them."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from chronos import BaseChronosPipeline, ChronosBoltPipeline
from chronos.chronos_bolt import ChronosBoltModelForForecasting
from factories import make_case, make_loaded
from hypothesis import given, settings
from hypothesis import strategies as st

from castgym.agents.base import Desk
from castgym.agents.fixed import ForecastPolicy
from castgym.data.simulate import simulate_demand
from castgym.data.tariff import OFFLINE_TARIFF
from castgym.envs.casesets import OFFLINE_MODELS
from castgym.evaluation.runner import EvaluationSettings, play_case, vectorised_rows
from castgym.tools.forecasters.base import QUANTILE_LEVELS, FloatArray, checked_forecast, pinball_loss
from castgym.tools.forecasters.chronos_models import CASTGYM_BOLT
from castgym.tools.forecasters.pool import ForecasterPool, default_entries
from castgym.training import train_castgym_bolt as script
from castgym.training.synthetic_series import synthetic_series

FOLDER = CASTGYM_BOLT.folder()
UNUSED_SEED = 8500


@pytest.fixture(scope="module")
def pool() -> ForecasterPool:
    return ForecasterPool(default_entries())


@pytest.fixture(scope="module")
def unseen() -> FloatArray:
    """Windows of simulated demand of a seed that no training used, shape (144, 336 + 194)."""
    demand = simulate_demand(UNUSED_SEED).to_numpy().T
    starts = np.random.default_rng(0).integers(demand.shape[1] - 530, size=(len(demand), 4))
    return np.stack([row[start : start + 530] for row, pair in zip(demand, starts, strict=True) for start in pair])


@pytest.fixture(scope="module")
def pools() -> dict[str, script.Pool]:
    rng = np.random.default_rng(0)
    return {**script.simulated_pools([UNUSED_SEED]), "synthetic": script.synthetic_pool(rng, 20)}


class TestWeights:
    def test_the_librarys_own_loader_reads_them(self) -> None:
        pipeline = BaseChronosPipeline.from_pretrained(FOLDER, device_map="cpu", dtype=torch.float32)
        assert isinstance(pipeline, ChronosBoltPipeline)
        assert list(pipeline.quantiles) == list(QUANTILE_LEVELS)
        assert pipeline.model_prediction_length == 200
        assert sum(weight.numel() for weight in pipeline.model.parameters()) == 1_123_344

    def test_they_are_small_and_carry_their_card(self) -> None:
        assert (FOLDER / "model.safetensors").stat().st_size < 5_000_000
        card = (FOLDER / "README.md").read_text(encoding="utf-8")
        record = json.loads((FOLDER / "training.json").read_text())
        assert f"{record['steps']:,} steps" in card
        assert f"seed {record['seed']}" in card
        assert str(script.SIMULATED_SEEDS[0]) in card

    def test_training_left_the_embedded_cases_out(self) -> None:
        assert 0 not in script.SIMULATED_SEEDS
        assert script.VALIDATION_SEED not in script.SIMULATED_SEEDS
        assert UNUSED_SEED not in (*script.SIMULATED_SEEDS, script.VALIDATION_SEED)

    @pytest.mark.parametrize(("horizon", "limit"), [(50, 0.92), (194, 0.98)])
    def test_it_beats_the_quantiles_of_the_hour_of_day(
        self, pool: ForecasterPool, unseen: FloatArray, horizon: int, limit: float
    ) -> None:
        """On the protocol's 24 target hours, against the strongest free reference, on unseen simulated demand."""
        context, actual = unseen[:, :336], unseen[:, 336 + horizon - 24 : 336 + horizon]
        found = pool.forecast_many("castgym_bolt", list(context), horizon)[:, -24:]
        by_day = np.moveaxis(np.quantile(context.reshape(-1, 14, 24), QUANTILE_LEVELS, axis=1), 0, -1)
        # The context is 14 whole days, so the first step of a forecast has the phase of the context's first hour.
        daily = by_day[:, (horizon - 24 + np.arange(24)) % 24]
        scale = np.abs(context[:, 24:] - context[:, :-24]).mean(axis=1)
        loss, reference = (
            np.mean([pinball_loss(q, y) / s for q, y, s in zip(rows, actual, scale, strict=True)])
            for rows in (found, daily)
        )
        assert loss < limit * reference

    @pytest.mark.parametrize("horizon", [50, 194, 336])
    def test_a_forecast_is_the_same_bits_with_any_neighbours(
        self, pool: ForecasterPool, unseen: FloatArray, horizon: int
    ) -> None:
        forecaster = pool.get("castgym_bolt")
        together = forecaster.predict(unseen[:11, :336], horizon)
        for row in (0, 7, 10):
            assert np.array_equal(forecaster.predict(unseen[row : row + 1, :336], horizon)[0], together[row])

    def test_short_and_constant_contexts_are_forecast(self, pool: ForecasterPool) -> None:
        forecaster = pool.get("castgym_bolt")
        for context in (np.array([[3.0, 4.0]]), np.full((1, 96), 7.0), np.zeros((1, 336))):
            quantiles = checked_forecast(forecaster, context, 50)
            assert np.abs(quantiles).max() < 100

    def test_episodes_and_the_vectorised_path_get_the_same_bits(self) -> None:
        """With pools of their own and no cache that could hide a difference."""
        cases = [make_case(seed, family) for seed in range(5) for family in ("day_ahead", "week_ahead")]
        loaded = make_loaded(cases, tariff=OFFLINE_TARIFF, models=("castgym_bolt",))
        policy = ForecastPolicy("castgym_bolt")
        desk = Desk(OFFLINE_TARIFF, ("castgym_bolt",), ForecasterPool(default_entries()))
        decided = vectorised_rows(policy, loaded, [(case.case_id, 0) for case in cases], desk, EvaluationSettings())
        fresh = ForecasterPool(default_entries())
        for case, row in zip(cases, decided, strict=True):
            played = play_case(policy, loaded, case.case_id, 0, EvaluationSettings(), fresh)[0]
            assert replace(played, seconds=0.0) == replace(row, seconds=0.0)
            assert row.credits
            together, alone = (
                each.forecast("castgym_bolt", case.history, case.expected_horizon) for each in (desk.pool, fresh)
            )
            assert np.array_equal(together, alone)


def test_it_is_sold_first_at_the_price_of_bolt_tiny() -> None:
    assert OFFLINE_MODELS[0] == "castgym_bolt"
    for horizon, context in ((50, 336), (194, 336), (24, 96), (336, 2)):
        own = OFFLINE_TARIFF.price("castgym_bolt", horizon, context)
        assert own.credits == OFFLINE_TARIFF.price("chronos_bolt_tiny", horizon, context).credits


class TestTraining:
    @settings(max_examples=60, deadline=None)
    @given(seed=st.integers(0, 10**6), length=st.integers(2, 800))
    def test_synthetic_series_are_finite_and_repeatable(self, seed: int, length: int) -> None:
        series = synthetic_series(np.random.default_rng(seed), length)
        assert series.shape == (length,)
        assert np.isfinite(series).all()
        assert np.array_equal(series, synthetic_series(np.random.default_rng(seed), length))

    def test_batches_hide_what_is_not_known(self, pools: dict[str, script.Pool]) -> None:
        context, target = script.draw_batch(pools, np.random.default_rng(0))
        assert context.shape == (script.BATCH, 504)
        assert target.shape == (script.BATCH, 200)
        assert torch.isfinite(target).all()
        known = torch.isfinite(context)
        assert (known[:, 1:] >= known[:, :-1]).all()  # padding stands on the left only
        assert (known.sum(dim=1) == 336).sum() > script.BATCH / 3

    def test_targets_that_explode_are_left_out(self) -> None:
        context = torch.randn(3, 504, generator=torch.Generator().manual_seed(0))
        context[2] = 5.0
        target = torch.zeros(3, 200)
        target[1, 7] = 1e4
        assert script.usable(context, target).tolist() == [True, False, False]

    def test_training_learns_and_repeats_itself(
        self, pools: dict[str, script.Pool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(script, "WARMUP", 5)
        weights, losses = [], []
        for _ in range(2):
            torch.manual_seed(0)
            model = ChronosBoltModelForForecasting(script.bolt_config())
            before = script.validation_loss(model, pools["electricity"], np.random.default_rng(1))
            averaged, record = script.train(model, pools, np.random.default_rng(0), 20, 0.0)
            after = script.validation_loss(averaged, pools["electricity"], np.random.default_rng(1))
            assert record["steps"] == 20
            assert after < 0.85 * before
            losses.append(after)
            weights.append(torch.cat([weight.flatten() for weight in averaged.parameters()]))
        assert losses[0] == losses[1]
        assert torch.equal(weights[0], weights[1])
        averaged.half().save_pretrained(tmp_path)
        assert BaseChronosPipeline.from_pretrained(tmp_path, device_map="cpu", dtype=torch.float32)
