"""Speed of rollout and update against TRL's own tool loop, on the same chat-mode task with the same model.

    OMP_NUM_THREADS=1 python benchmarks/bench_grpo.py [--steps 3] [--episodes 32]

Both trainers generate with real passes of the same tiny Qwen3 and are made to say the same words: three tool calls,
then an answer. So they read, draw and train on the same tokens, and only the machinery differs. The second part shows
what rebuilding prompts costs and how much of the passes is padding: the same episodes in memory mode.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import numpy as np
import torch
from datasets import Dataset
from transformers import AutoTokenizer, LogitsProcessor, TrainerCallback
from transformers.utils import logging
from trl.chat_template_utils import get_training_chat_template
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from castgym.envs.core import AgentEpisode, Transition
from castgym.envs.prompts import Prompt
from castgym.envs.sources import EpisodeScore
from castgym.training.episode_trainer import sampled_by
from castgym.training.rollout import RolloutSettings
from castgym.training.step_grpo import StepGRPOTrainer
from castgym.training.step_settings import StepSettings
from castgym.training.tiny_model import TinySize, build_tiny_model

CALLS, GROUP = 3, 8
SYSTEM = "Look at the series with the tool, then answer. " * 4
FACTS = "demand by hour 812 790 775 770 781 830 905 960 981 990 1002 1010 level up season week " * 2
CALL = '<tool_call>\n{"name": "look", "arguments": {"day": 1}}\n</tool_call>'
ANSWER = "The answer is plan p1, with one step up in the evening."


def look(day: int) -> str:
    """
    Facts about a day.

    Args:
        day: number of the day.
    """
    return f"day {day}: {FACTS}"


TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Facts about a day.",
        "parameters": {
            "type": "object",
            "properties": {"day": {"type": "integer", "description": "number of the day."}},
            "required": ["day"],
        },
    },
}


class Conditions:
    max_response_tokens, count_tokens = 64, None

    def __init__(self, mode: str) -> None:
        self.prompt_mode = mode

    def describe(self) -> dict[str, Any]:
        return {"prompt_mode": self.prompt_mode}


class LookEpisode(AgentEpisode):
    """The task as an episode."""

    def __init__(self, subject_id: str, mode: str) -> None:
        super().__init__(Conditions(mode))
        self._subject = subject_id
        self.seen: list[str] = []

    @property
    def subject_id(self) -> str:
        return self._subject

    @property
    def subject_digest(self) -> str:
        return self._subject

    @property
    def spent(self) -> int:
        return 0

    def observe(self) -> Prompt:
        messages: list[Any] = [{"role": "system", "content": SYSTEM}]
        if self.conditions.prompt_mode == "chat":
            messages += [{"role": "user", "content": self._subject}, *self.said]
        else:
            messages.append({"role": "user", "content": "\n".join([self._subject, *self.seen])})
        return Prompt(tuple(messages), (TOOL,), {}, self.memory)

    @property
    def said(self) -> list[Any]:
        call = {"type": "function", "function": {"name": "look", "arguments": {"day": 1}}}
        pair = [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "name": "look"}]
        return [
            {**message, **({"content": text} if message["role"] == "tool" else {})}
            for text in self.seen
            for message in pair
        ]

    def _call(self, calls: Any, errors: Any, message: Any) -> Transition:
        del errors, message
        self.seen.append(look(calls[0].arguments["day"]))
        return Transition()

    def _commit(self, parsed: Any, message: Any = None) -> Transition:
        del parsed, message
        return self._finish(Transition(outcome="completed"))


class LookSource:
    name, split, fingerprint = "look", "train", "look"

    def __init__(self, mode: str, ids: list[str]) -> None:
        self.mode, self.ids, self.scored = mode, tuple(ids), 0

    def dataset(self, subject_id: str) -> str:
        del subject_id
        return "look"

    def episode(self, subject_id: str) -> LookEpisode:
        return LookEpisode(subject_id, self.mode)

    def score(self, episode: AgentEpisode) -> EpisodeScore:
        del episode
        self.scored += 1
        return EpisodeScore(float(self.scored % 3), 0.0, True, {})


class Spoken(LogitsProcessor):
    """Lets a model say given tokens: every pass is made, its choice is not taken."""

    def __init__(self, ids: list[int]) -> None:
        self.ids, self.logprobs, self.step = ids, [], 0

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        del input_ids
        token = self.ids[min(self.step, len(self.ids) - 1)]
        self.step += 1
        self.logprobs.append(scores.float().log_softmax(-1)[:, token])
        return torch.full_like(scores, -torch.inf).index_fill_(1, torch.tensor([token]), 0.0)


class Speech:
    """What is said in each round of a generation."""

    def __init__(self, tokenizer: Any) -> None:
        end = [tokenizer.eos_token_id]
        self.lines = [tokenizer(text)["input_ids"] + end for text in [CALL] * CALLS + [ANSWER]]
        self.round = 0

    def next(self) -> Spoken:
        self.round += 1
        return Spoken(self.lines[(self.round - 1) % len(self.lines)])


class TrlLoop(GRPOTrainer):
    speech: Speech

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        with sampled_by(self.accelerator.unwrap_model(self.model_wrapped), self.speech.next()):
            return super()._generate_single_turn(*args, **kwargs)


class StepRows(StepGRPOTrainer):
    speech: Speech

    def _sample(self, prompts: Any, seeds: Any, temperature: float) -> Any:
        del seeds, temperature
        spoken = self.speech.next()
        with sampled_by(self.accelerator.unwrap_model(self.model_wrapped), spoken):
            responses, _ = self._generate_single_turn(prompts, None, {}, num_generations=1)
        drawn = torch.stack(spoken.logprobs, dim=1).tolist()
        return responses, [row[: len(ids)] for row, ids in zip(drawn, responses, strict=True)]


def arguments(folder: Path, options: argparse.Namespace) -> GRPOConfig:
    return GRPOConfig(
        str(folder), per_device_train_batch_size=options.episodes // 4, gradient_accumulation_steps=4,
        num_generations=GROUP, beta=0.0, loss_type="dapo", max_completion_length=1024, bf16=False, use_cpu=True,
        report_to=[], gradient_checkpointing=False, save_strategy="no", logging_steps=1, disable_tqdm=True,
        max_steps=options.steps + 1, learning_rate=1e-6, shuffle_dataset=False, seed=1, top_k=0,
        chat_template_kwargs={"enable_thinking": False},
    )  # fmt: skip


class Clock(TrainerCallback):
    """CPU seconds at the end of each update: wall time would measure whatever else the machine does."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.times.append(time.process_time())


