"""Read the content blocks of Converse messages.

- A block is an object with one key, its kind. ``AnswerBlock`` and the like have the kinds of each role. A block of
  another kind is ``Opaque``, and so are a medium of an unknown format or source, and a cache point. A missing or wrong
  field of a known kind is a ``DecodeError``, and so are two kinds in one block, which the service refuses.
- ``reasoningContent`` is ``Reasoning`` with its signature or its redacted bytes. ``citationsContent`` is ``Text`` with
  citations. A result inside an assistant message belongs to the service's own tool: ``ServerToolResult``.
- A document with a text source is a file of ``text/plain``, or of its format.

Source: docs/spec/wires.md#6.1; ``ContentBlock`` in botocore's ``bedrock-runtime``.
"""

from __future__ import annotations

import binascii
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from msgspec import UNSET, Raw, UnsetType, structs

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.jsontext import NULL, TRUE, Fields
from palaver.core.messages import Message, ToolMessage
from palaver.core.parts import (
    AnyPart,
    AssistantPart,
    Audio,
    Citation,
    Image,
    MediaSource,
    ServerToolResult,
    TextPart,
    ToolPart,
    Video,
)
from palaver.wires._engine import json_fields
from palaver.wires._engine.json_fields import nested, provider, word
from palaver.wires._engine.shapes import ABSENT, Shape, reader
from palaver.wires.bedrock_converse.shapes import FORMATS, KINDS, WIRE, WORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from palaver.core.parts import UserPart


# -- shapes ----------------------------------------------------------------------------------------


class Call(Shape, rename="camel"):
    """A call of a tool, the client's or the service's."""

    tool_use_id: str
    name: str
    input: Raw
    type: Raw = ABSENT


class Signed(Shape):
    """Readable reasoning, with its proof."""

    text: str
    signature: str | UnsetType = UNSET


class Thought(Shape, rename="camel"):
    """Reasoning: readable, or encrypted."""

    reasoning_text: Signed | UnsetType = UNSET
    redacted_content: str | UnsetType = UNSET


class Location(Shape):
    """An object in S3."""

    uri: str


class Source(Shape, rename="camel"):
    """Where a medium comes from."""

    bytes: str | UnsetType = UNSET
    s3_location: Location | UnsetType = UNSET


class TextSource(Source):
    """The same of a document, which may be given as text."""

    text: str | UnsetType = UNSET


class Medium(Shape):
    """An image, a video or a recording."""

    format: str
    source: Source | UnsetType = UNSET


class Document(Shape):
    """A document, with its name."""

    name: str
    format: str | UnsetType = UNSET
    source: TextSource | UnsetType = UNSET


class SystemBlock(Shape):
    """A block of ``system``, or of a message of that role."""

    text: str | UnsetType = UNSET


class ResultBlock(Shape):
    """A block of a tool result."""

    text: str | UnsetType = UNSET
    json: Raw = ABSENT
    image: Raw = ABSENT
    document: Raw = ABSENT
    video: Raw = ABSENT


class Result(Shape, rename="camel"):
    """The result of a client's tool."""

    tool_use_id: str
    content: list[ResultBlock]
    status: Raw = ABSENT


class UserBlock(Shape, rename="camel"):
    """A block of a user message."""

    text: str | UnsetType = UNSET
    tool_result: Result | UnsetType = UNSET
    image: Raw = ABSENT
    document: Raw = ABSENT
    video: Raw = ABSENT
    audio: Raw = ABSENT


class AnswerBlock(Shape, rename="camel"):
    """A block of an assistant message."""

    text: str | UnsetType = UNSET
    tool_use: Call | UnsetType = UNSET
    reasoning_content: Thought | UnsetType = UNSET
    tool_result: Raw = ABSENT
    citations_content: Raw = ABSENT
    image: Raw = ABSENT
    document: Raw = ABSENT
    video: Raw = ABSENT
    audio: Raw = ABSENT


Block: TypeAlias = SystemBlock | ResultBlock | UserBlock | AnswerBlock
Read: TypeAlias = "Callable[[Any, Fields], AnyPart | None]"
"""Reads what stands under the key, given what stands beside it; ``None`` is ``Opaque``."""


# -- by role ---------------------------------------------------------------------------------------


