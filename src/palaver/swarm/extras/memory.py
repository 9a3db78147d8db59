"""Session memory: values that a client's session stores beside its messages; and values as text for a model.

- ``write`` merges its mapping into the memory, one level deep. Reads and writes run one at a time, in order.
- The memory is one value of a client's ``Values`` and lasts as long as they do. A write happens completely or not at
  all.
- Values are JSON, and copies. There are no events: the memory belongs to the session alone.

See docs/spec/agent-swarm-kit.md#6.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeGuard

from palaver.swarm.log import Values
from palaver.swarm.state import Queue, plain

MAX_LENGTH: Final = 50
"""The default number of characters of a value."""

_KIND: Final = "memory"
_NAME: Final = "session"
_WHAT: Final = "session memory"


class Memory:
    """The memory of one client's session."""

    def __init__(self, values: Values) -> None:
        """Store the memory in a client's values."""
        self._values, self._queue = values, Queue(_WHAT)

    async def read(self) -> dict[str, Any]:
        """Return the whole memory."""
        async with self._queue.reading():
            return await self._read()

    async def write(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Add values and return the memory. Raises ``SwarmError`` for a value that is not JSON, and ``StoreError``."""
        async with self._queue.turn():
            merged = {**await self._read(), **plain(_WHAT, dict(values))}
            await self._values.put(_KIND, _NAME, merged)
            return merged

    async def clear(self) -> None:
        """Clear the memory."""
        async with self._queue.turn():
            await self._values.remove(_KIND, _NAME)

    async def _read(self) -> dict[str, Any]:
        await self._values.refresh()
        stored: dict[str, Any] = plain(_WHAT, self._values.get(_KIND, _NAME, {}))
        return stored


def describe(value: Any, *, limit: int = MAX_LENGTH) -> str:
    """Describe a value, or each of several, as lines ``Title: value``, with an empty line between several.

    A nested value has the titles of both (``Address city: Rome``, ``Tags 1: new``). Values are cut
    at ``limit`` characters; ``None`` has no line. Raises ``SwarmError`` for a value that is not JSON.
    """
    data: Any = plain("a description", value)
    items = data if _is_list(data) else [data]
    return "\n\n".join(filter(None, ("\n".join(_lines(item, (), limit)) for item in items)))


def _lines(value: Any, names: Sequence[str], limit: int) -> Iterator[str]:
    if _is_list(value):
        for place, each in enumerate(value, 1):
            yield from _lines(each, (*names, str(place)), limit)
    elif _is_object(value):
        for name, each in value.items():
            yield from _lines(each, (*names, name), limit)
    elif value is not None:
        text = " ".join(str(value).split())[:limit]
        yield f"{_title(names)}: {text}" if names else text


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _title(names: Sequence[str]) -> str:
    title = " ".join(" ".join(names).replace("_", " ").split())
    return title[:1].upper() + title[1:]
