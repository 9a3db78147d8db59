import pytest

from tests.store.postgres.private_server import PrivateServer
from tests.store.postgres.server import fresh_schema, open_store


@pytest.fixture
def schema():
    with fresh_schema() as name:
        yield name


@pytest.fixture
def store(schema):
    with open_store(schema) as opened:
        yield opened


@pytest.fixture(scope="package")
def private_server():
    server = PrivateServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()
