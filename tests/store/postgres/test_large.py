"""Large messages, long threads, many threads: what is asked for costs what it is, not what there is."""

import os

import psycopg
import pytest

import palaver as p
from palaver.store.store import Query
from tests.store.postgres.server import CONNINFO, open_store

pytestmark = pytest.mark.server

SIZES = [2, pytest.param(50, marks=pytest.mark.long)]
LENGTHS = [3_000, pytest.param(100_000, marks=pytest.mark.long)]
COUNTS = [300, pytest.param(10_000, marks=pytest.mark.long)]


def rows_read(schema):
    """How many rows of the entries were read from their table, by any statement so far."""
    with psycopg.connect(CONNINFO, autocommit=True) as connection:
        query = (
            "select seq_tup_read + idx_tup_fetch from pg_stat_user_tables where schemaname = %s and relname = 'entries'"
        )
        return connection.execute(query, [schema]).fetchone()[0]


@pytest.mark.parametrize("megabytes", SIZES)
def test_a_large_message(store, megabytes):
    store.create("t")
    text = os.urandom(megabytes << 19).hex()
    picture = p.Image.from_bytes(os.urandom(megabytes << 20))
    message = p.user(text, picture)
    (entry,) = store.append("t", [message]).entries
    assert store.read("t")[0] == entry
    assert store.append("t", [message]).head
    assert store.verify().size < 3 * (megabytes << 20), "it is kept twice"  # the text as it is, and the picture


@pytest.mark.row("CBF-05")
@pytest.mark.parametrize("length", LENGTHS)
def test_a_long_thread(schema, length):
    with open_store(schema) as store:
        store.create("t")
        for start in range(0, length, 1000):
            head = store.append("t", [p.user(f"message {number}") for number in range(start, start + 1000)]).head
        assert store.path("t", last=3)[-1].id == head
        assert store.path("t", last=3)[0].message.text == f"message {length - 3}"
        assert len(store.path("t")) == length
        assert [entry.message.text for entry in store.read("t", start=length - 2)] == [
            f"message {length - 2}",
            f"message {length - 1}",
        ]
        hits = store.search(Query(text=f'"message {length // 2}"'))
        assert [hit.entry.message.text for hit in hits] == [f"message {length // 2}"]
        verified = store.verify()
        assert (verified.ok, verified.entries) == (True, length)


def test_the_end_of_a_thread_is_read_without_its_beginning(schema, store):
    store.create("t")
    for _ in range(3):
        store.append("t", [p.user(f"{number}") for number in range(1000)])
    store.gc()  # leaves statistics behind, by which the server plans
    with psycopg.connect(CONNINFO, autocommit=True) as connection:
        connection.execute("select pg_stat_reset()")
    with open_store(schema, max_size=1) as other:
        for _ in range(8):  # beyond the plans that are made for the first calls
            assert len(other.path("t", last=5)) == 5
            assert len(other.read("t", start=2990)) == 10
    assert rows_read(schema) < 8 * 100


@pytest.mark.parametrize("count", COUNTS)
def test_many_threads(store, count):
    for number in range(count):
        store.create(f"t{number}", tags=["tenth"] if number % 10 == 0 else [])
    assert [info.id for info in store.threads(limit=2)] == [f"t{count - 1}", f"t{count - 2}"]
    assert [info.id for info in store.threads()] == [f"t{number}" for number in reversed(range(count))]
    assert len(list(store.threads(tag="tenth"))) == count // 10
