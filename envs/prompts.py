"""Prompts of the decision benchmark, in two modes.

`memory` builds one user message anew at each step from the task and the structured memory (Cast-R1's way);
`chat` appends every response and result to the conversation (FWBench's published harness). Both start from the
same two texts, and neither ever cuts anything.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from castgym.data.contract import TARGET_HOURS
from castgym.data.schema import Case
from castgym.data.tariff import Tariff
from castgym.envs.memory import CallRecord, Memory, PlanRecord
from castgym.envs.scoring import Objective
from castgym.tools.planning.contract import CapacityContract

PromptMode = Literal["memory", "chat"]
AnswerForm = Literal["decisions", "plan"]


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a policy sees before it acts.

    Attributes:
        messages: chat messages, OpenAI format.
        tools: schemas of the tools that may be called now, OpenAI function format.
        task: the facts of the task as JSON, for policies that are programs.
        memory: a copy of the episode's memory, for policies that are programs.
        tools_in_text: the messages already say which tools there are and how to call them, so that a chat template
            need not render `tools` again.
        sizes: size of each part of the prompt and their sum under `total`, where the episode measures them.
    """

    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...]
    task: Mapping[str, Any]
    memory: Memory
    tools_in_text: bool = False
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def template_tools(self) -> tuple[Mapping[str, Any], ...]:
        """The schemas that a chat template has to render: none where the messages describe the tools."""
        return () if self.tools_in_text else self.tools

    @property
    def text(self) -> str:
        """All messages as one text, each under its role, and before them the tools that may be called."""
        parts = ["[tools]", *(json.dumps(tool["function"]) for tool in self.template_tools)]
        for message in self.messages:
            parts += ["", f"[{message['role']}]", _message_text(message)]
        return "\n".join(parts)


def task_facts(
    case: Case, tariff: Tariff, sigma: float, models: Sequence[str], max_calls: int, objective: Objective
) -> dict[str, Any]:
    """Everything that an agent is told about its task, as JSON. Nothing in it depends on the target's demand."""
    contract = CapacityContract.of(case)
    return {
        "case_id": case.case_id,
        "series_id": case.series_id,
        "unit": case.unit,
        "as_of": case.as_of.isoformat(),
        "last_visible": case.last_visible.isoformat(),
        "target_start": case.target_start.isoformat(),
        "target_end": case.target_end.isoformat(),
        "expected_horizon": case.expected_horizon,
        "contract": contract.to_json(),
        "block_ids": list(contract.block_ids),
        "sigma": sigma,
        "budget": tariff.budget,
        "models": list(models),
        "max_calls": max_calls,
        "objective": {"loss_weight": objective.loss_weight, "cost_weight": objective.cost_weight},
    }


def system_text(task: Mapping[str, Any], answer_form: AnswerForm) -> str:
    """Role, rules and answer format: the same for every case with the same contract form and limits."""
    return (
        "You decide the capacity of one day from past hourly demand. You may look at the data, get free plans, and buy "
        "forecasts that cost credits; then you commit one plan.\n"
        f"Rules: call at most one tool in a response and at most {task['max_calls']} tools in all. The first response "
        "without a tool call is your final answer. A further call, or no answer, counts as an invalid plan, which "
        "costs more than the worst valid one.\n" + _answer_text(task, answer_form)
    )


def task_text(task: Mapping[str, Any]) -> str:
    """The case: times, blocks, contract and objective."""
    contract = task["contract"]
    hours = TARGET_HOURS // len(task["block_ids"])
    unit, scale = task["unit"], contract["scale"]
    shown = [f"{round(value, 6):.10g}" for value in contract["capacity_grid"]]
    blocks = ", ".join(
        f"{name} hours {number * hours}-{(number + 1) * hours}" for number, name in enumerate(task["block_ids"])
    )
    lines = [
        f"Series {task['series_id']} ({unit}), hourly, times label the start of an hour (UTC).",
        f"Decision time {task['as_of']}; last visible hour {task['last_visible']}.",
        f"Target day {task['target_start']} to {task['target_end']} (exclusive); forecast steps to its end: "
        f"{task['expected_horizon']}.",
        f"Blocks of {hours} h from the target's start: {blocks}.",
        f"Allowed capacities ({unit}): {', '.join(shown)}.",
        f"Neighbouring blocks may differ by at most {round(contract['ramp'] * scale, 6):.10g} {unit} "
        f"({contract['ramp']:g} of the scale {round(scale, 6):.10g}, the mean of the visible history).",
        _loss_text(contract),
        _objective_text(task),
    ]
    return "\n".join(lines)


