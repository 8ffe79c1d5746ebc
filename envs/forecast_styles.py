"""Styles of the forecasting prompts: the same stages and rules, at length or in few tokens."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from castgym.envs import forecast_compact_prompts as compact
from castgym.envs import forecast_prompts as full
from castgym.envs.forecast_config import ForecastConfig
from castgym.envs.forecast_prompts import Situation
from castgym.envs.prompt_styles import PromptStyle


@dataclass(frozen=True, slots=True)
class ForecastTexts:
    """How a style writes the parts of a prompt.

    Attributes:
        system: conditions -> role, stages, tool calls.
        task: situation -> sections on the task, by name.
        memory: situation -> sections on the memory, by name.
        instructions: situation -> what to do now.
        chat_instructions: situation -> what to do in a conversation, said once.
        separator: what stands between the sections.
        names_tools: the system text says which tools there are.
    """

    system: Callable[[ForecastConfig], str]
    task: Callable[[Situation], dict[str, str]]
    memory: Callable[[Situation], dict[str, str]]
    instructions: Callable[[Situation], str]
    chat_instructions: Callable[[Situation], str]
    separator: str
    names_tools: bool


FORECAST_TEXTS: Mapping[PromptStyle, ForecastTexts] = MappingProxyType(
    {
        "full": ForecastTexts(
            full.system_text,
            full.task_parts,
            full.memory_parts,
            full.instruction_text,
            full.chat_instruction_text,
            separator="\n\n",
            names_tools=False,
        ),
        "compact": ForecastTexts(
            compact.system_text,
            compact.task_parts,
            compact.memory_parts,
            compact.instruction_text,
            compact.chat_instruction_text,
            separator="\n",
            names_tools=True,
        ),
    }
)
"""The texts of each style."""
