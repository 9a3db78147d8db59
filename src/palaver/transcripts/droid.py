"""Sessions of Droid (Factory): ``~/.factory/sessions/<folder>/<id>.jsonl``.

Read: the first line is ``session_start`` with the id, the title (``sessionTitle``, ``title``) and ``cwd``. A line
``message`` has an id, a time, and a message of Anthropic's wire with ``visibility``: what only the model sees
(``llm_only``) has that as its ``source``. ``compaction_state`` with ``summaryText`` hides the messages up to its
``anchorMessage``; those behind it are repeated. A message may name its model; ``<id>.settings.json`` beside the file,
which has one model and the counters of the whole session, is not read. Lines of other types are records.

Not represented: system and developer messages and markers (carried beside the next message), usage, audio, video,
proofs of reasoning of other providers.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec import structs

from palaver.core import jsontext, trusted
from palaver.core.messages import AssistantMessage, FlushMarker, UserMessage
from palaver.threads.ids import is_uuid, now_ms
from palaver.transcripts import extension_slot, original_bytes
from palaver.transcripts.conversation import COMPACTION, copied, derived_id, hidden_before, session_of
from palaver.transcripts.detection import Detection, word
from palaver.transcripts.fields import inner, iso, read_time, string, value
from palaver.transcripts.format import TranscriptFormat
from palaver.transcripts.message_list import Receipt, line_reading, list_rendering, stored
from palaver.transcripts.wire_list import WireForm
from palaver.transcripts.writer import is_record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from palaver.core.jsontext import Fields
    from palaver.core.messages import Message
    from palaver.threads.thread import Entry
    from palaver.transcripts.conversation import Session
    from palaver.transcripts.detection import Head
    from palaver.transcripts.unknown_fields import Watch
    from palaver.transcripts.writer import WriteState

NAME: Final = "droid"
WIRE: Final = "anthropic_messages"
_LINES: Final = {
    "session_start": frozenset(
        (
            "type",
            "id",
            "title",
            "sessionTitle",
            "owner",
            "version",
            "cwd",
            "timestamp",
            "isSessionTitleManuallySet",
            "sessionTitleAutoStage",
            "hostId",
        )
    ),
    "message": frozenset(("type", "id", "timestamp", "parentId", "message", extension_slot.SLOT)),
    "compaction_state": frozenset(
        (
            "type",
            "id",
            "timestamp",
            "parentId",
            "summaryText",
            "summaryTokens",
            "summaryKind",
            "anchorMessage",
            "removedCount",
            "systemInfo",
            extension_slot.SLOT,
        )
    ),
}
_OTHERS: Final = frozenset(("todo_state", "agent_turn_outcome", "session_end"))
_REPEATS: Final = frozenset(("anchorMessage", "removedCount"))
_SAID: Final = frozenset(("role", "content", "visibility", "model"))
_PLACE: Final = frozenset(("type", "timestamp", "message", "summaryText", "id"))


def detect(head: Head) -> Detection | None:
    """Return a start of a session without the keys of its namesakes, or messages between lines of this program."""
    first = head.first
    if first.get("type") == "session_start" and isinstance(first.get("id"), str) and "cwd" in first:
        owned = {"title", "sessionTitle", "owner"} & first.keys() or any(map(_is_message, head.lines))
        return Detection(0.95 if owned else 0.7)
    own = [
        each for each in head.lines if word(each, "type") in {"compaction_state", "todo_state", "agent_turn_outcome"}
    ]
    return Detection(0.9) if own and any(map(_is_message, head.lines)) else None


def _is_message(record: Mapping[str, Any]) -> bool:
    message = record.get("message")
    return record.get("type") == "message" and isinstance(message, dict) and "role" in message


class SessionForm(WireForm):
    """A line of a session."""

    name: ClassVar[str] = NAME
    extra: ClassVar[str] = NAME
    wire: ClassVar[str] = WIRE
    lines: ClassVar[bool] = True
    _at = 0
    _begun = 0
    _writing: WriteState | None = None

    def __init__(self, watch: Watch) -> None:
        """Start before the first line."""
        super().__init__(watch)
        self._before: list[tuple[str | None, list[Message]]] = []  # since the last compaction
        self._names: dict[str, str] = {}  # of new lines, by the last entry of each

    def begin(self, items: Sequence[Fields | None], session: Session) -> Session:
        """Use the first line as the session."""
        first = items[0] or {}
        if string(first, "type") != "session_start":
            return session
        self.title = string(first, "sessionTitle") or string(first, "title")
        version = value(first, "version")
        return structs.replace(
            session,
            id=string(first, "id"),
            cwd=string(first, "cwd"),
            format=None if version is None else str(version),
            started_at=read_time(value(first, "timestamp")),
        )

    def id_of(self, fields: Fields) -> str | None:
        """Return the id of a message."""
        return string(fields, "id") if string(fields, "type") == "message" else None

    # -- reading ---------------------------------------------------------------------------------------------------

    def read(self, fields: Fields, line: int | None) -> list[Message]:
        """Return the messages of a line; those that a compaction keeps are repeated behind its summary."""
        group = super().read(fields, line)
        if group and isinstance(group[0], FlushMarker) and extension_slot.SLOT not in fields:
            anchor = string(inner(fields, "anchorMessage"), "id")
            ids = [each for each, _ in self._before]
            start = ids.index(anchor) + 1 if anchor in ids else len(ids)
            kept = [(each, list(map(copied, messages))) for each, messages in self._before[start:]]
            self._before = [(None, group[1:]), *kept]
            return [*group, *(each for _, messages in kept for each in messages)]
        self._before.append((string(fields, "id"), group))
        return group

    def plain(self, fields: Fields) -> list[Message]:
        """Return the messages of a line."""
        kind = string(fields, "type") or ""
        known = _LINES.get(kind)
        if known is None and kind not in _OTHERS:
            self.watch.note("record", kind or "without a type", self.line)
        if known is not None:
            self.watch.keys(fields, known, kind, self.line)
        at = read_time(value(fields, "timestamp"))
        if kind == "compaction_state" and (text := string(fields, "summaryText")):
            summary = trusted.UserMessage(content=(trusted.Text(text),), source=COMPACTION, sent_at=at)
            return [hidden_before(at), self.beside(summary, self._around(fields))]
        message = inner(fields, "message") if kind == "message" else {}
        if not message:
            return []
        self.watch.keys(message, _SAID, "message", self.line)
        found = [structs.replace(each, sent_at=at) for each in self.said(message)]
        if found and isinstance(found[0], AssistantMessage):
            found[0] = structs.replace(found[0], model=string(message, "model"))
        if string(message, "visibility") == "llm_only":
            found = [
                structs.replace(each, source="llm_only") if isinstance(each, UserMessage) else each for each in found
            ]
        if not found:
            return []
        kept = {key: jsontext.own(raw) for key, raw in message.items() if key not in {"role", "content", "model"}}
        around = self._around(fields)
        return [self.beside(found[0], {**around, **({"message": kept} if kept else {})}), *found[1:]]

    def _around(self, fields: Fields) -> dict[str, Any]:
        gone = _PLACE | {"parentId", extension_slot.SLOT}
        return {key: jsontext.own(raw) for key, raw in fields.items() if key not in gone}

    # -- writing ---------------------------------------------------------------------------------------------------

    def start(self, writing: WriteState) -> None:
        """Choose the time of lines without one."""
        self._writing = writing
        times = (entry.message.sent_at for entry in writing.entries)
        started = session_of(writing.metadata).started_at
        self._at = self._begun = started or next((at for at in times if at is not None), None) or now_ms()

    def head(self, writing: WriteState) -> bytes:
        """Return the start of a session."""
        session = session_of(writing.metadata)
        named = session.id if session.id is not None and is_uuid(session.id) else derived_id(NAME, writing.thread.id)
        title = writing.take_title() or "New Session"
        start = {"type": "session_start", "id": named, "title": title, "version": 2, "cwd": session.cwd or "/"}
        return jsontext.encode(start)

    def write_record(self, entries: Sequence[Entry], receipt: Receipt) -> dict[str, Any] | None:
        """Return the line of a message, or of a compaction."""
        own = [entry for entry in entries if self.holds(entry.message)] or list(entries)
        entry = own[0]
        message = entry.message
        kept = stored(message, NAME)
        self._at = self._at if message.sent_at is None else message.sent_at
        named = entry.id if is_uuid(entry.id) or self._is_own(entry) else derived_id(NAME, entry.id)
        place: dict[str, Any] = {"id": named, "timestamp": iso(self._at)}
        if isinstance(entries[0].message, FlushMarker) and message.source == COMPACTION and len(message.content) == 1:
            record: dict[str, Any] = {"type": "compaction_state", **place, "summaryText": message.text}
            repeats = len(own) > 1  # else what it keeps stands behind it, as messages of their own
            return self.with_rest(record, {key: raw for key, raw in kept.items() if repeats or key not in _REPEATS})
        said = self.body(entries, receipt)
        if isinstance(message, AssistantMessage) and message.model is not None:
            said["model"] = message.model
        if message.source == "llm_only":
            said["visibility"] = "llm_only"
        said |= {key: raw for key, raw in inner(kept, "message").items() if key not in said and key != "visibility"}
        before = self._parent(entry)
        self._names[own[-1].id] = named
        parent = {} if before is None else {"parentId": before}
        record = {"type": "message", **place, **parent, "message": said}
        return self.with_rest(record, {key: raw for key, raw in kept.items() if key != "message"})

    def _parent(self, entry: Entry) -> str | None:
        """Return the id of the line of the message before."""
        at, writing = entry.parent, self._writing
        while writing is not None and at is not None:
            before = writing.thread.entry(at)
            if at in self._names:
                return self._names[at]
            if self.holds(before.message) and not is_record(before) and original_bytes.leads(before.message, NAME):
                return at
            at = before.parent
        return None

    def _is_own(self, entry: Entry) -> bool:
        return bool(stored(entry.message, NAME))


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="Droid sessions (Factory)",
    fidelity="bytes",
    detector=detect,
    record_reader=line_reading(SessionForm),
    record_writer=list_rendering(SessionForm),
    keeps=("times and ids", "reasoning with proof", "images", "tool errors", "what only the model sees", "compactions"),
    loses=(
        "system prompts, markers (kept beside)",
        "usage (kept beside)",
        "other providers' reasoning (kept beside)",
        "audio, video",
        "branches",
    ),
)
