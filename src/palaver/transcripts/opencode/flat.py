"""Messages of version 2 of opencode's exports, which have no parts (docs/spec/dialects.md#7).

Rules:

- An answer is one message; the results of its calls follow it. ``executed`` calls have theirs beside them.
- ``synthetic`` and ``skill`` texts are sent and not shown; a ``shell`` command is reported as run by the user.
- A ``compaction`` is its summary, and ``recent``, what it kept as a text.
- Other records (switches of agent, model and place, ``idle``) are not messages.
- Only files of version 2 are written so, when they are edited or continued. The slot is the ``metadata`` of the
  record.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from msgspec import UNSET, Raw

from palaver.core import jsontext, trusted
from palaver.core.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from palaver.core.parts import (
    AnyPart,
    Audio,
    File,
    Image,
    Inline,
    Json,
    MalformedToolCall,
    Reasoning,
    Refusal,
    ServerToolResult,
    Text,
    ToolCall,
    Url,
    Video,
)
from palaver.threads.view import PLACEHOLDER, is_sent
from palaver.transcripts import extension_slot, packages
from palaver.transcripts.conversation import COMPACTION
from palaver.transcripts.fields import as_json, inner, integer, listed, read_time, split, string, value
from palaver.transcripts.opencode import shapes
from palaver.transcripts.opencode.shapes import NAME
from palaver.transcripts.restyle import restyled
from palaver.transcripts.unknown_fields import Watch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from palaver.core.jsontext import Fields
    from palaver.threads.thread import Entry
    from palaver.transcripts.packages import AnyMedia
    from palaver.transcripts.writer import WriteState


class Flat:
    """Reads messages of version 2."""

    def __init__(self, watch: Watch) -> None:
        """Report unexpected contents to ``watch``."""
        self._watch = watch

    def plain(self, fields: Fields) -> list[Message]:
        """Return the messages of a record; empty without any."""
        kind = string(fields, "type") or ""
        known = shapes.FLAT.get(kind)
        if known is None:
            self._watch.note("record", kind or "without a type")
            return []
        self._watch.keys(fields, known, kind)
        at = read_time(value(inner(fields, "time"), "created"))
        text = string(fields, "text")
        said = (trusted.Text(text),) if text is not None else ()
        match kind:
            case "user":
                content: Any = (*said, *(_file(split(each)) for each in listed(fields, "files")))
                return [trusted.UserMessage(content=content, sent_at=at)]
            case "synthetic" | "skill" if said:
                return [trusted.UserMessage(content=said, source=kind, sent_at=at)]
            case "system" if said:
                return [trusted.SystemMessage(content=said, sent_at=at)]
            case "shell":
                ran = f"Ran `{string(fields, 'command') or ''}`\n```\n{string(fields, 'output') or ''}\n```"
                return [trusted.UserMessage(content=(trusted.Text(ran),), sent_at=at)]
            case "compaction" if string(fields, "summary") is not None:
                texts = (string(fields, "summary"), string(fields, "recent"))
                return [trusted.UserMessage(content=(trusted.Text(each),), sent_at=at) for each in texts if each]
            case "assistant":
                return self._assistant(fields, at)
            case _:
                return []

    def _assistant(self, fields: Fields, at: int | None) -> list[Message]:
        content: list[Any] = []
        results: list[ToolMessage] = []
        for raw in listed(fields, "content"):
            made, result = self._block(raw)
            content += made
            results += () if result is None else (result,)
        usage = shapes.usage_of(fields)
        if not content and (usage is None or not usage.total):
            return []
        stop = string(fields, "finish")
        raw_stop = string(fields, "rawFinish") or stop
        failed = "error" in fields and not jsontext.is_null(fields["error"])
        answer = trusted.AssistantMessage(
            content=tuple(content),
            model=string(inner(fields, "model"), "id"),
            usage=usage,
            finish_reason="error" if failed else None if stop is None else shapes.FINISH.get(stop, "other"),
            finish_reason_raw=UNSET if raw_stop is None else raw_stop,
            sent_at=at,
        )
        if failed:
            answer = answer.replace(metadata={"error": jsontext.value(fields["error"])})
        tags = (PLACEHOLDER,) if failed and not content else ()
        return [answer.replace(tags=tags), *results]

    def _block(self, raw: Raw) -> tuple[list[AnyPart], ToolMessage | None]:
        fields = split(raw)
        kind = string(fields, "type") or "without a type"
        known = shapes.BLOCKS.get(kind)
        if known is None:
            self._watch.note("block", kind)
            return [trusted.Opaque(NAME, jsontext.own(raw))], None
        self._watch.keys(fields, known, kind)
        metadata = inner(fields, "providerState") or inner(fields, "providerMetadata")
        text = string(fields, "text") or ""
        match kind:
            case "text":
                return [packages.marked(trusted.Text(text), metadata, NAME)], None
            case "reasoning":
                return [packages.reasoning(text, metadata, NAME)], None
            case _:
                return self._tool(fields, metadata)

    def _tool(self, fields: Fields, metadata: Fields) -> tuple[list[AnyPart], ToolMessage | None]:
        state, name, named = inner(fields, "state"), string(fields, "name") or "", string(fields, "id") or ""
        self._watch.keys(state, shapes.STATE, "state")
        given = state.get("input", jsontext.EMPTY_OBJECT)
        text = jsontext.text(given) if jsontext.kind(given) == "a string" else bytes(given).decode()
        if not jsontext.is_json(text) or jsontext.kind(as_json(text)) != "an object":
            return [trusted.MalformedToolCall(text, "the arguments were still streaming", name, named)], None
        executed = value(fields, "executed") is True or value(inner(fields, "provider"), "executed") is True
        call = packages.marked(trusted.ToolCall(named, name, text, provider_executed=executed), metadata, NAME)
        status = string(state, "status")
        if status not in {"completed", "error"}:
            return [call], None
        content = [_content(each) for each in listed(state, "content")]
        if not content and inner(state, "structured"):
            content = [trusted.Json(jsontext.own(state["structured"]))]
        if status == "error":
            told = string(inner(state, "error"), "message")
            content = [*content, *(() if told is None else (trusted.Text(told),))]
        failed = (
            status == "error" or name == shapes.INVALID or integer(inner(state, "structured"), "exit") not in {None, 0}
        )
        at = read_time(value(inner(fields, "time"), "completed"))
        stored: Any = tuple(content)
        if executed:
            output = jsontext.own(state["result"]) if "result" in state else jsontext.raw(listed(state, "content"))
            return [call, ServerToolResult(named, output, NAME, name, is_error=failed)], None
        return [call], trusted.ToolMessage(
            content=stored, tool_call_id=named, tool_name=name, is_error=failed, sent_at=at
        )


def _content(raw: Raw) -> Any:
    fields = split(raw)
    if string(fields, "type") == "text":
        return trusted.Text(string(fields, "text") or "")
    return _file(fields) if "uri" in fields else trusted.Opaque(NAME, jsontext.own(raw))


def _file(fields: Fields) -> AnyPart:
    return packages.media(string(fields, "uri") or "", string(fields, "mime"), string(fields, "name"), NAME)


def flat_record(
    writing: WriteState, group: Sequence[Entry], old: Sequence[bytes], named: str, at: int
) -> Iterator[bytes]:
    """Yield the record of a group."""
    known: Fields = jsontext.fields(old[0]) if old else {}
    head: dict[str, Any] = {"id": string(known, "id") or named, **({} if known else {"time": {"created": at}})}
    kind = string(known, "type")
    compacted = kind == "compaction"
    if compacted:
        texts = [entry.message.text for entry in group if entry.message.source == COMPACTION and entry.message.content]
        said: dict[str, Any] = dict(zip(("summary", "recent"), texts, strict=False))
    elif any(isinstance(entry.message, (AssistantMessage, ToolMessage)) for entry in group):
        kind, said = "assistant", _answer(writing, group, known, at)
    else:
        message = group[0].message
        asks = isinstance(message, UserMessage) and message.source is None
        kind = kind or ("user" if asks else "system" if isinstance(message, SystemMessage) else "synthetic")
        said = {"text": message.text}
        files = [
            _written_file(writing, group[0], place, part)
            for place, part in enumerate(message.content)
            if _is_media(part)
        ]
        if any(files):
            said["files"] = [each for each in files if each is not None]
        if not is_sent(message) or (kind == "synthetic" and not isinstance(message, UserMessage)):
            writing.lose("approximated", message.role, "opencode would send it", group[0])
    record: dict[str, Any] = {**head, "type": kind, **said}
    if writing.options.carry and not compacted:
        said_now = (
            jsontext.encode(record) if not old else restyled(old[0], jsontext.encode(record), whole=writing.whole)
        )
        slot = extension_slot.carried(
            [entry.message for entry in group], Flat(Watch()).plain(jsontext.fields(said_now))
        )
        if slot is not None or extension_slot.SLOT in inner(known, "metadata"):
            record["metadata"] = {extension_slot.SLOT: slot}
    yield jsontext.encode(record)


def _answer(writing: WriteState, group: Sequence[Entry], known: Fields, at: int) -> dict[str, Any]:
    answer = next(
        (entry.message for entry in group if isinstance(entry.message, AssistantMessage)), trusted.AssistantMessage()
    )
    results: dict[str, Entry] = {}
    for entry in group:
        if isinstance(entry.message, ToolMessage):
            results.setdefault(entry.message.tool_call_id or entry.id, entry)
    olds = {string(split(raw), "id"): split(raw) for raw in listed(known, "content")}
    content: list[dict[str, Any]] = []
    for entry in group:
        if isinstance(entry.message, AssistantMessage):
            for place in range(len(entry.message.content)):
                content += _block(writing, (entry, place), results, olds, at)
    for named, entry in results.items():
        message = cast("ToolMessage", entry.message)
        writing.lose("approximated", "tool", "a result without its call is written with an empty one", entry)
        tool = {"type": "tool", "id": named, "name": message.tool_name or "unknown", "time": {"created": at}}
        content.append({**tool, "state": _state(writing, entry, Raw(b"{}"))})
    told: dict[str, Any] = {"content": content}
    if not known:
        told |= {"agent": "build", "model": {"id": answer.model or "unknown", "providerID": "unknown"}}
    if answer.usage is not None and answer.usage != shapes.usage_of(known):
        told["tokens"] = shapes.tokens_of(answer.usage)
    stop = shapes.STOPS.get(answer.finish_reason or "")
    if stop is not None and "finish" not in known:
        told["finish"] = stop
    return told


def _block(
    writing: WriteState, at_place: tuple[Entry, int], results: dict[str, Entry], olds: Any, at: int
) -> list[dict[str, Any]]:
    entry, place = at_place
    part = entry.message.content[place]
    named = f"{entry.id}-{place}"
    stored = packages.provider_data(part, NAME)
    beside = {"providerState": stored} if stored else {}
    match part:
        case Text() | Refusal():
            return [{"type": "text", **_old_id(olds, "text", named), "text": part.text, **beside}]
        case Reasoning():
            return [{"type": "reasoning", **_old_id(olds, "reasoning", named), "text": part.text, **beside}]
        case ToolCall() | MalformedToolCall():
            answer = results.pop(part.id or "", None)
            old = olds.get(part.id, {})
            made: dict[str, Any] = {"type": "tool", "id": part.id or named, "name": part.name or "unknown"}
            made |= {**beside, **({} if "time" in old else {"time": {"created": at}})}
            served = _served(entry, part)
            if isinstance(part, MalformedToolCall):
                return [{**made, "state": old.get("state") or {"status": "streaming", "input": part.raw}}]
            given = as_json(part.arguments_json.strip() or "{}")
            if part.provider_executed:
                made["executed"] = True
            if served is not None:
                before = old.get("state")
                return [{**made, "state": before or _served_state(given, served)}]
            if answer is None:
                open_state: dict[str, Any] = {"status": "running", "input": given, "structured": {}, "content": []}
                return [{**made, "state": old.get("state") or open_state}]
            completed = string(inner(old, "state"), "status") == "completed"
            return [{**made, "state": _state(writing, answer, given, completed=completed)}]
        case ServerToolResult():
            return []
        case _:
            kind = cast("str", type(part).__struct_config__.tag)
            writing.lose("dropped", kind, "an answer has no block for it", entry, place)
            return []


def _old_id(olds: Any, kind: str, named: str) -> dict[str, Any]:
    """Return the id of the record's next block of a kind."""
    found = next((each for each, old in olds.items() if string(old, "type") == kind), None)
    if found is None:
        return {"id": named}
    del olds[found]
    return {"id": found}


