"""Responses of policies as chat messages of plain JSON."""

import json
from collections.abc import Mapping
from typing import Any

from castgym.tools.calls import ToolCall
from castgym.tools.strict_json import StrictJsonError, check_value

Response = str | Mapping[str, Any] | ToolCall
"""What a policy may answer: text, an OpenAI chat message, or one structured call."""


def sanitised(response: Response) -> dict[str, Any] | None:
    """The response as a chat message of plain JSON, with `?` for lone surrogates, which no UTF-8 file can hold.

    Returns:
        The message, or `None` where it is not JSON or nested beyond all use.
    """
    try:
        message = response if isinstance(response, Mapping) else _as_message(response)
        text = json.dumps(dict(message), ensure_ascii=False)
        mended: dict[str, Any] = json.loads(text.encode("utf-8", "replace").decode("utf-8"))
        check_value({**mended, "content": None}, finite=False)
    except (TypeError, ValueError, RecursionError, StrictJsonError):
        return None
    return mended


def _as_message(response: str | ToolCall) -> dict[str, Any]:
    if isinstance(response, str):
        return {"role": "assistant", "content": response}
    function = {"name": response.name, "arguments": json.dumps(dict(response.arguments))}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": response.call_id, "type": "function", "function": function}],
    }
