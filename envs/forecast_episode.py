"""The forecasting episode of Cast-R1: a window, diagnostics, a pool of forecasters, stages, one committed forecast."""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from castgym.data.schema import FloatArray
from castgym.data.windows import MINUTE, Window
from castgym.envs.adjusted_answers import read_adjusted
from castgym.envs.core import AgentEpisode, Transition, fault_result
from castgym.envs.forecast_answers import canonical_timestamp, has_answer_tag, read_forecast
from castgym.envs.forecast_config import ForecastConfig, Stage
from castgym.envs.forecast_prompts import Situation, distinct
from castgym.envs.forecast_styles import FORECAST_TEXTS
from castgym.envs.memory import CallRecord, Memory
from castgym.envs.outcomes import Outcome
from castgym.envs.prompt_size import measured_parts
from castgym.envs.prompts import Prompt
from castgym.tools.calls import CallError, ParsedResponse, ToolCall
from castgym.tools.forecasters.window_pool import WindowForecasterPool, shared_window_pool
from castgym.tools.forecasting_tools import (
    PREDICTION_TOOL,
    ForecastingTools,
    PastWindow,
    horizon_timestamps,
    line_values,
)
from castgym.tools.toolbox import ToolResult

_MOST_THREADS = 8


class ForecastEpisode(AgentEpisode):
    """One window, from the first prompt to the committed forecast.

    The stage follows from the memory: preparation (no analysis), forecasting (no forecast), refinement and output
    (Cast-R1, Appendix C.3). A call that the stage forbids, an unknown tool, a broken call and a response that neither
    calls nor answers cost a response and are explained in the next prompt. The first response with an `<answer>` tag
    and without a call is the final answer, in every stage.

    Args:
        window: what the agent may know.
        config: conditions.
        pool: forecasters; the process's own by default.
        past: recent windows for backtests, latest first.

    Raises:
        DataError: a past window reaches beyond the origin.
    """

    def __init__(
        self,
        window: Window,
        config: ForecastConfig,
        pool: WindowForecasterPool | None = None,
        past: Sequence[PastWindow] = (),
    ) -> None:
        super().__init__(config)
        self.window = window
        self.config = config
        self._pool = pool or shared_window_pool()
        self._past = tuple(past)
        self._notes = {name: self._pool.info(name).notes for name in config.models}
        self._texts = FORECAST_TEXTS[config.prompt_style]
        budget = config.summary_budget or 0
        self._toolbox = ForecastingTools(window, self._pool, config.models, self._past, budget).toolbox(config.tools)
        self._schemas = dict(zip(config.tools, self._with_models(), strict=True))

    @property
    def subject_id(self) -> str:
        """The window's id."""
        return self.window.window_id

    @property
    def subject_digest(self) -> str:
        """The window's content hash."""
        return self.window.digest

    @property
    def spent(self) -> int:
        """Nothing has a price here."""
        return 0

    @property
    def stage(self) -> Stage:
        """The stage that the memory is in."""
        return self.config.stage(self._memory)

    @property
    def tools(self) -> tuple[Mapping[str, Any], ...]:
        """Schemas of all tools of the episode, whatever the stage permits now."""
        return tuple(copy.deepcopy(list(self._schemas.values())))

    @property
    def useful_steps(self) -> int:
        """Responses that added a result to the memory; a repeated call adds none."""
        found = [*self._memory.analysis, *self._memory.predictions]
        return len({record.step for record in distinct(found)} - {0})

    def observe(self) -> Prompt:
        """The prompt of the next response.

        Raises:
            PromptTooLongError: it exceeds the limit.
            InfrastructureError: planning is off, and the forecaster that runs before the first prompt is missing.
        """
        self._run_plan()
        situation = self._situation()
        chat = self.config.prompt_mode == "chat"
        names = self.config.tools if chat and self.config.planning else self.config.permitted(self.stage)
        tools = tuple(copy.deepcopy(self._schemas[name]) for name in names)
        in_text = self._texts.names_tools
        parts = {
            "system": self._texts.system(self.config),
            "tools": "" if in_text else "\n".join(json.dumps(tool["function"]) for tool in tools),
            **self._first_parts(situation),
        }
        messages: list[Mapping[str, Any]] = [{"role": "system", "content": parts["system"]}]
        body = [text for name, text in parts.items() if name not in ("system", "tools") and text]
        messages.append({"role": "user", "content": self._texts.separator.join(body)})
        if chat:
            messages += [json.loads(message) for message in self._chat]
            parts["conversation"] = "".join(self._chat)
        sizes = measured_parts(parts, self.config.max_prompt_size, self.config.count_tokens)
        return Prompt(tuple(messages), tools, self._task(), self.memory, tools_in_text=in_text, sizes=sizes)

    @classmethod
    def from_state(
        cls,
        state: Mapping[str, Any],
        window: Window,
        config: ForecastConfig,
        pool: WindowForecasterPool | None = None,
        past: Sequence[PastWindow] = (),
    ) -> "ForecastEpisode":
        """Continue a saved episode.

        Raises:
            DataError: the state is damaged, or belongs to another window or other conditions.
        """
        episode = cls(window, config, pool, past)
        episode._restore(state)
        return episode

    def fork(self) -> "ForecastEpisode":
        """An independent copy at this step, for branching rollouts."""
        return ForecastEpisode.from_state(self.state(), self.window, self.config, self._pool, self._past)

    def stored_forecasts(self) -> dict[str, FloatArray]:
        """Forecasts in memory by model, shape (H,) each, raw scale."""
        return stored_forecasts(self._memory)

    def _call(self, calls: Sequence[ToolCall], errors: Sequence[CallError], message: Mapping[str, Any]) -> Transition:
        self._run_plan()
        permitted = self.config.permitted(self.stage)
        results = [
            *_parallel([self._task_of(call, permitted) for call in calls]),
            *(fault_result(error.kind, error.detail) for error in errors),
        ]
        return self._remember(results, calls, errors, message)

    def _commit(self, parsed: ParsedResponse, message: Mapping[str, Any]) -> Transition:
        self._run_plan()
        if not has_answer_tag(parsed.text):
            fault = fault_result(
                "no_action",
                "expected tool calls in <tool_call>...</tool_call>"
                if not self.config.refinement
                else "expected tool calls in <tool_call>...</tool_call>, or a final answer in <answer>...</answer>, "
                "outside of <think>...</think>",
            )
            return self._remember([fault], (), (), message)
        if not self.config.refinement:
            fault = fault_result("stage_forbids_answer", "the first stored forecast is the answer; call a tool")
            return self._remember([fault], (), (), message)
        if self.config.answer_form == "forecast":
            answer = read_adjusted(parsed.text, self.stored_forecasts())
            return self._end(answer.values, answer.rejection, ())
        read = read_forecast(parsed.text, horizon_timestamps(self.window))
        return self._end(read.values, read.rejection, read.timestamps)

    def _end(self, values: Sequence[float] | None, rejection: str | None, timestamps: Sequence[str]) -> Transition:
        """Commit what was read: complete with a value for each step of the horizon, whatever follows them."""
        submission: dict[str, Any] | None = None
        if values is not None:
            submission = {"values": [float(value) for value in values]}
            horizon = [canonical_timestamp(stamp) for stamp in horizon_timestamps(self.window)]
            if timestamps and list(timestamps) != horizon:
                submission["timestamps"] = list(timestamps)
        complete = values is not None and len(values) == self.window.horizon
        outcome: Outcome = "completed" if complete else "invalid_submission"
        return self._finish(Transition((), outcome, submission, None if complete else rejection))

    def _remember(
        self,
        results: Sequence[ToolResult],
        calls: Sequence[ToolCall],
        errors: Sequence[CallError],
        message: Mapping[str, Any],
    ) -> Transition:
        step = self._turns + 1
        for result in results:
            record = CallRecord(result.tool, result.arguments, result.content, result.error, step=step)
            self._memory.calls.append(record)
        self._extend_chat(message, calls, errors, [result.content for result in results])
        if not self.config.refinement and (stored := self.stored_forecasts()):
            first = next(iter(stored.values())).tolist()
            return self._finish(Transition(tuple(results), "completed", {"values": first}))
        if step >= self.config.max_steps:
            return self._finish(Transition(tuple(results), "budget_exhausted", rejection="step_limit_exceeded"))
        return Transition(tuple(results))

    def _task_of(self, call: ToolCall, permitted: Sequence[str]) -> Callable[[], ToolResult]:
        """What is to be run for a call: the tool, or the refusal of one that the stage forbids."""
        if call.name in self.config.tools and call.name not in permitted:
            allowed = ", ".join(permitted) or "none"
            content = {
                "error": "stage_forbids_tool",
                "message": f"the {self.stage} stage does not permit {call.name}; permitted tools: {allowed}",
            }
            refusal = ToolResult(call.name, call.arguments, content, "stage_forbids_tool")
            return lambda: refusal
        return lambda: self._toolbox.call(call.name, call.arguments)

    def _run_plan(self) -> None:
        """Without planning: run all diagnostics and the first forecaster, once, before the first response."""
        if self.config.planning or self._memory.calls:
            return
        plan = [ToolCall(name, {}) for name in self.config.analysis_tools]
        plan.append(ToolCall(PREDICTION_TOOL, {"model_name": self.config.models[0]}))
        for result in _parallel([self._task_of(call, self.config.tools) for call in plan]):
            self._memory.calls.append(CallRecord(result.tool, result.arguments, result.content, result.error))

    def _situation(self) -> Situation:
        memory = self._memory
        return Situation(self.window, self.config, self._notes, memory, self.stage, self._turns + 1)

    def _first_parts(self, situation: Situation) -> dict[str, str]:
        """The sections of the user message: all that there is in memory mode, the task alone in a conversation."""
        if self.config.prompt_mode == "memory":
            return {
                **self._texts.task(situation),
                **self._texts.memory(situation),
                "instructions": self._texts.instructions(situation),
            }
        planned = Memory([record for record in self._memory.calls if record.step == 0])
        first = Situation(self.window, self.config, self._notes, planned, self.config.stage(planned), 1)
        return {
            **self._texts.task(first),
            **(self._texts.memory(first) if planned.calls else {}),
            "instructions": self._texts.chat_instructions(first),
        }

    def _with_models(self) -> list[Mapping[str, Any]]:
        """The tools' schemas, with the forecasters of this episode as the values of `model_name`."""
        schemas: list[Mapping[str, Any]] = []
        for schema in map(copy.deepcopy, self._toolbox.schemas):
            properties = schema["function"]["parameters"].get("properties", {})
            if "model_name" in properties:
                properties["model_name"]["enum"] = list(self.config.models)
            schemas.append(schema)
        return schemas

    def _task(self) -> dict[str, Any]:
        """The facts of the task as JSON, for policies that are programs. Nothing in it depends on the truth."""
        window, config = self.window, self.config
        return {
            "window_id": window.window_id,
            "dataset": window.dataset,
            "origin": window.origin.isoformat(),
            "step_minutes": window.step // MINUTE,
            "length": window.length,
            "horizon": window.horizon,
            "horizon_timestamps": horizon_timestamps(window),
            "target": window.channels[0],
            "unit": window.unit,
            "channels": list(window.channels),
            "known_channels": list(window.known_channels),
            "history": _columns(window.channels, window.history),
            "known_future": _columns(window.known_channels, window.known_future),
            "context": window.context,
            "models": list(config.models),
            "analysis_tools": list(config.analysis_tools),
            "answer_form": config.answer_form,
            "max_steps": config.max_steps,
            "step": self._turns + 1,
            "stage": self.stage,
            "parallel_calls": True,
        }


def stored_forecasts(memory: Memory) -> dict[str, FloatArray]:
    """Forecasts in a memory by model, shape (H,) each, in the order in which they were stored."""
    return {str(record.content["model_name"]): line_values(record.content["forecast"]) for record in memory.predictions}


def _parallel(tasks: Sequence[Callable[[], ToolResult]]) -> list[ToolResult]:
    """Results in the order of the tasks; a fault of the infrastructure in one is raised after all have ended."""
    if len(tasks) < 2:
        return [task() for task in tasks]
    with ThreadPoolExecutor(min(len(tasks), _MOST_THREADS)) as threads:
        return list(threads.map(lambda task: task(), tasks))


def _columns(names: Sequence[str], values: FloatArray) -> dict[str, list[float | None]]:
    """Values of each channel, `None` where missing."""
    return {
        name: [None if value != value else value for value in values[:, column].tolist()]
        for column, name in enumerate(names)
    }
