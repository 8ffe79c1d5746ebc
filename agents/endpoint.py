"""One request to an OpenAI-compatible endpoint, with every fault named and no key in any of them."""

import asyncio
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import cycle
from typing import Any
from urllib.parse import urlsplit

from castgym.agents.endpoint_errors import (
    ConnectionFailedError,
    ContextOverflowError,
    EndpointError,
    MalformedReplyError,
    RateLimitedError,
    RequestRefusedError,
    RequestTimeoutError,
    ServerFaultError,
)
from castgym.data.errors import ConfigError

try:
    import openai
except ImportError as missing:
    raise ImportError("chat agents need the openai client: pip install 'castgym[serve]'") from missing

OFFICIAL_URL = "https://api.openai.com/v1"

_URL_VARIABLE = "OPENAI_BASE_URL"

_CONNECT_SECONDS = 15.0

_CONNECTIONS_A_CLIENT = 16
"""For each request a client looks at all its idle connections: a third of its time at 64 of them."""

_MOST_CLIENTS = 8

_LONGEST_QUOTE = 300
"""Characters of a server's own message that an error repeats."""

_OVERFLOW = re.compile(r"context[ _](length|window|size)|maximum context|prompt is too long|too many tokens", re.I)


class Endpoint:
    """The server of a model. It belongs to one event loop from its first request on.

    The key is read from the environment here. It lives in the clients only.

    Args:
        base_url: address up to `/v1`; by default `OPENAI_BASE_URL`, or OpenAI's own.
        key_variable: environment variable that holds the key.
        request_timeout: seconds within which a response must be complete.
        connections: requests that will be in flight.

    Attributes:
        host: host and port, for messages.

    Raises:
        ConfigError: the address is none or holds credentials, or OpenAI's own is asked without a key.
    """

    def __init__(self, base_url: str | None, key_variable: str, request_timeout: float, connections: int) -> None:
        self.base_url = base_url or os.environ.get(_URL_VARIABLE) or OFFICIAL_URL
        self.key_variable = key_variable
        self.request_timeout = request_timeout
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError("expected base_url as http(s)://host:port/v1, found something else")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise ConfigError(f"expected base_url without credentials or query: set the key in ${key_variable} instead")
        self.host = parts.netloc
        if self.is_official and not self._key():
            raise ConfigError(f"expected a key for {self.host} in the environment variable {key_variable}, found none")
        # Made here and not with the first request: a client reads certificates from disk, which would hold up the loop.
        needed = -(-connections // _CONNECTIONS_A_CLIENT)
        self._clients = [self._new_client() for _ in range(min(needed, _MOST_CLIENTS))]
        self._turns = cycle(self._clients)

    @property
    def is_official(self) -> bool:
        """The endpoint is OpenAI's own."""
        return urlsplit(self.base_url).hostname == urlsplit(OFFICIAL_URL).hostname

    async def post(self, body: Mapping[str, Any]) -> Any:
        """Ask for a chat completion, once.

        Args:
            body: the request, JSON.

        Returns:
            The decoded answer, or the fault. A fault is returned and not raised, so that no error of the client's,
            whose request holds the key, hangs on it as its context.
        """
        try:
            async with asyncio.timeout(self.request_timeout):
                # The typed `chat.completions.create` takes twice the time, for models that are not used here.
                return await next(self._turns).post("/chat/completions", cast_to=object, body=dict(body))
        except TimeoutError:
            found = f"gave no complete response within request_timeout = {self.request_timeout:g} s"
            return RequestTimeoutError(self.host, found, "raise request_timeout or lower max_tokens")
        except openai.APIStatusError as error:
            return self._refusal(error)
        except openai.APIConnectionError as error:
            cause = type(error.__cause__ or error).__name__
            found = f"could not be reached or broke the connection ({cause})"
            return ConnectionFailedError(self.host, found, "check that the server runs and that base_url is right")
        except (openai.OpenAIError, ValueError, RecursionError) as error:
            return self.malformed(f"sent a response that is no complete JSON ({type(error).__name__})")

    def malformed(self, found: str) -> MalformedReplyError:
        """The fault of an answer that cannot be used."""
        return MalformedReplyError(self.host, found, "check that the server speaks OpenAI's chat completions protocol")

    async def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            await client.close()

    def _new_client(self) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(
            api_key=self._key() or "none",  # the client wants a key even where the server does not
            base_url=self.base_url,
            timeout=openai.Timeout(None, connect=_CONNECT_SECONDS),
            max_retries=0,
        )

    def _key(self) -> str:
        """The key, without the line end that a file may have left on it; empty where there is none."""
        return os.environ.get(self.key_variable, "").strip()

    def _refusal(self, error: openai.APIStatusError) -> EndpointError:
        status = error.status_code
        quote = self._quote(error.body)
        found = f"answered {status}{quote}"
        if status == 429:
            wait = _retry_after(error.response.headers)
            return RateLimitedError(self.host, found, "lower concurrency or raise retries", retry_after=wait)
        if status >= 500:
            wait = _retry_after(error.response.headers)
            return ServerFaultError(self.host, found, "look into the server's log", retry_after=wait)
        if status in (400, 413, 422) and (error.code == "context_length_exceeded" or _OVERFLOW.search(quote)):
            advice = "serve the model with a longer context, lower max_tokens, or use prompt mode memory"
            return ContextOverflowError(self.host, found, advice)
        if status in (401, 403):
            advice = f"set a valid key in the environment variable {self.key_variable}"
            return RequestRefusedError(self.host, found, advice)
        if status == 404:
            return RequestRefusedError(self.host, found, "check the model's name and base_url")
        advice = "change the settings: not every endpoint takes top_k, seed, tools or thinking"
        return RequestRefusedError(self.host, found, advice)

    def _quote(self, body: object) -> str:
        """The server's own words, cut, without the key if it repeats it."""
        said = body.get("message") or body.get("detail") if isinstance(body, Mapping) else body
        key = self._key()
        text = " ".join(str(said or "").split())
        if key:
            text = text.replace(key, "***")
        return f" ({text[:_LONGEST_QUOTE]})" if text else ""


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait: a number, or a date (RFC 9110, section 10.2.3)."""
    value = headers.get("retry-after")
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        then = parsedate_to_datetime(value)
    except ValueError:
        return None
    then = then if then.tzinfo else then.replace(tzinfo=UTC)
    return max(0.0, (then - datetime.now(UTC)).total_seconds())
