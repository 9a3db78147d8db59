"""Appends that are sent together, each with its own outcome; and words that are indexed when somebody searches."""

import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from msgspec import UNSET

import palaver as p
from palaver.core.errors import ConflictError, UnavailableError
from palaver.store.postgres import PostgresStore, appends, call_parameters, search
from palaver.store.postgres.database import Link
from palaver.store.records import prepare
from palaver.store.store import Query
from tests.store.postgres.server import CONNINFO, open_store, run, waits

pytestmark = [pytest.mark.server, pytest.mark.law(8)]


def request(thread, *texts, branch="main", expect=UNSET, key=None):
    rows = prepare([p.user(text) for text in texts])
    return appends.AppendRequest(thread, branch, expect, key, rows, call_parameters.size(rows))


def send(schema, *group, again=False):
    with psycopg.connect(CONNINFO, autocommit=True) as connection:
        return appends.append_group(Link(connection, schema, {}), group, again=again)


def test_each_of_a_group_has_its_own_outcome(store, schema):
    for thread in ("a", "b"):
        store.create(thread)
    store.fork("a", "side")
    group = [
        request("b", "b1"),
        request("a", "a1", "a2", key="k"),
        request("nobody", "lost 1"),
        request("a", "lost 2", branch="none"),
        request("a", "lost 3", expect=None),
        request("a", "s1", branch="side", expect=None),
        request("a", "a3"),
        request("a", "lost 4", key="k"),
    ]
    outcomes = send(schema, *group)
    kinds = [outcome.kind for outcome in outcomes]
    assert kinds == ["joined", "joined", "no thread", "no branch", "moved", "joined", "joined", "repeated"]
    assert (outcomes[4].entry, outcomes[6].entry) == (group[1].rows[1].id,) * 2
    assert (outcomes[7].place, outcomes[7].messages) == (0, 2)
    assert [entry.message.text for entry in store.path("a")] == ["a1", "a2", "a3"]
    assert [entry.message.text for entry in store.path("a", "side")] == ["s1"]
    assert [entry.message.text for entry in store.path("b")] == ["b1"]
    assert (store.info("a").length, store.info("b").length) == (4, 1)
    assert run(schema, "select count(*) from {s}.bodies") == [(5,)], "what did not join is kept"
    assert store.verify().ok


def test_a_group_that_is_sent_again_is_found(store, schema):
    store.create("a")
    store.create("b")
    group = [request("b", "b1"), request("a", "a1"), request("a", "a2"), request("a", "a3", key="k")]
    first = send(schema, *group)
    assert [outcome.kind for outcome in first] == ["joined"] * 4
    assert send(schema, *group, again=True) == first
    assert (store.info("a").length, store.info("b").length) == (3, 1)


def test_a_thread_that_another_client_holds_does_not_hold_up_the_others(store, schema):
    names = [f"t{number}" for number in range(8)]
    for name in names:
        store.create(name)
    with ThreadPoolExecutor(len(names)) as pool:
        with psycopg.connect(CONNINFO) as other:
            other.execute(f"select from \"{schema}\".threads where id = 't0' for update")
            pending = [pool.submit(store.append, name, [p.user(name)]) for name in names]
            for each in pending[1:]:
                assert each.result(timeout=60).head
            assert not pending[0].done()
        assert pending[0].result(timeout=60).head
    assert store.verify().ok


def test_a_group_that_fails_is_done_again_one_by_one(schema, monkeypatch):
    """What the server says of a group is nobody's own; so who is told of it is the one whose fault it is."""
    real, sizes, gate = appends.append_group, [], threading.Event()

    def fails(link, group, *, again, waits=True):
        gate.wait()
        sizes.append(len(group))
        if any(each.thread == "bad" for each in group):
            link.execute("do $$ begin raise 'no room' using errcode = '53100'; end $$")
        return real(link, group, again=again, waits=waits)

    with open_store(schema) as store:
        names = ["bad", *(f"t{number}" for number in range(11))]
        for name in names:
            store.create(name)
        monkeypatch.setattr(appends, "append_group", fails)
        with ThreadPoolExecutor(len(names)) as pool:
            pending = {name: pool.submit(store.append, name, [p.user(name)]) for name in names}
            gate.set()
            with pytest.raises(UnavailableError, match="no room"):
                pending.pop("bad").result()
            assert all(each.result().head for each in pending.values())
        assert store.verify().ok
        assert [store.info(name).length for name in names] == [0] + [1] * 11


def test_one_of_two_conflicting_appends_fails(store):
    store.create("t")
    for _ in range(10):
        head = store.info("t").branches["main"]
        with ThreadPoolExecutor(8) as pool:
            pending = [pool.submit(store.append, "t", [p.user(f"{number}")], expect=head) for number in range(8)]
        errors = [each.exception() for each in pending]
        assert sum(error is None for error in errors) == 1
        assert all(error is None or isinstance(error, ConflictError) for error in errors)
    assert store.info("t").length == 10


# -- words -------------------------------------------------------------------------------------------------------------


def test_a_search_waits_for_who_indexes_and_misses_nothing(store, schema, monkeypatch):
    """Another process has taken what is new out of the queue, and has not committed yet."""
    store.create("t")
    store.append("t", [p.user("xylophone")])
    real, begun, go_on = search._index_text, threading.Event(), threading.Event()

    def slow(*row):
        begun.set()
        go_on.wait()
        return real(*row)

    monkeypatch.setattr(search, "_index_text", slow)
    with PostgresStore(CONNINFO, schema=schema) as other, ThreadPoolExecutor(2) as pool:
        first = pool.submit(other.search, Query(text="xylophone"))
        begun.wait()
        second = pool.submit(store.search, Query(text="xylophone"))
        try:
            waits("pg_advisory")
            store.append("t", [p.user("xylophone two")])  # nobody who pending waits
        finally:
            go_on.set()
        assert len(first.result()) >= 1
        assert len(second.result()) >= 1
    assert len(store.search(Query(text="xylophone"))) == 2
    assert run(schema, "select count(*) from {s}.fresh") == [(0,)]
    assert store.verify().ok


def test_a_search_without_words_or_labels_indexes_nothing(store, schema):
    store.create("t")
    store.append("t", [p.user("one"), p.user("two")])
    assert len(store.search(Query(thread="t"))) == 2
    assert run(schema, "select count(*) from {s}.words") == [(0,)]


def test_words_are_indexed_in_portions(store, schema, monkeypatch):
    monkeypatch.setattr(search, "_PORTION", 3)
    store.create("t")
    store.append("t", [p.user(f"word {number}") for number in range(10)])
    assert len(store.search(Query(text="word"))) == 10
    assert len(store.search(Query(text="r*"))) == 0, "a label is not a word"
    assert run(schema, "select count(*) from {s}.words") == [(10,)]


def test_a_body_without_words_is_damage(store, schema):
    store.create("t")
    store.append("t", [p.user("one")])
    run(schema, "delete from {s}.fresh")
    (damage,) = store.verify().damage
    assert (damage.kind, damage.reason) == ("missing", "its words are not there")


def test_a_store_that_nobody_closed_ends_its_threads(schema):
    before = set(threading.enumerate())
    store = open_store(schema)
    store.create("t")
    store.append("t", [p.user("x")])
    writers = [each for each in set(threading.enumerate()) - before if each.name.startswith("writer")]
    assert len(writers) == 2
    store._database.close()
    del store
    for thread in writers:
        thread.join(10)
    assert not any(thread.is_alive() for thread in writers)
