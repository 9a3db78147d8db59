"""Reading of logs: a sample is a conversation, with its final ``messages``.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, Raw, Struct, structs

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError, MessageError
from palaver.core.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage, holds
from palaver.core.parts import (
    AnyPart,
    Audio,
    Citation,
    File,
    Image,
    MalformedToolCall,
    Reasoning,
    ServerToolResult,
    Text,
    ToolCall,
    Video,
)
from palaver.core.usage import Usage
from palaver.threads.ids import is_uuid
from palaver.transcripts import documents, extension_slot
from palaver.transcripts.conversation import Conversation, Session, Step, derived_id
from palaver.transcripts.fields import inner, integer, kind_of, listed, read_time, split, string, value
from palaver.transcripts.inspect_log import archive, shapes
from palaver.transcripts.inspect_log.shapes import NAME, fields_of
from palaver.transcripts.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from palaver.core.jsontext import Fields
    from palaver.transcripts.format import Origin
    from palaver.transcripts.unknown_fields import Watch

_ROLES: Final[Mapping[str, type[Message]]] = {
    "system": SystemMessage,
    "user": UserMessage,
    "assistant": AssistantMessage,
    "tool": ToolMessage,
}

_MEDIA: Final[Mapping[str, type[Image | Audio | Video | File]]] = {
    "image": Image,
    "audio": Audio,
    "video": Video,
    "document": File,
}


class RecordReader:
    """Reads one log: a document, or an archive."""

    def __init__(self, origin: Origin, watch: Watch) -> None:
        """Start before the document."""
        self._origin = origin
        self._watch = watch
        self._names: set[str] = set()

    def record(self, record: Record) -> Iterator[Step]:
        """Read the log."""
        data = record.raw
        if data.startswith(archive.MAGIC):
            data = archive.document(data, self._watch) or data
        cut = documents.cut(data, "samples")
        log = fields_of(data if cut.tail is None else cut.head.raw + cut.tail.raw)
        self._watch.keys(log, shapes.LOG, "log")
        version = integer(log, "version")
        if version is not None and version > shapes.VERSION:
            self._watch.note("version", str(version))
        if cut.tail is None:
            listed(log, "samples")
        if cut.tail is None or not cut.items:
            yield from self._without_samples(log, data)
            return
        for place, item in enumerate(cut.items):
            before = cut.head.raw if place == 0 else b""
            behind = cut.tail.raw if place == len(cut.items) - 1 else b""
            yield from self._sample(log, item, (place, len(cut.items)), (before, behind))

    def end(self) -> tuple[Step, ...]:
        """Return no steps: the document has ended with its record."""
        return ()

    def _without_samples(self, log: Fields, data: bytes) -> Iterator[Step]:
        session = _session(log, {}, (0, 0), (b"", b""))
        conversation = Conversation(NAME, self._thread(session))
        yield conversation.began()
        yield from conversation.record(Record(0, 1, data))
        yield conversation.ended(metadata=session.metadata())

    def _sample(self, log: Fields, item: Record, place: tuple[int, int], frame: tuple[bytes, bytes]) -> Iterator[Step]:
        lead = documents.lead_of(item.raw)
        cut = documents.cut(item.raw[len(lead) :], "messages")
        before, behind = frame
        sample = fields_of(cut.head.raw + (b"" if cut.tail is None else cut.tail.raw))
        self._watch.keys(sample, shapes.SAMPLE, "sample")
        session = _session(log, sample, place, frame)
        conversation = Conversation(NAME, self._thread(session))
        yield conversation.began()
        if cut.tail is None:
            self._watch.note("unread", "an item of samples without messages")
            yield from conversation.record(Record(0, 1, before + item.raw + behind))
        else:
            yield from conversation.record(Record(0, 1, before + lead + cut.head.raw))
            messages = Messages(sample, session.model, self._watch)
            for each in cut.items:
                fields = each.fields or fields_of(each.raw[len(documents.lead_of(each.raw)) :])
                if not fields:
                    self._watch.note("unread", "an item of messages is not an object")
                    yield from conversation.record(each)
                    continue
                message = messages.message(fields)
                if message is None:
                    yield from conversation.record(each, id=string(fields, "id"))
                else:
                    yield from conversation.join([message], [each], ids=[string(fields, "id")])
            yield from conversation.record(Record(documents.TAIL, 1, cut.tail.raw + behind))
        yield conversation.ended(metadata=session.metadata())

    def _thread(self, session: Session) -> str:
        more = session.more
        named = session.id
        if named is None or not is_uuid(named):
            known = [more.get(key) for key in ("eval_id", "run_id", "task", "created", "sample", "epoch")]
            named = derived_id(NAME, named, *known, *([] if any(known) else [self._origin.name]))
        while named in self._names:
            named = derived_id(NAME, named, len(self._names))
        self._names.add(named)
        return named


def _session(log: Fields, sample: Fields, place: tuple[int, int], frame: tuple[bytes, bytes]) -> Session:
    spec = inner(log, "eval")
    version = integer(log, "version")
    more: dict[str, Any] = {
        key: found for key in ("eval_id", "run_id", "task", "created") if (found := string(spec, key))
    }
    if sample:
        more |= {
            "sample": (string if kind_of(sample, "id") == "a string" else integer)(sample, "id"),
            "epoch": integer(sample, "epoch"),
        }
    # the number of the sample among how many, and the size of the log's own parts in its first and last record
    more |= {"place": list(place), "frame": [len(each) for each in frame]}
    return Session(
        file_format=NAME,
        id=string(sample, "uuid"),
        format=None if version is None else str(version),
        program=string(inner(spec, "packages"), "inspect_ai"),
        model=string(spec, "model"),
        agent=string(spec, "task"),
        started_at=read_time(value(sample, "started_at")) or read_time(value(spec, "created")),
        more=more,
    )


class _Answer(Struct, frozen=True):
    """The data of an event about its answer."""

    usage: Usage | None
    stop: str | None
    id: str | None
    at: int | None


class Messages:
    """Reads the messages of a sample."""

    def __init__(self, sample: Fields, model: str | None, watch: Watch) -> None:
        """Read the usage of each answer from the events."""
        self._watch = watch
        self._wire = shapes.WIRES.get((model or "").partition("/")[0], "")
        self._attachments = inner(sample, "attachments")
        self._answers: dict[str, _Answer] = {}
        for raw in listed(sample, "events"):
            self._event(split(raw))
        self._output(inner(sample, "output"), None)

    def _event(self, fields: Fields) -> None:
        kind = string(fields, "event")
        if kind not in shapes.EVENTS:
            self._watch.note("record", f"event {kind}")
        if kind == "model":
            at = read_time(value(fields, "completed")) or read_time(value(fields, "timestamp"))
            self._output(inner(fields, "output"), at)

    def _output(self, output: Fields, at: int | None) -> None:
        usage = usage_of(output)
        for place, raw in enumerate(listed(output, "choices")):
            choice = split(raw)
            named = string(inner(choice, "message"), "id")
            if named is not None and named not in self._answers:
                self._answers[named] = _Answer(
                    None if place else usage, string(choice, "stop_reason"), string(output, "response_id"), at
                )

    def message(self, fields: Fields) -> Message | None:
        """Return a message; ``None`` for any other value."""
        try:
            plain = self.plain(fields)
            slot = value(inner(fields, "metadata"), extension_slot.SLOT)
        except (DecodeError, MessageError) as error:
            self._watch.note("unread", str(error))
            return None
        restored = None if slot is None or plain is None else extension_slot.restored([plain], slot)
        if restored is not None:
            return restored[0] if restored else None
        answer = self._answers.get(string(fields, "id") or "")
        if answer is None or not isinstance(plain, AssistantMessage):
            return plain
        return structs.replace(
            plain,
            usage=answer.usage,
            finish_reason=None if answer.stop is None else shapes.FINISH.get(answer.stop, "other"),
            finish_reason_raw=UNSET if answer.stop is None else answer.stop,
            response_id=answer.id,
            sent_at=answer.at,
        )

    def plain(self, fields: Fields) -> Message | None:
        """Return the message, without carried data and without data of events."""
        role = string(fields, "role")
        known = shapes.MESSAGES.get(role or "")
        if role is None or known is None:
            self._watch.note("unread", f"message of role {role}")
            return None
        self._watch.keys(fields, known, f"message.{role}")
        content = self.content(fields, _ROLES[role])
        metadata = {
            key: jsontext.value(raw) for key, raw in inner(fields, "metadata").items() if key != extension_slot.SLOT
        }
        said: dict[str, Any] = {"content": content}
        message: Message
        match role:
            case "system":
                message = trusted.SystemMessage(**said)
            case "user":
                message = trusted.UserMessage(**said)
            case "assistant":
                calls = tuple([self._call(split(each)) for each in listed(fields, "tool_calls")])
                message = trusted.AssistantMessage(content=(*said["content"], *calls), model=string(fields, "model"))
            case _:
                failure = inner(fields, "error")
                if failure:
                    metadata[shapes.FAILURE] = {key: jsontext.value(raw) for key, raw in failure.items()}
                    said["content"] = with_failure(content, string(failure, "message"))
                message = trusted.ToolMessage(
                    **said,
                    tool_call_id=string(fields, "tool_call_id"),
                    tool_name=string(fields, "function"),
                    is_error=bool(failure),
                )
        return message.replace(metadata=metadata) if metadata else message

    def content(self, fields: Fields, cls: type[Message]) -> tuple[AnyPart, ...]:
        """Return the parts of a message."""
        raw = fields.get("content")
        if raw is None or jsontext.is_null(raw):
            return ()
        if jsontext.kind(raw) == "a string":
            text = self._resolved(jsontext.text(raw))
            return (trusted.Text(text),) if text or cls is not AssistantMessage else ()
        found: list[AnyPart] = []
        for each in listed(fields, "content"):
            parts = self.parts(each)
            fits = all(holds(cls, part) for part in parts)
            found += parts if fits else (trusted.Opaque(NAME, jsontext.own(each)),)
        return tuple(found)

    def parts(self, raw: Raw) -> tuple[AnyPart, ...]:
        """Return the parts of an item of content: one, or for a tool that the provider ran, the call and its result."""
        if jsontext.kind(raw) == "a string":
            return (trusted.Text(self._resolved(jsontext.text(raw))),)
        fields = split(raw)
        kind = string(fields, "type")
        known = shapes.CONTENT.get(kind or "")
        if known is None:
            self._watch.note("block", kind or "without a type")
            return (trusted.Opaque(NAME, jsontext.own(raw)),)
        self._watch.keys(fields, known, kind or "")
        match kind:
            case "text":
                return (self._text(fields),)
            case "reasoning":
                return (self._reasoning(fields),)
            case "tool_use":
                return _tool_use(fields)
            case "data":
                return (trusted.Opaque(NAME, jsontext.own(raw)),)
            case _:
                return (self._media(fields, kind or ""),)

    def _text(self, fields: Fields) -> AnyPart:
        text = self._resolved(string(fields, "text") or "")
        if value(fields, "refusal") is True:
            return trusted.Refusal(text)
        return trusted.Text(text, citations=tuple([_citation(each) for each in listed(fields, "citations")]))

    def _reasoning(self, fields: Fields) -> Reasoning:
        said, summary = self._resolved(string(fields, "reasoning") or ""), string(fields, "summary")
        signature = string(fields, "signature")
        if value(fields, "redacted") is not True:
            return trusted.Reasoning(said, signature=signature, wire=self._wire or None)
        if self._wire == "anthropic_messages" and summary is not None and signature is None:
            return trusted.Reasoning(summary, signature=said, wire=self._wire)
        return trusted.Reasoning(summary or "", signature=signature, encrypted=said, wire=self._wire or None)

    def _media(self, fields: Fields, kind: str) -> Image | Audio | Video | File:
        named = self._resolved(string(fields, kind) or "")
        told = shapes.FORMATS.get(kind, {}).get(string(fields, "format") or "") or string(fields, "mime_type")
        try:
            part = _MEDIA[kind].from_url(named, told)
        except MessageError:
            part = _MEDIA[kind](trusted.Url(named), told)
        return structs.replace(part, name=string(fields, "filename")) if isinstance(part, File) else part

    def _call(self, fields: Fields) -> ToolCall | MalformedToolCall:
        self._watch.keys(fields, shapes.CALL, "tool_call")
        call, name = string(fields, "id") or "", string(fields, "function") or ""
        arguments = fields.get("arguments", jsontext.EMPTY_OBJECT)
        text = bytes(arguments).decode()
        if (reason := string(fields, "parse_error")) is not None:
            return trusted.MalformedToolCall(text, reason, name, call)
        if jsontext.kind(arguments) != "an object":
            self._watch.note("value", f"arguments that are {jsontext.kind(arguments)}")
            return trusted.MalformedToolCall(text, "the arguments are not an object", name, call)
        stored = jsontext.fields(arguments)
        if string(fields, "type") == "custom" and list(stored) == ["input"] and string(stored, "input") is not None:
            return trusted.ToolCall(call, name, bytes(stored["input"]).decode(), custom=True)
        return trusted.ToolCall(call, name, text)

    def _resolved(self, text: str) -> str:
        """Return a text, or the attachment that it refers to."""
        if not text.startswith(shapes.ATTACHMENT):
            return text
        found = string(self._attachments, text.removeprefix(shapes.ATTACHMENT))
        if found is None:
            self._watch.note("link", "attachment")
        return text if found is None else found


def with_failure(content: tuple[AnyPart, ...], failure: str | None) -> tuple[AnyPart, ...]:
    """Return the content of a failed result, with the error text that its model sees."""
    if not failure or any(isinstance(part, Text) and failure in part.text for part in content):
        return content
    return (*content, trusted.Text(failure))


def usage_of(output: Fields) -> Usage | None:
    """Return counters; those of reasoning are included in those of the output."""
    raw = output.get("usage")
    if raw is None or jsontext.kind(raw) != "an object":
        return None
    counts = jsontext.fields(raw)
    written, thought = integer(counts, "output_tokens"), integer(counts, "reasoning_tokens")
    return trusted.Usage(
        input=integer(counts, "input_tokens"),
        cache_read=integer(counts, "input_tokens_cache_read"),
        cache_write=integer(counts, "input_tokens_cache_write"),
        output=None if written is None else max(0, written - (thought or 0)),
        reasoning=thought,
        raw_json=jsontext.own(raw),
    )


def _tool_use(fields: Fields) -> tuple[AnyPart, ...]:
    """Return a tool that the provider ran: its call and its result, which are one item."""
    call, name = string(fields, "id") or "", string(fields, "name") or ""
    failed = value(fields, "error") is not None
    result = jsontext.raw(
        {key: raw for key, raw in fields.items() if key in {"tool_type", "result", "error", "context"}}
    )
    arguments = string(fields, "arguments") or ""
    asked = (
        trusted.ToolCall(call, name, arguments, provider_executed=True)
        if not arguments or jsontext.is_json(arguments)
        else trusted.MalformedToolCall(arguments, "the arguments are not JSON", name, call)
    )
    return asked, ServerToolResult(call, result, NAME, name, failed)


def _citation(raw: Raw) -> Citation:
    fields = split(raw)
    quote = string(fields, "cited_text")
    return trusted.Citation(
        wire=NAME, url=string(fields, "url"), title=string(fields, "title"), quote=quote, raw_json=jsontext.own(raw)
    )
