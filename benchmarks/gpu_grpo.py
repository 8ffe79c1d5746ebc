"""One LoRA GRPO update at Qwen3-8B's shape with random weights: memory, speed, and the share of environments and tools.

    python benchmarks/gpu_grpo.py [--think 1000]          # one GPU of 80 GB, under 6 minutes, no downloads

The episodes are Cast-R1's, on the embedded windows, with the recipe's limits of 8192 prompt and 4096 response tokens
and a group of G = 8. Random weights say nothing sensible, so a sampler makes them draw a thought freely and then say
what an episode needs: a diagnostic, a forecast, the answer. Every pass is a real one. Without a GPU the script runs a
tiny shape on the CPU, and says so.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import torch
from peft import LoraConfig
from transformers import LogitsProcessor, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging
from trl.trainer.grpo_config import GRPOConfig

from castgym.envs.forecast_source import ForecastSource
from castgym.training.episode_trainer import sampled_by
from castgym.training.memory_estimate import MemoryPlan, estimate_memory
from castgym.training.rollout import RolloutSettings
from castgym.training.step_grpo import StepGRPOTrainer
from castgym.training.step_settings import StepSettings
from castgym.training.tiny_model import sample_trajectories, train_tokenizer, transcript_texts

GROUP, PROMPT_LIMIT, RESPONSE_LIMIT, RANK = 8, 8192, 4096, 16
CALL = '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>'
LINES = (
    CALL % ("extract_basic_statistics", "{}"),
    CALL % ("predict_time_series", json.dumps({"model_name": "seasonal_naive"})),
    "<answer>\n{}\n</answer>",
)


class Thinker(LogitsProcessor):
    """Draws freely for a number of tokens, then says given ones; every row says the same."""

    def __init__(self, think: int, ids: list[int], banned: list[int]) -> None:
        self.think, self.ids, self.banned = think, ids, banned
        self.logprobs: list[Any] = []

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        del input_ids
        step = len(self.logprobs)
        logprobs = scores.float().log_softmax(-1)
        if step < self.think:
            free = logprobs.clone()
            free[:, self.banned] = -torch.inf  # neither an end nor markup in the thought
            chosen = torch.multinomial(free.exp(), 1)
        else:
            token = self.ids[min(step - self.think, len(self.ids) - 1)]
            chosen = torch.full((len(scores), 1), token, device=scores.device)
        self.logprobs.append(logprobs.gather(1, chosen)[:, 0])
        return torch.full_like(scores, -torch.inf).scatter_(1, chosen, 0.0)


class ThinkingTrainer(StepGRPOTrainer):
    """Says `LINES` round after round, each after a thought."""

    think = 0
    rounds = 0

    def _sample(self, prompts: Any, seeds: Any, temperature: float) -> Any:
        del seeds, temperature
        tokenizer = self._tokenizer
        line = [*tokenizer("</think>" + LINES[min(self.rounds, 2)])["input_ids"], tokenizer.eos_token_id]
        self.rounds += 1
        thinker = Thinker(self.think, line, [*self.eos_token_ids, *tokenizer.get_added_vocab().values()])
        with sampled_by(self.accelerator.unwrap_model(self.model_wrapped), thinker):
            responses, _ = self._generate_single_turn(prompts, None, {}, num_generations=1)
        drawn = torch.stack(thinker.logprobs, dim=1).tolist()
        return responses, [row[: len(ids)] for row, ids in zip(drawn, responses, strict=True)]


def shape(on_gpu: bool, tokenizer: Any) -> Qwen3Config:
    """Qwen3-8B's, or the same in tiny; the tokenizer's few tokens are the first of the vocabulary."""
    size: dict[str, Any] = (
        {"vocab_size": 151_936, "hidden_size": 4096, "intermediate_size": 12_288, "num_hidden_layers": 36,
         "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
        if on_gpu
        else {"vocab_size": len(tokenizer), "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2,
              "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}
    )  # fmt: skip
    return Qwen3Config(
        **size, max_position_embeddings=40_960, tie_word_embeddings=False, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--think", type=int, default=None, help="tokens of each thought; 1000, or 40 on a CPU")
    options = parser.parse_args()
    logging.disable_progress_bar()
    started = time.perf_counter()
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    print(torch.cuda.get_device_name() if on_gpu else "no GPU: the tiny shape on the CPU, whose numbers say little")
    tokenizer = train_tokenizer(list(transcript_texts(sample_trajectories(4))), 1024)
    config = shape(on_gpu, tokenizer)
    dtype = torch.bfloat16 if on_gpu else torch.float32
    torch.set_default_dtype(dtype)
    with device:
        model = Qwen3ForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    # Prompts near the limit on a GPU, short ones on a CPU.
    form = {"prompt_style": "full"} if on_gpu else {"prompt_style": "compact", "answer_form": "forecast"}
    source = ForecastSource("embedded", "train", stride=240, models=("seasonal_naive",), **form)
    with tempfile.TemporaryDirectory() as folder:
        args = GRPOConfig(
            folder, per_device_train_batch_size=1, gradient_accumulation_steps=3 * GROUP, num_generations=GROUP,
            beta=0.04, use_bias_correction_kl=False, loss_type="dapo", max_completion_length=RESPONSE_LIMIT, top_k=0,
            bf16=on_gpu, use_cpu=not on_gpu, report_to=[], gradient_checkpointing=on_gpu, save_strategy="no",
            logging_steps=1, max_steps=1, learning_rate=1e-6, disable_tqdm=True, shuffle_dataset=False, seed=1,
        )  # fmt: skip
        trainer = ThinkingTrainer(
            model=model, args=args, processing_class=tokenizer, source=source, train_ids=source.ids[:4],
            settings=StepSettings(GROUP, RolloutSettings(max_prompt_tokens=PROMPT_LIMIT), folder=Path(folder)),
            peft_config=LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules="all-linear", task_type="CAUSAL_LM"),
        )  # fmt: skip
        trainer.think = options.think if options.think is not None else 1000 if on_gpu else 40
        loaded = time.perf_counter()
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
        trainer.train()
        log = next(row for row in trainer.state.log_history if "step_time" in row)
    rows, read = log["rollout/rows"], log["rollout/prompt_tokens"]
    drawn = rows * log["rollout/response_tokens"]
    seconds = log["step_time"]
    generation = log["seconds/generate"]
    update = seconds - generation - log["seconds/wait"] - log["seconds/render"]
    print(
        f"{sum(weights.numel() for weights in model.parameters()) / 1e9:.2f}e9 weights, LoRA rank {RANK}, "
        f"made in {loaded - started:.0f} s"
    )
    print(
        f"G = {GROUP}, {rows / GROUP:.1f} steps a trajectory, {read:.0f} prompt and {drawn / rows:.0f} response tokens "
        "a step"
    )
    print(f"generation {generation:.1f} s: {drawn / generation:.0f} drawn tokens/s (transformers, {GROUP} at once)")
    print(f"update     {update:.1f} s: {(rows * read + drawn) / update:.0f} trained tokens/s, with KL's reference pass")
    share = (log["seconds/wait"] + log["seconds/render"]) / seconds
    print(f"environments, tools and rendering: {share:.2%} of the step (goal: under 5%)")
    print(
        f"reward {log['reward']:.3f}, invalid {log['rollout/invalid_share']:.0%}, "
        f"sampler against trainer: mean gap {log['canary/logprob_gap_mean']:.2g} nats"
    )
    if on_gpu:
        plan = MemoryPlan(1, 1, int(read + drawn / rows), GROUP, lora_rank=RANK)
        print(
            f"peak memory {torch.cuda.max_memory_allocated() / 1e9:.1f} GB; estimated for these lengths "
            f"{estimate_memory(config, plan).peak:.1f} GB"
        )
    print(f"in all {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
