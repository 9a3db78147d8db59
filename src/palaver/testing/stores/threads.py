"""Checks of threads: their ids, metadata, deletion and copies.

Stability: experimental.
"""

from __future__ import annotations

import time
from typing import Any, Final

from palaver.core.errors import ConflictError, NotFoundError, StoreError
from palaver.core.factories import user
from palaver.core.parts import Image
from palaver.store.store import Addition, Query
from palaver.testing.stores.helpers import PICTURE, REFUSED, OpenHandle, append_texts, raises, texts
from palaver.threads.ids import is_uuid
from palaver.threads.thread import MAIN, Entry

NAMES: Final = (
    "../../etc/passwd",
    "a/b",
    "C:\\x",
    ".",
    "'; drop table threads; --",
    "%",
    "ünï çödé 會話",
    "x" * 200,
    "A",
    "a",
)


def thread_ids_may_be_any_text(open_handle: OpenHandle) -> None:
    """An id is never a path, pattern or command; what cannot name a thread everywhere is refused (ASK-29, DAS-29)."""
    with open_handle() as store:
        for name in NAMES:
            store.create(name)
            append_texts(store, name, f"in {name}")
        for name in NAMES:
            assert store.info(name).id == name
            assert texts(store.path(name)) == [f"in {name}"]
            with raises(ConflictError):
                store.create(name)
        assert {info.id for info in store.threads()} == set(NAMES)
        for bad in REFUSED:
            with raises(StoreError):
                store.create(bad)
        assert is_uuid(store.create().id)
        with raises(NotFoundError):
            store.info("nobody")


def thread_metadata_can_change(open_handle: OpenHandle) -> None:
    """``update`` changes what is given and nothing else; ``None`` is not unset."""
    with open_handle() as store:
        made = store.create("t", title="T", tags=["x", "y"], metadata={"a": 1})
        assert (made.title, made.tags, dict(made.metadata), made.length) == ("T", ("x", "y"), {"a": 1}, 0)
        assert dict(made.branches) == {MAIN: None}
        assert store.update("t", tags=[]).title == "T"
        assert store.update("t", title=None).title is None
        assert dict(store.update("t", metadata={"b": {"c": [2.0]}}).metadata) == {"b": {"c": [2.0]}}
        info = store.info("t")
        assert (info.title, info.tags, dict(info.metadata)) == (None, (), {"b": {"c": [2.0]}})
        assert info.created_at == made.created_at <= info.updated_at
        with raises(NotFoundError):
            store.update("nobody", title="x")
        with raises(StoreError):
            store.update("t", metadata={"x": object()})


def threads_are_listed_by_their_last_change(open_handle: OpenHandle) -> None:
    """The thread that changed last comes first; by tag, and only so many, where asked."""
    with open_handle() as store:
        for name in "abc":
            store.create(name, tags=["even"] if name == "b" else ["odd", "x"])
            time.sleep(0.003)
        assert [info.id for info in store.threads()] == ["c", "b", "a"]
        append_texts(store, "a", "later")
        assert [info.id for info in store.threads()] == ["a", "c", "b"]
        time.sleep(0.003)
        store.fork("b", "side")
        assert [info.id for info in store.threads(limit=1)] == ["b"]
        assert [info.id for info in store.threads(tag="odd")] == ["a", "c"]
        assert list(store.threads(tag="nothing")) == []
        assert list(store.threads(limit=0)) == list(store.threads(limit=-1)) == []
        assert len(list(store.threads(limit=10**30))) == len("abc")
        listed = store.threads()
        next(listed)
        store.create("while listing")  # no lock is held
        assert len(list(listed)) >= 1


def arguments_of_a_wrong_type_are_refused(open_handle: OpenHandle) -> None:
    """A word for a number, or bytes for a ``Query``, is one error of the store, whatever keeps the threads."""
    with open_handle() as store:
        store.create("t")
        anything: Any = store
        for call in (
            lambda: anything.search(b"hello"),
            lambda: anything.search(None),
            lambda: list(anything.threads(limit="5")),
            lambda: list(anything.threads(tag=5)),
            lambda: anything.read("t", start="a"),
            lambda: anything.read("t", stop=1.5),
            lambda: anything.path("t", last="x"),
            lambda: anything.path("t", 5),
        ):
            with raises(StoreError):
                call()


def a_deleted_thread_is_gone(open_handle: OpenHandle) -> None:
    """A deleted thread is found by nothing; what other threads hold too stays."""
    shared = user("shared word", Image.from_bytes(PICTURE))
    with open_handle() as store:
        for name in "ab":
            store.create(name)
            store.append(name, [shared, user(f"only {name} knows xylophone{name}")], key="k")
        store.delete("a")
        for gone in (lambda: store.info("a"), lambda: store.read("a"), lambda: store.path("a")):
            with raises(NotFoundError):
                gone()
        with raises(NotFoundError):
            store.delete("a")
        assert store.search(Query(text="xylophonea")) == []
        assert [hit.thread for hit in store.search(Query(text="shared"))] == ["b"]
        freed = store.gc()
        assert freed.messages >= 0
        assert store.verify().ok
        assert store.read("b")[0].message.images == shared.images
        assert [hit.thread for hit in store.search(Query(text="xylophoneb"))] == ["b"]
        assert store.create("a").length == 0
        assert not store.append("a", [user("new")], key="k").repeated
        assert texts(store.read("a")) == ["new"]


