"""Messages as stored bytes: canonical JSON, media as blobs, and the seals of entries.

Rules:

- A message is stored in the canonical form (version 1), without the id and the time that the thread stamped on it;
  these are columns. Equal messages have equal bytes and are stored once; the SHA-256 of the bytes is the address.
- Inline media of ``MIN_MEDIA`` characters or more become blobs: the decoded bytes where standard base64 gives the same
  text again, else the text. Loading restores them exactly.
- Messages are stored as JSON text, which SQL can read (docs/adr/0033-messages-are-stored-as-text.md). Blobs of
  ``MIN_COMPRESSED`` bytes or more are compressed with Zstandard where this saves a tenth.
- Each entry has a seal: the SHA-256 of the seal before it, its id, its stamps and the address of its message. The seal
  of a leaf covers its whole path.

Stability: experimental.
"""

from __future__ import annotations

import binascii
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from msgspec import UNSET, structs

from palaver.core import canonical, jsontext
from palaver.core.errors import DamageError, DecodeError, NotFoundError, StoreError, excerpt
from palaver.core.messages import Message
from palaver.core.parts import Blob, Inline, Media
from palaver.threads.ids import is_uuid
from palaver.threads.thread import Entry

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from palaver.core.parts import AnyPart

MIN_MEDIA: Final = 1024
MIN_COMPRESSED: Final = 1024
RAW: Final = 0
ZSTD: Final = 1
STAMPED_ID: Final = 1
STAMPED_TIME: Final = 2
MEDIA_EXTRACTED: Final = 4
_LEVEL: Final = 3
_BYTES: Final = "stored:sha256:"
_TEXT: Final = "stored-text:sha256:"
_OTHER: Final = "stored-other:"
_BLOB: Final = "sha256:"
_JSON_START: Final = b'{"role":"'
_INT64: Final = 1 << 63
_DIGEST: Final = 32


class StoredBytes(NamedTuple):
    """Bytes to store: their address, their encoding (``RAW``, ``ZSTD``), and their original size."""

    digest: bytes
    encoding: int
    data: bytes
    size: int


class Packed(NamedTuple):
    """A message to store, its extracted media, and the addresses of all blobs that it needs.

    ``marks`` belong to the stamps of its entry: ``MEDIA_EXTRACTED`` when media must be restored.
    """

    body: StoredBytes
    media: tuple[StoredBytes, ...]
    uses: tuple[bytes, ...]
    marks: int

    @property
    def external_blobs(self) -> tuple[bytes, ...]:
        """The addresses of the blobs that the message names and does not contain."""
        if not self.uses:
            return ()
        brought = {blob.digest for blob in self.media}
        return tuple(digest for digest in self.uses if digest not in brought)


def compress(data: bytes) -> StoredBytes:
    """Return bytes with their address, compressed when that is smaller enough."""
    digest = sha256(data).digest()
    if len(data) >= MIN_COMPRESSED:
        smaller = zstd.compress(data, _LEVEL)
        if len(smaller) < len(data) - len(data) // 10:
            return StoredBytes(digest, ZSTD, smaller, len(data))
    return StoredBytes(digest, RAW, data, len(data))


def decompress(digest: bytes, encoding: int, data: bytes, place: str = "") -> bytes:
    """Undo ``compress``. Raises ``DamageError``, naming the place, when the bytes differ from the original."""
    try:
        found = zstd.decompress(data) if encoding == ZSTD else data
    except (zstd.ZstdError, EOFError, ValueError, TypeError, MemoryError) as error:
        raise DamageError(f"{place}: cannot be read: {error}") from None
    if type(found) is not bytes or sha256(found).digest() != digest:
        raise DamageError(f"{place}: altered: its hash does not match")
    return found


def pack(message: Message) -> Packed:
    """Prepare a message, as it was given, for storage. Raises ``EncodeError`` for a value that JSON cannot express."""
    moved: dict[bytes, StoredBytes] = {}

    def take(data: bytes) -> bytes:
        blob = compress(data)
        moved[blob.digest] = blob
        return blob.digest

    lighter, uses = extract_media(message, take)
    marks = 0 if lighter is message else MEDIA_EXTRACTED
    data = canonical.encode(lighter)
    return Packed(StoredBytes(sha256(data).digest(), RAW, data, len(data)), tuple(moved.values()), uses, marks)


