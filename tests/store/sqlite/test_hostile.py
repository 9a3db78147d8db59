"""A file that another program wrote to: whatever stands in it, a value that was written is read, or one error."""

import shutil
import sqlite3
import struct
from contextlib import closing, suppress

import pytest

import palaver as p
from palaver.core.errors import DamageError, StoreError
from palaver.store.memory import MemoryStore
from palaver.store.records import is_unreadable
from palaver.store.sqlite import SQLiteStore, recover, verify
from palaver.store.sqlite.pages import Pages
from palaver.store.sqlite.schema import row_mark
from palaver.store.store import Query

TABLES = {
    "threads": ("number", "id", "created_at", "updated_at", "length", "mark"),
    "abouts": ("thread", "data", "mark"),
    "branches": ("thread", "name", "head", "mark"),
    "moves": ("thread", "number", "at", "branch", "head", "mark"),
    "keys": ("thread", "key", "first", "count", "mark"),
    "entries": ("thread", "place", "id", "parent", "stamps", "sent_at", "body", "seal"),
    "bodies": ("id", "digest", "encoding", "size", "data"),
    "blobs": ("id", "encoding", "digest", "size", "data"),
    "uses": ("body", "blob"),
    "states": ("name", "value"),
}
WHERE = {
    "threads": "number = 1",
    "abouts": "thread = 1",
    "bodies": "id = 2",
    "blobs": "id = 1",
    "branches": "thread = 1 AND name = 'main'",
    "moves": "thread = 1 AND number = 1",
    "keys": "thread = 1",
    "entries": "thread = 1 AND place = 1",
    "uses": "1",
    "states": "name = 'indexed'",
}
VALUES = (None, 7, -(1 << 63), 0.5, "x", b"x", b"\x00" * 17 + b"\xed\xa0\x80")


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A store, and what it says."""
    path = tmp_path_factory.mktemp("sound") / "palaver.db"
    with SQLiteStore(path, sync="normal") as store:
        store.create("a", title="A", tags=["x"])
        store.append("a", [p.user("alpha " * 300), p.user(p.Image.from_bytes(bytes(range(256)) * 8))], key="k")
        store.fork("a", "side", at=store.path("a")[0].id)
        store.append("a", [p.assistant("beta")], branch="side")
        store.create("b")
        store.append("b", [p.user("alpha")])
        store.search(Query(text="alpha"))
        store.append("b", [p.user("gamma")])
        said = {entry.id: entry for name in ("a", "b") for entry in store.read(name)}
    return path, said


def asks(store):
    """What can be asked of a store; each gives the entries that it read."""
    yield lambda: [list(store.threads()), []][1]
    for name in ("a", "b"):
        yield lambda name=name: store.read(name)
        yield lambda name=name: store.path(name)
        yield lambda name=name: store.load(name).entries
    yield lambda: store.path("a", "side")
    yield lambda: store.path("a", store.path("a")[0].id[:30])
    yield lambda: [hit.entry for hit in store.search(Query(text="alpha"))]
    yield lambda: [hit.entry for hit in store.search(Query(role="user", thread="a"))]


def writes(store, said):
    """What can be written to a store."""
    yield lambda: store.update("a", title="z")
    yield lambda: store.fork("a", "new")
    yield lambda: store.append("a", [p.user("alpha")], key="k")
    yield lambda: store.append("a", [p.user("more")], branch="side")
    yield lambda: store.append("b", [p.user("more")])
    yield lambda: store.add("a", list(said.values())[:2])
    yield lambda: store.rewind("a", None)
    yield lambda: store.delete("b")
    yield store.gc


COLUMNS = [f"{table}.{column}" for table, columns in TABLES.items() for column in columns]


@pytest.mark.law(6, 8)
@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_may_hold_anything(sound, tmp_path, column, step):
    """By default two or three of the values, other ones in the next column."""
    path, said = sound
    table, _, name = column.partition(".")
    for number, value in enumerate(VALUES[COLUMNS.index(column) % step :: step]):
        hurt = tmp_path / f"{number}.db"
        shutil.copyfile(path, hurt)
        with closing(sqlite3.connect(hurt, isolation_level=None)) as db, suppress(sqlite3.IntegrityError):
            db.execute("PRAGMA synchronous = off")
            db.execute(f"UPDATE {table} SET {name} = ? WHERE {WHERE[table]}", (value,))
        verify(hurt)
        into = MemoryStore()
        recover(hurt, into)
        for info in (each for each in into.threads() if each.id != "recovered-messages"):
            for entry in into.read(info.id):
                assert said[entry.id].message == entry.message, f"{value!r}: made up"
        with SQLiteStore(hurt, sync="normal") as store:
            for ask in asks(store):
                with suppress(StoreError):
                    found = [entry for entry in ask() if not is_unreadable(entry.message)]
                    assert all(said[entry.id] == entry for entry in found), f"{value!r}: another answer"
            for write in writes(store, said):
                with suppress(StoreError):
                    write()


@pytest.mark.law(6)
def test_a_hit_whose_thread_or_entry_is_gone_is_one_error(sound, tmp_path):
    """An index may tell of rows that are not there."""
    for number, statement in enumerate(("DELETE FROM threads", "DELETE FROM entries WHERE thread = 1 AND place = 0")):
        hurt = tmp_path / f"{number}.db"
        shutil.copyfile(sound[0], hurt)
        with closing(sqlite3.connect(hurt, isolation_level=None)) as db:
            db.execute(statement)
        with SQLiteStore(hurt, sync="normal") as store:
            for query in (Query(text="alpha"), Query(role="user")):
                with suppress(DamageError):
                    assert all(hit.entry.id in sound[1] for hit in store.search(query))
        assert not verify(hurt).ok


@pytest.mark.law(8)
def test_an_entry_does_not_follow_an_altered_id(sound, tmp_path):
    """Who reads one entry alone reads the id of the one before it too."""
    hurt = tmp_path / "palaver.db"
    shutil.copyfile(sound[0], hurt)
    with closing(sqlite3.connect(hurt, isolation_level=None)) as db:
        db.execute("UPDATE entries SET id = ? WHERE thread = 1 AND place = 0", (bytes(16),))
    with SQLiteStore(hurt, sync="normal") as store, pytest.raises(DamageError, match="entries 1 0"):
        store.read("a", start=1, stop=2)


@pytest.mark.law(6)
def test_a_length_that_says_too_much_costs_no_time(sound, tmp_path):
    hurt = tmp_path / "palaver.db"
    shutil.copyfile(sound[0], hurt)
    with closing(sqlite3.connect(hurt, isolation_level=None)) as db:
        row = db.execute("SELECT number, id, created_at, updated_at FROM threads WHERE number = 1").fetchone()
        db.execute("UPDATE threads SET length = ?, mark = ? WHERE number = 1", (1 << 62, row_mark(*row, 1 << 62)))
        db.execute("DELETE FROM entries WHERE thread = 1 AND place = 1")
    assert not verify(hurt).ok
    lost = {each.place for each in recover(hurt, MemoryStore()).lost}
    assert {"entries 1 1", f"entries 1 3 to {(1 << 62) - 1}"} <= lost


@pytest.mark.law(6)
def test_a_log_of_a_page_that_is_far_away_costs_no_time(sound, tmp_path):
    """A sound log may name any page; a file has no more pages than it has."""
    hurt = tmp_path / "palaver.db"
    shutil.copyfile(sound[0], hurt)
    (tmp_path / "palaver.db-wal").write_bytes(log_of(0xFFFFFFFF))
    pages = Pages(str(hurt))
    with closing(pages):
        assert pages.numbers[-1] == 0xFFFFFFFF
        assert pages.count == hurt.stat().st_size // 8192 + 1
    assert recover(hurt, MemoryStore()).entries == len(sound[1])


def log_of(page):
    """A write-ahead log of one commit, of one empty page."""
    head = struct.pack(">6I", 0x377F0682, 3007000, 8192, 0, 1, 2)
    sums = summed(head, (0, 0))
    frame, content = struct.pack(">2I", page, 1), bytes(8192)
    sealed = struct.pack(">2I", *summed(frame + content, sums))
    return b"".join([head, struct.pack(">2I", *sums), frame, b"\0\0\0\1\0\0\0\2", sealed, content])


def summed(data, sums):
    """The checksum of https://www.sqlite.org/fileformat2.html#checksum_algorithm."""
    one, two = sums
    words = struct.unpack(f"<{len(data) // 4}I", data)
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two


