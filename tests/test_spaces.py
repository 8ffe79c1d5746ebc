import copy
import json
import pickle
import time
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Dict, Discrete, Text, Tuple
from gymnasium.spaces.utils import flatdim, flatten, flatten_space, unflatten
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.vector.utils import (
    batch_differing_spaces,
    batch_space,
    concatenate,
    create_empty_array,
    create_shared_memory,
    iterate,
    read_from_shared_memory,
    write_to_shared_memory,
)
from hypothesis import given
from hypothesis import strategies as st

from castgym.envs.spaces import Utf8Text

LLM_TEXT = 'Prix: 12 € – "naïve"\n\t{"b00": 1}\x00 你好 😀 <think>'


class Echo(gym.Env[dict[str, Any], str]):
    """Observes the last action: a real environment whose texts are whatever the policy wrote."""

    def __init__(self) -> None:
        self.observation_space = Dict({"prompt": Utf8Text(2000), "step": Discrete(100)})
        self.action_space = Utf8Text(2000)
        self._step = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self._step = 0
        return {"prompt": f"seed {self.np_random.integers(1000)} €", "step": 0}, {}

    def step(self, action: str) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        self._step += 1
        return {"prompt": action, "step": self._step}, 0.0, self._step >= 50, False, {}


def test_text_of_a_language_model_belongs_to_the_space() -> None:
    assert LLM_TEXT in Utf8Text(100)
    assert np.str_(LLM_TEXT) in Utf8Text(100)


@pytest.mark.parametrize("value", [None, 5, b"text", ["a"], np.array("a"), "\ud800", "a" * 11, "a"])
def test_what_is_no_encodable_text_of_the_length_does_not_belong(value: object) -> None:
    assert value not in Utf8Text(10, min_length=2)


@given(st.text(st.characters(exclude_categories=()), max_size=20))
def test_membership_is_length_and_utf8(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        encodable = False
    else:
        encodable = True
    assert (text in Utf8Text(10, min_length=3)) == (encodable and 3 <= len(text) <= 10)


def test_samples_belong_to_the_space_and_reach_beyond_ascii() -> None:
    space = Utf8Text(400, min_length=100, seed=1)
    samples = [space.sample() for _ in range(200)]
    assert all(sample in space for sample in samples)
    lengths = [len(sample) for sample in samples]
    assert min(lengths) < 120
    assert max(lengths) > 330
    points = [ord(character) for sample in samples for character in sample]
    assert min(points) < 0xD800 < max(points)
    assert max(points) > 0xFFFF


def test_one_length_only_is_sampled_exactly() -> None:
    assert len(Utf8Text(7, min_length=7, seed=0).sample()) == 7
    assert Utf8Text(0, seed=0).sample() == ""


def test_samples_of_a_huge_space_stay_small() -> None:
    assert len(Utf8Text(10**8, seed=0).sample()) <= 256


def test_equal_seeds_give_equal_samples() -> None:
    first, second = Utf8Text(50, seed=3), Utf8Text(50)
    second.seed(3)
    assert [first.sample() for _ in range(5)] == [second.sample() for _ in range(5)]
    assert Utf8Text(50, seed=4).sample() != Utf8Text(50, seed=5).sample()


def test_a_mask_is_refused() -> None:
    with pytest.raises(ValueError, match="without mask"):
        Utf8Text(5).sample(mask=(3, None))
    with pytest.raises(ValueError, match="without mask"):
        Utf8Text(5).sample(probability=(3, None))


def test_making_a_space_builds_no_character_set() -> None:
    started = time.process_time()
    for _ in range(100):
        Utf8Text(10**9)
    assert time.process_time() - started < 1


def test_equality_compares_the_bounds() -> None:
    assert Utf8Text(5) == Utf8Text(5, seed=1)
    assert Utf8Text(5) != Utf8Text(6)
    assert Utf8Text(5) != Utf8Text(5, min_length=1)
    assert Utf8Text(5, min_length=1) != Text(5, charset=" ")
    assert Text(5, charset=" ") != Utf8Text(5, min_length=1)
    assert eval(repr(Utf8Text(5, min_length=1))) == Utf8Text(5, min_length=1)


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda space: pickle.loads(pickle.dumps(space))])
def test_copies_are_equal_and_continue_the_same_samples(clone: Any) -> None:
    space = Utf8Text(30, seed=8)
    space.sample()
    twin = clone(space)
    assert twin == space
    assert [twin.sample() for _ in range(3)] == [space.sample() for _ in range(3)]


def test_samples_survive_json() -> None:
    space = Dict({"prompt": Utf8Text(40), "step": Discrete(3)}, seed=2)
    samples = [space.sample() for _ in range(10)]
    restored = space.from_jsonable(json.loads(json.dumps(space.to_jsonable(samples))))
    assert restored == samples
    assert Utf8Text(40).from_jsonable(json.loads(json.dumps(Utf8Text(40).to_jsonable([LLM_TEXT])))) == [LLM_TEXT]


