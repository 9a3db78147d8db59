"""Turns a second of a swarm over workers: clients at a desk, NATS JetStream, PostgreSQL, and so many worker processes.

A turn may compute for a while, as a tool would that does something. How many cores were busy meanwhile, with everything
that ran on the machine, tells whether more workers could have helped.

``python bench/worker_turns.py 1 2`` prints a line for each number of workers. ``PALAVER_NATS`` and ``PALAVER_POSTGRES``
say where the servers are; a schema and streams of their own are made, and removed.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import nats
import psycopg

from palaver.models.language_model import Prompt
from palaver.models.scripted import ScriptedModel
from palaver.serve.nats import NatsBus
from palaver.serve.workers.leases import Leases
from palaver.serve.workers.queue_dispatcher import QueueDispatcher
from palaver.serve.workers.worker import run_worker
from palaver.swarm import Swarm, SwarmAgent

NATS = os.environ.get("PALAVER_NATS", "nats://127.0.0.1:4222")
POSTGRES = os.environ.get("PALAVER_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")
NAME = "echo"


@dataclass(frozen=True)
class Measured:
    """Turns per second, and how many cores were busy meanwhile (``None`` where the machine does not tell)."""

    turns: float
    cores: float | None


def echo(computing: float) -> Swarm:
    """A swarm whose model says what it hears, when it has used the processor for so many seconds."""

    def hear(prompt: Prompt) -> str:
        until = time.thread_time() + computing
        while time.thread_time() < until:
            pass
        return f"echo {prompt.messages[-1].text}"

    return Swarm(NAME, [SwarmAgent("echo", ScriptedModel([], then=hear))])


def turns_a_second(workers: int, *, clients: int = 200, turns: int = 5, computing: float = 0.0) -> Measured:
    """Let clients say something ``turns`` times each, and give how many turns a second were answered."""
    prefix = f"bench-{uuid.uuid4().hex}"
    options = json.dumps({"store": POSTGRES, "bus": NATS, "schema": prefix, "prefix": prefix, "ttl": 5.0})
    command = [sys.executable, __file__, "worker", str(computing), options]
    started = [subprocess.Popen(command) for _ in range(workers)]
    try:
        return asyncio.run(_talk(prefix, workers, clients, turns))
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(30)
        asyncio.run(_remove(prefix))


async def _talk(prefix: str, workers: int, clients: int, turns: int) -> Measured:
    async def talk(desk: QueueDispatcher, client: str, count: int) -> None:
        for number in range(count):
            await desk.ask(client, str(number))

    async def all_talk(desk: QueueDispatcher, count: int) -> None:
        async with asyncio.TaskGroup() as tasks:
            for client in range(clients):
                tasks.create_task(talk(desk, f"client {client}", count))

    events = NatsBus(NATS, stream=f"{prefix.upper()}_EVENTS", prefix=f"{prefix}.events")
    async with events as bus, QueueDispatcher(NAME, nats=NATS, bus=bus, prefix=prefix) as desk:
        await _owned(prefix, workers)
        await all_talk(desk, 1)  # opens the sessions
        began, used = time.perf_counter(), _used()
        await all_talk(desk, turns)
        seconds = time.perf_counter() - began
        now = _used()
        return Measured(clients * turns / seconds, None if used is None or now is None else (now - used) / seconds)


def _used() -> float | None:
    """The seconds that all cores were busy since the machine began (Linux: ``/proc/stat``)."""
    try:
        user, nice, system, _idle, _waiting, *rest = map(
            int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9]
        )
    except (OSError, ValueError):
        return None
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


async def _owned(schema: str, workers: int) -> None:
    """Wait until so many workers own everything among them."""
    async with Leases(POSTGRES, schema=schema) as leases:
        while True:
            held = await leases.list_all()
            owners = {each.owner for each in held if each.live}
            if held and None not in owners and len(owners) == workers:
                return
            await asyncio.sleep(0.1)


async def _remove(prefix: str) -> None:
    with psycopg.connect(POSTGRES, autocommit=True) as connection:
        connection.execute(f'drop schema if exists "{prefix}" cascade')
    client = await nats.connect(NATS)
    for info in await client.jetstream().streams_info():
        name = info.config.name or ""
        if name.startswith((prefix, prefix.upper())):
            await client.jetstream().delete_stream(name)
    await client.close()


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        asyncio.run(run_worker(echo(float(sys.argv[2])), **json.loads(sys.argv[3])))
    else:
        for count in map(int, sys.argv[1:]):
            for seconds in (0.0, 0.01):
                found = turns_a_second(count, computing=seconds)
                print(f"{count} workers, {1000 * seconds:g} ms each: {found}", flush=True)
