"""A reader for JSON that is still arriving.

Rules:

- A finished value is what ``jsontext.value`` would give: ints stay ints, a float keeps its spelling, a lone
  surrogate stays one, the last of two equal keys wins. What it refuses is an error here, but for its limit on
  nesting: there is none.
- Only certain values are shown. An open string is shown as far as it is known; half an escape, and the first half of a
  surrogate pair, wait. A number waits for the character after it, ``true`` for its last letter, a key for its value to
  begin. So each view is contained in the next, but where a key comes a second time.
- Each character is read once and costs the same, however the text is cut and however often it is looked at. An
  open string longer than 4,096 characters is shown anew when it has grown by a 64th, and whole when it ends:
  copying stays a constant per character, whoever holds on to the text shown before. Nothing recurses.
- The view is live: the very dicts and lists that grow. Copy what you keep, change nothing.

Source: RFC 8259.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import UNSET

from palaver.core import jsontext

if TYPE_CHECKING:
    from collections.abc import Callable

_Container: TypeAlias = "dict[str, Any] | list[Any]"

_SPACES: Final = re.compile(r"[ \t\n\r]*")
_SPACE: Final = frozenset(" \t\n\r")
_DIGIT: Final = frozenset("-0123456789")
_LITERALS: Final = {"t": ("true", True), "f": ("false", False), "n": ("null", None)}
_NUMBER_RUN: Final = re.compile(r"[-+.eE0-9]*")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")

# What is certain of a string: plain characters and whole escapes. The escape of a high surrogate is certain once
# it is known whether the escape of a low one follows. Atomic, so that a match never goes back; not ``*+``, which
# Python before 3.11.5 gets wrong around a group (https://github.com/python/cpython/issues/106052).
_RUN: Final = re.compile(
    r'(?>(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u(?![dD][89abAB])[0-9a-fA-F]{4}'
    r"|u[dD][89abAB][0-9a-fA-F]{2}(?=[^\\]|\\[^u]|\\u[0-9a-fA-F]{4})))*)"
)
# What may still become certain, at the end of a piece: 11 characters at most.
_PENDING: Final = re.compile(r"(?:\\u[dD][89abAB][0-9a-fA-F]{2})?(?:\\(?:u[0-9a-fA-F]{0,3})?)?\Z")
_BAD_ESCAPE: Final = re.compile(r"(?:\\u[0-9a-fA-F]{4})?")

_SHORT: Final = 4096
_SHARE: Final = 64


class PartialJSON:
    """Reads the text of one JSON value in pieces and shows what is known of it.

    ::

        >>> reading = PartialJSON()
        >>> reading.feed('{"city": "Par')
        >>> reading.value
        {'city': 'Par'}
        >>> reading.feed('is", "days": 3}')
        >>> reading.value, reading.complete
        ({'city': 'Paris', 'days': 3}, True)
    """

    __slots__ = (
        "_base",
        "_error",
        "_fed",
        "_grown",
        "_in_key",
        "_key",
        "_pending",
        "_pieces",
        "_root",
        "_shown",
        "_stack",
        "_step",
        "_top",
        "_word",
    )

    def __init__(self) -> None:
        """Start before the first character."""
        self._root: Any = UNSET
        self._stack: list[_Container] = []  # the open containers, the innermost last
        self._top: _Container | None = None  # the innermost
        self._key = ""  # of the member being read
        self._in_key = False  # whether the open string is a key
        self._pieces: list[str] = []  # of the open string, not shown yet; or of the open number
        self._grown = 0  # characters in them
        self._shown = ""  # of the open string
        self._word: tuple[str, Any] = ("", None)  # rest of the open literal, and its value
        self._pending = ""  # the beginning of an escape
        self._fed = 0  # characters taken so far
        self._base = 0  # offset of the text being read
        self._error: str | None = None
        self._step: Callable[[PartialJSON, str, int], int] = PartialJSON._value

    @property
    def value(self) -> Any:
        """The value so far, ``UNSET`` before its first character. A live view: copy what you keep, change nothing."""
        return self._root

    @property
    def complete(self) -> bool:
        """Whether one whole value was read, after which only whitespace may follow.

        A number that stands alone ends with the whitespace after it, or with ``finish``.
        """
        return self._step is PartialJSON._end

    @property
    def error(self) -> str | None:
        """Why the text is not JSON, beginning with the offset of the character; the value before it stays."""
        return self._error

    @property
    def offset(self) -> int:
        """Characters read so far; after an error, those before it."""
        return self._fed

    def feed(self, text: str, /) -> None:
        """Read the next piece. After an error it is ignored."""
        if self._error is not None:
            return
        self._base = self._fed - len(self._pending)
        self._fed += len(text)
        if self._pending:
            text = self._pending + text
            self._pending = ""
        position, size = 0, len(text)
        while position < size:
            position = self._step(self, text, position)

    def finish(self) -> None:
        """End the input: a number at the end is complete, any other open value is an error."""
        if self._error is not None:
            return
        self._base = self._fed
        if self._step is PartialJSON._number:
            self._number_ends("", 0)
        if self._step not in {PartialJSON._end, PartialJSON._stop}:
            self._fail("", 0, "the text ends before the value does")

    # -- between values: a step reads one token and gives the position after it ---------------------

    def _value(self, text: str, at: int) -> int:
        char = text[at]
        if char == '"':
            self._in_key = False
            self._put("")
            self._step = PartialJSON._string
        elif char == "{":
            self._open({}, PartialJSON._first_key)
        elif char == "[":
            self._open([], PartialJSON._first_item)
        elif char in _DIGIT:
            self._step = PartialJSON._number
            return at
        elif char in _LITERALS:
            self._word = _LITERALS[char]
            self._step = PartialJSON._literal
            return at
        else:
            return self._space(text, at, "a value")
        return at + 1

    def _first_item(self, text: str, at: int) -> int:
        if text[at] == "]":
            return self._close(at)
        if text[at] not in _SPACE:
            self._step = PartialJSON._value
            return at
        return self._space(text, at, "")

    def _first_key(self, text: str, at: int) -> int:
        return self._close(at) if text[at] == "}" else self._next_key(text, at)

    def _next_key(self, text: str, at: int) -> int:
        if text[at] != '"':
            return self._space(text, at, "a key")
        self._in_key = True
        self._step = PartialJSON._string
        return at + 1

    def _colon(self, text: str, at: int) -> int:
        if text[at] != ":":
            return self._space(text, at, "a colon")
        self._step = PartialJSON._value
        return at + 1

    def _after(self, text: str, at: int) -> int:
        char = text[at]
        in_object = isinstance(self._top, dict)
        if char == ",":
            self._step = PartialJSON._next_key if in_object else PartialJSON._value
            return at + 1
        if char == ("}" if in_object else "]"):
            return self._close(at)
        return self._space(text, at, "a comma or the end of the " + ("object" if in_object else "array"))

    def _end(self, text: str, at: int) -> int:
        return self._space(text, at, "nothing after the value")

    def _stop(self, text: str, _at: int) -> int:
        return len(text)

    def _space(self, text: str, at: int, expected: str) -> int:
        """Pass over whitespace, or fail because something else was ``expected``."""
        if text[at] in _SPACE:
            match = _SPACES.match(text, at)
            return match.end() if match else at
        return self._fail(text, at, f"expected {expected}, got {text[at]!a}")

    # -- containers --------------------------------------------------------------------------------

    def _put(self, item: Any) -> None:
        """Show a value that begins."""
        if self._top is None:
            self._root = item
        elif isinstance(self._top, dict):
            self._top[self._key] = item
        else:
            self._top.append(item)

    def _open(self, container: _Container, step: Callable[[PartialJSON, str, int], int]) -> None:
        self._put(container)
        self._stack.append(container)
        self._top = container
        self._step = step

    def _close(self, at: int) -> int:
        self._stack.pop()
        self._top = self._stack[-1] if self._stack else None
        self._ended()
        return at + 1

    def _ended(self) -> None:
        self._step = PartialJSON._end if self._top is None else PartialJSON._after

    # -- strings -----------------------------------------------------------------------------------

    def _string(self, text: str, at: int) -> int:
        match = _RUN.match(text, at)
        end = match.end() if match else at
        if end > at:
            run = text[at:end]
            if "\\" in run:
                run = jsontext.value(f'"{run}"')
            self._pieces.append(run)
            self._grown += len(run)
        if end < len(text) and text[end] == '"':
            self._string_ends()
            return end + 1
        if not self._in_key and self._grown and (len(self._shown) < _SHORT or self._grown * _SHARE > len(self._shown)):
            self._show()
        if end == len(text):
            return end
        if text[end] == "\\":
            if _PENDING.match(text, end):
                self._pending = text[end:]
                return len(text)
            match = _BAD_ESCAPE.match(text, end)
            return self._fail(text, match.end() if match else end, "no such escape")
        return self._fail(text, end, f"control character {text[end]!a} in a string")

    def _string_ends(self) -> None:
        if self._in_key:
            self._key = "".join(self._pieces)
            self._pieces.clear()
            self._grown = 0
            self._step = PartialJSON._colon
            return
        self._show()
        self._shown = ""
        self._ended()

    def _show(self) -> None:
        """Show the open string as far as it is known."""
        self._shown += "".join(self._pieces)
        self._pieces.clear()
        self._grown = 0
        if isinstance(self._top, list):
            self._top[-1] = self._shown
        else:
            self._put(self._shown)

    # -- numbers and literals ----------------------------------------------------------------------

    def _number(self, text: str, at: int) -> int:
        match = _NUMBER_RUN.match(text, at)
        end = match.end() if match else at
        self._pieces.append(text[at:end])
        return end if end == len(text) else self._number_ends(text, end)

    def _number_ends(self, text: str, end: int) -> int:
        number = "".join(self._pieces)
        self._pieces.clear()
        if not _NUMBER.fullmatch(number):
            return self._fail(text, end - len(number), "not a number")
        self._put(jsontext.value(number))
        self._ended()
        return end

    def _literal(self, text: str, at: int) -> int:
        rest, item = self._word
        char = text[at]
        if char != rest[0]:
            return self._fail(text, at, f"expected {rest[0]!r}, got {char!a}")
        self._word = (rest[1:], item)
        if len(rest) == 1:
            self._put(item)
            self._ended()
        return at + 1

    # -- errors ------------------------------------------------------------------------------------

    def _fail(self, text: str, at: int, why: str) -> int:
        if self._step is PartialJSON._string and not self._in_key:
            self._show()
        self._pieces.clear()
        self._pending = ""
        self._fed = self._base + at
        self._error = f"character {self._fed}: {why}"
        self._step = PartialJSON._stop
        return len(text)
