"""Server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html.

Rules:

- An event of a swarm is called by its source and type (``agent.delta``), its data is JSON on one line, and its id is
  its place in the bus, where it has one. What a front says itself is called ``answer``, ``error`` and ``lost``.
- A comment is sent when nothing else was for a while, so that nobody on the way takes the connection for dead.
- A reader that goes away ends the stream; so does one that takes longer than it may for one piece.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any, Final

import anyio
from anyio.lowlevel import checkpoint
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from palaver.core import jsontext
from palaver.serve.http.errors import refusal
from palaver.swarm.events import Event, encode

BEAT: Final = 15.0
"""Seconds of silence after which a comment is sent."""
_TYPE: Final = "text/event-stream"


class Stream:
    """Where events are written."""

    def __init__(self, send: Send, patience: float, scope: anyio.CancelScope) -> None:
        """Write by ``send``; a reader that is too slow cancels ``scope``."""
        self._send, self._patience, self._scope = send, patience, scope
        self._lock = anyio.Lock()
        self._last = anyio.current_time()

    async def event(self, event: Event) -> None:
        """Write an event of a swarm."""
        await self._say(f"{event.source}.{event.type}", encode(event), event.place)

    async def lost(self, count: int) -> None:
        """Say how many events were lost."""
        await self.say("lost", {"count": count})

    async def say(self, name: str, value: Any) -> None:
        """Write something of one's own."""
        await self._say(name, jsontext.encode(value))

    async def _say(self, name: str, data: bytes, place: int | None = None) -> None:
        number = b"" if place is None else b"id: %d\n" % place
        title = " ".join(name.split()).encode(errors="replace")
        await self.write(b"%bevent: %b\ndata: %b\n\n" % (number, title, data))

    async def write(self, data: bytes, *, more: bool = True) -> None:
        """Write bytes."""
        with anyio.move_on_after(self._patience) as patience:
            async with self._lock:
                await self._send({"type": "http.response.body", "body": data, "more_body": more})
                self._last = anyio.current_time()
        if patience.cancelled_caught:
            self._scope.cancel()
            await checkpoint()

    async def beat(self) -> None:
        """Write a comment when nothing else was written, again and again."""
        while True:
            await anyio.sleep_until(self._last + BEAT)
            if anyio.current_time() >= self._last + BEAT:
                await self.write(b":\n\n")


class EventStream(Response):
    """An answer of server-sent events, written by a function."""

    def __init__(self, work: Callable[[Stream], Awaitable[None]], patience: float, held: ExitStack) -> None:
        """Let ``work`` write; it is cancelled when the reader goes away. ``held`` is let go at the end."""
        super().__init__(None, media_type=_TYPE, headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._work, self._patience, self._held = work, patience, held
        self._working = anyio.CancelScope()

    def leave(self) -> None:
        """End it."""
        self._working.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer; who asks for the head alone (HEAD) is not kept waiting for events."""
        with self._held:
            if scope["method"] == "HEAD":
                self._working.cancel()
            await self._answer(receive, send)

    async def _answer(self, receive: Receive, send: Send) -> None:
        async with anyio.create_task_group() as tasks:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            stream = Stream(send, self._patience, tasks.cancel_scope)
            tasks.start_soon(stream.beat)
            tasks.start_soon(gone, receive, tasks.cancel_scope)
            with self._working:
                try:
                    await self._work(stream)
                except Exception as error:  # noqa: BLE001 (the answer has begun, and this is how it ends)
                    await stream.say("error", refusal(error).told)
            await stream.write(b"", more=False)
            tasks.cancel_scope.cancel()


async def gone(receive: Receive, scope: anyio.CancelScope) -> None:
    """Cancel when the connection is closed."""
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
