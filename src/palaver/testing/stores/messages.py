"""Checks of messages: they come back unchanged, along paths and branches.

Stability: experimental.
"""

from __future__ import annotations

import time

from palaver.core import canonical
from palaver.core.errors import ConflictError, NotFoundError, StoreError
from palaver.core.factories import assistant, developer, flush, rescue, system, tool, user
from palaver.core.messages import Message
from palaver.core.parts import Blob, File, FileId, Image, Inline, MalformedToolCall, Url
from palaver.testing.stores.helpers import PICTURE, REFUSED, OpenHandle, append_texts, raises, texts
from palaver.threads.ids import is_uuid
from palaver.threads.thread import MAIN


def messages_are_stamped_when_they_join(open_handle: OpenHandle) -> None:
    """Id and time are stamped on every role, once; what is set stays (MSG-06, CBF-05)."""
    given: list[Message] = [
        system("s"),
        developer("d"),
        user("u"),
        assistant("a"),
        tool("t", tool_call_id="1"),
        rescue("r"),
        flush(),
        user("set", id="mine", sent_at=5),
        user("half", id=""),
    ]
    with open_handle() as store:
        store.create("t")
        before = time.time_ns() // 1_000_000
        entries = store.append("t", given).entries
        after = time.time_ns() // 1_000_000
        assert len({entry.id for entry in entries}) == len(given)
        assert all(is_uuid(entry.id) and entry.id[14] == "7" for entry in entries)
        for entry, message in zip(entries, given, strict=True):
            assert entry.message.id == (entry.id if message.id is None else message.id)
            sent_at = entry.message.sent_at
            assert sent_at == message.sent_at if message.sent_at is not None else before <= (sent_at or 0) <= after
            assert entry.message.replace(id=message.id, sent_at=message.sent_at) == message
        assert list(store.read("t")) == list(entries)


def messages_come_back_equal(open_handle: OpenHandle) -> None:
    """Odd text, numbers as written, unset and empty, unknown fields, media: all as given (law 1, pains 5)."""
    odd = canonical.decode(
        b'{"role":"assistant","content":[{"type":"text","text":"\\ud800 \\u2028\\u0085\\u0000\\r"},'
        b'{"type":"tool_call","id":"c:/ 1","name":"f","arguments_json":" {\\"b\\": 1.0, \\"a\\":5e-06}"},'
        b'{"type":"hologram","depth":3,"raw":1e2}],"metadata":{"n":2.0,"big":1180591620717411303424},'
        b'"provider":{"x":{"k":[5e-06]}},"of_a_newer_version":{"z":[]}}'
    )
    picture = Image.from_bytes(PICTURE)
    given = [
        odd,
        user("", picture, File(Inline("not base64!" * 200), "text/plain", name="ö.txt"), payload=None),
        user(picture, Image(Url("https://example.org/x.png")), Image(FileId("file-1", "openai_responses"))),
        user(payload={}, tags=["a", "a"], mode="user", agent="x"),
        assistant(MalformedToolCall("{oops", "the arguments are not JSON", "f", "1")),
        tool({"value": [1, None]}, picture, tool_call_id="", is_error=True),
        user("far", sent_at=2**70),
        user(Image(Blob("stored:of somebody else")), Image(Blob("blob:" + "0" * 64))),
    ]
    with open_handle() as store:
        store.create("t")
        entries = store.append("t", given).entries
    with open_handle() as store:
        back = store.read("t")
        assert list(back) == list(entries)
        for entry, message in zip(back, given, strict=True):
            bare = entry.message.replace(id=message.id, sent_at=message.sent_at)
            assert canonical.encode(bare) == canonical.encode(message), "not byte for byte"


def acknowledged_data_survives_reopening(open_handle: OpenHandle) -> None:
    """Threads, branches, heads, keys and blobs outlive the handle that made them."""
    with open_handle() as store:
        store.create("t", title="T \ud800\x00", tags=["a", "b"], metadata={"k": [1, None, {"x": "\x00"}]})
        first, _ = append_texts(store, "t", "1", "2", key="k1")
        store.fork("t", "side", at=first)
        append_texts(store, "t", "3", branch="side")
        blob = store.put_blob(PICTURE)
        info, entries = store.info("t"), list(store.read("t"))
    with open_handle() as store:
        assert store.info("t") == info
        assert list(store.read("t")) == entries
        assert texts(store.path("t", "side")) == ["1", "3"]
        assert store.get_blob(blob) == PICTURE
        again = store.append("t", [user("1"), user("2")], key="k1")
        assert again.repeated
        assert [entry.id for entry in again.entries] == [entry.id for entry in entries[:2]]


