"""The tiny policy: the architecture, template and tokens of Qwen3, exact texts, and one model for one seed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from learning import SMALL, play_some, write_tiny, write_trajectories
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from castgym.cli.tiny_model import tiny_model
from castgym.data.errors import ConfigError, DataError
from castgym.data.files import sha256_hex
from castgym.envs.trajectory import Trajectory
from castgym.training.tiny_model import (
    CHATML_TOKENS,
    MARKUP_TOKENS,
    TinySize,
    build_tiny_model,
    sample_trajectories,
    train_tokenizer,
    transcript_texts,
)


@pytest.fixture(scope="module")
def trajectories() -> Sequence[Trajectory]:
    return play_some(4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, trajectories: Sequence[Trajectory]) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny") / "model", trajectories)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder)


@given(st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_every_text_comes_back_exactly(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text


def test_transcripts_come_back_exactly_and_in_fewer_tokens(tokenizer: Any, trajectories: Sequence[Trajectory]) -> None:
    for text in transcript_texts(trajectories):
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.decode(ids) == text
        assert len(ids) < len(text) / 1.5


def test_saving_and_loading_keeps_every_token(tokenizer: Any, trajectories: Sequence[Trajectory]) -> None:
    texts = list(transcript_texts(trajectories))
    fresh = train_tokenizer(texts, SMALL.vocabulary)
    for text in texts:
        assert fresh(text)["input_ids"] == tokenizer(text)["input_ids"]


def test_numbers_are_single_digits(tokenizer: Any) -> None:
    tokens = tokenizer.convert_ids_to_tokens(tokenizer("x=1234.56")["input_ids"])
    assert tokens[-7:] == ["1", "2", "3", "4", ".", "5", "6"]
    assert not any(sum(letter.isdigit() for letter in token) > 1 for token in tokenizer.get_vocab())


def test_markup_is_one_token_each_and_only_chatml_is_special(tokenizer: Any) -> None:
    for token in (*CHATML_TOKENS, *MARKUP_TOKENS):
        assert len(tokenizer(token)["input_ids"]) == 1
    text = "".join(MARKUP_TOKENS)
    ids = tokenizer("".join(CHATML_TOKENS) + text)["input_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|endoftext|>")


def test_the_template_has_tools_results_and_the_thinking_switch(tokenizer: Any) -> None:
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "plan"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "catalog", "arguments": {}}}]},
        {"role": "tool", "content": "{}"},
    ]
    tools = [{"type": "function", "function": {"name": "catalog", "description": "list", "parameters": {}}}]
    text = tokenizer.apply_chat_template(messages, tools=tools, tokenize=False, add_generation_prompt=True)
    assert text.startswith("<|im_start|>system\nbe brief\n\n# Tools")
    assert '"name": "catalog", "description": "list"' in text
    assert '<tool_call>\n{"name": "catalog", "arguments": {}}\n</tool_call><|im_end|>' in text
    assert "<|im_start|>user\n<tool_response>\n{}\n</tool_response><|im_end|>\n<|im_start|>assistant\n" in text
    quiet = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, enable_thinking=False)
    assert quiet.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")


def test_it_loads_as_any_qwen3_model_does_and_writes(folder: Path, tokenizer: Any) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert (type(model).__name__, model.config.model_type) == ("Qwen3ForCausalLM", "qwen3")
    assert model.config.vocab_size == len(tokenizer)
    assert model.config.tie_word_embeddings
    assert model.generation_config.eos_token_id == [tokenizer.eos_token_id, tokenizer.pad_token_id]
    prompts = tokenizer(["plan", "another one"], padding=True, return_tensors="pt")
    written = model.generate(**prompts, max_new_tokens=4, do_sample=False)
    assert written.shape[0] == 2
    assert written.shape[1] > prompts["input_ids"].shape[1]


def test_a_seed_decides_all_weights_and_leaves_the_process_alone(
    folder: Path, trajectories: Sequence[Trajectory], tmp_path: Path
) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    again = write_tiny(tmp_path / "again", trajectories)
    assert torch.equal(torch.rand(3), expected)
    other = write_tiny(tmp_path / "other", trajectories, seed=1)
    digests = [sha256_hex((path / "model.safetensors").read_bytes()) for path in (folder, again, other)]
    assert digests[0] == digests[1] != digests[2]
    tokenizers = {(path / "tokenizer.json").read_bytes() for path in (folder, again, other)}
    assert len(tokenizers) == 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"hidden": 96}, "multiple of 64"), ({"layers": 0}, "one layer"), ({"vocabulary": 200}, "at least 265")],
)
def test_impossible_sizes_are_refused(fields: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TinySize(**fields)


def test_no_text_and_an_existing_folder_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="found none"):
        build_tiny_model(tmp_path / "model", [])
    assert not (tmp_path / "model").exists()
    with pytest.raises(DataError, match="exists already"):
        build_tiny_model(folder, ["text"])


def test_embedded_episodes_serve_where_there_are_no_transcripts() -> None:
    trajectories = list(sample_trajectories(2))
    assert {trajectory.conditions["prompt_style"] for trajectory in trajectories} == {"compact", "full"}
    assert {trajectory.end["outcome"] for trajectory in trajectories} == {"completed"}
    assert any("<tools>" in text for text in transcript_texts(trajectories))


def test_the_command_builds_from_transcripts(tmp_path: Path, trajectories: Sequence[Trajectory]) -> None:
    app = typer.Typer()
    app.command()(tiny_model)
    transcripts = write_trajectories(tmp_path / "kept.jsonl", trajectories)
    arguments = [str(transcripts), "--out", str(tmp_path / "tiny"), "--hidden", "64", "--layers", "1"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "parameters, 1 layers of width 64" in result.output
    assert len(AutoTokenizer.from_pretrained(tmp_path / "tiny")) > 265
    assert isinstance(CliRunner().invoke(app, arguments).exception, DataError)
    assert isinstance(CliRunner().invoke(app, [*arguments, "--overwrite", "--hidden", "65"]).exception, ConfigError)
