"""Terminal rewards."""

from castgym.envs.forecast_reward import TABLE4, ForecastReward, RewardWeights, forecast_reward
from castgym.envs.scoring import Score

__all__ = ["TABLE4", "ForecastReward", "RewardWeights", "decision_reward", "forecast_reward"]


def decision_reward(score: Score) -> float:
    """The default reward of FWBench: -S. A higher reward is a better decision; invalid ends keep the penalty."""
    return -score.S
