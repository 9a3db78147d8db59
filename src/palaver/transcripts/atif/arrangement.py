"""Arrange a conversation as one line of steps before it is written, and match sub-agents with their documents.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from palaver.core.messages import BOOKKEEPING, AssistantMessage, Message, ToolMessage
from palaver.core.parts import MalformedToolCall, ToolCall
from palaver.threads.thread import MAIN, Entry, Thread
from palaver.transcripts import documents, original_bytes
from palaver.transcripts.atif.shapes import NAME
from palaver.transcripts.conversation import Transcript, session_of
from palaver.transcripts.documents import fields_of
from palaver.transcripts.fields import listed
from palaver.transcripts.omissions import frame_of, line_of
from palaver.transcripts.writer import is_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def arranged(transcript: Transcript, branch: str) -> tuple[Transcript, tuple[str, ...]]:
    """Return the branch as one line, each result behind its call, and the names of the branches that are left out.

    Raises ``NotFoundError`` for an unknown branch.
    """
    return line_of(NAME, transcript, branch, _settled)


def _settled(path: Sequence[Entry]) -> Iterator[Entry]:
    """Put each result after the answer with its call; results of a later step are part of the step of the call."""
    owners: dict[str, int] = {}
    behind: dict[int, list[Entry]] = {}
    order: list[int] = []
    for place, entry in enumerate(path):
        message = entry.message
        if isinstance(message, AssistantMessage):
            owners |= dict.fromkeys(_ids(message), place)
        owner = owners.get(message.tool_call_id or "") if isinstance(message, ToolMessage) else None
        if owner is None or original_bytes.follows(message, NAME) is not None:
            order.append(place)
            continue
        numbers = original_bytes.numbers_of(path[owner].message, NAME)
        moved = entry if not numbers else structs.replace(entry, message=_belonging(message, numbers[0]))
        behind.setdefault(owner, []).append(moved)
    last: int | None = None
    for place in order:
        follows = original_bytes.follows(path[place].message, NAME) is not None
        if last is not None and not follows:
            yield from behind.pop(last, ())
        last = place if not follows else last
        yield path[place]
    if last is not None:
        yield from behind.pop(last, ())


def _belonging(message: Message, number: int) -> Message:
    return message.replace(provider={**message.provider, BOOKKEEPING + NAME: {original_bytes.OF: number}})


def _ids(message: AssistantMessage) -> Iterator[str]:
    for part in message.content:
        if isinstance(part, (ToolCall, MalformedToolCall)) and part.id:
            yield part.id


# -- sub-agents --------------------------------------------------------------------------------------------------------


def inside(transcript: Transcript) -> list[bytes]:
    """Return the documents of sub-agents in the records of a trajectory."""
    head, tail = frame_of(transcript.thread.entries, NAME)
    document = head + (tail or b"")
    return [bytes(each) for each in listed(fields_of(document), "subagent_trajectories")]


def offspring(root: Transcript, given: Sequence[Transcript]) -> Iterator[Transcript]:
    """Yield a conversation and its descendants, in the order in which a document holds them."""
    yield root
    children = [each for each in given if session_of(each.metadata).parent == root.thread.id]
    for child in sorted(children, key=_place):
        if child is not root:
            yield from offspring(child, given)


def _place(transcript: Transcript) -> int:
    place = session_of(transcript.metadata).more.get("place")
    return place if isinstance(place, int) else documents.TAIL


def same(old: Sequence[Transcript], new: Sequence[Transcript]) -> bool:
    """Return whether conversations match a document."""
    return [_sum(each) for each in old] == [_sum(each) for each in new]


def _sum(transcript: Transcript) -> str:
    messages = [entry.message for entry in transcript.thread.path() if not is_record(entry)]
    return original_bytes.sum_of([original_bytes.bare(message, NAME) for message in messages], times=True)


def laid_over(old: Transcript, new: Transcript) -> Transcript:
    """Return a conversation with the records of a document, as far as its messages still follow each other."""
    mine = [entry.message for entry in new.thread.path()]
    own = [entry for entry in old.thread.path() if not is_record(entry)]
    if len(mine) < len(own) or any(type(a.message) is not type(b) for a, b in zip(own, mine, strict=False)):
        return new
    line = Thread(old.thread.id)
    before: str | None = None
    given = iter(mine)
    every = [*old.thread.entries, *(Entry(entry.id, None, entry.message) for entry in new.thread.path()[len(own) :])]
    for entry in every:
        message = entry.message
        if not is_record(entry):
            stored = message.provider.get(BOOKKEEPING + NAME)
            message = next(given)
            if stored is not None:
                message = message.replace(provider={**message.provider, BOOKKEEPING + NAME: stored})
        line.add([Entry(entry.id, before, message)], {MAIN: entry.id})
        before = entry.id
    return structs.replace(new, thread=line)