def timed(trainer: Any) -> tuple[float, dict[str, float]]:
    """CPU seconds of a generation with its update, the median without the first, and the last log."""
    clock = Clock()
    trainer.add_callback(clock)
    trainer.train()
    return float(np.median(np.diff(clock.times))), [row for row in trainer.state.log_history if "step_time" in row][-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--episodes", type=int, default=32)
    options = parser.parse_args()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    ids = [f"Series S{place:03d}, target day {place % 28 + 1}." for place in range(200)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build_tiny_model(folder / "model", [SYSTEM, FACTS, CALL, ANSWER, *ids], TinySize(128, 4, 1024))

        def tokenizer() -> Any:
            return AutoTokenizer.from_pretrained(folder / "model")

        def reward(completions: list[Any], **_: Any) -> list[float]:
            return [float(place % 3) for place in range(len(completions))]

        prompts = [[{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}] for text in ids]
        loop = TrlLoop(
            model=str(folder / "model"), args=arguments(folder / "trl", options), reward_funcs=reward, tools=[look],
            train_dataset=Dataset.from_dict({"prompt": prompts}), processing_class=tokenizer(),
        )  # fmt: skip
        loop.speech = Speech(loop.processing_class)

        def ours(mode: str, waves: int = 1) -> StepRows:
            own = tokenizer()
            if mode == "chat":
                own.chat_template = get_training_chat_template(own)
            settings = StepSettings(options.episodes, RolloutSettings(waves=waves, thinking=False))
            trainer = StepRows(
                model=str(folder / "model"), args=arguments(folder / mode, options), processing_class=own,
                source=LookSource(mode, ids), settings=settings,
            )  # fmt: skip
            trainer.speech = Speech(own)
            return trainer

        started = time.perf_counter()
        drawn = options.episodes * sum(map(len, loop.speech.lines))
        print(
            f"{options.episodes} episodes of {CALLS} calls and an answer, {drawn} drawn tokens, {options.steps} updates"
        )
        trl_seconds, log = timed(loop)
        print(
            f"TRL's tool loop, chat: {trl_seconds:6.2f} CPU-s, {drawn / trl_seconds:7.0f} tokens/s; "
            f"calls {log['tools/call_frequency']:.1f}, failed {log['tools/failure_frequency']:.2f}, "
            f"length {log['completions/mean_length']:.1f}"
        )
        for mode in ("chat", "memory"):
            seconds, log = timed(ours(mode))
            parts = {part: log[f"seconds/{part}"] / log["step_time"] for part in ("generate", "wait", "render")}
            print(
                f"step rows, {mode:<6}:     {seconds:6.2f} CPU-s, {drawn / seconds:7.0f} tokens/s: "
                f"{trl_seconds / seconds:.2f} of TRL's speed; {log['rollout/rows']:.0f} rows; "
                f"generation {parts['generate']:.0%}, environment {parts['wait']:.1%}, "
                f"rendering {parts['render']:.1%}, update {1 - sum(parts.values()):.0%}; "
                f"padding {log['rollout/padding_waste']:.1%} of what is read"
            )
        print(f"in all {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
