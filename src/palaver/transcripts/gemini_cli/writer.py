"""Messages into the chat files of Gemini CLI (docs/spec/dialects.md#14).

Rules:

- A line of metadata, then a line for each message; an answer and the results of its calls share one. New messages are
  written at the end; edited ones in place of their last row.
- If a new message does not follow the end of the list, a ``$rewindTo`` precedes it.
- Proofs of reasoning have no place. Messages without a type in the program (system messages, markers) are kept in a
  change of the metadata, which it ignores. The single document of older versions has no such place.

Stability: experimental.
"""

from __future__ import annotations

import re
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw, structs

from palaver import wires
from palaver.core import jsontext, trusted
from palaver.core.errors import PalaverError
from palaver.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from palaver.core.pairs import client_calls
from palaver.core.parts import AnyPart, Reasoning, ServerToolResult, ToolCall
from palaver.core.usage import Usage
from palaver.threads.ids import now_ms
from palaver.threads.view import PLACEHOLDER
from palaver.transcripts import documents, extension_slot, original_bytes
from palaver.transcripts.conversation import derived_id, session_of
from palaver.transcripts.fields import inner, iso, listed, one_line, read_time, split, string
from palaver.transcripts.format import Origin
from palaver.transcripts.gemini_cli.reader import RecordReader
from palaver.transcripts.gemini_cli.shapes import NAME, NOTICES, WIRE, Form, usage_of
from palaver.transcripts.record import Lines
from palaver.transcripts.unknown_fields import Watch
from palaver.transcripts.writer import WriteState, is_record, with_results

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from palaver.core.jsontext import Fields
    from palaver.threads.thread import Entry

_SUBJECT: Final = re.compile(r"\*\*([^*\n]+)\*\*\n(.*)", re.DOTALL)
_NO_LOSS: Final = frozenset(("model", "first message", "tool call ids", "message"))
"""Fields that a request requires and a row may lack."""


