"""``palaver serve``: a swarm over HTTP and WebSocket, in this process or with workers.

Rules:

- Without ``--bus`` everything is in this process. With ``--bus nats://…`` and ``--store postgresql://…`` this process
  is the front, and ``--workers`` more answer; those of ``palaver work`` elsewhere answer too.
- A worker that ends by itself is told of and started again, at once or, when it lived shortly, after a while.
- Ctrl-C and SIGTERM stop everything: no new requests, the turns under way come to their end, the workers are waited
  for. The second signal waits for nothing.
- Exit codes: 0 after SIGTERM, 130 after Ctrl-C, 1 for a file, store, bus or port that cannot be used.

Stability: experimental.
"""

from __future__ import annotations

import click

from palaver.cli import shared, stores, swarm_file, tokens_file


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
    shared.check_extra("serve", "starlette", "uvicorn", "websockets")
    if bus is not None:
        shared.check(bus, location)

    from palaver.cli.serving import Door, Serving, serve  # needs the extra that was looked for

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
            tokens=None if tokens is None else tokens_file.read(tokens),
            hosts=hosts or None,
            origins=origins,
        ),
        connections=connections,
    )
    return serve(asked)
