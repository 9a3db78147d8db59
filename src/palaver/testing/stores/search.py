"""Checks of search, blobs and ``verify``.

Stability: experimental.
"""

from __future__ import annotations

from typing import Any

from palaver.core.errors import NotFoundError, StoreError
from palaver.core.factories import assistant, system, tool, tool_call, user
from palaver.core.parts import Blob, File, Image
from palaver.store.store import Query
from palaver.testing.stores.helpers import PICTURE, OpenHandle, append_texts, raises
from palaver.threads.thread import Entry


def search_finds_words(open_handle: OpenHandle) -> None:
    """Words in any order, phrases, beginnings; case and accents do not matter; newest first."""
    with open_handle() as store:
        store.create("t")
        store.create("u")
        fox = user("The quick brown fox", sent_at=1)
        store.append("t", [fox, assistant("jumps over the LAZY dog", sent_at=3)])
        store.append("u", [user("quick, said the café owner: src/main.py", sent_at=2)])
        store.append("u", [assistant(tool_calls=[tool_call("grep", {"pattern": "needle"}, id="1")], sent_at=4)])
        store.append("u", [tool({"found": ["in the haystack"]}, tool_call_id="1", tool_name="grep", sent_at=5)])

        def found(text: str, **options: Any) -> list[int | None]:
            return [hit.entry.message.sent_at for hit in store.search(Query(text=text, **options))]

        assert found("quick") == [2, 1]
        assert found("QUICK fox") == [1]
        assert found("fox quick") == [1]
        assert found('"quick brown"') == [1]
        assert found('"brown quick"') == []
        assert found("qui*") == [2, 1]
        assert found("qui") == []
        assert found("cafe") == [2]
        assert found("CAFÉ") == [2]
        assert found("main") == [2]
        assert found("lazy") == [3]
        assert found("needle") == [4]
        assert found("haystack") == [5]
        assert found("quick", limit=1) == [2]
        assert found("quick", thread="t") == [1]
        assert found("nothing") == []
        hit = store.search("owner")[0]
        assert hit.thread == "u"
        assert "owner" in hit.excerpt
        assert hit.entry == store.read("u")[0]
        for bad in ("!?", '""', "*"):
            with raises(StoreError):
                found(bad)


def searches_can_be_narrowed(open_handle: OpenHandle) -> None:
    """By role, agent, tool, tag and time, with words or without."""
    with open_handle() as store:
        store.create("t")
        call = tool_call("grep", "{}", id="1")
        store.append(
            "t",
            [
                user("w", sent_at=10, tags=["a", "b"]),
                assistant("w", tool_calls=[call, call], sent_at=20, agent="x"),
                tool("w", tool_call_id="1", tool_name="grep", sent_at=30, agent="x"),
                system("w", sent_at=40, tags=["b"]),
            ],
        )

        def found(**options: Any) -> list[int | None]:
            return [hit.entry.message.sent_at for hit in store.search(Query(**options))]

        assert found() == [40, 30, 20, 10]
        assert found(role="user") == [10]
        assert found(agent="x") == [30, 20]
        assert found(tool="grep") == [30, 20]
        assert found(tool="grep", role="tool", text="w") == [30]
        assert found(tag="b") == [40, 10]
        assert found(tag="a", text="w") == [10]
        assert found(since=20, until=40) == [30, 20]
        assert found(since=41) == found(since=2**70) == found(until=-(2**70)) == []
        assert found(tag="%") == []
        assert found(thread="nobody") == []
        assert found(limit=2) == [40, 30]
        assert found(limit=10**30) == [40, 30, 20, 10]
        assert [info.id for info in store.threads(limit=10**30)] == [info.id for info in store.threads()]


def blobs_are_stored_once(open_handle: OpenHandle) -> None:
    """Bytes are found by their hash; ``gc`` removes those that no message holds, and no others."""
    with open_handle() as store:
        store.create("t")
        used, unused = store.put_blob(PICTURE), store.put_blob(b"unused" * 1000)
        assert store.put_blob(PICTURE) == used
        assert used.hash.startswith("sha256:")
        store.append("t", [user(Image(used, "image/png"))])
        assert store.read("t")[0].message.images[0].source == used
        store.append("t", [user("see", Image.from_bytes(PICTURE)), user("again", Image.from_bytes(PICTURE))])
        first, second = store.read("t", start=1)
        assert first.message.images[0].source == second.message.images[0].source == Image.from_bytes(PICTURE).source
        assert store.get_blob(used.hash) == PICTURE
        freed = store.gc()
        assert freed.blobs == 1
        assert store.get_blob(used) == PICTURE
        for unknown in (unused, "sha256:" + "0" * 64, "sha256:xyz", "", "md5:0"):
            with raises(NotFoundError):
                store.get_blob(unknown)
        assert store.put_blob(b"") == store.put_blob(b"")
        assert store.get_blob(store.put_blob(b"")) == b""


def a_blob_that_a_message_names_is_there(open_handle: OpenHandle) -> None:
    """A blob that was removed before a message names it is refused; one that is known to be lost is reported."""
    with open_handle() as store, open_handle() as other:
        store.create("t")
        kept, lost = store.put_blob(PICTURE), store.put_blob(b"lost" * 1000)
        store.append("t", [user(Image(kept, "image/png"))])
        other.gc()
        with raises(NotFoundError):
            store.append("t", [user("see"), user(Image(lost, "image/png"))])
        with raises(NotFoundError):
            store.append("t", [user(Image(lost, "image/png"))], key="k")
        entry = Entry("an-entry", None, user(Image(lost, "image/png"), File(kept)))
        with raises(NotFoundError):
            store.add("t", [entry])
        with raises(NotFoundError):
            store.add("u", [entry], absent=[kept.hash])
        assert len(store.read("t")) == 1
        assert [info.id for info in store.threads()] == ["t"]
        assert store.verify().ok
        assert store.put_blob(b"lost" * 1000) == lost
        store.append("t", [user(Image(lost, "image/png"))], key="k")
        other.gc()
        assert store.get_blob(lost) == b"lost" * 1000
        gone = "sha256:" + "0" * 64
        assert store.add("u", [Entry("an-entry", None, user(Image(Blob(gone))))], absent=[gone]) == 1
        (damage,) = store.verify().damage
        assert (damage.kind, damage.entry) == ("missing", "an-entry")
        assert gone.removeprefix("sha256:") in str(damage)


def verify_accepts_a_sound_store(open_handle: OpenHandle) -> None:
    """``verify`` reads everything, counts it, and reports progress."""
    steps: list[tuple[int, int | None]] = []
    with open_handle() as store:
        assert store.verify().ok
        store.create("t")
        ids = append_texts(store, "t", *"abc")
        store.rewind("t", ids[0])
        append_texts(store, "t", "d" * 5000)
        store.append("t", [user(Image.from_bytes(PICTURE))])
        verified = store.verify(progress=lambda done, of: steps.append((done, of)))
        assert verified.ok, verified.damage
        assert (verified.threads, verified.entries) == (1, 5)
        assert steps
        assert store.gc().messages == 0
        assert store.verify().ok
