"""What no message may do to a store: close it, or close what stands beside it."""

from __future__ import annotations

from palaver.core.errors import PalaverError
from palaver.core.factories import user
from palaver.store.store import Query
from palaver.store.unreadable import is_unreadable
from palaver.testing.ill_typed import broken_messages, ill_typed, older_writer, unreadable_messages
from palaver.testing.stores.place import Place, raises, say, texts
from palaver.threads.thread import Entry


def what_cannot_be_read_back_is_refused(place: Place) -> None:
    """A value of a wrong type is refused by ``append`` and ``add``, which then write nothing, or comes back equal."""
    with place() as store:
        store.create("t")
        expected = say(store, "t", "first")
        for what, message in ill_typed():
            try:
                added = store.append("t", [user("beside"), message]).entries
            except PalaverError:
                pass
            else:
                assert store.read("t")[-1].message == added[-1].message, f"{what}: came back as another message"
                expected += [entry.id for entry in added]
            try:
                store.add("t", [Entry("made", expected[-1], message)])
            except PalaverError:
                continue
            raise AssertionError(f"{what}: taken by add")
        for title, tags in ((7, ()), ("t", "tags"), ("t", (1,))):
            with raises(PalaverError):
                store.create("other", title=title, tags=tags)  # type: ignore[arg-type]
            with raises(PalaverError):
                store.update("t", title=title, tags=tags)  # type: ignore[arg-type]
        for name in (7, None, b"t"):
            with raises(PalaverError):
                store.append("t", [user("a")], key=name) if name is not None else store.append("t", ["a"])  # type: ignore[arg-type,list-item]
            with raises(PalaverError):
                store.fork("t", name)  # type: ignore[arg-type]
    with place() as again:
        assert [entry.id for entry in again.read("t")] == expected, "a refused call wrote something"
        assert [info.id for info in again.threads()] == ["t"], "a refused thread was begun"
        assert again.verify().ok, "the store is damaged"


def a_bad_record_closes_nothing_else(place: Place) -> None:
    """An unreadable message hides no other one; it keeps its place and its bytes, and ``verify`` names it."""
    with place() as store:
        store.create("t")
        store.create("other")
        say(store, "other", "apart")
        bad: list[str] = []
        for number, message in enumerate(unreadable_messages()):
            say(store, "t", f"before {number}")
            with older_writer():
                bad.append(store.append("t", [message]).entries[0].id)
        say(store, "t", "last")
    good = [*[f"before {number}" for number in range(len(bad))], "last"]
    with place() as again:
        assert texts(again.read("other")) == ["apart"], "another thread is closed"
        entries = again.read("t")
        found = {entry.id: entry.message for entry in entries if entry.id in bad}
        assert sorted(found) == sorted(bad), "an unreadable message lost its place"
        assert texts(entry for entry in entries if entry.id not in bad) == good, "other messages are not read"
        assert [entry.id for entry in again.path("t")] == [entry.id for entry in entries], "the path is cut"
        assert texts(again.open("t").path())[::2] == good, "the thread cannot be opened"
        hits = again.search(Query(text="last", thread="t"))
        assert [hit.entry.message.text for hit in hits] == ["last"], "the thread cannot be searched"
        say(again, "t", "goes on")
        if any(map(is_unreadable, found.values())):  # a store in memory has never written it
            assert all(map(is_unreadable, found.values())), "an unreadable message is shown as another one"
            assert all({"text", "base64"} & set(each.payload) for each in found.values()), "its bytes are not there"
            told = {(each.thread, each.entry) for each in again.verify().damage if each.kind == "unreadable"}
            assert {("t", entry) for entry in bad} <= told, "verify does not name it"


def what_is_no_json_closes_nothing_else(place: Place) -> None:
    """Bytes that are no JSON hide no other message, and ``verify`` reports them."""
    with place() as store:
        store.create("t")
        store.create("other")
        say(store, "other", "apart")
        for number, message in enumerate(broken_messages()):
            say(store, "t", f"before {number}")
            with older_writer():
                store.append("t", [message])
        say(store, "t", "last")
        held = store.read("t")
    good = ["before 0", "before 1", "before 2", "last"]
    with place() as again:
        assert texts(again.read("other")) == ["apart"], "another thread is closed"
        assert [text for text in texts(again.read("t")) if text in good] == good, "other messages are not read"
        say(again, "t", "goes on")
        if list(again.read("t"))[: len(held)] != list(held):  # a store in memory has never written it
            assert not again.verify().ok, "verify does not report it"
