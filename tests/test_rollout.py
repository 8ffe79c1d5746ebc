import math
import threading
import time

import numpy as np
import pyarrow.parquet
import pytest
from toy_episodes import SUBJECTS, ToySource, toy_texts

from castgym.agents.limits import TimeLimitError
from castgym.data.errors import ConfigError, InfrastructureError
from castgym.training.advantages import group_advantages
from castgym.training.episode_workers import EpisodeWorkers
from castgym.training.rollout import RolloutPlayer, RolloutSettings, check_groups
from castgym.training.rollout_log import rollout_metrics, summarise, write_rollouts
from castgym.training.rollout_rows import build_rows, trajectory_rows
from castgym.training.tiny_model import train_tokenizer

SETTINGS = RolloutSettings(thinking=False)


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(list(toy_texts()), 400)


class LetterModel:
    """Answers each prompt with a letter that its seed picks, and remembers what it was asked."""

    def __init__(self, tokenizer, letters="ABCD", end=True):
        self.tokenizer, self.letters, self.end = tokenizer, letters, end
        self.asked, self.seeds = [], []

    def __call__(self, prompts, seeds):
        self.asked.append(prompts)
        self.seeds.append(seeds)
        ends = [self.tokenizer.eos_token_id] if self.end else []
        responses = [[*self.tokenizer(self.letters[seed % len(self.letters)])["input_ids"], *ends] for seed in seeds]
        return responses, [[-0.5] * len(ids) for ids in responses]


def player(tokenizer, settings=SETTINGS, **kwargs):
    return RolloutPlayer(tokenizer, [tokenizer.eos_token_id], settings, **kwargs)


def play(tokenizer, source, ids, model=None, **kwargs):
    model = model or LetterModel(tokenizer)
    return player(tokenizer, **kwargs).play(source, ids, range(len(ids)), model), model


def test_every_step_asks_a_prompt_that_the_episode_rebuilt(tokenizer):
    (rollout,), _ = play(tokenizer, ToySource(), ["red-3"])
    assert len(rollout.turns) == 3
    prompts = [tokenizer.decode(turn.prompt_ids) for turn in rollout.turns]
    assert all("A" not in prompt.split("<|im_start|>user")[1] for prompt in prompts)  # no response is replayed
    assert "step 3 of 3 memory " in prompts[2] and len({len(p.split("assistant")) for p in prompts}) == 1
    assert rollout.outcome == "completed" and rollout.score.reward == rollout.reward


def test_all_live_episodes_generate_together(tokenizer):
    rollouts, model = play(tokenizer, ToySource(), ["red-1", "red-3", "gold-2", "blue-4"], LetterModel(tokenizer, "A"))
    assert [len(prompts) for prompts in model.asked] == [4, 3, 2, 1]
    assert [len(rollout.turns) for rollout in rollouts] == [1, 3, 2, 4]


@pytest.mark.parametrize("waves", [1, 2, 3])
def test_waves_change_neither_responses_nor_order(tokenizer, waves):
    ids = [*SUBJECTS, *SUBJECTS]
    plain, _ = play(tokenizer, ToySource(), ids)
    waved, _ = play(tokenizer, ToySource(), ids, settings=RolloutSettings(waves=waves, thinking=False))
    assert [rollout.turns for rollout in waved] == [rollout.turns for rollout in plain]
    assert [rollout.subject_id for rollout in waved] == ids


def test_in_two_waves_the_environment_works_while_the_other_wave_generates(tokenizer):
    working, overlaps = threading.Event(), []
    source = ToySource(slow=0.05, fail=lambda episode: working.set())

    class Watching(LetterModel):
        def __call__(self, prompts, seeds):
            overlaps.append(working.wait(0.2))
            working.clear()
            return super().__call__(prompts, seeds)

    play(tokenizer, source, ["red-3"] * 4, Watching(tokenizer), settings=RolloutSettings(waves=2, thinking=False))
    assert sum(overlaps[2:]) >= 3


