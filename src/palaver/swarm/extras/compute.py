"""Compute: a value that is derived from states, kept until one of them changes or it is too old.

Rules (docs/spec/agent-swarm-kit.md#6, #K9; ASK-25):

- The function is given the client's id and the value of each state that it depends on, in that order. What it gives
  goes through the middlewares, in order. It is asked by one caller at a time; whoever waited takes what it gave.
- A value lasts ``ttl`` seconds, shared or not, and no longer than until one of the states is set or cleared, or
  ``update`` is called. A change while the function is at work makes what it gives old at once.
- A function that raises rejects its caller, and nothing is kept.
- The values are kept in memory, and given to everybody as they are: do not change them. They must be JSON, since the
  event carries them.

Stability: experimental.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Final, Generic, TypeVar

from palaver.core.errors import SwarmError
from palaver.swarm.shared_value import Observer, Publish, SharedValue, named, observed, plain, resolved
from palaver.swarm.state import Middleware, State, StateCell

T = TypeVar("T")

TTL: Final = 86_400.0
"""How many seconds a value lasts, where nothing else is said."""


@dataclass(frozen=True, eq=False, slots=True)
class Compute(Generic[T]):
    """A derived value of a client, or with ``shared`` of all. ``on_compute`` (value, client) is told of a new one."""

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
                raise SwarmError(f"compute {self.name!r} is shared, and state {state.name!r} is not")


class _Computed(Generic[T]):
    """A value, and what it was made from."""

    def __init__(self, value: T, stamps: tuple[int, ...], at: float) -> None:
        self.value, self.stamps, self.at = value, stamps, at


class ComputeCell(SharedValue, Generic[T]):
    """One live derived value."""

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
        """Derive from ``states``, the cells of ``depends_on`` in its order. Raises ``SwarmError`` for others."""
        super().__init__(compute.name, client, publish, shared=compute.shared)
        wanted, given = [each.name for each in compute.depends_on], [each.name for each in states]
        if wanted != given:
            raise SwarmError(f"{self.what} depends on the states {wanted}, and was given {given}")
        self._compute, self._states, self._clock = compute, tuple(states), clock
        self._computed: _Computed[T] | None = None
        self._updates = 0

    async def get(self) -> T:
        """The value, computed anew where it is none or old. Raises what the function and the middlewares raise."""
        async with self._queue.turn():
            stamps = await self._stamps()
            computed = self._computed
            if computed is None or computed.stamps != stamps or self._clock() - computed.at >= self._compute.ttl:
                computed = self._computed = await self._anew(stamps)
                await observed(self._compute.on_compute, computed.value, self.client)
            self.tell("emit-output", output={"data": plain(self.what, computed.value)})
            return computed.value

    def update(self) -> None:
        """Let the next ``get`` compute the value anew."""
        self._updates += 1

    async def _stamps(self) -> tuple[int, ...]:
        return (self._updates, *[await state.stamp() for state in self._states])

    async def _anew(self, stamps: tuple[int, ...]) -> _Computed[T]:
        values = [await state.peek() for state in self._states]
        made = await resolved(self._compute.function(self.client, *values))
        for middleware in self._compute.middlewares:
            made = await resolved(middleware(made, self.client))
        plain(self.what, made)
        return _Computed(made, stamps, self._clock())
