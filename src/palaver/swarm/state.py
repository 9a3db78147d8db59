"""State: one value that a client's turns read and change, or that all clients share.

Rules (docs/spec/agent-swarm-kit.md#6, #K6; ASK-24):

- ``State`` is the application's description, ``StateCell`` one live state. A default is a value, or a function of the
  client's id that is called once, until the state is cleared.
- Reading, setting and clearing happen one at a time, in the order of the calls; so a read waits for a write in
  progress. A function given to ``set`` may read the state, and sees the old value; it may not set it.
- A new value goes through the middlewares, in order. An exception rejects that caller, changes nothing, and lets the
  next one in. ``clear`` does not use the middlewares.
- When the store fails, the new value stays in memory, ``kept`` is false, and the event has the ``error``. The next
  write stores the whole value.
- Values are JSON, and copies; ``type`` is their Python type, so that a value is the same after a restart.
- Between processes that share a state, the last write wins; each of them sees it at its next operation.

The common base of shared values: a queue, events, and copied values:

- Operations of a queue run one at a time, in the order of the calls. One that fails or is cancelled lets the next in.
- A function of the application that runs inside an operation is known by its context: it may read the old value, and
  where it would wait for itself, ``SwarmError`` is raised. A task that outlives the operation is outside.
- Inputs and outputs are copies; a caller who changes one changes nothing here.
- Exceptions of an observer are logged, and change nothing.

Stability: experimental.
"""

from __future__ import annotations

import builtins
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, fields
from inspect import isawaitable
from math import isfinite
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar

import anyio
import msgspec

from palaver.core.errors import StoreError, SwarmError
from palaver.core.jsontext import Number
from palaver.core.type_checks import check_arguments
from palaver.swarm.events import SHARED, Event
from palaver.swarm.log import Values

# -- shared value ----------------------------------------------------------------------------------


T = TypeVar("T")

Publish: TypeAlias = Callable[[Event], None]
Observer: TypeAlias = Callable[..., Awaitable[Any] | Any]
"""A function, plain or asynchronous, whose result is ignored."""

MISSING: Final = object()
"""No value, where ``None`` is a value."""

_logger: Final = logging.getLogger(__name__)


class _Turn:
    """One operation in progress."""

    __slots__ = ("over", "queue")

    def __init__(self, queue: Queue) -> None:
        self.queue, self.over = queue, False


_TURNS: Final[ContextVar[tuple[_Turn, ...]]] = ContextVar("palaver.swarm.turns", default=())


class Queue:
    """Lets one operation in at a time, first come, first served. ``what`` names it in errors."""

    def __init__(self, what: str) -> None:
        """Start without callers."""
        self._what, self._lock = what, anyio.Lock()

    @property
    def inside(self) -> bool:
        """Whether the caller runs inside an operation of this queue."""
        return any(turn.queue is self and not turn.over for turn in _TURNS.get())

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Wait for the caller's turn. Raises ``SwarmError`` inside an operation of this queue: it would never end."""
        if self.inside:
            raise SwarmError(f"{self._what}: read by a function that it waits for")
        async with self._lock:
            turn = _Turn(self)
            before = _TURNS.set((*_TURNS.get(), turn))
            try:
                yield
            finally:
                turn.over = True
                _TURNS.reset(before)

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[None]:
        """Do the same for a reader: inside an operation of this queue it does not wait."""
        if self.inside:
            yield
        else:
            async with self.turn():
                yield


class SharedValue:
    """A live value: its name, its client, and its events."""

    source: ClassVar[str]

    def __init__(self, name: str, client: str, publish: Publish, *, shared: bool) -> None:
        """Publish for a client, or for ``shared``."""
        self.name = name
        self.client = SHARED if shared else client
        self.what = f"{self.source} {name!r}"
        self._publish = publish
        self._queue = Queue(self.what)

    def publish_event(
        self, type: str, input: Mapping[str, Any] | None = None, output: Mapping[str, Any] | None = None
    ) -> None:
        """Publish an event."""
        self._publish(
            Event(
                source=self.source,
                type=type,
                client=self.client,
                name=self.name,
                input=input or {},
                output=output or {},
            )
        )


