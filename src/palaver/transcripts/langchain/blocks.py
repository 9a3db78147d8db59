"""Content blocks of LangChain messages, read into parts.

Rules (docs/spec/dialects.md#15):

- Content is a string, or a list of strings and blocks. Blocks are of a provider, or LangChain's own (``v1``, and the
  ``source_type`` blocks before it); in both cases the type of a block identifies it.
- Blocks that only a provider has (a document of Anthropic, a search of OpenAI) are read by the codec of its wire.
- An unknown block, or one that the role cannot hold, is an ``Opaque`` part.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palaver import wires
from palaver.core import jsontext, trusted
from palaver.core.errors import PalaverError
from palaver.core.messages import holds
from palaver.core.parts import (
    AnyPart,
    Audio,
    Citation,
    File,
    Image,
    MalformedToolCall,
    MediaSource,
    ServerToolResult,
    ToolCall,
    Video,
    settled,
)
from palaver.transcripts.fields import as_object, check_summary, inner, integer, listed, string
from palaver.transcripts.langchain.shapes import BLOCKS, NAME, NATIVE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from msgspec import Raw

    from palaver.core.jsontext import Fields
    from palaver.transcripts.unknown_fields import Watch

_MEDIA: Final[Mapping[str, type[Image | Audio | Video | File]]] = {
    "image": Image,
    "audio": Audio,
    "video": Video,
    "file": File,
}


class Blocks:
    """Reads the content of one message: of class ``cls``, from ``wire`` if it is known."""

    def __init__(self, cls: type, wire: str | None, watch: Watch, line: int | None) -> None:
        """Start without parts."""
        self._cls = cls
        self._wire = wire
        self._watch = watch
        self._line = line

    def parts(self, data: Fields) -> list[AnyPart]:
        """Return the parts of ``content``."""
        raw = data.get("content")
        if raw is None or jsontext.is_null(raw):
            return []
        match jsontext.kind(raw):
            case "a string":
                return [trusted.Text(jsontext.text(raw))]
            case "an array":
                return [part for each in jsontext.items(raw) for part in self._item(each)]
            case _:
                return [trusted.Opaque(NAME, jsontext.own(raw))]

    def _item(self, raw: Raw) -> list[AnyPart]:
        kind = jsontext.kind(raw)
        if kind == "a string":
            return [trusted.Text(jsontext.text(raw))]
        if kind != "an object":
            self._watch.note("block", kind, self._line)
            return [trusted.Opaque(NAME, jsontext.own(raw))]
        parts = self._block(jsontext.fields(raw), raw)
        fits = all(holds(self._cls, part) for part in parts)
        return parts if fits else [trusted.Opaque(NAME, jsontext.own(raw))]

    def _block(self, fields: Fields, raw: Raw) -> list[AnyPart]:
        kind = string(fields, "type") or ("text" if "text" in fields else "")
        wire = NATIVE.get(kind) or _native(kind, fields)
        if wire is not None:
            found = _decoded(wire, raw, self._cls)
            return found if found is not None else [trusted.Opaque(NAME, jsontext.own(raw))]
        known = BLOCKS.get(kind)
        if known is None:
            self._watch.note("block", kind or "without a type", self._line)
            return [trusted.Opaque(NAME, jsontext.own(raw))]
        self._watch.keys(fields, known, kind, self._line)
        if kind in _MEDIA or kind in {"text-plain", "media"}:
            return [_medium(kind, fields, self._wire) or trusted.Opaque(NAME, jsontext.own(raw))]
        if kind == "server_tool_result":
            output = fields.get("output", jsontext.NULL)
            failed = string(fields, "status") == "error"
            call, name = string(fields, "tool_call_id") or "", string(fields, "name")
            # in the form of LangChain, for any executor: no wire accepts that as its own
            return [ServerToolResult(call, jsontext.own(output), NAME, name, failed)]
        if kind in _READ:
            return [_READ[kind](fields, self._wire)]
        return [trusted.Opaque(NAME, jsontext.own(raw))]


def _native(kind: str, fields: Fields) -> str | None:
    """Return the wire of a block whose type does not identify it."""
    if kind in _MEDIA and "source" in fields:
        return "anthropic_messages"
    if kind == "text" and listed(fields, "citations"):
        return "anthropic_messages"
    if kind == "file" and "file" in fields:
        return "openai_chat"
    if kind == "reasoning" and "summary" in fields:
        return "openai_responses"
    return None


def _decoded(wire: str, raw: Raw, cls: type) -> list[AnyPart] | None:
    """Return the parts of a block, by the codec of its wire; ``None`` when that refuses it."""
    role = "user" if holds(cls, trusted.Image(trusted.Url(""))) and not holds(cls, trusted.Reasoning()) else "assistant"
    if wire == "openai_responses":
        body: dict[str, Any] = {"model": "", "input": [raw]}
    else:
        body = {"model": "", "max_tokens": 1, "messages": [{"role": role, "content": [raw]}]}
    try:
        messages = wires.get(wire).decode_request(jsontext.encode(body)).messages
    except PalaverError:
        return None
    check_summary(as_object(raw))
    return [part for message in messages for part in message.content] or None


# -- LangChain's own, and the blocks that several providers share ------------------------------------------------------


def _text(fields: Fields, _: str | None) -> AnyPart:
    notes = [_citation(jsontext.fields(each), each) for each in listed(fields, "annotations") if _is_object(each)]
    return trusted.Text(string(fields, "text") or "", tuple(notes))


def _citation(fields: Fields, raw: Raw) -> Citation:
    return trusted.Citation(
        url=string(fields, "url"),
        title=string(fields, "title"),
        quote=string(fields, "cited_text"),
        start=integer(fields, "start_index"),
        end=integer(fields, "end_index"),
        raw_json=jsontext.own(raw),
    )


def _is_object(raw: Raw) -> bool:
    return jsontext.kind(raw) == "an object"


def _reasoning(fields: Fields, wire: str | None) -> AnyPart:
    extras = inner(fields, "extras")
    return trusted.Reasoning(
        string(fields, "reasoning") or "",
        signature=string(extras, "signature") or string(fields, "signature"),
        encrypted=string(extras, "encrypted_content") or string(fields, "encrypted_content"),
        wire=wire,
    )


def _thinking(fields: Fields, wire: str | None) -> AnyPart:
    spoken = wire if wire in {"google_generate", "bedrock_converse"} else "anthropic_messages"
    return trusted.Reasoning(string(fields, "thinking") or "", signature=string(fields, "signature"), wire=spoken)


def _redacted(fields: Fields, _: str | None) -> AnyPart:
    return trusted.Reasoning("", encrypted=string(fields, "data"), wire="anthropic_messages")


def _bedrock(fields: Fields, _: str | None) -> AnyPart:
    stored = inner(fields, "reasoning_content")
    return trusted.Reasoning(
        string(stored, "text") or "", signature=string(stored, "signature"), wire="bedrock_converse"
    )


def _call(fields: Fields, _: str | None) -> AnyPart:
    arguments = next((fields[key] for key in ("args", "input", "arguments") if key in fields), jsontext.EMPTY_OBJECT)
    named, name = string(fields, "call_id") or string(fields, "id") or "", string(fields, "name") or ""
    kind = string(fields, "type") or ""
    if kind == "custom_tool_call":
        return trusted.ToolCall(named, name, bytes(arguments).decode(), custom=True)
    served = kind.startswith("server_")
    return called(named, name, arguments, string(inner(fields, "extras"), "signature"), served=served)


def called(
    named: str, name: str, arguments: Raw, signature: str | None = None, *, served: bool = False
) -> ToolCall | MalformedToolCall:
    """Return a call whose arguments are an object, or text that may be malformed."""
    kind = jsontext.kind(arguments)
    text = jsontext.text(arguments) if kind == "a string" else "" if kind == "null" else bytes(arguments).decode()
    call = settled(trusted.ToolCall(named, name, text, provider_executed=served))
    return call if signature is None else call.replace(provider={"google_generate": {"thoughtSignature": signature}})


def _invalid(fields: Fields, _: str | None) -> AnyPart:
    return malformed(fields)


def malformed(fields: Fields) -> MalformedToolCall:
    """Return a call that LangChain could not parse."""
    reason = string(fields, "error") or "the arguments are not JSON"
    return trusted.MalformedToolCall(string(fields, "args") or "", reason, string(fields, "name"), string(fields, "id"))


def _refusal(fields: Fields, _: str | None) -> AnyPart:
    return trusted.Refusal(string(fields, "refusal") or "")


_READ: Final[Mapping[str, Callable[[Fields, str | None], AnyPart]]] = {
    "text": _text,
    "reasoning": _reasoning,
    "thinking": _thinking,
    "redacted_thinking": _redacted,
    "reasoning_content": _bedrock,
    "tool_use": _call,
    "tool_call": _call,
    "tool_call_chunk": _call,
    "function_call": _call,
    "custom_tool_call": _call,
    "server_tool_call": _call,
    "server_tool_call_chunk": _call,
    "invalid_tool_call": _invalid,
    "refusal": _refusal,
}


def _medium(kind: str, fields: Fields, wire: str | None) -> AnyPart | None:
    """Return a medium; ``None`` when it has no source."""
    mime = string(fields, "mime_type")
    extras = inner(fields, "extras")
    name = next((found for each in (fields, extras) if (found := string(each, "filename"))), None)
    cls = _MEDIA.get(kind if kind != "media" else (mime or "").partition("/")[0], File)
    text = string(fields, "text")
    source = _source(fields, wire)
    if source is None:
        if text is None:
            return None
        return File.from_bytes(text.encode("utf-8", "surrogatepass"), mime or "text/plain").replace(name=name)
    return trusted.File(source, mime, name) if cls is File else cls(source, mime)


def _source(fields: Fields, wire: str | None) -> MediaSource | None:
    inline = next((found for key in ("base64", "data") if (found := string(fields, key)) is not None), None)
    if inline is not None:
        return trusted.Inline(inline)
    url = next((found for key in ("url", "file_uri") if (found := string(fields, key)) is not None), None)
    if url is not None:
        return trusted.Url(url)
    kept = string(fields, "file_id") or (string(fields, "id") if string(fields, "source_type") == "id" else None)
    return None if kept is None else trusted.FileId(kept, wire or NAME)
