"""Training metrics: one JSON line a log, and Weights & Biases where it is wanted."""

import importlib.util
import json
import math
import os
from pathlib import Path
from typing import Any, Literal

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from castgym.data.errors import ConfigError
from castgym.data.files import append_lines, write_text_atomic
from castgym.training.run_config import RunConfig

METRICS_FILE = "metrics.jsonl"
"""Name of the metrics file in a run's folder."""


class WandbSettings(RunConfig):
    """What goes to Weights & Biases.

    Attributes:
        project: name of the project.
        name: name of the run.
        mode: `offline` writes a folder that `wandb sync` can upload later; `online` needs the network and a login.
    """

    project: str = "castgym"
    name: str | None = None
    mode: Literal["offline", "online"] = "offline"


class MetricsLog(TrainerCallback):
    """Appends what a trainer logs to a file, durably, from the main process only.

    A resumed run first drops the lines after the step that it resumes from, so that the file reads as if the run had
    never stopped. Values that are no JSON numbers (NaN, infinities) are written as `null`.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Keep the lines up to the step at which training starts."""
        del args, control
        if state.is_world_process_zero and self.path.exists():
            kept = [row for row in read_metrics(self.path) if row["step"] <= state.global_step]
            write_text_atomic(self.path, "".join(json.dumps(row) + "\n" for row in kept))

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Append a line."""
        del args, control
        if state.is_world_process_zero and logs:
            row = {"step": state.global_step, **{name: _plain(value) for name, value in logs.items()}}
            append_lines(self.path, [json.dumps(row, allow_nan=False)])


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The complete lines of a metrics file; a last line that a crash cut is left out."""
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def report_to(settings: WandbSettings | None, folder: Path) -> list[str]:
    """Prepare what `TrainingArguments.report_to` names; without settings nothing leaves the run's folder.

    Args:
        settings: of Weights & Biases, or `None`.
        folder: the run's folder, which gets wandb's own files.

    Raises:
        ConfigError: wandb is wanted and not installed.
    """
    if settings is None:
        return []
    if importlib.util.find_spec("wandb") is None:
        raise ConfigError("wandb is not installed: pip install 'castgym[wandb]', or leave out the section wandb")
    # The trainer's callback reads its settings from the environment only.
    os.environ["WANDB_MODE"] = settings.mode
    os.environ["WANDB_PROJECT"] = settings.project
    os.environ["WANDB_DIR"] = str(folder)
    os.environ["WANDB_LOG_MODEL"] = "false"
    return ["wandb"]


def _plain(value: Any) -> Any:
    if isinstance(value, bool | int | str) or value is None:
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    return number if math.isfinite(number) else None
