"""Message data that a transcript format cannot represent, carried in its free slot.

Rules (docs/spec/dialects.md#17.4):

- If a transcript format has a place for foreign data (``extra``, ``metadata``, ``_meta``), what its own fields cannot
  represent goes there under one key, ``palaver``; so A to B to A gives the same messages. Its reader restores it.
- It is the messages in the canonical form, with a number in place of each part that the record has already (counted
  over the group), and a hash of the record's contents. A record that was changed since has another hash: then its own
  contents count, and the carried data are dropped.
- The hash is of values: a program that writes them differently (``1`` for ``1.0``, other spaces) has changed nothing.
- The message's original records of the transcript format are not carried: they would double the file.
- Carried data are not lost for us, but for the program that owns the file: the receipt says ``converted``.
- When nothing is to be carried, ``lacking`` gathers what would have been, for the receipt.

Stability: experimental.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from msgspec import UNSET, Raw, structs

from palaver.core import canonical, jsontext, trusted
from palaver.core.errors import PalaverError
from palaver.core.messages import FlushMarker, RescueMarker
from palaver.core.usage import Usage
from palaver.transcripts.original_bytes import bare, fields_of, formats, sum_of

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterator, Mapping, Sequence

    from msgspec import Struct

    from palaver.core.messages import Message
    from palaver.core.parts import AnyPart

T = TypeVar("T")

SLOT: Final = "palaver"
"""The key under which a record carries what it cannot represent."""


def carried(
    messages: Sequence[Message], plain: Sequence[Message], *, read_as: Sequence[Message] | None = None
) -> dict[str, Any] | None:
    """Return what must be carried so that ``plain``, the record's contents, becomes ``messages`` again; else ``None``.

    ``read_as`` is what its reader restores from, when it reads the record alone and ``plain`` has more than that.
    """
    light = [without_records(each) for each in messages]
    said = [without_records(each) for each in plain]
    around = _BESIDE.get()
    if around and all(each.id in around for each in light):
        said = [around[each.id or ""] for each in light]
    if _equal(light, said, times=bool(around)):
        return None
    if (found := _LACKING.get()) is not None:
        found += _differences(messages, said)
    if read_as is not None:
        said = [without_records(each) for each in read_as]
    known = Known([part for each in said for part in each.content])
    return {"sum": _sum_of_values(said), "messages": [_written(each, known) for each in light]}


def _equal(messages: Sequence[Message], said: Sequence[Message], *, times: bool) -> bool:
    """Return whether messages are equal without ids, with fields in any order."""
    if len(messages) != len(said):
        return False
    if sum_of(messages, times=times) == sum_of(said, times=times):
        return True
    leave = {"id"} if times else {"id", "sent_at"}
    return all(
        type(one) is type(other) and not next(differing_fields(one, other, leave=leave), "")
        for one, other in zip(messages, said, strict=True)
    )


def differing_fields(message: Message, other: Message, *, leave: Collection[str]) -> Iterator[str]:
    """Yield the names of the fields in which messages of one role differ; JSON is compared by value."""
    for name in type(message).__struct_fields__:
        stored, instead = getattr(message, name), getattr(other, name)
        if stored is instead or name in leave or stored == instead:
            continue
        if not (isinstance(stored, Raw) and isinstance(instead, Raw) and jsontext.equal(stored, instead)):
            yield name


def restored(plain: Sequence[Message], slot: Any) -> tuple[Message, ...] | None:
    """Return the carried messages; ``None`` when they are not ours, or no longer match the record."""
    if not isinstance(slot, dict):
        return None
    stored = cast("dict[str, Any]", slot)
    carried: object = stored.get("messages")
    if not isinstance(carried, list):
        return None
    if not carried and any(part != trusted.Text("") for message in plain for part in message.content):
        return None  # only a record without contents may carry an empty list
    if stored.get("sum") != _sum_of_values([without_records(each) for each in plain]):
        return None
    try:
        texts = [jsontext.value(canonical.encode(message)) for message in plain]
        written = [each for message in texts for each in message.get("content", ())]
        made = [_read(each, written) for each in cast("list[object]", carried)]
    except (PalaverError, KeyError, TypeError, IndexError, ValueError):
        return None
    return tuple(made)


@contextmanager
def lacking() -> Generator[list[tuple[Message, str]]]:
    """Gather each message of which ``carried`` would carry something, with the names of the carried fields."""
    found: list[tuple[Message, str]] = []
    token = _LACKING.set(found)
    try:
        yield found
    finally:
        _LACKING.reset(token)


@contextmanager
def beside(said: Mapping[str, Message]) -> Generator[None]:
    """Compare messages with the contents of a file, by their ids, instead of with the writer's own rendering.

    What is carried then has their times too.
    """
    token = _BESIDE.set(said)
    try:
        yield
    finally:
        _BESIDE.reset(token)


_BESIDE: Final[ContextVar[Mapping[str, Message] | None]] = ContextVar("beside", default=None)
_LACKING: Final[ContextVar[list[tuple[Message, str]] | None]] = ContextVar("lacking", default=None)


def _differences(messages: Sequence[Message], said: Sequence[Message]) -> Iterator[tuple[Message, str]]:
    """Yield the fields of messages, and of their parts, that differ from those of the record.

    Each is compared with the record's part of its kind: the first tool result with the first, and so on; a part that is
    written as another kind, with the part in its place.
    """
    others = _by_kind(said)
    parts = _by_kind([part for each in said for part in each.content])
    for place, message in enumerate(messages):
        light = without_records(message)
        has_record = said and not isinstance(light, (RescueMarker, FlushMarker))  # only a marker may have to be carried
        instead = said[min(place, len(said) - 1)] if has_record else type(light)()
        names = dict.fromkeys(_differing(light, next(others.get(type(light), iter(())), instead)))
        names.pop("id", None)  # the id of the entry is written
        names.pop("content", None)
        for part in light.content:
            other = next(parts.get(type(part), iter(())), None)
            tag = str(part.__struct_config__.tag).replace("_", " ")
            names |= dict.fromkeys((tag,) if other is None else _differing(part, other))
        for name in names:
            yield message, name


def _by_kind(values: Sequence[T]) -> dict[type[T], Iterator[T]]:
    found: dict[type[T], list[T]] = {}
    for each in values:
        found.setdefault(type(each), []).append(each)
    return {kind: iter(several) for kind, several in found.items()}


def _differing(value: Struct, other: Struct) -> Iterator[str]:
    for field in fields_of(type(value)):
        stored, instead = getattr(value, field.name), getattr(other, field.name, field.default)
        if stored in (instead, field.default):
            continue
        name = field.name.removesuffix("_json").replace("_", " ")
        if isinstance(stored, Usage) and isinstance(instead, Usage):
            yield from (f"{name} {each}" for each in _differing(stored, instead))
        else:
            yield name


def _sum_of_values(messages: Sequence[Message]) -> str:
    """Return a hash of messages without ids and times that does not depend on how a program writes values.

    Programs read and write a file: they change spaces within JSON, the order of keys and the text of numbers.
    """
    digest = blake2b(digest_size=8)
    for message in messages:
        told = jsontext.value(canonical.encode(structs.replace(message, id=None, sent_at=None)))
        for part in told.get("content", ()):
            if part.get("type") == "tool_call" and jsontext.is_json(part.get("arguments_json", "")):
                part["arguments_json"] = jsontext.value(part["arguments_json"])
        digest.update(json.dumps(_plainly(told), sort_keys=True).encode())
    return digest.hexdigest()


def _plainly(value: Any) -> Any:
    """Return numbers as JavaScript has them."""
    match value:
        case dict():
            return {key: _plainly(each) for key, each in cast("dict[str, Any]", value).items()}
        case list():
            return [_plainly(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
        case bool():
            return value
        case int() | float():
            return _number(value)
        case _:
            return value


def _number(value: float) -> float | str:
    try:
        return float(value)
    except OverflowError:
        return str(value)


def without_records(message: Message) -> Message:
    """Return a message without the records of any transcript format."""
    for name in formats(message):
        message = bare(message, name)
    if message.provider_json == jsontext.EMPTY_OBJECT:
        return structs.replace(message, provider_json=UNSET)
    return message


class Known:
    """Parts by content, to find equal ones among many in constant time.

    The hash of a part leaves out values with two spellings; for parts with nothing else (``Opaque``) it is always the
    same.
    """

    def __init__(self, parts: Sequence[AnyPart]) -> None:
        """Number the parts; the first of equal ones counts."""
        self._numbers: dict[str, list[tuple[AnyPart, int]]] = {}
        for number, part in enumerate(parts):
            self._numbers.setdefault(_key(part), []).append((part, number))

    def get(self, part: AnyPart) -> int | None:
        """Return the number of an equal part; ``None`` when there is none."""
        alike = self._numbers.get(_key(part), ())
        return next((number for each, number in alike if each == part), None)

    def __contains__(self, part: AnyPart) -> bool:
        """Return whether there is an equal part."""
        return self.get(part) is not None


def _key(part: AnyPart) -> str:
    try:
        return json.dumps(_plainly(jsontext.value(jsontext.encode(part))), sort_keys=True)
    except PalaverError:  # a lone surrogate, which the fast encoder refuses
        return str(hash(part))


def _written(message: Message, known: Known) -> dict[str, Any]:
    written: dict[str, Any] = jsontext.value(canonical.encode(message))
    if message.content:
        numbers = map(known.get, message.content)
        written["content"] = [
            each if number is None else number for number, each in zip(numbers, written["content"], strict=True)
        ]
    return written


def _read(written: object, parts: Sequence[Any]) -> Message:
    """Return a carried message. Raises ``TypeError`` or ``IndexError`` for a value that is not ours."""
    if not isinstance(written, dict):
        raise TypeError("a message is an object")
    fields = cast("dict[str, Any]", written)
    content: object = fields.get("content", [])
    if not isinstance(content, list):
        raise TypeError("content is a list")
    filled = [_part(each, parts) for each in cast("list[object]", content)]
    return canonical.decode({**fields, "content": filled} if filled else fields)


def _part(stored: object, parts: Sequence[Any]) -> object:
    if not isinstance(stored, int) or isinstance(stored, bool):
        return stored
    if stored < 0:
        raise IndexError(stored)
    return parts[stored]
