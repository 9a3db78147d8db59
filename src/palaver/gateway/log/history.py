"""What a history says, as a chain of hashes: pure.

Agents send the whole conversation with each request, and change little things in it from turn to turn: cache marks
move, reasoning is left out, ids of calls are made anew, reminders come and go. A chain over what the messages say
stays the same.

Rules:

- A link is the hash of the link before it and of one message: role, text, calls (name and arguments), results, media.
- Not in it are ids, reasoning, provider fields, space around text, and text that clients insert for one turn
  (``<system-reminder>``). A message of which nothing is left has the link of the message before it.
- Instructions (system and developer messages) at the beginning have no link: clients change them in a conversation.
- The seed is the caller: conversations of two keys never meet.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from palaver.core import canonical, jsontext
from palaver.core.errors import PalaverError
from palaver.core.messages import DeveloperMessage, SystemMessage, UserMessage
from palaver.core.parts import (
    Blob,
    Inline,
    Json,
    MalformedToolCall,
    Media,
    Opaque,
    Reasoning,
    Refusal,
    ServerToolResult,
    Text,
    ToolCall,
    Url,
)

if TYPE_CHECKING:
    from palaver.core.messages import Message
    from palaver.core.parts import AnyPart

_OPENED: Final = "<system-reminder>"
_CLOSED: Final = "</system-reminder>"
_CONTEXT: Final = re.compile(r"\s*<([a-z][a-z_-]*)>.*?</\1>", re.DOTALL)
"""Text about its surroundings that a client puts before what the user wrote."""
_CACHE_MARK: Final = re.compile(rb'"cache_control":\{[^{}]*\},?|,"cache_control":\{[^{}]*\}')
_TITLE: Final = 80


def instructions(messages: Sequence[Message]) -> int:
    """Return how many messages at the beginning are instructions."""
    return next(
        (place for place, each in enumerate(messages) if not isinstance(each, SystemMessage | DeveloperMessage)),
        len(messages),
    )


def links(digests: Iterable[bytes | None], seed: str) -> list[str]:
    """Return the link of each message, in order, by the ``digest`` of each."""
    last = sha256(b"palaver history " + seed.encode()).digest()
    chain: list[str] = []
    for each in digests:
        if each is not None:
            last = sha256(last + each).digest()
        chain.append(last.hex()[:32])
    return chain


def digest(message: Message) -> bytes | None:
    """Return the hash of what a message says; ``None`` where nothing of it counts."""
    pieces = list(_pieces(message))
    if not pieces:
        return None
    own = sha256(message.role.encode())
    for kind, data in pieces:
        own.update(b"%b %d " % (kind, len(data)))
        own.update(data)
    return own.digest()


def without_reminders(text: str) -> str:
    """Return a text without what a client inserts for one turn."""
    pieces, start = list[str](), 0
    while (opened := text.find(_OPENED, start)) >= 0 and (closed := text.find(_CLOSED, opened)) >= 0:
        pieces.append(text[start:opened])
        start = closed + len(_CLOSED)
    pieces.append(text[start:])
    return "".join(pieces)


def title(messages: Sequence[Message]) -> str | None:
    """Return the first line that the user wrote."""
    for message in messages:
        if isinstance(message, UserMessage):
            text, start = without_reminders(message.text), 0
            while found := _CONTEXT.match(text, start):
                start = found.end()
            text = text[start:].strip()
            if text:
                line = text.splitlines()[0].strip()
                return line if len(line) <= _TITLE else f"{line[: _TITLE - 1]}…"
    return None


def _pieces(message: Message) -> Iterator[tuple[bytes, bytes]]:
    """Yield what a message says, with its kind. Text that stands together is one piece."""
    texts: list[str] = []
    for part in message.content:
        text = part.text if isinstance(part, Text | Refusal) else _json_text(part)
        if text is not None:
            texts.append(text)
            continue
        found = _piece(part)
        if found is not None:
            yield from _text(texts)
            texts.clear()
            yield found
    yield from _text(texts)


def _text(texts: Sequence[str]) -> Iterator[tuple[bytes, bytes]]:
    joined = "".join([each.strip() for each in texts])
    text = without_reminders(joined).strip() if "<" in joined else joined
    if text:
        yield b"text", text.encode("utf-8", "surrogatepass")


def _json_text(part: AnyPart) -> str | None:
    return bytes(part.value_json).decode("utf-8", "surrogatepass") if isinstance(part, Json) else None


def _piece(part: AnyPart) -> tuple[bytes, bytes] | None:
    match part:
        case Reasoning():
            return None
        case ToolCall():
            return b"call", part.name.encode("utf-8", "surrogatepass") + b" " + _normal(part.arguments_json)
        case MalformedToolCall():
            return b"malformed", part.raw.encode("utf-8", "surrogatepass")
        case Media():
            return b"media", _source(part)
        case ServerToolResult():
            return b"result", _CACHE_MARK.sub(b"", bytes(part.output_json))
        case Opaque():
            return b"opaque", _CACHE_MARK.sub(b"", bytes(part.raw_json))
        case _:
            return b"part", canonical.encode(part)


def _normal(arguments: str) -> bytes:
    if not arguments.strip():
        return b"{}"
    try:
        return jsontext.normal(arguments.encode("utf-8", "surrogatepass"))
    except PalaverError:
        return arguments.encode("utf-8", "surrogatepass")


def _source(part: Media) -> bytes:
    match part.source:
        case Inline(data):
            return data.encode("utf-8", "surrogatepass")
        case Url(url):
            return url.encode("utf-8", "surrogatepass")
        case Blob(hash):
            return hash.encode()
        case other:
            return other.id.encode("utf-8", "surrogatepass")
