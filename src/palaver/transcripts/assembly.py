"""Write a conversation in a transcript format: select the messages, and assemble the file.

Rules (docs/spec/dialects.md#17):

- Write unedited messages from their original records, on every branch, so an unedited file comes back as it was.
- Render edited messages anew, and lay the result over their records (``restyle``).
- Render messages without records: all branches where the format has a tree, else the requested branch. Render a thread
  without any record of the format as ``history`` says: what the ``model`` sees, what the ``user`` sees, or ``all``.
- Put new records behind the records of the messages that they follow in the thread.
- Read an edited file again: the receipt lists what is missing of the edited messages (``edits``).
- Report each loss with its place among the written messages.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from msgspec import structs

from palaver.core import jsontext
from palaver.core.errors import DecodeError, LossError
from palaver.core.messages import ToolMessage
from palaver.core.pairs import TIED, client_calls, names_no_call, tied
from palaver.core.parts import ToolCall
from palaver.core.request import Loss
from palaver.threads.thread import Entry, Thread
from palaver.transcripts import documents, extension_slot, original_bytes
from palaver.transcripts.conversation import Transcript, session_of
from palaver.transcripts.edits import Readback, readback, report_leftovers
from palaver.transcripts.fields import NO_JSON
from palaver.transcripts.omissions import left_out
from palaver.transcripts.restyle import restyled
from palaver.transcripts.writer import (
    LISTED,
    Continuing,
    History,
    Layout,
    OnLoss,
    Options,
    RecordWriter,
    Repeating,
    WriteState,
    Written,
    chosen_history,
    is_native,
    is_record,
    on_one_line,
)

Rereader: TypeAlias = Callable[[bytes], Sequence[Transcript]]

_CARRIES: Final = re.compile(rb'"palaver\\*"\s*:\s*\{\s*\\*"sum\\*"')
"""The key in a record that carries messages (``extension_slot.carried``), as text in JSON too."""
_NEW: Final = 1
_OLD: Final = 0


def write(
    file_format: str,
    transcript: Transcript,
    make: Any,
    options: Options,
    *,
    layout: Layout,
    tree: bool,
    history: History,
    losses: OnLoss = "report",
    reread: Rereader | None = None,
) -> Written:
    """Write a conversation. ``make`` makes the ``RecordWriter``, and ``reread`` reads what was written.

    Raises ``NotFoundError`` for an unknown branch, ``LossError`` when ``losses="raise"`` and there is one.
    """

    def attempt(*, edits: bool = True) -> _File:
        draft = _drafted(file_format, transcript, make, options, layout=layout, tree=tree, history=history, edits=edits)
        return _File((draft,), tuple(_taken_out(draft.placed) or draft.chunks()))

    return _written(file_format, attempt, losses, reread)


def write_many(
    file_format: str,
    transcripts: Sequence[Transcript],
    make: Any,
    options: Options,
    *,
    layout: Layout,
    tree: bool,
    history: History,
    losses: OnLoss = "report",
    reread: Rereader | None = None,
) -> Written:
    """Write several conversations into one file; records from one file keep their places there."""

    def attempt(*, edits: bool = True) -> _File:
        drafts = [
            _drafted(file_format, each, make, options, layout=layout, tree=tree, history=history, edits=edits)
            for each in transcripts
        ]
        if not all(draft.as_lines and draft.native for draft in drafts):
            return _File(drafts, tuple(_joined(drafts)))
        placed = [(each.at, each.new, turn, each) for turn, draft in enumerate(drafts) for each in draft.placed]
        ordered = [each for *_, each in sorted(placed, key=lambda place: place[:3])]
        return _File(drafts, tuple(_lines(ordered, drafts[0].record_writer, native=True)))

    return _written(file_format, attempt, losses, reread)


class _Draft(NamedTuple):
    """A conversation that is ready to be written."""

    writing: WriteState
    record_writer: RecordWriter
    placed: Sequence[_Placed]
    native: bool
    as_lines: bool
    unread: tuple[Loss, ...]

    def chunks(self) -> Iterator[bytes]:
        """Return the file."""
        if self.as_lines:
            return _lines(self.placed, self.record_writer, native=self.native)
        return _document(self.placed, self.record_writer)


def _joined(drafts: Sequence[_Draft]) -> Iterator[bytes]:
    """Join conversations. A new part is an item of a list that was read, or begins on a line."""
    ends = [draft for draft in drafts if draft.native and any(each.at == documents.TAIL for each in draft.placed)]
    new = [draft for draft in drafts if draft.as_lines and not draft.native]
    items = [each.raw for draft in new for each in draft.placed]
    added = [_Placed(documents.TAIL - 1, _NEW, number, raw) for number, raw in enumerate(items)]
    broken = False
    for draft in drafts:
        fresh = draft.as_lines and not draft.native
        if fresh and ends:
            continue
        if fresh and broken:
            yield b"\n"
        last = bool(ends) and draft is ends[-1]
        placed = [*draft.placed[:-1], *added, draft.placed[-1]] if last else draft.placed
        for chunk in draft._replace(placed=placed).chunks():
            broken = not chunk.endswith(b"\n") if chunk else broken
            yield chunk


def _drafted(
    file_format: str,
    transcript: Transcript,
    make: Any,
    options: Options,
    *,
    layout: Layout,
    tree: bool,
    history: History,
    edits: bool,
) -> _Draft:
    """Draft a file. ``edits`` is false for a draft with the old records of edited messages, for their old text."""
    entries, native = chosen_entries(file_format, transcript, options, tree=tree, history=history)
    entries, ties = _with_ties(file_format, transcript.thread, entries)
    writing = WriteState(file_format, transcript, entries, options, native=native)
    for entry in entries:
        if entry.id in ties:
            writing.lose("converted", "tool result", TIED, entry)
    writing.add(left_out(file_format, transcript.thread, entries, options.branch))
    if not native and (columns := session_of(transcript.metadata).columns):
        writing.lose("dropped", "columns", f"{', '.join(columns)}: beside the messages of the record, in none of them")
    rendering: RecordWriter = make(writing)
    placed = _placed(file_format, writing, rendering, lines=layout != "document", edits=edits)
    if not options.carry and edits:
        full = WriteState(file_format, transcript, entries, structs.replace(options, carry=True), native=native)
        writing.add(list(_not_carried(writing, full, make(full))))
    document = any(each.at == documents.TAIL for each in placed) or (not native and rendering.tail(None) is not None)
    as_lines = layout == "lines" or (layout == "either" and not document)
    return _Draft(writing, rendering, placed, native, as_lines, () if native else transcript.unread)


class _File(NamedTuple):
    """The conversations of a file, and its bytes."""

    drafts: Sequence[_Draft]
    chunks: tuple[bytes, ...]

    @property
    def writings(self) -> list[WriteState]:
        """The receipts of the conversations."""
        return [draft.writing for draft in self.drafts]


class _Attempt(Protocol):
    def __call__(self, *, edits: bool = True) -> _File: ...


def _written(file_format: str, attempt: _Attempt, losses: OnLoss, reread: Rereader | None) -> Written:
    file = attempt()
    if reread is not None and any(writing.edited for writing in file.writings):
        file, found = _checked(file, attempt, reread)
        found.report()
        before = _read_again(attempt(edits=False), reread)
        report_leftovers(file.writings, before, b"".join(file.chunks))
    lost = (*_unread(file.drafts), *(loss for writing in file.writings for loss in writing.losses))
    if losses == "raise" and lost:
        raise LossError(file_format, lost)
    return Written(file.chunks, lost, {name: data for each in file.writings for name, data in each.beside.items()})


def _checked(file: _File, attempt: _Attempt, reread: Rereader) -> tuple[_File, Readback]:
    """Return a file with edits, and what it lacks of them; a second draft when its slots carry more."""
    found = readback(file.writings, _read_again(file, reread))
    if not found.lost:
        return file, found
    with extension_slot.beside(found.said):
        second = attempt()
    if second.chunks == file.chunks:
        return file, found
    better = readback(second.writings, _read_again(second, reread))
    return (second, better) if len(better.lost) < len(found.lost) else (file, found)


def _read_again(file: _File, reread: Rereader) -> Sequence[Transcript]:
    """Return the contents of a file; nothing when its reader refuses it (a line that became too long)."""
    try:
        return reread(b"".join(file.chunks))
    except DecodeError:
        return ()


def _unread(drafts: Sequence[_Draft]) -> Iterator[Loss]:
    """Yield the unread parts of the files of the conversations, once for each file.

    A conversation with records of the transcript format is written with those that could not be read.
    """
    files = {id(draft.unread): draft.unread for draft in drafts}
    for unread in files.values():
        yield from unread


# -- what is written ---------------------------------------------------------------------------------------------------


def chosen_entries(
    file_format: str, transcript: Transcript, options: Options, *, tree: bool, history: History
) -> tuple[Sequence[Entry], bool]:
    """Return the entries to write, and whether some of them have records of the transcript format."""
    thread = transcript.thread
    path = thread.path(options.branch)
    native = any(original_bytes.leads(entry.message, file_format) for entry in thread.entries)
    if native:
        on_path = {entry.id for entry in path}
        return [
            entry
            for entry in thread.entries
            if is_native(entry, file_format) or ((tree or entry.id in on_path) and not is_record(entry))
        ], True
    if tree and options.history is None:
        return _main_last(thread.entries, path), False
    return list(chosen_history(path, options.history or history)), False


def _with_ties(file_format: str, thread: Thread, entries: Sequence[Entry]) -> tuple[Sequence[Entry], frozenset[str]]:
    """Return entries in which results have the ids of their calls, by their position, and which were tied.

    Ids that the file itself has are kept.
    """
    fresh = {entry.id for entry in entries if names_no_call(entry.message) and not is_native(entry, file_format)}
    if not fresh:
        return entries, frozenset()
    calls: dict[str, str] = {}
    for branch in thread.branches:
        path = [entry for entry in thread.path(branch) if not is_record(entry)]
        calls |= {path[place].id: call for place, call in tied([entry.message for entry in path]).items()}
    named = {call.id: call.name for entry in thread.entries for call in client_calls(entry.message)}

    def with_tie(entry: Entry) -> Entry:
        message, call = entry.message, calls.get(entry.id)
        if entry.id not in fresh or call is None or not isinstance(message, ToolMessage):
            return entry
        made = message.replace(tool_call_id=call, tool_name=message.tool_name or named.get(call))
        return Entry(entry.id, entry.parent, made)

    return [with_tie(entry) for entry in entries], frozenset(fresh & calls.keys())


def _main_last(entries: Sequence[Entry], path: Sequence[Entry]) -> list[Entry]:
    """Return all messages, parents first, the end of the main branch last: programs continue at the end of a file."""
    places = {entry.id: place for place, entry in enumerate(path)}
    forks = (places.get(entry.parent or "", -1) for entry in entries if entry.id not in places)
    last = max(forks, default=len(path))
    moved = {entry.id for entry in path[last + 1 :]}
    ordered = (*(entry for entry in entries if entry.id not in moved), *path[last + 1 :])
    return [entry for entry in ordered if not is_record(entry)]


# -- where it stands ---------------------------------------------------------------------------------------------------


class _Placed(NamedTuple):
    """A record and its place: behind record ``at``, new ones behind old ones."""

    at: int
    new: int
    number: int
    raw: bytes


def _placed(
    file_format: str, writing: WriteState, rendering: RecordWriter, *, lines: bool, edits: bool
) -> list[_Placed]:
    placed: dict[tuple[int, int, int], _Placed] = {}
    last, number = -1, 0
    on_path = {entry.id for entry in writing.thread.path(writing.options.branch)}
    claimed: set[int] = set()
    groups = list(_continued(_groups(file_format, writing.entries, rendering), rendering))
    document = not lines or any(_is_framed(piece) for _, kept in groups for piece in kept or ())
    for group, kept in groups:
        number += 1
        pieces = kept
        if group[0].id in on_path and not claimed.isdisjoint(_numbers(kept)):
            # Two messages of one path cannot be one record: the later one is a copy, or from another file.
            if document:
                writing.lose("dropped", "message", "its record, or another of that number, is in the file", group[0])
                continue
            pieces = None
        elif group[0].id in on_path:
            claimed |= _numbers(kept)
        state = "edited" if pieces is None else original_bytes.state_of(file_format, [each.message for each in group])
        if pieces is not None and (state != "edited" or not edits):
            raws = _repeated(writing, rendering, group, pieces) if edits else [piece.raw for piece in pieces]
            if state == "stamped":
                writing.lose("dropped", "sent at", "its record has no time, and was not edited", group[0])
        else:
            if pieces is not None:
                writing.edited.append(tuple([entry for entry in group if is_native(entry, file_format)]))
            olds = [] if pieces is None else [_body(piece.raw) for piece in pieces]
            before = writing.count
            raws = list(rendering.render(group, olds))
            if not raws:
                writing.unwritten.add(group[0].id)
            if writing.options.carry and any(_CARRIES.search(raw) for raw in raws):
                writing.carry(before)
            _note_arguments(writing, group, raws)
            if lines:  # a line break between tokens of arguments or results would end the record
                raws = [on_one_line(raw) for raw in raws]
            if olds and len(raws) == len(olds):
                raws = [
                    _like(piece.raw, restyled(old, new, whole=writing.whole))
                    for piece, old, new in zip(pieces or (), olds, raws, strict=True)
                ]
        if pieces is not None and len(raws) == len(pieces):
            for piece, raw in zip(pieces, raws, strict=True):
                place = (piece.at, _OLD, 0)
                if place not in placed or group[0].id in on_path:
                    placed[place] = _Placed(*place, raw)
                last = max(last, piece.at) if piece.at != documents.TAIL else last
            continue
        at = pieces[0].at if pieces else last
        for each in raws:
            number += 1
            placed[at, _NEW, number] = _Placed(at, _NEW, number, each)
    return [placed[place] for place in sorted(placed)]


def _is_framed(piece: original_bytes.Piece) -> bool:
    """Return whether a record is not a line of its own: the frame of a list, or a document over several lines."""
    return piece.at == documents.TAIL or b"\n" in piece.raw.strip()


def _numbers(pieces: Sequence[original_bytes.Piece] | None) -> set[int]:
    """Return the numbers of records that contain only messages."""
    return {piece.at for piece in pieces or () if piece.at != documents.TAIL}


def _repeated(
    writing: WriteState, rendering: RecordWriter, group: Sequence[Entry], pieces: Sequence[original_bytes.Piece]
) -> list[bytes]:
    """Return the records of an unedited group: the original bytes, with edits of messages that they repeat."""
    if not isinstance(rendering, Repeating):
        return [piece.raw for piece in pieces]
    olds = [_body(piece.raw) for piece in pieces]
    return [
        piece.raw if new == old else _like(piece.raw, restyled(old, on_one_line(new), whole=writing.whole))
        for piece, old, new in zip(pieces, olds, rendering.repeat(group, olds), strict=True)
    ]


def _not_carried(writing: WriteState, full: WriteState, rendering: RecordWriter) -> Iterator[Loss]:
    """Yield what records would carry: ``rendering`` writes them as for ``full``, only for the receipt.

    Names that the receipt of ``writing`` has already, for the message or for all, are left out.
    """
    named = {(loss.message, name) for loss in writing.losses for name in LISTED.split(loss.what.replace("_", " "))}
    left_out = {(loss.message, loss.what) for loss in writing.losses if loss.kind == "dropped"}
    elsewhere = {(loss.message, loss.what) for loss in writing.losses if loss.kind == "approximated"}
    places = {entry.id: place for place, entry in enumerate(writing.entries)}
    for group, pieces in _continued(_groups(full.file_format, full.entries, rendering), rendering):
        if (
            pieces is not None
            and original_bytes.state_of(full.file_format, [each.message for each in group]) != "edited"
        ):
            continue
        with extension_slot.lacking() as found:
            list(rendering.render(group, [_body(piece.raw) for piece in pieces or ()]))
        for message, name in found:
            same = (each for each in group if each.message is message or (message.id or "") == each.message.id)
            place = places[next(same, group[0]).id]
            if (place, message.role) in (left_out | elsewhere if group[0].id in writing.unwritten else left_out):
                continue
            if named.isdisjoint(((place, name), (None, name))):
                yield Loss("dropped", name, "the format has no place for it, and nothing was to be carried", place)


def _note_arguments(writing: WriteState, group: Sequence[Entry], raws: Sequence[bytes]) -> None:
    """Add to the receipt the arguments that are not JSON, and are inside an object now (``one_line``)."""
    calls = [
        (entry, place)
        for entry in group
        for place, part in enumerate(entry.message.content)
        if isinstance(part, ToolCall) and part.arguments_json.strip() and not jsontext.is_json(part.arguments_json)
    ]
    if calls and any(NO_JSON.encode() in raw for raw in raws):
        for entry, place in calls:
            writing.lose("converted", "arguments", "not JSON; sent inside a JSON object", entry, place)


def _continued(
    groups: Iterable[tuple[Sequence[Entry], tuple[original_bytes.Piece, ...] | None]], rendering: RecordWriter
) -> Iterable[tuple[Sequence[Entry], tuple[original_bytes.Piece, ...] | None]]:
    """Add new content to the record that it continues, if the format has such records."""
    if not isinstance(rendering, Continuing):
        return groups
    told = list(groups)
    last: int | None = None
    for place, (group, pieces) in enumerate(told):
        if pieces is None and last is not None and rendering.continues(told[last][0], group):
            told[last] = ([*told[last][0], *group], told[last][1])
            told[place] = ((), None)
        elif not all(is_record(entry) for entry in group):
            last = place if pieces is not None else None
    return [each for each in told if each[0]]


def _groups(
    file_format: str, entries: Sequence[Entry], rendering: RecordWriter
) -> Iterator[tuple[Sequence[Entry], tuple[original_bytes.Piece, ...] | None]]:
    """Yield the groups to write, with their records, if any."""
    fresh: list[Entry] = []
    place = 0
    while place < len(entries):
        entry = entries[place]
        if not original_bytes.leads(entry.message, file_format):
            fresh.append(entry)
            place += 1
            continue
        for group in rendering.groups(fresh) if fresh else ():
            yield group, None
        fresh = []
        end = place + 1
        first = _first(entry, file_format)
        while end < len(entries) and original_bytes.follows(entries[end].message, file_format) == first:
            end += 1
        group = entries[place:end]
        yield group, original_bytes.records_of(file_format, [each.message for each in group])
        place = end
    for group in rendering.groups(fresh) if fresh else ():
        yield group, None


def _first(entry: Entry, file_format: str) -> int | None:
    pieces = original_bytes.numbers_of(entry.message, file_format)
    return pieces[0] if pieces else None


def _body(raw: bytes) -> bytes:
    return raw[len(documents.lead_of(raw)) :].removeprefix(b"\xef\xbb\xbf").rstrip(b"\r\n")


def _like(old: bytes, new: bytes) -> bytes:
    """Give a new record the bytes around the old one."""
    body = _body(old)
    start = old.find(body)
    return b"".join((old[:start], new, old[start + len(body) :]))


# -- the file ----------------------------------------------------------------------------------------------------------


def _lines(placed: Sequence[_Placed], rendering: RecordWriter, *, native: bool) -> Iterator[bytes]:
    broken = True
    for each in () if native else rendering.head():
        yield each + b"\n"
    for record in placed:
        if record.new == _NEW:
            line = on_one_line(record.raw) + b"\n"
            yield line if broken else b"\n" + line
            broken = True
        else:
            yield record.raw
            broken = record.raw.endswith(b"\n")


def _taken_out(placed: Sequence[_Placed]) -> list[bytes]:
    """Return a conversation that is an item of a list of several, without the list; nothing for any other one."""
    opened = [each.raw.strip() for each in placed if (each.at, each.new) == (0, _OLD)]
    closed = any(each.at == documents.TAIL for each in placed)
    items = [each for each in placed if each.at not in {0, documents.TAIL}]
    if len(items) != 1 or items[0].new != _OLD or opened not in ([], [b"["]) or (opened and closed):
        return []
    lead = documents.lead_of(items[0].raw)
    return [items[0].raw[len(lead) :]] if opened or lead.strip() else []


def _document(placed: Sequence[_Placed], rendering: RecordWriter) -> Iterator[bytes]:
    head = next((each.raw for each in placed if (each.at, each.new) == (0, _OLD)), None)
    tail = next((each.raw for each in placed if each.at == documents.TAIL), None)
    if head is not None and tail is None:  # one record, which could not be split
        yield from (each.raw for each in placed)
        return
    items = [each for each in placed if each.at != documents.TAIL and (each.at, each.new) != (0, _OLD)]
    if head is not None:
        yield head
    elif tail is None:
        yield from rendering.head()
    lead = next((found for each in items if each.new == _OLD and (found := documents.lead_of(each.raw))), b",")
    for place, item in enumerate(items):
        yield item.raw if item.new == _OLD or place == 0 else lead + item.raw
    end = rendering.tail(tail)
    if end is not None:
        yield end
