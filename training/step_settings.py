"""Settings of training on step rows, beyond what TRL's own say."""

from dataclasses import dataclass, field
from pathlib import Path

from castgym.training.advantages import Weighting, ZeroVariance
from castgym.training.rollout import RolloutSettings


@dataclass(frozen=True, slots=True)
class StepSettings:
    """What step rows add to TRL's settings.

    Attributes:
        episodes_per_device: episodes that a process plays in one generation. TRL's `steps_per_generation` is then the
            number of micro-batches that their rows are split into, whatever K is.
        rollout: how episodes are played.
        weighting: weight of tokens against each other, see `row_weights`.
        zero_variance: what happens to groups whose returns are all the same.
        resample_limit: with `resample`, how often such groups are replaced by groups of other subjects; those that
            are still without variance then are dropped.
        least_return: returns below it count as this much in advantages: an invalid answer far below all valid ones
            would leave a group's valid members with hardly any difference. `None` for none.
        max_failure_share: share of trajectories that the infrastructure may fail in a generation.
        eval_temperature: sampling temperature of evaluations, 0 for the likeliest token.
        folder: gets `rollouts/` and `evaluations/` with every response; TRL's output folder by default.
    """

    episodes_per_device: int
    rollout: RolloutSettings = field(default_factory=RolloutSettings)
    weighting: Weighting = "token"
    zero_variance: ZeroVariance = "keep"
    resample_limit: int = 2
    least_return: float | None = None
    max_failure_share: float = 0.5
    eval_temperature: float = 0.0
    folder: Path | None = None
