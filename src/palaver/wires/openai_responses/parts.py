"""Content parts, read and written side by side.

Rules:

- A text part is ``input_text`` in input and ``output_text`` in answers; the hint
  ``@@type`` keeps another word, which is valid only where it was found.
- ``annotations`` are citations of an ``output_text``; the hint ``@@annotations`` says that there were none at all.
- A data URI becomes bytes where writing it again gives the same text. ``@@field`` says in which field
  a file stood that is no data URI.
- An image without ``detail`` and bytes without ``filename`` are marked by ``@@detail`` and ``@@filename``; ours have
  both.
- A part without a source that we can read is kept as it is.

Source: docs/spec/wires.md#3.1; https://platform.openai.com/docs/api-reference/responses/object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import UNSET, Raw

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.jsontext import Fields
from palaver.core.parts import (
    AnyPart,
    Citation,
    File,
    FileId,
    Image,
    Inline,
    Json,
    Media,
    MediaSource,
    Opaque,
    Refusal,
    Text,
    Url,
)
from palaver.wires._engine import json_fields
from palaver.wires._engine.json_fields import hint, is_hint, provider, visible
from palaver.wires.openai_responses.shapes import WIRE, optional

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.wires._engine.encode_state import Context

_EMPTY_LIST: Final = Raw(b"[]")
_ABSENT: Final = hint("absent")
JOINED: Final[Fields] = {"@@joined": Raw(b"true")}
"""Kept with every part of a message of the assistant but the first."""
_TEXTS: Final = ("input_text", "output_text")


# -- reading ---------------------------------------------------------------------------------------


def read(rows: list[Fields], source: Raw, usual: str, beside: Fields | None = None) -> list[Any]:
    """Read the parts of ``source``, given split.

    ``usual`` is the type of a text here, ``beside`` is kept with the first part.
    """
    found: list[Any] = []
    for index, rest in enumerate(rows):
        try:
            part = _part(rest, usual, beside)
        except DecodeError as error:
            raise error.within(f"[{index}]") from None
        if part is None:
            raw = jsontext.own(jsontext.items(source)[index])
            part = trusted.Opaque(WIRE, raw, provider_json=provider(WIRE, beside or {}))
        found.append(part)
        if beside:
            beside = JOINED
    return found


def _part(rest: Fields, usual: str, beside: Fields | None) -> AnyPart | None:
    """Read one part; ``None`` when it is to be kept as it is."""
    kind = json_fields.need_text(rest, "type")
    if kind in _TEXTS:
        text = json_fields.need_text(rest, "text")
        citations = _citations(rest) if kind == "output_text" else ()
        if kind != usual:
            rest["@@type"] = hint(kind)
        if beside:
            rest.update(beside)
        return trusted.Text(text, citations, provider_json=provider(WIRE, rest))
    reader = _READERS.get(kind)
    found = None if reader is None else reader(rest)
    if found is None:
        return None
    if beside:
        rest.update(beside)
    return found.replace(provider_json=provider(WIRE, rest)) if rest else found


def _refusal(rest: Fields) -> AnyPart:
    return trusted.Refusal(json_fields.need_text(rest, "refusal"))


def _image(rest: Fields) -> AnyPart | None:
    if "detail" not in rest:
        rest["@@detail"] = _ABSENT
    url = optional(json_fields.take_text, rest, "image_url")
    if url is not None:
        return trusted.Image(*source(url))
    file_id = optional(json_fields.take_text, rest, "file_id")
    return None if file_id is None else trusted.Image(trusted.FileId(file_id, WIRE))


def _file(rest: Fields) -> AnyPart | None:
    found: MediaSource
    media_type = None
    if (data := optional(json_fields.take_text, rest, "file_data")) is not None:
        found, media_type = source(data)
        if isinstance(found, Url):
            rest["@@field"] = hint("file_data")
            found = found if data[:5] == "data:" else trusted.Inline(data)
    elif (file_id := optional(json_fields.take_text, rest, "file_id")) is not None:
        found = trusted.FileId(file_id, WIRE)
    elif (url := optional(json_fields.take_text, rest, "file_url")) is not None:
        found = trusted.Url(url)
    else:
        return None
    name = optional(json_fields.take_text, rest, "filename")
    if name is None and isinstance(found, Inline):
        rest["@@filename"] = _ABSENT
    return trusted.File(found, media_type, name)


def source(url: str) -> tuple[MediaSource, str | None]:
    """Take a data URI apart where writing it again gives the same text; else the URL stays whole."""
    if url[:5] == "data:":
        media_type, marked, data = url[5:].partition(";base64,")
        if marked and media_type and "," not in media_type:
            return trusted.Inline(data), media_type
    return trusted.Url(url), None


_READERS: Final[dict[str, Callable[[Fields], AnyPart | None]]] = {
    "refusal": _refusal,
    "input_image": _image,
    "input_file": _file,
}


def _citations(rest: Fields) -> tuple[Citation, ...]:
    raw = rest.get("annotations")
    if raw == _EMPTY_LIST:
        del rest["annotations"]
        return ()
    if raw is None:
        rest["@@annotations"] = _ABSENT
        return ()
    found = optional(json_fields.take_items, rest, "annotations")
    return () if found is None else tuple(citation(each) for each in found)


def citation(raw: Raw) -> Citation:
    """Read an annotation."""
    fields = jsontext.value(raw)
    table = cast("dict[str, Any]", fields) if isinstance(fields, dict) else {}

    def of(key: str, kind: type) -> Any:
        found = table.get(key)
        return found if isinstance(found, kind) and not isinstance(found, bool) else None

    return trusted.Citation(
        wire=WIRE,
        url=of("url", str),
        title=of("title", str) or of("filename", str),
        start=of("start_index", int),
        end=of("end_index", int),
        raw_json=jsontext.own(raw),
    )


# -- writing ---------------------------------------------------------------------------------------


def write(part: AnyPart, stored: Fields, usual: str, context: Context) -> Any:
    """Write a part. ``stored`` is what it keeps for this wire."""
    match part:
        case Text():
            return _write_text(part, stored, usual, own=context.own)
        case Json():
            return {"type": usual, "text": bytes(part.value_json).decode()}
        case Refusal():
            return {"type": "refusal", "refusal": part.text, **visible(stored)}
        case Image():
            fields: dict[str, Any] = {"type": "input_image", **linked(part, "image_url")}
            if "@@detail" not in stored:
                fields["detail"] = "auto"
            return {**fields, **visible(stored)}
        case File():
            return _write_file(part, stored)
        case Opaque():
            return part.raw_json
        case _:
            context.lose("dropped", type(part).__name__, "the wire has no such part")
            return {"type": usual, "text": ""}


def _write_text(part: Text, stored: Fields, usual: str, *, own: bool) -> dict[str, Any]:
    kind = usual
    if own and "@@type" in stored:
        kind = jsontext.text(stored["@@type"])
    fields: dict[str, Any] = {"type": kind, "text": part.text}
    if kind == "output_text" and ("@@annotations" not in stored or part.citations):
        fields["annotations"] = [
            each.raw_json for each in part.citations if each.wire == WIRE and each.raw_json is not UNSET
        ]
    return {**fields, **visible(stored)}


def linked(part: Media, key: str) -> dict[str, Any]:
    """Write the source of a medium; ``key`` is the field for a URL or a data URI."""
    match part.source:
        case FileId(file_id):
            return {"file_id": file_id}
        case Url(url):
            return {key: url}
        case Inline():
            return {key: part.data_uri}
        case _:
            return {key: ""}


def _write_file(part: File, stored: Fields) -> dict[str, Any]:
    fields: dict[str, Any] = {"type": "input_file"}
    inline = isinstance(part.source, Inline)
    bare = is_hint(stored, "field", "file_data")
    if bare and isinstance(part.source, Inline) and part.media_type is None:
        fields["file_data"] = part.source.data
    else:
        fields |= linked(part, "file_data" if inline or bare else "file_url")
    if part.name is not None:
        fields["filename"] = part.name
    elif inline and "@@filename" not in stored:
        fields["filename"] = "document"
    return {**fields, **visible(stored)}
