"""Reading of trajectories: a step is a message, followed by the results of its calls.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw, structs

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.messages import AssistantMessage, Message, SystemMessage, ToolMessage
from palaver.core.parts import AnyPart, Audio, Image, MalformedToolCall, Opaque, Text, ToolCall, Url
from palaver.core.usage import Usage
from palaver.threads.ids import is_uuid
from palaver.transcripts import documents, extension_slot
from palaver.transcripts.atif import shapes
from palaver.transcripts.atif.shapes import KEYS, NAME, PREFIX
from palaver.transcripts.conversation import Conversation, Session, Step, derived_id
from palaver.transcripts.documents import fields_of
from palaver.transcripts.fields import inner, integer, kind_of, listed, read_time, split, string, value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from palaver.core.jsontext import Fields
    from palaver.transcripts.format import Origin
    from palaver.transcripts.record import Record
    from palaver.transcripts.unknown_fields import Watch

_DEEPEST: Final = 16
_MORE: Final = ("trajectory_id", "notes", "continued_trajectory_ref")


class RecordReader:
    """Reads one document, and the trajectories of sub-agents inside it."""

    def __init__(self, origin: Origin, watch: Watch) -> None:
        """Start before the document."""
        self._origin = origin
        self._watch = watch

    def record(self, record: Record) -> Iterator[Step]:
        """Read the document."""
        fields = record.fields or {}
        cut = documents.cut(record.raw, "steps")
        if cut.tail is None:
            self._watch.note("value", "no list of steps")
        session = session_of(fields, self._watch)
        thread = self._thread(session)
        conversation = Conversation(NAME, thread)
        yield conversation.began()
        steps = Steps(session.model, self._watch)
        yield from conversation.record(cut.head)
        for item in cut.items:
            group = None if item.fields is None else steps.messages(item.fields)
            if item.fields is None:
                self._watch.note("unread", "a step that is not an object")
            yield from conversation.record(item) if not group else conversation.join(group, [item])
        if cut.tail is not None:
            yield from conversation.record(cut.tail)
        yield conversation.ended(metadata=session.metadata())
        if cut.tail is not None:
            frame = fields_of(cut.head.raw + cut.tail.raw)  # as it is read again when it is written
            yield from self._inside(frame, thread, steps.calls, 1)

    def end(self) -> tuple[Step, ...]:
        """Return no steps: the document has ended with its record."""
        return ()

    def _thread(self, session: Session) -> str:
        named = session.more.get("trajectory_id") or session.id
        if isinstance(named, str) and is_uuid(named):
            return named
        return derived_id(NAME, named or self._origin.name)

    def _inside(self, fields: Fields, parent: str, calls: dict[str, str | None], depth: int) -> Iterator[Step]:
        """Yield the trajectories of sub-agents: conversations whose bytes are in the tail of the document."""
        for place, raw in enumerate(listed(fields, "subagent_trajectories")):
            inside = split(raw)
            if not inside or depth > _DEEPEST:
                self._watch.note("value", "subagent_trajectories")
                continue
            session = session_of(inside, self._watch)
            named = session.more.get("trajectory_id")
            more = {**session.more, "place": place}
            session = structs.replace(session, parent=parent, call=calls.get(named or ""), more=more)
            thread = derived_id(NAME, parent, place, named)
            conversation = Conversation(NAME, thread)
            yield conversation.began()
            steps = Steps(session.model, self._watch)
            for each in listed(inside, "steps"):
                if group := steps.messages(split(each)):
                    yield from conversation.join(group)
            yield conversation.ended(metadata=session.metadata())
            yield from self._inside(inside, thread, steps.calls, depth + 1)


def session_of(fields: Fields, watch: Watch) -> Session:
    """Return the session of a trajectory."""
    agent = inner(fields, "agent")
    version = string(fields, "schema_version")
    known = shapes.version_of(version)
    if version is not None and (known is None or known > shapes.NEWEST):
        watch.note("version", version)
    watch.keys(fields, KEYS["trajectory"], "trajectory")
    watch.keys(agent, KEYS["agent"], "agent")
    extra = inner(agent, "extra") or inner(fields, "extra")
    folders = [jsontext.value(each) for each in listed(extra, "cwds")]
    more = {key: string(fields, key) for key in _MORE if string(fields, key) is not None}
    return Session(
        file_format=NAME,
        id=string(fields, "session_id"),
        format=None if version is None else version.removeprefix(PREFIX),
        program=string(agent, "version"),
        cwd=string(extra, "cwd") or next((each for each in folders if isinstance(each, str)), None),
        model=string(agent, "model_name"),
        agent=string(agent, "name"),
        started_at=next(_times(fields), None),
        more=more,
    )


def _times(fields: Fields) -> Iterator[int]:
    for each in listed(fields, "steps")[:1]:
        if (at := read_time(value(split(each), "timestamp"))) is not None:
            yield at


class Steps:
    """Reads steps. ``model`` answers steps that name none; ``calls`` has the call of each sub-agent."""

    def __init__(self, model: str | None, watch: Watch) -> None:
        """Start before the first step."""
        self._model = model
        self._watch = watch
        self.calls: dict[str, str | None] = {}

    def messages(self, fields: Fields) -> list[Message] | None:
        """Return the messages of a step; ``None`` when it has none."""
        try:
            plain = self.plain(fields)
            slot = value(inner(fields, "extra"), extension_slot.SLOT)
        except DecodeError as error:
            self._watch.note("unread", str(error))
            return None
        restored = None if slot is None or plain is None else extension_slot.restored(plain, slot)
        if restored is None:
            return plain
        at = read_time(value(fields, "timestamp"))
        return [structs.replace(each, sent_at=at) if each.sent_at is None else each for each in restored]

    def plain(self, fields: Fields) -> list[Message] | None:
        """Return the messages of a step, without carried data."""
        self._watch.keys(fields, KEYS["step"], "step")
        at = read_time(value(fields, "timestamp"))
        content = self._content(fields, "message")
        results = listed(inner(fields, "observation"), "results")
        self._watch.keys(inner(fields, "observation"), KEYS["observation"], "observation")
        message: Message
        match string(fields, "source"):
            case "user":
                message = trusted.UserMessage(content=_only(content, Text, Image, Audio, Opaque), sent_at=at)
            case "system":
                message = trusted.SystemMessage(content=_only(content, Text, Opaque), sent_at=at)
            case "agent":
                message = self._assistant(fields, content, at)
            case other:
                self._watch.note("unread", f"a step of {other}")
                return None
        if value(fields, shapes.COPIED) is True:
            message = message.replace(metadata={shapes.COPIED: True})
        said = [] if results and _is_silent(message) else [message]
        names = {call.id: call.name for call in message.tool_calls}
        names |= {call.id or "": call.name or "" for call in message.malformed_tool_calls}
        told = list(map(split, results))
        named = {string(each, "source_call_id") for each in told}
        unnamed = iter([call for call in names if call not in named])
        return [*said, *(self._result(each, names, unnamed, at) for each in told)]

    def _assistant(self, fields: Fields, content: tuple[AnyPart, ...], at: int | None) -> AssistantMessage:
        thought = string(fields, "reasoning_content")
        said = tuple([part for part in content if not isinstance(part, Text) or part.text or len(content) > 1])
        parts: Any = (
            *(() if thought is None else (trusted.Reasoning(thought),)),
            *said,
            *(self._call(split(each)) for each in listed(fields, "tool_calls")),
        )
        copied = value(fields, shapes.COPIED) is True  # repeated messages were counted at the original
        return trusted.AssistantMessage(
            content=parts,
            model=string(fields, "model_name") or self._model,
            usage=None if copied else usage_of(fields, self._watch),
            sent_at=at,
        )

    def _call(self, fields: Fields) -> ToolCall | MalformedToolCall:
        self._watch.keys(fields, KEYS["tool_call"], "tool_call")
        call, name = string(fields, "tool_call_id") or "", string(fields, "function_name") or ""
        arguments = fields.get("arguments", jsontext.EMPTY_OBJECT)
        kept = string(inner(fields, "extra"), shapes.RAW_ARGUMENTS)
        if kept is not None and not split(arguments):
            return trusted.MalformedToolCall(kept, "the arguments are not an object", name, call)
        kind = jsontext.kind(arguments)
        if kind == "an object":
            return trusted.ToolCall(call, name, bytes(arguments).decode())
        self._watch.note("value", f"arguments that are {kind}")
        text = jsontext.text(arguments) if kind == "a string" else bytes(arguments).decode()
        if kind == "a string" and jsontext.is_json(text) and text.lstrip().startswith("{"):
            return trusted.ToolCall(call, name, text)
        return trusted.MalformedToolCall(text, "the arguments are not an object", name, call)

    def _result(self, fields: Fields, names: dict[str, str], unnamed: Iterator[str], at: int | None) -> ToolMessage:
        """Return a result; one that names no call belongs to the next call of its step without a result."""
        self._watch.keys(fields, KEYS["result"], "result")
        call, extra = string(fields, "source_call_id"), inner(fields, "extra")
        if call is None:
            call = next(unnamed, None)
        if call is not None and call not in names:
            self._watch.note("link", "source_call_id")
        refs = listed(fields, shapes.REFS)
        for ref in map(split, refs):
            named = string(ref, "trajectory_id") or string(ref, "session_id")
            if named is not None:
                self.calls[named] = call
        own = read_time(value(extra, shapes.TIMESTAMP))
        message = trusted.ToolMessage(
            content=_only(self._content(fields, "content"), Text, Image, Audio, Opaque),
            tool_call_id=call,
            tool_name=names.get(call or "") or None,
            is_error=any(value(extra, key) is True for key in shapes.FAILED),
            sent_at=at if own is None else own,
        )
        return message.replace(metadata={shapes.REFS: [jsontext.value(each) for each in refs]}) if refs else message

    def _content(self, fields: Fields, key: str) -> tuple[AnyPart, ...]:
        if kind_of(fields, key) == "a string":
            return (trusted.Text(string(fields, key) or ""),)
        return tuple([self._part(each) for each in listed(fields, key)])

    def _part(self, raw: Raw) -> AnyPart:
        fields = split(raw)
        kind, source = string(fields, "type"), inner(fields, "source")
        self._watch.keys(fields, KEYS["part"], "part")
        self._watch.keys(source, KEYS["source"], "source")
        path, named = string(source, "path"), shapes.media_type(string(source, "media_type"))
        if kind == "text" and (text := string(fields, "text")) is not None:
            return trusted.Text(text)
        if kind == "image" and path is not None:
            return trusted.Image(trusted.Url(path), named)
        if kind == "audio" and path is not None:
            return trusted.Audio(trusted.Url(path), named)
        self._watch.note("block", kind or "without a type")
        return trusted.Opaque(NAME, jsontext.own(raw))


def usage_of(fields: Fields, watch: Watch | None = None) -> Usage | None:
    """Return the counters of a step, without those that ``prompt_tokens`` and ``completion_tokens`` include."""
    raw = fields.get("metrics")
    if raw is None or jsontext.kind(raw) != "an object":
        return None
    counts = jsontext.fields(raw)
    if watch is not None:
        watch.keys(counts, KEYS["metrics"], "metrics")
    extra = inner(counts, "extra")
    cached, written = integer(counts, "cached_tokens"), _first(extra, shapes.CACHE_WRITE)
    thought = _first(extra, shapes.REASONING)
    return trusted.Usage(
        input=_without(integer(counts, "prompt_tokens"), cached, written),
        cache_read=cached,
        cache_write=written,
        output=_without(integer(counts, "completion_tokens"), thought),
        reasoning=thought,
        raw_json=jsontext.own(raw),
    )


def _first(fields: Fields, keys: Sequence[str]) -> int | None:
    return next((found for key in keys if (found := integer(fields, key)) is not None), None)


def _without(whole: int | None, *parts: int | None) -> int | None:
    return None if whole is None else max(0, whole - sum(part or 0 for part in parts))


def _only(content: tuple[AnyPart, ...], *kinds: type[AnyPart]) -> Any:
    """Return the parts that a message may hold; others are kept as they are."""
    return tuple([part if isinstance(part, kinds) else _opaque(part) for part in content])


def _opaque(part: AnyPart) -> Opaque:
    stored: dict[str, Any] = {"type": "text", "text": ""}
    if isinstance(part, (Image, Audio)) and isinstance(part.source, Url):
        kind = "image" if isinstance(part, Image) else "audio"
        stored = {"type": kind, "source": {"media_type": part.media_type, "path": part.source.url}}
    return trusted.Opaque(NAME, jsontext.raw(stored))


def _is_silent(message: Message) -> bool:
    """Return whether a step of the system has only an observation."""
    return isinstance(message, SystemMessage) and not message.text and len(message.content) <= 1
