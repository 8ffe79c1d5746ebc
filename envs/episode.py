"""The decision episode: a case, tools with prices, a structured memory and one committed plan."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from castgym.data.errors import ConfigError, DataError
from castgym.data.files import canonical_json, sha256_hex
from castgym.data.schema import Case, CaseSet
from castgym.data.tariff import Tariff
from castgym.envs.answers import read_plan_answer, read_submission
from castgym.envs.core import MAX_RESPONSE_TOKENS, AgentEpisode, Transition, fault_result
from castgym.envs.memory import CallRecord
from castgym.envs.outcomes import Outcome
from castgym.envs.prompt_styles import PROMPT_TEXTS, PromptStyle
from castgym.envs.prompts import AnswerForm, Prompt, PromptMode, task_facts
from castgym.envs.scoring import COMBINED, find_objective
from castgym.tools.calls import CallError, ParsedResponse, ToolCall
from castgym.tools.forecasters.pool import ForecasterPool, shared_pool
from castgym.tools.fwbench import FWBenchTools, Plan
from castgym.tools.ledger import Ledger
from castgym.tools.planning.contract import CapacityContract
from castgym.tools.toolbox import Toolbox

MAX_CALLS = 12
"""Tool calls of an episode (protocol, tools)."""

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
        prompt_style: `full`, or `compact` for small policies: the same facts in few tokens.
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
    prompt_style: PromptStyle = "full"
    objective: str = COMBINED.name
    max_calls: int = MAX_CALLS
    max_response_tokens: int = MAX_RESPONSE_TOKENS
    count_tokens: Callable[[str], int] | None = None
    toolset: type[FWBenchTools] = FWBenchTools

    def __post_init__(self) -> None:
        for name, allowed in (
            ("prompt_mode", PromptMode),
            ("answer_form", AnswerForm),
            ("prompt_style", PromptStyle),
        ):
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
            "prompt_style": self.prompt_style,
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


class Episode(AgentEpisode):
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
        super().__init__(config)
        self.case = case
        self.config = config
        self._ledger = Ledger(config.tariff, ledger_path)
        self._pool = pool or shared_pool()
        task = task_facts(
            case, config.tariff, config.sigma, config.models, config.max_calls, find_objective(config.objective)
        )
        self._task_json = json.dumps(task)  # as text: nobody can change it through a prompt
        self._texts = PROMPT_TEXTS[config.prompt_style]
        self._system = self._texts.system(task, config.answer_form)
        self._task_text = self._texts.task(task)
        self._last_plan: str | None = None
        self._toolbox = self._tools()

    @property
    def subject_id(self) -> str:
        """The case's id."""
        return self.case.case_id

    @property
    def subject_digest(self) -> str:
        """The case's content hash."""
        return self.case.digest

    @property
    def spent(self) -> int:
        """Credits charged so far."""
        return self._ledger.spent

    def observe(self) -> Prompt:
        """The prompt of the next response."""
        task = json.loads(self._task_json)
        messages: list[Mapping[str, Any]] = [{"role": "system", "content": self._system}]
        if self.config.prompt_mode == "chat":
            messages += [{"role": "user", "content": self._task_text}, *map(json.loads, self._chat)]
        else:
            memory = self._texts.memory(self._memory, task, self.spent)
            messages.append({"role": "user", "content": f"{self._task_text}\n\n{memory}"})
        return Prompt(tuple(messages), self._toolbox.schemas, task, self.memory, tools_in_text=self._texts.names_tools)

    def state(self) -> dict[str, Any]:
        """Everything that a later process needs to continue, as JSON."""
        return {**super().state(), "charges": self._ledger.to_json()}

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
        episode = cls(case, config, pool)
        episode._restore(state)
        try:
            episode._ledger = Ledger.from_json(config.tariff, state["charges"], ledger_path)
            paid = sum(call.credits for call in episode._memory.calls)
            for plan in episode._memory.plans:
                CapacityContract.of(case).submission(plan.grid_index)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"not a saved episode: {error!r}") from error
        if paid > episode.spent:
            raise DataError(f"not a saved episode: its calls cost {paid} credits, its charges say {episode.spent}")
        episode._toolbox = episode._tools()
        return episode

    def fork(self) -> "Episode":
        """An independent copy at this step, for branching rollouts. Its ledger lives in memory."""
        return Episode.from_state(self.state(), self.case, self.config, self._pool)

    def _call(self, calls: Sequence[ToolCall], errors: Sequence[CallError], message: Mapping[str, Any]) -> Transition:
        if len(self._memory.calls) >= self.config.max_calls:
            return self._finish(Transition(outcome="budget_exhausted", rejection="call_limit_exceeded"))
        spent, self._last_plan = self.spent, None
        if errors:
            result = fault_result(errors[0].kind, errors[0].detail)
        elif len(calls) > 1:
            result = fault_result(
                "parallel_calls", f"expected one tool call in a response, found {len(calls)}; none was run"
            )
        else:
            result = self._toolbox.call(calls[0].name, calls[0].arguments)
        record = CallRecord(
            result.tool,
            result.arguments,
            result.content,
            result.error,
            self.spent - spent,
            self._last_plan,
            self._turns + 1,
        )
        self._memory.calls.append(record)
        self._extend_chat(message, calls, errors, (result.content,))
        return Transition((result,))

    def _commit(self, parsed: ParsedResponse, message: Mapping[str, Any]) -> Transition:
        del message
        contract = CapacityContract.of(self.case)
        submission: Mapping[str, Any] | None
        rejection: str | None
        if self.config.answer_form == "decisions":
            submission, _, rejection = read_submission(parsed.text, contract.block_ids)
        else:
            submission, rejection = self._read_plan(parsed.text, contract)
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

    def _tools(self) -> Toolbox:
        tools = self.config.toolset(self.case, self._ledger, self._pool, self.config.models, self._keep_plan)
        return tools.toolbox(name_series=self.config.prompt_style == "full")

    def _keep_plan(self, plan: Plan) -> str:
        self._last_plan = self._memory.remember_plan(plan)
        return self._last_plan
