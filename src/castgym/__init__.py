"""castgym: environments in which a language-model agent buys forecasts and commits a decision.

Importing the package registers its environments, so that `gymnasium.make("FWBench-v0")` finds them.
"""

from castgym.envs.registration import register_environments

__version__ = "0.1.0"
__all__ = ["__version__"]

register_environments()
