"""Writing of LangChain messages.

Rules (docs/spec/dialects.md#15):

- A new file is a list of dict forms, as ``messages_to_dict`` writes it. A message that is added to a file is written in
  the form of the others there.
- Calls go to ``tool_calls``; if the content is a list, they are also blocks of it, as in the integrations. Malformed
  calls go to ``invalid_tool_calls``.
- Reasoning is written as the block of its provider, media as blocks of LangChain's own, which every integration takes.
- Further data of a message are carried in ``additional_kwargs``.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from msgspec import UNSET, Raw, structs

from palaver.core import jsontext
from palaver.core.errors import PalaverError
from palaver.core.messages import (
    AssistantMessage,
    DeveloperMessage,
    FlushMarker,
    Message,
    RescueMarker,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from palaver.core.parts import (
    AnyPart,
    File,
    FileId,
    Inline,
    Json,
    MalformedToolCall,
    Media,
    Opaque,
    Reasoning,
    Refusal,
    ServerToolResult,
    Text,
    ToolCall,
    Url,
)
from palaver.core.usage import Usage
from palaver.transcripts import extension_slot, original_bytes
from palaver.transcripts.conversation import hidden_before
from palaver.transcripts.fields import inner, listed, one_line, split, string, wire_of
from palaver.transcripts.langchain.reader import list_in, plain_message, usage_of
from palaver.transcripts.langchain.shapes import (
    CLASSES,
    DEVELOPER,
    NAME,
    PROVIDERS,
    REMOVE_ALL,
    STOPS,
    WIRES,
    Form,
    shape,
    shaped,
)
from palaver.transcripts.unknown_fields import Watch
from palaver.transcripts.writer import WriteState, is_record, singly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from palaver.core.jsontext import Fields
    from palaver.threads.thread import Entry


class RecordWriter:
    """Writes one conversation."""

    groups = staticmethod(singly)

    def __init__(self, writing: WriteState) -> None:
        """Find the form of the file."""
        self._writing = writing
        writing.never_writes("sent_at")
        self._form: Form = self._form_of()
        self._watch = Watch()

    def head(self) -> Iterator[bytes]:
        """Yield the bracket that opens the list."""
        yield b"["

    def tail(self, old: bytes | None) -> bytes:
        """Return the bracket that closes it."""
        return b"]\n" if old is None else old

    def render(self, group: Sequence[Entry], old: Sequence[bytes]) -> Iterator[bytes]:
        """Yield the record of a message."""
        if old and any(is_record(entry) for entry in group):  # the rest after a removal, repeated
            self._writing.lose("dropped", "edit", "what remains after a removal has no record of its own", group[-1])
            yield from old
            return
        found = split(Raw(old[0])) if old else {}
        if found and shape(found) is None:
            yield self._state(group, found)
            return
        for entry in group:
            record = self._record(entry, found)
            if record is not None:
                yield jsontext.encode(record)

    def _form_of(self) -> Form:
        for entry in self._writing.entries:
            if not original_bytes.leads(entry.message, NAME) or is_record(entry):
                continue
            pieces = original_bytes.records_of(NAME, [entry.message]) or ()
            record = split(Raw(pieces[0].raw.strip(b" \t\r\n,"))) if pieces else {}
            path = list_in(record) or ()
            for key in path[:-1]:
                record = inner(record, key)
            first = next(iter(listed(record, path[-1])), None) if path else None
            found = shape(record if first is None else split(first))
            if found is not None:
                return found.form
        return "dict"

    def _state(self, group: Sequence[Entry], old: Fields) -> bytes:
        """Return a line that holds a list of messages."""
        keys = ["messages"]
        holder = old
        for outer in ("values", "channel_values", "kwargs"):
            if "messages" not in old and outer in old:
                keys.insert(0, outer)
                holder = inner(old, outer)
        olds = [split(each) for each in listed(holder, "messages")]
        olds = olds if len(olds) == len(group) else [dict[str, Raw]()] * len(group)
        made = (self._record(entry, before) for entry, before in zip(group, olds, strict=True))
        records = [record for record in made if record is not None]
        value: Any = records
        for key in reversed(keys):
            value = {key: value}
        return jsontext.encode(value)

    # -- messages ------------------------------------------------------------------------------------------------------

    def _record(self, entry: Entry, old: Fields) -> dict[str, Any] | None:
        message = entry.message
        before = shape(old)
        stored = {} if before is None else before.data
        form: Form = self._form if before is None else before.form
        said = self._said(entry, stored)
        if said is None:
            return None
        kind, data = said
        if before is not None and before.kind == "function" and kind == "tool":
            kind = "function"
            data = {key: each for key, each in data.items() if key not in {"tool_call_id", "artifact", "status"}}
        if before is not None and before.kind == "chat":
            kind, data = "chat", {**data, "role": string(stored, "role") or ""}
        chunk = before is not None and before.chunk
        data["type"] = CLASSES[kind] + "Chunk" if chunk else kind
        if "tool_call_chunks" in stored:
            data["tool_call_chunks"] = []  # else they would still have the old calls
        if self._writing.options.carry:
            self._carry(message, data, lambda: shaped(form, kind, data, chunk=chunk))
        return shaped(form, kind, data, chunk=chunk)

    def _carry(self, message: Message, data: dict[str, Any], record: Callable[[], dict[str, Any]]) -> None:
        if isinstance(message, FlushMarker):
            return
        fields = jsontext.fields(jsontext.encode(record()))
        try:
            plain = plain_message(fields, self._watch, None)
        except PalaverError:
            return
        slot = extension_slot.carried([message], [plain])
        if slot is not None:
            data["additional_kwargs"] = {**data["additional_kwargs"], extension_slot.SLOT: slot}

    def _said(self, entry: Entry, old: Fields) -> tuple[str, dict[str, Any]] | None:
        message = entry.message
        data: dict[str, Any] = {
            "content": "",
            "additional_kwargs": {},
            "response_metadata": {},
            "type": "",
            "name": cast("dict[str, Any]", message.provider.get(NAME, {})).get("name"),
            "id": entry.id if not old else jsontext.value(old.get("id", jsontext.NULL)),
        }
        match message:
            case AssistantMessage():
                return "ai", self._assistant(entry, message, data, old)
            case UserMessage():
                if message.is_summary:
                    data["additional_kwargs"] = {"lc_source": "summarization"}
                return "human", {**data, "content": self._content(entry)}
            case SystemMessage() | DeveloperMessage():
                if isinstance(message, DeveloperMessage):
                    data["additional_kwargs"] = {DEVELOPER: "developer"}
                return "system", {**data, "content": self._content(entry)}
            case ToolMessage():
                return "tool", {
                    **data,
                    "content": self._content(entry),
                    "name": message.tool_name,
                    "tool_call_id": message.tool_call_id or "",
                    "artifact": None if message.payload_json is UNSET else message.payload_json,
                    "status": "error" if message.is_error else "success",
                }
            case FlushMarker() if message.scope in {None, "thread"}:
                if structs.replace(extension_slot.without_records(message), id=None, sent_at=None) != hidden_before():
                    self._writing.lose("approximated", message.role, "its other data is lost", entry)
                return "remove", {**data, "id": REMOVE_ALL}
            case FlushMarker() | RescueMarker():
                self._writing.lose("dropped", message.role, "LangChain has no such mark", entry)
                return None

    def _assistant(self, entry: Entry, message: AssistantMessage, data: dict[str, Any], old: Fields) -> dict[str, Any]:
        told = inner(old, "response_metadata")
        wire = wire_of(message, PROVIDERS, WIRES.get(string(told, "model_provider") or "", ""))
        blocks = _Written(self._writing, entry, wire, v1=string(told, "output_version") == "v1")
        content = blocks.content(as_list="content" in old and jsontext.kind(old["content"]) == "an array")
        metadata: dict[str, Any] = {}
        if message.model is not None:
            metadata["model_name"] = message.model
        if wire in PROVIDERS:
            metadata["model_provider"] = PROVIDERS[wire]
        if message.finish_reason is not None:
            raw = message.finish_reason_raw
            reason = raw if isinstance(raw, str) else STOPS.get(message.finish_reason, message.finish_reason)
            metadata["stop_reason" if wire == "anthropic_messages" else "finish_reason"] = reason
        if message.response_id is not None:
            metadata["id"] = message.response_id
        if "model_provider" in told:
            metadata["model_provider"] = told["model_provider"]
        return {
            **data,
            "content": content,
            "additional_kwargs": _renewed(message, inner(old, "additional_kwargs")),
            "name": message.agent,
            "response_metadata": metadata,
            "tool_calls": blocks.calls,
            "invalid_tool_calls": blocks.invalid,
            "usage_metadata": _usage(message.usage, old),
        }

    def _content(self, entry: Entry) -> Any:
        return _Written(self._writing, entry, "").content(as_list=False)


def _renewed(message: AssistantMessage, old: Fields) -> dict[str, Any]:
    """Return the copies of the message in ``additional_kwargs``, as they are now."""
    calls = [{"name": call.name, "arguments": call.arguments_json} for call in message.tool_calls]
    calls += [{"name": call.name or "", "arguments": call.raw} for call in message.malformed_tool_calls]
    ids = [*(call.id for call in message.tool_calls), *(call.id for call in message.malformed_tool_calls)]
    listed = [{"id": named, "function": call, "type": "function"} for named, call in zip(ids, calls, strict=True)]
    refusal = next((part.text for part in message.content if isinstance(part, Refusal)), None)
    now = {
        "tool_calls": listed,
        "function_call": calls[0] if calls else None,
        "reasoning_content": message.reasoning,
        "refusal": refusal,
    }
    return {key: value for key, value in now.items() if key in old}


def _usage(usage: Usage | None, old: Fields) -> Any:
    if usage is None:
        return None
    if old and usage == usage_of(old):
        return old["usage_metadata"]
    given = (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0)
    made = (usage.output or 0) + (usage.reasoning or 0)
    counts: dict[str, Any] = {"input_tokens": given, "output_tokens": made, "total_tokens": given + made}
    details = {"cache_read": usage.cache_read, "cache_creation": usage.cache_write}
    details = {key: each for key, each in details.items() if each is not None}
    if details:
        counts["input_token_details"] = details
    if usage.reasoning is not None:
        counts["output_token_details"] = {"reasoning": usage.reasoning}
    return counts


class _Written:
    """The content of one message: blocks, and the calls beside them."""

    def __init__(self, writing: WriteState, entry: Entry, wire: str, *, v1: bool = False) -> None:
        self._writing = writing
        self._entry = entry
        self._wire = wire
        self._v1 = v1
        self.calls: list[dict[str, Any]] = []
        self.invalid: list[dict[str, Any]] = []

    def content(self, *, as_list: bool) -> Any:
        """The ``content``: a string if it is one text, or empty."""
        parts = self._entry.message.content
        blocks: list[Any] = []
        calls: list[int] = []
        for place, part in enumerate(parts):
            block = self._block(place, part)
            if block is not None:
                if isinstance(part, (ToolCall, MalformedToolCall)) and block["type"] != "server_tool_call":
                    calls.append(len(blocks))
                blocks.append(block)
        others = blocks[: len(blocks) - len(calls)]
        if as_list or calls != list(range(len(others), len(blocks))):
            return blocks
        if not others:
            return "" if calls else []
        first = next(iter(parts), None)
        if len(others) == 1 and isinstance(first, Text) and not first.citations and (first.text or not calls):
            return first.text
        return blocks

    def _block(self, place: int, part: AnyPart) -> dict[str, Any] | None:
        lose = self._writing.lose
        match part:
            case Text():
                return {"type": "text", "text": part.text, **_annotations(part)}
            case Refusal():
                return {"type": "refusal", "refusal": part.text}
            case Json():
                lose("converted", "json", "written as text", self._entry, place)
                return {"type": "text", "text": bytes(part.value_json).decode()}
            case Reasoning():
                return self._reasoning(part)
            case ToolCall() | MalformedToolCall():
                return self._call(place, part)
            case ServerToolResult():
                status = "error" if part.is_error else "success"
                block = {"type": "server_tool_result", "tool_call_id": part.tool_call_id, "status": status}
                return {**block, "output": part.output_json}
            case Opaque():
                if part.wire == NAME:
                    return cast("dict[str, Any]", {**jsontext.fields(part.raw_json)}) if _is_block(part) else None
                lose("converted", "opaque", f"a block of {part.wire}, written as non_standard", self._entry, place)
                whole = jsontext.kind(part.raw_json) == "an object"  # LangChain expects one
                return {"type": "non_standard", "value": part.raw_json if whole else {"value": part.raw_json}}
            case Media():
                return self._medium(place, part)

    def _medium(self, place: int, part: Media) -> dict[str, Any] | None:
        kind = cast("str", type(part).__struct_config__.tag)
        match part.source:
            case Inline(data):
                source = {"base64": data}
            case Url(url):
                source = {"url": url}
            case FileId(id):
                source = {"file_id": id}
            case _:
                self._writing.lose("dropped", kind, "its bytes are in a store", self._entry, place)
                return None
        mime = part.media_type
        if mime is None and "base64" in source:  # LangChain refuses bytes without a type
            mime = "application/octet-stream"
            self._writing.lose("approximated", kind, "its media type is not known", self._entry, place)
        named = {"extras": {"filename": part.name}} if isinstance(part, File) and part.name is not None else {}
        return {"type": kind, **source, **({} if mime is None else {"mime_type": mime}), **named}

    def _reasoning(self, part: Reasoning) -> dict[str, Any]:
        wire = part.wire or self._wire
        if not self._v1 and wire == "anthropic_messages":
            if part.encrypted is not None:
                return {"type": "redacted_thinking", "data": part.encrypted}
            return {"type": "thinking", "thinking": part.text, "signature": part.signature or ""}
        if not self._v1 and wire == "google_generate":
            signed = {} if part.signature is None else {"signature": part.signature}
            return {"type": "thinking", "thinking": part.text, **signed}
        if not self._v1 and wire == "openai_responses":
            named = cast("dict[str, Any]", part.provider.get(wire, {})).get("id")
            summary = [{"type": "summary_text", "text": part.text}] if part.text else []
            sealed = {} if part.encrypted is None else {"encrypted_content": part.encrypted}
            return {"type": "reasoning", **({} if named is None else {"id": named}), "summary": summary, **sealed}
        proof = {"signature": part.signature, "encrypted_content": part.encrypted}
        proof = {key: each for key, each in proof.items() if each is not None}
        return {"type": "reasoning", "reasoning": part.text, **({"extras": proof} if proof else {})}

    def _call(self, place: int, part: ToolCall | MalformedToolCall) -> dict[str, Any]:
        if isinstance(part, MalformedToolCall):
            call = {"name": part.name, "args": part.raw, "id": part.id, "error": part.reason}
            self.invalid.append({**call, "type": "invalid_tool_call"})
            return {"type": "invalid_tool_call", **call}
        arguments = arguments_of(part)
        if arguments is None:
            why = "LangChain takes objects only; in one, under __arg1"
            self._writing.lose("approximated", "arguments", why, self._entry, place)
            arguments = jsontext.raw({"__arg1": jsontext.value(part.arguments_json)})
        if part.provider_executed:
            return {"type": "server_tool_call", "id": part.id, "name": part.name, "args": arguments}
        self.calls.append({"name": part.name, "args": arguments, "id": part.id, "type": "tool_call"})
        if self._v1:
            return {"type": "tool_call", "id": part.id, "name": part.name, "args": arguments}
        if self._wire == "openai_responses":
            call = {"name": part.name, "arguments": part.arguments_json, "call_id": part.id}
            return {"type": "function_call", **call}
        return {"type": "tool_use", "id": part.id, "name": part.name, "input": arguments}


def _is_block(part: Opaque) -> bool:
    return jsontext.kind(part.raw_json) == "an object"


def _annotations(part: Text) -> dict[str, Any]:
    """Return the citations of a text in LangChain's form."""
    notes: list[dict[str, Any]] = []
    for each in part.citations:
        stored = {"url": each.url, "title": each.title, "cited_text": each.quote}
        stored |= cast("dict[str, Any]", {"start_index": each.start, "end_index": each.end})
        notes.append({"type": "citation", **{key: value for key, value in stored.items() if value is not None}})
    return {"annotations": notes} if notes else {}


def arguments_of(call: ToolCall) -> Raw | None:
    """Return the arguments as an object on one line; ``None`` when they are not an object."""
    text = call.arguments_json.strip() or "{}"
    if not text.startswith("{"):
        return None
    return one_line(text)
