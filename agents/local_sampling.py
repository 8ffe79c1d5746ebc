"""Drawing the next token with randomness of its own."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import LogitsProcessor, TopKLogitsWarper, TopPLogitsWarper

from castgym.agents.sampling import SamplingSettings


class SeededSampler(LogitsProcessor):
    """Chooses each row's next token and leaves only that token to choose.

    transformers' own sampling takes its randomness from torch's global state; this one draws a number for each row
    from the row's own seed, so that a row's tokens depend neither on what else runs nor on the rest of its batch (but
    for the rounding of the model's own arithmetic).

    Args:
        sampling: temperature, top_p and top_k; `None` there means 1, 1 and no limit.
        seeds: one for each row.

    Attributes:
        logprobs: a tensor (rows,) for each step: the log-probability of the chosen tokens under the model at this
            temperature, before top_k and top_p; at temperature 0 under the model as it is.
    """

    def __init__(self, sampling: SamplingSettings, seeds: Sequence[int]) -> None:
        self.logprobs: list[Any] = []
        self._temperature = 1.0 if sampling.temperature is None else sampling.temperature
        self._warpers: list[Any] = []
        if sampling.top_k is not None:
            self._warpers.append(TopKLogitsWarper(sampling.top_k))
        if sampling.top_p is not None and sampling.top_p < 1.0:
            self._warpers.append(TopPLogitsWarper(sampling.top_p))
        self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Scores (rows, vocabulary) in which only the chosen tokens are possible."""
        scores = scores.float() / (self._temperature or 1.0)
        chosen = scores.argmax(-1) if self._temperature == 0 else self._draw(input_ids, scores)
        self.logprobs.append(scores.log_softmax(-1).gather(1, chosen[:, None])[:, 0])
        return torch.full_like(scores, -torch.inf).scatter_(1, chosen[:, None], 0.0)

    def _draw(self, input_ids: Any, scores: Any) -> Any:
        """Inverse transform sampling, one uniform number a row."""
        for warper in self._warpers:
            scores = warper(input_ids, scores)
        mass = scores.double().softmax(-1).cumsum(-1)
        uniform = torch.stack([torch.rand(1, generator=row, dtype=torch.float64) for row in self._generators])
        # The first token whose cumulated mass exceeds the number: never one without mass.
        return torch.searchsorted(mass, uniform.to(mass.device) * mass[:, -1:], right=True)[:, 0]
