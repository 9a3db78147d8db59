"""Count what people call characters: extended grapheme clusters (Unicode Standard Annex 29).

Rules:

- Two code points belong together by GB3 to GB13 of the annex: CR LF; a base and the marks, joiners, variation selectors
  and emoji modifiers behind it; a prepended sign and what follows; the jamo of a Hangul syllable; pictographs with a
  joiner between; two regional indicators, a flag. GB9c (conjuncts of Indic scripts) is not followed: where two
  consonants are joined by a virama, two are counted.
- The properties come from ``unicodedata``, so they are those of Python's Unicode version; what it does not hold (who is
  a pictograph, who is prepended, which spacing marks do not join) stands in tables here. A mark that is newer than the
  Python that reads it counts as a character.
- Text that can hold no cluster (plain ASCII, CJK, …) is passed over by a regular expression; the rest costs its length.

Stability: experimental.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from functools import lru_cache
from itertools import chain
from typing import Final, Literal, TypeAlias

_Kind: TypeAlias = Literal[
    "other", "control", "extend", "zwj", "spacing", "prepend", "L", "V", "T", "LV", "LVT", "pict", "ri"
]

_PLAIN: Final = (
    r"\x00-\xa8\xaa-\xad\xaf-\u02ff\u0370-\u0482\u048a-\u0530\u05d0-\u05ea\u0620-\u064a\u2010-\u2027\u2030-\u203b"
    r"\u20a0-\u20bf\u2500-\u25a9\u3041-\u3096\u309b-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uff01-\uff9d"
)
_ODD: Final = re.compile(rf"\r\n|[^{_PLAIN}]+")

_CATEGORIES: Final[dict[str, _Kind]] = {
    "Mn": "extend",
    "Me": "extend",
    "Mc": "spacing",
    "Cc": "control",
    "Cf": "control",
    "Cs": "control",
    "Zl": "control",
    "Zp": "control",
}


def _ranges(text: str) -> tuple[int, ...]:
    """``"a9 203c 2194-2199"`` as the sorted bounds of half-open ranges."""
    pairs = [(one, other or one) for one, _, other in (item.partition("-") for item in text.split())]
    return tuple(chain.from_iterable((int(one, 16), int(other, 16) + 1) for one, other in pairs))


# emoji-data.txt: Extended_Pictographic, written in longer ranges where what lies between is not assigned.
_PICTOGRAPHS: Final = _ranges(
    "a9 ae 203c 2049 2122 2139 2194-2199 21a9-21aa 231a-231b 2328 2388 23cf 23e9-23f3 23f8-23fa 24c2 25aa-25ab 25b6 "
    "25c0 25fb-25fe 2600-2605 2607-2612 2614-2685 2690-2705 2708-2712 2714 2716 271d 2721 2728 2733-2734 2744 2747 "
    "274c 274e 2753-2755 2757 2763-2767 2795-2797 27a1 27b0 27bf 2934-2935 2b05-2b07 2b1b-2b1c 2b50 2b55 3030 303d "
    "3297 3299 1f000-1f0ff 1f10d-1f10f 1f12f 1f16c-1f171 1f17e-1f17f 1f18e 1f191-1f19a 1f1ad-1f1e5 1f201-1f20f 1f21a "
    "1f22f 1f232-1f23a 1f23c-1f23f 1f249-1f3fa 1f400-1f53d 1f546-1f64f 1f680-1f6ff 1f774-1f77f 1f7d5-1f7ff "
    "1f80c-1f80f 1f848-1f84f 1f85a-1f85f 1f888-1f88f 1f8ae-1f8ff 1f90c-1f93a 1f93c-1f945 1f947-1faff 1fc00-1fffd"
)
# GraphemeBreakProperty.txt: Prepend; Extend that is no mark; marks (Mc) that are Other; SpacingMark that is no mark.
_PREPENDED: Final = _ranges(
    "600-605 6dd 70f 890-891 8e2 d4e 110bd 110cd 111c2-111c3 1193f 11941 11a3a 11a84-11a89 11d46 11f02"
)
_EXTENDING: Final = _ranges("200c ff9e-ff9f 1f3fb-1f3ff e0020-e007f")
_APART: Final = _ranges(
    "102b-102c 1038 1062-1064 1067-106d 1083 1087-108c 108f 109a-109c 1a61 1a63-1a64 aa7b aa7d 11720-11721"
)
_SPACING: Final = _ranges("e33 eb3")
_HANGUL: Final[tuple[tuple[tuple[int, ...], _Kind], ...]] = (
    (_ranges("1100-115f a960-a97c"), "L"),
    (_ranges("1160-11a7 d7b0-d7c6"), "V"),
    (_ranges("11a8-11ff d7cb-d7fb"), "T"),
)
_TABLES: Final[tuple[tuple[tuple[int, ...], _Kind], ...]] = (
    (_ranges("200d"), "zwj"),
    (_ranges("1f1e6-1f1ff"), "ri"),
    (_EXTENDING, "extend"),
    (_PREPENDED, "prepend"),
    (_SPACING, "spacing"),
    (_APART, "other"),
    *_HANGUL,
    (_PICTOGRAPHS, "pict"),
)
_SYLLABLES: Final = range(0xAC00, 0xD7A4)
_TAILS: Final = 28
"""Hangul syllables with one lead and one vowel; the first of them has no tail."""

_MARKS: Final = frozenset(("extend", "zwj", "spacing"))
_JOINED: Final = frozenset(
    (
        *(("L", each) for each in ("L", "V", "LV", "LVT")),
        *((each, other) for each in ("LV", "V") for other in ("V", "T")),
        ("LVT", "T"),
        ("T", "T"),
    )
)


@lru_cache(maxsize=4096)
def _kind(character: str) -> _Kind:
    code = ord(character)
    if code in _SYLLABLES:
        return "LVT" if (code - _SYLLABLES.start) % _TAILS else "LV"
    for bounds, kind in _TABLES:
        if bisect_right(bounds, code) % 2:
            return kind
    return _CATEGORIES.get(unicodedata.category(character), "other")


def _joins(text: str) -> list[int]:
    """Where a code point belongs to the one before it, in order."""
    found: list[int] = []
    for odd in _ODD.finditer(text):
        start, end = odd.span()
        if text[start] == "\r":
            found.append(start + 1)
            continue
        before: _Kind = _kind(text[start - 1]) if start else "control"
        pictograph = before == "pict"
        flags = 0
        for at in range(start, min(end + 1, len(text))):  # one more: what a prepended sign joins may be plain
            kind = _kind(text[at])
            if _belongs(before, kind, pictograph=pictograph, flags=flags):
                found.append(at)
            flags = flags + 1 if kind == "ri" else 0
            pictograph = kind == "pict" or (pictograph and kind in ("extend", "zwj"))
            before = kind
    return found


def _belongs(before: _Kind, kind: _Kind, *, pictograph: bool, flags: int) -> bool:
    if before == "control" or kind == "control":
        return False
    if kind in _MARKS or before == "prepend":
        return True
    if kind == "pict":
        return pictograph and before == "zwj"
    return flags % 2 == 1 if kind == "ri" else (before, kind) in _JOINED


def count(text: str) -> int:
    """How many characters ``text`` has."""
    return len(text) - len(_joins(text))


def cut(text: str, start: int, characters: int) -> tuple[str, int]:
    """A stretch of ``text``, and how many characters all of it has; ``start`` and ``characters`` count as ``count``."""
    joins = _joins(text)
    begin, end = start, start + characters
    for join in joins:
        begin += join <= begin
        end += join <= end
    return text[begin:end], len(text) - len(joins)
