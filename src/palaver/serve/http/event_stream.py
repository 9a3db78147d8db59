"""Server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html.

- An event of a swarm is named by its source and type (``agent.delta``). Its data is JSON on one line; its id is its
  place in the bus. The server's own events are ``answer``, ``error`` and ``lost``.
- After ``HEARTBEAT`` seconds of silence a comment is sent, so that no proxy closes the connection.
- A disconnect ends the stream, and so does a reader that takes longer than ``io_timeout`` for one piece.

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

HEARTBEAT: Final = 15.0
"""The number of seconds of silence after which a comment is sent."""
_TYPE: Final = "text/event-stream"


class Stream:
    """Writes server-sent events to one client."""

    def __init__(self, send: Send, io_timeout: float, scope: anyio.CancelScope) -> None:
        """Write with ASGI's ``send``. A reader that is too slow cancels ``scope``."""
        self._send, self._io_timeout, self._reader_scope = send, io_timeout, scope
        self._lock = anyio.Lock()
        self._last = anyio.current_time()

    async def event(self, event: Event) -> None:
        """Write an event of a swarm."""
        await self._send_event(f"{event.source}.{event.type}", encode(event), event.place)

    async def lost(self, count: int) -> None:
        """Write how many events were lost."""
        await self.send("lost", {"count": count})

    async def send(self, name: str, value: Any) -> None:
        """Write an event of the server itself."""
        await self._send_event(name, jsontext.encode(value))

    async def _send_event(self, name: str, data: bytes, place: int | None = None) -> None:
        number = b"" if place is None else b"id: %d\n" % place
        title = " ".join(name.split()).encode(errors="replace")
        await self.write(b"%bevent: %b\ndata: %b\n\n" % (number, title, data))

    async def write(self, data: bytes, *, more: bool = True) -> None:
        """Write bytes."""
        with anyio.move_on_after(self._io_timeout) as timeout:
            async with self._lock:
                await self._send({"type": "http.response.body", "body": data, "more_body": more})
                self._last = anyio.current_time()
        if timeout.cancelled_caught:
            self._reader_scope.cancel()
            await checkpoint()

    async def keep_alive(self) -> None:
        """Write a comment after each ``HEARTBEAT`` seconds of silence."""
        while True:
            await anyio.sleep_until(self._last + HEARTBEAT)
            if anyio.current_time() >= self._last + HEARTBEAT:
                await self.write(b":\n\n")


class EventStream(Response):
    """A response of server-sent events, written by a function."""

    def __init__(self, work: Callable[[Stream], Awaitable[None]], io_timeout: float, resources: ExitStack) -> None:
        """Let ``work`` write. A disconnect cancels it. ``resources`` are closed at the end."""
        super().__init__(None, media_type=_TYPE, headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._work, self._io_timeout, self._resources = work, io_timeout, resources
        self._scope = anyio.CancelScope()

    def close(self) -> None:
        """End the stream."""
        self._scope.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response. A HEAD request does not wait for events."""
        with self._resources:
            if scope["method"] == "HEAD":
                self._scope.cancel()
            await self._answer(receive, send)

    async def _answer(self, receive: Receive, send: Send) -> None:
        async with anyio.create_task_group() as tasks:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            stream = Stream(send, self._io_timeout, tasks.cancel_scope)
            tasks.start_soon(stream.keep_alive)
            tasks.start_soon(cancel_on_disconnect, receive, tasks.cancel_scope)
            with self._scope:
                try:
                    await self._work(stream)
                except Exception as error:  # noqa: BLE001 (the response has started, so the error is its last event)
                    await stream.send("error", refusal(error).body)
            await stream.write(b"", more=False)
            tasks.cancel_scope.cancel()


async def cancel_on_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    """Cancel ``scope`` when the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
