r"""Calls written like Python: ``[f(a=1, b="x"), g()]``.

Grammar::

    calls   [ "[" ] call { separator call } [ "]" ]        a separator is space, "," or ";", or nothing
    call    name "(" [ key "=" value { "," key "=" value } [ "," ] ] ")"
    name    letters, digits, "_", "-" and "."; a key has no "."
    value   string | "[" values "]" | "{" pairs "}" | scalar
    string  'text' or "text"; \n, \t, \r and \uXXXX as in JSON, a backslash before anything else is dropped
    pairs   key or string ":" value, and "," between them
    scalar  up to ",", ")", "]" or "}": True, False, None (and as JSON spells them), a number, else bare text

Rules:

- Arguments become JSON text, in their order. A number that JSON can spell keeps its spelling, whatever its size;
  ``.5``, ``5.``, ``+1`` and ``007`` are spelt anew. ``f(a=)`` is null; an element of an array cannot be empty.
- A call that does not parse is malformed together with everything behind it; the calls before it stay. Where there are
  none, the whole block is malformed.
- Values nested deeper than 64 do not parse. Every step takes a character or stops.

Sources: LFM2 chat template (LiquidAI/LFM2-1.2B-Tool); llama-models, ``llama3_2/text_prompt_format.md`` and
``llama4/prompt_format.md``; rules of DeepAgents for Swift.

Stability: experimental.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from palaver.core import trusted
from palaver.core.jsontext import paired
from palaver.core.parts import ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.stream.local.format import Read, Schemas

DEPTH: Final = 64

_SPACE: Final = re.compile(r"\s*")
_BETWEEN: Final = re.compile(r"[\s,;]*")
_NAME: Final = re.compile(r"[\w.-]+")
_CALLED: Final = re.compile(r"[\w.-]++(?=\s*+\()")
_KEY: Final = re.compile(r"[\w-]+")
_STRING: Final = re.compile(r'"((?>(?:[^"\\]|\\.)*))"' + r"|'((?>(?:[^'\\]|\\.)*))'", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}
_SCALAR: Final = re.compile(r"[^,)\]}]*")
_WORDS: Final = {
    "True": "true",
    "true": "true",
    "False": "false",
    "false": "false",
    "None": "null",
    "null": "null",
    "": "null",
}
_JSON_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?")
_NUMBER: Final = re.compile(r"([-+]?)(?=\.?[0-9])0*+([0-9]*+)(?:\.([0-9]*+))?((?:[eE][-+]?[0-9]++)?)")


_BRACKETS: Final = {"[": ("]", "element"), "{": ("}", "pair")}


class NotPythonic(Exception):  # noqa: N818 (never leaves this package)
    """The text does not follow the grammar."""


def quoted(text: str) -> str:
    """A string as JSON text."""
    return json.dumps(text, ensure_ascii=False)


def scalar(text: str) -> str:
    """A word, a number or bare text as JSON text."""
    text = text.strip()
    if text in _WORDS:
        return _WORDS[text]
    if _JSON_NUMBER.fullmatch(text):
        return text
    match = _NUMBER.fullmatch(text)
    if match:
        sign, whole, fraction, power = match.groups()
        digits = f"{whole or '0'}.{fraction or '0'}" if fraction is not None else whole or "0"
        return f"{sign.strip('+')}{digits}{power}"
    return quoted(text)


def unescaped(text: str) -> str:
    """The text of a string without its quotes."""
    if "\\" not in text:
        return text
    return paired(_ESCAPE.sub(lambda match: _ESCAPES.get(match[1]) or _character(match[1]), text))


def _character(escape: str) -> str:
    return chr(int(escape[1:], 16)) if len(escape) > 1 else escape


class Reader:
    """A place in the text, and the JSON written so far."""

    def __init__(self, text: str, at: int) -> None:
        self.text = text
        self.at = at
        self.written: list[str] = []

    def run(self, step: Callable[..., None], *given: Any) -> None:
        """Do the outermost step."""
        try:
            step(*given)
        except RecursionError:  # the caller stands deep already
            raise NotPythonic("nested too deeply") from None

    def skip(self) -> str:
        """Pass over space; the character that follows, ``""`` at the end."""
        self.at = after(_SPACE, self.text, self.at)
        return self.text[self.at : self.at + 1]

    def need(self, char: str) -> None:
        """Pass over a character that must come."""
        if self.skip() != char:
            raise NotPythonic(f"expected {char!r}, got {self.text[self.at : self.at + 1]!a}")
        self.at += 1

    def word(self, pattern: re.Pattern[str], what: str) -> str:
        """Text that follows a pattern."""
        self.skip()
        match = pattern.match(self.text, self.at)
        if not match or not match[0]:
            raise NotPythonic(f"expected {what}, got {self.text[self.at : self.at + 1]!a}")
        self.at = match.end()
        return match[0]

    def quote(self) -> bool:
        """Whether a string begins here."""
        return self.text.startswith(('"', "'"), self.at)

    def string(self) -> str:
        """The text of a string."""
        match = _STRING.match(self.text, self.at)
        if match is None:
            raise NotPythonic("a string does not end")
        self.at = match.end()
        return unescaped(match[1] if match[1] is not None else match[2])

    def value(self, depth: int, *, may_be_empty: bool = False) -> None:
        """Write any value."""
        char = self.skip()
        if char in _BRACKETS:
            closes, one = _BRACKETS[char]
            if depth >= DEPTH:
                raise NotPythonic("nested too deeply")
            self.at += 1
            self.listed(char, closes, getattr(self, one), depth + 1)
        elif self.quote():
            self.written.append(quoted(self.string()))
        else:
            found = self.text[self.at : after(_SCALAR, self.text, self.at)]
            if not found.strip() and not may_be_empty:
                raise NotPythonic(f"expected a value, got {char!a}")
            self.at += len(found)
            self.written.append(scalar(found))

    def element(self, depth: int) -> None:
        """One value of an array."""
        self.value(depth)

    def pair(self, depth: int) -> None:
        """One member of an object."""
        self.skip()
        self._member(self.string() if self.quote() else self.word(_KEY, "a key"), ":", depth)

    def argument(self, depth: int) -> None:
        """One argument of a call."""
        self._member(self.word(_KEY, "an argument"), "=", depth)

    def _member(self, key: str, sign: str, depth: int) -> None:
        self.need(sign)
        self.written.append(quoted(key) + ": ")
        self.value(depth, may_be_empty=True)

    def listed(self, opens: str, closes: str, one: Callable[[int], None], depth: int) -> None:
        """Items up to a closing bracket, with commas between them."""
        self.written.append(opens)
        separator = ""
        while self.skip() != closes:
            self.written.append(separator)
            separator = ", "
            one(depth)
            if self.skip() != closes:
                self.need(",")
        self.at += 1
        self.written.append(closes)


def read_call(text: str, at: int) -> tuple[ToolCall, int]:
    """The call that begins at ``at``, and where it ends. Raises ``NotPythonic``."""
    reader = Reader(text, at)
    name = reader.word(_NAME, "a name")
    reader.need("(")
    reader.run(reader.listed, "(", ")", reader.argument, 0)
    return trusted.ToolCall("", name, "{" + "".join(reader.written[1:-1]) + "}"), reader.at


def read(text: str, _schemas: Schemas) -> Read:
    """Read a block of calls."""
    found: Read = []
    at = after(_BETWEEN, text, 0)
    in_list = text.startswith("[", at)
    at = after(_BETWEEN, text, at + in_list)
    while at < len(text):
        if in_list and text[at] == "]":
            in_list = False
            at += 1
        else:
            try:
                call, at = read_call(text, at)
            except NotPythonic as error:
                name = _CALLED.match(text, at)
                raw = text[at:] if found else text
                found.append(trusted.MalformedToolCall(raw.strip(), str(error), name[0] if name else None))
                break
            found.append(call)
        at = after(_BETWEEN, text, at)
    return found


def after(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Where a pattern that matches anywhere ends."""
    match = pattern.match(text, at)
    return match.end() if match else at
