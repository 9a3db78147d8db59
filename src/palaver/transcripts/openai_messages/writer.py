"""Write conversations: one that was read in its original shape, any other as ``messages``.

Rules:

- The columns of a record stay; those with its messages are written again. Unedited messages keep their spelling.
- A conversation is continued in its record or, if a record is a message, in new records.
- Messages of the wire that was read are written in that wire's form. If others were added, they are fitted to the
  wire like a request, and the receipt names the changes.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw

from palaver import wires
from palaver.core import jsontext, trusted
from palaver.core.messages import AssistantMessage, DeveloperMessage, FlushMarker, RescueMarker, SystemMessage
from palaver.core.parts import MalformedToolCall, Media, Opaque, Reasoning, Refusal, Text, ToolCall
from palaver.threads.thread import MAIN
from palaver.transcripts import documents, extension_slot, original_bytes
from palaver.transcripts.fields import inner, integer
from palaver.transcripts.openai_messages import alpaca, batch, images, sharegpt
from palaver.transcripts.openai_messages.reader import column
from palaver.transcripts.openai_messages.shapes import NAME, RESPONSES, WIRE, Shape, list_shape, shape_of
from palaver.transcripts.writer import is_record, singly, unsupported

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from palaver.core.jsontext import Fields
    from palaver.core.messages import Message
    from palaver.core.request import Loss, LossKind
    from palaver.threads.thread import Entry
    from palaver.transcripts.writer import WriteState

_NO_LOSS: Final = frozenset(("model", "max_tokens"))
_CHOICE: Final = {"finish_reason": ("finish_reason",)}
_ANSWER: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    WIRE: {"model": ("model",), "usage": ("usage",)},
    RESPONSES: {"model": ("model",), "usage": ("usage",), "finish_reason": ("status", "incomplete_details")},
}
"""The keys in the body of a response, by field of an answer."""
_SINGLE: Final = frozenset(("message",))
_SAID: Final = frozenset(
    ("content", "id", "tool_call_id", "is_error", "reason", "scope", "provider_json", "extra", "tool_name")
)
"""The fields of a message that the wire has, or names on its receipt. A tool's name is that of the call."""


