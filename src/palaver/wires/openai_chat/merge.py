"""Put the fields of a streamed answer together, as the whole answer would have had them.

Rules:

- A field that comes again replaces what it said; ``null`` never does. Objects are merged field by field, two levels
  deep; below that, the last one stands.
- In a delta a string is a piece: pieces are joined, unless the field is a word that is said again (``_WORDS``).
- In a delta a list goes on: its items are added, one with an ``index`` is merged with the item of that index, and a
  list that begins with all that came before replaces it.
- Everything is kept in pieces until it is asked for, so the whole costs what arrived.

Source: the accumulator of the openai client library (``openai/lib/streaming/_deltas.py``), which joins every string;
recorded streams, in which ``role`` and ``channel`` come with every delta.

Stability: experimental.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias, cast

from msgspec import Raw

from palaver.core import jsontext
from palaver.core.jsontext import NULL, Fields

Table: TypeAlias = "dict[str, Any]"
"""Fields that are put together: JSON text, or a ``Table`` of it."""

_WORDS: Final = frozenset({"role", "channel", "name", "type", "id", "format", "object"})
_DEPTH: Final = 2


def put(table: Table, key: str, raw: Raw, depth: int = _DEPTH) -> None:
    """Set a field to what a later chunk says of it."""
    held = table.get(key)
    if held is None:
        table[key] = jsontext.own(raw)
    elif raw in (NULL, held):
        return
    elif depth and jsontext.kind(raw) == "an object" and _is_object(held):
        inner = _table(held)
        for name, item in jsontext.fields(raw).items():
            put(inner, name, item, depth - 1)
        table[key] = inner
    else:
        table[key] = jsontext.own(raw)


def _table(held: Any) -> Table:
    return cast("Table", held) if isinstance(held, dict) else dict(jsontext.fields(held))


def _is_object(held: object) -> bool:
    return isinstance(held, dict) or (isinstance(held, Raw) and jsontext.kind(held) == "an object")


class Gathered:
    """Fields of deltas."""

    __slots__ = ("_lists", "_places", "_table", "_texts")

    def __init__(self) -> None:
        """Begin with nothing."""
        self._table: Table = {}
        self._texts: dict[str, list[str]] = {}
        self._lists: dict[str, list[Any]] = {}
        self._places: dict[tuple[str, bytes], int] = {}

    def add(self, key: str, raw: Raw) -> None:
        """Take what a delta says of a field."""
        match jsontext.kind(raw):
            case "a string" if key not in _WORDS:
                self.say(key, jsontext.text(raw))
            case "an array":
                self.extend(key, jsontext.items(raw))
            case _:
                put(self._table, key, raw)

    def say(self, key: str, piece: str) -> None:
        """Take a piece of text."""
        self._texts.setdefault(key, []).append(piece)

    def extend(self, key: str, items: list[Raw]) -> None:
        """Take items of a list."""
        held = self._lists.setdefault(key, [])
        if held and len(items) >= len(held) and items[: len(held)] == held:
            held[:] = map(jsontext.own, items)
            return
        for item in items:
            fields = jsontext.fields(item) if jsontext.kind(item) == "an object" else {}
            index = fields.get("index")
            if index is None:
                held.append(jsontext.own(item))
                continue
            place = self._places.setdefault((key, bytes(index)), len(held))
            if place == len(held):
                held.append(jsontext.own(item))
            else:
                _merge_item(held, place, fields)

    def fields(self) -> Table:
        """Everything, put together."""
        texts = {key: "".join(pieces) for key, pieces in self._texts.items()}
        return {**self._table, **texts, **self._lists}


def _merge_item(held: list[Any], place: int, fields: Fields) -> None:
    old = held[place]
    table = _table(old)
    for key, raw in fields.items():
        put(table, key, raw)
    held[place] = table
