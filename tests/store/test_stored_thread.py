"""A thread in memory and in a store at once."""

import sqlite3
from contextlib import closing

import pytest

import palaver as p
from palaver.core.errors import ConflictError, NotFoundError, StoreError, UnavailableError
from palaver.store.memory import MemoryStore
from palaver.store.sqlite import SQLiteStore


def test_what_is_appended_is_kept_and_seen():
    store = MemoryStore()
    talk = store.open("t")
    talk.append(p.user("a"), p.assistant("b"))
    assert talk.messages == tuple(entry.message for entry in store.path("t"))
    assert [message.text for message in talk.messages] == ["a", "b"]
    assert store.open("t").messages == talk.messages
    assert talk.id == "t"


def test_opening_what_is_there_writes_nothing(tmp_path):
    path = tmp_path / "palaver.db"
    with SQLiteStore(path, timeout=0.05) as store:
        store.open("t").append(p.user("a"))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # now nobody can write
            assert [message.text for message in store.open("t").messages] == ["a"]
            with pytest.raises(UnavailableError):
                store.open("new")


@pytest.mark.parametrize("make", [MemoryStore, SQLiteStore])
def test_a_thread_that_was_deleted_and_created_again_is_a_conflict_that_says_so(make, tmp_path):
    with make(*([] if make is MemoryStore else [tmp_path / "a.db"])) as store:
        talk = store.open("t")
        talk.append(p.user("a"))
        store.delete("t")
        store.open("t")
        with pytest.raises(ConflictError, match=r"'main' is empty: .*, or the thread was deleted and created again"):
            talk.append(p.user("b"))


def test_a_second_writer_is_a_conflict_and_then_the_caller_decides():
    store = MemoryStore()
    one, two = store.open("t"), store.open("t")
    one.append(p.user("a"))
    with pytest.raises(ConflictError):
        two.append(p.user("b"))
    assert two.messages == ()
    assert two.refresh() == 1
    side = two.fork("side", at=None)
    side.append(p.user("b"))
    two.append(p.user("c"))
    assert [message.text for message in two.messages] == ["a", "c"]
    assert [message.text for message in side.messages] == ["b"]
    assert one.refresh() == 2
    assert one.on("side").messages == side.messages
    assert one.refresh() == 0


def test_a_key_brings_back_what_was_lost_on_the_way():
    store = MemoryStore()
    talk = store.open("t")
    store.append("t", [p.user("a")], key="k")  # acknowledged, but the answer never arrived
    (entry,) = talk.append(p.user("a"), key="k")
    assert talk.head == entry.id
    assert len(talk.tree) == 1
    talk.append(p.user("b"))
    assert len(store.read("t")) == 2


def test_a_key_brings_back_what_stands_behind_the_words_of_another():
    store = MemoryStore()
    talk = store.open("t")
    store.append("t", [p.user("of another")])
    store.append("t", [p.user("a")], key="k")
    talk.append(p.user("a"), key="k")
    assert [message.text for message in talk.messages] == ["of another", "a"]


def test_a_refresh_reads_what_is_new(monkeypatch):
    store = MemoryStore()
    talk = store.open("t")
    store.append("t", [p.user("a"), p.user("b")])
    talk.refresh()
    starts, read = [], store.read

    def reading(thread, *, start=0, stop=None):
        starts.append(start)
        return read(thread, start=start, stop=stop)

    monkeypatch.setattr(store, "read", reading)
    store.append("t", [p.user("c")])
    assert talk.refresh() == 1
    assert starts == [2]


def test_a_rewind_moves_both():
    store = MemoryStore()
    talk = store.open("t")
    a, _ = talk.append(p.user("a"), p.user("b"))
    talk.rewind(a.id)
    talk.append(p.user("c"))
    assert [message.text for message in talk.messages] == ["a", "c"]
    assert store.load("t").path() == talk.path()


def test_a_rewind_where_another_has_written_is_a_conflict():
    store = MemoryStore()
    talk = store.open("t")
    (a,) = talk.append(p.user("a"))
    store.append("t", [p.user("of another hand")])
    with pytest.raises(ConflictError):
        talk.rewind(None)
    assert talk.head == a.id
    assert [entry.message.text for entry in store.path("t")] == ["a", "of another hand"]


def test_a_missing_thread_or_branch_raises():
    store = MemoryStore()
    with pytest.raises(NotFoundError):
        store.open("t", "side")
    with pytest.raises(StoreError):
        store.open("")
    with pytest.raises(NotFoundError):
        store.open("t").on("side")


def test_an_entry_where_its_id_is_expected_is_refused_by_name():
    talk = MemoryStore().open("t")
    (entry,) = talk.append(p.user("a"))
    with pytest.raises(p.MessageError, match=r"fork: at: expected .* got Entry"):
        talk.fork("side", at=entry)
    with pytest.raises(p.MessageError, match=r"rewind: to: expected .* got Entry"):
        talk.rewind(entry)
