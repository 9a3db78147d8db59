"""What is streamed: pieces of text, and pieces of the arguments of a tool call.

Rules:

- Everything comes from a seed. The same number of pieces is the same pieces.
- Text comes in words, as models send it; one word in ten is not ASCII in a quarter of the paragraphs.
- Arguments are one JSON object, cut into pieces of one size: 50 characters make 1 MB of 20,000 pieces. Its
  strings are prose, code and rows of a table, nested, with escapes.
- ``events`` are palaver's own for the same pieces: what a wire's decoder gives, with a start, an end, usage.
"""

from __future__ import annotations

import itertools
import json
import re
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import prose

from palaver import AssistantMessage, Response, Text, ToolCall, Usage
from palaver.core.events import ArgumentsDelta, Event, Finish, PartEnd, PartStart, Start, TextDelta, UsageUpdate

if TYPE_CHECKING:
    from collections.abc import Sequence

Kind: TypeAlias = Literal["text", "arguments"]
KINDS: tuple[Kind, ...] = ("text", "arguments")
SEED = 20250102
WIDTH = 50
TOOL = "write_report"
CALL_ID = "call_Jm3xO9aQ7bVwT2"


@cache
def pieces(kind: Kind, count: int, width: int = WIDTH) -> tuple[str, ...]:
    """Give so many pieces; ``width`` is the size of a piece of arguments."""
    return _text(count) if kind == "text" else _arguments(count, width)


@cache
def whole(kind: Kind, count: int, width: int = WIDTH) -> str:
    """Give the text that the pieces make."""
    return "".join(pieces(kind, count, width))


def _text(count: int) -> tuple[str, ...]:
    random = Random(SEED)
    words: list[str] = []
    while len(words) < count:
        words += [*re.findall(r"\s*\S+", prose.text(random, 4000)), "\n\n"]
    return tuple(words[:count])


def _arguments(count: int, width: int) -> tuple[str, ...]:
    random = Random(SEED)
    size = count * width
    sections: list[dict[str, Any]] = []
    length = 0
    while length < size:
        section = {
            "title": prose.text(random, 30),
            "body": prose.text(random, 600),
            "code": prose.code(random, 300),
            "table": prose.rows(random, 400),
            "search": prose.arguments(random),
            "final": None,
        }
        sections.append(section)
        length += len(json.dumps(section, ensure_ascii=False))
    text = json.dumps({"path": "out/report.md", "sections": sections}, ensure_ascii=False)
    cuts = [len(text) * index // count for index in range(count + 1)]
    return tuple(text[start:end] for start, end in itertools.pairwise(cuts))


def events(kind: Kind, count: int, width: int = WIDTH) -> list[Event]:
    """Give palaver's events of an answer of one part."""
    part, delta = (Text(""), TextDelta) if kind == "text" else (ToolCall(CALL_ID, TOOL, ""), ArgumentsDelta)
    made: list[Event] = [Start(Response(AssistantMessage(model="gpt-5"))), PartStart(0, part)]
    made += [delta(0, piece) for piece in pieces(kind, count, width)]
    made += [
        PartEnd(0),
        UsageUpdate(Usage(input=512, output=count)),
        Finish("stop" if kind == "text" else "tool_calls"),
    ]
    return made


def same(found: str, wanted: str) -> None:
    """Refuse what is not what was put in."""
    if found != wanted:
        at = next((i for i, (one, other) in enumerate(zip(found, wanted, strict=False)) if one != other), -1)
        msg = f"assembled {len(found)} characters, not the {len(wanted)} that were sent; they differ at {at}"
        raise ValueError(msg)


def check_part(content: Sequence[Any], kind: Kind, wanted: str) -> None:
    """Refuse a palaver message whose one part is another."""
    part = content[0]
    same(part.text if kind == "text" else part.arguments_json, wanted)
