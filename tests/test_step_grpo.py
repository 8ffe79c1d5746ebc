import inspect
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
torch = pytest.importorskip("torch")
trl = pytest.importorskip("trl")

from toy_episodes import SUBJECTS, ToySource, build_toy_model  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # noqa: E402
from trl.trainer import grpo_trainer  # noqa: E402
from trl.trainer.utils import shuffle_sequence_dict, split_tensor_dict  # noqa: E402

from castgym.data.errors import ConfigError, InfrastructureError  # noqa: E402
from castgym.training.advantages import group_advantages  # noqa: E402
from castgym.training.rollout import RolloutSettings  # noqa: E402
from castgym.training.step_grpo import StepGRPOTrainer, StepSettings  # noqa: E402

BETA = 0.04
UPDATE = {
    "gradient_accumulation_steps": 4,
    "max_steps": 2,
    "learning_rate": 0.05,
    "optim": "sgd",
    "train_ids": list(SUBJECTS)[2:14],
}
"""The run that one process and two must do alike."""


@pytest.fixture(scope="module")
def toy_model(tmp_path_factory):
    torch.set_num_threads(1)
    return build_toy_model(tmp_path_factory.mktemp("toy") / "model")


def trainer(model, folder, source=None, settings=None, **options):
    source = source or ToySource()
    settings = {"episodes_per_device": 32, "rollout": RolloutSettings(thinking=False), **(settings or {})}
    subject = {
        name: options.pop(name) for name in ("train_ids", "eval_ids", "eval_source", "peft_config") if name in options
    }
    arguments = {
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 4,
        "num_generations": 8,
        "beta": BETA,
        "use_bias_correction_kl": False,
        "loss_type": "dapo",
        "max_completion_length": 4,
        "top_k": 0,
        "bf16": False,
        "use_cpu": True,
        "report_to": [],
        "gradient_checkpointing": False,
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
        "shuffle_dataset": False,
        "seed": 1,
        "num_generations_eval": 1,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        **options,
    }
    return StepGRPOTrainer(
        model=str(model),
        processing_class=AutoTokenizer.from_pretrained(model),
        args=GRPOConfig(str(folder), **arguments),
        source=source,
        settings=StepSettings(**settings),
        **{"train_ids": list(SUBJECTS) * 20, **subject},
    )


def rollout(instance, subjects=("red-3", "blue-4", "green-2", "gold-1")):
    """One generation, as training makes it, with the policy moved off the reference so that KL matters."""
    instance.model.train()
    instance.current_gradient_accumulation_steps = instance.args.gradient_accumulation_steps
    if instance.beta:
        torch.manual_seed(5)
        with torch.no_grad():
            for weights in instance.model.parameters():
                weights.add_(0.02 * torch.randn_like(weights) * weights.std())
    batch = [{"prompt": [{"role": "user", "content": name}], "subject_id": name} for name in subjects for _ in range(8)]
    return instance._generate_and_score_completions(batch)


def gradient(instance, output, chunks=4):
    instance.model.zero_grad()
    instance.args.steps_per_generation = instance.current_gradient_accumulation_steps = chunks
    torch.manual_seed(0)
    for part in split_tensor_dict(shuffle_sequence_dict(output), chunks):
        instance.compute_loss(instance.model, part).backward()
    return flat_gradient(instance.model)


def flat_gradient(model):
    return torch.cat([weights.grad.flatten() for weights in model.parameters() if weights.grad is not None])


def reference_gradient(instance, rollouts, advantages, weighting):
    """GRPO's loss written out: one sequence at a time, no padding, plain logits; from the rollouts, not the tensors."""
    instance.model.zero_grad()
    tokens, total = {}, 0.0
    for index, played in enumerate(rollouts):
        for turn in played.turns:
            prompt, response = torch.tensor(turn.prompt_ids), torch.tensor(turn.response_ids)
            ids = torch.cat([prompt, response])[None]
            log_probs = [
                model(ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1).gather(1, response[:, None])[:, 0]
                for model in (instance.model, instance.ref_model)
            ]
            policy, ref = log_probs[0], log_probs[1].detach()
            ratio = torch.exp(policy - policy.detach())
            clipped = torch.minimum(ratio * advantages[index], ratio.clamp(0.8, 1.2) * advantages[index])
            kl = torch.exp(ref - policy) - (ref - policy) - 1
            tokens.setdefault(index, []).append(-clipped + BETA * kl)
    rows = [row for held in tokens.values() for row in held]
    if weighting == "token":
        total = torch.cat(rows).mean()
    elif weighting == "row":
        total = torch.stack([row.mean() for row in rows]).mean()
    else:
        total = torch.stack([torch.cat(held).mean() for held in tokens.values()]).mean()
    total.backward()
    return flat_gradient(instance.model)


