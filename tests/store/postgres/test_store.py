"""What is PostgreSQL's own: text that it cannot hold, its schemas, its errors, its files."""

import os
import shutil
import subprocess
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest
from msgspec import UNSET
from psycopg.conninfo import make_conninfo

import palaver as p
from palaver.core.errors import ConflictError, NotFoundError, StoreError, UnavailableError
from palaver.store.postgres import PostgresStore, appends, call_parameters, updates
from palaver.store.postgres.database import Link
from palaver.store.postgres.schema import NEWEST
from palaver.store.records import prepare
from palaver.store.store import Query
from palaver.threads.thread import Entry
from tests.store.postgres.server import CONNINFO, open_store, run, waits

pytestmark = pytest.mark.server

ODD = "a\x00b \ud800 \u2028 'x' \\ {} % ü"


# -- text --------------------------------------------------------------------------------------------------------------


@pytest.mark.law(1)
def test_text_that_postgresql_cannot_hold_comes_back(store):
    store.create("t", title=ODD, tags=[ODD, ""], metadata={ODD: [ODD, 5e-06, 2**70]})
    info = store.info("t")
    assert (info.title, info.tags, dict(info.metadata)) == (ODD, (ODD, ""), {ODD: [ODD, 5e-06, 2**70]})
    assert [each.id for each in store.threads(tag=ODD)] == ["t"]
    message = p.user(ODD, id=ODD, agent=ODD, tags=[ODD, "x" * 5000])
    (entry,) = store.append("t", [message]).entries
    assert entry.message.id == ODD
    assert list(store.read("t")) == [entry]
    for query in (Query(agent=ODD), Query(tag=ODD), Query(tag="x" * 5000), Query(text="ü")):
        assert [hit.entry for hit in store.search(query)] == [entry]
    assert store.verify().ok


@pytest.mark.parametrize("name", ["\x00", "\ud800", "a\x00b"])
def test_a_name_that_postgresql_cannot_hold_is_nobody(store, name):
    store.create("t")
    calls = (
        lambda: store.info(name),
        lambda: store.path("t", name),
        lambda: store.path("t", name + "long"),
        lambda: store.append("t", [], branch=name),
        lambda: store.rewind("t", name),
        lambda: store.fork("t", "new", at=name),
        lambda: store.delete(name),
    )
    for call in calls:
        with pytest.raises(NotFoundError):
            call()
    with pytest.raises(ConflictError):
        store.append("t", [p.user("x")], expect=name)
    with pytest.raises(StoreError):
        store.append("t", [p.user("x")], key=name)
    with pytest.raises(StoreError):
        store.add("t", [Entry("x", name, p.user("x"))])
    with pytest.raises(StoreError):
        store.add("t", [Entry(name, None, p.user("x"))])
    assert store.search(Query(thread=name)) == []
    assert store.info("t").length == 0


def test_entries_of_others_keep_their_ids(store):
    """An id is no UUID when it was made elsewhere."""
    entries = [Entry("m1", None, p.user("a", id="m1", sent_at=1)), Entry('q"\\', "m1", p.user("b", id='q"\\'))]
    entries.append(Entry("bare", "m1", p.user("neither id nor time")))
    assert store.add("t", entries, branches={"main": 'q"\\'}) == 3
    assert list(store.read("t")) == entries
    assert list(store.path("t")) == entries[:2]
    assert store.add("t", entries) == 0


def test_a_copy_of_what_was_appended_adds_nothing(store):
    """Also where only one of id and time was stamped, so that the copy looks stamped otherwise."""
    store.create("t")
    store.append("t", [p.user("a", sent_at=7), p.user("b", id="mine"), p.user("far", sent_at=2**70)])
    assert store.add("t", store.read("t")) == 0


# -- appends -----------------------------------------------------------------------------------------------------------


