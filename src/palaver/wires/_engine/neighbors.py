"""Join neighbouring messages of one role: one list of texts, as chat templates that want alternating roles need it.

Rules (docs/spec/codebuff.md#2.2, CBF-11; docs/adr/0030-where-neighbours-are-joined.md):

- Two neighbors are alike when role, agent, tags (lifetimes are tags) and provider fields are equal. All others stay
  apart, unless the wire demands alternation. Results of tools never join.
- Texts of users stay parts of their own, where the wire has parts. Texts of system messages are joined by a blank line.
- Formats that keep each message apart switch it off (``Options.join_neighbors``).
- A request that goes back to its wire, edited or not, or that grew from one, keeps the boundaries it had.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from palaver.core.messages import BOOKKEEPING, DeveloperMessage, SystemMessage, UserMessage
from palaver.core.pairs import REPAIR
from palaver.core.parts import Opaque

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from palaver.core.messages import Message
    from palaver.core.request import Request
    from palaver.wires._engine.encode_state import Context

BLANK_LINE: Final = "\n\n"
_JOINED: Final = (UserMessage, SystemMessage, DeveloperMessage)


def are_alike(before: Message | None, message: Message, context: Context) -> bool:
    """Whether a message joins the one before it."""
    if not context.options.join_neighbors:
        return False
    if before is None or type(before) is not type(message) or not isinstance(message, _JOINED):
        return False
    if context.request is not None and _came_from(context.request) == context.wire:
        return False
    if any(isinstance(part, Opaque) for each in (before, message) for part in each.content):
        return False
    made_here = REPAIR in {before.source, message.source}  # such a note has no caller whose boundary could be lost
    if not made_here and (before.tags != message.tags or before.agent != message.agent):
        return False
    return before.provider_json == message.provider_json or _fields(before) == _fields(message)


def _came_from(request: Request) -> str | None:
    """The wire that a request was decoded from, also where it was edited since."""
    origin = request.origin if request.original is None else request.original.wire
    return None if origin is None else origin.partition(":")[0]


def _fields(message: Message) -> Mapping[str, Any]:
    if message.provider_json is UNSET:
        return {}
    return {key: value for key, value in message.provider.items() if not key.startswith(BOOKKEEPING)}


def join_neighbors(written: list[Any], alike: Sequence[bool], kind: str, *, lists: bool = True) -> list[Any]:
    """Join wire messages with those before them, where ``alike`` says so and the contents can be joined.

    ``kind`` is the type of a text part, ``lists`` says that content may be a list.
    """
    if True not in alike:
        return written
    runs: list[list[Any]] = []
    for fields, goes_on in zip(written, alike, strict=True):
        if goes_on and _holds_content(fields) and _holds_content(runs[-1][-1]):
            runs[-1].append(fields)
        else:
            runs.append([fields])
    return [run[0] if len(run) == 1 else _one(run, kind, lists=lists) for run in runs]


def _holds_content(fields: dict[str, Any]) -> bool:
    return isinstance(fields.get("content"), (str, list))


def _one(run: list[dict[str, Any]], kind: str, *, lists: bool) -> dict[str, Any]:
    contents = [fields["content"] for fields in run]
    if all(isinstance(each, str) for each in contents) and (run[0]["role"] != "user" or not lists):
        return {**run[0], "content": BLANK_LINE.join(contents)}
    parts = ([{"type": kind, "text": each}] if isinstance(each, str) else each for each in contents)
    return {**run[0], "content": [part for each in parts for part in each]}
