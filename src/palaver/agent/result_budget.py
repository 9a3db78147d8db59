"""The budget of the results of a turn: how many tokens each may take of what is left of the window.

Rules (docs/spec/kairo.md#2.4, KAI-17; golden ``tool_result_budget``; D26):

- The results of a turn together get 35 % of what is left, between 256 and 8192 tokens. Each gets an equal share,
  between 96 and 2048 tokens, and never so much that the shares exceed the total.
- A token is four bytes of UTF-8: four characters of ASCII, fewer of any other script. Media are not counted or cut.
- A result of more than 20,000 characters is compressed first (golden ``output_compress``): repeated lines are folded,
  then the middle is left out.
- The metadata of every result say what it was given, under six keys.

Stability: internal.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from palaver.agent import graphemes
from palaver.agent.limiting import Limited, compress, text_of
from palaver.core.parts import Text, ToolPart

_PERCENT: Final = 35
_TOTAL: Final = (256, 8192)
_EACH: Final = (96, 2048)
_PER_TOKEN: Final = 4
"""Bytes of a token, roughly."""
_LONG: Final = 20_000
"""Characters above which a result is compressed."""
_CONTINUING: Final = range(0x80, 0xC0)
"""Bytes of UTF-8 behind the first one of a code point."""
_KEY: Final = "tool_result_budget_"


class Share(Struct, frozen=True):
    """What one result may take, in tokens, and what was left of the window when the model had answered."""

    tokens: int
    remaining: int


class Fitted(Struct, frozen=True):
    """A result within its share. ``cut`` says whether its text was shortened; ``metadata`` are the six keys."""

    cut: Limited
    metadata: dict[str, Any]


def shares(remaining: int, results: int) -> tuple[int, int]:
    """Tokens that the results of a turn may take: all of them together, and each; ``remaining`` is the free window."""
    total = min(max(max(remaining, 0) * _PERCENT // 100, _TOTAL[0]), _TOTAL[1])
    even = total // max(results, 1)
    return total, even if even < _EACH[0] else min(even, _EACH[1])


class TurnBudget:
    """Gives shares to the results of one turn, in the order in which they come."""

    def __init__(self, remaining: int) -> None:
        """Begin a turn with so many tokens left of the window."""
        self.remaining = max(remaining, 0)
        self._taken = 0
        self._given = 0

    def answered(self, tokens: int) -> None:
        """Count the answer that makes the calls. What began before the answer was whole has its shares already."""
        if not self._given:
            self.remaining = max(self.remaining - tokens, 0)

    def share(self, results: int | None) -> Share:
        """The share of the next result; ``results`` is how many the turn has, ``None`` while that is not known.

        While it is not known (reads that begin early), each may take a quarter of what those before it left.
        """
        total, even = shares(self.remaining, results or 1)
        free = max(total - self._taken, 0)
        others = 4 if results is None else max(results - self._given, 1)
        return Share(min(even, free // others), self.remaining)

    def took(self, tokens: int) -> None:
        """Count a result of so many tokens."""
        self._taken += tokens
        self._given += 1


def fit(content: tuple[ToolPart, ...], whole: str | None, share: Share, limit: int | None) -> Fitted:
    """Cut a result to its share.

    ``whole`` is all of its text where ``content`` is a shortened form of it already. A result that the loop cuts to
    fewer characters, to ``limit``, is left to it.
    """
    original = kept = _tokens(content)
    cut = Limited(content)
    if original > share.tokens:
        said, note, at = "\n".join(_texts(content)), "", 0
        shorter = (Text(compress(said)), *_media(content)) if whole is None and len(said) > _LONG else content
        kept = min(_tokens(shorter), share.tokens)
        if _tokens(shorter) > share.tokens:
            note = f"\n...[truncated by ToolResultBudget: originalTokens={original}, keptTokens={share.tokens}]"
            shorter, at = _beginning(shorter, share.tokens * _PER_TOKEN, note)
        shown = "\n".join(_texts(shorter[: at + 1]))
        if whole is not None or limit is None or graphemes.count(shown) - len(note) <= limit:
            whole = said if whole is None else whole
            cut = Limited(shorter, whole, at, graphemes.count(_common(shown, whole)))
    return Fitted(
        cut,
        {
            f"{_KEY}applied": original > share.tokens,
            f"{_KEY}remaining_tokens": share.remaining,
            f"{_KEY}per_result_tokens": share.tokens,
            f"{_KEY}original_tokens": original,
            f"{_KEY}kept_tokens": kept,
            f"{_KEY}truncated_count": int(original > share.tokens),
        },
    )


def _texts(content: tuple[ToolPart, ...]) -> list[str]:
    return [text for part in content if (text := text_of(part)) is not None]


def _media(content: tuple[ToolPart, ...]) -> list[ToolPart]:
    return [part for part in content if text_of(part) is None]


def _tokens(content: tuple[ToolPart, ...]) -> int:
    return -(-sum([_bytes(text) for text in _texts(content)]) // _PER_TOKEN)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _beginning(content: tuple[ToolPart, ...], size: int, note: str) -> tuple[tuple[ToolPart, ...], int]:
    """The beginning of the text, of so many bytes, with a note, all media, and the place of the note."""
    kept: list[ToolPart] = []
    at: int | None = None
    for part in content:
        text = text_of(part)
        if text is None:
            kept.append(part)
        elif at is None and _bytes(text) <= size:
            kept.append(part)
            size -= _bytes(text)
        elif at is None:
            at = len(kept)
            kept.append(Text(_head(text, size) + note))
    return tuple(kept), at or 0


def _common(one: str, other: str) -> str:
    """The text with which both begin."""
    differs = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
    return one[:differs]


def _head(text: str, size: int) -> str:
    """The beginning of a text, of at most so many bytes, that ends between two characters."""
    encoded = text[: size + 1].encode("utf-8", "surrogatepass")
    end = min(size, len(encoded))
    while 0 < end < len(encoded) and encoded[end] in _CONTINUING:  # inside of a code point
        end -= 1
    head = encoded[:end].decode("utf-8", "surrogatepass")
    characters = graphemes.count(head)
    piece, _ = graphemes.cut(text[: len(head) + 1], 0, characters)
    return head if len(piece) <= len(head) else graphemes.cut(head, 0, characters - 1)[0]
