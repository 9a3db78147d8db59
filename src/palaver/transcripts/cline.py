"""Task histories of Cline, and of Roo Code and others that come from it.

Read: ``api_conversation_history.json``, a list of messages of Anthropic's wire, or ``<id>.messages.json`` of its SDK,
which has the list under ``messages``. Beside ``role`` and ``content`` a record has ``ts`` (Unix milliseconds), and that
of an answer ``modelInfo`` and ``metrics`` (``tokens`` or counters of its own, ``cost``), which stay with the message.
``task_metadata.json`` and ``ui_messages.json`` beside it give the version, the model and the title of the task, whose
folder is its id.

Roo Code: a record ``type: "reasoning"`` is an answer with encrypted reasoning, a block of that type is reasoning. A
record ``isSummary`` with a ``condenseId``, or ``isTruncationMarker`` with a ``truncationId``, hides the records before
it that name it as ``condenseParent`` or ``truncationParent``: a marker stands there, and the records that it does not
hide are repeated behind it. Histories of version 2, which are not of Anthropic's wire, are kept and counted as unread.

Not represented: system and developer messages and markers (carried beside the next message; the program writes its own
prompt), audio, video, files, proofs of reasoning of other providers.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec import structs

from palaver.core import jsontext, trusted
from palaver.core.messages import AssistantMessage, FlushMarker
from palaver.core.parts import Opaque, Reasoning
from palaver.threads.ids import now_ms
from palaver.transcripts import documents, extension_slot
from palaver.transcripts.conversation import COMPACTION, copied, hidden_before, session_of
from palaver.transcripts.detection import Detection
from palaver.transcripts.fields import flag, inner, integer, listed, read_time, split, string, usage_of_totals, value
from palaver.transcripts.format import TranscriptFormat
from palaver.transcripts.message_list import Receipt, document_reading, known_messages, list_rendering, stored
from palaver.transcripts.wire_list import WireForm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.core.jsontext import Fields
    from palaver.core.messages import Message
    from palaver.core.usage import Usage
    from palaver.threads.thread import Entry
    from palaver.transcripts.conversation import Session
    from palaver.transcripts.detection import Head
    from palaver.transcripts.format import Origin
    from palaver.transcripts.unknown_fields import Watch
    from palaver.transcripts.writer import WriteState

NAME: Final = "cline"
WIRE: Final = "anthropic_messages"
_REASONING: Final = "openai_responses"
"""The wire of encrypted reasoning in a record of its own."""

_ROLES: Final = frozenset(("user", "assistant"))
_PROOFS: Final = frozenset(
    ("modelInfo", "metrics", "condenseId", "condenseParent", "truncationId", "truncationParent", "isSummary")
)
_KNOWN: Final = _PROOFS | {
    "role",
    "content",
    "ts",
    "id",
    "agent",
    "sessionId",
    "metadata",
    "isTruncationMarker",
    "isMeta",
    "reasoning_details",
    "reasoning_content",
    "type",
    "summary",
    "encrypted_content",
    "text",
    extension_slot.SLOT,
}
_HIDES: Final = (
    ("isSummary", "condenseId", "condenseParent"),
    ("isTruncationMarker", "truncationId", "truncationParent"),
)
_FOLDER: Final = re.compile(r"([^/\\]+)[/\\][^/\\]+$")
_FILES: Final = ("api_conversation_history.json", "claude_messages.json")


def detect(head: Head) -> Detection | None:
    """Return messages with a time ``ts``, or with what only this program keeps beside them, or its name of the file."""
    listing: object = head.fields.get("messages")
    if isinstance(listing, list):
        versioned = {"agent", "sessionId", "updated_at"} <= head.fields.keys()
        return Detection(0.95) if versioned else None
    found, most = known_messages(head, _ROLES)
    if not most or not head.items or not all("content" in each or "type" in each for each in found):
        return None
    if any(_PROOFS & each.keys() for each in found):
        return Detection(0.95)
    if any(_is_time(each.get("ts")) for each in found):
        return Detection(0.9)
    return Detection(0.9) if head.name.endswith(_FILES) else None


def _is_time(found: object) -> bool:
    return isinstance(found, int) and not isinstance(found, bool)


class TaskForm(WireForm):
    """A record of a task."""

    name: ClassVar[str] = NAME
    extra: ClassVar[str] = NAME
    wire: ClassVar[str] = WIRE
    keys: ClassVar[frozenset[str]] = frozenset(("role", "content", "ts"))
    paths: ClassVar[tuple[tuple[str, ...], ...]] = (("messages",), ())
    _at: int | None = None

    def __init__(self, watch: Watch) -> None:
        """Start before the first record."""
        super().__init__(watch)
        self._before: list[tuple[set[str | None], list[Message]]] = []  # what would hide it, and what it says
        self._hiding: set[str | None] = set()

    def open(self, document: Fields, origin: Origin, session: Session) -> Session:
        """Look at the files of the task."""
        folder = _FOLDER.search(origin.name)
        task = string(document, "sessionId") or (folder[1] if folder and origin.name.endswith(_FILES) else None)
        metadata = documents.fields_of(origin.beside("task_metadata.json") or b"")
        models, environments = listed(metadata, "model_usage"), listed(metadata, "environment_history")
        self.title = _title(origin.beside("ui_messages.json"))
        return structs.replace(
            session,
            id=task,
            model=string(split(models[-1]), "model_id") if models else None,
            program=string(split(environments[-1]), "cline_version") if environments else None,
        )

    def id_of(self, fields: Fields) -> str | None:
        """Return the id of a record."""
        return string(fields, "id")

    # -- reading ---------------------------------------------------------------------------------------------------

    def read(self, fields: Fields, line: int | None) -> list[Message]:
        """Return the messages of a record; those that a summary does not hide are repeated before it."""
        group = super().read(fields, line)
        if group and isinstance(group[0], FlushMarker) and extension_slot.SLOT not in fields:
            self._hiding.update(string(fields, each) for _, each, _ in _HIDES if each in fields)
            kept = [copied(each) for by, messages in self._before if by.isdisjoint(self._hiding) for each in messages]
            self._remember(fields, group[1:])
            return [group[0], *kept, *group[1:]]
        self._remember(fields, group)
        return group

    def _remember(self, fields: Fields, messages: list[Message]) -> None:
        self._before.append(({string(fields, each) for _, _, each in _HIDES if each in fields}, messages))

    def plain(self, fields: Fields) -> list[Message]:
        """Return the messages of a record."""
        self.watch.keys(fields, _KNOWN, "message", self.line)
        at = read_time(value(fields, "ts"))
        if string(fields, "type") == "reasoning" and "encrypted_content" in fields:
            return [self.beside(_encrypted(fields, at), self._rest(fields))]
        if string(fields, "role") not in _ROLES:
            self.watch.note("unread", f"role {string(fields, 'role')}", self.line)
            return []
        found = [structs.replace(_with_reasoning(each), sent_at=at) for each in self.said(fields)]
        if not found:
            return []
        if isinstance(found[0], AssistantMessage):
            found[0] = structs.replace(found[0], model=_model_of(fields), usage=_usage_of(fields))
        if flag(fields, "isSummary"):
            found = [structs.replace(each, source=COMPACTION) for each in found]
        found[0] = self.beside(found[0], self._rest(fields))
        hides = any(flag(fields, one) and other in fields for one, other, _ in _HIDES)
        return [hidden_before(at), *found] if hides else found

    def _rest(self, fields: Fields) -> dict[str, Any]:
        beside = fields.keys() - self.keys - {extension_slot.SLOT}
        return {key: jsontext.own(raw) for key, raw in fields.items() if key in beside}

    # -- writing ---------------------------------------------------------------------------------------------------

    def start(self, writing: WriteState) -> None:
        """Choose the time of messages without one; a history that has none gets none."""
        started = session_of(writing.metadata).started_at
        times = [entry.message.sent_at for entry in writing.entries if entry.message.sent_at is not None]
        self._at = None if writing.native and not times else started or next(iter(times), None) or now_ms()

    def write_record(self, entries: Sequence[Entry], receipt: Receipt) -> dict[str, Any] | None:
        """Return the record of a group; of one with a summary, its own messages."""
        own = [entry for entry in entries if stored(entry.message, NAME)] or list(entries)
        if isinstance(entries[0].message, FlushMarker) and len(own) == 1:
            entries = own
        message = next((entry.message for entry in entries if self.holds(entry.message)), trusted.UserMessage())
        kept = stored(message, NAME)
        record = self._reasoning(message, kept) or self.body([_written(entry) for entry in entries], receipt)
        if isinstance(message, AssistantMessage):
            record |= _answer(message, kept)
        self._at = self._at if message.sent_at is None else message.sent_at
        if self._at is not None:
            record["ts"] = self._at
        return self.with_beside(record, entries)

    def _reasoning(self, message: Message, kept: Fields) -> dict[str, Any] | None:
        """Return a record of encrypted reasoning, if the message was one."""
        if "encrypted_content" not in kept or len(message.content) != 1:
            return None
        part = message.content[0]
        if not isinstance(part, Reasoning) or part.encrypted != string(kept, "encrypted_content"):
            return None
        return {"role": "assistant"} | ({"content": value(kept, "content")} if "content" in kept else {})


def _title(data: bytes | None) -> str | None:
    """Return the task as the person wrote it: the first that was said."""
    if data is None:
        return None
    cut = documents.cut(data)
    first = cut.items[0].fields if cut.items else None
    text = None if first is None or string(first, "say") not in {"task", "text"} else string(first, "text")
    return text.strip().partition("\n")[0][:200] or None if text else None


def _encrypted(fields: Fields, at: int | None) -> AssistantMessage:
    text = "\n\n".join([string(split(each), "text") or "" for each in listed(fields, "summary")])
    part = trusted.Reasoning(text, encrypted=string(fields, "encrypted_content"), wire=_REASONING)
    if (named := string(fields, "id")) is not None:
        part = part.replace(provider={_REASONING: {"id": named}})
    return trusted.AssistantMessage(content=(part,), sent_at=at)


def _with_reasoning(message: Message) -> Message:
    """Return a message in which blocks ``reasoning`` are reasoning."""
    if not isinstance(message, AssistantMessage):
        return message
    parts = [_thought(part) if isinstance(part, Opaque) else part for part in message.content]
    return structs.replace(message, content=tuple(parts))


def _thought(part: Opaque) -> Opaque | Reasoning:
    fields = split(part.raw_json)
    if string(fields, "type") != "reasoning" or "text" not in fields:
        return part
    return trusted.Reasoning(string(fields, "text") or "", provider_json=jsontext.raw({NAME: part.raw_json}))


def _written(entry: Entry) -> Entry:
    """Return an entry in which such reasoning is the block again."""
    content = [_block(part) for part in entry.message.content]
    if tuple(content) == entry.message.content:
        return entry
    return structs.replace(entry, message=structs.replace(entry.message, content=tuple(content)))


def _block(part: Any) -> Any:
    kept = stored(part, NAME) if isinstance(part, Reasoning) else {}
    return trusted.Opaque(WIRE, jsontext.raw({**kept, "text": part.text})) if "type" in kept else part


def _model_of(fields: Fields) -> str | None:
    info = inner(fields, "modelInfo")
    return string(info, "modelId") or string(info, "id")


def _usage_of(fields: Fields) -> Usage | None:
    """Return the counters of an answer: totals with those of the cache, or disjoint ones."""
    metrics = inner(fields, "metrics")
    totals = inner(metrics, "tokens")
    if totals:
        return usage_of_totals(
            integer(totals, "prompt"),
            integer(totals, "completion"),
            cached=integer(totals, "cached"),
            written=None,
            reasoning=None,
            raw=fields["metrics"],
        )
    if "inputTokens" not in metrics and "outputTokens" not in metrics:
        return None
    return trusted.Usage(
        input=integer(metrics, "inputTokens"),
        cache_read=integer(metrics, "cacheReadTokens"),
        cache_write=integer(metrics, "cacheWriteTokens"),
        output=integer(metrics, "outputTokens"),
        raw_json=jsontext.own(fields["metrics"]),
    )


def _answer(message: AssistantMessage, kept: Fields) -> dict[str, Any]:
    """Return model and counters of an answer: those that it had, unless they changed."""
    record: dict[str, Any] = {}
    if message.model is not None and message.model != _model_of(kept):
        record["modelInfo"] = {"modelId": message.model, "providerId": "unknown", "mode": "act"}
    usage = message.usage
    if usage is not None and usage != _usage_of(kept):
        prompt = (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0)
        tokens = {
            "prompt": prompt,
            "completion": (usage.output or 0) + (usage.reasoning or 0),
            "cached": usage.cache_read or 0,
        }
        record["metrics"] = {"tokens": tokens}
    return record


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="Cline and Roo Code tasks",
    fidelity="bytes",
    detector=detect,
    record_reader=document_reading(TaskForm),
    record_writer=list_rendering(TaskForm),
    layout="document",
    resumes=True,
    extension=".json",
    keeps=(
        "reasoning with proof",
        "usage and model of each answer",
        "times",
        "images, documents",
        "tool errors",
        "condensed and truncated parts",
    ),
    loses=(
        "system prompts, markers (kept beside)",
        "other providers' reasoning (kept beside)",
        "audio, video",
        "what only the user saw",
    ),
)
