"""Clients under load while workers, NATS and connections to PostgreSQL are killed; and the checks afterwards."""

import asyncio
import random
from collections import defaultdict
from contextlib import asynccontextmanager

import anyio
import psycopg

from palaver.swarm import Since, Where
from tests.serve.workers.serving import answer_to


class Crowd:
    """Clients that talk until they are stopped. Every other message is sent before the one before is answered."""

    def __init__(self, desk, count):
        self.desk = desk
        self.clients = [f"client {n}" for n in range(count)]
        self.said = {client: [] for client in self.clients}
        self.answered = defaultdict(list)
        self.over = asyncio.Event()

    async def talk(self, client):
        while not self.over.is_set():
            async with asyncio.TaskGroup() as tasks:
                for _ in range(random.choice((1, 1, 2))):
                    text = f"{client}: {len(self.said[client])}"
                    self.said[client].append(text)
                    tasks.create_task(self._ask(client, text))
            await asyncio.sleep(random.random() * 0.2)

    async def _ask(self, client, text):
        answer = await self.desk.ask(client, text, run=text, timeout=90)
        assert answer == answer_to(text)
        self.answered[client].append(text)


async def answers_told(stage):
    """Return the result of each turn on the bus, from all stored events."""
    found = defaultdict(set)
    async with stage.bus() as bus, bus.subscribe(Where(type="answer"), since=Since(), size=1_000_000) as events:
        await bus.caught_up(events)
        events.close()
        async for event in events:
            found[event.client, event.run].add(str(event.output))
    return found


@asynccontextmanager
async def crowd(stage, count):
    """Run a crowd that talks through a dispatcher; when the block ends, its last messages are answered."""
    async with stage.desk(retry_after=3.0) as desk:
        talking = Crowd(desk, count)
        with anyio.fail_after(600):
            async with asyncio.TaskGroup() as tasks:
                for client in talking.clients:
                    tasks.create_task(talking.talk(client))
                yield talking
                talking.over.set()


def cut_connections(database):
    """Break all connections to the database, as a restart of the server does."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )


async def check(stage, talking):
    """Check that every message was answered, once and in order, in the answers, in the threads and on the bus."""
    told = await answers_told(stage)
    for client in talking.clients:
        assert talking.answered[client] == talking.said[client], client
        stage.check(client, talking.said[client])
        for text in talking.said[client]:
            assert told[client, text] == {str({"result": answer_to(text)})}, text
    assert sum(map(len, talking.said.values())) == len(told)
    names = [each.name for each in await stage.leases()]
    assert len(names) == len(set(names)) == stage.options["partitions"]
