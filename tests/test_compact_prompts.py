"""Compact prompts say what a decision needs, in few characters, and nothing that lies ahead."""

import json
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from factories import AS_OF, make_case, make_episode
from hypothesis import given, settings
from hypothesis import strategies as st

from castgym.data.contract import ContractTerms, protocol_terms
from castgym.data.schema import Case
from castgym.envs.block_evidence import LARGEST_SHIFT, block_evidence, ramp_steps, reachable_shift
from castgym.envs.compact_prompts import day_name, memory_evidence, memory_shift
from castgym.envs.episode import Episode
from castgym.tools.calls import ToolCall
from castgym.tools.fwbench import FWBENCH_TOOLS
from castgym.tools.planning.classical import CLASSICAL_METHODS


def compact(case: Case | None = None, **conditions: Any) -> Episode:
    return make_episode(case, **{"prompt_style": "compact", "answer_form": "plan", **conditions})


def call(episode: Episode, name: str, **arguments: Any) -> None:
    known = {} if name in ("catalog", "budget_status") else {"series_id": episode.case.series_id}
    episode.act(ToolCall(name, {**known, **arguments}))


def user_text(episode: Episode) -> str:
    return str(episode.observe().messages[1]["content"])


def system_text(episode: Episode) -> str:
    return str(episode.observe().messages[0]["content"])


def stepped(family: str = "day_ahead", **changes: Any) -> Case:
    """A day of 100 at all hours, but the newest day has 110 in the fourth block and the same weekdays 105 in the fifth.

    The scale is 100, so a grid step is 5.
    """
    target = AS_OF + timedelta(days=1 if family == "day_ahead" else 7)
    start = AS_OF - timedelta(hours=338)
    values = np.full(336, 100.0)
    for position in range(336):
        hour = start + timedelta(hours=position)
        if position >= 312 and hour.hour // 3 == 3:
            values[position] += 10.0
        if hour.weekday() == target.weekday() and hour.hour // 3 == 4:
            values[position] += 5.0
    return make_case(family=family, history=values, scale=100.0, **changes)


class TestEvidence:
    def test_blocks_stand_against_their_own_mean_in_grid_steps(self) -> None:
        case = stepped()
        episode = compact(case)
        call(episode, "history", limit=336)
        found = memory_evidence(episode.memory, episode.observe().task)
        assert found is not None
        # Newest block b03: 110 against (13*100 + 110)/14 = 100.7, so 9.3 / 5 = 1.86 steps.
        assert found.last == (0, 0, 0, 2, 0, 0, 0, 0)
        # Saturdays' b04: 105 against (12*100 + 2*105)/14 = 100.7, so 0.86 steps.
        assert found.week == (0, 0, 0, 0, 1, 0, 0, 0)
        # The newest day: (9.286 - 0.714) / 8 blocks / 5 = 0.21 steps; mid is the mean of the three.
        assert found.day == 0
        assert found.mid == (0, 0, 0, 1, 0, 0, 0, 0)
        assert found.hours == 336

    def test_less_than_a_day_of_history_is_no_evidence(self) -> None:
        episode = compact()
        call(episode, "history", limit=23)
        assert memory_evidence(episode.memory, episode.observe().task) is None
        assert "history too short for blocks" in user_text(episode)

    def test_without_the_target_weekday_in_sight_there_is_no_week(self) -> None:
        episode = compact()  # the newest visible Saturday ended six days before the decision on a Friday
        call(episode, "history", limit=48)
        found = memory_evidence(episode.memory, episode.observe().task)
        assert found is not None
        assert found.week is None
        call(episode, "hourly_history_plan")
        lines = [line.split()[0] for line in user_text(episode).splitlines() if line]
        assert "last" in lines
        assert "week" not in lines

    def test_the_longest_history_counts_in_whatever_order_it_is_read(self) -> None:
        episode, other = compact(), compact()
        for limit in (336, 30):
            call(episode, "history", limit=limit)
        call(other, "history", limit=336)
        assert memory_evidence(episode.memory, episode.observe().task) == memory_evidence(
            other.memory, other.observe().task
        )

    @settings(max_examples=20, deadline=None)
    @given(st.floats(0.5, 2000.0), st.integers(0, 10**6))
    def test_the_unit_of_demand_does_not_matter(self, factor: float, seed: int) -> None:
        history = np.random.default_rng(seed).uniform(50, 150, 336)
        first, second = (
            self._of(make_case(history=values, scale=float(values.mean()))) for values in (history, history * factor)
        )
        # Rounding may fall either way only where a value lies in the middle between two steps.
        for name in ("last", "week", "mid"):
            assert np.abs(np.subtract(getattr(first, name), getattr(second, name))).max() <= 1
        assert np.mean(np.not_equal(first.last, second.last)) <= 0.25

    def _of(self, case: Case) -> Any:
        episode = compact(case)
        call(episode, "history", limit=336)
        return block_evidence(episode.memory.analysis[0].content, episode.observe().task)


