"""Read opencode's exports (docs/spec/dialects.md#7).

Rules:

- A message is a record. One of an assistant is an answer for each of its steps, followed by the results of its calls;
  ``tokens`` of the message are its usage, and those of ``step-finish`` are not added.
- The parts of a user's message are split by audience: ``synthetic`` texts are sent and not shown (``source``), ignored
  texts and files whose content is in a text beside them are shown and not sent (``PLACEHOLDER``).
- An answer with an error is not sent, unless it was aborted and has content.
- A compaction is the answer that is marked ``summary``, once it has finished. The model's view since then is what
  opencode sends: its question, the summary, and the messages from ``tail_start_id`` on.
- A result may be an error even if its status is ``completed``: of a call to an unknown tool, or of a command whose exit
  code is not 0. An output that opencode has cleared for the model (``time.compacted``) is read as it is on disk.
- ``revert`` hides the message that it names and the later ones: the main branch ends before it.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, Raw, structs

from palaver.core import jsontext, trusted
from palaver.core.errors import PalaverError
from palaver.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from palaver.core.parts import (
    AnyPart,
    Reasoning,
    ServerToolResult,
)
from palaver.threads.thread import MAIN
from palaver.threads.view import PLACEHOLDER
from palaver.transcripts import documents, extension_slot, packages
from palaver.transcripts.conversation import (
    COMPACTION,
    Conversation,
    Session,
    Step,
    derived_id,
    hidden_before,
    record_message,
)
from palaver.transcripts.fields import as_json, as_object, flag, inner, integer, listed, read_time, split, string, value
from palaver.transcripts.opencode import shapes
from palaver.transcripts.opencode.flat import Flat
from palaver.transcripts.opencode.shapes import NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.core.jsontext import Fields
    from palaver.transcripts.format import Origin
    from palaver.transcripts.record import Record
    from palaver.transcripts.unknown_fields import Watch

_MORE: Final = ("slug", "projectID", "parentID")


def thread_id(session: str | None) -> str:
    """Return the id of the thread of a session."""
    return derived_id(NAME, session)


class RecordReader:
    """Reads an export."""

    def __init__(self, origin: Origin, watch: Watch) -> None:
        """Start before the document."""
        self._origin = origin
        self._watch = watch
        self._flat = Flat(watch)
        self._kept: list[tuple[str, Message]] = []  # since the last compaction: id of the record, message
        self._tails: dict[str, str] = {}  # by the id of the request for a compaction

    def record(self, record: Record) -> Iterator[Step]:
        """Read the document."""
        progress = found.group() if (found := shapes.PROGRESS.match(record.raw)) else b""
        body = record.raw[len(progress) :]
        fields = documents.fields_of(body) if progress else record.fields or {}
        info = inner(fields, "info")
        session = _session(info)
        conversation = Conversation(NAME, thread_id(session.id or self._origin.name))
        yield conversation.began()
        cut = documents.cut(body, "messages")
        yield from conversation.record(structs.replace(cut.head, raw=progress + cut.head.raw))
        revert = inner(info, "revert")
        head: str | None = None
        hidden = False
        for item in cut.items:
            before = conversation.head
            yield from self._item(conversation, item)
            if not hidden and revert and _id(item.fields or {}) == string(revert, "messageID"):
                hidden, head = True, conversation.head if string(revert, "partID") else before
        if cut.tail is not None:
            yield from conversation.record(cut.tail)
        branches = {MAIN: head} if hidden else None
        yield conversation.ended(branches, title=string(info, "title"), metadata=session.metadata())

    def end(self) -> Iterator[Step]:
        """Return no steps: the document has ended with its record."""
        return iter(())

    def _item(self, conversation: Conversation, record: Record) -> Iterator[Step]:
        fields = record.fields
        if fields is None:
            self._watch.note("unread", "an item of messages is not an object")
            yield from conversation.record(record)
            return
        named = _id(fields)
        try:
            group = self._group(fields)
        except PalaverError as error:
            self._watch.note("unread", str(error))
            group = []
        if not group:
            yield from conversation.record(record, id=named)
            return
        # The id of a compaction is that of its answer: messages placed before it have no id in the file.
        place = next((place for place, each in enumerate(group) if _leads(each)), 0)
        yield from conversation.join(group, [record], ids=[*[None] * place, named])

    def _group(self, fields: Fields) -> list[Message]:
        """Return the messages of a record; empty without any."""
        plain = self.plain(fields)
        named = _id(fields) or ""
        if _compacts(fields):
            tail = self._tails.get(string(inner(fields, "info"), "parentID") or "")
            start = next((place for place, (each, _) in enumerate(self._kept) if each == tail), len(self._kept))
            at = plain[0].sent_at if plain else None
            asked: list[Message] = []
            if "info" in fields:
                asked = [trusted.UserMessage(content=(trusted.Text(shapes.ASKED),), source=COMPACTION, sent_at=at)]
            new = [*asked, *(structs.replace(each, source=COMPACTION) for each in plain)]
            new += [_once_more(each) for _, each in self._kept[start:]]
            self._kept = [("", each) for each in new]
            return [record_message(at), hidden_before(at), *new]
        slot = _slot(fields)
        restored = None if slot is None else extension_slot.restored(plain, slot)
        group = plain if restored is None else list(restored)
        self._kept += [(named, each) for each in group]
        return group

    def plain(self, fields: Fields) -> list[Message]:
        """Return the messages of a record, without carried data."""
        if "info" not in fields:
            return self._flat.plain(fields)
        info = inner(fields, "info")
        self._watch.keys(fields, {"info", "parts"}, "message")
        role = string(info, "role") or ""
        known = shapes.INFO.get(role)
        if known is None:
            self._watch.note("unread", f"message of role {role}")
            return []
        self._watch.keys(info, known, f"info.{role}")
        parts = [as_object(raw) or raw for raw in listed(fields, "parts")]
        for part in parts:
            self._check(part)
        return self._user(info, parts) if role == "user" else self._assistant(info, parts)

    def _check(self, part: Fields | Raw) -> None:
        kind = string(part, "type") or "without a type" if isinstance(part, dict) else jsontext.kind(part)
        known = shapes.PARTS.get(kind)
        if known is None:
            self._watch.note("block", kind)
        elif isinstance(part, dict):
            self._watch.keys(part, known, kind)

    # -- users ---------------------------------------------------------------------------------------------------------

    def _user(self, info: Fields, parts: list[Fields | Raw]) -> list[Message]:
        at = read_time(value(inner(info, "time"), "created"))
        named = _id({"info": jsontext.raw(info)}) or ""
        runs: list[tuple[str, list[AnyPart]]] = []
        for part in parts:
            kind = string(part, "type") if isinstance(part, dict) else None
            if isinstance(part, dict) and kind == "compaction":
                self._tails[named] = string(part, "tail_start_id") or ""
                continue
            said = _said(part) if isinstance(part, dict) else trusted.Opaque(NAME, jsontext.own(part))
            if said is None:
                continue
            known_messages = _seen(part) if isinstance(part, dict) else ""
            if not runs or runs[-1][0] != known_messages:
                runs.append((known_messages, []))
            runs[-1][1].append(said)
        return [_user_message(known_messages, content, at) for known_messages, content in runs]

    # -- assistants ----------------------------------------------------------------------------------------------------

    def _assistant(self, info: Fields, parts: list[Fields | Raw]) -> list[Message]:
        at = read_time(value(inner(info, "time"), "created"))
        run: list[Message] = []
        content: list[Any] = []
        results: list[ToolMessage] = []

        def step() -> None:
            if content:
                run.extend((trusted.AssistantMessage(content=tuple(content), sent_at=at), *results))
            content.clear()
            results.clear()

        for part in parts:
            kind = string(part, "type") if isinstance(part, dict) else None
            if kind == "step-start":
                step()
            elif isinstance(part, dict) and kind == "tool":
                self._watch.keys(inner(part, "state"), shapes.STATE, "state")
                if string(inner(part, "state"), "status") not in shapes.STATUSES:
                    self._watch.note("value", "state.status")
                made, result = _tool(part)
                content += made
                results += () if result is None else (result,)
            else:
                said = _said(part) if isinstance(part, dict) else trusted.Opaque(NAME, jsontext.own(part))
                content += () if said is None else (said,)
        step()
        if not run and (usage := shapes.usage_of(info)) is not None and usage.total:
            run = [trusted.AssistantMessage(sent_at=at)]  # an empty answer was paid for too
        return _described(run, info, failed=_failed(info, parts))


# -- what a record is --------------------------------------------------------------------------------------------------


def _session(info: Fields) -> Session:
    parent = string(info, "parentID")
    location = inner(info, "location")
    model = inner(info, "model")
    return Session(
        file_format=NAME,
        id=string(info, "id"),
        format="2" if "location" in info else "1",
        program=string(info, "version"),
        cwd=string(info, "directory") or string(location, "directory"),
        model=string(model, "id") or string(model, "modelID"),
        agent=string(info, "agent"),
        started_at=read_time(value(inner(info, "time"), "created")),
        parent=None if parent is None else thread_id(parent),
        more={key: jsontext.value(info[key]) for key in _MORE if key in info},
    )


def _id(fields: Fields) -> str | None:
    return string(inner(fields, "info"), "id") if "info" in fields else string(fields, "id")


def _compacts(fields: Fields) -> bool:
    """Return whether a record is a finished compaction."""
    if "info" not in fields:
        return string(fields, "type") == "compaction" and string(fields, "status") in {None, "completed"}
    info = inner(fields, "info")
    return (
        string(info, "role") == "assistant"
        and flag(info, "summary")
        and string(info, "finish") is not None
        and "error" not in info
    )


def _once_more(message: Message) -> Message:
    """Return a copy of a message that a compaction kept, for the model's view, without usage."""
    if isinstance(message, AssistantMessage):
        return structs.replace(message, source=COMPACTION, id=None, usage=None)
    return structs.replace(message, source=COMPACTION, id=None)


