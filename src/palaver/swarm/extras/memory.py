"""Session memory: what a client's session remembers beside its messages; and values as text that a model can read.

Rules (docs/spec/agent-swarm-kit.md#6):

- ``write`` merges its mapping into what is there, one level deep; reading and writing happen one at a time, in order.
- The whole memory is one value of a client's ``Values``: it lasts as long as they do, and a write is done or not done.
- Values are JSON, and copies. There are no events: the memory belongs to the session alone.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeGuard

from palaver.swarm.log import Values
from palaver.swarm.shared_value import Queue, plain

CUT: Final = 50
"""How many characters of a value are written."""

_KIND: Final = "memory"
_NAME: Final = "session"
_WHAT: Final = "session memory"


class Memory:
    """The memory of one client's session."""

    def __init__(self, values: Values) -> None:
        """Keep the memory in a client's values."""
        self._values, self._queue = values, Queue(_WHAT)

    async def read(self) -> dict[str, Any]:
        """All that is remembered."""
        async with self._queue.reading():
            return await self._read()

    async def write(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Remember these too, and give all. Raises ``SwarmError`` for what is not JSON, and ``StoreError``."""
        async with self._queue.turn():
            merged = {**await self._read(), **plain(_WHAT, dict(values))}
            await self._values.put(_KIND, _NAME, merged)
            return merged

    async def clear(self) -> None:
        """Forget all."""
        async with self._queue.turn():
            await self._values.remove(_KIND, _NAME)

    async def _read(self) -> dict[str, Any]:
        await self._values.refresh()
        kept: dict[str, Any] = plain(_WHAT, self._values.get(_KIND, _NAME, {}))
        return kept


def describe(value: Any, *, cut: int = CUT) -> str:
    """Write a value, or each of several, as lines ``Title: value``; an empty line stands between several.

    What is inside another value has the titles of both (``Address city: Rome``, ``Tags 1: new``). Values are cut at
    ``cut`` characters; what is ``None`` has no line. Raises ``SwarmError`` for what is not JSON.
    """
    told: Any = plain("a description", value)
    items = told if _is_list(told) else [told]
    return "\n\n".join(filter(None, ("\n".join(_lines(item, (), cut)) for item in items)))


def _lines(value: Any, names: Sequence[str], cut: int) -> Iterator[str]:
    if _is_list(value):
        for place, each in enumerate(value, 1):
            yield from _lines(each, (*names, str(place)), cut)
    elif _is_object(value):
        for name, each in value.items():
            yield from _lines(each, (*names, name), cut)
    elif value is not None:
        text = " ".join(str(value).split())[:cut]
        yield f"{_title(names)}: {text}" if names else text


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _title(names: Sequence[str]) -> str:
    title = " ".join(" ".join(names).replace("_", " ").split())
    return title[:1].upper() + title[1:]
