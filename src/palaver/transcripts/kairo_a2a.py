"""Kairo messages in the JSON of its A2A protocol (docs/spec/kairo.md#1.4).

A list of messages, or a single one. Read: the five kinds of content; ``verbatimPreserved``, ``sourceAgentId`` and
``timestamp``; a ``TOOL`` message with several results becomes several messages of one group. ``tokenCount`` and
``budgetTokens`` are kept under ``provider["kairo_a2a"]``.

Bytes of an image and kinds of content that Kairo lacks go into the key ``palaver``, which Kairo ignores: its own codec
drops the first and turns the second into a text that names them.

Not represented: media other than images by URL, results that are not text, malformed calls (they become text),
refusals as such, encrypted reasoning, usage and model, modes, tags, sources, payloads, markers.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec import UNSET, Raw, structs

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.messages import (
    DeveloperMessage,
    FlushMarker,
    Message,
    RescueMarker,
    ToolMessage,
    holds,
)
from palaver.core.parts import AnyPart, Image, Opaque, Reasoning, Text, ToolCall, Url
from palaver.transcripts.detection import Detection, Head
from palaver.transcripts.fields import iso, listed, read_time, split, string, value
from palaver.transcripts.format import TranscriptFormat
from palaver.transcripts.message_list import (
    ABSENT,
    Form,
    Receipt,
    built,
    document_reading,
    empty,
    known_messages,
    list_rendering,
    message_classes,
    provider_of,
    stored,
)
from palaver.transcripts.writer import grouped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from palaver.core.jsontext import Fields
    from palaver.threads.thread import Entry

NAME: Final = "kairo_a2a"
WIRE: Final = "anthropic_messages"
"""The provider of a signature's proof: the only one of Kairo that gives signatures."""

_CLASSES: Final = message_classes("USER", "ASSISTANT", "TOOL", "SYSTEM")
_BLOCKS: Final = {
    "text": frozenset(("type", "text")),
    "tool_use": frozenset(("type", "toolId", "toolName", "input")),
    "tool_result": frozenset(("type", "toolUseId", "content", "isError")),
    "image": frozenset(("type", "url", "mediaType")),
    "thinking": frozenset(("type", "thinking", "budgetTokens", "signature")),
}
_NEEDS: Final = {
    "text": ("text",),
    "tool_use": ("toolId", "toolName"),
    "tool_result": ("toolUseId", "content"),
    "image": ("url",),
    "thinking": ("thinking",),
}


def detect(head: Head) -> Detection | None:
    """Return messages with ``contents`` and a role in capitals."""
    found, most = known_messages(head, _CLASSES)
    if not most:
        return empty(head)
    return Detection(0.95) if any(isinstance(each.get("contents"), list) for each in found) else None


def _shares(_: Sequence[Entry], message: Message) -> bool:
    """Return whether a message is a result that was in one message with the one before it."""
    return isinstance(message, ToolMessage) and "result" in stored(message, NAME)


