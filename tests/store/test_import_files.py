"""Files go into a store as they are read, each once."""

from __future__ import annotations

import json

import pytest
from msgspec import structs

import palaver as p
from palaver import transcripts
from palaver.store import import_files
from palaver.store.import_files import FileImporter, FileState, ImportedConversation
from palaver.store.memory import MemoryStore
from palaver.store.sqlite import SQLiteStore
from palaver.transcripts.conversation import transcript_of

PI = transcripts.get("pi")
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


def take(store, data, taker=None, state=None, dialect=PI):
    reader = dialect.reader()
    steps = [*reader.feed(data), *reader.finish()]
    taken = list((taker or FileImporter(store)).add(steps, state, lambda: "digest"))
    (filed,) = (each for each in taken if isinstance(each, ImportedConversation))
    return filed


def said(store, branch="main"):
    return [e.message.text for e in store.path(HEADER["id"], branch) if "record" not in e.message.tags]


def test_a_file_is_a_thread_with_the_ids_of_the_file(store):
    taken = take(store, file_of(line(0, "What is\nthis?"), line(1, "and that?")))
    assert taken == ImportedConversation(HEADER["id"], 2, 2, "What is")
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


@pytest.mark.finding("S-02")
def test_an_edited_file_is_a_branch_beside_what_it_said_before(store):
    data = file_of(line(0, "one"), line(1, "two"), line(2, "three"))
    edited = file_of(line(0, "one"), line(1, "TWO"), line(2, "three"))
    take(store, data)
    again = take(store, edited)
    assert (again.messages, again.new, again.branch) == (3, 2, "import-2")
    assert said(store) == ["one", "two", "three"]
    assert said(store, "import-2") == ["one", "TWO", "three"]
    assert len(store.read(HEADER["id"])) == 6
    written = PI.write(structs.replace(transcript_of([]), thread=store.load(HEADER["id"])))
    assert written.body == data
    before = store.info(HEADER["id"])
    assert take(store, data) == ImportedConversation(HEADER["id"], 3, 0, "one")
    assert take(store, edited) == ImportedConversation(HEADER["id"], 3, 0, "one", "import-2")
    assert store.info(HEADER["id"]) == before


@pytest.mark.finding("S-02")
def test_each_version_of_a_file_goes_on_on_its_own_branch(store):
    take(store, file_of(line(0, "one"), line(1, "two")))
    take(store, file_of(line(0, "one"), line(1, "TWO")))
    take(store, file_of(line(0, "one"), line(1, "2")))
    assert take(store, file_of(line(0, "one"), line(1, "TWO"), line(2, "three"))).branch == "import-2"
    assert take(store, file_of(line(0, "one"), line(1, "2"), line(2, "three"))).branch == "import-3"
    assert take(store, file_of(line(0, "one"), line(1, "two"), line(2, "three"))).branch is None
    assert said(store) == ["one", "two", "three"]
    assert said(store, "import-2") == ["one", "TWO", "three"]
    assert said(store, "import-3") == ["one", "2", "three"]
    assert set(store.info(HEADER["id"]).branches) == {"main", "import-2", "import-3"}


@pytest.mark.finding("S-02")
@pytest.mark.parametrize("lines", [1, 2])
def test_a_file_that_ends_sooner_moves_nothing(store, lines):
    every = [line(0, "one"), line(1, "two"), line(2, "three")]
    take(store, file_of(*every))
    before = store.info(HEADER["id"])
    taken = take(store, file_of(*every[:lines]))
    assert (taken.messages, taken.new, taken.branch) == (lines, 0, None)
    assert store.info(HEADER["id"]) == before


@pytest.mark.finding("S-02")
def test_a_file_that_breaks_off_within_a_line_takes_nothing_from_a_branch(store):
    data = file_of(line(0, "one"), line(1, "two"), line(2, "three"))
    take(store, data)
    head = store.info(HEADER["id"]).branches["main"]
    assert take(store, data[:-40]).branch == "import-2"
    assert store.info(HEADER["id"]).branches["main"] == head
    assert take(store, data).branch is None
    assert store.info(HEADER["id"]).branches["main"] == head


@pytest.mark.finding("S-02")
def test_a_line_that_was_half_written_is_no_other_version(store):
    data = file_of(line(0, "one"), line(1, "two"), line(2, "three"))
    assert take(store, data[:-40]).messages == 2
    again = take(store, data)
    assert (again.messages, again.new, again.branch) == (3, 1, None)
    assert said(store) == ["one", "two", "three"]
    assert set(store.info(HEADER["id"]).branches) == {"main"}


@pytest.mark.finding("F-16")
@pytest.mark.parametrize("reordered_first", [False, True])
def test_the_same_lines_in_another_order_are_no_other_version(store, reordered_first):
    said = [
        {"type": "user", "uuid": "u1", "message": {"role": "user", "content": "look"}},
        {"type": "assistant", "uuid": "a1", "message": answer("m1", called)},
        {"type": "user", "uuid": "u2", "message": {"role": "user", "content": [result]}},
        {"type": "assistant", "uuid": "a2", "message": answer("m2", {"type": "text", "text": "Done."})},
    ]
    parents = [None, "u1", "a1", "u2"]
    lines = [{"parentUuid": up, "sessionId": HEADER["id"], **each} for up, each in zip(parents, said, strict=True)]
    written = [json.dumps(each).encode() + b"\n" for each in lines]
    versions = [b"".join(written), b"".join([written[0], written[1], written[3], written[2]])]
    first, second = versions[::-1] if reordered_first else versions
    reader = transcripts.get("claude_code")
    taken = take(store, first, dialect=reader)
    assert (taken.messages, taken.new) == (4, 4)
    before = store.info(taken.thread)
    again = take(store, second, dialect=reader)
    assert (again.messages, again.new, again.branch) == (4, 0, None)
    assert store.info(taken.thread).branches == before.branches
    assert len(store.read(taken.thread)) == 4


