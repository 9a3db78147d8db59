"""Fixtures: where a log is, and its parts without a gateway."""

import pytest

from palaver.gateway.log.options import LogOptions
from palaver.gateway.log.sink import Sink
from tests.gateway.log.logs import Places


@pytest.fixture
def places(tmp_path):
    return Places(tmp_path)


@pytest.fixture
def sink(places):
    opened = Sink(LogOptions(store=places.store), places.database)
    yield opened
    opened.close()
