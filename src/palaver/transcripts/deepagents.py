"""Messages of DeepAgents for Swift as it stores them (docs/spec/deepagents-swift.md#1.1 to #1.6).

A list of messages, or a single one. Read: blocks of text, reasoning and images, then ``toolCalls``, then
``malformedToolCallBlocks``. The older form, with a string for content, is read too: that of an ``ai`` message with the
split at ``<think>``, others as they are, then ``imageURLs``. Of several sources of an image, ``url`` precedes
``base64``, which precedes ``fileID``; the others are kept beside it. A result that is only ``{"error": …}`` failed. An
unknown block, or an image without a source, is kept as it is: the program itself would read an empty thread.

Written: sorted keys, no empty list and no null, as by the program. Ids are UUIDs in capitals; another id is replaced
by the same UUID everywhere, so that results still match their calls.

Not represented: other ids, the place of calls in the text, files, audio, video, refusals and results as JSON
(they become text), citations, proofs of reasoning, failed results as such, usage and model, times, agents, tags,
metadata, developer messages (they become system messages), markers.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final
from uuid import UUID, uuid5

from msgspec import Raw

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.messages import (
    AssistantMessage,
    FlushMarker,
    Message,
    RescueMarker,
    ToolMessage,
    holds,
)
from palaver.core.parts import (
    AnyPart,
    FileId,
    Image,
    Inline,
    MalformedToolCall,
    MediaSource,
    Opaque,
    Reasoning,
    Text,
    ToolCall,
    Url,
)
from palaver.stream.local.format import split_thinking
from palaver.transcripts.detection import Detection, Head
from palaver.transcripts.fields import as_object, inner, kind_of, listed, split, string, value
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
    source_of,
    stored,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.core.jsontext import Fields
    from palaver.threads.thread import Entry

NAME: Final = "deepagents"
SUMMARY: Final = "summarization"
"""The only ``source`` by which the program recognizes its summaries."""
MALFORMED: Final = "the program could not read it"

_SPACE: Final = UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")
_ROLES: Final = {"system": "system", "user": "human", "assistant": "ai", "tool": "tool", "developer": "system"}
_CLASSES: Final = message_classes(user="human", assistant="ai")
_BLOCKS: Final = {
    "text": frozenset(("type", "text")),
    "reasoning": frozenset(("type", "reasoning")),
    "image": frozenset(("type", "image")),
}
_IMAGE: Final = ("url", "base64", "fileID")
_CALL: Final = frozenset(("id", "name", "arguments"))


def detect(head: Head) -> Detection | None:
    """Return messages with the roles ``human`` and ``ai`` and a list of blocks, or (in the older form) a string."""
    found, most = known_messages(head, _CLASSES)
    if not most:
        return empty(head)
    if any("type" in each or "timestamp" in each for each in found):
        return None
    new = any(isinstance(each.get("content"), list) for each in found)
    if any(each["role"] in {"human", "ai"} for each in found):
        return Detection(0.95 if new else 0.85)
    named = all(isinstance(each.get("id"), str) and _is_uuid(each["id"]) and each["id"].isupper() for each in found)
    return Detection(0.8) if new and named else None


def uuid_of(id: str) -> str:
    """Return an id as a UUID in capitals; any other id is mapped to one, always the same."""
    return id.upper() if _is_uuid(id) else str(uuid5(_SPACE, id.encode("utf-8", "replace").decode())).upper()


def _is_canonical(id: str | None) -> bool:
    return id is not None and id == uuid_of(id)


def _spelled(id: str, beside: Fields, key: str) -> str:
    """Return an id as it was read, if it is unchanged; else a UUID in capitals."""
    return id if string(beside, key) == id else uuid_of(id)


def _is_uuid(id: str) -> bool:
    try:
        UUID(id)
    except ValueError:
        return False
    return len(id) == len("00000000-0000-0000-0000-000000000000")


class SwiftForm(Form):
    """A message of DeepAgents for Swift."""

    name: ClassVar[str] = NAME
    extra: ClassVar[str] = NAME
    keys: ClassVar[frozenset[str]] = frozenset(
        ("id", "role", "content", "toolCalls", "malformedToolCallBlocks", "toolCallID", "imageURLs", "source")
    )
    always: ClassVar[frozenset[str]] = frozenset(("id",))
    unsupported: ClassVar[Mapping[str, str]] = {"sent_at": "a message of DeepAgents has no time"}

    def id_of(self, fields: Fields) -> str | None:
        """Return the id of a message."""
        return string(fields, "id")

    # -- reading ---------------------------------------------------------------------------------------------------

    def plain(self, fields: Fields) -> list[Message]:
        """Return the messages of a record."""
        role = string(fields, "role") or ""
        cls = _CLASSES.get(role)
        if cls is None:
            self.watch.note("unread", f"role {role}", self.line)
            return []
        beside = self.rest(fields)
        content = self._content(cls, fields)
        says: dict[str, Any] = {"id": string(fields, "id"), "source": string(fields, "source")}
        read: set[str] = {"role", "content"} | ({"source"} if says["source"] is not None else set())
        read |= {"imageURLs"} if kind_of(fields, "content") == "a string" or "content" not in fields else set()
        read |= {"id"} if _is_canonical(says["id"]) else set()
        if cls is AssistantMessage:
            content += map(self._call, listed(fields, "toolCalls"))
            content += map(_malformed, listed(fields, "malformedToolCallBlocks"))
            read |= {key for key in ("toolCalls", "malformedToolCallBlocks") if listed(fields, key)}
        if cls is ToolMessage and (called := string(fields, "toolCallID")) is not None:
            says |= {"tool_call_id": called, "tool_name": self.tools.get(called)}
            read |= {"toolCallID"} if _is_canonical(called) else set()
        if cls is ToolMessage:
            says["is_error"] = failed(content)
        beside.update((key, jsontext.own(fields[key])) for key in sorted(self.keys - read) if key in fields)
        made = built(cls, content=tuple(content), provider_json=provider_of({NAME: beside}), **says)
        self.tools.update((call.id, call.name) for call in made.tool_calls)
        return [made]

    def _content(self, cls: type[Any], fields: Fields) -> list[AnyPart]:
        raw = fields.get("content")
        if raw is not None and jsontext.kind(raw) == "an array":
            return [self._block(each, cls) for each in jsontext.items(raw)]
        if raw is not None and jsontext.kind(raw) != "a string":
            raise DecodeError(f"content is {jsontext.kind(raw)}")
        text = "" if raw is None else jsontext.text(raw)
        parts: list[AnyPart] = [trusted.Text(text)]
        if cls is AssistantMessage:
            thought, answer = split_thinking(text)
            parts = [*([] if thought is None else [trusted.Reasoning(thought)]), trusted.Text(answer)]
        urls = [jsontext.text(each) for each in listed(fields, "imageURLs") if jsontext.kind(each) == "a string"]
        images = [_image({"url": jsontext.raw(url)}) for url in urls]
        return parts + [each for each in images if each is not None and holds(cls, each)]

    def _block(self, raw: Raw, cls: type[Any]) -> AnyPart:
        fields = as_object(raw)
        kind = string(fields, "type") or ""
        made: AnyPart | None = None
        if kind not in _BLOCKS:
            self.watch.note("block", kind or "without a type", self.line)
            return trusted.Opaque(NAME, jsontext.own(raw))
        self.watch.keys(fields, _BLOCKS[kind], kind, self.line)
        beside = {key: each for key, each in fields.items() if key not in _BLOCKS[kind]}
        text = None if kind == "image" else string(fields, kind)
        if kind == "text" and text is not None:
            made = trusted.Text(text, provider_json=provider_of({NAME: beside}))
        elif kind == "reasoning" and text is not None:
            made = trusted.Reasoning(text, provider_json=provider_of({NAME: beside}))
        elif kind == "image":
            made = _image(inner(fields, "image"), beside)
        return made if made is not None and holds(cls, made) else trusted.Opaque(NAME, jsontext.own(raw))

    def _call(self, raw: Raw) -> AnyPart:
        fields = split(raw)
        called, name, given = string(fields, "id"), string(fields, "name"), fields.get("arguments")
        if called is None or name is None or given is None or jsontext.kind(given) != "an object":
            self.watch.note("block", "tool call", self.line)
            return trusted.Opaque(NAME, jsontext.own(raw), provider_json=provider_of({NAME: {"in": "toolCalls"}}))
        self.watch.keys(fields, _CALL, "toolCalls", self.line)
        beside = {key: each for key, each in fields.items() if key not in _CALL}
        if not _is_canonical(called):
            beside["id"] = jsontext.raw(called)
        return trusted.ToolCall(called, name, bytes(given).decode(), provider_json=provider_of({NAME: beside}))

    # -- writing ---------------------------------------------------------------------------------------------------

    def write_record(self, entries: Sequence[Entry], receipt: Receipt) -> dict[str, Any] | None:
        """Return the record of a message, its keys sorted."""
        message = entries[0].message
        if isinstance(message, RescueMarker | FlushMarker):
            return None
        blocks, calls, broken = _lists(message, receipt)
        beside = stored(message, NAME)
        given = entries[0].id if message.id is None else message.id
        said = _spelled(given, beside, "id")
        if given != said:
            receipt.lose("approximated", "id", "the program takes UUIDs in capitals only")
        record: dict[str, Any] = {"content": blocks, "id": said, "role": _ROLES[message.role]}
        absent: list[str] = value(beside, ABSENT) or []
        if "id" in absent or ("id" in beside and string(beside, "id") is None):
            del record["id"]
        if broken:
            record["malformedToolCallBlocks"] = broken
        if message.source is not None:
            record["source"] = SUMMARY if message.is_summary else message.source
        if isinstance(message, ToolMessage) and message.tool_call_id is not None:
            record["toolCallID"] = _spelled(message.tool_call_id, beside, "toolCallID")
        if calls:
            record["toolCalls"] = calls
        record = self.with_rest(record, beside)
        return {key: record[key] for key in sorted(record)}


def failed(content: Sequence[AnyPart]) -> bool:
    """Return whether a result is only the loop's answer for a failed tool: ``{"error": …}``."""
    match content:
        case [Text(text=text)] if text.lstrip().startswith("{") and jsontext.is_json(text):
            return jsontext.fields(text.strip().encode("utf-8", "replace")).keys() == {"error"}
        case _:
            return False


