"""The flat log of DeepAgents for Swift: one message on each line (docs/spec/deepagents-swift.md#5).

Read: reasoning, then the text, the URLs of images, calls, and malformed calls. Round, seconds and thread
of a line are kept under ``provider["deepagents_log"]``. The program splits ``<think>`` before it writes a line.

Not represented: ids, images as bytes or files, sources, the order of parts, times below a second, and whatever the
stored form (``deepagents``) cannot represent. Only this library reads it back: it is an export format.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec import Raw, structs

from palaver.core import jsontext, trusted
from palaver.core.messages import (
    AssistantMessage,
    FlushMarker,
    Message,
    RescueMarker,
    SystemMessage,
    ToolMessage,
    holds,
)
from palaver.core.parts import AnyPart, Image, MalformedToolCall, Opaque, Reasoning, Text, ToolCall, Url
from palaver.transcripts.detection import Detection, Head, word
from palaver.transcripts.fields import iso, listed, read_time, split, string, value
from palaver.transcripts.format import TranscriptFormat
from palaver.transcripts.message_list import (
    ABSENT,
    Form,
    Receipt,
    built,
    line_reading,
    list_rendering,
    message_classes,
    provider_of,
    stored,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.core.jsontext import Fields
    from palaver.threads.thread import Entry
    from palaver.transcripts.conversation import Session

NAME: Final = "deepagents_log"

_ROLES: Final = {"system": "system", "user": "human", "assistant": "ai", "tool": "tool", "developer": "system"}
_CLASSES: Final = message_classes(user="human", assistant="ai")
_CALL: Final = frozenset(("id", "name", "arguments", "subagentType"))
_CONTEXT: Final = frozenset(("threadId", "round", "generationSeconds", "subagentType"))


def detect(head: Head) -> Detection | None:
    """Return lines with ``timestamp``, a role of DeepAgents and a string for content."""
    first = head.first
    if word(first, "role") not in _CLASSES or not isinstance(first.get("content"), str):
        return None
    return Detection(0.9) if isinstance(first.get("timestamp"), str) and "type" not in first else None


class LogForm(Form):
    """A line of the log."""

    name: ClassVar[str] = NAME
    extra: ClassVar[str] = NAME
    keys: ClassVar[frozenset[str]] = frozenset(
        (
            "timestamp",
            "modelID",
            "role",
            "content",
            "reasoning",
            "toolCalls",
            "malformedToolCallBlocks",
            "toolName",
            "toolCallID",
            "imageURLs",
        )
    )
    lines: ClassVar[bool] = True
    unsupported: ClassVar[Mapping[str, str]] = {"id": "a line of the log has no id"}

    def begin(self, items: Sequence[Fields | None], session: Session) -> Session:
        """Use the thread of the first line as the session."""
        first = items[0] or {}
        return structs.replace(session, id=string(first, "threadId"), model=string(first, "modelID"))

    # -- reading ---------------------------------------------------------------------------------------------------

    def plain(self, fields: Fields) -> list[Message]:
        """Return the message of a line."""
        role = string(fields, "role") or ""
        cls = _CLASSES.get(role)
        if cls is None or string(fields, "content") is None:
            self.watch.note("unread", f"role {role}", self.line)
            return []
        self.watch.keys(fields, self.keys | _CONTEXT | {"palaver"}, "message", self.line)
        beside: dict[str, Any] = {key: jsontext.own(raw) for key, raw in fields.items() if key not in self.keys}
        beside.pop("palaver", None)
        stamp = string(fields, "timestamp")
        at = read_time(stamp)
        says: dict[str, Any] = {"sent_at": at}
        read = {"role", "content"}
        if at is not None and stamp == _stamp(at):
            read.add("timestamp")
        elif "timestamp" not in fields:
            beside[ABSENT] = ["timestamp"]
        content: list[AnyPart] = []
        if cls is AssistantMessage:
            says["model"] = string(fields, "modelID")
            read |= {"modelID"} if says["model"] is not None else set()
            if (thought := string(fields, "reasoning")) is not None:
                content.append(trusted.Reasoning(thought))
                read.add("reasoning")
        text = string(fields, "content") or ""
        if text or not (content or listed(fields, "toolCalls") or listed(fields, "malformedToolCallBlocks")):
            content.append(trusted.Text(text))
        if cls is not SystemMessage and listed(fields, "imageURLs"):
            content += map(_image, listed(fields, "imageURLs"))
            read.add("imageURLs")
        if cls is AssistantMessage:
            content += map(self._call, listed(fields, "toolCalls"))
            content += map(_malformed, listed(fields, "malformedToolCallBlocks"))
            read |= {key for key in ("toolCalls", "malformedToolCallBlocks") if listed(fields, key)}
        if cls is ToolMessage:
            for key, name in (("tool_call_id", "toolCallID"), ("tool_name", "toolName")):
                says[key] = string(fields, name)
                read |= {name} if says[key] is not None else set()
        beside.update((key, jsontext.own(fields[key])) for key in sorted(self.keys - read) if key in fields)
        return [built(cls, content=tuple(content), provider_json=provider_of({NAME: beside}), **says)]

    def _call(self, raw: Raw) -> AnyPart:
        fields = split(raw)
        called, name, given = string(fields, "id"), string(fields, "name"), fields.get("arguments")
        if called is None or name is None or given is None or jsontext.kind(given) != "an object":
            self.watch.note("block", "tool call", self.line)
            return trusted.Opaque(NAME, jsontext.own(raw), provider_json=provider_of({NAME: {"in": "toolCalls"}}))
        self.watch.keys(fields, _CALL, "toolCalls", self.line)
        beside = {key: each for key, each in fields.items() if key not in {"id", "name", "arguments"}}
        return trusted.ToolCall(called, name, bytes(given).decode(), provider_json=provider_of({NAME: beside}))

    # -- writing ---------------------------------------------------------------------------------------------------

    def write_record(self, entries: Sequence[Entry], receipt: Receipt) -> dict[str, Any] | None:
        """Return the line of a message, its keys sorted."""
        message = entries[0].message
        if isinstance(message, RescueMarker | FlushMarker):
            return None
        beside = stored(message, NAME)
        stamp = string(beside, "timestamp")
        if stamp is None or read_time(stamp) != message.sent_at:
            stamp = _stamp(message.sent_at or 0)
        record: dict[str, Any] = {"timestamp": stamp, "role": _ROLES[message.role], **_lists(message, receipt)}
        if message.sent_at is None and ("timestamp" in beside or value(beside, ABSENT)):
            del record["timestamp"]
        if isinstance(message, AssistantMessage) and message.model is not None:
            record["modelID"] = message.model
        if isinstance(message, ToolMessage):
            named = {"toolCallID": message.tool_call_id, "toolName": message.tool_name}
            record |= {key: each for key, each in named.items() if each is not None}
        record = self.with_rest(record, beside)
        return {key: record[key] for key in sorted(record)}


def _stamp(at: int) -> str:
    """Return a time as the program writes it: whole seconds."""
    return iso(at - at % 1000).replace(".000Z", "Z")


def _image(raw: Raw) -> AnyPart:
    if jsontext.kind(raw) != "a string":
        return trusted.Opaque(NAME, jsontext.own(raw), provider_json=provider_of({NAME: {"in": "imageURLs"}}))
    return trusted.Image(trusted.Url(jsontext.text(raw)))


def _malformed(raw: Raw) -> AnyPart:
    if jsontext.kind(raw) != "a string":
        return trusted.Opaque(
            NAME, jsontext.own(raw), provider_json=provider_of({NAME: {"in": "malformedToolCallBlocks"}})
        )
    return trusted.MalformedToolCall(jsontext.text(raw), "the program could not read it")


def _lists(message: Message, receipt: Receipt) -> dict[str, Any]:
    """Return the parts of a message, one list for each kind."""
    texts: list[str] = []
    thoughts: list[str] = []
    lists: dict[str, list[Any]] = {"imageURLs": [], "malformedToolCallBlocks": [], "toolCalls": []}
    for index, part in enumerate(message.content):
        beside = stored(part, NAME)
        match part:
            case Opaque(wire="deepagents_log"):
                lists[string(beside, "in") or "toolCalls"].append(part.raw_json)
            case Text():
                texts.append(part.text)
            case Reasoning():
                thoughts.append(part.text)
            case Image(source=Url() as source) if holds(type(message), part):
                lists["imageURLs"].append(source.url)
            case ToolCall() if not part.provider_executed:
                arguments = receipt.arguments(part, index)
                lists["toolCalls"].append({"arguments": arguments, "id": part.id, "name": part.name, **beside})
            case MalformedToolCall():
                lists["malformedToolCallBlocks"].append(part.raw)
            case _:
                if (text := receipt.text_for(part, index)) is not None:
                    texts.append(text)
    record: dict[str, Any] = {"content": "".join(texts), **{key: each for key, each in lists.items() if each}}
    if thoughts:
        record["reasoning"] = "\n\n".join(thoughts)
    return record


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="DeepAgents for Swift logs",
    fidelity="bytes",
    detector=detect,
    record_reader=line_reading(LogForm),
    record_writer=list_rendering(LogForm),
    keeps=("times (in seconds)", "model of each answer", "reasoning", "calls that could not be read"),
    loses=(
        "ids",
        "images that are not URLs",
        "order of parts",
        "sources",
        "files, audio, video",
        "proofs of reasoning",
        "usage",
        "markers",
    ),
)
