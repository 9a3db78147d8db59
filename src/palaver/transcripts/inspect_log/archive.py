"""Convert a log packed as ``.eval`` into the document that it represents.

Rules (docs/spec/dialects.md#11):

- Members are packed with deflate or Zstandard, or not at all. ``header.json`` is the log without samples; while an
  evaluation runs there is only ``_journal/start.json``.
- A sample is one member, or a folder whose sequences (messages, events, calls, attachments) are in members named after
  the number of their first item. The names show which.
- Members that cannot be unpacked are left out and reported. Members that claim to be far larger than the archive are
  not unpacked at all; neither are messages that a sample names too often.

Stability: experimental.
"""

from __future__ import annotations

import re
import struct
import sys
import zipfile
import zlib
from io import BytesIO
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw

from palaver.core import jsontext
from palaver.transcripts.inspect_log.shapes import fields_of, is_json, items_of

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.core.jsontext import Fields
    from palaver.transcripts.unknown_fields import Watch

MAGIC: Final = (b"PK\x03\x04", b"PK\x05\x06")
MEMBERS: Final = (b"header.json", b"_journal/start.json", b"samples/")

_ZSTD: Final = 93
_LOCAL: Final = struct.Struct("<26xHH")
_LARGEST: Final = 1 << 26
_TIMES: Final = 400
_AGAIN: Final = 4
"""How often a sample may name each message, on average; usually once."""
_FEW: Final = 256
_SAMPLE: Final = re.compile(r"samples/(?:.+/sample|(?P<whole>.+))\.json")
_SEQUENCE: Final = re.compile(r"(?P<folder>.+)/(?P<name>messages|events|calls|attachments)/(?P<start>\d+)\.json")
_ERRORS: Final = (
    zipfile.BadZipFile,
    zlib.error,
    zstd.ZstdError,
    struct.error,
    EOFError,
    OSError,
    ValueError,
    RuntimeError,
    NotImplementedError,
    OverflowError,
)


def document(data: bytes, watch: Watch) -> bytes | None:
    """Return the log as one JSON document; ``None`` when the archive has no readable log."""
    try:
        archive = zipfile.ZipFile(BytesIO(data))
    except _ERRORS:
        return None
    with archive:
        stored = _Archive(data, archive, watch)
        header = stored.header()
        if header is None:
            return None
        begun = header[:-1].rstrip()
        pieces = [begun, b"" if begun.endswith(b"{") else b",", b'"samples":[', b",".join(stored.samples()), b"]"]
        if reductions := stored.member("reductions.json"):
            pieces += [b',"reductions":', reductions]
        return b"".join((*pieces, b"}"))


class _Archive:
    def __init__(self, data: bytes, archive: zipfile.ZipFile, watch: Watch) -> None:
        self._data = data
        self._archive = archive
        self._members = {each.filename: each for each in archive.infolist()}
        self._watch = watch
        self._left = max(_LARGEST, _TIMES * len(data))
        self._sequences: dict[tuple[str, str], list[tuple[int, str]]] = {}
        for name in self._members:
            if found := _SEQUENCE.fullmatch(name):
                key = (found["folder"], found["name"])
                self._sequences.setdefault(key, []).append((int(found["start"]), name))

    def header(self) -> bytes | None:
        """Return the log without its samples, an object."""
        header = self.member("header.json")
        if header is None and (start := fields_of(self.member("_journal/start.json") or b"")):
            header = jsontext.encode({"version": start.pop("version", Raw(b"2")), "status": "started"} | start)
        return header if header is not None and header.startswith(b"{") else None

    def samples(self) -> Iterator[bytes]:
        """Yield the samples, in the order of their names."""
        folders = tuple([name.removesuffix("sample.json") for name in self._members if name.endswith("/sample.json")])
        for name in sorted(self._members):
            found = _SAMPLE.fullmatch(name)
            if found is None or (found["whole"] is not None and name.startswith(folders)):
                continue
            raw = self.member(name)
            if raw is None or not raw.startswith(b"{"):
                self._watch.note("value", "not a sample")
            elif found["whole"] is not None:
                yield raw
            else:
                yield bytes(self._sample(name.removesuffix("/sample.json"), fields_of(raw)))

    def _sample(self, folder: str, shell: Fields) -> Raw:
        """Return a sample in a folder: its messages by number in the sequence, the sequences as a log has them."""
        messages = self._sequence(folder, "messages")
        numbers: list[int] = []
        refs = items_of(shell.get("message_refs"))
        most = max(_FEW, _AGAIN * len(messages))
        for start, end in (_range(each) for each in refs):
            numbers += range(start, min(end, len(messages)))
            if len(numbers) > most:
                self._watch.note("value", "more references to messages than a sample has")
                del numbers[most:]
                break
        fields: dict[str, object] = {key: raw for key, raw in shell.items() if key != "message_refs"}
        fields["messages"] = [messages[number] for number in numbers]
        if metadata := self.member(f"{folder}/metadata.json"):
            fields["metadata"] = Raw(metadata)
        fields["events"] = self._sequence(folder, "events")
        calls = self._sequence(folder, "calls")
        if messages or calls:
            fields["events_data"] = {"messages": messages, "calls": calls}
        attachments = self._sequence(folder, "attachments")
        fields["attachments"] = {str(number): each for number, each in enumerate(attachments)}
        return jsontext.raw(fields)

    def _sequence(self, folder: str, name: str) -> list[Raw]:
        parts = (self.member(member) for _, member in sorted(self._sequences.get((folder, name), ())))
        return [item for part in parts if part for item in items_of(Raw(part))]

    def member(self, name: str) -> bytes | None:
        """Return the text of a member, if it is JSON; a missing member is empty, a broken one is reported."""
        info = self._members.get(name)
        if info is None:
            return None
        try:
            data = self._unpacked(info)
            data.decode()
        except _ERRORS:
            self._watch.note("value", "a member that cannot be unpacked")
            return None
        body = data.strip()
        return body if is_json(body) else None

    def _unpacked(self, info: zipfile.ZipInfo) -> bytes:
        self._left -= info.file_size
        if self._left < 0:
            raise ValueError("larger than an archive of this size holds")
        if info.compress_type != _ZSTD:
            with self._archive.open(info) as member:
                return member.read(info.file_size)
        name, extra = _LOCAL.unpack_from(self._data, info.header_offset)
        start = info.header_offset + _LOCAL.size + name + extra
        packed = self._data[start : start + info.compress_size]
        return zstd.ZstdDecompressor().decompress(packed, max_length=info.file_size)


def _range(raw: Raw) -> tuple[int, int]:
    """Return a half-open range of numbers; an empty one for any other value."""
    try:
        start, end = msgspec.json.decode(raw, type=tuple[int, int])
    except (msgspec.MsgspecError, ValueError):
        return 0, 0
    return max(0, start), end
