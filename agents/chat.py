"""An agent whose responses come from a language model behind an OpenAI-compatible endpoint."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import Any, get_args

from castgym.agents.background import BackgroundLoop
from castgym.agents.base import Policy
from castgym.agents.chat_protocol import NoReplyError, ToolCalls, native_messages, read_completion, text_messages
from castgym.agents.concurrency import AdaptiveLimit, Backoff
from castgym.agents.endpoint import Endpoint
from castgym.agents.endpoint_errors import EndpointError, RateLimitedError
from castgym.agents.replies import Reply, Usage
from castgym.agents.sampling import SamplingSettings
from castgym.data.errors import ConfigError
from castgym.envs.messages import Response
from castgym.envs.prompts import Prompt

_RESERVED = ("model", "messages", "tools", "stream", "n")


class ChatAgent(Policy):
    """Plays with a model behind an endpoint that speaks the chat completions protocol.

    `respond` may be awaited from any event loop and `act` called from any thread: the requests run in a thread of the
    agent's own. Statuses 429 and 5xx and broken connections are retried with growing waits; a 429 also halves the
    number of requests in flight. What then remains wrong is an `EndpointError`: the infrastructure's fault, never
    scored.

    The key is read from the environment variable when the agent is made. It is in no message, option, file or pickle.
    Close the agent, or use it as a context manager, to close its connections.

    Args:
        model: the name by which the endpoint knows the model; the policy's name.
        base_url: address up to `/v1`; by default `OPENAI_BASE_URL`, or OpenAI's own.
        sampling: decoding settings.
        key_variable: environment variable that holds the key; a server that wants none needs none.
        tool_calls: `native`, or `text` for endpoints that know no tools.
        request_timeout: seconds for one response, without the wait for a place and between attempts.
        retries: further attempts after 429, 5xx and broken connections.
        concurrency: most requests in flight.
        extra_body: further fields of the request's body for this endpoint; they are part of `options`.

    Raises:
        ConfigError: a setting is wrong.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        *,
        sampling: SamplingSettings | None = None,
        key_variable: str = "OPENAI_API_KEY",
        tool_calls: ToolCalls = "native",
        request_timeout: float = 600.0,
        retries: int = 5,
        concurrency: int = 64,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        if tool_calls not in get_args(ToolCalls):
            raise ConfigError(f"expected tool_calls to be one of {get_args(ToolCalls)}, found {tool_calls!r}")
        if not request_timeout > 0 or retries < 0 or concurrency < 1:
            raise ConfigError(
                "expected request_timeout > 0, retries >= 0 and concurrency >= 1, "
                f"found {request_timeout}, {retries} and {concurrency}"
            )
        if reserved := sorted(set(extra_body or ()) & set(_RESERVED)):
            raise ConfigError(f"expected extra_body without {', '.join(_RESERVED)}, found {', '.join(reserved)}")
        self.name = model
        self.sampling = sampling or SamplingSettings()
        self.tool_calls: ToolCalls = tool_calls
        self._extra_body = dict(extra_body or {})
        self._arguments = {
            "key_variable": key_variable,
            "request_timeout": request_timeout,
            "retries": retries,
            "concurrency": concurrency,
        }
        self._retries = retries
        self._usage = Usage()
        self._endpoint = Endpoint(base_url, key_variable, request_timeout, concurrency)
        self._limit = AdaptiveLimit(concurrency)
        self._backoff = Backoff()
        self._loop = BackgroundLoop(f"chat {model}")

    @property
    def options(self) -> dict[str, Any]:
        """What its responses depend on, as JSON, for run configurations. The address is no part of it."""
        return {
            "agent": "chat",
            "model": self.name,
            "tool_calls": self.tool_calls,
            "sampling": self.sampling.options(),
            "extra_body": dict(self._extra_body),
        }

    @property
    def usage(self) -> Usage:
        """All tokens so far, as far as the endpoint counts them."""
        return self._usage

    @property
    def concurrency(self) -> int:
        """Requests that may be in flight now."""
        return self._limit.limit

    def act(self, prompt: Prompt) -> Response:
        """The model's response; blocks until it is there.

        Raises:
            EndpointError: there is none.
        """
        return self._loop.submit(self._respond(prompt, None)).result().message

    async def respond(self, prompt: Prompt, *, seed: int | None = None) -> Reply:
        """The model's response and how it came about.

        Args:
            prompt: the prompt.
            seed: in place of the settings' own.

        Raises:
            EndpointError: there is none.
        """
        return await asyncio.wrap_future(self._loop.submit(self._respond(prompt, seed)))

    def close(self) -> None:
        """Close the connections and end the thread. The agent cannot be used afterwards."""
        self._loop.close(self._endpoint.close())

    def __enter__(self) -> "ChatAgent":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ChatAgent({self.name!r}, {self._endpoint.base_url!r}, sampling={self.sampling!r})"

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the thread, the connections and the key, which another process makes and reads anew."""
        return {
            "model": self.name,
            "base_url": self._endpoint.base_url,
            "sampling": self.sampling,
            "tool_calls": self.tool_calls,
            "extra_body": self._extra_body,
            **self._arguments,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def request_body(self, prompt: Prompt, seed: int | None = None) -> dict[str, Any]:
        """The body of the request for a prompt, JSON."""
        sampling = self.sampling if seed is None else replace(self.sampling, seed=seed)
        # OpenAI's newer models refuse the old name; other servers do not all know the new one.
        length = "max_completion_tokens" if self._endpoint.is_official else "max_tokens"
        body: dict[str, Any] = {"model": self.name, length: sampling.max_tokens}
        for name in ("temperature", "top_p", "top_k", "seed"):
            value = getattr(sampling, name)
            if value is not None:
                body[name] = value
        if sampling.thinking is not None:
            body["chat_template_kwargs"] = {"enable_thinking": sampling.thinking}
        if self.tool_calls == "text":
            body["messages"] = text_messages(prompt.messages, prompt.template_tools)
        else:
            body["messages"] = native_messages(prompt.messages)
            if prompt.template_tools:
                body["tools"] = list(prompt.template_tools)
        return {**body, **self._extra_body}

    async def _respond(self, prompt: Prompt, seed: int | None) -> Reply:
        started = time.perf_counter()
        body = self.request_body(prompt, seed)
        answer, attempts = await self._ask(body)
        try:
            message, usage, model = read_completion(answer)
        except NoReplyError as fault:
            found = str(fault)
        else:
            self._usage += usage or Usage()
            return Reply(message, usage, time.perf_counter() - started, attempts, model)
        raise self._endpoint.malformed(found).after(attempts)

    async def _ask(self, body: Mapping[str, Any]) -> tuple[Any, int]:
        """The endpoint's answer and the attempts that it took."""
        for attempt in count(1):
            async with self._limit.slot() as decreases:
                answer = await self._endpoint.post(body)
                if isinstance(answer, RateLimitedError):
                    self._limit.throttled(decreases)
                elif not isinstance(answer, EndpointError):
                    self._limit.succeeded()
            if not isinstance(answer, EndpointError):
                return answer, attempt
            if not answer.retryable or attempt > self._retries:
                raise answer.after(attempt)
            await asyncio.sleep(self._backoff.seconds(attempt, answer.retry_after))
        raise AssertionError("unreachable")