def a_task(terms: ContractTerms | None = None) -> dict[str, Any]:
    return dict(compact(make_case(terms=terms or protocol_terms(AS_OF.date()))).observe().task)


@st.composite
def feasible_plans(draw: st.DrawFn) -> list[int]:
    plan = [draw(st.integers(0, 32))]
    for _ in range(7):
        plan.append(draw(st.integers(max(0, plan[-1] - 6), min(32, plan[-1] + 6))))
    return plan


class TestShift:
    task = a_task()

    @given(feasible_plans(), st.lists(st.integers(-40, 40), min_size=8, max_size=8))
    def test_a_shifted_plan_keeps_grid_and_ramp(self, plan: list[int], mid: list[int]) -> None:
        shift = reachable_shift(plan, mid, self.task)
        assert shift is not None
        moved = np.add(plan, shift)
        assert moved.min() >= 0
        assert moved.max() <= 32
        assert np.abs(np.diff(moved)).max() <= 6
        assert np.abs(shift).max() <= LARGEST_SHIFT

    @given(feasible_plans(), st.lists(st.integers(-3, 3), min_size=8, max_size=8))
    def test_it_is_mid_itself_wherever_that_is_feasible(self, plan: list[int], mid: list[int]) -> None:
        moved = np.add(plan, mid)
        if moved.min() >= 0 and moved.max() <= 32 and np.abs(np.diff(moved)).max() <= 6:
            assert reachable_shift(plan, mid, self.task) == tuple(mid)

    @given(
        feasible_plans(),
        st.lists(st.integers(-9, 9), min_size=8, max_size=8),
        st.lists(st.integers(0, 1), min_size=6, max_size=6),
        st.integers(-3, 3),
    )
    def test_any_slow_rising_function_of_it_keeps_the_ramp(
        self, plan: list[int], mid: list[int], rises: list[int], start: int
    ) -> None:
        values = np.concatenate([[start], start + np.cumsum(rises)])  # f(-3) .. f(3)
        shift = reachable_shift(plan, mid, self.task)
        assert shift is not None
        moved = np.clip(np.add(plan, values[np.array(shift) + 3]), 0, 32)
        assert np.abs(np.diff(moved)).max() <= 6

    def test_the_ramp_is_six_steps(self) -> None:
        assert ramp_steps(self.task) == 6

    def test_an_uneven_grid_has_no_steps(self) -> None:
        terms = protocol_terms(AS_OF.date()).model_copy(update={"grid": (0.5, 0.8, 1.0, 1.05, 1.5)})
        episode = compact(make_case(terms=terms))
        call(episode, "hourly_history_plan")
        call(episode, "history", limit=336)
        assert memory_shift(episode.memory, episode.observe().task) is None
        assert user_text(episode).splitlines()[-1].startswith("mid ")
        assert "grid 0.5 0.8 1 1.05 1.5 ramp 0.3" in user_text(episode)


