"""A server on loopback, in a process of its own: its CPU time is not ours. ``python answering.py`` prints its port.

Rules:

- It speaks HTTP/1.1 and keeps connections. Every request is read to its end, and answered with one recorded response
  of OpenAI's, whole or as a stream, by what its body asks for. The body is not parsed.
- It ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import wire_streams
from responses import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Generator

DELTAS = 100
_STREAMED = (b'"stream":true', b'"stream": true')


@contextmanager
def serving() -> Generator[str]:
    """Start it; gives its address."""
    with subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = int(process.stdout.readline())
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.stdin.close()
            process.wait(10)


def _response(media_type: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {media_type}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


class _Answers(asyncio.Protocol):
    """One connection."""

    whole = _response("application/json", (FIXTURES / "openai_chat.json").read_bytes())
    streamed = _response("text/event-stream", b"".join(wire_streams.chunks("openai_chat", "text", DELTAS)))

    def __init__(self) -> None:
        self._held = bytearray()
        self._wanted = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hold the connection."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer when a request is whole. Nobody sends a second before the first is answered."""
        self._held += data
        if not self._wanted:
            end = self._held.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._held[:end]).lower()
            length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
            self._wanted = end + 4 + int(length.partition(b":")[2])
        if len(self._held) >= self._wanted:
            asked = any(each in self._held for each in _STREAMED)
            self._held.clear()
            self._wanted = 0
            self._transport.write(self.streamed if asked else self.whole)


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Answers, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await loop.run_in_executor(None, sys.stdin.buffer.read)


if __name__ == "__main__":
    asyncio.run(_serve())
