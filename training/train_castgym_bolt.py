"""Train `castgym_bolt`, the small Chronos-Bolt that ships with castgym, on simulated series only.

    python training/train_castgym_bolt.py --out weights/castgym_bolt [--minutes 15 | --steps 5000]

One CPU thread. The data are the demand simulators with seeds of their own (the embedded cases have seed 0) and the
broad family of `synthetic_series`; no real series is read. Windows of both are mixed, in part added to one another.
`--minutes` is CPU time: the speed of the first steps sets the number of steps, which the learning rate's schedule
needs; `--steps` repeats a run exactly. The weights are saved as float16, with what made them in `training.json`.
"""

import argparse
import copy
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from chronos.chronos_bolt import ChronosBoltModelForForecasting
from numpy.typing import NDArray
from transformers import T5Config

from castgym.data.simulate import simulate_demand
from castgym.tools.forecasters.base import QUANTILE_LEVELS
from castgym.training.synthetic_series import synthetic_series

CONTEXT, HORIZON, PATCH = 504, 200, 24
WINDOW = CONTEXT + HORIZON
SIMULATED_SEEDS = range(9001, 9011)
VALIDATION_SEED = 9000
SYNTHETIC_SERIES, SYNTHETIC_LENGTH = 8000, 2400
SHARES = {"electricity": 0.25, "cycle_hire": 0.25, "synthetic": 0.5}
"""How often a window comes from each pool; the two kinds of demand weigh the same, as in the protocol."""

MIX_SHARE = 0.2
EXPLODED = 12.0
"""Rows whose target lies so many context deviations away teach nothing and dominate a batch: they are left out."""

BATCH, WARMUP, PEAK_RATE, WEIGHT_DECAY = 128, 100, 2e-3, 0.01
AVERAGE_MEMORY = 0.998

Pool = NDArray[np.float32]


def main() -> None:
    """Parse the options, train, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of config.json and model.safetensors")
    parser.add_argument("--minutes", type=float, default=15.0, help="CPU time for all, when --steps is not given")
    parser.add_argument("--steps", type=int, help="number of optimiser steps")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    rng = np.random.default_rng(options.seed)
    pools = {**simulated_pools(SIMULATED_SEEDS), "synthetic": synthetic_pool(rng, SYNTHETIC_SERIES)}
    model = ChronosBoltModelForForecasting(bolt_config())
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters; data took {time.process_time():.0f} CPU-s")
    averaged, record = train(model, pools, rng, options.steps, options.minutes * 60.0)
    held_out = simulated_pools([VALIDATION_SEED])
    held_out["synthetic"] = synthetic_pool(np.random.default_rng(options.seed + 1), 500)
    for name, pool in held_out.items():
        record[f"validation_{name}"] = validation_loss(averaged, pool, np.random.default_rng(1))
    record.update(seed=options.seed, cpu_minutes=round(time.process_time() / 60.0, 1), torch=torch.__version__)
    averaged.half().save_pretrained(options.out)
    (options.out / "training.json").write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(record))


def bolt_config() -> T5Config:
    """The shape: patches of a day, three weeks of context, 200 steps at once."""
    return T5Config(  # type: ignore[call-arg]  # further fields are kept as they are, which Chronos relies on
        d_model=96,
        d_ff=256,
        d_kv=24,
        num_heads=4,
        num_layers=2,
        num_decoder_layers=2,
        dropout_rate=0.0,
        vocab_size=2,
        pad_token_id=0,
        decoder_start_token_id=0,
        feed_forward_proj="relu",
        initializer_factor=0.05,
        architectures=["ChronosBoltModelForForecasting"],
        chronos_pipeline_class="ChronosBoltPipeline",
        chronos_config={
            "context_length": CONTEXT,
            "prediction_length": HORIZON,
            "input_patch_size": PATCH,
            "input_patch_stride": PATCH,
            "quantiles": list(QUANTILE_LEVELS),
            "use_reg_token": True,
        },
    )


def simulated_pools(seeds: range | list[int]) -> dict[str, Pool]:
    """Simulated demand of several seeds by domain, shape (N, T), each series divided by its mean."""
    tables = [simulate_demand(seed) for seed in seeds]
    demand = np.concatenate([table.to_numpy().T for table in tables])
    demand = (demand / demand.mean(axis=1, keepdims=True)).astype(np.float32)
    bikes = np.concatenate([table.columns.str.startswith("SIMC") for table in tables])
    return {"electricity": demand[~bikes], "cycle_hire": demand[bikes]}


def synthetic_pool(rng: np.random.Generator, count: int) -> Pool:
    """Series of the broad family, shape (N, T), each of unit deviation."""
    rows = [synthetic_series(rng, SYNTHETIC_LENGTH) for _ in range(count)]
    return np.stack([row / max(float(row.std()), 1e-6) for row in rows]).astype(np.float32)


def draw_windows(pool: Pool, rng: np.random.Generator, count: int) -> Pool:
    """Random windows of a pool, shape (count, 704)."""
    rows = rng.integers(len(pool), size=count)
    starts = rng.integers(pool.shape[1] - WINDOW + 1, size=count)
    return np.asarray(pool[rows[:, None], starts[:, None] + np.arange(WINDOW)])


def draw_batch(pools: dict[str, Pool], rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Contexts (N, 504), left-padded with NaN to the length that is known, and targets (N, 200)."""
    counts = rng.multinomial(BATCH, [SHARES[name] for name in pools])
    windows = np.concatenate(
        [draw_windows(pool, rng, count) for pool, count in zip(pools.values(), counts, strict=True)]
    )
    mixed = rng.permutation(BATCH)[: int(MIX_SHARE * BATCH)]
    if len(mixed):
        partners = windows[rng.permutation(BATCH)[: len(mixed)]]
        deviation = windows[mixed].std(axis=1, keepdims=True) / np.maximum(partners.std(axis=1, keepdims=True), 1e-6)
        windows[mixed] += rng.uniform(0.1, 0.7, (len(mixed), 1)).astype(np.float32) * deviation * partners
    turned = rng.random(BATCH) < 0.1
    windows[turned] *= -1.0
    context = windows[:, :CONTEXT].copy()
    context[np.arange(CONTEXT) < CONTEXT - known_steps(rng)[:, None]] = np.nan
    return torch.from_numpy(context), torch.from_numpy(windows[:, CONTEXT:].copy())


