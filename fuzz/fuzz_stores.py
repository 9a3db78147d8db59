"""Feed hostile bytes to threads, and to what stores read (laws 5, 6 and 8). See README.md beside this file."""

from __future__ import annotations

import io
import os
import re
import sqlite3
import sys
from contextlib import suppress
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import atheris
from findings import watch

with atheris.instrument_imports(include=["palaver"]):
    import palaver as p
    from palaver import wires
    from palaver.core import canonical, jsontext
    from palaver.store import archive, message_codec, search_text
    from palaver.store.jsonl import lines, log_line
    from palaver.store.jsonl.log_reader import LogReader, threads_of
    from palaver.store.memory import MemoryStore
    from palaver.testing import rules
    from palaver.testing.receipts import check_receipt
    from palaver.threads import AgentView, ModelView, PeopleView, Thread, expire, repair
    from palaver.threads.thread import MAIN, Entry

    for _name in wires.names():
        wires.get(_name)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from palaver.threads.view import View

FOLDER = Path(os.environ.get("PALAVER_SCRATCH", "build")) / f"fuzz-{os.getpid()}"


# -- store.archive -------------------------------------------------------------------------------------------------


def _try_file(way: int, data: bytes) -> None:
    """A file as it comes (0), with sums that agree again (1, 2), compressed (3), or with a torn compression (4)."""
    if way % 5 in {1, 2, 3}:
        data = _vouched(data, entries_agree=way % 5 != 2)
    if way % 5 >= 3:
        data = archive.zstd.compress(data)[: -3 if way % 5 == 4 else None]
    for partial in (False, True):
        store = MemoryStore()
        try:
            taken = archive.import_thread(store, io.BytesIO(data), partial=partial)
        except p.PalaverError:
            assert not [*store.threads()], "a file that was refused left a thread behind"
            continue
        assert partial or not any(each.kind in {"torn", "altered"} for each in taken.damage)
        assert taken.entries_new == len(store.read(taken.thread))
        out = io.BytesIO()
        archive.export_thread(store, taken.thread, out)
        again = archive.import_thread(store, io.BytesIO(out.getvalue()))
        assert again.entries_new == 0
        copy = MemoryStore()
        archive.import_thread(copy, io.BytesIO(out.getvalue()))
        assert [*copy.read(taken.thread)] == [*store.read(taken.thread)]


def _vouched(data: bytes, *, entries_agree: bool) -> bytes:
    """The lines of a file with checks that agree with them: hostile, not damaged."""
    out, hash_, entries, blobs = [], sha256(), 0, set[bytes]()
    for each in data.split(b"\n"):
        line = each + b"\n"
        if line.startswith((b'{"so_far"', b'{"end"')):
            kind = "so_far" if line.startswith(b'{"so') else "end"
            counts = {"entries": entries, "sha256": hash_.hexdigest()} | (
                {"blobs": len(blobs)} if kind == "end" else {}
            )
            line = jsontext.encode({kind: counts}) + b"\n"
        elif line.startswith(b'{"blob"'):
            blobs.add(line[:90])
        elif b'"message"' in line and entries_agree:
            entries += 1
        hash_.update(line)
        out.append(line)
    return b"".join(out)


# -- store.lines, store.log_reader ---------------------------------------------------------------------------------


def _try_log(way: int, data: bytes) -> None:
    if way % 2:
        data = _checked(data, renumbered=way % 4 == 1)
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / "log.jsonl"
    path.write_bytes(data)
    reader = LogReader([path, path])
    found = [*reader]
    assert len({each.id for each in found}) == len(found), "a line was given twice"
    rebuilt = threads_of(found)
    records = sum(each.kind == "missing" for each in rebuilt.damage)  # each stands for a parent that is not there
    assert sum(len(each) for each in rebuilt.threads.values()) <= len(found) + records
    whole = [*_scanned([data])]
    for size in (7, 500):
        assert whole == [*_scanned([data[at : at + size] for at in range(0, len(data), size)])]
    assert all(data[each.offset : each.end].endswith(b'"}') for each in whole if isinstance(each, lines.Line))


def _scanned(pieces: list[bytes]) -> list[lines.Scanned]:
    scanner = lines.Scanner("log")
    found = [each for piece in pieces for each in scanner.feed(piece)]
    return [*found, *scanner.finish()]


def _checked(data: bytes, *, renumbered: bool) -> bytes:
    """The lines of a log with checks that agree with them."""
    out = list[bytes]()
    for number, each in enumerate(data.split(b"\n"), 1):
        body = each.rpartition(b',"crc":')[0]
        if renumbered:
            body = re.sub(rb'"line":\d+', b'"line":%d' % number, body, count=1)
        out.append(b'%b,"crc":"%08x"}' % (body, crc32(body)) if body else each)
    return b"\n".join(out)


