"""Two machines, each a network namespace of its own, whose only way out is a link that is cut."""

import asyncio
import os
import shutil
import subprocess
from contextlib import ExitStack, asynccontextmanager, contextmanager
from urllib.parse import urlsplit, urlunsplit

import pytest

from palaver.swarm import Where
from tests.serve.workers.serving import answer_to
from tests.serve.workers.stage import fresh_stage
from tests.swarm.nats_server import PrivateServer

# Not marked as one that needs a server: where a machine allows no namespaces, it is skipped, and that is all.
pytestmark = [pytest.mark.anyio, pytest.mark.row("ASK-29")]


@pytest.fixture(params=["asyncio"])
def anyio_backend(request):
    return request.param


def ip(*words):
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


@contextmanager
def machine(number):
    """A namespace with a link to this one; gives the address of this end, and the names of link and namespace."""
    name, link = f"pv{os.getpid()}n{number}", f"pv{os.getpid()}h{number}"
    here, there = f"198.51.100.{4 * number + 1}", f"198.51.100.{4 * number + 2}"
    ip("netns", "add", name)
    try:
        ip("link", "add", link, "type", "veth", "peer", "name", "out", "netns", name)
        ip("addr", "add", f"{here}/30", "dev", link)
        ip("link", "set", link, "up")
        ip("-n", name, "addr", "add", f"{there}/30", "dev", "out")
        ip("-n", name, "link", "set", "out", "up")
        yield here, link, name
    finally:
        ip("netns", "del", name)


@pytest.fixture
def machines():
    if shutil.which("ip") is None:
        pytest.skip("no network namespaces: there is no ip here")
    with ExitStack() as stack:
        try:
            found = [stack.enter_context(machine(number)) for number in (1, 2)]
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces: {error.stderr.strip()}")
        yield found


@pytest.fixture
def stage(tmp_path):
    server = PrivateServer(tmp_path / "nats")
    server.start()
    try:
        with fresh_stage(server.url, clean=False) as stage:
            yield stage
    finally:
        server.remove()


@asynccontextmanager
async def relayed(url, host):
    """The URL of a server of this machine as another machine reaches it."""
    parts = urlsplit(url)

    async def copy(source, sink):
        try:
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
        except ConnectionError:
            pass
        finally:
            sink.close()

    async def relay(reader, writer):
        try:
            there, back = await asyncio.open_connection(parts.hostname, parts.port)
        except ConnectionError:
            writer.close()
            return
        try:
            await asyncio.gather(copy(reader, back), copy(there, writer))
        finally:
            back.close()

    server = await asyncio.start_server(relay, host, 0)
    try:
        port = server.sockets[0].getsockname()[1]
        user, at, _ = parts.netloc.rpartition("@")
        yield urlunsplit(parts._replace(netloc=f"{user}{at}{host}:{port}"))
    finally:
        server.close()


async def test_a_machine_whose_link_is_cut_in_mid_turn_is_stood_in_for(stage, machines):
    (first, link, one), (second, _, other) = machines
    async with (
        relayed(stage.database, first) as database,
        relayed(stage.url, first) as bus,
        relayed(stage.database, second) as other_database,
        relayed(stage.url, second) as other_bus,
        stage.desk() as desk,
        asyncio.TaskGroup() as tasks,
    ):
        stage.worker(store=database, bus=bus, tool_delay=5, before=["ip", "netns", "exec", one])
        async with desk.bus.subscribe(Where(client="ann", source="history")) as events:
            asking = tasks.create_task(desk.ask("ann", "one", timeout=60))
            async for event in events:
                if event.input["message"].role == "assistant":
                    break
        ip("link", "set", link, "down")
        stage.worker(store=other_database, bus=other_bus, before=["ip", "netns", "exec", other])
        assert await asking == answer_to("one")
        assert await desk.ask("ann", "two", timeout=60) == answer_to("two")
        ip("link", "set", link, "up")
        async with asyncio.timeout(60):
            await stage.owned(2)
        assert await desk.ask("ann", "three", timeout=60) == answer_to("three")
        stage.check("ann", ["one", "two", "three"])
        stage.kill(stage.workers[0])
        stage.kill(stage.workers[0])
