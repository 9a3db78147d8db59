"""Files are cut into records with nothing left out."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from palaver.core import jsontext
from palaver.transcripts import documents
from palaver.transcripts.record import Lines


def records(data, size=None):
    lines = Lines()
    pieces = [data] if size is None else [data[place : place + size] for place in range(0, len(data), size)]
    return [*(record for piece in pieces for record in lines.feed(piece)), *lines.finish()]


@given(st.binary(max_size=200) | st.text(alphabet='{}[]",:\n\r a1\u2028\ud7ff', max_size=200).map(str.encode))
def test_joined_the_records_are_the_file(data):
    found = records(data)
    assert b"".join(record.raw for record in found) == data
    assert [record.at for record in found] == list(range(len(found)))
    for size in (1, 3):
        assert records(data, size) == found


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"a":1}\n', [(1, None)]),
        (b'{"a":1}', [(1, None)]),
        (b'{"a":1}\r\n\r\n{"b":2}\n', [(1, None), (2, "blank"), (3, None)]),
        (b'\xef\xbb\xbf{"a":1}\n', [(1, None)]),
        (b'{"a":1}\n{"b"', [(1, None), (2, "torn")]),
        (b'{"a":1\n{"b":2}\n', [(1, "garbage"), (2, None)]),
        (b'{"a":"\xff"}\n', [(1, "garbage")]),
        (b"[1]\n", [(1, "garbage")]),
        (b"\x00\x00\n", [(1, "garbage")]),
        ('{"a":"\u2028\u2029\u0085"}\n'.encode(), [(1, None)]),
        (b'{"a":"\\ud83d"}\n', [(1, None)]),
        (b'{"a":1}{"b":2} \n', [(1, None), (1, None)]),
        (b'{"a":1}{"b":\n', [(1, "garbage")]),
    ],
)
def test_a_line_is_what_it_is(data, expected):
    found = records(data)
    assert [(record.line, record.flaw) for record in found] == expected
    assert [record.fields is None for record in found] == [flaw is not None for _, flaw in expected]


def test_glued_records_are_parted_and_say_so():
    one, two, three = records(b'{"a":1} {"b":2}{"c":3}\n')
    assert [bytes(jsontext.encode(each.fields)) for each in (one, two, three)] == [b'{"a":1}', b'{"b":2}', b'{"c":3}']
    assert [each.glued for each in (one, two, three)] == [False, True, True]
    assert one.raw + two.raw + three.raw == b'{"a":1} {"b":2}{"c":3}\n'


@pytest.mark.parametrize(
    ("data", "keys", "pieces"),
    [
        (b'{"x":[1],"m":[{"a":1}, {"b":2} ],"y":2}\n', ("m",), [b'{"a":1}', b', {"b":2}']),
        (b'[\n  {"a":1},\n  {"b":2}\n]\n', (), [b'{"a":1}', b',\n  {"b":2}']),
        (b'{"m":[]}', ("m",), []),
        (b'{"a":{"m":[1]}}', ("a", "m"), [b"1"]),
    ],
)
def test_a_document_is_cut_at_its_list(data, keys, pieces):
    cut = documents.cut(data, *keys)
    assert [item.raw for item in cut.items] == pieces
    assert cut.tail is not None
    assert b"".join((cut.head.raw, *pieces, cut.tail.raw)) == data


@pytest.mark.parametrize("data", [b'{"m":1,"m":[2]}', b'{"n":[]}', b"[1", b"", b'{"m":{}}'])
def test_a_document_that_cannot_be_cut_is_one_record(data):
    cut = documents.cut(data, "m")
    assert (cut.head.raw, cut.items, cut.tail) == (data, (), None)


@given(st.lists(st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=5), max_size=3), max_size=4))
def test_the_pieces_of_a_document_are_the_document(items):
    data = jsontext.encode({"first": items, "list": items, "last": None})
    cut = documents.cut(data, "list")
    assert cut.tail is not None
    assert len(cut.items) == len(items)
    assert b"".join((cut.head.raw, *(item.raw for item in cut.items), cut.tail.raw)) == data
