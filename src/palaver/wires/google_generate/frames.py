"""How the stream of Gemini is framed, and the shape that nearly every event has.

Server-sent events with ``alt=sse``, else a JSON array (docs/spec/wires.md#1.3).

The first byte that is not blank tells which. A body that is one JSON object is an answer that was not streamed, or an
error; it is read as an array of one.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from palaver.stream.json_array import JSONArrayReader
from palaver.stream.sse import SSEReader

if TYPE_CHECKING:
    from palaver.core.errors import DecodeError
    from palaver.stream.frames import Frame, Reader

_SPACE: Final = b" \t\r\n"
_BOM: Final = b"\xef\xbb\xbf"


class EventReader:
    """Reads one stream, however it is framed; see ``Reader``."""

    def __init__(self) -> None:
        self._chosen: Reader | None = None
        self._held = b""

    @property
    def error(self) -> DecodeError | None:
        """The damage that was found; nothing after it is read."""
        return None if self._chosen is None else self._chosen.error

    def feed(self, data: bytes, /) -> list[Frame]:
        """The frames that these bytes complete. Raises the ``DecodeError`` that an earlier call met."""
        if self._chosen is not None:
            return self._chosen.feed(data)
        data = (self._held + data).lstrip(_SPACE)  # blank lines before the first event say nothing
        begun = data.removeprefix(_BOM).lstrip(_SPACE)
        if not begun or _BOM.startswith(begun):
            self._held = data[: len(_BOM)]
            return []
        if begun[:1] not in b"[{":
            self._chosen = SSEReader()
            return self._chosen.feed(data)
        self._chosen = JSONArrayReader()
        return self._chosen.feed(begun if begun[:1] == b"[" else b"[" + begun)

    def finish(self) -> list[Frame]:
        """The frames that the end of input completes. Raises ``DecodeError``, one met earlier or its own."""
        return [] if self._chosen is None else self._chosen.finish()


# -- the shape that nearly every event has ---------------------------------------------------------


class _Piece(Struct, gc=False, forbid_unknown_fields=True):
    jsonPath: str  # noqa: N815 (the wire's name)
    stringValue: str  # noqa: N815 (the wire's name)
    willContinue: bool = False  # noqa: N815 (the wire's name)


class _More(Struct, gc=False, forbid_unknown_fields=True):
    partialArgs: tuple[_Piece]  # noqa: N815 (the wire's name)
    willContinue: bool  # noqa: N815 (the wire's name)


class _Part(Struct, gc=False, forbid_unknown_fields=True):
    text: str | UnsetType = UNSET
    thought: bool | UnsetType = UNSET
    functionCall: _More | UnsetType = UNSET  # noqa: N815 (the wire's name)


class _Content(Struct, gc=False, forbid_unknown_fields=True):
    parts: tuple[_Part]
    role: Literal["model"] | UnsetType = UNSET


class _Candidate(Struct, gc=False, forbid_unknown_fields=True):
    content: _Content
    index: int | UnsetType = UNSET


class Plain(Struct, gc=False, forbid_unknown_fields=True):
    """An event with one part and no other news."""

    candidates: tuple[_Candidate]
    usageMetadata: dict[str, int | str | list[Raw]] | UnsetType = UNSET  # noqa: N815 (the wire's name)
    modelVersion: str | UnsetType = UNSET  # noqa: N815 (the wire's name)
    responseId: str | UnsetType = UNSET  # noqa: N815 (the wire's name)
    createTime: str | UnsetType = UNSET  # noqa: N815 (the wire's name)

    def around(self) -> tuple[object, ...]:
        """What stands around the part; two events that agree in it say nothing else but the part, and usage."""
        candidate = self.candidates[0]
        return (self.modelVersion, self.responseId, self.createTime, candidate.index, candidate.content.role)


plain = msgspec.json.Decoder(Plain).decode
"""Read an event of that shape; raises what msgspec raises for any other."""
