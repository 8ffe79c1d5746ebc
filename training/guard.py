"""Collapse monitor: multi-turn reinforcement that goes wrong shows in its metrics long before the reward falls.

Each limit is compared with the mean of a metric over the last logs. A breach warns; breaches that go on stop the run.
With periodic evaluation the best checkpoint by held-out score is kept, and is the run's model in the end.
"""

import logging
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from castgym.training.run_config import RunConfig

logger = logging.getLogger(__name__)


class GuardSettings(RunConfig):
    """Limits of the metrics; `null` switches one off.

    Attributes:
        least_group_std: mean standard deviation of returns within groups: none is left where all members do the same.
        most_zero_variance: share of groups whose returns are all the same.
        least_entropy: mean entropy of the policy's tokens, nats.
        most_invalid: share of trajectories without a valid answer.
        most_repeated: share of trajectories that say the same as another member of their group.
        most_kl: mean KL divergence from the reference, nats a token.
        most_logprob_gap: mean distance of the sampler's and the trainer's log-probabilities, nats: the drift canary.
        window: logs over which a metric is averaged.
        patience: logs in a row with a breach after which the run stops.
    """

    least_group_std: float | None = 1e-3
    most_zero_variance: float | None = 0.9
    least_entropy: float | None = 0.01
    most_invalid: float | None = 0.6
    most_repeated: float | None = 0.95
    most_kl: float | None = 2.0
    most_logprob_gap: float | None = 0.2
    window: int = Field(5, ge=1)
    patience: int = Field(10, ge=1)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a log says about the run.

    Attributes:
        breaches: limits that are passed now, in words.
        stop: they have been for long enough.
    """

    breaches: tuple[str, ...]
    stop: bool


class CollapseMonitor:
    """Watches logged metrics.

    Args:
        settings: limits.
    """

    def __init__(self, settings: GuardSettings) -> None:
        self._settings = settings
        self._seen: dict[str, deque[float]] = {}
        self._streak = 0

    def update(self, metrics: Mapping[str, Any]) -> Verdict:
        """Take one log of training.

        Args:
            metrics: names as the trainer logs them; those that are missing or no finite numbers are passed over.
        """
        breaches = [breach for breach in (self._breach(*limit, metrics) for limit in self._limits()) if breach]
        self._streak = self._streak + 1 if breaches else 0
        return Verdict(tuple(breaches), self._streak >= self._settings.patience)

    def _limits(self) -> list[tuple[str, float | None, bool, str]]:
        """Metric, limit, whether it is a lower one, and what a breach means."""
        limits = self._settings
        return [
            ("groups/std", limits.least_group_std, True, "the members of a group do the same"),
            ("groups/zero_variance_share", limits.most_zero_variance, False, "most groups teach nothing"),
            ("entropy", limits.least_entropy, True, "the policy no longer explores"),
            ("rollout/invalid_share", limits.most_invalid, False, "the policy forgets the answer's form"),
            ("rollout/repeated_share", limits.most_repeated, False, "the policy repeats itself"),
            ("kl", limits.most_kl, False, "the policy is far from its reference: raise beta or lower the rate"),
            ("canary/logprob_gap_mean", limits.most_logprob_gap, False, "sampler and trainer are different policies"),
        ]

    def _breach(
        self, name: str, limit: float | None, lower: bool, meaning: str, metrics: Mapping[str, Any]
    ) -> str | None:
        value = metrics.get(name)
        if limit is None or not isinstance(value, int | float) or not math.isfinite(value):
            return None
        seen = self._seen.setdefault(name, deque(maxlen=self._settings.window))
        seen.append(float(value))
        mean = sum(seen) / len(seen)
        if len(seen) < self._settings.window or (mean >= limit if lower else mean <= limit):
            return None
        return f"{name} {mean:.4g} {'<' if lower else '>'} {limit:g} ({meaning})"


class CollapseGuard(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Warns, then stops a trainer. A resumed run reads the log history first, so that it stops where the whole would.

    Args:
        settings: limits.

    Attributes:
        reason: why it stopped the run, empty while it has not.
    """

    def __init__(self, settings: GuardSettings) -> None:
        self._settings = settings
        self._monitor = CollapseMonitor(settings)
        self.reason = ""

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Take over what was logged before."""
        del args, control
        self._monitor = CollapseMonitor(self._settings)
        for row in state.log_history:
            if "reward" in row:
                self._monitor.update(row)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Judge a log; all processes log the same numbers and come to the same verdict."""
        del args
        if not logs or "reward" not in logs:
            return
        verdict = self._monitor.update(logs)
        if verdict.breaches and state.is_world_process_zero:
            logger.warning("step %d: %s", state.global_step, "; ".join(verdict.breaches))
        if verdict.stop:
            self.reason = "; ".join(verdict.breaches)
            control.should_training_stop = True
