"""The scripted teacher of the decision benchmark.

Its rule was worked out on training cases only (`docs/teachers.md`): take the free plan of all observations at the same
hour; move it by what yesterday's level, yesterday's block and the target's weekday agree on; a week ahead, where the
plan's samples understate what can happen and shortage is the dearer side, go one step further up unless the evidence
already did. Hourly counts of departures scatter too much for that; there only Sundays differ, and get their own plan.

It sees what a compact prompt says (`castgym.envs.compact_prompts`) and nothing else.
"""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, get_args

import numpy as np

from castgym.agents.base import answer, classical_source
from castgym.agents.rendering import response_text
from castgym.agents.teachers import reasons
from castgym.agents.teachers.scripted import ScriptedTeacher
from castgym.data.errors import ConfigError
from castgym.data.schema import HISTORY_HOURS
from castgym.envs.block_evidence import ramp_steps
from castgym.envs.compact_prompts import day_name, lead_days, memory_shift
from castgym.envs.memory import PlanRecord
from castgym.envs.prompts import AnswerForm, Prompt
from castgym.tools.calls import ToolCall

BASE_TOOL = "hourly_history_plan"
WEEKDAY_METHOD = "weekday_empirical"
_BASE_SOURCES = (BASE_TOOL, classical_source("hour_of_day_empirical"))


class DecisionTeacher(ScriptedTeacher):
    """Plays FWBench cases by a fixed rule, with exploration, and says why in a few true words.

    Args:
        exploration: chance of each deviation from the rule: another order, a price asked for, a block moved by a step.
        answer_form: form in which it answers; the episodes' own.
        seed: base of the seeds that `act` derives from the case and the turn.

    Raises:
        ConfigError: a setting is wrong.
    """

    name = "scripted_teacher"

    def __init__(self, *, exploration: float = 0.1, answer_form: AnswerForm = "plan", seed: int = 0) -> None:
        super().__init__(exploration=exploration, seed=seed)
        if answer_form not in get_args(AnswerForm):
            raise ConfigError(f"expected answer_form to be one of {get_args(AnswerForm)}, found {answer_form!r}")
        self.answer_form: AnswerForm = answer_form

    @property
    def options(self) -> dict[str, Any]:
        """What its responses depend on, as JSON, for run configurations."""
        return {**super().options, "answer_form": self.answer_form}

    def _say(self, prompt: Prompt, rng: np.random.Generator) -> str:
        call, why = self._next_call(prompt, rng)
        if call is not None:
            return f"<think>{why}</think>\n{response_text(call)}"
        text, why = self._answer(prompt, rng)
        return f"<think>{why}</think>\n{text}"

    def _next_call(self, prompt: Prompt, rng: np.random.Generator) -> tuple[ToolCall | None, str]:
        """The next call that the rule needs and its reason; no call once it can answer."""
        memory, task = prompt.memory, prompt.task
        # Prompts that name the tools themselves are the compact ones, whose calls leave out the only series.
        series = {} if prompt.tools_in_text else {"series_id": task["series_id"]}
        left = task["max_calls"] - len(memory.calls)
        if left <= 0:
            return None, ""
        tried = {record.tool for record in memory.calls}
        history = ToolCall("history", {**series, "limit": HISTORY_HOURS})
        other_order = self._explores(rng) and left > 1
        if BASE_TOOL not in tried and not (other_order and "history" not in tried):
            return ToolCall(BASE_TOOL, series), reasons.base_plan(prompt, rng)
        if "history" not in tried:
            return history, reasons.history(prompt, rng)
        if wants_weekday_plan(prompt) and "classical_plan" not in tried:
            return ToolCall("classical_plan", {**series, "method": WEEKDAY_METHOD}), reasons.weekday_plan(prompt, rng)
        if task["models"] and "quote_forecast" not in tried and self._explores(rng):
            arguments = {
                **series,
                "model": task["models"][0],
                "horizon": task["expected_horizon"],
                "context_steps": HISTORY_HOURS,
            }
            return ToolCall("quote_forecast", arguments), reasons.quote(prompt, rng)
        return None, ""

    def _answer(self, prompt: Prompt, rng: np.random.Generator) -> tuple[str, str]:
        """The answer and its reason."""
        plan = prompt.memory.plan_from(classical_source(WEEKDAY_METHOD)) if wants_weekday_plan(prompt) else None
        if plan is not None:
            shift: Sequence[int] = [0] * len(plan.grid_index)
            why = reasons.weekday_answer(prompt, plan, rng)
        else:
            plan = next((found for found in prompt.memory.plans if found.source in _BASE_SOURCES), None)
            if plan is None:
                return json.dumps({"plan": "p1"}), "No plan stands."
            shift = rule_shift(prompt, plan)
            why = reasons.shift_answer(prompt, plan, shift, rng)
        tried = self._try_block(prompt, plan, shift, rng)
        if tried is not None:
            block, shift = tried
            why = reasons.tried_block(prompt, block, shift[block], rng)
        return self._answer_text(prompt, plan, shift), why

    def _answer_text(self, prompt: Prompt, plan: PlanRecord, shift: Sequence[int]) -> str:
        if self.answer_form == "decisions":
            return answer([index + steps for index, steps in zip(plan.grid_index, shift, strict=True)], prompt)
        value: dict[str, Any] = {"plan": plan.plan_id}
        if any(shift):  # then every block is named, as in the prompt's line `shift`, which is easier to copy
            value["adjust"] = dict(zip(prompt.task["block_ids"], shift, strict=True))
        return json.dumps(value, separators=(",", ":"))

    def _try_block(
        self, prompt: Prompt, plan: PlanRecord, shift: Sequence[int], rng: np.random.Generator
    ) -> tuple[int, list[int]] | None:
        """Now and then a block and the shift with that block moved by one more step, where that is feasible."""
        if not self._explores(rng):
            return None
        block, step = int(rng.integers(len(shift))), int(rng.choice((-1, 1)))
        moved = list(shift)
        moved[block] += step
        return (block, moved) if feasible(prompt, plan, moved) else None