def relative(found, expected):
    return float((found - expected).norm() / expected.norm())


def recorded(instance):
    """Keep the rollouts of a trainer's next generation."""
    kept = []
    play = instance._play_groups

    def playing():
        played = play()
        kept[:] = played[0]
        return played

    instance._play_groups = playing
    return kept


def with_padding(output, rows):
    """The same batch with further rows of weight 0, whose advantage must not matter."""
    padded = {}
    for name, value in output.items():
        if value.ndim:
            extra = value[:1].repeat(rows, *[1] * (value.ndim - 1))
            extra = torch.zeros_like(extra) if name == "tool_mask" else extra + 7.0 if name == "advantages" else extra
            value = torch.cat([value, extra])
        padded[name] = value
    return padded


@pytest.mark.parametrize("weighting", ["token", "row", "trajectory"])
def test_gradient_equals_a_from_scratch_reference(toy_model, tmp_path, weighting):
    instance = trainer(toy_model, tmp_path, settings={"weighting": weighting})
    rollouts = recorded(instance)
    output = rollout(instance)
    returns = [played.reward for played in rollouts]
    expected = reference_gradient(instance, rollouts, group_advantages(returns, np.repeat(np.arange(4), 8)), weighting)
    assert len({len(played.turns) for played in rollouts}) > 1  # K varies
    for chunks in (1, 4):
        size = len(output["prompt_ids"])
        found = gradient(instance, with_padding(output, -size % chunks), chunks)
        assert relative(found, expected) < 2e-5


def test_padding_rows_do_not_change_the_gradient(toy_model, tmp_path):
    instance = trainer(toy_model, tmp_path)
    output = rollout(instance)
    assert relative(gradient(instance, with_padding(output, 60)), gradient(instance, output)) < 2e-6


def test_leaving_padding_columns_out_changes_no_log_probability(toy_model, tmp_path):
    instance = trainer(toy_model, tmp_path, beta=0.0)
    output = rollout(instance)
    ids = torch.cat([output["prompt_ids"], output["completion_ids"]], 1)
    mask = torch.cat([output["prompt_mask"], output["completion_mask"]], 1)
    width = output["completion_ids"].size(1)
    with torch.no_grad():
        for size in (None, 5):
            ours = instance._get_per_token_logps_and_entropies(
                instance.model, ids, mask, width, size, compute_entropy=True
            )
            plain = GRPOTrainer._get_per_token_logps_and_entropies(
                instance, instance.model, ids, mask, width, compute_entropy=True
            )
            for found, expected in zip(ours[:2], plain[:2], strict=True):
                trained = output["completion_mask"].bool()
                torch.testing.assert_close(found[trained], expected[trained], atol=1e-5, rtol=1e-5)


def test_a_fresh_policy_has_ratio_one(toy_model, tmp_path):
    # Two optimizer steps a generation: TRL computes the old log-probabilities, which must be the sampler's.
    instance = trainer(toy_model, tmp_path, beta=0.0, gradient_accumulation_steps=2, steps_per_generation=4)
    output = rollout(instance)
    mask = (output["tool_mask"] * output["completion_mask"]).bool()
    ratio = torch.exp(output["old_per_token_logps"] - output["sampling_per_token_logps"])[mask]
    assert mask.sum() > 100 and float((ratio - 1).abs().max()) < 1e-4
    assert instance._metrics["train"]["canary/logprob_gap_max"][0] < 1e-4
    gradient(instance, output)
    assert instance._metrics["train"]["clip_ratio/region_mean"][0] == 0.0


def test_the_canary_sings_when_the_sampler_is_another_policy(toy_model, tmp_path):
    instance = trainer(toy_model, tmp_path, beta=0.0)
    sample = instance._sample
    instance._sample = lambda *args, **kwargs: (
        lambda ids, logps: (ids, [[value - 0.5 for value in row] for row in logps])
    )(*sample(*args, **kwargs))
    rollout(instance)
    assert instance._metrics["train"]["canary/logprob_gap_mean"][0] == pytest.approx(0.5, abs=1e-3)