def positions_never_change(open_handle: OpenHandle) -> None:
    """``read`` gives entries in the order of joining, and ``start`` what is new since."""
    with open_handle() as store:
        store.create("t")
        assert list(store.read("t")) == []
        ids = append_texts(store, "t", *"abc")
        store.rewind("t", ids[0])
        ids += append_texts(store, "t", *"de")
        assert [entry.id for entry in store.read("t")] == ids
        assert texts(store.read("t", start=3)) == ["d", "e"]
        assert texts(store.read("t", start=1, stop=3)) == ["b", "c"]
        assert list(store.read("t", start=5)) == []
        assert store.info("t").length == len(ids)
        with raises(NotFoundError):
            store.read("nobody")


def a_path_leads_from_the_first_message_to_a_leaf(open_handle: OpenHandle) -> None:
    """``path`` takes a branch, an entry or the beginning of its id; ``last`` cuts it at the front."""
    with open_handle() as store:
        store.create("t")
        assert list(store.path("t")) == []
        ids = append_texts(store, "t", *"abcd")
        assert texts(store.path("t")) == list("abcd")
        assert texts(store.path("t", last=2)) == ["c", "d"]
        assert list(store.path("t", last=0)) == []
        assert texts(store.path("t", last=5)) == list("abcd")
        assert texts(store.path("t", ids[1])) == ["a", "b"]
        assert [entry.parent for entry in store.path("t")] == [None, *ids[:3]]
        other = append_texts(store, "t", "z", branch=MAIN)[0]
        assert texts(store.path("t", other[:24])) == list("abcdz")
        for unknown in ("none", "", "zzzz", ids[0][:3]):
            with raises(NotFoundError):
                store.path("t", unknown)
        with raises(NotFoundError):
            store.path("t", ids[0][:8])  # all of them begin like that
        with raises(NotFoundError):
            store.path("nobody")


def forks_share_their_past(open_handle: OpenHandle) -> None:
    """Editing message k makes a branch; both stay readable, and nothing is copied (pains 11, 18)."""
    with open_handle() as store:
        store.create("t")
        ids = append_texts(store, "t", "a", "b", "c")
        assert store.fork("t", "edit", at=ids[0]) == ids[0]
        assert store.info("t").length == len(ids), "a fork copied entries"
        append_texts(store, "t", "B", "C", branch="edit")
        assert texts(store.path("t")) == ["a", "b", "c"]
        assert texts(store.path("t", "edit")) == ["a", "B", "C"]
        assert store.fork("t", "same") == ids[-1]
        assert store.fork("t", "of edit", of="edit") == store.info("t").branches["edit"]
        assert store.fork("t", "anew", at=None) is None
        append_texts(store, "t", "x", branch="anew")
        assert texts(store.path("t", "anew")) == ["x"]
        with raises(ConflictError):
            store.fork("t", "edit")
        for unknown in ({"at": "nothing"}, {"of": "nothing"}):
            with raises(NotFoundError):
                store.fork("t", "new", **unknown)
        with raises(NotFoundError):
            store.fork("nobody", "new")
        for bad in REFUSED:
            with raises(StoreError):
                store.fork("t", bad)
            with raises(StoreError):
                store.add("t", (), branches={bad: None})
        assert set(store.info("t").branches) == {MAIN, "edit", "same", "of edit", "anew"}
        assert store.load("t").path("edit").messages == tuple(e.message for e in store.path("t", "edit"))


def a_rewind_removes_nothing(open_handle: OpenHandle) -> None:
    """A head moves back; what lay behind it stays readable (pains 6)."""
    with open_handle() as store:
        store.create("t")
        ids = append_texts(store, "t", "a", "b", "c")
        store.rewind("t", ids[0], expect=ids[2])
        assert texts(store.path("t")) == ["a"]
        assert texts(store.path("t", ids[2])) == ["a", "b", "c"]
        append_texts(store, "t", "d")
        assert texts(store.path("t")) == ["a", "d"]
        store.rewind("t", None)
        assert list(store.path("t")) == []
        assert store.info("t").branches == {MAIN: None}
        append_texts(store, "t", "anew")
        assert texts(store.path("t")) == ["anew"]
        assert texts(store.read("t")) == ["a", "b", "c", "d", "anew"]
        with raises(ConflictError):
            store.rewind("t", ids[0], expect=ids[2])
        with raises(NotFoundError):
            store.rewind("t", "nothing")
        with raises(NotFoundError):
            store.rewind("t", ids[0], branch="nothing")
        assert texts(store.path("t")) == ["anew"]
