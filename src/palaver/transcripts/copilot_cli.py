"""Sessions of Copilot CLI: a log of events, ``events.jsonl`` in the folder of a session, once ``<session>.jsonl``.

Read: an event is ``{type, data, id, timestamp, parentId}``. ``user.message``, ``assistant.message``, ``system.message``
and ``tool.execution_complete`` are messages; any other event is a record. An answer has its reasoning
(``reasoningText`` with ``reasoningOpaque`` or ``encryptedContent`` as its proof), its text, its calls
(``toolRequests``), its model and its ``outputTokens``: the log has no other counters of an answer. A message of a
sub-agent has the id of that, or of the call that started it, as its ``agent``. ``session.compaction_complete`` with a
summary hides the events before it. What the model was sent in place of a prompt (``transformedContent``), attachments
and further results stay beside the message.

Not represented: the order of reasoning, text and calls, media, results that are not text, counters of input, markers
(carried beside the next message).

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec import structs

from palaver.core import jsontext, trusted
from palaver.core.messages import (
    AssistantMessage,
    DeveloperMessage,
    FlushMarker,
    RescueMarker,
    SystemMessage,
    ToolMessage,
)
from palaver.core.parts import Opaque, Reasoning, Text, ToolCall
from palaver.threads.ids import is_uuid, now_ms
from palaver.transcripts import extension_slot
from palaver.transcripts.conversation import COMPACTION, derived_id, hidden_before, session_of
from palaver.transcripts.detection import Detection
from palaver.transcripts.fields import (
    as_object,
    either,
    inner,
    integer,
    iso,
    kind_of,
    listed,
    one_line,
    read_time,
    split,
    string,
    value,
)
from palaver.transcripts.format import TranscriptFormat
from palaver.transcripts.message_list import (
    Form,
    Receipt,
    line_reading,
    list_rendering,
    provider_of,
    stored,
    with_next,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from msgspec import Raw

    from palaver.core.jsontext import Fields
    from palaver.core.messages import Message
    from palaver.threads.thread import Entry
    from palaver.transcripts.conversation import Session
    from palaver.transcripts.detection import Head
    from palaver.transcripts.writer import WriteState

NAME: Final = "copilot_cli"
RESPONSES: Final = "openai_responses"
"""The wire of encrypted reasoning."""

_ENVELOPE: Final = frozenset(("type", "data", "id", "timestamp", "parentId"))
_FAMILIES: Final = ("session.", "user.", "assistant.", "tool.", "system.", "subagent.", "hook.", "skill.", "model.")
_READ: Final = {
    "user.message": frozenset(("content",)),
    "system.message": frozenset(("content", "role")),
    "assistant.message": frozenset(
        ("content", "toolRequests", "reasoningText", "reasoningOpaque", "encryptedContent", "outputTokens", "model")
    ),
    "tool.execution_complete": frozenset(("toolCallId", "success", "result", "error")),
    "session.compaction_complete": frozenset(("summaryContent",)),
}
"""The data of the events that are messages, as far as it is in them; the rest stays beside."""
_REQUEST: Final = frozenset(("toolCallId", "name", "arguments"))


def detect(head: Head) -> Detection | None:
    """Return events of a session, with data, a time and a place in the chain."""
    first = head.first
    data = first.get("data")
    if first.get("type") == "session.start" and isinstance(data, dict) and "sessionId" in data:
        return Detection(1.0, str(first["data"].get("version", "")) or None)
    found = [each for each in head.lines if _is_event(each)]
    return Detection(0.9) if found and len(found) * 2 >= len(head.lines) else None


def _is_event(record: Mapping[str, Any]) -> bool:
    kind = record.get("type")
    if not isinstance(kind, str) or not isinstance(record.get("data"), dict):
        return False
    return kind.startswith(_FAMILIES) and "id" in record and "timestamp" in record


class EventForm(Form):
    """An event of a session."""

    name: ClassVar[str] = NAME
    extra: ClassVar[str] = NAME
    keys: ClassVar[frozenset[str]] = _ENVELOPE
    lines: ClassVar[bool] = True
    _last: str | None = None
    """The id of the event that was written last."""
    _session = ""
    _begun = 0
    _at = 0

    def begin(self, items: Sequence[Fields | None], session: Session) -> Session:
        """Use the first event as the session."""
        first = items[0] or {}
        if string(first, "type") != "session.start":
            return session
        data = inner(first, "data")
        context = inner(data, "context")
        return structs.replace(
            session,
            id=string(data, "sessionId"),
            format=None if "version" not in data else str(value(data, "version")),
            program=string(data, "copilotVersion"),
            model=string(data, "selectedModel"),
            cwd=string(context, "cwd"),
            branch=string(context, "branch"),
            started_at=read_time(value(data, "startTime")),
        )

    def id_of(self, fields: Fields) -> str | None:
        """Return the id of an event."""
        return string(fields, "id")

    def holds(self, message: Message) -> bool:
        """Return whether there is an event for a message."""
        return not isinstance(message, RescueMarker | FlushMarker)

    def groups(self, entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        """Put markers with the message after them."""
        return with_next(entries, self.holds)

    # -- reading ---------------------------------------------------------------------------------------------------

    def plain(self, fields: Fields) -> list[Message]:
        """Return the message of an event; empty for one that has none."""
        kind, data = string(fields, "type") or "", inner(fields, "data")
        self.watch.keys(fields, _ENVELOPE | {"ephemeral", "agentId", extension_slot.SLOT}, "event", self.line)
        if kind == "tool.execution_start" and (called := string(data, "toolCallId")) is not None:
            self.tools[called] = string(data, "toolName") or ""
        if kind not in _READ:
            if not kind.startswith((*_FAMILIES, "abort")):
                self.watch.note("record", kind or "without a type", self.line)
            return []
        at = read_time(value(fields, "timestamp"))
        beside = provider_of({NAME: self._beside(fields, data, kind)})
        agent = string(fields, "agentId") or string(data, "agentId") or string(data, "parentToolCallId")
        says: dict[str, Any] = {"sent_at": at, "provider_json": beside}
        match kind:
            case "user.message":
                return [trusted.UserMessage(content=_text(data, "content"), **says)]
            case "system.message":
                cls = DeveloperMessage if string(data, "role") == "developer" else SystemMessage
                return [cls(content=_text(data, "content"), **says)]
            case "assistant.message":
                return [self._answer(data, says, agent)]
            case "tool.execution_complete":
                return [self._result(data, says, agent)]
            case _:
                return self._summary(data, says)

    def _beside(self, fields: Fields, data: Fields, kind: str) -> dict[str, Any]:
        own = {key: jsontext.own(raw) for key, raw in data.items() if key not in _READ[kind]}
        out = {
            key: jsontext.own(raw) for key, raw in fields.items() if key not in _ENVELOPE and key != extension_slot.SLOT
        }
        return {**({"data": own} if own else {}), **out}

    def _answer(self, data: Fields, says: dict[str, Any], agent: str | None) -> AssistantMessage:
        made = integer(data, "outputTokens")
        calls = [self._call(raw) for raw in listed(data, "toolRequests")]
        return trusted.AssistantMessage(
            content=(*_reasoning(data), *_text(data, "content"), *calls),
            model=string(data, "model"),
            usage=None if made is None else trusted.Usage(output=made),
            agent=agent,
            **says,
        )

    def _call(self, raw: Raw) -> ToolCall | Opaque:
        fields = split(raw)
        called, name = string(fields, "toolCallId"), string(fields, "name")
        given = fields.get("arguments", jsontext.EMPTY_OBJECT)
        if called is None or name is None:
            self.watch.note("block", "tool request", self.line)
            return trusted.Opaque(NAME, jsontext.own(raw))
        self.tools[called] = name
        beside = {key: jsontext.own(each) for key, each in fields.items() if key not in _REQUEST}
        if beside == {"type": jsontext.raw("function")}:
            beside = {}
        text = jsontext.text(given) if jsontext.kind(given) == "a string" else bytes(given).decode()
        return trusted.ToolCall(called, name, text, provider_json=provider_of({NAME: beside}))

    def _result(self, data: Fields, says: dict[str, Any], agent: str | None) -> ToolMessage:
        called = string(data, "toolCallId")
        result = data.get("result")
        kind = either(result, "result", "an object", "a string")
        content = _text(data, "result") if kind == "a string" else _text(as_object(result) if result else {}, "content")
        if not content:
            content = _text(inner(data, "error"), "message")
        return trusted.ToolMessage(
            content=content,
            tool_call_id=called,
            tool_name=self.tools.get(called or "") or None,
            is_error=value(data, "success") is False,
            agent=agent,
            **says,
        )

    def _summary(self, data: Fields, says: dict[str, Any]) -> list[Message]:
        content = _text(data, "summaryContent")
        if not content:
            return []
        return [hidden_before(says["sent_at"]), trusted.UserMessage(content=content, source=COMPACTION, **says)]

    # -- writing ---------------------------------------------------------------------------------------------------

    def start(self, writing: WriteState) -> None:
        """Choose the session's id and time; a session that is continued goes on at its last event."""
        session = session_of(writing.metadata)
        times = (entry.message.sent_at for entry in writing.entries)
        self._at = self._begun = session.started_at or next((at for at in times if at is not None), None) or now_ms()
        named = session.id if session.id is not None and is_uuid(session.id) else derived_id(NAME, writing.thread.id)
        self._session = named
        self._last = None if writing.native else derived_id(NAME, named, "start")

    def head(self, writing: WriteState) -> bytes:
        """Return the start of a session."""
        session = session_of(writing.metadata)
        data: dict[str, Any] = {
            "sessionId": self._session,
            "version": 1,
            "producer": "copilot-agent",
            "copilotVersion": session.program if session.file_format == NAME and session.program else "1.0.0",
            "startTime": iso(self._begun),
            "context": {"cwd": session.cwd or "/"},
        }
        named = derived_id(NAME, self._session, "start")
        return jsontext.encode(
            {"type": "session.start", "data": data, "id": named, "timestamp": iso(self._begun), "parentId": None}
        )

    def write_record(self, entries: Sequence[Entry], receipt: Receipt) -> dict[str, Any] | None:
        """Return the event of a message."""
        found = next(((place, entry) for place, entry in enumerate(entries) if self.holds(entry.message)), None)
        if found is None:
            return None
        place, entry = found
        message = entry.message
        kept = stored(message, NAME)
        self._at = self._at if message.sent_at is None else message.sent_at
        summary = isinstance(entries[0].message, FlushMarker) and message.source == COMPACTION
        kind, data = self._said(message, receipt, place, summary=summary)
        own = inner(kept, "data")
        named = entry.id if is_uuid(entry.id) else derived_id(NAME, entry.id)
        before, self._last = self._last if self._last is not None else entries[0].parent, named
        return {
            "type": kind,
            "data": {**{key: raw for key, raw in own.items() if key not in data}, **data},
            "id": named,
            "timestamp": iso(self._at),
            "parentId": before,
            **{key: raw for key, raw in kept.items() if key != "data"},
        }

    def _said(self, message: Message, receipt: Receipt, place: int, *, summary: bool) -> tuple[str, dict[str, Any]]:
        """Return the type of an event, and its data."""
        texts: list[str] = []
        thoughts: list[Reasoning] = []
        calls: list[Any] = []
        for index, part in enumerate(message.content):
            match part:
                case Text():
                    texts.append(part.text)
                case Reasoning():
                    thoughts.append(part)
                case ToolCall() if not part.provider_executed:
                    arguments = one_line(bytes(receipt.arguments(part, index, place)).decode())
                    beside = stored(part, NAME) or {"type": jsontext.raw("function")}
                    calls.append({"toolCallId": part.id, "name": part.name, "arguments": arguments, **beside})
                case _:
                    if (text := receipt.text_for(part, index, place)) is not None:
                        texts.append(text)
        said = "".join(texts)
        if summary:
            return "session.compaction_complete", {"success": True, "summaryContent": said}
        match message:
            case AssistantMessage():
                data: dict[str, Any] = {"content": said, "toolRequests": calls, **_proof(thoughts)}
                if message.model is not None:
                    data["model"] = message.model
                if message.usage is not None and message.usage.output is not None:
                    data["outputTokens"] = message.usage.output + (message.usage.reasoning or 0)
                return "assistant.message", data
            case ToolMessage():
                body = {"error": {"message": said}} if message.is_error else {"result": {"content": said}}
                called = message.tool_call_id or ""
                return "tool.execution_complete", {"toolCallId": called, "success": not message.is_error, **body}
            case SystemMessage() | DeveloperMessage():
                return "system.message", {"content": said, "role": message.role}
            case _:
                return "user.message", {"content": said}


