"""Threads of Amp: ``~/.local/share/amp/threads/T-<uuid>.json``, and what ``amp threads export`` gives.

Read: the list ``messages`` of a document with ``id``, ``title``, ``created`` and ``env`` (whose first tree is the
working directory). Blocks are those of Anthropic's wire, except results: ``{type: "tool_result", toolUseID, run:
{status, result | error}}``. A result is its text or that under ``output``, else JSON; statuses but ``done`` and
``in-progress`` are failures. An answer has its model, counters and time under ``usage``, and why it ended under
``state``; a prompt has its time under ``meta``. Other keys stay beside the message.

Not represented: system and developer messages and markers (carried beside the next message), audio, video, files,
proofs of reasoning of other providers, times of results. The program keeps threads on its server, and reads no file
that we write.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import unquote, urlsplit

from msgspec import Raw, structs

from palaver.core import jsontext, trusted
from palaver.core.messages import AssistantMessage, FinishReason, ToolMessage
from palaver.core.parts import Json, Text
from palaver.threads.ids import now_ms
from palaver.transcripts import extension_slot
from palaver.transcripts.conversation import derived_id, session_of
from palaver.transcripts.detection import Detection
from palaver.transcripts.fields import as_json, inner, integer, iso, listed, read_time, split, string, value
from palaver.transcripts.format import TranscriptFormat
from palaver.transcripts.message_list import Receipt, document_reading, list_rendering, provider_of, stored
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
    from palaver.transcripts.writer import WriteState

NAME: Final = "amp"
WIRE: Final = "anthropic_messages"

_DONE: Final = frozenset(("done", "in-progress", "queued"))
_KNOWN: Final = frozenset(
    (
        "role",
        "content",
        "messageId",
        "protocolMessageID",
        "meta",
        "state",
        "usage",
        "userState",
        "discoveredGuidanceFiles",
        "readAt",
        "parentToolUseId",
        "agentMode",
        "interrupted",
        "turnElapsedMs",
        "dtwMessageID",
        extension_slot.SLOT,
    )
)
_FINISH: Final[dict[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "refusal": "content_filter",
}
_STOPS: Final = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}


def detect(head: Head) -> Detection | None:
    """Return a document with the id of a thread and numbered messages, or blocks with ``toolUseID``."""
    fields = head.fields
    messages: object = fields.get("messages")
    if not isinstance(messages, list) or not isinstance(fields.get("id"), str):
        return None
    if fields["id"].startswith("T-") and ("v" in fields or "created" in fields or "env" in fields):
        return Detection(0.95, None if "v" not in fields else str(fields["v"]))
    return Detection(0.9) if b'"toolUseID"' in head.data else None


class ThreadForm(WireForm):
    """A message of a thread."""

    name: ClassVar[str] = NAME
    extra: ClassVar[str] = NAME
    wire: ClassVar[str] = WIRE
    paths: ClassVar[tuple[tuple[str, ...], ...]] = (("messages",),)
    _number = 0

    def open(self, document: Fields, origin: Origin, session: Session) -> Session:  # noqa: ARG002 (it needs no file)
        """Look at the fields of the thread."""
        self.title = string(document, "title")
        initial = inner(inner(document, "env"), "initial")
        trees = listed(initial, "trees")
        uri = string(split(trees[0]), "uri") if trees else None
        version = value(document, "v")
        return structs.replace(
            session,
            id=string(document, "id"),
            cwd=None if uri is None else unquote(urlsplit(uri).path),
            format=None if version is None else str(version),
            program=string(inner(initial, "platform"), "clientVersion"),
            started_at=read_time(value(document, "created")),
        )

    # -- reading ---------------------------------------------------------------------------------------------------

    def plain(self, fields: Fields) -> list[Message]:
        """Return the messages of a record."""
        role = string(fields, "role")
        if role not in {"user", "assistant"}:
            self.watch.note("unread", f"role {role}", self.line)
            return []
        self.watch.keys(fields, _KNOWN, "message", self.line)
        blocks = listed(fields, "content")
        found: list[Message] = [self._result(raw) for raw in blocks if _is_result(raw)]
        rest = [_wired(raw) for raw in blocks if not _is_result(raw)]
        if rest or not found:
            found += self.said({"role": fields["role"], "content": jsontext.raw(rest)}) if rest else [_empty(role)]
        usage = inner(fields, "usage")
        at = read_time(value(inner(fields, "meta"), "sentAt")) or read_time(value(usage, "timestamp"))
        found = [structs.replace(each, sent_at=at) for each in found]
        if isinstance(found[0], AssistantMessage):
            found[0] = structs.replace(found[0], **_answer(fields))
        gone = {"role", "content", extension_slot.SLOT}
        kept = {key: jsontext.own(raw) for key, raw in fields.items() if key not in gone}
        own = stored(found[0], NAME)
        return [self.beside(found[0], {**own, **kept}), *found[1:]]

    def _result(self, raw: Raw) -> Message:
        fields = split(raw)
        run = inner(fields, "run")
        status = string(run, "status") or ""
        error = run.get("error")
        given = run.get("result", jsontext.NULL if error is None else error)
        message = trusted.ToolMessage(
            content=_content(given),
            tool_call_id=string(fields, "toolUseID"),
            is_error=error is not None or status not in _DONE,
            provider_json=provider_of({NAME: {"block": jsontext.own(raw)}}),
        )
        return self.named(message)

    # -- writing ---------------------------------------------------------------------------------------------------

    def start(self, writing: WriteState) -> None:
        """Count messages on from those that are there."""
        numbers = (integer(stored(entry.message, NAME), "messageId") for entry in writing.entries)
        self._number = max((number + 1 for number in numbers if number is not None), default=0)

    def head(self, writing: WriteState) -> bytes:
        """Return the fields of a thread before its messages."""
        session = session_of(writing.metadata)
        own = session.id is not None and session.id.startswith("T-")
        times = (entry.message.sent_at for entry in writing.entries)
        created = session.started_at or next((at for at in times if at is not None), None) or now_ms()
        thread: dict[str, Any] = {
            "v": 0,
            "id": session.id if own else f"T-{derived_id(NAME, writing.thread.id)}",
            "created": created,
            "title": writing.take_title(),
        }
        if session.cwd is not None:
            tree = {"displayName": session.cwd.rpartition("/")[2], "uri": f"file://{session.cwd}"}
            thread["env"] = {"initial": {"trees": [tree]}}
        return jsontext.encode({key: each for key, each in thread.items() if each is not None})[:-1] + b',"messages":['

    def tail(self) -> bytes:
        """Return the end of a thread."""
        return b"]}"

    def write_record(self, entries: Sequence[Entry], receipt: Receipt) -> dict[str, Any] | None:
        """Return the record of a group."""
        record = self.body(entries, receipt)
        message = next((entry.message for entry in entries if self.holds(entry.message)), trusted.UserMessage())
        kept = stored(message, NAME)
        results = [entry.message for entry in entries if isinstance(entry.message, ToolMessage)]
        blocks = [each if isinstance(each, Raw) else jsontext.raw(each) for each in record["content"]]
        calls = [string(split(raw), "tool_use_id") for raw in blocks]  # as the wire writes them
        written = dict(zip([each.tool_call_id for each in results], [each for each in calls if each], strict=False))
        record["content"] = [
            *(_block(each, written.get(each.tool_call_id)) for each in results),
            *_rest(blocks),
        ]
        number = value(kept, "messageId")
        record["messageId"] = self._number if number is None else number
        self._number += 1
        if isinstance(message, AssistantMessage):
            record |= _written(message, kept)
        elif message.sent_at is not None and "meta" not in kept:
            record["meta"] = {"sentAt": message.sent_at}
        return self.with_rest(record, {key: raw for key, raw in kept.items() if key != "block"})


def _is_result(raw: Raw) -> bool:
    return jsontext.kind(raw) == "an object" and b'"toolUseID"' in bytes(raw) and "toolUseID" in jsontext.fields(raw)


def _wired(raw: Raw) -> Raw:
    """Return a block as the wire has it: of an image, the type of the media under the wire's name."""
    fields = jsontext.fields(raw) if jsontext.kind(raw) == "an object" else {}
    source = inner(fields, "source")
    if "mediaType" not in source:
        return raw
    named = {("media_type" if key == "mediaType" else key): each for key, each in source.items()}
    return jsontext.raw({**fields, "source": named})


