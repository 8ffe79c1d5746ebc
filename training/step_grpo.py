"""GRPO on step rows: TRL's trainer, with episodes for generation and one advantage for all steps of a trajectory.

Of `trl.GRPOTrainer` three private methods are overridden: `_generate` plays episodes instead of answering prompts,
`_generate_and_score_completions` gives each row its trajectory's advantage, and `_get_per_token_logps_and_entropies`
leaves padding out (`narrow_passes`). Clipping, KL, reference model, LoRA, vLLM with its importance sampling, DDP, FSDP,
ZeRO, checkpoints and logging are inherited. A contract test pins what is used of TRL's private side.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from accelerate.utils import gather_object

from castgym.data.errors import ConfigError, InfrastructureError
from castgym.envs.sources import EpisodeSource
from castgym.training.advantages import GroupReport, group_advantages, report_groups
from castgym.training.episode_trainer import EpisodeTrainer, seed_of
from castgym.training.rollout import Rollout, RolloutSeconds, check_groups
from castgym.training.rollout_log import RolloutSummary, rollout_metrics, summarise, write_rollouts
from castgym.training.rollout_rows import RowBatch, build_rows
from castgym.training.step_settings import StepSettings

__all__ = ["StepGRPOTrainer", "StepSettings", "episode_return"]


def episode_return(episode_return: Sequence[float], **_: Any) -> list[float | None]:
    """TRL's reward function: the returns that the rollouts brought; `None` where the infrastructure failed."""
    return [None if math.isnan(value) else value for value in episode_return]


