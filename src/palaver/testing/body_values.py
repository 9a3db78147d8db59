"""The values of a request body, in a form that can be searched: for ``palaver.testing.receipts``.

Stability: experimental.
"""

from __future__ import annotations

import json
from base64 import b64encode
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Struct

from palaver.core.errors import PalaverError
from palaver.core.jsontext import sayable, sayable_json
from palaver.core.parts import Inline

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYWORD_FIELDS: Final = frozenset({"role", "type", "status", "mode", "format", "phase"})
"""Fields whose values are keywords of a format."""


class RequestValue(Struct, frozen=True):
    """One value of a request. ``json`` values are compared as values, all others as texts."""

    what: str
    value: Any
    message: int | None = None
    part: int | None = None
    json: bool = False
    of_tool: bool = False


class BodyValues:
    """The texts of a body, and all its values in a form that can be searched."""

    def __init__(self, body: bytes) -> None:
        self.values: set[str] = set()
        self.leaves: list[tuple[str, Any]] = []
        self.names: set[str] = set()
        self._body = json.loads(sayable_json(body.decode()))  # blocks of the wire itself go back unchanged
        self._add("", self._body)
        self.texts = "\n".join(each for _, each in self.leaves if isinstance(each, str))
        self.joined = "".join("".join(str(each).split()) for key, each in self.leaves if key not in KEYWORD_FIELDS)

    def _add(self, key: str, node: Any) -> None:
        self.values.add(normalized(node))
        match node:
            case {**table} if table:
                for name, each in cast("dict[str, Any]", table).items():
                    self.names.add(name)
                    self._add(name, each)
            case [*items] if items:
                for each in items:
                    self._add(key, each)
            case _:
                leaf: Any = node
                self.leaves.append((key, leaf))
                if isinstance(leaf, str):
                    self.values.add(normalized(parsed_json(leaf)))

    @cached_property
    def folded(self) -> set[str]:
        """All objects, folded."""
        return {_folded(each) for each in _objects(self._body)}

    def _holds(self, schema: Any) -> bool:
        """Return whether an object has all fields of a schema: most wires add a ``type``."""
        if not isinstance(schema, dict):
            return False
        expected = {key: _folded(each) for key, each in cast("dict[str, Any]", schema).items()}
        return any(
            expected.items() <= {key: _folded(value) for key, value in each.items()}.items()
            for each in _objects(self._body)
            if expected.keys() <= each.keys()
        )

    def contains(self, item: RequestValue) -> bool:
        """Return whether a value of the request is in the body."""
        if item.json:
            return (
                normalized(item.value) in self.values
                or compact_json(item.value) in self.texts
                or (item.what == "output" and _folded(item.value) in self.folded)
                or (item.what == "tool parameters" and self._holds(item.value))
            )
        text = str(item.value)
        if text in self.texts:
            return True
        if item.what in _MEDIA:
            bare = self.texts.replace("=", "")
            return standard_base64(text) in bare or recoded_base64(text) in bare or decoded_base64(text) in self.texts
        return "".join(text.split()) in self.joined  # some formats split a text


_MEDIA: Final = frozenset({"image", "audio", "video", "file"})


def standard_base64(data: str) -> str:
    """Return base64 in the standard alphabet, without padding."""
    return data.translate(str.maketrans("-_", "+/")).rstrip("=")


def recoded_base64(data: str) -> str:
    """Return canonical base64 of the same bytes: some writers set bits after the last byte."""
    source = Inline(data)
    return b64encode(source.bytes).decode().rstrip("=") if source.valid else data


def decoded_base64(data: str) -> str:
    """Return the text in base64, which some wires send as text, or the base64 when it is not text."""
    try:
        return Inline(data).bytes.decode()
    except (PalaverError, UnicodeDecodeError):
        return data


def _objects(node: Any) -> Iterator[dict[str, Any]]:
    match node:
        case {**table}:
            found = cast("dict[str, Any]", table)
            yield found
            for each in found.values():
                yield from _objects(each)
        case [*items]:
            for each in items:
                yield from _objects(each)
        case _:
            pass


def _folded(node: Any) -> str:
    """Return a value as JSON without case and underscores: Gemini accepts both ``any_of`` and ``anyOf``."""
    return normalized(node).replace("_", "").lower()


def normalized(node: Any) -> str:
    """Return a value as JSON with sorted keys."""
    return json.dumps(node, sort_keys=True)


def compact_json(node: Any) -> str:
    """Return a value as JSON without spaces."""
    return json.dumps(node, separators=(",", ":"), ensure_ascii=False)


def all_texts(node: Any) -> list[str]:
    """Return all texts of a value, including those inside JSON text."""
    match node:
        case str():
            inner = parsed_json(node)
            return [sayable(node), *([] if inner is None else all_texts(inner))]
        case {**table}:
            return [text for each in cast("dict[str, Any]", table).values() for text in all_texts(each)]
        case [*items]:
            return [text for each in items for text in all_texts(each)]
        case _:
            return []


def parsed_json(text: str) -> Any:
    """Return the object or array in a JSON text; ``None`` for any other text."""
    if text[:1] not in {"{", "["}:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
