"""A write-ahead log with a changed bit: SQLite drops what stands behind it, so the log is looked at first."""

import logging
import shutil
import sqlite3
import struct
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import palaver as p
from palaver.core.errors import DamageError
from palaver.store.memory import MemoryStore
from palaver.store.sqlite import SQLiteStore, recover, schema, verify, wal
from palaver.store.sqlite.wal import inspect

pytestmark = [pytest.mark.law(8), pytest.mark.finding("F-100")]

MANY = 12
HEADER = 32
FRAME = 24 + schema.PAGE


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The files of a store whose writer was killed: all messages stand in the log."""
    folder = tmp_path_factory.mktemp("killed")
    path = folder / "live.db"
    with SQLiteStore(path) as store:
        store.create("t")
        store.append("t", [p.user("message 0")])
        store._writer.run(lambda db: db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall(), alone=True)
        for count in range(1, MANY):
            store.append("t", [p.user(f"message {count}")])
        for end in ("", "-wal"):
            shutil.copyfile(f"{path}{end}", f"{folder / 'killed.db'}{end}")
    return folder / "killed.db"


def changed(killed, folder, place, bit=1):
    """A copy of a store, with one bit of its log changed."""
    path = folder / "hurt.db"
    shutil.copyfile(killed, path)
    raw = bytearray(Path(f"{killed}-wal").read_bytes())
    raw[place] ^= bit
    Path(f"{path}-wal").write_bytes(raw)
    return path


def content(path):
    return [Path(f"{path}{end}").read_bytes() for end in ("", "-wal")]


def places(killed):
    """One of each field of the log's header, and of a frame near its beginning, its middle and its end."""
    frames = (Path(f"{killed}-wal").stat().st_size - HEADER) // FRAME
    header = [0, 3, 10, 17, 21, 25, 30]
    return header + [
        HEADER + frame * FRAME + within
        for frame in (0, frames - 6)
        for within in (3, 9, 13, 17, 21, 24 + 60, 24 + 8000)
    ]


def test_a_changed_bit_is_reported_and_nothing_is_dropped(killed, tmp_path):
    for place in places(killed):
        path = changed(killed, tmp_path, place)
        before = content(path)
        assert any(each.place.startswith("log ") for each in verify(path).damage), place
        with pytest.raises(DamageError, match="verify --store"):
            SQLiteStore(path)
        assert content(path) == before, place


def test_what_stands_behind_a_changed_bit_is_recovered(killed, tmp_path):
    for place in places(killed):
        path = changed(killed, tmp_path, place)
        into = MemoryStore()
        report = recover(path, into)
        assert report.lost, place
        (thread,) = [info.id for info in into.threads()]
        texts = {entry.message.text for entry in into.read(thread)}
        assert len(texts) >= MANY - 1, place
        assert texts <= {f"message {count}" for count in range(MANY)}


def test_every_message_that_is_recovered_is_on_a_branch(killed, tmp_path):
    for place in places(killed):
        into = MemoryStore()
        recover(changed(killed, tmp_path, place), into)
        (info,) = into.threads()
        reached = {entry.id for branch in info.branches for entry in into.path(info.id, branch)}
        assert reached == {entry.id for entry in into.read(info.id)}, place


def test_a_last_commit_that_was_not_finished_is_reported_and_cut(killed, tmp_path, caplog):
    path = changed(killed, tmp_path, Path(f"{killed}-wal").stat().st_size - 10)
    assert [each.kind for each in verify(path).damage] == ["torn"]
    with caplog.at_level(logging.WARNING, "palaver.store.sqlite"), SQLiteStore(path) as store:
        assert [entry.message.text for entry in store.path("t")] == [f"message {count}" for count in range(MANY - 1)]
    assert "it is cut" in caplog.text


def test_a_log_that_ends_within_a_frame_is_what_a_kill_leaves(killed, tmp_path):
    path = tmp_path / "cut.db"
    shutil.copyfile(killed, path)
    Path(f"{path}-wal").write_bytes(Path(f"{killed}-wal").read_bytes()[:-500])
    assert verify(path).ok
    with SQLiteStore(path) as store:
        assert len(store.read("t")) == MANY - 1


def test_what_a_killed_transaction_left_behind_a_newer_commit_is_no_damage(tmp_path):
    """SQLite writes over what was not committed; the rest of it has sound checksums among each other."""
    path, copy = tmp_path / "palaver.db", tmp_path / "copy.db"
    with SQLiteStore(path) as store:
        store.create("t")

        def spill(db):
            db.execute("BEGIN")
            db.execute("PRAGMA cache_size = 5")
            db.execute("PRAGMA cache_spill = 5")
            db.executemany("INSERT INTO states VALUES (?, 1)", [(f"{count:01000}",) for count in range(200)])
            for end in ("", "-wal"):
                shutil.copyfile(f"{path}{end}", f"{copy}{end}")
            db.execute("ROLLBACK")

        store._writer.run(spill, alone=True)
    with closing(sqlite3.connect(copy)) as db:
        db.execute("INSERT INTO states VALUES ('x', 1)")
        db.commit()
        left = Path(f"{copy}-wal").read_bytes()
        assert inspect(str(copy)).damage is None
    commits = [struct.unpack_from(">I", left, at + 4)[0] for at in range(HEADER, len(left) - FRAME, FRAME)]
    assert max(at for at, commit in enumerate(commits) if commit) + 2 < len(commits)  # something is left behind it


