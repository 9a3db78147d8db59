"""The server of a gateway: uvicorn, and what signals do.

The first SIGTERM or SIGINT ends the server when the answers in progress have ended, within ``GRACE`` seconds. The
second one ends it at once.

Stability: experimental.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import anyio
import uvicorn
from anyio.abc import TaskStatus

if TYPE_CHECKING:
    from starlette.types import ASGIApp

GRACE: Final = 30
"""Seconds."""


class _Server(uvicorn.Server):
    """A server that leaves signals to ``serve``."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Install no handlers."""
        yield


def backend_options() -> dict[str, Any]:
    """Return the options of ``anyio.run`` for a gateway: uvloop, where it runs."""
    return {"use_uvloop": find_spec("uvloop") is not None}


async def serve(app: ASGIApp, bound: socket.socket) -> signal.Signals | None:
    """Serve an application at a socket that listens. Returns the signal that ended it."""
    options = uvicorn.Config(
        app,
        http="httptools",
        loop="none",
        log_config=None,
        log_level="warning",
        access_log=False,
        lifespan="on",
        ws="none",
        timeout_graceful_shutdown=GRACE,
    )
    server = _Server(options)
    ended: list[signal.Signals] = []

    async def stop_at_signal(*, task_status: TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            task_status.started()
            async for each in signals:
                ended.append(each)
                server.force_exit = server.should_exit
                server.should_exit = True

    async with anyio.create_task_group() as tasks:
        await tasks.start(stop_at_signal)
        await server.serve([bound])
        tasks.cancel_scope.cancel()
    return ended[0] if ended else None
