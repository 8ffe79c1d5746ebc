"""Fine-tuning: the paper's loss on real batches, exact resumption, limits, adapters, two processes, settings."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from learning import play_some, write_tiny, write_trajectories
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from castgym.agents.rendering import response_text
from castgym.data.errors import ConfigError, DataError
from castgym.training.metrics_log import WandbSettings, read_metrics, report_to
from castgym.training.run_config import load_run_config
from castgym.training.run_script import TrainingFolder, run_script
from castgym.training.sft import SftSettings, train, trainer_arguments
from castgym.training.sft_trainer import LengthSortedSteps, StepRowTrainer, padded_share
from castgym.training.step_rows import IGNORED, StepRow, read_trajectories, said, step_rows

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Material:
    """A tiny model and what it learns from."""

    model: Path
    trajectories: Path

    def settings(self, out: Path, **changes: Any) -> SftSettings:
        fields: dict[str, Any] = {
            "max_steps": 4,
            "batch_size": 4,
            "device_batch_size": 2,
            "learning_rate": 1e-3,
            "precision": "fp32",
            "gradient_checkpointing": False,
            "save_steps": 2,
            **changes,
        }
        return SftSettings(model=str(self.model), trajectories=[self.trajectories], out=out, **fields)

    def rows(self) -> list[StepRow]:
        tokenizer = AutoTokenizer.from_pretrained(self.model)
        return [row for item in read_trajectories([self.trajectories]) for row in step_rows(item, tokenizer)]


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    folder = tmp_path_factory.mktemp("material")
    trajectories = play_some(6, thought="the last days repeat, so I take it")
    return Material(write_tiny(folder / "tiny", trajectories), write_trajectories(folder / "kept.jsonl", trajectories))


@pytest.fixture(scope="module")
def finished(material: Material, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four steps that never stopped."""
    out = tmp_path_factory.mktemp("finished") / "run"
    train(material.settings(out))
    return out


def trainer_of(material: Material, out: Path, **changes: Any) -> StepRowTrainer:
    settings = material.settings(out, **changes)
    return StepRowTrainer(
        material.rows(),
        model=settings.model,
        args=trainer_arguments(settings, TrainingFolder(out)),
        processing_class=AutoTokenizer.from_pretrained(settings.model),
    )


class TestLoss:
    def test_the_batches_that_reach_the_model_have_labels_on_responses_alone(
        self, material: Material, tmp_path: Path
    ) -> None:
        trainer = trainer_of(material, tmp_path)
        tokenizer = trainer.processing_class
        expected = Counter(
            response_text(said(step)) + "<|im_end|>"
            for trajectory in read_trajectories([material.trajectories])
            for step in trajectory.steps
        )
        found: Counter[str] = Counter()
        for batch in trainer.get_train_dataloader():
            for ids, labels, mask in zip(batch["input_ids"], batch["labels"], batch["attention_mask"], strict=True):
                learned = labels != IGNORED
                assert torch.equal(ids[learned], labels[learned])
                assert not (learned & (mask == 0)).any()
                first = int(learned.nonzero()[0])
                assert learned[first : int(mask.sum())].all()
                assert tokenizer.decode(ids[:first]).endswith("<|im_start|>assistant\n")
                found[tokenizer.decode(ids[learned])] += 1
        assert found == expected

    def test_it_is_the_sum_over_responses_by_their_number_times_the_mean_length(
        self, material: Material, tmp_path: Path
    ) -> None:
        """Against log-probabilities from the plain model, row by row and without padding."""
        train(material.settings(tmp_path / "run", max_steps=1))
        (first, *_) = read_metrics(tmp_path / "run" / "metrics.jsonl")
        rows = material.rows()
        order = list(LengthSortedSteps([len(row) for row in rows], 4, seed=0))[:4]
        model = AutoModelForCausalLM.from_pretrained(material.model)
        total = 0.0
        with torch.no_grad():
            for row in (rows[at] for at in order):
                logits = model(torch.tensor([row.input_ids])).logits[0, len(row.prompt_ids) - 1 : -1]
                total += float(
                    torch.nn.functional.cross_entropy(logits, torch.tensor(row.response_ids), reduction="sum")
                )
        mean = sum(len(row.response_ids) for row in rows) / len(rows)
        assert first["loss"] == pytest.approx(total / (4 * mean), rel=1e-5)

    def test_it_falls(self, finished: Path) -> None:
        losses = [row["loss"] for row in read_metrics(finished / "metrics.jsonl") if "loss" in row]
        assert len(losses) == 4
        assert losses[-1] < losses[0]


