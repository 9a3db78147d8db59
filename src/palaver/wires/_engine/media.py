"""Fit media: which of them a wire takes, from where, and of which types.

Rules (docs/spec/wires.md#9; message-fields F47):

- A media type that is not given is read off the first bytes, else off the ending of the URL. There is no default.
- The bytes never change; their spelling in base64 does, where the wire wants the standard alphabet. Text that is no
  base64 is never sent.
- A URL has a scheme that the provider fetches: a path of this machine is never sent.
- The ``detail`` of an image goes to the other wires that have it.
- What the wire does not take, or the model by the caller's word, is dropped, each with a loss (R08, MSG-11).

Stability: experimental.
"""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING, Final, TypeVar, cast

from msgspec import UNSET, structs

from palaver.core import jsontext, media_types, trusted
from palaver.core.errors import MessageError
from palaver.core.parts import AnyPart, FileId, Image, Inline, Media, MediaSource, Url
from palaver.wires._engine import json_fields

if TYPE_CHECKING:
    from palaver.wires._engine.capabilities import MediaKind, MediaRule
    from palaver.wires._engine.encode_state import Context

_SOURCES: Final[dict[type, str]] = {Inline: "inline", Url: "url", FileId: "file_id"}

_P = TypeVar("_P", bound=Media)


def kind_of(part: AnyPart | Media) -> MediaKind | None:
    """Which kind of medium a part is; ``None`` when it is none."""
    return cast("MediaKind", type(part).__struct_config__.tag) if isinstance(part, Media) else None


def plain(part: _P, *, lenient: bool) -> _P:
    """Take a data URI apart that stands in a URL; unless ``lenient``, spell base64 in the standard alphabet, padded."""
    source = part.source
    if isinstance(source, Url) and source.url[:5].lower() == "data:":
        try:
            media_type, data = media_types.split_data_uri(source.url)
        except MessageError:
            return part
        source = trusted.Inline(data)
        part = part.replace(source=source, media_type=media_type or part.media_type)
    if isinstance(source, Inline) and not _is_base64(source.data):
        joined = trusted.Inline("".join(source.data.split()))  # some programs break base64 into lines
        if not joined.valid:
            return part
        data = joined.data if lenient else binascii.b2a_base64(joined.bytes, newline=False).decode()
        part = part if data == source.data else part.replace(source=trusted.Inline(data))
    return part


def _is_base64(data: str) -> bool:
    """Whether a text is standard base64 of at least one byte."""
    try:
        return bool(binascii.a2b_base64(data, strict_mode=True))
    except ValueError:  # binascii.Error, or text that is not ASCII
        return False


def typed(part: _P) -> _P:
    """Fill in a media type that is not given: from the first bytes, else from the URL's ending (F47)."""
    if part.media_type is not None:
        return part
    match part.source:
        case Inline() as source:
            try:
                found = media_types.of_bytes(structs.replace(source, data=source.data[:64]).bytes)
            except MessageError:
                found = None
        case Url(url):
            found = media_types.of_name(url)
        case _:
            found = None
    return part if found is None else part.replace(media_type=found)


def refusal_of(part: Media, rule: MediaRule) -> str | None:
    """Why a rule refuses a medium; ``None`` when it takes it."""
    word = _SOURCES.get(type(part.source))
    if word is None:
        return "a blob hash, which only a store can resolve"
    if word not in rule.sources:
        return f"not taken as {word.replace('_', ' ')}"
    if isinstance(part.source, Inline) and not (part.source.size and part.source.valid):
        return "its data is not base64" if part.source.size else "it holds no bytes"
    named = media_types.of_name(part.source.url) if isinstance(part.source, Url) else None
    for media_type in (part.media_type, named):
        if media_type is not None and media_type.startswith(rule.refuses):
            return f"{media_type} is not taken"
    if isinstance(part.source, Url):
        scheme = part.source.url.partition(":")[0].lower() if ":" in part.source.url else ""
        if scheme not in rule.schemes:
            return f"not taken as a URL of {scheme[:20]!r}"
    if part.media_type is None:
        unknown = rule.needs_type is True or (word == "inline" and bool(rule.needs_type or rule.types is not None))
        return "its media type is not known" if unknown else None
    if rule.types is not None and word == "inline" and part.media_type.partition(";")[0].lower() not in rule.types:
        return f"{part.media_type} is not taken"
    return None


def medium(
    part: Media, context: Context, index: int, position: int, media: dict[MediaKind, MediaRule]
) -> AnyPart | None:
    """Fit one medium to the rules of a place; ``None`` when it cannot be sent there."""
    kind = cast("MediaKind", kind_of(part))
    takes = context.options.takes
    rule = media.get(kind)
    if takes is not None and kind not in takes:
        why: str | None = f"the model takes no {kind}"
    elif rule is None:
        why = f"the wire takes no {kind} here"
    elif isinstance(part.source, FileId) and part.source.wire != context.wire:
        why = f"a file id of {part.source.wire}"
    else:
        untyped = part.media_type is None and json_fields.keeps(part, context.wire)  # it came without one
        part = typed(plain(part, lenient=context.capabilities.lenient_base64))
        why = refusal_of(part, structs.replace(rule, needs_type=False) if untyped and rule.needs_type else rule)
    if why is None:
        return cast("AnyPart", part)
    context.lose("dropped", kind, why, index, position)
    return None


def source_of(url: str) -> tuple[MediaSource, str | None]:
    """Take a data URI apart where writing it again gives the same text; else the URL stays whole."""
    if url[:5] == "data:":
        try:
            media_type, data = media_types.split_data_uri(url)
        except MessageError:
            return trusted.Url(url), None
        if url == f"data:{media_type};base64,{data}":
            return trusted.Inline(data), media_type
    return trusted.Url(url), None


# -- detail of images ------------------------------------------------------------------------------


_DETAIL: Final = {"openai_chat": "image_url", "cohere_chat": "image_url", "openai_responses": None}
"""The object of an image in which ``detail`` stands, by wire; ``None``: on the part itself."""
_DETAILS: Final = tuple(map(json_fields.word, ("auto", "low", "high")))
"""The words that all of these wires take."""


def with_detail(image: Image, wire: str) -> Image:
    """An image whose ``detail`` another wire kept, with it in the place that this wire has for it."""
    if wire not in _DETAIL or image.provider_json is UNSET or json_fields.native(image, wire):
        return image
    for other, place in _DETAIL.items():
        rest = json_fields.native(image, other)
        raw = jsontext.raw(rest) if place is None else rest.pop(place, jsontext.NULL)
        inner = jsontext.fields(raw) if jsontext.kind(raw) == "an object" else {}
        detail = inner.pop("detail", None)
        if detail in _DETAILS:
            image = json_fields.with_native(
                image, other, inner if place is None else json_fields.nested(rest, place, inner)
            )
            here = _DETAIL[wire]
            return json_fields.with_native(image, wire, {here: {"detail": detail}} if here else {"detail": detail})
    return image