def test_merged_chat_rows_have_the_gradient_of_step_rows(toy_model, tmp_path, monkeypatch):
    settings = {"rollout": RolloutSettings(thinking=None)}
    outputs, instance = {}, None
    for merged in (True, False):
        if not merged:
            monkeypatch.setattr("castgym.training.rollout_rows.Row.extend", lambda row, turn: False)
        instance = trainer(toy_model, tmp_path, ToySource(mode="chat"), settings)
        outputs[merged] = rollout(instance)
    counts = {merged: int((output["tool_mask"].sum(1) > 0).sum()) for merged, output in outputs.items()}
    trained = {
        merged: int((output["tool_mask"] * output["completion_mask"]).sum()) for merged, output in outputs.items()
    }
    assert counts[True] == 32 < counts[False] and trained[True] == trained[False]
    gradients = {
        merged: gradient(instance, with_padding(output, -len(output["prompt_ids"]) % 4))
        for merged, output in outputs.items()
    }
    assert relative(gradients[True], gradients[False]) < 2e-5


def test_every_row_has_the_advantage_that_trl_gave_its_trajectory(toy_model, tmp_path):
    instance = trainer(toy_model, tmp_path, beta=0.0)
    rollouts = recorded(instance)
    output = rollout(instance)
    trls = list(instance._logs["advantages"])
    expected = [trls[index] for index, played in enumerate(rollouts) for _ in played.turns]
    np.testing.assert_allclose(output["advantages"][: len(expected)].numpy(), expected, atol=1e-4)


def test_failures_are_left_out_and_a_group_without_two_members_is_dropped(toy_model, tmp_path):
    made = []

    def fail(episode):  # all but one member of gold's group, and one member of red's
        if episode not in made:
            made.append(episode)
        place = [other for other in made if other.task == episode.task].index(episode)
        return (episode.task == "gold" and place > 0) or (episode.task == "red" and place == 0)

    source = ToySource(fail=fail)
    instance = trainer(toy_model, tmp_path, source, {"rollout": RolloutSettings(workers=1, thinking=False)}, beta=0.0)
    rollouts = recorded(instance)
    rollout(instance)
    failed = [math.isnan(played.reward) for played in rollouts]
    assert sum(failed[:8]) == 1 and sum(failed[24:]) == 7
    metrics = {name: values[0] for name, values in instance._metrics["train"].items()}
    assert metrics["groups/left_out_share"] == 8 / 32 and metrics["groups/dropped_share"] == 1 / 4
    expected = sum(len(played.turns) for played in rollouts[:24] if not math.isnan(played.reward))
    assert instance._rows.real == expected


def test_too_many_failures_stop_the_run(toy_model, tmp_path):
    instance = trainer(toy_model, tmp_path, ToySource(fail=lambda episode: True), beta=0.0)
    with pytest.raises(InfrastructureError, match=r"100% of the trajectories .* the toy broke"):
        rollout(instance)


@pytest.mark.parametrize("zero_variance", ["keep", "drop", "resample"])
def test_groups_without_variance(toy_model, tmp_path, zero_variance):
    class Flat(ToySource):
        def score(self, episode):  # red's group always scores the same
            score = super().score(episode)
            return type(score)(0.25 if episode.task == "red" else score.reward, score.error, score.valid, {})

    settings = {"zero_variance": zero_variance, "resample_limit": 8}
    instance = trainer(toy_model, tmp_path, Flat(), settings, beta=0.0)
    rollouts = recorded(instance)
    rollout(instance)
    reds = [index for index, played in enumerate(rollouts) if played.subject_id == "red-3"]
    trained = sum(len(played.turns) for played in rollouts)
    if zero_variance == "keep":
        assert instance._rows.real == trained and instance._rows.advantages[: len(rollouts[0].turns)][0] == 0.0
    elif zero_variance == "drop":
        assert instance._rows.real == trained - sum(len(rollouts[index].turns) for index in reds)
    else:  # the whole group was replaced by another subject's
        assert not reds and len({played.subject_id for played in rollouts[:8]}) == 1
        assert instance._metrics["train"]["groups/resampled"][0] == 1.0
        assert instance._rows.real == trained