def extract_media(message: Message, take: Callable[[bytes], bytes | None]) -> tuple[Message, tuple[bytes, ...]]:
    """Extract inline media; return the message without them, and the addresses of all blobs that it needs.

    ``take`` gets the bytes of each and returns their address, or ``None`` to leave them inline. A message from which
    nothing was extracted is returned itself.
    """
    if not any(isinstance(part, Media) for part in message.content):
        return message, ()
    uses: dict[bytes, None] = {}
    content = tuple([_extract_part(part, take, uses) for part in message.content])
    if any(new is not old for new, old in zip(content, message.content, strict=True)):
        message = structs.replace(message, content=cast("Any", content))
    return message, tuple(uses)


def restore_media(message: Message, blob: Callable[[bytes], bytes]) -> Message:
    """Undo ``extract_media``. ``blob`` returns the bytes of an address; its errors pass through."""
    content = tuple([_restore_part(part, blob) for part in message.content])
    return structs.replace(message, content=cast("Any", content))


class BlobCache:
    """Returns the bytes of blobs during one read: messages with the same image share it in memory."""

    def __init__(self, fetch: Callable[[bytes], bytes]) -> None:
        """Cache ``fetch``, which returns the bytes of an address."""
        self._fetch = fetch
        self.sources: dict[str, Inline] = {}

    def __call__(self, digest: bytes) -> bytes:
        """Return the bytes of an address."""
        return self._fetch(digest)


def unpack(body: bytes, entry: str, stamps: int, sent_at: int | None, blob: Callable[[bytes], bytes]) -> Message:
    """Return the message, stamped. ``blob`` returns the bytes of an address.

    Raises ``DecodeError`` for bytes that are not a message, and what ``blob`` raises.
    """
    written = b""
    if stamps & STAMPED_ID:
        written = b',"id":' + jsontext.encode(entry)
    if stamps & STAMPED_TIME:
        written += b',"sent_at":%d' % (sent_at or 0)
    if written:
        place = body.find(b'"', len(_JSON_START)) + 1  # 0 without one: then it is not JSON
        body = b"".join((body[:place], written, body[place:]))
    message = canonical.decode(body)
    return restore_media(message, blob) if stamps & MEDIA_EXTRACTED else message


def stamps_for(message: Message) -> int:
    """Return the stamps that a message, as it was given, will get."""
    return (STAMPED_ID if message.id is None else 0) | (STAMPED_TIME if message.sent_at is None else 0)


def unstamped(entry: Entry) -> tuple[Message, int]:
    """Return the message of an entry without the id that it was stamped with, and its stamps.

    Which of the two were stamped is no longer known: an id equal to the entry's counts as stamped, and so does its
    time. An id that is not a UUID was made elsewhere, and stays in the message, as JSON may have to escape it.
    """
    message = entry.message
    if message.id != entry.id or not is_uuid(entry.id):
        return message, 0
    stamps = STAMPED_ID | (0 if int64_or_none(message.sent_at) is None else STAMPED_TIME)
    return structs.replace(message, id=None, sent_at=None if stamps & STAMPED_TIME else message.sent_at), stamps


def int64_or_none(sent_at: int | None) -> int | None:
    """Return a time as a database can store it; a time out of range is kept in the message only."""
    return sent_at if sent_at is not None and -_INT64 <= sent_at < _INT64 else None


def seal(before: bytes, entry: str, stamps: int, sent_at: int | None, digest: bytes) -> bytes:
    """Return the seal of an entry and all before it. The first one follows ``first_seal(thread)``."""
    time = b"-" if sent_at is None else b"%d" % sent_at
    name = entry.encode("utf-8", "surrogatepass")
    return sha256(b"%b%b %d %b %b" % (before, name, stamps, time, digest)).digest()


def is_sealed(  # noqa: PLR0917 (one argument a column)
    found: bytes, before: bytes, entry: str, stamps: int, sent_at: float | None, digest: bytes
) -> bool:
    """Return whether a seal matches an entry. A time that is not an integer counts as truncated, as in old versions."""
    if type(sent_at) is float and not isfinite(sent_at):
        return False
    return seal(before, entry, stamps, None if sent_at is None else int(sent_at), digest) == found


