"""``palaver mcp``: be an MCP server, for tools, for the threads of a store, for an agent or a swarm.

- Over standard input and output, unless ``--http`` names an address. An address that other machines can reach needs
  ``--allow-host``, since there is no token.
- What is said with ``--ask`` is kept in the store, which is created when it is missing.
- Nobody can approve a call here: only tools that read run, and with ``--approve allow`` the others too.
- Exit codes: 0 when the client is gone, 130 after Ctrl-C, 1 for a file, store, host or port that cannot be used, 2 for
  wrong usage.

Stability: experimental.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, ExitStack, closing
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import anyio
import click

from palaver.cli import agent_options, listener, stores, swarm_file
from palaver.cli.serve import check_extra
from palaver.cli.suggestions import Choice
from palaver.cli.terminal import echo
from palaver.store.location import open_store

if TYPE_CHECKING:
    import socket

    from palaver.store.store import Store
    from palaver.swarm.swarm import Swarm


@click.command(name="mcp")
@click.option(
    "--tools",
    multiple=True,
    metavar="TOOLS",
    help="FILE.py, FILE.py:name,…, or files; may be repeated.",
)
@click.option("--ask", metavar="FILE", help="A file with an agent or a swarm, which is asked by a tool.")
@click.option("--threads", is_flag=True, help="Let clients search and read the threads of the store.")
@click.option(
    "--approve",
    type=Choice(("allow", "deny")),
    default="deny",
    show_default=True,
    help="What to do with calls that do more than read.",
)
@click.option("--name", default="palaver", show_default=True, metavar="NAME", help="What clients call the server.")
@click.option("--http", "address", metavar="HOST:PORT", help="Serve over HTTP at this address, under /mcp.")
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME", help="Another host name of the server.")
@stores.option
def command(
    tools: tuple[str, ...],
    *,
    ask: str | None,
    threads: bool,
    approve: Literal["allow", "deny"],
    name: str,
    address: str | None,
    hosts: tuple[str, ...],
    location: str | None,
) -> int:
    """Serve tools, threads or an agent to MCP clients, such as Claude Code, Cursor or VS Code.

    Without options, the threads of the store.

    Exit codes: 0 when the client is gone, 130 after Ctrl-C, 1 for unusable input, 2 for wrong usage.
    """
    check_extra("mcp", "mcp")
    threads = threads or not (tools or ask)
    host, port = _address(address) if address is not None else ("", 0)
    if host and host not in _LOCAL and not hosts:
        raise click.UsageError(f"--http {address} is reachable from other machines: name the server with --allow-host")
    with ExitStack() as stack:
        bound = stack.enter_context(closing(listener.bind(host, port, _BACKLOG))) if host else None
        store, asked = None, None if ask is None else swarm_file.swarm(ask)
        if threads or asked:
            store = stack.enter_context(open_store(location) if asked else stores.open_existing(location))
        return anyio.run(_serve, _Options(tools, asked, store, threads, approve, name, host, bound, hosts))


_LOCAL: Final = ("127.0.0.1", "localhost", "::1")
_BACKLOG: Final = 128
_MAX_PORT: Final = 65_535


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    number = int(port) if port.isascii() and port.isdecimal() and len(port) <= len(str(_MAX_PORT)) else _MAX_PORT + 1
    if not colon or not host or number > _MAX_PORT:
        raise click.UsageError(f"--http {text}: expected HOST:PORT, with a port from 0 to {_MAX_PORT}")
    return host.strip("[]"), number


class _Options(NamedTuple):
    """What is served, and where; without ``bound`` it is standard input and output."""

    tools: tuple[str, ...]
    ask: Swarm | None
    store: Store | None
    """The threads that are served, with ``threads``, and where conversations with ``ask`` are kept."""
    threads: bool
    approve: Literal["allow", "deny"]
    name: str
    host: str
    bound: socket.socket | None
    hosts: tuple[str, ...]


async def _serve(options: _Options) -> int:
    from palaver.serve.mcp import McpServer  # needs an optional package, which check_extra has found

    async with AsyncExitStack() as stack:
        own = await stack.enter_async_context(agent_options.toolset(options.tools))
        asked: Any = None
        if options.ask is not None:
            asked = await stack.enter_async_context(options.ask.start(store=options.store))
        store = options.store if options.threads else None
        server = McpServer(options.name, tools=own, policy=options.approve, store=store, ask=asked)
        if options.bound is None:
            await server.run_stdio()
            return 0
        import uvicorn

        port = options.bound.getsockname()[1]
        echo(f"http://{listener.place(options.host, port)}/mcp", err=True)
        app = server.http_app(hosts=[f"{each}:{port}" for each in options.hosts])
        await uvicorn.Server(uvicorn.Config(app, log_level="warning")).serve([options.bound])
    return 0
