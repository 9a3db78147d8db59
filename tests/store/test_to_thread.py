import asyncio
import threading
from contextlib import suppress

import anyio
import pytest
from anyio.lowlevel import checkpoint

from palaver import StoreError, user
from palaver.core.errors import NotFoundError
from palaver.store.memory import MemoryStore
from palaver.store.store import MAX_THREADS, to_thread

PATIENCE = 10


@pytest.fixture(params=["asyncio", "trio"])
def backend(request):
    return request.param


class Gate:
    """A store's append that waits inside, so that a test can act in the middle of it."""

    def __init__(self):
        self.store = MemoryStore()
        self.store.create("trip")
        self.begun = threading.Event()
        self.go = threading.Event()
        self.ended = threading.Event()

    def append(self, text):
        self.begun.set()
        assert self.go.wait(PATIENCE)
        appended = self.store.append("trip", [user(text)])
        self.ended.set()
        return appended

    @property
    def kept(self):
        return [entry.message.text for entry in self.store.path("trip")]


async def until(event):
    assert await anyio.to_thread.run_sync(event.wait, PATIENCE)


def test_arguments_and_value_pass_through(backend):
    async def main():
        with MemoryStore() as store:
            info = await to_thread(store.create, "trip", title="To Husum", tags=["sea"])
            assert (info.id, info.title, info.tags) == ("trip", "To Husum", ("sea",))
            assert await to_thread(threading.get_ident) != threading.get_ident()

    anyio.run(main, backend=backend)


def test_an_exception_passes_through(backend):
    async def main():
        with MemoryStore() as store, pytest.raises(NotFoundError, match="nowhere") as caught:
            await to_thread(store.read, "nowhere")
        assert isinstance(caught.value, StoreError)

    anyio.run(main, backend=backend)


def test_the_event_loop_goes_on(backend):
    gate = Gate()

    async def main():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(to_thread, gate.append, "hi")
            await until(gate.begun)
            gate.go.set()

    anyio.run(main, backend=backend)
    assert gate.kept == ["hi"]


@pytest.mark.law(8)
def test_cancelling_in_the_middle_waits_for_the_append(backend):
    gate = Gate()
    after = []

    async def call():
        try:
            await to_thread(gate.append, "hi")
            await checkpoint()
        finally:
            after.append(gate.kept)

    async def main():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await until(gate.begun)
            tasks.cancel_scope.cancel()
            assert after == []
            threading.Timer(0.05, gate.go.set).start()
        assert tasks.cancel_scope.cancelled_caught

    anyio.run(main, backend=backend)
    assert after == [["hi"]]


def test_what_was_not_begun_never_is(backend):
    gate = Gate()

    async def main():
        with anyio.CancelScope() as scope:
            scope.cancel()
            await to_thread(gate.append, "hi")
        assert scope.cancelled_caught

    anyio.run(main, backend=backend)
    assert not gate.begun.is_set()
    assert gate.kept == []


@pytest.mark.law(8)
def test_a_hundred_at_once(backend):
    store = MemoryStore()
    store.create("trip")
    together = threading.Barrier(100)

    def append(number):
        together.wait(PATIENCE)  # passes only when all hundred are running
        return store.append("trip", [user(str(number))])

    async def main():
        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(to_thread, append, number)

    anyio.run(main, backend=backend)
    assert sorted(int(entry.message.text) for entry in store.path("trip")) == list(range(100))


def test_no_more_than_the_most_threads(backend):
    running, most = set(), []
    lock = threading.Lock()
    full, go = threading.Event(), threading.Event()

    def call(number):
        with lock:
            running.add(number)
            most.append(len(running))
            if len(running) == MAX_THREADS:
                full.set()
        assert go.wait(PATIENCE)
        with lock:
            running.remove(number)

    async def main():
        async with anyio.create_task_group() as tasks:
            for number in range(MAX_THREADS + 50):
                tasks.start_soon(to_thread, call, number)
            await until(full)
            await anyio.wait_all_tasks_blocked()
            go.set()

    anyio.run(main, backend=backend)
    assert max(most) == MAX_THREADS
    assert len(most) == MAX_THREADS + 50


def test_other_threads_are_not_held_up(backend):
    gate = Gate()

    async def main():
        anyio.to_thread.current_default_thread_limiter().total_tokens = 1
        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(to_thread, gate.append, str(number))
            await until(gate.begun)
            with anyio.fail_after(PATIENCE):
                await anyio.to_thread.run_sync(gate.go.set)

    anyio.run(main, backend=backend)
    assert sorted(gate.kept) == ["0", "1", "2"]


def test_each_event_loop_has_its_own_threads(backend):
    async def main():
        return await to_thread(len, "abc")

    assert [anyio.run(main, backend=backend) for _ in range(3)] == [3, 3, 3]


@pytest.mark.law(8)
def test_an_append_ends_behind_a_task_that_asyncio_cancels():
    gate = Gate()

    async def main():
        task = asyncio.create_task(to_thread(gate.append, "hi"))
        await until(gate.begun)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()
        assert gate.kept == []
        gate.go.set()
        await until(gate.ended)

    asyncio.run(main())
    assert gate.kept == ["hi"]