def test_a_small_store_does_not_stand_in_its_log_alone(tmp_path):
    path, copy = tmp_path / "palaver.db", tmp_path / "copy.db"
    with SQLiteStore(path, sync="normal") as store:
        store.create("t")
        for count in range(200):
            store.append("t", [p.user(f"message {count}")])
        shutil.copyfile(path, copy)
    with SQLiteStore(copy) as store:
        assert len(store.read("t")) > 100


# -- beside a writer ---------------------------------------------------------------------------------------------------

WRITER = """
import sys
import palaver as p
from palaver.store.sqlite import SQLiteStore

with SQLiteStore(sys.argv[1], sync="normal") as store:
    store.create("t")
    count = 0
    while True:
        store.append("t", [p.user(f"m{count} " + f"w{count} " * (count % 300))])
        if not count:
            print("writing", flush=True)
        count += 1
        if count % 300 == 0:  # a store that grew with the time would be read for longer each time
            store.delete("t")
            store.gc()
            store.create("t")
"""
OPENINGS = 25
MOST_FRAMES = 100


@contextmanager
def busy_writer(path):
    """Another process, which appends until it is killed."""
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"writing\n"
            yield
            assert process.poll() is None
        finally:
            process.kill()


@pytest.mark.finding("A-01")
def test_a_sound_store_is_not_called_damaged_beside_a_busy_writer(tmp_path):
    path = tmp_path / "palaver.db"
    with busy_writer(path):
        for _ in range(OPENINGS):
            SQLiteStore(path, read_only=True).close()
            SQLiteStore(path).close()
            assert verify(path).damage == ()
    assert verify(path).ok


@pytest.fixture
def reading(monkeypatch):
    """What is to happen each time before the sum of a frame is derived."""
    happens = []
    derive = wal._sums

    def sums(data, order, before):
        if len(data) == schema.PAGE:
            for each in happens:
                each()
        return derive(data, order, before)

    monkeypatch.setattr(wal, "_sums", sums)
    return happens


def begin_log_anew(store):
    """Write the log into the file; the next commit overwrites it from its beginning."""
    ((busy, _, _),) = store._writer.run(lambda db: db.execute("PRAGMA wal_checkpoint(RESTART)").fetchall(), alone=True)
    return not busy


@pytest.mark.finding("A-01")
def test_a_log_that_begins_anew_at_each_look_is_not_damaged(tmp_path, reading, monkeypatch):
    """What is read is the old header, and new frames in front of old ones."""
    path = tmp_path / "palaver.db"
    claims = []
    read = wal.read_log

    def read_log(*given):
        if len(given) == 1:  # what is looked at again, nobody can write to
            reading[:] = [again]
        found = read(*given)
        reading.clear()
        claims.append(found.damage)
        return found

    def again():
        reading.clear()
        assert begin_log_anew(store)
        store.append("t", [p.user("new")])

    with SQLiteStore(path) as store:
        store.create("t")
        for count in range(MANY):
            store.append("t", [p.user(f"message {count} " * 2_000)])
        monkeypatch.setattr(wal, "read_log", read_log)
        assert inspect(str(path)).damage is None
    assert any(claims)


@pytest.mark.finding("A-01")
def test_a_log_is_read_up_to_where_it_ended_when_the_look_began(tmp_path, reading):
    path = tmp_path / "palaver.db"
    with SQLiteStore(path) as store:
        store.create("t")
        store.append("t", [p.user("message 0")])
        frames = []

        def grow():
            frames.append(None)
            assert len(frames) < MOST_FRAMES
            store.append("t", [p.user("more")])

        reading.append(grow)
        wal.read_log(f"{path}-wal")
        assert frames


@pytest.mark.finding("A-01")
def test_verify_lets_the_log_begin_anew_while_it_reads_it(tmp_path, reading):
    path = tmp_path / "palaver.db"
    with SQLiteStore(path) as store:
        store.create("t")
        store.append("t", [p.user("message 0")])
        let = []
        reading.append(lambda: let.append(begin_log_anew(store)))
        assert verify(path).ok
    assert let
    assert all(let)


@pytest.mark.finding("A-01")
def test_nobody_writes_while_damage_is_looked_at_again(killed, tmp_path):
    path = changed(killed, tmp_path, HEADER + FRAME + 60)
    before = content(path)
    with schema.writers_blocked(str(path), timeout=0) as alone:
        assert alone
        db = sqlite3.connect(path, timeout=0, isolation_level=None)
        with closing(db), pytest.raises(sqlite3.OperationalError, match="locked"):
            db.execute("BEGIN IMMEDIATE")
        with schema.writers_blocked(str(path), timeout=0) as other:
            assert not other
    assert content(path) == before