def answer_parts(blocks: Sequence[AnswerBlock]) -> tuple[AssistantPart, ...]:
    """Read the blocks of an assistant message."""
    return cast("tuple[AssistantPart, ...]", _parts(blocks))


def system_parts(blocks: Sequence[SystemBlock]) -> tuple[TextPart, ...]:
    """Read the blocks of ``system``, or of a message of that role."""
    return cast("tuple[TextPart, ...]", _parts(blocks))


_read_answer_block = reader(AnswerBlock)


def answer_part(raw: Raw) -> AssistantPart:
    """Read one block of an assistant message."""
    return cast("AssistantPart", _part(_read_answer_block(raw)))


def _parts(blocks: Sequence[Block]) -> tuple[AnyPart, ...]:
    parts: list[AnyPart] = []
    for index, block in enumerate(blocks):
        try:
            parts.append(_part(block))
        except DecodeError as error:
            raise error.within(f"[{index}]") from None
    return tuple(parts)


def _part(block: Block) -> AnyPart:
    key, inner = _member(block)
    rest = block.rest
    if key is None:
        return trusted.Opaque(WIRE, jsontext.raw(dict(rest)))
    read = _READ_RESULT[key] if type(block) is ResultBlock else _READ[key]
    try:
        found = read(inner, rest)
    except DecodeError as error:
        raise error.within(key) from None
    if found is None:
        return trusted.Opaque(
            WIRE, jsontext.raw({key: dict(inner.rest) if isinstance(inner, Thought) else inner, **rest})
        )
    return found


def _member(block: Block) -> tuple[str | None, Any]:
    """Find the one kind of a block, and what stands under it; nulls count only where there is nothing else."""
    keys, nothing, read = _MEMBERS[type(block)]
    values = read(block)
    for place, value in enumerate(values):  # all blocks of the service have one kind
        if value is not nothing[place]:
            if values[place + 1 :] == nothing[place + 1 :]:
                return keys[place], value
            break
    pairs = zip(keys, values, strict=True)
    found = [each for each in pairs if each[1] is not UNSET and each[1] is not ABSENT]
    if found:
        block.rest = {**block.rest, **{key: NULL for key, value in found if value == NULL}}
        found = [each for each in found if each[1] != NULL] or found[:1]
    if len(found) == 1:
        return found[0]
    if found:
        raise DecodeError(f"expected one kind, got {' and '.join(key for key, _ in found)}")
    for key in keys if block.rest else ():
        if key in block.rest:
            raise DecodeError("expected a value, got null", path=key)
    return None, None


def _members(shape: type[Block]) -> tuple[tuple[str, ...], tuple[Any, ...], Callable[[Block], tuple[Any, ...]]]:
    """The kinds of a block, what stands under each where it is absent, and a function that reads what does."""
    known = [each for each in structs.fields(shape) if each.name != "rest"]
    names = [each.name for each in known]
    values: Callable[[Block], Any] = attrgetter(*names)
    keys, nothing = tuple(each.encode_name for each in known), tuple(each.default for each in known)
    return keys, nothing, values if len(names) > 1 else lambda block: (values(block),)


_MEMBERS: Final = {shape: _members(shape) for shape in (SystemBlock, ResultBlock, UserBlock, AnswerBlock)}


def _stored(rest: Fields, beside: Fields, notes: Fields | None = None) -> Raw | UnsetType:
    if beside:
        notes = {**(notes or {}), "beside": Raw(jsontext.encode(beside))}
    return provider(WIRE, rest, notes)


# -- text and reasoning ----------------------------------------------------------------------------


def _text(text: str, beside: Fields) -> AnyPart:
    return trusted.Text(text, provider_json=_stored({}, beside)) if beside else trusted.Text(text)


def _result_text(text: str, beside: Fields) -> AnyPart:
    """Read text of a result, which may be blank; elsewhere blank text is refused (docs/spec/wires.md#6.2.3)."""
    if not text.strip():
        return trusted.Text(text, provider_json=_stored({}, beside, {"blank": TRUE}))
    return _text(text, beside)