class TestText:
    def test_golden_prompt_after_plan_and_history(self) -> None:
        episode = compact(stepped())
        call(episode, "hourly_history_plan")
        call(episode, "history", limit=336)
        assert user_text(episode).splitlines() == [
            "TEST00 MW target Sat 07-18 lead 1 horizon 50",
            "b00..b07 grid 0.4+0.05*0..32 ramp 6 surplus 0.3 shortage 1.5 1 1 2 sigma 0.05",
            "models seasonal_empirical scripted",
            "",
            "calls 2 credits 0/113726",
            "p1 hourly_history_plan loss 0.002: 12 12 12 12 12 12 12 12",
            "history 336 h day 0",
            "last 0 0 0 +2 0 0 0 0",
            "week 0 0 0 0 +1 0 0 0",
            'shift {"b00":0,"b01":0,"b02":0,"b03":1,"b04":0,"b05":0,"b06":0,"b07":0}',
        ]

    @pytest.mark.parametrize("family", ["day_ahead", "week_ahead"])
    def test_the_whole_prompt_stays_short(self, family: str) -> None:
        episode = compact(make_case(family=family))
        sizes = []
        for name, arguments in (("hourly_history_plan", {}), ("history", {"limit": 336})):
            sizes.append(len(system_text(episode)) + len(user_text(episode)))
            call(episode, name, **arguments)
        assert max(*sizes, len(system_text(episode)) + len(user_text(episode))) < 900

    def test_it_names_every_tool_and_the_catalog_every_method(self) -> None:
        episode = compact()
        text = system_text(episode)
        assert all(name in text for name in FWBENCH_TOOLS)
        assert "<tool_call>" in text
        call(episode, "catalog")
        assert f"methods {' '.join(CLASSICAL_METHODS)}" in user_text(episode)

    def test_calls_leave_out_the_series(self) -> None:
        episode = compact()
        episode.act(ToolCall("history", {"limit": 336}))
        assert episode.memory.last_error is None
        assert "series_id" not in system_text(episode)

    def test_a_plan_that_it_shows_as_an_example_is_read(self) -> None:
        episode = compact()
        call(episode, "hourly_history_plan")
        example = system_text(episode).splitlines()[-1]
        assert episode.act(example[example.rindex('{"plan"') :]).outcome == "completed"

    def test_the_shift_can_be_copied_into_an_answer(self) -> None:
        episode = compact()
        call(episode, "hourly_history_plan")
        call(episode, "history", limit=336)
        shift = user_text(episode).splitlines()[-1].removeprefix("shift ")
        assert episode.act(f'{{"plan":"p1","adjust":{shift}}}').outcome == "completed"

    def test_decisions_need_the_exact_capacities(self) -> None:
        episode = compact(answer_form="decisions")
        shown = system_text(episode).splitlines()[-1].rpartition(": ")[2].split()
        grid = episode.observe().task["contract"]["capacity_grid"]
        assert len(shown) == len(grid)
        np.testing.assert_allclose([float(value) for value in shown], grid, rtol=0, atol=1e-6)

    def test_every_tool_leaves_its_facts(self) -> None:
        episode = compact(max_calls=20)
        requests = {"model": "seasonal_empirical", "horizon": 50, "context_steps": 336}
        origin = (AS_OF - timedelta(days=2)).isoformat()
        for name, arguments in (
            ("catalog", {}),
            ("budget_status", {}),
            ("inspect_series", {}),
            ("quote_forecast", requests),
            ("forecast_and_plan", requests),
            ("replay_forecast", {**requests, "horizon": 24, "context_steps": 168, "origin": origin}),
            ("classical_plan", {"method": "weekly_repeat"}),
            ("hourly_history_plan", {}),
        ):
            call(episode, name, **arguments)
            assert episode.memory.last_error is None, name
        text = user_text(episode)
        for fact in (
            "seasonal_empirical c336 h24:400 h64:1027",
            "inspect 336 h, missing 0",
            "quote seasonal_empirical h50 c336: 1027 credits",
            f"replay seasonal_empirical h24 c168 from {origin}: pinball",
            "p1 forecast_and_plan:seasonal_empirical:h50:c336",
            "credits 1027: ",
            "p2 classical_plan:weekly_repeat",
            f"credits {episode.spent}/113726",
        ):
            assert fact in text

    def test_the_last_fault_is_told(self) -> None:
        episode = compact()
        call(episode, "classical_plan", method="nonsense")
        assert "error invalid_arguments: " in user_text(episode)

    def test_the_weekday_is_that_of_the_local_day(self) -> None:
        # A London day in summer begins at 23:00 UTC of the day before.
        start = AS_OF + timedelta(hours=23)
        case = make_case(timezone="Europe/London", as_of=start - timedelta(days=1), target_start=start)
        assert day_name(compact(case).observe().task) == "Sat"

    def test_another_contract_is_stated(self) -> None:
        weights = tuple(float(1 + hour % 2) for hour in range(24))
        terms = ContractTerms(
            hourly_priority=weights, billing="reservation", block_hours=6, emergency=2.0, adjustment=0.5, shortage=3.0
        )
        episode = compact(make_case(terms=terms), objective="loss_only")
        call(episode, "hourly_history_plan")
        call(episode, "history", limit=336)
        text = user_text(episode)
        assert "capacity 0.3 shortage 1 2 1 2" in text
        assert "times 3 beyond 0.1 +2 change 0.5" in text
        assert "minimise" in text
        assert "b00..b03 grid" in text
        assert set(json.loads(text.splitlines()[-1].removeprefix("shift "))) == {"b00", "b01", "b02", "b03"}

    def test_full_and_compact_prompts_come_from_the_same_memory(self) -> None:
        episode, full = compact(), compact(prompt_style="full")
        for each in (episode, full):
            call(each, "history", limit=336)
        assert json.dumps(episode.memory.to_json()) == json.dumps(full.memory.to_json())
        assert len(user_text(episode)) < len(user_text(full)) / 10
