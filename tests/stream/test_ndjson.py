"""Lines of JSON: line ends, blank lines, any chunking, limits, the writer."""

from __future__ import annotations

import pytest
from hypothesis import example, given, strategies as st

from palaver.core.errors import DecodeError, EncodeError
from palaver.stream import ndjson
from palaver.stream.frames import Frame
from palaver.stream.ndjson import NDJSONReader
from tests.stream.chunking import bytewise, cut, joined, places, read

WORDS = (b"\n", b"\r\n", b"\r", b" ", b"\t", b"\n\n", b"{}", b'{"a":1}', b"x", "\u2028".encode(), b"\x0b", b"\xff")
STREAMS = joined(WORDS, max_size=30)


def oracle(stream: bytes, limit: int) -> tuple[list[bytes], bool]:
    """The lines that hold something up to the first one that is too long, and whether there is one."""
    given_lines: list[bytes] = []
    for line in stream.split(b"\n"):
        bare = line[:-1] if line[-1:] == b"\r" else line
        if len(bare) > limit:
            return given_lines, True
        if bare.replace(b" ", b"").replace(b"\t", b"").replace(b"\r", b""):
            given_lines.append(bare)
    return given_lines, False


@pytest.mark.law(3)
@given(STREAMS, places(), st.integers(min_value=1, max_value=30))
@example(b"12345\r\n", [6], 5)
@example(b"12345\r\r\n", [6], 5)
@example(b"12345\r6\n", [6], 5)
@example(b"\x0b\n \n\x0b", [1], 5)
def test_lines_are_the_same_at_any_cut(stream, cuts, limit):
    lines, broken = oracle(stream, limit)
    frames = [Frame("", line) for line in lines]
    error = f"ndjson: frame {len(lines) + 1}: longer than {limit} bytes" if broken else None
    assert read(NDJSONReader(limit), [stream]) == (frames, error)
    assert read(NDJSONReader(limit), cut(stream, cuts)) == (frames, error)
    assert read(NDJSONReader(limit), bytewise(stream)) == (frames, error)


def test_a_line_is_given_without_its_end():
    reader = NDJSONReader()
    assert reader.feed(b'{"a":1}\n{"b":2}\r\n\n \t\r\n{"c"') == [Frame("", b'{"a":1}'), Frame("", b'{"b":2}')]
    assert reader.feed(b":3}") == []
    assert reader.finish() == [Frame("", b'{"c":3}')]
    assert reader.finish() == []


@pytest.mark.parametrize("odd", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c", "\r"])
def test_only_lf_ends_a_line(odd):
    data = f'"a{odd}b"'.encode()
    assert read(NDJSONReader(), [data + b"\n" + data]) == ([Frame("", data)] * 2, None)


def test_an_error_is_known_at_once_and_raised_by_every_later_call():
    reader = NDJSONReader(limit=4)
    assert reader.feed(b"1\n2\n345678") == [Frame("", b"1"), Frame("", b"2")]
    assert reader.error is not None
    assert (reader.error.source, reader.error.path) == ("ndjson", "frame 3")
    for call in (lambda: reader.feed(b"\n"), reader.finish):
        with pytest.raises(DecodeError) as caught:
            call()
        assert caught.value is reader.error


def test_finish_raises_what_it_finds_itself():
    reader = NDJSONReader(limit=4)
    assert reader.feed(b"12345") == []  # a CR might be the fifth byte of a line
    with pytest.raises(DecodeError, match="ndjson: frame 1: longer than 4 bytes"):
        reader.finish()
    with pytest.raises(DecodeError):
        reader.feed(b"")


@given(st.lists(st.binary(max_size=20).filter(lambda data: b"\n" not in data and data.strip(b" \t\r")), max_size=5))
def test_what_was_written_is_read_back(lines):
    stream = b"".join(ndjson.write(line) for line in lines)
    expected = [Frame("", line.removesuffix(b"\r")) for line in lines]
    assert read(NDJSONReader(), [stream]) == (expected, None)


@pytest.mark.parametrize("data", [b"a\nb", b"a\n", b"", b" \t\r"])
def test_what_is_no_line_is_refused(data):
    with pytest.raises(EncodeError, match="ndjson"):
        ndjson.write(data)
