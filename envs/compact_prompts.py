"""The decision benchmark's prompts in few tokens, for small policies; `castgym.envs.prompts` has them at length.

Plans are grid positions instead of capacities, and the history is told by block in whole grid steps
(`castgym.envs.block_evidence`). Calls leave out the case's only series, and what an answer needs word for word, the
steps of an adjustment, ends the prompt as JSON: copying what stands at a fixed distance is the first thing that a
small policy learns. `docs/teachers.md` explains how to read it.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from castgym.data.contract import TARGET_HOURS
from castgym.data.files import canonical_json
from castgym.envs.block_evidence import BlockEvidence, block_evidence, grid_step, is_even, ramp_steps, reachable_shift
from castgym.envs.memory import CallRecord, Memory
from castgym.envs.prompts import AnswerForm

_TOOLS = (
    "history(limit) hourly_history_plan() classical_plan(method) forecast_and_plan(model,horizon,context_steps); also "
    "quote_forecast replay_forecast inspect_series budget_status catalog"
)
_QUARTER = TARGET_HOURS // 4
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def system_text(task: Mapping[str, Any], answer_form: AnswerForm) -> str:
    """Role, tools, and answer format."""
    return (
        f"Plan a day: at most {task['max_calls']} calls, one a response, then answer.\n"
        f'<tool_call>{{"name": tool, "arguments": {{...}}}}</tool_call>\n{_TOOLS}\n{_answer_text(task, answer_form)}'
    )


def task_text(task: Mapping[str, Any]) -> str:
    """The case: series, times, blocks, grid, prices of error."""
    contract, blocks = task["contract"], task["block_ids"]
    target = datetime.fromisoformat(task["target_start"])
    return "\n".join(
        [
            f"{task['series_id']} {task['unit']} target {day_name(task)} {target:%m-%d} lead {lead_days(task)} "
            f"horizon {task['expected_horizon']}",
            f"{blocks[0]}..{blocks[-1]} {_grid_text(task)} {_prices_text(contract)} sigma {task['sigma']:.3g}"
            f"{_weights_text(task)}",
            f"models {' '.join(task['models']) or 'none'}",
        ]
    )


def memory_text(memory: Memory, task: Mapping[str, Any], spent: int) -> str:
    """The structured memory: what is spent, what was found out, plans, the history, and last the steps to copy."""
    lines = [f"calls {len(memory.calls)} credits {spent}/{task['budget']}"]
    told = [record for record in memory.analysis if record.plan_id is None and record.tool != "history"]
    told += [record for record in memory.predictions if record.plan_id is None]
    lines += [_record_text(record, task) for record in told]
    if memory.last_error is not None:
        content = memory.last_error.content
        lines.append(f"error {content.get('error', '')}: {content.get('message', '')}")
    for plan in memory.plans:
        paid = f" credits {plan.credits}" if plan.credits else ""
        places = " ".join(map(str, plan.grid_index))
        lines.append(f"{plan.plan_id} {plan.source} loss {plan.expected_loss:.3f}{paid}: {places}")
    return "\n".join([*lines, *_history_lines(memory, task)])


def day_name(task: Mapping[str, Any]) -> str:
    """Weekday of the target day on its own calendar, `Mon` to `Sun`: that of its middle, whatever the UTC offset."""
    middle = datetime.fromisoformat(task["target_start"]) + timedelta(hours=TARGET_HOURS // 2)
    return _DAYS[middle.weekday()]


def lead_days(task: Mapping[str, Any]) -> int:
    """Days from the decision to the target day."""
    return (datetime.fromisoformat(task["target_start"]) - datetime.fromisoformat(task["as_of"])).days


def signed(value: int) -> str:
    """A number of steps as tables and reasons write it."""
    return f"{value:+d}" if value else "0"


def shift_text(steps: Sequence[int], task: Mapping[str, Any]) -> str:
    """Steps of all blocks, as the value of an answer's `adjust`."""
    return json.dumps(dict(zip(task["block_ids"], steps, strict=True)), separators=(",", ":"))


def memory_evidence(memory: Memory, task: Mapping[str, Any]) -> BlockEvidence | None:
    """The evidence of the longest history that was read; `None` where there is none."""
    read = [record.content for record in memory.analysis if record.tool == "history"]
    return block_evidence(max(read, key=lambda content: len(content["values"])), task) if read else None


