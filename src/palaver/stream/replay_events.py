"""Replay a whole answer as the events of its stream.

- ``assemble(replay_events(response)) == response``, whatever the size of the pieces.
- Text, reasoning, arguments, signatures and citations come in pieces. Every other part comes whole.

The gateway streams an answer with it when its provider does not stream, and so do scripted models.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from palaver.core.events import (
    ArgumentsDelta,
    CitationDelta,
    DataDelta,
    Event,
    Finish,
    PartEnd,
    PartStart,
    ReasoningDelta,
    SignatureDelta,
    Start,
    TextDelta,
    UsageUpdate,
)
from palaver.core.parts import AssistantPart, Reasoning, Refusal, Text, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.core.request import Response


def replay_events(response: Response, *, size: int = 24) -> Iterator[Event]:
    """Return the events of a whole answer; a delta has at most ``size`` characters."""
    choices = (response.message, *response.alternatives)
    head, *others = (structs.replace(message, content=(), finish_reason=None) for message in choices)
    bare = structs.replace(head, usage=None)
    yield Start(structs.replace(response, message=bare, alternatives=tuple(others)))
    index = 0
    for choice, message in enumerate(choices):
        for part in message.content:
            yield from _part(part, index, choice, size)
            index += 1
    if response.message.usage is not None:
        yield UsageUpdate(response.message.usage)
    for choice, message in enumerate(choices):
        yield Finish(message.finish_reason, message.finish_reason_raw, choice)


def _part(part: AssistantPart, index: int, choice: int, size: int) -> Iterator[Event]:
    match part:
        case Text():
            yield PartStart(index, structs.replace(part, text="", citations=()), choice)
            yield from (TextDelta(index, piece) for piece in _pieces(part.text, size))
            yield from (CitationDelta(index, citation) for citation in part.citations)
        case Refusal():
            yield PartStart(index, structs.replace(part, text=""), choice)
            yield from (TextDelta(index, piece) for piece in _pieces(part.text, size))
        case Reasoning():
            yield PartStart(index, structs.replace(part, text="", signature=None, encrypted=None), choice)
            yield from (ReasoningDelta(index, piece) for piece in _pieces(part.text, size))
            if part.encrypted is not None:
                yield DataDelta(index, part.encrypted)
            if part.signature is not None:
                yield SignatureDelta(index, part.signature)
        case ToolCall():
            yield PartStart(index, structs.replace(part, arguments_json=""), choice)
            yield from (ArgumentsDelta(index, piece) for piece in _pieces(part.arguments_json, size))
        case _:
            yield PartStart(index, part, choice)
    yield PartEnd(index)


def _pieces(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))