def _leads(message: Message) -> bool:
    return isinstance(message, AssistantMessage) or (message.source != COMPACTION and message.tags == ())


def _slot(fields: Fields) -> Any:
    """Return the carried data of a record: in its first part that has some, or in version 2 in the record."""
    for stored in (fields, *map(as_object, listed(fields, "parts"))):
        metadata = inner(stored, "metadata")
        if extension_slot.SLOT in metadata:
            return value(metadata, extension_slot.SLOT)
    return None


def _seen(part: Fields) -> str:
    """Return the audience of a part of a user's message: ``""`` for both."""
    if string(part, "type") == "file":
        return PLACEHOLDER if string(part, "mime") in shapes.UNSENT else ""
    if string(part, "type") == "agent" or value(part, "ignored") is True:
        return PLACEHOLDER
    if string(part, "type") == "subtask" or value(part, "synthetic") is True:
        return shapes.SYNTHETIC
    return ""


def _user_message(known_messages: str, content: list[AnyPart], at: int | None) -> UserMessage:
    stored: Any = tuple(content)
    if known_messages == PLACEHOLDER:
        return trusted.UserMessage(content=stored, tags=(PLACEHOLDER,), sent_at=at)
    return trusted.UserMessage(content=stored, source=known_messages or None, sent_at=at)