def _own(raw: Raw) -> Raw:
    """Return a block as this program has it."""
    fields = jsontext.fields(raw)
    source = inner(fields, "source")
    if "media_type" not in source:
        return raw
    named = {("mediaType" if key == "media_type" else key): each for key, each in source.items()}
    return jsontext.raw({**fields, "source": named})


def _rest(blocks: Sequence[Raw]) -> list[Any]:
    """Return the blocks beside results; none that stands for an empty message when there are results."""
    return [_own(raw) for raw in blocks if string(split(raw), "type") != "tool_result"]


def _empty(role: str) -> Message:
    return trusted.AssistantMessage() if role == "assistant" else trusted.UserMessage()


def _content(raw: Raw) -> tuple[Text | Json, ...]:
    """Return a result as content: its text, else JSON."""
    if jsontext.kind(raw) == "a string":
        return (trusted.Text(jsontext.text(raw)),)
    fields = jsontext.fields(raw) if jsontext.kind(raw) == "an object" else {}
    for key in ("output", "message"):
        if key in fields and jsontext.kind(fields[key]) == "a string":
            return (trusted.Text(jsontext.text(fields[key])),)
    return () if raw == jsontext.NULL else (trusted.Json(jsontext.own(raw)),)


def _block(message: ToolMessage, call: str | None) -> Raw:
    """Return the block of a result: as it was, unless it changed. ``call`` is the id of its call in the file."""
    old = stored(message, NAME).get("block")
    if old is not None and _as_it_was(message, old):
        return old
    parts = message.content
    one = parts[0] if len(parts) == 1 else None
    result: Any = message.text if not isinstance(one, Json) else as_json(bytes(one.value_json).decode())
    run = (
        {"status": "error", "error": {"message": result}} if message.is_error else {"status": "done", "result": result}
    )
    return jsontext.raw({"type": "tool_result", "toolUseID": call or message.tool_call_id or "", "run": run})


