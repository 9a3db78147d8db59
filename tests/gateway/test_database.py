"""The database of a gateway, in SQLite and in PostgreSQL."""

import stat
import threading

import pytest

from palaver.core.errors import StoreError
from palaver.gateway.database import SQLiteDatabase, open_database
from tests.store.postgres.server import CONNINFO, fresh_schema

TABLES = (("CREATE TABLE {s}.numbers (name TEXT PRIMARY KEY, used BIGINT, bytes BYTEA, part DOUBLE PRECISION)",),)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.server)])
def database(request, tmp_path):
    if request.param == "sqlite":
        opened = open_database(str(tmp_path / "new" / "gateway.db"))
        yield opened
        opened.close()
        return
    with fresh_schema() as schema:
        opened = open_database(CONNINFO, schema=schema)
        yield opened
        opened.close()


def test_work_happens_whole_or_not_at_all(database):
    database.migrate("numbers", TABLES)
    values = ("a ? %s 'x'", 2**40, b"\x00\xff", 0.5)

    def fail(transaction):
        transaction.rows("INSERT INTO {s}.numbers VALUES (?, ?, ?, ?)", *values)
        raise StoreError("no")

    with pytest.raises(StoreError, match="no"):
        database.run(fail)
    assert database.run(lambda it: it.rows("SELECT * FROM {s}.numbers")) == []
    database.run(lambda it: it.rows("INSERT INTO {s}.numbers VALUES (?, ?, ?, ?)", *values))
    assert database.run(lambda it: it.rows("SELECT * FROM {s}.numbers")) == [values]
    with pytest.raises(StoreError):
        database.run(lambda it: it.rows("SELECT nothing FROM {s}.nowhere"))


def test_migrations_run_once_and_those_of_a_newer_version_are_refused(database):
    database.migrate("numbers", TABLES)
    more = (*TABLES, ("INSERT INTO {s}.numbers VALUES ('one', 1, NULL, NULL)",))
    database.migrate("numbers", more)
    database.migrate("numbers", more)
    assert database.run(lambda it: it.rows("SELECT name, used FROM {s}.numbers")) == [("one", 1)]
    with pytest.raises(StoreError, match="newer version"):
        database.migrate("numbers", TABLES)


def test_additions_of_several_threads_are_all_there(database):
    database.migrate("numbers", TABLES)
    database.run(lambda it: it.rows("INSERT INTO {s}.numbers VALUES ('n', 0, NULL, NULL)"))
    add = "UPDATE {s}.numbers SET used = used + ? WHERE name = 'n' RETURNING used"
    seen = []

    def work():
        seen.extend([database.run(lambda it: it.rows(add, 1))[0][0] for _ in range(20)])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(seen) == list(range(1, 81))


def test_the_file_is_for_its_owner_only(tmp_path):
    SQLiteDatabase(str(tmp_path / "gateway.db")).close()
    assert stat.S_IMODE((tmp_path / "gateway.db").stat().st_mode) == 0o600
    with pytest.raises(StoreError, match=r"gateway\.db"):
        SQLiteDatabase(str(tmp_path / "gateway.db" / "gateway.db"))
