"""Fixtures for tests of swarms: both event loops, and the places where values are stored."""

import gc

import pytest

from palaver.store.memory import MemoryStore
from palaver.store.sqlite import SQLiteStore
from palaver.swarm.log import Log, Records, SharedRecords
from palaver.threads.thread import Thread
from tests.swarm.nats_server import PrivateServer


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


@pytest.fixture(scope="module")
def small_heap():
    """Freeze what the tests before keep, such as recordings: a search for garbage took half a second."""
    gc.collect()
    gc.freeze()


class CallContext:
    """A place for values; each `open` returns the view of another process."""

    def __init__(self, view, path=None):
        self.open, self.path = view, path


def in_memory(tmp_path):
    thread = Thread("ann")

    async def view():
        return Records(Log(thread))

    yield CallContext(view)


def in_sqlite(tmp_path):
    path = tmp_path / "swarm.db"
    with SQLiteStore(path, timeout=0.05) as store:

        async def view():
            return Records(Log(store.open("ann")))

        yield CallContext(view, path)


def shared_in_memory(tmp_path):
    store = MemoryStore()

    async def view():
        return await SharedRecords.load(store, "shared")

    yield CallContext(view)


def shared_in_sqlite(tmp_path):
    path = tmp_path / "swarm.db"
    with SQLiteStore(path, timeout=0.05) as one, SQLiteStore(path, timeout=0.05) as other:
        stores = [one, other]

        async def view():
            stores.append(stores.pop(0))
            return await SharedRecords.load(stores[0], "shared")

        yield CallContext(view, path)


def _place(request, tmp_path):
    yield from request.param(tmp_path)


place = pytest.fixture(params=[in_memory, in_sqlite, shared_in_memory, shared_in_sqlite])(_place)
shared = pytest.fixture(params=[shared_in_memory, shared_in_sqlite])(_place)
disk = pytest.fixture(params=[in_sqlite, shared_in_sqlite])(_place)


@pytest.fixture
async def values(place):
    return await place.open()


@pytest.fixture
def events():
    return []


@pytest.fixture
def server(tmp_path):
    """Yield a private NATS server, which may be killed."""
    server = PrivateServer(tmp_path / "nats")
    server.start()
    yield server
    server.remove()
