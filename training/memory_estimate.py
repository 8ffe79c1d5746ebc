"""What a GRPO run needs in GPU memory, by arithmetic from the model's configuration, before anything is loaded.

Full training in mixed precision holds 16 bytes a weight (float32 weights, gradients and two AdamW moments), shared by
the processes under ZeRO-3 or FSDP; with LoRA the base weights stay in bfloat16 and only the adapters have states.
Activations are those of gradient checkpointing: the input of each layer, and one layer recomputed at a time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

GB = 1e9
HALF, FULL, ADAMW_STATES = 2, 4, 16
"""Bytes of a bfloat16 number, of a float32 number, and of a trained weight with gradient and AdamW's moments."""

LAYER_BUFFERS = 16
"""Tensors of hidden width that one layer's forward and backward hold at once, per token: queries, keys, values,
attention and residual, and the feed-forward's two inner tensors of about three widths each, with their gradients."""

LOGITS_CHUNK = 256
"""Tokens whose logits the fused head holds at once."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What decides how much memory a process needs.

    Attributes:
        shards: processes that share weights, gradients and states (ZeRO-3, FSDP); 1 where each holds all (DDP).
        rows: sequences of one micro-batch.
        tokens: tokens of the longest sequence, prompt and response.
        live: sequences that generate at once on this GPU.
        lora_rank: rank of adapters on all linear layers; `None` trains all weights.
        reference: a reference model is held (beta > 0 without LoRA).
        vllm: share of the GPU that a colocated vLLM takes, `None` without one.
    """

    shards: int
    rows: int
    tokens: int
    live: int
    lora_rank: int | None = None
    reference: bool = True
    vllm: float | None = None


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Gigabytes (1e9 bytes) by part, for one process.

    Attributes:
        parameters: weights of the model.
        trained: weights that are trained.
        parts: name -> GB; training and generation do not happen at once, so their own parts do not add up.
        training: GB while a gradient is computed.
        generation: GB while episodes are played.
    """

    parameters: int
    trained: int
    parts: Mapping[str, float]
    training: float
    generation: float

    @property
    def peak(self) -> float:
        """The larger of both."""
        return max(self.training, self.generation)

    def __str__(self) -> str:
        lines = [
            f"estimated memory of a process ({self.parameters / GB:.2f}e9 weights, {self.trained / GB:.3f}e9 trained):"
        ]
        lines += [f"  {name:<34}{value:8.2f} GB" for name, value in self.parts.items()]
        lines.append(f"  {'peak: training / generation':<34}{self.training:8.2f} / {self.generation:.2f} GB")
        return "\n".join(lines)


def estimate_memory(config: Any, plan: MemoryPlan, gpu: float | None = None) -> MemoryEstimate:
    """Estimate the memory of one process.

    Args:
        config: the model's transformers configuration.
        plan: the run.
        gpu: GB of the GPU, for the share of a colocated vLLM.
    """
    build: Any = AutoModelForCausalLM.from_config
    with torch.device("meta"):
        model = build(config)
    weights = sum(weight.numel() for weight in model.parameters())
    text = config.get_text_config()
    trained = weights if plan.lora_rank is None else _adapter_weights(model, plan.lora_rank)
    head_size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    kv_token = 2 * text.num_hidden_layers * text.num_key_value_heads * head_size * HALF
    tokens = plan.rows * plan.tokens
    states = trained * ADAMW_STATES / plan.shards
    base = 0.0 if plan.lora_rank is None else weights * HALF / plan.shards
    reference = weights * FULL / plan.shards if plan.reference and plan.lora_rank is None else 0.0
    activations = tokens * text.hidden_size * HALF * (text.num_hidden_layers + LAYER_BUFFERS)
    logits = min(tokens, LOGITS_CHUNK * plan.rows) * text.vocab_size * FULL * 2
    gathered = weights * HALF if plan.shards > 1 and plan.vllm is None else 0.0
    cache = plan.live * plan.tokens * kv_token
    vllm = (plan.vllm or 0.0) * (gpu or 80.0) * GB
    parts = {
        "weights, gradients, AdamW": states,
        "frozen base weights": base,
        "reference model": reference,
        "activations of a micro-batch": activations,
        "logits of a chunk": logits,
        "weights gathered to generate": gathered,
        "KV cache of live episodes": 0.0 if plan.vllm else cache,
        "colocated vLLM": vllm,
    }
    held = states + base + reference
    return MemoryEstimate(
        weights,
        trained,
        {name: value / GB for name, value in parts.items() if value},
        (held + activations + logits + vllm) / GB,
        (held + vllm + (0.0 if plan.vllm else gathered + cache)) / GB,
    )


def check_memory(model: str, plan: MemoryPlan) -> tuple[MemoryEstimate, str]:
    """The estimate for a model, and a warning where this process's GPU has less; empty where it fits or there is none.

    Args:
        model: folder or hub id, of which only the configuration is read.
        plan: the run.
    """
    gpu = torch.cuda.get_device_properties(0).total_memory / GB if torch.cuda.is_available() else None
    estimate = estimate_memory(AutoConfig.from_pretrained(model), plan, gpu)
    if gpu is None or estimate.peak <= gpu:
        return estimate, ""
    return estimate, (
        f"the estimate of {estimate.peak:.0f} GB is more than the GPU's {gpu:.0f} GB: take more gradient accumulation "
        "(fewer rows a micro-batch), shorter limits, LoRA, or more GPUs"
    )


def _adapter_weights(model: Any, rank: int) -> int:
    """Weights of adapters on all linear layers but the head."""
    head = model.get_output_embeddings()
    linear = [module for module in model.modules() if isinstance(module, torch.nn.Linear) and module is not head]
    return sum(rank * (module.in_features + module.out_features) for module in linear)
