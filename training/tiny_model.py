"""A tiny policy of Qwen3's architecture, with a tokenizer of its own, saved as any model of the hub is.

Everything that a script sees of it is what it would see of Qwen3-8B: the architecture, ChatML with Qwen3's own chat
template (tools, tool results, the thinking switch), the markup tokens with the same standing (only the three ChatML
tokens are special, so `skip_special_tokens` keeps a `<tool_call>`), and single-digit numbers. Only the sizes differ.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from trl.chat_template_utils import qwen3_chat_template

from castgym.agents.base import answer, classical_call
from castgym.data.errors import ConfigError
from castgym.data.files import folder_atomic
from castgym.envs.casesets import load_cases
from castgym.envs.prompts import Prompt
from castgym.envs.sources import DecisionSource
from castgym.envs.trajectory import Trajectory
from castgym.tools.calls import ToolCall
from castgym.tools.planning.classical import CLASSICAL_METHODS
from castgym.training.step_rows import step_texts

END_OF_TEXT, TURN_START, TURN_END = CHATML_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
"""Special tokens, named as Qwen3 names them; the turn's end is also the end of a response."""

MARKUP_TOKENS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
"""Tokens of their own that are no special tokens, as in Qwen3."""

HEAD_SIZE = 32
MAX_POSITIONS = 32_768
"""Positions that the rotary embedding is said to serve; they cost nothing."""

_MARKUP = re.compile("|".join(map(re.escape, (*CHATML_TOKENS, *MARKUP_TOKENS))))


@dataclass(frozen=True, slots=True)
class TinySize:
    """Shape of the model.

    Attributes:
        hidden: width; a multiple of 64, so that heads of 32 come in pairs that share keys and values.
        layers: number of layers.
        vocabulary: tokens of the tokenizer, all in.
    """

    hidden: int = 128
    layers: int = 4
    vocabulary: int = 2048

    def __post_init__(self) -> None:
        if self.hidden < 64 or self.hidden % (2 * HEAD_SIZE):
            raise ConfigError(f"expected hidden as a multiple of {2 * HEAD_SIZE}, found {self.hidden}")
        if self.layers < 1:
            raise ConfigError(f"expected at least one layer, found {self.layers}")
        least = 256 + len(CHATML_TOKENS) + len(MARKUP_TOKENS)
        if self.vocabulary < least:
            raise ConfigError(f"expected a vocabulary of at least {least} tokens, found {self.vocabulary}")


def build_tiny_model(
    out: Path, texts: Iterable[str], size: TinySize | None = None, *, seed: int = 0, overwrite: bool = False
) -> int:
    """Train the tokenizer, draw random weights, save both.

    Args:
        out: folder to create; `AutoTokenizer` and `AutoModelForCausalLM` load it.
        texts: what the tokenizer learns from; `transcript_texts` of `sample_trajectories`, or of the teacher's.
        size: shape of the model.
        seed: of the weights; the process's own random state is left as it is.
        overwrite: replace an existing folder.

    Returns:
        Number of parameters.

    Raises:
        ConfigError: there is no text.
        DataError: the folder exists.
    """
    size = size or TinySize()
    with folder_atomic(out, overwrite=overwrite) as folder:
        tokenizer = train_tokenizer(texts, size.vocabulary)
        tokenizer.save_pretrained(folder)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = Qwen3ForCausalLM(tiny_config(tokenizer, size))
        model.generation_config.eos_token_id = [tokenizer.eos_token_id, tokenizer.pad_token_id]
        model.generation_config.pad_token_id = tokenizer.pad_token_id
        model.save_pretrained(folder)
    return sum(parameter.numel() for parameter in model.parameters())


def tiny_config(tokenizer: PreTrainedTokenizerFast, size: TinySize) -> Qwen3Config:
    """Qwen3's configuration in small: its proportions of heads and of the inner width, embeddings tied."""
    heads = size.hidden // HEAD_SIZE
    return Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=size.hidden,
        intermediate_size=3 * size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        head_dim=HEAD_SIZE,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=True,
        # Qwen3-8B's 0.02 is about 1 / sqrt(4096); with 0.02 here, tied logits start so flat that steps are wasted.
        initializer_range=size.hidden**-0.5,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        use_cache=True,
    )


def train_tokenizer(texts: Iterable[str], vocabulary: int = 2048) -> PreTrainedTokenizerFast:
    """Byte-level BPE with single digits; every text comes back exactly. The same texts give the same tokens.

    Args:
        texts: what to learn from.
        vocabulary: number of tokens, all in; fewer where the texts hold no more.

    Raises:
        ConfigError: there is no text.
    """
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(CHATML_TOKENS) - len(MARKUP_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    parts = [part for text in texts for part in _MARKUP.split(text) if part]
    if not parts:
        raise ConfigError("expected texts to train a tokenizer on, found none")
    bpe.train_from_iterator(parts, trainer)
    bpe.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in CHATML_TOKENS])
    bpe.add_tokens([AddedToken(token, special=False, normalized=False) for token in MARKUP_TOKENS])
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=bpe,
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        padding_side="left",
        model_max_length=MAX_POSITIONS,
        clean_up_tokenization_spaces=False,
        chat_template=qwen3_chat_template,
    )


def transcript_texts(trajectories: Iterable[Trajectory]) -> Iterator[str]:
    """Every prompt with its response, as the chat template writes them."""
    # Rendering needs no vocabulary, and there is none yet.
    blank = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=Tokenizer(models.BPE()), chat_template=qwen3_chat_template
    )
    for trajectory in trajectories:
        for step in trajectory.steps:
            yield "".join(step_texts(blank, trajectory, step))


def sample_trajectories(episodes: int = 24) -> Iterator[Trajectory]:
    """Walks through the free tools on embedded training cases, in both prompt styles: texts for a tokenizer.

    Args:
        episodes: cases a style, evenly from the training split.
    """
    loaded = load_cases()
    for style, form in (("compact", "plan"), ("full", "decisions")):
        source = DecisionSource(loaded, "train", prompt_style=style, answer_form=form)
        for subject_id in source.ids[:: max(1, len(source.ids) // episodes)][:episodes]:
            episode = source.episode(subject_id)
            trajectory = Trajectory.begin(episode)
            for call in _free_calls(episode.case.series_id):
                trajectory.add(episode.observe(), call, episode.act(call))
            prompt = episode.observe()
            text = _answer(prompt, form)
            trajectory.add(prompt, text, episode.act(text))
            trajectory.finish(episode, None)
            yield trajectory


def _free_calls(series_id: str) -> list[ToolCall]:
    named = {"series_id": series_id}
    return [
        ToolCall("catalog", {}),
        ToolCall("history", {**named, "limit": 24}),
        ToolCall("inspect_series", named),
        ToolCall("budget_status", {}),
        *(classical_call(series_id, method) for method in CLASSICAL_METHODS),
    ]


def _answer(prompt: Prompt, form: str) -> str:
    plan = prompt.memory.plans[-1]
    if form == "decisions":
        return answer(plan, prompt)
    return json.dumps({"plan": plan.plan_id, "adjust": {prompt.task["block_ids"][0]: 1}})
