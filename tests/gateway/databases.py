"""Databases of gateways: an SQLite file, and a new database of the tests' PostgreSQL."""

import uuid
from contextlib import contextmanager
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.store.postgres.server import CONNINFO

KINDS = ["sqlite", pytest.param("postgres", marks=pytest.mark.server)]


@contextmanager
def location(kind, folder):
    """Yield where a gateway's database is: a path, or the address of a database that is dropped afterwards."""
    if kind == "sqlite":
        yield str(folder / "gateway.db")
        return
    try:
        connection = psycopg.connect(CONNINFO, autocommit=True, connect_timeout=30)
    except psycopg.OperationalError as error:
        pytest.skip(f"no PostgreSQL: {str(error).splitlines()[0]}")
    name = f"gateway_{uuid.uuid4().hex}"
    with connection:
        connection.execute(f'create database "{name}"')
        try:
            yield urlsplit(CONNINFO)._replace(path=f"/{name}").geturl()
        finally:
            connection.execute(f'drop database "{name}" with (force)')
