"""Multi-turn GRPO over memory-built step rows (Cast-R1, 3.5.2): the SFT policy learns from the scores of its episodes.

    accelerate launch --config_file configs/accelerate_zero3.yaml training/grpo.py configs/grpo_qwen3_8b.yaml
    python training/grpo.py configs/grpo_tiny.yaml [--set NAME=VALUE ...] [--resume]

G trajectories are played on each training subject, all live episodes of a batch together. At each step the episode
builds a new prompt from its memory, so a trajectory of K steps is K rows (prompt, response). All of them get the
trajectory's advantage A_i = (R_i - mean) / std over the group; the loss is the clipped ratio with KL to the SFT policy.
`docs/grpo.md` explains every setting and metric.

Deviations from the paper, and what it leaves open:
* The standard deviation has the divisor G - 1 and 1e-4 added, as in TRL; the mean over tokens is that over all response
  tokens of an update (`weighting: token`; `trajectory` gives the 1/|o_i| of the first GRPO paper).
* "Batch 64" is read as 64 trajectories: 8 subjects x G = 8. "Accumulation 4" is `micro_batches`: how many parts the
  rows of an update are split into. It changes memory, not the gradient, so the 8B recipe takes more.
* One update a generation: the ratio is 1 except for the distance of vLLM's numbers from the trainer's, which
  token-truncated importance sampling corrects. The clip range is 0.2; KL is estimated as exp(d) - d - 1, uncorrected.
* No weight decay, no warm-up, gradient norm cut at 1, AdamW's betas 0.9 and 0.999.
* Curriculum: thresholds and the rule that joins both dimensions are ours (`curriculum.py`).
* Trajectories that the infrastructure failed are left out, and a group of fewer than two members with them. A response
  cut at the token limit ends its episode without an answer, and is trained on with the score of that.
* A collapse monitor stops the run, and the best checkpoint by held-out score is its model; the paper names neither.
* The episodes, prompts and rewards are castgym's.
"""

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field
from transformers.utils import logging
from trl.trainer.grpo_config import GRPOConfig

from castgym.data.errors import ConfigError
from castgym.data.files import sha256_hex
from castgym.training.advantages import Scale, Weighting, ZeroVariance
from castgym.training.curriculum import (
    CurriculumSettings,
    Difficulty,
    measure_difficulty,
    plain_order,
    plot_difficulties,
    training_order,
    write_difficulties,
)
from castgym.training.episode_settings import EpisodeSettings, spread_subjects
from castgym.training.guard import CollapseGuard, GuardSettings
from castgym.training.loading import LoraSettings, load_tokenizer, usable_gpu
from castgym.training.memory_estimate import MemoryPlan, check_memory
from castgym.training.metrics_log import MetricsLog, WandbSettings, report_to
from castgym.training.rollout import RolloutSettings
from castgym.training.run_config import RunConfig
from castgym.training.run_script import TrainingFolder, run_script
from castgym.training.step_grpo import StepGRPOTrainer
from castgym.training.step_settings import StepSettings

EXPECTED_STEPS = 3
"""Responses of a trajectory that the memory estimate reckons with: the paper's."""

FREE_TO_CHANGE = ("out", "workers", "waves", "tool_seconds", "keep_checkpoints", "log_steps", "wandb")
"""Settings that a resumed run may change."""


class VllmSettings(RunConfig):
    """Generation with vLLM.

    Attributes:
        mode: `colocate` shares the trainers' GPUs; `server` is `vllm serve` on GPUs of its own.
        gpu_share: share of each GPU that a colocated vLLM takes.
        tensor_parallel: GPUs that share a colocated model.
        sleep: free a colocated vLLM's memory while training.
        server_url: address of the server.
    """

    mode: Literal["colocate", "server"] = "colocate"
    gpu_share: float = Field(0.3, gt=0, lt=1)
    tensor_parallel: int = Field(1, ge=1)
    sleep: bool = True
    server_url: str = "http://127.0.0.1:8000"


