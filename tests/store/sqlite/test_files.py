"""What a file may be: not ours, newer, read-only, on a full disk, open in several processes, opened before a fork."""

import multiprocessing
import os
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

import palaver as p
from palaver.core.errors import ConflictError, DamageError, NotFoundError, StoreError, UnavailableError
from palaver.store import Query, open_store
from palaver.store.sqlite import SQLiteStore, schema, updates
from palaver.store.sqlite.schema import connect
from palaver.store.sqlite.writer_thread import Writer
from palaver.testing import stores
from palaver.threads.thread import Entry
from tests.store.disks import small_disk


def test_a_database_of_others_is_refused_and_not_changed(tmp_path):
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE t (x)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="not one of Palaver's"):
        SQLiteStore(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["other.db"]


def test_a_newer_schema_is_refused_and_not_changed(tmp_path):
    path = tmp_path / "palaver.db"
    SQLiteStore(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {schema.NEWEST + 1}")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="newer version"):
        SQLiteStore(path)
    assert path.read_bytes() == before


def test_what_is_no_database_is_refused(tmp_path):
    path = tmp_path / "palaver.db"
    path.write_bytes(b"text " * 1000)
    with pytest.raises(DamageError, match="not an SQLite database"):
        SQLiteStore(path)
    with pytest.raises(StoreError):
        SQLiteStore("a\0b")
    with pytest.raises(StoreError, match="sync"):
        SQLiteStore(tmp_path / "x", sync="off")
    with pytest.raises(UnavailableError, match="cannot be opened"):
        SQLiteStore(tmp_path)
    with pytest.raises(UnavailableError, match="cannot be opened"):
        SQLiteStore(tmp_path / "nowhere" / "palaver.db")


def test_names_that_mean_something_to_sqlite_are_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (":memory:", "file:x?mode=memory", "a?b#c%20d", "ö", "\udcff"):  # the last is a byte, and no UTF-8
        SQLiteStore(name).close()
        assert (tmp_path / name).stat().st_size > 0
        with SQLiteStore(name) as store:
            assert store.verify().ok


def test_a_migration_and_its_record_are_one(tmp_path, monkeypatch):
    path = tmp_path / "palaver.db"
    with SQLiteStore(path) as store:
        store.create("t")
    known = [number for number, _, _ in schema.MIGRATIONS]
    more = (schema.NEWEST + 1, "one more", "CREATE TABLE more (x); CREATE TABLE broken (")
    monkeypatch.setattr(schema, "NEWEST", more[0])
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, more))
    with pytest.raises(StoreError):
        SQLiteStore(path)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT 1 FROM sqlite_master WHERE name = 'more'").fetchone() is None
        assert db.execute("SELECT number FROM migrations").fetchall() == [(number,) for number in known]
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS[:-1], (*more[:2], "CREATE TABLE more (x)")))
    with SQLiteStore(path) as store:
        assert store.info("t").id == "t"
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT number FROM migrations").fetchall() == [(number,) for number in (*known, more[0])]


def test_many_may_begin_a_file_at_once(tmp_path):
    path = tmp_path / "palaver.db"
    with ThreadPoolExecutor(8) as pool:
        opened = list(pool.map(lambda _: SQLiteStore(path), range(8)))
    for number, store in enumerate(opened):
        store.create(str(number))
        store.close()


def test_a_file_that_another_begins_while_it_is_looked_at_is_ours(tmp_path):
    path = str(tmp_path / "palaver.db")
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = wal").close()
    begun = []

    def meanwhile(statement):
        if "user_version" in statement and not begun:
            begun.append(SQLiteStore(path))

    db.set_trace_callback(meanwhile)
    assert schema._checked(db, path) in (0, schema.NEWEST)
    assert begun
    begun[0].close()
    assert schema._checked(db, path) == schema.NEWEST
    db.close()


# -- a disk that is full, or read-only -----------------------------------------------------------------------------


