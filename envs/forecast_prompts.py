"""Prompts of the forecasting episode at length (Cast-R1, Appendices C.2 to C.4, in our own words).

`memory` mode builds one user message anew at each step from the window and the memory: the whole history until a
forecast is stored, then the latest observations with analysis and forecasts. `chat` mode states everything once and
appends the conversation. Nothing is ever cut.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from castgym.data.schema import FloatArray
from castgym.data.windows import MINUTE, Window
from castgym.envs.forecast_config import ForecastConfig, Stage
from castgym.envs.memory import CallRecord, Memory
from castgym.tools.forecasting_tools import (
    BACKTEST_TOOL,
    DIAGNOSTIC_TOOLS,
    PREDICTION_TOOL,
    decimals_of,
    horizon_timestamps,
    number_text,
    timestamp_text,
)

MOST_ERRORS_SHOWN = 4
"""Faults of the last response that the next prompt spells out; further ones are counted."""

_COVARIATE_DIGITS = 3


@dataclass(frozen=True, slots=True)
class Situation:
    """What a prompt is built from.

    Attributes:
        window: what the agent may know.
        config: conditions.
        notes: description of each forecaster by name.
        memory: what was found so far.
        stage: what the memory asks for.
        step: number of the response that is asked for, from 1.
    """

    window: Window
    config: ForecastConfig
    notes: Mapping[str, str]
    memory: Memory
    stage: Stage
    step: int

    @property
    def last_step(self) -> bool:
        """No response follows this one."""
        return self.step >= self.config.max_steps


def system_text(config: ForecastConfig) -> str:
    """Role, stages, tool calls and answer format: the same for all windows under the same conditions."""
    lines = ["You forecast a time series: study its history with tools, then give the values of the horizon."]
    if config.stages and len(stages := _stage_list(config)) > 1:
        lines += ["The work has these stages, and each permits its own actions only:", *stages]
    if config.prompt_mode == "memory":
        lines.append(
            "Every prompt is written anew and shows the task and all results so far, not your earlier responses."
        )
    lines.append(f"You have at most {config.max_steps} responses; without a final answer among them you fail.")
    if config.tools and config.planning:
        lines.append(
            'Call a tool with <tool_call>{"name": "<tool>", "arguments": {...}}</tool_call>. Independent calls may '
            "stand in one response; they run in parallel."
        )
    return "\n".join(lines)


def task_parts(situation: Situation) -> dict[str, str]:
    """The task as named sections: facts, history, and what is known over the horizon."""
    window = situation.window
    recent = situation.stage == "refinement" and bool(situation.memory.predictions)
    if recent and situation.config.prompt_mode == "memory":
        # Of the covariates only those that are known ahead: the others cannot be compared with the horizon.
        history = _history_text(window, min(situation.config.recent_steps, window.length), window.known_channels)
    else:
        history = _history_text(window, window.length, window.channels[1:])
    parts = {"task": _task_text(situation), "history": history}
    if window.known_channels:
        parts["known"] = _known_text(window)
    return parts


def memory_parts(situation: Situation) -> dict[str, str]:
    """The memory as named sections: analysis history D, prediction results Q, faults of the last response."""
    memory, parts = situation.memory, {}
    if situation.config.analysis_tools and situation.stage != "preparation":
        entries = [f"[{record.tool}]\n{_analysis_text(record)}" for record in distinct(memory.analysis)]
        parts["analysis"] = "\n".join(["## Analysis History", *(entries or ["(empty)"])])
    if situation.config.models and (memory.predictions or situation.stage in ("refinement", "free")):
        entries = [_forecast_text(record) for record in distinct(memory.predictions)]
        parts["predictions"] = "\n".join(["## Prediction Results", *(entries or ["(empty)"])])
    if faults := last_faults(memory, situation.step):
        parts["errors"] = "\n".join(["## Errors of your last response", *error_lines(faults)])
    return parts


def instruction_text(situation: Situation) -> str:
    """What to do now: the stage, what it permits, and the form of the answer where it may be given."""
    config, stage = situation.config, situation.stage
    lines = [f"## Now: response {situation.step} of at most {config.max_steps}"]
    if stage == "preparation":
        lines += [
            "Stage: preparation. Call the diagnostic tools that help to understand this series, all of them in this "
            "one response; their results become the Analysis History. No other action is permitted yet. Tools: "
            f"{', '.join(config.permitted(stage))}."
        ]
    elif stage == "forecasting":
        lines += [
            "Stage: forecasting. "
            + (
                "Use the Analysis History to choose the forecaster that suits this series"
                if config.analysis_tools
                else "Choose the forecaster that suits this series"
            )
            + f" and call {PREDICTION_TOOL} with its name as model_name, or several in this one response to compare "
            "them. No other tool is permitted now.",
            *_forecaster_list(situation),
        ]
        if not config.refinement:
            lines.append("The first forecast that is stored is your final answer.")
    else:
        lines += _refinement_lines(situation)
    if situation.last_step and config.refinement and stage != "refinement":
        lines.append("This is your last response: only a final answer counts now.")
        lines += answer_lines(situation)
    return "\n".join(lines)


def chat_instruction_text(situation: Situation) -> str:
    """The instructions of all stages at once, for a conversation that is never rewritten."""
    config = situation.config
    lines = ["## What to do"]
    if not config.planning:
        return "\n".join([*lines, *_refinement_lines(situation)])
    if config.analysis_tools:
        lines.append(f"First call diagnostic tools, all in one response: {', '.join(config.analysis_tools)}.")
    if config.models:
        lines.append(f"{'Then call' if config.analysis_tools else 'Call'} {PREDICTION_TOOL} with the best forecaster.")
        lines += _forecaster_list(situation)
    if not config.refinement:
        return "\n".join([*lines, "The first forecast that is stored is your final answer."])
    return "\n".join([*lines, "At the end review the forecast and answer.", *_review_lines(situation)])


def answer_lines(situation: Situation) -> list[str]:
    """Form of the final answer."""
    if situation.config.answer_form == "forecast":
        return [
            'Final answer: <think>your reasoning</think><answer>{"forecast": "<model_name of a stored forecast>"}'
            '</answer>, where "blend": {"<model_name>": <weight>, ...} may stand instead of "forecast", and you '
            'may add "scale": <factor of the deviations from the forecast\'s mean> and "shift": <added to all values>.'
        ]
    stamps = horizon_timestamps(situation.window)
    return [
        f"Final answer: <think>your reasoning</think><answer>...</answer> and nothing else. Between the answer tags "
        f"write {len(stamps)} lines `timestamp value`, one for each step of the horizon in order, such as",
        "<answer>",
        *(f"{stamp} <value>" for stamp in stamps[:2]),
        "..." if len(stamps) > 3 else "",
        f"{stamps[-1]} <value>",
        "</answer>",
    ]


def distinct(records: Sequence[CallRecord]) -> list[CallRecord]:
    """Records without repetitions of a call: a result enters D or Q once."""
    found: dict[str, CallRecord] = {}
    for record in records:
        found.setdefault(json.dumps([record.tool, record.content], sort_keys=True), record)
    return list(found.values())


def last_faults(memory: Memory, step: int) -> list[CallRecord]:
    """What went wrong in the response before this step."""
    return [record for record in memory.calls if record.error is not None and record.step == step - 1]


def error_lines(faults: Sequence[CallRecord]) -> list[str]:
    """A line for each fault, the first ones spelled out."""
    lines = [
        f"- {record.tool + ': ' if record.tool else ''}{record.error}: {record.content.get('message', '')}"
        for record in faults[:MOST_ERRORS_SHOWN]
    ]
    more = len(faults) - len(lines)
    return [*lines, f"- and {more} more"] if more > 0 else lines


def step_text(window: Window) -> str:
    """Time between steps in words."""
    minutes = window.step // MINUTE
    if minutes % 60:
        return f"{minutes} minutes"
    return "hour" if minutes == 60 else f"{minutes // 60} hours"


def _stage_list(config: ForecastConfig) -> list[str]:
    stages = []
    if config.planning and config.analysis_tools:
        stages.append("Preparation: diagnostic tools only. Their results are kept as the Analysis History.")
    if config.planning and config.models:
        stages.append(f"Forecasting: {PREDICTION_TOOL} only. Its forecasts are kept as the Prediction Results.")
    if config.refinement:
        stages.append("Refinement and output: no tools. Review the evidence, revise where needed, and answer.")
    return [f"{number}. {text}" for number, text in enumerate(stages, start=1)]


def _task_text(situation: Situation) -> str:
    window = situation.window
    unit = f" ({window.unit})" if window.unit else ""
    times = horizon_timestamps(window)
    lines = [
        "## Task",
        f"Data set {window.dataset}, one value every {step_text(window)}. Target: {window.channels[0]}{unit}.",
        f"Forecast the next {window.horizon} values of the target, from {times[0]} to {times[-1]}.",
    ]
    past = [name for name in window.channels[1:] if name not in window.known_channels]
    if past:
        lines.append(f"Covariates, known up to the last observation: {', '.join(past)}.")
    if window.known_channels:
        lines.append(f"Covariates, known over the horizon too: {', '.join(window.known_channels)}.")
    return "\n".join([*lines, window.context] if window.context else lines)


def _history_text(window: Window, steps: int, covariates: Sequence[str]) -> str:
    target = window.history[-steps:, 0]
    decimals = decimals_of(window.history[:, 0])
    title = f"## History: all {steps} observations" if steps == window.length else f"## Latest {steps} observations"
    lines = [f"{title} of {window.channels[0]}, oldest first"]
    lines += [
        f"{timestamp_text(time)} {number_text(float(value), decimals)}"
        for time, value in zip(window.history_times[-steps:], target, strict=True)
    ]
    if covariates:
        lines.append("Covariates at the same times, three digits:")
        lines += [
            f"{name}: {_series_text(window.history[-steps:, window.channels.index(name)])}" for name in covariates
        ]
    return "\n".join(lines)


def _known_text(window: Window) -> str:
    lines = ["## Known over the horizon, one value for each step, three digits"]
    for column, name in enumerate(window.known_channels):
        lines.append(f"{name}: {_series_text(window.known_future[:, column])}")
    return "\n".join(lines)


def _series_text(values: FloatArray) -> str:
    return " ".join("missing" if np.isnan(value) else digits_text(float(value)) for value in values)


def digits_text(value: float, digits: int = _COVARIATE_DIGITS) -> str:
    """A number in so many significant digits, in plain decimals where that is short."""
    return f"{float(f'{value:.{digits}g}') + 0.0:.12g}"


def _analysis_text(record: CallRecord) -> str:
    if record.tool in DIAGNOSTIC_TOOLS:
        return str(record.content["summary"])
    if record.tool == BACKTEST_TOOL:
        return backtest_text(record)
    return json.dumps(record.content)


def backtest_text(record: CallRecord) -> str:
    """Errors of the forecasters on the recent past, a line each."""
    content = record.content
    lines = [f"Errors on the latest {content['horizons']} x {content['steps']} steps before the origin:"]
    for name, mse in content["mse"].items():
        lines.append(f"{name}: failed" if mse is None else f"{name}: MSE {mse:g}, MAE {content['mae'][name]:g}")
    return "\n".join(lines)


def _forecast_text(record: CallRecord) -> str:
    return "\n".join([f"[{record.content['model_name']}]", *record.content["forecast"]])


def _forecaster_list(situation: Situation) -> list[str]:
    return ["Forecasters:", *(f"- {name}: {situation.notes[name]}" for name in situation.config.models)]


def _refinement_lines(situation: Situation) -> list[str]:
    config, stage = situation.config, situation.stage
    if stage == "free":
        lines = [f"Call tools ({', '.join(config.tools)}) or give the final answer." if config.tools else "Answer."]
        lines += _forecaster_list(situation) if config.models else []
    else:
        lines = ["Stage: refinement and output. No tool is permitted now: review, then give the final answer."]
    return [*lines, *_review_lines(situation)]


def _review_lines(situation: Situation) -> list[str]:
    lines = []
    if situation.config.models:
        lines.append(
            "Compare the forecast with the history, the context and the analysis: level at the start, daily shape, "
            "trend, peaks. Keep what is plausible and revise only what the evidence speaks against."
        )
    if situation.window.context:
        lines.append("Negative prices can be valid market outcomes: a negative value alone is no reason to revise it.")
    return [*lines, *answer_lines(situation)]
