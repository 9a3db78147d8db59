"""Checks of bad messages: none closes a store or hides another message.

Stability: experimental.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from palaver.core import canonical
from palaver.core.errors import MessageError, PalaverError
from palaver.core.factories import assistant, tool_call, user
from palaver.core.messages import Message
from palaver.core.usage import Usage
from palaver.store.records import is_unreadable
from palaver.store.store import Query, Store
from palaver.testing.ill_typed import (
    broken_messages,
    ill_typed,
    odd_values,
    older_writer,
    unreadable_messages,
    unreadable_values,
)
from palaver.testing.stores.helpers import OpenHandle, append_texts, raises, texts
from palaver.threads.thread import Entry


def unreadable_values_are_refused(open_handle: OpenHandle) -> None:
    """A value of a wrong type is refused by ``append`` and ``add``, which then write nothing, or comes back equal."""
    with open_handle() as store:
        store.create("t")
        expected = append_texts(store, "t", "first")
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
        for wrong in ("text", b"text", user("a"), 7, None, [user("a"), "b"], [user("a"), None]):
            with raises(MessageError):
                store.append("t", wrong)  # type: ignore[arg-type]
        for name in (7, None, b"t"):
            with raises(PalaverError):
                store.append("t", [user("a")], key=name) if name is not None else store.append("t", ["a"])  # type: ignore[arg-type,list-item]
            with raises(PalaverError):
                store.fork("t", name)  # type: ignore[arg-type]
    with open_handle() as again:
        assert [entry.id for entry in again.read("t")] == expected, "a refused call wrote something"
        assert [info.id for info in again.threads()] == ["t"], "a refused thread was begun"
        assert again.verify().ok, "the store is damaged"


def a_bad_record_hides_no_other_message(open_handle: OpenHandle) -> None:
    """An unreadable message hides no other one; it keeps its place and its bytes, and ``verify`` names it."""
    with open_handle() as store:
        store.create("t")
        store.create("other")
        append_texts(store, "other", "apart")
        bad: list[str] = []
        for number, message in enumerate(unreadable_messages()):
            append_texts(store, "t", f"before {number}")
            with older_writer():
                bad.append(store.append("t", [message]).entries[0].id)
        append_texts(store, "t", "last")
    good = [*[f"before {number}" for number in range(len(bad))], "last"]
    with open_handle() as again:
        assert texts(again.read("other")) == ["apart"], "another thread is closed"
        entries = again.read("t")
        found = {entry.id: entry.message for entry in entries if entry.id in bad}
        assert sorted(found) == sorted(bad), "an unreadable message lost its place"
        assert texts(entry for entry in entries if entry.id not in bad) == good, "other messages are not read"
        assert [entry.id for entry in again.path("t")] == [entry.id for entry in entries], "the path is cut"
        assert texts(again.open("t").path())[::2] == good, "the thread cannot be opened"
        hits = again.search(Query(text="last", thread="t"))
        assert [hit.entry.message.text for hit in hits] == ["last"], "the thread cannot be searched"
        append_texts(again, "t", "goes on")
        if any(map(is_unreadable, found.values())):  # a store in memory has never written it
            assert all(map(is_unreadable, found.values())), "an unreadable message is shown as another one"
            assert all({"text", "base64"} & set(each.payload) for each in found.values()), "its bytes are not there"
            told = {(each.thread, each.entry) for each in again.verify().damage if each.kind == "unreadable"}
            assert {("t", entry) for entry in bad} <= told, "verify does not name it"


def generated_bad_records_hide_no_other_message(open_handle: OpenHandle) -> None:
    """One message for each field of each class that cannot be decoded: its place and bytes are kept, it is named."""
    cases = list(unreadable_values())
    with open_handle() as store:
        store.create("t")
        store.create("other")
        append_texts(store, "other", "apart")
        bad: dict[str, tuple[str, Message]] = {}
        append_texts(store, "t", "first")
        for what, message in cases:
            with (
                older_writer(),
                suppress(TypeError, AttributeError, ValueError, PalaverError),
            ):  # no writer ever stored such a one
                [entry] = store.append("t", [message]).entries
                bad[entry.id] = what, message
        append_texts(store, "t", "last")
    assert len(bad) > len(cases) // 2, "too few of them were stored to prove anything"
    good = ["first", "last"]
    with open_handle() as again:
        assert texts(again.read("other")) == ["apart"], "another thread is closed"
        entries = again.read("t")
        assert texts(entry for entry in entries if entry.id not in bad) == good, "other messages are not read"
        found = {entry.id: entry.message for entry in entries if entry.id in bad}
        assert found.keys() == bad.keys(), "an unreadable message lost its place"
        assert [entry.id for entry in again.path("t")] == [entry.id for entry in entries], "the path is cut"
        if not any(map(is_unreadable, found.values())):  # a store in memory has never written it
            return
        named = {entry for thread, entry in _unreadable(again) if thread == "t"}
        for name, message in found.items():
            what, written = bad[name]
            assert is_unreadable(message), f"{what}: shown as another message"
            assert _fields(message.payload["text"]) == _fields(_line(written)), f"{what}: its bytes are not there"
            assert name in named, f"{what}: verify does not name it"


def _unreadable(store: Store) -> set[tuple[str | None, str | None]]:
    return {(each.thread, each.entry) for each in store.verify().damage if each.kind == "unreadable"}


def _line(message: Message) -> bytes:
    with older_writer():
        return canonical.encode(message)


def _fields(line: bytes | str) -> dict[str, Any]:
    """What is written of a message, without the stamps that a store gives it."""
    return {key: value for key, value in json.loads(line).items() if key not in {"id", "sent_at"}}


def odd_values_are_refused_or_come_back_equal(open_handle: OpenHandle) -> None:
    """Values inside ``payload``, ``metadata`` and ``provider``, and odd texts and numbers in every other field."""
    made: list[tuple[str, Message]] = []
    for what, build in _odd_messages():
        with suppress(MessageError):
            made.append((what, build()))
    assert {"payload surrogate", "provider huge", "sent_at -1", "tool nul"} <= {what for what, _ in made}
    assert not {"payload nan", "metadata naive", "provider deep", "payload bytes"} & {what for what, _ in made}
    kept: list[tuple[str, Entry]] = []
    with open_handle() as store:
        store.create("t")
        for what, message in made:
            with suppress(PalaverError):
                [entry] = store.append("t", [message]).entries
                kept.append((what, entry))
                expected = message.replace(id=entry.message.id, sent_at=entry.message.sent_at)
                assert entry.message == expected, f"{what}: another message was stored"
    assert {"payload surrogate", "provider huge", "sent_at -1", "tool nul"} <= {what for what, _ in kept}
    with open_handle() as again:
        for (what, entry), found in zip(kept, again.read("t"), strict=True):
            assert found == entry, f"{what}: came back as another message"
        assert again.verify().ok, "the store is damaged"


def _odd_messages() -> Iterator[tuple[str, Callable[[], Message]]]:
    """Ways to make messages of odd values, some of which are refused."""
    for what, value in odd_values():
        yield f"payload {what}", partial(user, payload=value)
        yield f"metadata {what}", partial(user, metadata={"a": [value]})
        yield f"provider {what}", partial(user, provider={"w": {"k": {"a": value}}})
    for number in (-1, 2**53 + 1, 2**63 - 1, 2**63, 2**70, 10**400):
        name = str(number)[:12]
        yield f"sent_at {name}", partial(user, sent_at=number)
        yield f"usage {name}", partial(assistant, usage=Usage(input=number))
    for what, text in (("surrogate", "a\udc00\ud800b"), ("nul", "\0"), ("long", "x" * 70_000), ("separator", "\u2028")):
        yield f"text {what}", partial(user, text)
        yield f"fields {what}", partial(user, agent=text, source=text, tags=(text, text))
        yield f"id {what}", partial(user, id=text)
        yield f"model {what}", partial(assistant, model=text, response_id=text, finish_reason_raw=text)
        yield f"tool {what}", partial(assistant, tool_call(text, {text: text}, id=text))


def invalid_json_hides_no_other_message(open_handle: OpenHandle) -> None:
    """Bytes that are no JSON hide no other message, and ``verify`` reports them."""
    with open_handle() as store:
        store.create("t")
        store.create("other")
        append_texts(store, "other", "apart")
        for number, message in enumerate(broken_messages()):
            append_texts(store, "t", f"before {number}")
            with older_writer():
                store.append("t", [message])
        append_texts(store, "t", "last")
        held = store.read("t")
    good = ["before 0", "before 1", "before 2", "last"]
    with open_handle() as again:
        assert texts(again.read("other")) == ["apart"], "another thread is closed"
        assert [text for text in texts(again.read("t")) if text in good] == good, "other messages are not read"
        append_texts(again, "t", "goes on")
        if list(again.read("t"))[: len(held)] != list(held):  # a store in memory has never written it
            assert not again.verify().ok, "verify does not report it"
