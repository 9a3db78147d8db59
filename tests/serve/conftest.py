"""A NATS server of its own for tests of buses, queues and workers."""

import pytest

from tests.swarm.nats_server import PrivateServer


@pytest.fixture
def server(tmp_path):
    """Yield a NATS server that a test may kill."""
    server = PrivateServer(tmp_path / "nats")
    server.start()
    yield server
    server.remove()
