"""Types and helpers for the checks of buses.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import anyio

from palaver.core.errors import PalaverError
from palaver.swarm.bus import Bus, Subscription
from palaver.swarm.events import Event

MakeBus: TypeAlias = Callable[[], Bus]
Check: TypeAlias = Callable[[MakeBus], Awaitable[None]]

TIMEOUT: Final = 20.0
ODD: Final = (
    "",
    " ",
    "*",
    ">",
    "a.b",
    "a.b.>",
    "=",
    "==",
    "=2e",
    "..",
    "a b",
    "ä€😀",
    "\x00\n\r\t",
    "x" * 5000,
    "$JS",
    "A",
    "a",
)
"""Client names that are hard to encode."""


def name_of(check: Check) -> str:
    """Return the name of a check, for a test report."""
    return getattr(check, "__name__", "check")


def event_of(number: int, client: str = "ann", **fields: Any) -> Event:
    """Return an event with a number."""
    values: dict[str, Any] = {"source": "agent", "type": "run", "client": client, "input": {"n": number}}
    return Event(**values | fields)


def numbers(events: list[Event]) -> list[int]:
    """Return the numbers of events."""
    return [event.input["n"] for event in events]


async def take(events: Subscription, count: int) -> list[Event]:
    """Return the next events of a subscription."""
    taken: list[Event] = []
    with anyio.fail_after(TIMEOUT):
        async for event in events:
            taken.append(event)
            if len(taken) == count:
                break
    return taken


async def rest(events: Subscription) -> list[Event]:
    """Return the events of a subscription until it ends."""
    with anyio.fail_after(TIMEOUT):
        return [event async for event in events]


async def until(holds: Callable[[], bool]) -> None:
    """Poll until a condition is true."""
    with anyio.fail_after(TIMEOUT):
        while not holds():  # noqa: ASYNC110 (there is no event to wait for)
            await anyio.sleep(0.005)


@contextmanager
def raises(kind: type[Exception]) -> Generator[None]:
    """Check that the block raises such an error; a ``PalaverError`` must have a text."""
    caught: list[Exception] = []
    try:
        yield
    except kind as error:
        caught.append(error)
    assert caught, f"no {kind.__name__}"
    assert str(caught[0]) or not isinstance(caught[0], PalaverError), "an error without a text"
