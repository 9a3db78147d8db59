"""Content parts, read and written side by side.

Rules:

- A text part is ``input_text`` in input and ``output_text`` in answers. The note ``type`` keeps another word, which
  goes back in an unedited request only: elsewhere the provider refuses it.
- ``annotations`` are citations of an ``output_text``.
- A data URI becomes bytes where writing it again gives the same text. The note ``field`` is ``file_data`` for a file
  that stood there and is no data URI.
- The model reads the name of a file. The note ``filename`` is ``absent`` for bytes that came without one; all others
  get a name.
- A part of a message of the assistant has the notes of ``decode`` as well: ``item``, ``joined``, ``reasoning``.
- A part without a source that we can read is kept as it is.

Source: docs/spec/wires.md#3.1; https://platform.openai.com/docs/api-reference/responses/object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from msgspec import Raw

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
from palaver.wires._engine.json_fields import provider, word
from palaver.wires._engine.shapes import ABSENT, Shape, Union
from palaver.wires.openai_responses.shapes import WIRE, beside, string

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.wires._engine.encode_state import Context

JOINED: Final[Fields] = {"joined": jsontext.TRUE}
"""Notes of a part that stands in the item of the part before it."""


# -- shapes ----------------------------------------------------------------------------------------


class InputText(Shape, tag="input_text", tag_field="type"):
    """A text that the model reads."""

    text: str


class OutputText(Shape, tag="output_text", tag_field="type"):
    """A text that the model wrote, with the sources that it cites."""

    text: str
    annotations: Raw = ABSENT
    logprobs: Raw = ABSENT


class RefusalPart(Shape, tag="refusal", tag_field="type"):
    """Why the model did not answer."""

    refusal: str


class ImagePart(Shape, tag="input_image", tag_field="type"):
    """An image."""

    image_url: Raw = ABSENT
    file_id: Raw = ABSENT
    detail: Raw = ABSENT


class FilePart(Shape, tag="input_file", tag_field="type"):
    """A file, with its name."""

    file_data: Raw = ABSENT
    file_id: Raw = ABSENT
    file_url: Raw = ABSENT
    filename: Raw = ABSENT


Part: TypeAlias = InputText | OutputText | RefusalPart | ImagePart | FilePart

_PARTS: Final = Union[Part](InputText, OutputText, RefusalPart, ImagePart, FilePart)


# -- reading ---------------------------------------------------------------------------------------


def content(raw: Raw, read: Callable[[Raw], list[Any]]) -> list[Any]:
    """Read a field that is a text, a list of parts, which ``read`` reads, or null."""
    match jsontext.kind(raw):
        case "a string":
            return [trusted.Text(jsontext.text(raw))]
        case "an array":
            return read(raw)
        case "null":
            return []
        case kind:
            raise DecodeError(f"expected a string or an array, got {kind}")


def read(source: Raw, usual: str, notes: Fields | None = None) -> list[Any]:
    """Read a list of parts. ``usual`` is the type of a text here.

    ``notes`` are those of the first part, where they are the parts of an item of the assistant.
    """
    found: list[Any] = []
    here = notes
    for index, shape in enumerate(_PARTS.items(source)):
        part = _part(shape, usual, here or {})
        if part is None:
            raw = shape if isinstance(shape, Raw) else jsontext.items(source)[index]
            part = _opaque(raw, here, first=not index)
        found.append(part)
        if here is not None:
            here = behind(here) or (JOINED if isinstance(part, Opaque) else {})
    return found


def read_one(raw: Raw, notes: Fields, *, first: bool) -> AnyPart:
    """Read one part of an item of the assistant. ``notes`` are those that its place gives it."""
    return _part(_PARTS.item(raw), "output_text", notes) or _opaque(raw, notes, first=first)


def behind(notes: Fields) -> Fields:
    """The notes of a part that stands behind one with these notes, in the same item."""
    return JOINED if "item" in notes or "joined" in notes else {}


def _part(found: Part | Raw, usual: str, notes: Fields) -> AnyPart | None:
    """Make a part; ``None`` when it is to be kept as it is."""
    match found:
        case InputText():
            here = notes if usual == "input_text" else {**notes, "type": word("input_text")}
            return trusted.Text(found.text, provider_json=provider(WIRE, found.rest, here))
        case OutputText():
            return _output_text(found, notes if usual == "output_text" else {**notes, "type": word("output_text")})
        case RefusalPart():
            return trusted.Refusal(found.refusal, provider_json=provider(WIRE, found.rest, notes))
        case ImagePart():
            return _image(found, notes)
        case FilePart():
            return _file(found, notes)
        case _:
            return None


def _opaque(raw: Raw, notes: Fields | None, *, first: bool) -> AnyPart:
    """Keep a part as it is; one of the assistant needs a note that tells it from an item."""
    if notes is not None and not behind(notes):
        notes = {**notes, "item": jsontext.EMPTY_OBJECT} if first else JOINED
    return trusted.Opaque(WIRE, jsontext.own(raw), provider_json=provider(WIRE, {}, notes))


def _output_text(found: OutputText, notes: Fields) -> AnyPart:
    rest = beside(found, "logprobs")
    raw = found.annotations
    citations: tuple[Citation, ...] = ()
    if raw is not ABSENT:
        if jsontext.kind(raw) == "an array":
            citations = tuple(map(citation, jsontext.items(raw)))
        else:
            rest = {**rest, "annotations": raw}
    return trusted.Text(found.text, citations, provider_json=provider(WIRE, rest, notes))


def _image(found: ImagePart, notes: Fields) -> AnyPart | None:
    if (url := string(found.image_url)) is not None:
        stored = provider(WIRE, beside(found, "file_id", "detail"), notes)
        return trusted.Image(*source(url), provider_json=stored)
    if (file_id := string(found.file_id)) is not None:
        stored = provider(WIRE, beside(found, "image_url", "detail"), notes)
        return trusted.Image(trusted.FileId(file_id, WIRE), provider_json=stored)
    return None


def _file(found: FilePart, notes: Fields) -> AnyPart | None:
    origin: MediaSource
    media_type = None
    others = {"file_data", "file_id", "file_url"}
    if (data := string(found.file_data)) is not None:
        others.remove("file_data")
        origin, media_type = source(data)
        if isinstance(origin, Url):
            notes = {**notes, "field": word("file_data")}
            origin = origin if data[:5] == "data:" else trusted.Inline(data)
    elif (file_id := string(found.file_id)) is not None:
        others.remove("file_id")
        origin = trusted.FileId(file_id, WIRE)
    elif (url := string(found.file_url)) is not None:
        others.remove("file_url")
        origin = trusted.Url(url)
    else:
        return None
    name = string(found.filename)
    if name is None:
        others.add("filename")
        if isinstance(origin, Inline):
            notes = {**notes, "filename": word("absent")}
    return trusted.File(origin, media_type, name, provider_json=provider(WIRE, beside(found, *others), notes))


def source(url: str) -> tuple[MediaSource, str | None]:
    """Take a data URI apart where writing it again gives the same text; else the URL stays whole."""
    if url[:5] == "data:":
        media_type, marked, data = url[5:].partition(";base64,")
        if marked and media_type and "," not in media_type:
            return trusted.Inline(data), media_type
    return trusted.Url(url), None


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


def write(part: AnyPart, stored: Fields, notes: Fields, usual: str, context: Context) -> Any:
    """Write a part. ``stored`` and ``notes`` are what it keeps for this wire."""
    match part:
        case Text():
            return _write_text(part, stored, notes, usual, own=context.own)
        case Json():
            return {"type": usual, "text": bytes(part.value_json).decode()}
        case Refusal():
            return {"type": "refusal", "refusal": part.text, **stored}
        case Image():
            linked_to = linked(part, "image_url")
            return {"type": "input_image", **linked_to, "detail": "auto", **stored, **linked_to}
        case File():
            return _write_file(part, stored, notes)
        case Opaque():
            return part.raw_json
        case _:
            context.lose("dropped", type(part).__name__, "the wire has no such part")
            return {"type": usual, "text": ""}


def _write_text(part: Text, stored: Fields, notes: Fields, usual: str, *, own: bool) -> dict[str, Any]:
    kind = jsontext.text(notes["type"]) if own and "type" in notes else usual
    fields: dict[str, Any] = {"type": kind, "text": part.text}
    if kind == "output_text":
        cited = [each.raw_json for each in part.citations if each.wire == WIRE and isinstance(each.raw_json, Raw)]
        if cited or "annotations" not in stored:
            return {**fields, **stored, "annotations": cited}
    return {**fields, **stored}


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


def _write_file(part: File, stored: Fields, notes: Fields) -> dict[str, Any]:
    fields: dict[str, Any] = {"type": "input_file"}
    inline = isinstance(part.source, Inline)
    bare = notes.get("field") == word("file_data")
    if bare and isinstance(part.source, Inline) and part.media_type is None:
        fields["file_data"] = part.source.data
    else:
        fields |= linked(part, "file_data" if inline or bare else "file_url")
    if part.name is not None:
        fields["filename"] = part.name
    elif inline and "filename" not in notes:
        fields["filename"] = "document"
    return {**fields, **stored, **fields}