called = {"type": "tool_use", "id": "toolu_9", "name": "Bash", "input": {"command": "ls"}}
result = {"type": "tool_result", "tool_use_id": "toolu_9", "content": "pear.txt"}


def answer(number, block):
    usage = {"input_tokens": 10, "output_tokens": 5}
    fields = {"type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn", "usage": usage}
    return {"id": number, "content": [block], **fields}


@pytest.mark.finding("S-02")
@pytest.mark.parametrize("marked_first", [False, True])
def test_a_byte_order_mark_or_other_line_breaks_make_no_second_copy(store, marked_first):
    data = file_of(line(0, "one"), line(1, "two"))
    versions = [data, b"\xef\xbb\xbf" + data, data.replace(b"\n", b"\r\n")]
    for number, version in enumerate(reversed(versions) if marked_first else versions):
        taken = take(store, version)
        assert (taken.messages, taken.new, taken.branch) == (2, 0 if number else 2, None)
    assert len(store.read(HEADER["id"])) == 3


@pytest.mark.finding("S-02")
def test_a_damaged_line_takes_nothing_from_a_branch(store):
    data = file_of(line(0, "one"), line(1, "two"), line(2, "three"))
    take(store, data)
    before = store.info(HEADER["id"]).branches
    take(store, data.replace(b"two", b"t\xffo"))
    assert before.items() <= store.info(HEADER["id"]).branches.items()
    written = PI.write(structs.replace(transcript_of([]), thread=store.load(HEADER["id"])))
    assert written.body == data


@pytest.mark.finding("S-02")
def test_a_rewind_in_the_file_moves_the_branch_as_the_file_still_has_what_it_left(store):
    lines = [line(0, "one"), line(1, "two"), line(2, "three")]
    take(store, file_of(*lines))
    rewound = take(store, file_of(*lines, line(3, "else", parent="e1")))
    assert (rewound.new, rewound.branch) == (1, None)
    assert said(store) == ["one", "two", "else"]
    assert said(store, "branch-1") == ["one", "two", "three"]


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
    list(FileImporter(store).add(steps[:500]))
    assert 0 < store.info(HEADER["id"]).length < 500
    again = take(store, data)
    assert again.messages == 700
    assert 0 < again.new < 700
    assert said(store) == [f"say {number}" for number in range(700)]


def test_a_file_that_has_not_changed_is_not_read_again(store):
    data = file_of(line(0, "one"))
    state = FileState("/x.jsonl", len(data), 5 * SECOND, 60 * SECOND)
    take(store, data, state=state)
    taker = FileImporter(store)

    def never():
        raise AssertionError

    assert taker.unchanged(state, never) == (ImportedConversation(HEADER["id"], 1, 0, "one"),)
    assert taker.unchanged(structs.replace(state, size=1), never) is None
    assert taker.unchanged(structs.replace(state, path="/y.jsonl"), never) is None
    touched = structs.replace(state, changed_at=9 * SECOND)
    assert taker.unchanged(touched, lambda: "digest") is not None
    assert taker.unchanged(touched, lambda: "other") is None


def test_a_file_that_changed_just_before_it_was_read_may_have_changed_since(store):
    data = file_of(line(0, "one"))
    state = FileState("/x.jsonl", len(data), 59 * SECOND, 60 * SECOND)
    take(store, data, state=state)
    assert FileImporter(store).unchanged(state, lambda: "other") is None


def test_a_thread_that_was_deleted_is_taken_in_again(store):
    data = file_of(line(0, "one"))
    state = FileState("/x.jsonl", len(data), 5 * SECOND, 60 * SECOND)
    taker = FileImporter(store)
    take(store, data, taker, state)
    store.delete(HEADER["id"])
    assert taker.unchanged(state, str) is None
    assert take(store, data, taker, state).new == 1


@pytest.mark.finding("F-109")
def test_an_edited_file_with_many_branches_takes_steps_in_proportion(monkeypatch):
    taken = []
    up = import_files._Tree.up

    def counted(self, entry):
        for each in up(self, entry):
            taken.append(each)
            yield each

    monkeypatch.setattr(import_files._Tree, "up", counted)
    spent = {}
    for many in (100, 200):
        with MemoryStore() as store:
            for end in ("", " edited"):
                chain = [line(number, "talk") for number in range(2 * many)]
                forks = [line(1000 + number, f"fork{end}", parent=f"e{2 * number}") for number in range(many)]
                taken.clear()
                take(store, file_of(*chain, *forks))
            assert len(store.info(HEADER["id"]).branches) == 2 * many + 1
            spent[many] = len(taken)
    assert 0 < spent[200] < 3 * spent[100]
    assert spent[200] < 3000


@pytest.mark.finding("F-109")
def test_when_the_steps_are_spent_a_head_gets_a_branch_of_its_own(store, monkeypatch):
    monkeypatch.setattr(import_files, "_MIN_STEPS", 0)
    monkeypatch.setattr(import_files, "_STEPS", 0)
    take(store, file_of(line(0, "one"), line(1, "two")))
    take(store, file_of(line(0, "one"), line(1, "TWO")))
    assert take(store, file_of(line(0, "one"), line(1, "TWO"), line(2, "three"))).branch == "import-3"
    assert said(store) == ["one", "two"]
    assert said(store, "import-2") == ["one", "TWO"]
    assert said(store, "import-3") == ["one", "TWO", "three"]
