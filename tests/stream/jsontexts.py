"""JSON in any spelling, and what a view of a part of it may show."""

import json
from itertools import pairwise

from hypothesis import strategies as st
from msgspec import UNSET


def same(one, other):
    """Return whether values are equal, of the same types, in the same order, with numbers written alike."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return getattr(one, "text", None) == getattr(other, "text", None) and repr(one) == repr(other)
    return one == other


def contained(part, whole):
    """Return whether `part` is a possible view of the incomplete `whole`."""
    if part is UNSET:
        return True
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and contained(part[key], whole[key]) for key in part)
    if isinstance(part, list):
        return isinstance(whole, list) and len(part) <= len(whole) and all(map(contained, part, whole))
    if isinstance(part, str):
        return isinstance(whole, str) and whole.startswith(part)
    return same(part, whole)


def cut(text, places):
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


@st.composite
def json_texts(draw, kinds="snl{["):
    """Draw JSON in any spelling: odd strings and numbers, escapes in any place, spaces, equal keys."""
    odd = st.text(st.sampled_from('ab"\\/\n\x00é\u2028😀\ud83d\ude00\udfff'), max_size=6)
    numbers = st.sampled_from(["0", "-0", "12", "-0.0", "1.50", "5e-6", "5e-06", "1E+2", "1e400", "9" * 25])
    space = st.sampled_from(["", "", " ", "\n\t", "\r"])

    def string(text):
        ascii_only = draw(st.booleans())
        return json.dumps(text, ensure_ascii=ascii_only).replace("/", draw(st.sampled_from(["/", r"\/"])))

    def write(depth):
        kind = draw(st.sampled_from("snl" if depth > 3 else kinds if depth == 0 else "snl{["))
        before, after = draw(space), draw(space)
        match kind:
            case "s":
                body = string(draw(odd))
            case "n":
                body = draw(numbers)
            case "l":
                body = draw(st.sampled_from(["true", "false", "null"]))
            case "[":
                body = "[" + (",".join(write(depth + 1) for _ in range(draw(st.integers(0, 3)))) or after) + "]"
            case _:
                keys = draw(st.lists(odd, max_size=3))
                members = (f"{before}{string(key)}{after}:{write(depth + 1)}" for key in keys)
                body = "{" + (",".join(members) or after) + "}"
        return before + body + after

    return write(0)


def once(text):
    """Return whether no object of a JSON text has a key twice."""
    found = []
    json.loads(text, object_pairs_hook=lambda pairs: found.append(len(dict(pairs)) == len(pairs)))
    return all(found)
