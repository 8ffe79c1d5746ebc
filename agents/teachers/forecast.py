"""The scripted teacher of the forecasting episodes (Cast-R1's stages: diagnose, forecast, answer).

Its rule was worked out on training windows only (`docs/teachers.md`): look at the diagnostics and, where the episode
has them, at backtests; let the two forecasters run that did best on the recent past, or two of any where nothing is
known; answer with a blend in which the one that did best counts twice. A blend is rarely much worse than the better of
the two, and often better than both.

It reads what its prompts show: the memory, the stage and the names of tools.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from castgym.agents.rendering import response_text
from castgym.agents.teachers.scripted import ScriptedTeacher, one_of
from castgym.envs.adjusted_answers import answer_text
from castgym.envs.forecast_episode import stored_forecasts
from castgym.envs.prompts import Prompt
from castgym.tools.calls import ToolCall
from castgym.tools.forecasting_tools import BACKTEST_TOOL, PREDICTION_TOOL, decimals_of, number_text

COMPARED = 2
"""Forecasters that run in one episode."""

CLEARLY_WORSE = 2.0
"""A forecaster whose backtest error is so many times the best one's is not blended with it."""

_BEST_COUNTS = 2
_MINUTES_A_DAY = 1440


class ForecastTeacher(ScriptedTeacher):
    """Plays windows by a fixed rule, with exploration, and says why in a few true words.

    Args:
        exploration: chance of each deviation from the rule: a diagnostic left out, a forecaster drawn at random, one
            forecast taken alone.
        seed: base of the seeds that `act` derives from the window and the turn.

    Raises:
        ConfigError: a setting is wrong.
    """

    name = "scripted_forecaster"

    def _say(self, prompt: Prompt, rng: np.random.Generator) -> str:
        task, memory = prompt.task, prompt.memory
        must_answer = task["step"] >= task["max_steps"]
        if task["analysis_tools"] and not memory.analysis and not memory.predictions and not must_answer:
            return self._diagnose(task["analysis_tools"], rng)
        untried = [name for name in task["models"] if name not in _tried_models(prompt)]
        if untried and not memory.predictions and not must_answer:
            return self._forecast(prompt, untried, rng)
        return self._answer(prompt, rng)

    def _diagnose(self, tools: Sequence[str], rng: np.random.Generator) -> str:
        chosen = [name for name in tools if name == BACKTEST_TOOL or not self._explores(rng)] or list(tools[:1])
        why = one_of(
            rng,
            f"Nothing is known yet: {len(chosen)} of {len(tools)} tools.",
            "First the shape of the series.",
            "Look at level, season and noise.",
        )
        return _calls(why, [ToolCall(name, {}) for name in chosen])

    def _forecast(self, prompt: Prompt, untried: Sequence[str], rng: np.random.Generator) -> str:
        errors = {name: error for name, error in backtest_errors(prompt).items() if name in untried}
        if self._explores(rng) or not errors:
            order = [untried[index] for index in rng.permutation(len(untried))]
            why = one_of(rng, f"Compare {' and '.join(order[:COMPARED])}.", f"Try {order[0]} first.")
        else:
            order = sorted(errors, key=lambda name: errors[name])
            best = order[0]
            order = [name for name in order if errors[name] <= CLEARLY_WORSE * errors[best]]
            why = one_of(
                rng, f"{best} had the least backtest MSE, {errors[best]:.3g}.", f"Backtests favour {order[0]}."
            )
        return _calls(why, [ToolCall(PREDICTION_TOOL, {"model_name": name}) for name in order[:COMPARED]])

    def _answer(self, prompt: Prompt, rng: np.random.Generator) -> str:
        weights = blend_weights(prompt)
        names = list(weights)
        if len(names) > 1 and self._explores(rng):
            names = [names[int(rng.integers(len(names)))]]
            weights = dict.fromkeys(names, 1)
        if not names:
            why = "No forecast is stored: repeat the last day."
        elif len(names) == 1:
            why = one_of(rng, f"{names[0]} as it is.", f"Take {names[0]}.")
        else:
            lead = max(weights, key=lambda name: weights[name])
            ways = [f"Blend {' and '.join(names)}.", f"{len(names)} forecasts stand: blend them."]
            ways += [f"{lead} did best lately: it counts twice."] if weights[lead] == _BEST_COUNTS else []
            why = one_of(rng, *ways)
        if prompt.task["answer_form"] == "forecast":
            answer = answer_text(names[0]) if len(names) == 1 else answer_text(blend=weights)
        else:
            answer = _lines_text(prompt, weights)
        return f"<think>{why}</think>\n{answer}"


def backtest_errors(prompt: Prompt) -> Mapping[str, float]:
    """MSE of each forecaster on recent horizons, as far as a backtest stands in memory."""
    records = [record.content for record in prompt.memory.analysis if record.tool == BACKTEST_TOOL]
    return {name: float(error) for name, error in records[-1]["mse"].items() if error is not None} if records else {}


def blend_weights(prompt: Prompt) -> dict[str, int]:
    """Weight of each stored forecast: 2 for the one with the least backtest error, 1 for the others."""
    stored, errors = stored_forecasts(prompt.memory), backtest_errors(prompt)
    known = [name for name in stored if name in errors]
    best = min(known, key=lambda name: errors[name]) if known else None
    return {name: _BEST_COUNTS if name == best else 1 for name in stored}


def _tried_models(prompt: Prompt) -> set[str]:
    return {str(record.arguments.get("model_name")) for record in prompt.memory.calls if record.tool == PREDICTION_TOOL}


def _calls(why: str, calls: Sequence[ToolCall]) -> str:
    return "\n".join([f"<think>{why}</think>", *(response_text(call) for call in calls)])


def _lines_text(prompt: Prompt, weights: Mapping[str, int]) -> str:
    """The answer as `timestamp value` lines: a blend of forecasts, or the last day repeated where there is none."""
    task, stored = prompt.task, stored_forecasts(prompt.memory)
    history = np.array([np.nan if value is None else value for value in task["history"][task["target"]]])
    if weights:
        values = np.average([stored[name] for name in weights], axis=0, weights=list(weights.values()))
    else:
        known = np.where(np.isfinite(history), history, np.nanmean(history))
        season = min(len(known), max(1, _MINUTES_A_DAY // int(task["step_minutes"])))
        values = known[len(known) - season + np.arange(task["horizon"]) % season]
    decimals = decimals_of(history)
    stamps = task["horizon_timestamps"]
    lines = [f"{stamp} {number_text(float(value), decimals)}" for stamp, value in zip(stamps, values, strict=True)]
    return "\n".join(["<answer>", *lines, "</answer>"])
