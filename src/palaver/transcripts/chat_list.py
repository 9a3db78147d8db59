"""Documents with a list of messages of the chat wire, and keys of their own beside them. The common part of these.

Rules:

- ``thinking_blocks`` (signed) and ``reasoning_content`` are reasoning before the text; the second repeats the first
  when a message has both.
- A document has its list at ``paths``; a new one is ``before``, the list and ``after``.
- Keys that the program has beside a message (``others``) stay under ``provider[form.extra]``.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec import UNSET, structs

from palaver import wires
from palaver.core import jsontext, trusted
from palaver.core.messages import AssistantMessage, FlushMarker, Message, RescueMarker, ToolMessage
from palaver.core.parts import Reasoning
from palaver.transcripts import extension_slot
from palaver.transcripts.conversation import Session, derived_id
from palaver.transcripts.fields import listed, split, string
from palaver.transcripts.message_list import (
    DocumentRecordReader,
    Form,
    ListRecordWriter,
    Receipt,
    provider_of,
    stored,
    tag_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from msgspec import Raw

    from palaver.core.jsontext import Fields
    from palaver.threads.thread import Entry
    from palaver.transcripts.conversation import Step
    from palaver.transcripts.format import Origin
    from palaver.transcripts.record import Record
    from palaver.transcripts.unknown_fields import Watch
    from palaver.transcripts.writer import WriteState

WIRE: Final = "openai_chat"
SIGNED: Final = "anthropic_messages"
"""The wire of signed thinking blocks."""
WIRE_KEYS: Final = frozenset(("role", "content", "tool_calls", "tool_call_id", "name", "refusal"))
REASONING: Final = frozenset(("reasoning_content", "thinking_blocks"))
_BLOCK: Final = frozenset(("type", "thinking", "signature"))
_NO_LOSS: Final = frozenset(("model", "first message", "tool call ids", "max_tokens"))


class ChatForm(Form):
    """A message of the chat wire in a document."""

    keys: ClassVar[frozenset[str]] = WIRE_KEYS | REASONING
    others: ClassVar[frozenset[str]] = frozenset()
    """The further keys that the program writes beside a message."""
    before: ClassVar[bytes] = b'{"messages":['
    after: ClassVar[bytes] = b"]}"

    def session(self, fields: Fields) -> Session:  # noqa: ARG002 (for forms that have one)
        """Return the session of a document."""
        return Session(file_format=self.name)

    def fitted(self, fields: Fields) -> dict[str, Raw]:
        """Return a message as the wire has it."""
        own = self.others | (self.keys - WIRE_KEYS) | {extension_slot.SLOT}
        return {key: raw for key, raw in fields.items() if key not in own}

    def beside(self, message: Message, fields: Fields) -> Message:  # noqa: ARG002 (for forms that have data there)
        """Return a message with the data beside it."""
        return message

    def written(self, message: Message, record: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002 (as above)
        """Return a record with the data of a message that the wire has no place for."""
        return record

    # -- reading ---------------------------------------------------------------------------------------------------

    def plain(self, fields: Fields) -> list[Message]:
        """Return the message of a record."""
        body = jsontext.encode({"messages": [self.fitted(fields)]})
        found: list[Message] = list(wires.get(WIRE).decode_request(body).messages)
        rest: dict[str, Any] = {key: jsontext.own(fields[key]) for key in self.others if key in fields}
        if len(found) == 1:
            message = found[0]
            thoughts = _thoughts(fields, rest) if isinstance(message, AssistantMessage) else ()
            kept: dict[str, Any] = {self.extra: rest}
            own = {} if message.provider_json is UNSET else jsontext.fields(message.provider_json)
            provider = provider_of({**{name: split(raw) for name, raw in own.items()}, **kept})
            message = structs.replace(message, content=(*thoughts, *message.content), provider_json=provider)
            if isinstance(message, ToolMessage) and message.tool_name is None:
                message = structs.replace(message, tool_name=self.tools.get(message.tool_call_id or ""))
            found = [self.beside(message, fields)]
        self.tools.update((call.id, call.name) for message in found for call in message.tool_calls)
        return found

    # -- writing ---------------------------------------------------------------------------------------------------

    def write_record(self, entries: Sequence[Entry], receipt: Receipt) -> dict[str, Any] | None:
        """Return the record of a message."""
        message = entries[0].message
        if isinstance(message, RescueMarker | FlushMarker):
            return None
        thoughts = [part for part in message.content if isinstance(part, Reasoning)]
        record = {**self._fields(message, derived_id(entries[0].id), receipt), **_reasoning(thoughts)}
        return self.with_rest(self.written(message, record), stored(message, self.extra))

    def _fields(self, message: Message, made: str, receipt: Receipt) -> dict[str, Any]:
        """Return a message as the wire writes it; a result gets a call to answer, which is then left out."""
        places = [place for place, part in enumerate(message.content) if not isinstance(part, Reasoning)]
        plain = message.replace(content=[message.content[place] for place in places])
        before: list[Message] = []
        if isinstance(plain, ToolMessage):
            called = plain.tool_call_id or made
            call = trusted.ToolCall(called, plain.tool_name or self.tools.get(called) or "tool")
            before = [trusted.AssistantMessage(content=(call,))]
            plain = plain.replace(tool_call_id=called)
        request = trusted.Request(messages=(*before, plain))
        encoded = wires.get(WIRE).encode_request(request, join_neighbors=False)
        for loss in encoded.losses:
            if loss.what not in _NO_LOSS and loss.message in {None, len(before)}:
                part = places[loss.part] if loss.part is not None and loss.part < len(places) else None
                what = tag_of(message.content[part]) if part is not None else loss.what
                receipt.lose(loss.kind, what, loss.why, part)
        messages = listed(jsontext.fields(encoded.body), "messages")
        at = len(before)  # behind it, there may be results that the wire adds
        return dict(split(messages[at])) if len(messages) > at else {"role": message.role, "content": ""}


def _thoughts(fields: Fields, rest: dict[str, Any]) -> list[Reasoning]:
    """Return the reasoning of a message; ``rest`` keeps what says the same again, or is no text."""
    found: list[Reasoning] = []
    for raw in listed(fields, "thinking_blocks"):
        block = split(raw)
        text, signature = string(block, "thinking"), string(block, "signature")
        if (
            string(block, "type") == "thinking"
            and text is not None
            and block.keys() <= {"type", "thinking", "signature"}
        ):
            found.append(trusted.Reasoning(text, signature, wire=SIGNED))
        else:
            rest["thinking_blocks"] = jsontext.own(fields["thinking_blocks"])
    text = string(fields, "reasoning_content")
    if text and not found:
        return [trusted.Reasoning(text)]
    if "reasoning_content" in fields:
        rest["reasoning_content"] = jsontext.own(fields["reasoning_content"])
    return found


def _reasoning(thoughts: Sequence[Reasoning]) -> dict[str, Any]:
    """Return the keys of reasoning: one text, or signed blocks."""
    if len(thoughts) == 1 and thoughts[0].signature is None and thoughts[0].text:
        return {"reasoning_content": thoughts[0].text}
    blocks = [
        {"type": "thinking", "thinking": each.text, "signature": each.signature}
        for each in thoughts
        if each.signature is not None and each.wire == SIGNED
    ]
    return {"thinking_blocks": blocks} if blocks else {}


class _Reader(DocumentRecordReader):
    """Reads a document with its session."""

    _form: ChatForm

    def record(self, record: Record) -> Iterator[Step]:
        """Cut the document, and read its messages."""
        self._session = self._form.session(record.fields or {})
        yield from super().record(record)


class _Writer(ListRecordWriter):
    """Writes a document."""

    _form: ChatForm

    def head(self) -> Iterator[bytes]:
        """Yield the part before the list."""
        yield self._form.before

    def tail(self, old: bytes | None) -> bytes:
        """Return the part behind the list."""
        return self._form.after if old is None else old


def chat_reading(form: Callable[[Watch], ChatForm]) -> Callable[[Origin, Watch], DocumentRecordReader]:
    """Return the reader of documents of a form."""
    return lambda origin, watch: _Reader(form(watch), origin)


def chat_rendering(form: Callable[[Watch], ChatForm]) -> Callable[[WriteState], ListRecordWriter]:
    """Return the writer of documents of a form."""
    return lambda writing: _Writer(form, writing)