def _failed(info: Fields, parts: list[Fields | Raw]) -> bool:
    """Return whether an answer is not sent to models, because it ended in an error."""
    if "error" not in info:
        return False
    said = any(
        isinstance(part, dict) and string(part, "type") not in {"step-start", "reasoning", None} for part in parts
    )
    return not (string(inner(info, "error"), "name") == shapes.ABORTED and said)


def _described(run: list[Message], info: Fields, *, failed: bool) -> list[Message]:
    """Return the answers of a record with its data; the last one has usage and finish reason."""
    stop = string(info, "finish")
    last = next((place for place in range(len(run) - 1, -1, -1) if isinstance(run[place], AssistantMessage)), None)
    made: list[Message] = []
    for place, message in enumerate(run):
        told: Message = message
        if isinstance(message, AssistantMessage):
            told = structs.replace(message, model=string(info, "modelID"))
            if place == last:
                told = structs.replace(
                    told,
                    usage=shapes.usage_of(info),
                    finish_reason=None if stop is None else shapes.FINISH.get(stop, "other"),
                    finish_reason_raw=UNSET if stop is None else stop,
                )
                if "error" in info:
                    told = structs.replace(
                        told, finish_reason="error", metadata_json=jsontext.raw({"error": info["error"]})
                    )
        made.append(structs.replace(told, tags=(PLACEHOLDER,)) if failed else told)
    return made