def checked_data(data: object) -> bytes:
    """Return the bytes given to ``put_blob``. Raises ``StoreError`` for another type, such as a number."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise StoreError(f"put_blob: data: expected bytes, got {type(data).__name__}")
    return bytes(cast("bytes", data))


def first_seal(thread: str) -> bytes:
    """Return the seal that precedes the first entry of a thread."""
    return sha256(b"palaver thread " + thread.encode()).digest()


def digest_of(blob: object) -> bytes:
    """Return the digest in a blob's name, ``sha256:`` and 64 hex digits. Raises ``NotFoundError`` for any other name.

    A value that is not a name, such as a number, raises ``StoreError``.
    """
    if not isinstance(blob, Blob | str):
        raise StoreError(f"get_blob: blob: expected a Blob or a text, got {type(blob).__name__}")
    name = blob.hash if isinstance(blob, Blob) else blob
    try:
        digest = bytes.fromhex(name.removeprefix(_BLOB)) if name.startswith(_BLOB) else b""
    except ValueError:
        digest = b""
    if len(digest) != _DIGEST:
        raise NotFoundError(f"there is no blob {excerpt(name)!r}")
    return digest


def blob_digests(message: Message) -> Iterator[bytes]:
    """Yield the digests of the blobs that a message names; other names are skipped."""
    for part in message.content:
        if isinstance(part, Media) and isinstance(part.source, Blob):
            with suppress(NotFoundError):
                yield digest_of(part.source)


def blob_hashes(entries: Iterable[Entry]) -> set[str]:
    """Return the hashes of all blobs that the messages of entries name."""
    return {blob_for(digest).hash for entry in entries for digest in blob_digests(entry.message)}


def missing_blob(digest: bytes) -> NotFoundError:
    """Return the error for a message that names a blob which the store lacks or ``gc`` has removed."""
    return NotFoundError(f"a message names the blob sha256:{digest.hex()}, which is missing; store it with put_blob")


def blob_for(digest: bytes) -> Blob:
    """Return the blob of an address."""
    return Blob(_BLOB + digest.hex())


# -- media ---------------------------------------------------------------------------------------------------------


def _extract_part(part: AnyPart, take: Callable[[bytes], bytes | None], uses: dict[bytes, None]) -> AnyPart:
    """Extract inline media from a part, and note the blobs that it needs."""
    if not isinstance(part, Media):
        return part
    match part.source:
        case Blob() as source if source.hash.startswith("stored"):
            return structs.replace(part, source=structs.replace(source, hash=_OTHER + source.hash))
        case Blob() as source:
            with suppress(NotFoundError):
                uses[digest_of(source)] = None
            return part
        case Inline() as source if len(source.data) >= MIN_MEDIA and source.extra is UNSET:
            data, prefix = _canonical_base64(source.data), _BYTES
            if data is None:
                data, prefix = source.data.encode("utf-8", "surrogatepass"), _TEXT
            digest = take(data)
            if digest is None:
                return part
            uses[digest] = None
            return structs.replace(part, source=Blob(prefix + digest.hex()))
        case _:
            return part


def _restore_part(part: AnyPart, blob: Callable[[bytes], bytes]) -> AnyPart:
    if not isinstance(part, Media) or not isinstance(part.source, Blob):
        return part
    name = part.source.hash
    if name.startswith(_OTHER):
        return structs.replace(part, source=structs.replace(part.source, hash=name.removeprefix(_OTHER)))
    if not name.startswith((_BYTES, _TEXT)):
        return part
    known = blob.sources if isinstance(blob, BlobCache) else {}
    source = known.get(name)
    if source is None:
        source = known[name] = Inline(_media_text(name, blob))
    return structs.replace(part, source=source)


def _media_text(name: str, blob: Callable[[bytes], bytes]) -> str:
    """Return the base64 text that was extracted from a message under a name."""
    if name.startswith(_BYTES):
        return binascii.b2a_base64(blob(_digest_in(name, _BYTES)), newline=False).decode()
    try:
        return blob(_digest_in(name, _TEXT)).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise DecodeError(f"the text of {excerpt(name)}: {error}") from None


def _digest_in(name: str, prefix: str) -> bytes:
    try:
        return bytes.fromhex(name.removeprefix(prefix))
    except ValueError:
        raise DecodeError(f"there is no blob {excerpt(name)!r}") from None


def _canonical_base64(text: str) -> bytes | None:
    """Return the bytes of base64 text, if writing them gives the same text."""
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:  # binascii.Error is one; so is text that is not ASCII
        return None
    return data if binascii.b2a_base64(data, newline=False).decode() == text else None
