"""Messages with values of wrong types, as no constructor makes them.

- ``ill_typed`` sets each field of every message, part, media source, citation and usage to an invalid value, bypassing
  the constructor. Each is inside a message that can be appended.
- ``unreadable_values`` are those that an older writer stored and that cannot be decoded. ``odd_values`` are values
  inside ``payload`` and similar fields.
- ``older_writer`` is a block in which messages are stored without checks, as older versions did.

Stability: experimental.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, cast
from unittest.mock import patch

from msgspec import UNSET, Raw, Struct, structs

from palaver.core import canonical, jsontext, parts, type_checks
from palaver.core.errors import PalaverError
from palaver.core.factories import assistant, developer, flush, rescue, system, tool, tool_call, user
from palaver.core.messages import Message
from palaver.core.usage import Usage, UsagePass

WRONG: Final = (7, 1.5, True, "odd", b"bytes", None, ["x"], (3,), {"a": 1}, object(), Raw(b"{odd"), Usage(input=1))
"""Of each kind one; a field is given those that it cannot hold."""

_BLOB: Final = parts.Blob("sha256:" + "0" * 64)
_PARTS: Final[tuple[Struct, ...]] = (
    parts.Text("a", (parts.Citation(wire="w", title="t"),)),
    parts.Reasoning("a"),
    parts.Refusal("a"),
    parts.Image(parts.Inline("AAAA")),
    parts.Audio(parts.Url("https://example.org/a")),
    parts.Video(parts.FileId("f", "w")),
    parts.File(_BLOB, name="n"),
    tool_call("f", {"a": 1}, id="c"),
    parts.MalformedToolCall("{", "cut"),
    parts.ServerToolResult("c", Raw(b"{}"), "w"),
    parts.Opaque("w", Raw(b"{}")),
)


def messages() -> Iterator[Message]:
    """One message of every class, and one around every part."""
    usage = Usage(input=1, passes=(UsagePass(kind="k", usage=Usage(output=1)),))
    yield from (system("a"), developer("a"), user("a"), tool("a", tool_call_id="c"), rescue("a"), flush())
    yield assistant("a", usage=usage)
    yield tool({"a": 1}, tool_call_id="c")
    for part in _PARTS:
        yield assistant(cast("Any", part))


def ill_typed() -> Iterator[tuple[str, Message]]:
    """Every message with one value of a wrong type; the text names class, field and type."""
    seen: set[type] = set()
    for message in messages():
        for place, wrong in _bad(message, seen):
            yield place, cast("Message", wrong)


def values_for(cls: type[Struct], name: str) -> Iterator[object]:
    """Values that a field of a class cannot hold."""
    for value in WRONG:
        try:
            type_checks.checked(cls, name, value)
        except Exception:  # noqa: BLE001 (whatever it is, the field does not hold it)
            yield value


def _bad(value: Struct, seen: set[type]) -> Iterator[tuple[str, Struct]]:
    """The value with one bad field of its own, or of what stands in it."""
    cls = type(value)
    new = cls not in seen
    seen.add(cls)
    for name in cls.__struct_fields__:
        if new:
            for wrong in values_for(cls, name):
                yield f"{cls.__name__}.{name} = {type(wrong).__name__}", structs.replace(value, **{name: wrong})
        held = getattr(value, name)
        if isinstance(held, Struct):
            for place, bad in _bad(held, seen):
                yield place, structs.replace(value, **{name: bad})
        elif isinstance(held, tuple):
            items = cast("tuple[object, ...]", held)
            for index, item in enumerate(items):
                for place, bad in _bad(item, seen) if isinstance(item, Struct) else ():
                    yield place, structs.replace(value, **{name: (*items[:index], bad, *items[index + 1 :])})


@contextmanager
def older_writer() -> Generator[None]:
    """Store messages in this block without any check."""

    def nothing(*_values: object) -> None:
        """Check nothing."""

    with patch.object(canonical, "_check", nothing), patch.object(type_checks, "verify", nothing):
        yield


def unreadable_messages() -> Iterator[Message]:
    """Messages that an older writer stored, and that cannot be decoded."""
    bad = user("bad")
    for name, wrong in (("tags", "X"), ("agent", 3), ("verbatim", 1), ("source", 7)):
        yield structs.replace(bad, **{name: cast("Any", wrong)})
    yield structs.replace(assistant(), content=(structs.replace(tool_call("f", {}, id="1"), id=cast("Any", 1)),))
    yield structs.replace(bad, extra=UNSET, content=cast("Any", ("bad",)))


def unreadable_values() -> Iterator[tuple[str, Message]]:
    """Every message with one value of a wrong type that an older writer wrote as JSON and that cannot be decoded."""
    for place, message in ill_typed():
        with older_writer():
            try:
                line = canonical.encode(message)
                json.loads(line)
            except (PalaverError, TypeError, ValueError):
                continue
        try:
            canonical.decode(line)
        except PalaverError:
            yield place, message


def odd_values() -> Iterator[tuple[str, object]]:
    """Values for ``payload`` and the like: those that JSON text cannot hold, and those that are held with care."""
    deep: object = 0
    for _ in range(jsontext.DEEPEST + 1):
        deep = [deep]
    yield from (("nan", float("nan")), ("infinity", float("inf")), ("bytes", b"b"), ("set", {1}))
    yield from (("naive", datetime(2026, 1, 2)), ("aware", datetime(2026, 1, 2, tzinfo=UTC)))  # noqa: DTZ001 (odd)
    yield from (("decimal", Decimal("1.0")), ("complex", 1j), ("object", object()), ("deep", deep))
    yield from (("huge", 10**400), ("digits", 10**5000), ("surrogate", "a\ud800"), ("nul", "\0"), ("float", 5e-324))
    yield from (("whole", 2.0), ("minus zero", -0.0), ("2**70", 2**70), ("empty", [{}, [], "", None]))


def broken_messages() -> Iterator[Message]:
    """Messages that an older writer stored, and that are no JSON, or too deep to be read."""
    bad = user("bad")
    yield structs.replace(bad, payload_json=Raw(b"[" * 995 + b"]" * 995))
    yield structs.replace(bad, metadata_json=Raw(b'{"a": nothing}'))
    yield structs.replace(bad, provider_json=Raw(b'{"a": "\xff"}'))