def entries_can_be_copied_unchanged(open_handle: OpenHandle) -> None:
    """``add`` keeps ids, places in the tree and stamps, and can be repeated."""
    with open_handle() as store:
        store.create("t")
        ids = append_texts(store, "t", "a", "b")
        store.fork("t", "side", at=ids[0])
        append_texts(store, "t", "c", branch="side")
        entries, branches = list(store.read("t")), dict(store.info("t").branches)
        assert store.add("copy", entries[:2], branches={MAIN: ids[0]}) == 2
        assert store.add("copy", entries, branches=branches) == 1
        assert store.add("copy", entries, branches=branches) == 0
        assert list(store.read("copy")) == entries
        assert dict(store.info("copy").branches) == branches
        assert texts(store.path("copy", "side")) == ["a", "c"]
        stray = Entry("01931f2e-7a10-7cc3-98c4-dc0c0c07398f", "nowhere", user("x", id="x", sent_at=1))
        for bad in ([stray], [entries[0], Entry(ids[1], ids[0], user("another", id="y", sent_at=1))]):
            with raises(StoreError):
                store.add("copy", bad)
        with raises(StoreError):
            store.add("copy", [], branches={"x": "nowhere"})
        with raises(StoreError):
            store.add("fresh", [stray])
        assert list(store.read("copy")) == entries
        assert dict(store.info("copy").branches) == branches
        append_texts(store, "copy", "d")
        assert texts(store.path("copy")) == ["a", "b", "d"]
        assert store.verify().ok


def entries_of_several_threads_are_added_at_once(open_handle: OpenHandle) -> None:
    """``add_all`` adds each thread whole, in order, with the details of those that are missing, and can be repeated."""
    with open_handle() as store:
        store.create("t", title="T")
        ids = append_texts(store, "t", "a", "b")
        one, two = store.read("t")
        additions = [
            Addition(thread="u", entries=[one], branches={MAIN: one.id}, title="U", tags=("x",), metadata={"n": 1}),
            Addition(thread="t", entries=[two], branches={"side": ids[0]}, title="other", tags=("y",)),
            Addition(thread="u", entries=[one, two], branches={MAIN: two.id, "side": one.id}),
        ]
        assert store.add_all(additions) == 2
        assert store.add_all(additions[1:]) == 0
        assert store.add_all([]) == 0
        info = store.info("u")
        assert (info.title, info.tags, info.metadata, info.length) == ("U", ("x",), {"n": 1}, 2)
        assert (info.created_at, info.updated_at) == (one.message.sent_at, two.message.sent_at)
        assert dict(info.branches) == {MAIN: ids[1], "side": ids[0]}
        assert (store.info("t").title, store.info("t").tags) == ("T", ())
        assert dict(store.info("t").branches) == {MAIN: ids[1], "side": ids[0]}
        stray = Entry("01931f2e-7a10-7cc3-98c4-dc0c0c07398f", "nowhere", user("x", id="x", sent_at=1))
        for bad in (Addition(thread="v", entries=[stray]), Addition(thread="", entries=[one])):
            with raises(StoreError):
                store.add_all([Addition(thread="w", entries=[one]), bad])
        assert [each.id for each in store.threads() if each.id in {"v", ""}] == []
        assert store.verify().ok


def copies_keep_their_times(open_handle: OpenHandle) -> None:
    """A thread that joins as it is has the times of its conversation; ``update`` changes none."""
    with open_handle() as store:
        begun, ended = 1_600_000_000_000, 1_600_000_060_000
        first, record, last = (
            Entry("a", None, user("a", id="a", sent_at=begun)),
            Entry("r", "a", user(id="r", tags=["record"])),
            Entry("b", "r", user("b", id="b", sent_at=ended)),
        )
        store.create("now")
        store.add("old", [first], branches={MAIN: "a"})
        assert (store.info("old").created_at, store.info("old").updated_at) == (begun, begun)
        store.add("old", [record, last])
        store.add("old", [], branches={MAIN: "b"})
        store.update("old", title="T", metadata={"a": 1})
        assert (store.info("old").created_at, store.info("old").updated_at) == (begun, ended)
        store.add("odd", [Entry("c", None, user("c", id="c", sent_at=1 << 70)), Entry("d", "c", user("d", id="d"))])
        assert [info.id for info in store.threads()][-1] == "old"
        assert store.info("odd").created_at >= store.info("now").created_at
        assert store.verify().ok
    with open_handle() as store:
        assert (store.info("old").created_at, store.info("old").updated_at) == (begun, ended)
        append_texts(store, "old", "c", branch=MAIN)
        assert store.info("old").updated_at > ended
        assert next(store.threads()).id == "old"
