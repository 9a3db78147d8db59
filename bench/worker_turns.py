"""Turns a second of a swarm over workers: clients at a desk, NATS JetStream, PostgreSQL, and so many worker processes.

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

import nats
import psycopg

from palaver.models.language_model import Prompt
from palaver.models.scripted import ScriptedModel
from palaver.swarm import Swarm, SwarmAgent
from palaver.swarm.nats import NatsBus
from palaver.swarm.work.leases import Leases
from palaver.swarm.work.queue_desk import QueueDesk
from palaver.swarm.work.worker import run_worker

NATS = os.environ.get("PALAVER_NATS", "nats://127.0.0.1:4222")
POSTGRES = os.environ.get("PALAVER_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")
NAME = "echo"


def echo() -> Swarm:
    """A swarm whose model says what it hears."""
    model = ScriptedModel([], then=_hear)
    return Swarm(NAME, [SwarmAgent("echo", model)])


def _hear(prompt: Prompt) -> str:
    return f"echo {prompt.messages[-1].text}"


def turns_a_second(workers: int, *, clients: int = 200, turns: int = 5) -> float:
    """Let clients say something ``turns`` times each, and give how many turns a second were answered."""
    prefix = f"bench-{uuid.uuid4().hex}"
    options = json.dumps({"store": POSTGRES, "bus": NATS, "schema": prefix, "prefix": prefix, "ttl": 5.0})
    started = [subprocess.Popen([sys.executable, __file__, "worker", options]) for _ in range(workers)]
    try:
        return asyncio.run(_talk(prefix, workers, clients, turns))
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(30)
        asyncio.run(_remove(prefix))


async def _talk(prefix: str, workers: int, clients: int, turns: int) -> float:
    async def talk(desk: QueueDesk, client: str, count: int) -> None:
        for number in range(count):
            await desk.ask(client, str(number))

    async def all_talk(desk: QueueDesk, count: int) -> None:
        async with asyncio.TaskGroup() as tasks:
            for client in range(clients):
                tasks.create_task(talk(desk, f"client {client}", count))

    events = NatsBus(NATS, stream=f"{prefix.upper()}_EVENTS", prefix=f"{prefix}.events")
    async with events as bus, QueueDesk(NAME, nats=NATS, bus=bus, prefix=prefix) as desk:
        await _owned(prefix, workers)
        await all_talk(desk, 1)  # opens the sessions
        began = time.perf_counter()
        await all_talk(desk, turns)
        return clients * turns / (time.perf_counter() - began)


async def _owned(schema: str, workers: int) -> None:
    """Wait until so many workers own everything among them."""
    async with Leases(POSTGRES, schema=schema) as leases:
        while True:
            held = await leases.listed()
            owners = {each.owner for each in held if each.live}
            if held and None not in owners and len(owners) == workers:
                return
            await asyncio.sleep(0.1)


async def _remove(prefix: str) -> None:
    with psycopg.connect(POSTGRES, autocommit=True) as connection:
        connection.execute(f'drop schema if exists "{prefix}" cascade')
    client = await nats.connect(NATS)
    for info in await client.jetstream().streams_info():
        if (info.config.name or "").startswith((prefix, prefix.upper())):
            await client.jetstream().delete_stream(info.config.name)
    await client.close()


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        asyncio.run(run_worker(echo(), **json.loads(sys.argv[2])))
    else:
        for count in map(int, sys.argv[1:]):
            print(f"{count} workers: {turns_a_second(count):.0f} turns a second", flush=True)
