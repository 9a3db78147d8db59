"""The WebSocket of a client: messages in, events and answers out, as JSON.

- In: ``{"text", "payload"?, "run"?}``, ``{"decisions", "run"?}`` or ``{"cancel": true}``. Out: ``{"event": {…},
  "place"}``, ``{"run", "answer", "agent", "pending"?}`` and ``{"error": {"code", "message"}, "run"?}``. Decisions and
  ``pending`` are those of HTTP. ``?events=none`` leaves the events out.
- ``?since=`` starts with the stored events after a place; each event has its ``place``.
- A refused message gets an error, and the connection stays open. A binary frame closes it (1003).
- A reader that is too slow, or has too many events waiting, is closed with 1013 and the reason.
- A disconnect cancels nothing, unless the URL has ``?cancel=disconnect``.

Stability: experimental.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import Any, Final

import anyio
import msgspec
from anyio.abc import TaskGroup, TaskStatus
from anyio.lowlevel import checkpoint
from starlette.websockets import WebSocket, WebSocketDisconnect

from palaver.core import jsontext
from palaver.core.errors import BusyError, DecodeError
from palaver.serve.http.access import UserDecisions, UserInput, parse_either, too_large
from palaver.serve.http.errors import refusal
from palaver.serve.http.routes import cancels, since_of
from palaver.serve.http.turns import Turns
from palaver.swarm.events import Event, encode, for_client

TRY_AGAIN_LATER: Final = 1013
"""A close code of RFC 6455's registry."""
UNSUPPORTED_DATA: Final = 1003
GOING_AWAY: Final = 1001
_MAX_REASON: Final = 123
"""The most bytes of a close reason."""
_CLOSE_TIMEOUT: Final = 5.0
_CANCELS: Final = re.compile(r'\s*\{\s*"cancel"')
_CANCEL: Final = msgspec.json.Decoder(dict[str, bool])


class Socket:
    """One WebSocket connection of a client."""

    def __init__(self, turns: Turns, client: str, websocket: WebSocket) -> None:
        """Read the query parameters; ``serve`` runs the connection. Raises ``DecodeError``."""
        self._turns, self._client, self._socket = turns, client, websocket
        self._cancels, self._since = cancels(websocket), since_of(websocket)
        self._sends_events = websocket.query_params.get("events") != "none"
        self._tasks: TaskGroup | None = None
        self._lock = anyio.Lock()
        self._closing: tuple[int, str] | None = None

    async def serve(self) -> None:
        """Accept the connection and run it until either side closes it."""
        await self._socket.accept()
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            if self._sends_events:
                await tasks.start(self._send_events)
            await self._receive(tasks)
            tasks.cancel_scope.cancel()
        if self._closing is not None:
            with (
                anyio.move_on_after(_CLOSE_TIMEOUT),
                suppress(RuntimeError, WebSocketDisconnect),
            ):  # the client may be gone
                await self._socket.close(*self._closing)

    def close(self, code: int, reason: str) -> None:
        """Close the connection with a code and a reason."""
        self._closing = self._closing or (code, reason.encode()[:_MAX_REASON].decode(errors="ignore"))
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()

    async def _send_events(self, *, task_status: TaskStatus[None]) -> None:
        try:
            async with self._turns.events(self._client, since=self._since, fail=True) as events:
                task_status.started()
                async for event in events:
                    await self._send(_framed(for_client(event)))
        except BusyError:
            self.close(TRY_AGAIN_LATER, f"slow reader: {self._turns.limits.events} events are waiting")

    async def _receive(self, tasks: TaskGroup) -> None:
        try:
            while True:
                frame = await self._socket.receive()
                if frame["type"] == "websocket.disconnect":
                    return
                text: str | None = frame.get("text")
                if text is None:
                    self.close(UNSUPPORTED_DATA, "expected text frames with JSON")
                    return
                await self._handle(text, tasks)
        except WebSocketDisconnect:
            return

    async def _handle(self, text: str, tasks: TaskGroup) -> None:
        try:
            self._turns.limiter.admit(self._client)
            if len(text.encode(errors="replace")) > self._turns.limits.body:
                raise too_large(self._turns.limits)  # noqa: TRY301 (handled as every refusal)
            if _is_cancel(text):
                await self._turns.dispatcher.cancel(self._client)
                return
            message = parse_either(text)
            slot = ExitStack()
            slot.enter_context(self._turns.limiter.pending(self._client))
        except Exception as error:  # noqa: BLE001 (the client gets it as a frame)
            await self._send_json(refusal(error).body)
            return
        tasks.start_soon(self._run_turn, message, slot)

    async def _run_turn(self, message: UserInput | UserDecisions, slot: AbstractContextManager[Any]) -> None:
        with slot:
            try:
                if isinstance(message, UserDecisions):
                    message = await self._turns.checked(self._client, message)
                answer = (await self._turns.ask(self._client, message, cancel=self._cancels)).body
            except Exception as error:  # noqa: BLE001 (the client gets it as a frame)
                answer = refusal(error, message.run).body
            await self._send_json(answer)

    async def _send_json(self, value: Any) -> None:
        await self._send(jsontext.encode(value))

    async def _send(self, data: bytes) -> None:
        io_timeout = self._turns.limits.io_timeout
        with anyio.move_on_after(io_timeout) as waited:
            try:
                async with self._lock:
                    await self._socket.send_text(data.decode())
            except (WebSocketDisconnect, RuntimeError):  # Starlette raises these when the connection is gone
                self.close(GOING_AWAY, "gone")
        if waited.cancelled_caught:
            self.close(TRY_AGAIN_LATER, f"slow reader: nothing was read for {io_timeout:g} seconds")
            await checkpoint()


def _framed(event: Event) -> bytes:
    return b'{"event":%b,"place":%b}' % (encode(event), jsontext.encode(event.place))


def _is_cancel(text: str) -> bool:
    """Return whether a frame is a cancel request. Raises ``DecodeError`` when it has other fields too."""
    if not _CANCELS.match(text):
        return False
    try:
        if _CANCEL.decode(text) == {"cancel": True}:
            return True
    except msgspec.MsgspecError:
        pass
    raise DecodeError('expected {"cancel": true}', path="cancel", source="request")
