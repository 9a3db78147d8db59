"""The attachments of a prompt: ``-a FILE`` and ``-a URL``.

- A file is sent with its bytes, a document also with its name. An empty file is an error, and one of unknown content;
  UTF-8 text of an unknown ending is plain text.
- A URL is sent as it is: the provider fetches it, and a wire that has no place for a URL says so in its receipt.
- A part is of the kind of its media type: an image, a recording, a video, or else a document. The type of a URL is that
  of its ending. Where that says nothing, the server is asked (``HEAD``); nothing else is fetched.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from palaver.cli.ranges import utf8
from palaver.cli.terminal import bad_input
from palaver.core import media_types
from palaver.core.errors import MessageError
from palaver.core.parts import Audio, File, Image, Inline, UserPart, Video
from palaver.models.http import checked_url
from palaver.models.redaction import shown_url

_KINDS: Final[Mapping[str, type[Image | Audio | Video]]] = {"image": Image, "audio": Audio, "video": Video}
_SCHEMES: Final = ("http://", "https://")
_UNTOLD: Final = frozenset(("", "application/octet-stream", "binary/octet-stream"))
"""Content types that say nothing."""
_SECONDS: Final = 10.0


def attachments(named: Sequence[str]) -> list[UserPart]:
    """Return a part for each file and each URL. Raises ``OSError`` and ``click.ClickException``."""
    return [_of_url(each) if each.lower().startswith(_SCHEMES) else _of_file(each) for each in named]


def _of_file(path: str) -> UserPart:
    part = File.from_path(path)
    data = part.source.bytes if isinstance(part.source, Inline) else b""
    if not data:
        bad_input(path, "the file is empty")
    if part.media_type is None and not _is_text(data):
        known = "neither its first bytes nor its name say so"
        bad_input(path, f"what is in it is not known ({known}); use a name that ends in .png, .pdf, …")
    part = part if part.media_type else part.replace(media_type="text/plain")
    kind = _kind(part.media_type)
    return part if kind is File else kind.from_bytes(data, part.media_type)


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False


def _of_url(url: str) -> UserPart:
    utf8(url)
    media_type, reason = media_types.of_name(url), ""
    if media_type is None:
        media_type, reason = _told_type(url)
    if reason:
        bad_input(
            shown_url(url), f"what is there is not known ({reason}); use a URL that ends in .png, .pdf, …, or a file"
        )
    return _kind(media_type).from_url(url, media_type)


def _kind(media_type: str | None) -> type[Image | Audio | Video | File]:
    return _KINDS.get((media_type or "").partition("/")[0], File)


def _told_type(url: str) -> tuple[str, str]:
    """Ask the server of a URL for its media type. Return it, and else the reason why it is not known."""
    import httpx  # costs 50 ms, and is needed here only

    try:
        answer = httpx.head(checked_url(url), follow_redirects=True, timeout=_SECONDS)
    except (httpx.HTTPError, httpx.InvalidURL, MessageError) as error:
        return "", str(error) or type(error).__name__
    except (ValueError, ImportError) as error:  # the settings of a proxy: their texts may quote its password
        return "", f"{type(error).__name__}; look at HTTPS_PROXY, ALL_PROXY"
    if not answer.is_success:
        return "", f"HEAD: {answer.status_code}"
    media_type = str(answer.headers.get("content-type", "")).partition(";")[0].strip().lower()
    return media_type, f"its type is {media_type or 'not told'}" if media_type in _UNTOLD else ""
