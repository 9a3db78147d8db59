"""Conversations, written as AG-UI.

Rules (docs/spec/dialects.md#12):

- A conversation from elsewhere is a ``RunAgentInput``: one object with the list of messages, and a line for its head,
  so that it is read as a document. A response becomes several messages if it has reasoning, or text after a call.
- In a stream, edited and new messages are written as events; events of the run between them stay. A later list that
  repeats an edited message is updated, by the message's id.
- Further data of a message are carried in ``metadata``, which the protocol leaves to the writer.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from msgspec import Raw

from palaver.core import jsontext
from palaver.core.errors import DecodeError, PalaverError
from palaver.core.messages import AssistantMessage, FlushMarker, Message, RescueMarker, ToolMessage
from palaver.core.parts import (
    AnyPart,
    File,
    FileId,
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
from palaver.transcripts import extension_slot, original_bytes
from palaver.transcripts.ag_ui.reader import RecordReader, event_of
from palaver.transcripts.ag_ui.shapes import NAME, SPOKEN, VERSION, Response, plain_message, told
from palaver.transcripts.conversation import session_of
from palaver.transcripts.documents import TAIL
from palaver.transcripts.fields import inner, listed, split, string
from palaver.transcripts.format import Origin
from palaver.transcripts.record import Record
from palaver.transcripts.unknown_fields import Watch
from palaver.transcripts.writer import WriteState, is_record, singly

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from palaver.core.jsontext import Fields
    from palaver.threads.thread import Entry


class RecordWriter:
    """Writes one conversation."""

    groups = staticmethod(singly)

    def __init__(self, writing: WriteState) -> None:
        """Find the original form of the conversation."""
        self._writing = writing
        writing.never_writes("sent_at")
        self._watch = Watch()
        pieces = [
            piece
            for entry in writing.entries
            if writing.native and original_bytes.leads(entry.message, NAME)
            for piece in (original_bytes.records_of(NAME, [entry.message]) or ())
        ]
        self._listed = not writing.native or any(piece.at == TAIL for piece in pieces)
        self._streamed = any(piece.raw.lstrip().startswith((b"data:", b"event:")) for piece in pieces)
        self._names: dict[str, str] = {}
        for entry in writing.entries:
            self._names |= {call.id: call.name for call in entry.message.tool_calls}
            self._names |= {call.id: call.name or "" for call in entry.message.malformed_tool_calls if call.id}
        self._before: Message | None = None
        self._edited = {entry.id: entry for entry in writing.entries if writing.native and _is_edited(entry)}

    def head(self) -> Iterator[bytes]:
        """Yield the run that would be requested, up to its list."""
        session = session_of(self._writing.metadata)
        run: dict[str, Any] = {
            "threadId": session.id or self._writing.thread.id,
            "runId": f"run-{self._writing.thread.id}",
            "protocolVersion": VERSION,
            "state": {},
            "tools": [],
            "context": [],
            "forwardedProps": {},
        }
        yield jsontext.encode(run)[:-1] + b',\n"messages":['

    def tail(self, old: bytes | None) -> bytes:
        """Return the end of the run."""
        return b"]}\n" if old is None else old

    def render(self, group: Sequence[Entry], old: Sequence[bytes]) -> Iterator[bytes]:
        """Yield the records of a group."""
        if self._listed:
            for entry in group:
                for place, message in enumerate(self._messages(entry)):
                    if place == 0 and len(old) == 1:
                        message["id"] = string(split(Raw(old[0])), "id") or message["id"]
                    yield jsontext.encode(message)
            return
        events = [_event(each) for each in old]
        lists = next(
            (place for place, event in enumerate(events) if event is not None and _list_of(event) is not None), None
        )
        if lists is not None:
            yield from self._relisted(group, old, lists)
            return
        spoken = [event is not None and (string(event, "type") or "").startswith(SPOKEN) for event in events]
        first = spoken.index(True) if True in spoken else len(old)
        yield from old[:first]
        for entry in group:
            for event in self._events(entry):
                yield self._line(event)
        failed = [event for event in events if event is not None and _fails(event) and not _failed(group, event)]
        gone = [told or event in failed for told, event in zip(spoken, events, strict=True)]
        yield from (each for each, left_out in zip(old[first:], gone[first:], strict=True) if not left_out and each)

    def _line(self, event: dict[str, Any]) -> bytes:
        encoded = jsontext.encode(event)
        return b"data: " + encoded + b"\n" if self._streamed else encoded

    # -- events --------------------------------------------------------------------------------------------------------

    def _events(self, entry: Entry) -> Iterator[dict[str, Any]]:
        """Yield a message as events."""
        for message in self._messages(entry):
            named, role = message["id"], message["role"]
            more = {"metadata": message["metadata"]} if "metadata" in message else {}
            if role == "tool":
                keys = ("toolCallId", "content", "error")
                stored: dict[str, Any] = {key: message[key] for key in keys if key in message}
                yield {"type": "TOOL_CALL_RESULT", "messageId": named, **stored, "role": "tool", **more}
            elif role == "reasoning":
                yield {"type": "REASONING_MESSAGE_CHUNK", "messageId": named, "delta": message["content"], **more}
                if "encryptedValue" in message:
                    seal = {"entityId": named, "encryptedValue": message["encryptedValue"]}
                    yield {"type": "REASONING_ENCRYPTED_VALUE", "subtype": "message", **seal}
            else:
                yield from self._told(entry, message, more)

    def _told(self, entry: Entry, message: dict[str, Any], more: dict[str, Any]) -> Iterator[dict[str, Any]]:
        named, role = message["id"], message["role"]
        content = message.get("content")
        if isinstance(content, list):
            self._writing.lose("converted", "content", "events have text only", entry)
            content = "".join(part.get("text", "") for part in cast("list[dict[str, Any]]", content))
        if content is not None:
            event = {"messageId": named, "role": role}
            name = {"name": message["name"]} if "name" in message else {}
            yield {"type": "TEXT_MESSAGE_START", **event, **name, **more}
            if content:
                yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": named, "delta": content}
            yield {"type": "TEXT_MESSAGE_END", "messageId": named}
        for call in message.get("toolCalls", ()):
            function, of = call["function"], call["id"]
            begun = {"toolCallId": of, "toolCallName": function["name"], "parentMessageId": named}
            yield {"type": "TOOL_CALL_START", **begun, **more}
            if function["arguments"]:
                yield {"type": "TOOL_CALL_ARGS", "toolCallId": of, "delta": function["arguments"]}
            yield {"type": "TOOL_CALL_END", "toolCallId": of}
            if "encryptedValue" in call:
                seal = {"entityId": of, "encryptedValue": call["encryptedValue"]}
                yield {"type": "REASONING_ENCRYPTED_VALUE", "subtype": "tool-call", **seal}

    def _relisted(self, group: Sequence[Entry], old: Sequence[bytes], place: int) -> Iterator[bytes]:
        """Yield a record with a list of messages in which edited ones are replaced."""
        event = (
            event_of(Record(0, 0, old[place], split(Raw(old[place])) if old[place].startswith(b"{") else None)) or {}
        )
        raws = _list_of(event) or []
        units = list(RecordReader(Origin(), Watch()).units(raws, None))
        said = [entry for entry in group if not is_record(entry) and not isinstance(entry.message, FlushMarker)]
        if len(units) < len(said):
            self._writing.lose("dropped", "edit", "the list holds fewer messages", group[0])
            yield from old
            return
        written = self._again(units[: len(units) - len(said)])
        for entry, (message, _, told_by) in zip(said, units[len(units) - len(said) :], strict=True):
            now = original_bytes.bare(entry.message, NAME)
            same = original_bytes.sum_of([now.replace(source=None)]) == original_bytes.sum_of(
                [message.replace(source=None)]
            )
            written += told_by if same else list(self._messages(entry))
        new: dict[str, Any] = {"messages": written}
        if "input" in event and "messages" not in event:
            new = {"input": {**inner(event, "input"), **new}}
        for at, each in enumerate(old):
            yield each if at != place else self._line({**event, **new}).rstrip(b"\n")

    def repeat(self, group: Sequence[Entry], old: Sequence[bytes]) -> Sequence[bytes]:
        """Return the records of a group, with the edits of messages that its list repeats."""
        if self._listed or not self._edited:
            return old
        try:
            lists = [None if (event := _event(each)) is None else _list_of(event) for each in old]
            place = next((at for at, each in enumerate(lists) if each is not None), None)
            if place is None:
                return old
            units = list(RecordReader(Origin(), Watch()).units(lists[place] or [], None))
        except PalaverError:  # an unreadable list, which stays as it is
            return old
        if not any(named in self._edited and self._edited[named] not in group for _, named, _ in units):
            return old
        return list(self._relisted(group, old, place))

    def _again(self, units: Sequence[tuple[Message, str | None, list[Raw]]]) -> list[Any]:
        """Return the messages that a list repeats, by id: edited ones in their new form."""
        written: list[Any] = []
        for place, (_, named, told_by) in enumerate(units):
            entry = self._edited.get(named or "")
            if entry is None:
                written += told_by
                continue
            before, self._before = self._before, units[place - 1][0] if place else None
            written += self._messages(entry)
            self._before = before
        return written

    # -- messages ------------------------------------------------------------------------------------------------------

    def _messages(self, entry: Entry) -> list[dict[str, Any]]:
        """Return the messages in which a message is written."""
        message, before = entry.message, self._before
        self._before = message
        if isinstance(message, (FlushMarker, RescueMarker)):
            self._writing.lose("dropped", message.role, "there is no such mark", entry)
            return []
        if isinstance(message, AssistantMessage):
            written = self._response(entry, message, joined=isinstance(before, AssistantMessage))
        else:
            written = [self._said(entry, message)]
        if self._writing.options.carry:
            slot = extension_slot.carried([message], self._plain(written))
            if slot is not None:
                written[-1]["metadata"] = {extension_slot.SLOT: slot}
        return written

    def _plain(self, written: Sequence[dict[str, Any]]) -> list[Message]:
        """Return the messages as they are read."""
        response = Response()
        for message in written:
            fields = jsontext.fields(jsontext.encode(message))
            if message["role"] not in {"assistant", "reasoning"}:
                plain = plain_message(fields, self._names, self._watch, None)
                return [] if plain is None else [plain]
            told(response, fields)
        return [response.plain]

    def _said(self, entry: Entry, message: Message) -> dict[str, Any]:
        name = cast("dict[str, Any]", message.provider.get(NAME, {})).get("name")
        written: dict[str, Any] = {"id": entry.id, "role": message.role, "content": self._content(entry)}
        if isinstance(message, ToolMessage):
            written["toolCallId"] = message.tool_call_id or ""
            if message.is_error:
                failed = message.metadata.get("error")
                written["error"] = failed if isinstance(failed, str) else message.text or "error"
        elif name is not None:
            written["name"] = name
        return written

    def _content(self, entry: Entry) -> Any:
        """Return a string for text; only user and tool messages may hold parts."""
        message = entry.message
        texts = [part.text for part in message.content if isinstance(part, Text)]
        if len(texts) == len(message.content) == 1:
            return texts[0]
        if message.role in {"system", "developer"}:
            if len(texts) < len(message.content):
                self._writing.lose("dropped", "content", "only text", entry)
            return "".join(texts)
        parts = ((place, self._part(entry, place, part)) for place, part in enumerate(message.content))
        return [part for _, part in parts if part is not None]

    def _part(self, entry: Entry, place: int, part: AnyPart) -> dict[str, Any] | None:
        match part:
            case Text():
                return {"type": "text", "text": part.text}
            case Json():
                self._writing.lose("converted", "json", "written as text", entry, place)
                return {"type": "text", "text": bytes(part.value_json).decode()}
            case Media():
                return self._medium(entry, place, part)
            case Opaque(wire=wire) if wire == NAME and jsontext.kind(part.raw_json) == "an object":
                return cast("dict[str, Any]", jsontext.fields(part.raw_json))
            case _:
                self._lost(entry, place, part)
                return None

    def _medium(self, entry: Entry, place: int, part: Media) -> dict[str, Any] | None:
        kind = cast("str", type(part).__struct_config__.tag)
        mime = {} if part.media_type is None else {"mimeType": part.media_type}
        match part.source:
            case Inline(data):
                source: dict[str, Any] = {"type": "data", "value": data, **({"mimeType": _UNKNOWN} | mime)}
            case Url(url):
                source = {"type": "url", "value": url, **mime}
            case FileId(named, wire):
                source = {"type": "file", "value": named, "provider": wire, **mime}
            case _:
                self._writing.lose("dropped", kind, "its bytes are in a store", entry, place)
                return None
        name = {"metadata": {"filename": part.name}} if isinstance(part, File) and part.name is not None else {}
        return {"type": "document" if kind == "file" else kind, "source": source, **name}

    def _lost(self, entry: Entry, place: int, part: AnyPart) -> None:
        kind = cast("str", type(part).__struct_config__.tag)
        self._writing.lose("dropped", kind, "AG-UI has no place for it", entry, place)

    def _response(self, entry: Entry, message: AssistantMessage, *, joined: bool) -> list[dict[str, Any]]:
        """Return a response in its order: reasoning apart, and a new message where text follows a call."""
        written: list[dict[str, Any]] = []
        for place, part in enumerate(message.content):
            last = written[-1] if written and written[-1]["role"] == "assistant" else None
            match part:
                case Reasoning():
                    proof = part.encrypted if part.encrypted is not None else part.signature
                    sealed = {} if proof is None else {"encryptedValue": proof}
                    written.append({"id": "", "role": "reasoning", "content": part.text, **sealed})
                    if part.signature is not None:
                        self._writing.lose("converted", "signature", "written as encryptedValue", entry, place)
                case Text() | Refusal():
                    if isinstance(part, Refusal):
                        self._writing.lose("converted", "refusal", "written as text", entry, place)
                    if part_has_citations(part):
                        self._writing.lose("dropped", "citations", "there are none", entry, place)
                    written.append({"id": "", "role": "assistant", "content": part.text})
                case ToolCall() | MalformedToolCall():
                    if last is None:
                        first = not any(each["role"] == "assistant" for each in written)
                        last = cast("dict[str, Any]", {"id": "", "role": "assistant"})
                        last |= {"content": ""} if joined and first else {}
                        written.append(last)
                    last.setdefault("toolCalls", []).append(self._call(entry, place, part))
                case ServerToolResult() | Opaque() | Media():
                    self._lost(entry, place, part)
        if not any(each["role"] == "assistant" for each in written):
            written.append({"id": "", "role": "assistant"})
        named = next(each for each in written if each["role"] == "assistant")
        for place, each in enumerate(written):
            each["id"] = entry.id if each is named else f"{entry.id}-{place}"
        if message.agent is not None:
            named["name"] = message.agent
        return written

    def _call(self, entry: Entry, place: int, part: ToolCall | MalformedToolCall) -> dict[str, Any]:
        if isinstance(part, MalformedToolCall):
            self._writing.lose("converted", "malformed_tool_call", "its arguments stay text", entry, place)
            function = {"name": part.name or "", "arguments": part.raw}
        else:
            function = {"name": part.name, "arguments": part.arguments_json}
        sealed = cast("dict[str, Any]", part.provider.get(NAME, {})).get("encryptedValue")
        call = {"id": part.id or f"call-{place}", "type": "function", "function": function}
        return call if sealed is None else {**call, "encryptedValue": sealed}


_UNKNOWN = "application/octet-stream"


def part_has_citations(part: Text | Refusal) -> bool:
    """Return whether a text says where it comes from."""
    return isinstance(part, Text) and bool(part.citations)


def _is_edited(entry: Entry) -> bool:
    """Return whether a message has records, and differs from them."""
    return original_bytes.leads(entry.message, NAME) and original_bytes.state_of(NAME, [entry.message]) == "edited"


def _event(raw: bytes) -> Fields | None:
    """Return the event of a kept record."""
    try:
        return event_of(Record(0, 0, raw, jsontext.fields(raw) if raw.startswith(b"{") else None))
    except DecodeError:
        return None


def _list_of(event: dict[str, Raw]) -> list[Raw] | None:
    """Return the list of messages of an event."""
    if "messages" in event:
        return listed(event, "messages")
    return listed(inner(event, "input"), "messages") if "input" in event else None


def _fails(event: Fields) -> bool:
    return string(event, "type") in {"RUN_ERROR", "SUBAGENT_ERROR"}


def _failed(group: Sequence[Entry], event: Fields) -> bool:
    """Return whether an answer still ended as an event says."""
    answers = (entry.message for entry in group if isinstance(entry.message, AssistantMessage))
    return any(
        each.finish_reason == "error" and each.metadata.get("error") == (string(event, "message") or "")
        for each in answers
    )
