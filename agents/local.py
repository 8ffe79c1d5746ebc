"""An agent whose responses come from a transformers model in this process, for many prompts at once."""

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from castgym.agents.base import Policy
from castgym.agents.chat_protocol import text_messages
from castgym.agents.endpoint_errors import ContextOverflowError
from castgym.agents.rendering import prompt_text, token_ids
from castgym.agents.replies import Reply, Usage
from castgym.agents.sampling import PROTOCOL_SEED, SamplingSettings
from castgym.data.errors import ConfigError, InfrastructureError
from castgym.envs.messages import Response
from castgym.envs.prompts import Prompt

try:
    import torch
    import transformers

    from castgym.agents.local_sampling import SeededSampler
except ImportError as missing:
    raise ImportError("local agents need torch and transformers: pip install 'castgym[train]'") from missing

_library: Any = transformers  # its annotations are incomplete


class LocalAgent(Policy):
    """Plays with a causal language model and its tokenizer's chat template.

    Where the template knows tools, the schemas go through it; otherwise they are written into the system message. The
    text of a response keeps every special token but the one that ends it, so that `<tool_call>` is there to be read.

    Args:
        model: folder or hub id of a model, or a loaded model.
        tokenizer: the loaded tokenizer of a loaded model; by default the one in the model's folder.
        adapter: folder of a LoRA adapter for the model.
        sampling: decoding settings; `None` in them means temperature 1, and no top_p, no top_k.
        device: where a folder's model is put; by default the GPU if there is one.
        dtype: number format in which a folder's model is loaded; by default the one it was saved in.
        batch_size: most prompts in one pass; fewer need less memory.
        prompt_limit: most tokens of a prompt; by default what the model's context leaves beside a response.
        name: the policy's name; by default the folder's.

    Raises:
        ConfigError: model, tokenizer and settings do not fit together.
    """

    def __init__(
        self,
        model: str | Path | Any,
        *,
        tokenizer: Any = None,
        adapter: str | Path | None = None,
        sampling: SamplingSettings | None = None,
        device: str | None = None,
        dtype: str = "auto",
        batch_size: int = 16,
        prompt_limit: int | None = None,
        name: str | None = None,
    ) -> None:
        loaded = not isinstance(model, str | Path)
        if loaded and tokenizer is None:
            raise ConfigError("expected a tokenizer with a loaded model: LocalAgent(model, tokenizer=...)")
        if batch_size < 1:
            raise ConfigError(f"expected batch_size >= 1, found {batch_size}")
        self.sampling = sampling or SamplingSettings()
        self.batch_size = batch_size
        self.tokenizer: Any = _library.AutoTokenizer.from_pretrained(model) if tokenizer is None else tokenizer
        self.model: Any = model if loaded else _load(model, device, dtype)
        if adapter is not None:
            self.model = _with_adapter(self.model, adapter)
        source = str(getattr(model, "name_or_path", "")) if loaded else str(model)
        self.name = name or "+".join(Path(part).name for part in (source, adapter) if part) or "local"
        self._adapter = None if adapter is None else Path(adapter).name
        self.prompt_limit = self._room() if prompt_limit is None else prompt_limit
        self._ends = _end_tokens(self.model, self.tokenizer)
        self._template = self._read_template()
        self._lock = threading.Lock()  # `act` may be called from several threads, one model serves them

    @property
    def options(self) -> dict[str, Any]:
        """What its responses depend on, as JSON, for run configurations."""
        return {
            "agent": "local",
            "model": self.name,
            "adapter": self._adapter,
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "prompt_limit": self.prompt_limit,
            "sampling": self.sampling.options(),
        }

    def act(self, prompt: Prompt) -> Response:
        """The model's response.

        Raises:
            ContextOverflowError: the prompt is longer than the limit.
        """
        return self.respond_many([prompt])[0].message

    def respond_many(self, prompts: Sequence[Prompt], *, seeds: Sequence[int] | None = None) -> list[Reply]:
        """The responses to many prompts.

        Args:
            prompts: N prompts.
            seeds: one for each; by default the settings' own for all, so that the same prompt gets the same response.

        Returns:
            N replies in order, with the exact token ids that were read and drawn and their log-probabilities.

        Raises:
            ContextOverflowError: a prompt is longer than the limit; nothing was generated.
            InfrastructureError: the device has no memory for such a batch.
        """
        return self.generate([self.encode(prompt) for prompt in prompts], seeds=seeds)

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """The token ids of a prompt, with the tokens that open the response.

        Raises:
            ContextOverflowError: there are more than the limit.
            ConfigError: the chat template refuses the messages.
        """
        messages: Sequence[Mapping[str, Any]] = prompt.messages
        tools = prompt.template_tools
        if tools and "tools" not in self._template:
            messages, tools = text_messages(messages, tools), ()
        try:
            text = prompt_text(self.tokenizer, messages, tools, self.sampling.thinking)
        except Exception as error:  # a template may raise anything
            raise ConfigError(f"the chat template of {self.name} refuses the messages: {error}") from error
        ids = token_ids(self.tokenizer, text)
        if len(ids) > self.prompt_limit:
            found = f"got a prompt of {len(ids)} tokens, more than prompt_limit = {self.prompt_limit}"
            advice = "raise prompt_limit, lower max_tokens, or use prompt mode memory"
            raise ContextOverflowError(self.name, found, advice)
        return tuple(ids)

    def generate(self, prompts: Sequence[Sequence[int]], *, seeds: Sequence[int] | None = None) -> list[Reply]:
        """The responses to encoded prompts; see `respond_many`.

        Raises:
            InfrastructureError: the device has no memory for such a batch.
        """
        own = PROTOCOL_SEED if self.sampling.seed is None else self.sampling.seed
        drawn = [own] * len(prompts) if seeds is None else list(seeds)
        if len(drawn) != len(prompts):
            raise ConfigError(f"expected a seed for each of {len(prompts)} prompts, found {len(drawn)}")
        replies: dict[int, Reply] = {}
        # Prompts of like length share a pass, so that little is padded.
        order = sorted(range(len(prompts)), key=lambda row: len(prompts[row]))
        for start in range(0, len(order), self.batch_size):
            rows = order[start : start + self.batch_size]
            batch = self._pass([prompts[row] for row in rows], [drawn[row] for row in rows])
            replies.update(zip(rows, batch, strict=True))
        return [replies[row] for row in range(len(prompts))]

    def _pass(self, prompts: Sequence[Sequence[int]], seeds: Sequence[int]) -> list[Reply]:
        started = time.perf_counter()
        width = max(map(len, prompts))
        ids = torch.tensor([[self._padding] * (width - len(prompt)) + list(prompt) for prompt in prompts])
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        sampler = SeededSampler(self.sampling, seeds)
        with self._lock:
            training = self.model.training
            self.model.eval()  # no dropout, also between the steps of a trainer
            try:
                sequences = self.model.generate(
                    input_ids=ids.to(self.model.device),
                    attention_mask=mask.to(self.model.device),
                    generation_config=self._generation(),
                    logits_processor=_library.LogitsProcessorList([sampler]),
                )
            except torch.cuda.OutOfMemoryError:
                detail = f"{len(prompts)} prompts of up to {width} tokens"
                raise InfrastructureError(f"{self.name} has no memory for {detail}: lower batch_size") from None
            finally:
                self.model.train(training)
        logprobs = torch.stack(sampler.logprobs, dim=1).tolist()
        responses = sequences[:, width:].tolist()
        seconds = time.perf_counter() - started
        return [self._reply(*row, seconds) for row in zip(prompts, responses, logprobs, strict=True)]

    def _reply(self, prompt: Sequence[int], padded: Sequence[int], logprobs: Sequence[float], seconds: float) -> Reply:
        end = next((place for place, token in enumerate(padded) if token in self._ends), None)
        response = tuple(padded if end is None else padded[: end + 1])
        text = self.tokenizer.decode(
            list(padded if end is None else padded[:end]), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        message = {"role": "assistant", "content": text, "finish_reason": "length" if end is None else "stop"}
        usage = Usage(len(prompt), len(response))
        kept = tuple(logprobs[: len(response)])
        return Reply(message, usage, seconds, 1, self.name, tuple(prompt), response, kept)

    def _generation(self) -> Any:
        """Settings under which the sampler alone decides, whatever the model's own defaults are."""
        return _library.GenerationConfig(
            max_new_tokens=self.sampling.max_tokens,
            do_sample=False,
            num_beams=1,
            temperature=1.0,
            top_p=1.0,
            top_k=50,  # the neutral values: the library warns of others where it does not sample
            repetition_penalty=1.0,
            no_repeat_ngram_size=0,
            eos_token_id=sorted(self._ends) or None,
            pad_token_id=self._padding,
            use_cache=True,
        )

    @property
    def _padding(self) -> int:
        padding = self.tokenizer.pad_token_id
        return int(padding) if padding is not None else min(self._ends, default=0)

    def _room(self) -> int:
        """Tokens of the model's context that a response of the greatest length leaves."""
        context = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        if context is None:
            raise ConfigError(f"{self.name} does not say how long its context is: give prompt_limit")
        room = int(context) - self.sampling.max_tokens
        if room < 1:
            raise ConfigError(
                f"{self.name} has a context of {context} tokens, which leaves no prompt beside a response of "
                f"{self.sampling.max_tokens}: lower max_tokens in the sampling settings, or give prompt_limit"
            )
        return room

    def _read_template(self) -> str:
        try:
            template = str(self.tokenizer.get_chat_template(tools=None))
        except ValueError as error:
            raise ConfigError(f"the tokenizer of {self.name} has no chat template: set one") from error
        if self.sampling.thinking and "enable_thinking" not in template:
            raise ConfigError(f"the chat template of {self.name} has no enable_thinking: leave thinking at None")
        return template


def _load(model: str | Path, device: str | None, dtype: str) -> Any:
    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return _library.AutoModelForCausalLM.from_pretrained(model, dtype=dtype).to(chosen).eval()


def _with_adapter(model: Any, adapter: str | Path) -> Any:
    try:
        from peft import PeftModel
    except ImportError as missing:
        raise ImportError("adapters need peft: pip install 'castgym[train]'") from missing
    return PeftModel.from_pretrained(model, adapter).eval()


def _end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    """Tokens that end a response: the model's, which may be several, and the tokenizer's."""
    own = model.generation_config.eos_token_id
    listed = [] if own is None else own if isinstance(own, list | tuple) else [own]
    ends = [*listed, *([] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id])]
    return frozenset(map(int, ends))
