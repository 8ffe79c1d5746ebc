"""The public environment checker passes on every environment, and each of its checks can fail."""

import random
from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from factories import make_loaded

from castgym.data.errors import ConfigError
from castgym.data.schema import Target, TargetStore
from castgym.envs.casesets import LoadedCases
from castgym.envs.checks import EnvCheckError, check_agent_env, check_no_future, check_thread_safety, default_script
from castgym.envs.fwbench import FWBenchEnv

LOADED = make_loaded()


def with_other_future() -> LoadedCases:
    targets = TargetStore([Target(target.case_id, target.actual * 5 + 3) for target in LOADED.targets.values()])
    return LoadedCases(LOADED.case_set, targets, "memory")


@pytest.mark.parametrize("mode", ["memory", "chat"])
@pytest.mark.parametrize("form", ["decisions", "plan"])
def test_fwbench_keeps_every_promise(mode: str, form: str) -> None:
    def make(loaded: LoadedCases = LOADED) -> gym.Env[Any, Any]:
        return gym.make("FWBench-v0", cases=loaded, prompt_mode=mode, answer_form=form)

    check_agent_env(make(), perturbed=lambda: make(with_other_future()))


def test_the_default_script_uses_every_tool_well() -> None:
    env = FWBenchEnv(LOADED)
    _, info = env.reset(seed=0)
    errors = {}
    for action in default_script(info)[:9]:
        *_, info = env.step(action)
        errors[action.split('"')[3]] = info["error"]
    assert len(errors) == 9
    assert set(errors.values()) == {None}


class Wrapped(FWBenchEnv):
    """The real environment, to be broken in one way."""

    def __init__(self, loaded: LoadedCases = LOADED) -> None:
        super().__init__(loaded)


class Entropic(Wrapped):
    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        return observation + str(np.random.default_rng().random()), *rest


class Numbered(Wrapped):
    """Its first prompt counts the episodes of the process."""

    count: ClassVar[list[int]] = [0]

    def reset(self, **options: Any) -> Any:
        observation, info = super().reset(**options)
        if options.get("options"):  # determinism is checked without options: only groups see the count
            self.count[0] += 1
            observation += str(self.count[0])
        return observation, info


class Global(Wrapped):
    def reset(self, **options: Any) -> Any:
        random.random()
        return super().reset(**options)


class Dependent(Wrapped):
    def reset(self, **options: Any) -> Any:
        observation, info = super().reset(**options)
        return observation + str(np.random.get_state()[1][0]), info  # noqa: NPY002


class Sticky(Wrapped):
    """A partial episode leaves a note behind; an ended one does not."""

    def __init__(self, loaded: LoadedCases = LOADED) -> None:
        super().__init__(loaded)
        self.note = ""

    def reset(self, **options: Any) -> Any:
        observation, info = super().reset(**options)
        if options.get("seed") == 5:
            observation += self.note
        return observation, info

    def step(self, action: Any) -> Any:
        self.note = "dirty"
        return super().step(action)


class Fragile(Wrapped):
    def step(self, action: Any) -> Any:
        if isinstance(action, str) and "[[[" in action:
            raise RecursionError("too deep")
        return super().step(action)


class Endless(Wrapped):
    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, float("nan") if action == "" else 0.0, *rest


class Long(Wrapped):
    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        return (observation + "x" * 2_000_000 if action == "" else observation), *rest


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (Entropic, "determinism"),
        (Numbered, "group contract"),
        (Global, "global random state"),
        (Dependent, "global random state"),
        (Sticky, "clean reset"),
        (Fragile, "hostile text"),
        (Endless, "hostile text"),
        (Long, "observation space"),
    ],
)
def test_each_broken_promise_is_found(broken: Callable[[], gym.Env[Any, Any]], check: str) -> None:
    with pytest.raises(EnvCheckError, match=check):
        check_agent_env(broken(), make=broken)


class Shared(Wrapped):
    """All environments keep their episode in one place."""

    place: ClassVar[dict[str, Any]] = {}

    @property
    def _episode(self) -> Any:
        return self.place.get("episode")

    @_episode.setter
    def _episode(self, value: Any) -> None:
        self.place["episode"] = value


def test_environments_that_share_state_between_threads_are_found() -> None:
    with pytest.raises((EnvCheckError, ConfigError)):
        check_thread_safety(Shared, default_script)


class Leaky(Wrapped):
    """An error message that gives the target away."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        if info.get("error") == "invalid_arguments":
            info["hint"] = float(self._targets[self.episode.case.case_id].actual[0])
        return observation, reward, terminated, truncated, info


def test_a_leak_in_an_error_message_is_found() -> None:
    with pytest.raises(EnvCheckError, match="no future"):
        check_no_future(Leaky(), lambda: Leaky(with_other_future()), default_script)


def test_an_environment_without_a_spec_needs_a_maker() -> None:
    with pytest.raises(ConfigError, match="make="):
        check_agent_env(FWBenchEnv(LOADED))
