"""The server of a gateway: uvicorn, and what signals do.

Rules:

- The first SIGTERM or SIGINT: new requests get 503, also ``/health``, and the server ends when the answers in progress
  have ended, at the latest after ``listen.grace`` seconds. The second one ends it at once.
- SIGHUP reads the configuration again, and so does a change of its file with ``watch``. One that cannot be used is
  reported, and changes nothing.
- llhttp reads the requests: a message that can be understood in two ways is refused (RFC 9112, 6.3 and 11.2).

Stability: experimental.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
import uvicorn
from anyio.abc import TaskStatus
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from palaver.gateway.app import live_app
from palaver.gateway.config import read_config

if TYPE_CHECKING:
    from palaver.gateway.live import LiveGateway

_ENDS: Final = (signal.SIGINT, signal.SIGTERM)
_SIGNALS: Final = (*_ENDS, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))
_HEADERS: Final = 64 * 1024
"""The most bytes of the headers of a request."""
_HEADER_SECONDS: Final = 30.0
"""How long the headers of a request may take to arrive."""
_READING_SECONDS: Final = 60.0
"""How long a client may read nothing of what it is sent."""
_WATCH_SECONDS: Final = 1.0

Report: TypeAlias = Callable[[str], None]


class _Server(uvicorn.Server):
    """A server that leaves signals to ``serve``."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Install no handlers."""
        yield


def backend_options() -> dict[str, Any]:
    """Return the options of ``anyio.run`` for a gateway: uvloop, where it runs."""
    return {"use_uvloop": find_spec("uvloop") is not None}


class _Protocol(HttpToolsProtocol):
    """Bounds what a connection may cost: how long headers take, what is no body, and a client that does not read.

    Trailers are no headers: what is checked in headers cannot be said again behind the body (RFC 9110, 6.5.1).
    """

    _late: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None
    _size = 0
    """Bytes since a request began, or since the last ones of its body."""
    _in_headers = True

    def connection_made(self, transport: Any) -> None:
        """Await the first request."""
        super().connection_made(transport)
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Await nothing."""
        super().connection_lost(exc)
        self._cancel()
        self._cancel_stuck()

    def data_received(self, data: bytes) -> None:
        """Read, and count what is no body."""
        self._size += len(data)
        super().data_received(data)
        if self._size > _HEADERS:
            self._close_late()

    def on_message_begin(self) -> None:
        """Await the headers of a request."""
        super().on_message_begin()
        self._in_headers = True
        self._cancel()
        self._await_headers()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; a trailer is passed over."""
        if self._in_headers:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Await nothing more."""
        self._in_headers = False
        self._cancel()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body."""
        self._size = 0
        super().on_body(body)

    def on_response_complete(self) -> None:
        """Await the rest of a request that was answered early, and that the client reads its answer."""
        if self.cycle.more_body:
            self._await_headers()
        if self._stuck is None and self.transport.get_write_buffer_size():
            self._await_reading()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Await that the client reads."""
        super().pause_writing()
        self._cancel_stuck()
        self._await_reading()

    def _await_headers(self) -> None:
        self._size = 0
        self._late = self.loop.call_later(_HEADER_SECONDS, self._close_late)

    def _await_reading(self) -> None:
        size = self.transport.get_write_buffer_size()
        self._stuck = self.loop.call_later(_READING_SECONDS, self._check_reading, size)

    def _check_reading(self, before: int) -> None:
        """Break the connection off when the client has read nothing in the meantime."""
        self._stuck = None
        left = self.transport.get_write_buffer_size()
        if left >= before:
            self.transport.abort()
        elif left:
            self._await_reading()

    def _cancel(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _cancel_stuck(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def _close_late(self) -> None:
        self._cancel()
        if not self.transport.is_closing():
            self.transport.close()


async def serve(
    live: LiveGateway,
    bound: socket.socket,
    *,
    file: Path | None = None,
    watch: bool = False,
    report: Report = lambda _: None,
) -> signal.Signals | None:
    """Serve a gateway at a socket that listens. Returns the signal that ended it. Raises what keeps it from starting.

    ``file`` holds the configuration that SIGHUP reads again; ``report`` gets what became of that, in one line.
    """
    options = uvicorn.Config(
        live_app(live),
        http=_Protocol,
        loop="none",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing here asks who a proxy says the client is
        lifespan="on",
        ws="none",
        timeout_graceful_shutdown=1,
    )
    server = _Server(options)
    ended: list[signal.Signals] = []
    grace = live.gateway.config.listen.grace

    async def stop_when_idle() -> None:
        with anyio.move_on_after(grace):
            await live.wait_idle()
        server.should_exit = True

    async def obey_signals(*, task_status: TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(*_SIGNALS) as signals:
            task_status.started()
            async for each in signals:
                if each not in _ENDS:
                    await _reload(live, file, report)
                    continue
                server.force_exit = server.should_exit = bool(ended)
                ended.append(each)
                if len(ended) == 1:
                    live.drain()
                    tasks.start_soon(stop_when_idle)

    async with anyio.create_task_group() as tasks:
        await tasks.start(obey_signals)
        if watch and file is not None:
            tasks.start_soon(_watch, live, file, report)
        log = logging.getLogger("uvicorn.error")
        log.addFilter(has_started := lambda _: live.failure is None)  # the failure is raised below, without a traceback
        try:
            await server.serve([bound])
        except SystemExit:  # uvicorn's, for an application that cannot start
            if live.failure is None:
                raise
        finally:
            log.removeFilter(has_started)
        tasks.cancel_scope.cancel()
    if live.failure is not None:
        raise live.failure
    return ended[0] if ended else None


async def _reload(live: LiveGateway, file: Path | None, report: Report) -> None:
    if file is None:
        report("there is no configuration to read again")
        return
    try:
        await live.reload(read_config(file))
    except Exception as error:  # noqa: BLE001 (also what a component raises: the gateway goes on as it is)
        report(f"the configuration was not changed: {error}")
    else:
        report(f"{file} was read again")


async def _watch(live: LiveGateway, file: Path, report: Report) -> None:
    """Reload when the file changes; the state of a file that is being replaced is looked at again."""
    seen = _state_of(file)
    while True:
        await anyio.sleep(_WATCH_SECONDS)
        found = _state_of(file)
        if found not in {seen, None}:
            seen = found
            await _reload(live, file, report)


def _state_of(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
