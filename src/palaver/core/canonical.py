r"""The canonical form, version 1: messages, requests and all they hold, as JSON.

The form:

- A message is an object with its ``role`` first, then the fields of its class, in snake_case. A
  part is an object with a ``type``, a media source one with a ``kind``. Fields that hold their
  default are left out; a field of kept JSON text that ends in ``_json`` in Python goes by its
  name without it (the arguments of a tool call are a string, and keep the name).
- Many messages are JSON Lines: one message a line, UTF-8, no line break inside a line. Empty lines are skipped. U+2028
  and similar characters are ordinary characters.
- A conversation is a header and then its messages. The header is ``{"palaver":1, …}`` with the fields of a request
  except ``messages`` and ``original``: ``model``, ``tools``, ``settings``, ``provider``, ``origin``. The header is
  optional; a reader refuses a newer number.
- Version 1 grows by new fields, new part types and new values only. A reader keeps what it does not know, and writes it
  back in its place (see ``slow_path``). Anything else is a new number.
- Values that JSON text can spell in several ways (``payload``, ``metadata``, ``provider``, ``raw``,
  …) keep the spelling they came with: ``5e-06`` stays ``5e-06``, key order stays.
- A lone surrogate is an escape (``\ud800``). A lone high one directly before a lone low one cannot be expressed: in
  JSON, the two are one character.

Guarantees:

- ``decode(encode(m)) == m`` for every message (law 1). Any bytes give a value or one
  ``DecodeError`` with source ``palaver`` and the path (law 6).
- JSON text that a message keeps is a slice of its line. ``decode_many`` cuts lines out of the file first, so that a
  message keeps its own line alive and never the file.

The content hash, version 1, is ``palaver1:sha256:`` and the SHA-256 of the normal form (keys sorted, no spaces, numbers
by value; an integer is no float) of the content of the message: ``role``, ``content``, and where the class has them
``tool_call_id``, ``tool_name``, ``is_error``, ``reason``. Parts count whole, with their ``provider`` and unknown
fields. Everything else is the envelope and does not count: ``id``, ``sent_at``, ``agent``, ``mode``, ``tags``,
``source``, ``verbatim``, ``payload``, ``metadata``, ``provider``, ``model``, ``usage``, ``finish_reason``,
``response_id``. Messages that are equal have equal hashes. The arguments of a tool call are the model's text, and count
as text.

Stability: stable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias, TypeVar, overload

from msgspec import Raw, structs

from palaver.core import codec, jsontext, schema as json_schema, slow_path, type_checks
from palaver.core.errors import DecodeError, EncodeError, MessageError
from palaver.core.messages import MESSAGE_CLASSES, Message
from palaver.core.request import Request, Response
from palaver.core.type_checks import check_arguments
from palaver.core.value import Record

VERSION: Final = 1

JSONText: TypeAlias = bytes | bytearray | memoryview | str

T = TypeVar("T", bound=Record)

_message: Callable[[codec.Data], Message] = codec.reader(Message)

_HASHED: Final = ("content", "tool_call_id", "tool_name", "is_error", "reason")
_REQUEST_START: Final = b'{"type":"request"'
_HEADER_START: Final = b'{"palaver":%d' % VERSION
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


# -- one value -------------------------------------------------------------------------------------


def encode(value: Record) -> bytes:
    """Write ``value`` on one line, without a line break: a message, part, tool, usage, request or response.

    Raises ``EncodeError`` for what JSON cannot express, and for a message that would not come back
    as it is: with values of wrong types, or nested too deeply.
    """
    if not isinstance(value, Record):  # pyright: ignore[reportUnnecessaryIsInstance] (not every caller has a type checker)
        raise EncodeError(f"value: expected a message, part, tool, usage, request or response, got {_kind(value)}")
    line = codec.encode(value)
    if isinstance(value, MESSAGE_CLASSES):
        _check(value)
    return line


def _kind(value: object) -> str:
    return type(value).__name__


def _check(message: Message) -> None:
    """Refuse a message that would not come back as it is."""
    try:
        type_checks.verify(message)
    except MessageError as error:
        raise EncodeError(str(error)) from None


@overload
def decode(data: JSONText | dict[str, Any]) -> Message: ...
@overload
def decode(data: JSONText | dict[str, Any], cls: type[T]) -> T: ...
def decode(data: JSONText | dict[str, Any], cls: type[Record] | None = None) -> Any:
    """Read a message, or a value of ``cls``: ``decode(data, Request)``.

    Raises ``DecodeError``, source ``palaver``, with the path of what is wrong.
    """
    return _message(data) if cls is None else codec.reader(cls)(data)


# -- many messages ---------------------------------------------------------------------------------


def encode_many(messages: Iterable[Message]) -> bytes:
    """Write messages as JSON Lines; every line ends in a line break."""
    return codec.encode_lines(list(messages))


def decode_many(data: JSONText) -> list[Message]:
    """Read JSON Lines. Raises ``DecodeError`` whose path begins with the line."""
    return list(iter_decode(_lines(data)))


def iter_decode(lines: Iterable[bytes | str], *, first: int = 1) -> Iterator[Message]:
    """Read messages line by line, from a file opened in binary mode, for instance.

    ``first`` is the number of the first line, for errors.
    """
    read = _message
    for number, line in enumerate(lines, first):
        if line and not _is_blank(line):
            try:
                yield read(line)
            except DecodeError as error:
                raise _on_line(error, number) from None


def _is_blank(line: bytes | str) -> bool:
    return not line.strip()


def _lines(data: JSONText) -> Sequence[bytes | str]:
    if isinstance(data, str):
        return data.removeprefix("\ufeff").split("\n")
    if not isinstance(data, bytes | bytearray | memoryview):  # pyright: ignore[reportUnnecessaryIsInstance] (as above)
        raise DecodeError(f"data: expected a string or bytes, got {_kind(data)}", source=slow_path.WIRE)
    body = data if isinstance(data, bytes) else bytes(data)
    return body.removeprefix(_BYTE_ORDER_MARK).split(b"\n")


def _on_line(error: DecodeError, number: int) -> DecodeError:
    error.path = f"line {number}, {error.path}" if error.path else f"line {number}"
    return error


# -- a conversation --------------------------------------------------------------------------------


def dump_conversation(request: Request) -> bytes:
    """Write ``request`` as a conversation: a header line, then one message a line.

    Raises ``EncodeError`` for a value that is not a ``Request``, and as ``encode`` does.
    """
    if not isinstance(request, Request):  # pyright: ignore[reportUnnecessaryIsInstance] (as above)
        raise EncodeError(f"request: expected a Request, got {_kind(request)}")
    header = codec.encode(structs.replace(request, messages=(), original=None))
    start = _HEADER_START + header.removeprefix(_REQUEST_START)
    return start + b"\n" + codec.encode_lines(list(request.messages))


def load_conversation(data: JSONText) -> Request:
    """Read a conversation from ``data``: JSON Lines, as text or as UTF-8 bytes.

    Without a header line, the request has messages only. Raises ``DecodeError`` for what is not a conversation, and
    for a newer version of the form.
    """
    lines = _lines(data)
    at = next((index for index, line in enumerate(lines) if line.strip()), len(lines))
    try:
        request = _header(lines[at]) if at < len(lines) else Request()
    except DecodeError as error:
        error.source = slow_path.WIRE
        raise _on_line(error, at + 1) from None
    if request is None:
        return Request(messages=tuple(iter_decode(lines[at:], first=at + 1)))
    rest = iter_decode(lines[at + 1 :], first=at + 2)
    return structs.replace(request, messages=(*request.messages, *rest))


def _header(line: bytes | str) -> Request | None:
    """Read the first line as a header; ``None`` when it is a message."""
    table = jsontext.fields(jsontext.source(line))
    version = table.pop("palaver", None)
    if version is None:
        return None
    number = jsontext.value(version)
    if number != VERSION or type(number) is not int:
        reason = f"canonical form version {number!r:.20}; this version of Palaver reads version {VERSION}"
        raise DecodeError(reason, path="palaver")
    table["type"] = Raw(b'"request"')
    pairs = (jsontext.encode(key) + b":" + bytes(each) for key, each in table.items())
    return decode(b"{" + b",".join(pairs) + b"}", Request)


# -- the hash and the schema -----------------------------------------------------------------------


def content_hash(message: Message) -> str:
    """Hash the content of ``message`` without its envelope: ``palaver1:sha256:…``.

    Raises ``MessageError`` for a value that is not a message.
    """
    if not isinstance(message, MESSAGE_CLASSES):  # pyright: ignore[reportUnnecessaryIsInstance] (as above)
        raise MessageError(f"message: expected a message, got {_kind(message)}")
    import hashlib  # noqa: PLC0415 (OpenSSL takes longer to load than all of this)

    cls = type(message)
    content = {name: getattr(message, name) for name in _HASHED if name in cls.__struct_fields__}
    normal = jsontext.normal(codec.encode(cls(**content)))
    return f"palaver{VERSION}:sha256:{hashlib.sha256(normal).hexdigest()}"


def hash_chain(payloads: Iterable[str | bytes], *, previous: str = "GENESIS") -> tuple[str, ...]:
    """Return one hash for each of ``payloads``: the SHA-256, in hex, of the previous hash and the payload.

    Text is hashed as UTF-8. ``previous`` is the last hash of a chain to continue; the default begins a new one. Kairo's
    event log has this chain (docs/spec/kairo.md#5).
    """
    check_arguments("hash_chain", hash_chain, locals())
    import hashlib  # noqa: PLC0415 (as above)

    hashes: list[str] = []
    for payload in payloads:
        data = payload.encode("utf-8", "surrogatepass") if isinstance(payload, str) else payload
        previous = hashlib.sha256(previous.encode() + data).hexdigest()
        hashes.append(previous)
    return tuple(hashes)


def schema() -> dict[str, Any]:
    """Describe the form in JSON Schema 2020-12: a message, a request, a response, or a header."""
    (message, request, response), definitions = json_schema.components([Message, Request, Response])
    definitions["Message"] = message
    definitions["Header"] = _header_schema(definitions["Request"])
    return {
        "$schema": json_schema.FORMAT,
        "$id": f"urn:palaver:schema:{VERSION}",
        "title": f"Palaver canonical form, version {VERSION}",
        "anyOf": [{"$ref": "#/$defs/Message"}, request, response, {"$ref": "#/$defs/Header"}],
        "$defs": dict(sorted(definitions.items())),
    }


def _header_schema(request: dict[str, Any]) -> dict[str, Any]:
    fields = {key: each for key, each in request["properties"].items() if key not in {"type", "messages", "original"}}
    return {
        "title": "Header",
        "description": "The first line of a conversation: a request without its messages.",
        "type": "object",
        "properties": {"palaver": {"const": VERSION}, **fields},
        "required": ["palaver"],
    }


def schema_json() -> bytes:
    """Write the schema for people to read, as it stands in ``docs/reference``."""
    return jsontext.pretty(schema())
