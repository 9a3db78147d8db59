"""``palaver serve``: a swarm over HTTP and WebSocket, in this process or with workers.

Rules:

- Without ``--bus`` everything is in this process. With ``--bus nats://…`` and ``--store postgresql://…`` this process
  is the front, and ``--workers`` more answer; those of ``palaver work`` elsewhere answer too.
- A worker that ends by itself is told of and started again, at once or, when it lived shortly, after a while.
- Ctrl-C and SIGTERM stop everything: no new requests, the turns under way come to their end, the workers are waited
  for. The second signal waits for nothing.
- Exit codes: 0 after SIGTERM, 130 after Ctrl-C, 1 for a file, store, bus or port that cannot be used.

What ``palaver serve`` runs: the front, the desk behind it, and the workers.

Rules:

- What is entered first is left last: bus and store, the swarm or the queue, the desk, the server, the workers.
- Turns in this process come to their end also when nobody is connected any more who waits for them: streams and
  WebSockets end first. They have as long as the requests have.
- The socket is bound before anything else is begun, so that a port that is taken stops nothing halfway.
- Without a token only a loopback address is bound.
- On asyncio alone, for the server and for NATS.

The file of ``palaver serve --tokens``: TOML, a line for each client, ``ann = "the token of ann"``.

The worker processes of ``palaver serve``: started, watched, started again, and stopped.

Rules:

- Store and bus are told by the environment, so that no password stands in a list of processes.
- A worker that ended by itself is started again; one that lived less than ``STEADY`` seconds after a pause, which
  doubles up to ``LONGEST``.
- A signal of the terminal is the front's: workers are in sessions of their own, and end when the front asks them to,
  or when it is gone.

What ``serve`` and ``work`` need when several processes share a swarm: a bus, a store, and the packages for both.

Stability: experimental.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import anyio
import click
import uvicorn
from anyio.abc import Process, TaskStatus
from anyio.lowlevel import checkpoint

from palaver.cli import stores, swarm_file
from palaver.cli.terminal import bad_input, echo, in_line
from palaver.core.errors import DecodeError
from palaver.serve.http import Front, live_history, stored_history
from palaver.serve.http.access import is_loopback
from palaver.serve.http.connections import BACKLOG, Connections, most_connections
from palaver.serve.workers import LocalDesk
from palaver.store.location import VARIABLE, default_location, open_store, split_location
from palaver.swarm.names import checked_client

if TYPE_CHECKING:
    from palaver.store.store import Store
    from palaver.swarm.swarm import Swarm


# --- tokens file ------------------------------------------------------------------------------------------------------


def read(file: str) -> Mapping[str, str]:
    """Read tokens by their clients. Raises ``click.ClickException``, which never shows a token."""
    try:
        found = tomllib.loads(Path(file).read_text("utf-8"))
    except OSError as error:
        bad_input(file, (error.strerror or str(error)).lower())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        bad_input(file, 'lines of CLIENT = "token" are expected, in TOML')
    owners: dict[str, str] = {}
    for client, token in found.items():
        try:
            checked_client(client)
        except DecodeError as error:
            bad_input(file, f"{client!r}: {error.reason}")
        if not isinstance(token, str) or not token.strip():
            bad_input(file, f"{client}: a token is a text that is not empty")
        if token in owners:
            bad_input(file, f"{owners[token]} and {client} have the same token: each reads the other")
        owners[token] = client
    if not found:
        bad_input(file, "it holds no token")
    return found


# --- workers ----------------------------------------------------------------------------------------------------------


STEADY: Final = 10.0
LONGEST: Final = 30.0
GRACE: Final = 40.0
"""Seconds that a worker has to end; its turns have less."""


class Workers:
    """A number of workers of one swarm."""

    def __init__(self, file: str, store: str, bus: str, count: int) -> None:
        """Start nothing yet."""
        self._command = [sys.executable, "-m", "palaver", "work", file, "--attached"]
        self._environment = {**os.environ, VARIABLE: store, "PALAVER_BUS": bus}
        self._count = count
        self._running: dict[int, Process] = {}
        self._keeping = anyio.CancelScope()
        self._ended = anyio.Event()
        self._stopping = anyio.Event()

    async def run(self) -> None:
        """Keep them running until ``stop``."""
        try:
            with self._keeping:
                async with anyio.create_task_group() as tasks:
                    for number in range(1, self._count + 1):
                        tasks.start_soon(self._keep, number)
        finally:
            self._ended.set()

    async def stop(self) -> None:
        """Let them end, and wait for that; who takes too long is killed."""
        self._stopping.set()
        for process in self._running.values():
            with suppress(ProcessLookupError):
                process.terminate()
        with anyio.move_on_after(GRACE):
            for process in tuple(self._running.values()):
                await process.wait()
        self._keeping.cancel()
        await self._ended.wait()

    def kill(self) -> None:
        """Wait no longer."""
        self._stopping.set()
        for process in self._running.values():
            with suppress(ProcessLookupError):
                process.kill()

    async def _keep(self, number: int) -> None:
        pause = 0.0
        while not self._stopping.is_set():
            began = anyio.current_time()
            pid, code = await self._run(number)
            if self._stopping.is_set():
                return
            steady = anyio.current_time() - began >= STEADY
            pause = 0.0 if steady else min(LONGEST, max(1.0, 2 * pause))
            when = "now" if steady else f"in {pause:g} s"
            echo(f"palaver: worker {number} (process {pid}) ended with {code}; another is started {when}", err=True)
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
        self._running[number] = process
        echo(f"worker {number}: process {process.pid}")
        try:
            return process.pid, await process.wait()
        finally:
            with anyio.CancelScope(shield=True):
                if process.returncode is None:
                    process.kill()
                await process.aclose()
            del self._running[number]


# --- serving ----------------------------------------------------------------------------------------------------------


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
    async with asked.swarm.start(store=store) as live, LocalDesk(live) as dispatcher:
        yield Front(dispatcher, history=live_history(live), **asked.door._asdict()), dispatcher.finish


@asynccontextmanager
async def _shared(asked: Serving, store: Store) -> AsyncGenerator[tuple[Front, _Finish]]:
    """A queue for workers."""
    from palaver.serve.nats import NatsBus
    from palaver.serve.workers.queue_dispatcher import QueueDispatcher

    assert asked.bus is not None  # noqa: S101 (the caller's choice)
    name = asked.swarm.name
    async with NatsBus(asked.bus) as bus, QueueDispatcher(name, nats=asked.bus, bus=bus) as dispatcher:
        front = Front(dispatcher, history=stored_history(store, asked.swarm), swarm=name, **asked.door._asdict())
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


# --- shared -----------------------------------------------------------------------------------------------------------


_NATS: Final = "nats://"
_POSTGRES: Final = frozenset(("postgresql", "postgres"))


def check(bus: str, location: str | None) -> None:
    """Raise ``click.ClickException`` unless both can be shared, and spoken to."""
    if not bus.startswith(_NATS):
        raise click.UsageError(f"--bus {stores.shown(bus)}: {_NATS}… is expected")
    where = location or default_location()
    if split_location(where)[0] not in _POSTGRES:
        raise click.UsageError(f"workers share --store postgresql://…, and {stores.shown(where)} is none")
    check_extra("nats", "nats")
    check_extra("postgres", "psycopg")


def check_extra(extra: str, *modules: str) -> None:
    """Raise ``click.ClickException`` unless the packages of an extra are there."""
    for name in modules:
        if find_spec(name) is None:
            bad_input(
                name, f"it is not installed: pip install 'palaver[{extra}]', or pip install -e '.[{extra}]' in a clone"
            )


# --- serve ------------------------------------------------------------------------------------------------------------


@click.command(name="serve")
@click.argument("swarm", metavar="FILE")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="H", help="The address to listen at.")
@click.option("--port", default=8000, show_default=True, metavar="P", type=click.IntRange(0, 65535), help="0: any.")
@stores.option
@click.option("--bus", envvar="PALAVER_BUS", metavar="URL", help="nats://…: workers answer; else PALAVER_BUS.")
@click.option("--workers", type=click.IntRange(min=0), metavar="N", help="So many workers are started; 1 with --bus.")
@click.option("--token", envvar="PALAVER_TOKEN", metavar="T", help="What requests must show; else PALAVER_TOKEN.")
@click.option(
    "--tokens", envvar="PALAVER_TOKENS", metavar="TOML", help='Lines of CLIENT = "token": each reads one client.'
)
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME", help="A name of the server, beside localhost.")
@click.option("--allow-origin", "origins", multiple=True, metavar="URL", help="Pages elsewhere that may ask.")
@click.option("--connections", type=click.IntRange(min=1), metavar="N", help="At most so many at a time.")
def command(
    swarm: str,
    *,
    host: str,
    port: int,
    location: str | None,
    bus: str | None,
    workers: int | None,
    token: str | None,
    tokens: str | None,
    hosts: tuple[str, ...],
    origins: tuple[str, ...],
    connections: int | None,
) -> int:
    """Serve the swarm of FILE.py, FILE.py:NAME or FILE.toml over HTTP and WebSocket.

    An address that others reach needs --token or --tokens.

    Exit codes: 0 after SIGTERM, 130 after Ctrl-C, 1 for what cannot be used, 2 for wrong usage.
    """
    if token == "":
        raise click.UsageError("a token cannot be empty")
    if bus is None and workers is not None:
        raise click.UsageError("--workers need --bus nats://… and --store postgresql://…")
    check_extra("serve", "starlette", "uvicorn", "websockets")
    if bus is not None:
        check(bus, location)

    from palaver.cli.serve import Door, Serving, serve  # needs the extra that was looked for

    asked = Serving(
        file=swarm,
        swarm=swarm_file.swarm(swarm),
        host=host,
        port=port,
        location=location,
        bus=bus,
        workers=1 if workers is None else workers,
        door=Door(
            token=token,
            tokens=None if tokens is None else read(tokens),
            hosts=hosts or None,
            origins=origins,
        ),
        connections=connections,
    )
    return serve(asked)
