"""Writers that are killed at any moment (law 8)."""

import pytest

from tests.store import crash
from tests.store.postgres.server import CONNINFO


@pytest.mark.server
@pytest.mark.law(8)
@pytest.mark.parametrize("times", [8, pytest.param(200, marks=pytest.mark.long)])
def test_what_was_acknowledged_survives_a_kill(schema, times):
    assert crash.survive(CONNINFO, times, schema=schema) > times
