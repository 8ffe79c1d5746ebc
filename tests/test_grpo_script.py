import json
import os
import shutil
from pathlib import Path

import pyarrow.parquet
import pytest

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from transformers import Qwen3Config  # noqa: E402

from castgym.data.errors import ConfigError, DataError  # noqa: E402
from castgym.training.grpo import GrpoSettings, train, trainer_arguments  # noqa: E402
from castgym.training.memory_estimate import MemoryPlan, estimate_memory  # noqa: E402
from castgym.training.metrics_log import read_metrics  # noqa: E402
from castgym.training.run_config import load_run_config  # noqa: E402
from castgym.training.run_script import TrainingFolder  # noqa: E402
from castgym.training.tiny_model import TinySize, build_tiny_model, sample_trajectories, transcript_texts  # noqa: E402

CONFIGS = Path(__file__).parent.parent / "configs"
QWEN3_8B = Qwen3Config(
    vocab_size=151_936,
    hidden_size=4096,
    intermediate_size=12_288,
    num_hidden_layers=36,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    tie_word_embeddings=False,
)


def settings(tmp_path, *changes):
    return load_run_config(CONFIGS / "grpo_tiny.yaml", GrpoSettings, [f"out={tmp_path / 'run'}", *changes])


@pytest.mark.parametrize("name", ["grpo_tiny", "grpo_qwen3_8b", "grpo_qwen3_1.7b_lora"])
def test_shipped_recipes_fit_their_settings(name, tmp_path):
    recipe = load_run_config(CONFIGS / f"{name}.yaml", GrpoSettings)
    assert recipe.batch_size % recipe.group_size == 0 and recipe.save_steps % recipe.eval_steps == 0
    if recipe.vllm is None:
        args = trainer_arguments(recipe, TrainingFolder(tmp_path))
        assert (args.loss_type, args.use_bias_correction_kl, args.top_p, args.top_k) == ("dapo", False, 1.0, 0)


def test_the_8b_recipe_has_the_papers_numbers():
    recipe = load_run_config(CONFIGS / "grpo_qwen3_8b.yaml", GrpoSettings)
    assert (recipe.learning_rate, recipe.schedule, recipe.epochs) == (1e-6, "cosine", 1)
    assert (recipe.group_size, recipe.batch_size, recipe.beta, recipe.temperature) == (8, 64, 0.04, 1.0)
    assert (recipe.max_prompt_tokens, recipe.max_response_tokens) == (8192, 4096)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["eval_steps=3", "save_steps=4"], "save_steps as a multiple of eval_steps"),
        (["batch_size=20"], "batch_size as a multiple of"),
        (["group_size=1"], "group_size"),
        (["weighting=word"], "weighting"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message):
        trainer_arguments(settings(tmp_path, *changes), TrainingFolder(tmp_path / "run"))


def test_memory_of_the_8b_recipe_by_hand():
    estimate = estimate_memory(QWEN3_8B, MemoryPlan(shards=4, rows=2, tokens=12_288, live=16, vllm=0.3), gpu=80.0)
    assert estimate.parameters == pytest.approx(8.19e9, rel=1e-3)
    assert estimate.parts["weights, gradients, AdamW"] == pytest.approx(8.19 * 16 / 4, rel=1e-3)
    assert estimate.parts["colocated vLLM"] == pytest.approx(24.0)
    assert "KV cache of live episodes" not in estimate.parts
    assert 60 < estimate.training < 80


def test_adapters_and_caches_in_the_estimate():
    estimate = estimate_memory(QWEN3_8B, MemoryPlan(shards=1, rows=1, tokens=1000, live=100, lora_rank=16))
    assert estimate.parts["frozen base weights"] == pytest.approx(16.38, rel=1e-3)
    assert estimate.parts["KV cache of live episodes"] == pytest.approx(14.7456)  # 100k tokens
    inputs_and_outputs = 4096 + 4096, 4096 + 1024, 4096 + 1024, 4096 + 4096, *[4096 + 12_288] * 3
    assert estimate.trained == 36 * 16 * sum(inputs_and_outputs)
    assert "reference model" not in estimate.parts and "peak" in str(estimate)


@pytest.mark.slow
def test_the_script_trains_evaluates_resumes_and_saves_on_real_episodes(tmp_path, capsys):
    torch.set_num_threads(1)
    model = tmp_path / "model"
    build_tiny_model(model, list(transcript_texts(sample_trajectories(4))), TinySize(64, 1, 1000))
    changes = [
        f"model={model}",
        "batch_size=16",
        "group_size=8",
        "micro_batches=2",
        "max_steps=2",
        "eval_steps=1",
        "save_steps=1",
        "held_out_subjects=4",
        "train_subjects=12",
        "max_response_tokens=12",
        "curriculum={}",
        "zero_variance=keep",
    ]
    chosen = settings(tmp_path, *changes)
    train(chosen)
    run = tmp_path / "run"
    said = capsys.readouterr().out
    assert " subjects, " in said and "estimated memory" in said
    rows = read_metrics(run / "metrics.jsonl")
    assert sum("eval_reward" in row for row in rows) == 3  # before training too
    assert {"rollout/reward", "groups/std", "kl", "canary/logprob_gap_max"} <= set(rows[1]) | set(rows[2])
    rollouts = pyarrow.parquet.read_table(sorted((run / "rollouts").iterdir())[0]).to_pylist()
    assert len({row["member"] for row in rollouts}) == 16 and all(row["prompt_ids"] for row in rollouts)
    assert (run / "curriculum.png").exists() and (run / "curriculum.csv").exists() and (run / "model").is_dir()
    with pytest.raises(DataError, match="finished"):
        train(chosen, resume=True)
    shutil.rmtree(run / "model")
    shutil.rmtree(run / "checkpoints" / "checkpoint-2")
    train(chosen, resume=True)
    again = read_metrics(run / "metrics.jsonl")
    names = ("rollout/reward", "loss", "grad_norm", "kl", "entropy")
    steps = [[{name: row[name] for name in names} for row in log if "rollout/reward" in row] for log in (rows, again)]
    assert steps[0] == steps[1]
    assert json.loads((run / "run.json").read_text())["identity"]["group_size"] == 8
    with pytest.raises(DataError, match="learning_rate"):
        shutil.rmtree(run / "model")
        train(settings(tmp_path, *changes, "learning_rate=1.0e-4"), resume=True)