def _text(fields: Fields, key: str) -> tuple[Text, ...]:
    """Return a text, as content; none when it is empty."""
    found = string(fields, key) if kind_of(fields, key) != "null" else None
    return (trusted.Text(found),) if found else ()


def _reasoning(data: Fields) -> tuple[Reasoning, ...]:
    text, sealed = string(data, "reasoningText"), string(data, "encryptedContent")
    proof = string(data, "reasoningOpaque")
    if not (text or sealed or proof):
        return ()
    return (trusted.Reasoning(text or "", proof, encrypted=sealed, wire=RESPONSES if sealed else NAME),)


def _proof(thoughts: Sequence[Reasoning]) -> dict[str, Any]:
    """Return the reasoning of an answer, as one text; a proof that the program can send again."""
    if not thoughts:
        return {}
    data: dict[str, Any] = {"reasoningText": "\n\n".join([part.text for part in thoughts if part.text])}
    last = thoughts[-1]
    if last.signature is not None and last.wire in {NAME, RESPONSES}:
        data["reasoningOpaque"] = last.signature
    if last.encrypted is not None and last.wire == RESPONSES:
        data["encryptedContent"] = last.encrypted
    return data


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="Copilot CLI sessions",
    fidelity="bytes",
    detector=detect,
    record_reader=line_reading(EventForm),
    record_writer=list_rendering(EventForm),
    history="model",
    keeps=(
        "reasoning with its proof",
        "model and output tokens of each answer",
        "times and ids",
        "tool errors",
        "compactions",
        "system prompts",
    ),
    loses=(
        "the order of reasoning, text and calls",
        "media, results as JSON (kept beside)",
        "input tokens",
        "branches",
        "markers",
    ),
)
