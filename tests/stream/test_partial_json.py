"""JSON that is still arriving: what is shown is certain, and in the end it is what jsontext.value gives."""

import random
import threading

import pytest
from hypothesis import assume, given, settings, strategies as st
from msgspec import UNSET

from palaver import DecodeError
from palaver.core import jsontext
from palaver.stream.partial_json import PartialJSON
from palaver.testing import strategies
from tests.generated import examples
from tests.stream.jsontexts import contained, cut, json_texts, once, same


def read(*pieces):
    reading = PartialJSON()
    for piece in pieces:
        reading.feed(piece)
        assert reading.value is reading.value
    reading.finish()
    return reading


def shown(text):
    reading = PartialJSON()
    reading.feed(text)
    return reading.value


places = st.lists(st.integers(0, 10_000), max_size=8)


@pytest.mark.law(3)
@settings(max_examples=examples(300))
@given(json_texts(), places)
def test_any_chunking_ends_in_the_value(text, places):
    expected = jsontext.value(text)
    for pieces in (cut(text, places), list(text), [text]):
        reading = read(*pieces)
        assert reading.error is None
        assert reading.complete
        assert reading.offset == len(text)
        assert same(reading.value, expected)


@pytest.mark.law(3)
@settings(max_examples=examples(100))
@given(strategies.json_values(), places)
def test_any_chunking_of_a_value_of_ours_ends_in_it(value, places):
    text = jsontext.encode(value).decode()
    assert same(read(*cut(text, places)).value, jsontext.value(text))


@settings(max_examples=examples(200))
@given(json_texts())
def test_what_is_shown_is_contained_in_the_end(text):
    assume(once(text))  # of a key that comes twice the first value is shown, then the second
    end = jsontext.value(text)
    reading = PartialJSON()
    for char in text:
        reading.feed(char)
        assert contained(reading.value, end)


MARKS = '{}[]:,"\\ \n0123456789-+.eEtruefalsn/bu\x00\x1fdDaA😀\ud83dNI'


@pytest.mark.law(6)
def test_text_is_refused_when_jsontext_refuses_it():
    rng = random.Random(3)
    seeds = [
        '{"a": [1, -2.5e+3, true, null, "x\\ud83d\\ude00\\u12"], "b": {"c": false}} ',
        r'["\ud83d\ud83d\ude00\n", 0.10, {}, [], {"k": "\\"}]',
        "12",
        '"\\"',
        "",
    ]
    refused = taken = 0
    for _ in range(8000):
        text = list(rng.choice(seeds))
        for _ in range(rng.randint(0, 3)):
            at = rng.randint(0, len(text))
            text[at : at + rng.randint(0, 2)] = rng.choice(MARKS) * rng.randint(0, 2)
        text = "".join(text)
        reading = read(*cut(text, [rng.randint(0, 99) for _ in range(rng.randint(0, 4))]))
        try:
            expected = jsontext.value(text)
        except DecodeError:
            refused += 1
            assert reading.error, text
            assert not reading.complete
            assert 0 <= reading.offset <= len(text)
        else:
            taken += 1
            assert reading.error is None, (text, reading.error)
            assert reading.complete
            assert same(reading.value, expected)
    assert refused > 1000
    assert taken > 1000


