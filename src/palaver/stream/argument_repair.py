"""Repair of tool-call arguments that are almost a JSON object.

Rules:

- A pure function, for callers that want it: nothing here runs while messages are read, and the model's own text is not
  changed. Every change is reported, and text that is a JSON object already is unchanged.
- Text around the object is removed: a Markdown fence, words before and after, a string that holds the object as text
  (also twice), a list of one. ``lenient`` says how the object itself is read.
- Empty text, ``null`` and ``[]`` stand for no arguments: ``{}``.
- Of several objects the first that is not empty is kept (some clients send ``{}`` before the real one); the same
  object again is dropped, and so is a different one. Both are reported.
- Where no object can be made, ``ArgumentsError`` says why. No other error, for any text, in linear time.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Raw, Struct

from palaver.core import jsontext
from palaver.core.errors import ArgumentsError, DecodeError
from palaver.stream.lenient_json import Notes, Scanner

_LAYERS: Final = 8
_NOTHING: Final = frozenset(("", "null", "None", "undefined", "[]"))
_START: Final = re.compile(r"[\s\ufeff]*+(```[\w-]*+\s*+)?")
_FENCE: Final = "```"
_LIST: Final = re.compile(r"\[\s*+(?=\{|\]|\Z)")
_LIST_END: Final = re.compile(r"\s*+,?\s*+(?:\]|\Z)")
_TOKEN: Final = re.compile(r"\[/?[A-Z_]++\]")
_ESCAPED: Final = re.compile(r"\{(?>(?:\s|\\[nrt])*)\\++\"")
_COLON: Final = re.compile(r"\s*+:")
_BETWEEN: Final = re.compile(r"[\s,;]*+(?=\{)")
_NOT_BLANK: Final = re.compile(r"\S")
_NO_OBJECT: Final = "the arguments hold no JSON object"


class Repaired(Struct, frozen=True):
    """The text of a JSON object, and what was changed to make it one.

    ``changes`` are sentences with the offsets of characters: ``character 8: trailing comma dropped``. Where the
    object was packed in a string, those after the sentence that says so count in the string.
    """

    text: str
    changes: tuple[str, ...] = ()


def repair(text: str) -> Repaired:
    """Make a JSON object of malformed tool-call arguments, and report the changes.

    Text that is an object already comes back unchanged, with no changes. Raises ``ArgumentsError`` when no object
    can be made of it.
    """
    changes: tuple[str, ...] = ()
    for _ in range(_LAYERS):
        if _is_object(text):
            return Repaired(text, changes)
        found, notes, packed = _unpack(text)
        changes += notes.sentences()
        text = found
        if not packed:
            return Repaired(_checked(text), changes)
    raise ArgumentsError("the arguments are packed in strings too often")


def _is_object(text: str) -> bool:
    try:
        text.encode()
        return isinstance(jsontext.value(text), dict)
    except (DecodeError, UnicodeEncodeError):
        return False


def _checked(text: str) -> str:
    try:
        jsontext.value(text)
    except DecodeError as error:
        msg = f"the arguments are {error.reason}"
        raise ArgumentsError(msg) from None
    return text


def _unpack(text: str) -> tuple[str, Notes, bool]:
    """Remove one layer; return the content, the changes, and whether the content is still packed."""
    notes = Notes()
    start = _START.match(text)
    at = start.end() if start else 0
    fenced = bool(start and start.group(1))
    if fenced:
        notes.add("Markdown fence taken away", text.index(_FENCE))
    body = text[at:].rstrip()
    if fenced:
        body = body.removesuffix(_FENCE).rstrip()
    if body in _NOTHING:
        notes.add("no arguments, written as {}", at)
        return "{}", notes, False
    scanner = Scanner(text)
    if text[at] in "\"'":
        packed, after = scanner.string(at)
        if _COLON.match(text, after):
            return _objects(scanner, at, notes, fenced=fenced, braced=False)
        inside = jsontext.value(packed)
        if after >= at + len(body) or inside.rstrip().endswith("}"):
            notes.add("the object was packed in a string", at)
            return inside, notes, True
    if _ESCAPED.match(text, at):
        notes.add("the object was escaped like the inside of a string", at)
        return scanner.unescaped(at), notes, True
    if text[at] == "[" and not _TOKEN.match(text, at):
        return _single(scanner, at, notes, fenced=fenced)
    if text[at] != "{":
        brace = text.find("{", at)
        if brace < 0:
            raise ArgumentsError(_NO_OBJECT)
        notes.add("text before the object dropped", at)
        at = brace
    return _objects(scanner, at, notes, fenced=fenced)


def _single(scanner: Scanner, at: int, notes: Notes, *, fenced: bool) -> tuple[str, Notes, bool]:
    """Read a list that holds one object."""
    match = _LIST.match(scanner.text, at)
    if not match:
        raise ArgumentsError("the arguments are a list, not an object")
    if not scanner.text.startswith("{", match.end()):
        notes.add("no arguments, written as {}", at)
        return "{}", notes, False
    found, end = scanner.object(match.end())
    last = _LIST_END.match(scanner.text, end)
    if not last:
        raise ArgumentsError("the arguments are a list of several values, not an object")
    notes.add("list of one taken away", at)
    notes.take(scanner.notes)
    _after(scanner.text, last.end(), notes, fenced=fenced)
    return found, notes, False


def _objects(scanner: Scanner, at: int, notes: Notes, *, fenced: bool, braced: bool = True) -> tuple[str, Notes, bool]:
    """Read the object at ``at``, and look at those that follow it."""
    text = scanner.text
    words = "text before the object dropped" in notes
    found, end = scanner.object(at, braced=braced)
    first, first_end, remaining = found, end, scanner.notes
    while _empty(found) and (following := _following(text, end, words=words)) >= 0:
        at = following
        found, end = scanner.object(at)
    if _empty(found):
        found, end = first, first_end
    else:
        if scanner.notes is not remaining:
            notes.add("empty object dropped", first_end)
        remaining = scanner.notes
    notes.take(remaining)
    end = _again(scanner, found, end, notes)
    _after(text, end, notes, fenced=fenced)
    return found, notes, False


def _empty(found: str) -> bool:
    return found.startswith("{") and not found[1:-1].strip()


def _following(text: str, end: int, *, words: bool) -> int:
    if words:
        return text.find("{", end)
    match = _BETWEEN.match(text, end)
    return match.end() if match else -1


def _again(scanner: Scanner, found: str, end: int, notes: Notes) -> int:
    """Skip the later objects, and return whether they are the same."""
    normal: bytes | None = None  # known once it is needed
    while match := _BETWEEN.match(scanner.text, end):
        normal = _normal(found) if normal is None else normal
        other, end = scanner.object(match.end())
        same = normal == _normal(other)
        notes.add("the same object again dropped" if same else "another object dropped", match.end())
    return end


def _normal(found: str) -> bytes:
    try:
        return jsontext.normal(Raw(found.encode()))
    except DecodeError:
        return b""


def _after(text: str, end: int, notes: Notes, *, fenced: bool) -> None:
    rest = _NOT_BLANK.search(text, end)
    if rest and not (fenced and text[rest.start() :].rstrip() == _FENCE):
        notes.add("text after the object dropped", rest.start())
