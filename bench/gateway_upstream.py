"""A provider's server for the benchmark of gateways: it answers each path with bytes that were made before.

Run as a process: ``python gateway_upstream.py ANSWERS.json`` prints its port. ``ANSWERS.json`` holds, by the end of a
path, ``{"type": …, "pieces": [BASE64, …]}``: one piece is an answer with a length, several are a stream, of which each
is written by itself. A request whose body holds ``"stream":true`` gets what stands under ``PATH stream``. Nothing is
parsed but the length of the body, so that it takes as little of the machine as Python can.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

_LENGTH = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)
_STREAM = re.compile(rb'"stream":\s*true')


def answers(file: str) -> dict[str, list[bytes]]:
    """Read the answers: what is written for each of them."""
    made: dict[str, list[bytes]] = {}
    found: dict[str, dict[str, Any]] = json.loads(Path(file).read_text("utf-8"))
    for path, each in found.items():
        pieces = [b64decode(piece) for piece in each["pieces"]]
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {each['type']}\r\n"
        if len(pieces) == 1:
            made[path] = [f"{head}content-length: {len(pieces[0])}\r\n\r\n".encode() + pieces[0]]
        else:
            chunks = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces]
            made[path] = [f"{head}transfer-encoding: chunked\r\n\r\n".encode(), *chunks, b"0\r\n\r\n"]
    return made


class Server(asyncio.Protocol):
    """One connection."""

    def __init__(self, known: dict[str, list[bytes]]) -> None:
        """Keep the answers."""
        self._known = known
        self._data = b""
        self._pending: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        """Answer when a request is whole."""
        self._data = self._data + data if self._data else data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            head = self._data[:end]
            length = _LENGTH.search(head)
            size = end + 4 + (int(length[1]) if length else 0)
            if len(self._data) < size:
                return
            path = head.split(b" ", 2)[1].partition(b"?")[0].decode()
            body, self._data = self._data[end + 4 : size], self._data[size:]
            stream = path.endswith(":streamGenerateContent") or _STREAM.search(body) is not None
            key = next(
                each for each in self._known if path.endswith(each.partition(" ")[0]) and (" " in each) == stream
            )
            pieces = self._known[key]
            if len(pieces) == 1:
                self._transport.write(pieces[0])
            else:
                self._pending = asyncio.get_running_loop().create_task(self._stream(pieces))

    async def _stream(self, pieces: list[bytes]) -> None:
        for piece in pieces:
            self._transport.write(piece)
            await asyncio.sleep(0)


async def main(file: str) -> None:
    """Serve until the process is killed."""
    known = answers(file)
    server = await asyncio.get_running_loop().create_server(lambda: Server(known), "127.0.0.1", 0, backlog=4096)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
