"""Supervised fine-tuning on step rows (Cast-R1, 3.5.1 and D.2.2): the student learns each response of its teacher.

    python training/sft.py configs/sft_tiny.yaml [--set NAME=VALUE ...] [--resume]
    accelerate launch --config_file configs/accelerate_zero3.yaml training/sft.py configs/sft_qwen3_8b.yaml

A trajectory of K responses is K rows (s_k, a_k). The loss is on the tokens of a_k alone, the end of its turn included,
summed over a response and averaged over the N_resp responses. Prompts are rendered by the tokenizer's own chat
template, by the same code as in generation and reinforcement. Before training starts the lengths of all rows are
reported; a row over a limit is refused or dropped, and never cut.

Deviations from the paper, all of them:
* The loss is divided by the data set's mean response length, a constant (`sft_trainer`). AdamW does not see it; it only
  sets the scale on which the gradient's norm is cut.
* On several processes, where the rows do not fill the last step, accelerate repeats some of them in it.
* What the paper leaves open: no warm-up, no weight decay, gradient norm cut at 1, AdamW's betas 0.9 and 0.999; weights
  and optimiser states in float32 with bfloat16 autocast.
* The teacher, the selection and the prompts are castgym's (`collect.py`, `selection.py`, the episodes).
"""

import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field
from transformers.utils import logging
from trl.trainer.sft_config import SFTConfig

from castgym.data.errors import ConfigError
from castgym.training.loading import LoraSettings, load_tokenizer, usable_gpu
from castgym.training.metrics_log import MetricsLog, WandbSettings, report_to
from castgym.training.run_config import RunConfig
from castgym.training.run_script import TrainingFolder, run_script
from castgym.training.sft_trainer import StepRowTrainer, padded_share
from castgym.training.step_rows import (
    LengthReport,
    OverLong,
    StepRow,
    check_lengths,
    read_trajectories,
    rows_digest,
    step_rows,
)
from castgym.training.training_split import refuse_other_splits

FREE_TO_CHANGE = ("out", "trajectories", "device_batch_size", "log_steps", "save_steps", "keep_checkpoints", "wandb")
"""Settings that a resumed run may change; the rows themselves are compared, whatever files they came from."""


class SftSettings(RunConfig):
    """Settings of a run; the defaults are the paper's (Table 7).

    Attributes:
        model: folder or hub id of the student.
        trajectories: JSON-lines files of selected trajectories.
        out: folder of the run.
        thinking: switch of the chat template, the same in every later use of the model; `null` leaves it unset.
        max_prompt_tokens: limit of a prompt.
        max_response_tokens: limit of a response.
        over_long: `refuse` rows over a limit, or `drop` them.
        lora: adapters; `null` trains all weights.
        epochs: passes over the rows.
        max_steps: optimiser steps after which to stop instead, for smoke runs.
        batch_size: rows of an optimiser step, over all processes.
        device_batch_size: rows that a process takes at once.
        learning_rate: peak; the schedule is cosine down to 0.
        warmup_steps: steps of linear warm-up.
        weight_decay: of AdamW.
        max_grad_norm: at which gradients are cut.
        precision: `bf16` autocast, or `fp32`.
        gradient_checkpointing: trade time for memory.
        attention: implementation of attention; `null` for the library's choice.
        log_steps: steps between two lines of metrics.
        save_steps: steps between two checkpoints; `null` for none but the final model.
        keep_checkpoints: how many to keep.
        seed: of order, dropout and adapters.
        wandb: Weights & Biases; `null` for none.
    """

    model: str
    trajectories: list[Path] = Field(min_length=1)
    out: Path
    thinking: bool | None = None
    max_prompt_tokens: int = Field(4096, ge=1)
    max_response_tokens: int = Field(2048, ge=1)
    over_long: OverLong = "refuse"
    lora: LoraSettings | None = None
    epochs: float = Field(1.0, gt=0)
    max_steps: int | None = Field(None, ge=1)
    batch_size: int = Field(16, ge=1)
    device_batch_size: int = Field(4, ge=1)
    learning_rate: float = Field(1e-5, gt=0)
    warmup_steps: int = Field(0, ge=0)
    weight_decay: float = Field(0.0, ge=0)
    max_grad_norm: float = Field(1.0, gt=0)
    precision: Literal["bf16", "fp32"] = "bf16"
    gradient_checkpointing: bool = True
    attention: Literal["eager", "sdpa", "flash_attention_2"] | None = None
    log_steps: int = Field(1, ge=1)
    save_steps: int | None = Field(None, ge=1)
    keep_checkpoints: int = Field(2, ge=1)
    seed: int = Field(0, ge=0)
    wandb: WandbSettings | None = None


@dataclass(frozen=True, slots=True)
class _Rows:
    """What is trained on."""

    rows: list[StepRow]
    report: LengthReport
    digest: str


