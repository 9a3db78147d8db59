"""Token estimates of images, documents, audio and video.

Rules:

- An image counts by its size in pixels, read from the first bytes of a PNG, GIF, JPEG or WebP; no more base64 than that
  is decoded. A document counts by its pages, else by its bytes; a text file as text; audio and video by their bytes.
  Media that are not inline (a URL, a file id, a blob) have a constant of their kind.
- Rates are data (``MediaRates``), and a model may have its own. One formula covers the three ways of providers:
  ``base + piece * pieces``, where an image is cut into squares of ``side`` pixels.

  - by area, one token for about 750 pixels: squares of 28 pixels, after the long edge is reduced to 1,568; at most
    1,600 tokens;
  - by patches of 32 pixels, with a factor for each model;
  - by tiles: of 512 pixels, 170 tokens each and 85 for the image, after the short edge is reduced to 768; or of 768
    pixels, 258 each. ``piece`` is 0 where every image costs the same.

- Invalid bytes raise nothing: an impossible size counts as unknown.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from math import ceil
from typing import Any, Final, TypeAlias

from msgspec import Struct

from palaver.core.errors import MessageError
from palaver.core.parts import Audio, File, Image, Inline, Media, Video


class MediaRates(Struct, frozen=True, kw_only=True):
    """What media cost on a model, in tokens. The defaults lie between those of the large providers.

    ``side``: the edge of a square piece, in pixels; ``piece``: tokens a piece; ``base``: tokens an image besides;
    ``max_long_edge`` and ``max_short_edge``: the edges, in pixels, to which a larger image is reduced first;
    ``max_tokens``: the most tokens of an image; ``image``: tokens of one whose size is not known. ``page``: tokens a
    page of a document; ``page_bytes``: bytes of a page, where pages cannot be counted; ``document``: tokens of one that
    is not inline. ``audio_bytes``, ``video_bytes``: bytes a token; ``audio``, ``video``: tokens of one that is not
    inline.
    """

    side: int = 28
    piece: float = 1.0
    base: int = 0
    max_long_edge: int | None = 1568
    max_short_edge: int | None = None
    max_tokens: int = 1600
    image: int = 1000
    page: int = 1500
    page_bytes: int = 30_000
    document: int = 3000
    audio_bytes: int = 400
    audio: int = 1000
    video_bytes: int = 1000
    video: int = 3000

    def __post_init__(self) -> None:
        """Refuse what cannot be a rate. Raises ``MessageError``."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            least = 1 if name in _DIVISORS else 0
            if value is not None and not value >= least:
                raise MessageError(f"{name}: {value} is not a rate; it must be at least {least}")


_DIVISORS: Final = frozenset(("side", "page_bytes", "audio_bytes", "video_bytes", "max_long_edge", "max_short_edge"))
_DEFAULT_RATES: Final = MediaRates()
_HEAD: Final = 64
"""The first bytes, which hold the size in every format but JPEG."""
_JPEG_HEAD: Final = 1 << 16
_JPEG_MAX: Final = 1 << 20
"""The bytes of a JPEG that are searched: a large colour profile may stand before the size."""
_MAX_COUNTED: Final = 1 << 20
"""Pages are counted in documents up to this many bytes; larger ones count by their bytes."""
_PAGE: Final = re.compile(rb"/Type\s*/Page(?![A-Za-z])")


def media_tokens(part: Any, rates: MediaRates | None = None) -> int:
    """Tokens of an image, recording, film or document; at least 1."""
    weigh = _TABLE.get(part.__class__)
    return 1 if weigh is None else max(1, weigh(part, _DEFAULT_RATES if rates is None else rates))


def guessed_tokens(parts: Iterable[Any], rates: MediaRates | None = None) -> int:
    """Return what ``media_tokens`` counts for the media among ``parts`` of unknown size: those that are not inline."""
    return sum(
        media_tokens(part, rates) for part in parts if part.__class__ in _TABLE and not isinstance(part.source, Inline)
    )


# -- images ------------------------------------------------------------------------------------------------------------


def image_tokens(width: int, height: int, rates: MediaRates = _DEFAULT_RATES) -> int:
    """Return the tokens of an image of ``width`` times ``height`` pixels.

    ``rates`` are those of the model; the defaults lie between those of the large providers.
    """
    shrunk = min(
        1.0,
        1.0 if rates.max_long_edge is None else rates.max_long_edge / max(width, height, 1),
        1.0 if rates.max_short_edge is None else rates.max_short_edge / max(min(width, height), 1),
    )
    pieces = ceil(width * shrunk / rates.side) * ceil(height * shrunk / rates.side)
    return min(rates.max_tokens, rates.base + ceil(pieces * rates.piece))


