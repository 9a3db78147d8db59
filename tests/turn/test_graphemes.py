"""Grapheme clusters: Unicode Standard Annex 29, class by class."""

from __future__ import annotations

import pytest
import regex
from hypothesis import example, given, strategies as st

from palaver.turn import tool_output
from tests.folding import over

SAMPLES = {
    "CR": "\r",
    "LF": "\n",
    "Control": "\u0001",
    "Extend": "\u0308",
    "Prepend": "\u0600",
    "Spacing": "\u0903",
    "L": "\u1100",
    "V": "\u1160",
    "T": "\u11a8",
    "LV": "\uac00",
    "LVT": "\uac01",
    "RI": "\U0001f1e6",
    "Pict": "\u231a",
    "ZWJ": "\u200d",
    "Other": "a",
    "Unassigned": "\u0378",
}
CONTROLS = {"CR", "LF", "Control"}


def joined(one, other):
    """The rules GB3 to GB13 for a pair."""
    if (one, other) == ("CR", "LF"):
        return True
    if one in CONTROLS or other in CONTROLS:
        return False
    hangul = {"L": {"L", "V", "LV", "LVT"}, "LV": {"V", "T"}, "V": {"V", "T"}, "LVT": {"T"}, "T": {"T"}}
    return (
        other in hangul.get(one, ())
        or other in ("Extend", "ZWJ", "Spacing")
        or one == "Prepend"
        or (one, other) == ("RI", "RI")
    )


@pytest.mark.parametrize("other", SAMPLES)
@over("one", SAMPLES)
def test_pairs_follow_the_annex(one, other):
    assert tool_output.count(SAMPLES[one] + SAMPLES[other]) == (1 if joined(one, other) else 2)
    marked = tool_output.count(SAMPLES[one] + "\u0308" + SAMPLES[other])
    assert marked == 1 + (one in CONTROLS) + (not joined("Extend", other))


WORDS = [
    ("", 0),
    ("hello", 5),
    ("e\u0301te\u0301", 3),
    ("a\r\nb\r\n", 4),
    ("\n\u0301", 2),
    ("👨‍👩‍👧‍👦", 1),
    ("👨\u200da", 2),
    ("a\u200d👨", 2),
    ("👍🏽👍🏽", 2),
    ("❤\ufe0f\u200d🔥", 1),
    ("🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", 1),
    ("🇩🇪🇫🇷🇮", 3),
    ("a🇩🇪b🇫🇷", 4),
    ("1\ufe0f\u20e3", 1),
    ("\u1112\u1161\u11ab\u1100\u1173\u11af", 2),
    ("한글", 2),
    ("漢字かな", 4),
    ("\u304b\u3099", 1),
    ("ｶ\uff9e", 1),
    ("\u0e01\u0e33", 1),
    ("\u0ba8\u0bbf", 1),
    ("\u0915\u094d\u0937", 1),
    ("\u1000\u102b", 2),
    ("©\ufe0f", 1),
    ("\u06004", 1),
    ("\ud83d\ude00", 2),
    ("Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢", 2),
]


@pytest.mark.parametrize(("text", "expected"), WORDS)
def test_words(text, expected):
    assert tool_output.count(text) == expected


texts = st.text(st.sampled_from("".join(SAMPLES.values()) + "b漢👍🏽é") | st.characters())


flags = st.text("🇩🇪🇫a\r\n\u0308\u200d\u0903\u0600👨")


@given(texts | flags)
@example("\u0600🇩🇪🇫🇷🇮")
@example("🇩🇪\u0308🇫🇷\u200d👨")
def test_characters_are_those_of_the_library(text):
    characters = regex.findall(r"\X", text)
    assert tool_output.count(text) == len(characters)
    assert [tool_output.cut(text, at, 1)[0] for at in range(len(characters))] == characters


@given(texts, st.integers(0, 12), st.integers(0, 12))
@example("e\u0301x", 1, 1)
@example("a\r\n\u1112\u1161\u11abb", 1, 2)
def test_pieces_are_counted_as_the_whole_is(text, start, size):
    piece, total = tool_output.cut(text, start, size)
    assert total == tool_output.count(text)
    head, _ = tool_output.cut(text, 0, start)
    rest, _ = tool_output.cut(text, start + size, len(text))
    assert head + piece + rest == text
    assert tool_output.count(head) == min(start, total)
    assert tool_output.count(piece) == max(0, min(size, total - start))


@given(texts, texts)
def test_joining_texts_joins_one_cluster_at_most(one, other):
    apart = tool_output.count(one) + tool_output.count(other)
    assert apart - tool_output.count(one + "\n" + other) in (-1, 0)  # 0: a carriage return stood before the line break


@pytest.mark.parametrize("text", ["x", "\r\n", "漢", "e\u0301", "🇩", "👨\u200d", "\u1100"])
def test_a_long_text_costs_its_length(text):
    long = text * 200_000  # quadratic time would run for many minutes
    assert tool_output.cut(long, 0, 6000)[1] == tool_output.count(long)