class TestResume:
    def test_two_steps_and_two_more_are_four_exactly(self, material: Material, finished: Path, tmp_path: Path) -> None:
        """The folder is as a kill after the second checkpoint leaves it, with half a line and half a checkpoint."""
        out = tmp_path / "run"
        shutil.copytree(finished, out)
        shutil.rmtree(out / "model")
        (out / "checkpoints" / "checkpoint-4" / "trainer_state.json").write_text('{"global_st')
        with (out / "metrics.jsonl").open("a") as stream:
            stream.write('{"step": 5, "lo')
        train(material.settings(out), resume=True)
        for weights in ("model", "checkpoints/checkpoint-4"):
            ours, theirs = (load_file(run / weights / "model.safetensors") for run in (out, finished))
            assert ours.keys() == theirs.keys()
            assert all(torch.equal(ours[name], theirs[name]) for name in ours)
        assert losses(out) == losses(finished)

    def test_adapters_resume_exactly_too(self, material: Material, tmp_path: Path) -> None:
        changes = {"lora": {"rank": 2, "dropout": 0.1}, "learning_rate": 0.01}
        train(material.settings(tmp_path / "whole", **changes))
        shutil.copytree(tmp_path / "whole", tmp_path / "halved")
        shutil.rmtree(tmp_path / "halved" / "model")
        shutil.rmtree(tmp_path / "halved" / "checkpoints" / "checkpoint-4")
        train(material.settings(tmp_path / "halved", **changes), resume=True)
        runs = [tmp_path / name / "model" / "adapter_model.safetensors" for name in ("whole", "halved")]
        whole, halved = map(load_file, runs)
        assert whole.keys() == halved.keys()
        assert all(torch.equal(whole[name], halved[name]) for name in whole)

    def test_without_a_checkpoint_it_starts_from_the_beginning(
        self, material: Material, finished: Path, tmp_path: Path
    ) -> None:
        out = tmp_path / "run"
        shutil.copytree(finished, out)
        shutil.rmtree(out / "model")
        shutil.rmtree(out / "checkpoints")
        train(material.settings(out), resume=True)
        assert losses(out) == losses(finished)

    def test_other_runs_are_refused(self, material: Material, finished: Path, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="--resume"):
            train(material.settings(finished))
        with pytest.raises(DataError, match="finished"):
            train(material.settings(finished), resume=True)
        with pytest.raises(DataError, match=r"learning_rate: was 0\.001, is 0\.002"):
            train(material.settings(finished, learning_rate=0.002), resume=True)
        fewer = write_trajectories(tmp_path / "fewer.jsonl", list(read_trajectories([material.trajectories]))[:5])
        with pytest.raises(DataError, match="rows: was"):
            train(Material(material.model, fewer).settings(finished), resume=True)
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "file").touch()
        with pytest.raises(DataError, match="other files"):
            train(material.settings(tmp_path / "other"))


def losses(run: Path) -> list[tuple[int, float]]:
    return [(row["step"], row["loss"]) for row in read_metrics(run / "metrics.jsonl") if "loss" in row]