def pixels(source: Inline) -> tuple[int, int] | None:
    """Width and height of an inline PNG, GIF, JPEG or WebP; ``None`` when its bytes do not tell."""
    head = _first(source, _HEAD)
    found = _size(head)
    if found is None and head[:2] == b"\xff\xd8":
        found = _jpeg(_first(source, _JPEG_HEAD)) or _jpeg(_first(source, _JPEG_MAX))
    return found if found is not None and found[0] > 0 and found[1] > 0 else None


def _first(source: Inline, size: int) -> bytes:
    """The first bytes, or about as many; empty for what is not base64."""
    try:
        return Inline(source.data[: size // 3 * 4 + 4]).bytes
    except MessageError:
        return b""


def _size(head: bytes) -> tuple[int, int] | None:
    if head[:8] == b"\x89PNG\r\n\x1a\n" and len(head) >= 24:  # noqa: PLR2004 (IHDR is the first chunk)
        return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
    if head[:6] in {b"GIF87a", b"GIF89a"}:
        return int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP" and len(head) >= 30:  # noqa: PLR2004
        return _webp(head)
    return None


def _webp(head: bytes) -> tuple[int, int] | None:
    """RFC 9649: a lossy frame (``VP8 ``), a lossless one (``VP8L``), or a canvas (``VP8X``)."""
    match head[12:16]:
        case b"VP8X":
            return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
        case b"VP8L":
            bits = int.from_bytes(head[21:25], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            return int.from_bytes(head[26:28], "little") & 0x3FFF, int.from_bytes(head[28:30], "little") & 0x3FFF
        case _:
            return None


def _jpeg(data: bytes) -> tuple[int, int] | None:
    """Walk the segments to the frame header (ITU T.81, B.2.2)."""
    place = 2
    while place + 9 <= len(data) and data[place] == 0xFF:  # noqa: PLR2004
        marker = data[place + 1]
        if marker == 0xFF:  # noqa: PLR2004 (a fill byte)
            place += 1
        elif marker in _FRAMES:
            return int.from_bytes(data[place + 7 : place + 9], "big"), int.from_bytes(
                data[place + 5 : place + 7], "big"
            )
        elif marker in _BARE:
            place += 2
        else:
            place += 2 + int.from_bytes(data[place + 2 : place + 4], "big")
    return None


_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_BARE: Final = frozenset((0x01, *range(0xD0, 0xD9)))


# -- kinds -------------------------------------------------------------------------------------------------------------


def _image(part: Image, rates: MediaRates) -> int:
    size = pixels(part.source) if isinstance(part.source, Inline) else None
    return rates.image if size is None else image_tokens(*size, rates)


def _audio(part: Audio, rates: MediaRates) -> int:
    return part.source.size // rates.audio_bytes if isinstance(part.source, Inline) else rates.audio


def _video(part: Video, rates: MediaRates) -> int:
    return part.source.size // rates.video_bytes if isinstance(part.source, Inline) else rates.video


def _file(part: File, rates: MediaRates) -> int:
    if not isinstance(part.source, Inline):
        return rates.document
    size = part.source.size
    kind = part.media_type or ""
    if kind.startswith("text/") or kind in _TEXTS:
        return size * 2 // 7
    for beginning, weigh in _BY_TYPE:
        if kind.startswith(beginning):
            return weigh(part, rates)
    return rates.page * (_pages(part.source, size) or max(1, size // rates.page_bytes))


def _pages(source: Inline, size: int) -> int:
    if size > _MAX_COUNTED:
        return 0
    data = _first(source, size)
    return len(_PAGE.findall(data)) if data[:4] == b"%PDF" else 0


_Weigh: TypeAlias = Callable[[Any, MediaRates], int]
_TEXTS: Final = frozenset(("application/json", "application/xml", "application/yaml", "application/x-yaml"))
_TABLE: Final[dict[type[Media], _Weigh]] = {Image: _image, Audio: _audio, Video: _video, File: _file}
_BY_TYPE: Final[tuple[tuple[str, _Weigh], ...]] = (("image/", _image), ("audio/", _audio), ("video/", _video))
