"""What of a result the model is sent: DAS-24; docs/spec/kairo.md#2.4, golden ``output_compress``."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

import palaver as p
from palaver.core.parts import Json
from palaver.turn import tool_output
from palaver.turn.tool_output import Limited, compress, limit, stretch

NOTE = "\n[Result truncated: showing the first {} of {} characters.]"
IMAGE = p.Image.from_bytes(b"\x89PNG\r\n\x1a\n")


def text(*texts: Any) -> Any:
    return tuple(p.Text(each) for each in texts)


@pytest.mark.row("DAS-24")
@pytest.mark.parametrize("character", ["x", "漢", "e\u0301", "👨‍👩‍👧", "🇩🇪", "\r\n"])
def test_a_result_is_cut_above_6000_characters(character: Any) -> None:
    fits = text(character * 6000)
    assert limit(fits) == Limited(fits)
    over = limit(text(character * 6001))
    assert over.content == text(character * 6000 + NOTE.format(6000, 6001))
    assert over.whole == character * 6001


@pytest.mark.row("DAS-24")
def test_marks_that_follow_the_limit_belong_to_the_last_character() -> None:
    fits = text("x" * 6000 + "\u0301" * 50)
    assert limit(fits).content is fits
    cut = limit(text("x" * 6000 + "\u0301" * 50 + "y"))
    assert cut.content == text("x" * 6000 + "\u0301" * 50 + NOTE.format(6000, 6001))


def test_parts_share_the_limit_and_media_stays() -> None:
    content = (p.Text("12345"), IMAGE, Json.of({"a": "bc"}), p.Text("never shown"), IMAGE)
    cut = limit(content, 8)
    assert cut.content == (p.Text("12345"), IMAGE, p.Text('{"a' + NOTE.format(8, 26)), IMAGE)
    assert cut.whole == '12345\n{"a":"bc"}\nnever shown'
    assert limit(content, 26) == Limited(content)
    assert limit((IMAGE,), 0) == Limited((IMAGE,))
    exact = limit((p.Text("12345"), p.Text("6")), 5)
    assert exact.content == (p.Text("12345"), p.Text(NOTE.format(5, 6)))


def test_a_handle_says_how_to_read_on() -> None:
    cut = limit((IMAGE, p.Text("x" * 10)), 4)
    shown: Any = cut.with_handle("sha256:00")
    assert shown[0] == IMAGE
    assert shown[1].text == (
        "xxxx" + NOTE.format(4, 10) + '\n[To read on, call read_result with {"handle": "sha256:00", "start": 4}.]'
    )
    whole = limit(text("x"), 4)
    assert whole.with_handle("sha256:00") == whole.content


parts = st.one_of(st.text().map(p.Text), st.just(IMAGE), st.dictionaries(st.text(), st.integers()).map(Json.of))


@given(st.lists(parts).map(tuple), st.integers(0, 30))
def test_the_whole_is_given_back_exactly_when_something_was_cut(content: Any, characters: Any) -> None:
    cut = limit(content, characters)
    said = [
        part.text if isinstance(part, p.Text) else bytes(part.value_json).decode() for part in content if part != IMAGE
    ]
    total = sum(map(tool_output.count, said))
    if total <= characters:
        assert cut == Limited(content)
        return
    assert cut.whole == "\n".join(said)
    note = NOTE.format(characters, total)
    noted: Any = cut.content[cut.at]
    assert noted.text.endswith(note)
    before = [part for part in cut.content[: cut.at] if part != IMAGE]
    assert before == [part for part in content if part != IMAGE][: len(before)]
    assert [part for part in cut.content if part == IMAGE] == [part for part in content if part == IMAGE]


def test_stretches_of_a_result_make_the_whole() -> None:
    whole = "é🇩🇪\r\n" * 10
    first = stretch(whole, 0, 12)
    assert first == "é🇩🇪\r\n" * 4 + '\n[Characters 0 to 12 of 30. Read on with "start": 12.]'
    assert stretch(whole, 24, 12) == "é🇩🇪\r\n" * 2
    assert stretch(whole, 99, 12) == ""
    assert stretch(whole, -5, 30) == whole


COMPRESS = [
    ("a\na\na\nb", "a\na\na\nb"),
    ("a\na\na\na\nb\n", "a\n[repeated 3 more time(s)]\nb\n"),
    ("x" * 30000, "x" * 2000 + "\n[... 25000 chars omitted (middle) ...]\n" + "x" * 3000),
    ("x" * 20000, "x" * 20000),
    ("x" * 20001, "x" * 2000 + "\n[... 15001 chars omitted (middle) ...]\n" + "x" * 3000),
    ("line\n" * 10000, "line\n[repeated 9999 more time(s)]\n"),
    ("\n\n\n\n", "\n[repeated 4 more time(s)]"),
    ("", ""),
]


@pytest.mark.row("KAI-17")
@pytest.mark.parametrize(("given_", "expected"), COMPRESS)
def test_compression_equals_the_golden(given_: Any, expected: Any) -> None:
    assert compress(given_) == expected


@given(st.lists(st.sampled_from(["a", "b", ""]), max_size=40).map("\n".join))
def test_compression_twice_is_compression_once(lines: Any) -> None:
    assert compress(compress(lines)) == compress(lines)