class RecordWriter:
    """Writes the rows of one conversation."""

    def __init__(self, writing: WriteState) -> None:
        """Start a session, or continue one."""
        self._writing = writing
        self._wire = wires.get(WIRE)
        self._form = Form(Watch())
        self._session = session_of(writing.metadata)
        times = (entry.message.sent_at for entry in writing.entries)
        first = next((at for at in times if at is not None), None)
        self._at = self._session.started_at or first or now_ms()
        self._document = any(
            documents.TAIL in original_bytes.numbers_of(each.message, NAME) for each in writing.entries
        )

    def head(self) -> Iterator[bytes]:
        """Yield the metadata."""
        session, own = self._session, self._session.file_format == NAME
        hashed = sha256((session.cwd or "/").encode("utf-8", "surrogatepass")).hexdigest()
        last = max((entry.message.sent_at or 0 for entry in self._writing.entries), default=0)
        metadata: dict[str, Any] = {
            "sessionId": session.id or self._writing.thread.id,
            "projectHash": hashed,
            "startTime": iso(self._at),
            "lastUpdated": iso(max(self._at, last)),
            "kind": "main",
            **(session.more if own else {}),
        }
        if self._writing.take_title() is not None:
            metadata["summary"] = self._writing.take_title()
        yield jsontext.encode(metadata)

    def groups(self, entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        """Group an answer with the results of its calls that follow it, each call's first."""
        return with_results(entries, lambda message: [call.id for call in client_calls(message)])

    def tail(self, old: bytes | None) -> bytes | None:
        """Return the part after the messages of a document."""
        return old

    def render(self, group: Sequence[Entry], old: Sequence[bytes]) -> Iterator[bytes]:
        """Yield the row of a group; rows that were replaced stay as they were."""
        if len(old) > 1:
            yield from old[:-1]
        before: Fields = jsontext.fields(old[-1]) if old and jsontext.is_json(old[-1]) else {}
        listing = inner(before, "$set") or before
        if "messages" in listing and "id" not in before:
            yield old[-1]
            self._writing.lose("dropped", "edit", "a list that was set as a whole is not rewritten", group[0])
            return
        row = self._row(group, before)
        if row is None:
            return
        if not old and self._writing.native:
            yield from self._rewound(group[0])
            self._places.append((string(jsontext.fields(jsontext.encode(row)), "id"), group[-1].id))
        yield _line(row)

    def _rewound(self, entry: Entry) -> Iterator[bytes]:
        """Yield a rewind of the end of the list, if a new message does not follow it."""
        parent, thread = entry.parent, self._writing.thread
        while parent is not None and is_record(thread.entry(parent)):
            parent = thread.entry(parent).parent
        ends = [end for _, end in self._places]
        after = ends.index(parent) + 1 if parent in ends else 0 if parent is None else len(ends)
        if after == len(ends):
            return
        named = self._places[after][0]
        if self._document or named is None:
            self._writing.lose("dropped", "branch", "the messages that it does not follow cannot be removed", entry)
            return
        del self._places[after:]
        yield jsontext.encode({"$rewindTo": named})

    @cached_property
    def _places(self) -> list[tuple[str | None, str | None]]:
        """The list of the file: ids of rows, and the last entry of each."""
        reading = RecordReader(Origin(), Watch())
        pieces: list[original_bytes.Piece] = []
        group: list[Message] = []
        for message in [*(entry.message for entry in self._writing.entries), None]:
            if group and (message is None or original_bytes.follows(message, NAME) is None):
                pieces += original_bytes.records_of(NAME, group) or ()
                group = []
            if message is not None and (group or original_bytes.leads(message, NAME)):
                group.append(message)
        lines = Lines()
        pieces.sort(key=lambda piece: piece.at)
        records = [*lines.feed(b"".join([piece.raw for piece in pieces])), *lines.finish()]
        for record in records:
            for _ in reading.record(record):
                pass
        for _ in reading.end():
            pass
        return reading.places

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _row(self, group: Sequence[Entry], old: Fields) -> dict[str, Any] | None:
        first, messages = group[0], [entry.message for entry in group]
        self._at = self._at if first.message.sent_at is None else first.message.sent_at
        said = self._said(group, old)
        if said is None:
            return self._aside(first)
        stamp = string(old, "timestamp")
        same = stamp is not None and read_time(stamp) == self._at
        row = {"id": string(old, "id") or first.id, "timestamp": stamp if same else iso(self._at), **said}
        if self._writing.options.carry:
            row |= self._slot(row, messages)
            row |= self._slot(row, messages)  # a slot with a lone surrogate changes how the whole row is read
        return row

    def _slot(self, row: dict[str, Any], messages: Sequence[Message]) -> dict[str, Any]:
        """Return the carried data of a row, compared with the row as it is read."""
        try:
            plain = self._form.plain(jsontext.fields(_line(row)))
        except PalaverError:  # the wire cannot read its own output
            plain = []
        dated = [*(each.sent_at for each in messages), *[None] * len(plain)]
        said = [structs.replace(each, sent_at=at) for each, at in zip(plain, dated, strict=False)]
        slot = extension_slot.carried(messages, said)
        return {} if slot is None else {extension_slot.SLOT: jsontext.raw(slot)}

    def _aside(self, entry: Entry) -> dict[str, Any] | None:
        role = entry.message.role
        if self._document or not self._writing.options.carry:
            self._writing.lose("dropped", role, "Gemini CLI has no such message", entry)
            return None
        self._writing.lose("converted", role, "no such message; kept in a change of the metadata", entry)
        return {"$set": {extension_slot.SLOT: extension_slot.carried([entry.message], [])}}

    def _said(self, group: Sequence[Entry], old: Fields) -> dict[str, Any] | None:
        message = group[0].message
        match message:
            case AssistantMessage():
                return self._answer(group, message, old)
            case UserMessage() | ToolMessage():
                parts = self._sent([group[0]])
                return {"type": "user", "content": parts}
            case _:
                return None

    def _answer(self, group: Sequence[Entry], message: AssistantMessage, old: Fields) -> dict[str, Any]:
        entry = group[0]
        calls = [
            (place, part)
            for place, part in enumerate(message.content)
            if isinstance(part, ToolCall) and not part.provider_executed
        ]
        content = self._content(entry, message)
        if PLACEHOLDER in message.tags and not calls:
            kind = message.provider.get(NAME, {}).get("type", "info")
            return {"type": kind if kind in NOTICES else "info", "content": content}
        thoughts = [
            self._thought(part)
            for place, part in enumerate(message.content)
            if isinstance(part, Reasoning) and self._is_thought(entry, place, part)
        ]
        results = {each.message.tool_call_id: each for each in group[1:] if isinstance(each.message, ToolMessage)}
        olds = {string(fields, "id"): fields for fields in map(split, listed(old, "toolCalls"))}
        row: dict[str, Any] = {"type": "gemini", "content": content}
        if calls or "toolCalls" in old:
            row["toolCalls"] = [
                self._call(entry, place, part, results.get(part.id), olds.get(part.id, {})) for place, part in calls
            ]
        row["thoughts"] = thoughts
        if message.usage is not None:
            own = message.usage == usage_of(old)
            row["tokens"] = old["tokens"] if own else _tokens(message.usage)
        if message.model is not None:
            row["model"] = message.model
        return row

    def _content(self, entry: Entry, message: AssistantMessage) -> Any:
        """Return the content of an answer beside thoughts and calls: a string if it is one text."""
        places = [
            place
            for place, part in enumerate(message.content)
            if not isinstance(part, Reasoning) and not (isinstance(part, ToolCall) and not part.provider_executed)
        ]
        for place in [place for place in places if not _is_sound(message.content[place])]:
            self._writing.lose("dropped", "server tool result", "not of Gemini's form", entry, place)
            places.remove(place)
        rest = message.replace(content=[message.content[place] for place in places], finish_reason=None, usage=None)
        encoded = self._wire.encode_response(trusted.Response(rest))
        for loss in encoded.losses:
            if loss.what not in _NO_LOSS:
                part = places[loss.part] if loss.part is not None and loss.part < len(places) else None
                self._writing.lose(loss.kind, loss.what, loss.why, entry, part)
        candidates = listed(jsontext.fields(encoded.body), "candidates")
        parts = listed(inner(split(candidates[0]), "content"), "parts") if candidates else []
        if not places:
            return ""
        if len(parts) == 1 and set(fields := split(parts[0])) == {"text"}:
            return fields["text"]
        return parts

    def _is_thought(self, entry: Entry, place: int, part: Reasoning) -> bool:
        """Return whether reasoning has text to summarize; a proof alone has no place here."""
        if part.signature is not None or part.encrypted is not None:
            self._writing.lose("dropped", "reasoning proof", "Gemini CLI keeps summaries", entry, place)
        return bool(part.text)

    def _thought(self, part: Reasoning) -> dict[str, Any]:
        found = _SUBJECT.fullmatch(part.text)
        subject, description = (found[1], found[2]) if found else ("", part.text)
        at = part.provider.get(NAME, {}).get("timestamp")
        return {"subject": subject, "description": description, "timestamp": at or iso(self._at)}

    def _call(self, entry: Entry, place: int, part: ToolCall, result: Entry | None, old: Fields) -> dict[str, Any]:
        arguments = one_line(part.arguments_json or "{}")
        if jsontext.kind(arguments) != "an object":
            self._writing.lose("converted", "arguments", "arguments are an object here", entry, place)
            arguments = jsontext.raw({"input": arguments})
        if "thoughtSignature" in part.provider.get(WIRE, {}):
            self._writing.lose("dropped", "thoughtSignature", "Gemini CLI keeps no signatures", entry, place)
        at = self._at if result is None or result.message.sent_at is None else result.message.sent_at
        failed = result is not None and isinstance(result.message, ToolMessage) and result.message.is_error
        status = "cancelled" if result is None else "error" if failed else "success"
        if old and (string(old, "status") in {"error", "cancelled"}) == (failed or result is None):
            status = string(old, "status") or status
        stamp = string(old, "timestamp")
        call: dict[str, Any] = {
            "id": part.id,
            "name": part.name,
            "args": arguments,
            "result": None if result is None else self._sent([entry, result]),
            "status": status,
            "timestamp": stamp if stamp is not None and read_time(stamp) == at else iso(at),
        }
        agent = part.provider.get(NAME, {}).get("agentId")
        return call if agent is None else {**call, "agentId": agent}

    def _sent(self, entries: Sequence[Entry]) -> list[Raw]:
        """Return the parts of a prompt or a result; a result gets a call to answer, which is then left out."""
        message = entries[-1].message
        before: list[Message] = []
        if isinstance(message, ToolMessage):
            called, name = message.tool_call_id or derived_id(entries[-1].id), message.tool_name or "tool"
            named = [part.name for part in entries[0].message.tool_calls if part.id == called]
            name = named[0] if named else name
            before = [trusted.AssistantMessage(content=(trusted.ToolCall(called, name),))]
            message = message.replace(tool_call_id=called, tool_name=name)
        encoded = self._wire.encode_request(trusted.Request(messages=(*before, message)), join_neighbors=False)
        for loss in encoded.losses:
            if loss.what not in _NO_LOSS and loss.message in {None, len(before)}:
                self._writing.lose(loss.kind, loss.what, loss.why, entries[-1], loss.part)
        contents = listed(jsontext.fields(encoded.body), "contents")
        found = listed(split(contents[-1]), "parts") if contents else []
        return found if message.content or isinstance(message, ToolMessage) else []


def _line(row: dict[str, Any]) -> bytes:
    """Return a row as a line; results may contain line breaks between their values."""
    return bytes(one_line(jsontext.encode(row).decode()))


def _tokens(usage: Usage) -> dict[str, int]:
    fresh = (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0)
    counts = {"input": fresh, "output": usage.output or 0, "cached": usage.cache_read or 0}
    return {**counts, "thoughts": usage.reasoning or 0, "tool": 0, "total": usage.total}


def _is_sound(part: AnyPart) -> bool:
    """Return whether a result of a tool run by Google is valid for its wire; results of other wires always are."""
    if not isinstance(part, ServerToolResult) or part.wire != WIRE:
        return True
    output = split(part.output_json)
    return any(string(output, key) is not None for key in ("toolType", "outcome"))
