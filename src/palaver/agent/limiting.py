"""How much of a tool's result the model is sent.

Rules:

- ``limit`` cuts the text of a result at a number of characters (grapheme clusters) and says so in the words of DAS-24.
  Text and JSON share the limit, in their order; a JSON value that is cut becomes text. Media and opaque parts are kept.
  What the model is not sent is given back whole, so that it can be kept: ``Limited.with_handle`` then tells the model
  how to read the rest.
- ``share_out`` divides what is left of a context window between the results of a turn (KAI-17): a total of 35 % of it,
  between 256 and 8192 tokens; each result gets an equal share of that, between 96 and 2048 tokens, and never so much
  that the shares exceed the total (D26). A token is four code points. Its record has six keys, for the metadata.
- ``compress`` folds runs of more than three equal lines into one, then cuts the middle out of a long text.
- Pure: what was cut off is written nowhere here.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

from msgspec import Struct

from palaver.agent import graphemes
from palaver.core.parts import Json, Text, ToolPart

CHARACTERS: Final = 6000
"""The most characters of a result, where neither tool nor agent says otherwise (DAS-24)."""
READ_RESULT: Final = "read_result"
"""The tool that reads on in a result that was cut."""


# -- one result ------------------------------------------------------------------------------------------------------


class Limited(Struct, frozen=True):
    """A result as the model is sent it. ``whole`` is all of its text, where something was cut off, else ``None``.

    ``whole`` is the text of the parts, those of several joined by a line break. ``at`` is the place of the note in
    ``content``, ``shown`` how many characters stand before it.
    """

    content: tuple[ToolPart, ...]
    whole: str | None = None
    at: int = 0
    shown: int = 0

    def with_handle(self, handle: str) -> tuple[ToolPart, ...]:
        """The content, with a second line in the note that says how to read the rest; ``handle`` names the whole."""
        noted = self.content[self.at] if self.whole is not None else None
        if not isinstance(noted, Text):
            return self.content
        line = f'\n[To read on, call {READ_RESULT} with {{"handle": "{handle}", "start": {self.shown}}}.]'
        return (*self.content[: self.at], Text(noted.text + line), *self.content[self.at + 1 :])


def limit(content: tuple[ToolPart, ...], characters: int = CHARACTERS) -> Limited:
    """Cut the text of a result at ``characters``; what fits is given back as it is."""
    texts = [text_of(part) for part in content]
    said = [text for text in texts if text is not None]
    if sum(map(len, said)) <= characters:  # a character has one code point at least
        return Limited(content)
    total = sum(map(graphemes.count, said))
    if total <= characters:
        return Limited(content)
    note = f"\n[Result truncated: showing the first {characters} of {total} characters.]"
    kept: list[ToolPart] = []
    left, at = characters, None
    for part, text in zip(content, texts, strict=True):
        if text is None:
            kept.append(part)
            continue
        if at is not None:
            continue
        piece, size = graphemes.cut(text, 0, left)
        if size <= left:
            kept.append(part)
            left -= size
        else:
            at = len(kept)
            kept.append(Text(piece + note))
    return Limited(tuple(kept), "\n".join(said), at or 0, characters)


def stretch(whole: str, start: int, characters: int = CHARACTERS) -> str:
    """What ``read_result`` gives: a stretch of a whole result, with a note when more follows."""
    piece, total = graphemes.cut(whole, max(start, 0), characters)
    end = max(start, 0) + characters
    more = f'\n[Characters {start} to {end} of {total}. Read on with "start": {end}.]'
    return piece + more if end < total else piece


def text_of(part: ToolPart) -> str | None:
    """The text of a part that counts and may be cut; ``None`` for media and opaque parts."""
    if isinstance(part, Text):
        return part.text
    return bytes(part.value_json).decode() if isinstance(part, Json) else None


# -- the results of a turn -------------------------------------------------------------------------------------------

PER_TOKEN: Final = 4
"""Code points of a token, roughly."""
_PART: Final = 35
"""Percent of the remaining window that the results of a turn may take."""
_TOTAL: Final = (256, 8192)
_EACH: Final = (96, 2048)
_KEY: Final = "tool_result_budget_"


class Shared(Struct, frozen=True):
    """The results of a turn as the model is sent them, the whole text of each that was cut, and a record of it."""

    contents: tuple[tuple[ToolPart, ...], ...]
    whole: tuple[str | None, ...]
    metadata: dict[str, Any]


def shares(remaining: int, results: int) -> tuple[int, int]:
    """Tokens that the results of a turn may take: all of them together, and each; ``remaining`` is the free window."""
    total = min(max(max(remaining, 0) * _PART // 100, _TOTAL[0]), _TOTAL[1])
    even = total // max(results, 1)
    return total, even if even < _EACH[0] else min(even, _EACH[1])


def share_out(contents: Sequence[tuple[ToolPart, ...]], remaining: int) -> Shared:
    """Cut the results of a turn to their shares of ``remaining`` tokens."""
    _, each = shares(remaining, len(contents))
    cut = [_shortened(content, each) for content in contents]
    metadata = {
        f"{_KEY}applied": any(whole is not None for _, whole, _, _ in cut),
        f"{_KEY}remaining_tokens": remaining,
        f"{_KEY}per_result_tokens": each,
        f"{_KEY}original_tokens": sum(original for _, _, original, _ in cut),
        f"{_KEY}kept_tokens": sum(kept for _, _, _, kept in cut),
        f"{_KEY}truncated_count": sum(whole is not None for _, whole, _, _ in cut),
    }
    return Shared(tuple([content for content, *_ in cut]), tuple([whole for _, whole, *_ in cut]), metadata)


def _shortened(content: tuple[ToolPart, ...], tokens: int) -> tuple[tuple[ToolPart, ...], str | None, int, int]:
    """The content, its whole text where it was cut, and its tokens before and after."""
    said = [text for part in content if (text := text_of(part)) is not None]
    original = -(-sum(map(len, said)) // PER_TOKEN)
    if original <= tokens:
        return content, None, original, original
    note = f"\n...[truncated by ToolResultBudget: originalTokens={original}, keptTokens={tokens}]"
    kept: list[ToolPart] = []
    left: int | None = tokens * PER_TOKEN
    for part in content:
        text = text_of(part)
        if text is None:
            kept.append(part)
        elif left is not None and len(text) <= left:
            kept.append(part)
            left -= len(text)
        elif left is not None:
            kept.append(Text(text[:left] + note))
            left = None
    return tuple(kept), "\n".join(said), original, tokens


# -- one text --------------------------------------------------------------------------------------------------------

_RUN: Final = 3
"""Equal lines in a row that are left alone."""


def compress(text: str, most: int = 20_000, head: int = 2000, tail: int = 3000) -> str:
    """Fold runs of more than three equal lines; of what is still above ``most`` code points, keep head and tail."""
    lines: list[str] = []
    for line, run in groupby(text.split("\n")):
        times = sum(1 for _ in run)
        lines += [line] * times if times <= _RUN else [line, f"[repeated {times - 1} more time(s)]"]
    folded = "\n".join(lines)
    if len(folded) <= most:
        return folded
    omitted = len(folded) - head - tail
    return f"{folded[:head]}\n[... {omitted} chars omitted (middle) ...]\n{folded[len(folded) - tail :]}"