def test_what_does_not_fit_into_one_call_is_still_whole(store, monkeypatch):
    monkeypatch.setattr(call_parameters, "MAX_BYTES", 5000)
    messages = [p.user(f"{number}", p.Image.from_bytes(os.urandom(2000))) for number in range(8)]
    assert len(call_parameters.calls(prepare(messages))) > 2
    store.create("t")
    head = store.append("t", messages, key="k").head
    assert [entry.message.text for entry in store.read("t")] == list("01234567")
    with pytest.raises(ConflictError):
        store.append("t", messages, expect=None)
    with pytest.raises(NotFoundError):
        store.append("nobody", messages)
    assert store.info("t").branches == {"main": head}
    assert store.add("copy", store.read("t")) == 8
    assert store.verify().ok


@contextmanager
def another_client(schema):
    """A link whose transaction stays open, as that of a client that is slow."""
    with psycopg.connect(CONNINFO) as connection:
        yield Link(connection, schema, {})
        connection.commit()


def test_messages_in_any_order_do_not_deadlock(store, schema):
    """Who keeps several messages keeps them in one order, so that two who keep the same ones wait in one direction."""
    low, high = sorted(prepare([p.user("a"), p.user("b")]), key=lambda row: row.packed.body.digest)
    store.create("t")
    with ThreadPoolExecutor(1) as pool:
        with another_client(schema) as link:
            link.execute(updates.KEEP, *call_parameters.calls([low])[0])
            bare = [row.message.replace(id=None, sent_at=None) for row in (high, low)]
            other = pool.submit(store.append, "t", bare)
            waits(schema)
            link.execute("set lock_timeout = 300")  # less than the server takes to see a deadlock, and to break it
            link.execute(updates.KEEP, *call_parameters.calls([high])[0])
        assert len(other.result().entries) == 2
    assert store.verify().ok


def test_gc_waits_for_an_append_that_needs_what_it_would_remove(store, schema):
    store.create("gone")
    store.append("gone", [p.user("again")])
    store.delete("gone")
    store.create("t")
    rows = prepare([p.user("again")])
    joining = appends.AppendRequest("t", "main", UNSET, None, rows, call_parameters.size(rows))
    with ThreadPoolExecutor(1) as pool:
        with another_client(schema) as link:
            appends.append(link, joining, again=False)
            removing = pool.submit(store.gc)
            waits("pg_advisory")
        assert removing.result().messages == 0
    assert store.verify().ok
    assert store.read("t")[0].message.text == "again"


# -- the schema --------------------------------------------------------------------------------------------------------


