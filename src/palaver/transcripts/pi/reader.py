"""Read pi entries into messages; the head of the package has the rules.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from msgspec import UNSET, Raw, structs

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.messages import (
    AssistantMessage,
    Message,
    UserMessage,
)
from palaver.core.parts import (
    AnyPart,
    MalformedToolCall,
    Reasoning,
    ToolCall,
)
from palaver.core.usage import Usage
from palaver.threads.ids import is_uuid
from palaver.threads.thread import MAIN
from palaver.transcripts import extension_slot
from palaver.transcripts.conversation import (
    COMPACTION,
    Conversation,
    Session,
    Step,
    copied,
    derived_id,
    hidden_before,
    record_message,
)
from palaver.transcripts.fields import integer, listed, read_time, string, value
from palaver.transcripts.format import Origin
from palaver.transcripts.pi.shapes import BLOCKS, FINISH, KEYS, NAME, ROLES, WIRES
from palaver.transcripts.record_order import ParentsFirst
from palaver.transcripts.unknown_fields import Watch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.core.jsontext import Fields
    from palaver.transcripts.record import Record


class RecordReader:
    """Reads one session."""

    def __init__(self, origin: Origin, watch: Watch) -> None:
        """Start before the header."""
        self._origin = origin
        self._watch = watch
        self._conversation: Conversation | None = None
        self._session = Session(file_format=NAME)
        self._title: str | None = None
        self._order = ParentsFirst()
        self._leaf: str | None = None  # the last entry of the file that has an id
        self._kept: list[
            tuple[str, int, Message | None]
        ] = []  # on the line since the last compaction: id, index, message
        self._index = 0

    def record(self, record: Record) -> Iterator[Step]:
        """Read the next entry."""
        if self._conversation is None:
            yield from self._begin(record)
        fields = record.fields or {}
        if (named := _id(fields)) is not None:
            self._leaf = named
        for ready in self._order.take(record, named, string(fields, "parentId") if named is not None else None):
            yield from self._read(ready)

    def _read(self, record: Record) -> Iterator[Step]:
        """Read an entry whose parent was read, or is missing in the file."""
        conversation = cast("Conversation", self._conversation)
        fields = record.fields
        if fields is None:
            yield from conversation.record(record)
            return
        kind = string(fields, "type")
        known = KEYS.get(kind or "")
        if known is None:
            self._watch.note("record", kind or "without a type", record.line)
        else:
            self._watch.keys(fields, known, kind or "", record.line)
        yield from self._entry(conversation, record, fields, kind)
        self._index += 1

    def end(self) -> Iterator[Step]:
        """Name the leaf: the last entry of the file."""
        for record in self._order.rest():
            yield from self._read(record)
        if self._conversation is not None:
            heads = {MAIN: self._conversation.tip(self._leaf)} if self._order.reordered else None
            yield self._conversation.ended(heads, title=self._title, metadata=self._session.metadata())

    def plain(self, fields: Fields) -> list[Message]:
        """Return the messages of an entry, without carried data."""
        return self._plain(fields, string(fields, "type"), 0) or []

    def _begin(self, record: Record) -> Iterator[Step]:
        fields = record.fields or {}
        if string(fields, "type") != "session":
            fields = {}  # the header is missing, and an entry has no session data
        named = string(fields, "id")
        more = {key: jsontext.value(fields[key]) for key in ("parentSession",) if key in fields}
        self._session = Session(
            file_format=NAME,
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
        named, parent = _id(fields), string(fields, "parentId")
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
        # The id of a compaction is that of its last message: its children follow all of them.
        ids = [*[None] * (len(group) - 1), named] if kind == "compaction" else [named]
        yield from conversation.join(group, [record], ids=ids, parent=follows)

    def _back_to(self, parent: str | None) -> None:
        """Forget messages that are not on the line of an entry that follows ``parent``."""
        while self._kept and self._kept[-1][0] != parent:
            self._kept.pop()

    def _tail(self, fields: Fields) -> list[tuple[str, int, Message | None]]:
        """Return the messages of the line that a compaction kept."""
        first, index = string(fields, "firstKeptEntryId"), value(fields, "firstKeptEntryIndex")
        for place, (each, at, _) in enumerate(self._kept):
            if each == first if first is not None else isinstance(index, int) and at >= index:
                return self._kept[place:]
        return []

    def _messages(self, fields: Fields, kind: str | None, sent_at: int | None, line: int) -> list[Message] | None:
        """Return the messages of an entry; ``None`` without any."""
        try:
            plain = self._plain(fields, kind, line)
        except DecodeError as error:
            self._watch.note("unread", str(error), line)
            return None
        slot = jsontext.value(fields[extension_slot.SLOT]) if extension_slot.SLOT in fields else None
        if kind == "custom" and string(fields, "customType") == extension_slot.SLOT and "data" in fields:
            slot, plain = jsontext.value(fields["data"]), []
        restored = None if slot is None else extension_slot.restored(plain or (), slot)
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
                return [
                    trusted.UserMessage(content=(trusted.Text(string(fields, "summary") or ""),), source=COMPACTION)
                ]
            case "branch_summary":
                return [
                    trusted.UserMessage(
                        content=(trusted.Text(string(fields, "summary") or ""),), source="branch_summary"
                    )
                ]
            case "custom_message":
                return [self._custom(fields, line)]
            case _:
                return None

    def _message(self, fields: Fields, line: int) -> Message | None:
        role = string(fields, "role")
        known = ROLES.get(role or "")
        if known is None:
            self._watch.note("unread", f"message of role {role}", line)
            return None
        self._watch.keys(fields, known, f"message.{role}", line)
        sent_at = read_time(value(fields, "timestamp"))
        match role:
            case "user":
                content: Any = self._content(fields, line)
                return trusted.UserMessage(content=content, sent_at=sent_at)
            case "assistant":
                return self._assistant(fields, line, sent_at)
            case "toolResult":
                content = self._content(fields, line)
                return trusted.ToolMessage(
                    content=content,
                    tool_call_id=string(fields, "toolCallId"),
                    tool_name=string(fields, "toolName"),
                    is_error=value(fields, "isError") is True,
                    sent_at=sent_at,
                )
            case "bashExecution":
                said = f"Ran `{string(fields, 'command') or ''}`\n```\n{string(fields, 'output') or ''}\n```"
                return trusted.UserMessage(content=(trusted.Text(said),), sent_at=sent_at)
            case "custom" | "hookMessage":
                return structs.replace(self._custom(fields, line), sent_at=sent_at)
            case _:
                source = COMPACTION if role == "compactionSummary" else "branch_summary"
                text = trusted.Text(string(fields, "summary") or "")
                return trusted.UserMessage(content=(text,), source=source, sent_at=sent_at)

    def _custom(self, fields: Fields, line: int) -> UserMessage:
        shown = value(fields, "display") is not False
        content: Any = self._content(fields, line)
        return trusted.UserMessage(content=content, source=None if shown else string(fields, "customType") or "custom")

    def _assistant(self, fields: Fields, line: int, sent_at: int | None) -> AssistantMessage:
        wire = WIRES.get(string(fields, "api") or "", string(fields, "api") or NAME)
        content: Any = self._content(fields, line, wire)
        stop, failed = string(fields, "stopReason"), string(fields, "errorMessage")
        message = trusted.AssistantMessage(
            content=content,
            model=string(fields, "model"),
            usage=usage_of(fields),
            finish_reason=None if stop is None else FINISH.get(stop, "other"),
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
            return (trusted.Text(jsontext.text(raw)),)
        return tuple([self._block(each, line, wire) for each in listed(fields, "content")])

    def _block(self, raw: Raw, line: int, wire: str) -> AnyPart:
        if jsontext.kind(raw) != "an object":
            self._watch.note("block", jsontext.kind(raw), line)
            return trusted.Opaque(NAME, jsontext.own(raw))
        fields = jsontext.fields(raw)
        kind = string(fields, "type")
        known = BLOCKS.get(kind or "")
        if known is None:
            self._watch.note("block", kind or "without a type", line)
            return trusted.Opaque(NAME, jsontext.own(raw))
        self._watch.keys(fields, known, kind or "", line)
        match kind:
            case "text":
                return trusted.Text(string(fields, "text") or "")
            case "thinking":
                return _reasoning(fields, wire)
            case "image":
                return trusted.Image(trusted.Inline(string(fields, "data") or ""), string(fields, "mimeType"))
            case _:
                return _call(fields, wire)


def _id(fields: Fields) -> str | None:
    """Return the id of an entry; the header has that of the session."""
    return None if string(fields, "type") == "session" else string(fields, "id")


def _reasoning(fields: Fields, wire: str) -> Reasoning:
    proof = string(fields, "thinkingSignature")
    text = string(fields, "thinking") or ""
    if value(fields, "redacted") is True:
        return trusted.Reasoning(text, encrypted=proof, wire=wire)
    if wire != "openai_responses" or proof is None:
        return trusted.Reasoning(text, signature=proof, wire=wire)
    try:  # it is the whole item, as JSON text
        item = jsontext.fields(proof.encode())
        encrypted = string(item, "encrypted_content")
    except (DecodeError, UnicodeEncodeError):
        return trusted.Reasoning(text, signature=proof, wire=wire)
    part = trusted.Reasoning(text, encrypted=encrypted, wire=wire)
    return part if "id" not in item else part.replace(provider={wire: {"id": jsontext.value(item["id"])}})


def _call(fields: Fields, wire: str) -> ToolCall | MalformedToolCall:
    arguments = fields.get("arguments", jsontext.EMPTY_OBJECT)
    call = trusted.ToolCall(string(fields, "id") or "", string(fields, "name") or "", bytes(arguments).decode())
    if jsontext.kind(arguments) != "an object":
        return trusted.MalformedToolCall(
            bytes(arguments).decode(), "the arguments are not an object", call.name, call.id
        )
    proof = string(fields, "thoughtSignature")
    return call if proof is None else call.replace(provider={wire: {"thoughtSignature": proof}})


def usage_of(fields: Fields) -> Usage | None:
    """Return the usage of an answer; the counters of the file are disjoint."""
    raw = fields.get("usage")
    if raw is None or jsontext.kind(raw) != "an object":
        return None
    counts = jsontext.fields(raw)
    return trusted.Usage(
        input=integer(counts, "input"),
        cache_read=integer(counts, "cacheRead"),
        cache_write=integer(counts, "cacheWrite"),
        output=integer(counts, "output"),
        raw_json=jsontext.own(raw),
    )
