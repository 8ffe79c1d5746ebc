"""Conditions of a forecasting episode: limits, prompts, and the paper's ablations as switches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from castgym.data.errors import ConfigError
from castgym.envs.core import MAX_RESPONSE_TOKENS
from castgym.envs.memory import Memory
from castgym.envs.prompt_styles import PromptStyle
from castgym.envs.prompts import PromptMode
from castgym.tools.diagnostics import SUMMARY_BUDGET
from castgym.tools.forecasters.window_pool import CAST_R1_MODELS
from castgym.tools.forecasting_tools import BACKTEST_TOOL, DIAGNOSTIC_TOOLS, PREDICTION_TOOL

Stage = Literal["preparation", "forecasting", "refinement", "free"]
"""What the memory asks for next (Cast-R1, Appendix C.3); `free` where stages are switched off."""

ForecastAnswerForm = Literal["values", "forecast"]

MAX_STEPS = 5
"""Responses of an episode, K_max; the published runs use 3."""

RECENT_STEPS = 48
"""Observations that the refinement prompt shows."""

COMPACT_SUMMARY_BUDGET = 100
"""Default length of a diagnostic's summary in compact prompts, characters."""

_FLAGS = ("planning", "refinement", "stages")


@dataclass(frozen=True, slots=True)
class ForecastConfig:
    """Conditions under which a forecasting episode runs.

    Attributes:
        models: forecasters that may be run; empty for "w/o Prediction" (Table 3), one left out for Table 11.
        diagnostics: diagnostic tools; empty for "w/o Features" (Table 3), one left out for Table 10.
        planning: the policy chooses diagnostics and forecaster. Without it (Table 12) the environment runs all
            diagnostics and the first of `models`, and the episode begins with the refinement.
        refinement: the policy may revise what a forecaster returned. Without it (Table 12) the first forecast that is
            stored is the answer.
        stages: each stage permits its own actions only. Without it all tools and the answer are permitted at any time.
        prompt_mode: `memory`, or `chat` for "w/o Memory" (Figure 3a): the plain history of responses and results.
        prompt_style: `full`, or `compact` for small policies: rounded averages instead of series.
        answer_form: `values`: a line for each step; `forecast`: the name of a stored forecast with simple adjustments,
            castgym's own and never compared with the paper.
        backtests: past horizons on which the tool `backtest_forecasters` measures the forecasters; 0 for no such
            tool, as in the paper.
        max_steps: responses before the episode ends, K_max.
        recent_steps: observations that the refinement prompt shows.
        summary_budget: most characters of a diagnostic's summary; 600 by default, 100 in compact prompts.
        max_prompt_size: largest prompt, in tokens where `count_tokens` is given, else in characters; a longer one
            raises `PromptTooLongError`.
        max_response_tokens: tokens of a response; a longer one is cut by whoever generates it and ends the episode.
        count_tokens: counts tokens of a text.
    """

    models: tuple[str, ...] = CAST_R1_MODELS
    diagnostics: tuple[str, ...] = DIAGNOSTIC_TOOLS
    planning: bool = True
    refinement: bool = True
    stages: bool = True
    prompt_mode: PromptMode = "memory"
    prompt_style: PromptStyle = "full"
    answer_form: ForecastAnswerForm = "values"
    backtests: int = 0
    max_steps: int = MAX_STEPS
    recent_steps: int = RECENT_STEPS
    summary_budget: int | None = None
    max_prompt_size: int | None = None
    max_response_tokens: int = MAX_RESPONSE_TOKENS
    count_tokens: Callable[[str], int] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "models", _names("models", self.models))
        object.__setattr__(self, "diagnostics", _names("diagnostics", self.diagnostics))
        if unknown := [name for name in self.diagnostics if name not in DIAGNOSTIC_TOOLS]:
            raise ConfigError(f"expected diagnostics of {', '.join(DIAGNOSTIC_TOOLS)}, found {', '.join(unknown)}")
        for name, allowed in (
            ("prompt_mode", PromptMode),
            ("prompt_style", PromptStyle),
            ("answer_form", ForecastAnswerForm),
        ):
            if getattr(self, name) not in get_args(allowed):
                raise ConfigError(f"expected {name} to be one of {get_args(allowed)}, found {getattr(self, name)!r}")
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"expected {name} to be true or false, found {getattr(self, name)!r}")
        for name, least in (
            ("backtests", 0),
            ("max_steps", 1),
            ("recent_steps", 1),
            ("max_response_tokens", 1),
        ):
            _check_whole(name, getattr(self, name), least)
        if self.max_prompt_size is not None:
            _check_whole("max_prompt_size", self.max_prompt_size, 1)
        if self.summary_budget is None:
            budget = SUMMARY_BUDGET if self.prompt_style == "full" else COMPACT_SUMMARY_BUDGET
            object.__setattr__(self, "summary_budget", budget)
        _check_whole("summary_budget", self.summary_budget, 0)
        self._check_combinations()

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of all tools of the episode."""
        return (*self.analysis_tools, *((PREDICTION_TOOL,) if self.models else ()))

    @property
    def analysis_tools(self) -> tuple[str, ...]:
        """Names of the tools whose results are the analysis history D."""
        return (*self.diagnostics, *((BACKTEST_TOOL,) if self.backtests else ()))

    def stage(self, memory: Memory) -> Stage:
        """The stage that a memory is in (Cast-R1, Appendix C.3)."""
        if not self.stages:
            return "free"
        if not self.planning:
            return "refinement"
        if self.analysis_tools and not memory.analysis:
            return "preparation"
        return "forecasting" if self.models and not memory.predictions else "refinement"

    def permitted(self, stage: Stage) -> tuple[str, ...]:
        """Names of the tools that a stage permits."""
        if stage == "free":
            return self.tools
        if stage == "preparation":
            return self.analysis_tools
        return (PREDICTION_TOOL,) if stage == "forecasting" else ()

    def describe(self) -> dict[str, Any]:
        """The conditions as JSON, for states and trajectories."""
        return {
            "models": list(self.models),
            "diagnostics": list(self.diagnostics),
            **{name: getattr(self, name) for name in _FLAGS},
            "prompt_mode": self.prompt_mode,
            "prompt_style": self.prompt_style,
            "answer_form": self.answer_form,
            "backtests": self.backtests,
            "max_steps": self.max_steps,
            "recent_steps": self.recent_steps,
            "summary_budget": self.summary_budget,
            "max_prompt_size": self.max_prompt_size,
            "max_response_tokens": self.max_response_tokens,
        }

    def _check_combinations(self) -> None:
        if not (self.planning or self.refinement):
            raise ConfigError("without planning and without refinement nothing is left to decide: keep one of them")
        if not self.models and (not self.planning or not self.refinement or self.answer_form == "forecast"):
            raise ConfigError(
                "without models there is no forecast to plan with, to commit or to name: expected planning, refinement "
                "and answer_form='values' where models is empty"
            )
        if self.prompt_style == "compact" and self.answer_form != "forecast":
            raise ConfigError(
                "compact prompts show averages, from which no line for each step can be written: expected "
                "answer_form='forecast' with prompt_style='compact'"
            )
        if self.backtests and not self.models:
            raise ConfigError("expected models where backtests are asked for, found none")
        if not self.stages and not (self.planning and self.refinement):
            raise ConfigError("planning and refinement are stages: switch off either those or stages")


def _names(what: str, names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"expected {what} as a sequence of names, found {names!r}")
    if len(set(names)) < len(names):
        raise ConfigError(f"expected each of {what} once, found {', '.join(names)}")
    return tuple(names)


def _check_whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"expected {name} to be a whole number >= {least}, found {value!r}")
