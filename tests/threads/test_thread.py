"""The tree: what joins it is stamped once, nothing leaves it, and a path costs what is new."""

import pytest
from hypothesis import given, strategies as st

import palaver as p
from palaver.core.errors import ConflictError, NotFoundError, StoreError
from palaver.testing import strategies
from palaver.threads import MAIN, Entry, Path, Thread
from palaver.threads.ids import is_uuid

MESSAGES = st.lists(strategies.any_messages(), max_size=3)
ROLES = [
    p.system("x"),
    p.developer("x"),
    p.user("x"),
    p.assistant("x"),
    p.tool("x", tool_call_id="1"),
    p.rescue("x"),
    p.flush(),
]


def frozen():
    return Thread("t", clock=lambda: 1_700_000_000_000)


@pytest.mark.row("MSG-06", "CBF-05")
@pytest.mark.conflict("C9", "C10")
@pytest.mark.parametrize("message", ROLES, ids=lambda message: message.role)
def test_a_message_is_stamped_when_it_joins_once_on_every_role(message):
    (entry,) = frozen().append(message)
    assert is_uuid(entry.id)
    assert entry.message == message.replace(id=entry.id, sent_at=1_700_000_000_000)
    assert (message.id, message.sent_at) == (None, None)
    (again,) = frozen().append(entry.message)
    assert again.message == entry.message
    assert again.id != entry.id


@pytest.mark.row("MSG-06", "CBF-05")
@pytest.mark.parametrize("message", ROLES, ids=lambda message: message.role)
def test_what_is_set_is_kept(message):
    given = message.replace(id="", sent_at=0)
    assert frozen().append(given)[0].message is given
    assert frozen().append(message.replace(sent_at=7))[0].message.sent_at == 7


def test_a_thread_branches_and_loses_nothing():
    thread = frozen()
    a, b, c = thread.append(p.user("a"), p.assistant("b"), p.user("c"))
    assert thread.fork("edit", at=a.id) == a.id
    (d,) = thread.append(p.assistant("d"), branch="edit")
    assert list(thread.path()) == [a, b, c]
    assert list(thread.path("edit")) == [a, d]
    assert thread.leaves == (c.id, d.id)
    assert thread.children(a.id) == (b.id, d.id)
    assert thread.children(None) == (a.id,)
    thread.rewind(a.id)
    assert thread.path().leaf == a.id
    assert thread.leaves == (c.id, d.id)
    assert list(thread.path(c.id)) == [a, b, c]
    assert list(thread.entries) == [a, b, c, d]
    assert thread.entry(d.id) is d
    assert d.id in thread
    assert len(thread) == 4


def test_a_path_never_changes_under_its_holder():
    thread = frozen()
    thread.append(p.user("a"))
    held = thread.path()
    before = list(held)
    thread.append(p.user("b"))
    thread.path()
    thread.rewind(None)
    thread.append(p.user("c"))
    assert list(held) == before == held[:]
    assert held[-1] is held[0]
    assert held.leaf == before[0].id
    assert held.messages == (before[0].message,)
    with pytest.raises(IndexError):
        held[1]
    with pytest.raises(IndexError):
        held[-2]
    assert held != before
    assert held == Path(before)
    assert list(thread.path()[::-1]) == list(thread.path())


@pytest.mark.row("ASK-30")
def test_a_path_after_an_append_walks_only_over_what_is_new():
    thread = frozen()
    thread.append(*[p.user(str(n)) for n in range(1_000)])
    first = thread.path()
    walked = []

    class Counting(dict):
        def __getitem__(self, key):
            walked.append(key)
            return super().__getitem__(key)

    thread._at = Counting(thread._at)
    thread.append(p.user("one"), p.user("two"))
    second = thread.path()
    assert len(walked) == 2
    assert second._items is first._items
    assert len(first) == 1_000
    assert len(second) == 1_002
    thread.fork("side")
    assert len(walked) == 3  # only that the place is there


def test_the_second_writer_gets_a_conflict():
    thread = frozen()
    (a,) = thread.append(p.user("a"), expect=None)
    with pytest.raises(ConflictError, match="moved on") as caught:
        thread.append(p.user("b"), expect=None)
    assert caught.value.found == a.id
    with pytest.raises(ConflictError):
        thread.rewind(None, expect="other")
    assert len(thread) == 1
    with pytest.raises(ConflictError):
        thread.fork(MAIN)


def test_names_find_entries():
    thread = frozen()
    a, b = thread.append(p.user("a"), p.user("b"))
    assert thread.find(MAIN) == b.id
    assert thread.find(a.id) == a.id
    assert thread.find(a.id[:-1]) == a.id
    alone = frozen()
    (only,) = alone.append(p.user("a"))
    assert alone.find(only.id[:4]) == only.id
    with pytest.raises(NotFoundError):
        alone.find(only.id[:3])
    for unknown in ("", "x", a.id[:3], a.id[:8], "other"):
        with pytest.raises(NotFoundError, match="thread t"):
            thread.path(unknown)
    for call in (
        lambda: thread.entry("x"),
        lambda: thread.fork("n", at="x"),
        lambda: thread.rewind("x"),
        lambda: thread.append(p.user("x"), branch="x"),
    ):
        with pytest.raises(NotFoundError):
            call()


def test_entries_are_added_as_they_are_or_not_at_all():
    source = frozen()
    a, b = source.append(p.user("a"), p.user("b"))
    copy = Thread("copy")
    assert copy.add([a], {MAIN: a.id}) == 1
    assert copy.path().messages == (a.message,)
    assert copy.add([a, b], {MAIN: b.id, "x": None}) == 1
    assert list(copy.path()) == [a, b]
    assert copy.add([b]) == 0
    stray = Entry("z", "nowhere", p.user("z"))
    other = Entry(b.id, a.id, p.user("other"))
    elsewhere = Entry(b.id, None, b.message)
    for entries, heads in (([stray], {}), ([other], {}), ([elsewhere], {}), ([], {"y": "nowhere"})):
        with pytest.raises(StoreError, match="thread copy"):
            copy.add([Entry("new", None, p.user("new")), *entries], heads)
    assert list(copy.entries) == [a, b]
    assert dict(copy.branches) == {MAIN: b.id, "x": None}


@given(st.data())
def test_a_path_is_what_walking_up_gives(data):
    """Whatever is appended, forked and rewound, in whatever order paths are taken."""
    thread = Thread()
    for _ in range(data.draw(st.integers(0, 25))):
        branch = data.draw(st.sampled_from(sorted(thread.branches)))
        match data.draw(st.sampled_from(["append", "append", "fork", "rewind", "path"])):
            case "append":
                thread.append(*data.draw(MESSAGES), branch=branch)
            case "fork" if len(thread.branches) < 4:
                at = data.draw(st.sampled_from([None, *[entry.id for entry in thread.entries]]))
                thread.fork(f"b{len(thread.branches)}", at=at)
            case "rewind":
                thread.rewind(data.draw(st.sampled_from([None, *[e.id for e in thread.entries]])), branch=branch)
            case _:
                thread.path(branch)
    for branch, head in thread.branches.items():
        walked, leaf = [], head
        while leaf is not None:
            walked.append(thread.entry(leaf))
            leaf = walked[-1].parent
        assert list(thread.path(branch)) == walked[::-1]
    assert set(thread.leaves) == {e.id for e in thread.entries} - {e.parent for e in thread.entries}


def test_reprs_are_short():
    thread = frozen()
    thread.append(p.user("x" * 10_000))
    assert len(repr(thread)) < 100
    assert len(repr(thread.path())) < 100
    assert len(repr(thread.entries[0])) < 400
