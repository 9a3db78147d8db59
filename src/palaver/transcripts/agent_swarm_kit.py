"""Histories of agent-swarm-kit: its messages as a list, or one to a file as it stores them.

Source: docs/spec/message-fields.md#5.

Read: ``content`` is a text part (none when it is empty beside calls), ``images`` image parts, ``tool_calls`` calls; the
role ``resque`` (or ``rescue``) is a rescue marker of scope ``thread`` with ``content`` as its reason, ``flush`` a flush
marker. ``payload`` is unset, ``null`` or a value. A message with calls in another role than ``assistant`` becomes an
assistant's message; its role is kept beside it. Keys of a completion are kept under ``provider["agent_swarm_kit"]``.

Not represented: ids and times, the order of text, images and calls, reasoning, files, audio, video, results as
JSON, failed results, malformed calls (they become text), usage and model, tags, sources, metadata, the scope of a
marker. Every message needs an agent and a mode: if it has none, ``agent`` and the mode of its role are written.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec import UNSET, Raw

from palaver.core import jsontext, trusted
from palaver.core.messages import (
    AssistantMessage,
    DeveloperMessage,
    FlushMarker,
    Message,
    RescueMarker,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from palaver.core.parts import AnyPart, Image, Inline, MalformedToolCall, Opaque, Text, ToolCall, settled
from palaver.transcripts.detection import Detection, Head, word
from palaver.transcripts.fields import inner, listed, split, string, value
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
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.core.jsontext import Fields
    from palaver.threads.thread import Entry

NAME: Final = "agent_swarm_kit"
AGENT: Final = "agent"
"""The ``agentName`` of a message without an agent: the program's own names are never empty."""

_MODES: Final = frozenset(("user", "tool"))
_CLASSES: Final[dict[str, type[Any]]] = {
    **message_classes(),
    "developer": DeveloperMessage,
    "resque": RescueMarker,
    "rescue": RescueMarker,
    "flush": FlushMarker,
}
_ROLES: Final = {"rescue": "resque"}
_CALL: Final = frozenset(("id", "type", "function"))
_FUNCTION: Final = frozenset(("name", "arguments"))


def detect(head: Head) -> Detection | None:
    """Return messages with an ``agentName`` and a ``mode``."""
    found, most = known_messages(head, _CLASSES)
    if not most:
        return empty(head)
    named = [each for each in found if "agentName" in each and word(each, "mode") in _MODES and "content" in each]
    if not named:
        return None
    return Detection(0.95 if len(named) * 2 >= len(found) else 0.7)