def test_processes_that_begin_at_once_migrate_once(schema):
    stores, errors = [], []

    def begin():
        try:
            stores.append(open_store(schema))
        except StoreError as error:
            errors.append(error)

    threads = [threading.Thread(target=begin) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.close()
    assert not errors
    versions = run(schema, "select version from {s}.migrations order by version")
    assert versions == [(version,) for version in range(1, NEWEST + 1)]


def test_a_newer_schema_is_refused(schema):
    open_store(schema).close()
    run(schema, "insert into {s}.migrations (version, name) values (99, 'of the future')")
    with pytest.raises(StoreError, match="newer version of Palaver"):
        open_store(schema)


def test_a_migration_that_fails_leaves_nothing(schema):
    """A schema that holds tables of somebody else's by our names stays as it is."""
    run("", f'create schema "{schema}"')
    run(schema, "create table {s}.keys (x int)")
    with pytest.raises(StoreError, match="already exists"):
        open_store(schema)
    tables = run(schema, "select table_name from information_schema.tables where table_schema = %s", schema)
    assert tables == [("keys",)]


@pytest.mark.parametrize(
    "setting",
    [
        "standard_conforming_strings=off",
        "default_transaction_isolation=serializable",
        "bytea_output=escape",
        "search_path=nowhere",
    ],
)
def test_settings_of_the_database_change_nothing(schema, setting):
    conninfo = make_conninfo(CONNINFO, options=f"-c {setting}")
    with PostgresStore(conninfo, schema=schema, timeout=2) as store:
        store.create("q\\'x", title="\\n'")
        message = p.user(ODD)
        assert [store.append("q\\'x", [message], key="k\\").repeated for _ in range(2)] == [False, True]
        assert store.path("q\\'x")[0].message.text == ODD
        assert len(store.search(Query(text="x"))) == 1
        assert store.gc().messages == 0
        assert store.verify().ok


def test_schemas_do_not_see_each_other(schema, store):
    other = f"other % {schema[-8:]}"
    try:
        with open_store(other) as second:
            store.create("t")
            assert list(second.threads()) == []
            second.create("t")
            second.append("t", [p.user("there")])
            assert store.info("t").length == 0
    finally:
        run("", f'drop schema "{other}" cascade'.replace("%", "%%"))


# -- errors ------------------------------------------------------------------------------------------------------------


def test_where_there_is_no_server():
    with pytest.raises(UnavailableError, match="refused"):
        PostgresStore("postgresql://postgres:secret@127.0.0.1:1/test")


def test_what_is_no_location():
    with pytest.raises(StoreError):
        PostgresStore("no such = thing =")


def test_a_password_is_not_shown(schema):
    with PostgresStore(f"{CONNINFO}?application_name=secret", schema=schema) as store:
        assert "secret" not in repr(store)
        assert "test" in repr(store)


def test_a_store_that_is_closed_says_so(schema):
    store = open_store(schema)
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.create("t")


def test_a_statement_that_takes_too_long_is_unavailable(schema):
    open_store(schema).close()
    with PostgresStore(f"{CONNINFO}?options=-cstatement_timeout%3D200", schema=schema) as store:
        store.create("t")
        with psycopg.connect(CONNINFO) as other:
            other.execute(f'select from "{schema}".threads for update')
            with pytest.raises(UnavailableError, match="timeout"):
                store.append("t", [p.user("x")])
        assert store.append("t", [p.user("y")]).head


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("53100", "UnavailableError"),
        ("53200", "UnavailableError"),
        ("25006", "UnavailableError"),
        ("58030", "UnavailableError"),
        ("XX001", "DamageError"),
        ("42501", "StoreError"),
        ("54000", "StoreError"),
    ],
)
def test_what_an_error_of_the_server_means(store, monkeypatch, state, kind):
    from palaver.store.postgres import queries

    def fails(link, thread):
        link.execute("do $$ begin raise 'no good' using errcode = '" + state + "'; end $$")

    monkeypatch.setattr(queries, "info", fails)
    with pytest.raises(StoreError, match=f"no good.*{state}") as caught:
        store.info("t")
    assert type(caught.value).__name__ == kind


# -- the disk ----------------------------------------------------------------------------------------------------------


def test_what_is_deleted_leaves_the_files(private_server):
    """After ``delete`` and ``gc`` no file of the tables holds a word of it, plain or as an index key."""
    schema = "files"
    with PostgresStore(private_server.conninfo, schema=schema) as store:
        store.create("secret", title="titlexyzzy", tags=["tagxyzzy"])
        store.append("secret", [p.user("xylophonexyzzy " * 3, tags=["labelxyzzy"]), p.user("shared")], key="keyxyzzy")
        store.create("kept")
        store.append("kept", [p.user("shared"), p.user("remains plugh")])

        def found(word):
            private_server.execute("checkpoint")
            files = [path for path in (private_server.data / "base").rglob("*") if path.is_file()]
            return any(word in path.read_bytes() for path in files)

        assert found(b"xylophonexyzzy")
        assert found(b"keyxyzzy")
        store.delete("secret")
        freed = store.gc()
        assert freed.messages == 1
        assert not found(b"xyzzy")
        assert found(b"plugh")
        assert [hit.thread for hit in store.search(Query(text="shared"))] == ["kept"]
        assert store.verify().ok


