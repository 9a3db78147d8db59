"""Parts of a conversation that are not among the written messages: for the receipt of every format.

Rules (docs/spec/dialects.md#17):

- A branch with a message that is not written is named.
- Messages of the written branch that its view hides are counted. A message that a compaction copied counts as written
  when its copy is.
- Records of another format are counted, with their types. The parts before and behind a document's list do not count.

A conversation as one line, for a document that holds no tree: the written branch, and its frame
(docs/spec/dialects.md#17.6):

- One branch is written. Records of the document on other branches are left out, so that an earlier place in the
  conversation can be continued; its head and its tail (the frame) are written with every branch.
- The branches that are left out are named, for the receipt.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from palaver.core import jsontext
from palaver.core.errors import PalaverError
from palaver.core.messages import FlushMarker, RescueMarker
from palaver.core.request import Loss
from palaver.threads.thread import Entry, Thread
from palaver.threads.view import RECORD
from palaver.transcripts import documents, original_bytes
from palaver.transcripts.fields import string

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from palaver.core.messages import Message
    from palaver.transcripts.conversation import Transcript


# --- left out ---------------------------------------------------------------------------------------------------------


ONE_LINE: Final = "the file holds one branch; each of the others is a file of its own"
HIDDEN: Final = "{} of the branch that the history does not show"
_MOST_TYPES: Final = 8


def left_out(file_format: str, thread: Thread, written: Sequence[Entry], branch: str) -> Iterator[Loss]:
    """Name the branches, the hidden messages and the records of other formats that are not written."""
    stored = {entry.id for entry in written}
    yield from branches_left_out(thread, stored, branch)
    hidden = [entry.message for entry in thread.path(branch) if entry.id not in stored and _counts(entry)]
    if hidden:
        said = {(type(entry.message), entry.message.content) for entry in written}
        hidden = [message for message in hidden if (type(message), message.content) not in said]
    if hidden:
        yield Loss("dropped", "messages", HIDDEN.format(len(hidden)))
    others = [entry for entry in thread.entries if entry.id not in stored]
    yield from records_left_out(others, lambda name: name != file_format)


def branches_left_out(thread: Thread, written: Collection[str], branch: str) -> Iterator[Loss]:
    """Name the branches with a message that is not written, and those without a name by their last entry."""
    present = {*written, *(entry.id for entry in thread.path(branch))}
    if all(entry.id in present or not _counts(entry) for entry in thread.entries):
        return
    lacking: dict[str | None, bool] = {None: False}  # whether a message on the path to an entry is not written
    for entry in thread.entries:  # parents first
        lacking[entry.id] = lacking[entry.parent] or (entry.id not in present and _counts(entry))
    heads = thread.branches
    named = [f"branch {name}" for name, head in heads.items() if lacking[head]]
    stored = set(heads.values())
    named += [f"branch ending in {leaf}" for leaf in thread.leaves if lacking[leaf] and leaf not in stored]
    for what in named:
        yield Loss("dropped", what, ONE_LINE)


def _counts(entry: Entry) -> bool:
    """Return whether an entry is a message, not a record or a marker."""
    return RECORD not in entry.message.tags and not isinstance(entry.message, (FlushMarker, RescueMarker))


def records_left_out(entries: Sequence[Entry], of: Callable[[str], bool]) -> Iterator[Loss]:
    """Count the records of each of some formats that are no messages, with their types."""
    found: dict[str, list[str]] = {}
    for entry in entries:
        for name in _formats(entry.message) if RECORD in entry.message.tags else ():
            kind = _type(entry.message, name) if of(name) else None
            if kind is not None:
                found.setdefault(name, []).append(kind)
    for name, types in found.items():
        named = [each for each in dict.fromkeys(types) if each]
        listed = ", ".join(named[:_MOST_TYPES]) + (", …" if len(named) > _MOST_TYPES else "")
        count = f"{len(types)} of {name} that {'is no message' if len(types) == 1 else 'are no messages'}"
        yield Loss("dropped", "records", f"{count}: {listed}" if named else count)


def _formats(message: Message) -> list[str]:
    """Return the formats of which a message keeps records."""
    return [name for name in original_bytes.formats(message) if original_bytes.leads(message, name)]


def _type(message: Message, file_format: str) -> str | None:
    """Return the type of a message's first record that is not blank; empty without a type, ``None`` for a frame."""
    pieces = original_bytes.records_of(file_format, [message]) or ()
    piece = next((each for each in pieces if each.raw.strip()), None)
    raw = b"" if piece is None else piece.raw.removeprefix(b"\xef\xbb\xbf").strip()
    if piece is None or not raw or (piece.at in {0, documents.TAIL} and not jsontext.is_json(raw)):
        return None
    try:
        return string(jsontext.fields(raw), "type") or ""
    except PalaverError:
        return ""  # a line that is not an object


# --- linear -----------------------------------------------------------------------------------------------------------


def _as_it_is(path: Sequence[Entry]) -> Iterable[Entry]:
    return path


def line_of(
    file_format: str,
    transcript: Transcript,
    branch: str,
    order: Callable[[Sequence[Entry]], Iterable[Entry]] = _as_it_is,
) -> tuple[Transcript, tuple[str, ...]]:
    """Return the branch as one line, in the order of ``order``, and the names of the branches that are left out.

    Raises ``NotFoundError`` for an unknown branch.
    """
    thread = transcript.thread
    path = list(thread.path(branch))
    stored = {entry.id for entry in path}
    frame = [entry for entry in thread.entries if entry.id not in stored and frames(entry, file_format)]
    first = [entry for entry in frame if documents.TAIL not in original_bytes.numbers_of(entry.message, file_format)]
    last = [entry for entry in frame if documents.TAIL in original_bytes.numbers_of(entry.message, file_format)]
    line = Thread(thread.id)
    before: str | None = None
    for entry in order([*first, *path, *last]):
        line.add([Entry(entry.id, before, entry.message)])
        before = entry.id
    line.add((), {branch: before})
    others = [name for name, leaf in thread.branches.items() if leaf is not None and leaf not in stored]
    named = {thread.branches[name] for name in others}
    nameless = [f"ending in {leaf}" for leaf in thread.leaves if leaf not in stored and leaf not in named]
    return structs.replace(transcript, thread=line), (*others, *nameless)


def frames(entry: Entry, file_format: str) -> bool:
    """Return whether an entry keeps the part before or behind the list of a document."""
    return any(number in {0, documents.TAIL} for number in original_bytes.numbers_of(entry.message, file_format))


def frame_of(entries: Iterable[Entry], file_format: str) -> tuple[bytes, bytes | None]:
    """Return the parts before and behind the list of a document; ``None`` for a document that could not be cut."""
    stored: dict[Any, bytes] = {}
    for entry in entries:
        if frames(entry, file_format):
            stored |= {piece.at: piece.raw for piece in original_bytes.records_of(file_format, [entry.message]) or ()}
    return stored.get(0, b""), stored.get(documents.TAIL)
