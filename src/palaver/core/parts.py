"""The parts a message is made of.

Rules:

- Parts stand in one order, tool calls included (C18); lists of images or calls are views of it.
- Media comes from exactly one place: bytes kept as their base64 text, a URL, a provider's file id,
  or a content hash into a blob store (C20). Nothing here ever fetches a URL.
- The arguments of a tool call are the model's own text, byte for byte (C22). Text that is not JSON makes a
  ``MalformedToolCall``.
- Reasoning carries the proof its provider attached, bound to the wire it came from (C19).
- An unknown block is an ``Opaque`` part: kept verbatim, sent to no other wire (C5).

Stability: stable.
"""

from __future__ import annotations

import binascii
import os
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, Unpack, cast, final

from msgspec import UNSET, Raw, UnsetType, field

from palaver.core import jsontext, media_types
from palaver.core.errors import ArgumentsError, DecodeError, MessageError
from palaver.core.type_checks import Checked
from palaver.core.value import Record, Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.core.changes import (
        FileChanges,
        JsonChanges,
        MalformedToolCallChanges,
        MediaChanges,
        RawChanges,
        ReasoningChanges,
        RefusalChanges,
        ServerToolResultChanges,
        TextChanges,
        ToolCallChanges,
    )


class Part(Value, frozen=True, tag_field="type", metaclass=Checked):
    """Base of all parts. ``provider`` holds what only one wire understands."""

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """Show it in a notebook."""
        from palaver.core import notebook  # noqa: PLC0415 (it renders what this module defines)

        return notebook.bundle(self, notebook.part_html(self))


# -- where media comes from ------------------------------------------------------------------------


class _Source(Record, frozen=True, tag_field="kind", metaclass=Checked):
    """Base of media sources."""

    def __repr__(self) -> str:
        name = type(self).__name__
        stored = getattr(self, type(self).__struct_fields__[0])
        size = f"{len(stored)} characters" if isinstance(self, Inline) else repr(stored[:80])
        return f"{name}({size})"


@final
class Inline(_Source, frozen=True, tag="inline"):
    """Bytes in the message. ``data`` is their base64 text, exactly as it was given."""

    data: str

    @property
    def bytes(self) -> bytes:
        """Decode, taking the URL-safe alphabet and missing padding too. Raises ``MessageError``."""
        text = self.data.translate(_URL_SAFE).rstrip("=")
        try:
            return binascii.a2b_base64(text + "=" * (-len(text) % 4))
        except (binascii.Error, ValueError) as error:
            msg = f"inline media is not base64: {error}"
            raise MessageError(msg) from None

    @property
    def valid(self) -> bool:
        """Whether the text is base64 at all."""
        text = self.data.translate(_URL_SAFE).rstrip("=")
        try:
            binascii.a2b_base64(text + "=" * (-len(text) % 4), strict_mode=True)
        except (binascii.Error, ValueError):
            return False
        return True

    @property
    def size(self) -> int:
        """Size in bytes, without decoding."""
        return len(self.data.rstrip("=")) * 3 // 4


_URL_SAFE = str.maketrans("-_", "+/")


@final
class Url(_Source, frozen=True, tag="url"):
    """A URL that the provider, not Palaver, fetches. Not a data URI: those become ``Inline``."""

    url: str


@final
class FileId(_Source, frozen=True, tag="file_id"):
    """A file that a provider keeps. The id means something on ``wire`` only."""

    id: str
    wire: str


@final
class Blob(_Source, frozen=True, tag="blob"):
    """A content hash, ``sha256:…``, into a blob store. A store resolves it before it is sent."""

    hash: str


MediaSource: TypeAlias = Inline | Url | FileId | Blob


# -- text and what stands beside it ----------------------------------------------------------------


@final
class Citation(Record, frozen=True, kw_only=True, metaclass=Checked):
    """Where a stretch of text comes from.

    ``raw_json`` is the provider's own block, bound to ``wire``.

    ``start`` and ``end`` are offsets into the text of the part, in the provider's own units, where
    it gives them.
    """

    wire: str | None = None
    url: str | None = None
    title: str | None = None
    quote: str | None = None
    start: int | None = None
    end: int | None = None
    raw_json: Raw | UnsetType = field(default=UNSET, name="raw")


@final
class Text(Part, frozen=True, tag="text"):
    """Text, with its citations. An empty text differs from no part."""

    text: str
    citations: tuple[Citation, ...] = field(default=(), name="citations")

    def replace(self, **changes: Unpack[TextChanges]) -> Self:
        """Return a copy with some fields changed by ``changes``. Raises ``MessageError``."""
        return self.__replace__(**changes)