def memory_text(memory: Memory, task: Mapping[str, Any], spent: int) -> str:
    """The structured memory: calls and credits used, analysis D, predictions Q, plans, the last error."""
    parts = {
        "Analysis": [_record_text(record) for record in memory.analysis if record.plan_id is None],
        "Predictions": [_record_text(record) for record in memory.predictions if record.plan_id is None],
        "Plans": [_plan_text(plan, task) for plan in memory.plans],
    }
    lines = [f"Calls used: {len(memory.calls)} of {task['max_calls']}. Credits spent: {spent} of {task['budget']}."]
    for name, entries in parts.items():
        # An empty part is shown, so that a policy can tell it from a missing one.
        lines += [f"{name} so far:", *entries] if entries else [f"{name} so far: none"]
    if memory.last_error is not None:
        lines.append(f"Your last call failed: {json.dumps(memory.last_error.content)}")
    return "\n".join([*lines, "Call a tool, or give your final answer."])


def _answer_text(task: Mapping[str, Any], answer_form: AnswerForm) -> str:
    if answer_form == "plan":
        return (
            'Final answer: JSON {"plan": "<id of a plan you were given>"}, where you may add '
            '"adjust": {"<block>": <steps>} to move blocks up or down by whole steps of the allowed capacities.'
        )
    example = ", ".join(f'{{"id": "{name}", "action": <capacity>}}' for name in task["block_ids"][:2])
    return (
        f'Final answer: JSON {{"decisions": [{example}, ...]}} with every block exactly once and only allowed '
        "capacities, in physical units, with the digits as they are listed (a value that is off by more than 0.000001 "
        "is invalid)."
    )


def _loss_text(contract: Mapping[str, Any]) -> str:
    weights = contract["hourly_priority"]
    spans: list[str] = []
    start = 0
    for hour in range(1, TARGET_HOURS + 1):
        if hour == TARGET_HOURS or weights[hour] != weights[start]:
            spans.append(f"{weights[start]:g} in hours {start}-{hour}")
            start = hour
    paid = "unused capacity" if contract["billing"] == "imbalance" else "all capacity"
    text = (
        f"Loss: the mean over {TARGET_HOURS} h, in units of the scale, of {contract['reservation']:g} x {paid} "
        f"+ {contract['shortage']:g} x weight x unmet demand; weights: {', '.join(spans)}."
    )
    if contract["emergency"] > 0:
        text += (
            f" Unmet demand beyond {contract['emergency_buffer']:g} of the scale costs "
            f"{contract['emergency']:g} x weight more."
        )
    if contract["adjustment"] > 0:
        text += (
            f" Each change between neighbouring blocks costs {contract['adjustment']:g} / {TARGET_HOURS} x its size."
        )
    return text


def _objective_text(task: Mapping[str, Any]) -> str:
    """The objective; the floor of the loss is left out, as in the paper: a constant that needs unseen demand."""
    weights = task["objective"]
    loss = f"{weights['loss_weight']:g} x loss / {task['sigma']:.6g}"
    if weights["cost_weight"] == 0:
        return f"Objective: minimise S = {loss}. Credits do not count, but no more than {task['budget']} can be spent."
    return f"Objective: minimise S = {loss} + {weights['cost_weight']:g} x credits spent / {task['budget']}."


def _record_text(record: CallRecord) -> str:
    arguments = ", ".join(f"{name}={json.dumps(value)}" for name, value in record.arguments.items())
    return f"- {record.tool}({arguments}): {json.dumps(record.content)}"


def _plan_text(plan: PlanRecord, task: Mapping[str, Any]) -> str:
    grid = task["contract"]["capacity_grid"]
    capacities = (f"{round(grid[index], 6):.10g}" for index in plan.grid_index)
    pairs = ", ".join(f"{name}={value}" for name, value in zip(task["block_ids"], capacities, strict=True))
    return (
        f"- {plan.plan_id} from {plan.source}: expected loss {plan.expected_loss:.5f}, {plan.credits} credits: {pairs}"
    )


def _message_text(message: Mapping[str, Any]) -> str:
    calls = message.get("tool_calls")
    text = str(message.get("content") or "")
    return text if not calls else f"{text}\n{json.dumps(calls)}".strip()
