"""A real HTTP server on 127.0.0.1 that speaks `/v1/chat/completions` by a script and misbehaves on demand."""

import asyncio
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True)
class Answer:
    """What the server does with one request: status, headers and body after a delay, or the connection's end."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    reset: bool = False  # close without a byte
    send: int | None = None  # send only so many bytes of the announced body, then close


def completion(
    content: str | None = None,
    calls: Sequence[Any] = (),
    *,
    finish: str = "stop",
    usage: tuple[int, int] | None = (100, 10),
    **message: Any,
) -> Answer:
    """A proper chat completion."""
    said: dict[str, Any] = {"role": "assistant", "content": content, **message}
    if calls:
        said["tool_calls"] = list(calls)
    body: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "served-model",
        "choices": [{"index": 0, "finish_reason": finish, "message": said}],
    }
    if usage is not None:
        body["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
    return Answer(body)


def native_call(name: str, arguments: Mapping[str, Any] | str, call_id: str = "call_a") -> dict[str, Any]:
    """One entry of `tool_calls`."""
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": written}}


def fault(status: int, message: str = "", code: str | None = None, **headers: str) -> Answer:
    """An error answer; header names are written with `_` for `-`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer({"error": {"message": message, "code": code, "type": "error"}}, status, named)


@dataclass(frozen=True)
class Request:
    """What the server was asked."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]


Script = Callable[[Request], Answer]


class ChatServer:
    """Runs in a thread while its context is open.

    Args:
        script: an answer for each request, or answers in order of which the last is repeated.
    """

    def __init__(self, script: Script | Sequence[Answer]) -> None:
        self.url = ""
        self.requests: list[Request] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self._script = script if callable(script) else self._in_order(list(script))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chat server", daemon=True)
        self._server: asyncio.Server | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        starting = asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result()
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _in_order(self, answers: list[Answer]) -> Script:
        return lambda _: answers[min(len(self.requests), len(answers)) - 1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while await self._answer(reader, writer):
                pass
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether the connection may be used again."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        request = Request(head[0].split()[1], headers, json.loads(body or b"{}"))
        self.requests.append(request)
        answer = self._script(request)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            if answer.delay:
                await asyncio.sleep(answer.delay)
        finally:
            self.in_flight -= 1
        if answer.reset:
            return False
        data = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        lines = [
            f"HTTP/1.1 {answer.status} Scripted",
            "content-type: application/json",
            f"content-length: {len(data)}",
            *(f"{name}: {value}" for name, value in answer.headers.items()),
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + data[: answer.send])
        await writer.drain()
        return answer.send is None
