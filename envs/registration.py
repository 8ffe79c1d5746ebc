"""Registers castgym's environments with Gymnasium, once a process."""

from typing import Any

import gymnasium as gym
from gymnasium.vector import AutoresetMode, SyncVectorEnv

FWBENCH_ID = "FWBench-v0"
CASTR1_ID = "CastR1-v0"


def register_environments() -> None:
    """Register every environment that is not registered yet."""
    if FWBENCH_ID not in gym.registry:
        gym.register(
            FWBENCH_ID,
            entry_point="castgym.envs.fwbench:FWBenchEnv",
            vector_entry_point="castgym.envs.registration:make_fwbench_vector",
            disable_env_checker=True,  # it warns about text observations and about rewards below -1
        )
    if CASTR1_ID not in gym.registry:
        gym.register(
            CASTR1_ID,
            entry_point="castgym.envs.castr1:CastR1Env",
            vector_entry_point="castgym.envs.registration:make_castr1_vector",
            disable_env_checker=True,
        )


def make_fwbench_vector(num_envs: int = 1, **conditions: Any) -> SyncVectorEnv:
    """The vector environment that `gym.make_vec` builds by default.

    An ended episode restarts in the same step (`AutoresetMode.SAME_STEP`): the default mode would spend a step without
    meaning, and its reward of 0, on every restart.
    """
    from castgym.envs.casesets import EMBEDDED, LoadedCases, load_cases
    from castgym.envs.fwbench import FWBenchEnv

    cases = conditions.pop("cases", EMBEDDED)
    conditions["cases"] = cases if isinstance(cases, LoadedCases) else load_cases(cases)  # once, not once for each
    return SyncVectorEnv(
        [lambda: FWBenchEnv(**conditions) for _ in range(num_envs)], autoreset_mode=AutoresetMode.SAME_STEP
    )


def make_castr1_vector(num_envs: int = 1, **conditions: Any) -> SyncVectorEnv:
    """The vector environment that `gym.make_vec` builds by default, with restarts as in `make_fwbench_vector`."""
    from castgym.envs.casesets import EMBEDDED
    from castgym.envs.castr1 import CastR1Env
    from castgym.envs.forecast_source import loaded_windows

    # Once, not once for each.
    conditions["windows"] = loaded_windows(conditions.get("windows", EMBEDDED), conditions.pop("files", None))
    return SyncVectorEnv(
        [lambda: CastR1Env(**conditions) for _ in range(num_envs)], autoreset_mode=AutoresetMode.SAME_STEP
    )
