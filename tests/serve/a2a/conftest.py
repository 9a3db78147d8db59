"""A2A over loopback, on asyncio, as the SDK is."""

import pytest


@pytest.fixture
def anyio_backend():
    return "asyncio"