def test_without_any_variance_nothing_is_learnt(toy_model, tmp_path):
    class Flat(ToySource):
        def score(self, episode):
            score = super().score(episode)
            return type(score)(0.5, score.error, score.valid, {})

    instance = trainer(toy_model, tmp_path, Flat(), {"zero_variance": "drop"})
    assert float(gradient(instance, rollout(instance)).abs().max()) == 0.0


def test_resuming_is_exact(toy_model, tmp_path):
    """Weights, optimizer, scheduler, random states and the cursor: the last steps come out bit by bit."""
    options = {"max_steps": 4, "lr_scheduler_type": "cosine", "save_strategy": "steps", "save_steps": 2}
    options |= {"gradient_accumulation_steps": 2, "settings": {"zero_variance": "resample"}}
    whole = trainer(toy_model, tmp_path / "whole", **options)
    whole.train()
    resumed = trainer(toy_model, tmp_path / "resumed", **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    for name, expected in whole.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], expected), name
    for ours, theirs in zip(resumed.optimizer.state.values(), whole.optimizer.state.values(), strict=True):
        assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    assert resumed.lr_scheduler.state_dict() == whole.lr_scheduler.state_dict()
    files = sorted(path.name for path in (tmp_path / "resumed" / "rollouts").iterdir())
    assert len(files) == 2  # of the second half
    for name in files:
        tables = [pyarrow.parquet.read_table(tmp_path / run / "rollouts" / name) for run in ("whole", "resumed")]
        assert tables[0].equals(tables[1])
    assert resumed.state.num_input_tokens_seen == whole.state.num_input_tokens_seen


def test_the_reward_rises_on_a_task_that_needs_the_memory(toy_model, tmp_path):
    settings = {"episodes_per_device": 64}
    instance = trainer(
        toy_model,
        tmp_path,
        settings=settings,
        beta=0.0,
        max_steps=12,
        learning_rate=2e-3,
        train_ids=list(np.random.default_rng(0).permutation(list(SUBJECTS) * 20)),
    )
    instance.train()
    rewards = [row["reward"] for row in instance.state.log_history if "reward" in row]
    assert np.mean(rewards[-3:]) > np.mean(rewards[:2]) + 0.25


def test_evaluation_scores_each_held_out_subject_once_and_names_the_best_checkpoint(toy_model, tmp_path):
    instance = trainer(
        toy_model,
        tmp_path,
        eval_source=ToySource(),
        eval_ids=SUBJECTS[:6],
        per_device_eval_batch_size=4,
        max_steps=2,
        eval_strategy="steps",
        eval_steps=1,
        save_strategy="steps",
        save_steps=1,
        beta=0.0,
        gradient_accumulation_steps=1,
        metric_for_best_model="eval_error",
        greater_is_better=False,
    )
    instance.train()
    rows = [row for row in instance.state.log_history if "eval_error" in row]
    assert len(rows) == 2 and "eval_loss" not in rows[0]
    assert len(instance._eval_summaries) == 6
    assert instance.state.best_metric == min(row["eval_error"] for row in rows)
    first = instance.evaluate()
    assert {name: first[name] for name in ("eval_error", "eval_reward")} == {
        name: instance.evaluate()[name] for name in ("eval_error", "eval_reward")
    }


@pytest.mark.parametrize(
    ("settings", "options", "message"),
    [
        ({}, {"loss_type": "grpo"}, "loss_type='dapo'"),
        ({}, {"scale_rewards": "batch"}, "scale_rewards"),
        ({"episodes_per_device": 12}, {}, "a multiple of num_generations = 8"),
        ({}, {"num_iterations": 2, "save_strategy": "steps", "save_steps": 1}, "checkpoints between generations"),
    ],
)
def test_settings_that_would_train_wrongly_are_refused(toy_model, tmp_path, settings, options, message):
    with pytest.raises(ConfigError, match=message):
        trainer(toy_model, tmp_path, settings=settings, **options)


