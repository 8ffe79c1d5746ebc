"""The contract, the optimiser and the classical distributions against direct definitions."""

import itertools
from datetime import date

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from castgym.data.contract import PROTOCOL_GRID, ContractTerms, hourly_priority, protocol_terms
from castgym.data.errors import DataError
from castgym.tools.planning.batch import ContractBatch
from castgym.tools.planning.classical import CLASSICAL_METHODS, Distributions, classical_batch, classical_distributions
from castgym.tools.planning.contract import CapacityContract
from castgym.tools.planning.cost import _intervals, expected_hourly_cost
from castgym.tools.planning.optimizer import RAMP_TOLERANCE

FRIDAY = date(2026, 7, 24)


def hourly_cost(capacity: float, demand: float, weight: float, terms: ContractTerms) -> float:
    """Cost of one hour, straight from the contract's words."""
    short = max(demand - capacity, 0.0)
    paid = max(capacity - demand, 0.0) if terms.billing == "imbalance" else capacity
    beyond = max(short - terms.emergency_buffer, 0.0)
    return terms.reservation * paid + weight * (terms.shortage * short + terms.emergency * beyond)


def direct_loss(plan: tuple[int, ...], demand: np.ndarray, terms: ContractTerms) -> float:
    """Loss of a plan for samples of demand (24, S), straight from the contract's words."""
    capacity = np.asarray(terms.grid)[list(plan)]
    cost = 0.0
    for hour in range(24):
        weight = terms.hourly_priority[hour]
        cost += np.mean([hourly_cost(capacity[hour // terms.block_hours], z, weight, terms) for z in demand[hour]])
    return (cost + terms.adjustment * np.abs(np.diff(capacity)).sum()) / 24


small_terms = st.builds(
    ContractTerms,
    billing=st.sampled_from(["imbalance", "reservation"]),
    block_hours=st.just(6),
    reservation=st.sampled_from([0.1, 0.3]),
    shortage=st.sampled_from([0.5, 1.0]),
    emergency=st.sampled_from([0.0, 2.0]),
    adjustment=st.sampled_from([0.0, 0.05, 0.5]),
    ramp=st.sampled_from([0.0, 0.25, 0.3, 5.0]),
    hourly_priority=st.sampled_from([hourly_priority(date(2026, 7, day)) for day in range(20, 24)]),
    grid=st.sampled_from([(0.5, 0.75, 1.0, 1.25, 1.5), (0.2, 0.9, 1.0, 1.3)]),
)


@settings(max_examples=60, deadline=None)
@given(terms=small_terms, seed=st.integers(0, 10_000), samples=st.integers(1, 4))
def test_the_plan_is_the_best_of_all_feasible_ones(terms: ContractTerms, seed: int, samples: int) -> None:
    demand = np.random.default_rng(seed).uniform(-0.2, 2.0, (24, samples)).clip(0)
    contract = CapacityContract(terms, scale=1.0)
    cost = contract.expected_cost(demand, np.full(samples, 1 / samples))
    plan = contract.optimize(cost)
    grid = np.asarray(terms.grid)
    feasible = [
        candidate
        for candidate in itertools.product(range(len(grid)), repeat=4)
        if (np.abs(np.diff(grid[list(candidate)])) <= terms.ramp + RAMP_TOLERANCE).all()
    ]
    losses = [direct_loss(candidate, demand, terms) for candidate in feasible]
    assert tuple(plan) in feasible
    assert contract.realized_loss(plan, cost) == pytest.approx(min(losses), abs=1e-12)
    assert contract.realized_loss(plan, cost) == pytest.approx(direct_loss(tuple(plan), demand, terms), abs=1e-12)


def test_ties_take_the_lowest_grid_index() -> None:
    terms = ContractTerms(hourly_priority=(0.0,) * 24, reservation=0.0)
    contract = CapacityContract(terms, scale=1.0)
    assert contract.optimize(contract.demand_cost(np.ones(24))).tolist() == [0] * 8


def test_ties_that_rounding_blurs_take_the_lowest_grid_index_too() -> None:
    """Demand on grid values, weights that make whole stretches of capacities equally dear: compared with integers."""
    rng = np.random.default_rng(5)
    terms = protocol_terms(FRIDAY)
    steps = np.array([round(value * 20) for value in terms.grid])  # the grid in units of 0.05
    weight = np.array([round(value * 2) for value in terms.hourly_priority])  # the weights in halves
    for _ in range(40):
        samples = rng.integers(8, 41, (24, 2))
        # Cost x 24 x 2 x 20 x 10 as whole numbers: 0.3 = 3/10, weights in halves.
        cost = np.zeros((24, len(steps)), dtype=np.int64)
        for column in range(2):
            gap = steps[None, :] - samples[:, [column]]
            cost += 3 * np.maximum(gap, 0) + 5 * weight[:, None] * np.maximum(-gap, 0)
        block = cost.reshape(8, 3, -1).sum(axis=1)
        value = [block[0]]
        for row in block[1:]:
            best = [value[-1][max(0, g - 6) : g + 7].min() for g in range(len(steps))]
            value.append(np.array(best) + row)
        plan = [int(value[-1].argmin())]
        for before in reversed(value[:-1]):
            low = max(0, plan[0] - 6)
            plan.insert(0, low + int(before[low : plan[0] + 7].argmin()))
        contract = CapacityContract(terms, 20.0)
        found = contract.optimize(contract.expected_cost(samples.astype(float), np.full(2, 0.5)))
        assert found.tolist() == plan


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), emergency=st.sampled_from([0.0, 1.5]), weighted=st.booleans())
def test_expected_cost_is_the_mean_over_samples(seed: int, emergency: float, weighted: bool) -> None:
    rng = np.random.default_rng(seed)
    terms = ContractTerms(hourly_priority=hourly_priority(FRIDAY), emergency=emergency)
    samples, masses = rng.lognormal(0, 0.5, (24, 6)), rng.dirichlet(np.ones(6)) if weighted else np.full(6, 1 / 6)
    found = CapacityContract(terms, 1.0).expected_cost(samples, masses)
    for hour, column in ((0, 0), (13, 17), (23, 32)):
        weight, capacity = terms.hourly_priority[hour], terms.grid[column]
        direct = sum(
            mass * hourly_cost(capacity, z, weight, terms) for mass, z in zip(masses, samples[hour], strict=True)
        )
        assert found[hour, column] == pytest.approx(direct, abs=1e-12)


def test_negative_samples_count_as_no_demand() -> None:
    contract = CapacityContract(protocol_terms(FRIDAY), 1.0)
    assert np.array_equal(contract.demand_cost(np.full(24, -3.0)), contract.demand_cost(np.zeros(24)))


def test_scale_changes_nothing_but_the_units() -> None:
    rng = np.random.default_rng(0)
    demand = rng.lognormal(0, 0.2, (24, 14))
    unit = CapacityContract(protocol_terms(FRIDAY), 1.0)
    large = CapacityContract(protocol_terms(FRIDAY), 12_345.0)
    masses = np.full(14, 1 / 14)
    assert np.allclose(unit.expected_cost(demand, masses), large.expected_cost(12_345.0 * demand, masses), atol=1e-12)


@pytest.mark.parametrize("samples", [1, 14, 336])
def test_a_case_alone_and_in_a_batch_gives_the_same_bits(samples: int) -> None:
    rng = np.random.default_rng(1)
    count = 70
    priority = np.array([hourly_priority(date(2026, 7, 1 + number % 28)) for number in range(count)])
    scale = rng.uniform(1, 1e5, count)
    found = Distributions(
        rng.lognormal(0, 0.3, (count, 24, samples)) * scale[:, None, None], np.full(samples, 1 / samples)
    )
    terms = protocol_terms(FRIDAY)
    plans, losses = ContractBatch(terms, priority, scale).plan(found)
    for number in (0, 31, 32, 69):
        one = ContractBatch(terms, priority[[number]], scale[[number]])
        plan, loss = one.plan(Distributions(found.samples[[number]], found.weights))
        assert np.array_equal(plan[0], plans[number])
        assert loss[0] == losses[number]


def test_weights_must_be_masses() -> None:
    priority = np.ones((1, 24))
    with pytest.raises(ValueError, match="sum > 0"):
        expected_hourly_cost(np.ones((1, 24, 2)), np.zeros(2), priority, protocol_terms(FRIDAY))
    with pytest.raises(ValueError, match="finite"):
        expected_hourly_cost(np.full((1, 24, 2), np.nan), np.ones(2), priority, protocol_terms(FRIDAY))


def test_the_invalid_loss_exceeds_every_feasible_loss() -> None:
    rng = np.random.default_rng(2)
    terms = ContractTerms(hourly_priority=hourly_priority(FRIDAY), adjustment=0.5, emergency=2.0)
    contract = CapacityContract(terms, 1.0)
    for _ in range(20):
        demand = rng.uniform(0, 3, 24)
        cost = contract.demand_cost(demand)
        random_plans = rng.integers(0, 33, (50, 8))
        worst = max(contract.realized_loss(plan, cost) for plan in random_plans)
        assert contract.invalid_loss(demand) > worst


class TestGrading:
    contract = CapacityContract(protocol_terms(FRIDAY), scale=1234.567)
    demand = np.full(24, 1300.0)

    def test_the_floor_plan_is_valid_and_has_no_excess(self) -> None:
        plan = self.contract.optimize(self.contract.demand_cost(self.demand))
        grade = self.contract.grade(self.contract.submission(plan), self.demand)
        assert grade.valid
        assert grade.grid_index == tuple(plan)
        assert grade.excess == pytest.approx(0, abs=1e-15)

    @pytest.mark.parametrize(
        ("change", "fault"),
        [
            (lambda rows: rows.pop(), "missing_or_extra_decisions"),
            (lambda rows: rows.append({"id": "b08", "action": 1.0}), "missing_or_extra_decisions"),
            (lambda rows: rows[0].update(id="b01"), "duplicate_decision_id"),
            (lambda rows: rows[0].update(id="b99"), "unknown_decision_id"),
            (lambda rows: rows[0].update(action="100"), "nonfinite_or_nonnumeric_action"),
            (lambda rows: rows[0].update(action=True), "nonfinite_or_nonnumeric_action"),
            (lambda rows: rows[0].update(action=float("nan")), "nonfinite_or_nonnumeric_action"),
            (lambda rows: rows[0].update(action=rows[0]["action"] + 0.01), "off_grid"),
            (lambda rows: rows[0].update(action=round(1234.567 * 0.4, 6)), "ramp_exceeded"),
        ],
    )
    def test_broken_submissions_get_the_invalid_loss(self, change, fault) -> None:  # type: ignore[no-untyped-def]
        submission = self.contract.submission([13] * 8)
        change(submission["decisions"])
        grade = self.contract.grade(submission, self.demand)
        assert (grade.valid, grade.fault) == (False, fault)
        assert grade.loss == self.contract.invalid_loss(self.demand)

    def test_a_value_within_the_tolerance_is_on_the_grid(self) -> None:
        submission = self.contract.submission([13] * 8)
        submission["decisions"][0]["action"] += 9e-7
        assert self.contract.grade(submission, self.demand).valid

    def test_a_ramp_of_exactly_the_limit_is_feasible(self) -> None:
        assert self.contract.grade(self.contract.submission([6, 12] * 4), self.demand).valid

    def test_no_submission_is_invalid(self) -> None:
        assert self.contract.grade(None, self.demand).fault == "no_submission"


class TestContractJson:
    generic = CapacityContract(protocol_terms(FRIDAY), 200.0, "departures/hour")

    def test_written_and_read_back_is_equal(self) -> None:
        assert CapacityContract.from_json(self.generic.to_json()) == self.generic

    def test_terms_may_stand_apart(self) -> None:
        flat = self.generic.to_json()
        nested = {name: flat.pop(name) for name in list(flat) if name not in ("scale", "unit", "capacity_grid")}
        assert CapacityContract.from_json({**flat, "terms": nested}) == self.generic

    def test_legacy_megawatt_names_are_read(self) -> None:
        legacy = self.generic.to_json()
        legacy["scale_mw"], legacy["capacity_grid_mw"] = legacy.pop("scale"), legacy.pop("capacity_grid")
        del legacy["unit"]
        assert CapacityContract.from_json(legacy) == CapacityContract(self.generic.terms, 200.0, "MW")

    def test_a_normalised_grid_stands_for_itself(self) -> None:
        value = self.generic.to_json()
        del value["capacity_grid"]
        assert CapacityContract.from_json({**value, "grid": [0.5, 1.0]}).terms.grid == (0.5, 1.0)
        assert CapacityContract.from_json(value) == self.generic

    @pytest.mark.parametrize(
        "change",
        [
            {"grid": [0.5, 1.0]},
            {"scale_mw": 201.0},
            {"capacity_grid_mw": [1.0]},
            {"scale": 0},
            {"scale": True},
            {"scale": None},
            {"billing": "free"},
            {"block_hours": 5},
            {"hourly_priority": [1.0] * 23},
            {"ramp": float("nan")},
            {"capacity_grid": [3.0, 2.0]},
            {"capacity_grid": "wide"},
            {"terms": {"ramp": 0.7}},
            {"terms": [1]},
            {"unit": 5},
            {"shortge": 2.0},
        ],
    )
    def test_bad_contracts_are_refused(self, change: dict[str, object]) -> None:
        with pytest.raises(DataError):
            CapacityContract.from_json({**self.generic.to_json(), **change})

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"reservation": "0.3"}, "reservation: expected a valid number, found '0.3'"),
            ({"shortage": True}, "shortage: expected a valid number, found True"),
            ({"ramp": 10**400}, "ramp: expected a valid number, found 1000"),
            ({"block_hours": True}, "block_hours: expected 1, 3 or 6, found True"),
            ({"block_hours": "3"}, "block_hours: expected 1, 3 or 6, found '3'"),
            ({"hourly_priority": ["1"] * 24}, "hourly_priority.0: expected a valid number, found '1'"),
            ({"hourly_priority": [True] * 24}, "hourly_priority.0: expected a valid number, found True"),
            ({"hourly_priority": [-1.0] * 24}, r"hourly_priority: expected 24 weights >= 0, found \[-1.0, "),
            ({"hourly_priority": None}, "hourly_priority: expected a list of numbers, found None"),
            ({"grid": 5}, "expected grid as a list of numbers, found 5"),
            ({"grid": ["0.5", 1.0]}, "expected grid as a list of finite numbers, found '0.5'"),
            ({"capacity_grid": ["100", "200"]}, "expected capacity_grid as a list of finite numbers, found '100'"),
            ({"capacity_grid": [True, 200.0]}, "expected capacity_grid as a list of finite numbers, found True"),
            ({"capacity_grid": [100.0, 10**5000]}, "found a value of type int"),
            ({"capacity_grid": None, "grid": [True, 2.0]}, "grid.0: expected a valid number, found True"),
            ({"capacity_grid": None, "grid": {"low": 0.5}}, "grid: expected a list of numbers, found {'low': 0.5}"),
            ({"scale": 10**400}, "expected a contract with scale > 0, found 1000"),
            ({"scale": "200"}, "expected a contract with scale > 0, found '200'"),
        ],
    )
    def test_text_and_booleans_are_no_numbers(self, change: dict[str, object], message: str) -> None:
        with pytest.raises(DataError, match=message):
            CapacityContract.from_json({**self.generic.to_json(), **change})

    def test_whole_numbers_are_numbers(self) -> None:
        whole = {**self.generic.to_json(), "scale": 200, "shortage": 1, "emergency": 0}
        assert CapacityContract.from_json(whole) == self.generic


