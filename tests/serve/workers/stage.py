"""Workers as processes, on servers of this machine: processes of a test, and the checks afterwards."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import nats
import psycopg
import pytest

import palaver as p
from palaver.serve.nats import NatsBus
from palaver.serve.workers.leases import Leases
from palaver.serve.workers.queue_dispatcher import QueueDispatcher
from palaver.store.postgres import PostgresStore
from palaver.threads.view import DISCARDED, RECORD
from tests.agent.wholeness import refused
from tests.serve.workers.serving import NAME, answer_to
from tests.store.postgres.server import CONNINFO
from tests.swarm.nats_server import URL

SERVING = Path(__file__).with_name("serving.py")
ROOT = Path(__file__).parents[3]
TTL = 2.0


@contextmanager
def fresh_database():
    """Yield the connection string of a new database, which is dropped afterwards."""
    name = f"palaver_test_{uuid.uuid4().hex}"
    try:
        connection = psycopg.connect(CONNINFO, autocommit=True, connect_timeout=5)
    except psycopg.OperationalError as error:
        pytest.skip(f"no PostgreSQL: {str(error).splitlines()[0]}")
    with connection:
        connection.execute(f"create database {name} encoding 'UTF8' template template0")
        try:
            url = psycopg.conninfo.conninfo_to_dict(CONNINFO)
            user = url["user"] + (f":{url['password']}" if "password" in url else "")
            yield f"postgresql://{user}@{url['host']}:{url.get('port', 5432)}/{name}"
        finally:
            connection.execute(f"drop database {name} with (force)")


class Stage:
    """One swarm with its own database and streams. ``url`` is that of NATS."""

    def __init__(self, database, url=URL, **options):
        self.database, self.url = database, url
        self.prefix = f"palaver-test-{uuid.uuid4().hex}"
        self.options = {"partitions": 8, "ttl": TTL} | options
        self.workers = []
        self.store = PostgresStore(database, max_size=4)

    # -- workers -----------------------------------------------------------------------------------------------------

    def worker(self, *, before=(), **options):
        """Start a worker; ``before`` precedes its command."""
        given = {"store": self.database, "bus": self.url, "prefix": self.prefix} | self.options | options
        command = [*before, sys.executable, "-X", "faulthandler", str(SERVING), json.dumps(given)]
        process = subprocess.Popen(command, cwd=ROOT, env={**_environment(), "PYTHONUNBUFFERED": "1"})
        self.workers.append(process)
        return process

    def kill(self, process):
        process.kill()
        process.wait()
        self.workers.remove(process)

    def stop(self, process, seconds=20):
        """Stop a worker as a system does, and check that it ends cleanly."""
        process.send_signal(signal.SIGTERM)
        assert process.wait(seconds) == 0
        self.workers.remove(process)

    # -- the desk ----------------------------------------------------------------------------------------------------

    def bus(self):
        return NatsBus(self.url, stream=f"{self.prefix.upper()}_EVENTS", prefix=f"{self.prefix}.events")

    @asynccontextmanager
    async def desk(self, **options):
        async with self.bus() as bus:
            given = {"partitions": self.options["partitions"], "prefix": self.prefix, "retry_after": 5.0}
            given |= {"store": self.store} | options
            async with QueueDispatcher(NAME, nats=self.url, bus=bus, **given) as desk:
                yield desk

    # -- what is so --------------------------------------------------------------------------------------------------

    async def leases(self):
        async with Leases(self.database, schema="palaver") as leases:
            return await leases.list_all()

    async def owned(self, owners):
        """Wait until this many workers own all partitions, each its share."""
        count = self.options["partitions"]
        async with Leases(self.database, schema="palaver") as leases:
            while True:
                assert [each.args for each in self.workers if each.poll() is not None] == [], "workers that died"
                shares = Counter(each.owner for each in await leases.list_all() if each.live and each.owner)
                if (
                    len(shares) == owners
                    and sum(shares.values()) == count
                    and max(shares.values()) <= -(-count // owners)
                ):
                    return shares
                await asyncio.sleep(0.05)

    def messages(self, client):
        """Return the messages of a client's thread, without records and late answers."""
        entries = self.store.path(f"{NAME}/{client}")
        return [each.message for each in entries if not {RECORD, DISCARDED} & set(each.message.tags)]

    def check(self, client, texts):
        """Check that each message of a client occurs once, in order, and is answered once, before the next."""
        messages = self.messages(client)
        said = [
            (each.role, each.text)
            for each in messages
            if isinstance(each, p.UserMessage) or (isinstance(each, p.AssistantMessage) and not each.tool_calls)
        ]
        assert said == [pair for text in texts for pair in (("user", text), ("assistant", answer_to(text)))], client
        assert refused(messages) == {}

    def close(self):
        for process in list(self.workers):
            process.send_signal(signal.SIGCONT)
            self.kill(process)
        self.store.close()


def _environment():
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}


async def _clean(url, prefix):
    client = await nats.connect(url, allow_reconnect=False, max_reconnect_attempts=1, reconnect_time_wait=0)
    try:
        streams = client.jetstream()
        for info in await streams.streams_info():
            if info.config.name.startswith((prefix, prefix.upper())):
                await streams.delete_stream(info.config.name)
    finally:
        await client.close()


@contextmanager
def fresh_stage(url=URL, *, clean=True, **options):
    """Yield a stage; without servers the test is skipped."""
    try:
        asyncio.run(_clean(url, "no such stream"))
    except (OSError, nats.errors.Error) as error:
        pytest.skip(f"no NATS: {error}")
    with fresh_database() as database:
        stage = Stage(database, url, **options)
        try:
            yield stage
        finally:
            stage.close()
            if clean:
                asyncio.run(_clean(url, stage.prefix))