def known_steps(rng: np.random.Generator) -> NDArray[np.int64]:
    """How much of each context is known: mostly the protocol's 336 hours, at times all, or as little as 16."""
    kind = rng.random(BATCH)
    short = np.exp(rng.uniform(np.log(16.0), np.log(CONTEXT), BATCH)).astype(np.int64)
    return np.where(kind < 0.6, 336, np.where(kind < 0.75, CONTEXT, short))


def usable(context: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Rows whose target stays near its context."""
    mean = context.nanmean(dim=1, keepdim=True)
    deviation = (context - mean).square().nanmean(dim=1, keepdim=True).sqrt()
    return (deviation[:, 0] > 1e-3) & (((target - mean) / deviation.clamp_min(1e-6)).abs().amax(dim=1) < EXPLODED)


def train(
    model: ChronosBoltModelForForecasting,
    pools: dict[str, Pool],
    rng: np.random.Generator,
    steps: int | None,
    cpu_seconds: float,
) -> tuple[ChronosBoltModelForForecasting, dict[str, Any]]:
    """AdamW on the library's own quantile loss, warm-up and cosine; returns the running average of the weights."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, weight_decay=WEIGHT_DECAY, betas=(0.9, 0.98))
    averaged = copy.deepcopy(model)
    losses: list[float] = []
    total, started, step = steps, time.process_time(), 0
    while total is None or step < total:
        if total is None and step == WARMUP:
            per_step = (time.process_time() - started) / WARMUP
            total = int((cpu_seconds - started) / per_step)
            print(f"{per_step * 1000:.0f} CPU-ms a step: {total} steps")
        done = 0.0 if total is None else max(0.0, (step - WARMUP) / max(total - WARMUP, 1))
        rate = PEAK_RATE * min(1.0, (step + 1) / WARMUP) * (0.5 + 0.5 * np.cos(np.pi * done))
        for group in optimiser.param_groups:
            group["lr"] = rate
        context, target = draw_batch(pools, rng)
        keep = usable(context, target)
        loss = model(context=context[keep], target=target[keep]).loss / HORIZON
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        _average_into(averaged, model, min(AVERAGE_MEMORY, (step + 1) / (step + 10)))
        losses.append(loss.item())
        step += 1
        if step % 100 == 0:
            recent = float(np.mean(losses[-100:]))
            print(f"step {step} loss {recent:.4f} rate {rate:.1e} cpu {time.process_time():.0f} s", flush=True)
    return averaged, {"steps": step, "train_loss": round(float(np.mean(losses[-200:])), 4)}


@torch.no_grad()
def _average_into(averaged: torch.nn.Module, model: torch.nn.Module, memory: float) -> None:
    torch._foreach_lerp_(list(averaged.parameters()), list(model.parameters()), 1.0 - memory)


@torch.no_grad()
def validation_loss(model: ChronosBoltModelForForecasting, pool: Pool, rng: np.random.Generator) -> float:
    """The loss at 336 known hours over 1,024 windows that were not trained on."""
    windows = torch.from_numpy(draw_windows(pool, rng, 1024))
    context, target = windows[:, CONTEXT - 336 : CONTEXT], windows[:, CONTEXT:]
    keep = usable(context, target)
    return round(float(model(context=context[keep], target=target[keep].clone()).loss / HORIZON), 4)


if __name__ == "__main__":
    main()