@final
class Reasoning(Part, frozen=True, tag="reasoning"):
    """The model's reasoning, and the proof that only ``wire`` can check.

    Replayed there and nowhere else.
    """

    text: str = ""
    signature: str | None = None
    encrypted: str | None = None
    wire: str | None = None

    def replace(self, **changes: Unpack[ReasoningChanges]) -> Self:
        """Return a copy with some fields changed by ``changes``. Raises ``MessageError``."""
        return self.__replace__(**changes)


@final
class Refusal(Part, frozen=True, tag="refusal"):
    """The text with which the model refuses."""

    text: str

    def replace(self, **changes: Unpack[RefusalChanges]) -> Self:
        """Return a copy with some fields changed by ``changes``. Raises ``MessageError``."""
        return self.__replace__(**changes)


# -- media -----------------------------------------------------------------------------------------


class Media(Part, frozen=True):
    """Base of image, audio, video and file."""

    source: MediaSource
    media_type: str | None = None

    def replace(self, **changes: Unpack[MediaChanges]) -> Self:
        """Return a copy with some fields changed by ``changes``. Raises ``MessageError``."""
        return self.__replace__(**changes)

    @classmethod
    def from_bytes(cls, data: bytes, media_type: str | None = None) -> Self:
        """Make a part with ``data`` inline.

        ``media_type`` is a MIME type such as ``"image/png"``; without one, the first bytes of ``data`` decide. Raises
        ``MessageError`` for a value that is not bytes.
        """
        if not isinstance(cast("object", data), bytes | bytearray | memoryview):
            raise MessageError(f"data: expected bytes, got {type(data).__name__}")
        return cls(
            Inline(binascii.b2a_base64(data, newline=False).decode()),
            media_type or media_types.of_bytes(data),
        )

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], media_type: str | None = None) -> Self:
        """Read the file at ``path`` and make a part with its bytes inline.

        ``media_type`` is a MIME type; without one, the first bytes of the file decide, then its suffix. Raises
        ``OSError``.
        """
        with open(path, "rb") as file:  # noqa: PTH123 (pathlib takes longer to load than this module)
            data = file.read()
        return cls.from_bytes(data, media_type or media_types.of_bytes(data) or media_types.of_name(str(path)))

    @classmethod
    def from_url(cls, url: str, media_type: str | None = None) -> Self:
        """Make a part that refers to ``url``, which Palaver never fetches. A data URI becomes inline bytes.

        ``media_type`` is a MIME type; without one, the suffix of the URL decides. A data URI brings its own. Raises
        ``MessageError`` for a value that is not a string.
        """
        if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance] (not every caller has a type checker)
            raise MessageError(f"url: expected a string, got {type(url).__name__}")
        if url[:5].lower() == "data:":
            return cls.from_data_uri(url)
        return cls(Url(url), media_type or media_types.of_name(url))

    @classmethod
    def from_data_uri(cls, uri: str) -> Self:
        """Make a part from ``uri``, a ``data:`` URI (RFC 2397). Raises ``MessageError`` for any other text."""
        media_type, data = media_types.split_data_uri(uri)
        return cls(Inline(data), media_type)

    @property
    def data_uri(self) -> str | None:
        """The inline bytes as a ``data:`` URI; ``None`` for other sources."""
        if not isinstance(self.source, Inline):
            return None
        return f"data:{self.media_type or 'application/octet-stream'};base64,{self.source.data}"


@final
class Image(Media, frozen=True, tag="image"):
    """An image."""


@final
class Audio(Media, frozen=True, tag="audio"):
    """An audio recording."""


@final
class Video(Media, frozen=True, tag="video"):
    """A video."""


@final
class File(Media, frozen=True, tag="file"):
    """A document. ``name`` is its file name."""

    name: str | None = None

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], media_type: str | None = None) -> Self:
        """Read the file at ``path`` and make a part with its bytes inline and its name, without the folder.

        ``media_type`` as for other media. Raises ``OSError``.
        """
        part = super().from_path(path, media_type)
        name = os.path.basename(os.fsdecode(path))  # noqa: PTH119 (pathlib takes longer to load than this module)
        return part.replace(name=name.encode(errors="replace").decode())

    # pyright takes the keywords that are added for other ones; mypy compares them.
    def replace(self, **changes: Unpack[FileChanges]) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return a copy with some fields changed by ``changes``. Raises ``MessageError``."""
        return self.__replace__(**changes)


# -- tools -----------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _arguments(text: str) -> Any:
    return jsontext.view(text)


@final
class ToolCall(Part, frozen=True, tag="tool_call"):
    """A tool call of the model.

    ``arguments_json`` is its own text; empty text stands for ``{}`` and stays empty.

    ``custom`` marks a free-text call: its arguments are one JSON string, the text.
    ``provider_executed`` marks a call that the provider runs itself; it needs no result from us.
    """

    id: str
    name: str
    arguments_json: str = ""
    custom: bool = False
    provider_executed: bool = False

    def replace(self, **changes: Unpack[ToolCallChanges]) -> Self:
        """Return a copy with some fields changed by ``changes``. Raises ``MessageError``."""
        return self.__replace__(**changes)

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments, parsed on first use. Raises ``ArgumentsError`` when they are not a JSON object."""
        if not self.arguments_json.strip():
            return jsontext.FrozenDict()
        try:
            parsed = _arguments(self.arguments_json)
        except DecodeError as error:
            msg = f"the arguments of {self.name!r} are {error.reason}"
            raise ArgumentsError(msg) from None
        if not isinstance(parsed, dict):
            found = jsontext.kind(self.arguments_json.encode())
            msg = f"the arguments of {self.name!r} are {found}, not an object"
            raise ArgumentsError(msg)
        return parsed  # pyright: ignore[reportUnknownVariableType]

    @property
    def described(self) -> str:
        """The arguments for people, keys sorted: ``"at: [a, b], path: a.txt, size: 3"``.

        Never a key for comparison.
        """
        try:
            return _pairs(self.arguments)
        except (ArgumentsError, RecursionError):
            return self.arguments_json


