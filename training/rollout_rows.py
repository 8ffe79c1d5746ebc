"""Step rows: trajectories of K steps as K (prompt, response) rows that share one advantage, padded for a trainer."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from castgym.training.advantages import Weighting, row_weights
from castgym.training.rollout import Rollout, RolloutTurn


@dataclass(slots=True)
class Row:
    """One training sequence: a prompt and what follows it.

    Attributes:
        prompt_ids: read, never trained on.
        completion_ids: responses, and in a merged row the tool text between them.
        logprobs: the sampler's, 0 on tool text.
        trained: 1 on response tokens, 0 on tool text.
    """

    prompt_ids: list[int]
    completion_ids: list[int]
    logprobs: list[float]
    trained: list[int]

    def extend(self, turn: RolloutTurn) -> bool:
        """Append a turn whose prompt continues this row token by token; returns whether it does."""
        so_far = self.prompt_ids + self.completion_ids
        if turn.prompt_ids[: len(so_far)] != so_far:
            return False
        between = turn.prompt_ids[len(so_far) :]
        self.completion_ids += between + turn.response_ids
        self.logprobs += [0.0] * len(between) + turn.logprobs
        self.trained += [0] * len(between) + [1] * len(turn.response_ids)
        return True


def trajectory_rows(turns: Sequence[RolloutTurn]) -> list[Row]:
    """The rows of one trajectory.

    A step whose prompt continues the previous prompt and response exactly, as in chat mode with a template that keeps
    earlier turns as they are, is merged into the previous row, with the text between masked: the same gradient for
    less work. Prompts that are rebuilt from memory never continue the previous one and stay rows of their own.
    """
    rows: list[Row] = []
    for turn in turns:
        if not (rows and rows[-1].extend(turn)):
            rows.append(
                Row(list(turn.prompt_ids), list(turn.response_ids), list(turn.logprobs), [1] * len(turn.response_ids))
            )
    return [row for row in rows if row.completion_ids]


@dataclass(slots=True)
class RowBatch:
    """The rows of all trajectories of a process, in the lists that TRL pads to tensors.

    Attributes:
        prompt_ids, completion_ids, logprobs: (R, variable).
        weights: (R, variable) weight of each completion token in the loss: 0 on tool text and in padding rows.
        advantages: (R,) of each row's trajectory.
        real: rows that hold trajectories; the others are padding.
    """

    prompt_ids: list[list[int]] = field(default_factory=list)
    completion_ids: list[list[int]] = field(default_factory=list)
    logprobs: list[list[float]] = field(default_factory=list)
    weights: list[list[float]] = field(default_factory=list)
    advantages: list[float] = field(default_factory=list)
    real: int = 0

    def pad(self, rows: int, token: int) -> None:
        """Add rows of weight 0 up to a number of rows, each a single token after a single token."""
        for _ in range(rows - len(self.prompt_ids)):
            self.prompt_ids.append([token])
            self.completion_ids.append([token])
            self.logprobs.append([0.0])
            self.weights.append([0.0])
            self.advantages.append(0.0)


def build_rows(
    rollouts: Sequence[Rollout],
    advantages: npt.NDArray[np.float64],
    kept: npt.NDArray[np.bool_],
    weighting: Weighting = "token",
) -> RowBatch:
    """The training rows of trajectories.

    Args:
        rollouts: (N,) trajectories.
        advantages: (N,) advantage of each.
        kept: (N,) whether it is trained on.
        weighting: how tokens are weighted against each other, see `row_weights`.

    Returns:
        The rows, without padding.
    """
    rows = [
        (index, row) for index, rollout in enumerate(rollouts) if kept[index] for row in trajectory_rows(rollout.turns)
    ]
    owners = [index for index, _ in rows]
    weights = row_weights([sum(row.trained) for _, row in rows], owners, weighting)
    batch = RowBatch(real=len(rows))
    for (index, row), weight in zip(rows, weights.tolist(), strict=True):
        batch.prompt_ids.append(row.prompt_ids)
        batch.completion_ids.append(row.completion_ids)
        batch.logprobs.append(row.logprobs)
        batch.weights.append([weight * trained for trained in row.trained])
        batch.advantages.append(float(advantages[index]))
    return batch
