"""Fixed policies, selectors and oracles; and that the vectorised path gives the rows of real episodes."""

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pytest
from factories import SCRIPTED_TARIFF, ScriptedForecaster, make_case, make_loaded, scripted_pool

from castgym.agents.base import Desk
from castgym.agents.fixed import ClassicalPolicy
from castgym.agents.registry import make_policies, policy_factories
from castgym.agents.selectors import BacktestSelector
from castgym.data.errors import ConfigError, ForecasterUnavailableError
from castgym.data.tariff import Tariff
from castgym.envs.casesets import LoadedCases
from castgym.evaluation.rows import ResultRow
from castgym.evaluation.runner import EvaluationSettings, play_case, run_config, vectorised_rows
from castgym.tools.forecasters.base import ForecasterInfo
from castgym.tools.forecasters.pool import ForecasterEntry, ForecasterPool
from castgym.tools.planning.classical import CLASSICAL_METHODS

POOR = Tariff(8000, SCRIPTED_TARIFF.rates)
"""A budget that pays no long forecast, so that the fallback rule is met."""


def loaded_with(tariff: Tariff = SCRIPTED_TARIFF) -> LoadedCases:
    cases = [make_case(seed, family) for seed in range(4) for family in ("day_ahead", "week_ahead")]
    bikes = [
        make_case(
            seed,
            domain="cycle_hire",
            cohort="cycle-hire-may",
            unit="departures/hour",
            case_id=f"BIKE{seed}",
            history=np.random.default_rng(seed).poisson(2, 336),
        )
        for seed in range(2)
    ]
    bikes = [replace(case, scale=float(case.history.mean())) for case in bikes]
    return make_loaded([*cases, *bikes], tariff=tariff, models=("seasonal_empirical", "scripted"))


def rows_both_ways(
    name: str, loaded: LoadedCases, mode: str = "memory", forecaster: ScriptedForecaster | None = None
) -> tuple[list[ResultRow], list[ResultRow]]:
    pool = scripted_pool(forecaster or ScriptedForecaster())
    desk = Desk(loaded.case_set.tariff, loaded.case_set.models, pool)
    policy = make_policies([name], loaded, desk)[0]
    pending = [(case.case_id, 0) for case in loaded.case_set]
    settings = EvaluationSettings(prompt_mode=mode)  # type: ignore[arg-type]
    played = [play_case(policy, loaded, case_id, repeat, settings, desk.pool)[0] for case_id, repeat in pending]
    return [replace(row, seconds=0.0) for row in played], [
        replace(row, seconds=0.0) for row in vectorised_rows(policy, loaded, pending, desk, settings)
    ]


ALL_POLICIES = list(
    policy_factories(loaded_with(), Desk(SCRIPTED_TARIFF, ("seasonal_empirical", "scripted"), ForecasterPool([])))
)


@pytest.mark.parametrize("name", ALL_POLICIES)
@pytest.mark.parametrize("tariff", [SCRIPTED_TARIFF, POOR], ids=["rich", "poor"])
def test_the_vectorised_path_gives_the_rows_of_real_episodes(name: str, tariff: Tariff) -> None:
    played, decided = rows_both_ways(name, loaded_with(tariff))
    assert played == decided
    assert all(row.valid and row.outcome == "completed" for row in played)


def test_chat_mode_gives_the_same_rows() -> None:
    assert rows_both_ways("backtest_8", loaded_with())[0] == rows_both_ways("backtest_8", loaded_with(), "chat")[0]


def test_a_forecast_that_cannot_be_paid_falls_back_to_the_hour_of_day() -> None:
    played, _ = rows_both_ways("fixed_scripted", loaded_with(POOR))
    free, _ = rows_both_ways("hour_of_day_empirical", loaded_with(POOR))
    for row, reference in zip(played, free, strict=True):
        assert row.credits == 0
        assert row.grid_index == reference.grid_index
        assert [call["error"] for call in row.calls] == ["unaffordable", None]


def test_oracles_bound_every_policy() -> None:
    loaded = loaded_with()
    scores = {name: np.array([row.S for row in rows_both_ways(name, loaded)[0]], dtype=float) for name in ALL_POLICIES}
    assert np.allclose(scores["perfect_demand"], 0, atol=1e-12)
    agents = [name for name in ALL_POLICIES if not name.endswith(("oracle", "demand"))]
    best_free = np.min([scores[name] for name in CLASSICAL_METHODS], axis=0)
    assert np.allclose(scores["free_menu_oracle"], best_free)
    for name in agents:
        if name != "fixed_seasonal_empirical":  # no foundation model: not on the catalog oracle's menu
            assert (scores["catalog_oracle"] <= scores[name] + 1e-12).all()
    assert (scores["catalog_oracle"] <= scores["free_menu_oracle"] + 1e-12).all()
    assert (scores["perfect_demand"] <= scores["catalog_oracle"] + 1e-12).all()


def test_the_catalog_oracle_pays_only_for_its_choice() -> None:
    played, _ = rows_both_ways("catalog_oracle", loaded_with())
    assert all(len(row.calls) == 1 for row in played)
    for row in played:
        bought = row.calls[0]["tool"] == "forecast_and_plan"
        assert (row.credits or 0) == (row.calls[0]["credits"] if bought else 0)


def test_the_selector_takes_the_method_that_did_best_on_recent_days() -> None:
    """On demand that repeats exactly every week, the weekly repeat is perfect in every backtest."""
    week = np.random.default_rng(0).uniform(900, 1100, 168)
    history = np.tile(week, 2)
    case = make_case(history=history, scale=float(history.mean()))
    decision = BacktestSelector(8).decide([case], Desk(SCRIPTED_TARIFF, (), ForecasterPool([])))[0]
    assert decision.calls[-1].arguments["method"] in ("level_adjusted_weekly", "weekday_empirical", "weekly_repeat")