@pytest.mark.law(6)
@pytest.mark.parametrize("apart", [0, 4])
def test_cells_that_share_their_pages_cost_no_time(tmp_path, apart):
    """A page goes on with one cell; a file where each of thousands goes on through all pages is not read so often."""
    pages, cells = 48, 1000
    length = (pages - 2) * 8188
    page = bytearray(b"\0\0\0\3" * 2048)
    page[0], page[3:5] = 13, struct.pack(">H", cells)
    for number in range(cells):
        place = 2100 + number * apart
        page[8 + 2 * number : 10 + 2 * number] = struct.pack(">H", place)
        page[place : place + 4] = bytes([length >> 14 | 128, length >> 7 & 127 | 128, length & 127, 5])
    going_on = [(number % pages + 1).to_bytes(4, "big") + bytes([0, 0, 0, 3]) * 2047 for number in range(2, pages + 1)]
    path = tmp_path / "palaver.db"
    path.write_bytes(b"".join([bytes(8192), *going_on, *[bytes(page)] * pages]))
    with closing(Pages(str(path))) as found:
        read = []
        whole = found.page
        found.page = lambda number: (read.append(number), whole(number))[1]
        for number in found.numbers:
            list(found.rows(number))
    assert len(read) < 100 * found.count


@pytest.mark.finding("F-01")
@pytest.mark.parametrize(
    ("harm", "kept"),
    [
        ("UPDATE bodies SET data = CAST(replace(data, 'm3', 'mX') AS BLOB) WHERE {}", "mX"),
        ("UPDATE bodies SET data = x'ff00' WHERE {}", "/wA="),
        ("UPDATE bodies SET data = x'28b52ffd00', encoding = 1 WHERE {}", "KLUv/QA="),
        ("DELETE FROM bodies WHERE {}", ""),
        ("DELETE FROM blobs", "m3"),
        ("UPDATE blobs SET data = x'00'", "m3"),
    ],
)
def test_an_altered_body_closes_nothing_else(tmp_path, harm, kept):
    path = tmp_path / "palaver.db"
    with SQLiteStore(path) as store:
        store.create("t")
        for number in range(6):
            picture = [p.Image.from_bytes(bytes(2000), "image/png")] if number == 3 else []
            store.append("t", [p.user(f"m{number} alike", *picture)], key=f"k{number}")
        assert len(store.search(Query(text="alike"))) == 6
        before = store.path("t")
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        (body,) = db.execute("SELECT body FROM entries WHERE place = 3").fetchone()
        db.execute(harm.format(f"id = {body}"))
    with SQLiteStore(path) as store:
        found = store.read("t")
        assert [each.id for each in found] == [each.id for each in before]
        (bad,) = (each for each in found if is_unreadable(each.message))
        assert bad.id == before[3].id
        assert kept in (bad.message.payload.get("text") or bad.message.payload.get("base64") or "")
        assert [each for each in found if each is not bad] == [each for each in before if each.id != bad.id]
        assert list(store.read("t", start=4)) == list(before[4:])
        assert len(store.search(Query(text="alike"))) == 5
        with pytest.raises(DamageError, match=bad.id):
            store.append("t", [p.user("m3 alike")], key="k3")
        store.append("t", [p.user("goes on")])
        damage = store.verify().damage
        assert damage
        assert all(each.place.split()[0] in {"bodies", "blobs", "entries", "uses"} for each in damage)