class TestClassicalMethods:
    start = pd.Timestamp("2026-07-02 22:00", tz="UTC")

    def series(self, seed: int = 0) -> pd.Series:
        hours = pd.date_range(self.start, periods=336, freq="h")
        return pd.Series(np.random.default_rng(seed).uniform(50, 150, 336), hours)

    def target(self, lead_days: int) -> pd.DatetimeIndex:
        return pd.date_range(pd.Timestamp("2026-07-17", tz="UTC") + pd.Timedelta(days=lead_days), periods=24, freq="h")

    @pytest.mark.parametrize("lead", [1, 7])
    def test_each_method_samples_what_its_name_says(self, lead: int) -> None:
        history, hours = self.series(), self.target(lead)
        found = classical_distributions(history, hours)
        assert list(found) == list(CLASSICAL_METHODS)
        by_hour = pd.DatetimeIndex(history.index).hour
        by_day = np.array([moment.weekday() for moment in history.index])
        for number, moment in enumerate(hours):
            same_hour = history[by_hour == moment.hour]
            same_week_hour = history[(by_hour == moment.hour) & (by_day == moment.weekday())]
            assert sorted(found["hour_of_day_empirical"][0][number]) == sorted(same_hour)
            assert sorted(found["weekday_empirical"][0][number]) == sorted(same_week_hour)
            assert found["weekly_repeat"][0][number] == [same_week_hour.iloc[-1]]
            level = history.iloc[-24:].mean() - history.iloc[-192:-168].mean()
            adjusted = max(same_week_hour.iloc[-1] + level, 0)
            assert found["level_adjusted_weekly"][0][number] == pytest.approx([adjusted])
        assert sorted(found["all_hour_empirical"][0][5]) == sorted(history)
        assert sorted(found["recent_week_empirical"][0][5]) == sorted(history.iloc[-168:])
        assert sorted(found["recent_day_empirical"][0][5]) == sorted(history.iloc[-24:])
        for samples, weights in found.values():
            assert samples.shape == (24, len(weights))
            assert weights.sum() == pytest.approx(1)

    def test_calendar_residual_finds_a_calendar_exactly(self) -> None:
        hours = np.arange(336 + 50)
        wave = 100 + 0.05 * hours + 20 * np.sin(2 * np.pi * hours / 24) + 5 * np.cos(2 * np.pi * 2 * hours / 168)
        history = pd.Series(wave[:336], pd.date_range(self.start, periods=336, freq="h"))
        samples, _ = classical_distributions(history, self.target(1))["calendar_residual"]
        assert np.allclose(samples, wave[-24:][:, None], atol=1e-8)

    def test_short_histories_weight_every_hour_fully(self) -> None:
        history = np.random.default_rng(3).uniform(1, 2, (2, 250))
        found = classical_batch("weekday_empirical", history, 280)
        weights = np.broadcast_to(found.weights, found.samples.shape[1:])
        assert np.allclose(weights.sum(axis=1), 1)

    def test_a_history_without_a_value_for_some_hour_is_refused(self) -> None:
        with pytest.raises(ValueError, match="no value"):
            classical_batch("weekly_repeat", np.ones((1, 100)), 280)

    def test_gaps_and_overlaps_are_refused(self) -> None:
        history = self.series()
        with pytest.raises(DataError, match="hourly"):
            classical_distributions(history.drop(history.index[5]), self.target(1))
        with pytest.raises(DataError, match="after the history"):
            classical_distributions(history, pd.DatetimeIndex(history.index[-24:]))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    grid=st.sampled_from([PROTOCOL_GRID, (0.5,), (0.1, 0.2, 0.5), tuple(0.1 * step + 0.4 for step in range(7))]),
)
def test_values_fall_into_the_interval_that_a_search_finds(seed: int, grid: tuple[float, ...]) -> None:
    rng = np.random.default_rng(seed)
    values = rng.uniform(-1, 4, 300)
    exact = rng.choice(grid, 100)
    values = np.concatenate([values, exact, np.nextafter(exact, 9), np.nextafter(exact, -9), [0.0, 1e300]])
    assert np.array_equal(_intervals(values, np.array(grid)), np.searchsorted(grid, values))
