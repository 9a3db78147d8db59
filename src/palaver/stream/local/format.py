"""The data of a format of text tool calls; ``parser`` runs it.

- A ``Block`` is text between an opening tag and one of its ends. A *grammar* reads the text of a block into calls and
  other parts.
- A ``Head`` is the beginning of a block, up to its own tag. It announces the rest, which is then emitted as it
  arrives: text, reasoning, or the arguments of a call with a known name.
- ``Bare`` is a call without a tag, at the beginning of an answer.
- ``Pair`` is the tags around reasoning. ``split_thinking`` splits a stored text: each ``<think>`` up to the next
  ``</think>`` is reasoning, without nesting; an unclosed one reaches to the end, and a stray closing tag is text.
  Reasoning is trimmed and joined by blank lines; the rest is joined and trimmed.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from palaver.core.parts import MalformedToolCall, Reasoning, Text, ToolCall

# -- reasoning -------------------------------------------------------------------------------------


class Pair(NamedTuple):
    """The tags around reasoning."""

    opens: str
    closes: str


THINK: Final = Pair("<think>", "</think>")
REASONING: Final[dict[str, Pair | None]] = {
    "none": None,
    "think": THINK,
    "bracket": Pair("[THINK]", "[/THINK]"),
    "channel": Pair("<|channel>thought", "<channel|>"),
}
"""Pairs by name: Qwen, DeepSeek, Hermes and LFM2; Magistral (mistral-common v13); Gemma 4."""


def split_thinking(text: str) -> tuple[str | None, str]:
    """The reasoning, ``None`` when there is none, and the answer."""
    thoughts: list[str] = []
    answers: list[str] = []
    at = 0
    while True:
        start = text.find(THINK.opens, at)
        if start < 0:
            answers.append(text[at:])
            break
        answers.append(text[at:start])
        start += len(THINK.opens)
        end = text.find(THINK.closes, start)
        if end < 0:
            thoughts.append(text[start:])
            break
        thoughts.append(text[start:end])
        at = end + len(THINK.closes)
    pieces = [thought for thought in map(str.strip, thoughts) if thought]
    return "\n\n".join(pieces) if pieces else None, "".join(answers).strip()


Read: TypeAlias = list[ToolCall | MalformedToolCall]
"""Calls in their order; the text that is no call stands in its place. A call without an id gets one from the parser."""

Schemas: TypeAlias = Mapping[str, Any]
"""The JSON Schema of each tool's arguments, by the tool's name."""

Grammar: TypeAlias = Callable[[str, Schemas], Read]
"""Reads the text of a block. Total: what it cannot read it gives back as malformed."""


class Probe(Protocol):
    """Reads an answer that begins with what may be a call."""

    def feed(self, text: str, /) -> int | None:
        """How many characters of this text are part of it; ``None`` when all are, and more may be."""

    def finish(self) -> Read | None:
        """The calls in what is part of it; ``None`` when it was text after all."""


@dataclass(frozen=True)
class Head:
    """``read`` gives the empty part that a head announces, behind text that it holds besides; or nothing at all.

    What stands behind the head ends where the block does, and where a block of ``yields_to`` opens.
    """

    closes: str
    read: Callable[[str], tuple[Text | Reasoning | ToolCall, ...]]
    yields_to: tuple[str, ...] = ()


@dataclass(frozen=True)
class Block:
    """Text between tags.

    ``ends`` close it, and so do the openings of the blocks named in ``yields_to``. ``keeps`` says that the opening
    tag is part of what the grammar reads. Without a grammar, a block whose head does not come within ``limit``
    characters is text. ``strings``: the block is JSON, and a tag inside one of its strings is text; a string ends at a
    line break at the latest, as JSON has none in it.
    """

    opens: str
    ends: tuple[str, ...] = ()
    yields_to: tuple[str, ...] = ()
    read: Grammar | None = None
    head: Head | None = None
    keeps: bool = False
    limit: int = 1024
    strings: bool = False


@dataclass(frozen=True)
class Bare:
    """An answer whose first character is ``opens`` may be a call; ``probe`` decides."""

    opens: str
    probe: Callable[[], Probe]


@dataclass(frozen=True)
class Format:
    """One way to write calls and reasoning as text.

    ``marks`` are tags that say nothing by themselves. ``prefilled``: the prompt ends with the opening tag of reasoning.
    ``calls_in_reasoning``: blocks are looked for in reasoning too, which then goes on behind them.
    ``schema`` gives the form of a tool's schema that the templates of these models can read.
    """

    blocks: tuple[Block, ...] = ()
    reasoning: Pair | None = None
    marks: tuple[str, ...] = ()
    bare: Bare | None = None
    prefilled: bool = False
    calls_in_reasoning: bool = False
    schema: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
