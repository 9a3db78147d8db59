"""Export and import of a thread as one file, and copies from store to store.

Rules:

- The file is readable text (``thread_file`` describes it). A name that ends in ``.zst`` is compressed with Zstandard; a
  reader looks at the first bytes, not at the name.
- Inline media of 1,024 characters or more that several messages share are written once, as blobs, and restored byte for
  byte. Blobs that messages refer to are included when the store has them.
- An export reads the store twice, a few entries at a time. An import checks the whole file, and then reads it again; a
  compressed or unseekable file goes to a temporary file first. Memory grows with the longest line and the ids.
- An import adds everything or nothing, and skips known entries, so it can be repeated.
- An import into an existing thread keeps title, tags and metadata. A branch only fast-forwards; a branch that has
  diverged stays as it is, and is listed in ``diverged``.
- Header keys of newer versions are stored in the thread's metadata under ``thread_file``, and exported again.

Stability: experimental.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from hashlib import sha256
from tempfile import TemporaryFile
from typing import Any, BinaryIO, Final, cast

from msgspec import Struct

from palaver.core.errors import ConflictError, DamageError, NotFoundError, StoreError
from palaver.core.messages import Message
from palaver.store import message_codec
from palaver.store.records import is_unreadable
from palaver.store.store import Damage, Progress, Store, ThreadInfo
from palaver.store.thread_file import Header, Scan, Writer
from palaver.threads.thread import RECORD, Entry
from palaver.transcripts.file_reader import check_unpacked

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

UNKNOWN_KEYS: Final = "thread_file"
"""The key of a thread's metadata for the header keys that a newer version wrote into its file."""

_SLICE: Final = 32
_CHUNK: Final = 1 << 16
_ATTEMPTS: Final = 3
_MIN_UNPACKED: Final = 256 << 20
_COMPRESSED: Final = b"\x28\xb5\x2f\xfd"  # RFC 8878, section 3.1.1


class Exported(Struct, frozen=True):
    """The contents of a file: the number of its ``entries``, how many of them are ``messages``, and ``unreadable``.

    ``unreadable`` are the ids of entries whose message the store cannot read: their records hold the stored bytes, and
    count as messages.
    """

    entries: int
    messages: int
    unreadable: tuple[str, ...] = ()


class Imported(Struct, frozen=True):
    """The result of an import: the thread, how many of its entries were new, and what was wrong with the file.

    ``diverged`` names the branches that have moved elsewhere in the store, and were left unchanged.
    """

    thread: str
    entries_new: int
    entries_known: int
    damage: tuple[Damage, ...] = ()
    diverged: tuple[str, ...] = ()


# -- out ---------------------------------------------------------------------------------------------------------------


def export_thread(
    store: Store, thread: str, out: BinaryIO, *, branch: str | None = None, progress: Progress | None = None
) -> Exported:
    """Write a thread, or the path of one ``branch``, to a file.

    Raises ``NotFoundError``, ``DamageError`` for data that the store cannot read back, and ``OSError``. The caller
    closes the file.
    """
    plan = _Plan(store, store.info(thread), branch)
    if not str(getattr(out, "name", "")).endswith(".zst"):
        return plan.write(Writer(out.write), progress)
    with zstd.ZstdFile(out, "w") as packed:
        return plan.write(Writer(packed.write), progress)


class _Plan:
    """The contents of a file to write: the entries, and the media that occur in more than one of them."""

    def __init__(self, store: Store, info: ThreadInfo, branch: str | None) -> None:
        if branch is not None and branch not in info.branches:
            raise NotFoundError(f"thread {info.id}: no branch {branch!r}")
        self._store = store
        self._info = info
        self._branches = dict(info.branches) if branch is None else {branch: info.branches[branch]}
        parents: dict[str, str | None] = {}
        media: dict[str, set[bytes]] = {}
        for entry in _entries(store, info):
            parents[entry.id] = entry.parent
            if found := _media_digests(entry.message):
                media[entry.id] = found
        self._chosen = parents.keys() if branch is None else set(_ancestors(parents, info.branches[branch]))
        once: set[bytes] = set()
        self._shared: set[bytes] = set()
        for entry_id, found in media.items():
            if entry_id in self._chosen:
                self._shared |= once & found
                once |= found

    def write(self, writer: Writer, progress: Progress | None) -> Exported:
        """Write the file."""
        unreadable: list[str] = []
        messages = 0
        writer.header(*_header(self._info, self._branches))
        for entry in _entries(self._store, self._info):
            if entry.id not in self._chosen:
                continue
            if is_unreadable(entry.message):
                unreadable.append(entry.id)
            messages += RECORD not in entry.message.tags or is_unreadable(entry.message)
            writer.entry(entry.id, entry.parent, self._write_blobs(entry.message, writer))
            if progress is not None and (writer.entries % _SLICE == 0 or writer.entries == len(self._chosen)):
                progress(writer.entries, len(self._chosen))
        writer.end()
        return Exported(writer.entries, messages, tuple(unreadable))

    def _write_blobs(self, message: Message, writer: Writer) -> Message:
        """Write the new blobs of a message, and return the message that refers to them."""

        def take(data: bytes) -> bytes | None:
            digest = sha256(data).digest()
            if digest not in self._shared:
                return None
            if digest not in writer.blobs:
                writer.blob(digest, data)
            return digest

        lighter, uses = message_codec.extract_media(message, take)
        for digest in uses:
            if digest not in writer.blobs:
                with suppress(NotFoundError):  # the blob is missing in this store too
                    writer.blob(digest, self._store.get_blob(message_codec.blob_for(digest)))
        return lighter


