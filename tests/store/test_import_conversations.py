"""Conversations are taken in once, continued, and branched where they were edited."""

import pytest

import palaver as p
from palaver.store.import_conversations import ConversationImporter
from palaver.store.memory import MemoryStore

TALK = [p.system("s"), p.user("hi"), p.assistant("hello"), p.user("and now?"), p.assistant("this")]


def texts(store, taken):
    return [entry.message.text for entry in store.path(taken.thread, taken.branch)]


@pytest.mark.row("DAS-29")
def test_what_was_taken_in_adds_nothing_wherever_it_comes_from():
    store = MemoryStore()
    first = ConversationImporter(store).add(TALK, source="a.json", title="A")
    assert (first.new, first.known) == (5, 0)
    for source in ("a.json", "moved/a.json", None):
        again = ConversationImporter(store).add(list(TALK), source=source)
        assert (again.thread, again.new, again.known) == (first.thread, 0, 5)
    assert store.info(first.thread).length == 5
    assert len(list(store.threads())) == 1
    assert store.info(first.thread).title == "A"
    edited = ConversationImporter(store).add([*TALK[:2], p.user("else")], source="moved/a.json")
    assert (edited.thread, edited.known) == (first.thread, 2), "its other name was not noted"


def test_a_longer_conversation_continues_the_shorter():
    store = MemoryStore()
    intake = ConversationImporter(store)
    first = intake.add(TALK[:3])
    longer = intake.add(TALK)
    assert (longer.thread, longer.new, longer.known) == (first.thread, 2, 3)
    assert texts(store, longer) == [m.text for m in TALK]
    assert intake.add(TALK[:3]).new == 0
    store.append(first.thread, [p.user("of another hand")])
    beside = ConversationImporter(store).add([*TALK, p.user("more")])
    assert beside.thread != first.thread
    assert texts(store, beside) == [*[m.text for m in TALK], "more"]


def test_an_edited_source_becomes_a_branch_where_it_parts():
    store = MemoryStore()
    first = ConversationImporter(store).add(TALK, source="a.json")
    edited = [*TALK[:3], p.user("something else"), p.assistant("that")]
    branch = ConversationImporter(store).add(edited, source="a.json")
    assert (branch.thread, branch.branch, branch.new, branch.known) == (first.thread, "import-2", 2, 3)
    assert texts(store, branch) == [m.text for m in edited]
    assert texts(store, first) == [m.text for m in TALK]
    assert ConversationImporter(store).add(edited, source="b.json")[1:] == ("import-2", 0, 5)
    shorter = ConversationImporter(store).add(TALK[:2], source="a.json")
    assert (shorter.thread, shorter.branch, shorter.new) == (first.thread, "main", 0)
    assert set(store.info(first.thread).branches) == {"main", "import-2"}


def test_another_conversation_is_another_thread():
    store = MemoryStore()
    intake = ConversationImporter(store)
    first = intake.add(TALK, source="a.json")
    other = intake.add([p.user("else")], source="a.json")
    assert other.thread != first.thread
    nothing = intake.add([], source="empty.json")
    assert intake.add([]).thread == nothing.thread
    assert len(list(store.threads())) == 3


@pytest.mark.parametrize("cut", ["append", "update"])
def test_an_import_that_was_cut_off_goes_on(cut, monkeypatch):
    store = MemoryStore()

    def stop(*_args, **_options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store, cut, stop)
        with pytest.raises(KeyboardInterrupt):
            ConversationImporter(store).add(TALK, source="a.json")
    again = ConversationImporter(store).add(TALK, source="a.json")
    assert texts(store, again) == [m.text for m in TALK]
    assert len(list(store.threads())) == 1
    assert store.info(again.thread).length == 5


@pytest.mark.parametrize(
    "theirs", ["yes", 5, ["a"], {"conversations": ["x"]}, {"conversations": {"x": 1}, "sources": 2}]
)
def test_metadata_of_somebody_else_under_the_same_name_disturb_nothing(theirs):
    store = MemoryStore()
    store.create("t", metadata={"imported": theirs})
    assert ConversationImporter(store).add([p.user("a")], source="f").new == 1
    assert ConversationImporter(store).add([p.user("a")], source="f").new == 0
    assert store.info("t").metadata == {"imported": theirs}


def test_two_who_take_the_same_in_at_once_make_one_thread():
    store = MemoryStore()
    first, second = ConversationImporter(store), ConversationImporter(store)  # neither knows of the other
    taken = first.add(TALK, source="a.json")
    again = second.add(TALK, source="b.json")
    assert (again.thread, again.new) == (taken.thread, 0)
    assert texts(store, again) == [message.text for message in TALK]


def test_two_who_take_the_same_in_at_once_add_it_once(monkeypatch):
    store = MemoryStore()
    first, second = ConversationImporter(store), ConversationImporter(store)
    append = store.append

    def overtaken(*args, **options):
        monkeypatch.setattr(store, "append", append)
        assert second.add(TALK, source="b.json").new == len(TALK)
        return append(*args, **options)

    monkeypatch.setattr(store, "append", overtaken)
    taken = first.add(TALK, source="a.json")
    assert taken.new == 0
    assert [info.length for info in store.threads()] == [len(TALK)]
    assert texts(store, taken) == [message.text for message in TALK]


def test_what_another_process_took_in_meanwhile_is_continued():
    store = MemoryStore()
    one, two = ConversationImporter(store), ConversationImporter(store)
    first = one.add(TALK[:2])
    assert two.add(TALK[:2]).new == 0
    assert one.add(TALK[:3]).new == 1
    assert one.add(TALK[:4]).new == 1
    last = two.add(TALK)
    assert (last.thread, last.branch, last.new) == (first.thread, "main", 1)
    assert store.info(first.thread).length == 5


def test_a_conversation_whose_thread_was_deleted_is_taken_in_again():
    store = MemoryStore()
    intake = ConversationImporter(store)
    store.delete(intake.add(TALK, source="a.json").thread)
    again = intake.add(TALK, source="a.json")
    assert again.new == 5
    store.delete(again.thread)
    assert intake.add([*TALK, p.user("more")], source="a.json").new == 6
