"""``palaver work``: a worker, which answers turns of a swarm that is served elsewhere.

Rules:

- SIGTERM and Ctrl-C let the turns under way come to their end. With ``--attached`` so does the end of standard input:
  ``palaver serve`` starts its workers so, and none outlives it.

Stability: experimental.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

import anyio
import click

from palaver.cli import serve, stores, swarm_file
from palaver.store.location import default_location


@click.command(name="work")
@click.argument("swarm", metavar="FILE")
@stores.option
@click.option("--bus", envvar="PALAVER_BUS", metavar="URL", required=True, help="nats://…; else PALAVER_BUS.")
@click.option("--attached", is_flag=True, hidden=True)
def command(swarm: str, location: str | None, bus: str, *, attached: bool) -> int:
    """Answer turns of the swarm of FILE.py, FILE.py:NAME or FILE.toml, with all workers on the same bus and store."""
    serve.check(bus, location)

    from palaver.serve.workers.worker import run_worker  # needs the extra that was looked for

    found = swarm_file.swarm(swarm)
    if attached:
        threading.Thread(target=_until_alone, daemon=True).start()

    async def run() -> None:
        await run_worker(found, store=location or default_location(), bus=bus)

    anyio.run(run)
    return 0


def _until_alone() -> None:
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)