class GrpoSettings(RunConfig):
    """Settings of a run; the defaults are the paper's (Table 7).

    Attributes:
        model: folder or hub id of the SFT policy, which is also the reference of KL.
        out: folder of the run.
        episodes: what is played.
        train_subjects: subjects to train on, evenly from the data sets; `null` for all.
        held_out_subjects: subjects of an evaluation.
        thinking: switch of the chat template, as in SFT.
        max_prompt_tokens: limit of a prompt; an episode with a longer one is left out.
        max_response_tokens: limit of a response, at which it is cut.
        lora: adapters; `null` trains all weights.
        group_size: trajectories on one subject, G.
        batch_size: trajectories of a generation, over all processes.
        micro_batches: parts into which a process splits the rows of an update.
        updates_per_generation: optimiser steps for which the trajectories of a generation are divided.
        epochs: passes over the subjects.
        max_steps: optimiser steps after which to stop; `null` for the epochs alone.
        learning_rate: peak.
        schedule: of the learning rate.
        warmup_steps: steps of linear warm-up.
        max_grad_norm: at which gradients are cut.
        beta: weight of KL.
        epsilon: clip range of the ratio.
        temperature: of sampling.
        scale: advantages divided by the group's standard deviation (`group`), or not (`none`, Dr. GRPO).
        weighting: of tokens against each other: `token`, `row` or `trajectory`.
        zero_variance: groups whose returns are all the same: `keep`, `drop` or `resample`.
        least_return: returns below it count as this much in advantages; `null` for none, as in the paper. An invalid
            answer of the decision benchmark scores about -20, a valid one about -0.5.
        precision: `bf16` autocast, or `fp32`.
        gradient_checkpointing: trade time for memory.
        attention: implementation of attention; `null` for the library's choice.
        workers: threads for the episodes' own work.
        waves: parts of a batch that take turns in generating, see `RolloutSettings`.
        tool_seconds: limit on one step of an episode's own work.
        vllm: generation with vLLM; `null` for transformers.
        curriculum: which subjects in which order; `null` for all in random order.
        guard: limits of the collapse monitor.
        eval_steps: steps between two evaluations; `null` for none.
        eval_temperature: of sampling in evaluations, 0 for the likeliest tokens.
        log_steps: steps between two lines of metrics.
        save_steps: steps between two checkpoints, a multiple of `eval_steps`; `null` for none but the final model.
        keep_checkpoints: how many to keep, the best one apart.
        seed: of order, sampling and adapters.
        wandb: Weights & Biases; `null` for none.
    """

    model: str
    out: Path
    episodes: EpisodeSettings
    train_subjects: int | None = Field(None, ge=1)
    held_out_subjects: int = Field(64, ge=1)
    thinking: bool | None = None
    max_prompt_tokens: int = Field(8192, ge=1)
    max_response_tokens: int = Field(4096, ge=1)
    lora: LoraSettings | None = None
    group_size: int = Field(8, ge=2)
    batch_size: int = Field(64, ge=2)
    micro_batches: int = Field(4, ge=1)
    updates_per_generation: int = Field(1, ge=1)
    epochs: float = Field(1.0, gt=0)
    max_steps: int | None = Field(None, ge=1)
    learning_rate: float = Field(1e-6, gt=0)
    schedule: Literal["cosine", "constant"] = "cosine"
    warmup_steps: int = Field(0, ge=0)
    max_grad_norm: float = Field(1.0, gt=0)
    beta: float = Field(0.04, ge=0)
    epsilon: float = Field(0.2, gt=0)
    temperature: float = Field(1.0, gt=0)
    scale: Scale = "group"
    weighting: Weighting = "token"
    zero_variance: ZeroVariance = "keep"
    least_return: float | None = None
    precision: Literal["bf16", "fp32"] = "bf16"
    gradient_checkpointing: bool = True
    attention: Literal["eager", "sdpa", "flash_attention_2"] | None = None
    workers: int = Field(4, ge=1)
    waves: int = Field(1, ge=1)
    tool_seconds: float | None = Field(60.0, gt=0)
    vllm: VllmSettings | None = None
    curriculum: CurriculumSettings | None = None
    guard: GuardSettings = GuardSettings()
    eval_steps: int | None = Field(None, ge=1)
    eval_temperature: float = Field(0.0, ge=0)
    log_steps: int = Field(1, ge=1)
    save_steps: int | None = Field(None, ge=1)
    keep_checkpoints: int = Field(2, ge=1)
    seed: int = Field(0, ge=0)
    wandb: WandbSettings | None = None


