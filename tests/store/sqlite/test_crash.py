"""A file whose writer was killed, a file with changed bytes, a file that was cut (law 8)."""

import random
import shutil
import sqlite3
from contextlib import closing

import pytest

import palaver as p
from palaver.core.errors import StoreError
from palaver.store.memory import MemoryStore
from palaver.store.records import is_unreadable
from palaver.store.sqlite import SQLiteStore, recover, verify
from tests.store import crash

FLIPS = 60
WORDS = [f"word{number}" for number in range(400)]


@pytest.mark.law(8)
@pytest.mark.parametrize("times", [8, pytest.param(200, marks=pytest.mark.long)])
def test_what_was_acknowledged_survives_a_kill(tmp_path, times):
    assert crash.survive(str(tmp_path / "palaver.db"), times) > times


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A store of several threads, branches, sizes and blobs, closed."""
    path = tmp_path_factory.mktemp("sound") / "palaver.db"
    rng = random.Random(3)
    with SQLiteStore(path, sync="normal") as store:
        for name in ("a", "b", "c"):
            store.create(name, title=name.upper(), tags=["x"], metadata={"n": 1})
            for count in range(40):
                texts = [" ".join(rng.choices(WORDS, k=rng.choice([3, 30, 600]))) for _ in range(rng.randint(1, 3))]
                store.append(name, [p.user(text) for text in texts], key=f"k{count}")
            head = store.path(name)[10].id
            store.fork(name, "side", at=head)
            store.append(
                name, [p.assistant("on the side"), p.user(p.Image.from_bytes(rng.randbytes(9000)))], branch="side"
            )
            store.append(name, [p.user("x" * 40_000 + rng.randbytes(9000).hex())])
        store.index()
    return path


def everything(store):
    """All that a store says, by thread."""
    return {info.id: (info, list(store.read(info.id))) for info in store.threads()}


def readable(path):
    """The entries that can be read one by one, by thread, though others cannot."""
    found = {}
    try:
        with SQLiteStore(path) as store:
            for info in store.threads():
                for place in range(info.length):
                    try:
                        found.setdefault(info.id, []).extend(store.read(info.id, start=place, stop=place + 1))
                    except StoreError:
                        continue
    except StoreError:
        pass
    return found


def saved(path):
    """What can be saved of a file, and the report."""
    into = MemoryStore()
    report = recover(path, into)
    return into, report


def said(store):
    """The messages of all entries, by their ids; those whose entries are lost have none of their own."""
    names = [info.id for info in store.threads() if info.id != "recovered-messages"]
    return {entry.id: entry.message for name in names for entry in store.read(name)}


def test_all_of_a_sound_file_is_saved(sound):
    into, report = saved(sound)
    assert report.ok, report.lost
    with SQLiteStore(sound) as store:
        assert said(into) == said(store)
        for info in store.threads():
            copy = into.info(info.id)
            assert (copy.title, copy.tags, dict(copy.metadata), dict(copy.branches)) == (
                (info.title, info.tags, dict(info.metadata), dict(info.branches))
            )
    again = recover(sound, into)
    assert again.ok


@pytest.mark.law(8)
@pytest.mark.parametrize("seed", range(FLIPS))
@pytest.mark.share(3)
def test_a_changed_byte_is_reported_or_harmless_and_the_rest_is_recovered(sound, tmp_path, seed):
    path = tmp_path / "palaver.db"
    shutil.copyfile(sound, path)
    with SQLiteStore(sound) as store:
        before = everything(store)
        messages = said(store)
    data = bytearray(path.read_bytes())
    rng = random.Random(seed)
    place = rng.randrange(200) if seed < 10 else rng.randrange(len(data))
    data[place] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    damaged = not verify(path).ok
    into, report = saved(path)
    found = said(into)
    for entries in readable(path).values():
        for entry in entries:
            assert entry.id in found or is_unreadable(entry.message), f"byte {place}: lost, though it can be read"
    assert all(messages[entry] == message for entry, message in found.items()), "made up"
    assert len(found) >= len(messages) - 30, f"byte {place}: {report}"
    if not damaged:
        with SQLiteStore(path) as store:
            assert everything(store) == before, f"byte {place}: not told"


@pytest.mark.law(8)
@pytest.mark.parametrize("seed", range(12))
def test_a_cut_file_is_reported_and_the_rest_is_recovered(sound, tmp_path, seed):
    path = tmp_path / "palaver.db"
    shutil.copyfile(sound, path)
    with SQLiteStore(sound) as store:
        messages = said(store)
    with path.open("r+b") as file:
        file.truncate(random.Random(seed).randrange(1, path.stat().st_size))
    assert not verify(path).ok
    into, report = saved(path)
    found = said(into)
    assert found.items() <= messages.items()
    assert not report.ok or found == messages  # what was cut off may be the index alone


@pytest.mark.parametrize("step", [8, pytest.param(1, marks=pytest.mark.long)])
def test_a_zeroed_page_loses_what_stood_on_it_and_nothing_else(sound, tmp_path, step):
    path = tmp_path / "palaver.db"
    shutil.copyfile(sound, path)
    with SQLiteStore(sound) as store:
        messages = said(store)
    data = path.read_bytes()
    for page in range(0, len(data) // 8192, step):
        path.write_bytes(data[: page * 8192] + bytes(8192) + data[(page + 1) * 8192 :])
        assert not verify(path).ok or said_of(path) == messages
        found = said(saved(path)[0])
        assert found.items() <= messages.items()
        if page == 0:
            assert found == messages, "the first page holds no message"


def test_rows_are_found_whatever_the_type_of_their_page_says(sound, tmp_path):
    path = tmp_path / "palaver.db"
    data = bytearray(sound.read_bytes())
    for start in range(8192, len(data), 8192):
        data[start] = {2: 5, 5: 2, 10: 13, 13: 10}.get(data[start], data[start])
    path.write_bytes(data)
    assert not verify(path).ok
    assert said(saved(path)[0]) == said_of(sound)


def said_of(path):
    with SQLiteStore(path) as store:
        return said(store)


def test_an_entry_whose_parent_is_lost_begins_a_branch(tmp_path):
    path = tmp_path / "palaver.db"
    with SQLiteStore(path) as store:
        store.create("t")
        ids = [entry.id for entry in store.append("t", [p.user(f"message {n} " + "x" * 200) for n in range(5)]).entries]
    data = path.read_bytes()
    place = data.index(b"message 2")
    path.write_bytes(data[:place] + b"M" + data[place + 1 :])
    damage = verify(path).damage
    assert [(each.kind, each.thread, each.entry) for each in damage] == [("altered", "t", ids[2])]
    into, report = saved(path)
    assert [entry.message.text[:9] for entry in into.path("t", "recovered-2")] == ["message 3", "message 4"]
    assert [entry.message.text[:9] for entry in into.path("t", "recovered-1")] == ["message 0", "message 1"]
    assert [entry.id for entry in into.read("t")] == [ids[0], ids[1], ids[3], ids[4]]
    assert {each.entry for each in report.lost} == {ids[2], ids[3]}


@pytest.mark.finding("F-111")
def test_messages_whose_entries_are_lost_are_saved_and_deleted_ones_are_not(tmp_path):
    path = tmp_path / "palaver.db"
    with SQLiteStore(path) as store:
        for name in ("t", "gone"):
            store.create(name)
            store.append(name, [p.user(f"{name} {count}") for count in range(3)])
        store.delete("gone")
    into, report = saved(path)
    assert report.ok
    assert [info.id for info in into.threads()] == ["t"]
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA secure_delete = 1")
        db.execute("DELETE FROM states")
        db.execute("DELETE FROM entries WHERE place = 1")
        db.commit()
    into, report = saved(path)
    assert "t 1" in [entry.message.text for entry in into.path("recovered-messages")]
    assert any(each.thread == "recovered-messages" for each in report.lost)
    before = said(into)
    recover(path, into)
    assert said(into) == before


def test_a_file_that_is_no_database_is_damage(tmp_path):
    path = tmp_path / "palaver.db"
    path.write_bytes(b"no database at all" * 1000)
    assert not verify(path).ok
    assert not verify(tmp_path / "nothing").ok
    assert saved(path)[1].entries == 0