def _pairs(fields: Mapping[str, object]) -> str:
    return ", ".join([f"{key}: {_described(fields[key])}" for key in sorted(fields)])


def _described(item: object) -> str:
    match item:
        case str():
            return item
        case Mapping():
            return f"{{{_pairs(cast('Mapping[str, object]', item))}}}"
        case list() | tuple():
            return f"[{', '.join(map(_described, cast('Sequence[object]', item)))}]"
        case _:
            return jsontext.encode(item).decode()


@final
class MalformedToolCall(Part, frozen=True, tag="malformed_tool_call"):
    """A call that did not parse: its raw text, and why.

    Kept and shown, never sent as a call.
    """

    raw: str
    reason: str
    name: str | None = None
    id: str | None = None

    def replace(self, **changes: Unpack[MalformedToolCallChanges]) -> Self:
        """Return a copy with some fields changed by ``changes``. Raises ``MessageError``."""
        return self.__replace__(**changes)


def settled(call: ToolCall) -> ToolCall | MalformedToolCall:
    """Return a complete call, or a malformed one when its arguments are not JSON."""
    text = call.arguments_json
    if not text or jsontext.is_json(text) or text.isspace():
        return call
    return MalformedToolCall(text, "the arguments are not JSON", call.name, call.id, provider_json=call.provider_json)


@final
class ServerToolResult(Part, frozen=True, tag="server_tool_result"):
    """The result of a call that the provider ran itself, verbatim.

    It means something on ``wire`` only.
    """

    tool_call_id: str
    output_json: Raw = field(name="output")
    wire: str
    tool_name: str | None = None
    is_error: bool = False

    def replace(self, **changes: Unpack[ServerToolResultChanges]) -> Self:
        """Return a copy with some fields changed by ``changes``. Raises ``MessageError``."""
        return self.__replace__(**changes)

    @property
    def output(self) -> Any:
        """The provider's result block, parsed and frozen."""
        return jsontext.view(self.output_json)


@final
class Json(Part, frozen=True, tag="json"):
    """A JSON value that a tool returned."""

    value_json: Raw = field(name="value")

    def replace(self, **changes: Unpack[JsonChanges]) -> Self:
        """Return a copy with some fields changed by ``changes``. Raises ``MessageError``."""
        return self.__replace__(**changes)

    @classmethod
    def of(cls, value: object) -> Self:
        """Make the part of ``value``, a Python value. Raises ``MessageError`` for what JSON cannot express."""
        return cls(jsontext.checked(value, "value"))

    @property
    def value(self) -> Any:
        """The value, parsed and frozen."""
        return jsontext.view(self.value_json)


@final
class Opaque(Part, frozen=True, tag="opaque"):
    """An unknown block, verbatim. It is sent to ``wire`` only."""

    keeps_unknown: ClassVar[bool] = True

    wire: str
    raw_json: Raw = field(name="raw")

    def replace(self, **changes: Unpack[RawChanges]) -> Self:
        """Return a copy with some fields changed by ``changes``. Raises ``MessageError``."""
        return self.__replace__(**changes)

    @property
    def raw(self) -> Any:
        """The block, parsed and frozen."""
        return jsontext.view(self.raw_json)


TextPart: TypeAlias = Text | Opaque
UserPart: TypeAlias = Text | Image | Audio | Video | File | Opaque
AssistantPart: TypeAlias = (
    Text | Reasoning | ToolCall | MalformedToolCall | ServerToolResult | Image | Audio | Video | File | Refusal | Opaque
)
ToolPart: TypeAlias = Text | Json | Image | Audio | Video | File | Opaque
AnyPart: TypeAlias = AssistantPart | Json
