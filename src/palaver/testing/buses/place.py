"""What checks of buses are made of: a bus, and short words for what they do all the time.

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

Make: TypeAlias = Callable[[], Bus]
Check: TypeAlias = Callable[[Make], Awaitable[None]]

PATIENCE: Final = 20.0
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
"""Names of clients that a wire could stumble over."""


def name_of(check: Check) -> str:
    """The name of a check, for a test report."""
    return getattr(check, "__name__", "check")


def said(number: int, client: str = "ann", **fields: Any) -> Event:
    """An event with a number."""
    values: dict[str, Any] = {"source": "agent", "type": "run", "client": client, "input": {"n": number}}
    return Event(**values | fields)


def numbers(events: list[Event]) -> list[int]:
    """The numbers of events."""
    return [event.input["n"] for event in events]


async def take(events: Subscription, count: int) -> list[Event]:
    """The next events of a subscription."""
    taken: list[Event] = []
    with anyio.fail_after(PATIENCE):
        async for event in events:
            taken.append(event)
            if len(taken) == count:
                break
    return taken


async def rest(events: Subscription) -> list[Event]:
    """The events of a subscription until it ends."""
    with anyio.fail_after(PATIENCE):
        return [event async for event in events]


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds that nobody tells of."""
    with anyio.fail_after(PATIENCE):
        while not holds():  # noqa: ASYNC110 (nobody tells)
            await anyio.sleep(0.005)


@contextmanager
def raises(kind: type[Exception]) -> Generator[None]:
    """The block must raise such an error; one of Palaver's has a text."""
    caught: list[Exception] = []
    try:
        yield
    except kind as error:
        caught.append(error)
    assert caught, f"no {kind.__name__}"
    assert str(caught[0]) or not isinstance(caught[0], PalaverError), "an error without a text"
