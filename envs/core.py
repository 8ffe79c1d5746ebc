"""What every episode is: prompts out, responses in, a memory between, and one committed answer at the end.

Everything else (Gymnasium, evaluators, trainers, servers) drives an `AgentEpisode`. It is deterministic given its
subject (a case, a window), its conditions and the responses; it holds no truth; and its state can be saved at any step
and continued in another process.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from castgym.data.errors import ConfigError, DataError
from castgym.envs.memory import Memory
from castgym.envs.messages import Response, sanitised
from castgym.envs.outcomes import OUTCOMES, Outcome
from castgym.envs.prompts import Prompt, PromptMode
from castgym.tools.calls import CallError, ParsedResponse, ToolCall, parse_response
from castgym.tools.toolbox import ToolResult

MAX_RESPONSE_TOKENS = 16_384
"""Output tokens of a response (FWBench protocol, tools)."""

CHARACTERS_PER_TOKEN = 16
"""No tokenizer in use averages more on any text: a response with more characters is over the token limit for sure."""

MOST_CALLS_READ = 32
"""Calls in one response beyond which it is not even answered call by call."""


class Conditions(Protocol):
    """Conditions under which an episode runs: what all kinds of episodes share."""

    @property
    def prompt_mode(self) -> PromptMode:
        """`memory` or `chat`."""
        ...

    @property
    def max_response_tokens(self) -> int:
        """Tokens of a response; a longer one is cut by whoever generates it and ends the episode."""
        ...

    @property
    def count_tokens(self) -> Callable[[str], int] | None:
        """Counts a response's tokens; without it only a response marked as cut, or a huge one, counts as too long."""
        ...

    def describe(self) -> dict[str, Any]:
        """The conditions as JSON, for states and trajectories."""
        ...


@dataclass(frozen=True, slots=True)
class Transition:
    """What an action led to.

    Attributes:
        results: the tools' results, where tools ran or refused, in the order of the calls.
        outcome: how the episode ended, `None` while it goes on.
        submission: the committed answer as JSON, `None` where there is none.
        rejection: why the final text was not read as an answer, a named reason.
    """

    results: tuple[ToolResult, ...] = ()
    outcome: Outcome | None = None
    submission: Mapping[str, Any] | None = None
    rejection: str | None = None

    @property
    def done(self) -> bool:
        """The episode has ended."""
        return self.outcome is not None

    @property
    def result(self) -> ToolResult | None:
        """The first result that is a fault, else the last one; `None` where no tool was called."""
        faults = [result for result in self.results if not result.ok]
        return faults[0] if faults else self.results[-1] if self.results else None

    def ending(self) -> dict[str, Any]:
        """How the episode ended, as JSON."""
        return {"outcome": self.outcome, "submission": self.submission, "rejection": self.rejection}