def noise(size):
    return os.urandom(size // 2).hex()


@pytest.mark.law(8)
def test_a_full_disk_is_an_error_and_later_appends_succeed(tmp_path):
    with small_disk(tmp_path / "disk", 2048) as disk, SQLiteStore(disk / "palaver.db") as store:
        store.create("t")
        kept = [store.append("t", [p.user(f"{n} {noise(3000)}")]).head for n in range(20)]
        with pytest.raises(UnavailableError, match="full"):
            store.append("t", [p.user("first"), p.user(noise(8_000_000))], key="k")
        assert [entry.id for entry in store.read("t")] == kept
        ballast = disk / "ballast"
        with suppress(UnavailableError):
            while len(kept) < 1000:
                kept.append(store.append("t", [p.user(noise(9000))]).head)
        assert len(kept) < 1000, "that disk is not small"
        assert [entry.id for entry in store.path("t")] == kept
        assert store.verify().ok
        assert not ballast.exists()
        store.close()
        with SQLiteStore(disk / "palaver.db") as again:
            assert [entry.id for entry in again.path("t")] == kept
            assert again.verify().ok


@pytest.mark.law(8)
def test_a_store_goes_on_when_there_is_room_again(tmp_path):
    with small_disk(tmp_path / "disk", 2048) as disk:
        ballast = disk / "ballast"
        with SQLiteStore(disk / "palaver.db") as store:
            store.create("t")
            ballast.write_bytes(bytes(1_200_000))
            with pytest.raises(UnavailableError, match="full"), ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda n: store.append("t", [p.user(f"{n} {noise(30_000)}")]), range(60)))
            there = [entry.id for entry in store.read("t")]
            ballast.unlink()
            more = store.append("t", [p.user("goes on")]).head
            assert [entry.id for entry in store.read("t")] == [*there, more]
            assert store.verify().ok


def test_a_limit_on_pages_is_an_error_like_a_full_disk(tmp_path):
    with SQLiteStore(tmp_path / "palaver.db") as store:
        store.create("t")
        store._writer.run(lambda db: db.execute("PRAGMA max_page_count = 60").fetchall(), alone=True)
        with pytest.raises(UnavailableError, match="full"):
            store.append("t", [p.user("a"), p.user(noise(900_000))])
        assert list(store.read("t")) == []
        outcomes = []

        def append(size):
            try:
                outcomes.append(store.append("t", [p.user(noise(size))]).head)
            except UnavailableError:
                outcomes.append(None)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(append, [100, 900_000] * 10))
        assert outcomes.count(None) == 10, "one that cannot be kept does not take others with it"
        assert {entry.id for entry in store.read("t")} == {each for each in outcomes if each}
        assert store.verify().ok


def test_a_read_only_disk_is_an_error(tmp_path):
    with small_disk(tmp_path / "disk", 2048) as disk:
        with SQLiteStore(disk / "palaver.db") as store:
            store.create("t")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with pytest.raises(UnavailableError, match=r"read-only|cannot be opened"):
            SQLiteStore(disk / "new.db")
        with SQLiteStore(disk / "palaver.db") as store, pytest.raises(UnavailableError, match="for reading only"):
            store.create("u")


# -- several writers -----------------------------------------------------------------------------------------------


