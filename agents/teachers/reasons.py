"""Why the scripted teacher does what it does: short sentences, all of them true of the prompt that it saw.

Each function draws one of several ways to say it. The numbers in them are those of the prompt.
"""

from collections.abc import Sequence

import numpy as np

from castgym.agents.teachers.scripted import one_of
from castgym.envs.block_evidence import BlockEvidence
from castgym.envs.compact_prompts import day_name, lead_days, memory_evidence, signed
from castgym.envs.memory import PlanRecord
from castgym.envs.prompts import Prompt


def base_plan(prompt: Prompt, rng: np.random.Generator) -> str:
    """Why it asks for the free plan of all days."""
    task = prompt.task
    return one_of(
        rng,
        "No plan yet: take the free hourly one.",
        f"{day_name(task)}, lead {lead_days(task)}: a free base plan first.",
        "The hourly plan costs nothing.",
    )


def history(prompt: Prompt, rng: np.random.Generator) -> str:
    """Why it reads the history."""
    ways = ["Compare the last day with the mean.", "Does the level move? Read the history."]
    if prompt.memory.plans:
        ways.append(f"{prompt.memory.plans[0].plan_id} stands; now the recent days.")
    return one_of(rng, *ways)


def weekday_plan(prompt: Prompt, rng: np.random.Generator) -> str:
    """Why it asks for the plan of the target's weekday."""
    day = day_name(prompt.task)
    return one_of(rng, f"{day}: ask for the weekday plan.", f"A {day} is no workday: get its own plan.")


def quote(prompt: Prompt, rng: np.random.Generator) -> str:
    """Why it asks for a price."""
    model = prompt.task["models"][0]
    return one_of(rng, f"What does {model} cost?", f"Ask for the price of {model}.")


def weekday_answer(prompt: Prompt, plan: PlanRecord, rng: np.random.Generator) -> str:
    """Why it takes the plan of the target's weekday."""
    day = day_name(prompt.task)
    return one_of(rng, f"{day}: {plan.plan_id} holds that weekday only.", f"{plan.plan_id} is made of {day} hours.")


def shift_answer(prompt: Prompt, plan: PlanRecord, shift: Sequence[int], rng: np.random.Generator) -> str:
    """Why it moves the base plan by so much, or leaves it."""
    evidence = memory_evidence(prompt.memory, prompt.task)
    name = plan.plan_id
    ways = _price_ways(prompt)
    if evidence is None:
        return one_of(rng, f"No recent days to go by: {name}.", *ways)
    if not any(shift):
        low, high = min(evidence.last), max(evidence.last)
        return one_of(
            rng, f"Last runs from {signed(low)} to {signed(high)}: keep {name}.", f"No move of {name}.", *ways
        )
    level, strongest = f"Day {signed(evidence.day)}", _strongest_block(prompt, evidence, shift)
    if lead_days(prompt.task) < 2:
        return one_of(rng, f"{level}: shift.", f"{strongest}: shift.", *ways)
    # Short, as what is copied into the answer stands before these words: few lengths make copying easy to learn.
    return one_of(rng, f"{level}, a week out: lean up.", f"{strongest}: lean up.", *ways)


def tried_block(prompt: Prompt, block: int, steps: int, rng: np.random.Generator) -> str:
    """Why one block differs from the rule."""
    name = prompt.task["block_ids"][block]
    return one_of(rng, f"Try {name} at {signed(steps)}.", f"A trial: {name} moves {signed(steps)}.")


def _price_ways(prompt: Prompt) -> list[str]:
    """What a quoted price is worth in S, where one was quoted."""
    quotes = [record.content for record in prompt.memory.analysis if record.tool == "quote_forecast"]
    if not quotes:
        return []
    weight, budget = prompt.task["objective"]["cost_weight"], prompt.task["budget"]
    return [f"{quotes[-1]['model']} would cost {weight * quotes[-1]['credits'] / budget:.2f} of S: stay free."]


def _strongest_block(prompt: Prompt, evidence: BlockEvidence, shift: Sequence[int]) -> str:
    block = int(np.argmax(np.abs(shift)))
    return f"{prompt.task['block_ids'][block]} last {signed(evidence.last[block])}"
