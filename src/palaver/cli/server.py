"""The server of ``palaver serve``: the HTTP application, the dispatcher behind it, and the worker processes.

- Resources close in reverse order: the workers, the server, the dispatcher, the swarm or its queue, the bus, the store.
- At the end streams and WebSockets close first. Turns in progress finish even when no client waits for them any more,
  within the same grace period as requests.
- The socket is bound before anything else starts, so that a taken port interrupts nothing. Without a token only a
  loopback address is bound.
- Workers get the store and the bus through the environment, so that no password is in the process list. They run in
  their own sessions: a terminal's signal reaches only this process, and workers end when it asks them to or is gone.
- A worker that ended by itself is restarted. After less than ``STABLE_AFTER`` seconds there is a pause first, which
  doubles up to ``MAX_PAUSE``.
- Runs on asyncio only, because of the server and of NATS.

Stability: experimental.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio
import click
import uvicorn
from anyio.abc import Process, TaskStatus
from anyio.lowlevel import checkpoint

from palaver.cli import listener, stores
from palaver.cli.terminal import echo, safe_line
from palaver.serve.http import HttpApp, live_history, stored_history
from palaver.serve.http.access import Access, ClientLimiter, is_loopback
from palaver.serve.http.connections import BACKLOG, LimitedH11Protocol, default_connection_limit
from palaver.serve.ui import AgUiEndpoint, AiSdkEndpoint
from palaver.serve.workers import LocalDispatcher
from palaver.store.location import VARIABLE, open_store

if TYPE_CHECKING:
    from palaver.cli.serve import ServeOptions
    from palaver.store.store import Store

STABLE_AFTER: Final = 10.0
MAX_PAUSE: Final = 30.0
GRACE: Final = 40.0
"""The number of seconds that a worker has to end; its turns have less."""


class WorkerPool:
    """The worker processes of one swarm."""

    def __init__(self, file: str, store: str, bus: str, number_of_workers: int) -> None:
        """Prepare the command; ``run`` starts the processes."""
        self._command = [sys.executable, "-m", "palaver", "work", file, "--attached"]
        self._environment = {**os.environ, VARIABLE: store, "PALAVER_BUS": bus}
        self._count = number_of_workers
        self._processes: dict[int, Process] = {}
        self._scope = anyio.CancelScope()
        self._all_ended = anyio.Event()
        self._stopping = anyio.Event()

    async def run(self) -> None:
        """Keep the workers running until ``stop``."""
        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    for number in range(1, self._count + 1):
                        tasks.start_soon(self._keep_running, number)
        finally:
            self._all_ended.set()

    async def stop(self) -> None:
        """Stop the workers and wait for them. After ``GRACE`` seconds they are killed."""
        self._stopping.set()
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                process.terminate()
        with anyio.move_on_after(GRACE):
            for process in tuple(self._processes.values()):
                await process.wait()
        self._scope.cancel()
        await self._all_ended.wait()

    def kill(self) -> None:
        """Kill the workers."""
        self._stopping.set()
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                process.kill()

    async def _keep_running(self, number: int) -> None:
        pause = 0.0
        while not self._stopping.is_set():
            start = anyio.current_time()
            pid, code = await self._run(number)
            if self._stopping.is_set():
                return
            stable = anyio.current_time() - start >= STABLE_AFTER
            pause = 0.0 if stable else min(MAX_PAUSE, max(1.0, 2 * pause))
            when = "now" if stable else f"in {pause:g} s"
            echo(f"palaver: worker {number} (process {pid}) ended with {code}; it is restarted {when}", err=True)
            with anyio.move_on_after(pause):
                await self._stopping.wait()

    async def _run(self, number: int) -> tuple[int, int]:
        process = await anyio.open_process(
            self._command,
            stdin=subprocess.PIPE,
            stdout=None,
            stderr=None,
            env=self._environment,
            start_new_session=True,
        )
        self._processes[number] = process
        echo(f"worker {number}: process {process.pid}")
        try:
            return process.pid, await process.wait()
        finally:
            with anyio.CancelScope(shield=True):
                if process.returncode is None:
                    process.kill()
                await process.aclose()
            del self._processes[number]


_Finish: TypeAlias = Callable[[], Awaitable[None]]

_INTERRUPTED: Final = 130
_GRACE: Final = 30
"""The number of seconds that requests and turns in progress have when the server stops."""
_FRAME: Final = 1024 * 1024
"""The most bytes of a WebSocket message; the application refuses shorter ones with a reason."""


class Server(uvicorn.Server):
    """A server that says when it has started, and leaves signals to ``_Signals``."""

    def __init__(self, app: HttpApp, connections: int | None) -> None:
        """Serve an application, with at most ``connections`` at a time."""
        options = uvicorn.Config(
            app,
            http=LimitedH11Protocol,
            limit_concurrency=connections or default_connection_limit(),
            backlog=BACKLOG,
            ws_max_size=_FRAME,
            log_config=None,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=_GRACE,
        )
        super().__init__(options)
        self.app = app
        self.ready = anyio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and set ``ready``."""
        await super().startup(sockets=sockets)
        self.ready.set()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Install no signal handlers."""
        yield

    def stop(self) -> None:
        """Refuse new requests, and end after those in progress; the second call ends at once."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self.app.close()


