"""Styles of the decision benchmark's prompts: the same facts and rules, written at length or in few tokens."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from castgym.envs import compact_prompts, prompts
from castgym.envs.memory import Memory
from castgym.envs.prompts import AnswerForm

PromptStyle = Literal["full", "compact"]


@dataclass(frozen=True, slots=True)
class PromptTexts:
    """How a style writes the three texts of a prompt.

    Attributes:
        system: (task facts, answer form) -> role, rules and answer format.
        task: task facts -> the case.
        memory: (memory, task facts, credits spent) -> the structured memory.
        names_tools: the system text says which tools there are.
    """

    system: Callable[[Mapping[str, Any], AnswerForm], str]
    task: Callable[[Mapping[str, Any]], str]
    memory: Callable[[Memory, Mapping[str, Any], int], str]
    names_tools: bool


PROMPT_TEXTS: Mapping[PromptStyle, PromptTexts] = MappingProxyType(
    {
        "full": PromptTexts(prompts.system_text, prompts.task_text, prompts.memory_text, names_tools=False),
        "compact": PromptTexts(
            compact_prompts.system_text, compact_prompts.task_text, compact_prompts.memory_text, names_tools=True
        ),
    }
)
"""The texts of each style."""
