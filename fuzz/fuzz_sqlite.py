"""Damage a store's SQLite file in every way, and use what is left (laws 6 and 8). See README.md beside this file.

An input is a list of edits, of eight bytes each: what is done to the file (bytes changed, zeroed, cut, pages swapped,
the log changed), or what another program does to it in SQL. Then it is opened, read, searched, verified, saved and
cleaned. What is read must be what was written, or a ``StoreError``; nothing may raise anything else, or go on for long.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import time
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import atheris
from findings import watch
from msgspec import structs

with atheris.instrument_imports(include=["palaver.store"]):
    import palaver as p
    from palaver.core.errors import StoreError
    from palaver.store.memory import MemoryStore
    from palaver.store.sqlite import SQLiteStore, recover, verify
    from palaver.store.sqlite.pages import read_log
    from palaver.store.store import Query
    from palaver.threads.thread import Entry

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = Path(os.environ.get("PALAVER_SCRATCH", "build")) / f"fuzz-{os.getpid()}"
SOUND = FOLDER / "sound.db"
LOGGED_SOUND = FOLDER / "logged.db"
HURT = FOLDER / "hurt.db"
LONGEST = 5.0
_PAGE = 8192
_VALUES: tuple[Any, ...] = (
    *(None, 0, 1, -1, 2**62, -(2**63), 0.5, float("inf"), "", "x", "é\x00", "9" * 40, '{"a":1}'),
    *(b"", b"x", b"\xff" * 16, b"\x00" * 17 + b"\xed\xa0", b"\x00" * 32, b"{", b"[]", b"(\xb5/\xfd\x04\x00"),
)


# -- a sound file --------------------------------------------------------------------------------------------------


def _make() -> dict[str, Entry]:
    """Write a store, the same at each start but for SQLite's own numbers, and one whose log was not taken in."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    rng = Random(7)
    ids = (f"{number:08x}-0000-7000-8000-{number:012x}" for number in count(1))
    entries: list[Entry] = []

    def put(
        store: SQLiteStore, thread: str, *messages: p.Message, branch: str = "main", after: str | None = None
    ) -> None:
        parent = after or store.info(thread).branches[branch]
        for message in messages:
            entries.append(Entry(next(ids), parent, message.replace(id="", sent_at=len(entries))))
            entries[-1] = structs.replace(entries[-1], message=entries[-1].message.replace(id=entries[-1].id))
            parent = entries[-1].id
        store.add(thread, entries[-len(messages) :], branches={branch: parent})

    with _opened(SOUND) as store:
        for name in ("a", "b", "c"):
            store.create(name, title=name.upper(), tags=["x"], metadata={"n": 1})
            for number in range(6):
                text = f"alpha beta {name} {number} " + "gamma " * 300 * (number == 3)
                put(store, name, p.user(text, tags=["t"]), p.assistant("delta"))
            picture = p.Image.from_bytes(rng.randbytes(3000))
            put(store, name, p.user("side", picture), branch="side", after=store.path(name)[4].id)
            put(store, name, p.user(rng.randbytes(15_000).hex()))
        store.append("b", (), key="k1")
        store.put_blob(b"nobody's")
        store.search(Query(text="alpha"))
    with _opened(SOUND) as store:
        store.delete("c")
        put(store, "a", p.user("in the log"))
        put(store, "a", p.user("in the log too"))
        for end in ("", "-wal"):
            shutil.copyfile(f"{SOUND}{end}", f"{LOGGED_SOUND}{end}")
    return {entry.id: entry for entry in entries}


def _opened(path: Path) -> SQLiteStore:
    return SQLiteStore(path, sync="normal", timeout=0.2, clock=count(1_700_000_000_000).__next__)


ENTRIES = _make()
CLOSED, LOGGED, LOG = (Path(each).read_bytes() for each in (SOUND, LOGGED_SOUND, f"{LOGGED_SOUND}-wal"))


# -- edits ---------------------------------------------------------------------------------------------------------


def _edit(file: bytearray, edit: bytes) -> None:
    """Change bytes. The first byte says how, the next four where, the others what."""
    if not file:
        return
    place = int.from_bytes(edit[1:5], "big") % len(file)
    if edit[0] & 8:  # at the beginning of a page, where its header and pointers are
        place = place // _PAGE * _PAGE % len(file) + edit[4] % 64
    other = edit[5] * _PAGE % len(file)
    page = place // _PAGE * _PAGE
    match edit[0] % 8:
        case 0 | 1:
            file[place : place + 1] = edit[5:6]
        case 2:
            file[place : place + 3] = edit[5:8]
        case 3:
            file[place : place + edit[5] * edit[6]] = bytes(len(file[place : place + edit[5] * edit[6]]))
        case 4:
            del file[place:]
        case 5:
            file[page : page + _PAGE], file[other : other + _PAGE] = (
                file[other : other + _PAGE],
                file[page : page + _PAGE],
            )
        case 6:
            file[page : page + _PAGE] = file[other : other + _PAGE]
        case _:
            del file[place : place + edit[5]]