# -- store.words ---------------------------------------------------------------------------------------------------

_INDEX = sqlite3.connect(":memory:", isolation_level=None)
_INDEX.execute("CREATE VIRTUAL TABLE words USING fts5 (text, content='', columnsize=0, tokenize='ascii')")


def _try_words(way: int, data: bytes) -> None:
    """The first line is a query, the rest a text, or (1) a message."""
    asked, _, rest = data.partition(b"\n")
    if way % 2:
        try:
            text = search_text.searchable_text(canonical.decode(rest))
        except p.PalaverError:
            return
    else:
        text = rest.decode("utf-8", "surrogatepass" if way & 2 and _is_wide(rest) else "replace")
    assert len(text) <= search_text.MAX_TEXT
    normal = search_text.normalize(text)
    assert normal.split() == search_text.words(text)
    assert len(normal.encode()) <= search_text.MAX_BYTES
    assert all(len(word) <= search_text.MAX_WORD for word in normal.split(" "))
    for query in (asked.decode(errors="replace"), text[way % 5 :][:20], text[len(text) // 2 :][: way % 32]):
        try:
            terms = search_text.parse(query)
        except p.StoreError:
            continue
        found = search_text.excerpt(terms, text, 8 + way % 100)
        assert len(found) <= 8 + way % 100 + 1, (found, way)
        if terms.needles:
            _INDEX.execute("INSERT INTO words (words) VALUES ('delete-all')")
            _INDEX.execute("INSERT INTO words (rowid, text) VALUES (1, ?)", (normal,))
            theirs = _INDEX.execute(
                "SELECT rowid FROM words WHERE words MATCH ?", (search_text.fts5(terms),)
            ).fetchall()
            assert bool(theirs) == search_text.matches(terms, normal), "FTS5 finds something else"
            assert search_text.tsquery(terms)
    for piece in text.split()[:20]:  # what was written is found by what was written
        quoted = f'"{piece.replace(chr(34), " ")}"'
        if len(piece) < search_text.MAX_WORD and search_text.normalize(quoted):
            assert (
                search_text.matches(search_text.parse(quoted), normal)
                or len(normal.encode()) > search_text.MAX_BYTES // 2
            ), piece


def _is_wide(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


# -- store.pack ----------------------------------------------------------------------------------------------------


def _try_pack(way: int, data: bytes) -> None:
    """The first line is the id of an entry, the second a blob, the rest a body; or (8) all of it is compressed."""
    id_, _, rest = data.partition(b"\n")
    blob, _, body = rest.partition(b"\n")
    entry = id_.decode(errors="surrogateescape" if way & 16 else "replace")
    if way & 8:
        for digest in (sha256(data).digest(), b""):
            with suppress(p.DamageError):
                message_codec.decompress(digest, way & 1, data, "here")
        packed = message_codec.compress(data)
        assert message_codec.decompress(packed.digest, packed.encoding, packed.data) == data
        return
    try:
        message = message_codec.unpack(
            body, entry, way & 7, int.from_bytes(blob[:8], "big", signed=True), lambda _: blob
        )
    except p.DecodeError:
        return
    place = Entry(entry, None, message)
    bare, stamps = message_codec.unstamped(place)
    packed = message_codec.pack(bare)
    blobs = {each.digest: each for each in packed.media}
    text = message_codec.decompress(*packed.body[:3])
    back = message_codec.unpack(
        text, entry, stamps | packed.marks, message.sent_at, lambda digest: message_codec.decompress(*blobs[digest][:3])
    )
    assert back == message


# -- threads -------------------------------------------------------------------------------------------------------


def _try_threads(way: int, data: bytes) -> None:
    try:
        messages = tuple(canonical.decode_many(data))
    except p.PalaverError:
        return
    targets = wires.names()
    target = targets[way % len(targets)]
    for unanswered in ("answer", "drop"):
        for orphans in ("tell", "keep", "drop"):
            mended = repair(messages, unanswered=unanswered, orphans=orphans)
            assert bool(mended.repairs) == (mended.messages is not messages)
            again = repair(mended.messages, unanswered=unanswered, orphans=orphans)
            assert again.messages is mended.messages
            if orphans != "keep":
                _send(target, mended.messages, whole=True)
    for make in _VIEWS:
        _try_view(make, messages, way, target)
    for end in ("agent-step", "user-prompt"):
        left = expire(messages, end)
        assert expire(left, end) is left


_VIEWS: tuple[Callable[[], View], ...] = (
    PeopleView,
    ModelView,
    lambda: ModelView(keep=2),
    lambda: AgentView("a", keep=3, prompt="P"),
    lambda: AgentView("a", keep=None),
)


def _try_view(make: Callable[[], View], messages: Sequence[p.Message], way: int, target: str) -> None:
    thread, view = Thread(clock=count().__next__), make()
    for start in range(0, len(messages), way % 4 + 1):
        thread.append(*messages[start : start + way % 4 + 1])
        shown = [*view(thread.path())]
        assert shown == [*make()(thread.path())], "a view that went on differs from a new one"
    path = thread.path()
    if path:
        thread.rewind(path[way % len(path)].id)
        assert [*view(thread.path())] == [*make()(thread.path())]
        if not isinstance(view, PeopleView):
            _send(target, repair([*view(path)]).messages, whole=True)


_PAIR_LOSSES = ("had no result", "moved to its call", "answers no call")


def _send(target: str, messages: Sequence[p.Message], *, whole: bool) -> None:
    request = p.Request(messages=tuple(messages), model="m")
    encoded = wires.get(target).encode_request(request)
    jsontext.value(encoded.body)
    found = check_receipt(target, request, encoded)
    assert found == [], found
    if whole:
        assert not [each for each in encoded.losses if each.why.startswith(_PAIR_LOSSES)], encoded.losses
        assert rules.check_request(target, encoded.body, None) == []


# -- choosing ------------------------------------------------------------------------------------------------------

TARGETS: dict[str, Callable[[int, bytes], None]] = {
    "file": _try_file,
    "log": _try_log,
    "words": _try_words,
    "pack": _try_pack,
    "threads": _try_threads,
}
CHOSEN = os.environ.get("PALAVER_FUZZ", "")


def test_one_input(data: bytes) -> None:
    """What libFuzzer calls: the first byte chooses the target, the second the way it is tried."""
    if len(data) < 2:
        return
    name = CHOSEN or [*TARGETS][data[0] % len(TARGETS)]
    watch(name, data, lambda: TARGETS[name](data[1], data[2:]))


# -- seeds ---------------------------------------------------------------------------------------------------------


def conversation() -> tuple[p.Message, ...]:
    """Messages of every kind, with pairs that are broken."""
    look, again = (p.tool_call("look", {"q": [1, 2.5, "é"]}, id=f"call0000{number}") for number in (1, 2))
    return (
        p.system("Be brief.", agent="a"),
        p.user("What is this?", p.Image.from_bytes(b"\x89PNG" + bytes(1200)), tags=["expires:agent-step"]),
        p.assistant("One moment.", p.Reasoning("hm"), tool_calls=[look, again], agent="a"),
        p.tool({"found": True}, tool_call_id=look.id, agent="a"),
        p.assistant("A square.", agent="a", finish_reason="error"),
        p.FlushMarker(reason="new"),
        p.user("Thanks."),
        p.RescueMarker(reason="bad", agent="a", scope="agent"),
        p.tool("late", tool_call_id=again.id),
    )


def write_seeds(folder: Path) -> None:
    """Write valid inputs for each target."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [*TARGETS]
    messages = conversation()
    store, out = MemoryStore(), io.BytesIO()
    store.create("t", title="T", tags=["x"], metadata={"n": 1})
    store.append("t", messages)
    store.append("t", messages[:1] + messages[1:2])
    store.fork("t", "side", at=store.path("t")[2].id)
    archive.export_thread(store, "t", out)
    contexts = [
        log_line.LogContext(thread="t", entry=each.id, parent=each.parent, branch=MAIN) for each in store.read("t")
    ]
    told = enumerate(zip(store.read("t"), contexts, strict=True), 1)
    log = b"".join([lines.write("message", "w1", number, log_line.fields(e.message, c, 5)) for number, (e, c) in told])
    inputs: list[tuple[str, int, bytes]] = [("file", way, out.getvalue()) for way in range(5)]
    inputs += [("log", way, log) for way in range(4)]
    spoken = "Le café 東京タワー of snake_case, 3.14 and e\u0301te\u0301: " * 3
    inputs += [("words", 0, f'"café 東京" tow* snake_case\n{spoken}'.encode())]
    inputs += [("words", 1, b"look\n" + canonical.encode(messages[2]))]
    for number, message in enumerate(messages):
        packed = message_codec.pack(message)
        blob = packed.media[0].data if packed.media else b""
        body = message_codec.decompress(*packed.body[:3])
        inputs.append(("pack", 7 if number % 2 else 3, b"\n".join([b"e1", blob.replace(b"\n", b""), body])))
    inputs += [("pack", 9, archive.zstd.compress(b"word " * 300)), ("pack", 8, b"plain")]
    inputs += [("threads", way, canonical.encode_many(messages[way:] + messages[:way])) for way in range(8)]
    for number, (name, way, data) in enumerate(inputs):
        (folder / f"{name}-{number:02d}").write_bytes(bytes([names.index(name), way]) + data)


def main() -> None:
    """Write seeds, or fuzz until told to stop."""
    if sys.argv[1:2] == ["--seeds"]:
        write_seeds(Path(sys.argv[2]))
        return
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
