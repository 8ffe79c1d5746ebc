"""The decision benchmark's prompts in few tokens, for small policies; `castgym.envs.prompts` has them at length."""

import json
from collections.abc import Mapping
from typing import Any

from castgym.envs.memory import Memory
from castgym.envs.prompts import AnswerForm


def system_text(task: Mapping[str, Any], answer_form: AnswerForm) -> str:
    """Role, tools, and answer format."""
    answer = '{"plan": id, "adjust": {block: steps}}' if answer_form == "plan" else '{"decisions": [{"id", "action"}]}'
    return f"Plan a day. One call: classical_plan(method). Answer: {answer}. Calls: {task['max_calls']}."


def task_text(task: Mapping[str, Any]) -> str:
    """The case."""
    return f"Series {task['series_id']} as of {task['as_of']}, target {task['target_start']}."


def memory_text(memory: Memory, task: Mapping[str, Any], spent: int) -> str:
    """The structured memory."""
    plans = [f"{plan.plan_id} {plan.source} {list(plan.grid_index)}" for plan in memory.plans]
    error = [json.dumps(memory.last_error.content)] if memory.last_error is not None else []
    return "\n".join([f"Spent {spent}/{task['budget']}.", *plans, *error])