def serve(options: ServeOptions) -> int:
    """Serve until a signal arrives. Return the exit code. Raises ``PalaverError`` and ``click.ClickException``."""
    with closing(_bind(options)) as bound, open_store(options.store) as store:
        return anyio.run(_serve, options, bound, store)


def _bind(options: ServeOptions) -> socket.socket:
    def check(address: str) -> None:
        if options.access.is_open and not is_loopback(address):
            raise click.UsageError(f"--host {options.host} is reachable from other machines: pass --token or --tokens")

    return listener.bind(options.host, options.port, BACKLOG, check)


async def _serve(options: ServeOptions, bound: socket.socket, store: Store) -> int:
    async with (_in_process if options.bus is None else _with_workers)(options, store) as (app, finish):
        server = Server(app, options.connections)
        workers = WorkerPool(
            options.file, options.store, options.bus or "", 0 if options.bus is None else options.workers
        )
        signals = _Signals(server, workers)
        async with anyio.create_task_group() as tasks:
            await tasks.start(signals.run)
            tasks.start_soon(_announce, options, server, bound.getsockname()[1])
            tasks.start_soon(workers.run)
            await server.serve([bound])
            with signals.grace:
                await finish()
            await workers.stop()  # after the server: they answer its last requests
            tasks.cancel_scope.cancel()
    return signals.code


class _Signals:
    """Stops the server at the first signal, and at once at the second."""

    def __init__(self, server: Server, workers: WorkerPool) -> None:
        self._server, self._workers = server, workers
        self.code = 0
        self.grace = anyio.CancelScope()
        """Bounds the wait for turns in progress; the second signal cancels it."""

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            task_status.started()
            async for each in signals:
                if self._server.should_exit:
                    self._workers.kill()
                    self.grace.cancel()
                else:
                    self.grace.deadline = anyio.current_time() + _GRACE
                    self.code = _INTERRUPTED if each == signal.SIGINT else 0
                    echo("palaver: stopping; send the signal again to stop at once", err=True)
                self._server.stop()


@asynccontextmanager
async def _in_process(options: ServeOptions, store: Store) -> AsyncGenerator[tuple[HttpApp, _Finish]]:
    """Run everything in this process."""
    async with options.swarm.start(store=store) as live, LocalDispatcher(live) as dispatcher:
        access, limiter = Access(**options.access._asdict()), ClientLimiter()
        app = HttpApp(
            dispatcher,
            history=live_history(live),
            routes=[
                *AiSdkEndpoint(live, prefix="", access=access, limits=limiter).routes("/api/chat"),
                *AgUiEndpoint(live, prefix="", access=access, limits=limiter).routes("/ag-ui"),
            ],
            limits=limiter,
            title=options.swarm.name,
            agents=tuple(options.swarm.agents),
            **options.access._asdict(),
        )
        yield app, dispatcher.finish


@asynccontextmanager
async def _with_workers(options: ServeOptions, store: Store) -> AsyncGenerator[tuple[HttpApp, _Finish]]:
    """Hand turns to workers over a queue."""
    from palaver.serve.nats import NatsBus
    from palaver.serve.workers.queue_dispatcher import QueueDispatcher

    assert options.bus is not None  # noqa: S101 (the caller's choice)
    name = options.swarm.name
    realm = options.swarm.realm
    async with (
        NatsBus(options.bus) as bus,
        QueueDispatcher(name, nats=options.bus, bus=bus, store=store, realm=realm) as dispatcher,
    ):
        app = HttpApp(
            dispatcher,
            history=stored_history(store, options.swarm),
            swarm=name,
            title=name,
            agents=tuple(options.swarm.agents),
            **options.access._asdict(),
        )
        yield app, checkpoint  # the workers finish their own turns


async def _announce(options: ServeOptions, server: Server, port: int) -> None:
    """Print what is served, and where, once the server has started."""
    await server.ready.wait()
    where = listener.place(options.host, port)
    echo(safe_line(f"swarm {options.swarm.name}: {', '.join(options.swarm.agents)}"))
    echo(f"conversations: {stores.display_name(options.store)}")
    if options.bus is not None:
        echo(f"bus: {stores.display_name(options.bus)}")
    echo(f"http://{where}/ shows the routes, and a box to try them")
    echo(f"POST http://{where}/v1/clients/CLIENT/messages, WebSocket ws://{where}/v1/clients/CLIENT")
    if options.access.is_open:
        echo("no --token: every program on this machine has access")