def _in_sql(edit: bytes) -> None:
    """Let another program put any value into any column of a row."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(HURT, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = off")
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        table = tables[edit[1] % len(tables)]
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        column = columns[edit[2] % len(columns)]
        row = db.execute(f"SELECT * FROM {table} LIMIT 1 OFFSET ?", (edit[3] % 8,)).fetchone() or [None] * len(columns)  # noqa: S608 (names of the schema)
        where = " AND ".join(f"{each} IS ?" for each in columns)
        value = _VALUES[edit[4] % len(_VALUES)]
        if edit[0] % 4 == 3:
            db.execute(f"DELETE FROM {table} WHERE {where}", row)  # noqa: S608 (names of the schema)
        elif edit[0] % 4 == 2:
            changed = [value if name == column else each for name, each in zip(columns, row, strict=True)]
            db.execute(f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(columns))})", changed)  # noqa: S608 (names of the schema)
        else:
            db.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (value, *row))  # noqa: S608 (names of the schema)


def damage(data: bytes) -> None:
    """Put the edited file in its place."""
    logged = data[0] & 1
    files = [bytearray(LOGGED if logged else CLOSED), bytearray(LOG if logged else b"")]
    edits = [data[at : at + 8] for at in range(1, min(len(data), 257) - 7, 8)]
    for edit in edits:
        if edit[0] < 192:
            _edit(files[edit[0] >= 128], edit)
    HURT.write_bytes(files[0])
    for end in ("-wal", "-shm"):
        Path(f"{HURT}{end}").unlink(missing_ok=True)
    if logged:
        Path(f"{HURT}-wal").write_bytes(files[1])
    for edit in edits:
        if edit[0] >= 192:
            _in_sql(edit)


# -- use -----------------------------------------------------------------------------------------------------------


def _same(entry: Entry) -> None:
    assert ENTRIES.get(entry.id) == entry, "another answer"


def _use(store: SQLiteStore) -> None:
    def listed() -> None:
        for info in store.threads():
            store.info(info.id)

    def paths() -> None:
        for name in ("a", "b"):
            for branch in ("main", "side"):
                with suppress(StoreError):
                    [_same(entry) for entry in store.path(name, branch)]

    def reads() -> None:
        for name in ("a", "b"):
            for place in range(18):
                with suppress(StoreError):
                    [_same(entry) for entry in store.read(name, start=place, stop=place + 1)]

    def finds() -> None:
        for query in (Query(text="alpha be*"), Query(tag="t", since=0), Query(role="user", thread="a"), Query()):
            with suppress(StoreError):
                [_same(hit.entry) for hit in store.search(query)]

    for use in (
        listed, paths, reads, finds, store.verify, lambda: store.load("b"),
        lambda: store.update("a", title="z"), lambda: store.fork("a", "new"), lambda: store.rewind("a", None),
        lambda: store.append("b", [p.user("more")], key="k1"), lambda: store.append("a", [p.user("more")]),
        lambda: store.add("b", list(ENTRIES.values())[:3]), lambda: store.delete("b"), store.gc,
    ):  # fmt: skip
        with suppress(StoreError):
            use()


def _saved() -> None:
    into = MemoryStore()
    recover(HURT, into)
    for info in into.threads():
        for entry in into.read(info.id):
            found = ENTRIES.get(entry.id)
            assert found is None or found.message == entry.message, "made up"


def _all() -> None:
    steps: list[Callable[[], object]] = [lambda: verify(str(HURT)), lambda: read_log(f"{HURT}-wal"), _saved]
    for step in steps:
        begun = time.monotonic()
        step()
        assert time.monotonic() - begun < LONGEST, "too long"
    try:
        store = _opened(HURT)
    except StoreError:
        return
    with store:
        _use(store)


def test_one_input(data: bytes) -> None:
    """What libFuzzer calls: the first byte chooses the file, the others are edits."""
    if len(data) < 9:
        return

    def work() -> None:
        damage(data)
        _all()

    watch("sqlite", data, work)


# -- seeds ---------------------------------------------------------------------------------------------------------


def write_seeds(folder: Path) -> None:
    """Write one input for each kind of edit, and some places."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in (*range(16), *range(128, 136), *range(192, 196)):
        for place in range(6):
            edit = bytes([kind, place, place * 5, place * 37 % 256, place * 91 % 256, 7 + place, 3, place])
            (folder / f"sqlite-{kind:03d}-{place}").write_bytes(bytes([kind >= 128]) + edit)


def main() -> None:
    """Write seeds, or fuzz until told to stop."""
    if sys.argv[1:2] == ["--seeds"]:
        write_seeds(Path(sys.argv[2]))
        return
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