class TestLimits:
    def test_a_row_over_a_limit_stops_the_run_before_it_starts(
        self, material: Material, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        limit, over = just_too_short(material)
        with pytest.raises(DataError, match=f"{over} of 12 rows are over the limits"):
            train(material.settings(tmp_path / "run", max_response_tokens=limit))
        assert "12 rows of 6 trajectories" in capsys.readouterr().out
        assert not (tmp_path / "run").exists()

    def test_or_is_dropped_and_counted(
        self, material: Material, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        limit, over = just_too_short(material)
        train(material.settings(tmp_path / "run", max_response_tokens=limit, over_long="drop", max_steps=1))
        assert f"{over} responses; {over} rows dropped" in capsys.readouterr().out
        record = json.loads((tmp_path / "run" / "run.json").read_text())
        assert any(f"{over} rows dropped" in line for line in record["notes"]["lengths"])


@pytest.mark.parametrize("meta", [{}, {"split": "test"}])
def test_only_training_data_is_learned(material: Material, tmp_path: Path, meta: dict[str, str]) -> None:
    (first, *others) = read_trajectories([material.trajectories])
    first.meta = meta
    mixed = write_trajectories(tmp_path / "mixed.jsonl", [*others, first])
    with pytest.raises(ConfigError, match="train split only"):
        train(Material(material.model, mixed).settings(tmp_path / "run"))


def just_too_short(material: Material) -> tuple[int, int]:
    """A limit one token below the longest response, and how many responses are over it."""
    lengths = [len(row.response_ids) for row in material.rows()]
    return max(lengths) - 1, lengths.count(max(lengths))


def test_adapters_leave_the_model_as_it_is_and_load_with_it(material: Material, tmp_path: Path) -> None:
    changes = {"lora": {"rank": 4, "alpha": 8}, "learning_rate": 0.01, "max_steps": 2}
    train(material.settings(tmp_path / "run", **changes))
    saved = tmp_path / "run" / "model"
    assert (saved / "adapter_model.safetensors").exists()
    assert not (saved / "model.safetensors").exists()
    adapted, base = (AutoModelForCausalLM.from_pretrained(path) for path in (saved, material.model))
    ids = torch.tensor([material.rows()[0].input_ids])
    with torch.no_grad():
        assert not torch.allclose(adapted(ids).logits, base(ids).logits, atol=1e-3)
        for module in adapted.modules():
            if hasattr(module, "lora_B"):
                module.lora_B["default"].weight.zero_()
        assert torch.allclose(adapted(ids).logits, base(ids).logits, atol=1e-5)
    assert AutoTokenizer.from_pretrained(saved).chat_template


@pytest.mark.slow
def test_two_processes_train_as_one_does(material: Material, finished: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(material.settings(tmp_path / "run").model_dump_json())
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [*launch, str(ROOT / "training" / "sft.py"), str(config)]
    result = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "2 processes x 2 rows x 1 times" in result.stdout
    assert result.stdout.count("12 rows of 6 trajectories") == 1
    for ours, theirs in zip(losses(tmp_path / "run"), losses(finished), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4)


class TestOrder:
    @given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(1, 9), st.integers(0, 5))
    @hypothesis_settings(max_examples=100, deadline=None)
    def test_each_row_comes_once_and_steps_are_sorted(self, lengths: list[int], together: int, seed: int) -> None:
        order = LengthSortedSteps(lengths, together, seed)
        rows = list(order)
        assert sorted(rows) == list(range(len(lengths)))
        assert list(LengthSortedSteps(lengths, together, seed)) == rows
        for start in range(0, len(rows), together):
            step = [lengths[row] for row in rows[start : start + together]]
            assert step == sorted(step, reverse=True)

    def test_epochs_differ_and_come_back(self) -> None:
        order = LengthSortedSteps(list(range(40)), 8, 0)
        epochs = []
        for epoch in (0, 1, 0):
            order.set_epoch(epoch)
            epochs.append(list(order))
        assert epochs[0] == epochs[2] != epochs[1]

    def test_the_trainer_moves_on_to_the_next_epoch(self, material: Material, tmp_path: Path) -> None:
        seen = []
        trainer = trainer_of(material, tmp_path, epochs=2.0, max_steps=None, save_steps=None)
        collate = trainer.data_collator
        trainer.data_collator = lambda rows: (seen.append([row["input_ids"] for row in rows]), collate(rows))[1]
        trainer.train()
        first, second = seen[:6], seen[6:]
        assert first != second
        flat = [sorted(ids for batch in epoch for ids in batch) for epoch in (first, second)]
        assert flat[0] == flat[1] == sorted(row.input_ids for row in material.rows())

    def test_sorting_saves_padding(self) -> None:
        lengths = [10, 40] * 16
        assert padded_share(lengths, range(32), 4) == pytest.approx(0.375)
        assert padded_share(lengths, list(LengthSortedSteps(lengths, 32, 0)), 4) == 0.0


class TestSettings:
    @pytest.mark.parametrize("name", ["sft_qwen3_8b", "sft_tiny"])
    def test_shipped_recipes_load(self, name: str) -> None:
        settings = load_run_config(ROOT / "configs" / f"{name}.yaml", SftSettings)
        if name == "sft_qwen3_8b":
            paper = (settings.learning_rate, settings.epochs, settings.batch_size, settings.precision)
            assert paper == (1e-5, 1, 16, "bf16")
            assert (settings.max_prompt_tokens, settings.max_response_tokens) == (4096, 2048)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ("learning_rate=1e-5", r"1\.0e-6"),
            ("learning_rate='fast'", "learning_rate"),
            ("learning_rate=.nan", "numbers"),
            ("batch_size=8.5", "batch_size"),
            ("batch_sise=8", "no such setting"),
            ("lora.rnak=8", r"lora\.rnak: there is no such setting"),
            ("model.name=x", "no section"),
            ("over_long=cut", "over_long"),
            ("trajectories=kept.jsonl", "trajectories"),
            ("trajectories=[]", "trajectories"),
            ("batch_size", "name=value"),
            ("out={a: 1, a: 2}", "found twice: a"),
            ("out=[", "YAML"),
        ],
    )
    def test_misfits_are_named(self, change: str, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            load_run_config(ROOT / "configs" / "sft_tiny.yaml", SftSettings, [change])

    def test_changes_win(self) -> None:
        changes = ["lora.rank=4", "out=/x/y", "learning_rate=1", "wandb={mode: online}"]
        settings = load_run_config(ROOT / "configs" / "sft_tiny.yaml", SftSettings, changes)
        assert settings.lora is not None
        assert (settings.lora.rank, settings.out, settings.learning_rate) == (4, Path("/x/y"), 1.0)
        assert settings.wandb == WandbSettings(mode="online")
        assert set(settings.identity()) - set(settings.identity("out", "lora")) == {"out", "lora"}
        with pytest.raises(ConfigError, match="outt"):
            settings.identity("outt")

    @pytest.mark.parametrize(
        ("text", "message"), [("- a\n", "mapping"), ("a: 1\na: 2\n", "twice"), ("model: 1\n", "expected a value")]
    )
    def test_files_that_do_not_fit_are_refused(self, text: str, message: str, tmp_path: Path) -> None:
        (tmp_path / "config.yaml").write_text(text)
        with pytest.raises(ConfigError, match=message):
            load_run_config(tmp_path / "config.yaml", SftSettings)

    def test_the_script_reports_errors_and_exits_with_two(
        self, material: Material, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        config = tmp_path / "config.yaml"
        config.write_text(material.settings(tmp_path / "run", batch_size=3).model_dump_json())
        assert run_script("doc", SftSettings, train, [str(config)]) == 2
        assert "multiple of device_batch_size x processes = 2 x 1, found 3" in capsys.readouterr().err
        assert (
            run_script("doc", SftSettings, train, [str(config), "--set", "model=/none", "--set", "batch_size=4"]) == 2
        )
        assert "tokenizer in /none" in capsys.readouterr().err
        assert run_script("doc", SftSettings, train, [str(tmp_path / "none.yaml")]) == 2
        assert "none.yaml" in capsys.readouterr().err


def test_wandb_stays_offline_unless_told_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_MODE", "WANDB_PROJECT", "WANDB_DIR", "WANDB_LOG_MODEL"):
        monkeypatch.setenv(name, "")  # put back afterwards
    assert report_to(None, tmp_path) == []
    assert os.environ["WANDB_MODE"] == ""
    pytest.importorskip("wandb")
    assert report_to(WandbSettings(), tmp_path) == ["wandb"]
    assert os.environ["WANDB_MODE"] == "offline"