class Writer:
    """Writes one conversation."""

    def __init__(self, writing: WriteState) -> None:
        """Find the original shape of the conversation."""
        self._writing = writing
        self._shape: Shape | None = self._first_shape()
        self._has_images = False
        """Whether the written record has a column of images."""

    def head(self) -> Iterator[bytes]:
        """Return nothing: lines have no head."""
        return iter(())

    def tail(self, old: bytes | None) -> bytes | None:
        """Return the original end of a list."""
        return old

    def groups(self, entries: Sequence[Entry]) -> Iterable[Sequence[Entry]]:
        """Group a conversation as one record, unless a record is a message."""
        return singly(entries) if self._shape in _SINGLE else [entries]

    def continues(self, before: Sequence[Entry], group: Sequence[Entry]) -> bool:
        """Return whether new entries belong to the record of the entries before them."""
        del before, group
        return self._shape is not None and self._shape not in _SINGLE

    def render(self, group: Sequence[Entry], old: Sequence[bytes]) -> Iterator[bytes]:
        """Yield a conversation, or a message."""
        spoken = [entry for entry in group if not is_record(entry)]
        fields = documents.fields_of(old[0]) if old else {}
        self._has_images = "images" in fields
        shape = self._shape_of(fields, old)
        self._writing.whole = shape != "sharegpt"  # turns keep their other keys, and none is ever removed
        if not spoken:
            return
        if shape is None or self._shape is None:
            self._unsupported(spoken)
        lines = self._lines(spoken)
        if len(lines) == 1 and (column := images.column([entry.message for entry in spoken], fields)) is not None:
            fields["images"] = jsontext.raw(column)
        match shape:
            case "message":
                for message in self._messages(spoken):
                    yield bytes(message)
            case "list":
                yield jsontext.encode(self._messages(spoken))
            case "sharegpt":
                yield jsontext.encode({**fields, **self._turns(fields, spoken, lines)})
            case "alpaca":
                said = [[each.message for each in line] for line in lines]
                yield jsontext.encode({**fields, **alpaca.columns(said, fields, self._loser(lines[0]))})
                self._surplus(lines[2 if "chosen" in fields else 1 :])
            case "completion" | "chosen" | "preference":
                yield jsontext.encode({**fields, **self._columns(shape, fields, lines)})
            case "batch":
                yield jsontext.encode({**fields, **self._batch(fields, lines)})
            case "messages" | None:
                yield jsontext.encode({**fields, "messages": self._messages(spoken)})

    # -- which messages ------------------------------------------------------------------------------------------------

    def _first_shape(self) -> Shape | None:
        """Return the shape of the first record of the conversation that has one."""
        for entry in self._writing.entries:
            if is_record(entry) or not original_bytes.leads(entry.message, NAME):
                continue
            for piece in original_bytes.records_of(NAME, self._group(entry)) or ():
                shape = shape_of(documents.fields_of(piece.raw[len(documents.lead_of(piece.raw)) :])) or list_shape(
                    piece.raw
                )
                if shape is not None:
                    return shape
        return None

    def _shape_of(self, fields: Fields, old: Sequence[bytes]) -> Shape | None:
        return shape_of(fields) or list_shape(old[0]) if old else self._shape

    def _group(self, first: Entry) -> list[Message]:
        number = original_bytes.numbers_of(first.message, NAME)
        return [
            entry.message
            for entry in self._writing.entries
            if entry is first or (number and original_bytes.follows(entry.message, NAME) == number[0])
        ]

    def _lines(self, group: Sequence[Entry]) -> list[list[Entry]]:
        """Return the branches of a record: the main one, then each branch from it, with the shared part."""
        path = {entry.id for entry in self._writing.thread.path(MAIN)}
        main = [entry for entry in group if entry.id in path] or list(group)
        lines = [main]
        ends: dict[str, int] = {}
        for entry in group:
            if entry in main:
                continue
            if entry.parent in ends:
                number = ends.pop(entry.parent or "")
                lines[number].append(entry)
            else:
                at = next((at for at, each in enumerate(main, 1) if each.id == entry.parent), 0)
                lines.append([*main[:at], entry])
                number = len(lines) - 1
            ends[entry.id] = number
        return lines

    # -- shapes --------------------------------------------------------------------------------------------------------

    def _columns(self, shape: Shape, fields: Fields, lines: Sequence[Sequence[Entry]]) -> dict[str, Any]:
        """Return the columns of a prompt and its answer."""
        asked_in, key = (inner(fields, "input"), "messages") if shape == "preference" else (fields, "prompt")
        answers = {
            "completion": ("completion",),
            "chosen": ("chosen", "rejected"),
            "preference": ("preferred_output", "non_preferred_output"),
        }[shape]
        split_at = self._answered(lines[0], len(column(asked_in, key, "user"))) if key in asked_in else 0
        found: dict[str, Any] = {}
        if key not in asked_in and "messages" in fields:
            key = "messages"
            split_at = self._answered(lines[0], len(column(asked_in, key, "user")))
        if key in asked_in:
            found[key] = self._column(asked_in, key, lines[0][:split_at])
        if shape == "preference":
            found = {"input": {**asked_in, **found}}
        for name, line in zip(answers, (*lines, *([()] * len(answers))), strict=False):
            found[name] = self._column(fields, name, line[split_at:])
        self._surplus(lines[len(answers) :])
        return found

    def _turns(self, fields: Fields, spoken: Sequence[Entry], lines: Sequence[Sequence[Entry]]) -> dict[str, Any]:
        """Return the columns of ShareGPT, with two answers if the record has them."""
        if "chosen" not in fields and "rejected" not in fields:
            return sharegpt.turns([each.message for each in spoken], fields, self._loser(spoken))
        split_at = self._answered(lines[0], len(sharegpt.read(fields, lambda _: None)))
        asked = lines[0][:split_at]
        found = sharegpt.turns([each.message for each in asked], fields, self._loser(asked))
        for name, line in zip(("chosen", "rejected"), (*lines, ()), strict=False):
            answer = line[split_at:]
            said = sharegpt.turns([each.message for each in answer], fields, self._loser(answer))["conversations"]
            found[name] = sharegpt.answer_like(fields.get(name), said)
        self._surplus(lines[2:])
        return found

    def _surplus(self, lines: Sequence[Sequence[Entry]]) -> None:
        """Name the branches that a record has no place for."""
        for line in lines:
            self._writing.lose("dropped", "branch", "the record has a place for two answers", line[-1])

    def _answered(self, line: Sequence[Entry], before: int) -> int:
        """Return where the answer begins: at the old place, if an answer is still there, else after the question."""
        mine = [isinstance(entry.message, AssistantMessage) for entry in line]
        if before == len(line) or (before < len(line) and mine[before]):
            return before
        return next((at for at, each in enumerate(mine) if each), len(line))

    def _column(self, fields: Fields, key: str, entries: Sequence[Entry]) -> Any:
        """Return a column: a text if it was one and still is, else a list."""
        old = fields.get(key)
        messages = self._messages(entries)
        if old is not None and jsontext.kind(old) == "a string" and len(entries) <= 1:
            texts = [part for entry in entries for part in entry.message.content]
            if all(isinstance(part, Text) for part in texts):
                return "".join(part.text for part in texts if isinstance(part, Text))
        if old is not None and jsontext.kind(old) == "an object" and len(messages) == 1:
            return messages[0]
        return messages

    def _batch(self, fields: Fields, lines: Sequence[Sequence[Entry]]) -> dict[str, Any]:
        """Return the body of a request or of a response."""
        asked, body = batch.wire_of_request(fields), inner(fields, "body")
        if asked == WIRE:
            return {"body": {**body, "messages": self._messages(lines[0])}}
        if asked == RESPONSES:
            return {"body": {**body, **self._asked(body, lines[0])}}
        wire, answered = batch.answered(fields)
        key = "output" if wire == RESPONSES else "choices"
        messages = [line[-1].message for line in lines]
        answers = [each for each in messages if isinstance(each, AssistantMessage)]
        if len(answers) != len(messages) or len(lines[0]) != 1:
            self._writing.lose("dropped", "messages", "a response of a batch holds one answer", lines[0][0])
        if not answers:
            return {}
        before = batch.answer_of(wire, answered)
        others = (before.message, *before.alternatives)
        ended = all(one.finish_reason == other.finish_reason for one, other in zip(answers, others, strict=False))
        # the wire repeats its own word for the end of an answer
        own = wire == WIRE and ended and self._is_own([entry for line in lines for entry in line], wire)
        made = trusted.Response(answers[0], tuple(answers[1:]), origin=wire if own else None)
        encoded = wires.get(wire).encode_response(made)
        self._lose(encoded.losses, lines[0])
        written = jsontext.fields(encoded.body)
        edited = _edited(answers[0], before.message, written, _ANSWER[wire]) | batch.dated(answered, answers[0].sent_at)
        told = self._choices(answered, written[key], answers, others) if key == "choices" else written[key]
        return {"response": batch.with_body(fields, {**answered, **edited, key: jsontext.raw(told)})}

    def _asked(self, body: Fields, line: Sequence[Entry]) -> dict[str, Any]:
        """Return the messages of a request of Responses: its instructions, and a list."""
        first = line[0].message if line else None
        apart = "instructions" in body and isinstance(first, SystemMessage | DeveloperMessage)
        found: dict[str, Any] = {"input": self._messages(line[1:] if apart else line, RESPONSES, "input")}
        if "instructions" in body:
            found["instructions"] = first.text if first is not None and apart else None
        return found

    def _choices(
        self,
        answered: Fields,
        written: Raw,
        answers: Sequence[AssistantMessage],
        before: Sequence[AssistantMessage],
    ) -> list[dict[str, Any]]:
        """Return the choices, with the other keys beside the message in each."""
        olds = {integer(each, "index") or 0: each for each in map(jsontext.fields, jsontext.items(answered["choices"]))}
        found: list[dict[str, Any]] = []
        for place, raw in enumerate(jsontext.items(written)):
            new = jsontext.fields(raw)
            edited = _edited(answers[place], before[place], new, _CHOICE) if place < len(before) else {}
            found.append({**olds.get(place, new), **edited, "message": new["message"]})
        return found

    # -- messages ------------------------------------------------------------------------------------------------------

    def _messages(self, entries: Sequence[Entry], wire: str = WIRE, key: str = "messages") -> list[Raw]:
        bare = [original_bytes.bare(entry.message, NAME) for entry in entries]
        messages = tuple([images.taken_back(each) for each in bare] if self._has_images else bare)
        own = self._shape is not None and self._is_own(entries, wire)
        request = trusted.Request(messages=messages, origin=wire if own else None)
        encoded = wires.get(wire).encode_request(request, join_neighbors=False)
        self._lose(encoded.losses, entries)
        return jsontext.items(jsontext.fields(encoded.body)[key])

    def _is_own(self, entries: Sequence[Entry], wire: str) -> bool:
        """Return whether messages contain only what the wire itself has, so that nothing must be fitted."""
        return all(_is_said(entry.message, wire) for entry in entries)

    def _lose(self, losses: Sequence[Loss], entries: Sequence[Entry]) -> None:
        for loss in losses:
            if loss.what not in _NO_LOSS:
                entry = None if loss.message is None or loss.message >= len(entries) else entries[loss.message]
                self._writing.lose(loss.kind, loss.what, loss.why, entry, loss.part)

    def _loser(self, entries: Sequence[Entry]) -> sharegpt.Losing:
        def lose(kind: LossKind, what: str, why: str, place: int, part: int | None = None, /) -> None:
            self._writing.lose(kind, what, why, entries[place], part)

        return lose

    def _unsupported(self, entries: Sequence[Entry]) -> None:
        """Report fields that no message has, once a conversation."""
        bare = (extension_slot.without_records(entry.message) for entry in entries)
        named = dict.fromkeys(name for message in bare for name in unsupported(message, _SAID))
        if named:
            self._writing.lose("dropped", ", ".join(reversed(named)), "messages have no place for it")


def _edited(
    message: AssistantMessage, before: AssistantMessage, written: Fields, keys: Mapping[str, Sequence[str]]
) -> dict[str, Raw]:
    """Return the changed keys of an answer other than its message; ``null`` for removed values."""
    changed = [name for name in keys if getattr(message, name) != getattr(before, name)]
    gone = {name for name in changed if getattr(message, name) is None}
    return {
        key: jsontext.NULL if name in gone else written.get(key, jsontext.NULL)
        for name in changed
        for key in keys[name]
    }


def _is_said(message: Message, wire: str) -> bool:
    if isinstance(message, (RescueMarker, FlushMarker)):
        return False
    return all(
        (isinstance(part, (Text, Media, Refusal, MalformedToolCall)))
        or (isinstance(part, ToolCall) and not part.provider_executed)
        or (isinstance(part, (Reasoning, Opaque)) and part.wire == wire)
        for part in message.content
    )