def _entries(store: Store, info: ThreadInfo) -> Iterator[Entry]:
    """Yield the entries that a thread had when ``info`` was taken."""
    for start in range(0, info.length, _SLICE):
        yield from store.read(info.id, start=start, stop=min(start + _SLICE, info.length))


def _media_digests(message: Message) -> set[bytes]:
    found: set[bytes] = set()

    def note(data: bytes) -> None:
        found.add(sha256(data).digest())

    message_codec.extract_media(message, note)
    return found


def _ancestors(parents: Mapping[str, str | None], head: str | None) -> Iterator[str]:
    """Yield the ids from a head up to the first entry."""
    while head is not None:
        yield head
        head = parents[head]


def _header(info: ThreadInfo, branches: dict[str, str | None]) -> tuple[Header, dict[str, Any]]:
    """Return the header, and the keys that a newer version added to it."""
    metadata = dict(info.metadata)
    unknown = metadata.get(UNKNOWN_KEYS)
    if _is_unknown_keys(unknown):
        del metadata[UNKNOWN_KEYS]
    else:
        unknown = {}
    header = Header(
        id=info.id,
        title=info.title,
        tags=info.tags,
        metadata=metadata,
        created_at=info.created_at,
        branches=branches,
    )
    return header, dict(cast("Mapping[str, Any]", unknown))


def _is_unknown_keys(value: object) -> bool:
    """Return whether an import put the value there: a header with it reads as one of a newer version."""
    if not isinstance(value, Mapping):
        return False
    keys = set(cast("Mapping[str, Any]", value))
    return bool(keys) and keys.isdisjoint({"palaver_thread", *Header.__struct_fields__})


# -- in ----------------------------------------------------------------------------------------------------------------


def import_thread(
    store: Store,
    data: BinaryIO,
    *,
    as_: str | None = None,
    partial: bool = False,
    progress: Progress | None = None,
) -> Imported:
    """Import the thread of a file into a store, under its own id or another one (``as_``).

    Raises ``DamageError``, naming line and byte, for a file that is cut off or altered; with ``partial`` the sound
    beginning is imported and the damage reported: a branch with a lost head then ends at the last sound entry, if the
    thread is new. Raises ``DecodeError`` for a file that is not a thread file, that has a newer version, or that
    decompresses to far more than its size says. Raises ``StoreError``, naming the entry, for a file that contradicts
    the store; the thread is then unchanged, and ``gc`` removes the blobs that were stored before. ``progress`` counts
    bytes; the file is read twice.
    """
    with ExitStack() as stack:
        file, damage = _seekable_file(data, stack)
        if damage and not partial:
            raise DamageError(str(damage[0]))
        start = file.tell()
        total = 2 * (file.seek(0, 2) - start)
        file.seek(start)
        scan = Scan(file, partial=partial, progress=_offset_progress(progress, 0, total))
        imported = _import_scan(store, scan, as_, _offset_progress(progress, scan.size, total))
        if progress is not None:
            progress(total, total)
        return Imported(
            imported.thread,
            imported.entries_new,
            imported.entries_known,
            (*damage, *scan.damage, *imported.damage),
            imported.diverged,
        )


def copy_thread(source: Store, target: Store, thread: str, *, progress: Progress | None = None) -> Imported:
    """Copy a thread, with its blobs, to another store. Like ``import_thread``, it can be repeated."""
    with TemporaryFile() as file:
        export_thread(source, thread, cast("BinaryIO", file))
        file.seek(0)
        return import_thread(target, cast("BinaryIO", file), progress=progress)


def _offset_progress(progress: Progress | None, before: int, total: int) -> Progress | None:
    return None if progress is None else lambda done, _: progress(before + done, total)