def _as_it_was(message: ToolMessage, old: Raw) -> bool:
    fields = split(old)
    run = inner(fields, "run")
    error = run.get("error")
    failed = error is not None or (string(run, "status") or "") not in _DONE
    content = _content(run.get("result", jsontext.NULL if error is None else error))
    return (message.content, message.is_error, message.tool_call_id) == (content, failed, string(fields, "toolUseID"))


def _answer(fields: Fields) -> dict[str, Any]:
    """Return what a record says of an answer."""
    stop = string(inner(fields, "state"), "stopReason")
    found: dict[str, Any] = {"model": string(inner(fields, "usage"), "model"), "usage": _usage_of(fields)}
    if stop is not None:
        found |= {"finish_reason": _FINISH.get(stop, "other"), "finish_reason_raw": stop}
    return found


def _usage_of(fields: Fields) -> Usage | None:
    counts = inner(fields, "usage")
    if not counts:
        return None
    return trusted.Usage(
        input=integer(counts, "inputTokens"),
        cache_read=integer(counts, "cacheReadInputTokens"),
        cache_write=integer(counts, "cacheCreationInputTokens"),
        output=integer(counts, "outputTokens"),
        raw_json=jsontext.own(fields["usage"]),
    )


def _written(message: AssistantMessage, kept: Fields) -> dict[str, Any]:
    """Return the state and the counters of an answer, where they are not as they were."""
    old = _answer(kept)
    record: dict[str, Any] = {}
    usage = message.usage
    if (message.model, usage) != (old["model"], old["usage"]) and (message.model or usage):
        usage = usage or trusted.Usage()
        given = (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0)
        record["usage"] = {
            "model": message.model or "unknown",
            "inputTokens": usage.input or 0,
            "outputTokens": (usage.output or 0) + (usage.reasoning or 0),
            "cacheCreationInputTokens": usage.cache_write or 0,
            "cacheReadInputTokens": usage.cache_read or 0,
            "totalInputTokens": given,
            **({} if message.sent_at is None else {"timestamp": iso(message.sent_at)}),
        }
    elif message.sent_at is not None and "usage" not in kept and "meta" not in kept:
        record["meta"] = {"sentAt": message.sent_at}
    if message.finish_reason is not None and message.finish_reason != old.get("finish_reason"):
        reason = _STOPS.get(message.finish_reason, "end_turn")
        record["state"] = {"type": "complete", "stopReason": reason}
    return record


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="Amp threads",
    fidelity="bytes",
    detector=detect,
    record_reader=document_reading(ThreadForm),
    record_writer=list_rendering(ThreadForm),
    layout="document",
    extension=".json",
    keeps=(
        "reasoning with proof",
        "usage, model and end of each answer",
        "results as JSON",
        "tool errors",
        "images",
        "times of prompts and answers",
    ),
    loses=(
        "system prompts, markers (kept beside)",
        "other providers' reasoning (kept beside)",
        "audio, video",
        "branches",
    ),
)
