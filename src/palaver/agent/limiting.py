"""How much of a tool's result the model is sent.

Rules:

- ``limit`` cuts the text of a result at a number of characters (grapheme clusters) and says so in the words of DAS-24.
  Text and JSON share the limit, in their order; a JSON value that is cut becomes text. Media and opaque parts are kept.
  What the model is not sent is given back whole, so that it can be kept: ``Limited.with_handle`` then tells the model
  how to read the rest.
- ``compress`` folds runs of more than three equal lines into one, then cuts the middle out of a long text.
- Pure: what was cut off is written nowhere here.

Stability: experimental.
"""

from __future__ import annotations

from itertools import groupby
from typing import Final

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
