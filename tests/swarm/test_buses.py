"""Both buses pass the one suite."""

import asyncio

import pytest

from palaver.swarm.local_bus import LocalBus
from palaver.testing import buses
from tests.swarm.nats_server import fresh_stream, open_bus

_ROWS = {
    buses.events_of_a_client_come_in_order: ("ASK-23",),
    buses.a_listener_can_neither_break_nor_delay: ("ASK-23", "ASK-30"),
    buses.handlers_of_one_listener_never_overlap: ("ASK-23",),
    buses.an_event_is_seen_once: ("ASK-23",),
    buses.an_error_or_a_cancellation_goes_through: ("ASK-30",),
}
CHECKS = [
    pytest.param(check, id=check.__name__, marks=[pytest.mark.row(row) for row in _ROWS.get(check, ())])
    for check in buses.CHECKS
]


@pytest.fixture
def stream():
    with fresh_stream() as options:
        yield options


async def passes(check, make):
    """Run a check; on asyncio nothing may be left to the loop's exception handler."""
    unobserved = []
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        loop = None
    if loop is not None:
        loop.set_exception_handler(lambda _, context: unobserved.append(context))
    await check(make)
    assert unobserved == []


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
@pytest.mark.parametrize("check", CHECKS)
async def test_the_bus_of_a_process(check, anyio_backend):
    await passes(check, LocalBus)


@pytest.mark.server
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("check", CHECKS)
async def test_the_bus_over_nats(check, stream, anyio_backend):
    await passes(check, lambda: open_bus(stream))
