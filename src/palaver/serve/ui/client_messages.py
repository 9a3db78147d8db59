"""What a front end may say: the only parts and fields of a client's messages that become messages.

Rules:

- A user says texts and files (images, audio, video, documents), and has an id. A file is a ``data:`` URL with base64,
  or one of http and https: a client cannot name a file that a provider, a bucket or a store keeps.
- An answer in a client's history says texts, reasoning, and calls with arguments that are an object; a result says a
  text or a JSON value, and whether it is an error.
- Everything else of a message is left out, whatever the client sends: ``mode``, ``source``, ``agent``, tags, metadata,
  payload, the fields of a provider, opaque parts, proofs of reasoning, calls that a provider ran. System and developer
  messages are left out too: instructions are the agent's.
- A call in a client's history never runs. One without a result gets one that says so (``with_results``): what a page
  ran itself comes with its output, and a model that still needs the others calls them again.
- A part of a known kind that is not written as its protocol says is an error with its place.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

from palaver.core import jsontext
from palaver.core.errors import DecodeError, PalaverError
from palaver.core.messages import Message, ToolMessage, UserMessage
from palaver.core.parts import Audio, File, Image, Inline, Json, Reasoning, Text, ToolCall, Video
from palaver.serve.ui.shapes import SOURCE, list_of
from palaver.turn.notes import MAY_HAVE_RUN

Fields: TypeAlias = Mapping[str, Any]
"""A JSON object of the client."""
PartReader: TypeAlias = Callable[[Fields, str], Any]
"""Makes a part of the client's part at a place. Raises ``DecodeError``."""
MOST_ID: Final = 100
_MEDIA: Final[Mapping[str, type[Image | Audio | Video]]] = {"image": Image, "audio": Audio, "video": Video}
"""The parts of files, by the first word of their media type; any other is a ``File``."""
_ALLOWED: Final = re.compile(r"https?://|data:[^,]{0,200};base64,", re.IGNORECASE)


def fields_of(item: object, path: str) -> Fields:
    """Return ``item``, what the client sent at the place ``path``. Raises ``DecodeError`` when it is no object."""
    if not isinstance(item, dict):
        raise DecodeError("expected an object", path=path, source=SOURCE)
    return cast("dict[str, Any]", item)


def word(fields: Fields, key: str) -> str:
    """Return the text of ``fields`` under ``key``; an empty one for anything else."""
    found = fields.get(key)
    return found if isinstance(found, str) else ""


def role_of(fields: Fields, roles: Collection[str], path: str) -> str:
    """Return the role of the message ``fields`` at the place ``path``. Raises ``DecodeError`` for none of ``roles``."""
    role = word(fields, "role")
    if role not in roles:
        raise DecodeError(f"expected one of {', '.join(sorted(roles))}", path=f"{path}.role", source=SOURCE)
    return role


def text_in(fields: Fields, key: str, path: str = "") -> str:
    """Return the text of ``fields`` (at the place ``path``) under ``key``. Raises ``DecodeError`` when it is none."""
    found = fields.get(key)
    if not isinstance(found, str):
        raise DecodeError("expected a text", path=f"{path}.{key}" if path else key, source=SOURCE)
    return found


def optional_text(fields: Fields, key: str, path: str) -> str | None:
    """Return the text of ``fields`` (at ``path``) under ``key``, ``None`` for none. Raises ``DecodeError``."""
    return None if fields.get(key) is None else text_in(fields, key, path)


def id_of(fields: Fields, path: str) -> str | None:
    """Return the client's id of the message ``fields`` at the place ``path``. Raises ``DecodeError``."""
    found = optional_text(fields, "id", path)
    return None if not found else checked_id(found, f"{path}.id")


def checked_id(id: str, path: str) -> str:
    """Return ``id``, which the client sent at the place ``path``. Raises ``DecodeError`` for a wrong one."""
    if not 0 < len(id) <= MOST_ID or not id.isprintable():
        raise DecodeError(f"expected 1 to {MOST_ID} printable characters", path=path, source=SOURCE)
    return id


def text_part(fields: Fields, path: str) -> Text:
    """Return the text part that the client sent as ``fields`` at the place ``path``. Raises ``DecodeError``."""
    return Text(text_in(fields, "text", path))


def reasoning_part(fields: Fields, path: str) -> Reasoning:
    """Return the reasoning that the client sent as ``fields`` at the place ``path``. Raises ``DecodeError``."""
    return Reasoning(text_in(fields, "text", path))


