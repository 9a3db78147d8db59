"""Writing of logs: a conversation is a sample; without a log, one is made that Inspect can read.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, assert_never

import msgspec
from msgspec import UNSET, Raw, structs

from palaver.core import jsontext, media_types, trusted
from palaver.core.errors import EncodeError
from palaver.core.messages import (
    AssistantMessage,
    DeveloperMessage,
    FlushMarker,
    Message,
    RescueMarker,
    ToolMessage,
    UserMessage,
)
from palaver.core.parts import (
    AnyPart,
    Audio,
    Citation,
    File,
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
from palaver.core.usage import Usage
from palaver.threads.ids import now_ms
from palaver.transcripts import extension_slot
from palaver.transcripts.conversation import derived_id, session_of
from palaver.transcripts.fields import HALVES, as_json, inner, iso, listed, split, string, value, whole
from palaver.transcripts.inspect_log import shapes
from palaver.transcripts.inspect_log.reader import Messages
from palaver.transcripts.inspect_log.shapes import NAME, fields_of
from palaver.transcripts.omissions import frame_of
from palaver.transcripts.unknown_fields import Watch
from palaver.transcripts.writer import singly

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from palaver.core.jsontext import Fields
    from palaver.core.request import LossKind
    from palaver.threads.thread import Entry
    from palaver.transcripts.writer import WriteState

_OURS: Final = frozenset(
    (
        *("id", "role", "content", "metadata", "tool_calls", "model", "tool_call_id", "function", "error"),
        *("arguments", "parse_error", "type"),
    )
)
"""Keys of messages and calls that are written from messages; the others stay as in the old ones."""

_FAILURES: Final = frozenset(
    (
        *("parsing", "timeout", "unicode_decode", "permission", "file_not_found", "is_a_directory", "limit"),
        *("approval", "cancelled", "sandbox_unavailable", "unknown", "output_limit"),
    )
)
_SERVED: Final = (("search", "web_search"), ("mcp", "mcp_call"), ("code", "code_execution"), ("bash", "code_execution"))
_NO_SAMPLE: Final[Mapping[str, Any]] = {}


class RecordWriter:
    """Writes the messages of one sample."""

    groups = staticmethod(singly)

    def __init__(self, writing: WriteState, dropped: Sequence[str] = ()) -> None:
        """Start without messages. ``dropped`` are branches that are left out."""
        self._writing = writing
        writing.whole = True
        self._session = session_of(writing.metadata)
        self._more = self._session.more if self._session.file_format == NAME else _NO_SAMPLE
        self._at = self._began()
        head, self._tail = frame_of(writing.entries, NAME)
        before, behind = self.frame
        sample = fields_of(head[before:].lstrip(b", \t\r\n") + (self._tail or b"")[: len(self._tail or b"") - behind])
        self._messages = Messages(sample, self._session.model, Watch())
        self._total = trusted.Usage()
        self._last: tuple[AssistantMessage, dict[str, Any]] | None = None
        for branch in dropped:
            writing.lose("dropped", f"branch {branch}", "a sample is one conversation; each branch is a log")

    # -- the log -------------------------------------------------------------------------------------------------------

    @property
    def native(self) -> bool:
        """Whether the sample has records of a log."""
        return self._writing.native

    @property
    def frame(self) -> tuple[int, int]:
        """The number of bytes before the sample and after it."""
        if not self._writing.native:
            return len(self.opening()), len(_CLOSING)
        try:
            return msgspec.convert(self._more.get("frame"), tuple[int, int])
        except msgspec.ValidationError:
            return 0, 0

    def opening(self) -> bytes:
        """Return a log, up to the bracket that opens the list of its samples."""
        session, more = self._session, self._more
        names = {key: more[key] for key in ("eval_id", "run_id") if isinstance(more.get(key), str)}
        spec = {
            "eval_id": derived_id(NAME, "eval", self._writing.thread.id)[:22],
            "run_id": derived_id(NAME, "run", self._writing.thread.id)[:22],
            **names,
            "created": iso(self._at),
            "task": str(more.get("task") or session.agent or "palaver"),
            "dataset": _NO_SAMPLE,
            "model": self._model(),
            "config": _NO_SAMPLE,
        }
        log = {"version": shapes.VERSION, "status": "success", "eval": spec}
        return whole(jsontext.encode(log))[:-1] + b',"samples":['

    def _began(self) -> int:
        times = (entry.message.sent_at for entry in self._writing.entries)
        first = next((at for at in times if at is not None), None)
        return self._session.started_at or first or now_ms()

    def _model(self) -> str:
        named = (getattr(entry.message, "model", None) for entry in self._writing.entries)
        return self._session.model or next((each for each in named if each), "unknown")

    def head(self) -> Iterator[bytes]:
        """Yield the log, and the sample up to its messages."""
        more = self._more
        asked = next((each.message.text for each in self._writing.entries if isinstance(each.message, UserMessage)), "")
        sample = {
            "id": more.get("sample") or self._session.id or self._writing.thread.id,
            "epoch": more.get("epoch") or 1,
            "input": asked,
            "target": "",
        }
        yield self.opening() + whole(jsontext.encode(sample))[:-1] + b',"messages":['

    def tail(self, old: bytes | None) -> bytes | None:
        """Return the part after the messages: unchanged, or the last answer and the usage of all."""
        if old is not None or self._writing.native:
            return old
        rest: dict[str, Any] = {}
        if self._last is not None:
            message, written = self._last
            usage = {} if message.usage is None else {"usage": _usage(message.usage)}
            choice = {"message": written, "stop_reason": shapes.STOPS.get(message.finish_reason or "", "unknown")}
            rest["output"] = {"model": message.model or self._model(), "choices": [choice], **usage}
        if self._total.total:
            rest["model_usage"] = {self._model(): _usage(self._total)}
        return b"]" + (b"," + whole(jsontext.encode(rest))[1:] if rest else b"}") + _CLOSING

    # -- the messages --------------------------------------------------------------------------------------------------

    def render(self, group: Sequence[Entry], old: Sequence[bytes]) -> Iterator[bytes]:
        """Yield a message."""
        if self._writing.native and self._tail is None:
            raise EncodeError(f"{NAME}: this log has no list of messages that could be edited")
        for entry, before in zip(group, (*old, *[None] * len(group)), strict=False):
            message = self._message(entry, _NO_FIELDS if before is None else fields_of(before))
            if message is not None:
                yield jsontext.encode(message) if before is not None else self._made(entry, message)

    def _made(self, entry: Entry, message: dict[str, Any]) -> bytes:
        """Return a new message without lone surrogates: Inspect cannot read them."""
        text = jsontext.encode(message)
        if (made := whole(text)) != text:
            self._writing.lose("approximated", "text", HALVES, entry)
        return made

    def _message(self, entry: Entry, old: Fields) -> dict[str, Any] | None:
        message = entry.message
        if isinstance(message, (FlushMarker, RescueMarker)):
            self._lose("marker", "a log has none", entry)
            if not self._writing.options.carry:
                return None
        if isinstance(message, DeveloperMessage):
            self._lose("developer", "written as a message of the system", entry)
        role = message.role if message.role in shapes.MESSAGES else "system"
        said: dict[str, Any] = {
            "id": string(old, "id") or entry.id,
            "content": self._content(_without_failure(entry, old), old),
            "role": role,
        }
        match message:
            case AssistantMessage():
                said |= self._answer(entry, message, old)
            case ToolMessage():
                said |= self._result(message)
            case _:
                pass
        failure = shapes.FAILURE if isinstance(message, ToolMessage) and message.is_error else None
        metadata = {key: each for key, each in message.metadata.items() if key not in {failure, extension_slot.SLOT}}
        said |= {"metadata": metadata} if metadata else {}
        self._carry(entry, said, old)
        if old:
            said = {key: raw for key, raw in old.items() if key not in _OURS or jsontext.is_null(raw)} | said
        if isinstance(message, AssistantMessage):
            self._last = message, said
            self._total += trusted.Usage() if message.usage is None else message.usage
        return said

    def _carry(self, entry: Entry, said: dict[str, Any], old: Fields) -> None:
        text = jsontext.encode(said)
        fields = jsontext.fields(text if old else whole(text))
        alone = self._messages.plain(fields)
        plain = self._messages.message(fields) if old else alone
        slot = extension_slot.carried(
            [entry.message],
            [] if plain is None else [plain],
            read_as=[] if alone is None else [alone],  # data of events are not part of the message
        )
        if slot is None:
            return
        if not self._writing.options.carry:
            if old is _NO_FIELDS:
                self._lose(entry.message.role, "fields that a log has no place for", entry)
            return
        said["metadata"] = {**said.get("metadata", {}), extension_slot.SLOT: slot}

    def _answer(self, entry: Entry, message: AssistantMessage, old: Fields) -> dict[str, Any]:
        said: dict[str, Any] = {} if old else {"source": "generate"}
        if message.model is not None:
            said["model"] = message.model
        before = {string(fields, "id"): fields for fields in map(split, listed(old, "tool_calls"))}
        if calls := [
            {key: raw for key, raw in before.get(call["id"], _NO_FIELDS).items() if key not in _OURS} | call
            for place, part in enumerate(message.content)
            if isinstance(part, (ToolCall, MalformedToolCall)) and (call := self._call(entry, place, part))
        ]:
            said["tool_calls"] = calls
        asked = [isinstance(part, (ToolCall, MalformedToolCall)) for part in message.content if not _is_served(part)]
        if asked != sorted(asked):
            self._lose("order", "calls come after the text", entry)
        return said

    def _call(self, entry: Entry, place: int, part: ToolCall | MalformedToolCall) -> dict[str, Any] | None:
        call: dict[str, Any] = {"id": part.id or f"call_{place}", "function": part.name or "unknown"}
        if isinstance(part, MalformedToolCall):
            text = part.raw.strip()
            if not (jsontext.is_json(text) and text.startswith("{")):
                self._lose("malformed_tool_call", "arguments are an object", entry, place)
                text = "{}"
            return {**call, "arguments": as_json(text), "parse_error": part.reason, "type": "function"}
        if part.provider_executed:
            return None
        text = part.arguments_json.strip() or "{}"
        if part.custom:
            return {**call, "arguments": {"input": as_json(text)}, "type": "custom"}
        if not text.startswith("{"):
            self._lose("tool call", "arguments are an object", entry, place)
            return {**call, "arguments": {"input": as_json(text)}, "type": "function"}
        return {**call, "arguments": as_json(text), "type": "function"}

    def _result(self, message: ToolMessage) -> dict[str, Any]:
        said: dict[str, Any] = {}
        if message.tool_call_id is not None:
            said["tool_call_id"] = message.tool_call_id
        if message.tool_name is not None:
            said["function"] = message.tool_name
        if message.is_error:
            stored = message.metadata_json
            told = _NO_FIELDS if stored is UNSET else inner(jsontext.fields(stored), shapes.FAILURE)
            known = string(told, "type") in _FAILURES and string(told, "message") is not None
            said["error"] = told if known else {"type": "unknown", "message": message.text or "failed"}
        return said

    # -- the parts -----------------------------------------------------------------------------------------------------

    def _content(self, entry: Entry, old: Fields) -> Any:
        content = entry.message.content
        before = self._known(entry.message, old)
        items: list[Any] = []
        served: set[int] = set()
        for place, part in enumerate(content):
            if place in served:
                continue
            if (
                known := next((raw for parts, raw in before if parts == content[place : place + len(parts)]), None)
            ) is not None:
                served |= {place + 1} if isinstance(part, ToolCall) and part.provider_executed else set()
                items.append(known)
            elif _is_served(part):
                items.append(self._served(entry, place, part, served))
            elif (item := self._part(entry, place, part)) is not None:
                items.append(item)
        items = [item for item in items if item is not None]
        if not items:
            return ""
        as_text = "content" not in old or jsontext.kind(old["content"]) == "a string"
        if len(items) == 1 and as_text and len(content) == 1 and isinstance(alone := content[0], Text):
            return items if alone.citations else alone.text
        return items

    def _known(self, message: Message, old: Fields) -> list[tuple[tuple[AnyPart, ...], Raw]]:
        """Return the items of an old message with their parts, so that unchanged items keep their text."""
        known = ((self._messages.parts(raw), raw) for raw in listed(old, "content"))
        return [(parts, raw) for parts, raw in known if parts and all(part in message.content for part in parts)]

    def _part(self, entry: Entry, place: int, part: AnyPart) -> dict[str, Any] | Raw | None:
        match part:
            case Text():
                said: dict[str, Any] = {"type": "text", "text": part.text}
                return said | ({"citations": list(map(_citation, part.citations))} if part.citations else {})
            case Refusal():
                return {"type": "text", "text": part.text, "refusal": True}
            case Json():
                self._lose("json", "written as text", entry, place, "converted")
                return {"type": "text", "text": bytes(part.value_json).decode()}
            case Reasoning():
                signed = {} if part.signature is None else {"signature": part.signature}
                if part.encrypted is None:
                    return {"type": "reasoning", "reasoning": part.text, **signed, "redacted": False}
                summary = {"summary": part.text} if part.text else {}
                return {"type": "reasoning", "reasoning": part.encrypted, **summary, **signed, "redacted": True}
            case Image() | Audio() | Video() | File():
                return self._media(entry, place, part)
            case Opaque():
                if part.wire == NAME and string(split(part.raw_json), "type") in shapes.CONTENT:
                    return part.raw_json
                self._lose("opaque", "a log has no content for it", entry, place)
                return None
            case ToolCall() | MalformedToolCall() | ServerToolResult():
                return None
            case _:
                assert_never(part)

    def _media(self, entry: Entry, place: int, part: Image | Audio | Video | File) -> dict[str, Any] | None:
        kind = "document" if isinstance(part, File) else type(part).__name__.lower()
        where = part.source.url if isinstance(part.source, Url) else part.data_uri
        told = part.media_type or (media_types.of_name(where) if isinstance(part.source, Url) and where else None)
        formats = shapes.FORMATS.get(kind)
        named = next((key for key, each in (formats or {}).items() if each == told), None)
        if where is None or (formats is not None and named is None):
            self._lose(kind, "a log has no content of this kind or from there", entry, place)
            return None
        said: dict[str, Any] = {"type": kind, kind: where}
        if isinstance(part, File):
            # Inspect fills these in; these are the values that it reads
            ending = (part.media_type or "").rpartition("/")[2] or "bin"
            inline = isinstance(part.source, Inline)
            said["filename"] = part.name or (f"document.{ending}" if inline else where.rpartition("/")[2] or "document")
            said["mime_type"] = part.media_type or told or "application/octet-stream"
        return said | ({} if named is None else {"format": named})

    def _served(self, entry: Entry, place: int, part: AnyPart, served: set[int]) -> dict[str, Any] | None:
        """Return a tool that the provider ran: a call followed by the result."""
        content = entry.message.content
        if isinstance(part, ServerToolResult):
            self._lose("server_tool_result", "its call is missing", entry, place)
            return None
        if not isinstance(part, ToolCall):
            return None
        found = next(
            (
                (at, each)
                for at, each in enumerate(content[place + 1 :], place + 1)
                if isinstance(each, ServerToolResult) and each.tool_call_id == part.id
            ),
            None,
        )
        use = {"id": part.id, "name": part.name, "arguments": part.arguments_json}
        kind = next((kind for word, kind in _SERVED if word in part.name), "web_search")
        if found is None:
            self._lose("server tool call", "without its result", entry, place)
            return {"type": "tool_use", "tool_type": kind, **use, "result": ""}
        at, result = found
        served.add(at)
        if result.wire == NAME and jsontext.kind(result.output_json) == "an object":
            told = jsontext.fields(result.output_json)
            return {"type": "tool_use", "tool_type": kind, **use, "result": "", **told}
        self._lose("server_tool_result", "its kind is guessed from its name", entry, at, "approximated")
        failed: dict[str, str] = {"error": "failed"} if result.is_error else {}
        return {"type": "tool_use", "tool_type": kind, **use, "result": bytes(result.output_json).decode(), **failed}

    def _lose(self, what: str, why: str, entry: Entry, part: int | None = None, kind: LossKind | None = None) -> None:
        carried: LossKind = "converted" if self._writing.options.carry else "dropped"
        self._writing.lose(kind or carried, what, why, entry, part)


_CLOSING: Final = b"]}"
_NO_FIELDS: Final[Fields] = {}


def _is_served(part: AnyPart) -> bool:
    return isinstance(part, ServerToolResult) or (isinstance(part, ToolCall) and part.provider_executed)


def _citation(citation: Citation) -> Any:
    if citation.wire == NAME and citation.raw_json is not UNSET:
        return citation.raw_json
    told = {"title": citation.title, "cited_text": citation.quote}
    named = {"type": "content"} if citation.url is None else {"type": "url", "url": citation.url}
    return named | {key: each for key, each in told.items() if each is not None}


def _usage(usage: Usage) -> dict[str, Any]:
    counts = {
        "input_tokens": usage.input or 0,
        "output_tokens": (usage.output or 0) + (usage.reasoning or 0),
        "total_tokens": usage.total,
        "input_tokens_cache_write": usage.cache_write,
        "input_tokens_cache_read": usage.cache_read,
        "reasoning_tokens": usage.reasoning,
    }
    return {key: each for key, each in counts.items() if each is not None}


def _without_failure(entry: Entry, old: Fields) -> Entry:
    """Return a result without the text of its ``error``, unless its content had it before."""
    message = entry.message
    if not isinstance(message, ToolMessage) or not message.is_error or message.metadata_json is UNSET:
        return entry
    failure = string(inner(jsontext.fields(message.metadata_json), shapes.FAILURE), "message")
    last = message.content[-1] if message.content else None
    if not failure or last != trusted.Text(failure) or failure in str(value(old, "content") or ""):
        return entry
    return structs.replace(entry, message=structs.replace(message, content=message.content[:-1]))
