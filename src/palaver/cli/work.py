"""``palaver work``: a worker that answers turns of a swarm that is served elsewhere.

On SIGTERM or Ctrl-C the worker finishes the turns in progress and exits. With ``--attached`` it does the same at the
end of standard input: ``palaver serve`` starts its workers this way, so none outlives it.

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
@click.option("--bus", envvar="PALAVER_BUS", metavar="URL", required=True, help="nats://…; default: PALAVER_BUS.")
@click.option("--attached", is_flag=True, hidden=True)
def command(swarm: str, location: str | None, bus: str, *, attached: bool) -> int:
    """Answer turns of the swarm in FILE.py, FILE.py:NAME or FILE.toml, with all workers on the same bus and store."""
    serve.check_shared(bus, location)

    from palaver.serve.workers.worker import run_worker  # needs an optional package, which check_shared has found

    found = swarm_file.swarm(swarm)
    if attached:
        threading.Thread(target=_stop_at_end_of_input, daemon=True).start()

    async def run() -> None:
        await run_worker(found, store=location or default_location(), bus=bus)

    anyio.run(run)
    return 0


def _stop_at_end_of_input() -> None:
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)
