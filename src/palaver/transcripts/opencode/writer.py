"""Write opencode's exports (docs/spec/dialects.md#7): version 1, which ``opencode import`` takes.

Rules:

- An answer and the results of its calls are a record; every other message is one.
- ``opencode import`` takes ids with the prefix of their kind, orders messages by time and parts by id. So both grow,
  even without times: a prefix, twelve hex digits that grow with time, fourteen letters and digits, here of a hash, so
  that the same conversation gives the same ids.
- A result without its call in the answer before it is written with an artificial call.
- Text that no model is sent, and opencode's own text (system prompts), is an ignored text: shown, and not sent. Text
  that a runtime added is a synthetic text: sent, and not shown.
- The slot is the ``metadata`` of the first part that has one; import drops all other foreign data.
- A file of version 2 is written in version 2 when it is edited or continued (``flat_writer``).

Stability: experimental.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Raw, structs

from palaver.core import jsontext, trusted
from palaver.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from palaver.core.parts import (
    AnyPart,
    Audio,
    Blob,
    File,
    FileId,
    Image,
    Inline,
    Json,
    MalformedToolCall,
    Opaque,
    Reasoning,
    Refusal,
    ServerToolResult,
    Text,
    ToolCall,
    Url,
    Video,
)
from palaver.threads.ids import now_ms
from palaver.threads.view import PLACEHOLDER, is_sent
from palaver.transcripts import extension_slot, packages
from palaver.transcripts.conversation import COMPACTION, session_of
from palaver.transcripts.fields import as_json, inner, listed, split, string, wire_of
from palaver.transcripts.format import Origin
from palaver.transcripts.opencode import shapes
from palaver.transcripts.opencode.flat import flat_record
from palaver.transcripts.opencode.reader import RecordReader
from palaver.transcripts.opencode.shapes import NAME
from palaver.transcripts.restyle import restyled
from palaver.transcripts.unknown_fields import Watch
from palaver.transcripts.writer import grouped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from palaver.core.jsontext import Fields
    from palaver.threads.thread import Entry
    from palaver.transcripts.packages import AnyMedia
    from palaver.transcripts.writer import WriteState

_KEYED: Final = frozenset(("text", "reasoning", "tool"))
"""Parts that have ``metadata``."""


class RecordWriter:
    """Writes an export."""

    def __init__(self, writing: WriteState) -> None:
        """Find the earlier contents."""
        self._writing = writing
        self._session = session_of(writing.metadata)
        ours = self._session.file_format == NAME
        self.flat = writing.native and ours and self._session.format == "2"
        native = [entry for entry in writing.entries if writing.is_native(entry.id)]
        self._ids = Ids(*(entry.id for entry in native))
        times = [entry.message.sent_at for entry in writing.entries if entry.message.sent_at is not None]
        self._started = self._session.started_at or (times[0] if times else now_ms())
        self._ended = max([self._started, *times])
        self._at = max([self._started, *(entry.message.sent_at or 0 for entry in native)]) if native else self._started
        named = self._session.id if ours else None
        self._id = named if named and named.startswith("ses_") else session_id(self._started, writing.thread.id)
        self._requested: str | None = None
        self._messages: dict[str, str] = {}
        self._reader = RecordReader(Origin(), Watch())

    def head(self) -> Iterator[bytes]:
        """Yield the session."""
        session, more = self._session, self._session.more if self._session.file_format == NAME else {}
        title = self._writing.take_title() or "Imported session"
        info: dict[str, Any] = {
            "id": self._id,
            "slug": more.get("slug", f"imported-{self._id[-6:].lower()}"),
            "projectID": more.get("projectID", "global"),
            "directory": session.cwd or "/",
            **({"parentID": more["parentID"]} if "parentID" in more else {}),
            "title": title,
            "version": (session.program if session.file_format == NAME else None) or "1.0.0",
            "time": {"created": self._started, "updated": self._ended},
        }
        yield b'{"info":' + jsontext.encode(info) + b',"messages":['

    def tail(self, old: bytes | None) -> bytes:
        """Return the end of the document."""
        return b"]}" if old is None else old

    def groups(self, entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        """Group answers with the results of their calls, every other message alone."""
        return grouped(entries, _belongs)

    def continues(self, before: Sequence[Entry], group: Sequence[Entry]) -> bool:
        """Return whether results are those of open calls in an earlier answer."""
        return all(_belongs(before, entry.message) for entry in group)

    def render(self, group: Sequence[Entry], old: Sequence[bytes]) -> Iterator[bytes]:
        """Yield the record of a group."""
        known: Fields = jsontext.fields(old[0]) if old else {}
        if self.flat:
            yield from flat_record(self._writing, group, old, self._message_id(group[0], known), self._time(group))
            return
        compacted = any(entry.message.source == COMPACTION for entry in group) and "info" in known
        said = [entry for entry in group if not compacted or isinstance(entry.message, AssistantMessage)]
        run = [entry for entry in said if isinstance(entry.message, (AssistantMessage, ToolMessage))]
        info = inner(known, "info")
        asks = string(info, "role") == "user" or not ((run and all(is_sent(entry.message) for entry in run)) or known)
        at = self._time(group)
        named = self._message_id(group[0], info)
        parts = self._asking(said) if asks else self._answering(said)
        made = self._user(said) if asks else self._assistant(said, at)
        if not asks and not any(part["type"] in _KEYED for part in parts):
            asks, made = True, self._user(said)  # no part can be sent, and none can hold the slot
            parts = [part for part in parts if part["type"] != "step-start"] + [
                {"type": "text", "text": "", "ignored": True}
            ]
        if asks and not known:
            self._requested = named
        head = {"id": named, "sessionID": self._id, "role": "user" if asks else "assistant"}
        time = {"created": at} if asks else {"created": at, "completed": at}
        new: dict[str, Any] = {**head, **made} if known else {**head, "time": time, **made}
        record: dict[str, Any] = {"info": new, "parts": self._placed(parts, named, at, known)}
        if self._writing.options.carry and not compacted:
            self._carry(record, group, old)
        elif not self._writing.options.carry and not any(_says(part) for part in record["parts"]):
            return
        yield jsontext.encode(record)

    # -- records -------------------------------------------------------------------------------------------------------

    def _carry(self, record: dict[str, Any], group: Sequence[Entry], old: Sequence[bytes]) -> None:
        """Put the data that the record lacks into the slot, after merging with the old record."""
        slot = self._slot(record, group, old)
        known: Fields = jsontext.fields(old[0]) if old else {}
        stale = any(extension_slot.SLOT in inner(split(part), "metadata") for part in listed(known, "parts"))
        if slot is None and not stale:
            return
        parts: list[dict[str, Any]] = record["parts"]
        part: dict[str, Any] | None = next((each for each in parts if each["type"] in _KEYED), None)
        if part is None:
            base = {"sessionID": self._id, "messageID": record["info"]["id"]}
            part = {
                "id": self._ids.made("prt", self._at, "slot", base),
                **base,
                "type": "text",
                "text": "",
                "ignored": True,
            }
            parts.append(part)
            slot = self._slot(record, group, old)
        stored: dict[str, Any] = part.get("metadata", {})
        part["metadata"] = {**stored, extension_slot.SLOT: slot}

    def _slot(self, record: dict[str, Any], group: Sequence[Entry], old: Sequence[bytes]) -> dict[str, Any] | None:
        written = jsontext.encode(record)
        plain = self._reader.plain(
            jsontext.fields(restyled(old[0], written, whole=self._writing.whole) if old else written)
        )
        return extension_slot.carried([entry.message for entry in group], plain)

    def _time(self, group: Sequence[Entry]) -> int:
        """Return the time of a message: never before that of the one before it."""
        if not self._writing.is_native(group[0].id):
            self._at = max(self._at, group[0].message.sent_at or 0)
            return self._at
        return group[0].message.sent_at or self._at

    def _message_id(self, entry: Entry, info: Fields) -> str:
        known = string(info, "id")
        if known is not None:
            return known
        made = self._ids.made("msg", self._at, self._writing.thread.id, entry.id)
        if self._writing.thread.entry(entry.id).message.id == entry.id and entry.id.startswith("msg_"):
            made = entry.id if entry.id not in self._messages.values() else made
        self._messages[entry.id] = made
        return made

    def _user(self, said: Sequence[Entry]) -> dict[str, Any]:
        answer = next((entry.message for entry in self._writing.entries if _names_model(entry.message)), None)
        model = answer.model if isinstance(answer, AssistantMessage) else None
        provider = (
            shapes.PROVIDERS[wire_of(answer, shapes.PROVIDERS, "openai_chat")] if answer is not None else "unknown"
        )
        if said and self._writing.is_native(said[0].id):
            return {}
        return {"agent": "build", "model": {"providerID": provider, "modelID": model or "unknown"}}

    def _assistant(self, said: Sequence[Entry], at: int) -> dict[str, Any]:
        answers = [entry.message for entry in said if isinstance(entry.message, AssistantMessage)]
        answer = answers[-1] if answers else trusted.AssistantMessage()
        raw = answer.finish_reason_raw
        stop = raw if isinstance(raw, str) and raw in shapes.FINISH else shapes.STOPS.get(answer.finish_reason or "")
        finish = {} if stop is None else {"finish": stop}
        usage = {} if answer.usage is None else {"tokens": shapes.tokens_of(answer.usage)}
        if said and self._writing.is_native(said[0].id):
            return {**({} if answer.model is None else {"modelID": answer.model}), **usage, **finish}
        cwd = self._session.cwd or "/"
        wire = wire_of(answer, shapes.PROVIDERS, "openai_chat")
        provider = shapes.PROVIDERS[wire] if answer.model is not None else "unknown"
        return {
            "parentID": self._requested or self._ids.made("msg", at, "nobody"),
            "modelID": answer.model or "unknown",
            "providerID": provider,
            "mode": "build",
            "agent": "build",
            "path": {"cwd": cwd, "root": cwd},
            "cost": 0,
            "tokens": shapes.tokens_of(answer.usage),
            **finish,
        }

    def _placed(self, parts: list[dict[str, Any]], named: str, at: int, known: Fields) -> list[dict[str, Any]]:
        """Return parts with their ids; in an edited record, the program's parts and the ids of others stay."""
        olds: list[dict[str, Any]] = [
            {**split(raw), "type": string(split(raw), "type")} for raw in listed(known, "parts")
        ]
        new = [part for part in parts if not olds or part["type"] != "step-start"]
        placed: list[dict[str, Any]] = []
        for old in olds:
            if old["type"] not in shapes.SAID:
                placed.append(old)
                continue
            call = jsontext.text(old["callID"]) if "callID" in old else None
            found = next((each for each in new if each["type"] == old["type"] and each.get("callID") == call), None)
            if found is not None:
                new.remove(found)
                if "state" in found:
                    found["state"] = _kept_state(split(old["state"]), found["state"])
                keys = ("id", "sessionID", "messageID", "time")
                placed.append({**{key: old[key] for key in keys if key in old}, **found})
        for number, part in enumerate(new):
            base = {"sessionID": self._id, "messageID": named}
            if part["type"] == "reasoning":
                part["time"] = {"start": at, "end": at}
            placed.append({"id": self._ids.made("prt", at, named, number), **base, **part})
            for each in part.get("state", {}).get("attachments", ()):
                each |= {"id": self._ids.made("prt", at, named, number, "file"), **base}
        return placed

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _asking(self, said: Sequence[Entry]) -> list[dict[str, Any]]:
        """Return the parts of a user's message, each with its audience."""
        parts: list[dict[str, Any]] = []
        for entry in said:
            message = entry.message
            known_messages: dict[str, Any] = {}
            if isinstance(message, UserMessage) and is_sent(message):
                known_messages = {} if message.source is None else {"synthetic": True}
            else:
                known_messages = {"ignored": True}
                if PLACEHOLDER not in message.tags:
                    self._writing.lose("converted", message.role, "shown as a text that no model is sent", entry)
            found = [part for place, each in enumerate(message.content) for part in self._part(entry, place, each)]
            texts = [{"type": "text", "text": part["text"]} if part["type"] == "reasoning" else part for part in found]
            if "ignored" in known_messages:
                texts = [part for part in texts if part["type"] in {"text", "file"}] or [{"type": "text", "text": ""}]
            parts += [{**part, **known_messages} if part["type"] == "text" else part for part in texts]
        return parts or [{"type": "text", "text": ""}]

    def _answering(self, said: Sequence[Entry]) -> list[dict[str, Any]]:
        """Return the parts of an answer, calls with their results."""
        results: dict[str, Entry] = {}
        for entry in said:
            if isinstance(entry.message, ToolMessage):
                results.setdefault(entry.message.tool_call_id or entry.id, entry)
        parts: list[dict[str, Any]] = []
        for entry in said:
            if not isinstance(entry.message, AssistantMessage):
                continue
            parts.append({"type": "step-start"})
            for place, part in enumerate(entry.message.content):
                parts += self._part(entry, place, part, results)
        for named, entry in results.items():
            message = cast("ToolMessage", entry.message)
            self._writing.lose("approximated", "tool", "a result without its call is written with an empty one", entry)
            tool = {"type": "tool", "callID": named, "tool": message.tool_name or "unknown"}
            parts.append({**tool, "state": self._state(entry, Raw(b"{}"), message)})
        return parts

    def _part(
        self, entry: Entry, place: int, part: AnyPart, results: dict[str, Entry] | None = None
    ) -> list[dict[str, Any]]:
        lose = self._writing.lose
        stored = packages.provider_data(part, NAME)
        beside = {"metadata": stored} if stored else {}
        match part:
            case Text():
                if part.citations:
                    lose("dropped", "citation", "opencode has no citations", entry, place)
                return [{"type": "text", "text": part.text, **beside}]
            case Refusal():
                lose("converted", "refusal", "written as text", entry, place)
                return [{"type": "text", "text": part.text}]
            case Json():
                lose("converted", "json", "written as text", entry, place)
                return [{"type": "text", "text": bytes(part.value_json).decode()}]
            case Reasoning():
                if (part.signature or part.encrypted) and not packages.metadata_of(packages.proof_in(part)):
                    lose("dropped", "signature", f"opencode has no package for {part.wire}", entry, place)
                return [{"type": "reasoning", "text": part.text, **beside}]
            case Image() | Audio() | Video() | File():
                if isinstance(entry.message, AssistantMessage):
                    lose("approximated", "file", "opencode sends no file of an answer back", entry, place)
                return self._file(entry, place, part)
            case ToolCall() | MalformedToolCall():
                return [self._call(entry, place, part, results or {})]
            case ServerToolResult():
                if not any(
                    isinstance(each, ToolCall) and each.id == part.tool_call_id for each in entry.message.content
                ):
                    lose("dropped", "server_tool_result", "its call is missing", entry, place)
                return []
            case Opaque():
                if part.wire == NAME and string(split(part.raw_json), "type") == "agent":
                    fields = {key: raw for key, raw in split(part.raw_json).items() if key in {"name", "source"}}
                    return [{"type": "agent", **fields}]
                lose("dropped", "opaque", f"only {part.wire} knows what it is", entry, place)
                return []

    def _call(
        self, entry: Entry, place: int, part: ToolCall | MalformedToolCall, results: dict[str, Entry]
    ) -> dict[str, Any]:
        made: dict[str, Any] = {"type": "tool", "callID": part.id or entry.id, "tool": part.name or "unknown"}
        stored = packages.provider_data(part, NAME)
        answer = results.pop(part.id or "", None)
        message = cast("ToolMessage", answer.message) if answer is not None else None
        if isinstance(part, MalformedToolCall):
            self._writing.lose("converted", "malformed_tool_call", "written as a call without arguments", entry, place)
            if answer is None or message is None:
                return {**made, "state": {"status": "pending", "input": {}, "raw": part.raw}}
            failed = structs.replace(message, is_error=True)
            return {**made, "state": self._state(answer, Raw(b"{}"), failed)}
        given = as_json(part.arguments_json.strip() or "{}")
        if jsontext.kind(given) != "an object":
            self._writing.lose(
                "approximated", "tool_call", "arguments that are not an object are written into one", entry, place
            )
            given = jsontext.raw({"input": given})
        served = next(
            (
                each
                for each in entry.message.content
                if isinstance(each, ServerToolResult) and each.tool_call_id == part.id
            ),
            None,
        )
        if part.provider_executed and stored:
            stored["providerExecuted"] = True
        elif part.provider_executed:  # opencode would send such a call without its result
            self._writing.lose(
                "converted", "provider executed", "no package knows it; a call as any other", entry, place
            )
        if stored:
            made["metadata"] = stored
        if served is not None:
            raw = served.output_json
            text = jsontext.text(raw) if jsontext.kind(raw) == "a string" else bytes(raw).decode()
            message, answer = trusted.ToolMessage(content=(trusted.Text(text),), is_error=served.is_error), entry
        if answer is None or message is None:
            pending: dict[str, Any] = {"status": "pending", "input": given, "raw": bytes(given).decode()}
            return {**made, "state": pending}
        return {**made, "state": self._state(answer, given, message)}

    def _state(self, entry: Entry, given: Raw, message: ToolMessage) -> dict[str, Any]:
        """Return the state of a call that has its result."""
        at = message.sent_at or self._at
        time = {"start": min(self._at, at), "end": at}
        files: list[dict[str, Any]] = []
        texts: list[str] = []
        for place, part in enumerate(message.content):
            match part:
                case Text():
                    texts.append(part.text)
                case Json():
                    texts.append(bytes(part.value_json).decode())
                    self._writing.lose("converted", "json", "written as text", entry, place)
                case Image() | Audio() | Video() | File() if not message.is_error:
                    files += self._file(entry, place, part)
                case _:
                    kind = cast("str", type(part).__struct_config__.tag)
                    self._writing.lose("dropped", kind, "such a result is one text", entry, place)
        if message.is_error:
            return {"status": "error", "input": given, "error": "\n".join(texts), "time": time}
        done: dict[str, Any] = {"status": "completed", "input": given, "output": "\n".join(texts), "title": ""}
        return {**done, "metadata": {}, "time": time, **({"attachments": files} if files else {})}

    def _file(self, entry: Entry, place: int, part: AnyMedia) -> list[dict[str, Any]]:
        named = packages.name_of(part, NAME)
        media_type = packages.media_type_of(part)
        match part.source:
            case Inline() if (data := packages.data_url(part)) is not None:
                url = data
            case Url() as source if packages.is_absolute(source.url):
                url = source.url
            case Inline() | Url() | FileId() | Blob():
                why = "it is not base64" if isinstance(part.source, Inline) else "it has no URL"
                self._writing.lose("dropped", "file", why, entry, place)
                return []
        return [{"type": "file", "mime": media_type, "url": url, **({"filename": named} if named else {})}]


