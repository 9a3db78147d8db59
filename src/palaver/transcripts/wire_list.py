"""Records that hold a message of a provider's wire, with fields of the program beside it: forms of ``message_list``.

Rules:

- The codec of the wire reads and writes what a record says (``salvaged`` when a block of it cannot be read). A record
  with results and a prompt is several messages. Keys beside it are kept under ``provider[form.extra]`` of the first.
- Results of neighbouring tool messages share a record, as the wire wants them.
- A message that the wire has no place for in its list (a system prompt, a marker) is carried by the record of the next
  message, else of the one before.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec import UNSET, structs

from palaver import wires
from palaver.core import jsontext, trusted
from palaver.core.errors import PalaverError
from palaver.core.messages import AssistantMessage, ToolMessage, UserMessage
from palaver.core.pairs import client_calls
from palaver.transcripts.fields import one_line
from palaver.transcripts.message_list import ABSENT, Form, Receipt, stored
from palaver.transcripts.salvage import salvaged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from msgspec import Raw

    from palaver.core.jsontext import Fields
    from palaver.core.messages import Message
    from palaver.threads.thread import Entry
    from palaver.transcripts.unknown_fields import Watch

EMPTY: Final = "(no content)"
"""The text of a message without a block that the wire takes: it refuses empty ones."""

_NO_LOSS: Final = frozenset(("max_tokens", "model", "first message", "tool call ids", "usage", "message"))
"""Fields that a request requires and a record may lack."""
_SAID: Final = (UserMessage, AssistantMessage, ToolMessage)


class ResultsForm(Form):
    """A record of a person or an answer; that of a person may hold results."""

    def holds(self, message: Message) -> bool:
        """Return whether there are such messages in the list."""
        return isinstance(message, _SAID)

    def groups(self, entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        """Put neighbouring results together, and messages that cannot stand alone with the next one."""
        group: list[Entry] = []
        for place, entry in enumerate(entries):
            group.append(entry)
            after = entries[place + 1 :]
            if not after or (self.holds(entry.message) and not self._shares(entry.message, after)):
                yield group
                group = []

    def _shares(self, message: Message, after: Sequence[Entry]) -> bool:
        """Return whether the next message belongs to the record of one that stands in it."""
        if isinstance(message, ToolMessage) and isinstance(after[0].message, ToolMessage):
            return True
        return not self.holds(after[0].message) and not any(self.holds(each.message) for each in after)

    def beside(self, message: Message, kept: dict[str, Any]) -> Message:
        """Return a message with the program's fields beside it."""
        if not kept:
            return message
        before = {} if message.provider_json is UNSET else jsontext.fields(message.provider_json)
        return structs.replace(message, provider_json=jsontext.raw({**before, self.extra: dict(sorted(kept.items()))}))

    def named(self, message: Message) -> Message:
        """Return a result with the name of its tool, which is that of its call; and remember calls."""
        self.tools.update((call.id, call.name) for call in message.tool_calls)
        name = self.tools.get(message.tool_call_id or "") if isinstance(message, ToolMessage) else None
        if name is None or not isinstance(message, ToolMessage) or message.tool_name is not None:
            return message
        return structs.replace(message, tool_name=name)

    def with_beside(self, record: dict[str, Any], entries: Sequence[Entry]) -> dict[str, Any]:
        """Restore the program's fields of the message that had them."""
        for entry in entries:
            if kept := stored(entry.message, self.extra):
                return self.with_rest(record, {key: raw for key, raw in kept.items() if key != ABSENT})
        return record


class WireForm(ResultsForm):
    """A record with ``role`` and ``content`` of a wire."""

    wire: ClassVar[str]

    def __init__(self, watch: Watch) -> None:
        """Start without calls."""
        super().__init__(watch)
        self.codec = wires.get(self.wire)

    # -- reading ---------------------------------------------------------------------------------------------------

    def said(self, message: Fields) -> list[Message]:
        """Return the messages of a wire's message. Raises ``DecodeError`` for one that it refuses."""
        body = {key: message[key] for key in ("role", "content") if key in message}
        found = salvaged(
            self._decoded,
            jsontext.encode({"messages": [body]}),
            self.name,
            lambda kind, why: self.watch.note(kind, why, self.line),
        )
        return [self.named(each) for each in found]

    def _decoded(self, body: bytes) -> Sequence[Message]:
        return self.codec.decode_request(body).messages

    # -- writing ---------------------------------------------------------------------------------------------------

    def body(self, entries: Sequence[Entry], receipt: Receipt) -> dict[str, Any]:
        """Return the wire's message of a group: its role and content; a prompt without content for none that it has."""
        places = [place for place, entry in enumerate(entries) if self.holds(entry.message)]
        if not places:
            return {"role": "user", "content": [{"type": "text", "text": EMPTY}]}
        messages = [self._bare(entries[place].message) for place in places]
        role = "assistant" if isinstance(messages[0], AssistantMessage) else "user"
        try:
            content = self._content(messages, places, receipt)
        except PalaverError:  # the wire refuses a block
            content = []
        return {"role": role, "content": content or [{"type": "text", "text": EMPTY}]}

    def _bare(self, message: Message) -> Message:
        """Return a message without what is beside it."""
        if message.provider_json is UNSET:
            return message
        kept = {key: raw for key, raw in jsontext.fields(message.provider_json).items() if key != self.extra}
        return structs.replace(message, provider_json=jsontext.raw(kept) if kept else UNSET)

    def _content(self, messages: Sequence[Message], places: Sequence[int], receipt: Receipt) -> list[Raw]:
        """Return the blocks of messages, written in a request around them."""
        before: list[Message] = [trusted.UserMessage(content=(trusted.Text("."),))]
        calls = [
            trusted.ToolCall(each.tool_call_id or "call", each.tool_name or "tool")
            for each in messages
            if isinstance(each, ToolMessage)
        ]
        behind: list[Message] = []
        if calls:
            before.append(trusted.AssistantMessage(content=tuple(calls)))
        if isinstance(messages[0], AssistantMessage):
            behind = [trusted.ToolMessage(tool_call_id=call.id) for call in client_calls(messages[0])]
        request = trusted.Request(messages=(*before, *messages, *behind))
        encoded = self.codec.encode_request(request, join_neighbors=False)
        for loss in encoded.losses:
            number = -1 if loss.message is None else loss.message - len(before)
            if loss.what not in _NO_LOSS and 0 <= number < len(messages):
                receipt.lose(loss.kind, loss.what, loss.why, loss.part, places[number])
        wire = jsontext.items(jsontext.fields(encoded.body)["messages"])[len(before) :]
        said = wire[:1] if isinstance(messages[0], AssistantMessage) else wire
        return [block for each in said for block in _blocks(jsontext.fields(each)["content"])]


def _blocks(content: Raw) -> list[Raw]:
    """Return the blocks of content, even if it is a string."""
    if jsontext.kind(content) == "an array":
        return [one_line(bytes(each).decode()) for each in jsontext.items(content)]
    text = jsontext.text(content) if jsontext.kind(content) == "a string" else ""
    return [jsontext.raw({"type": "text", "text": text})] if text else []
