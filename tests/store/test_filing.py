"""Files go into a store as they are read, each once."""

from __future__ import annotations

import json

import pytest
from msgspec import structs

import palaver as p
from palaver import dialects
from palaver.dialects.conversation import transcript_of
from palaver.store.filing import Filed, FileState, Filing
from palaver.store.memory import MemoryStore
from palaver.store.sqlite import SQLiteStore

PI = dialects.get("pi")
HEADER = {"type": "session", "version": 3, "id": "0192f0c4-0000-7000-8000-000000000009", "timestamp": "t", "cwd": "/w"}
SECOND = 1_000_000_000


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    with MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "threads.db") as opened:
        yield opened


def line(number, said, parent=None, role="user"):
    message = {"role": role, "content": said, "timestamp": 1_700_000_000_000 + number}
    if role == "assistant":
        message |= {"api": "x", "provider": "y", "model": "m", "stopReason": "stop", "content": []}
    follows = f"e{number - 1}" if parent is None and number else parent
    return {"type": "message", "id": f"e{number}", "parentId": follows, "timestamp": "t", "message": message}


def file_of(*lines):
    return b"".join(json.dumps(each).encode() + b"\n" for each in (HEADER, *lines))


def take(store, data, filing=None, state=None):
    reader = PI.reader()
    steps = [*reader.feed(data), *reader.finish()]
    taken = list((filing or Filing(store)).take(steps, state, lambda: "digest"))
    (filed,) = (each for each in taken if isinstance(each, Filed))
    return filed


def said(store, branch="main"):
    return [e.message.text for e in store.path(HEADER["id"], branch) if "record" not in e.message.tags]


def test_a_file_is_a_thread_with_the_ids_of_the_file(store):
    taken = take(store, file_of(line(0, "What is\nthis?"), line(1, "and that?")))
    assert taken == Filed(HEADER["id"], 2, 2, "What is")
    assert said(store) == ["What is\nthis?", "and that?"]
    assert store.info(HEADER["id"]).metadata["session"]["cwd"] == "/w"
    assert store.read(HEADER["id"])[1].id == "e0"


def test_reading_it_again_adds_nothing(store):
    data = file_of(line(0, "one"), line(1, "two"))
    take(store, data)
    before = store.info(HEADER["id"])
    again = take(store, data)
    assert (again.messages, again.new) == (2, 0)
    assert store.info(HEADER["id"]) == before


def test_a_file_that_goes_on_adds_what_is_new(store):
    take(store, file_of(line(0, "one"), line(1, "two")))
    again = take(store, file_of(line(0, "one"), line(1, "two"), line(2, "three")))
    assert (again.messages, again.new, again.branch) == (3, 1, None)
    assert said(store) == ["one", "two", "three"]


def test_an_edited_file_stands_beside_what_it_said_before(store):
    take(store, file_of(line(0, "one"), line(1, "two"), line(2, "three")))
    again = take(store, file_of(line(0, "one"), line(1, "TWO"), line(2, "three")))
    assert (again.messages, again.new) == (3, 2)
    assert said(store) == ["one", "TWO", "three"]
    assert len(store.read(HEADER["id"])) == 6
    written = PI.write(structs.replace(transcript_of([]), thread=store.load(HEADER["id"])))
    assert written.body == file_of(line(0, "one"), line(1, "TWO"), line(2, "three"))


def test_a_branch_that_somebody_moved_on_stays(store):
    take(store, file_of(line(0, "one"), line(1, "two")))
    store.append(HEADER["id"], [p.user("said here")])
    again = take(store, file_of(line(0, "one"), line(1, "two"), line(2, "three")))
    assert again.branch == "import-2"
    assert said(store) == ["one", "two", "said here"]
    assert said(store, "import-2") == ["one", "two", "three"]
    again = take(store, file_of(line(0, "one"), line(1, "two"), line(2, "three")))
    assert (again.new, again.branch) == (0, "import-2")
    assert set(store.info(HEADER["id"]).branches) == {"main", "import-2"}


def test_what_was_said_here_behind_the_file_is_no_branch_of_the_file(store):
    data = file_of(line(0, "one"), line(1, "two"))
    take(store, data)
    store.append(HEADER["id"], [p.user("said here")])
    assert take(store, data).branch is None
    assert set(store.info(HEADER["id"]).branches) == {"main"}


def test_an_import_that_was_cut_off_goes_on(store, monkeypatch):
    data = file_of(*(line(number, f"say {number}") for number in range(700)))
    reader = PI.reader()
    steps = [*reader.feed(data), *reader.finish()]
    list(Filing(store).take(steps[:500]))
    assert 0 < store.info(HEADER["id"]).length < 500
    again = take(store, data)
    assert again.messages == 700
    assert 0 < again.new < 700
    assert said(store) == [f"say {number}" for number in range(700)]


def test_a_file_that_has_not_changed_is_not_read_again(store):
    data = file_of(line(0, "one"))
    state = FileState("/x.jsonl", len(data), 5 * SECOND, 60 * SECOND)
    take(store, data, state=state)
    filing = Filing(store)

    def never():
        raise AssertionError

    assert filing.unchanged(state, never) == (Filed(HEADER["id"], 1, 0, "one"),)
    assert filing.unchanged(structs.replace(state, size=1), never) is None
    assert filing.unchanged(structs.replace(state, path="/y.jsonl"), never) is None
    touched = structs.replace(state, changed_at=9 * SECOND)
    assert filing.unchanged(touched, lambda: "digest") is not None
    assert filing.unchanged(touched, lambda: "other") is None


def test_a_file_that_changed_just_before_it_was_read_may_have_changed_since(store):
    data = file_of(line(0, "one"))
    state = FileState("/x.jsonl", len(data), 59 * SECOND, 60 * SECOND)
    take(store, data, state=state)
    assert Filing(store).unchanged(state, lambda: "other") is None


def test_a_thread_that_was_deleted_is_taken_in_again(store):
    data = file_of(line(0, "one"))
    state = FileState("/x.jsonl", len(data), 5 * SECOND, 60 * SECOND)
    filing = Filing(store)
    take(store, data, filing, state)
    store.delete(HEADER["id"])
    assert filing.unchanged(state, str) is None
    assert take(store, data, filing, state).new == 1