class StepGRPOTrainer(EpisodeTrainer):
    """Trains a policy on episodes of any source.

    Args:
        source: episodes to train on.
        settings: of the step rows.
        train_ids: subjects in the order in which they are trained on, once a group; all of the source by default.
        eval_source: held-out episodes.
        eval_ids: subjects of evaluations.
        trl: everything else that `trl.GRPOTrainer` takes.

    Raises:
        ConfigError: settings that do not fit together.
    """

    def __init__(
        self,
        *,
        source: EpisodeSource,
        settings: StepSettings,
        train_ids: Sequence[str] | None = None,
        eval_source: EpisodeSource | None = None,
        eval_ids: Sequence[str] = (),
        **trl: Any,
    ) -> None:
        super().__init__(
            settings=settings,
            train_ids=source.ids if train_ids is None else train_ids,
            eval_source=eval_source,
            eval_ids=eval_ids,
            reward_funcs=episode_return,
            **trl,
        )
        self.source = source
        self.args.generation_batch_size = settings.episodes_per_device * self.accelerator.num_processes
        self._check()
        self._subjects: list[str] = []
        self._rows = RowBatch()

    def get_train_dataloader(self) -> Any:
        """TRL's, with the episodes of a generation as batch size."""
        dataset: Any = self.train_dataset
        return self._get_dataloader(
            dataset=dataset,
            description="Training",
            batch_size=self.settings.episodes_per_device,
            sampler_fn=self._get_train_sampler,
            is_training=True,
        )

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        inputs = [dict(row) for row in inputs]  # TRL adds the returns to them
        self._subjects = [row["subject_id"] for row in inputs]
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        # TRL made one advantage a trajectory, without knowing what is left out: each row gets its trajectory's.
        output["advantages"] = torch.tensor(self._rows.advantages, device=self.accelerator.device)
        self._sing(output)
        return output

    def _generate(self, prompts: list[Any]) -> tuple[Any, ...]:
        del prompts  # the episodes make their own
        seconds = self._player.seconds = RolloutSeconds()
        rollouts, summaries, report = self._play_groups()
        groups, local = self._groups(len(summaries)), self._local(len(rollouts))
        scale: Any = self.scale_rewards
        advantages = group_advantages(self._returns(summaries), groups, scale)[local]
        kept = report.kept(self.settings.zero_variance)[local]
        rows = self._rows = build_rows(rollouts, advantages, kept, self.settings.weighting)
        # As many rows on every process, which divide into its micro-batches.
        chunks = self.args.steps_per_generation
        rows.pad(-(-max(1, self._most(rows.real)) // chunks) * chunks, self._tokenizer.eos_token_id)
        texts = self._texts(rollouts)
        path = self._file("rollouts", "generation", self._generation)
        write_rollouts(path, rollouts, groups[local].tolist(), texts, advantages, kept)
        self._log_rollouts(summaries, groups.tolist(), report, seconds)
        completions = [[{"role": "assistant", "content": "\n".join(text)}] for text in texts]
        extra = {"episode_return": [rollout.reward for rollout in rollouts]}
        return rows.prompt_ids, rows.completion_ids, rows.weights, completions, rows.logprobs, extra, None, []

    def _play_groups(self) -> tuple[list[Rollout], list[RolloutSummary], GroupReport]:
        """This process's trajectories, the summaries of all processes', and what can be learnt from."""
        rollouts = self._play(range(len(self._subjects)), attempt=0)
        attempts = self.settings.resample_limit if self.settings.zero_variance == "resample" else 0
        for attempt in range(attempts + 1):
            summaries = gather_object([summarise(rollout) for rollout in rollouts])
            groups = self._groups(len(summaries))
            check_groups([item.first_prompt for item in summaries], groups.tolist())
            report = report_groups(self._returns(summaries), groups)
            if report.left_out_share > self.settings.max_failure_share:
                faults = sorted({rollout.fault for rollout in rollouts if rollout.fault})
                raise InfrastructureError(
                    f"the infrastructure failed {report.left_out_share:.0%} of the trajectories of a generation, more "
                    f"than max_failure_share = {self.settings.max_failure_share:g}: {'; '.join(faults[:3])}"
                )
            flat = np.unique(groups[~report.varied])
            if not len(flat) or attempt == attempts:
                break
            self._metrics["train"]["groups/resampled"].append(float(len(flat)))
            self._resample(rollouts, groups, flat, attempt)
        return rollouts, summaries, report

    def _resample(
        self, rollouts: list[Rollout], groups: npt.NDArray[np.intp], flat: npt.NDArray[np.intp], attempt: int
    ) -> None:
        """Replace groups by groups of other subjects. All processes draw the same: a group may lie on several."""
        draw = np.random.default_rng([self.args.seed, self._generation, attempt])
        others = dict(zip(flat.tolist(), draw.choice(list(self.source.ids), len(flat)).tolist(), strict=True))
        mine = groups[self._local(len(rollouts))].tolist()
        places = [place for place, group in enumerate(mine) if group in others]
        for place in places:
            self._subjects[place] = others[mine[place]]
        for place, rollout in zip(places, self._play(places, attempt + 1), strict=True):
            rollouts[place] = rollout

    def _play(self, places: Sequence[int], attempt: int) -> list[Rollout]:
        """Play the episodes at some places of this process's batch."""
        first = self._local(len(self._subjects)).start
        # Seeds by place in the whole batch: it is sampled the same way on any number of processes.
        seeds = [seed_of(self.args.seed, self._generation, attempt, first + place) for place in places]
        return self._play_ids(self.source, [self._subjects[place] for place in places], seeds, self.temperature)

    @property
    def _generation(self) -> int:
        """Number of the generation's first micro-batch in the run, the same after a resumption."""
        accumulation = self.args.gradient_accumulation_steps
        return int(self.state.global_step * accumulation + self._step % accumulation)

    def _groups(self, count: int) -> npt.NDArray[np.intp]:
        """(N,) group of each trajectory of all processes: TRL's sampler repeats each subject G times in a row."""
        return np.arange(count, dtype=np.intp) // int(self.num_generations)

    def _local(self, count: int) -> slice:
        """This process's part of what was gathered from all, where each has as many."""
        first = self.accelerator.process_index * count
        return slice(first, first + count)

    def _returns(self, summaries: Sequence[RolloutSummary]) -> npt.NDArray[np.float64]:
        """(N,) returns as advantages see them."""
        returns = np.array([item.reward for item in summaries], dtype=np.float64)
        least = self.settings.least_return
        return returns if least is None else np.maximum(returns, least)  # NaN stays NaN

    def _sing(self, output: Mapping[str, Any]) -> None:
        """Drift canary: compare the sampler's log-probabilities with the trainer's, on one row a process at least."""
        logps = output.get("old_per_token_logps")
        rows = slice(1) if logps is None else slice(None)
        mask = (output["completion_mask"] * output["tool_mask"])[rows] > 0
        if logps is None:
            ids = torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1)[rows]
            attention = torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1)[rows]
            with torch.no_grad():
                logps, _, _ = self._get_per_token_logps_and_entropies(self.model, ids, attention, mask.size(1))
        gap = (logps - output["sampling_per_token_logps"][rows]).abs()[mask].nan_to_num(0.0)
        totals = torch.stack([gap.sum(), torch.tensor(float(gap.numel()), device=gap.device)])
        total, count = self.accelerator.reduce(totals).tolist()
        worst = gap.max() if gap.numel() else gap.new_zeros(())
        self._metrics["train"]["canary/logprob_gap_mean"].append(total / max(count, 1.0))
        self._metrics["train"]["canary/logprob_gap_max"].append(self.accelerator.gather(worst).max().item())

    def _log_rollouts(
        self, summaries: Sequence[RolloutSummary], groups: Sequence[int], report: GroupReport, seconds: RolloutSeconds
    ) -> None:
        metrics = self._metrics["train"]
        self.state.num_input_tokens_seen += sum(item.prompt_tokens + item.response_tokens for item in summaries)
        metrics["num_tokens"] = [self.state.num_input_tokens_seen]
        figures = {f"rollout/{name}": value for name, value in rollout_metrics(summaries, groups).items()}
        figures |= {
            "rollout/rows": float(self._rows.real),
            "rollout/padding_rows": float(len(self._rows.prompt_ids) - self._rows.real),
            "groups/std": report.std,
            "groups/zero_variance_share": report.zero_variance_share,
            "groups/left_out_share": report.left_out_share,
            "groups/dropped_share": report.dropped_share,
            "groups/trained_share": float(report.kept(self.settings.zero_variance).mean()),
        }
        figures |= {f"seconds/{name}": value for name, value in dataclasses.asdict(seconds).items()}
        for name, value in figures.items():
            metrics[name].append(value)

    def _check(self) -> None:
        args, settings = self.args, self.settings
        if self.loss_type != "dapo":
            raise ConfigError(
                f"expected loss_type='dapo', found {self.loss_type!r}: other losses average over rows, which padding "
                "rows would bias; set the weighting of tokens with `weighting`"
            )
        if self.scale_rewards not in ("group", "none"):
            raise ConfigError(f"expected scale_rewards 'group' or 'none', found {self.scale_rewards!r}")
        if args.generation_batch_size % self.num_generations:
            raise ConfigError(
                f"expected episodes_per_device x processes as a multiple of num_generations = {self.num_generations}, "
                f"found {settings.episodes_per_device} x {self.accelerator.num_processes}"
            )
        updates = args.steps_per_generation * self.num_iterations
        if args.save_strategy == "steps" and args.save_steps * args.gradient_accumulation_steps % updates:
            raise ConfigError(
                f"expected checkpoints between generations, which span {updates} micro-batches; found save_steps "
                f"{args.save_steps} x {args.gradient_accumulation_steps}: a run could not resume exactly"
            )