def official_teacher() -> DecisionTeacher:
    """The rule without exploration, in the official answer form: `castgym evaluate -p MODULE:official_teacher`."""
    return DecisionTeacher(exploration=0.0, answer_form="decisions")


def wants_weekday_plan(prompt: Prompt) -> bool:
    """Hourly counts on a Sunday: the plan of all days is mostly one of workdays, which have another shape."""
    return counts_events(prompt) and day_name(prompt.task) == "Sun"


def counts_events(prompt: Prompt) -> bool:
    """The series counts events, such as departures an hour, rather than measuring a load."""
    return str(prompt.task["unit"]).endswith("/hour")


def rule_shift(prompt: Prompt, plan: PlanRecord) -> list[int]:
    """Steps by which the rule moves the base plan.

    Args:
        prompt: the prompt.
        plan: the base plan.

    Returns:
        Steps of each block; all 0 where nothing is known or the series counts events.
    """
    shift = memory_shift(prompt.memory, prompt.task)
    if shift is None or counts_events(prompt) or plan != prompt.memory.plans[0]:
        return [0] * len(plan.grid_index)
    if lead_days(prompt.task) < 2:
        return list(shift)
    top = len(prompt.task["contract"]["capacity_grid"]) - 1
    return [
        min(steps + 1, top - index) if steps <= 0 else steps
        for steps, index in zip(shift, plan.grid_index, strict=True)
    ]


def feasible(prompt: Prompt, plan: PlanRecord, shift: Sequence[int]) -> bool:
    """A moved plan keeps grid and ramp. Where no `shift` is shown only the plan itself does for sure."""
    if memory_shift(prompt.memory, prompt.task) is None:
        return not any(shift)
    moved = [index + steps for index, steps in zip(plan.grid_index, shift, strict=True)]
    top = len(prompt.task["contract"]["capacity_grid"]) - 1
    inside = all(0 <= index <= top for index in moved)
    return inside and all(abs(b - a) <= ramp_steps(prompt.task) for a, b in pairwise(moved))