def _kept_state(old: Fields, new: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a call in an edited record: ``completed`` stays, even if the call failed."""
    before, now = string(old, "status"), new["status"]
    if now == "pending" and before in {"pending", "running"}:
        return {key: old[key] for key in ("status", "raw") if key in old} | {
            "status": before,
            "input": new["input"] if before == "running" else old.get("input", new["input"]),
        }
    if now == "error" and before == "completed":
        return {"status": before, "input": new["input"], "output": new["error"]}
    metadata = inner(old, "metadata")
    if now == before == "error" and "interrupted" in metadata and "output" in metadata:
        return {"status": now, "input": new["input"], "metadata": {"output": new["error"]}}
    if now == before:
        return {key: each for key, each in new.items() if key not in {"title", "metadata", "time"} or key not in old}
    return new


def _says(part: dict[str, Any]) -> bool:
    return part["type"] in shapes.SAID and not (part["type"] == "text" and not part["text"])


def _names_model(message: Message) -> bool:
    return isinstance(message, AssistantMessage) and message.model is not None


def _belongs(group: Sequence[Entry], message: Message) -> bool:
    """Return whether a message is the result of a call in the last answer of a group without a result so far."""
    if not isinstance(message, ToolMessage) or not is_sent(message):
        return False
    calls = [
        part.id
        for entry in group
        if isinstance(entry.message, AssistantMessage) and is_sent(entry.message)
        for part in entry.message.content
        if isinstance(part, (ToolCall, MalformedToolCall))
    ]
    done = [entry.message.tool_call_id for entry in group if isinstance(entry.message, ToolMessage)]
    return message.tool_call_id in calls and message.tool_call_id not in done


_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_TIME: Final = re.compile(r"[a-z]{3}_([0-9a-f]{12})")
_SIZE: Final = 14
_BITS: Final = (1 << 48) - 1


class Ids:
    """Makes ids that grow; ``after`` are the earlier ones."""

    def __init__(self, *after: str) -> None:
        """Start after all of ``after``."""
        found = (_TIME.match(each) for each in after)
        self._last = max((int(each[1], 16) for each in found if each), default=0)

    def made(self, prefix: str, at: int, *names: object) -> str:
        """Return the next id, of Unix milliseconds and a name."""
        self._last = max(self._last + 1, at << 12 & _BITS)
        return f"{prefix}_{self._last:012x}{_letters(*names)}"


def session_id(at: int, *names: object) -> str:
    """Return the id of a session: the latest first."""
    return f"ses_{~(at << 12) & _BITS:012x}{_letters(*names)}"


def _letters(*names: object) -> str:
    number = int.from_bytes(sha256("\0".join(map(str, names)).encode("utf-8", "surrogatepass")).digest())
    letters: list[str] = []
    for _ in range(_SIZE):
        number, digit = divmod(number, len(_DIGITS))
        letters.append(_DIGITS[digit])
    return "".join(letters)
