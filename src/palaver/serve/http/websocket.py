"""A front over WebSocket: messages in, events and answers out, as JSON.

Rules:

- In: ``{"text", "payload"?, "run"?}``, or ``{"cancel": true}``. Out: ``{"event": {…}}``, ``{"run", "answer", "agent"}``
  and ``{"error": {"code", "message"}, "run"?}``. ``?events=none`` leaves the events out.
- ``?since=`` begins with the events that the bus keeps behind a place; each event says its ``place``.
- A message that is refused is told so, and the next one is heard. Binary frames are not: they close it (1003).
- A reader that lets more events wait than it may, or takes too long for one, is closed with 1013 and the reason.
- The end cancels nothing, unless ``?cancel=disconnect`` says so.

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
from palaver.serve.http.errors import refusal
from palaver.serve.http.request_body import UserInput, said, too_large
from palaver.serve.http.routes import cancels, since_of
from palaver.serve.http.turns import Turns
from palaver.swarm.events import Event, encode, for_client

SLOW: Final = 1013
"""The close code of RFC 6455's registry for “try again later”."""
UNREADABLE: Final = 1003
GOING_AWAY: Final = 1001
_REASON: Final = 123
"""Bytes of a reason, at most."""
_GOODBYE: Final = 5.0
_CANCELS: Final = re.compile(r'\s*\{\s*"cancel"')
_CANCEL: Final = msgspec.json.Decoder(dict[str, bool])


class Socket:
    """One connection of a client."""

    def __init__(self, turns: Turns, client: str, websocket: WebSocket) -> None:
        """Speak over a connection; ``serve`` does it. Raises ``DecodeError``."""
        self._turns, self._client, self._socket = turns, client, websocket
        self._cancels, self._since = cancels(websocket), since_of(websocket)
        self._shows = websocket.query_params.get("events") != "none"
        self._tasks: TaskGroup | None = None
        self._lock = anyio.Lock()
        self._leaving: tuple[int, str] | None = None

    async def serve(self) -> None:
        """Accept, and speak until either side ends."""
        await self._socket.accept()
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            if self._shows:
                await tasks.start(self._show)
            await self._listen(tasks)
            tasks.cancel_scope.cancel()
        if self._leaving is not None:
            with anyio.move_on_after(_GOODBYE), suppress(RuntimeError, WebSocketDisconnect):  # it may be gone
                await self._socket.close(*self._leaving)

    def leave(self, code: int, reason: str) -> None:
        """End the connection, and say why."""
        self._leaving = self._leaving or (code, reason.encode()[:_REASON].decode(errors="ignore"))
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()

    async def _show(self, *, task_status: TaskStatus[None]) -> None:
        try:
            async with self._turns.events(self._client, since=self._since, fail=True) as events:
                task_status.started()
                async for event in events:
                    await self._say(_framed(for_client(event)))
        except BusyError:
            self.leave(SLOW, f"slow reader: {self._turns.limits.events} events waited")

    async def _listen(self, tasks: TaskGroup) -> None:
        try:
            while True:
                frame = await self._socket.receive()
                if frame["type"] == "websocket.disconnect":
                    return
                text: str | None = frame.get("text")
                if text is None:
                    self.leave(UNREADABLE, "text frames with JSON are expected")
                    return
                await self._hear(text, tasks)
        except WebSocketDisconnect:
            return

    async def _hear(self, text: str, tasks: TaskGroup) -> None:
        try:
            self._turns.gate.admit(self._client)
            if len(text.encode(errors="replace")) > self._turns.limits.body:
                raise too_large(self._turns.limits)  # noqa: TRY301 (told as every refusal)
            if _is_cancel(text):
                await self._turns.dispatcher.cancel(self._client)
                return
            message = said(text)
            held = ExitStack()
            held.enter_context(self._turns.gate.waiting(self._client))
        except Exception as error:  # noqa: BLE001 (the client is told)
            await self._tell(refusal(error).told)
            return
        tasks.start_soon(self._ask, message, held)

    async def _ask(self, message: UserInput, held: AbstractContextManager[Any]) -> None:
        with held:
            try:
                answer = (await self._turns.ask(self._client, message, cancel=self._cancels)).told
            except Exception as error:  # noqa: BLE001 (the client is told)
                answer = refusal(error, message.run).told
            await self._tell(answer)

    async def _tell(self, value: Any) -> None:
        await self._say(jsontext.encode(value))

    async def _say(self, data: bytes) -> None:
        patience = self._turns.limits.patience
        with anyio.move_on_after(patience) as waited:
            try:
                async with self._lock:
                    await self._socket.send_text(data.decode())
            except (WebSocketDisconnect, RuntimeError):  # Starlette's words for a connection that is gone
                self.leave(GOING_AWAY, "gone")
        if waited.cancelled_caught:
            self.leave(SLOW, f"slow reader: nothing was taken for {patience:g} seconds")
            await checkpoint()


def _framed(event: Event) -> bytes:
    return b'{"event":%b,"place":%b}' % (encode(event), jsontext.encode(event.place))


def _is_cancel(text: str) -> bool:
    """Whether a frame cancels. Raises ``DecodeError`` for one that says so and something else."""
    if not _CANCELS.match(text):
        return False
    try:
        if _CANCEL.decode(text) == {"cancel": True}:
            return True
    except msgspec.MsgspecError:
        pass
    raise DecodeError('{"cancel": true} is expected', path="cancel", source="request")
