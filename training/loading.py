"""What training scripts load alike: the tokenizer of a model, and its adapters."""

from typing import Any

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