def test_failures_of_one_do_not_touch_the_others(tmp_path):
    with SQLiteStore(tmp_path / "palaver.db") as store:
        store.create("t")
        hold, held = threading.Event(), threading.Event()

        def wait(_):
            held.set()
            assert hold.wait(30)

        def attempt(number):
            match number % 4:
                case 0:
                    return store.append("t", [p.user(str(number))]).head
                case 1:
                    return caught(ConflictError, lambda: store.append("t", [p.user("x")], expect="other"))
                case 2:
                    return caught(NotFoundError, lambda: store.append("nobody", [p.user("x")]))
                case _:
                    kind = (ZeroDivisionError, DamageError)[number // 4 % 2]
                    return caught(kind, lambda: store._writer.run(lambda db: broken(db, kind)))

        def broken(db, kind):
            db.execute("UPDATE threads SET length = 99")
            raise kind

        with ThreadPoolExecutor(41) as pool:
            blocker = pool.submit(store._writer.run, wait)
            held.wait(30)
            waiting = [pool.submit(attempt, number) for number in range(40)]
            hold.set()
            found = [each.result() for each in waiting]
            blocker.result()
        ids = {each for number, each in enumerate(found) if number % 4 == 0}
        assert {entry.id for entry in store.read("t")} == ids
        assert len(ids) == 10
        assert store.verify().ok


def caught(kind, action):
    with pytest.raises(kind):
        action()


def test_those_who_wait_share_a_commit(tmp_path):
    with SQLiteStore(tmp_path / "palaver.db") as store:
        store.create("t")
        commits = []
        store._writer.run(lambda db: db.set_trace_callback(lambda text: commits.append(text == "COMMIT")), alone=True)
        hold, held = threading.Event(), threading.Event()
        with ThreadPoolExecutor(33) as pool:
            pool.submit(store._writer.run, lambda _: held.set() or hold.wait(30), alone=True)
            held.wait(30)
            waiting = [pool.submit(store.append, "t", [p.user(str(n))]) for n in range(32)]
            while store._writer._queue.qsize() < 32:
                pass
            hold.set()
            [each.result() for each in waiting]
        store._writer.run(lambda db: db.set_trace_callback(None), alone=True)
        assert sum(commits) == 1
        assert len(store.read("t")) == 32


def test_a_file_locked_for_too_long_is_an_error(tmp_path):
    path = tmp_path / "palaver.db"
    with SQLiteStore(path, timeout=0.05) as store:
        store.create("t")
        with closing(connect(str(path), timeout=1)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(UnavailableError, match="another process"):
                store.append("t", [p.user("x")])
            assert list(store.read("t")) == [], "readers wait for nobody"
            other.execute("ROLLBACK")
        assert store.append("t", [p.user("x")]).head


def test_a_thread_that_is_deleted_while_a_key_is_looked_up_is_not_there(tmp_path, monkeypatch):
    with SQLiteStore(tmp_path / "palaver.db") as store:
        store.create("t")
        store.append("t", [p.user("x")], key="k")
        run = store._writer.run

        def overtaken(work):
            joined = run(work)
            run(lambda db: updates.delete(db, "t"))
            return joined

        monkeypatch.setattr(store._writer, "run", overtaken)
        with pytest.raises(NotFoundError):
            store.append("t", [p.user("x")], key="k")


def test_threads_of_one_moment_are_listed_newest_first(tmp_path):
    with SQLiteStore(tmp_path / "palaver.db", clock=lambda: 1000) as store:
        for name in "abc":
            store.create(name)
        assert [info.id for info in store.threads()] == ["c", "b", "a"]


class Counted(sqlite3.Connection):
    """Counts the transactions that it is asked to begin."""

    begun = 0

    def execute(self, sql, *values):
        self.begun += sql.startswith("BEGIN")
        return super().execute(sql, *values)


def test_those_who_wait_for_another_process_wait_together(tmp_path):
    path = tmp_path / "palaver.db"
    SQLiteStore(path).close()
    db = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False, factory=Counted)
    writer = Writer(db, str(path))
    waiting, free = threading.Event(), threading.Event()

    def hold(_):
        waiting.set()
        free.wait()

    def fail():
        with pytest.raises(UnavailableError, match="another process"):
            writer.run(lambda db: db.execute("DELETE FROM entries"))

    with closing(connect(str(path), timeout=1)) as other, ThreadPoolExecutor(9) as pool:
        pool.submit(writer.run, hold, alone=True)
        waiting.wait()
        failing = [pool.submit(fail) for _ in range(8)]
        while writer._queue.qsize() < 8:
            pass
        other.execute("BEGIN IMMEDIATE")
        free.set()
        for each in failing:
            each.result()
    writer.close()
    assert db.begun == 1


PROCESS = """
import sys, palaver as p
from palaver.store.sqlite import SQLiteStore
with SQLiteStore(sys.argv[1], sync="normal") as store:
    for count in range(60):
        store.append("t", [p.user(f"{sys.argv[2]}.{count}.{each}") for each in range(2)])
"""


def test_processes_lose_nothing_to_each_other(tmp_path):
    path = tmp_path / "palaver.db"
    with SQLiteStore(path, sync="normal") as store:
        store.create("t")
        running = [subprocess.Popen([sys.executable, "-c", PROCESS, str(path), str(n)]) for n in range(3)]
        for count in range(30):
            store.append("t", [p.user(f"x.{count}.0")])
        assert [each.wait() for each in running] == [0, 0, 0]
        texts = [entry.message.text for entry in store.path("t")]
        assert len(texts) == 3 * 120 + 30
        assert [text for text in texts if text.startswith("1.")] == [
            f"1.{n}.{each}" for n in range(60) for each in (0, 1)
        ]
        assert store.verify().ok


def in_child(store, answers):
    for action in (lambda: store.append("t", [p.user("x")]), lambda: store.info("t")):
        try:
            action()
        except StoreError as error:
            answers.put(str(error))
    store.close()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_store_does_not_go_through_a_fork(tmp_path):
    context = multiprocessing.get_context("fork")
    with SQLiteStore(tmp_path / "palaver.db") as store:
        store.create("t")
        answers = context.SimpleQueue()
        child = context.Process(target=in_child, args=(store, answers))
        child.start()
        child.join()
        assert child.exitcode == 0
        assert all("forked" in answers.get() for _ in range(2))
        assert store.append("t", [p.user("x")]).head


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_forked_in_the_middle_of_an_append_gets_an_error(tmp_path):
    context = multiprocessing.get_context("fork")
    with SQLiteStore(tmp_path / "palaver.db") as store:
        answers = context.SimpleQueue()
        child = context.Process(target=in_child, args=(store, answers))
        with store._writer._lock:  # as another thread does that hands in work just now
            child.start()
        child.join(20)
        child.kill()
        child.join()
        assert child.exitcode == 0


def test_a_store_that_nobody_holds_is_closed(tmp_path):
    store = SQLiteStore(tmp_path / "palaver.db")
    store.create("t")
    list(store.threads())
    del store
    assert [file.name for file in tmp_path.iterdir()] == ["palaver.db"]


def test_default_is_durable_and_quick_is_asked_for(tmp_path):
    for sync, level in (("full", 2), ("normal", 1)):
        with SQLiteStore(tmp_path / sync, sync=sync) as store:
            assert store._writer.run(lambda db: schema.pragma(db, "synchronous"), alone=True) == level
            assert store._writer.run(lambda db: schema.pragma(db, "journal_mode"), alone=True) == "wal"
    with SQLiteStore(tmp_path / "default") as store:
        assert store._writer.run(lambda db: schema.pragma(db, "synchronous"), alone=True) == 2
        assert store._writer.run(lambda db: schema.pragma(db, "secure_delete"), alone=True) == 1


def test_names_are_those_of_the_suite(tmp_path):
    with SQLiteStore(tmp_path / "palaver.db") as store:
        for name in stores.REFUSED:
            with pytest.raises(StoreError):
                store.add(name, [])
            with pytest.raises(StoreError):
                store.add("t", [], branches={name: None})
        assert Path(tmp_path / "palaver.db").exists()


@pytest.mark.finding("F-111")
def test_a_new_store_is_for_its_owner_alone(tmp_path):
    path, kept = tmp_path / "palaver.db", tmp_path / "kept.db"
    kept.touch(0o664)
    kept.chmod(0o664)
    with SQLiteStore(path) as store, SQLiteStore(kept) as other:
        store.create("t")
        other.create("t")
        assert {file.name: file.stat().st_mode & 0o777 for file in tmp_path.glob("palaver.db*")} == {
            "palaver.db": 0o600,
            "palaver.db-wal": 0o600,
            "palaver.db-shm": 0o600,
        }
        assert kept.stat().st_mode & 0o777 == 0o664


# -- for reading only ----------------------------------------------------------------------------------------------


def _refuses(store):
    for write in (
        lambda: store.create("new"),
        lambda: store.append("t", [p.user("more")]),
        lambda: store.add("t", [], branches={"side": None}),
        lambda: store.fork("t", "side"),
        lambda: store.rewind("t", None),
        lambda: store.update("t", title="T"),
        lambda: store.delete("t"),
        lambda: store.put_blob(b"x"),
        store.gc,
    ):
        with pytest.raises(UnavailableError, match="open for reading only"):
            write()


def _reads(store):
    assert [entry.message.text for entry in store.read("t")] == ["indexed words", "words of today"]
    assert [info.id for info in store.threads()] == ["t"]
    found = [hit.excerpt for hit in store.search(Query(text="words", role="user"))]
    assert found == ["words of today", "indexed words"]
    assert store.search(Query(text="nothing")) == []
    assert store.index() == 0
    assert store.verify().ok


def _filled(path):
    with SQLiteStore(path) as store:
        store.create("t")
        store.append("t", [p.user("indexed words")])
        store.search(Query(text="words"))
        store.append("t", [p.user("words of today")])


@pytest.mark.finding("F-111")
def test_a_store_in_a_read_only_folder_is_read(tmp_path):
    with small_disk(tmp_path / "disk", 4096) as disk:
        _filled(disk / "palaver.db")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        before = sorted(disk.iterdir())
        for location in (str(disk / "palaver.db"), f"file:{disk}/palaver.db?mode=ro", f"file://{disk}/palaver.db"):
            with open_store(location) as store:
                _reads(store)
                _refuses(store)
        assert sorted(disk.iterdir()) == before


@pytest.mark.finding("F-111")
def test_a_log_that_holds_commits_is_not_passed_over_in_a_read_only_folder(tmp_path):
    with small_disk(tmp_path / "disk", 4096) as disk:
        with SQLiteStore(disk / "open.db") as store:
            store.create("t")
            for each in ("open.db", "open.db-wal"):
                (disk / each.replace("open", "copy")).write_bytes((disk / each).read_bytes())
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with pytest.raises(UnavailableError, match=r"cannot be opened|read-only"):
            SQLiteStore(disk / "copy.db")


@pytest.mark.finding("F-111")
def test_what_is_opened_for_reading_only_is_read_beside_a_writer(tmp_path):
    path = tmp_path / "a b.db"
    _filled(path)
    with SQLiteStore(path) as writer, open_store(f"file:{tmp_path}/a%20b.db?mode=ro") as store:
        _reads(store)
        _refuses(store)
        writer.append("t", [p.user("third")])
        assert len(store.read("t")) == 3
        assert [hit.excerpt for hit in store.search(Query(text="third"))] == ["third"]
    with pytest.raises(UnavailableError, match="cannot be opened"):
        open_store(f"file:{tmp_path}/none.db?mode=ro")
    with pytest.raises(StoreError, match="only mode=ro"):
        open_store(f"file:{path}?cache=shared")
    (tmp_path / "empty.db").touch()
    with pytest.raises(StoreError, match="no store in it"):
        open_store(f"file:{tmp_path}/empty.db?mode=ro")
    assert {each.name for each in tmp_path.iterdir()} == {"a b.db", "empty.db"}


# -- SQL -----------------------------------------------------------------------------------------------------------


@pytest.mark.finding("F-07")
def test_messages_are_read_with_sql(tmp_path):
    odd = "nul \x00, half \ud800, \u2028"
    with SQLiteStore(tmp_path / "a.db") as store:
        store.create("t", title="About \u00fc")
        long = "long " * 5000
        first, second, third = store.append(
            "t", [p.user(long, "and more", agent="ada"), p.assistant("yes", model="m"), p.user(odd)]
        ).entries
        store.add("copy", [Entry("no uuid", None, p.user("x", id="x", sent_at=7))])
    with closing(sqlite3.connect(tmp_path / "a.db")) as db:
        columns = "place, id, parent, role, agent, model, sent_at"
        rows = db.execute(f"SELECT {columns} FROM messages WHERE thread = 't' ORDER BY place").fetchall()
        assert rows == [
            (0, first.id, None, "user", "ada", None, first.message.sent_at),
            (1, second.id, first.id, "assistant", None, "m", second.message.sent_at),
            (2, third.id, second.id, "user", None, None, third.message.sent_at),
        ]
        assert db.execute("SELECT text FROM messages WHERE role = 'user' AND place = 0").fetchall() == [
            (f"{long}\nand more",),
            ("x",),
        ]
        (text, json) = db.execute("SELECT text, json FROM messages WHERE place = 2").fetchone()
        assert text == "nul \ufffd, half \\ud800, \u2028"
        assert p.loads(json).text == odd
        assert db.execute("SELECT id FROM messages WHERE thread = 'copy'").fetchall() == [("no uuid",)]
        assert db.execute("SELECT thread, title, length FROM conversations ORDER BY thread").fetchall() == [
            ("copy", None, 1),
            ("t", "About \u00fc", 3),
        ]
        assert db.execute("SELECT updated_at FROM conversations WHERE thread = 'copy'").fetchone() == (7,)


@pytest.mark.finding("F-07")
@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"role":"user","content":["plain"]}', None),
        (b'{"role":"user","content":"plain"}', None),
        (b'{"role":"user","content":[["x"],{"type":"text","text":"seen"},null]}', "seen"),
        (b'{"role":"user","content":{"type":"text"}}', None),
        (b'{"role":"user","content":[{"type":"text","text":"back \\\\ud800 \\uD83d"}]}', "back \\ud800 \\uD83d"),
        (b'["x"]', None),
        (b'"x"', None),
        (b"no json", None),
        (b"{" * 5000, None),
    ],
    ids=range(9),
)
def test_a_bad_body_closes_no_view(tmp_path, monkeypatch, body, text):
    with SQLiteStore(tmp_path / "a.db") as store:
        store.create("t", title="half \udfff")
        store.append("t", [p.user("first")])
        with monkeypatch.context() as patched:
            patched.setattr("palaver.store.message_codec.canonical.encode", lambda _: body)
            store.append("t", [p.user("bad")])
        store.append("t", [p.user("last")])
    with closing(sqlite3.connect(tmp_path / "a.db")) as db:
        assert db.execute("SELECT text FROM messages").fetchall() == [("first",), (text,), ("last",)]
        assert len(db.execute("SELECT * FROM messages").fetchall()) == 3
        assert db.execute("SELECT title FROM conversations").fetchall() == [("half \\udfff",)]


def test_the_views_of_an_earlier_schema_are_replaced(tmp_path):
    SQLiteStore(tmp_path / "a.db").close()
    with closing(sqlite3.connect(tmp_path / "a.db")) as db:
        db.executescript(
            "DROP VIEW messages; CREATE VIEW messages AS SELECT 1; DELETE FROM migrations WHERE number > 2"
        )
        db.execute("PRAGMA user_version = 2")
    SQLiteStore(tmp_path / "a.db").close()
    with closing(sqlite3.connect(tmp_path / "a.db")) as db:
        assert db.execute("SELECT text FROM messages").fetchall() == []