def named(source: str, description: Any) -> None:
    """Raise ``SwarmError`` for a description, a dataclass, without a name or with a field of the wrong type."""
    name = description.name
    whose = f"{source} {name!r}"
    given = {each.name: getattr(description, each.name) for each in fields(description)}
    cls: Callable[..., Any] = description.__class__
    check_arguments(whose, cls, given, SwarmError)
    if not name:
        raise SwarmError(f"{'an' if source[0] in 'aeiou' else 'a'} {source} needs a name")


def plain(what: str, value: Any) -> Any:
    """Return a copy of a value in JSON's own types. Raises ``SwarmError`` when it has none."""
    try:
        return _listed(msgspec.to_builtins(value, str_keys=True, enc_hook=_number))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise SwarmError(f"{what}: the value is not JSON: {error}") from error


def _listed(value: Any) -> Any:
    """Return lists for tuples, as after a restart; refuse numbers that JSON lacks."""
    match value:
        case list() | tuple():
            return [_listed(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
        case dict():
            return {key: _listed(each) for key, each in value.items()}  # pyright: ignore[reportUnknownVariableType]
        case float() if not isfinite(value):
            raise ValueError(f"{value} is not a JSON number")
        case _:
            return value


def _number(value: object) -> float:
    """Return a plain float for one that keeps its text."""
    if isinstance(value, Number):
        return float(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def typed(what: str, value: Any, type: type[T] | None) -> T:
    """Return a copy of a JSON value as the application's type. Raises ``SwarmError`` when it does not match."""
    copied: T = plain(what, value)  # without a type, T is a JSON type
    if type is None:
        return copied
    try:
        return msgspec.convert(copied, type)
    except (ValueError, TypeError, msgspec.MsgspecError) as error:
        raise SwarmError(f"{what}: {error}") from error


async def resolved(value: T | Awaitable[T]) -> T:
    """Return the value itself, or the awaited one: functions of an application are plain or asynchronous."""
    if isawaitable(value):
        return await value
    return value


async def observed(observer: Observer | None, *args: Any) -> None:
    """Call an observer, if there is one."""
    if observer is None:
        return
    try:
        await resolved(observer(*args))
    except Exception:
        _logger.exception("an observer of a swarm failed")


# -- state -----------------------------------------------------------------------------------------


Middleware: TypeAlias = Callable[[T, str], T | Awaitable[T]]
"""A function of a value and the client's id that returns the next value."""

_KIND: Final = "state"


@dataclass(frozen=True, eq=False, slots=True)
class State(Generic[T]):
    """A value of a client, or with ``shared`` of all. Observers: ``on_read`` and ``on_write`` (value, client).

    ``name`` is that of the state. ``default`` is a value, or a function of the client's id that returns it. ``type`` is
    the Python type of the value; ``None`` leaves it as JSON. ``middlewares`` are functions of a new value and the
    client's id; each returns the value for the next one.
    """

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
        """Store the state in ``values``: a client's own, or shared ones."""
        super().__init__(state.name, client, publish, shared=state.shared)
        self._state, self._values = state, values
        self._default: Any = MISSING
        self._unkept: Any = MISSING
        self._seen: Any = MISSING
        self._changes = 0

    @property
    def kept(self) -> bool:
        """Whether the store has the value of memory."""
        return self._unkept is MISSING

    async def get(self) -> T:
        """Return the current value. Raises what the default raises, and ``StoreError``."""
        async with self._queue.reading():
            raw = await self._standing()
            self.publish_event("get-state", output={"state": plain(self.what, raw)})
            value = self._typed(raw)
            await observed(self._state.on_read, value, self.client)
            return value

    async def set(self, value: T | Callable[[T], T | Awaitable[T]]) -> T:
        """Set a value, or the result of a function of the current one; return the new value.

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
        """Restore the default, in memory and in the store, and return it. Raises what the default raises."""
        async with self._queue.turn():
            raw = await self._load()
            await self._write("clear-state", raw, clear=True)
            standing = self._typed(raw)
            await observed(self._state.on_write, standing, self.client)
            return standing

    async def peek(self) -> T:
        """Return the current value, without waiting for a write in progress, and without an event."""
        return self._typed(await self._standing())

    async def stamp(self) -> int:
        """Return a number that changes when the state is set or cleared. Does not wait for a write in progress."""
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
        """Store or remove a value, and publish that; completely or not at all, even when the caller is cancelled."""
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
        self.publish_event(type, output=output)

    def _typed(self, raw: Any) -> T:
        return typed(self.what, raw, self._state.type)