def test_unknown_policies_are_refused_with_the_list() -> None:
    loaded = loaded_with()
    desk = Desk(loaded.case_set.tariff, loaded.case_set.models, scripted_pool(ScriptedForecaster()))
    with pytest.raises(ConfigError, match=r"unknown policy clairvoyant.*hour_of_day_empirical"):
        make_policies(["clairvoyant"], loaded, desk)
    with pytest.raises(ConfigError):
        make_policies([], loaded, desk)


def test_a_policy_whose_forecaster_is_missing_is_refused_before_it_runs() -> None:
    def missing() -> ScriptedForecaster:
        raise ForecasterUnavailableError("pip install 'castgym[forecast]'")

    loaded = loaded_with()
    pool = ForecasterPool([ForecasterEntry(ForecasterInfo("scripted", ""), missing)])
    desk = Desk(loaded.case_set.tariff, ("scripted",), pool)
    with pytest.raises(ForecasterUnavailableError, match="pip install"):
        make_policies(["fixed_scripted"], loaded, desk)


def test_the_infrastructures_fault_is_retried_then_left_unscored() -> None:
    attempts = []

    def flaky() -> ScriptedForecaster:
        attempts.append(1)
        raise ForecasterUnavailableError("gone")

    loaded = loaded_with()
    good = Desk(loaded.case_set.tariff, ("scripted",), scripted_pool(ScriptedForecaster()))
    policy = make_policies(["fixed_scripted"], loaded, good)[0]
    broken = ForecasterPool([ForecasterEntry(ForecasterInfo("scripted", ""), flaky)])
    row, _ = play_case(policy, loaded, loaded.case_set.cases[0].case_id, 0, EvaluationSettings(), broken)
    assert (row.outcome, row.S, row.loss, row.scored) == ("infrastructure_error", None, None, False)
    assert row.error is not None
    assert "gone" in row.error
    assert len(attempts) == 3


def test_a_backend_that_fails_keeps_its_charge_and_the_policy_goes_on() -> None:
    loaded = loaded_with()
    pool = scripted_pool(ScriptedForecaster(fail=True))
    desk = Desk(loaded.case_set.tariff, loaded.case_set.models, pool)
    policy = make_policies(["fixed_scripted"], loaded, desk)[0]
    row, _ = play_case(policy, loaded, loaded.case_set.cases[0].case_id, 0, EvaluationSettings(), pool)
    assert row.valid
    assert row.credits == 8452
    assert [call["error"] for call in row.calls] == ["backend_error", None]


class FailsOn(ScriptedForecaster):
    """Fails where the last observation of a series is in a set."""

    def __init__(self, last: Collection[float]) -> None:
        super().__init__()
        self.last = set(last)

    def predict(self, context: np.ndarray, horizon: int) -> np.ndarray:
        self.fail = bool(self.last & set(context[:, -1]))
        return super().predict(context, horizon)


@pytest.mark.parametrize("name", ["fixed_scripted", "catalog_oracle", "weekly_repeat"])
@pytest.mark.parametrize("failing", [1, 4, None], ids=["one case", "some cases", "all cases"])
def test_both_paths_write_the_same_rows_where_a_forecaster_fails(name: str, failing: int | None) -> None:
    loaded = loaded_with()
    last = [case.history[-1] for case in loaded.case_set][:failing]
    played, decided = rows_both_ways(name, loaded, forecaster=FailsOn(last))
    assert decided == played
    fails = [case.history[-1] in last for case in loaded.case_set]
    if name == "fixed_scripted":
        expected = [["backend_error", None] if failed else [None] for failed in fails]
        assert [[call["error"] for call in row.calls] for row in played] == expected
        assert all(row.valid and row.credits for row in played)
    if name == "catalog_oracle":  # it cannot choose without the forecast
        assert [not row.scored for row in played] == fails


def test_the_weights_of_a_model_that_no_case_can_pay_need_not_be_there() -> None:
    def missing() -> ScriptedForecaster:
        raise ForecasterUnavailableError("pip install 'castgym[forecast]'")

    pool = ForecasterPool([ForecasterEntry(ForecasterInfo("scripted", ""), missing)])
    loaded = loaded_with(POOR)
    desk = Desk(POOR, ("scripted",), pool)
    played = play_case(
        make_policies(["fixed_scripted"], loaded, desk)[0],
        loaded,
        loaded.case_set.cases[0].case_id,
        0,
        EvaluationSettings(),
        pool,
    )[0]
    assert [call["error"] for call in played.calls] == ["unaffordable", None]
    just_enough = Tariff(8452, SCRIPTED_TARIFF.rates)  # pays the forecast a day ahead, not the one a week ahead
    with pytest.raises(ForecasterUnavailableError, match="pip install"):
        make_policies(["fixed_scripted"], loaded_with(just_enough), Desk(just_enough, ("scripted",), pool))


def test_the_options_of_a_policy_are_part_of_its_runs_configuration() -> None:
    class Sampler(ClassicalPolicy):
        def __init__(self, temperature: float) -> None:
            super().__init__("weekly_repeat")
            self.options = {"temperature": temperature}

    loaded = loaded_with()
    configs = [
        run_config(policy, loaded, loaded.case_set, {}, EvaluationSettings())
        for policy in (ClassicalPolicy("weekly_repeat"), Sampler(0.0), Sampler(1.0))
    ]
    assert [config.options for config in configs] == [{}, {"temperature": 0.0}, {"temperature": 1.0}]
    assert len({config.digest for config in configs}) == 3
