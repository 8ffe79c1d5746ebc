"""How a language model's responses are sampled."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from castgym.data.errors import ConfigError

PROTOCOL_SEED = 1701
"""Seed of the benchmark's published runs."""


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """Decoding settings; the defaults are the benchmark's (FWBench, evaluation protocol).

    A setting that is `None` is left to the model or endpoint. Endpoints differ in what they take: OpenAI's own API
    refuses `top_k`, and its reasoning models refuse `temperature` and `top_p`.

    Attributes:
        temperature: divides the logits; 0 takes the likeliest token.
        top_p: the least set of tokens with this probability is kept.
        top_k: this many tokens are kept.
        max_tokens: tokens of a response, thinking included; a longer one is cut and ends the episode.
        seed: the same prompt with the same seed gives the same response, as far as the model's server keeps that.
        thinking: switches thinking on or off in chat templates that can (`enable_thinking`).
    """

    temperature: float | None = 0.7
    top_p: float | None = 0.8
    top_k: int | None = 20
    max_tokens: int = 16_384
    seed: int | None = PROTOCOL_SEED
    thinking: bool | None = None

    def __post_init__(self) -> None:
        for name, low, high in (("temperature", 0.0, 100.0), ("top_p", 1e-9, 1.0)):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and low <= value <= high):
                raise ConfigError(f"expected {name} as a number from {low:g} to {high:g} or None, found {value!r}")
        for name, least in (("top_k", 1), ("max_tokens", 1), ("seed", 0)):
            value = getattr(self, name)
            if value is None and name != "max_tokens":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"expected {name} as a whole number >= {least}, found {value!r}")

    def options(self) -> dict[str, Any]:
        """JSON for run configurations."""
        return asdict(self)


def turn_seed(seed: int, turn: int) -> int:
    """The seed of one response of an episode, so that an episode's responses are drawn independently.

    Args:
        seed: the episode's.
        turn: number of the response, from 0.

    Returns:
        An integer in [0, 2**31), which every endpoint takes.
    """
    return int(np.random.SeedSequence([seed, turn]).generate_state(1)[0]) & 0x7FFF_FFFF