def train(settings: GrpoSettings, resume: bool = False) -> None:
    """Train, and write the model to `out/model`: the best checkpoint by held-out score where there are evaluations.

    Args:
        settings: of the run.
        resume: continue from the last complete checkpoint of the same run, or from the beginning where there is none.

    Raises:
        CastgymError: settings, episodes or folder do not fit; nothing was trained.
    """
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # of loading and saving; that of training stays
    folder = TrainingFolder(settings.out)
    args = trainer_arguments(settings, folder)
    main = args.process_index == 0
    source = settings.episodes.source("train")
    subjects = spread_subjects(source, settings.train_subjects)
    difficulties = measure_difficulty(source, subjects, settings.curriculum) if settings.curriculum else []
    order = subject_order(settings, subjects, difficulties)
    identity = {
        **settings.identity(*FREE_TO_CHANGE),
        "data": source.fingerprint,
        "order": sha256_hex("\n".join(order).encode()),
        "processes": args.world_size,
    }
    checkpoint = folder.check(identity, resume)
    args.distributed_state.wait_for_everyone()
    if main:
        folder.begin(identity, {"settings": settings.identity()})
        if settings.curriculum:
            write_difficulties(folder.path / "curriculum.csv", difficulties, settings.curriculum)
            plot_difficulties(folder.path / "curriculum.png", difficulties, settings.curriculum)
        print(plan_text(settings, args, order, checkpoint), flush=True)
    held_out = settings.episodes.source("held_out") if settings.eval_steps else None
    guard = CollapseGuard(settings.guard)
    args.eval_on_start = held_out is not None and checkpoint is None
    trainer = StepGRPOTrainer(
        source=source,
        settings=step_settings(settings, args),
        train_ids=order,
        eval_source=held_out,
        eval_ids=spread_subjects(held_out, settings.held_out_subjects) if held_out else (),
        model=settings.model,
        args=args,
        processing_class=load_tokenizer(settings.model),
        peft_config=settings.lora.adapter() if settings.lora else None,
        callbacks=[MetricsLog(folder.metrics), guard],
    )
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    trainer.save_model(str(folder.model))
    if main:
        if guard.reason:
            print(f"stopped at step {trainer.state.global_step}: {guard.reason}", flush=True)
        best = trainer.state.best_model_checkpoint
        print(f"{folder.model}: {f'the weights of {Path(best).name}' if best else 'the last weights'}", flush=True)


def subject_order(settings: GrpoSettings, subjects: Sequence[str], difficulties: Sequence[Difficulty]) -> list[str]:
    """The training subjects of the whole run in order, once a group.

    Args:
        settings: of the run.
        subjects: those to train on.
        difficulties: of each, where there is a curriculum.
    """
    epochs = settings.epochs
    if settings.max_steps is not None:  # as many passes as the steps need, and one for what the filter drops
        groups = settings.batch_size // settings.group_size
        epochs = math.ceil(settings.max_steps / settings.updates_per_generation) * groups / len(subjects) + 1
    if settings.curriculum is None:
        return plain_order(subjects, epochs, settings.seed)
    return training_order(difficulties, settings.curriculum, epochs, settings.seed)


def step_settings(settings: GrpoSettings, args: GRPOConfig) -> StepSettings:
    """What step rows add to TRL's settings."""
    return StepSettings(
        episodes_per_device=settings.batch_size // args.world_size,
        rollout=RolloutSettings(
            workers=settings.workers,
            waves=settings.waves,
            tool_seconds=settings.tool_seconds,
            max_prompt_tokens=settings.max_prompt_tokens,
            thinking=settings.thinking,
        ),
        weighting=settings.weighting,
        zero_variance=settings.zero_variance,
        least_return=settings.least_return,
        eval_temperature=settings.eval_temperature,
        folder=settings.out,
    )


