"""State: one value that a client's turns read and change, or that all clients share.

Rules (docs/spec/agent-swarm-kit.md#6, #K6; ASK-24):

- ``State`` is what an application writes, ``StateCell`` one live state. A default is a value, or a function of the
  client's id that is asked once, until the state is cleared.
- Reading, setting and clearing happen one at a time, in the order of asking; so a read waits for a write in flight. A
  function given to ``set`` may read the state, and sees what it is about to change; it may not set it.
- What ``set`` is given goes through the middlewares, in order. Whatever raises on the way rejects that caller,
  changes nothing, and lets the next one in. ``clear`` goes through no middleware.
- A store that fails does not take back what was set: the value stands in memory, ``kept`` is false, and the event
  carries the ``error``. The next write keeps the whole value.
- Values are JSON, and copies; ``type`` is what they are read as, so that a value is the same after a restart.
- Between processes that share a state the last write wins; each of them sees it at its next operation.

Stability: experimental.
"""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar

import anyio

from palaver.core.errors import StoreError
from palaver.swarm.log import Values
from palaver.swarm.shared_value import MISSING, Observer, Publish, SharedValue, named, observed, plain, resolved, typed

T = TypeVar("T")

Middleware: TypeAlias = Callable[[T, str], T | Awaitable[T]]
"""A function of a value and the client's id, which gives the value that goes on."""

_KIND: Final = "state"


@dataclass(frozen=True, eq=False, slots=True)
class State(Generic[T]):
    """A value of a client, or with ``shared`` of all. Observers: ``on_read`` and ``on_write`` (value, client)."""

    name: str
    default: T | Callable[[str], T | Awaitable[T]]
    _: KW_ONLY
    type: builtins.type[T] | None = None
    shared: bool = False
    middlewares: Sequence[Middleware[T]] = ()
    on_read: Observer | None = None
    on_write: Observer | None = None

    def __post_init__(self) -> None:
        """Raise ``SwarmError`` without a name, and for a field of the wrong type."""
        named("state", self)


class StateCell(SharedValue, Generic[T]):
    """One live state."""

    source: ClassVar[str] = "state"

    def __init__(self, state: State[T], values: Values, client: str, publish: Publish) -> None:
        """Keep the state in ``values``: a client's own, or shared ones."""
        super().__init__(state.name, client, publish, shared=state.shared)
        self._state, self._values = state, values
        self._default: Any = MISSING
        self._unkept: Any = MISSING
        self._seen: Any = MISSING
        self._changes = 0

    @property
    def kept(self) -> bool:
        """Whether the store holds what memory holds."""
        return self._unkept is MISSING

    async def get(self) -> T:
        """The value that stands. Raises what the default raises, and ``StoreError``."""
        async with self._queue.reading():
            raw = await self._standing()
            self.tell("get-state", output={"state": plain(self.what, raw)})
            value = self._typed(raw)
            await observed(self._state.on_read, value, self.client)
            return value

    async def set(self, value: T | Callable[[T], T | Awaitable[T]]) -> T:
        """Set a value, or what a function makes of the one that stands; gives the value that stands then.

        Raises what the function and the middlewares raise, and ``SwarmError`` for a value that is not JSON or not of
        the state's type.
        """
        async with self._queue.turn():
            new: T = await resolved(value(await self.peek())) if callable(value) else value
            for middleware in self._state.middlewares:
                new = await resolved(middleware(new, self.client))
            raw = plain(self.what, new)
            standing = self._typed(raw)
            await self._write("set-state", raw, clear=False)
            await observed(self._state.on_write, standing, self.client)
            return standing

    async def clear(self) -> T:
        """Restore the default, in memory and in the store, and give it. Raises what the default raises."""
        async with self._queue.turn():
            raw = await self._load()
            await self._write("clear-state", raw, clear=True)
            standing = self._typed(raw)
            await observed(self._state.on_write, standing, self.client)
            return standing

    async def peek(self) -> T:
        """The value that stands, without waiting for a write in flight, and without an event."""
        return self._typed(await self._standing())

    async def stamp(self) -> int:
        """A number that is another one as soon as the state was set or cleared. Waits for no write in flight."""
        await self._values.refresh()
        kept = self._values.get(_KIND, self.name, MISSING)
        if kept is not self._seen:
            self._seen = kept
            self._changes += 1
        return self._changes

    async def _standing(self) -> Any:
        if self._unkept is not MISSING:
            return self._unkept
        await self._values.refresh()
        kept = self._values.get(_KIND, self.name, MISSING)
        if kept is not MISSING:
            return kept
        return await self._load() if self._default is MISSING else self._default

    async def _load(self) -> Any:
        default = self._state.default
        raw = plain(self.what, await resolved(default(self.client)) if callable(default) else default)
        self._typed(raw)
        self._default = raw
        return raw

    async def _write(self, type: str, raw: Any, *, clear: bool) -> None:
        """Keep a value, or the absence of one, and say so; done or not done, also when the caller is cancelled."""
        output: dict[str, Any] = {"state": plain(self.what, raw)}
        with anyio.CancelScope(shield=True):
            try:
                if clear:
                    await self._values.remove(_KIND, self.name)
                else:
                    await self._values.put(_KIND, self.name, raw)
                self._unkept = MISSING
            except StoreError as error:
                self._unkept = raw
                output["error"] = str(error)
        self._changes += 1
        self.tell(type, output=output)

    def _typed(self, raw: Any) -> T:
        return typed(self.what, raw, self._state.type)
