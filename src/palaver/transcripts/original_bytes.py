"""The original bytes of a message, kept with it, so that it is written back unchanged.

Rules (docs/spec/dialects.md#17.1, #17.9):

- A *group* is the messages of some records: often one of each, but a response may span several records, and one record
  may hold several results. The first message of a group has its records, under ``provider["@" + file_format]`` (keys
  with this prefix are bookkeeping, and no wire reports them as losses): ``records`` is a list of
  ``{"at": number in the file, "text": pieces}``; the others have ``of``, the number of the first record. Joined and in
  order, the records of a thread are its file.
- Long texts and media are not kept twice: if the text of a part is in a record as it would be written, the record has
  the number of that part in its place (counted over the group). So an image is removed from the record, and a store
  keeps it once. ``cut`` has a hash of each removed text, by that number; after an edit, only the hash is left.
- Bytes that are not UTF-8 are kept in base64, as ``{"at": …, "bytes": …}``.
- ``sum`` is a hash of the messages of the group, without ids. A group whose sum still matches was not edited, and is
  written from its records. A time that was given to messages without one (a thread stamps what it appends) is not an
  edit: it leaves the records as they are, and is on the receipt.
- Contents of a record beside its messages (a UI's copy of an image) stay in its text.

Stability: experimental.
"""

from __future__ import annotations

import binascii
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, structs

from palaver.core import canonical, jsontext
from palaver.core.errors import PalaverError
from palaver.core.messages import BOOKKEEPING
from palaver.core.parts import Inline, Json, Media, Reasoning, Text, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from palaver.core.jsontext import Fields
    from palaver.core.messages import Message
    from palaver.core.parts import AnyPart
    from palaver.transcripts.record import Record

M = TypeVar("M", bound="Message")

State: TypeAlias = Literal["same", "stamped", "edited"]
"""``stamped``: the messages have times now, and had none before."""

LEAST: Final = 64
"""The fewest characters of a text that is removed from the record."""

RECORDS: Final = "records"
OF: Final = "of"
SUM: Final = "sum"
_MANY: Final = 64


@cache
def fields_of(cls: type[Struct]) -> tuple[structs.FieldInfo, ...]:
    """The fields of a class: msgspec evaluates every annotation each time that it is asked."""
    return structs.fields(cls)


class _StoredRecord(Struct, omit_defaults=True):
    at: int
    text: list[str | int] | None = None
    bytes: str | None = None


class _Group(Struct, omit_defaults=True):
    records: list[_StoredRecord]
    sum: str
    cut: dict[str, str] = {}


class Piece(NamedTuple):
    """A kept record: its number in the file, and its bytes."""

    at: int
    raw: bytes


_group = msgspec.json.Decoder(_Group).decode
_written = msgspec.json.Encoder().encode


def keep(file_format: str, messages: Sequence[Message], records: Sequence[Record]) -> tuple[Message, ...]:
    """Add the original records to the messages of a group. There is at least one of each."""
    holes = list(_holes(messages))
    kept = [_cut(record, holes) for record in records]
    used = {piece for each in kept for piece in each.text or () if isinstance(piece, int)}
    cut = {str(number): text_sum(token) for number, token in holes if number in used}
    first = Raw(_written(_Group(kept, sum_of(messages, times=True), cut)))
    of = Raw(b'{"%s":%d}' % (OF.encode(), records[0].at))
    return tuple([_with(message, file_format, of if place else first) for place, message in enumerate(messages)])


def sum_of(messages: Sequence[Message], *, times: bool = False) -> str:
    """Return a hash of messages, without ids, and without times unless they are requested."""
    digest = blake2b(digest_size=8)
    for message in messages:
        digest.update(canonical.encode(structs.replace(message, id=None, sent_at=message.sent_at if times else None)))
        digest.update(b"\n")
    return digest.hexdigest()


def records_of(file_format: str, group: Sequence[Message]) -> tuple[Piece, ...] | None:
    """Return the records of a group, filled from its parts; ``None`` without any, or without readable ones."""
    stored = own(group[0], file_format)
    if stored is None or RECORDS not in stored:
        return None
    try:
        kept = _group(jsontext.encode(stored))
        parts = [part for message in group for part in message.content]
        return tuple([Piece(each.at, _filled(each, parts)) for each in kept.records])
    except (msgspec.MsgspecError, ValueError, PalaverError):
        return None


def text_sum(token: str) -> str:
    """Return a hash of a text as it is in JSON, which may have been removed from a record."""
    return blake2b(token.encode(), digest_size=8).hexdigest()


def texts_gone(file_format: str, group: Sequence[Message]) -> frozenset[str]:
    """Return the hashes (``text_sum``) of texts that were removed from a group's records and its parts now lack."""
    stored = own(group[0], file_format)
    if stored is None or "cut" not in stored:
        return frozenset()
    try:
        cut = _group(jsontext.encode(stored)).cut
    except msgspec.MsgspecError:
        return frozenset()
    return frozenset(cut.values()) - {text_sum(token) for _, token in _holes(group)}


def numbers_of(message: Message, file_format: str) -> tuple[int, ...]:
    """Return the numbers of the records that a message leads; empty when it leads none."""
    stored = own(message, file_format)
    if stored is None or RECORDS not in stored:
        return ()
    try:
        return tuple([each.at for each in _group(jsontext.encode(stored)).records])
    except msgspec.MsgspecError:
        return ()


def state_of(file_format: str, group: Sequence[Message]) -> State:
    """Return whether the messages of a group still match its records."""
    stored = own(group[0], file_format)
    if stored is None:
        return "edited"
    said = str(jsontext.value(stored.get(SUM, b'""')))
    plain = [bare(message, file_format) for message in group]
    if said == sum_of(plain, times=True):
        return "same"
    return "stamped" if said == sum_of(plain) else "edited"