def _malformed(raw: Raw) -> AnyPart:
    if jsontext.kind(raw) != "a string":
        return trusted.Opaque(
            NAME, jsontext.own(raw), provider_json=provider_of({NAME: {"in": "malformedToolCallBlocks"}})
        )
    return trusted.MalformedToolCall(jsontext.text(raw), MALFORMED)


def _image(fields: Fields, beside: Mapping[str, Any] | None = None) -> Image | None:
    """Return an image by the first of its sources; the others are kept beside it."""
    key = next((each for each in _IMAGE if kind_of(fields, each) == "a string"), None)
    if key is None or ("mimeType" in fields and string(fields, "mimeType") is None):
        return None
    text = string(fields, key) or ""
    media_type = string(fields, "mimeType")
    rest = {each: fields[each] for each in sorted(fields) if each not in {key, "mimeType"}}
    source: MediaSource = (
        trusted.Inline(text)
        if key == "base64"
        else trusted.FileId(text, NAME)
        if key == "fileID"
        else trusted.Url(text)
    )
    kept: dict[str, Any] = {**(beside or {}), **({"image": rest} if rest else {})}
    found = source_of(text) if key == "url" and text[:5].lower() == "data:" else None
    if found is not None:
        source, kind, kept["before"] = found
        if media_type is None and kind is not None:
            media_type, kept["typed"] = kind, True
    return trusted.Image(source, media_type, provider_json=provider_of({NAME: kept}))


