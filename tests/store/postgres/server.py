"""The tests' PostgreSQL: ``PALAVER_POSTGRES``, else the database ``test`` on this machine."""

import os
import time
import uuid
from contextlib import contextmanager

import psycopg
import pytest

from palaver.store.postgres import PostgresStore

CONNINFO = os.environ.get("PALAVER_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")


@contextmanager
def fresh_schema(conninfo=CONNINFO):
    """Yield the name of a new schema, which is dropped afterwards; without a server the test is skipped."""
    try:
        connection = psycopg.connect(conninfo, autocommit=True, connect_timeout=30)
    except psycopg.OperationalError as error:
        pytest.skip(f"no PostgreSQL: {str(error).splitlines()[0]}")
    schema = f"test {uuid.uuid4().hex}"  # a name that must be quoted
    with connection:
        try:
            yield schema
        finally:
            connection.execute(f'drop schema if exists "{schema}" cascade')


def open_store(schema, **options):
    return PostgresStore(CONNINFO, schema=schema, **{"max_size": 6} | options)


def run(schema, statement, *values):
    """Run a statement outside of the store; ``{s}`` is the schema."""
    with psycopg.connect(CONNINFO, autocommit=True) as connection:
        cursor = connection.execute(statement.replace("{s}", f'"{schema}"'), values)
        return cursor.fetchall() if cursor.description else []


def waits(schema):
    """Wait until a session waits for a lock because of a statement on the schema."""
    query = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%%' || %s || '%%'"
    for _ in range(6000):
        if run("", query, schema)[0][0]:
            return
        time.sleep(0.01)
    raise AssertionError("nobody waits")
