"""What can go wrong between an agent and the server of its model. None of it is the policy's fault or scored."""

from typing import Self

from castgym.data.errors import InfrastructureError


class EndpointError(InfrastructureError):
    """A model gave no usable response.

    Args:
        endpoint: host and port of the server, or name of the local model; never a key.
        found: what happened.
        advice: what to do.
        attempts: requests that were made.
        retry_after: seconds that the server asks to wait.

    Attributes:
        retryable: another attempt may succeed.
    """

    retryable = False

    def __init__(
        self, endpoint: str, found: str, advice: str, attempts: int = 1, retry_after: float | None = None
    ) -> None:
        super().__init__(endpoint, found, advice, attempts, retry_after)
        self.endpoint = endpoint
        self.found = found
        self.advice = advice
        self.attempts = attempts
        self.retry_after = retry_after

    def __str__(self) -> str:
        tries = f"{self.attempts} attempt{'' if self.attempts == 1 else 's'}"
        return f"{self.endpoint} {self.found} ({tries}): {self.advice}"

    def after(self, attempts: int) -> Self:
        """The same error after so many attempts."""
        return type(self)(self.endpoint, self.found, self.advice, attempts, self.retry_after)


class ConnectionFailedError(EndpointError):
    """No connection, or one that broke before the response was complete."""

    retryable = True


class RateLimitedError(EndpointError):
    """Status 429: too many requests or tokens."""

    retryable = True


class ServerFaultError(EndpointError):
    """Status 5xx."""

    retryable = True


class RequestTimeoutError(EndpointError):
    """No complete response within the time of a request. Another attempt would most likely take as long."""


class RequestRefusedError(EndpointError):
    """A status of 4xx but 429: a wrong key, model, address or setting."""


class MalformedReplyError(EndpointError):
    """Status 200 with something that is no chat completion: cut JSON, no choices, no message."""


class ContextOverflowError(EndpointError):
    """Prompt and response do not fit into the model's context.

    It counts as the infrastructure's: the limit is set where the model is served, not by the policy, so the episode is
    left out and counted, and no complete result can come out of a run in which it happens. It is never retried.
    """