def _lists(message: Message, receipt: Receipt) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the blocks, the calls, and the calls that could not be read."""
    blocks: list[Any] = []
    calls: list[Any] = []
    broken: list[Any] = []
    for index, part in enumerate(message.content):
        beside = stored(part, NAME)
        match part:
            case Opaque(wire="deepagents"):
                lists = {"toolCalls": calls, "malformedToolCallBlocks": broken}
                lists.get(string(beside, "in") or "", blocks).append(part.raw_json)
            case Text():
                blocks.append({"text": part.text, "type": "text", **beside})
            case Reasoning():
                blocks.append({"reasoning": part.text, "type": "reasoning", **beside})
            case Image() if (said := _said_image(part, beside)) is not None:
                around = {key: each for key, each in beside.items() if key not in {"image", "before", "typed"}}
                blocks.append({"image": said, "type": "image", **around})
            case ToolCall() if not part.provider_executed:
                arguments = receipt.arguments(part, index)
                said = {"arguments": arguments, "id": _spelled(part.id, beside, "id"), "name": part.name}
                calls.append({**{key: raw for key, raw in beside.items() if key != "id"}, **said})
            case MalformedToolCall():
                broken.append(part.raw)
            case _:
                if (text := receipt.text_for(part, index)) is not None:
                    blocks.append({"text": text, "type": "text"})
    return blocks, calls, broken


def _said_image(part: Image, beside: Fields) -> dict[str, Any] | None:
    typed = {} if part.media_type is None or "typed" in beside else {"mimeType": part.media_type}
    match part.source:
        case Url():
            said = {"url": part.source.url}
        case Inline():
            before = string(beside, "before")
            said = {"base64": part.source.data} if before is None else {"url": before + part.source.data}
        case FileId(wire="deepagents"):
            said = {"fileID": part.source.id}
        case _:
            return None
    whole: dict[str, Any] = {**said, **typed, **inner(beside, "image")}
    return {key: whole[key] for key in sorted(whole)}


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="DeepAgents for Swift messages",
    fidelity="bytes",
    detector=detect,
    record_reader=document_reading(SwiftForm),
    record_writer=list_rendering(SwiftForm),
    layout="document",
    resumes=True,
    extension=".json",
    keeps=("ids (as UUIDs)", "reasoning", "images", "calls that could not be read", "sources"),
    loses=(
        "ids that are not UUIDs",
        "where calls stand among the text",
        "files, audio, video",
        "refusals (as text)",
        "citations",
        "proofs of reasoning",
        "times, usage and model",
        "markers",
    ),
)