def test_contract_with_the_private_hooks_of_trl():
    """What `StepGRPOTrainer` overrides or reads in TRL: a new version must be looked at before it is allowed."""
    assert trl.__version__.startswith("1.16.")
    signatures = {
        "_generate": ["self", "prompts"],
        "_generate_and_score_completions": ["self", "inputs"],
        "_generate_single_turn": [
            "self",
            "prompt_ids",
            "images",
            "multimodal_fields",
            "num_generations",
            "has_tool_images",
        ],
        "_get_train_sampler": ["self", "dataset"],
        "prediction_step": ["self", "model", "inputs", "prediction_loss_only", "ignore_keys"],
    }
    for name, expected in signatures.items():
        assert list(inspect.signature(getattr(GRPOTrainer, name)).parameters) == expected
    logps = list(inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies).parameters)
    assert logps[:6] == ["self", "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size"]
    source = inspect.getsource(GRPOTrainer._generate)
    assert (
        "return prompt_ids, completion_ids, tool_mask, completions, logprobs, extra_fields, images, tool_images"
        in source
    )
    used = inspect.getsource(grpo_trainer.GRPOTrainer)
    for name in (
        "self._metrics",
        "self._tokenizer",
        "self.eos_token_ids",
        "self._step",
        "self.vllm_generation",
        "self.generation_config",
    ):
        assert name in used
    loss = inspect.getsource(GRPOTrainer._compute_loss)
    assert 'completion_mask * inputs["tool_mask"]' in loss and 'inputs["num_items_in_batch"].clamp(min=1.0)' in loss


class VLLMServer:
    """Stands for the client of a vLLM server, which needs a GPU; TRL's code on this side of it is the real one."""

    def __init__(self, tokenizer):
        self.tokenizer, self.calls = tokenizer, []

    def get_server_info(self):
        return {"model_config": {"logprobs_mode": "processed_logprobs"}}

    def generate(self, prompts, features=None, n=1, **_):
        self.calls.append(len(prompts))
        letters = ["ABCD"[(len(self.calls) + place) % 4] for place in range(len(prompts))]
        responses = [[*self.tokenizer(letter)["input_ids"], self.tokenizer.eos_token_id] for letter in letters]
        logprobs = [[[-1.0] for _ in ids] for ids in responses]
        return {"prompt_ids": prompts, "completion_ids": responses, "logprobs": logprobs, "logprob_token_ids": None}


def test_vllm_answers_go_through_trls_own_hook_with_importance_sampling(toy_model, tmp_path, monkeypatch):
    server = VLLMServer(AutoTokenizer.from_pretrained(toy_model))

    class Generation(grpo_trainer.VLLMGeneration):
        def _init_vllm(self):
            self.vllm_client = server

        def sync_weights(self):
            pass

    monkeypatch.setattr(grpo_trainer, "VLLMGeneration", Generation)
    instance = trainer(
        toy_model, tmp_path, beta=0.0, use_vllm=True, vllm_mode="server", vllm_importance_sampling_mode="token_truncate"
    )
    output = rollout(instance)
    real = instance._rows.real
    assert server.calls[0] == 32 and sorted(server.calls, reverse=True) == server.calls and sum(server.calls) == real
    mask = (output["tool_mask"] * output["completion_mask"]).bool()
    assert torch.equal(output["sampling_per_token_logps"][mask], torch.full((int(mask.sum()),), -1.0))
    ratio = torch.exp(output["old_per_token_logps"] + 1.0).clamp(max=instance.vllm_importance_sampling_clip_max)
    torch.testing.assert_close(output["importance_sampling_ratio"][mask], ratio[mask])
    assert float(gradient(instance, output).norm()) > 0


@pytest.mark.slow
def test_two_processes_make_the_update_of_one(toy_model, tmp_path):
    """With real sampling: a response's seed names its place in the whole batch, not its process."""
    script = Path(__file__).parent / "two_processes.py"
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--master_port=29617", str(script)]
    done = subprocess.run(
        [*launch, str(toy_model), str(tmp_path / "two.pt")],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    two, found = torch.load(tmp_path / "two.pt"), json.loads((tmp_path / "two.json").read_text())
    one = trainer(toy_model, tmp_path / "one", settings={"episodes_per_device": 48}, **UPDATE)
    before = {name: weights.clone() for name, weights in one.model.state_dict().items()}
    one.train()
    rewards = [row["reward"] for row in one.state.log_history if "reward" in row]
    assert found["world"] == 2 and found["reward"] == pytest.approx(rewards)
    moved = torch.cat([(weights - before[name]).flatten() for name, weights in one.model.state_dict().items()])
    apart = torch.cat([(weights - two[name]).flatten() for name, weights in one.model.state_dict().items()])
    assert float(moved.norm()) > 1e-3 and float(apart.norm() / moved.norm()) < 1e-4