def memory_shift(memory: Memory, task: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The line `shift`: how far the first plan can move towards `mid`; `None` where it is not shown."""
    evidence = memory_evidence(memory, task)
    if evidence is None or not memory.plans:
        return None
    return reachable_shift(memory.plans[0].grid_index, evidence.mid, task)


def _answer_text(task: Mapping[str, Any], answer_form: AnswerForm) -> str:
    if answer_form == "plan":
        return 'answer {"plan":"p1"} or moved by grid steps {"plan":"p1","adjust":{"b03":1}}'
    grid = (f"{round(value, 6):.10g}" for value in task["contract"]["capacity_grid"])
    return (
        'answer {"decisions": [{"id": "b00", "action": capacity}, ...]} with every block; capacities '
        f"from position 0: {' '.join(grid)}"
    )


def _grid_text(task: Mapping[str, Any]) -> str:
    contract = task["contract"]
    grid = [capacity / contract["scale"] for capacity in contract["capacity_grid"]]
    if is_even(grid):
        return f"grid {grid[0]:g}+{grid_step(grid):.3g}*0..{len(grid) - 1} ramp {ramp_steps(task)}"
    return f"grid {' '.join(f'{value:.4g}' for value in grid)} ramp {contract['ramp']:g}"


def _prices_text(contract: Mapping[str, Any]) -> str:
    """Prices of an hour; shortage has a weight for each quarter of the day, else for each hour."""
    hourly = contract["hourly_priority"]
    quarters = [hourly[start : start + _QUARTER] for start in range(0, TARGET_HOURS, _QUARTER)]
    even = all(len(set(quarter)) == 1 for quarter in quarters)
    spans = [f"{weight:g}" for weight in ([quarter[0] for quarter in quarters] if even else hourly)]
    paid = "surplus" if contract["billing"] == "imbalance" else "capacity"
    text = f"{paid} {contract['reservation']:g} shortage {' '.join(spans)}"
    if contract["shortage"] != 1:
        text += f" times {contract['shortage']:g}"
    if contract["emergency"] > 0:
        text += f" beyond {contract['emergency_buffer']:g} +{contract['emergency']:g}"
    if contract["adjustment"] > 0:
        text += f" change {contract['adjustment']:g}"
    return text


def _weights_text(task: Mapping[str, Any]) -> str:
    """The weights of the objective where they are not the benchmark's own, one half each."""
    weights = task["objective"]
    if weights["loss_weight"] == weights["cost_weight"] == 0.5:
        return ""
    return f" minimise {weights['loss_weight']:g} loss/sigma + {weights['cost_weight']:g} credits/budget"


def _history_lines(memory: Memory, task: Mapping[str, Any]) -> list[str]:
    """The evidence of the history, block by block, and how far it moves the first plan."""
    evidence = memory_evidence(memory, task)
    if evidence is None:
        read = any(record.tool == "history" for record in memory.analysis)
        return ["history too short for blocks"] if read else []
    lines = [f"history {evidence.hours} h day {signed(evidence.day)}", f"last {_all_signed(evidence.last)}"]
    if evidence.week is not None:
        lines.append(f"week {_all_signed(evidence.week)}")
    shift = memory_shift(memory, task)
    return [*lines, f"mid {_all_signed(evidence.mid)}" if shift is None else f"shift {shift_text(shift, task)}"]


def _record_text(record: CallRecord, task: Mapping[str, Any]) -> str:
    content = record.content
    if record.tool in ("catalog", "budget_status"):
        asof = f" as_of {content['as_of']}" if "as_of" in content else ""
        methods = f" methods {' '.join(content['free_methods'])}" if "free_methods" in content else ""
        return f"{record.tool}{asof}{methods} {_rates_text(content['rates'])}"
    if record.tool == "quote_forecast":
        affordable = "" if content["affordable"] else " too dear"
        return f"quote {_request_text(content)}: {content['credits']} credits{affordable}"
    if record.tool == "replay_forecast":
        request = _request_text({**record.arguments, **content})
        steps = content["pinball_loss"] / grid_step(task["contract"]["capacity_grid"])
        return f"replay {request} from {content['origin']}: pinball {steps:.2f} steps"
    if record.tool == "inspect_series":
        return f"inspect {content['count']} h, missing {content['missing_fraction']:g}"
    return f"{record.tool} {canonical_json(dict(record.arguments))}: {json.dumps(dict(content))}"


def _rates_text(rates: Sequence[Mapping[str, Any]]) -> str:
    """Prices by model: `context<=` once, then `horizon<=:credits`."""
    lines: dict[str, list[str]] = {}
    for rate in rates:
        lines.setdefault(f"{rate['model']} c{rate['context_steps']}", []).append(
            f"h{rate['horizon']}:{rate['credits']}"
        )
    return "; ".join(f"{name} {' '.join(prices)}" for name, prices in lines.items())


def _request_text(content: Mapping[str, Any]) -> str:
    return f"{content['model']} h{content['horizon']} c{content['context_steps']}"


def _all_signed(values: Sequence[int]) -> str:
    return " ".join(map(signed, values))