@pytest.mark.parametrize("space", [Utf8Text(5), Dict({"prompt": Utf8Text(5)}), Tuple([Utf8Text(5)])])
def test_flattening_is_refused_with_a_clear_error(space: gym.Space[Any]) -> None:
    assert not space.is_np_flattenable
    for refused in (lambda: flatdim(space), lambda: flatten(space, space.sample())):
        with pytest.raises(ValueError, match="cannot be flattened"):
            refused()


def test_flattened_spaces_and_their_inverse_are_refused_too() -> None:
    with pytest.raises(ValueError, match="tokenise"):
        flatten_space(Utf8Text(5))
    with pytest.raises(ValueError, match="tokenise"):
        unflatten(Utf8Text(5), np.zeros(5))


def test_a_batch_is_a_tuple_of_texts() -> None:
    space = Utf8Text(40, min_length=2, seed=5)
    batch = batch_space(space, 3)
    assert batch == Tuple([space] * 3)
    sample = batch.sample()
    assert len(set(sample)) == 3
    assert tuple(iterate(batch, sample)) == sample
    empty = create_empty_array(space, 3)
    assert empty in batch
    assert concatenate(space, [LLM_TEXT, "ab", "cd"], empty) == (LLM_TEXT, "ab", "cd")
    assert batch_differing_spaces([Utf8Text(5), Utf8Text(6)]) == Tuple([Utf8Text(5), Utf8Text(6)])


def test_a_batch_works_inside_a_dict() -> None:
    space = Dict({"prompt": Utf8Text(40), "step": Discrete(3)}, seed=1)
    items = [space.sample() for _ in range(4)]
    batch = concatenate(space, items, create_empty_array(space, 4))
    assert batch["prompt"] == tuple(item["prompt"] for item in items)
    assert batch in batch_space(space, 4)
    assert [item["prompt"] for item in iterate(batch_space(space, 4), batch)] == [item["prompt"] for item in items]


def test_gymnasiums_own_checker_passes_an_environment_of_texts() -> None:
    check_env(Echo(), skip_render_check=True)


@pytest.mark.parametrize("mode", ["same", "different"])
def test_a_sync_vector_environment_carries_texts_unchanged(mode: str) -> None:
    envs = SyncVectorEnv([Echo] * 3, observation_mode=mode)
    envs.reset(seed=0)
    actions = (LLM_TEXT, "", "x" * 2000)
    assert envs.step(actions)[0]["prompt"] == actions
    assert envs.action_space.contains(actions)
    envs.close()


def test_vector_environments_refuse_spaces_of_other_bounds() -> None:
    class Longer(Echo):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space["prompt"] = Utf8Text(3000)

    with pytest.raises(RuntimeError, match="not equivalent"):
        SyncVectorEnv([Echo, Longer])


def test_an_async_vector_environment_carries_texts_without_shared_memory() -> None:
    envs = AsyncVectorEnv([Echo] * 2, shared_memory=False)
    try:
        envs.reset(seed=0)
        assert envs.step((LLM_TEXT, ""))[0]["prompt"] == (LLM_TEXT, "")
        first = envs.step(("one", "two"))[0]["prompt"]
        assert (first, envs.step(("three", "four"))[0]["prompt"]) == (("one", "two"), ("three", "four"))
    finally:
        envs.close()


@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), min_size=1, max_size=4))
def test_shared_memory_returns_the_texts_that_were_written(texts: list[str]) -> None:
    space = Utf8Text(20)
    memory = create_shared_memory(space, n=len(texts))
    for index, text in enumerate(["x" * 20] * len(texts)):
        write_to_shared_memory(space, index, text, memory)
    for index, text in enumerate(texts):
        write_to_shared_memory(space, index, text, memory)
    assert tuple(read_from_shared_memory(space, memory, n=len(texts))) == tuple(texts)


def test_a_text_that_does_not_fit_its_slot_is_refused() -> None:
    space = Utf8Text(3)
    with pytest.raises(ValueError, match="does not belong"):
        write_to_shared_memory(space, 0, "four", create_shared_memory(space, n=1))


def test_an_async_vector_environment_carries_texts_in_its_default_shared_memory() -> None:
    envs = AsyncVectorEnv([Echo] * 2)
    try:
        envs.reset(seed=0)
        assert envs.step((LLM_TEXT, ""))[0]["prompt"] == (LLM_TEXT, "")
        first = envs.step(("one", "two"))[0]["prompt"]
        assert (first, envs.step(("three", "four"))[0]["prompt"]) == (("one", "two"), ("three", "four"))
    finally:
        envs.close()
