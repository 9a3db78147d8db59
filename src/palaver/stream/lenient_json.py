r"""A tolerant reader for text that is meant to be a JSON object.

Rules:

- One pass, left to right. Valid numbers and strings, and the space between, are copied unchanged; everything else is
  rewritten and noted. Nothing recurses, and every step reads at least one character.
- Where the text ends early, the certain part is kept: strings, arrays and objects are closed, a cut escape is dropped,
  ``tru`` becomes ``true``. A number at the very end may be the beginning of a longer one: it is dropped, like a key
  without a value.
- A quote ends a string when what follows is what may follow a string; otherwise it belongs to the string. When
  such a string finds no end, it and all later strings end at their first quote.
- A backslash that begins no escape stands for itself. In a string that begins like ``C:\dir`` and holds such a
  backslash, every single one does, also in ``\new`` and ``\temp``; ``\'`` is an apostrophe.
- A bracket that closes an outer container closes the inner ones too; one that closes nothing is dropped.
- Notes of one kind are counted and name three places, so that they stay small.

Stability: experimental.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from palaver.core import jsontext

# An opening quote and the one that closes it; curly quotes are also used the German way.
_QUOTES: Final = {
    '"': '"',
    "'": "'",
    "`": "`",
    "\u201c": "\u201d",
    "\u201d": "\u201d",
    "\u201e": "\u201c",
    "\u2018": "\u2019",
    "\u2019": "\u2019",
}
_OPENING: Final = "".join(_QUOTES)
_CLOSERS: Final = {"{": "}", "[": "]"}

_GAP: Final = re.compile(
    r"(?P<space>[ \t\n\r]++)|(?P<comment>//[^\n\r]*+|/\*(?s:.)*?(?:\*/|\Z))|(?P<escaped>(?>(?:\\[nrt])+))"
    r"|(?P<odd>[\s\ufeff\u200b-\u200d\u2060]++)"
)
_GAP_NOTES: Final = {
    "comment": "comment dropped",
    "escaped": "escaped whitespace between values dropped",
    "odd": "unusual whitespace written as a space",
}

# What may follow a string. Nothing goes back: one look never reads a character twice. Groups are atomic, not ``*+``
# (see ``partial``).
_W: Final = r"(?>(?:\s|\\[nrt])*)"
_STOP: Final = r"\Z|[}\]]|/[/*]"
_AFTER_MEMBER: Final = re.compile(
    rf"{_W}(?:{_STOP}|,{_W}(?:{_STOP}|[,{_OPENING}]|[\w$-]++\s*+[\"']?\s*+:)|\"[^\"\\\n]*+\"\s*+:)"
)
_AFTER_ITEM: Final = re.compile(
    rf"{_W}(?:{_STOP}|,{_W}(?:{_STOP}|[,{{\[{_OPENING}]|-?\d|[tfnTFNIu]\w*+{_W}(?:[,\]}}]|\Z))|(?<=\s)\")"
)

_DELIMITER: Final = r"(?=[\s,\]}/]|\\[nrt]|\Z)"
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?" + _DELIMITER)
_CUT_NUMBER: Final = re.compile(r"[-+.0-9eE]*+\Z")
_NEAR_NUMBER: Final = re.compile(
    r"([-+]?)(?=\.?[0-9])(0|[1-9][0-9]*+)?(?:\.([0-9]*+))?([eE][-+]?[0-9]++)?" + _DELIMITER
)
_NAME: Final = re.compile(r"[-+]?[A-Za-z]++" + _DELIMITER)
_BARE: Final = re.compile(r'[^,}\]\n\r"]++')
_BARE_KEY: Final = re.compile(r"[^:,{}\[\]\"'\n\r=]++")
_COLON: Final = re.compile(r":|=>?")
_LOST_QUOTE: Final = re.compile(r"\"(?=\s*+:)")

_NAMES: Final = {
    "true": "true",
    "false": "false",
    "null": "null",
    "True": "true",
    "TRUE": "true",
    "False": "false",
    "FALSE": "false",
    "None": "null",
    "NULL": "null",
    "nil": "null",
    "undefined": "null",
    "NaN": "null",
    "nan": "null",
    "Infinity": "null",
    "-Infinity": "null",
    "inf": "null",
    "-inf": "null",
}

_HIGH: Final = r"u[dD][89abAB][0-9a-fA-F]{2}"
_PLAIN_ESCAPE: Final = (
    rf'\\(?:["\\/bfnrt]|u(?![dD][89abAB])[0-9a-fA-F]{{4}}|{_HIGH}(?=[^\\]|\\[^u]|\\u[0-9a-fA-F]{{4}}))'
)
_PATH_ESCAPE: Final = r'\\["\\]'
_WHOLE_ESCAPE: Final = re.compile(r"\\u[0-9a-fA-F]{4}")
_CUT_ESCAPE: Final = re.compile(rf"(?:\\{_HIGH})?(?:\\(?:u[0-9a-fA-F]{{0,3}})?)?\Z")
_DRIVE: Final = re.compile(r"[A-Za-z]:\\(?!\\)")
_LITERAL_BACKSLASH: Final = "backslash kept as text"


@cache  # most strings are in double quotes: the other patterns are made when they are needed
def _run(closer: str, *, path: bool) -> re.Pattern[str]:
    """Return the pattern of plain text inside a string that ``closer`` ends."""
    escape = _PATH_ESCAPE if path else _PLAIN_ESCAPE
    return re.compile(rf'(?>(?:[^"\\{closer}\x00-\x1f\ud800-\udfff]++|{escape})*)')


class Notes:
    """The changes and their places, counted by kind."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        """Start without notes."""
        self._places: dict[str, list[int]] = {}  # the count, then up to three offsets

    def __contains__(self, what: str) -> bool:
        return what in self._places

    def __bool__(self) -> bool:
        return bool(self._places)

    def add(self, what: str, at: int) -> None:
        """Note a change at an offset."""
        places = self._places.setdefault(what, [0])
        places[0] += 1
        if len(places) <= 3:  # noqa: PLR2004 (the three places named)
            places.append(at)

    def take(self, other: Notes) -> None:
        """Add the notes of ``other``."""
        for what, (count, *places) in other._places.items():
            for at in places:
                self.add(what, at)
            self._places[what][0] += count - len(places)

    def sentences(self) -> tuple[str, ...]:
        """One a kind, in the order of the text: ``characters 3, 9 and 2 more: missing comma added``."""
        rows = sorted((places[1], what, places) for what, places in self._places.items())
        return tuple(f"{_where(places)}: {what}" for _, what, places in rows)


def _where(places: list[int]) -> str:
    count, *offsets = places
    shown = [str(at) for at in offsets]
    if count > len(shown):
        shown.append(f"{count - len(shown)} more")
    if len(shown) == 1:
        return f"character {shown[0]}"
    return f"characters {', '.join(shown[:-1])} and {shown[-1]}"


class Scanner:
    """Reads objects out of a text. ``notes`` has the changes to the last one."""

    def __init__(self, text: str) -> None:
        """Read ``text``; nothing is read yet."""
        self.text = text
        self.size = len(text)
        self.notes = Notes()
        self._at = 0
        self._out: list[str] = []
        self._gap: list[str] = []  # whitespace since the last token
        self._closers: list[str] = []  # of the open containers
        self._filled: list[bool] = []  # whether they hold something
        self._open = {"}": 0, "]": 0}
        self._before_comma: str | None = None  # whitespace before a comma that is not written yet
        self._comma_at = -1  # where that comma stands, when the text has one
        self._mark = 0  # where in the output the member begins that is being read
        self._first_quote = False  # whether strings end at their first quote

    def object(self, at: int, *, braced: bool = True) -> tuple[str, int]:
        """Read the object at ``at``; without ``braced`` its opening brace is missing. Gives JSON and where it ends."""
        self.notes = Notes()
        self._out, self._gap = [], []
        self._at = at + braced
        self._push("{")
        if not braced:
            self.notes.add("missing { added", at)
        while self._closers:
            self._skip()
            if self._at >= self.size:
                self._cut()
            else:
                self._next()
        return "".join(self._out), self._at

    def string(self, at: int) -> tuple[str, int]:
        """Read the string at ``at``, up to its first quote. Gives JSON and where it ends."""
        body, end, _, _ = self._body(at + 1, _QUOTES[self.text[at]], None)
        return f'"{body}"', end

    def unescaped(self, at: int) -> str:
        """Read the rest of the text as the inside of a string."""
        body, _, _, _ = self._body(at, "", None)
        return str(jsontext.value(f'"{body}"'))

    # -- containers --------------------------------------------------------------------------------

    def _push(self, opener: str) -> None:
        self._out.append(opener)
        self._closers.append(_CLOSERS[opener])
        self._filled.append(False)
        self._open[_CLOSERS[opener]] += 1
        self._before_comma = None
        self._comma_at = -1

    def _pop(self) -> None:
        closer = self._closers.pop()
        self._filled.pop()
        self._open[closer] -= 1
        self._out.append(closer)
        self._before_comma = None
        self._comma_at = -1

    def _skip(self) -> None:
        """Pass over what stands between tokens."""
        while match := _GAP.match(self.text, self._at):
            kind = match.lastgroup or "space"
            if kind == "space":
                self._gap.append(match.group())
            else:
                self.notes.add(_GAP_NOTES[kind], self._at)
                if kind == "odd":
                    self._gap.append(" ")
            self._at = match.end()

    def _write(self, token: str) -> None:
        self._out += self._gap
        self._gap.clear()
        self._out.append(token)

    def _cut(self) -> None:
        """The text ends: close what is open."""
        self.notes.add("the text ends early; what was open is closed", self.size)
        while self._closers:
            self._pop()

    def _next(self) -> None:
        """Read a comma, the end of the container, or what it holds next."""
        char = self.text[self._at]
        if char == ",":
            if self._filled[-1] and self._before_comma is None:
                self._before_comma = "".join(self._gap)
                self._comma_at = self._at
                self._gap.clear()
            else:
                self.notes.add("extra comma dropped", self._at)
            self._at += 1
        elif char in "}]":
            self._close(char)
        elif self._closers[-1] == "}":
            self._member(char)
        else:
            self._separate()
            self._value(char)

    def _close(self, closer: str) -> None:
        at = self._at
        self._at += 1
        if not self._open[closer]:
            self.notes.add(f"stray {closer} dropped", at)
            return
        if self._before_comma is not None and self._comma_at >= 0:
            self.notes.add("trailing comma dropped", self._comma_at)
        if self._before_comma:
            self._out.append(self._before_comma)
        while self._closers[-1] != closer:
            self.notes.add(f"missing {self._closers[-1]} added", at)
            self._pop()
        self._out += self._gap
        self._gap.clear()
        self._pop()

    def _separate(self) -> None:
        """Begin a member or item: write the comma before it."""
        self._mark = len(self._out)
        if self._filled[-1]:
            if self._before_comma is None:
                self.notes.add("missing comma added", self._at)
            self._out.append(f"{self._before_comma or ''},")
        self._before_comma = None
        self._comma_at = -1
        self._out += self._gap
        self._gap.clear()

    def _drop(self, what: str, at: int) -> None:
        """Take back the member that was begun, and the comma after it."""
        self.notes.add(what, at)
        del self._out[self._mark :]
        self._gap.clear()
        self._before_comma = "" if self._filled[-1] else None
        if self.text.startswith(",", self._at):
            self._at += 1

    # -- members and values ------------------------------------------------------------------------

    def _member(self, char: str) -> None:
        start = self._at
        if char in ":={[":
            self.notes.add(f"stray {char} dropped", start)
            self._at += 1
            return
        self._separate()
        self._out.append(self._string(None) if char in _QUOTES else self._bare_key())
        self._skip()
        if match := _COLON.match(self.text, self._at):
            if match.group() != ":":
                self.notes.add(f"{match.group()} written as a colon", self._at)
            self._write(":")
            self._at = match.end()
        elif self._at < self.size and self.text[self._at] not in ",}]":
            self.notes.add("missing colon added", self._at)
            self._out.append(":")
        else:
            self._drop("key without a value dropped", start)
            return
        self._skip()
        while self.text.startswith(":", self._at):
            self.notes.add("stray : dropped", self._at)
            self._at += 1
            self._skip()
        if self._at >= self.size or self.text[self._at] in ",}]":
            self._drop("key without a value dropped", start)
            return
        self._value(self.text[self._at])

    def _bare_key(self) -> str:
        match = _BARE_KEY.match(self.text, self._at)
        end = match.end() if match else self._at + 1
        key = self.text[self._at : end].rstrip()
        self.notes.add("quotes added around a key", self._at)
        quote = _LOST_QUOTE.match(self.text, end)
        self._at = quote.end() if quote else end
        return jsontext.encode(key).decode()

    def _value(self, char: str) -> None:
        start = self._at
        if char in _CLOSERS:
            self._filled[-1] = True
            self._out += self._gap
            self._gap.clear()
            self._push(char)
            self._at += 1
            return
        after = _AFTER_MEMBER if self._closers[-1] == "}" else _AFTER_ITEM
        token = self._string(after) if char in _QUOTES else self._word(after)
        if token is None:
            self._drop("number that may be cut off dropped", start)
        else:
            self._write(token)
            self._filled[-1] = True

    def _word(self, after: re.Pattern[str]) -> str | None:
        """Read a number, a name, or text without quotes; ``None`` for a number that may go on."""
        text, start = self.text, self._at
        if _CUT_NUMBER.match(text, start):
            self._at = self.size
            return None
        if match := _NUMBER.match(text, start):
            self._at = match.end()
            return match.group()
        if (match := _NAME.match(text, start)) and (name := self._name(match.group(), match.end())):
            self._at = match.end()
            if name != match.group():
                self.notes.add(f"{match.group()} written as {name}", start)
            return name
        if match := _NEAR_NUMBER.match(text, start):
            sign, whole, part, power = match.groups()
            self._at = match.end()
            self.notes.add("number written as JSON writes it", start)
            fraction = "" if part is None else f".{part or '0'}"
            return f"{sign.strip('+')}{whole or '0'}{fraction}{power or ''}"
        match = _BARE.match(text, start)
        end = match.end() if match else start + 1
        lost_quote = text.startswith('"', end) and after.match(text, end + 1)
        self._at = end + 1 if lost_quote else end
        self.notes.add("quotes added around a value", start)
        return jsontext.encode(text[start:end].rstrip()).decode()

    def _name(self, name: str, end: int) -> str | None:
        if name in _NAMES:
            return _NAMES[name]
        if end < self.size:
            return None
        return next((_NAMES[whole] for whole in _NAMES if whole.startswith(name)), None)

    # -- strings -----------------------------------------------------------------------------------

    def _string(self, after: re.Pattern[str] | None) -> str:
        start = self._at
        closer = _QUOTES[self.text[start]]
        if self._first_quote:
            after = None
        body, end, closed, notes = self._body(start + 1, closer, after)
        if not closed and after and "quote inside a string kept" in notes:
            self._first_quote = True
            after = None
            body, end, closed, notes = self._body(start + 1, closer, after)
        if _LITERAL_BACKSLASH in notes and _DRIVE.match(self.text, start + 1):
            body, end, closed, notes = self._body(start + 1, closer, after, path=True)
        if self.text[start] != '"':
            self.notes.add("quotes written as double quotes", start)
        self.notes.take(notes)
        self._at = end
        return f'"{body}"'

    def _body(
        self, at: int, closer: str, after: re.Pattern[str] | None, *, path: bool = False
    ) -> tuple[str, int, bool, Notes]:
        """Read the inside of a string, with its quote at the end. ``after`` is what must follow that quote."""
        text, notes, pieces = self.text, Notes(), list[str]()
        run = _run(closer, path=path)
        while True:
            match = run.match(text, at)
            end = match.end() if match else at
            pieces.append(text[at:end])
            at = end
            if at >= self.size:
                return "".join(pieces), at, False, notes
            char = text[at]
            if char == closer:
                if after is None or after.match(text, at + 1):
                    return "".join(pieces), at + 1, True, notes
                notes.add("quote inside a string kept", at)
            if char == "\\":
                piece, at = self._escape(at, notes)
                pieces.append(piece)
                continue
            if char < " " or "\ud800" <= char <= "\udfff":
                notes.add("control character escaped" if char < " " else "lone surrogate escaped", at)
                pieces.append(jsontext.encode(char).decode()[1:-1])
            else:
                pieces.append('\\"' if char == '"' else char)
            at += 1

    def _escape(self, at: int, notes: Notes) -> tuple[str, int]:
        """Read a backslash that begins no plain escape: what is written for it, and where to go on."""
        if _CUT_ESCAPE.match(self.text, at):
            notes.add("cut escape dropped", at)
            return "", self.size
        if whole := _WHOLE_ESCAPE.match(self.text, at):
            return whole.group(), whole.end()
        if self.text[at + 1] == "'":
            notes.add("escaped apostrophe written plainly", at)
            return "'", at + 2
        notes.add(_LITERAL_BACKSLASH, at)
        return "\\\\", at + 1