class SwarmForm(Form):
    """A message of agent-swarm-kit."""

    name: ClassVar[str] = NAME
    extra: ClassVar[str] = NAME
    keys: ClassVar[frozenset[str]] = frozenset(
        ("role", "agentName", "mode", "content", "tool_calls", "images", "tool_call_id", "payload")
    )
    always: ClassVar[frozenset[str]] = frozenset(("agentName", "mode", "content"))
    unsupported: ClassVar[Mapping[str, str]] = {
        "id": "a message of agent-swarm-kit has no id",
        "sent_at": "a message of agent-swarm-kit has no time",
    }

    # -- reading ---------------------------------------------------------------------------------------------------

    def plain(self, fields: Fields) -> list[Message]:
        """Return the messages of a record."""
        role = string(fields, "role") or ""
        cls = _CLASSES.get(role)
        if cls is None:
            self.watch.note("unread", f"role {role}", self.line)
            return []
        beside = self.rest(fields)
        calls = listed(fields, "tool_calls")
        if calls and cls in {UserMessage, ToolMessage, SystemMessage, DeveloperMessage}:
            self.watch.note("value", f"tool_calls of role {role}", self.line)
            cls, beside["role"] = AssistantMessage, jsontext.raw(role)
        elif role == "rescue":
            beside["role"] = jsontext.raw(role)
        says: dict[str, Any] = self._shared(fields, beside)
        text = self._one(fields, "content", beside)
        if cls in {RescueMarker, FlushMarker}:
            says["reason"] = text or ""
            if cls is RescueMarker:  # the original's hides all messages before it, from every agent
                says["scope"] = "thread"
            self._leave(fields, beside, "tool_calls", "images", "tool_call_id")
        else:
            says["content"] = self._content(cls, fields, text, beside)
        if cls is ToolMessage:
            says["tool_call_id"] = self._one(fields, "tool_call_id", beside)
            says["tool_name"] = self.tools.get(says["tool_call_id"] or "")
        else:
            self._leave(fields, beside, "tool_call_id")
        made = built(cls, provider_json=provider_of({NAME: beside}), **says)
        self.tools.update((call.id, call.name) for call in made.tool_calls)
        return [made]

    def _shared(self, fields: Fields, beside: dict[str, Any]) -> dict[str, Any]:
        mode = string(fields, "mode")
        if mode not in _MODES:
            self._leave(fields, beside, "mode")
        return {
            "agent": self._one(fields, "agentName", beside),
            "mode": mode if mode in _MODES else None,
            "payload_json": jsontext.own(fields["payload"]) if "payload" in fields else UNSET,
        }

    def _one(self, fields: Fields, key: str, beside: dict[str, Any]) -> str | None:
        """Return a string; any other value is kept beside the message."""
        found = string(fields, key)
        if found is None:
            self._leave(fields, beside, key)
        return found

    def _leave(self, fields: Fields, beside: dict[str, Any], *keys: str) -> None:
        beside.update((key, jsontext.own(fields[key])) for key in keys if key in fields)

    def _content(self, cls: type[Any], fields: Fields, text: str | None, beside: dict[str, Any]) -> tuple[AnyPart, ...]:
        calls, images = listed(fields, "tool_calls"), listed(fields, "images")
        parts: list[AnyPart] = []
        if text is not None and (text or not calls):
            parts.append(trusted.Text(text))
        if cls in {SystemMessage, DeveloperMessage}:
            self._leave(fields, beside, "images")
        else:
            parts += map(self._image, images)
        for key, found in (("tool_calls", calls), ("images", images)):
            if not found:
                self._leave(fields, beside, key)
        parts += map(self._call, calls)
        return tuple(parts)

    def _image(self, raw: Raw) -> Image | Opaque:
        found = source_of(jsontext.text(raw)) if jsontext.kind(raw) == "a string" else None
        if found is None or (isinstance(found[0], Inline) and not found[0].valid):
            self.watch.note("block", "image", self.line)
            return trusted.Opaque(NAME, jsontext.own(raw))
        source, media_type, before = found
        plain = "" if media_type is None else f"data:{media_type};base64,"
        beside = {"before": before} if before != plain and isinstance(source, Inline) else {}
        return trusted.Image(source, media_type, provider_json=provider_of({NAME: beside}))

    def _call(self, raw: Raw) -> AnyPart:
        fields = split(raw)
        function = inner(fields, "function")
        arguments = function.get("arguments")
        called, named = string(fields, "id"), string(function, "name")
        kind = "" if arguments is None else jsontext.kind(arguments)
        if called is None or named is None or arguments is None or kind not in {"an object", "a string"}:
            self.watch.note("block", "tool call", self.line)
            return trusted.Opaque(NAME, jsontext.own(raw), provider_json=provider_of({NAME: {"in": "tool_calls"}}))
        self.watch.keys(fields, _CALL, "tool_calls", self.line)
        self.watch.keys(function, _FUNCTION, "tool_calls.function", self.line)
        beside: dict[str, Any] = {key: each for key, each in fields.items() if key not in {"id", "function"}}
        if string(fields, "type") == "function":
            del beside["type"]
        elif "type" not in fields:
            beside[ABSENT] = ["type"]
        within = {key: each for key, each in function.items() if key not in _FUNCTION}
        if within:
            beside["function"] = within
        text = kind == "a string"
        if text:
            beside["text"] = True
        said = jsontext.text(arguments) if text else bytes(arguments).decode()
        return settled(trusted.ToolCall(called, named, said, provider_json=provider_of({NAME: beside})))

    # -- writing ---------------------------------------------------------------------------------------------------

    def write_record(self, entries: Sequence[Entry], receipt: Receipt) -> dict[str, Any]:
        """Return the record of a message."""
        message = entries[0].message
        beside = stored(message, NAME)
        absent: list[str] = value(beside, ABSENT) or []
        role = string(beside, "role")
        record: dict[str, Any] = {"role": _ROLES.get(message.role, message.role) if role is None else role}
        if message.agent is not None or not {"agentName"} & {*absent, *beside}:
            record["agentName"] = AGENT if message.agent is None else message.agent
        if message.mode is not None or not {"mode"} & {*absent, *beside}:
            record["mode"] = message.mode or _mode_of(message)
        match message:
            case RescueMarker() | FlushMarker():
                record["content"] = message.reason
            case _:
                record |= self._parts(message, receipt)
        if isinstance(message, ToolMessage) and message.tool_call_id is not None:
            record["tool_call_id"] = message.tool_call_id
        if message.payload_json is not UNSET:
            record["payload"] = message.payload_json
        return self.with_rest(record, {key: raw for key, raw in beside.items() if key != "role"})

    def _parts(self, message: Message, receipt: Receipt) -> dict[str, Any]:
        texts: list[str] = []
        images: list[Any] = []
        calls: list[Any] = []
        for index, part in enumerate(message.content):
            match part:
                case Text():
                    texts.append(part.text)
                case Image() if (text := text_of(part, string(stored(part, NAME), "before"))) is not None:
                    images.append(text)
                case ToolCall() if not part.provider_executed:
                    beside = stored(part, NAME)
                    calls.append(
                        _call(part, part.arguments_json if "text" in beside else receipt.arguments(part, index))
                    )
                case MalformedToolCall() if "text" in stored(part, NAME):
                    calls.append(_call(part, part.raw))
                case Opaque(wire="agent_swarm_kit"):
                    (calls if "in" in stored(part, NAME) else images).append(part.raw_json)
                case _:
                    if (text := receipt.text_for(part, index)) is not None:
                        texts.append(text)
        record: dict[str, Any] = {"content": "".join(texts)}
        if calls:
            record["tool_calls"] = calls
        if images:
            record["images"] = images
        return record


def _mode_of(message: Message) -> str:
    """Return the mode of a message without one: of a person's input, or of a turn."""
    return "user" if isinstance(message, UserMessage) and message.source is None else "tool"


def _call(call: ToolCall | MalformedToolCall, arguments: str | Raw) -> dict[str, Any]:
    beside = stored(call, NAME)
    function: dict[str, Any] = {"name": call.name, "arguments": arguments, **inner(beside, "function")}
    record: dict[str, Any] = {"id": call.id, "type": "function", "function": function}
    if value(beside, ABSENT):
        del record["type"]
    return {**record, **{key: raw for key, raw in beside.items() if key not in {"function", "text", ABSENT}}}


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="agent-swarm-kit histories",
    fidelity="bytes",
    detector=detect,
    record_reader=document_reading(SwarmForm),
    record_writer=list_rendering(SwarmForm),
    layout="document",
    history="all",
    extension=".json",
    message_files=True,
    keeps=("agents and modes", "payloads", "rescue and flush markers", "images", "tool calls and results"),
    loses=(
        "ids and times",
        "reasoning",
        "order of text, images and calls",
        "audio, video, files",
        "failed results",
        "malformed calls (as text)",
        "usage and model",
    ),
)