@pytest.fixture
def role(schema, store):  # the store has made the tables by then
    """A role that may read and write, and owns nothing."""
    name = f"palaver_{uuid.uuid4().hex}"
    run(schema, f"create role {name} login")
    run(schema, f"grant usage on schema {{s}} to {name}")
    run(schema, f"grant all on all tables in schema {{s}} to {name}")
    run(schema, f"grant all on all sequences in schema {{s}} to {name}")
    yield name
    run(schema, f"drop owned by {name}")
    run(schema, f"drop role {name}")


def test_gc_says_when_it_may_not_clean_the_files(schema, role):
    with PostgresStore(make_conninfo(CONNINFO, user=role), schema=schema) as store:
        store.open("t").append(p.user("secret"))
        store.delete("t")
        with pytest.raises(StoreError, match="still on the disk"):
            store.gc()


@pytest.fixture
def small_disk(private_server):
    """A tablespace on a disk of 24 MB."""
    folder = private_server.folder / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", folder]
    mount = subprocess.run(command, capture_output=True, text=True, check=False)
    if mount.returncode:
        pytest.skip(f"no small disk: {mount.stderr.strip()}")
    try:
        shutil.chown(folder, "postgres")
        folder.chmod(0o700)
        private_server.execute(f"create tablespace small location '{folder}'")
        ballast = folder / "ballast"
        ballast.write_bytes(bytes(1 << 20))
        yield f"{private_server.conninfo} options='-c default_tablespace=small'", ballast
        private_server.execute("drop schema if exists full_disk cascade")
        private_server.execute("drop tablespace small")
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_full_disk_is_unavailable_and_the_store_goes_on_when_there_is_room(small_disk):
    """A server with no room at all cannot even vacuum; with a little, what is deleted makes the rest."""
    conninfo, ballast = small_disk
    with PostgresStore(conninfo, schema="full_disk") as store:
        store.create("t")
        kept = []

        def fill():
            for number in range(40):
                kept.extend(store.append("t", [p.user(f"{number} " + os.urandom(1 << 20).hex())]).entries)

        with pytest.raises(UnavailableError, match="53100"):
            fill()
        assert kept
        assert list(store.read("t")) == kept
        assert store.verify().ok
        ballast.unlink()
        store.delete("t")
        store.gc()
        store.create("u")
        assert store.append("u", [p.user("x" * 100, p.Image.from_bytes(os.urandom(1 << 20)))]).head


@pytest.mark.finding("F-07")
def test_messages_are_read_with_sql(schema):
    odd = "nul \x00, half \ud800, back \\u0000, \u2028"
    with open_store(schema) as store:
        store.create("t", title="About \u00fc")
        long = "long " * 5000
        first, second, third = store.append(
            "t", [p.user(long, "and more", agent="ada"), p.assistant("yes", model="m"), p.user(odd)]
        ).entries
        store.create("copy", title="half \ud800")
    with psycopg.connect(CONNINFO, autocommit=True) as link:
        link.execute(f'set search_path to "{schema}"')
        columns = "place, id, parent, role, agent, model, sent_at"
        assert link.execute(f"select {columns} from messages where thread = 't' order by place").fetchall() == [
            (0, first.id, None, "user", "ada", None, first.message.sent_at),
            (1, second.id, first.id, "assistant", None, "m", second.message.sent_at),
            (2, third.id, second.id, "user", None, None, third.message.sent_at),
        ]
        (text, last) = link.execute("select text from messages where role = 'user' order by place").fetchall()
        assert text == (f"{long}\nand more",)
        assert last[0].startswith("nul \ufffd, half \ufffd, back \\")
        assert link.execute("select thread, title, length from conversations order by thread").fetchall() == [
            ("copy", "half \ufffd", 0),
            ("t", "About \u00fc", 3),
        ]
