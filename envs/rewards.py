"""Terminal rewards."""

from castgym.envs.scoring import Score


def decision_reward(score: Score) -> float:
    """The default reward of FWBench: -S. A higher reward is a better decision; invalid ends keep the penalty."""
    return -score.S
