"""Content that lies at the client's own provider, asked of a model of another one.

A stored prompt, an item by its id, cached content or an uploaded file cannot be read from here. The request is refused:
a model would answer without it. So is a request without any message.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from palaver.core import jsontext
from palaver.core.errors import CapabilityError, DecodeError
from palaver.core.messages import SystemMessage
from palaver.core.parts import FileId, Opaque, Url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.core.messages import Message
    from palaver.core.request import Request

_FIELDS: Final[Mapping[str, Sequence[str]]] = {
    "openai_responses": ("prompt", "previous_response_id", "conversation"),
    "google_generate": ("cachedContent",),
    "bedrock_converse": ("promptVariables",),
}
"""Fields of a request that name such content."""
_BLOCKS: Final = frozenset({"item_reference", "container_upload"})
"""Types of blocks that do."""
_MARKS: Final[Mapping[str, Sequence[bytes]]] = {
    "openai_chat": (b"file_id",),
    "openai_responses": (b"file_id", b"item_reference"),
    "anthropic_messages": (b"file_id",),
    "google_generate": (b"fileUri", b"file_uri"),
    "bedrock_converse": (b"s3Location",),
}
"""What a body holds that has such a block or file: most bodies need no further look."""
_NAMES: Final[Mapping[str, str]] = {"google_generate": "fileData", "bedrock_converse": "s3Location"}
"""How the wire calls a file by its id."""
_FETCHED: Final = ("http://", "https://", "data:")
_LISTS: Final[Mapping[str, str]] = {"openai_responses": "input", "google_generate": "contents"}
_SYSTEM_OUTSIDE: Final = frozenset({"openai_responses", "anthropic_messages", "google_generate"})
"""Wires whose system prompt is no message."""
_EMPTY: Final = frozenset({"ollama_chat"})
"""Wires that take a request without messages (https://docs.ollama.com/api/generate: it loads the model)."""


def refuse_stored_content(request: Request, wire: str, body: bytes, model: str) -> None:
    """Raise ``CapabilityError`` for content that only the client's provider has, ``DecodeError`` for no message.

    ``wire`` is the client's, ``body`` what it sent.
    """
    fields: Mapping[str, object] = request.provider.get(wire, {}) if wire in _FIELDS else {}
    names = [name for name in _FIELDS.get(wire, ()) if fields.get(name) is not None]
    if any(mark in body for mark in _MARKS.get(wire, ())):
        names += dict.fromkeys(_stored(request.messages, wire))
    if names:
        raise CapabilityError(f"{', '.join(names)}: only the client's own provider has it, not {model}")
    if wire not in _EMPTY and not _asks(request.messages, wire):
        field = _LISTS.get(wire, "messages")
        raise DecodeError("there is no message to answer", path=field, source=wire)


def _stored(messages: Sequence[Message], wire: str) -> Iterator[str]:
    for message in messages:
        for part in message.content:
            source = getattr(part, "source", None)
            if isinstance(source, FileId) or (isinstance(source, Url) and not source.url.startswith(_FETCHED)):
                yield _NAMES.get(wire, "file_id")
            elif isinstance(part, Opaque) and (kind := _type(part)) in _BLOCKS:
                yield kind


def _type(part: Opaque) -> str:
    found = jsontext.fields(part.raw_json) if jsontext.kind(part.raw_json) == "an object" else {}
    kind = found.get("type", jsontext.NULL)
    return jsontext.text(kind) if jsontext.kind(kind) == "a string" else ""


def _asks(messages: Sequence[Message], wire: str) -> bool:
    if wire in _SYSTEM_OUTSIDE:
        return any(not isinstance(message, SystemMessage) for message in messages)
    return bool(messages)
