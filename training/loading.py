"""What training scripts load alike: the tokenizer of a model, and its adapters."""

from typing import Any

import torch
from peft import LoraConfig
from pydantic import Field
from transformers import AutoTokenizer

from castgym.data.errors import ConfigError
from castgym.training.run_config import RunConfig


class LoraSettings(RunConfig):
    """Low-rank adapters instead of full weights.

    Attributes:
        rank: of the adapters.
        alpha: their scale is alpha / rank.
        dropout: on their input.
        targets: names of the adapted layers; `all-linear` adapts all but the head.
    """

    rank: int = Field(16, ge=1)
    alpha: int = Field(32, ge=1)
    dropout: float = Field(0.0, ge=0.0, lt=1.0)
    targets: str | list[str] = "all-linear"

    def adapter(self) -> LoraConfig:
        """The settings as PEFT takes them."""
        return LoraConfig(
            r=self.rank,
            lora_alpha=self.alpha,
            lora_dropout=self.dropout,
            target_modules=self.targets,
            task_type="CAUSAL_LM",
        )


def usable_gpu(precision: str) -> bool:
    """Whether there is a GPU to train on.

    Args:
        precision: `bf16` or `fp32`.

    Raises:
        ConfigError: it has no bfloat16, which was asked for.
    """
    found = torch.cuda.is_available()
    if precision == "bf16" and found and not torch.cuda.is_bf16_supported():
        raise ConfigError("this GPU has no bfloat16: set precision: fp32")
    return found


def load_tokenizer(model: str) -> Any:
    """The tokenizer of a model.

    Args:
        model: folder or hub id.

    Raises:
        ConfigError: there is none, or it cannot be read.
    """
    try:
        return AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError) as error:
        raise ConfigError(f"expected a model with a tokenizer in {model}: {error}") from error