def _cited(inner: Raw, beside: Fields) -> AnyPart:
    rest = jsontext.fields(inner)
    raw = rest.get("content", NULL)
    text = cited_text(raw)
    if jsontext.equal(raw, jsontext.raw([{"text": text}])) or jsontext.value(raw) in (None, []):
        rest.pop("content", None)
    found = rest.get("citations", NULL)
    citations: tuple[Citation, ...] = ()
    if jsontext.kind(found) == "an array":
        citations = tuple(citation(block) for block in jsontext.items(found))
        del rest["citations"]
    return trusted.Text(text, citations, provider_json=_stored(rest, beside, {"kind": word("citationsContent")}))


def cited_text(raw: Raw) -> str:
    """Join the texts that citations stand on."""
    found: object = jsontext.value(raw)
    blocks = cast("list[object]", found) if isinstance(found, list) else []
    texts = [cast("dict[str, Any]", block).get("text") for block in blocks if isinstance(block, dict)]
    return "".join([text for text in texts if isinstance(text, str)])


def citation(raw: Raw) -> Citation:
    """Read a citation. Its offsets are those of the source, not of the text, so they stay in the raw block."""
    found = jsontext.value(raw)
    table = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    location = table.get("location")
    web = cast("dict[str, Any]", location).get("web") if isinstance(location, dict) else None
    url = cast("dict[str, Any]", web).get("url") if isinstance(web, dict) else None
    title, quoted = table.get("title"), table.get("sourceContent")
    return trusted.Citation(
        wire=WIRE,
        url=url if isinstance(url, str) else None,
        title=title if isinstance(title, str) else None,
        quote=(cited_text(jsontext.raw(cast("object", quoted))) or None) if isinstance(quoted, list) else None,
        raw_json=jsontext.own(raw),
    )


def _reasoning(found: Thought, beside: Fields) -> AnyPart | None:
    rest, signed, redacted = found.rest, found.reasoning_text, found.redacted_content
    if signed is UNSET and redacted is UNSET:
        return None
    if signed is UNSET:
        return trusted.Reasoning(encrypted=cast("str", redacted), wire=WIRE, provider_json=_stored(rest, beside))
    if redacted is not UNSET:
        raise DecodeError("expected one kind, got reasoningText and redactedContent")
    signature = None if signed.signature is UNSET else signed.signature
    stored = _stored(nested(rest, "reasoningText", signed.rest), beside)
    return trusted.Reasoning(signed.text, signature, wire=WIRE, provider_json=stored)


# -- tools -----------------------------------------------------------------------------------------


def _call(found: Call, beside: Fields) -> AnyPart:
    rest = found.rest if found.type is ABSENT else {**found.rest, "type": found.type}
    return trusted.ToolCall(
        found.tool_use_id,
        found.name,
        bytes(found.input).decode(),
        provider_executed=found.type == _SERVED,
        provider_json=_stored(rest, beside),
    )


_SERVED: Final = word("server_tool_use")


def _served_result(inner: Raw, beside: Fields) -> AnyPart:
    rest = jsontext.fields(inner)
    call_id = json_fields.need_text(rest, "toolUseId")
    raw = jsontext.raw({"toolResult": inner, **beside})
    return ServerToolResult(call_id, raw, WIRE, is_error=rest.get("status") == _ERROR)


_ERROR: Final = word("error")


def _json(inner: Raw, beside: Fields) -> AnyPart:
    return trusted.Json(jsontext.own(inner), provider_json=_stored({}, beside))


# -- media -----------------------------------------------------------------------------------------


def _media(cls: type[Image | Audio | Video]) -> Read:
    kind = KINDS[cls]
    formats, words, split = FORMATS[kind], WORDS[kind], reader(Medium)

    def read(inner: Raw, beside: Fields) -> AnyPart | None:
        found = split(inner)
        media_type = formats.get(found.format)
        source = _source(found.source, found.rest)
        if media_type is None or source is None or found.source is UNSET:
            return None
        notes = {} if words[media_type] == found.format else {"format": jsontext.raw(found.format)}
        stored = _stored(nested(found.rest, "source", found.source.rest), beside, notes)
        return cls(source, media_type, provider_json=stored)

    return read


def _document(inner: Raw, beside: Fields) -> AnyPart | None:
    found = _split_document(inner)
    source = _source(found.source, found.rest)
    if source is None or found.source is UNSET:
        return None
    textual = found.source.text is not UNSET
    media_type = FORMATS["document"].get(("txt" if textual else "") if found.format is UNSET else found.format)
    if media_type is None:
        return None
    rest = {key: raw for key, raw in found.rest.items() if key != "format"}  # null, which is a text
    notes = {"source": word("text")} if textual else None
    stored = _stored(nested(rest, "source", found.source.rest), beside, notes)
    return trusted.File(source, media_type, found.name, provider_json=stored)


