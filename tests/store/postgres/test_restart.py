"""The server goes away in the middle of appends: nothing acknowledged is lost, nothing is doubled."""

import threading
import time
import uuid

import psycopg
import pytest

import palaver as p
from palaver.core.errors import UnavailableError
from palaver.store.postgres import PostgresStore

pytestmark = [pytest.mark.server, pytest.mark.law(8)]

WRITERS = 6


class Load:
    """Threads that append, each to its own thread of the store and all of them to one that they share."""

    def __init__(self, store):
        self.store = store
        self.acknowledged = {}
        self.errors = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(number,)) for number in range(WRITERS)]

    def __enter__(self):
        for thread in ["shared", *map(str, range(WRITERS))]:
            self.store.create(thread)
            self.acknowledged[thread] = []
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *failure):
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _write(self, number):
        count = 0
        try:
            while not self._over.is_set():
                for thread in (str(number), "shared"):
                    batch = [p.user(f"{number}.{count}.{each}") for each in range(1 + count % 3)]
                    appended = self.store.append(thread, batch, key=f"{number}.{count}")
                    assert not appended.repeated
                    self.acknowledged[thread].extend(appended.entries)
                count += 1
        except Exception as error:  # noqa: BLE001 (told by the test)
            self.errors.append(error)

    def waits_for(self, more, seconds=40):
        """Until so many more entries are acknowledged."""
        until = time.monotonic() + seconds
        wanted = sum(map(len, self.acknowledged.values())) + more
        while sum(map(len, self.acknowledged.values())) < wanted and not self.errors and time.monotonic() < until:
            time.sleep(0.01)

    def check(self):
        assert not self.errors, self.errors
        for thread, acknowledged in self.acknowledged.items():
            there = list(self.store.read(thread))
            texts = [entry.message.text for entry in there]
            assert len(set(texts)) == len(texts), "an entry is doubled"
            assert {entry.id: entry for entry in there} == {entry.id: entry for entry in acknowledged}
            assert list(self.store.path(thread)) == there
        verified = self.store.verify()
        assert verified.ok, verified.damage


def stop_and_start(mode):
    def disturb(server):
        server.stop(mode)
        time.sleep(0.3)
        server.start()

    return disturb


def kill_backends(server):
    for _ in range(15):
        server.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() "
            "and backend_type = 'client backend' and random() < 0.7"
        )
        time.sleep(0.03)


DISTURBANCES = {"fast": stop_and_start("fast"), "immediate": stop_and_start("immediate"), "backends": kill_backends}


@pytest.mark.parametrize("kind", DISTURBANCES)
def test_nothing_is_lost_and_nothing_doubled(private_server, kind):
    with PostgresStore(private_server.conninfo, schema=f"{kind} {uuid.uuid4().hex}", max_size=WRITERS) as store:
        with Load(store) as load:
            load.waits_for(60)
            DISTURBANCES[kind](private_server)
            load.waits_for(60)
        load.check()


def test_a_commit_whose_answer_was_lost_is_found_again(schema, monkeypatch):
    """The append is done, then the connection breaks before the answer is read: the next try finds its entries."""
    from palaver.store.postgres import appends
    from tests.store.postgres.server import open_store

    tries = []
    real = appends.append_group

    def loses_the_first_answer(link, joining, *, again, waits):
        done = real(link, joining, again=again, waits=waits)
        tries.append(again)
        if len(tries) == 1:
            raise psycopg.OperationalError("the connection was lost")
        return done

    with open_store(schema) as store:
        store.create("t")
        start = store.append("t", [p.user("start")]).head
        monkeypatch.setattr(appends, "append_group", loses_the_first_answer)
        appended = store.append("t", [p.user("a"), p.user("b")], expect=start, key="k")
        assert tries == [False, True]
        assert not appended.repeated
        assert list(store.path("t"))[1:] == list(appended.entries)
        assert store.info("t").length == 3


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("create", lambda store: store.create("new").branches),
        ("fork", lambda store: store.fork("t", "side")),
        ("rewind", lambda store: store.rewind("t", None, expect=store.info("t").branches["main"])),
        ("delete", lambda store: store.delete("t")),
        ("update", lambda store: store.update("t", title="x").title),
    ],
)
def test_other_changes_are_found_again_too(schema, monkeypatch, name, call):
    from palaver.store.postgres import updates
    from tests.store.postgres.server import open_store

    tries = []
    real = getattr(updates, name)

    def loses_the_first_answer(*values, **named):
        done = real(*values, **named)
        tries.append(done)
        if len(tries) == 1:
            raise psycopg.OperationalError("the connection was lost")
        return done

    with open_store(schema) as store:
        store.create("t")
        store.append("t", [p.user("a")])
        monkeypatch.setattr(updates, name, loses_the_first_answer)
        call(store)
        assert len(tries) == 2
        assert tries[0] == tries[1]
        assert store.verify().ok


def test_a_server_that_stays_away_is_an_error_in_time(private_server):
    with PostgresStore(private_server.conninfo, schema="away", timeout=1.5) as store:
        store.create("t")
        private_server.stop()
        try:
            with pytest.raises(UnavailableError, match="timed out while connecting"):
                store.append("t", [p.user("x")])
            with pytest.raises(UnavailableError):
                store.read("t")
            with pytest.raises(UnavailableError):
                PostgresStore(private_server.conninfo)
        finally:
            private_server.start()
        store.append("t", [p.user("y")])
        assert [entry.message.text for entry in store.read("t")] == ["y"]
