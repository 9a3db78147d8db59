"""Read a log of ACP into messages (docs/spec/dialects.md#13).

Rules:

- A line is a JSON-RPC message, the ``params`` of one, or either in an envelope (Grok Build's has Unix seconds).
- An answer is the successive thoughts, texts and calls, with the results of its calls, as one group. It ends when the
  agent continues after all its calls have ended, when a chunk has another ``messageId``, and with a prompt.
- A prompt is a ``session/prompt`` request, or chunks of the user; chunks after the request repeat it.
- ``stopReason`` of the answer to a prompt, and Grok Build's ``turn_completed``, belong to the last answer of the turn.
- ``session/load`` repeats the history: if the log has it, the repeated messages stay records. So does an update that
  repeats a message or a call whose id the log had before.
- Carried data are in the last update of a message, and end it.
- ``usage_update`` says how full the context is: it is not usage. Plans, modes and commands are records.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from palaver.core import jsontext
from palaver.core.errors import PalaverError
from palaver.core.messages import Message
from palaver.threads.ids import is_uuid
from palaver.transcripts import extension_slot
from palaver.transcripts.acp.shapes import CHUNKS, NAME, UPDATES, Form, Group, turn_usage
from palaver.transcripts.conversation import Conversation, Session, Step, derived_id
from palaver.transcripts.fields import inner, listed, read_time, string, value
from palaver.transcripts.format import Origin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.core.jsontext import Fields
    from palaver.transcripts.record import Record
    from palaver.transcripts.unknown_fields import Watch

_HELD: Final = 4096
"""The most records that wait for one that names the session."""
_WRAPS: Final = ("message", "payload", "notification", "data", "msg", "rpc")
_TIMES: Final = ("timestamp", "ts", "time")
_METHODS: Final = frozenset(
    (
        "initialize",
        "authenticate",
        "logout",
        "session/new",
        "session/load",
        "session/resume",
        "session/list",
        "session/close",
        "session/delete",
        "session/fork",
        "session/prompt",
        "session/cancel",
        "session/update",
        "session/set_mode",
        "session/set_model",
        "session/set_config_option",
        "session/request_permission",
        "fs/read_text_file",
        "fs/write_text_file",
        "terminal/create",
        "terminal/output",
        "terminal/release",
        "terminal/wait_for_exit",
        "terminal/kill",
    )
)


def rpc_of(fields: Fields) -> Fields:
    """Return the JSON-RPC message of a line: itself, or that in its envelope; ``params`` alone get a method."""
    for key in ("", *_WRAPS):
        found = inner(fields, key) if key else fields
        if "method" in found or "result" in found or "error" in found:
            return found
        if "sessionUpdate" in inner(found, "update"):
            return {"method": jsontext.raw("session/update"), "params": jsontext.raw(dict(found))}
    return {}


class RecordReader:
    """Reads one log."""

    def __init__(self, origin: Origin, watch: Watch) -> None:
        """Start before the first record."""
        self._origin = origin
        self._watch = watch
        self._form = Form(watch)
        self._conversation: Conversation | None = None
        self._early: list[Record] = []
        self._session = Session(file_format=NAME)
        self._title: str | None = None
        self._open: list[Group] = []
        self._told: set[str] = set()  # ids of messages and calls that were added
        self._loading: str | None = None  # the id of the request whose replay is in progress
        self._any = False

    def record(self, record: Record) -> Iterator[Step]:
        """Read the next line."""
        rpc = rpc_of(record.fields or {})
        if self._conversation is None:
            named = _session_of(rpc)
            self._early.append(record)
            if named is None and len(self._early) < _HELD:
                return
            yield from self._begin(named)
            return
        yield from self._read(record, rpc)

    def end(self) -> Iterator[Step]:
        """Close the open groups."""
        if self._conversation is None:
            if not self._early:
                return
            yield from self._begin(None)
        yield from self._close()
        if self._conversation is not None:
            yield self._conversation.ended(title=self._title, metadata=self._session.metadata())

    def _begin(self, named: str | None) -> Iterator[Step]:
        thread = named if named is not None and is_uuid(named) else derived_id(NAME, named or self._origin.name)
        self._session = structs.replace(self._session, id=named)
        self._conversation = Conversation(NAME, thread)
        yield self._conversation.began()
        early, self._early = self._early, []
        for record in early:
            yield from self._read(record, rpc_of(record.fields or {}))

    # -- lines ---------------------------------------------------------------------------------------------------------

    def _read(self, record: Record, rpc: Fields) -> Iterator[Step]:
        self._form.line = record.line
        method, params = string(rpc, "method"), inner(rpc, "params")
        at = _time_of(record.fields or {}, params)
        if self._session.started_at is None and at is not None:
            self._session = structs.replace(self._session, started_at=at)
        named = string(params, "sessionId")
        if named is not None and self._session.id is not None and named != self._session.id:
            self._watch.note("value", "sessionId", record.line)
            yield from self._aside(record)
        elif method is None:
            yield from self._answered(record, rpc)
        elif method.endswith("session/update"):
            yield from self._update(record, inner(params, "update"), params, at)
        else:
            yield from self._request(record, rpc, method, at)

    def _aside(self, record: Record) -> Iterator[Step]:
        if self._conversation is not None:
            yield from self._conversation.record(record)

    def _request(self, record: Record, rpc: Fields, method: str, at: int | None) -> Iterator[Step]:
        if method not in _METHODS and not method.startswith(("_", "$/")):
            self._watch.note("record", method, record.line)
        params, request = inner(rpc, "params"), _id(rpc)
        if method in {"session/new", "session/load", "session/resume"}:
            self._session = structs.replace(self._session, cwd=string(params, "cwd") or self._session.cwd)
        if method == "session/load" and (self._any or self._open):
            yield from self._close()
            self._loading = request
        if method != "session/prompt":
            yield from self._aside(record)
            return
        self._loading = None
        yield from self._close()
        group = Group(user=True, prompt=True, at=at, records=[record], slot=_slot(params))
        for raw in listed(params, "prompt"):
            part = self._form.block(raw)
            if part is not None:
                group.content.append(part)
        self._open.append(group)

    def _answered(self, record: Record, rpc: Fields) -> Iterator[Step]:
        """Yield the steps of a response; the response to a prompt ends a turn."""
        request, result = _id(rpc), inner(rpc, "result")
        if not rpc and record.fields is not None:
            self._watch.note("record", "neither JSON-RPC nor an update", record.line)
        if request is not None and request == self._loading:
            self._loading = None
        stop = string(result, "stopReason")
        last = self._open[-1] if self._open else None
        if stop is None or last is None or last.user:
            yield from self._aside(record)
            return
        last.stop = stop
        last.records.append(record)
        yield from self._close()

    def _update(self, record: Record, fields: Fields, params: Fields, at: int | None) -> Iterator[Step]:
        kind = string(fields, "sessionUpdate") or ""
        known = UPDATES.get(kind)
        if known is not None:
            self._watch.keys(fields, known, kind, record.line)
        elif kind != "turn_completed" and not kind.startswith("_"):
            self._watch.note("record", kind or "without sessionUpdate", record.line)
        if self._loading is not None:
            yield from self._aside(record)
        elif kind in CHUNKS:
            yield from self._chunk(record, CHUNKS[kind], fields, _slot(params), at)
        elif kind in {"tool_call", "tool_call_update"}:
            yield from self._call(record, fields, _slot(params), at)
        elif kind == "turn_completed" and self._open and not self._open[-1].user:
            last = self._open[-1]
            last.usage = turn_usage(inner(fields, "usage"))
            last.stop = string(fields, "stopReason") or string(fields, "stop_reason")
            last.records.append(record)
            yield from self._close()
        else:
            yield from self._beside(record, kind, fields, params)

    def _beside(self, record: Record, kind: str, fields: Fields, params: Fields) -> Iterator[Step]:
        """Yield the steps of an update without messages, or with carried data."""
        if kind == "session_info_update":
            self._title = string(fields, "title") or self._title
            found = extension_slot.restored([], _slot(params))
            if found and self._conversation is not None:
                yield from self._close()
                yield from self._conversation.join(found, [record])
                return
        yield from self._aside(record)

    def _chunk(self, record: Record, variant: str, fields: Fields, slot: Any, at: int | None) -> Iterator[Step]:
        named = string(fields, "messageId")
        if named is not None and named in self._told:
            yield from self._aside(record)
            return
        user = variant == "user"
        last = self._open[-1] if self._open else None
        if last is not None and user and last.prompt and not last.begins_anew(variant, named):
            last.records.append(record)  # the prompt again
            if named is not None:
                last.ids[variant] = named
            return
        goes_on = last is not None and last.user == user and not last.begins_anew(variant, named)
        if last is None or not goes_on or (last.calls and not last.pending):
            yield from self._close(all_=user or last is None or last.user)
            last = Group(user=user, at=at)
            self._open.append(last)
        if named is not None:
            last.ids.setdefault(variant, named)
        last.records.append(record)
        last.slot = slot or last.slot
        part = self._form.block(fields.get("content"))
        if part is not None:
            last.add(part, thought=variant == "thought")
        if slot is not None:
            yield from self._close()

    def _call(self, record: Record, fields: Fields, slot: Any, at: int | None) -> Iterator[Step]:
        named = string(fields, "toolCallId")
        if named is None or f"call {named}" in self._told:
            yield from self._aside(record)
            return
        owner = next((group for group in self._open if named in group.calls), None)
        if owner is None:
            last = self._open[-1] if self._open else None
            if last is None or last.user or (last.calls and not last.pending):
                yield from self._close(all_=last is None or last.user)
                last = Group(at=at)
                self._open.append(last)
            owner = last
        owner.records.append(record)
        owner.slot = slot or owner.slot
        owner.call(named, fields, at)
        if slot is not None:
            yield from self._close()

    # -- groups --------------------------------------------------------------------------------------------------------

    def _close(self, *, all_: bool = True) -> Iterator[Step]:
        """Add the groups that are complete: all, or those at the front without open calls."""
        while self._open and (all_ or not self._open[0].pending):
            group = self._open.pop(0)
            if self._conversation is None:
                return
            self._any = True
            self._told.update(group.ids.values())
            self._told.update(f"call {named}" for named in group.calls)
            try:
                made = messages_of(group, self._form)
            except PalaverError as error:
                self._watch.note("unread", str(error), group.records[0].line)
                for record in group.records:
                    yield from self._conversation.record(record)
                continue
            yield from self._conversation.join(made, group.records, ids=[group.id])


def messages_of(group: Group, form: Form) -> list[Message]:
    """Return the messages of a group, with carried data. Raises ``PalaverError``."""
    plain = group.messages(form)
    found = None if group.slot is None else extension_slot.restored(plain, group.slot)
    return plain if not found else list(found)


def _slot(params: Fields) -> Any:
    return value(inner(params, "_meta"), extension_slot.SLOT)


def _id(rpc: Fields) -> str | None:
    raw = rpc.get("id")
    return None if raw is None else bytes(raw).decode()


def _session_of(rpc: Fields) -> str | None:
    return string(inner(rpc, "params"), "sessionId") or string(inner(rpc, "result"), "sessionId")


def _time_of(fields: Fields, params: Fields) -> int | None:
    given = [value(each, key) for each in (fields, inner(params, "_meta")) for key in _TIMES]
    return next((at for each in given if (at := read_time(each)) is not None), None)
