"""A conversation made one line, for a document that holds no tree: the branch that is written, and its frame.

Rules (docs/spec/dialects.md#17.6):

- What is written is one branch. Records of the document that lie on others are left out, so that an older place in the
  conversation can be gone on from; its head and its tail (the frame) are written with every branch.
- The branches that are left out are named, for the receipt.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from palaver.dialects import documents, kept
from palaver.dialects.conversation import Transcript
from palaver.threads.thread import Entry, Thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


def _as_it_is(path: Sequence[Entry]) -> Iterable[Entry]:
    return path


def line_of(
    dialect: str, transcript: Transcript, branch: str, order: Callable[[Sequence[Entry]], Iterable[Entry]] = _as_it_is
) -> tuple[Transcript, tuple[str, ...]]:
    """The branch as one line, in the order that ``order`` gives it, and the names of the branches that are left out.

    Raises ``NotFoundError`` for a branch that is not there.
    """
    thread = transcript.thread
    path = list(thread.path(branch))
    held = {entry.id for entry in path}
    frame = [entry for entry in thread.entries if entry.id not in held and frames(entry, dialect)]
    first = [entry for entry in frame if documents.TAIL not in kept.numbers_of(entry.message, dialect)]
    last = [entry for entry in frame if documents.TAIL in kept.numbers_of(entry.message, dialect)]
    line = Thread(thread.id)
    before: str | None = None
    for entry in order([*first, *path, *last]):
        line.add([Entry(entry.id, before, entry.message)])
        before = entry.id
    line.add((), {branch: before})
    others = [name for name, leaf in thread.branches.items() if leaf is not None and leaf not in held]
    named = {thread.branches[name] for name in others}
    nameless = [f"ending in {leaf}" for leaf in thread.leaves if leaf not in held and leaf not in named]
    return Transcript(line, transcript.title, transcript.metadata, transcript.unread), (*others, *nameless)


def frames(entry: Entry, dialect: str) -> bool:
    """Whether an entry keeps what stands before or behind the list of a document."""
    return any(number in {0, documents.TAIL} for number in kept.numbers_of(entry.message, dialect))


def frame_of(entries: Iterable[Entry], dialect: str) -> tuple[bytes, bytes | None]:
    """What stands before and behind the list of a document; ``None`` for one that could not be cut."""
    held: dict[Any, bytes] = {}
    for entry in entries:
        if frames(entry, dialect):
            held |= {piece.at: piece.raw for piece in kept.records_of(dialect, [entry.message]) or ()}
    return held.get(0, b""), held.get(documents.TAIL)
