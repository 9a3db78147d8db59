"""Text search, identical in every store: what is searched, how words are split, and the query language.

Rules:

- Text, reasoning, refusals, names and arguments of tool calls, raw malformed calls, JSON results, file names and
  reasons of markers are searched; in JSON, the strings and numbers, not the keys. Media, proofs, provider blocks and
  runs of ``MIN_DATA`` base64 characters are not. The first ``MAX_TEXT`` characters count.
- A word is a run of letters and digits (``snake_case`` is two words). Case, variants, compatibility forms and invisible
  characters are removed (``Été`` is ``ete``); voicing marks of kana and Indic vowel signs stay.
- Scripts without spaces (Han, kana, Thai, Lao, Khmer, Myanmar) give one word for each character.
- Normalized text is words with one space between them, in ``a-z``, ``0-9`` and non-ASCII characters. Stores index only
  this: the FTS5 tokenizer ``ascii`` splits it at spaces, and ``array_to_tsvector`` takes it unchanged.
- A word counts by its first ``MAX_WORD`` characters, a text by its first ``MAX_BYTES`` bytes: PostgreSQL limits a
  lexeme to 2 KB and a ``tsvector`` to 1 MB. PostgreSQL drops positions beyond 16,383, so its index finds the words, and
  ``matches`` checks phrases. ``MAX_QUERY`` keeps its query parser from overflowing the stack.

Two versions of Python may differ in characters that the older one does not have.

Stability: experimental.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Struct

from palaver.core import jsontext
from palaver.core.errors import DecodeError, StoreError, excerpt as shortened
from palaver.core.messages import FlushMarker, RescueMarker, ToolMessage
from palaver.core.parts import File, Json, MalformedToolCall, Reasoning, Refusal, Text, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterator

    from msgspec import Raw

    from palaver.core.messages import Message
    from palaver.core.parts import AnyPart

MAX_TEXT: Final = 250_000
MIN_DATA: Final = 1_000
MAX_WORD: Final = 255
MAX_BYTES: Final = 1_000_000
MAX_QUERY: Final = 10_000

_DATA: Final = re.compile(rf"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_=-]{{{MIN_DATA},}}")


# -- what is searched ----------------------------------------------------------------------------------------------


def searchable_text(message: Message) -> str:
    """Return the searched text of a message, a line for each piece."""
    found: list[str] = []
    left = MAX_TEXT
    for piece in _pieces(message):
        text = _DATA.sub(" ", piece[:MAX_TEXT])[:left]
        found.append(text)
        left -= len(text) + 1
        if left <= 0:
            break
    return "\n".join(found)


def tools_of(message: Message) -> set[str]:
    """Return the tools that a message calls or answers for."""
    if isinstance(message, ToolMessage):
        return set() if message.tool_name is None else {message.tool_name}
    return {part.name for part in message.content if isinstance(part, ToolCall)}


def labels_of(message: Message) -> list[tuple[str, str]]:
    """Return the labels that narrow a search, as kind and value: role, agent, tool and tag."""
    found = [("role", message.role)] if message.agent is None else [("role", message.role), ("agent", message.agent)]
    found += [("tool", name) for name in sorted(tools_of(message))]
    return found + [("tag", tag) for tag in dict.fromkeys(message.tags)]


def _pieces(message: Message) -> Iterator[str]:
    if isinstance(message, RescueMarker | FlushMarker):
        yield message.reason
        return
    for part in message.content:
        yield from _part_texts(part)


def _part_texts(part: AnyPart) -> Iterator[str]:
    match part:
        case Text(text=text) | Reasoning(text=text) | Refusal(text=text):
            yield text
        case ToolCall(name=name, arguments_json=arguments):
            yield name
            yield from _scalars(arguments)
        case MalformedToolCall(name=name, raw=raw):
            yield name or ""
            yield raw
        case Json(value_json=value):
            yield from _scalars(value)
        case File(name=name):
            yield name or ""
        case _:
            pass


def _scalars(json: str | Raw) -> Iterator[str]:
    """Yield the strings and numbers of JSON text, in order; text that is not JSON is one string."""
    try:
        waiting: list[Any] = [jsontext.value(json)]
    except DecodeError:
        waiting = [json if isinstance(json, str) else bytes(json).decode("utf-8", "replace")]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            waiting.extend(reversed(cast("dict[str, Any]", value).values()))
        elif isinstance(value, list):
            waiting.extend(cast("list[object]", value)[::-1])
        elif value is not None and not isinstance(value, bool):
            yield value.text if isinstance(value, jsontext.Number) else str(value)


# -- words ---------------------------------------------------------------------------------------------------------

_UNSPACED_SCRIPTS: Final = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x2FDF),  # radicals
    (0x3005, 0x3007),  # iteration and closing marks, zero
    (0x3021, 0x3029),  # Hangzhou numerals
    (0x3041, 0x30FF),  # kana
    (0x31F0, 0x31FF),  # small katakana
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),
    (0xA9E0, 0xA9FF),  # Myanmar
    (0xAA60, 0xAA7F),
    (0xF900, 0xFAFF),  # Han
    (0x1AFF0, 0x1B16F),  # kana
    (0x20000, 0x3FFFF),  # Han
)
_INVISIBLE: Final = frozenset(
    (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
)
_WORD_BREAK: Final = "\u200b"
_VOWEL_POINTS: Final = range(10, 37)  # vowel points: Hebrew, Arabic, Syriac
_VARIANTS: Final = 200  # from this combining class on, a mark is placed around the letter


class _Folds(dict[int, str]):
    """The form of a character in a word: letters without case and variants, or a space. Filled on demand."""

    def __missing__(self, code: int) -> str:
        kept = "".join([each for each in unicodedata.normalize("NFKD", chr(code)) if not _is_removed(each)])
        self[code] = "".join(map(_letter, unicodedata.normalize("NFC", kept)))
        return self[code]


def _is_removed(char: str) -> bool:
    kind, place = unicodedata.category(char), unicodedata.combining(char)
    gone = kind in {"Me", "Cf"} or place in _VOWEL_POINTS or place >= _VARIANTS or ord(char) in _INVISIBLE
    return gone and char != _WORD_BREAK


def _letter(char: str) -> str:
    if not char.isalnum() and unicodedata.category(char)[0] != "M":
        return " "
    if any(first <= ord(char) <= last for first, last in _UNSPACED_SCRIPTS):
        return f" {char} "
    return char.casefold()


_folds: Final = _Folds()
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]+(?: [^\x00-\x7f]+)*")
_ASCII: Final = bytes(
    (ord(chr(code).lower()) if chr(code).isalnum() else ord(" ")) if code < 0x80 else code  # noqa: PLR2004 (ASCII)
    for code in range(256)
)


def _folded(text: str) -> bytes:
    """Return the letters and digits of a text in UTF-8, and spaces for the rest: one for each ASCII character."""
    if not text.isascii():
        text = _NOT_ASCII.sub(_fold_run, text)
    return text.encode().translate(_ASCII)


def _fold_run(run: re.Match[str]) -> str:
    return unicodedata.normalize("NFKC", run[0]).translate(_folds)


def _split(text: str) -> list[bytes]:
    found = _folded(text).split()
    if any(len(word) > MAX_WORD for word in found):
        found = [word.decode()[:MAX_WORD].encode() if len(word) > MAX_WORD else word for word in found]
    return found


def normalize(text: str) -> str:
    """Return the words of a text with one space between them, as they are indexed."""
    whole = b" ".join(_split(text))
    if len(whole) > MAX_BYTES:
        whole = whole[: MAX_BYTES + 1].rpartition(b" ")[0]
    return whole.decode()


def words(text: str) -> list[str]:
    """Return the words of a text, in order."""
    return normalize(text).split()


# -- queries -------------------------------------------------------------------------------------------------------


class Terms(Struct, frozen=True):
    """The terms of a query: needles that must all occur in ``f" {normal(text)} "``.

    A needle is a word or the words of a phrase between two spaces; a prefix lacks the space at its end.
    """

    needles: tuple[str, ...] = ()


_WHITE: Final = re.compile(r"\s+")
_MAX_CUT_WORD: Final = 20
_TERM: Final = re.compile(r'"([^"]*)"?|([^\s"]+)')


def parse(text: str) -> Terms:
    """Read the query language of ``Query.text``.

    A word that is several (``snake_case``) is a phrase. An unclosed quote extends to the end; ``*`` has a meaning only
    directly behind a letter or digit, outside quotes, at the end of a word. Raises ``StoreError`` for a text without
    a word, or with more than ``MAX_QUERY`` characters.
    """
    if len(text) > MAX_QUERY:
        raise StoreError(f"the query has {len(text):,} characters; {MAX_QUERY:,} are the most")
    needles: dict[str, None] = {}
    for quoted, bare in _TERM.findall(text):
        stem = bare.rstrip("*")
        found = normalize(quoted or stem)
        if found:
            prefix = stem != bare and not _folded(stem).endswith(b" ")
            needles[f" {found}" if prefix else f" {found} "] = None
    if text and not needles:
        raise StoreError(f"there is no word in the query {shortened(text)!r}")
    return Terms(tuple(needles))


def matches(terms: Terms, text: str) -> bool:
    """Return whether a normalized text contains every term of a query."""
    padded = f" {text} "
    return all(needle in padded for needle in terms.needles)


def excerpt(terms: Terms, text: str, width: int = 160) -> str:
    """Return the original stretch of a text around the first match; white space is collapsed.

    It has at most ``width`` characters, and an ellipsis where text was left out; without a match, it is the beginning.
    """
    folded = _folded(text)
    found = [match.start() for match in (_needle_pattern(needle).search(folded) for needle in terms.needles) if match]
    place = _source_position(text, min(found)) if found else 0
    before = _WHITE.sub(" ", text[max(0, place - 2 * width) : place]).lstrip()
    after = _WHITE.sub(" ", text[place : place + 4 * width]).rstrip()
    if len(before) > width // 4:
        before = "…" + _whole_words(before[: -(width // 4) - 1 : -1])[::-1]
    room = width - len(before)
    if len(after) > room or text[place + 4 * width :]:
        after = _whole_words(after[:room]) + "…"
    return before + after


def _needle_pattern(needle: str) -> re.Pattern[bytes]:
    """Return the pattern that finds a needle in folded text."""
    found = [re.escape(word) + ("[^ ]*" if len(word) == MAX_WORD else "") for word in needle.split()]
    return re.compile(f"(?<![^ ]){' +'.join(found)}{'(?![^ ])' if needle.endswith(' ') else ''}".encode())


def _source_position(text: str, place: int) -> int:
    """Return the position in a text of the byte ``place`` of the folded text."""
    if text.isascii():
        return place
    low, high = 0, len(text)
    while high - low > 1:
        middle = (low + high) // 2
        size = len(_folded(text[low:middle]))
        if size <= place:
            low, place = middle, place - size
        else:
            high = middle
    return low


def _whole_words(text: str) -> str:
    """Return the text without the word that was cut at its end, unless that word is long."""
    whole, space, cut = text.rpartition(" ")
    return whole if space and len(cut) <= _MAX_CUT_WORD else text


def fts5(terms: Terms) -> str:
    """Return the ``MATCH`` operand for an FTS5 table of normalized texts, with the tokenizer ``ascii``."""
    return " AND ".join(f'"{needle.strip()}"{"" if needle.endswith(" ") else "*"}' for needle in terms.needles)


def tsquery(terms: Terms) -> str:
    """Return the operand for ``array_to_tsvector(words)`` in PostgreSQL, for ``@@ …::tsquery``.

    It finds the texts in which all words occur. For a phrase these are too many: see ``matches``.
    """
    asked: dict[str, None] = {}
    for needle in terms.needles:
        *whole, last = needle[1:].split(" ")
        asked.update((f"'{word}'", None) for word in whole)
        if last:
            asked[f"'{last}':*"] = None
    return " & ".join(asked)
