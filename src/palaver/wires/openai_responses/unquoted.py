"""Take the marks off a JSON string that arrives in pieces.

- What is between the marks is handed out piece by piece, still escaped, each piece a JSON string of its own. An escape,
  or a pair of surrogates, that is cut in two waits for its other half.
- Text that turns out to be no JSON string is handed out as it is, escaped.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Raw

from palaver.core import jsontext

_RUN: Final = re.compile(
    r'(?:[^"\\\x00-\x1f]+|\\["\\/bfnrt]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?=[^\\]|\\[^u]|\\u(?![dD][c-fC-F])[0-9a-fA-F]{4})))*"
)
"""Text and escapes that are whole."""
_HELD: Final = 12
"""The most characters that an unfinished pair of surrogates has."""


class Unquoted:
    """One string. ``head`` is what stands before its text."""

    __slots__ = ("_ended", "_head", "_held", "_plain")

    def __init__(self, head: str) -> None:
        """Begin before the first mark."""
        self._head: str = head
        self._held: str = ""
        self._plain = False
        self._ended = False

    def feed(self, piece: str) -> Raw:
        """Take a piece; give a JSON string of what it says, often an empty one."""
        if self._ended:
            return Raw(b'""')
        text = self._held + piece
        self._held = ""
        if self._head and not self._plain:
            if len(text) < len(self._head) and self._head.startswith(text):
                self._held = text
                return Raw(b'""')
            self._plain = not text.startswith(self._head)
            text = text if self._plain else text[len(self._head) :]
            self._head = ""
        if self._plain:
            return jsontext.raw(text)
        match = _RUN.match(text)
        end = match.end() if match else 0
        rest = text[end:]
        if rest.startswith('"'):
            self._ended = True
        elif len(rest) > _HELD or (rest and rest[0] != "\\"):
            self._plain = True
            return jsontext.raw(text)
        else:
            self._held = rest
        return Raw(b'"%b"' % text[:end].encode("utf-8", "backslashreplace"))