class AgentEpisode(ABC):
    """One subject, from the first prompt to the committed answer.

    A kind of episode says what its subject is, what its prompts are, which calls it runs and how it reads an answer.

    Args:
        conditions: limits and prompt mode.
    """

    def __init__(self, conditions: Conditions) -> None:
        self._conditions = conditions
        self.end = Transition()
        self._memory = Memory()
        self._chat: list[str] = []  # each message as JSON: nobody can change it through a prompt
        self._turns = 0

    @property
    @abstractmethod
    def subject_id(self) -> str:
        """Id of the case or window."""

    @property
    @abstractmethod
    def subject_digest(self) -> str:
        """Content hash of the case or window."""

    @property
    @abstractmethod
    def spent(self) -> int:
        """Credits charged so far; 0 where nothing has a price."""

    @abstractmethod
    def observe(self) -> Prompt:
        """The prompt of the next response."""

    @abstractmethod
    def _call(self, calls: Sequence[ToolCall], errors: Sequence[CallError], message: Mapping[str, Any]) -> Transition:
        """Run or refuse the calls of a response."""

    @abstractmethod
    def _commit(self, parsed: ParsedResponse, message: Mapping[str, Any]) -> Transition:
        """Read a response without calls as the final answer; `message` is the response as it was."""

    @property
    def conditions(self) -> Conditions:
        """Conditions of the episode."""
        return self._conditions

    @property
    def memory(self) -> Memory:
        """A copy of the structured memory."""
        return self._memory.copy()

    @property
    def turns(self) -> int:
        """Responses taken so far."""
        return self._turns

    @property
    def done(self) -> bool:
        """The episode has ended."""
        return self.end.done

    def act(self, response: Response, *, truncated: bool = False) -> Transition:
        """Take a response: run its tool calls, or commit its answer.

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
            raise ConfigError(f"the episode of {self.subject_id} has ended ({self.end.outcome}): start another")
        if isinstance(response, ToolCall) and response.call_id is None:
            response = replace(response, call_id=f"call_{len(self._memory.calls)}")
        message = sanitised(response)
        transition = self._take(response, message, truncated)
        self._turns += 1  # only now: a fault of the infrastructure leaves the episode as it was
        return transition

    def state(self) -> dict[str, Any]:
        """Everything that a later process needs to continue, as JSON."""
        return {
            "subject_id": self.subject_id,
            "subject": self.subject_digest,
            "conditions": self._conditions.describe(),
            "memory": self._memory.to_json(),
            "chat": [json.loads(message) for message in self._chat],
            "turns": self._turns,
            "end": self.end.ending(),
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` wrote.

        Raises:
            DataError: the state is damaged, or belongs to another subject or other conditions.
        """
        try:
            if (state["subject_id"], state["subject"]) != (self.subject_id, self.subject_digest):
                raise DataError(
                    f"the state belongs to {state['subject_id']} of other content, not to {self.subject_id}"
                )
            if state["conditions"] != self._conditions.describe():
                raise DataError(
                    f"the state was saved under {state['conditions']}, not under {self._conditions.describe()}"
                )
            self._memory = Memory.from_json(state["memory"])
            self._chat = [json.dumps(message) for message in state["chat"]]
            self._turns = int(state["turns"])
            self.end = Transition(**state["end"])
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"not a saved episode: {error!r}") from error
        if self.end.outcome not in (None, *OUTCOMES):
            raise DataError(f"not a saved episode: it ended as {self.end.outcome!r}")

    def _take(self, response: Response, message: dict[str, Any] | None, truncated: bool) -> Transition:
        if truncated or (message is not None and self._too_long(message)):
            return self._finish(Transition(outcome="truncated"))
        if message is None:
            return self._unreadable("expected JSON without deep nesting and huge numbers")
        if isinstance(response, ToolCall):
            # The call as it was written down: whoever holds the arguments cannot change what is remembered.
            arguments = json.loads(message["tool_calls"][0]["function"]["arguments"])
            return self._call((replace(response, arguments=arguments),), (), message)
        parsed = parse_response(str(message["content"]) if isinstance(response, str) else message)
        if len(parsed.calls) + len(parsed.errors) > MOST_CALLS_READ:
            return self._unreadable(f"found more than {MOST_CALLS_READ} calls in one response")
        if parsed.is_answer:
            return self._commit(parsed, message)
        return self._call(parsed.calls, parsed.errors, message)

    def _unreadable(self, detail: str) -> Transition:
        message = {"role": "assistant", "content": "(an unreadable message)"}
        return self._call((), (CallError("malformed_message", detail),), message)

    def _extend_chat(
        self,
        message: Mapping[str, Any],
        calls: Sequence[ToolCall],
        errors: Sequence[CallError],
        contents: Sequence[Mapping[str, Any]],
    ) -> None:
        """Append the response as it was and an answer to each of its calls.

        Args:
            message: the response.
            calls: its well-formed calls.
            errors: its broken calls.
            contents: one result for each call and then each error, or one for all.
        """
        self._chat.append(json.dumps({**message, "role": "assistant"}))
        ids: list[str | None] = [*(call.call_id for call in calls), *(error.call_id for error in errors)]
        if len(contents) == 1:
            named: list[str | None] = [call_id for call_id in ids if call_id is not None] or [None]
            pairs = [(call_id, contents[0]) for call_id in named]
        else:
            pairs = list(zip(ids, contents, strict=True))
        for call_id, content in pairs:
            reply: dict[str, Any] = {"role": "tool", "content": json.dumps(content)}
            if call_id is not None:
                reply["tool_call_id"] = call_id
            self._chat.append(json.dumps(reply))

    def _finish(self, end: Transition) -> Transition:
        self.end = end
        return end

    def _too_long(self, message: Mapping[str, Any]) -> bool:
        if message.get("finish_reason") == "length":
            return True
        limit = self._conditions.max_response_tokens
        calls = message.get("tool_calls")
        text = str(message.get("content") or "") + (json.dumps(calls) if calls else "")
        if len(text) > limit * CHARACTERS_PER_TOKEN:
            return True
        count_tokens = self._conditions.count_tokens
        return count_tokens is not None and count_tokens(text) > limit


def fault_result(kind: str, message: str) -> ToolResult:
    """The result of a call that could not be read, or that broke a rule of the episode before any tool ran."""
    return ToolResult("", {}, {"error": kind, "message": message}, kind)
