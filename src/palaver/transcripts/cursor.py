"""Transcripts of Cursor's agents: ``~/.cursor/projects/<folder>/agent-transcripts/<id>/<id>.jsonl``.

``read_sqlite`` reads the chats of the editor, which are in ``state.vscdb``.

Read: a line is ``{role, message: {content}}`` with blocks ``text`` and ``tool_use``; ``{type: "turn_ended", status}``
ends a turn, and is a record. The program writes no times, models, results or ids: a call gets an id by its place,
which is marked and never written back. Texts keep the marks that the program puts around a prompt (``<user_query>``).

In the database, a row ``composerData:<id>`` has the title, the times and the list of bubbles of a chat, or the bubbles
themselves; a row ``bubbleId:<id>:<bubble>`` is one bubble: its text, its thinking with its proof, its counters, and
``toolFormerData``, a call with its result. A listed bubble without a row is on the list of what was not read. Diffs,
checkpoints and the contexts of prompts are not read.

Not represented: times, models, usage, system and developer messages and markers (carried beside the next message),
audio, video, files. The program reads no file that we write, and the database is never written.

Stability: experimental.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec import Raw, structs

from palaver.core import jsontext, trusted
from palaver.core.errors import PalaverError, StoreError
from palaver.core.messages import AssistantMessage, UserMessage
from palaver.core.parts import ToolCall, settled
from palaver.core.request import Loss
from palaver.threads.thread import MAIN, Entry, Thread
from palaver.transcripts import extension_slot
from palaver.transcripts.conversation import Session, Transcript, derived_id
from palaver.transcripts.detection import Detection, word
from palaver.transcripts.fields import as_object, inner, integer, listed, read_time, split, string, value
from palaver.transcripts.format import TranscriptFormat
from palaver.transcripts.message_list import ABSENT, Receipt, line_reading, list_rendering, stored
from palaver.transcripts.wire_list import WireForm

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from palaver.core.jsontext import Fields
    from palaver.core.messages import Message
    from palaver.core.parts import AnyPart
    from palaver.transcripts.detection import Head

NAME: Final = "cursor"
WIRE: Final = "anthropic_messages"
_ROLES: Final = frozenset(("user", "assistant"))
_USER: Final = 1
_FAILED: Final = frozenset(("error", "cancelled", "rejected"))


def detect(head: Head) -> Detection | None:
    """Return lines with a role, and a message that has only content."""
    said = [each for each in head.lines if _is_said(each)]
    ends = [each for each in head.lines if each.get("type") == "turn_ended"]
    return Detection(0.9) if said and (len(said) + len(ends)) * 2 >= len(head.lines) else None


def _is_said(record: Mapping[str, Any]) -> bool:
    message = record.get("message")
    if word(record, "role") not in _ROLES or "type" in record or not isinstance(message, dict):
        return False
    return "content" in message and "role" not in message


class LineForm(WireForm):
    """A line of a transcript."""

    name: ClassVar[str] = NAME
    extra: ClassVar[str] = NAME
    wire: ClassVar[str] = WIRE
    keys: ClassVar[frozenset[str]] = frozenset(("role", "message"))
    lines: ClassVar[bool] = True
    _written: Sequence[str] = ()
    """The ids of calls that the record written last left out."""

    def plain(self, fields: Fields) -> list[Message]:
        """Return the messages of a line."""
        kind = string(fields, "type")
        if "role" not in fields:
            if kind != "turn_ended":
                self.watch.note("record", kind or "without a type", self.line)
            return []
        role, message = string(fields, "role"), inner(fields, "message")
        if role not in _ROLES or "content" not in message:
            self.watch.note("unread", f"role {role}", self.line)
            return []
        self.watch.keys(fields, self.keys | {extension_slot.SLOT}, "line", self.line)
        self.watch.keys(message, ("content",), "message", self.line)
        content, made = self._with_ids(message["content"])
        found = self.said({"role": fields["role"], "content": content})
        if not found:
            return []
        kept = {key: jsontext.own(raw) for key, raw in fields.items() if key not in {*self.keys, extension_slot.SLOT}}
        if more := {key: jsontext.own(raw) for key, raw in message.items() if key != "content"}:
            kept["message"] = jsontext.raw(more)
        marked = [
            structs.replace(each, content=tuple([_marked(part, made) for part in each.content])) for each in found
        ]
        return [self.beside(marked[0], kept), *marked[1:]]

    def _with_ids(self, content: Raw) -> tuple[Raw, set[str]]:
        """Return content in which calls have ids, and the ids that were made."""
        if jsontext.kind(content) != "an array":
            return content, set()
        blocks: list[Raw] = []
        made: dict[str, None] = {}
        for raw in jsontext.items(content):
            fields = as_object(raw)
            if string(fields, "type") == "tool_use" and "id" not in fields:
                number = len(made)
                known = number < len(self._written) and self.line is None
                named = self._written[number] if known else derived_id(NAME, self.line, number)
                made[named] = None
                blocks.append(jsontext.raw({**fields, "id": named}))
            else:
                blocks.append(raw)
        return (jsontext.raw(blocks) if made else content), set(made)

    def write_record(self, entries: Sequence[Entry], receipt: Receipt) -> dict[str, Any] | None:
        """Return the line of a group."""
        said = self.body(entries, receipt)
        own = [entry for entry in entries if self.holds(entry.message)] or list(entries)
        made = [call.id for entry in own for call in entry.message.tool_calls if value(stored(call, NAME), ABSENT)]
        self._written = made
        blocks = [_without_id(raw, made) for raw in said["content"]]
        kept = stored(own[0].message, NAME)
        record: dict[str, Any] = {"role": said["role"], "message": {"content": blocks, **inner(kept, "message")}}
        return self.with_rest(record, {key: raw for key, raw in kept.items() if key != "message"})


def _marked(part: AnyPart, made: set[str]) -> AnyPart:
    if not isinstance(part, ToolCall) or part.id not in made:
        return part
    return structs.replace(part, provider_json=jsontext.raw({**_provider(part), NAME: {ABSENT: ["id"]}}))


def _provider(part: ToolCall) -> Fields:
    return jsontext.fields(part.provider_json) if isinstance(part.provider_json, Raw) else {}


def _without_id(block: Any, made: Sequence[str]) -> Any:
    fields = split(block if isinstance(block, Raw) else jsontext.raw(block))
    was_made = string(fields, "type") == "tool_use" and string(fields, "id") in made
    return {key: raw for key, raw in fields.items() if key != "id" or not was_made}


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="Cursor agent transcripts",
    fidelity="bytes",
    detector=detect,
    record_reader=line_reading(LineForm),
    record_writer=list_rendering(LineForm),
    keeps=("text", "calls (by their place)", "images"),
    loses=(
        "times, models, usage (kept beside)",
        "ids",
        "system prompts, markers (kept beside)",
        "audio, video",
        "branches",
    ),
)


# -- the database of the editor ----------------------------------------------------------------------------------------


def read_sqlite(path: str | Path) -> tuple[Transcript, ...]:
    """Return the chats of a database that have messages, in the order of their ids. It is opened for reading only.

    Raises ``StoreError`` for a file that is not such a database.
    """
    try:
        with closing(sqlite3.connect(f"{Path(path).resolve().as_uri()}?mode=ro", uri=True)) as file:
            rows = file.execute("SELECT key, value FROM cursorDiskKV WHERE key LIKE 'composerData:%' ORDER BY key")
            found = [_chat(file, key.partition(":")[2], _object(data)) for key, data in rows.fetchall()]
    except sqlite3.Error as error:
        raise StoreError(f"{Path(path).name}: {error}") from None
    return tuple([each for each in found if len(each.thread) or each.unread])


def _object(data: object) -> Fields:
    """Return the object in a value, which is text or bytes; empty for any other."""
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    try:
        return jsontext.fields(raw) if isinstance(raw, bytes) else {}
    except PalaverError:
        return {}


def _chat(file: sqlite3.Connection, named: str, chat: Fields) -> Transcript:
    thread, unread = Thread(derived_id(NAME, named)), list[Loss]()
    model = string(inner(chat, "modelConfig"), "modelName")
    parent: str | None = None
    for bubble, fields in _bubbles(file, named, chat):
        messages = _messages(fields, model)
        if not messages:
            unread.append(Loss("dropped", "message", f"bubble {bubble}: {'empty' if fields else 'it has no row'}"))
        for place, message in enumerate(messages):
            entry = derived_id(thread.id, bubble, place) if place or not bubble else bubble
            thread.add([Entry(entry, parent, message)], {MAIN: entry})
            parent = entry
    session = Session(file_format=NAME, id=named, model=model, started_at=read_time(value(chat, "createdAt")))
    return Transcript(thread, string(chat, "name"), session.metadata(), tuple(unread))


def _bubbles(file: sqlite3.Connection, named: str, chat: Fields) -> Iterator[tuple[str, Fields]]:
    """Yield the bubbles of a chat, in its order: those in it, and those in rows of their own."""
    for raw in listed(chat, "conversation"):
        fields = split(raw)
        yield string(fields, "bubbleId") or "", fields
    for raw in listed(chat, "fullConversationHeadersOnly"):
        bubble = string(split(raw), "bubbleId") or ""
        found = file.execute("SELECT value FROM cursorDiskKV WHERE key = ?", [f"bubbleId:{named}:{bubble}"]).fetchone()
        yield bubble, {} if found is None else _object(found[0])


def _messages(bubble: Fields, model: str | None) -> list[Message]:
    """Return the message of a bubble, and the result of its call."""
    text = string(bubble, "text") or ""
    at = read_time(value(bubble, "createdAt")) or read_time(value(inner(bubble, "timingInfo"), "clientStartTime"))
    if integer(bubble, "type") == _USER:
        return [UserMessage(content=(trusted.Text(text),), sent_at=at)] if text else []
    parts: list[Any] = []
    thinking = inner(bubble, "thinking")
    thought = string(thinking, "text") or ""
    if thought or "signature" in thinking:
        parts.append(trusted.Reasoning(thought, string(thinking, "signature") or None, wire=WIRE))
    if text:
        parts.append(trusted.Text(text))
    tool = inner(bubble, "toolFormerData")
    called = string(tool, "toolCallId")
    if called is not None and (name := string(tool, "name")) is not None:
        arguments = string(tool, "rawArgs") or string(tool, "params") or "{}"
        parts.append(settled(trusted.ToolCall(called, name, arguments)))
    if not parts:
        return []
    used = string(inner(bubble, "modelInfo"), "modelName") or model
    answer = AssistantMessage(content=tuple(parts), model=used, usage=_usage(bubble), sent_at=at)
    result = _result(tool, called)
    return [answer] if result is None else [answer, structs.replace(result, sent_at=at)]


def _usage(bubble: Fields) -> Any:
    counts = inner(bubble, "tokenCount")
    given, made = integer(counts, "inputTokens"), integer(counts, "outputTokens")
    if not given and not made:  # zeros: they were not counted
        return None
    return trusted.Usage(input=given, output=made, raw_json=jsontext.own(bubble["tokenCount"]))


def _result(tool: Fields, called: str | None) -> Message | None:
    """Return the result of a call; ``None`` for one without any."""
    said = string(tool, "result") if "result" in tool else None
    failed = string(tool, "status") in _FAILED
    error = string(tool, "error") if "error" in tool else None
    text = said if said is not None else error
    if called is None or (text is None and not failed):
        return None
    structured = text is not None and text.lstrip().startswith(("{", "[")) and jsontext.is_json(text)
    part = trusted.Json(jsontext.raw(jsontext.value(text))) if structured and text else trusted.Text(text or "")
    return trusted.ToolMessage(
        content=(part,), tool_call_id=called, tool_name=string(tool, "name"), is_error=failed or said is None
    )