@pytest.mark.law(6)
@given(st.lists(st.text(st.sampled_from(MARKS), max_size=6)))
def test_no_text_raises(pieces):
    reading = read(*pieces)
    assert (reading.error is None) == reading.complete


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", UNSET),
        (" \n", UNSET),
        ("{", {}),
        ('{"a', {}),
        ('{"a":', {}),
        ('{"a": 1', {}),
        ('{"a": -', {}),
        ('{"a": tru', {}),
        ('{"a": true', {"a": True}),
        ('{"a": 1 ', {"a": 1}),
        ('{"a": "', {"a": ""}),
        ('{"a": [', {"a": []}),
        ('{"a": 1, "b": {', {"a": 1, "b": {}}),
        ("[1, 2", [1]),
        ("12", UNSET),
        ("12 ", 12),
        ('"a', "a"),
        ('"a\\', "a"),
        ('"a\\u12', "a"),
        ('"a\\ud83d', "a"),
        ('"a\\ud83d\\', "a"),
        ('"a\\ud83d\\ude0', "a"),
        ('"a\\ud83d\\ude00', "a😀"),
        ('"a\\ud83dx', "a\ud83dx"),
        ('"a\\ud83d\\n', "a\ud83d\n"),
        ('"a\\ude00', "a\ude00"),
        ('"a\\ud83d\\ud83d', "a\ud83d"),
        ('{"a": 1, "a": 2, "a": "x', {"a": "x"}),
    ],
)
def test_shown_so_far(text, value):
    assert same(shown(text), value)
    reading = PartialJSON()
    for char in text:
        reading.feed(char)
    assert same(reading.value, value)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "character 0: the text ends before the value does"),
        ('{"a": "b', "character 8: the text ends before the value does"),
        ("[1,", "character 3: the text ends before the value does"),
        ("[1,]", "character 3: expected a value, got ']'"),
        ('{"a" 1}', "character 5: expected a colon, got '1'"),
        ("{'a': 1}", 'character 1: expected a key, got "\'"'),
        ('{"a": 1,}', "character 8: expected a key, got '}'"),
        ("[1}", "character 2: expected a comma or the end of the array, got '}'"),
        ("[NaN]", "character 1: expected a value, got 'N'"),
        ("[nan]", "character 2: expected 'u', got 'a'"),
        ("[01]", "character 1: not a number"),
        ("-", "character 0: not a number"),
        ('["a\\x"]', "character 3: no such escape"),
        ('["a\\ud83d\\u00g0"]', "character 9: no such escape"),
        ('["a\n"]', "character 3: control character '\\n' in a string"),
        ("{} {", "character 3: expected nothing after the value, got '{'"),
        ("\ufeff{}", "character 0: expected a value, got '\\ufeff'"),
    ],
)
def test_errors_name_the_character(text, error):
    for pieces in ([text], list(text)):
        reading = read(*pieces)
        assert reading.error == error
        assert error.startswith(f"character {reading.offset}: ")
        assert not reading.complete


def test_what_was_read_before_an_error_stays_and_nothing_follows():
    reading = PartialJSON()
    reading.feed('{"a": 1, "b": "x' + "y" * 5000)
    reading.feed("z\x00")
    before = reading.error
    reading.feed('"}')
    reading.finish()
    assert reading.error == before
    assert reading.value == {"a": 1, "b": "x" + "y" * 5000 + "z"}


def test_the_view_is_live():
    reading = PartialJSON()
    reading.feed('{"a": [')
    view, inner = reading.value, reading.value["a"]
    reading.feed('1, 2], "b": null}')
    assert view is reading.value
    assert inner is view["a"]
    assert view == {"a": [1, 2], "b": None}


def test_a_long_open_string_lags_by_a_64th_at_most_and_ends_whole():
    reading = PartialJSON()
    reading.feed('["')
    for index in range(1, 3000):
        reading.feed("0123456789")
        length = len(reading.value[0])
        assert length == index * 10 or (length >= 4096 and index * 10 - length <= length // 64 + 10)
    reading.feed('"')
    assert reading.value == ["0123456789" * 2999]


def test_an_open_string_that_never_ends_is_shown_whole_when_nothing_follows():
    reading = read('["', *["0123456789"] * 2999)
    assert reading.value == ["0123456789" * 2999]
    assert reading.error


@pytest.mark.law(6)
def test_no_depth_is_too_deep():
    def work():
        depth = 300_000
        reading = PartialJSON()
        for _ in range(depth):
            reading.feed('{"a":[')
        reading.feed("]}" * depth)
        done.append(reading.complete)

    done = []
    threading.stack_size(512 * 1024)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(60)
    finally:
        threading.stack_size(0)
    assert done == [True]


@pytest.mark.law(6)
@pytest.mark.parametrize("unit", ["a", "\\n", "\\ud83d", "\\ud83d\\ude00", "é"])
def test_a_megabyte_in_tiny_pieces_does_not_hang(unit):
    text = '{"a": "' + unit * (300_000 // len(unit)) + '"}'
    reading = PartialJSON()
    kept = None
    for at in range(0, len(text), 3):
        reading.feed(text[at : at + 3])
        kept = reading.value.get("a") if reading.value is not UNSET else None
    assert kept == jsontext.value(text)["a"]


@pytest.mark.law(6)
def test_a_number_of_a_megabyte_in_tiny_pieces_does_not_hang():
    digits = "9" * 300_000
    reading = read(*(digits[at : at + 3] for at in range(0, len(digits), 3)))
    assert reading.value.text == digits
