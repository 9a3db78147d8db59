"""Sessions of Goose: ``sessions/<id>.jsonl`` of versions before 1.10; ``read_sqlite`` reads the database of later ones.

Read: a first line without a role has the working directory, the description and counters of the session; every other
line is a message with ``created`` in seconds. Blocks: ``text``, ``image``, ``thinking``, ``redactedThinking``,
``toolRequest`` (a call, or one that could not be read), ``toolResponse`` (a result, or an error); notices and requests
for confirmation stay as they are. Under ``metadata``, ``agentVisible: false`` is a message that only the person sees,
``userVisible: false`` one that only the model sees; ``inference`` names the model of an answer, ``usage`` its counters
(those of the cache within).

Not represented: system and developer messages and markers (carried beside the next message), times below a second,
results as JSON, audio, video, files. Versions from 1.10 on read a file of lines only when they import it.

Stability: experimental.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from msgspec import Raw, structs

from palaver.core import jsontext, trusted
from palaver.core.errors import PalaverError, StoreError
from palaver.core.messages import AssistantMessage, ToolMessage, UserMessage, holds
from palaver.core.parts import Image, Inline, MalformedToolCall, Opaque, Reasoning, Text, ToolCall
from palaver.threads.view import PLACEHOLDER
from palaver.transcripts import extension_slot
from palaver.transcripts.conversation import session_of
from palaver.transcripts.detection import Detection, word
from palaver.transcripts.fields import (
    as_object,
    either,
    inner,
    integer,
    listed,
    one_line,
    read_time,
    split,
    string,
    usage_of_totals,
    value,
)
from palaver.transcripts.format import Origin, TranscriptFormat
from palaver.transcripts.message_list import Receipt, line_reading, list_rendering, stored
from palaver.transcripts.wire_list import ResultsForm

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from palaver.core.jsontext import Fields
    from palaver.core.messages import Message
    from palaver.core.parts import AnyPart
    from palaver.core.usage import Usage
    from palaver.threads.thread import Entry
    from palaver.transcripts.conversation import Session, Transcript
    from palaver.transcripts.detection import Head
    from palaver.transcripts.unknown_fields import Watch
    from palaver.transcripts.writer import WriteState

NAME: Final = "goose"
WIRE: Final = "anthropic_messages"
"""The wire of proofs of reasoning: that of the provider whose blocks these are."""

_HEADER: Final = frozenset(("description", "message_count", "total_tokens", "schedule_id", "accumulated_total_tokens"))
_KNOWN: Final = frozenset(("id", "role", "created", "content", "metadata", extension_slot.SLOT))
_KEPT: Final = frozenset(
    (
        "toolConfirmationRequest",
        "frontendToolRequest",
        "contextLengthExceeded",
        "summarizationRequested",
        "conversationCompacted",
        "systemNotification",
        "actionRequired",
        "reasoning",
    )
)
_BLOCKS: Final = _KEPT | {"text", "image", "thinking", "redactedThinking", "toolRequest", "toolResponse"}
_OWN: Final = frozenset(_BLOCKS - {"text", "image", "thinking", "reasoning"})
_RESULT: Final = frozenset(("type", "id", "toolResult"))
_HIDDEN: Final = "agent_only"
"""The source of a message that only the model sees."""


def detect(head: Head) -> Detection | None:
    """Return the line of a session, or messages with a time in seconds and blocks that only this program has."""
    first = head.first
    if "working_dir" in first and "role" not in first and _HEADER & first.keys():
        return Detection(0.95)
    said = [each for each in head.lines if word(each, "role") in {"user", "assistant"} and "created" in each]
    if any(_blocks(each) & _OWN or _is_seen(each) for each in said):
        return Detection(0.9)
    return None


def _blocks(record: Mapping[str, Any]) -> set[str]:
    content: object = record.get("content")
    items = cast("list[object]", content) if isinstance(content, list) else []
    return {word(cast("dict[str, Any]", each), "type") for each in items if isinstance(each, dict)}


def _is_seen(record: Mapping[str, Any]) -> bool:
    metadata: object = record.get("metadata")
    return isinstance(metadata, dict) and "agentVisible" in metadata


class MessageForm(ResultsForm):
    """A line of a session."""

    name: ClassVar[str] = NAME
    extra: ClassVar[str] = NAME
    keys: ClassVar[frozenset[str]] = _KNOWN
    lines: ClassVar[bool] = True
    _at = 0

    def __init__(self, watch: Watch) -> None:
        """Start before the first line."""
        super().__init__(watch)
        self._started = False

    def begin(self, items: Sequence[Fields | None], session: Session) -> Session:
        """Use the first line as the session."""
        first = items[0] or {}
        if "role" in first:
            return session
        self.title = string(first, "description") or None
        return structs.replace(session, id=string(first, "id"), cwd=string(first, "working_dir"))

    def id_of(self, fields: Fields) -> str | None:
        """Return the id of a message."""
        return string(fields, "id") if "role" in fields else None

    # -- reading ---------------------------------------------------------------------------------------------------

    def plain(self, fields: Fields) -> list[Message]:
        """Return the messages of a line."""
        if "role" not in fields:
            if "working_dir" not in fields:
                self.watch.note("record", "without a role", self.line)
            return []
        role = string(fields, "role")
        if role not in {"user", "assistant"}:
            self.watch.note("unread", f"role {role}", self.line)
            return []
        self.watch.keys(fields, _KNOWN, "message", self.line)
        blocks = listed(fields, "content")
        results = [raw for raw in blocks if _type(raw) == "toolResponse"]
        found: list[Message] = [self._result(raw) for raw in results]
        rest = [raw for raw in blocks if _type(raw) != "toolResponse"]
        if role == "assistant" and (rest or not found):
            model, usage = _inference(fields)
            found.append(
                trusted.AssistantMessage(content=self._fitting(AssistantMessage, rest), model=model, usage=usage)
            )
        elif rest or not found:
            found.append(trusted.UserMessage(content=self._fitting(UserMessage, rest)))
        at, metadata = read_time(value(fields, "created")), inner(fields, "metadata")
        found = [self.named(structs.replace(each, sent_at=at)) for each in found]
        if value(metadata, "agentVisible") is False:
            found = [structs.replace(each, tags=(PLACEHOLDER,)) for each in found]
        elif value(metadata, "userVisible") is False:
            found = [structs.replace(each, source=_HIDDEN) if isinstance(each, UserMessage) else each for each in found]
        kept = {key: jsontext.own(raw) for key, raw in fields.items() if key not in _KNOWN or key == "metadata"}
        own = stored(found[0], NAME)
        return [self.beside(found[0], {**own, **kept}), *found[1:]]

    def _part(self, raw: Raw) -> AnyPart:
        fields = as_object(raw)
        match string(fields, "type"):
            case "text":
                return self._with(trusted.Text(string(fields, "text") or ""), fields, "text")
            case "image":
                source = trusted.Inline(string(fields, "data") or "")
                return self._with(trusted.Image(source, string(fields, "mimeType")), fields, "data", "mimeType")
            case "thinking":
                part = trusted.Reasoning(string(fields, "thinking") or "", string(fields, "signature"), wire=WIRE)
                return self._with(part, fields, "thinking", "signature")
            case "redactedThinking":
                return self._with(trusted.Reasoning("", encrypted=string(fields, "data"), wire=WIRE), fields, "data")
            case "toolRequest":
                return self._call(raw, fields)
            case kind:
                if kind not in _KEPT:
                    self.watch.note("block", kind or "without a type", self.line)
                return trusted.Opaque(NAME, jsontext.own(raw))

    def _with(self, part: Any, fields: Fields, *read: str) -> AnyPart:
        kept = {key: jsontext.own(raw) for key, raw in fields.items() if key not in {"type", *read}}
        made: AnyPart = part if not kept else structs.replace(part, provider_json=jsontext.raw({NAME: kept}))
        return made

    def _call(self, raw: Raw, fields: Fields) -> AnyPart:
        named, outcome = string(fields, "id"), inner(fields, "toolCall")
        call = inner(outcome, "value") or ({} if "status" in outcome else outcome)
        name = string(call, "name")
        if named is not None and name is not None:
            given = call.get("arguments", jsontext.EMPTY_OBJECT)
            text = bytes(given).decode() if given != jsontext.NULL else "{}"
            return self._with(trusted.ToolCall(named, name, text), fields, "id", "toolCall")
        if named is not None and "error" in outcome:
            error = _text_of(outcome["error"])
            return self._with(trusted.MalformedToolCall(error, error, None, named), {"block": raw})
        self.watch.note("block", "toolRequest", self.line)
        return trusted.Opaque(NAME, jsontext.own(raw))

    def _result(self, raw: Raw) -> Message:
        fields = split(raw)
        result = inner(fields, "toolResult")
        content, failed = self._outcome(result)
        kept: dict[str, Any] = {key: jsontext.own(each) for key, each in fields.items() if key not in _RESULT}
        body = as_object(result.get("value", jsontext.NULL))
        if body:
            kept["value"] = {key: jsontext.own(each) for key, each in body.items() if key != "content"}
        message = trusted.ToolMessage(content=content, tool_call_id=string(fields, "id"), is_error=failed)
        return self.beside(message, kept)

    def _outcome(self, result: Fields) -> tuple[tuple[Any, ...], bool]:
        """Return the content of a result, and whether it is a failure."""
        if "error" in result:
            return (trusted.Text(_text_of(result["error"])),), True
        given = result.get("value", jsontext.NULL)
        listing = either(given, "value", "an array", "an object") == "an array"
        items = listed(result, "value") if listing else listed(as_object(given), "content")
        content = self._fitting(ToolMessage, items)
        return content, string(result, "status") == "error" or value(as_object(given), "isError") is True

    def _fitting(self, cls: type[Message], raws: Sequence[Raw]) -> tuple[Any, ...]:
        """Return blocks as parts; one that no message of a class has stays as it is."""
        parts = [self._part(each) for each in raws]
        return tuple(
            [
                part if holds(cls, part) else trusted.Opaque(NAME, jsontext.own(raw))
                for part, raw in zip(parts, raws, strict=True)
            ]
        )

    # -- writing ---------------------------------------------------------------------------------------------------

    def start(self, writing: WriteState) -> None:
        """Choose the time of messages without one."""
        times = (entry.message.sent_at for entry in writing.entries)
        self._at = session_of(writing.metadata).started_at or next((at for at in times if at is not None), None) or 0

    def head(self, writing: WriteState) -> bytes:
        """Return the line of a session."""
        count = sum(self.holds(entry.message) for entry in writing.entries)
        session = session_of(writing.metadata)
        header = {"working_dir": session.cwd or "/", "description": writing.take_title() or "", "message_count": count}
        return jsontext.encode({**header, "total_tokens": None})

    def write_record(self, entries: Sequence[Entry], receipt: Receipt) -> dict[str, Any] | None:
        """Return the line of a group."""
        own = [(place, entry.message) for place, entry in enumerate(entries) if self.holds(entry.message)]
        if not own:
            return None
        message = own[0][1]
        self._at = self._at if message.sent_at is None else message.sent_at
        blocks: list[Any] = []
        for place, each in own:
            blocks += [self._answer(each)] if isinstance(each, ToolMessage) else self._said(each, receipt, place)
        kept = stored(message, NAME)
        named = {} if entries[own[0][0]].id.count("-") == 4 else {"id": entries[own[0][0]].id}  # noqa: PLR2004 (a UUID)
        record: dict[str, Any] = {
            **named,
            "role": "assistant" if isinstance(message, AssistantMessage) else "user",
            "created": self._at // 1000,
            "content": blocks,
        }
        if metadata := _metadata(message, inner(kept, "metadata")):
            record["metadata"] = metadata
        return self.with_rest(record, {key: raw for key, raw in kept.items() if key not in {"block", "metadata"}})

    def _said(self, message: Message, receipt: Receipt, place: int) -> Iterator[Any]:
        for index, part in enumerate(message.content):
            kept: dict[str, Any] = dict(stored(part, NAME))
            match part:
                case Text():
                    yield {"type": "text", "text": part.text, **kept}
                case Image(source=Inline() as source):
                    yield {"type": "image", "data": source.data, "mimeType": part.media_type or "image/png", **kept}
                case Reasoning() if part.encrypted is not None and part.wire == WIRE and not part.text:
                    yield {"type": "redactedThinking", "data": part.encrypted, **kept}
                case Reasoning():
                    proof = part.signature if part.wire == WIRE else None
                    yield {"type": "thinking", "thinking": part.text, "signature": proof or "", **kept}
                case ToolCall() if not part.provider_executed:
                    arguments = one_line(bytes(receipt.arguments(part, index, place)).decode())
                    call = {"name": part.name, "arguments": arguments}
                    body = {"status": "success", "value": call}
                    yield {"type": "toolRequest", "id": part.id, "toolCall": body, **kept}
                case MalformedToolCall() if "block" in kept:
                    yield kept["block"]
                case Opaque(wire="goose"):
                    yield part.raw_json
                case _:
                    if (text := receipt.text_for(part, index, place)) is not None:
                        yield {"type": "text", "text": text}

    def _answer(self, message: ToolMessage) -> Any:
        kept = stored(message, NAME)
        value = kept.get("value")
        body: Any = list(self._said(message, Receipt(), 0))
        if value is not None:
            body = {"content": body, **split(value)}
            if message.is_error is not (jsontext.value(body.get("isError", jsontext.FALSE)) is True):
                body["isError"] = message.is_error
        result: dict[str, Any] = {"status": "success", "value": body}
        if message.is_error and value is None:
            result = {"status": "error", "error": message.text}
        return {"type": "toolResponse", "id": message.tool_call_id or "", "toolResult": result}


def _type(raw: Raw) -> str | None:
    return string(as_object(raw), "type")


def _text_of(raw: Raw) -> str:
    return jsontext.text(raw) if jsontext.kind(raw) == "a string" else bytes(raw).decode()


def _inference(fields: Fields) -> tuple[str | None, Usage | None]:
    """Return the model of an answer, and its counters."""
    metadata = inner(fields, "metadata")
    inference = inner(metadata, "inference")
    counts = inner(metadata, "usage")
    usage = None
    if counts:
        usage = usage_of_totals(
            integer(counts, "inputTokens"),
            integer(counts, "outputTokens"),
            cached=integer(counts, "cacheReadTokens"),
            written=integer(counts, "cacheWriteTokens"),
            reasoning=None,
            raw=metadata["usage"],
        )
    return string(inference, "resolvedModel") or string(inference, "requestedModel"), usage


def _metadata(message: Message, kept: Fields) -> dict[str, Any]:
    """Return who sees a message, and what made it: as it was, unless that changed."""
    seen: dict[str, Any] = dict(kept)
    before = value(kept, "agentVisible") is not False, value(kept, "userVisible") is not False
    now = PLACEHOLDER not in message.tags, message.source != _HIDDEN
    if now != before and (now[0] != before[0] or isinstance(message, UserMessage)):
        seen |= {"userVisible": now[1], "agentVisible": now[0]}
    if not isinstance(message, AssistantMessage):
        return seen
    model, usage = _inference({"metadata": jsontext.raw(kept)} if kept else {})
    if message.model is not None and message.model != model:
        seen["inference"] = {"requestedModel": message.model, "resolvedModel": message.model}
    if message.usage is not None and message.usage != usage:
        counts = message.usage
        seen["usage"] = {
            "inputTokens": (counts.input or 0) + (counts.cache_read or 0) + (counts.cache_write or 0),
            "outputTokens": (counts.output or 0) + (counts.reasoning or 0),
            "cacheReadTokens": counts.cache_read or 0,
            "cacheWriteTokens": counts.cache_write or 0,
        }
    if seen and not {"userVisible", "agentVisible"} & seen.keys():
        seen = {"userVisible": True, "agentVisible": True, **seen}
    return seen


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="Goose sessions",
    fidelity="bytes",
    detector=detect,
    record_reader=line_reading(MessageForm),
    record_writer=list_rendering(MessageForm),
    keeps=(
        "reasoning with proof",
        "usage and model of each answer",
        "times (in seconds)",
        "images",
        "tool errors",
        "who sees a message",
        "notices",
    ),
    loses=(
        "system prompts, markers (kept beside)",
        "other providers' reasoning (kept beside)",
        "results as JSON, audio, video, files (kept beside)",
        "branches",
    ),
)


def read_sqlite(path: str | Path) -> tuple[Transcript, ...]:
    """Return the sessions of a database, in the order of their ids. It is opened for reading only.

    Raises ``StoreError`` for a file that is not such a database.
    """
    try:
        with closing(sqlite3.connect(f"{Path(path).resolve().as_uri()}?mode=ro", uri=True)) as file:
            file.row_factory = sqlite3.Row
            return tuple([_read(file, row) for row in file.execute("SELECT * FROM sessions ORDER BY id")])
    except sqlite3.Error as error:
        raise StoreError(f"{Path(path).name}: {error}") from None


def _read(file: sqlite3.Connection, session: sqlite3.Row) -> Transcript:
    """Return a session, by way of the lines that older versions kept."""
    given = dict(session)
    header = {key: each for key, each in given.items() if not key.endswith("_json")}
    header["description"] = given.get("name") or given.get("description") or ""
    rows = file.execute("SELECT * FROM messages WHERE session_id = ? ORDER BY id", [given["id"]])
    lines = [jsontext.encode(header), *(_line(dict(row)) for row in rows)]
    (transcript,) = FORMAT.read(b"".join(line + b"\n" for line in lines), Origin(str(given["id"])))
    return transcript


def _line(row: Mapping[str, Any]) -> bytes:
    record: dict[str, Any] = {"role": row["role"], "created": row.get("created_timestamp")}
    if row.get("message_id") is not None:
        record = {"id": row["message_id"], **record}
    for key, column in (("content", "content_json"), ("metadata", "metadata_json")):
        text = row.get(column)
        if isinstance(text, str):
            record[key] = jsontext.own(Raw(text.encode())) if jsontext.is_json(text) else text
    try:
        return jsontext.encode(record)
    except PalaverError:
        return jsontext.encode({**record, "content": str(row.get("content_json"))})
