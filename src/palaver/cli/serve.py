"""``palaver serve``: serve an agent or a swarm over HTTP and WebSocket, in this process or with workers.

- Without ``--bus`` everything runs in this process. With ``--bus nats://…`` and ``--store postgresql://…`` this process
  answers HTTP, and ``--workers`` processes answer the turns, together with those of ``palaver work`` elsewhere.
- A worker that ends by itself is reported and restarted: at once, or after a pause when it did not run for long.
- Ctrl-C and SIGTERM stop the server: it refuses new requests, finishes the turns in progress, and waits for the
  workers. The second signal stops everything at once.
- ``--tokens`` is a TOML file with a line for each client: ``ann = "the token of ann"``.
- The server itself is ``palaver.cli.server``, which needs optional packages. This module checks for them first.
- Exit codes: 0 after SIGTERM, 130 after Ctrl-C, 1 for a file, store, bus or port that cannot be used.

Stability: experimental.
"""

from __future__ import annotations

import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from palaver.cli import stores, swarm_file
from palaver.cli.ranges import WholeNumber
from palaver.cli.terminal import bad_input
from palaver.core.errors import DecodeError, install
from palaver.store.location import default_location, split_location
from palaver.swarm.names import checked_client

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.swarm.swarm import Swarm

_NATS: Final = "nats://"
_POSTGRES: Final = frozenset(("postgresql", "postgres"))


def check_shared(bus: str, location: str | None) -> None:
    """Check that several processes can share a bus and a store. Raises ``click.ClickException``."""
    if not bus.startswith(_NATS):
        raise click.UsageError(f"--bus {stores.display_name(bus)}: {_NATS}… is expected")
    where = location or default_location()
    if split_location(where)[0] not in _POSTGRES:
        raise click.UsageError(f"workers share --store postgresql://…, and {stores.display_name(where)} is none")
    check_extra("nats", "nats")
    check_extra("postgres", "psycopg")


def check_extra(extra: str, *modules: str) -> None:
    """Check that the packages of an extra are installed. Raises ``click.ClickException``."""
    for name in modules:
        if find_spec(name) is None:
            bad_input(name, f"it is not installed: {install(extra)}")


class AccessOptions(NamedTuple):
    """Who may send requests, and from where: options of ``HttpApp``."""

    token: str | None = None
    tokens: Mapping[str, str] | None = None
    hosts: tuple[str, ...] | None = None
    origins: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether no token is required."""
        return self.token is None and self.tokens is None


class ServeOptions(NamedTuple):
    """The options of the command."""

    file: str
    swarm: Swarm
    host: str
    port: int
    location: str | None
    bus: str | None
    workers: int
    access: AccessOptions
    connections: int | None

    @property
    def store(self) -> str:
        """The location of the store."""
        return self.location or default_location()


def read_tokens(file: str) -> Mapping[str, str]:
    """Read the tokens by client. Raises ``click.ClickException``, which never shows a token."""
    try:
        found = tomllib.loads(Path(file).read_text("utf-8"))
    except OSError as error:
        bad_input(file, (error.strerror or str(error)).lower())
    except (ValueError, RecursionError):
        bad_input(file, 'expected TOML lines of CLIENT = "token"')
    owners: dict[str, str] = {}
    for client, token in found.items():
        try:
            checked_client(client)
        except DecodeError as error:
            bad_input(file, f"{client!r}: {error.reason}")
        if not isinstance(token, str) or not token.strip():
            bad_input(file, f"{client}: a token must be text and not empty")
        if token in owners:
            bad_input(file, f"{owners[token]} and {client} have the same token, so each could read the other")
        owners[token] = client
    if not found:
        bad_input(file, "there is no token in it")
    return found


@click.command(name="serve")
@click.argument("swarm", metavar="FILE")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="H", help="The address to listen on.")
@click.option(
    "--port",
    default=8000,
    show_default=True,
    metavar="P",
    type=WholeNumber(0, 65535),
    help="The port; 0 chooses a free one.",
)
@stores.option
@click.option(
    "--bus", envvar="PALAVER_BUS", metavar="URL", help="nats://…: workers answer the turns. Default: PALAVER_BUS."
)
@click.option("--workers", type=WholeNumber(0), metavar="N", help="Start N workers. Default: 1 with --bus.")
@click.option(
    "--token", envvar="PALAVER_TOKEN", metavar="T", help="The token that requests must have. Default: PALAVER_TOKEN."
)
@click.option(
    "--tokens",
    envvar="PALAVER_TOKENS",
    metavar="TOML",
    help='A file with lines of CLIENT = "token": each token reads one client. Default: PALAVER_TOKENS.',
)
@click.option(
    "--allow-host", "hosts", multiple=True, metavar="NAME", help="Another host name of the server, besides localhost."
)
@click.option(
    "--allow-origin", "origins", multiple=True, metavar="URL", help="The origin of other pages that may send requests."
)
@click.option("--connections", type=WholeNumber(1), metavar="N", help="At most N connections at a time.")
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
    """Serve the agent or swarm in FILE.py, FILE.py:NAME or FILE.toml over HTTP and WebSocket.

    An address that other machines can reach needs --token or --tokens.

    Exit codes: 0 after SIGTERM, 130 after Ctrl-C, 1 for unusable input, 2 for wrong usage.
    """
    if token == "":
        raise click.UsageError("a token cannot be empty")
    if bus is None and workers is not None:
        raise click.UsageError("--workers need --bus nats://… and --store postgresql://…")
    check_extra("serve", "starlette", "uvicorn", "websockets")
    if bus is not None:
        check_shared(bus, location)

    from palaver.cli.server import serve  # needs an optional package, which check_extra has found

    options = ServeOptions(
        file=swarm,
        swarm=swarm_file.swarm(swarm),
        host=host,
        port=port,
        location=location,
        bus=bus,
        workers=1 if workers is None else workers,
        access=AccessOptions(
            token=token,
            tokens=None if tokens is None else read_tokens(tokens),
            hosts=hosts or None,
            origins=origins,
        ),
        connections=connections,
    )
    return serve(options)