def test_a_response_is_read_with_its_markup_and_without_its_end(tokenizer):
    ids = tokenizer("<tool_call>\nA</tool_call>")["input_ids"]
    text = player(tokenizer).response_text([*ids, tokenizer.eos_token_id])
    assert text == "<tool_call>\nA</tool_call>"
    assert player(tokenizer).response_text(ids) == text


def test_a_response_without_an_end_was_cut_and_ends_the_episode(tokenizer):
    (rollout,), _ = play(tokenizer, ToySource(), ["red-3"], LetterModel(tokenizer, end=False))
    assert rollout.outcome == "truncated" and rollout.turns[0].truncated and not math.isnan(rollout.reward)


def test_each_response_has_a_seed_of_its_own(tokenizer):
    _, model = play(tokenizer, ToySource(), ["red-4"] * 3, LetterModel(tokenizer, "E"))
    drawn = [seed for seeds in model.seeds for seed in seeds]
    assert len(set(drawn)) == 12
    _, same = play(tokenizer, ToySource(), ["red-4"] * 3, LetterModel(tokenizer, "E"))
    assert same.seeds == model.seeds


def test_a_failing_tool_is_tried_again_then_left_out_and_not_scored(tokenizer):
    tries = {"red-2": 0, "gold-2": 0}

    def fail(episode):
        tries[episode.subject_id] = tries.get(episode.subject_id, 0) + 1
        return episode.subject_id == "gold-2" or tries[episode.subject_id] == 1

    rollouts, _ = play(tokenizer, ToySource(fail=fail), ["red-2", "gold-2"])
    assert rollouts[0].outcome == "completed" and not rollouts[0].fault
    assert rollouts[1].outcome is None and math.isnan(rollouts[1].reward) and "the toy broke" in rollouts[1].fault
    assert tries["gold-2"] == 2


def test_a_policy_fault_is_no_failure_of_the_infrastructure(tokenizer):
    rollouts, _ = play(tokenizer, ToySource(), ["red-3"], LetterModel(tokenizer, "S"))
    assert rollouts[0].outcome == "invalid_submission" and rollouts[0].reward == 0.0


def test_an_error_in_the_code_is_raised(tokenizer):
    with pytest.raises(ZeroDivisionError):
        play(tokenizer, ToySource(fail=lambda episode: 1 / 0), ["red-1"])


def test_a_slow_tool_is_given_up_and_the_others_go_on(tokenizer):
    hang = lambda episode: time.sleep(5.0 if episode.task == "gold" else 0.0)  # noqa: E731
    settings = RolloutSettings(workers=1, tool_seconds=0.2, thinking=False)
    started = time.monotonic()
    rollouts, _ = play(tokenizer, ToySource(fail=hang), ["gold-1", "red-2", "gold-2", "red-1"], settings=settings)
    assert time.monotonic() - started < 3
    assert ["TimeLimitError" in rollout.fault for rollout in rollouts] == [True, False, True, False]


def test_waiting_for_a_thread_does_not_count_as_running():
    with EpisodeWorkers(1, limit=0.3) as workers:
        jobs = [workers.submit(lambda: time.sleep(0.1)) for _ in range(6)]
        workers.wait(jobs)
        assert [job.result() for job in jobs] == [None] * 6


def test_a_job_given_up_says_so_although_it_ends_later():
    with EpisodeWorkers(1, limit=0.05) as workers:
        job = workers.submit(lambda: time.sleep(0.2) or "late")
        workers.wait([job])
        time.sleep(0.3)
        with pytest.raises(TimeLimitError, match=r"tool limit of 0\.05 s"):
            job.result()


def test_a_prompt_over_the_limit_is_never_cut(tokenizer):
    settings = RolloutSettings(max_prompt_tokens=20, thinking=False)
    (rollout,), model = play(tokenizer, ToySource(), ["red-1"], settings=settings)
    assert not rollout.turns and "raise max_prompt_tokens" in rollout.fault and math.isnan(rollout.reward)
    assert model.asked == []


