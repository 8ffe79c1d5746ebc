"""What connects TRL's GRPO trainer with episodes: sampling through its own generation, and evaluation by playing."""

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from datasets import Dataset
from transformers import GenerationConfig, LogitsProcessorList

from castgym.agents.local_sampling import SeededSampler
from castgym.agents.sampling import SamplingSettings
from castgym.data.errors import ConfigError
from castgym.envs.sources import EpisodeSource
from castgym.training.narrow_passes import NarrowPasses
from castgym.training.rollout import Rollout, RolloutPlayer
from castgym.training.rollout_log import RolloutSummary, rollout_metrics, summarise, write_rollouts
from castgym.training.step_settings import StepSettings


class EpisodeTrainer(NarrowPasses):
    """A trainer that plays episodes: training ones in `_play`, held-out ones in its evaluations.

    An evaluation has no loss; its metrics are the scores. Each held-out subject is sampled with seeds of its own, the
    same in every evaluation and on any number of processes, so that two evaluations differ by the policy alone.

    Args:
        settings: of the step rows.
        train_ids: subjects to train on, in order, once a group.
        eval_source: held-out episodes.
        eval_ids: subjects of evaluations.
        trl: what `trl.GRPOTrainer` takes.
    """

    def __init__(
        self,
        *,
        settings: StepSettings,
        train_ids: Sequence[str],
        eval_source: EpisodeSource | None,
        eval_ids: Sequence[str],
        **trl: Any,
    ) -> None:
        super().__init__(
            train_dataset=_subject_dataset(train_ids),
            eval_dataset=_subject_dataset(eval_ids) if eval_ids else None,
            **trl,
        )
        if self.use_transformers_continuous_batching:
            raise ConfigError("continuous batching gives no log-probabilities: leave it off, or use vLLM")
        self.settings, self.eval_source = settings, eval_source
        self._player = RolloutPlayer(
            self._tokenizer, self.eos_token_ids, settings.rollout, self._most, equal_counts=self.use_vllm
        )
        self._eval_rollouts: list[Rollout] = []
        self._eval_summaries: dict[tuple[str, int], RolloutSummary] = {}
        if not self.use_vllm:  # `SeededSampler` draws: the library's own sampling must leave its choice alone
            neutral: Any = GenerationConfig
            self.generation_config = neutral(
                max_new_tokens=self.max_completion_length,
                do_sample=False,
                pad_token_id=self._tokenizer.pad_token_id,
                eos_token_id=self.eos_token_ids,
                cache_implementation=self.args.cache_implementation,
                disable_compile=True,
            )

    def prediction_step(
        self, model: Any, inputs: Any, prediction_loss_only: bool, ignore_keys: list[str] | None = None
    ) -> tuple[Any, None, None]:
        """Play a batch of held-out episodes."""
        del model, prediction_loss_only, ignore_keys
        assert self.eval_source is not None
        ids = [row["subject_id"] for row in inputs]
        keys = [(subject_id, ids[:place].count(subject_id)) for place, subject_id in enumerate(ids)]
        seeds = [seed_of(self.args.seed, zlib.crc32(name.encode()), member) for name, member in keys]
        rollouts = self._play_ids(self.eval_source, ids, seeds, self.settings.eval_temperature)
        self._eval_rollouts += rollouts
        # Once each, also where the last batch was filled up with some of the first.
        summaries = gather_object([summarise(rollout) for rollout in rollouts])
        self._eval_summaries.update(zip(map(tuple, gather_object(keys)), summaries, strict=True))
        return torch.zeros((), device=self.accelerator.device), None, None

    def evaluation_loop(
        self,
        dataloader: Any,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> Any:
        """The library's, with the scores of the held-out episodes as metrics."""
        self._eval_summaries, self._eval_rollouts = {}, []
        output: Any = super().evaluation_loop(
            dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix
        )
        played = self._eval_rollouts
        write_rollouts(
            self._file("evaluations", "step", self.state.global_step), played, range(len(played)), self._texts(played)
        )
        summaries = list(self._eval_summaries.values())
        names = {item.subject_id: place for place, item in enumerate(summaries)}
        metrics = rollout_metrics(summaries, [names[item.subject_id] for item in summaries])
        output.metrics.pop(f"{metric_key_prefix}_loss", None)
        output.metrics.update({f"{metric_key_prefix}_{name}": value for name, value in metrics.items()})
        return output

    def _play_ids(
        self, source: EpisodeSource, ids: Sequence[str], seeds: Sequence[int], temperature: float
    ) -> list[Rollout]:
        return self._player.play(source, ids, seeds, partial(self._sample, temperature=temperature))

    def _sample(
        self, prompts: list[list[int]], seeds: list[int], temperature: float
    ) -> tuple[list[list[int]], list[list[float]]]:
        """One response to each prompt, through TRL's own generation, with the sampler's log-probabilities."""
        generate: Any = self._generate_single_turn
        if self.use_vllm:
            self.vllm_generation.temperature = temperature
            responses, logprobs = generate(prompts, None, {}, num_generations=1)
            return responses, [[nan if value is None else value for value in row] for row in logprobs]
        settings = SamplingSettings(
            temperature=temperature,
            top_p=self.top_p,
            top_k=self.top_k or None,  # TRL writes 0 for no limit
            max_tokens=self.max_completion_length,  # type: ignore[arg-type]  # always set by then
        )
        sampler = SeededSampler(settings, seeds)
        with sampled_by(self.accelerator.unwrap_model(self.model_wrapped), sampler):
            responses, _ = generate(prompts, None, {}, num_generations=1)
        drawn = torch.stack(sampler.logprobs, dim=1).tolist()
        return responses, [row[: len(ids)] for row, ids in zip(drawn, responses, strict=True)]

    def _most(self, count: int) -> int:
        """The largest of all processes' counts."""
        counts = self.accelerator.gather(torch.tensor([count], device=self.accelerator.device))
        return int(counts.max().item())

    def _texts(self, rollouts: Sequence[Rollout]) -> list[list[str]]:
        return [[self._player.response_text(turn.response_ids) for turn in rollout.turns] for rollout in rollouts]

    def _file(self, kind: str, unit: str, number: int) -> Path:
        folder = self.settings.folder or Path(self.args.output_dir)
        return folder / kind / f"{unit}-{number:06d}-rank-{self.accelerator.process_index}.parquet"


def seed_of(*parts: int) -> int:
    """A seed from numbers that name what is sampled."""
    return int(np.random.SeedSequence(parts).generate_state(1)[0])


def _subject_dataset(subject_ids: Sequence[str]) -> Dataset:
    """The rows that TRL's sampler walks over: one a subject. The prompts come from the episodes."""
    prompts = [[{"role": "user", "content": subject_id}] for subject_id in subject_ids]
    return Dataset.from_dict({"prompt": prompts, "subject_id": list(subject_ids)})


@contextmanager
def sampled_by(model: Any, sampler: SeededSampler) -> Iterator[None]:
    """Let a sampler choose the tokens of whatever `model.generate` is called for."""
    model.generate = partial(model.generate, logits_processor=LogitsProcessorList([sampler]))
    try:
        yield
    finally:
        del model.generate  # the class's own method is there again
