"""An edited record, written in the style of the original.

Rules (docs/spec/dialects.md#17.2):

- Keys stay in their order, and unknown keys stay; new keys go last. Unchanged values stay byte for byte: number text,
  escapes, spaces.
- The input or output of a tool (``VALUES``) is one value: when it changed, nothing of the old one stays.
- Changed values are written with the original's separators, and in ASCII if the original was.
- A ``content`` string stays a string while it is one block of text: the two forms are equal.
- An object whose ``type``, ``state`` or ``status`` changed is another object: nothing of the old one stays in it. In a
  list, items are paired from both ends as long as they are equal; the rest is paired by place if the numbers are
  equal, else by common id.

Stability: experimental.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from msgspec import Raw, Struct

from palaver.core import jsontext
from palaver.core.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_COLON: Final = re.compile(rb'"\s*(:\s*)')
_COMMA: Final = re.compile(rb'(,\s*)"')
_KINDS: Final = ("type", "state", "status")
_NAMES: Final = ("id", "toolCallId", "callID", "tool_call_id", "call_id")
VALUES: Final = frozenset(("args", "arguments", "input", "output", "response", "result", "artifact", "palaver"))
_ESCAPED: Final = re.compile(rb"\\u(?!00[01])")


class _Style(Struct, frozen=True):
    comma: bytes
    colon: bytes
    ascii: bool

    def write(self, value: Raw) -> bytes:
        """Return a new value as JSON."""
        match jsontext.kind(value):
            case "an object":
                return self.object((key, self.write(each)) for key, each in jsontext.fields(value).items())
            case "an array":
                return self.array(map(self.write, jsontext.items(value)))
            case "a string":
                text = jsontext.text(value)
                return json.dumps(text).encode() if self.ascii else jsontext.encode(text)
            case _:
                return bytes(value)

    def object(self, pairs: Iterable[tuple[str, bytes]]) -> bytes:
        keys = ((json.dumps(key).encode() if self.ascii else jsontext.encode(key), text) for key, text in pairs)
        return b"{" + self.comma.join([key + self.colon + text for key, text in keys]) + b"}"

    def array(self, items: Iterable[bytes]) -> bytes:
        return b"[" + self.comma.join(items) + b"]"


def restyled(old: bytes, new: bytes, *, whole: bool = False) -> bytes:
    """Return ``new`` in the style of ``old``. Both are JSON objects; an ``old`` that is not one returns ``new``.

    ``whole`` says that ``new`` is complete: keys that it lacks are removed.
    """
    try:
        return _over(Raw(old), Raw(new), _style(old), whole=whole)
    except DecodeError:
        return new


def _style(old: bytes) -> _Style:
    comma, colon = _COMMA.search(old), _COLON.search(old)
    escaped = old.isascii() and _ESCAPED.search(old) is not None
    return _Style(
        (b", " if comma[1] != b"," else b",") if comma else b",",
        (b": " if colon[1] != b":" else b":") if colon else b":",
        escaped,
    )


def _over(old: Raw, new: Raw, style: _Style, *, whole: bool) -> bytes:
    if jsontext.equal(old, new):
        return bytes(old)
    kind = jsontext.kind(old)
    if kind == jsontext.kind(new) == "an object":
        before, after = jsontext.fields(old), jsontext.fields(new)
        if any(_word(before, key) != _word(after, key) for key in _KINDS if key in before and key in after):
            return style.write(new)
        kept = [
            (key, _under(key, each, after[key], style, whole=whole) if key in after else bytes(each))
            for key, each in before.items()
            if key in after or not whole
        ]
        return style.object([*kept, *((key, style.write(each)) for key, each in after.items() if key not in before)])
    if kind == jsontext.kind(new) == "an array":
        olds, news = jsontext.items(old), jsontext.items(new)
        pairs = zip(_paired(olds, news), news, strict=True)
        return style.array(
            [style.write(each) if one is None else _over(one, each, style, whole=whole) for one, each in pairs]
        )
    return style.write(new)


def _under(key: str, old: Raw, new: Raw, style: _Style, *, whole: bool) -> bytes:
    """Return the new value of a key."""
    if key == "content" and not whole and jsontext.kind(old) == "a string" and (text := _only_text(new)) is not None:
        return _over(old, text, style, whole=whole)
    return _over(old, new, style, whole=whole or key in VALUES)


def _only_text(content: Raw) -> Raw | None:
    """Return the text of content that is a single block with only a text."""
    items = jsontext.items(content) if jsontext.kind(content) == "an array" else []
    fields = jsontext.fields(items[0]) if len(items) == 1 and jsontext.kind(items[0]) == "an object" else {}
    return fields["text"] if fields.keys() == {"type", "text"} and bytes(fields["type"]) == b'"text"' else None


def _paired(olds: Sequence[Raw], news: Sequence[Raw]) -> list[Raw | None]:
    """Return for each new item the old one that it replaces."""
    if len(olds) == len(news):
        return list(olds)
    least = min(len(olds), len(news))
    first = next((place for place in range(least) if not jsontext.equal(olds[place], news[place])), least)
    left = least - first
    last = next((back for back in range(left) if not jsontext.equal(olds[-1 - back], news[-1 - back])), left)
    named = {name: each for each in olds[first : len(olds) - last] if (name := _name(each)) is not None}
    middle = [named.pop(_name(each) or b"", None) for each in news[first : len(news) - last]]
    return [*olds[:first], *middle, *olds[len(olds) - last :]]


def _word(fields: Mapping[str, Raw], key: str) -> bytes | None:
    return bytes(fields[key]) if jsontext.kind(fields[key]) == "a string" else None


def _name(item: Raw) -> bytes | None:
    fields = jsontext.fields(item) if jsontext.kind(item) == "an object" else {}
    return next((bytes(fields[key]) for key in _NAMES if key in fields), None)
