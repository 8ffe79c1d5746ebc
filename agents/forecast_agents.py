"""Scripted agents of the forecasting episode: fixed rules that see what a language model sees, and nothing else.

They diagnose, run forecasters and answer in the episode's own text format, so that their responses can also teach.
Their evidence on the forecasters is the result of `backtest_forecasters`, which an environment offers with
`backtests=1` or more.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from castgym.agents.base import Policy
from castgym.agents.rendering import response_text
from castgym.data.errors import ConfigError
from castgym.data.schema import FloatArray
from castgym.envs.adjusted_answers import answer_text
from castgym.envs.forecast_episode import stored_forecasts
from castgym.envs.messages import Response
from castgym.envs.prompts import Prompt
from castgym.tools.calls import ToolCall
from castgym.tools.forecasting_tools import BACKTEST_TOOL, PREDICTION_TOOL, decimals_of, value_lines


class ForecastAgent(Policy):
    """Calls all diagnostics, runs the forecasters of its plan, and answers with their weighted mean.

    A forecaster that fails is left out; where none of the plan is left, the next one that the episode offers runs.
    """

    @abstractmethod
    def weights(self, prompt: Prompt) -> Mapping[str, float]:
        """What the answer is made of: weights of forecasters, positive, from the evidence in the prompt."""

    def act(self, prompt: Prompt) -> Response:
        """The next response."""
        task, memory = prompt.task, prompt.memory
        stage, stored = task["stage"], stored_forecasts(memory)
        if stage == "preparation" or (stage == "free" and task["analysis_tools"] and not memory.analysis):
            return _calls("I look at the history first.", [(name, {}) for name in task["analysis_tools"]])
        plan = {name: weight for name, weight in self.weights(prompt).items() if weight > 0}
        if stage in ("forecasting", "free") and not stored:
            wanted = [name for name in plan if name not in _failed(prompt)]
            wanted = wanted or [name for name in task["models"] if name not in _failed(prompt)][:1]
            if wanted:
                thought = f"{self.reason(prompt)} I run {', '.join(wanted)}."
                return _calls(thought, [(PREDICTION_TOOL, {"model_name": name}) for name in wanted])
        known = {name: plan[name] for name in plan if name in stored} or dict.fromkeys(list(stored)[:1], 1.0)
        return _answer(prompt, known, stored)

    def reason(self, prompt: Prompt) -> str:
        """The evidence in a sentence."""
        errors = backtest_errors(prompt)
        if not errors:
            return "Nothing tells the forecasters apart."
        return f"Recent MSE: {', '.join(f'{name} {error:.4g}' for name, error in errors.items())}."


class FixedForecaster(ForecastAgent):
    """Always the same forecaster, never revised: the single forecasters as agents.

    Args:
        model: a forecaster.
    """

    def __init__(self, model: str) -> None:
        self.name = f"fixed_{model}"
        self.model = model
        self.requires = (model,)

    def weights(self, prompt: Prompt) -> Mapping[str, float]:
        """The one forecaster.

        Raises:
            ConfigError: the episode does not offer it.
        """
        if self.model not in prompt.task["models"]:
            raise ConfigError(f"{self.name} needs the forecaster {self.model}: offered are {prompt.task['models']}")
        return {self.model: 1.0}


class BacktestRouter(ForecastAgent):
    """The forecaster with the least MSE on the recent past, without refinement; the first one without evidence."""

    name = "route_by_backtest"

    def weights(self, prompt: Prompt) -> Mapping[str, float]:
        """The best forecaster alone; of equal ones the one that is offered first."""
        errors = backtest_errors(prompt)
        return {min(errors, key=lambda name: errors[name]) if errors else prompt.task["models"][0]: 1.0}


class BacktestBlend(ForecastAgent):
    """Refines by a fixed rule: the mean of all forecasters, weighted by 1 / MSE on the recent past.

    Bates and Granger (1969), without correlations; all equal without evidence.
    """

    name = "blend_by_backtest"

    def weights(self, prompt: Prompt) -> Mapping[str, float]:
        """Inverse errors, relative to the best; an error of 0 takes all."""
        errors = backtest_errors(prompt)
        if not errors:
            return dict.fromkeys(prompt.task["models"], 1.0)
        best = min(errors.values())
        return {name: best / error if error > 0 else 1.0 for name, error in errors.items()}


class EqualBlend(ForecastAgent):
    """The plain mean of all forecasters: what blending gains without evidence."""

    name = "blend_equal"

    def weights(self, prompt: Prompt) -> Mapping[str, float]:
        """Equal weights."""
        return dict.fromkeys(prompt.task["models"], 1.0)


def forecast_agents(models: Sequence[str]) -> dict[str, ForecastAgent]:
    """Every scripted agent by name, for the forecasters on offer."""
    agents: list[ForecastAgent] = [FixedForecaster(model) for model in models]
    agents += [BacktestRouter(), BacktestBlend(), EqualBlend()]
    return {agent.name: agent for agent in agents}


def backtest_errors(prompt: Prompt) -> dict[str, float]:
    """MSE of each forecaster on the recent past, without those that failed; empty where it was not measured."""
    for record in prompt.memory.analysis:
        if record.tool == BACKTEST_TOOL:
            return {name: float(error) for name, error in record.content["mse"].items() if error is not None}
    return {}


def _failed(prompt: Prompt) -> set[str]:
    calls = prompt.memory.calls
    return {str(call.arguments.get("model_name")) for call in calls if call.tool == PREDICTION_TOOL and call.error}


def _calls(thought: str, calls: Sequence[tuple[str, Mapping[str, str]]]) -> str:
    markup = [response_text(ToolCall(name, arguments)) for name, arguments in calls]
    return "\n".join([f"<think>{thought}</think>", *markup])


def _answer(prompt: Prompt, weights: Mapping[str, float], stored: Mapping[str, FloatArray]) -> str:
    """The final answer in the form that the episode asks for."""
    task, names = prompt.task, list(weights)
    thought = f"<think>I answer with {names[0]}.</think>" if len(names) == 1 else "<think>I blend them.</think>"
    if not names:
        # Without any forecast the last known value has to do.
        last = [value for value in task["history"][task["target"]] if value is not None][-1]
        values = np.full(task["horizon"], last)
    elif task["answer_form"] == "forecast":
        shares = {name: round(weight, 4) for name, weight in weights.items()}
        return thought + (answer_text(names[0]) if len(names) == 1 else answer_text(blend=shares))
    else:
        total = sum(weights.values())
        values = np.sum([weight / total * stored[name] for name, weight in weights.items()], axis=0)
    history = np.array(task["history"][task["target"]], dtype=np.float64)
    lines = value_lines(task["horizon_timestamps"], values, decimals_of(history))
    return "\n".join([f"{thought}<answer>", *lines, "</answer>"])
