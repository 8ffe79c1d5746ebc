"""What a language model said, with the facts of how it said it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens read and written."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """One response of a language model.

    Attributes:
        message: the response that an episode acts on: an OpenAI chat message with `content`, `finish_reason`, and
            where there are any `tool_calls` and `reasoning_content`.
        usage: tokens, `None` where the endpoint does not count them.
        seconds: from the request to the response, with every wait and attempt.
        attempts: requests that it took.
        model: the model that says it answered.
        prompt_ids: the exact token ids that the model read, where it runs in this process.
        response_ids: the exact token ids that it drew, with the one that ended the response.
        logprobs: log-probability of each of these under the model at the sampling temperature, before `top_k` and
            `top_p`.
    """

    message: Mapping[str, Any]
    usage: Usage | None
    seconds: float
    attempts: int = 1
    model: str = ""
    prompt_ids: tuple[int, ...] | None = None
    response_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None

    @property
    def text(self) -> str:
        """The response's text, without structured calls and separate reasoning."""
        return str(self.message.get("content") or "")

    @property
    def truncated(self) -> bool:
        """The response was cut at the token limit."""
        return self.message.get("finish_reason") == "length"
