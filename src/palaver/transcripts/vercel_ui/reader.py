"""Read UI messages (docs/spec/dialects.md#10).

Rules:

- A message is a record. One of an assistant is its whole run: each step is an assistant message, and the results of its
  calls follow it as tool messages, in the order of the parts. That is how the SDK sends it.
- A call without a final result (an unfinished state, ``preliminary`` output) is a call without a result. An incomplete
  stream of arguments, and ``rawInput``, is a malformed call. Denied calls have a result that says so.
- Parts that are for the UI only (``data-…``, ``source-…``), and unknown ones, are kept verbatim as opaque parts: no
  wire is sent them.
- Usage, model, time and finish reason are read from the usual keys of ``metadata``; the rest of it is the payload of
  the first message. Usage is that of the run, and belongs to its last answer.
- The list may also be one message on each line, without brackets.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, Raw, structs

from palaver.core import jsontext, trusted
from palaver.core.errors import PalaverError
from palaver.core.messages import AssistantMessage, Message, ToolMessage
from palaver.core.parts import (
    AnyPart,
    Audio,
    Image,
    MalformedToolCall,
    Opaque,
    Reasoning,
    ServerToolResult,
    Text,
    ToolCall,
)
from palaver.core.usage import Usage
from palaver.threads.ids import is_uuid
from palaver.transcripts import documents, extension_slot, packages
from palaver.transcripts.conversation import Conversation, Session, Step, derived_id
from palaver.transcripts.documents import Cut
from palaver.transcripts.fields import as_object, flag, inner, integer, listed, probing, read_time, split, string, value
from palaver.transcripts.record import Lines, Record
from palaver.transcripts.vercel_ui import shapes
from palaver.transcripts.vercel_ui.shapes import DATA, NAME, OURS, TOOL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.core.jsontext import Fields
    from palaver.transcripts.format import Origin
    from palaver.transcripts.unknown_fields import Watch

_USAGE: Final = ("usage", "totalUsage")
_MODEL: Final = ("model", "modelId")


class RecordReader:
    """Reads a document of UI messages."""

    def __init__(self, origin: Origin, watch: Watch) -> None:
        """Start before the document."""
        self._origin = origin
        self._watch = watch

    def record(self, record: Record) -> Iterator[Step]:
        """Read the document."""
        fields = record.fields or {}
        found = _cut(record.raw)
        named = string(fields, "id") or string(fields, "chatId")
        first = string(found.items[0].fields or {}, "id") if found.items else None
        thread = named if named and is_uuid(named) else derived_id(NAME, named or self._origin.name or first)
        conversation = Conversation(NAME, thread)
        yield conversation.began()
        yield from conversation.record(found.head)
        for item in found.items:
            yield from self._item(conversation, item)
        if found.tail is not None:
            yield from conversation.record(found.tail)
        session = Session(file_format=NAME, id=named)
        yield conversation.ended(title=string(fields, "title"), metadata=session.metadata())

    def end(self) -> Iterator[Step]:
        """Return no steps: the document has ended with its record."""
        return iter(())

    def _item(self, conversation: Conversation, record: Record) -> Iterator[Step]:
        fields = record.fields
        named = None if fields is None else string(fields, "id")
        group = [] if fields is None else self._messages(fields)
        if fields is None:
            self._watch.note("unread", "an item of messages is not an object")
        if group:
            yield from conversation.join(group, [record], ids=[named])
        else:
            yield from conversation.record(record, id=named)

    def _messages(self, fields: Fields) -> list[Message]:
        """Return the messages of a UI message; empty without any."""
        try:
            plain = self.plain(fields)
            slot = value(inner(fields, "metadata"), extension_slot.SLOT)
        except PalaverError as error:
            self._watch.note("unread", str(error))
            return []
        restored = None if slot is None else extension_slot.restored(plain, slot)
        return plain if restored is None else list(restored)

    def plain(self, fields: Fields) -> list[Message]:
        """Return the messages of a UI message, without carried data."""
        role = string(fields, "role")
        old = "parts" not in fields or "content" in fields
        self._watch.keys(fields, shapes.OLD_MESSAGE if old else shapes.MESSAGE, "message")
        listed_parts = (as_object(raw) or raw for raw in listed(fields, "parts"))
        parts = [_modern(each) for each in (listed_parts if "parts" in fields else _parts_of(fields))]
        parts += list(_attached(fields))
        made: list[Message]
        match role:
            case "system":
                content = [self._said(part) for part in parts if not _is_ours(part)]
                made = [
                    trusted.SystemMessage(content=tuple([each for each in content if isinstance(each, (Text, Opaque))]))
                ]
            case "user":
                said: Any = tuple([self._said(part) for part in parts if not _is_ours(part)])
                made = [trusted.UserMessage(content=said)]
            case "assistant":
                made = self._run(parts)
            case _:
                if role != "data":
                    self._watch.note("unread", f"message of role {role}")
                return []
        return _described(made, fields)

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _run(self, parts: list[Fields | Raw]) -> list[Message]:
        """Return the steps of a run, each with its results."""
        run: list[Message] = []
        content: list[Any] = []
        results: list[ToolMessage] = []

        def step() -> None:
            if content:
                run.extend((trusted.AssistantMessage(content=tuple(_joined(content))), *results))
            content.clear()
            results.clear()

        for part in parts:
            kind = string(part, "type") or "" if isinstance(part, dict) else ""
            if isinstance(part, dict) and (kind.startswith(TOOL) or kind == "dynamic-tool"):
                made, result = self._tool(part, kind)
                content += made
                results += () if result is None else (result,)
            elif kind == "step-start":
                step()
            elif isinstance(part, dict) and kind == "steering-message":
                step()
                said: Any = tuple([self._said(as_object(each) or each) for each in listed(part, "parts")])
                run.append(trusted.UserMessage(content=said))
            elif not _is_ours(part):
                content.append(self._said(part))
        step()
        return run

    def _said(self, part: Fields | Raw) -> AnyPart:
        """Return a part that is not a call."""
        if not isinstance(part, dict):
            self._watch.note("block", jsontext.kind(part))
            return trusted.Opaque(NAME, jsontext.own(part))
        kind = string(part, "type") or ""
        known = shapes.PARTS.get(kind)
        if known is None and not kind.startswith(DATA):
            self._watch.note("block", kind or "without a type")
        elif known is not None:
            self._watch.keys(part, known, kind)
        metadata = inner(part, "providerMetadata")
        match kind:
            case "text" if string(part, "text") is not None:
                return packages.marked(trusted.Text(string(part, "text") or ""), metadata, NAME)
            case "reasoning":
                return _reasoning(part, metadata)
            case "file" if "url" in part or "data" in part:
                return _file(part, metadata)
            case _:
                return trusted.Opaque(NAME, jsontext.raw(part))

    def _tool(self, part: Fields, kind: str) -> tuple[list[AnyPart], ToolMessage | None]:
        """Return a call, and its result, if any."""
        self._watch.keys(part, shapes.PARTS["dynamic-tool"], "tool")
        approval = inner(part, "approval")
        self._watch.keys(approval, approval, "approval")  # its other keys may stay
        dynamic = kind == "dynamic-tool"
        name = string(part, "toolName") or "" if dynamic else kind.removeprefix(TOOL)
        call = _call(part, name, string(part, "toolCallId") or "")
        if call.id == "" and "toolCallId" not in part:
            self._watch.note("value", "tool.toolCallId")
        state = string(part, "state") or ""
        result: ToolMessage | None = None
        match state:
            case "output-available" if value(part, "preliminary") is not True:
                result = _result(part.get("output"), call)
            case "output-error":
                result = _failed(string(part, "errorText") or "", call)
            case "output-denied":
                result = _failed(string(approval, "reason") or shapes.DENIED, call)
            case "approval-responded" if "approved" in approval and not flag(approval, "approved"):
                result = _failed(string(approval, "reason") or shapes.DENIED, call)
            case "output-available" | "input-streaming":
                pass
            case _ if state in shapes.UNFINISHED:
                pass
            case _:
                self._watch.note("value", f"tool.state {state}")
        if result is not None and isinstance(call, ToolCall) and call.provider_executed:
            output = part.get("output", jsontext.NULL) if state == "output-available" else jsontext.raw(result.text)
            stored = ServerToolResult(call.id, jsontext.own(output), NAME, call.name, is_error=result.is_error)
            return [call, stored], None
        return [call], result


# -- the document ------------------------------------------------------------------------------------------------------


def _cut(data: bytes) -> Cut:
    """Return the messages of a list, of an object with ``messages``, or of lines."""
    found = documents.cut(data)
    if found.tail is None:
        found = documents.cut(data, "messages")
    return found if found.tail is not None else _lines(data) or found


def _lines(data: bytes) -> Cut | None:
    """Return lines as a list, each with its separator. ``None`` for less than two messages."""
    lines = Lines()
    records = [*lines.feed(data), *lines.finish()]
    if sum(record.fields is not None for record in records) < 2 or "parts" not in (records[0].fields or {}):  # noqa: PLR2004
        return None
    items: list[Record] = []
    before = b""
    for number, record in enumerate(records, 1):
        body = record.raw.rstrip(b"\r\n")
        items.append(Record(number, 1, before + body, record.fields))
        before = record.raw[len(body) :]
    return Cut(Record(0, 1, b""), tuple(items), Record(documents.TAIL, 1, before))


_STATES: Final = {"partial-call": "input-streaming", "call": "input-available", "result": "output-available"}
_NAMES: Final = {"args": "input", "result": "output"}


def _modern(part: Fields | Raw) -> Fields | Raw:
    """Return a call or a source of version 4 in the later form; any other part as it is."""
    if not isinstance(part, dict):
        return part
    if "toolInvocation" in part:
        call = inner(part, "toolInvocation")
        kept = {_NAMES.get(key, key): raw for key, raw in call.items() if key not in {"state", "step"}}
        state = string(call, "state") or ""
        return {"type": jsontext.raw("dynamic-tool"), "state": jsontext.raw(_STATES.get(state, state)), **kept}
    if string(part, "type") == "source":
        source = inner(part, "source")
        kept = {"sourceId" if key == "id" else key: raw for key, raw in source.items() if key != "sourceType"}
        return {"type": jsontext.raw("source-url"), **kept}
    return part


def _parts_of(fields: Fields) -> Iterator[Fields | Raw]:
    """Yield the parts of a message of version 4 without any."""
    reasoning = string(fields, "reasoning")
    if reasoning:
        yield {"type": jsontext.raw("reasoning"), "reasoning": jsontext.raw(reasoning)}
    for each in listed(fields, "toolInvocations"):
        if split(each):
            yield {"type": jsontext.raw("tool-invocation"), "toolInvocation": each}
    content = fields.get("content")
    if content is not None and jsontext.kind(content) == "an array":
        yield from (as_object(each) or each for each in jsontext.items(content))
    elif string(fields, "content"):
        yield {"type": jsontext.raw("text"), "text": fields["content"]}


def _attached(fields: Fields) -> Iterator[Fields]:
    for each in listed(fields, "experimental_attachments"):
        stored = split(each)
        names = {"contentType": "mediaType", "name": "filename", "url": "url"}
        yield {"type": jsontext.raw("file"), **{names[key]: raw for key, raw in stored.items() if key in names}}


def _is_ours(part: Fields | Raw) -> bool:
    return isinstance(part, dict) and string(part, "type") == OURS


# -- what a part is ----------------------------------------------------------------------------------------------------


def _reasoning(part: Fields, metadata: Fields) -> Reasoning:
    text = string(part, "text")
    text = string(part, "reasoning") or "" if text is None else text
    for each in listed(part, "details"):  # version 4, which had proof of Anthropic alone
        signature = string(split(each), "signature")
        if signature is not None:
            return trusted.Reasoning(text, signature, wire="anthropic_messages")
    return packages.reasoning(text, metadata, NAME)


def _file(part: Fields, metadata: Fields) -> AnyPart:
    media_type = string(part, "mediaType") or string(part, "mimeType")
    url = string(part, "url")
    if url is None:  # version 4: base64
        url = f"data:{media_type or ''};base64,{string(part, 'data') or ''}"
    found = packages.media(url, media_type, string(part, "filename"), NAME, inner(part, "providerReference"))
    return packages.marked(found, metadata, NAME)


def _call(part: Fields, name: str, named: str) -> ToolCall | MalformedToolCall:
    raw = part.get("input")
    executed = value(part, "providerExecuted") is True
    metadata = inner(part, "callProviderMetadata")
    if string(part, "state") == "input-streaming":
        text = string(part, "rawInput") or ("" if raw is None else bytes(raw).decode())
        return trusted.MalformedToolCall(text, "the arguments were still streaming", name, named)
    if raw is None and "rawInput" in part:
        given = string(part, "rawInput")
        text = bytes(part["rawInput"]).decode() if given is None else given
        return trusted.MalformedToolCall(text, string(part, "errorText") or "", name, named)
    kind = "an object" if raw is None else jsontext.kind(raw)
    text = "" if raw is None else bytes(raw).decode()
    if kind not in {"an object", "a string"}:
        return trusted.MalformedToolCall(text, "the arguments are not an object", name, named)
    call = trusted.ToolCall(named, name, text, custom=kind == "a string", provider_executed=executed)
    return packages.marked(call, metadata, NAME)


def _failed(text: str, call: ToolCall | MalformedToolCall) -> ToolMessage:
    content = (trusted.Text(text),) if text else ()
    return trusted.ToolMessage(content=content, tool_call_id=call.id, tool_name=call.name, is_error=True)


def _result(raw: Raw | None, call: ToolCall | MalformedToolCall) -> ToolMessage:
    content: tuple[Any, ...] = ()
    failed = False
    if raw is not None and not jsontext.is_null(raw):
        if jsontext.kind(raw) == "a string":
            content = (trusted.Text(jsontext.text(raw)),)
        else:
            with probing():
                listed_parts = _blocks(raw)
            content = (trusted.Json(jsontext.own(raw)),) if listed_parts is None else listed_parts
            failed = listed_parts is not None and flag(split(raw), "isError")
    return trusted.ToolMessage(content=content, tool_call_id=call.id, tool_name=call.name, is_error=failed)


def _blocks(raw: Raw) -> tuple[Any, ...] | None:
    """Return the parts of a result of MCP, which its tools return unchanged; ``None`` for another value."""
    fields = split(raw)
    if "content" not in fields or not fields.keys() <= {"content", "isError"}:
        return None
    parts: list[Any] = []
    for each in listed(fields, "content"):
        block = split(each)
        kind, data, text = string(block, "type"), string(block, "data"), string(block, "text")
        if kind == "text" and text is not None and len(block) == 2:  # noqa: PLR2004 (nothing but its type and text)
            parts.append(trusted.Text(text))
        elif kind in {"image", "audio"} and data is not None and block.keys() == {"type", "data", "mimeType"}:
            cls = Image if kind == "image" else Audio
            parts.append(cls(trusted.Inline(data), string(block, "mimeType")))
        else:
            return None
    return tuple(parts) or None


def _joined(content: list[Any]) -> Iterator[Any]:
    """Join the summaries of one item in a response of OpenAI."""
    last: Reasoning | None = None
    for part in content:
        if isinstance(part, Reasoning) and last is not None and _item(last) is not None and _item(part) == _item(last):
            last = part.replace(
                text=f"{last.text}\n\n{part.text}",
                encrypted=last.encrypted if part.encrypted is None else part.encrypted,
            )
            continue
        if last is not None:
            yield last
        last = part if isinstance(part, Reasoning) else None
        if last is None:
            yield part
    if last is not None:
        yield last


def _item(part: Reasoning) -> Any:
    return part.provider.get(part.wire or "", {}).get("id")


# -- what stands beside ------------------------------------------------------------------------------------------------


def _described(made: list[Message], fields: Fields) -> list[Message]:
    """Return messages with the data of ``metadata``."""
    metadata = dict(inner(fields, "metadata"))
    metadata.pop(extension_slot.SLOT, None)
    at = read_time(value(metadata, "createdAt"))
    if at is not None:
        del metadata["createdAt"]
    else:
        at = read_time(value(fields, "createdAt"))
    model = next((key for key in _MODEL if string(metadata, key)), None)
    counted = next((key for key in _USAGE if _usage(metadata.get(key)) is not None), None)
    stop = string(metadata, "finishReason")
    answers = [place for place, message in enumerate(made) if isinstance(message, AssistantMessage)]
    if answers:
        named = None if model is None else string(metadata, model)
        usage = None if counted is None else _usage(metadata[counted])
        for key in (model, counted, "finishReason" if stop is not None else None):
            metadata.pop(key or "", None)
        made = [
            structs.replace(message, model=named) if isinstance(message, AssistantMessage) else message
            for message in made
        ]
        made[answers[-1]] = structs.replace(
            made[answers[-1]],
            usage=usage,
            finish_reason=None if stop is None else shapes.FINISH.get(stop, "other"),
            finish_reason_raw=UNSET if stop is None else stop,
        )
    if metadata and made:
        made[0] = structs.replace(made[0], payload_json=jsontext.raw(metadata))
    return [message if at is None else structs.replace(message, sent_at=at) for message in made]


def _usage(raw: Raw | None) -> Usage | None:
    """Return usage as the SDK counts it: ``inputTokens`` with the cache, ``outputTokens`` with the reasoning."""
    if raw is None or jsontext.kind(raw) != "an object":
        return None
    counts = jsontext.fields(raw)
    into, out = inner(counts, "inputTokenDetails"), inner(counts, "outputTokenDetails")
    read = _first(integer(into, "cacheReadTokens"), integer(counts, "cachedInputTokens"))
    write = integer(into, "cacheWriteTokens")
    reasoned = _first(integer(out, "reasoningTokens"), integer(counts, "reasoningTokens"))
    whole = _first(integer(counts, "inputTokens"), integer(counts, "promptTokens"))
    spoken = _first(integer(counts, "outputTokens"), integer(counts, "completionTokens"))
    if whole is None and spoken is None:
        return None
    fresh = integer(into, "noCacheTokens")
    if fresh is None and whole is not None:
        fresh = max(whole - (read or 0) - (write or 0), 0)
    return trusted.Usage(
        input=fresh,
        cache_read=read,
        cache_write=write,
        output=None if spoken is None else max(spoken - (reasoned or 0), 0),
        reasoning=reasoned,
        raw_json=jsontext.own(raw),
    )


def _first(*counts: int | None) -> int | None:
    return next((each for each in counts if each is not None), None)
