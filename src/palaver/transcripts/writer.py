"""Write a conversation in a transcript format.

Rules (docs/spec/dialects.md#17):

- Write unedited messages from their original records, on every branch, so an unedited file comes back as it was.
- Render edited messages anew, and lay the result over their records (``restyle``).
- Render messages without records: all branches where the format has a tree, else the requested branch. Render a thread
  without any record of the format as ``history`` says: what the ``model`` sees, what the ``user`` sees, or ``all``.
- Put new records behind the records that they follow in the thread.
- Report each loss with its place among the written messages.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct, structs

from palaver.core import jsontext
from palaver.core.errors import LossError
from palaver.core.messages import DeveloperMessage, SystemMessage, ToolMessage
from palaver.core.pairs import TIED, client_calls, names_no_call, tied
from palaver.core.parts import ToolCall
from palaver.core.request import Loss
from palaver.core.type_checks import check_arguments
from palaver.threads.thread import MAIN, Entry, Thread
from palaver.threads.view import RECORD, for_model, is_shown
from palaver.transcripts import documents, extension_slot, original_bytes
from palaver.transcripts.conversation import session_of
from palaver.transcripts.fields import NO_JSON
from palaver.transcripts.omissions import left_out
from palaver.transcripts.restyle import restyled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.core.request import LossKind
    from palaver.transcripts.conversation import Transcript

History: TypeAlias = Literal["model", "user", "all"]
Framing: TypeAlias = Literal["lines", "document", "either"]
"""``either``: a document where the first line of the file is not a whole object, else lines; a
conversation that comes from elsewhere is written as a document where its ``Rendering`` has a tail for new ones."""

OnLoss: TypeAlias = Literal["report", "raise"]

_CARRIES: Final = re.compile(rb'"palaver\\*"\s*:\s*\{\s*\\*"sum\\*"')
"""What a record holds that carries messages (``carrying.carried``), as text in JSON too."""
_LISTED: Final = re.compile(", | and ")
_NEW: Final = 1
_OLD: Final = 0


class Options(Struct, frozen=True, kw_only=True):
    """What a caller may ask: see the module. ``carry`` puts what the format cannot say into its free slot."""

    history: History | None = None
    branch: str = MAIN
    carry: bool = True

    def __post_init__(self) -> None:
        """Raise ``MessageError`` for a value of the wrong type."""
        check_arguments("write", Options, structs.asdict(self))


class Written(Struct, frozen=True):
    """A file that was written, the files that belong beside it by their relative names, and the receipt."""

    chunks: tuple[bytes, ...]
    losses: tuple[Loss, ...] = ()
    beside: Mapping[str, bytes] = {}

    @property
    def body(self) -> bytes:
        """The file as one ``bytes``."""
        return b"".join(self.chunks)


class Writing:
    """The state of one writing: what is written, how, and what was lost."""

    def __init__(
        self, file_format: str, transcript: Transcript, entries: Sequence[Entry], options: Options, *, native: bool
    ) -> None:
        """Begin with nothing lost. ``entries`` are those that are written; ``native`` when some have records."""
        self.file_format = file_format
        self.transcript = transcript
        self.thread = transcript.thread
        self.entries = entries
        self.options = options
        self.native = native
        self.beside: dict[str, bytes] = {}
        self.unwritten: set[str] = set()
        """The first entries of groups that have no record of their own."""
        self.whole = False
        """Whether the rendering of a record is all that there is to say, so that it keeps no key of the old one."""
        self._title_written = False
        self._places = {entry.id: place for place, entry in enumerate(entries)}
        self._losses: dict[Loss, None] = {}

    def lose(self, kind: LossKind, what: str, why: str, entry: Entry | None = None, part: int | None = None) -> None:
        """Write one thing that could not be carried into the receipt."""
        place = None if entry is None else self._places.get(entry.id)
        self._losses[Loss(kind, what, why, place, part)] = None

    def add(self, losses: Iterable[Loss]) -> None:
        """Write losses whose places are known into the receipt."""
        self._losses.update(dict.fromkeys(losses))

    def take_title(self) -> str | None:
        """The title of the conversation, for a format that writes it: otherwise the receipt says that it is dropped."""
        self._title_written = True
        return self.transcript.title

    def carry(self, before: int) -> None:
        """Say of what was dropped from a message, after the first ``before`` losses, that its record carries it."""
        every = list(self._losses)
        self._losses = dict.fromkeys([*every[:before], *map(_carried, every[before:])])

    def never_writes(self, *names: str) -> None:
        """Name fields of messages that no record of the format says, once, where a message that is new has them."""
        for name in names:
            stored = (getattr(entry.message, name) for entry in self.entries if not _is_native(entry, self.file_format))
            if any(each is not None for each in stored):
                self.lose("dropped", name.replace("_", " "), "the format has no place for it")

    def is_native(self, entry: str) -> bool:
        """Whether an entry has records of the transcript format, so that its id is one of the file's own."""
        return self.native and _is_native(self.thread.entry(entry), self.file_format)

    @property
    def count(self) -> int:
        """How many losses there are so far."""
        return len(self._losses)

    @property
    def losses(self) -> tuple[Loss, ...]:
        """The receipt so far."""
        title = self.transcript.title
        if title is None or self.native or self._title_written:
            return tuple(self._losses)
        return (*self._losses, Loss("dropped", "title", "the format has no place for it"))

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of the conversation."""
        return self.transcript.metadata


class Rendering(Protocol):
    """Writes what has no records. Made for one conversation; records are JSON without line break or separator."""

    def head(self) -> Iterable[bytes]:
        """What stands before the first message, where the conversation has no record of the transcript format.

        In a document: the text up to and including the bracket that opens the list, as one.
        """
        ...

    def groups(self, entries: Sequence[Entry]) -> Iterable[Sequence[Entry]]:
        """Part neighbouring entries into those that share records."""
        ...

    def render(self, group: Sequence[Entry], old: Sequence[bytes], /) -> Iterable[bytes]:
        """The records of a group; ``old`` are those it had, when it was edited (without separators)."""
        ...

    def tail(self, old: bytes | None, /) -> bytes | None:
        """What stands behind the last item of a document; ``old`` is what stood there. ``None`` for lines."""
        ...


@runtime_checkable
class Continuing(Protocol):
    """What a ``Rendering`` of a format has beside, where a record can grow: a call and its result share one."""

    def continues(self, before: Sequence[Entry], group: Sequence[Entry], /) -> bool:
        """Whether what is new belongs into the record of the last messages that have one."""
        ...


def singly(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """Each entry alone: ``Rendering.groups`` of a transcript format where a message is a record."""
    for entry in entries:
        yield (entry,)


def unsupported(value: Struct, said: Collection[str]) -> list[str]:
    """The fields of a message or a part that hold something, and are not among those that a format says.

    Read from the class, so that a new field is on the receipt until a format has a place for it.
    """
    return [
        field.name.removesuffix("_json").replace("_", " ")
        for field in structs.fields(value)
        if field.name not in said and getattr(value, field.name) != field.default
    ]


def write(
    file_format: str,
    transcript: Transcript,
    make: Any,
    options: Options,
    *,
    framing: Framing,
    tree: bool,
    history: History,
    losses: OnLoss = "report",
) -> Written:
    """Write a conversation; ``make`` gives the ``Rendering`` for a ``Writing``.

    Raises ``NotFoundError`` for a branch that is not there, ``LossError`` when ``losses="raise"`` and there is one.
    """
    draft = _drafted(file_format, transcript, make, options, framing=framing, tree=tree, history=history)
    return _written(file_format, [draft], draft.chunks(), losses)


def write_many(
    file_format: str,
    transcripts: Sequence[Transcript],
    make: Any,
    options: Options,
    *,
    framing: Framing,
    tree: bool,
    history: History,
    losses: OnLoss = "report",
) -> Written:
    """Write several conversations into one file: where they come from one, each record in its place there."""
    drafts = [
        _drafted(file_format, each, make, options, framing=framing, tree=tree, history=history) for each in transcripts
    ]
    if all(draft.as_lines and draft.native for draft in drafts):
        placed = [(each.at, each.new, turn, each) for turn, draft in enumerate(drafts) for each in draft.placed]
        chunks = _lines(
            [each for *_, each in sorted(placed, key=lambda place: place[:3])], drafts[0].rendering, native=True
        )
    else:
        chunks = _joined(drafts)
    return _written(file_format, drafts, chunks, losses)


class _Draft(NamedTuple):
    """A conversation as it will be written."""

    writing: Writing
    rendering: Rendering
    placed: Sequence[_Placed]
    native: bool
    as_lines: bool
    unread: tuple[Loss, ...]

    def chunks(self) -> Iterator[bytes]:
        """The file."""
        if self.as_lines:
            return _lines(self.placed, self.rendering, native=self.native)
        return _document(self.placed, self.rendering)


def _joined(drafts: Sequence[_Draft]) -> Iterator[bytes]:
    """Conversations one behind the other. What is new is an item of a list that was read, or begins on a line."""
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
    framing: Framing,
    tree: bool,
    history: History,
) -> _Draft:
    entries, native = _chosen(file_format, transcript, options, tree=tree, history=history)
    entries, ties = _with_ties(file_format, transcript.thread, entries)
    writing = Writing(file_format, transcript, entries, options, native=native)
    for entry in entries:
        if entry.id in ties:
            writing.lose("converted", "tool result", TIED, entry)
    writing.add(left_out(file_format, transcript.thread, entries, options.branch))
    if not native and (columns := session_of(transcript.metadata).columns):
        writing.lose("dropped", "columns", f"{', '.join(columns)}: beside the messages of the record, in none of them")
    rendering: Rendering = make(writing)
    placed = _placed(file_format, writing, rendering, lines=framing != "document")
    if not options.carry:
        full = Writing(file_format, transcript, entries, structs.replace(options, carry=True), native=native)
        writing.add(list(_not_carried(writing, full, make(full))))
    document = any(each.at == documents.TAIL for each in placed) or (not native and rendering.tail(None) is not None)
    as_lines = framing == "lines" or (framing == "either" and not document)
    return _Draft(writing, rendering, placed, native, as_lines, () if native else transcript.unread)


def _written(file_format: str, drafts: Sequence[_Draft], chunks: Iterable[bytes], losses: OnLoss) -> Written:
    file = tuple(chunks)
    lost = (*_unread(drafts), *(loss for draft in drafts for loss in draft.writing.losses))
    if losses == "raise" and lost:
        raise LossError(file_format, lost)
    return Written(file, lost, {name: data for draft in drafts for name, data in draft.writing.beside.items()})


def _unread(drafts: Sequence[_Draft]) -> Iterator[Loss]:
    """What was not read of the files that the conversations come from, once for each file.

    A conversation that has records of the transcript format is written with those that could not be read.
    """
    files = {id(draft.unread): draft.unread for draft in drafts}
    for unread in files.values():
        yield from unread


# -- what is written ---------------------------------------------------------------------------------------------------


def _chosen(
    file_format: str, transcript: Transcript, options: Options, *, tree: bool, history: History
) -> tuple[Sequence[Entry], bool]:
    thread = transcript.thread
    path = thread.path(options.branch)
    native = any(original_bytes.leads(entry.message, file_format) for entry in thread.entries)
    if native:
        on_path = {entry.id for entry in path}
        return [
            entry
            for entry in thread.entries
            if _is_native(entry, file_format) or ((tree or entry.id in on_path) and not is_record(entry))
        ], True
    if tree and options.history is None:
        return _main_last(thread.entries, path), False
    return list(chosen_history(path, options.history or history)), False


def _with_ties(file_format: str, thread: Thread, entries: Sequence[Entry]) -> tuple[Sequence[Entry], frozenset[str]]:
    """The entries with the ids of the calls that results without one answer, by their position, and which were tied.

    Those that the file itself has are written as they are.
    """
    fresh = {entry.id for entry in entries if names_no_call(entry.message) and not _is_native(entry, file_format)}
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
    """All messages, parents first, the end of the main branch last: programs go on where a file ends."""
    places = {entry.id: place for place, entry in enumerate(path)}
    forks = (places.get(entry.parent or "", -1) for entry in entries if entry.id not in places)
    last = max(forks, default=len(path))
    moved = {entry.id for entry in path[last + 1 :]}
    ordered = (*(entry for entry in entries if entry.id not in moved), *path[last + 1 :])
    return [entry for entry in ordered if not is_record(entry)]


def _is_native(entry: Entry, file_format: str) -> bool:
    return (
        original_bytes.leads(entry.message, file_format)
        or original_bytes.follows(entry.message, file_format) is not None
    )


def is_record(entry: Entry) -> bool:
    """Whether an entry is no message, but what a runtime or a file keeps between messages."""
    return RECORD in entry.message.tags


def chosen_history(path: Sequence[Entry], history: History) -> Iterator[Entry]:
    """What the model sees at the end of a path, what its user saw (and its system messages), or all of it."""
    match history:
        case "model":
            known_messages = {id(message) for message in for_model(path)}
            yield from (entry for entry in path if id(entry.message) in known_messages)
        case "user":
            told = (SystemMessage, DeveloperMessage)
            yield from (
                entry
                for entry in path
                if not is_record(entry) and (is_shown(entry.message) or isinstance(entry.message, told))
            )
        case "all":
            yield from (entry for entry in path if not is_record(entry))


# -- where it stands ---------------------------------------------------------------------------------------------------


class _Placed(NamedTuple):
    """A record and where it stands: behind record ``at``, new ones behind old ones."""

    at: int
    new: int
    number: int
    raw: bytes


def _placed(file_format: str, writing: Writing, rendering: Rendering, *, lines: bool) -> list[_Placed]:
    placed: dict[tuple[int, int, int], _Placed] = {}
    last, number = -1, 0
    on_path = {entry.id for entry in writing.thread.path(writing.options.branch)}
    for group, pieces in _continued(_groups(file_format, writing.entries, rendering), rendering):
        number += 1
        if pieces is not None and original_bytes.untouched(file_format, [entry.message for entry in group]):
            raws = [piece.raw for piece in pieces]
        else:
            olds = [] if pieces is None else [_body(piece.raw) for piece in pieces]
            before = writing.count
            raws = list(rendering.render(group, olds))
            if not raws:
                writing.unwritten.add(group[0].id)
            if writing.options.carry and any(_CARRIES.search(raw) for raw in raws):
                writing.carry(before)
            _note_arguments(writing, group, raws)
            if lines:  # a line break between tokens, from the arguments of a call or a result, would end the record
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


def _not_carried(writing: Writing, full: Writing, rendering: Rendering) -> Iterator[Loss]:
    """What records would carry if they were to: ``rendering`` writes them so for ``full``, and for nobody to read.

    Names that the receipt of ``writing`` has already, of the message or of all, are left out.
    """
    named = {(loss.message, name) for loss in writing.losses for name in _LISTED.split(loss.what.replace("_", " "))}
    left_out = {(loss.message, loss.what) for loss in writing.losses if loss.kind == "dropped"}
    elsewhere = {(loss.message, loss.what) for loss in writing.losses if loss.kind == "approximated"}
    places = {entry.id: place for place, entry in enumerate(writing.entries)}
    for group, pieces in _continued(_groups(full.file_format, full.entries, rendering), rendering):
        if pieces is not None and original_bytes.untouched(full.file_format, [entry.message for entry in group]):
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


def _carried(loss: Loss) -> Loss:
    """A loss of a message whose record carries the message whole."""
    if loss.kind != "dropped" or loss.message is None or "carried" in loss.why:
        return loss
    return structs.replace(loss, kind="converted", why=f"{loss.why}; carried along")


def _note_arguments(writing: Writing, group: Sequence[Entry], raws: Sequence[bytes]) -> None:
    """Write into the receipt which arguments are no JSON, and stand inside of an object now (``one_line``)."""
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
    groups: Iterable[tuple[Sequence[Entry], tuple[original_bytes.Piece, ...] | None]], rendering: Rendering
) -> Iterable[tuple[Sequence[Entry], tuple[original_bytes.Piece, ...] | None]]:
    """Put what is new into the record that it goes on from, where the format has such records."""
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
    file_format: str, entries: Sequence[Entry], rendering: Rendering
) -> Iterator[tuple[Sequence[Entry], tuple[original_bytes.Piece, ...] | None]]:
    """The groups of what is written, with the records of those that have some."""
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
    """Put what stood around a record around what stands in its place."""
    body = _body(old)
    start = old.find(body)
    return b"".join((old[:start], new, old[start + len(body) :]))


# -- the file ----------------------------------------------------------------------------------------------------------


def _lines(placed: Sequence[_Placed], rendering: Rendering, *, native: bool) -> Iterator[bytes]:
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


def _document(placed: Sequence[_Placed], rendering: Rendering) -> Iterator[bytes]:
    head = next((each.raw for each in placed if (each.at, each.new) == (0, _OLD)), None)
    tail = next((each.raw for each in placed if each.at == documents.TAIL), None)
    if head is not None and tail is None:  # one record, which could not be cut
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


def on_one_line(raw: bytes) -> bytes:
    """A record as it stands in a line: strings escape line breaks, so those in it stand between tokens."""
    return raw.replace(b"\n", b" ")
