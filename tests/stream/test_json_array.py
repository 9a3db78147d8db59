"""Arrays that are streamed: elements, any chunking, damage, limits."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, strategies as st

from palaver.stream.frames import Frame
from palaver.stream.json_array import JSONArrayReader
from tests.stream.chunking import bytewise, cut, joined, places, read

WORDS = (
    b"[",
    b"]",
    b"{",
    b"}",
    b",",
    b'"',
    b"\\",
    b'"a"',
    b'{"k":"}"}',
    b"12",
    b"null",
    b" ",
    b"\r\n",
    b"\xef\xbb\xbf",
)
ELEMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
SPACE = st.text(" \t\r\n", max_size=3)


def frames(*elements: bytes) -> list[Frame]:
    return [Frame("", element) for element in elements]


@pytest.mark.law(3)
@given(st.lists(ELEMENTS, max_size=6), SPACE, st.booleans(), places())
def test_the_elements_are_given_at_any_cut(elements, space, mark, cuts):
    texts = [json.dumps(element).encode() for element in elements]
    blank = space.encode()
    stream = (b"\xef\xbb\xbf" if mark else b"") + blank + b"[" + blank
    stream += (blank + b"," + blank).join(texts) + blank + b"]" + blank
    for chunks in ([stream], bytewise(stream), cut(stream, cuts)):
        assert read(JSONArrayReader(), chunks) == (frames(*texts), None)


@pytest.mark.law(3)
@given(joined(WORDS, max_size=30), places(), st.integers(min_value=1, max_value=30))
@example(b"[1234567,8]", [5], 7)
@example(b"[" + b" " * 50 + b"1 ", [5], 1)
def test_any_bytes_mean_the_same_at_any_cut(stream, cuts, limit):
    whole = read(JSONArrayReader(limit), [stream])
    assert read(JSONArrayReader(limit), cut(stream, cuts)) == whole
    assert read(JSONArrayReader(limit), bytewise(stream)) == whole
    assert all(0 < len(frame.data) <= limit for frame in whole[0])


def test_an_object_is_given_with_its_last_byte():
    reader = JSONArrayReader()
    assert reader.feed(b'[{"a": "]}\\""') == []
    assert reader.feed(b"}") == frames(b'{"a": "]}\\""}')
    assert reader.feed(b"\n,\n[[1],2]") == frames(b"[[1],2]")
    assert reader.feed(b',"x"') == frames(b'"x"')
    assert reader.feed(b",12") == []
    assert reader.feed(b"\n") == frames(b"12")
    assert reader.feed(b"]\r\n") == []
    assert reader.finish() == []


def test_what_is_left_of_an_element_is_given_at_the_end():
    assert read(JSONArrayReader(), [b'[{"a":1},{"b": "x']) == (frames(b'{"a":1}', b'{"b": "x'), None)
    assert read(JSONArrayReader(), [b'[{"a":1},']) == (frames(b'{"a":1}'), None)
    assert read(JSONArrayReader(), [b" "]) == ([], None)


@pytest.mark.parametrize(
    ("stream", "given_elements", "error"),
    [
        (b"{}", [], "frame 1: expected an array"),
        (b" x", [], "frame 1: expected an array"),
        (b"\xef\xbb", [], None),
        (b"\xef\xbbx", [], "frame 1: expected an array"),
        (b"[,1]", [], "frame 1: expected an element or the end"),
        (b"[1,]", [b"1"], "frame 2: expected an element"),
        (b"[1 2]", [b"1"], "frame 2: expected a comma or the end"),
        (b"[1}", [b"1"], "frame 2: expected a comma or the end"),
        (b"[}", [], "frame 1: expected an element or the end"),
        (b"[]]", [], "frame 1: bytes behind the end of the array"),
        (b"[1][", [b"1"], "frame 2: bytes behind the end of the array"),
    ],
)
def test_what_is_no_array_is_damage(stream, given_elements, error):
    expected = (frames(*given_elements), None if error is None else f"jsonarray: {error}")
    assert read(JSONArrayReader(), [stream]) == expected
    assert read(JSONArrayReader(), bytewise(stream)) == expected


def test_an_element_may_not_be_longer_than_the_limit():
    expected = (frames(b'["ab"]'), "jsonarray: frame 2: longer than 6 bytes")
    stream = b'[["ab"]  ,  ["abc"]]'
    assert read(JSONArrayReader(6), [stream]) == expected
    assert read(JSONArrayReader(6), bytewise(stream)) == expected


def test_work_is_linear_in_the_bytes():
    element = b'{"text": "' + b'\\"x' * 100_000 + b'", "n": ' + b"[" * 5_000 + b"]" * 5_000 + b"}"
    assert read(JSONArrayReader(), bytewise(b"[" + element + b" " * 100_000 + b"]")) == (frames(element), None)
    # so long that quadratic time would run for many minutes
