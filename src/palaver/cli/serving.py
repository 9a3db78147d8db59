"""What ``palaver serve`` runs: the front, the desk behind it, and the workers.

Rules:

- What is entered first is left last: bus and store, the swarm or the queue, the desk, the server, the workers.
- Turns in this process come to their end also when nobody is connected any more who waits for them: streams and
  WebSockets end first. They have as long as the requests have.
- The socket is bound before anything else is begun, so that a port that is taken stops nothing halfway.
- Without a token only a loopback address is bound.
- On asyncio alone, for the server and for NATS.

Stability: experimental.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import anyio
import click
import uvicorn
from anyio.abc import TaskStatus
from anyio.lowlevel import checkpoint

from palaver.cli import stores
from palaver.cli.failure import bad_input
from palaver.cli.harmless import echo, in_line
from palaver.cli.workers import Workers
from palaver.store.location import default_location, open_store
from palaver.swarm.front import Front, live_history, stored_history
from palaver.swarm.front.access import is_loopback
from palaver.swarm.front.connections import BACKLOG, Connections, most_connections
from palaver.swarm.work import LocalDesk

if TYPE_CHECKING:
    from palaver.store.store import Store
    from palaver.swarm.swarm import Swarm

_Finish: TypeAlias = Callable[[], Awaitable[None]]

_INTERRUPTED: Final = 130
_GRACE: Final = 30
"""Seconds that requests and turns under way have when the server stops."""
_FRAME: Final = 1024 * 1024
"""Bytes of a message over WebSocket that are read at all; the front refuses shorter ones with a reason."""


class Door(NamedTuple):
    """Who may ask, and from where: the options of ``Front`` that say so."""

    token: str | None = None
    tokens: Mapping[str, str] | None = None
    hosts: tuple[str, ...] | None = None
    origins: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether no token is asked for."""
        return self.token is None and self.tokens is None


class Serving(NamedTuple):
    """What was asked for."""

    file: str
    swarm: Swarm
    host: str
    port: int
    location: str | None
    bus: str | None
    workers: int
    door: Door
    connections: int | None

    @property
    def store(self) -> str:
        """Where conversations are kept."""
        return self.location or default_location()


class Server(uvicorn.Server):
    """A server that says when it has begun, and leaves signals to us."""

    def __init__(self, front: Front, connections: int | None) -> None:
        """Serve a front, over so many connections at a time."""
        options = uvicorn.Config(
            front,
            http=Connections,
            limit_concurrency=connections or most_connections(),
            backlog=BACKLOG,
            ws_max_size=_FRAME,
            log_config=None,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=_GRACE,
        )
        super().__init__(options)
        self.front = front
        self.begun = anyio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin."""
        await super().startup(sockets=sockets)
        self.begun.set()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave them alone."""
        yield

    def stop(self) -> None:
        """Take no more, and end when what is under way is answered; asked twice, end now."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self.front.close()


def serve(asked: Serving) -> int:
    """Serve until a signal comes, and give the exit code. Raises ``PalaverError``, ``click.ClickException``."""
    with closing(_bound(asked)) as bound, open_store(asked.store) as store:
        return anyio.run(_serve, asked, bound, store)


def _bound(asked: Serving) -> socket.socket:
    host, port = asked.host, asked.port
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        if asked.door.is_open and not is_loopback(str(address[0])):
            raise click.UsageError(f"--host {host} is reached by others: --token or --tokens is needed")
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen(BACKLOG)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        bad_input(f"{host}:{port}", (error.strerror or str(error)).lower())
    except UnicodeError:  # of the codec for names of hosts
        bad_input(f"{host}:{port}", "no name of a host")
    return bound


async def _serve(asked: Serving, bound: socket.socket, store: Store) -> int:
    async with (_local if asked.bus is None else _shared)(asked, store) as (front, finish):
        server = Server(front, asked.connections)
        workers = Workers(asked.file, asked.store, asked.bus or "", 0 if asked.bus is None else asked.workers)
        signals = _Signals(server, workers)
        async with anyio.create_task_group() as tasks:
            await tasks.start(signals.run)
            tasks.start_soon(_begun, asked, server, bound.getsockname()[1])
            tasks.start_soon(workers.run)
            await server.serve([bound])
            with signals.patience:
                await finish()
            await workers.stop()  # after the server: they answer what it still waits for
            tasks.cancel_scope.cancel()
    return signals.code


class _Signals:
    """Stops at the first signal, and at once at the second."""

    def __init__(self, server: Server, workers: Workers) -> None:
        self._server, self._workers = server, workers
        self.code = 0
        self.patience = anyio.CancelScope()
        """What is waited for until it took too long, or the second signal comes."""

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            task_status.started()
            async for each in signals:
                if self._server.should_exit:
                    self._workers.kill()
                    self.patience.cancel()
                else:
                    self.patience.deadline = anyio.current_time() + _GRACE
                    self.code = _INTERRUPTED if each == signal.SIGINT else 0
                    echo("palaver: stopping; again stops at once", err=True)
                self._server.stop()


@asynccontextmanager
async def _local(asked: Serving, store: Store) -> AsyncGenerator[tuple[Front, _Finish]]:
    """Everything in this process."""
    async with asked.swarm.start(store=store) as live, LocalDesk(live) as desk:
        yield Front(desk, history=live_history(live), **asked.door._asdict()), desk.finish


@asynccontextmanager
async def _shared(asked: Serving, store: Store) -> AsyncGenerator[tuple[Front, _Finish]]:
    """A queue for workers."""
    from palaver.swarm.nats import NatsBus
    from palaver.swarm.work.queue_desk import QueueDesk

    assert asked.bus is not None  # noqa: S101 (the caller's choice)
    name = asked.swarm.name
    async with NatsBus(asked.bus) as bus, QueueDesk(name, nats=asked.bus, bus=bus) as desk:
        front = Front(desk, history=stored_history(store, asked.swarm), swarm=name, **asked.door._asdict())
        yield front, checkpoint  # the workers finish theirs


async def _begun(asked: Serving, server: Server, port: int) -> None:
    """Say what runs, and where."""
    await server.begun.wait()
    host = f"[{asked.host}]" if ":" in asked.host else asked.host
    echo(in_line(f"swarm {asked.swarm.name}: {', '.join(asked.swarm.agents)}"))
    echo(f"conversations: {stores.shown(asked.store)}")
    if asked.bus is not None:
        echo(f"bus: {stores.shown(asked.bus)}")
    echo(f"POST http://{host}:{port}/v1/clients/CLIENT/messages, WebSocket ws://{host}:{port}/v1/clients/CLIENT")
    if asked.door.is_open:
        echo("no --token: every program on this machine is answered")