def file_part(
    url: str, media_type: str | None, name: str | None, path: str, *, kind: str = ""
) -> Image | Audio | Video | File:
    """Return a file of the client.

    ``url`` is a ``data:`` URL, or one of http and https, at the place ``path``. ``kind`` says which part it is, without
    it ``media_type`` does; ``name`` is its file name, which documents keep. Raises ``DecodeError`` for any other URL,
    and for what is no base64.
    """
    if not _ALLOWED.match(url):
        raise DecodeError("expected a data: URL with base64, or one of http or https", path=path, source=SOURCE)
    try:
        found = File.from_url(url, media_type)
    except PalaverError as error:
        raise DecodeError(str(error), path=path, source=SOURCE) from None
    if isinstance(found.source, Inline):
        return inline_part(found.source.data, media_type or found.media_type, name, path, kind=kind)
    return _of_kind(found.source, media_type or found.media_type, name, kind)


def inline_part(
    data: str, media_type: str | None, name: str | None, path: str, *, kind: str = ""
) -> Image | Audio | Video | File:
    """Return a file of the client, whose base64 is ``data``, at the place ``path``.

    ``media_type``, ``name`` and ``kind`` are those of ``file_part``. Raises ``DecodeError`` for what is no base64.
    """
    source = Inline(data)
    if not source.valid:
        raise DecodeError("expected base64", path=path, source=SOURCE)
    return _of_kind(source, media_type, name, kind)


def _of_kind(source: Any, media_type: str | None, name: str | None, kind: str) -> Image | Audio | Video | File:
    cls = _MEDIA.get(kind or (media_type or "").partition("/")[0])
    return File(source, media_type, name) if cls is None else cls(source, media_type)


def parts_of(listed: object, readers: Mapping[str, PartReader], path: str) -> tuple[Any, ...]:
    """Return the parts of a message.

    ``listed`` is what the client sent at the place ``path``, and ``readers`` has the kinds that are read; all others
    are left out. Raises ``DecodeError``.
    """
    made: list[Any] = []
    for place, item in enumerate(items_of(listed, path)):
        where = f"{path}[{place}]"
        fields = fields_of(item, where)
        reader = readers.get(word(fields, "type"))
        if reader is not None:
            made.append(reader(fields, where))
    return tuple(made)


def items_of(listed: object, path: str) -> list[Any]:
    """Return ``listed``, what the client sent at the place ``path``. Raises ``DecodeError`` when it is no list."""
    found = list_of(listed)
    if found is None:
        raise DecodeError("expected a list", path=path, source=SOURCE)
    return list(found)


def call_part(id: str, name: str, arguments: object) -> ToolCall | None:
    """Return a call of a client's history: its ``id``, the ``name`` of its tool, and its ``arguments`` as JSON.

    ``None`` for one that no model is sent as a call: without a name or an id, or with other arguments than an object.
    """
    if not id or not name or not isinstance(arguments, dict):
        return None
    try:
        return ToolCall(id, name, jsontext.encode(cast("object", arguments)).decode())
    except PalaverError:  # a number that no double can hold
        return None


def result_parts(value: object, path: str) -> tuple[Text | Json, ...]:
    """Return the content of the result ``value``, which the client sent at the place ``path``.

    Raises ``DecodeError`` for numbers that no double can hold.
    """
    if value is None:
        return ()
    if isinstance(value, str):
        return (Text(value),)
    try:
        return (Json.of(value),)
    except PalaverError as error:
        raise DecodeError(str(error), path=path, source=SOURCE) from None


def before_user(messages: Sequence[Message]) -> Sequence[Message]:
    """Return ``messages`` without those of the user at their end: what they are behind may not have been taken yet."""
    end = len(messages)
    while end and isinstance(messages[end - 1], UserMessage):
        end -= 1
    return messages[:end]


def with_results(messages: Iterable[Message]) -> Iterator[Message]:
    """Yield the history of a client, ``messages``, with one result for each call.

    An open call gets a result that says so: nobody here knows whether a model made it, or whether it has run. Left out
    are results without a call, all calls of an answer but the last that have one id, and messages without content.
    """
    unanswered: dict[str, ToolCall] = {}
    for message in messages:
        if isinstance(message, ToolMessage):
            call = unanswered.pop(message.tool_call_id or "", None)
            if call is not None:
                yield message.replace(tool_name=call.name)
            continue
        yield from map(_not_run, unanswered.values())
        unanswered = {call.id: call for call in message.tool_calls}
        content = [each for each in message.content if not isinstance(each, ToolCall) or unanswered[each.id] is each]
        if content:
            yield message.replace(content=content)
    yield from map(_not_run, unanswered.values())


def _not_run(call: ToolCall) -> ToolMessage:
    return ToolMessage(content=(Text(MAY_HAVE_RUN),), tool_call_id=call.id, tool_name=call.name, is_error=True)