def leads(message: Message, file_format: str) -> bool:
    """Return whether a message is the first of a group with records."""
    stored = own(message, file_format)
    return stored is not None and RECORDS in stored


def follows(message: Message, file_format: str) -> int | None:
    """Return the number of the first record of a message's group, if the message is not its first."""
    stored = own(message, file_format)
    if stored is None or OF not in stored:
        return None
    number = jsontext.value(stored[OF])
    return number if isinstance(number, int) else None


def formats(message: Message) -> list[str]:
    """Return the transcript formats of a message's records; the notes of wires beside them are not counted."""
    if message.provider_json is UNSET:
        return []
    names = (name for name in jsontext.fields(message.provider_json) if name.startswith(BOOKKEEPING))
    stored = ((name.removeprefix(BOOKKEEPING), own(message, name.removeprefix(BOOKKEEPING))) for name in names)
    return [name for name, fields in stored if fields is not None and (RECORDS in fields or OF in fields)]


def own(message: Message, file_format: str) -> Fields | None:
    """Return the fields that a message keeps for a transcript format; ``None`` when it keeps none."""
    if message.provider_json is UNSET:
        return None
    stored = jsontext.fields(message.provider_json).get(BOOKKEEPING + file_format)
    return None if stored is None or jsontext.kind(stored) != "an object" else jsontext.fields(stored)


def bare(message: M, file_format: str) -> M:
    """Return a message without the records of a transcript format."""
    if message.provider_json is UNSET:
        return message
    fields = jsontext.fields(message.provider_json)
    if fields.pop(BOOKKEEPING + file_format, None) is None:
        return message
    return structs.replace(message, provider_json=jsontext.raw(fields) if fields else UNSET)


def with_records_of(message: Message, old: Message) -> Message:
    """Return a message with the records that another one has and it lacks, of all transcript formats."""
    fields = {} if old.provider_json is UNSET else jsontext.fields(old.provider_json)
    for name in formats(old):
        if own(message, name) is None:
            message = _with(message, name, fields[BOOKKEEPING + name])
    return message


def _with(message: Message, file_format: str, stored: Raw) -> Message:
    fields = {} if message.provider_json is UNSET else jsontext.fields(message.provider_json)
    fields[BOOKKEEPING + file_format] = stored
    return structs.replace(message, provider_json=jsontext.raw(fields))


# -- holes -------------------------------------------------------------------------------------------------------------


def _holes(messages: Sequence[Message]) -> Iterator[tuple[int, str]]:
    """Yield the texts that may be removed from a record: a number, and the text as it would be there.

    Counted over the parts of all messages: ``n`` is part ``n`` inside a JSON string, ``-1 - n`` part ``n`` as it is.
    """
    parts = (part for message in messages for part in message.content)
    for number, part in enumerate(parts):
        if (text := _text_of(part)) is not None and len(text) >= LEAST and (token := _inside(text)) is not None:
            yield number, token
        if (text := _verbatim(part)) is not None and len(text) >= LEAST:
            yield -1 - number, text


def _text_of(part: AnyPart) -> str | None:
    """Return the string that a record may hold for a part."""
    match part:
        case Text() | Reasoning():
            return part.text
        case ToolCall():
            return part.arguments_json
        case Media() if isinstance(part.source, Inline):
            return part.source.data
        case _:
            return None


def _verbatim(part: AnyPart) -> str | None:
    """Return the object that a record may hold for a part."""
    match part:
        case ToolCall():
            return part.arguments_json
        case Json():
            text = bytes(part.value_json).decode()
            # A store keeps the value on one line: a value on several lines stays in the record.
            return None if "\n" in text or "\r" in text else text
        case _:
            return None


def _inside(text: str) -> str | None:
    """Return a text as it is inside a JSON string; ``None`` for one with a lone surrogate, which must be escaped."""
    try:
        return _written(text)[1:-1].decode()
    except UnicodeEncodeError:
        return None


def _cut(record: Record, holes: Sequence[tuple[int, str]]) -> _StoredRecord:
    try:
        text = record.raw.decode()
    except UnicodeDecodeError:
        return _StoredRecord(record.at, bytes=binascii.b2a_base64(record.raw, newline=False).decode())
    pieces: list[str | int] = []
    end = 0
    for start, length, number in sorted(_cuts(text, holes)):
        if start < end:
            continue
        if start > end:
            pieces.append(text[end:start])
        pieces.append(number)
        end = start + length
    if end < len(text):
        pieces.append(text[end:])
    return _StoredRecord(record.at, text=pieces)


def _cuts(text: str, holes: Sequence[tuple[int, str]]) -> Iterator[tuple[int, int, int]]:
    """Yield the places of parts in a record. Of many parts, each is searched behind the one before it, once."""
    often = len(holes) <= _MANY
    last = 0
    for number, token in holes:
        place = text.find(token, 0 if often else last)
        while place >= 0:
            yield place, len(token), number
            last = place + len(token)
            place = text.find(token, last) if often else -1


def _filled(kept: _StoredRecord, parts: Sequence[AnyPart]) -> bytes:
    if kept.text is None:
        return binascii.a2b_base64(kept.bytes or "")
    return "".join([each if isinstance(each, str) else _filling(each, parts) for each in kept.text]).encode()


def _filling(number: int, parts: Sequence[AnyPart]) -> str:
    """Return the text for a hole; if the part is gone, a value that keeps the record JSON."""
    place = -1 - number if number < 0 else number
    part = parts[place] if place < len(parts) else None
    if number < 0:
        return (None if part is None else _verbatim(part)) or "null"
    return _inside((None if part is None else _text_of(part)) or "") or ""