def trainer_arguments(settings: GrpoSettings, folder: TrainingFolder) -> GRPOConfig:
    """The settings as TRL takes them; joins the processes of a launch.

    Raises:
        ConfigError: batch, groups, processes and checkpoints do not fit together, or the device has no bfloat16.
    """
    on_gpu = usable_gpu(settings.precision)
    evaluates, saves = settings.eval_steps is not None, settings.save_steps is not None
    if evaluates and saves and (settings.save_steps or 0) % (settings.eval_steps or 1):
        raise ConfigError(
            f"expected save_steps as a multiple of eval_steps, so that checkpoints have a score; found "
            f"{settings.save_steps} and {settings.eval_steps}"
        )
    chunks = settings.micro_batches * settings.updates_per_generation
    frozen = settings.lora is not None and settings.precision == "bf16"
    attention = {} if settings.attention is None else {"attn_implementation": settings.attention}
    vllm = settings.vllm or VllmSettings()
    args = GRPOConfig(
        output_dir=str(folder.checkpoints),
        model_init_kwargs={"dtype": "bfloat16" if frozen else "float32", **attention},
        # The loss: one advantage a trajectory, token mean over all rows, which rows of padding do not change.
        loss_type="dapo",
        scale_rewards=settings.scale,
        beta=settings.beta,
        epsilon=settings.epsilon,
        use_bias_correction_kl=False,
        num_iterations=1,
        num_generations=settings.group_size,
        num_generations_eval=1,
        # TRL couples micro-batches with prompts; here a micro-batch is a share of the rows, whatever K is.
        per_device_train_batch_size=settings.group_size,
        gradient_accumulation_steps=settings.micro_batches,
        steps_per_generation=chunks,
        # Sampling: the policy as it is.
        temperature=settings.temperature,
        top_p=1.0,
        top_k=0,
        max_completion_length=settings.max_response_tokens,
        use_vllm=settings.vllm is not None,
        vllm_mode=vllm.mode,
        vllm_gpu_memory_utilization=vllm.gpu_share,
        vllm_tensor_parallel_size=vllm.tensor_parallel,
        vllm_enable_sleep_mode=vllm.sleep,
        vllm_server_base_url=vllm.server_url if vllm.mode == "server" else None,
        vllm_max_model_length=settings.max_prompt_tokens + settings.max_response_tokens,
        vllm_importance_sampling_mode="token_truncate",
        num_train_epochs=1,  # the order of subjects holds all epochs
        max_steps=-1 if settings.max_steps is None else settings.max_steps,
        shuffle_dataset=False,
        learning_rate=settings.learning_rate,
        lr_scheduler_type=settings.schedule,
        warmup_steps=settings.warmup_steps,
        optim="adamw_torch",
        weight_decay=0.0,
        max_grad_norm=settings.max_grad_norm,
        bf16=settings.precision == "bf16",
        gradient_checkpointing=settings.gradient_checkpointing,
        logging_steps=settings.log_steps,
        logging_first_step=True,
        eval_strategy="steps" if evaluates else "no",
        eval_steps=settings.eval_steps,
        save_strategy="steps" if saves else "no",
        save_steps=settings.save_steps or 1,
        save_total_limit=settings.keep_checkpoints,
        load_best_model_at_end=evaluates and saves,
        metric_for_best_model="eval_reward" if evaluates else None,
        greater_is_better=True if evaluates else None,
        report_to=report_to(settings.wandb, folder.path),
        run_name=settings.wandb.name if settings.wandb else None,
        seed=settings.seed,
        data_seed=settings.seed,
        use_cpu=not on_gpu,
        ddp_find_unused_parameters=False,
    )
    if settings.batch_size % args.world_size or settings.batch_size % settings.group_size:
        raise ConfigError(
            f"expected batch_size as a multiple of the {args.world_size} processes and of group_size = "
            f"{settings.group_size}, found {settings.batch_size}"
        )
    args.per_device_eval_batch_size = settings.batch_size // args.world_size
    return args


def plan_text(settings: GrpoSettings, args: GRPOConfig, order: Sequence[str], checkpoint: Path | None) -> str:
    """What the run is going to do, and the memory that it needs."""
    episodes = settings.batch_size // args.world_size
    estimate, warning = check_memory(
        settings.model,
        MemoryPlan(
            shards=args.world_size if args.distributed_state.distributed_type in ("FSDP", "DEEPSPEED") else 1,
            rows=math.ceil(episodes * EXPECTED_STEPS / (settings.micro_batches * settings.updates_per_generation)),
            tokens=settings.max_prompt_tokens + settings.max_response_tokens,
            live=math.ceil(episodes / settings.waves),
            lora_rank=settings.lora.rank if settings.lora else None,
            reference=settings.beta > 0,
            vllm=settings.vllm.gpu_share if settings.vllm and settings.vllm.mode == "colocate" else None,
        ),
    )
    generations = len(order) * settings.group_size // settings.batch_size
    lines = [
        f"{len(set(order)):,} subjects, {generations:,} generations of {settings.batch_size} trajectories in groups of "
        f"{settings.group_size}; {args.world_size} processes x {settings.micro_batches} micro-batches an update; "
        f"{f'from {checkpoint.name}' if checkpoint else 'from the beginning'}",
        str(estimate),
        *([f"warning: {warning}"] if warning else []),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(run_script(__doc__, GrpoSettings, train, sys.argv[1:]))
