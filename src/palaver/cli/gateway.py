"""``palaver gateway``: let clients of any provider's API ask models of any provider.

- CONFIG is a TOML file (``palaver.gateway.config``). Without one, a model is asked by its name, with the keys that
  ``palaver keys`` or the environment holds.
- Without CONFIG every exchange is logged in the user's own store; with one, ``[log]`` says so.
- It listens on this machine only, unless its configuration requires keys.
- SIGHUP reads CONFIG again, ``--watch`` does so when it changes. Requests in progress end as they began.
- SIGTERM lets the answers in progress end.
- Each answer in progress takes two open files: their soft limit is raised to the hard one (``ulimit -n``, ``-Hn``).
- ``palaver gateway run``, ``keys``, ``log``, ``stats`` and ``usage`` are commands of their own; anything else serves.
- ``--for CLIENT`` prints how a program is pointed at a gateway at that address, and starts nothing.
- Exit codes: 0 after SIGTERM, 130 after Ctrl-C, 1 for a file, host or port that cannot be used, 2 for wrong usage.

Stability: experimental.
"""

from __future__ import annotations

import logging
import signal
import sys
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import click

from palaver.cli import key_store, listener
from palaver.cli.default_command import DefaultGroup
from palaver.cli.gateway_clients import CLIENTS, client_line, find_client
from palaver.cli.gateway_keys import keys
from palaver.cli.gateway_log import log
from palaver.cli.gateway_run import run
from palaver.cli.gateway_stats import stats
from palaver.cli.gateway_usage import usage
from palaver.cli.ranges import WholeNumber
from palaver.cli.serve import check_extra
from palaver.cli.suggestions import Choice
from palaver.cli.terminal import echo, safe_line

if TYPE_CHECKING:
    import socket

    from palaver.gateway.config import GatewayConfig

_BACKLOG: Final = 1024
_INTERRUPTED: Final = 130
HOST: Final = "127.0.0.1"
PORT: Final = 4000
"""The address of a gateway without a configuration, known without the packages that serve it."""
_EXAMPLE: Final = "openai/gpt-5.5"


@click.command(name="gateway")
@click.argument("config", required=False)
@click.option("--host", metavar="HOST", help=f"The address to listen on, of this machine.  [default: {HOST}]")
@click.option("--port", type=WholeNumber(0, 65_535), metavar="PORT", help=f"0 chooses a free one.  [default: {PORT}]")
@click.option(
    "--for",
    "client",
    type=Choice(tuple(each.name for each in CLIENTS)),
    help="Print how this program is pointed at the gateway, and stop.",
)
@click.option("--watch", is_flag=True, help="Read CONFIG again when it changes. SIGHUP does that in any case.")
@click.option("-m", "--model", default=_EXAMPLE, metavar="MODEL", show_default=True, help="The model in these lines.")
def serve(
    config: str | None, *, host: str | None, port: int | None, client: str | None, watch: bool, model: str
) -> int:
    """Let clients of any provider's API ask models of any provider.

    Exit codes: 0 after SIGTERM, 130 after Ctrl-C, 1 for unusable input, 2 for wrong usage.
    """
    if client is not None and config is None:
        return _print_lines(client, HOST if host is None else host, PORT if port is None else port, model)
    check_extra("gateway", "aiohttp", "httptools", "prometheus_client", "starlette", "uvicorn")
    from palaver.gateway.config import read_config

    chosen = _logged() if config is None else read_config(config)
    host = chosen.listen.host if host is None else host
    port = chosen.listen.port if port is None else port
    if client is not None:
        return _print_lines(client, host, port, model)
    check = None if chosen.keys is not None and chosen.keys.required else _check_local
    file = None if config is None else Path(config)
    with closing(listener.bind(host, port, _BACKLOG, check)) as bound:
        from palaver.gateway.garbage import collect_rarely
        from palaver.gateway.server import backend_options

        collect_rarely()
        return anyio.run(_serve, chosen, host, bound, file, watch, backend_options=backend_options())


command: Final = DefaultGroup(serve, (run, log, stats, usage, keys))


def _print_lines(client: str, host: str, port: int, model: str) -> int:
    host = HOST if host in {"0.0.0.0", "::"} else host  # noqa: S104 (clients cannot ask all addresses)
    echo(safe_line(client_line(find_client(client), f"http://{listener.place(host, port)}", model)))
    return 0


def _logged() -> GatewayConfig:
    """Return the configuration where there is no file: every exchange is logged, and responses are stored."""
    from palaver.gateway.config import GatewayConfig
    from palaver.gateway.log.options import LogOptions
    from palaver.gateway.stored_responses import ResponseOptions

    return GatewayConfig(log=LogOptions(), responses=ResponseOptions())


def _check_local(address: str) -> None:
    from palaver.serve.http.access import is_loopback

    if not is_loopback(address):
        raise click.UsageError(
            f"{address} is reachable from other machines: the configuration must have [keys] with required = true"
        )


async def _serve(config: GatewayConfig, host: str, bound: socket.socket, file: Path | None, watch: bool) -> int:  # noqa: FBT001 (``anyio.run`` passes by place)
    from palaver.gateway.packages import check_packages

    check_packages()
    from palaver.gateway.config import naming
    from palaver.gateway.live import LiveGateway
    from palaver.gateway.server import serve as run_server

    _show_access_log()
    _raise_file_limit()
    with naming(file):
        live = LiveGateway(config, key_store.provider_key)
        live.on_start = partial(_announce, f"http://{listener.place(host, bound.getsockname()[1])}")
        ended = await run_server(live, bound, file=file, watch=watch, report=_report)
    return _INTERRUPTED if ended == signal.SIGINT else 0


def _announce(url: str) -> None:
    echo(f"{url} speaks the APIs of OpenAI, Anthropic, Google, Amazon Bedrock, Cohere and Ollama")
    echo("palaver gateway --for CLIENT prints how a program uses it: " + ", ".join(each.name for each in CLIENTS))


def _raise_file_limit() -> None:
    """Allow as many open files as the system does. A shell often allows 1,024, which is 500 answers at a time."""
    if sys.platform == "win32":
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # macOS: no limit is above what a process may have
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _show_access_log() -> None:
    """Write the lines of the access log to standard error, as they are."""
    log = logging.getLogger("palaver.gateway.access")
    log.setLevel(logging.INFO)
    log.propagate = False
    if not log.handlers:
        log.addHandler(logging.StreamHandler())


def _report(line: str) -> None:
    echo(safe_line(line), err=True)
