"""Prompts and responses as the tokens of a model: one way for generation, distillation, reinforcement and evaluation.

A prompt is what the tokenizer's own chat template makes of its messages and tools. A response is text as the model
would have written it, so that a trained model and an agent with structured calls say the same.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from castgym.data.errors import ConfigError
from castgym.envs.messages import Response
from castgym.tools.calls import ToolCall


def prompt_text(
    tokenizer: Any,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] = (),
    thinking: bool | None = None,
) -> str:
    """The text before a response, by the tokenizer's chat template.

    Args:
        tokenizer: a transformers tokenizer with a chat template.
        messages: chat messages.
        tools: schemas that the template renders; `prompt.template_tools` of a prompt.
        thinking: passed on as `enable_thinking` unless `None`; templates without that switch ignore it.

    Raises:
        ConfigError: the tokenizer has no chat template.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise ConfigError("the tokenizer has no chat template: set tokenizer.chat_template, or take an instruct model")
    switch = {} if thinking is None else {"enable_thinking": thinking}
    text: str = tokenizer.apply_chat_template(
        [dict(message) for message in messages],
        tools=[dict(tool) for tool in tools] or None,
        add_generation_prompt=True,
        tokenize=False,
        **switch,
    )
    return text


def token_ids(tokenizer: Any, text: str) -> list[int]:
    """Tokens of a text that already holds its special tokens."""
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def response_text(response: Response) -> str:
    r"""A response as a model writes it: its text, then each call in Hermes/Qwen markup.

    >>> response_text(ToolCall("catalog", {}))
    '<tool_call>\n{"name": "catalog", "arguments": {}}\n</tool_call>'
    """
    if isinstance(response, str):
        return response
    if isinstance(response, ToolCall):
        return _markup(response.name, response.arguments)
    parts = []
    reasoning = response.get("reasoning_content")
    thought = f"<think>\n{reasoning}\n</think>\n\n" if reasoning else ""  # as Qwen3's template writes it
    if response.get("content"):
        parts.append(str(response["content"]))
    for call in response.get("tool_calls") or ():
        arguments = call["function"].get("arguments") or "{}"
        parts.append(
            _markup(call["function"]["name"], json.loads(arguments) if isinstance(arguments, str) else arguments)
        )
    return thought + "\n".join(parts)


def _markup(name: str, arguments: Mapping[str, Any]) -> str:
    call = json.dumps({"name": name, "arguments": dict(arguments)}, ensure_ascii=False)
    return f"<tool_call>\n{call}\n</tool_call>"
