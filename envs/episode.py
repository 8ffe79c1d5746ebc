"""The episode: a case, tools with prices, a structured memory and one committed decision.

Everything else (Gymnasium, evaluators, servers) drives an `Episode`. It is deterministic given case and actions, it
holds no target, and its state can be saved at any step and continued in another process.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from castgym.data.errors import ConfigError, DataError
from castgym.data.files import canonical_json, sha256_hex
from castgym.data.schema import Case, CaseSet
from castgym.data.tariff import Tariff
from castgym.envs.answers import read_plan_answer, read_submission
from castgym.envs.memory import CallRecord, Memory
from castgym.envs.messages import Response, sanitised
from castgym.envs.outcomes import OUTCOMES, Outcome
from castgym.envs.prompts import AnswerForm, Prompt, PromptMode, memory_text, system_text, task_facts, task_text
from castgym.envs.scoring import COMBINED, find_objective
from castgym.tools.calls import CallError, ToolCall, parse_response
from castgym.tools.forecasters.pool import ForecasterPool, shared_pool
from castgym.tools.fwbench import FWBenchTools, Plan
from castgym.tools.ledger import Ledger
from castgym.tools.planning.contract import CapacityContract
from castgym.tools.toolbox import Toolbox, ToolResult

MAX_CALLS = 12
"""Tool calls of an episode (protocol, tools)."""

MAX_RESPONSE_TOKENS = 16_384
"""Output tokens of a response (protocol, tools)."""

CHARACTERS_PER_TOKEN = 16
"""No tokenizer in use averages more on any text: a response with more characters is over the token limit for sure."""

MOST_CALLS_READ = 32
"""Calls in one response beyond which it is not even answered call by call."""

FREE_MODELS = ("seasonal_empirical",)
"""Models that the pool `no_tsfm` keeps: they are no time-series foundation models."""

POOLS = ("full", "no_tsfm")


def pool_models(models: Sequence[str], pool: str) -> tuple[str, ...]:
    """The forecasters that a pool sells.

    Args:
        models: those of the case set.
        pool: `full`, or `no_tsfm` to remove the time-series foundation models.

    Raises:
        ConfigError: the pool is unknown.
    """
    if pool not in POOLS:
        raise ConfigError(f"expected pool to be one of {POOLS}, found {pool!r}")
    return tuple(name for name in models if pool == "full" or name in FREE_MODELS)


@dataclass(frozen=True, slots=True)
class EpisodeConfig:
    """Conditions under which an episode runs.

    Attributes:
        sigma: scale of the excess loss in the case's domain, stated in the prompt.
        tariff: rates and budget.
        models: forecasters that may be bought.
        prompt_mode: `memory` or `chat`.
        answer_form: `decisions` (official) or `plan`.
        objective: name of the objective that the prompt states.
        max_calls: tool calls before the budget is exhausted.
        max_response_tokens: tokens of a response; a longer one is cut by whoever generates it and ends the episode.
        count_tokens: counts a response's tokens; without it only a response marked as cut counts as too long.
        toolset: the tools; a subclass of `FWBenchTools` with more of them is no longer the protocol.
    """

    sigma: float
    tariff: Tariff
    models: tuple[str, ...]
    prompt_mode: PromptMode = "memory"
    answer_form: AnswerForm = "decisions"
    objective: str = COMBINED.name
    max_calls: int = MAX_CALLS
    max_response_tokens: int = MAX_RESPONSE_TOKENS
    count_tokens: Callable[[str], int] | None = None
    toolset: type[FWBenchTools] = FWBenchTools

    def __post_init__(self) -> None:
        for name, allowed in (("prompt_mode", PromptMode), ("answer_form", AnswerForm)):
            if getattr(self, name) not in get_args(allowed):
                raise ConfigError(f"expected {name} to be one of {get_args(allowed)}, found {getattr(self, name)!r}")
        find_objective(self.objective)
        for name, least in (("max_calls", 0), ("max_response_tokens", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"expected {name} to be a whole number >= {least}, found {value!r}")

    def describe(self) -> dict[str, Any]:
        """The conditions as JSON, for states and trajectories."""
        return {
            "models": list(self.models),
            "sigma": self.sigma,
            "budget": self.tariff.budget,
            "tariff": sha256_hex(canonical_json(self.tariff.to_json()).encode())[:16],
            "tools": list(self.toolset.tool_names),
            "prompt_mode": self.prompt_mode,
            "answer_form": self.answer_form,
            "objective": self.objective,
            "max_calls": self.max_calls,
            "max_response_tokens": self.max_response_tokens,
        }

    @classmethod
    def of(cls, case_set: CaseSet, case: Case, pool: str = "full", **conditions: Any) -> "EpisodeConfig":
        """The conditions that a case set states for one of its cases.

        Args:
            case_set: sigma, tariff and models.
            case: the case.
            pool: `full`, or `no_tsfm` to remove the time-series foundation models.
            conditions: further fields.

        Raises:
            ConfigError: the pool is unknown.
        """
        return cls(case_set.sigma[case.domain], case_set.tariff, pool_models(case_set.models, pool), **conditions)


@dataclass(frozen=True, slots=True)
class Transition:
    """What an action led to.

    Attributes:
        result: the tool's result, where a tool ran or refused.
        outcome: how the episode ended, `None` while it goes on.
        submission: the committed answer as JSON, `None` where there is none.
        rejection: why the final text was not read as an answer, a named reason.
    """

    result: ToolResult | None = None
    outcome: Outcome | None = None
    submission: Mapping[str, Any] | None = None
    rejection: str | None = None

    @property
    def done(self) -> bool:
        """The episode has ended."""
        return self.outcome is not None


class Episode:
    """One case, from the first prompt to the committed decision.

    Args:
        case: what the agent may know.
        config: conditions.
        pool: forecasters; the process's own by default.
        ledger_path: journal of charges on disk; without it the ledger lives in memory.
    """

    def __init__(
        self, case: Case, config: EpisodeConfig, pool: ForecasterPool | None = None, ledger_path: Path | None = None
    ) -> None:
        self.case = case
        self.config = config
        self.end = Transition()
        self._memory = Memory()
        self._chat: list[str] = []  # each message as JSON: nobody can change it through a prompt
        self._ledger = Ledger(config.tariff, ledger_path)
        self._pool = pool or shared_pool()
        self._task = task_facts(
            case, config.tariff, config.sigma, config.models, config.max_calls, find_objective(config.objective)
        )
        self._system = system_text(self._task, config.answer_form)
        self._task_text = task_text(self._task)
        self._last_plan: str | None = None
        self._toolbox = self._tools()

    @property
    def memory(self) -> Memory:
        """A copy of the structured memory."""
        return self._memory.copy()

    @property
    def spent(self) -> int:
        """Credits charged so far."""
        return self._ledger.spent

    @property
    def done(self) -> bool:
        """The episode has ended."""
        return self.end.done

    def observe(self) -> Prompt:
        """The prompt of the next response."""
        messages: list[Mapping[str, Any]] = [{"role": "system", "content": self._system}]
        if self.config.prompt_mode == "chat":
            messages += [{"role": "user", "content": self._task_text}, *map(json.loads, self._chat)]
        else:
            memory = memory_text(self._memory, self._task, self.spent)
            messages.append({"role": "user", "content": f"{self._task_text}\n\n{memory}"})
        return Prompt(tuple(messages), self._toolbox.schemas, self._task, self.memory)

    def act(self, response: Response, *, truncated: bool = False) -> Transition:
        """Take a response: run its tool call, or commit its answer.

        Args:
            response: text, an OpenAI chat message, or one structured call.
            truncated: the response was cut at the token limit.

        Returns:
            What happened. What the policy did wrong is part of it and never an exception.

        Raises:
            ConfigError: the episode has ended.
            InfrastructureError: a forecaster's package or weights are missing; nothing was charged.
        """
        if self.done:
            raise ConfigError(f"the episode of {self.case.case_id} has ended ({self.end.outcome}): start another")
        if isinstance(response, ToolCall) and response.call_id is None:
            response = replace(response, call_id=f"call_{len(self._memory.calls)}")
        message = sanitised(response)
        if truncated or (message is not None and self._too_long(message)):
            return self._finish(Transition(outcome="truncated"))
        if message is None:
            fault = CallError("malformed_message", "expected JSON without deep nesting and huge numbers")
            return self._call((), (fault,), {"role": "assistant", "content": "(an unreadable message)"})
        if isinstance(response, ToolCall):
            return self._call((response,), (), message)
        parsed = parse_response(str(message["content"]) if isinstance(response, str) else message)
        if len(parsed.calls) + len(parsed.errors) > MOST_CALLS_READ:
            fault = CallError("malformed_message", f"found more than {MOST_CALLS_READ} calls in one response")
            return self._call((), (fault,), {"role": "assistant", "content": "(an unreadable message)"})
        return self._commit(parsed.text) if parsed.is_answer else self._call(parsed.calls, parsed.errors, message)

    def state(self) -> dict[str, Any]:
        """Everything that a later process needs to continue, as JSON."""
        return {
            "case_id": self.case.case_id,
            "case": self.case.digest,
            "conditions": self.config.describe(),
            "memory": self._memory.to_json(),
            "chat": [json.loads(message) for message in self._chat],
            "charges": self._ledger.to_json(),
            "end": {
                "outcome": self.end.outcome,
                "submission": self.end.submission,
                "rejection": self.end.rejection,
            },
        }

    @classmethod
    def from_state(
        cls,
        state: Mapping[str, Any],
        case: Case,
        config: EpisodeConfig,
        pool: ForecasterPool | None = None,
        ledger_path: Path | None = None,
    ) -> "Episode":
        """Continue a saved episode.

        Raises:
            DataError: the state is damaged, or belongs to another case or other conditions.
        """
        try:
            if (state["case_id"], state["case"]) != (case.case_id, case.digest):
                raise DataError(f"the state belongs to case {state['case_id']} of other content, not to {case.case_id}")
            if state["conditions"] != config.describe():
                raise DataError(f"the state was saved under {state['conditions']}, not under {config.describe()}")
            episode = cls(case, config, pool)
            episode._memory = Memory.from_json(state["memory"])
            episode._chat = [json.dumps(message) for message in state["chat"]]
            episode._ledger = Ledger.from_json(config.tariff, state["charges"], ledger_path)
            episode.end = Transition(**state["end"])
            paid = sum(call.credits for call in episode._memory.calls)
            for plan in episode._memory.plans:
                CapacityContract.of(case).submission(plan.grid_index)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"not a saved episode: {error!r}") from error
        if paid > episode.spent or episode.end.outcome not in (None, *OUTCOMES):
            raise DataError(f"not a saved episode: its calls cost {paid} credits, its charges say {episode.spent}")
        episode._toolbox = episode._tools()
        return episode

    def fork(self) -> "Episode":
        """An independent copy at this step, for branching rollouts. Its ledger lives in memory."""
        return Episode.from_state(self.state(), self.case, self.config, self._pool)

    def _call(self, calls: Sequence[ToolCall], errors: Sequence[Any], message: dict[str, Any]) -> Transition:
        if len(self._memory.calls) >= self.config.max_calls:
            return self._finish(Transition(outcome="budget_exhausted", rejection="call_limit_exceeded"))
        spent, self._last_plan = self.spent, None
        if errors:
            result = _fault(errors[0].kind, errors[0].detail)
        elif len(calls) > 1:
            result = _fault("parallel_calls", f"expected one tool call in a response, found {len(calls)}; none was run")
        else:
            result = self._toolbox.call(calls[0].name, calls[0].arguments)
        record = CallRecord(
            result.tool, result.arguments, result.content, result.error, self.spent - spent, self._last_plan
        )
        self._memory.calls.append(record)
        self._extend_chat(message, calls, errors, result)
        return Transition(result=result)

    def _extend_chat(
        self, message: dict[str, Any], calls: Sequence[ToolCall], errors: Sequence[Any], result: ToolResult
    ) -> None:
        """Append the response as it was and an answer to each of its calls."""
        self._chat.append(json.dumps({**message, "role": "assistant"}))
        ids = [item.call_id for item in (*calls, *errors) if item.call_id is not None] or [None]
        for call_id in ids:
            reply: dict[str, Any] = {"role": "tool", "content": json.dumps(result.content)}
            if call_id is not None:
                reply["tool_call_id"] = call_id
            self._chat.append(json.dumps(reply))

    def _commit(self, text: str) -> Transition:
        contract = CapacityContract.of(self.case)
        submission: Mapping[str, Any] | None
        rejection: str | None
        if self.config.answer_form == "decisions":
            submission, _, rejection = read_submission(text, contract.block_ids)
        else:
            submission, rejection = self._read_plan(text, contract)
        if submission is None:
            return self._finish(Transition(outcome="invalid_submission", rejection=rejection))
        plan, fault, _ = contract.read_plan(submission)
        outcome: Outcome = "completed" if plan is not None else "invalid_submission"
        return self._finish(Transition(outcome=outcome, submission=submission, rejection=fault))

    def _read_plan(self, text: str, contract: CapacityContract) -> tuple[Mapping[str, Any] | None, str | None]:
        known = [plan.plan_id for plan in self._memory.plans]
        answer, rejection = read_plan_answer(text, known, contract.block_ids)
        if answer is None:
            return None, rejection
        index = list(self._memory.plan(answer.plan).grid_index)
        for name, steps in answer.adjust.items():
            index[contract.block_ids.index(name)] += steps
        if not all(0 <= value < len(contract.terms.grid) for value in index):
            return None, "off_grid"
        return contract.submission(index), None

    def _finish(self, end: Transition) -> Transition:
        self.end = end
        return end

    def _tools(self) -> Toolbox:
        return self.config.toolset(self.case, self._ledger, self._pool, self.config.models, self._keep_plan).toolbox()

    def _keep_plan(self, plan: Plan) -> str:
        self._last_plan = self._memory.remember_plan(plan)
        return self._last_plan

    def _too_long(self, message: Mapping[str, Any]) -> bool:
        if message.get("finish_reason") == "length":
            return True
        limit = self.config.max_response_tokens
        calls = message.get("tool_calls")
        text = str(message.get("content") or "") + (json.dumps(calls) if calls else "")
        if len(text) > limit * CHARACTERS_PER_TOKEN:
            return True
        return self.config.count_tokens is not None and self.config.count_tokens(text) > limit


def _fault(kind: str, message: str) -> ToolResult:
    """The result of a call that could not be read or that broke the rule of one call a response."""
    return ToolResult("", {}, {"error": kind, "message": message}, kind)
