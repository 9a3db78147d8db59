"""The readable rest of a message with an unreadable block.

Rules:

- The block that a ``DecodeError`` points to becomes an ``Opaque`` of the transcript format, which no wire sends, and
  the rest is read again; it is noted as ``block``. A field of a message, or a call, with an invalid value is left out,
  and noted as ``unread``.
- A message without a role, or without a readable block, is not read: then the first error is raised again.
- At most ``_MOST`` blocks of one body are skipped, since each requires another reading.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast

from msgspec import structs

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.parts import Opaque

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from palaver.core.messages import Message

M = TypeVar("M", bound="Message")

_MARK: Final = "palaver.unread"
_MOST: Final = 64
_STEP: Final = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
_NEEDED: Final = frozenset(("role", "content", "parts", "type", "messages", "contents", "input"))


def salvaged(
    decode: Callable[[bytes], Sequence[M]],
    body: bytes,
    file_format: str,
    note: Callable[[Literal["block", "unread"], str], None],
    *,
    outside: int = 2,
) -> list[M]:
    """Return the messages of a body, without the blocks that cannot be read.

    ``outside`` is the number of steps in an error's path to the message: two for ``messages[0]``, none for a response.
    Raises ``DecodeError`` when no block is left, or the message itself cannot be read.
    """
    try:
        return list(decode(body))
    except DecodeError as error:
        first = error
    notes: dict[str, Literal["block", "unread"]] = {}
    value, last = jsontext.value(body), first
    while True:
        kind = _taken_out(value, _steps(last.path), outside) if len(notes) < _MOST else None
        if kind is None:
            raise first
        notes[str(last)] = kind
        try:
            read = [_restored(each, file_format) for each in decode(jsontext.encode(value))]
            break
        except DecodeError as error:
            last = error
    if not any(_says_something(each, file_format) for each in read):
        raise first
    for why, kind in notes.items():
        note(kind, why)
    return read


def _steps(path: str) -> list[str | int]:
    return [int(number) if number else name for number, name in _STEP.findall(path)]


def _taken_out(value: Any, steps: Sequence[str | int], outside: int) -> Literal["block", "unread"] | None:
    """Remove the innermost block on a path from a value, else the field of the message; ``None`` without either."""
    walked: list[tuple[Any, str | int]] = []
    for step in steps:
        if not _has(value, step):
            break
        walked.append((value, step))
        value = value[step]
    for place in range(len(walked) - 1, outside - 1, -1):
        holder, step = walked[place]
        if not isinstance(step, int):
            continue
        if _is_marked(holder[step]):  # a list of calls takes no block of another kind
            del holder[step]
            return "unread"
        holder[step] = {"type": _MARK, _MARK: holder[step]}
        return "block"
    if len(walked) > outside:
        holder, step = walked[outside]
        if isinstance(step, str) and step not in _NEEDED:
            del holder[step]
            return "unread"
    return None


def _has(value: Any, step: str | int) -> bool:
    if isinstance(step, int):
        return isinstance(value, list) and step < len(value)  # pyright: ignore[reportUnknownArgumentType]
    return isinstance(value, dict) and step in value


def _is_marked(value: Any) -> bool:
    return isinstance(value, dict) and cast("dict[str, Any]", value).get("type") == _MARK


def _restored(message: M, file_format: str) -> M:
    """Return a message whose unreadable blocks are those of the file."""
    content = tuple([_block(part, file_format) for part in message.content])
    return message if content == message.content else structs.replace(message, content=content)


def _block(part: Any, file_format: str) -> Any:
    if not isinstance(part, Opaque) or _MARK.encode() not in bytes(part.raw_json):
        return part
    stored = jsontext.value(part.raw_json)
    return trusted.Opaque(file_format, jsontext.raw(stored[_MARK])) if _is_marked(stored) else part


def _says_something(message: Message, file_format: str) -> bool:
    return not message.content or any(
        not (isinstance(each, Opaque) and each.wire == file_format) for each in message.content
    )
