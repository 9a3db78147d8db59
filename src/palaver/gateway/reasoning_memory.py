"""The reasoning of answers, for clients that do not send it back: their wire has no field for it, or they leave it out.

Rules:

- An answer with calls is found by their ids, where one of them is random, and no other answer has it; any other answer
  by the conversation up to and with it. So reasoning comes back into the conversation that it belongs to,
  and into no other.
- A text may have a proof, too: the texts of such an answer are kept with it.
- A memory holds so many bytes, and forgets what was asked for least recently. What it forgot is not sent back: the
  model then goes on without it.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from palaver.core.messages import AssistantMessage, ToolMessage
from palaver.core.parts import AssistantPart, Reasoning, Text, ToolCall
from palaver.wires._engine import json_fields

if TYPE_CHECKING:
    from palaver.core.messages import Message

_OVERHEAD: Final = 500
"""About what an entry costs beside its texts, in bytes."""
_RUN: Final = re.compile(r"[A-Za-z0-9]{12,}")
_CHANGE: Final = re.compile(r"(?<=[A-Za-z])[0-9]|(?<=[0-9])[A-Za-z]")
_CHANGES: Final = 3
"""How often letters and digits change in a long piece of a random id: not in counters, and hardly in names."""


class ReasoningMemory:
    """Reasoning in this process, at most ``size`` bytes of it."""

    def __init__(self, size: int) -> None:
        """Start empty."""
        self._size, self._used = size, 0
        self._entries: OrderedDict[bytes, tuple[tuple[AssistantPart, ...], int]] = OrderedDict()

    def __bool__(self) -> bool:
        """Return whether anything is remembered."""
        return bool(self._entries)

    def remember(self, key: bytes, parts: Sequence[AssistantPart]) -> None:
        """Keep the parts of an answer: its reasoning, its calls, and where its text stood."""
        parts = tuple(parts)
        size = _OVERHEAD + sum(map(_size_of, parts))
        if size > self._size:
            return
        _, before = self._entries.pop(key, ((), 0))
        self._entries[key] = parts, size
        self._used += size - before
        while self._used > self._size:
            _, (_, freed) = self._entries.popitem(last=False)
            self._used -= freed

    def find(self, key: bytes) -> tuple[AssistantPart, ...]:
        """Return the parts of an answer; none where it is not known."""
        found = self._entries.get(key)
        if found is None:
            return ()
        self._entries.move_to_end(key)
        return found[0]


def _size_of(part: AssistantPart) -> int:
    stored = 0 if part.provider_json is UNSET else len(bytes(part.provider_json))
    if isinstance(part, Text):
        return stored + len(part.text)
    if isinstance(part, Reasoning):
        return stored + len(part.text) + len(part.signature or "") + len(part.encrypted or "")
    return stored + _OVERHEAD


def worth_keeping(parts: Sequence[AssistantPart], wire: str, call_field: str | None) -> tuple[AssistantPart, ...]:
    """Return what is remembered of an answer of ``wire``; nothing where it holds neither reasoning nor a proof.

    Texts become empty ones where none has a proof, and calls lose their arguments: the client has those.
    """

    def proven(part: AssistantPart) -> bool:
        return call_field is not None and call_field in json_fields.native(part, wire)

    signed = any(isinstance(part, Text) and proven(part) for part in parts)
    if not signed and not any(
        isinstance(part, Reasoning) or (isinstance(part, ToolCall) and proven(part)) for part in parts
    ):
        return ()
    return tuple([each for part in parts for each in ((part,) if signed and isinstance(part, Text) else _bare(part))])


def _bare(part: AssistantPart) -> Sequence[AssistantPart]:
    match part:
        case Reasoning():
            return (part,)
        case ToolCall() if not part.provider_executed:
            return (part.replace(arguments_json=""),)
        case Text():
            return (Text(""),)
        case _:
            return ()


def keys_of(messages: Sequence[Message], scope: str = "") -> Iterator[bytes | None]:
    """Return for each message the key of the answer that it is; ``None`` for what is no answer.

    ``scope`` is whose conversation it is.
    """
    told = blake2b(scope.encode("utf-8", "surrogatepass"), digest_size=16)
    fed = 0
    for index, message in enumerate(messages):
        if type(message) is not AssistantMessage:  # as everywhere here: isinstance costs three times as much
            yield None
        elif ids := _ids(message):
            yield blake2b(f"{scope}\0{ids}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
        else:
            for each in messages[fed : index + 1]:
                told.update(_visible(each))
            fed = index + 1
            yield told.digest()


def _ids(message: AssistantMessage) -> str:
    """Return the ids of the calls; none where all of them may come again, as ``call_0`` does."""
    ids = [part.id for part in message.content if type(part) is ToolCall and not part.provider_executed]
    return "\0".join(ids) if any(map(is_random, ids)) else ""


def is_random(call_id: str) -> bool:
    """Return whether an id is random for sure, and so no other call has it."""
    runs = _RUN.findall(call_id.replace("-", ""))
    return any(sum(1 for _ in _CHANGE.finditer(each)) >= _CHANGES for each in runs)


def without_space(text: str) -> str:
    """Return the text of an answer as it is compared: wires join several texts with other white space."""
    return "".join(text.split())


def _visible(message: Message) -> bytes:
    """Return what every client sends back of a message: its role, and its id or its text."""
    if type(message) is ToolMessage and is_random(message.tool_call_id or ""):
        return f"{message.role}\0{message.tool_call_id}\0".encode("utf-8", "surrogatepass")
    text = "".join([part.text for part in getattr(message, "content", ()) if type(part) is Text])
    text = without_space(text) if type(message) is AssistantMessage else text.strip()
    return f"{message.role}\0{text}\0".encode("utf-8", "surrogatepass")