def test_all_processes_make_the_same_number_of_calls(tokenizer):
    rounds = iter([4, 4, 2, 0])  # the most live episodes anywhere; here there are 2, 1, 0
    _, model = play(tokenizer, ToySource(), ["red-1", "red-2"], most_live=lambda _: next(rounds))
    assert [len(prompts) for prompts in model.asked] == [2, 1, 1]
    rounds = iter([4, 4, 2, 0])
    rollouts, model = play(
        tokenizer, ToySource(), ["red-1", "red-2"], most_live=lambda _: next(rounds), equal_counts=True
    )
    assert [len(prompts) for prompts in model.asked] == [4, 4, 2]
    assert [len(rollout.turns) for rollout in rollouts] == [1, 2]


def test_a_group_with_two_first_prompts_is_refused():
    check_groups(["p", "p", None, "q", "q"], [0, 0, 0, 1, 1])
    with pytest.raises(ConfigError, match="group 1 started from different prompts"):
        check_groups(["p", "p", "q", "r"], [0, 0, 1, 1])


def test_memory_prompts_stay_rows_of_their_own(tokenizer):
    (rollout,), _ = play(tokenizer, ToySource(), ["red-3"])
    rows = trajectory_rows(rollout.turns)
    assert [(row.prompt_ids, row.completion_ids) for row in rows] == [
        (turn.prompt_ids, turn.response_ids) for turn in rollout.turns
    ]


def test_chat_prompts_merge_into_one_row_with_tool_text_masked(tokenizer):
    settings = RolloutSettings(thinking=None)
    (rollout,), _ = play(tokenizer, ToySource(mode="chat"), ["red-3"], settings=settings)
    (row,) = trajectory_rows(rollout.turns)
    last = rollout.turns[-1]
    assert row.prompt_ids + row.completion_ids == last.prompt_ids + last.response_ids
    trained = [token for token, keep in zip(row.completion_ids, row.trained, strict=True) if keep]
    assert trained == [token for turn in rollout.turns for token in turn.response_ids]
    masked = tokenizer.decode([token for token, keep in zip(row.completion_ids, row.trained, strict=True) if not keep])
    assert masked.count("<|im_start|>user") == 2
    assert [lp for lp, keep in zip(row.logprobs, row.trained, strict=True) if not keep] == [0.0] * row.trained.count(0)


def test_rows_carry_their_trajectorys_advantage(tokenizer):
    rollouts, _ = play(tokenizer, ToySource(), ["red-3", "red-3", "blue-2", "blue-2"], LetterModel(tokenizer, "AB"))
    advantages = np.array([1.0, -1.0, 0.5, -0.5])
    batch = build_rows(rollouts, advantages, np.array([True, False, True, True]))
    assert batch.advantages == [1.0] * 3 + [0.5] * 2 + [-0.5] * 2
    batch.pad(8, token=0)
    assert len(batch.prompt_ids) == 8 and batch.weights[-1] == [0.0] and batch.real == 7


def test_metrics_count_what_was_scored(tokenizer):
    rollouts, _ = play(
        tokenizer,
        ToySource(fail=lambda episode: episode.task == "gold"),
        ["red-1", "red-1", "gold-1"],
        LetterModel(tokenizer, "A"),
    )
    metrics = rollout_metrics([summarise(rollout) for rollout in rollouts], [0, 0, 0])
    assert metrics["reward"] == 1.0 and metrics["repeated_share"] == 0.5 and metrics["invalid_share"] == 0.0


def test_every_response_is_saved_with_its_exact_ids(tokenizer, tmp_path):
    rollouts, _ = play(tokenizer, ToySource(fail=lambda episode: episode.task == "gold"), ["red-2", "red-2", "gold-1"])
    advantages = group_advantages([rollout.reward for rollout in rollouts], [0, 0, 1])
    texts = [["t"] * len(rollout.turns) for rollout in rollouts]
    write_rollouts(tmp_path / "r.parquet", rollouts, [0, 0, 1], texts, advantages, np.array([True, True, False]))
    rows = pyarrow.parquet.read_table(tmp_path / "r.parquet").to_pylist()
    turns = [turn for rollout in rollouts for turn in rollout.turns]
    assert [row["response_ids"] for row in rows] == [turn.response_ids for turn in turns]
    assert [row["prompt_ids"] for row in rows] == [turn.prompt_ids for turn in turns]
    assert rows[-1]["fault"].startswith(InfrastructureError.__name__)