# -- what a part is ----------------------------------------------------------------------------------------------------


def _said(part: Fields) -> AnyPart | None:
    """Return a part that is not a call; ``None`` for those of the program."""
    kind = string(part, "type")
    metadata = dict(inner(part, "metadata"))
    metadata.pop(extension_slot.SLOT, None)
    match kind:
        case "text" if string(part, "text") is not None:
            return packages.marked(trusted.Text(string(part, "text") or ""), metadata, NAME)
        case "reasoning" if string(part, "text") is not None:
            return _reasoning(string(part, "text") or "", metadata)
        case "file" if string(part, "url") is not None:
            return packages.media(string(part, "url") or "", string(part, "mime"), string(part, "filename"), NAME)
        case "subtask":
            return trusted.Text(shapes.SUBTASK)
        case "agent":
            return trusted.Opaque(NAME, jsontext.raw(part))
        case _ if kind in shapes.PARTS and kind not in shapes.SAID:
            return None
        case _:
            return trusted.Opaque(NAME, jsontext.raw(part))


def _reasoning(text: str, metadata: Fields) -> Reasoning:
    return packages.reasoning(text, metadata, NAME)


def _tool(part: Fields) -> tuple[list[AnyPart], ToolMessage | None]:
    """Return a call, and its result, if any."""
    state, name, named = inner(part, "state"), string(part, "tool") or "", string(part, "callID") or ""
    metadata = dict(inner(part, "metadata"))
    metadata.pop(extension_slot.SLOT, None)
    executed = value(metadata, "providerExecuted") is True
    metadata.pop("providerExecuted", None)
    status = string(state, "status")
    text = bytes(state.get("input", jsontext.EMPTY_OBJECT)).decode()
    raw = string(state, "raw")
    if status == "pending" and raw:
        if not jsontext.is_json(raw) or jsontext.kind(as_json(raw)) != "an object":
            return [trusted.MalformedToolCall(raw, "the arguments were still streaming", name, named)], None
        text = raw
    if jsontext.kind(state.get("input", jsontext.EMPTY_OBJECT) if text is not raw else as_json(text)) != "an object":
        return [trusted.MalformedToolCall(text, "the arguments are not an object", name, named)], None
    call = packages.marked(trusted.ToolCall(named, name, text, provider_executed=executed), metadata, NAME)
    at = read_time(value(inner(state, "time"), "end"))
    match status:
        case "completed":
            files = [_said(split(each)) for each in listed(state, "attachments")]
            content: Any = (trusted.Text(string(state, "output") or ""), *(each for each in files if each is not None))
            failed = name == shapes.INVALID or integer(inner(state, "metadata"), "exit") not in {None, 0}
        case "error":
            interrupted = flag(inner(state, "metadata"), "interrupted")
            told = string(inner(state, "metadata"), "output") if interrupted else None
            content, failed = (trusted.Text(string(state, "error") or "" if told is None else told),), True
        case _:
            return [call], None
    if executed:
        stored = ServerToolResult(named, jsontext.raw(content[0].text), NAME, name, is_error=failed)
        return [call, stored], None
    result = trusted.ToolMessage(content=content, tool_call_id=named, tool_name=name, is_error=failed, sent_at=at)
    return [call], result
