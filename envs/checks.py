"""A public checker of text environments: the promises that training and evaluation rely on.

`check_agent_env` plays an environment with real and hostile responses and fails on the first broken promise. It
complements Gymnasium's `check_env`, which knows nothing of prompts, groups, leaks or threads.
"""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium as gym
import numpy as np

from castgym.data.errors import CastgymError, ConfigError

MakeEnv = Callable[[], gym.Env[Any, Any]]
Script = Callable[[Mapping[str, Any]], Sequence[Any]]

_GROUP = 4
_THREADS = 4
_SEEDS = (0, 1, 2)
_SUBJECT_KEYS = ("case_id", "window_id")


class EnvCheckError(CastgymError):
    """An environment breaks a promise; the message names the check."""


def check_agent_env(
    env: gym.Env[Any, Any],
    *,
    make: MakeEnv | None = None,
    perturbed: MakeEnv | None = None,
    script: Script | None = None,
) -> None:
    """Check a text environment; silent if all promises hold.

    Checked are: determinism, the group contract (equal seed and options give equal first prompts), an untouched global
    random state, a clean reset after a partial episode, hostile text, observations within their space, thread safety,
    and, with `perturbed`, that nothing of the future reaches an agent.

    Args:
        env: the environment.
        make: makes another environment like it; by default `gym.make(env.spec)`.
        perturbed: makes one whose future (everything after the last visible observation, targets included) is
            another one. Prompts, infos and results up to the end of an episode must be the same.
        script: the responses to play, given the first `info`; by default a call of every tool that `info["tools"]`
            or else `info["prompt"]["tools"]` lists, with good and with bad arguments.

    Raises:
        EnvCheckError: a promise is broken.
        ConfigError: `make` is missing and the environment has no spec.
    """
    if make is None:
        spec = env.spec
        if spec is None:
            raise ConfigError("the environment has no spec: pass make=, a function that makes another one")
        make = lambda: gym.make(spec)  # noqa: E731
    script = script or default_script
    check_determinism(env, make, script)
    check_group_contract(env, make)
    check_global_random_state(env, script)
    check_clean_reset(env, make, script)
    check_hostile_text(env)
    check_thread_safety(make, script)
    if perturbed is not None:
        check_no_future(env, perturbed, script)


def check_determinism(env: gym.Env[Any, Any], make: MakeEnv, script: Script) -> None:
    """Equal seeds and actions give equal transcripts, in this environment again and in another one."""
    other = make()
    for seed in _SEEDS:
        first = transcript(env, seed, script)
        _demand(first == transcript(env, seed, script), "determinism", f"seed {seed} played twice differs")
        _demand(first == transcript(other, seed, script), "determinism", f"seed {seed} differs in another environment")


def check_group_contract(env: gym.Env[Any, Any], make: MakeEnv) -> None:
    """Episodes of a group share their first prompt, whatever was played before."""
    for seed in _SEEDS:
        info = env.reset(seed=seed)[1]
        options = {key: info[key] for key in _SUBJECT_KEYS if key in info} or None
        prompts = {
            _text(member.reset(seed=seed, options=options)[0]) for member in [env, *(make() for _ in range(_GROUP))]
        }
        env.step("an answer that is none")
        prompts.add(_text(env.reset(seed=seed, options=options)[0]))
        _demand(len(prompts) == 1, "group contract", f"{len(prompts)} different first prompts for seed {seed}")


def check_global_random_state(env: gym.Env[Any, Any], script: Script) -> None:
    """An episode neither reads nor moves the global generators of `random` and NumPy."""
    transcripts = []
    kept = random.getstate(), np.random.get_state()  # noqa: NPY002
    for state in (1, 2):
        random.seed(state)
        np.random.seed(state)  # noqa: NPY002  # the global state is what is checked
        before = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002
        transcripts.append(transcript(env, 0, script))
        after = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002
        _demand(before == after, "global random state", "an episode moved it")
    random.setstate(kept[0])
    np.random.set_state(kept[1])  # noqa: NPY002
    _demand(transcripts[0] == transcripts[1], "global random state", "an episode depends on it")


def check_clean_reset(env: gym.Env[Any, Any], make: MakeEnv, script: Script) -> None:
    """A reset in the middle of an episode leaves nothing of it behind."""
    fresh = transcript(make(), 5, script)
    _, info = env.reset(seed=4)
    for action in list(script(info))[:2]:
        env.step(action)
    _demand(transcript(env, 5, script) == fresh, "clean reset", "an episode differs after a partial one")