def _served(entry: Entry, call: ToolCall | MalformedToolCall) -> ServerToolResult | None:
    for part in entry.message.content:
        if isinstance(part, ServerToolResult) and part.tool_call_id == call.id:
            return part
    return None


def _served_state(given: Raw, served: ServerToolResult) -> dict[str, Any]:
    text = bytes(served.output_json).decode()
    content = [{"type": "text", "text": text}]
    if served.is_error:
        error = {"type": "unknown", "message": text}
        return {"status": "error", "input": given, "structured": {}, "content": [], "error": error}
    return {"status": "completed", "input": given, "structured": {}, "content": content, "result": served.output_json}


def _state(writing: WriteState, entry: Entry, given: Raw, *, completed: bool = False) -> dict[str, Any]:
    """Return the state of a call with a result; ``completed`` stays, even if the call failed."""
    message = cast("ToolMessage", entry.message)
    content: list[dict[str, Any]] = []
    first = message.content[0] if len(message.content) == 1 else None
    if isinstance(first, Json) and jsontext.kind(first.value_json) == "an object" and not message.is_error:
        return {"status": "completed", "input": given, "structured": first.value_json, "content": content}
    for place, part in enumerate(message.content):
        if isinstance(part, Text):
            content.append({"type": "text", "text": part.text})
        elif isinstance(part, Json):
            content.append({"type": "text", "text": bytes(part.value_json).decode()})
        elif _is_media(part) and (block := _written_file(writing, entry, place, part)) is not None:
            content.append({"type": "file", **block})
    state: dict[str, Any] = {"status": "completed", "input": given, "structured": {}, "content": content}
    if message.is_error and not completed:
        state |= {"status": "error", "content": [], "error": {"type": "unknown", "message": message.text}}
    return state


def _is_media(part: object) -> bool:
    return isinstance(part, (Image, Audio, Video, File))


def _written_file(writing: WriteState, entry: Entry, place: int, part: Any) -> dict[str, Any] | None:
    stored: AnyMedia = part
    media_type = packages.media_type_of(stored)
    named = packages.name_of(stored, NAME)
    beside = {} if named is None else {"name": named}
    if isinstance(stored.source, Inline):
        return {"uri": f"data:{media_type};base64,{stored.source.data}", "mime": media_type, **beside}
    if isinstance(stored.source, Url):
        return {"uri": stored.source.url, "mime": media_type, **beside}
    writing.lose("dropped", "file", "it has no URL", entry, place)
    return None
