"""What every live part has that clients of a swarm share or keep: a queue, a voice, and values that nobody can change.

Rules:

- Operations of a queue run one at a time, in the order of asking. One that fails or is cancelled lets the next one in.
- A function of the application that runs inside an operation is known by its context: it may read what it is about to
  change, and where it would wait for itself, ``SwarmError`` is raised. A task that outlives the operation is outside.
- What goes in and what comes out is a copy; a caller who changes it changes nothing here.
- An observer is told, and can do no harm: what it raises is logged.

Stability: experimental.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import fields
from inspect import isawaitable
from math import isfinite
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

import anyio
import msgspec

from palaver.core.errors import SwarmError
from palaver.core.jsontext import Number
from palaver.core.type_checks import check_arguments
from palaver.swarm.events import SHARED, Event

T = TypeVar("T")

Publish: TypeAlias = Callable[[Event], None]
Observer: TypeAlias = Callable[..., Awaitable[Any] | Any]
"""A function, plain or asynchronous, whose result nobody asks for."""

MISSING: Final = object()
"""No value, where ``None`` is one."""

_logger: Final = logging.getLogger(__name__)


class _Turn:
    """One operation under way."""

    __slots__ = ("over", "queue")

    def __init__(self, queue: Queue) -> None:
        self.queue, self.over = queue, False


_TURNS: Final[ContextVar[tuple[_Turn, ...]]] = ContextVar("palaver.swarm.turns", default=())


class Queue:
    """Lets one operation in at a time, first come, first served. ``what`` names it in errors."""

    def __init__(self, what: str) -> None:
        """Begin with nobody waiting."""
        self._what, self._lock = what, anyio.Lock()

    @property
    def inside(self) -> bool:
        """Whether the caller runs inside an operation of this queue."""
        return any(turn.queue is self and not turn.over for turn in _TURNS.get())

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Wait for one's turn. Raises ``SwarmError`` inside an operation of this queue, which would never end."""
        if self.inside:
            raise SwarmError(f"{self._what}: asked by a function that it is waiting for")
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
        """The same for who only reads: inside an operation of this queue there is nothing to wait for."""
        if self.inside:
            yield
        else:
            async with self.turn():
                yield


class SharedValue:
    """A live part: its name, whose it is, and where it says what happens."""

    source: ClassVar[str]

    def __init__(self, name: str, client: str, publish: Publish, *, shared: bool) -> None:
        """Speak for a client, or for ``shared``."""
        self.name = name
        self.client = SHARED if shared else client
        self.what = f"{self.source} {name!r}"
        self._publish = publish
        self._queue = Queue(self.what)

    def tell(self, type: str, input: Mapping[str, Any] | None = None, output: Mapping[str, Any] | None = None) -> None:
        """Publish what happened."""
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
    """A copy of a value in JSON's own types. Raises ``SwarmError`` when it has none."""
    try:
        return _listed(msgspec.to_builtins(value, str_keys=True, enc_hook=_number))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise SwarmError(f"{what}: the value is not JSON: {error}") from error


def _listed(value: Any) -> Any:
    """Lists for tuples, as a restart would bring them back; no number that JSON does not know."""
    match value:
        case list() | tuple():
            return [_listed(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
        case dict():
            return {key: _listed(each) for key, each in value.items()}  # pyright: ignore[reportUnknownVariableType]
        case float() if not isfinite(value):
            raise ValueError(f"{value} is no number of JSON")
        case _:
            return value


def _number(value: object) -> float:
    """A plain float for one that remembers how it was written."""
    if isinstance(value, Number):
        return float(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def typed(what: str, value: Any, type: type[T] | None) -> T:
    """A copy of a JSON value as an application wants it. Raises ``SwarmError`` when it does not fit."""
    copied: T = plain(what, value)  # without a type, T is what JSON gives
    if type is None:
        return copied
    try:
        return msgspec.convert(copied, type)
    except (ValueError, TypeError, msgspec.MsgspecError) as error:
        raise SwarmError(f"{what}: {error}") from error


async def resolved(value: T | Awaitable[T]) -> T:
    """The value itself, or what it comes to: functions of an application are plain or asynchronous."""
    if isawaitable(value):
        return await value
    return value


async def observed(observer: Observer | None, *args: Any) -> None:
    """Tell an observer, if there is one."""
    if observer is None:
        return
    try:
        await resolved(observer(*args))
    except Exception:
        _logger.exception("an observer of a swarm failed")