def hostile_texts() -> dict[str, str]:
    """Responses that a model may produce and no environment may crash on."""
    return {
        "empty": "",
        "one megabyte": "x" * 1_000_000,
        "NUL": "\x00" * 100,
        "lone surrogates": "\ud800\udfff" * 100,
        "3,000 brackets": "[" * 3_000,
        "3,000 braces": '{"a":' * 3_000,
        "a call of lone surrogates": "<tool_call>\ud800</tool_call>",
        "a message of lone surrogates": '{"name": "\ud800", "arguments": {"\udfff": 1}}',
        "half a tool call": '<tool_call>{"name": "cat',
        "a megabyte of tool calls": "<tool_call>{}</tool_call>" * 40_000,
        "endless thinking": "<think>" * 1_000,
        "a huge integer": '{"name": "history", "arguments": {"limit": ' + "9" * 10_000 + "}}",
        "not a number": '{"name": "history", "arguments": {"limit": NaN}}',
    }


def check_hostile_text(env: gym.Env[Any, Any]) -> None:
    """No text raises, ends in a reward that is not finite, or leads to an observation outside of its space."""
    for name, text in hostile_texts().items():
        observation, _ = env.reset(seed=0)
        _demand(env.observation_space.contains(observation), "observation space", "the first prompt is outside")
        try:
            observation, reward, *_ = env.step(text)
        except Exception as error:
            raise EnvCheckError(f"hostile text: {name} raised {type(error).__name__}: {str(error)[:200]}") from error
        _demand(bool(np.isfinite(float(reward))), "hostile text", f"{name} gave the reward {reward}")
        _demand(env.observation_space.contains(observation), "observation space", f"{name} led outside of it")


def check_thread_safety(make: MakeEnv, script: Script) -> None:
    """Environments that run side by side in threads play as each plays alone."""
    alone = [transcript(make(), seed, script) for seed in range(_THREADS)]
    for _ in range(3):
        with ThreadPoolExecutor(_THREADS) as threads:
            together = list(threads.map(lambda seed: transcript(make(), seed, script), range(_THREADS)))
        _demand(together == alone, "thread safety", "environments in threads disturb each other")


def check_no_future(env: gym.Env[Any, Any], perturbed: MakeEnv, script: Script) -> None:
    """Another future changes nothing that an agent sees before the end of an episode, errors included."""
    other = perturbed()
    for seed in _SEEDS:
        seen, again = transcript(env, seed, script), transcript(other, seed, script)
        _demand(len(seen) == len(again), "no future", f"seed {seed}: the future decides when the episode ends")
        for number, (left, right) in enumerate(zip(seen, again, strict=True)):
            _demand(left == right, "no future", f"seed {seed}, step {number}: what an agent sees depends on the future")


def transcript(env: gym.Env[Any, Any], seed: int, script: Script) -> list[str]:
    """What an agent sees when a script is played: prompts, rewards and infos up to the last step, which is left out."""
    observation, info = env.reset(seed=seed)
    seen = [_seen(observation, 0.0, info)]
    for action in script(info):
        observation, reward, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            break
        seen.append(_seen(observation, float(reward), info))
    return seen


def default_script(info: Mapping[str, Any]) -> list[str]:
    """A call of every tool with arguments that fit its schema, and two with others; then no answer.

    Where the task takes several calls in one response, one response makes all of them; a second one does so again,
    for what the stage did not permit at first.
    """
    tools = info.get("tools") or info.get("prompt", {}).get("tools", ())
    task = info.get("task", {})
    actions = []
    for tool in tools:
        function = tool["function"]
        properties = function["parameters"].get("properties", {})
        arguments = {name: _value(name, schema, task) for name, schema in properties.items()}
        actions.append(json.dumps({"name": function["name"], "arguments": arguments}))
    if task.get("parallel_calls"):
        actions = ["".join(f"<tool_call>{action}</tool_call>" for action in actions)] * 2
    broken = [json.dumps({"name": tool["function"]["name"], "arguments": {"nonsense": 1}}) for tool in tools[:2]]
    return [*actions, *broken]


def _value(name: str, schema: Mapping[str, Any], task: Mapping[str, Any]) -> Any:
    """A plausible argument: what the task calls so, the first allowed value, or a number in the middle."""
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") == "integer":
        low, high = schema.get("minimum", 0), schema.get("maximum", 1)
        return task["expected_horizon"] if name == "horizon" and "expected_horizon" in task else (low + high) // 2
    if name in task:
        return task[name]
    if task.get(f"{name}s"):
        return task[f"{name}s"][0]
    return task.get("last_visible", "")


def _seen(observation: Any, reward: float, info: Mapping[str, Any]) -> str:
    return json.dumps([_text(observation), reward, info], sort_keys=True, default=str)


def _text(observation: Any) -> str:
    return observation if isinstance(observation, str) else json.dumps(observation, sort_keys=True, default=str)


def _demand(holds: bool, check: str, message: str) -> None:
    if not holds:
        raise EnvCheckError(f"{check}: {message}")