def train(settings: SftSettings, resume: bool = False) -> None:
    """Train, and write the model to `out/model`.

    Args:
        settings: of the run.
        resume: continue from the last complete checkpoint of the same run, or from the beginning where there is none.

    Raises:
        CastgymError: settings, trajectories or folder do not fit; nothing was trained.
    """
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # of loading and saving; that of training stays
    folder = TrainingFolder(settings.out)
    args = trainer_arguments(settings, folder)
    main = args.process_index == 0
    tokenizer = load_tokenizer(settings.model)
    data = _load_rows(settings, tokenizer, main)
    identity = {**settings.identity(*FREE_TO_CHANGE), "rows": data.digest}
    checkpoint = folder.check(identity, resume)
    args.distributed_state.wait_for_everyone()
    if main:
        folder.begin(identity, {"settings": settings.identity(), "lengths": str(data.report).splitlines()})
    trainer = StepRowTrainer(
        data.rows,
        model=settings.model,
        args=args,
        processing_class=tokenizer,
        peft_config=settings.lora.adapter() if settings.lora else None,
        callbacks=[MetricsLog(folder.metrics)],
    )
    if main:
        print(_plan(settings, trainer, data, checkpoint), flush=True)
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    trainer.save_model(str(folder.model))
    if main:
        print(f"{folder.model}: trained for {trainer.state.global_step} steps", flush=True)


def trainer_arguments(settings: SftSettings, folder: TrainingFolder) -> SFTConfig:
    """The settings as TRL takes them; joins the processes of a launch.

    Raises:
        ConfigError: the batch does not divide among the processes, or the device has no bfloat16.
    """
    on_gpu = usable_gpu(settings.precision)
    attention = {} if settings.attention is None else {"attn_implementation": settings.attention}
    # transformers 5.24 renamed it, TRL 1.16 and older transformers know only the old name.
    warnings.filterwarnings("ignore", "`(is_)?gradient_checkpointing` is deprecated", FutureWarning)
    args = SFTConfig(
        output_dir=str(folder.checkpoints),
        model_init_kwargs={"dtype": "float32", **attention},
        max_length=None,  # rows are checked before, and never cut
        dataset_kwargs={"skip_prepare_dataset": True},  # they are tokens already
        num_train_epochs=settings.epochs,
        max_steps=-1 if settings.max_steps is None else settings.max_steps,
        per_device_train_batch_size=settings.device_batch_size,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=settings.warmup_steps,
        optim="adamw_torch",
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        bf16=settings.precision == "bf16",
        gradient_checkpointing=settings.gradient_checkpointing,
        logging_steps=settings.log_steps,
        logging_first_step=True,
        save_strategy="no" if settings.save_steps is None else "steps",
        save_steps=settings.save_steps or 1,
        save_total_limit=settings.keep_checkpoints,
        report_to=report_to(settings.wandb, folder.path),
        run_name=settings.wandb.name if settings.wandb else None,
        seed=settings.seed,
        data_seed=settings.seed,
        use_cpu=not on_gpu,
        ddp_find_unused_parameters=False,
    )
    at_once = settings.device_batch_size * args.world_size
    if settings.batch_size % at_once:
        raise ConfigError(
            f"expected batch_size as a multiple of device_batch_size x processes = {settings.device_batch_size} x "
            f"{args.world_size}, found {settings.batch_size}"
        )
    args.gradient_accumulation_steps = settings.batch_size // at_once
    return args


def _load_rows(settings: SftSettings, tokenizer: Any, main: bool) -> _Rows:
    rows: list[StepRow] = []
    for trajectory in read_trajectories(settings.trajectories):
        refuse_other_splits(trajectory.meta.get("split"))
        rows += step_rows(trajectory, tokenizer, settings.thinking)
    say = print if main else lambda _: None
    kept, report = check_lengths(
        rows, settings.max_prompt_tokens, settings.max_response_tokens, settings.over_long, say
    )
    return _Rows(kept, report, rows_digest(kept))


def _plan(settings: SftSettings, trainer: StepRowTrainer, data: _Rows, checkpoint: Path | None) -> str:
    args = trainer.args
    lengths = [len(row) for row in data.rows]
    padding = padded_share(lengths, list(trainer.row_order()), settings.device_batch_size)
    start = f"from {checkpoint.name}" if checkpoint else "from the beginning"
    return (
        f"{len(data.rows):,} rows, {settings.batch_size} a step as {args.world_size} processes x "
        f"{settings.device_batch_size} rows x {args.gradient_accumulation_steps} times; {padding:.0%} padding; {start}"
    )


if __name__ == "__main__":
    sys.exit(run_script(__doc__, SftSettings, train, sys.argv[1:]))