_split_document: Final = reader(Document)


def _source(found: Source | UnsetType, rest: Fields) -> MediaSource | None:
    """Read where a medium comes from; ``None`` for an unknown source, and for an image that could not be made."""
    if found is UNSET:
        if "source" not in rest and "error" in rest:
            return None
        raise DecodeError("missing", path="source")
    text = found.text if isinstance(found, TextSource) else UNSET
    given = [each for each in (found.bytes, found.s3_location, text) if each is not UNSET]
    if len(given) > 1:
        raise DecodeError("expected one kind, got several", path="source")
    if found.bytes is not UNSET:
        return trusted.Inline(found.bytes)
    if found.s3_location is not UNSET:
        found.rest = nested(found.rest, "s3Location", found.s3_location.rest)
        return trusted.Url(found.s3_location.uri)
    if text is UNSET:
        return None
    try:
        return trusted.Inline(binascii.b2a_base64(text.encode(), newline=False).decode())
    except UnicodeEncodeError:  # a lone surrogate has no bytes
        return None


_READ: Final[dict[str, Read]] = {
    "text": _text,
    "toolUse": _call,
    "reasoningContent": _reasoning,
    "toolResult": _served_result,
    "citationsContent": _cited,
    "document": _document,
    "image": _media(Image),
    "video": _media(Video),
    "audio": _media(Audio),
}
_READ_RESULT: Final[dict[str, Read]] = {**_READ, "text": _result_text, "json": _json}


# -- a user message, which is several --------------------------------------------------------------


def user_messages(blocks: Sequence[UserBlock], rest: Fields) -> list[Message]:
    """Take a user message apart: each tool result is a message, and so is each run of other blocks.

    ``rest``, what stands beside role and content, stays with the first; the others have the note ``joined``.
    """
    messages: list[Message] = []
    run: list[UserPart] = []

    def close() -> None:
        if run or not (blocks or messages):
            stored = provider(WIRE, {}, _JOINED) if messages else provider(WIRE, rest)
            messages.append(trusted.UserMessage(content=tuple(run), provider_json=stored))
            run.clear()

    marked = False
    for index, block in enumerate(blocks):
        if marked:
            marked = False
            continue
        try:
            if block.tool_result is UNSET:
                run.append(cast("UserPart", _part(block)))
                continue
            _member(block)
            close()
            mark = _cache_point(blocks[index + 1 : index + 2])
            marked = mark is not None
            notes = dict(_JOINED) if messages else {"message": Raw(jsontext.encode(rest))} if rest else {}
            messages.append(_result(block.tool_result, block.rest, notes, mark))
        except DecodeError as error:
            raise error.within(f"content[{index}]") from None
    close()
    return messages


_JOINED: Final[Fields] = {"joined": TRUE}


def _cache_point(behind: Sequence[UserBlock]) -> Raw | None:
    """Find a cache point right behind a result, with which it stays."""
    if not behind or list(behind[0].rest) != ["cachePoint"] or behind[0] != UserBlock(rest=behind[0].rest):
        return None
    return behind[0].rest["cachePoint"]


def _result(found: Result, beside: Fields, notes: Fields, mark: Raw | None) -> ToolMessage:
    rest = dict(found.rest)
    try:
        content = cast("tuple[ToolPart, ...]", _parts(found.content))
    except DecodeError as error:
        raise error.within("toolResult.content") from None
    is_error = found.status == _ERROR
    if not is_error and found.status is not ABSENT:
        rest["status"] = found.status
    if not content:
        notes["content"] = word("empty")
    if "cachePoint" in rest:  # an unknown field; the name is taken by the block behind the result
        notes["result"] = jsontext.raw({"cachePoint": rest.pop("cachePoint")})
    if mark is not None:
        rest["cachePoint"] = mark
    return trusted.ToolMessage(
        content=content,
        tool_call_id=found.tool_use_id,
        is_error=is_error,
        provider_json=_stored(rest, beside, notes),
    )