class A2aForm(Form):
    """A message in the JSON of Kairo's A2A protocol."""

    name: ClassVar[str] = NAME
    extra: ClassVar[str] = NAME
    keys: ClassVar[frozenset[str]] = frozenset(
        ("id", "role", "contents", "metadata", "timestamp", "sourceAgentId", "verbatimPreserved", "tokenCount")
    )
    always: ClassVar[frozenset[str]] = frozenset(("id", "metadata", "timestamp", "verbatimPreserved", "tokenCount"))

    def id_of(self, fields: Fields) -> str | None:
        """Return the id of a message."""
        return string(fields, "id")

    def groups(self, entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        """Group results that were in one message."""
        return grouped(entries, _shares)

    # -- reading ---------------------------------------------------------------------------------------------------

    def plain(self, fields: Fields) -> list[Message]:
        """Return the messages of a record."""
        role = string(fields, "role") or ""
        cls = _CLASSES.get(role)
        if cls is None or "contents" not in fields:
            self.watch.note("unread", f"role {role}", self.line)
            return []
        if jsontext.kind(fields["contents"]) != "an array":
            raise DecodeError(f"contents is {jsontext.kind(fields['contents'])}")
        says, beside = self._around(fields)
        blocks = listed(fields, "contents")
        if cls is ToolMessage:
            return self._results(blocks, says, beside)
        content = tuple([self._block(raw, cls) for raw in blocks])
        made = built(cls, content=content, provider_json=provider_of({NAME: beside}), **says)
        self.tools.update((call.id, call.name) for call in made.tool_calls)
        return [made]

    def _around(self, fields: Fields) -> tuple[dict[str, Any], dict[str, Any]]:
        beside = self.rest(fields)
        metadata, agent, at = fields.get("metadata"), string(fields, "sourceAgentId"), value(fields, "timestamp")
        says: dict[str, Any] = {"agent": agent, "id": string(fields, "id")}
        read = {"id"} if says["id"] is None else set[str]()
        if metadata is not None and jsontext.kind(metadata) == "an object":
            says["metadata_json"] = jsontext.own(metadata) if jsontext.fields(metadata) else UNSET
        else:
            read.add("metadata")
        says["sent_at"] = read_time(at) if isinstance(at, str) else None
        if says["sent_at"] is None or at != _stamp(says["sent_at"]):
            read.add("timestamp")
        if isinstance(flag := value(fields, "verbatimPreserved"), bool):
            says["verbatim"] = flag
        else:
            read.add("verbatimPreserved")
        read |= {"sourceAgentId"} if agent is None else set()
        read |= {"tokenCount"} if bytes(fields.get("tokenCount", b"")) != b"0" else set()
        beside.update((key, jsontext.own(fields[key])) for key in sorted(read) if key in fields)
        return says, beside

    def _results(self, blocks: Sequence[Raw], says: dict[str, Any], beside: dict[str, Any]) -> list[Message]:
        """Return a message for each result; other parts stay with the one before them."""
        messages: list[Message] = []
        loose: list[AnyPart] = []
        for raw in blocks:
            fields = split(raw)
            called, text = string(fields, "toolUseId"), string(fields, "content")
            if string(fields, "type") != "tool_result" or called is None or text is None:
                part = self._block(raw, ToolMessage)
                if messages:
                    last = messages[-1]
                    messages[-1] = last.replace(content=(*last.content, part))
                else:
                    loose.append(part)
                continue
            rest: dict[str, Any] = {key: each for key, each in fields.items() if key not in _BLOCKS["tool_result"]}
            if "isError" not in fields:
                rest[ABSENT] = ["isError"]
            elif not isinstance(value(fields, "isError"), bool):
                rest["isError"] = fields["isError"]
            kept: dict[str, Any] = {} if messages else {**beside}
            kept |= {"result": rest} if rest or messages else {}
            if loose:
                kept["before"] = len(loose)
            failed = value(fields, "isError") is True
            message = built(
                ToolMessage,
                content=(*loose, trusted.Text(text)),
                tool_call_id=called,
                tool_name=self.tools.get(called),
                is_error=failed,
                **{**says, "id": None if messages else says["id"]},
            )
            messages.append(structs.replace(message, provider_json=provider_of({NAME: kept})))
            loose = []
        if messages:
            return messages
        provider = provider_of({NAME: {**beside, "none": True}})
        return [built(ToolMessage, content=tuple(loose), provider_json=provider, **says)]

    def _block(self, raw: Raw, cls: type[Any]) -> AnyPart:
        fields = split(raw)
        kind = string(fields, "type") or ""
        known = _BLOCKS.get(kind)
        made: AnyPart | None = None
        if known is not None and all(string(fields, key) is not None for key in _NEEDS[kind]):
            self.watch.keys(fields, known, kind, self.line)
            beside: dict[str, Any] = {key: each for key, each in fields.items() if key not in known}
            made = _part(kind, fields, beside)
        elif known is None:
            self.watch.note("block", kind or "without a type", self.line)
        if made is None or not holds(cls, made):
            return trusted.Opaque(NAME, jsontext.own(raw))
        return made

    # -- writing ---------------------------------------------------------------------------------------------------

    def write_record(self, entries: Sequence[Entry], receipt: Receipt) -> dict[str, Any] | None:
        """Return the record of a message, or of the results of one batch."""
        message = entries[0].message
        if isinstance(message, RescueMarker | FlushMarker):
            return None
        beside = stored(message, NAME)
        blocks: list[Any] = []
        for place, entry in enumerate(entries):
            if isinstance(entry.message, ToolMessage):
                blocks += _result(entry.message, place, receipt)
            else:
                blocks += _contents(entry.message, receipt)
        role = "SYSTEM" if isinstance(message, DeveloperMessage) else message.role.upper()
        metadata = message.metadata_json
        stamp = string(beside, "timestamp")
        record: dict[str, Any] = {
            "id": entries[0].id if message.id is None else message.id,
            "role": role,
            "contents": blocks,
            "metadata": jsontext.EMPTY_OBJECT if metadata is UNSET else metadata,
            "timestamp": stamp
            if stamp is not None and read_time(stamp) == message.sent_at
            else _stamp(message.sent_at or 0),
            "tokenCount": 0,
            "verbatimPreserved": message.verbatim,
        }
        absent: list[str] = value(beside, ABSENT) or []
        if {"id"} & {*absent, *beside}:
            del record["id"]
        if message.sent_at is None and {"timestamp"} & {*absent, *beside}:
            del record["timestamp"]
        if message.agent is not None:
            record["sourceAgentId"] = message.agent
        rest = {key: raw for key, raw in beside.items() if key not in {"result", "none", "before"}}
        return self.with_rest(record, rest)


def _stamp(at: int) -> str:
    """Return a time as Java writes an instant: without decimals if there are none."""
    text = iso(at)
    return text.removesuffix(".000Z") + "Z" if text.endswith(".000Z") else text


def _part(kind: str, fields: Fields, beside: dict[str, Any]) -> AnyPart | None:
    match kind:
        case "text":
            return trusted.Text(string(fields, "text") or "", provider_json=provider_of({NAME: beside}))
        case "tool_use":
            given = fields.get("input")
            if given is None or jsontext.kind(given) != "an object":
                return None
            called, name = string(fields, "toolId") or "", string(fields, "toolName") or ""
            return trusted.ToolCall(called, name, bytes(given).decode(), provider_json=provider_of({NAME: beside}))
        case "image":
            source, media_type = trusted.Url(string(fields, "url") or ""), string(fields, "mediaType")
            if "mediaType" in fields and media_type is None:
                return None
            return trusted.Image(source, media_type, provider_json=provider_of({NAME: beside}))
        case "thinking":
            signature = string(fields, "signature")
            if "signature" in fields and signature is None:
                return None
            if "budgetTokens" in fields:
                beside["budgetTokens"] = jsontext.own(fields["budgetTokens"])
            else:
                beside[ABSENT] = ["budgetTokens"]
            text = string(fields, "thinking") or ""
            return trusted.Reasoning(text, signature, wire=WIRE, provider_json=provider_of({NAME: beside}))
        case _:
            return None


def _contents(message: Message, receipt: Receipt) -> Iterator[Any]:
    for index, part in enumerate(message.content):
        block = _block(part, index, receipt)
        if block is not None:
            yield block


def _block(part: AnyPart, index: int, receipt: Receipt, message: int = 0) -> Any:
    beside = stored(part, NAME)
    match part:
        case Opaque(wire="kairo_a2a"):
            return part.raw_json
        case Text():
            return {"type": "text", "text": part.text, **beside}
        case ToolCall() if not part.provider_executed:
            arguments = receipt.arguments(part, index, message)
            return {"type": "tool_use", "toolId": part.id, "toolName": part.name, "input": arguments, **beside}
        case Image(source=Url() as source):
            typed = {} if part.media_type is None else {"mediaType": part.media_type}
            return {"type": "image", "url": source.url, **typed, **beside}
        case Reasoning():
            signed = {} if part.signature is None else {"signature": part.signature}
            block: dict[str, Any] = {"type": "thinking", "thinking": part.text, "budgetTokens": 0, **signed, **beside}
            if value(beside, ABSENT):
                del block["budgetTokens"], block[ABSENT]
            return block
        case _:
            text = receipt.text_for(part, index, message)
            return None if text is None else {"type": "text", "text": text}


def _result(message: ToolMessage, place: int, receipt: Receipt) -> Iterator[Any]:
    """Yield the result; Kairo's own parts that are not results are placed before or behind it."""
    beside = stored(message, NAME)
    rest = split(beside["result"]) if "result" in beside else {}
    before: int = value(beside, "before") or 0
    own = [part.raw_json for part in message.content if isinstance(part, Opaque) and part.wire == NAME]
    loose = [
        (index, part)
        for index, part in enumerate(message.content)
        if not (isinstance(part, Opaque) and part.wire == NAME)
    ]
    if "none" in beside and not [part for _, part in loose if not isinstance(part, Text)]:
        yield from _contents(message, receipt)
        return
    texts = [
        part.text if isinstance(part, Text) else receipt.text_for(part, index, place) or "" for index, part in loose
    ]
    block: dict[str, Any] = {
        "type": "tool_result",
        "toolUseId": message.tool_call_id or "",
        "content": "".join(texts),
        "isError": message.is_error,
        **rest,
    }
    if value(rest, ABSENT):
        del block[ABSENT]
        if not message.is_error:
            del block["isError"]
    yield from own[:before]
    yield block
    yield from own[before:]


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="Kairo messages, A2A JSON",
    fidelity="bytes",
    detector=detect,
    record_reader=document_reading(A2aForm),
    record_writer=list_rendering(A2aForm),
    layout="document",
    resumes=True,
    extension=".json",
    keeps=("ids and times", "agents", "reasoning with signature", "failed results", "verbatim marks", "metadata"),
    loses=(
        "bytes of images",
        "audio, video, files",
        "results that are not text",
        "malformed calls (as text)",
        "encrypted reasoning",
        "usage and model",
        "markers",
    ),
)
