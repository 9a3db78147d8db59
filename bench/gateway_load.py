"""The load generator of the benchmark of gateways: requests over connections that stay open.

Run as a process: ``python gateway_load.py PORT REQUEST CONNECTIONS COUNT [RATE]`` sends ``COUNT`` requests. The file
``REQUEST`` holds one in pieces (``gateway_data.requests``). Each connection is a conversation of its own, whose request
grows by two messages each turn, up to all, and then begins again under another name. Without ``RATE`` each connection
sends as soon as it has its answer; with it, requests begin at fixed times, ``RATE`` a second, whether or not earlier
ones have ended, and a latency counts from when its request should have begun. It prints JSON: ``seconds``, ``failed``,
and sorted milliseconds of ``whole`` answers and of their ``first`` bytes behind the headers.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any
from uuid import uuid4

_LENGTH = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)
_OK = b" 200 "


class Conversation:
    """The requests of one connection."""

    def __init__(self, pieces: dict[str, Any]) -> None:
        """Begin."""
        self._head = pieces["head"]
        self._before, self._after = pieces["before"].encode(), pieces["after"].encode()
        self._items = [each.encode() for each in pieces["items"]]
        self._first = self._length = pieces["first"]
        self._name = uuid4().hex.encode()

    def request(self) -> bytes:
        """Return the next request."""
        middle = b",".join(self._items[: self._length])
        body = (self._before + middle + self._after).replace(b"UNIQUE", self._name, 1)
        self._length += 2
        if self._length > len(self._items):
            self._length, self._name = self._first, uuid4().hex.encode()
        return f"{self._head}content-length: {len(body)}\r\n\r\n".encode() + body


class Client(asyncio.Protocol):
    """One connection, which asks once at a time."""

    def __init__(self, pieces: dict[str, Any]) -> None:
        """Begin empty."""
        self._conversation = Conversation(pieces)
        self._answered: asyncio.Future[tuple[float, bool]] | None = None
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport: Any = transport

    def ask(self) -> asyncio.Future[tuple[float, bool]]:
        """Send; the result is when the first bytes of the body came, and whether the answer was a success."""
        self._answered = asyncio.get_running_loop().create_future()
        self._head, self._size, self._left, self._first, self._tail = b"", 0, -1, 0.0, b""
        self._transport.write(self._conversation.request())
        return self._answered

    def data_received(self, data: bytes) -> None:
        """Read until the answer is whole."""
        if self._left < 0:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            data = self._head[end + 4 :]
            length = _LENGTH.search(self._head, 0, end)
            self._left = int(length[1]) if length else 1 << 60
        if data and not self._first:
            self._first = time.perf_counter()
        self._left -= len(data)
        if self._left > 1 << 50:
            self._tail = (self._tail + data)[-7:]
            if self._tail.endswith(b"\r\n0\r\n\r\n") or self._tail == b"0\r\n\r\n":
                self._left = 0
        if self._left == 0:
            self._done(ok=_OK in self._head[:16])

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's own signature)
        """An answer that breaks off is a failure."""
        self.closed = True
        self._done(ok=False)

    def _done(self, *, ok: bool) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_result((self._first or time.perf_counter(), ok))


async def _connect(port: int, pieces: dict[str, Any]) -> Client:
    _, made = await asyncio.get_running_loop().create_connection(lambda: Client(pieces), "127.0.0.1", port)
    return made


async def main(port: int, pieces: dict[str, Any], connections: int, count: int, rate: float | None) -> dict[str, Any]:
    """Send all requests."""
    whole, first, failed = list[float](), list[float](), 0
    idle: deque[Client] = deque([await _connect(port, pieces) for _ in range(connections)])
    began = time.perf_counter()

    async def once(due: float) -> None:
        nonlocal failed
        client = idle.popleft() if idle else await _connect(port, pieces)
        if client.closed:
            client = await _connect(port, pieces)
        came, ok = await client.ask()
        if ok:
            whole.append((time.perf_counter() - due) * 1000)
            first.append((came - due) * 1000)
        else:
            failed += 1
        idle.append(client)

    async def ever(share: int) -> None:
        for _ in range(share):
            await once(time.perf_counter())

    if rate is None:
        await asyncio.gather(*[ever(count // connections) for _ in range(connections)])
    else:
        running = set[asyncio.Task[None]]()
        for number in range(count):
            due = began + number / rate
            if (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            task = asyncio.create_task(once(due))
            running.add(task)
            task.add_done_callback(running.discard)
        await asyncio.gather(*running)
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        "failed": failed,
        "whole": sorted(whole),
        "first": sorted(first),
    }


if __name__ == "__main__":
    _, port_, file_, connections_, count_, *rate_ = sys.argv
    sent = json.loads(Path(file_).read_text("utf-8"))
    found = asyncio.run(main(int(port_), sent, int(connections_), int(count_), float(rate_[0]) if rate_ else None))
    sys.stdout.write(json.dumps(found))
