"""pi sessions, versions 1 to 3 (dialects.md 6).

Read: an entry with a message is a message; ``bashExecution`` is what the user is told to have run, ``custom`` messages
and summaries of branches are user messages with a ``source``. A ``compaction`` hides what stands before it: its
summary and the entries that it kept follow with ``source="compaction"``. ``thinkingSignature`` and
``thoughtSignature`` are the proof of the wire that ``api`` names. Aborted turns stay as they are.

What it cannot say: system and developer messages (pi writes its own prompt; they are kept in ``custom`` entries, which
pi never sends), audio, video and files, citations, refusals as such, markers, arguments that are no JSON object (they
become text). pi reads version 3, which is what is written; all branches are.

Stability: experimental.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, assert_never, cast

from msgspec import UNSET, Raw, structs

from palaver.core import jsontext
from palaver.core.errors import DecodeError
from palaver.core.messages import (
    AssistantMessage,
    DeveloperMessage,
    FinishReason,
    FlushMarker,
    Message,
    RescueMarker,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from palaver.core.parts import (
    AnyPart,
    Image,
    Inline,
    Json,
    MalformedToolCall,
    Opaque,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
)
from palaver.core.usage import Usage
from palaver.dialects import carrying
from palaver.dialects.conversation import (
    COMPACTION,
    Conversation,
    Session,
    Step,
    copied,
    derived_id,
    hidden_before,
    record_message,
    session_of,
)
from palaver.dialects.dialect import Dialect, Origin
from palaver.dialects.drift import Watch
from palaver.dialects.fields import inner, integer, one_line, string, value, wire_of
from palaver.dialects.sight import Head, Sighting
from palaver.dialects.times import iso, read_time
from palaver.dialects.writing import Writing
from palaver.threads.ids import is_uuid, now_ms

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from palaver.core.jsontext import Fields
    from palaver.dialects.record import Record
    from palaver.threads.thread import Entry

NAME: Final = "pi"
VERSION: Final = 3

_WIRES: Final = {
    "anthropic-messages": "anthropic_messages",
    "openai-completions": "openai_chat",
    "openai-responses": "openai_responses",
    "openai-codex-responses": "openai_responses",
    "azure-openai-responses": "openai_responses",
    "google-generative-ai": "google_generate",
    "google-gemini-cli": "google_generate",
    "google-vertex": "google_generate",
    "bedrock-converse-stream": "bedrock_converse",
}
_APIS: Final = {wire: api for api, wire in reversed(_WIRES.items())}
_PROVIDERS: Final = {
    "anthropic_messages": "anthropic",
    "openai_responses": "openai",
    "google_generate": "google",
    "bedrock_converse": "amazon-bedrock",
}
_FINISH: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "toolUse": "tool_calls",
    "error": "error",
    "aborted": "other",
}
_STOPS: Final = {"length": "length", "tool_calls": "toolUse", "error": "error"}

_ENTRY: Final = frozenset(("type", "id", "parentId", "timestamp", carrying.SLOT))
_KEYS: Final = {
    "session": _ENTRY | {"version", "cwd", "parentSession", "provider", "modelId", "thinkingLevel"},
    "message": _ENTRY | {"message"},
    "model_change": _ENTRY | {"provider", "modelId"},
    "thinking_level_change": _ENTRY | {"thinkingLevel"},
    "compaction": _ENTRY
    | {"summary", "firstKeptEntryId", "firstKeptEntryIndex", "tokensBefore", "details", "fromHook"},
    "branch_summary": _ENTRY | {"fromId", "summary", "details", "fromHook"},
    "custom": _ENTRY | {"customType", "data"},
    "custom_message": _ENTRY | {"customType", "content", "display", "details"},
    "label": _ENTRY | {"targetId", "label"},
    "session_info": _ENTRY | {"name"},
}
_ROLES: Final = {
    "user": frozenset(("role", "content", "timestamp")),
    "assistant": frozenset(
        (
            "role",
            "content",
            "api",
            "provider",
            "model",
            "usage",
            "stopReason",
            "errorMessage",
            "timestamp",
            "responseId",
        )
    ),
    "toolResult": frozenset(("role", "toolCallId", "toolName", "content", "details", "isError", "timestamp")),
    "bashExecution": frozenset(
        (
            "role",
            "command",
            "output",
            "exitCode",
            "cancelled",
            "truncated",
            "fullOutputPath",
            "timestamp",
            "excludeFromContext",
        )
    ),
    "custom": frozenset(("role", "customType", "content", "display", "details", "timestamp")),
    "hookMessage": frozenset(("role", "customType", "content", "display", "details", "timestamp")),
    "branchSummary": frozenset(("role", "summary", "fromId", "timestamp")),
    "compactionSummary": frozenset(("role", "summary", "tokensBefore", "timestamp")),
}
_BLOCKS: Final = {
    "text": frozenset(("type", "text", "textSignature")),
    "thinking": frozenset(("type", "thinking", "thinkingSignature", "redacted")),
    "image": frozenset(("type", "data", "mimeType")),
    "toolCall": frozenset(("type", "id", "name", "arguments", "thoughtSignature", "partialJson")),
}


def sees(head: Head) -> Sighting | None:
    """A header of type ``session`` with ``id`` and ``cwd``; with ``harness`` it is HF STS."""
    first = head.first
    if first.get("type") != "session" or "harness" in first or "id" not in first:
        return None
    version = first.get("version", 1)
    return Sighting(1.0 if "cwd" in first else 0.7, str(version))


# -- reading -----------------------------------------------------------------------------------------------------------


class _Reading:
    def __init__(self, origin: Origin, watch: Watch) -> None:
        self._origin = origin
        self._watch = watch
        self._conversation: Conversation | None = None
        self._session = Session(dialect=NAME)
        self._title: str | None = None
        self._kept: list[
            tuple[str, int, Message | None]
        ] = []  # on the line since the last compaction: id, index, message
        self._index = 0

    def record(self, record: Record) -> Iterator[Step]:
        """Read the next entry."""
        if self._conversation is None:
            yield from self._begin(record)
        conversation = cast("Conversation", self._conversation)
        fields = record.fields
        if fields is None:
            yield from conversation.record(record)
            return
        kind = string(fields, "type")
        known = _KEYS.get(kind or "")
        if known is None:
            self._watch.note("record", kind or "without a type", record.line)
        else:
            self._watch.keys(fields, known, kind or "", record.line)
        yield from self._entry(conversation, record, fields, kind)
        self._index += 1

    def end(self) -> Iterator[Step]:
        """Name the leaf: the last entry of the file."""
        if self._conversation is not None:
            yield self._conversation.ended(title=self._title, metadata=self._session.metadata())

    def plain(self, fields: Fields) -> list[Message]:
        """What an entry says, without what it carries."""
        return self._plain(fields, string(fields, "type"), 0) or []

    def _begin(self, record: Record) -> Iterator[Step]:
        fields = record.fields or {}
        named = string(fields, "id")
        more = {key: jsontext.value(fields[key]) for key in ("parentSession",) if key in fields}
        self._session = Session(
            dialect=NAME,
            id=named,
            format=str(value(fields, "version") or 1),
            cwd=string(fields, "cwd"),
            model=string(fields, "modelId"),
            started_at=read_time(value(fields, "timestamp")),
            more=more,
        )
        thread = named if named is not None and is_uuid(named) else derived_id(NAME, named or self._origin.name)
        self._conversation = Conversation(NAME, thread)
        yield self._conversation.began()

    def _entry(self, conversation: Conversation, record: Record, fields: Fields, kind: str | None) -> Iterator[Step]:
        named, parent = string(fields, "id") if kind != "session" else None, string(fields, "parentId")
        follows = UNSET if "parentId" not in fields or (parent is not None and parent not in conversation) else parent
        if parent is not None and parent not in conversation and kind != "session":
            self._watch.note("link", "parentId", record.line)
        sent_at = read_time(value(fields, "timestamp"))
        if kind == "session_info":
            self._title = string(fields, "name") or self._title
        group = self._messages(fields, kind, sent_at, record.line)
        if isinstance(follows, str) or follows is None:
            self._back_to(parent)
        if group is None:
            self._kept.append((named or "", self._index, None))
            yield from conversation.record(record, id=named, parent=follows, sent_at=sent_at)
            return
        if kind == "compaction":
            kept = self._tail(fields)
            said = [copied(each) for _, _, each in kept if each is not None]
            summary = group[-1]
            self._kept = [("", -1, summary), *kept, (named or "", self._index, None)]
            marker = group[:-1] or [hidden_before(sent_at)]
            group = [record_message(sent_at), *marker, summary, *said]
        else:
            self._kept += [(named or "", self._index, each) for each in group]
        # The id of a compaction is that of its last message: what names it as its parent follows all of them.
        ids = [*[None] * (len(group) - 1), named] if kind == "compaction" else [named]
        yield from conversation.join(group, [record], ids=ids, parent=follows)

    def _back_to(self, parent: str | None) -> None:
        """Forget what does not stand on the line of an entry that follows ``parent``."""
        while self._kept and self._kept[-1][0] != parent:
            self._kept.pop()

    def _tail(self, fields: Fields) -> list[tuple[str, int, Message | None]]:
        """What a compaction kept of the line before it."""
        first, index = string(fields, "firstKeptEntryId"), value(fields, "firstKeptEntryIndex")
        for place, (each, at, _) in enumerate(self._kept):
            if each == first if first is not None else isinstance(index, int) and at >= index:
                return self._kept[place:]
        return []

    def _messages(self, fields: Fields, kind: str | None, sent_at: int | None, line: int) -> list[Message] | None:
        """What an entry says; ``None`` when it says nothing to anybody."""
        try:
            plain = self._plain(fields, kind, line)
        except DecodeError as error:
            self._watch.note("value", str(error), line)
            return None
        slot = jsontext.value(fields[carrying.SLOT]) if carrying.SLOT in fields else None
        if kind == "custom" and string(fields, "customType") == carrying.SLOT and "data" in fields:
            slot, plain = jsontext.value(fields["data"]), []
        restored = None if slot is None else carrying.restored(plain or (), slot)
        group = list(restored) if restored is not None else plain
        if not group:
            return None
        return [structs.replace(each, sent_at=sent_at) if each.sent_at is None else each for each in group]

    def _plain(self, fields: Fields, kind: str | None, line: int) -> list[Message] | None:
        match kind:
            case "message" if "message" in fields:
                message = self._message(jsontext.fields(fields["message"]), line)
                return None if message is None else [message]
            case "compaction":
                return [UserMessage(content=(Text(string(fields, "summary") or ""),), source=COMPACTION)]
            case "branch_summary":
                return [UserMessage(content=(Text(string(fields, "summary") or ""),), source="branch_summary")]
            case "custom_message":
                return [self._custom(fields, line)]
            case _:
                return None

    def _message(self, fields: Fields, line: int) -> Message | None:
        role = string(fields, "role")
        known = _ROLES.get(role or "")
        if known is None:
            self._watch.note("record", f"message of role {role}", line)
            return None
        self._watch.keys(fields, known, f"message.{role}", line)
        sent_at = read_time(value(fields, "timestamp"))
        match role:
            case "user":
                content: Any = self._content(fields, line)
                return UserMessage(content=content, sent_at=sent_at)
            case "assistant":
                return self._assistant(fields, line, sent_at)
            case "toolResult":
                content = self._content(fields, line)
                return ToolMessage(
                    content=content,
                    tool_call_id=string(fields, "toolCallId"),
                    tool_name=string(fields, "toolName"),
                    is_error=value(fields, "isError") is True,
                    sent_at=sent_at,
                )
            case "bashExecution":
                said = f"Ran `{string(fields, 'command') or ''}`\n```\n{string(fields, 'output') or ''}\n```"
                return UserMessage(content=(Text(said),), sent_at=sent_at)
            case "custom" | "hookMessage":
                return structs.replace(self._custom(fields, line), sent_at=sent_at)
            case _:
                source = COMPACTION if role == "compactionSummary" else "branch_summary"
                text = Text(string(fields, "summary") or "")
                return UserMessage(content=(text,), source=source, sent_at=sent_at)

    def _custom(self, fields: Fields, line: int) -> UserMessage:
        shown = value(fields, "display") is not False
        content: Any = self._content(fields, line)
        return UserMessage(content=content, source=None if shown else string(fields, "customType") or "custom")

    def _assistant(self, fields: Fields, line: int, sent_at: int | None) -> AssistantMessage:
        wire = _WIRES.get(string(fields, "api") or "", string(fields, "api") or NAME)
        content: Any = self._content(fields, line, wire)
        stop, failed = string(fields, "stopReason"), string(fields, "errorMessage")
        message = AssistantMessage(
            content=content,
            model=string(fields, "model"),
            usage=_usage(fields),
            finish_reason=None if stop is None else _FINISH.get(stop, "other"),
            finish_reason_raw=UNSET if stop is None else stop,
            response_id=string(fields, "responseId"),
            sent_at=sent_at,
        )
        return message if failed is None else message.replace(metadata={"error": failed})

    def _content(self, fields: Fields, line: int, wire: str = "") -> tuple[AnyPart, ...]:
        raw = fields.get("content")
        if raw is None or jsontext.is_null(raw):
            return ()
        if jsontext.kind(raw) == "a string":
            return (Text(jsontext.text(raw)),)
        return tuple([self._block(each, line, wire) for each in jsontext.items(raw)])

    def _block(self, raw: Raw, line: int, wire: str) -> AnyPart:
        if jsontext.kind(raw) != "an object":
            self._watch.note("block", jsontext.kind(raw), line)
            return Opaque(NAME, jsontext.own(raw))
        fields = jsontext.fields(raw)
        kind = string(fields, "type")
        known = _BLOCKS.get(kind or "")
        if known is None:
            self._watch.note("block", kind or "without a type", line)
            return Opaque(NAME, jsontext.own(raw))
        self._watch.keys(fields, known, kind or "", line)
        match kind:
            case "text":
                return Text(string(fields, "text") or "")
            case "thinking":
                return _reasoning(fields, wire)
            case "image":
                return Image(Inline(string(fields, "data") or ""), string(fields, "mimeType"))
            case _:
                return _call(fields, wire)


def _reasoning(fields: Fields, wire: str) -> Reasoning:
    proof = string(fields, "thinkingSignature")
    text = string(fields, "thinking") or ""
    if value(fields, "redacted") is True:
        return Reasoning(text, encrypted=proof, wire=wire)
    if wire != "openai_responses" or proof is None:
        return Reasoning(text, signature=proof, wire=wire)
    try:  # there it is the whole item, as JSON text
        item = jsontext.fields(proof.encode())
        encrypted = string(item, "encrypted_content")
    except DecodeError:
        return Reasoning(text, signature=proof, wire=wire)
    part = Reasoning(text, encrypted=encrypted, wire=wire)
    return part if "id" not in item else part.replace(provider={wire: {"item": {"id": jsontext.value(item["id"])}}})


def _call(fields: Fields, wire: str) -> ToolCall | MalformedToolCall:
    arguments = fields.get("arguments", jsontext.EMPTY_OBJECT)
    call = ToolCall(string(fields, "id") or "", string(fields, "name") or "", bytes(arguments).decode())
    if jsontext.kind(arguments) != "an object":
        return MalformedToolCall(bytes(arguments).decode(), "the arguments are no object", call.name, call.id)
    proof = string(fields, "thoughtSignature")
    return call if proof is None else call.replace(provider={wire: {"thoughtSignature": proof}})


def _usage(fields: Fields) -> Usage | None:
    raw = fields.get("usage")
    if raw is None or jsontext.kind(raw) != "an object":
        return None
    counts = jsontext.fields(raw)
    return Usage(
        input=integer(counts, "input"),
        cache_read=integer(counts, "cacheRead"),
        cache_write=integer(counts, "cacheWrite"),
        output=integer(counts, "output"),
        raw_json=jsontext.own(raw),
    )


# -- writing -----------------------------------------------------------------------------------------------------------


class _Rendering:
    def __init__(self, writing: Writing) -> None:
        self._writing = writing
        self._session = session_of(writing.metadata)
        self._ids: dict[str, str] = {}
        self._taken: set[str] = set()
        times = (entry.message.sent_at for entry in writing.entries)
        first = next((at for at in times if at is not None), None)
        self._at = self._session.started_at or first or now_ms()
        """The time of what has none of its own: that of what stands before it."""
        self._reader = _Reading(Origin(), Watch())

    def groups(self, entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        """A message alone; the marker of a compaction with the summary behind it, which are one entry."""
        place = 0
        while place < len(entries):
            marked = _marks(entries[place]) and place + 1 < len(entries) and self._compacts(entries[place + 1])
            end = place + 1 + (marked and entries[place + 1].parent == entries[place].id)
            yield entries[place:end]
            place = end

    def head(self) -> Iterator[bytes]:
        """The header."""
        yield jsontext.encode(
            {
                "type": "session",
                "version": VERSION,
                "id": self._session.id or self._writing.thread.id,
                "timestamp": iso(self._at),
                "cwd": self._session.cwd or "/",
            }
        )

    def tail(self, old: bytes | None) -> None:
        """Lines have none."""

    def render(self, group: Sequence[Entry], old: Sequence[bytes]) -> Iterator[bytes]:
        """The entry of a message."""
        marker = next((entry for entry in group if _marks(entry)), None)
        if marker is not None and (summary := _behind(group, marker)) is not None:
            yield jsontext.encode(self._entry(summary, old[0] if old else None, marker=marker))
            return
        for entry, before in zip(group, (*old, *[None] * len(group)), strict=False):
            yield jsontext.encode(self._entry(entry, before))

    def _entry(self, entry: Entry, old: bytes | None, *, marker: Entry | None = None) -> dict[str, Any]:
        message = entry.message
        at = self._at = self._at if message.sent_at is None else message.sent_at
        known: Fields = {} if old is None else jsontext.fields(old)
        place: dict[str, Any] = {"id": self._id(entry.id), "parentId": self._parent(entry), "timestamp": iso(at)}
        if old is not None:
            place = {key: known[key] for key in ("id", "parentId", "timestamp") if key in known}
        said = self._said(entry, at, inner(known, "message"))
        if said is None:
            self._writing.lose("converted", message.role, "pi has no such message; kept in a custom entry", entry)
            slot = carrying.carried([message], [])
            return {"type": "custom", **place, "customType": carrying.SLOT, "data": slot}
        record: dict[str, Any] = {"type": "message", **place, "message": said}
        if self._compacts(entry):
            kept = {"firstKeptEntryId": place.get("id"), "tokensBefore": 0}
            kept |= {key: known[key] for key in (*kept, "firstKeptEntryIndex") if key in known}
            record = {"type": "compaction", **place, "summary": message.text, **kept}
        if self._writing.options.carry:
            plain = self._reader.plain(jsontext.fields(jsontext.encode(record)))
            lead = [] if marker is None or _is_plain(marker.message) else [marker.message]
            messages = [structs.replace(each, sent_at=message.sent_at) for each in plain]
            slot = carrying.carried([*lead, message], messages)
            if slot is not None:
                record[carrying.SLOT] = slot
        return record

    def _compacts(self, entry: Entry) -> bool:
        """Whether a message is the summary of a compaction: it stands behind its marker."""
        if not isinstance(entry.message, UserMessage) or not entry.message.is_summary:
            return False
        before = None if entry.parent is None else self._writing.thread.entry(entry.parent).message
        return isinstance(before, FlushMarker)

    def _said(self, entry: Entry, at: int, old: Fields) -> dict[str, Any] | None:
        message = entry.message
        match message:
            case UserMessage():
                return {"role": "user", "content": self._blocks(entry), "timestamp": at}
            case AssistantMessage():
                return self._assistant(entry, message, at, old)
            case ToolMessage():
                return {
                    "role": "toolResult",
                    "toolCallId": message.tool_call_id or "",
                    "toolName": message.tool_name or "",
                    "content": self._blocks(entry),
                    "isError": message.is_error,
                    "timestamp": at,
                }
            case SystemMessage() | DeveloperMessage() | RescueMarker() | FlushMarker():
                return None
            case _:
                assert_never(message)

    def _assistant(self, entry: Entry, message: AssistantMessage, at: int, old: Fields) -> dict[str, Any]:
        wire = wire_of(message, _APIS, "openai_chat")
        usage = message.usage or Usage()
        counts: Any = {
            "input": usage.input or 0,
            "output": (usage.output or 0) + (usage.reasoning or 0),
            "cacheRead": usage.cache_read or 0,
            "cacheWrite": usage.cache_write or 0,
            "totalTokens": usage.total,
            "cost": dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "total"), 0),
        }
        if message.usage is not None and message.usage == _usage(old):
            counts = old["usage"]
        failed = message.metadata.get("error")
        return {
            "role": "assistant",
            "content": self._blocks(entry),
            "api": old.get("api", _APIS.get(wire, wire)),
            "provider": old.get("provider", _PROVIDERS.get(wire, "unknown")),
            "model": message.model or "unknown",
            "usage": counts,
            "stopReason": _STOPS.get(message.finish_reason or "", "toolUse" if message.tool_calls else "stop"),
            "timestamp": at,
            **({} if failed is None else {"errorMessage": failed}),
        }

    def _blocks(self, entry: Entry) -> list[dict[str, Any]]:
        blocks = (self._block(entry, place, part) for place, part in enumerate(entry.message.content))
        return [block for block in blocks if block is not None]

    def _block(self, entry: Entry, place: int, part: AnyPart) -> dict[str, Any] | None:
        match part:
            case Text():
                return {"type": "text", "text": part.text}
            case Refusal():
                self._writing.lose("converted", "refusal", "written as text", entry, place)
                return {"type": "text", "text": part.text}
            case Json():
                self._writing.lose("converted", "json", "written as text", entry, place)
                return {"type": "text", "text": bytes(part.value_json).decode()}
            case Reasoning():
                proof = part.signature if part.signature is not None else part.encrypted
                signed = {} if proof is None else {"thinkingSignature": proof}
                redacted = {"redacted": True} if part.encrypted is not None and part.signature is None else {}
                return {"type": "thinking", "thinking": part.text, **signed, **redacted}
            case Image(source=Inline() as source):
                return {"type": "image", "data": source.data, "mimeType": part.media_type or "image/png"}
            case ToolCall() if not part.provider_executed and not part.custom:
                arguments = one_line(part.arguments_json or "{}")
                return {"type": "toolCall", "id": part.id, "name": part.name, "arguments": arguments}
            case MalformedToolCall():
                self._writing.lose("converted", "malformed_tool_call", "written as text", entry, place)
                return {"type": "text", "text": part.raw}
            case _:
                kind = cast("str", type(part).__struct_config__.tag)
                self._writing.lose("dropped", kind, "pi has no block for it", entry, place)
                return None

    def _parent(self, entry: Entry) -> str | None:
        """The id of the entry before, which may be one that was left out."""
        parent = entry.parent
        while parent is not None and parent not in self._ids and not self._writing.is_native(parent):
            parent = self._writing.thread.entry(parent).parent
        return None if parent is None else self._ids.get(parent, parent)

    def _id(self, entry: str) -> str:
        """Eight hex digits, unique in the file."""
        if self._writing.is_native(entry):
            return entry
        digits = entry
        while (short := sha256(digits.encode("utf-8", "surrogatepass")).hexdigest()[:8]) in self._taken:
            digits += "+"
        self._taken.add(short)
        self._ids[entry] = short
        return short


def _marks(entry: Entry) -> bool:
    """Whether an entry is the marker of a compaction."""
    return isinstance(entry.message, FlushMarker) and entry.message.source == COMPACTION


def _behind(group: Sequence[Entry], marker: Entry) -> Entry | None:
    """The summary behind a marker."""
    return next((each for each in group if each.parent == marker.id), None)


def _is_plain(marker: Message) -> bool:
    """Whether a marker says no more than that a compaction was here."""
    return structs.replace(carrying.without_records(marker), id=None, sent_at=None) == hidden_before()


DIALECT: Final = Dialect(
    name=NAME,
    title="pi sessions",
    fidelity="bytes",
    sees=sees,
    reading=_Reading,
    rendering=_Rendering,
    tree=True,
    resumes=True,
    history="all",
    keeps=(
        "branches",
        "reasoning with proof",
        "usage and model of each answer",
        "images",
        "tool errors",
        "compactions",
    ),
    loses=("system prompts (kept beside)", "audio, video, files", "citations", "malformed calls (as text)", "markers"),
)
