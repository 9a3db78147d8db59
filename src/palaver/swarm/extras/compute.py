"""Computed values: derived from states, and cached until a state changes or they are too old.

- The function gets the client's id and the values of the states in ``depends_on``, in that order. Middlewares then
  change its result, in order. It runs for one caller at a time; callers that waited share the result.
- A value lasts ``ttl`` seconds, until a state is set or cleared, or until ``update`` is called. A change while the
  function runs makes its result outdated at once.
- An exception of the function goes to the caller, and nothing is cached.
- Values are kept in memory and shared by all callers: do not change them. They must be JSON, because the event has
  them.

See docs/spec/agent-swarm-kit.md#6, #K9; ASK-25.

Stability: experimental.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Final, Generic, TypeVar

from palaver.core.errors import SwarmError
from palaver.swarm.state import (
    Middleware,
    Observer,
    Publish,
    SharedValue,
    State,
    StateCell,
    named,
    observed,
    plain,
    resolved,
)

T = TypeVar("T")

TTL: Final = 86_400.0
"""The default number of seconds that a value lasts."""


@dataclass(frozen=True, eq=False, slots=True)
class Compute(Generic[T]):
    """A derived value of a client, or with ``shared`` of all. ``on_compute`` gets each new value and its client.

    ``name`` is that of the value. ``function`` gets the client's id and the values of the states in ``depends_on``, in
    that order. ``ttl`` is how many seconds a value lasts. ``middlewares`` are functions of a value and the client's id;
    each returns the value that goes on to the next.
    """

    name: str
    function: Callable[..., T | Awaitable[T]]
    _: KW_ONLY
    depends_on: Sequence[State[Any]] = ()
    ttl: float = TTL
    shared: bool = False
    middlewares: Sequence[Middleware[T]] = ()
    on_compute: Observer | None = None

    def __post_init__(self) -> None:
        """Raise ``SwarmError`` without a name, and when a value of all clients depends on a state of one."""
        named("compute", self)
        for state in self.depends_on:
            if self.shared and not state.shared:
                raise SwarmError(f"compute {self.name!r} is shared, but state {state.name!r} is not")


class _Computed(Generic[T]):
    """A cached value, the stamps of its states, and its time."""

    def __init__(self, value: T, stamps: tuple[int, ...], at: float) -> None:
        self.value, self.stamps, self.at = value, stamps, at


class LiveCompute(SharedValue, Generic[T]):
    """The live value of a ``Compute``."""

    source: ClassVar[str] = "compute"

    def __init__(
        self,
        compute: Compute[T],
        states: Sequence[StateCell[Any]],
        client: str,
        publish: Publish,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Derive from ``states``, those of ``depends_on`` in the same order. Raises ``SwarmError`` otherwise."""
        super().__init__(compute.name, client, publish, shared=compute.shared)
        expected, actual = [each.name for each in compute.depends_on], [each.name for each in states]
        if expected != actual:
            raise SwarmError(f"{self.what} depends on the states {expected}, but got {actual}")
        self._compute, self._states, self._clock = compute, tuple(states), clock
        self._computed: _Computed[T] | None = None
        self._updates = 0

    async def get(self) -> T:
        """Return the value, computed again if it is outdated. Raises what the function and the middlewares raise."""
        async with self._queue.turn():
            stamps = await self._stamps()
            computed = self._computed
            if computed is None or computed.stamps != stamps or self._clock() - computed.at >= self._compute.ttl:
                computed = self._computed = await self._compute_value(stamps)
                await observed(self._compute.on_compute, computed.value, self.client)
            self.publish_event("emit-output", output={"data": plain(self.what, computed.value)})
            return computed.value

    def update(self) -> None:
        """Make the next ``get`` compute the value again."""
        self._updates += 1

    async def _stamps(self) -> tuple[int, ...]:
        return (self._updates, *[await state.stamp() for state in self._states])

    async def _compute_value(self, stamps: tuple[int, ...]) -> _Computed[T]:
        values = [await state.peek() for state in self._states]
        result = await resolved(self._compute.function(self.client, *values))
        for middleware in self._compute.middlewares:
            result = await resolved(middleware(result, self.client))
        plain(self.what, result)
        return _Computed(result, stamps, self._clock())
