"""Media types: from the first bytes, from a name, from a data URI. An unknown type stays unknown (F47).

The magic numbers are those of the formats that providers take (docs/spec/wires.md#4.1, #5.1, #6.1); the names
are those of IANA. RFC 2397 gives the form of a data URI.

Stability: experimental.
"""

from __future__ import annotations

import binascii
from typing import Final

from palaver.core.errors import MessageError, excerpt

_MAGIC: Final[tuple[tuple[int, bytes, str], ...]] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (0, b"BM", "image/bmp"),
    (0, b"II*\x00", "image/tiff"),
    (0, b"MM\x00*", "image/tiff"),
    (4, b"ftypheic", "image/heic"),
    (4, b"ftypheif", "image/heif"),
    (4, b"ftypmif1", "image/heif"),
    (4, b"ftypavif", "image/avif"),
    (4, b"ftypqt", "video/quicktime"),
    (4, b"ftypM4A", "audio/mp4"),
    (4, b"ftyp3g", "video/3gpp"),
    (4, b"ftyp", "video/mp4"),
    (0, b"\x1a\x45\xdf\xa3", "video/webm"),
    (0, b"FLV\x01", "video/x-flv"),
    (8, b"AVI ", "video/x-msvideo"),
    (8, b"WAVE", "audio/wav"),
    (8, b"AIFF", "audio/aiff"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"\xff\xfb", "audio/mpeg"),
    (0, b"\xff\xf3", "audio/mpeg"),
    (0, b"\xff\xf2", "audio/mpeg"),
    (0, b"\xff\xf1", "audio/aac"),
    (0, b"\xff\xf9", "audio/aac"),
    (0, b"fLaC", "audio/flac"),
    (0, b"OggS", "audio/ogg"),
    (0, b"%PDF-", "application/pdf"),
)
"""Offset, bytes, type; the first row that fits wins, so longer brands stand before shorter ones."""

_RIFF: Final = frozenset({"image/webp", "video/x-msvideo", "audio/wav"})

_ENDINGS: Final = {
    "aac": "audio/aac",
    "aiff": "audio/aiff",
    "avi": "video/x-msvideo",
    "avif": "image/avif",
    "bmp": "image/bmp",
    "css": "text/css",
    "csv": "text/csv",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "flac": "audio/flac",
    "flv": "video/x-flv",
    "gif": "image/gif",
    "heic": "image/heic",
    "heif": "image/heif",
    "htm": "text/html",
    "html": "text/html",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "json": "application/json",
    "m4a": "audio/mp4",
    "md": "text/markdown",
    "mkv": "video/x-matroska",
    "mov": "video/quicktime",
    "mp3": "audio/mpeg",
    "mp4": "video/mp4",
    "mpeg": "video/mpeg",
    "mpg": "video/mpeg",
    "oga": "audio/ogg",
    "ogg": "audio/ogg",
    "pdf": "application/pdf",
    "png": "image/png",
    "ppt": "application/vnd.ms-powerpoint",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "py": "text/x-python",
    "rtf": "text/rtf",
    "tif": "image/tiff",
    "tiff": "image/tiff",
    "txt": "text/plain",
    "wav": "audio/wav",
    "webm": "video/webm",
    "webp": "image/webp",
    "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "xml": "text/xml",
}


def of_bytes(data: bytes) -> str | None:
    """Detect the media type by the first bytes; ``None`` when they are unknown."""
    for offset, magic, media_type in _MAGIC:
        if data.startswith(magic, offset) and (media_type not in _RIFF or data.startswith(b"RIFF")):
            return media_type
    return None


def of_name(name: str) -> str | None:
    """Detect the media type by the ending of a file name or of a URL's path.

    ``None`` when unknown.
    """
    path = name.partition("?")[0].partition("#")[0]
    _, dot, ending = path.rpartition("/")[2].rpartition(".")
    return _ENDINGS.get(ending.lower()) if dot else None


def split_data_uri(uri: str) -> tuple[str | None, str]:
    """Take a data URI apart into its media type and its base64 text. Raises ``MessageError``."""
    head, comma, data = uri.partition(",")
    if head[:5].lower() != "data:" or not comma:
        msg = f"not a data URI: {excerpt(uri, 40)}"
        raise MessageError(msg)
    media_type, *parameters = head[5:].split(";")
    if not any(parameter.strip().lower() == "base64" for parameter in parameters):
        data = binascii.b2a_base64(_unquoted(data), newline=False).decode()
    return media_type or None, data


def _unquoted(data: str) -> bytes:
    """Undo percent encoding (RFC 3986, 2.1).

    ``urllib.parse`` does the same and costs 3 ms to import.
    """
    first, *rest = data.encode().split(b"%")
    out = [first]
    for piece in rest:
        try:
            out.append(bytes.fromhex(piece[:2].decode()) + piece[2:])
        except ValueError:
            out.append(b"%" + piece)
    return b"".join(out)
