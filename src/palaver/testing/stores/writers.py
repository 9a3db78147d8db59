"""Checks of concurrent writers: a race loses nothing, and a call can be repeated.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from palaver.core.errors import ConflictError, NotFoundError
from palaver.core.factories import assistant, user
from palaver.core.messages import Message
from palaver.testing.stores.helpers import OpenHandle, append_texts, raises, texts
from palaver.threads.thread import MAIN, Entry

_WRITERS: Final = 8
_EACH: Final = 12


def a_stale_writer_gets_a_conflict(open_handle: OpenHandle) -> None:
    """With ``expect`` a head that moved on is a conflict, and nothing is written (law 8)."""
    with open_handle() as store, open_handle() as other:
        store.create("t")
        first = append_texts(store, "t", "a", expect=None)[0]
        second = append_texts(other, "t", "b", expect=first)[0]
        with raises(ConflictError) as caught:
            append_texts(store, "t", "lost", expect=first)
        assert isinstance(caught[0], ConflictError)
        assert caught[0].found == second
        with raises(ConflictError):
            append_texts(store, "t", "lost", expect=None)
        assert texts(store.path("t")) == ["a", "b"]
        assert texts(other.path("t")) == ["a", "b"]
        store.fork("t", "mine", at=first)
        append_texts(store, "t", "kept", branch="mine", expect=first)
        assert texts(other.path("t", "mine")) == ["a", "kept"]
        with raises(NotFoundError):
            append_texts(store, "t", "x", branch="nothing")
        with raises(NotFoundError):
            append_texts(store, "nobody", "x")


def a_rebase_is_atomic(open_handle: OpenHandle) -> None:
    """A branch goes on elsewhere, what it was is named, and one who comes late changes nothing (law 8, law 9)."""
    with open_handle() as store, open_handle() as other:
        talk = store.open("t")
        talk.append(user("a"), user("b"), user("c"))
        before, late = talk.path(), other.open("t")
        made = talk.rebase([user("x"), before[2].message], onto=before[0].id, keep="before")
        assert texts(talk.path()) == texts(store.path("t")) == ["a", "x", "c"]
        assert texts(other.path("t", "before")) == ["a", "b", "c"]
        assert made[0].parent == before[0].id
        assert made[1].message == before[2].message
        assert made[1].id != before[2].id
        with raises(ConflictError):
            late.rebase([user("lost")], onto=None, keep="other")
        with raises(ConflictError):
            talk.rebase([], onto=None, keep="before")
        assert texts(other.path("t")) == ["a", "x", "c"]
        talk.append(user("d"))
        talk.rebase([], onto=made[0].id, keep="again")
        assert texts(other.path("t")) == ["a", "x"]
        assert texts(store.open("t", "again").path()) == ["a", "x", "c", "d"]
        assert store.verify().ok


def a_key_makes_an_append_safe_to_repeat(open_handle: OpenHandle) -> None:
    """The second append with the same key adds nothing and gives what the first made."""
    with open_handle() as store:
        store.create("t")
        store.create("u")
        made = store.append("t", [user("a"), user("b", sent_at=3)], key="k")
        append_texts(store, "t", "c")
        with open_handle() as other:
            again = other.append("t", [user("a"), user("b", sent_at=3)], key="k", expect=None)
        assert again.repeated
        assert not made.repeated
        assert again.entries == made.entries
        assert texts(store.path("t")) == ["a", "b", "c"]
        assert not store.append("u", [user("a")], key="k").repeated
        for others in ([user("a")], [user("a"), user("B", sent_at=3)], []):
            with raises(ConflictError):
                store.append("t", others, key="k")
        assert store.append("t", [], key="nothing").entries == ()
        assert store.append("t", [], key="nothing").repeated
        assert texts(store.read("t")) == ["a", "b", "c"]


def an_append_is_atomic(open_handle: OpenHandle) -> None:
    """Messages that fail while they are given leave nothing behind."""

    def broken() -> Iterator[Message]:
        yield user("half")
        raise ZeroDivisionError

    with open_handle() as store:
        store.create("t")
        try:
            store.append("t", broken(), key="k")
        except ZeroDivisionError:
            pass
        else:
            raise AssertionError("the error was swallowed")
        assert list(store.read("t")) == []
        assert not store.append("t", [user("whole")], key="k").repeated
        assert store.append("t", []).entries == ()
        assert store.append("t", []).head is None
        assert store.info("t").length == 1


def concurrent_writers_lose_nothing(open_handle: OpenHandle) -> None:
    """Appends from several threads and handles stand one behind the other, each batch whole (pains 6)."""
    with open_handle() as store:
        store.create("t")
    handles = [open_handle() for _ in range(3)]
    try:

        def write(writer: int) -> list[Entry]:
            store, made = handles[writer % len(handles)], list[Entry]()
            for count in range(_EACH):
                batch = [user(f"{writer}.{count}.{each}") for each in range(1 + count % 3)]
                made += store.append("t", batch).entries
            return made

        with ThreadPoolExecutor(_WRITERS) as pool:
            made = list(pool.map(write, range(_WRITERS)))
        path = list(handles[0].path("t"))
        assert list(handles[1].read("t")) == path, "the order of joining is not that of the branch"
        assert len(path) == sum(map(len, made))
        at = {entry.id: index for index, entry in enumerate(path)}
        for entries in made:
            places = [at[entry.id] for entry in entries]
            assert places == sorted(places), "a writer's own order was lost"
            assert [path[index] for index in places] == entries, "an entry is not what was acknowledged"
        texts_ = texts(path)
        for index, text in enumerate(texts_):
            head, _, each = text.rpartition(".")
            if each != "0":
                assert texts_[index - 1] == f"{head}.{int(each) - 1}", "a batch was parted"
    finally:
        for store in handles:
            store.close()


def one_of_many_writers_wins(open_handle: OpenHandle) -> None:
    """Of writers that expect the same head exactly one succeeds."""
    with open_handle() as store, open_handle() as other:
        store.create("t")
        head = append_texts(store, "t", "start")[0]

        def race(writer: int) -> str | None:
            try:
                return append_texts((store, other)[writer % 2], "t", str(writer), expect=head)[0]
            except ConflictError:
                return None

        with ThreadPoolExecutor(_WRITERS) as pool:
            winners = [each for each in pool.map(race, range(_WRITERS)) if each is not None]
        assert len(winners) == 1
        assert store.info("t").branches[MAIN] == winners[0]
        assert store.info("t").length == 2


def clients_are_isolated(open_handle: OpenHandle) -> None:
    """What one agent says, every reader of the thread reads, in order; other threads see none of it (ASK-02)."""
    with open_handle() as store, open_handle() as second:
        for client in range(20):
            store.create(f"client {client}")
        for turn in range(3):
            for client in range(20):
                thread = f"client {client}"
                store.append(thread, [user(f"{client}.{turn}")])
                second.append(thread, [assistant(f"{client}.{turn} heard", agent=f"agent {turn % 2}")])
        for client in range(20):
            texts_ = [text for turn in range(3) for text in (f"{client}.{turn}", f"{client}.{turn} heard")]
            assert texts(store.path(f"client {client}")) == texts_
            assert texts(second.read(f"client {client}")) == texts_
