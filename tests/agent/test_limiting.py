"""What of a result the model is sent: DAS-24; docs/spec/kairo.md#2.4, goldens ``tool_result_budget`` and
``output_compress``."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

import palaver as p
from palaver.agent import graphemes
from palaver.agent.limiting import Limited, compress, limit, share_out, shares, stretch
from palaver.core.parts import Json

NOTE = "\n[Result truncated: showing the first {} of {} characters.]"
IMAGE = p.Image.from_bytes(b"\x89PNG\r\n\x1a\n")


def text(*texts):
    return tuple(p.Text(each) for each in texts)


@pytest.mark.row("DAS-24")
@pytest.mark.parametrize("character", ["x", "漢", "e\u0301", "👨‍👩‍👧", "🇩🇪", "\r\n"])
def test_a_result_is_cut_above_6000_characters(character):
    fits = text(character * 6000)
    assert limit(fits) == Limited(fits)
    over = limit(text(character * 6001))
    assert over.content == text(character * 6000 + NOTE.format(6000, 6001))
    assert over.whole == character * 6001


@pytest.mark.row("DAS-24")
def test_marks_that_follow_the_limit_belong_to_the_last_character():
    fits = text("x" * 6000 + "\u0301" * 50)
    assert limit(fits).content is fits
    cut = limit(text("x" * 6000 + "\u0301" * 50 + "y"))
    assert cut.content == text("x" * 6000 + "\u0301" * 50 + NOTE.format(6000, 6001))


def test_parts_share_the_limit_and_media_stays():
    content = (p.Text("12345"), IMAGE, Json.of({"a": "bc"}), p.Text("never shown"), IMAGE)
    cut = limit(content, 8)
    assert cut.content == (p.Text("12345"), IMAGE, p.Text('{"a' + NOTE.format(8, 26)), IMAGE)
    assert cut.whole == '12345\n{"a":"bc"}\nnever shown'
    assert limit(content, 26) == Limited(content)
    assert limit((IMAGE,), 0) == Limited((IMAGE,))
    exact = limit((p.Text("12345"), p.Text("6")), 5)
    assert exact.content == (p.Text("12345"), p.Text(NOTE.format(5, 6)))


def test_a_handle_says_how_to_read_on():
    cut = limit((IMAGE, p.Text("x" * 10)), 4)
    shown = cut.with_handle("sha256:00")
    assert shown[0] == IMAGE
    assert shown[1].text == (
        "xxxx" + NOTE.format(4, 10) + '\n[To read on, call read_result with {"handle": "sha256:00", "start": 4}.]'
    )
    whole = limit(text("x"), 4)
    assert whole.with_handle("sha256:00") == whole.content


parts = st.one_of(st.text().map(p.Text), st.just(IMAGE), st.dictionaries(st.text(), st.integers()).map(Json.of))


@given(st.lists(parts).map(tuple), st.integers(0, 30))
def test_the_whole_is_given_back_exactly_when_something_was_cut(content, characters):
    cut = limit(content, characters)
    said = [
        part.text if isinstance(part, p.Text) else bytes(part.value_json).decode() for part in content if part != IMAGE
    ]
    total = sum(map(graphemes.count, said))
    if total <= characters:
        assert cut == Limited(content)
        return
    assert cut.whole == "\n".join(said)
    note = NOTE.format(characters, total)
    noted = cut.content[cut.at]
    assert noted.text.endswith(note)
    before = [part for part in cut.content[: cut.at] if part != IMAGE]
    assert before == [part for part in content if part != IMAGE][: len(before)]
    assert [part for part in cut.content if part == IMAGE] == [part for part in content if part == IMAGE]


def test_stretches_of_a_result_make_the_whole():
    whole = "é🇩🇪\r\n" * 10
    first = stretch(whole, 0, 12)
    assert first == "é🇩🇪\r\n" * 4 + '\n[Characters 0 to 12 of 30. Read on with "start": 12.]'
    assert stretch(whole, 24, 12) == "é🇩🇪\r\n" * 2
    assert stretch(whole, 99, 12) == ""
    assert stretch(whole, -5, 30) == whole


BUDGET = [
    (178904, 1, 100, 8192, 2048, 25, 0, 100),
    (178904, 1, 20000, 8192, 2048, 5000, 1, 8192),
    (178904, 4, 20000, 8192, 2048, 20000, 4, 8192),
    (178904, 10, 20000, 8192, 819, 50000, 10, 3276),
    (8904, 1, 20000, 3116, 2048, 5000, 1, 8192),
    (904, 2, 9000, 316, 158, 4500, 2, 632),
    (0, 1, 2000, 256, 256, 500, 1, 1024),
]


@pytest.mark.row("KAI-17")
@pytest.mark.parametrize("row", BUDGET)
def test_shares_equal_the_golden(row):
    remaining, results, size, total, each, original, cut, kept = row
    assert shares(remaining, results) == (total, each)
    shared = share_out([text("x" * size)] * results, remaining)
    suffix = f"\n...[truncated by ToolResultBudget: originalTokens={size // 4}, keptTokens={each}]" if cut else ""
    assert shared.contents == (text("x" * kept + suffix),) * results
    assert shared.whole == (("x" * size) if cut else None,) * results
    assert shared.metadata == {
        "tool_result_budget_applied": cut > 0,
        "tool_result_budget_kept_tokens": min(size // 4, each) * results,
        "tool_result_budget_original_tokens": original,
        "tool_result_budget_per_result_tokens": each,
        "tool_result_budget_remaining_tokens": remaining,
        "tool_result_budget_truncated_count": cut,
    }


@pytest.mark.row("KAI-17")
@pytest.mark.parametrize(("remaining", "results", "total", "each"), [(0, 8, 256, 32), (904, 10, 316, 31)])
def test_many_results_share_less_than_the_least(remaining, results, total, each):
    assert shares(remaining, results) == (total, each)


@pytest.mark.row("KAI-17")
@given(st.integers(-10, 10**6), st.integers(0, 1000))
def test_the_sum_of_the_shares_never_exceeds_the_total(remaining, results):
    total, each = shares(remaining, results)
    assert each * results <= total
    assert 256 <= total <= 8192
    assert each <= 2048


def test_a_share_is_of_all_text_of_a_result():
    content = (p.Text("x" * 900), IMAGE, Json.of("y" * 2000), p.Text("z"))
    shared = share_out([content, text("short")], 0)
    assert shares(0, 2) == (256, 128)
    note = "\n...[truncated by ToolResultBudget: originalTokens=726, keptTokens=128]"
    assert shared.contents == ((p.Text("x" * 512 + note), IMAGE), text("short"))
    assert shared.metadata["tool_result_budget_truncated_count"] == 1


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
def test_compression_equals_the_golden(given_, expected):
    assert compress(given_) == expected


@given(st.lists(st.sampled_from(["a", "b", ""]), max_size=40).map("\n".join))
def test_compression_twice_is_compression_once(lines):
    assert compress(compress(lines)) == compress(lines)
