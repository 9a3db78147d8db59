"""The file of one thread: writing and checking its lines. ``archive`` moves threads between such files and stores.

The form, version 1, is JSON Lines, UTF-8; ``docs/reference/thread-file.md`` describes it for other programs:

- The first line is the header: ``{"palaver_thread":1,"id":…,"title":…,"tags":…,"metadata":…,"created_at":…,
  "branches":{…}}``.
- ``{"id":…,"parent":…,"message":…}`` is an entry; its parent stands before it.
- ``{"blob":"sha256:…","data":…}`` is a blob in base64; it stands before the first entry that needs it, once.
- ``{"so_far":{"entries":…,"sha256":…}}`` follows every 32nd entry, with the hash of all bytes before it; so damage is
  found within 32 entries.
- The last line has the totals and the hash of the whole: ``{"end":{"entries":…,"blobs":…,"sha256":…}}``.

Rules:

- A line without a line break is incomplete, and so is a file without its last line.
- Additions of a newer version within version 1 (keys, kinds of lines) are noted once for each name, and are no errors.
  Any other change has a new number, and a reader refuses a number that it does not know.
- One line is held in memory, and for each entry its id and parent.

Stability: experimental.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from typing import Any, BinaryIO, ClassVar, Final, NoReturn

import msgspec
from msgspec import Struct

from palaver.core import canonical, jsontext
from palaver.core.errors import DamageError, DecodeError, NotFoundError, excerpt
from palaver.core.messages import Message
from palaver.store import message_codec
from palaver.store.store import Damage, DamageKind, Progress
from palaver.threads.thread import Entry

VERSION: Final = 1
CHECKED_EVERY: Final = 32
_MAGIC: Final = b'{"palaver_thread":'
_SOURCE: Final = "thread file"
_PROGRESS_EVERY: Final = 64


class Header(Struct, frozen=True, kw_only=True):
    """The first line, without its number. ``created_at`` is for people: no store reads it."""

    id: str
    title: str | None = None
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = {}
    created_at: int | None = None
    branches: dict[str, str | None] = {}


class Writer:
    """Writes the lines of a file. ``write`` takes bytes, like that of a binary file."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        """Start an empty file."""
        self._write = write
        self._hash = sha256()
        self.entries = 0
        self.blobs: set[bytes] = set()

    def header(self, header: Header, unknown: Mapping[str, Any]) -> None:
        """Write the first line, with the unknown keys of a newer version."""
        self._line({"palaver_thread": VERSION, **msgspec.structs.asdict(header), **unknown})

    def blob(self, digest: bytes, data: bytes) -> None:
        """Write a blob that is not in the file yet."""
        self.blobs.add(digest)
        self._line(
            {"blob": message_codec.blob_for(digest).hash, "data": binascii.b2a_base64(data, newline=False).decode()}
        )

    def entry(self, id: str, parent: str | None, message: Message) -> None:
        """Write an entry."""
        place = jsontext.encode({"id": id, "parent": parent})
        self._put(b'%b,"message":%b}\n' % (place[:-1], canonical.encode(message)))
        self.entries += 1
        if self.entries % CHECKED_EVERY == 0:
            self._line({"so_far": {"entries": self.entries, "sha256": self._hash.hexdigest()}})

    def end(self) -> None:
        """Write the last line."""
        counts = {"entries": self.entries, "blobs": len(self.blobs)}
        self._line({"end": {**counts, "sha256": self._hash.hexdigest()}})

    def _line(self, value: dict[str, Any]) -> None:
        self._put(jsontext.encode(value) + b"\n")

    def _put(self, line: bytes) -> None:
        self._hash.update(line)
        self._write(line)


class _FlawError(Exception):
    """The current line is invalid. ``back``: perhaps also the lines since the last check."""

    def __init__(self, kind: DamageKind, reason: str, *, back: bool = False) -> None:
        super().__init__(reason)
        self.kind: DamageKind = kind
        self.reason = reason
        self.back = back


class Scan:
    """A file that was read once, from its current position, and checked; its entries can then be read again.

    ``parents`` gives the parent of each sound entry, in the order of the file; ``needs`` the place of the first entry
    that refers to a blob; ``heads`` the branches whose heads are in the file, ``lost`` those whose heads are not.
    """

    def __init__(self, file: BinaryIO, *, partial: bool = False, progress: Progress | None = None) -> None:
        """Read and check a seekable file.

        Raises ``DecodeError`` for a file that is not a thread file, or of a newer version, and ``DamageError``, naming
        line and byte, for one that is cut off or altered; with ``partial``, and a header, ``damage`` has it instead.
        """
        self.header: Header | None = None
        self.unknown: dict[str, Any] = {}
        self.parents: dict[str, str | None] = {}
        self.blobs: dict[bytes, int] = {}
        self.damage: list[Damage] = []
        self._needs: dict[bytes, tuple[int, str]] = {}
        self._warned: set[str] = set()
        self._file = file
        self._base = file.tell()
        self._hash = sha256()
        self._number = 1
        self._offset = 0
        self._sound = (0, 0)  # entries, bytes: covered by the last check
        self._ended = False
        self._check(progress, partial=partial)

    @property
    def size(self) -> int:
        """The bytes that were read."""
        return self._offset

    @property
    def heads(self) -> dict[str, str | None]:
        """The branches whose heads are in the file."""
        return {name: head for name, head in self._branches().items() if head is None or head in self.parents}

    @property
    def lost(self) -> dict[str, str | None]:
        """The branches whose heads are missing."""
        return {name: head for name, head in self._branches().items() if head is not None and head not in self.parents}

    @property
    def needs(self) -> dict[bytes, str]:
        """The blobs that sound entries refer to, and the place of the first entry that does."""
        return {digest: place for digest, (at, place) in self._needs.items() if at < len(self.parents)}

    def _branches(self) -> dict[str, str | None]:
        return {} if self.header is None else self.header.branches

    # -- checking --------------------------------------------------------------------------------------------------

    @property
    def _place(self) -> str:
        return f"line {self._number}, byte {self._offset}"

    def _add_damage(self, kind: DamageKind, reason: str) -> None:
        self.damage.append(Damage(kind, self._place, reason, thread=None if self.header is None else self.header.id))

    def _check(self, progress: Progress | None, *, partial: bool) -> None:
        try:
            self._read(progress)
        except _FlawError as flaw:
            if not partial or self.header is None:
                raise DamageError(f"{self._place}: {flaw.kind}: {flaw.reason}") from None
            self._add_damage(flaw.kind, flaw.reason)
            while flaw.back and len(self.parents) > self._sound[0]:
                self.parents.popitem()

    def _read(self, progress: Progress | None) -> None:
        while line := self._file.readline():
            self._scan_line(line)
            self._hash.update(line)
            self._offset += len(line)
            self._number += 1
            if progress is not None and self._number % _PROGRESS_EVERY == 0:
                progress(self._offset, None)
        if not self._ended:
            raise _FlawError("torn", "the end of the file is missing")

    def _scan_line(self, line: bytes) -> None:
        if self._ended:
            raise _FlawError("altered", "there is data after the end")
        if self._number == 1 and not line.startswith(_MAGIC) and not _MAGIC.startswith(line):
            raise DecodeError(f"a thread file begins with {_MAGIC.decode()}", path="line 1", source=_SOURCE)
        if not line.endswith(b"\n"):
            raise _FlawError("torn", "the line is incomplete")
        if self._number == 1:
            self._scan_header(line)
            return
        kind = ""
        try:
            table = jsontext.fields(line)
            kind = next((each for each in self._KINDS if each in table), "")
            if not kind:
                self._warn_once(f"a line of an unknown kind: {excerpt(next(iter(table), ''))!r}")
                return
            take, keys = self._KINDS[kind]
            for key in table.keys() - keys:
                self._warn_once(f"an unknown key beside {kind!r}: {excerpt(key)!r}")
            take(self, table)
        except (DecodeError, KeyError, ValueError, NotFoundError) as error:
            raise _FlawError("altered", f"this cannot be read{kind and f' ({kind})'}: {excerpt(str(error))}") from None

    def _warn_once(self, reason: str) -> None:
        if reason not in self._warned:
            self._warned.add(reason)
            self._add_damage("unreadable", reason)

    def _scan_header(self, line: bytes) -> None:
        try:
            values = {key: jsontext.value(each) for key, each in jsontext.fields(line).items()}
            version = values.pop("palaver_thread")
            known = {key: each for key, each in values.items() if key in Header.__struct_fields__}
            header = msgspec.convert(known, Header) if version == VERSION else None
        except (DecodeError, msgspec.ValidationError) as error:
            raise _FlawError("altered", f"the header cannot be read: {excerpt(str(error))}") from None
        if type(version) is int and version > VERSION:
            reason = f"thread file version {version}; this version of Palaver reads version {VERSION}"
            raise DecodeError(reason, path="palaver_thread", source=_SOURCE)
        if header is None or type(version) is not int:
            raise _FlawError("altered", "the version number cannot be read")
        self.header = header
        self.unknown = {key: each for key, each in values.items() if key not in known}

    def _scan_blob(self, table: jsontext.Fields) -> None:
        digest, data = _decode_blob(table)
        if sha256(data).digest() != digest:
            raise _FlawError("altered", "the hash of the blob does not match")
        self.blobs.setdefault(digest, self._offset)

    def _scan_entry(self, table: jsontext.Fields) -> None:
        entry = _decode_entry(table, self._declared_blob)
        if entry.id in self.parents:
            raise _FlawError("altered", f"entry {excerpt(entry.id)} occurs twice")
        if entry.parent is not None and entry.parent not in self.parents:
            raise _FlawError(
                "missing", f"entry {excerpt(entry.id)} follows {excerpt(entry.parent)}, which is not there"
            )
        _, uses = message_codec.extract_media(entry.message, _keep_inline)
        for digest in uses:
            self._needs.setdefault(digest, (len(self.parents), self._place))
        self.parents[entry.id] = entry.parent

    def _declared_blob(self, digest: bytes) -> bytes:
        if digest not in self.blobs:
            raise _FlawError("missing", f"blob sha256:{digest.hex()} does not come before the entry that needs it")
        return b""

    def _scan_checkpoint(self, table: jsontext.Fields) -> None:
        self._compare(jsontext.fields(table["so_far"]), {"entries": len(self.parents)})
        self._sound = (len(self.parents), self._offset)

    def _scan_end(self, table: jsontext.Fields) -> None:
        self._compare(jsontext.fields(table["end"]), {"entries": len(self.parents), "blobs": len(self.blobs)})
        if self.lost:
            name, head = next(iter(self.lost.items()))
            raise _FlawError("missing", f"the head of branch {excerpt(name)!r}, {head!r}, is not there")
        self._ended = True

    def _compare(self, said: jsontext.Fields, found: dict[str, Any]) -> None:
        found["sha256"] = self._hash.hexdigest()
        if {key: jsontext.value(each) for key, each in said.items() if key in found} != found:
            entries, size = self._sound
            reason = f"the data from byte {size} (entry {entries + 1}) on was changed after writing"
            raise _FlawError("altered", reason, back=True)

    _KINDS: ClassVar[dict[str, tuple[Callable[[Scan, jsontext.Fields], None], set[str]]]] = {
        "message": (_scan_entry, {"id", "parent", "message"}),
        "blob": (_scan_blob, {"blob", "data"}),
        "so_far": (_scan_checkpoint, {"so_far"}),
        "end": (_scan_end, {"end"}),
    }

    # -- reading again ---------------------------------------------------------------------------------------------

    def entries(self, progress: Progress | None = None) -> Iterator[Entry]:
        """Yield the sound entries. Raises ``DamageError`` when the file has changed since it was checked."""
        self._file.seek(self._base)
        self._number, self._offset = 1, 0
        left = iter(self.parents.items())
        following = next(left, None)
        while following is not None:
            line = self._file.readline()
            try:
                table = jsontext.fields(line)
                if "message" in table and self._number > 1:
                    entry = _decode_entry(table, self.blob)
                    if (entry.id, entry.parent) != following:
                        self._raise_changed()
                    yield entry
                    following = next(left, None)
            except (DecodeError, KeyError, ValueError):
                self._raise_changed()
            self._offset += len(line)
            self._number += 1
            if progress is not None and self._number % _PROGRESS_EVERY == 0:
                progress(self._offset, None)

    def blob(self, digest: bytes) -> bytes:
        """Return the bytes of a blob of the file."""
        place = self._file.tell()
        self._file.seek(self._base + self.blobs[digest])
        found, data = _decode_blob(jsontext.fields(self._file.readline()))
        self._file.seek(place)
        if found != digest or sha256(data).digest() != digest:
            self._raise_changed()
        return data

    def _raise_changed(self) -> NoReturn:
        raise DamageError(f"{self._place}: altered: the file was changed while it was read") from None


def _decode_entry(table: jsontext.Fields, blob: Callable[[bytes], bytes]) -> Entry:
    parent = table["parent"]
    message = message_codec.restore_media(canonical.decode(bytes(table["message"])), blob)
    return Entry(jsontext.text(table["id"]), None if jsontext.is_null(parent) else jsontext.text(parent), message)


def _decode_blob(table: jsontext.Fields) -> tuple[bytes, bytes]:
    data = binascii.a2b_base64(jsontext.text(table["data"]), strict_mode=True)
    return message_codec.digest_of(jsontext.text(table["blob"])), data


def _keep_inline(_data: bytes) -> None:
    """Return ``None``, so that media stay in their message."""
