"""Merge an edited value with its original text, so that unedited parts are written as they were.

Rules:

- There are three texts of JSON: the *original*, what we write for the value as it was read (*before*), and what we
  write for the value as it is now (*after*). Where *before* and *after* agree, the original is used. Everywhere else
  *after* is used: no edit is undone, and no field of the original contradicts an edit.
- Objects are compared key by key. A key that only the original has is removed from an edited object. An empty value
  keeps its form while it is unedited: a missing key is left out, and ``null`` is ``null``. A key that the original has
  and *before* lacks may be another spelling: *after* is used.
- The input and the output of a tool (``VALUES``) are one value: an edited one keeps nothing of the original.
- The items of arrays are paired from both ends as long as before and after agree, and one by one in between, from the
  front. An array that before splits otherwise than the original is taken from after.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Raw

from palaver.core import jsontext
from palaver.core.errors import DecodeError, EncodeError

if TYPE_CHECKING:
    from collections.abc import Sequence


VALUES: Final = frozenset(
    ("action", "args", "arguments", "input", "json", "output", "parameters", "response", "result")
)
"""Fields whose value, an object, is a tool's: its text is kept whole, since providers' caches see its bytes."""

_EMPTY: Final = frozenset((b"null", b'""', b"[]", b"{}"))


def laid_over(original: bytes, before: bytes, after: bytes) -> bytes:
    """Return ``after``, spelled as ``original`` where it says what ``before`` says."""
    try:
        return bytes(_value(Raw(original), Raw(before), Raw(after)))
    except (DecodeError, EncodeError, RecursionError):
        return after


def _value(original: Raw, before: Raw, after: Raw, *, whole: bool = False) -> Raw:
    if before == after:
        return original
    kind = jsontext.kind(after)
    if whole and kind == "an object":
        return after
    if not kind == jsontext.kind(before) == jsontext.kind(original):
        return after
    if kind == "an object":
        return _object(original, before, after)
    return _array(original, before, after) if kind == "an array" else after


def _object(original: Raw, before: Raw, after: Raw) -> Raw:
    one, other, new = jsontext.fields(original), jsontext.fields(before), jsontext.fields(after)
    both = one.keys() & other.keys()
    added = other.keys() - both
    # What before says may stand in the original under a name that we do not write.
    if any(bytes(each) not in _EMPTY for key, each in one.items() if key not in both):
        both = {key for key in both if one[key] != jsontext.NULL or other[key] == jsontext.NULL}
        added = set[str]()
    return jsontext.raw(
        {
            key: _value(one[key], other[key], each, whole=key in VALUES) if key in both else each
            for key, each in new.items()
            if key not in added or each != other[key]
        }
    )


def _array(original: Raw, before: Raw, after: Raw) -> Raw:
    one, other, new = jsontext.items(original), jsontext.items(before), jsontext.items(after)
    if len(one) != len(other):
        return after
    first, last = _alike(other, new)
    end, new_end = len(other) - last, len(new) - last
    paired = [_value(*each) for each in zip(one[first:end], other[first:end], new[first:new_end], strict=False)]
    return jsontext.raw([*one[:first], *paired, *new[first + len(paired) : new_end], *one[end:]])


def _alike(before: Sequence[Raw], after: Sequence[Raw]) -> tuple[int, int]:
    """How many items agree at the beginning, and how many behind them at the end."""
    least = min(len(before), len(after))
    first = next((place for place in range(least) if before[place] != after[place]), least)
    left = least - first
    return first, next((back for back in range(left) if before[-1 - back] != after[-1 - back]), left)