def _seekable_file(data: BinaryIO, stack: ExitStack) -> tuple[BinaryIO, list[Damage]]:
    """Return the decompressed lines, in a seekable file, and what is wrong with their compression."""
    file = data
    if not data.seekable():
        file = _temporary(stack)
        shutil.copyfileobj(data, file)
        file.seek(0)
    start = file.tell()
    compressed = file.read(len(_COMPRESSED)) == _COMPRESSED
    file.seek(start)
    if not compressed:
        return file, []
    plain = _temporary(stack)
    damage: list[Damage] = []
    with zstd.ZstdFile(file) as packed:
        try:
            while chunk := packed.read1(_CHUNK):
                plain.write(chunk)
                check_unpacked(plain.tell(), file.tell() - start, _MIN_UNPACKED)
        except (zstd.ZstdError, EOFError) as error:
            damage.append(Damage("torn", f"compressed byte {file.tell() - start}", f"cannot be decompressed: {error}"))
    plain.seek(0)
    return plain, damage


def _temporary(stack: ExitStack) -> BinaryIO:
    return cast("BinaryIO", stack.enter_context(TemporaryFile()))


def _import_scan(store: Store, scan: Scan, as_: str | None, progress: Progress | None) -> Imported:
    """Add the contents of a checked file."""
    header = cast("Header", scan.header)  # a scan without one has raised
    thread = header.id if as_ is None else as_
    created, damage = _create_thread(store, thread, header, scan)
    try:
        absent = _import_blobs(store, scan, thread)
        damage += absent.values()
        branches = scan.heads if created else None
        if created and scan.lost:
            branches = scan.heads | dict.fromkeys(scan.lost, next(reversed(scan.parents), None))
        new = _add_entries(store, thread, scan, branches, absent, progress)
    except BaseException:
        with suppress(StoreError):
            if created and not store.info(thread).length:
                store.delete(thread)
        raise
    diverged = () if created else tuple(_fast_forward(store, thread, scan))
    return Imported(thread, new, len(scan.parents) - new, tuple(damage), diverged)


def _add_entries(  # noqa: PLR0917 (what an import has found)
    store: Store,
    thread: str,
    scan: Scan,
    branches: Mapping[str, str | None] | None,
    absent: Mapping[str, Damage],
    progress: Progress | None,
) -> int:
    """Add the entries; when ``gc`` removed a blob before an entry named it, store that blob again."""
    for _ in range(_ATTEMPTS):
        with suppress(NotFoundError):
            return store.add(thread, scan.entries(progress), branches=branches, absent=absent)
        _import_blobs(store, scan, thread)
    return store.add(thread, scan.entries(progress), branches=branches, absent=absent)


def _import_blobs(store: Store, scan: Scan, thread: str) -> dict[str, Damage]:
    """Store the blobs that messages refer to; report those that are missing, by their hashes."""
    damage: dict[str, Damage] = {}
    for digest, place in scan.needs.items():
        if digest in scan.blobs:
            store.put_blob(scan.blob(digest))
            continue
        try:
            store.get_blob(message_codec.blob_for(digest))
        except NotFoundError:
            name = message_codec.blob_for(digest).hash
            damage[name] = Damage("missing", place, f"{name} is in no store", thread=thread)
    return damage


def _create_thread(store: Store, thread: str, header: Header, scan: Scan) -> tuple[bool, list[Damage]]:
    """Create a missing thread; report header keys that its metadata have no place for."""
    metadata = dict(header.metadata)
    damage: list[Damage] = []
    if scan.unknown and UNKNOWN_KEYS in metadata:
        names = ", ".join(sorted(scan.unknown))
        damage.append(Damage("unreadable", "line 1, byte 0", f"keys that were not kept: {names}", thread=thread))
    elif scan.unknown:
        metadata[UNKNOWN_KEYS] = scan.unknown
    try:
        store.create(thread, title=header.title, tags=header.tags, metadata=metadata)
    except ConflictError:
        return False, []
    return True, damage


def _fast_forward(store: Store, thread: str, scan: Scan) -> Iterator[str]:
    """Fast-forward the branches of an existing thread to the heads of the file; return the names of the others."""
    info = store.info(thread)
    theirs: dict[str, str | None] = {}
    for name, head in scan.heads.items():
        ours = info.branches.get(name)
        try:
            if name not in info.branches:
                store.fork(thread, name, at=head)
            elif head is None or head == ours:
                continue
            elif ours is None or ours in _ancestors(scan.parents, head):
                store.rewind(thread, head, branch=name, expect=ours)
            else:
                theirs = theirs or {entry.id: entry.parent for entry in _entries(store, info)}
                if head not in _ancestors(theirs, ours):
                    yield name
        except ConflictError:  # another writer moved it, or took the name
            yield name
