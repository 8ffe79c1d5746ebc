"""The forecasting prompts in few tokens, for small policies: averages instead of series, stored forecasts by name.

What stands in them is a summary of what `castgym.envs.forecast_prompts` shows at length, never more.
"""

import numpy as np

from castgym.data.schema import FloatArray
from castgym.envs.forecast_config import ForecastConfig
from castgym.envs.forecast_prompts import Situation, digits_text, distinct, error_lines, last_faults, step_text
from castgym.envs.memory import CallRecord
from castgym.tools.forecasting_tools import BACKTEST_TOOL, PREDICTION_TOOL, line_values, timestamp_text

_BLOCKS = 8
_LATEST = 8


def system_text(config: ForecastConfig) -> str:
    """Role, tools, and answer format."""
    lines = [f"Forecast a series in at most {config.max_steps} responses."]
    if config.planning:
        lines.append('Call: <tool_call>{"name": tool, "arguments": {}}</tool_call>, several in one response.')
        if config.analysis_tools:
            lines.append(f"Diagnostic tools: {', '.join(config.analysis_tools)}.")
        lines.append(f'{PREDICTION_TOOL} takes {{"model_name": one of {", ".join(config.models)}}}.')
    if config.refinement:
        lines.append(
            'Answer: <answer>{"forecast": model}</answer> or <answer>{"blend": {model: weight}}</answer>; optional '
            '"scale", "shift".'
        )
    return "\n".join(lines)


def task_parts(situation: Situation) -> dict[str, str]:
    """The task as named sections."""
    window = situation.window
    target = window.history[:, 0]
    parts = {
        "task": (
            f"{window.dataset} {window.channels[0]}, every {step_text(window)}, {window.horizon} steps from "
            f"{timestamp_text(window.origin)}."
        ),
        "history": f"Past {window.length} in {_BLOCKS} means: {_means(target)}; last: {_values(target[-_LATEST:])}",
    }
    if window.known_channels:
        columns = enumerate(window.known_channels)
        parts["known"] = "\n".join(
            f"{name} ahead: {_means(window.known_future[:, column])}" for column, name in columns
        )
    return parts


def memory_parts(situation: Situation) -> dict[str, str]:
    """The memory as named sections."""
    memory, parts = situation.memory, {}
    if memory.analysis:
        parts["analysis"] = "\n".join(["D:", *(_analysis_text(record) for record in distinct(memory.analysis))])
    if memory.predictions:
        parts["predictions"] = "\n".join(["Q:", *(_forecast_text(record) for record in distinct(memory.predictions))])
    if faults := last_faults(memory, situation.step):
        parts["errors"] = "\n".join(["Errors:", *error_lines(faults)])
    return parts


def instruction_text(situation: Situation) -> str:
    """What to do now."""
    config, stage = situation.config, situation.stage
    actions = {
        "preparation": "call diagnostic tools",
        "forecasting": f"call {PREDICTION_TOOL}",
        "refinement": "answer",
        "free": "call tools or answer",
    }
    last = " Last response: answer." if situation.last_step and config.refinement and stage != "refinement" else ""
    return f"Response {situation.step}/{config.max_steps}: {actions[stage]}.{last}"


def chat_instruction_text(situation: Situation) -> str:
    """What to do in a conversation."""
    config = situation.config
    if not config.planning:
        return "Answer."
    steps = [
        *(["call diagnostic tools"] if config.analysis_tools else []),
        f"call {PREDICTION_TOOL}",
        *(["answer"] if config.refinement else []),
    ]
    return f"In turn: {', '.join(steps)}."


def _analysis_text(record: CallRecord) -> str:
    if record.tool == BACKTEST_TOOL:
        mse = record.content["mse"]
        return "backtest MSE " + " ".join(f"{name} {value:.3g}" for name, value in mse.items() if value is not None)
    return " ".join(str(record.content["summary"]).split())


def _forecast_text(record: CallRecord) -> str:
    return f"{record.content['model_name']}: {_means(line_values(record.content['forecast']))}"


def _means(values: FloatArray) -> str:
    """Means of equal blocks, gaps left out."""
    blocks = [block[np.isfinite(block)] for block in np.array_split(values, min(_BLOCKS, len(values)))]
    return " ".join("missing" if not len(block) else digits_text(float(block.mean())) for block in blocks)


def _values(values: FloatArray) -> str:
    return " ".join("missing" if np.isnan(value) else digits_text(float(value)) for value in values)
