"""The chat completions protocol: prompts as messages that an endpoint takes, and its answers as replies.

Two ways to call tools. `native`: schemas go into the request's `tools`, calls come back as `tool_calls`. `text`:
schemas are written into the system message and calls are read from the text, in the Hermes/Qwen form (`<tools>`,
`<tool_call>`, `<tool_response>`), for endpoints that know no tools.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from castgym.agents.replies import Usage

ToolCalls = Literal["native", "text"]

Message = Mapping[str, Any]

_CALL_KEYS = ("id", "type", "function")


def native_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages with structured calls, as strict endpoints take them.

    An assistant's message keeps its text and its calls; what an endpoint may refuse to read back (`finish_reason`,
    `reasoning_content`) is left out. A message with a call that endpoints cannot read, such as broken JSON in its
    arguments, is sent as text, and so are the results of such calls: a policy's fault must not break its next request.

    Args:
        messages: an episode's messages, OpenAI format.
    """
    sent: list[dict[str, Any]] = []
    called: set[str] = set()
    for message in messages:
        role = message["role"]
        if role == "assistant" and message.get("tool_calls") and _are_wellformed(message["tool_calls"]):
            calls = [{key: call[key] for key in _CALL_KEYS} for call in message["tool_calls"]]
            called.update(call["id"] for call in calls)
            sent.append({"role": role, "content": _content(message), "tool_calls": calls})
        elif role == "tool" and message.get("tool_call_id") in called:
            sent.append({"role": role, "tool_call_id": message["tool_call_id"], "content": _content(message)})
        else:
            _append_as_text(sent, message)
    return sent


def text_messages(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages in which tools, calls and results are text.

    Args:
        messages: an episode's messages, OpenAI format.
        tools: schemas of the tools, OpenAI function format; they end the system message.
    """
    sent: list[dict[str, Any]] = []
    for message in messages:
        _append_as_text(sent, message)
    if not tools:
        return sent
    if not sent or sent[0]["role"] != "system":
        sent.insert(0, {"role": "system", "content": ""})
    sent[0] = {"role": "system", "content": f"{sent[0]['content']}\n\n{tools_text(tools)}".strip()}
    return sent


def tools_text(tools: Sequence[Mapping[str, Any]]) -> str:
    """The tools and how to call them, for a system message."""
    schemas = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    return (
        "# Tools\n\n"
        "These functions can be called; each line is the JSON schema of one:\n"
        f"<tools>\n{schemas}\n</tools>\n\n"
        "To call one, write its name and arguments as a JSON object between tags:\n"
        '<tool_call>\n{"name": "<function name>", "arguments": {<arguments>}}\n</tool_call>\n'
        "Its result follows between <tool_response> tags."
    )


class NoReplyError(ValueError):
    """An answer of an endpoint that is no chat completion; the text says what was found."""


def read_completion(data: object) -> tuple[dict[str, Any], Usage | None, str]:
    """Take an endpoint's answer apart.

    Args:
        data: the decoded JSON.

    Returns:
        The message for an episode, the tokens if they were counted, the model that answered.

    Raises:
        NoReplyError: it is no chat completion with a message.
    """
    if not isinstance(data, Mapping):
        raise NoReplyError("sent no JSON object")
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices:
        raise NoReplyError("sent no choices")
    choice = choices[0]
    message = choice.get("message") if isinstance(choice, Mapping) else None
    if not isinstance(message, Mapping):
        raise NoReplyError("sent a choice without a message")
    content, calls = message.get("content"), message.get("tool_calls")
    if not (content is None or isinstance(content, str)) or not (calls is None or isinstance(calls, list)):
        raise NoReplyError("sent a message whose content is no text or whose tool_calls are no list")
    finish = choice.get("finish_reason")
    reply: dict[str, Any] = {"role": "assistant", "content": content or "", "finish_reason": finish}
    if calls:
        reply["tool_calls"] = calls
    # Servers disagree on the name of the field.
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(reasoning, str):
        reply["reasoning_content"] = reasoning
    return reply, _usage(data.get("usage")), str(data.get("model") or "")


def _usage(value: object) -> Usage | None:
    if not isinstance(value, Mapping):
        return None
    counts = [value.get("prompt_tokens"), value.get("completion_tokens")]
    tokens = [count if isinstance(count, int) and not isinstance(count, bool) else 0 for count in counts]
    return Usage(*tokens)


def _append_as_text(sent: list[dict[str, Any]], message: Message) -> None:
    role, content = message["role"], _content(message)
    if role == "tool":
        result = f"<tool_response>\n{content}\n</tool_response>"
        # Results of one response form one user message: many chat templates want roles to alternate.
        if sent and sent[-1]["role"] == "user" and sent[-1]["content"].endswith("</tool_response>"):
            sent[-1]["content"] += f"\n{result}"
        else:
            sent.append({"role": "user", "content": result})
        return
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list | tuple) else ():
        content += f"\n<tool_call>\n{_call_text(call)}\n</tool_call>"
    sent.append({"role": role, "content": content.strip() if calls else content})


def _call_text(call: object) -> str:
    """The call as near to what the model wrote as text can be, broken arguments included."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return json.dumps(call, ensure_ascii=False)
    arguments = function.get("arguments", {})
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return f'{{"name": {json.dumps(function.get("name"))}, "arguments": {written or "{}"}}}'


def _content(message: Message) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else "" if content is None else json.dumps(content)


def _are_wellformed(calls: object) -> bool:
    return isinstance(calls, list | tuple) and all(_is_wellformed(call) for call in calls)


def _is_wellformed(call: object) -> bool:
    if not isinstance(call, Mapping) or not isinstance(call.get("id"), str) or call.get("type") != "function":
        return False
    function = call.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str) or not function["name"]:
        return False
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        return False
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False
