"""Server-sent events: the specification as an oracle, any chunking, limits, the writer."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest
from hypothesis import example, given, strategies as st

from palaver.core.errors import DecodeError, EncodeError
from palaver.stream import sse
from palaver.stream.frames import LIMIT, Frame
from palaver.stream.sse import SSEReader
from tests.corpus import Exchange, exchanges
from tests.stream.chunking import bytewise, cut, joined, places, read

BOM = b"\xef\xbb\xbf"
WORDS = (
    b"\r", b"\n", b"\r\n", b"\n\n", b"\r\n\r\n", b":", b" ", b"\0", b"0", b"12", b"x",
    b"data", b"data:", b"data: ", b"event", b"event: ", b"id", b"id:", b"retry", b"retry: ", b"other: y",
    b"\xef\xbb\xbf", b"\xef", b"\xbb\xbf", b"\xe2", "\u2028".encode(), "\u0085".encode(), b"\x0b", b"\x1c",
    b'data: {"a":1}\n\n', b'data: {"a":1}\r\n\r\n', b"event: e\ndata: 1\n\n", b": comment\n",
)  # fmt: skip
STREAMS = st.tuples(st.sampled_from((b"", b"", BOM)), joined(WORDS, max_size=40)).map(b"".join)


class Told(NamedTuple):
    """What the oracle says of a stream."""

    events: list[tuple[str, str, str | None]]
    last_id: str | None
    retry: int | None
    error: str | None = None


def oracle(stream: bytes, limit: int | None = None) -> Told:
    """Section 9.2.6 of the HTML standard, sentence by sentence, on the decoded text.

    At the end of the file the last event is dispatched when its data is not empty: our one departure.
    A line, or data, of more than `limit` bytes is an error.
    """

    def length(text: str) -> int:
        return len(text.encode("utf-8", "surrogateescape"))

    def scalar(text: str) -> str:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")

    text = stream.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    *lines, unended = re.split(r"\r\n|\n|\r", text)
    data, event, id_buffer, last_id, retry = "", "", None, None, None
    events: list[tuple[str, str, str | None]] = []
    for line in [*lines, unended] if unended else lines:
        if line == "":
            last_id = id_buffer
            if data != "":
                events.append((scalar(event), scalar(data.removesuffix("\n")), last_id))
            data = event = ""
        elif limit is not None and length(line) > limit:
            return Told(events, last_id, retry, f"sse: frame {len(events) + 1}: longer than {limit} bytes")
        elif line.startswith(":"):
            continue
        else:
            field, value = line, ""
            if ":" in line:
                at = line.index(":")
                field, value = line[:at], line[at + 1 :]
                value = value.removeprefix(" ")
            if field == "event":
                event = value
            elif field == "data":
                data += value + "\n"
                if limit is not None and length(data) > limit + 1:
                    return Told(events, last_id, retry, f"sse: frame {len(events) + 1}: longer than {limit} bytes")
            elif field == "id" and "\0" not in value:
                id_buffer = scalar(value)
            elif field == "retry" and re.fullmatch("[0-9]+", value) and len(value) <= 18:
                retry = int(value)
    if data not in ("", "\n"):
        last_id = id_buffer
        events.append((scalar(event), scalar(data[:-1]), last_id))
    return Told(events, last_id, retry)


def told(reader: SSEReader, chunks: list[bytes]) -> Told:
    frames, error = read(reader, chunks)
    events = [(frame.name, frame.data.decode("utf-8", "replace"), frame.id) for frame in frames]
    return Told(events, reader.last_event_id, reader.retry, error)


# -- the specification -----------------------------------------------------------------------------


@pytest.mark.law(3)
@given(STREAMS, places())
@example(b"\xef\xbb\xbfdata: x", [1, 2])
@example(b"\xef\xbbdata: x\n\n", [1])
@example(b"data: a\r\ndata: b\r\n\r\n", [8])
@example(b"data: a\r\r\ndata: b\n\n", [8, 9])
@example(b"id: 1\n\ndata: x\n\nid\n: c\ndata", [3])
@example(b"data: a\rdata: b\n\ndata: c\n\n", [15])
@example(b"data: 1\n\n\xef\xbb\xbfdata: 2\n\n", [9])
def test_frames_are_those_of_the_specification_at_any_cut(stream, cuts):
    expected = oracle(stream)
    assert told(SSEReader(), [stream]) == expected
    assert told(SSEReader(), cut(stream, cuts)) == expected
    assert told(SSEReader(), bytewise(stream)) == expected


@pytest.mark.parametrize(
    ("stream", "frames"),
    [
        pytest.param(b"data: YHOO\ndata: +2\ndata: 10\n\n", [("", b"YHOO\n+2\n10", None)], id="several-lines"),
        pytest.param(
            b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
            [("", b"first event", "1"), ("", b"second event", ""), ("", b" third event", "")],
            id="ids-and-one-space",
        ),
        pytest.param(b"data\n\ndata\ndata\n\ndata:", [("", b"", None), ("", b"\n", None)], id="empty-data"),
        pytest.param(b"data:test\n\ndata: test\n\n", [("", b"test", None)] * 2, id="missing-space"),
        pytest.param(b"event: add\ndata: 1\n\ndata: 2\n\n", [("add", b"1", None), ("", b"2", None)], id="name-reset"),
        pytest.param(b"event: a\n\ndata: 1\n\n", [("", b"1", None)], id="name-of-no-event"),
        pytest.param(
            b"event: a\n: c\ndata: 1\n\ndata: 2\ndata: 3\n\n",
            [("a", b"1", None), ("", b"2\n3", None)],
            id="name-reset-2",
        ),
        pytest.param(b"event: a\nevent: b\ndata: 1\n\n", [("b", b"1", None)], id="last-name"),
        pytest.param(b"event\ndata: 1\n\n", [("", b"1", None)], id="empty-name"),
        pytest.param(b"id: 1\nid: a\0b\ndata: x\n\n", [("", b"x", "1")], id="id-with-nul"),
        pytest.param(
            b"id: 1\ndata: a\n\nevent: e\ndata: b\n\ndata: c\n\n",
            [("", b"a", "1"), ("e", b"b", "1"), ("", b"c", "1")],
            id="id-stays",
        ),
        pytest.param(b"data: 1\rdata: 2\r\ndata: 3\n\r", [("", b"1\n2\n3", None)], id="mixed-line-ends"),
        pytest.param(BOM + b"data: 1\n\n" + BOM + b"data: 2\n\n", [("", b"1", None)], id="second-mark-is-text"),
        pytest.param(BOM + BOM + b"data: 1\n\n", [], id="one-mark-is-dropped"),
        pytest.param(b" data: 1\nDATA: 2\ndatax: 3\n\n", [], id="unknown-fields"),
        pytest.param(b"data: a:b: c\n\n", [("", b"a:b: c", None)], id="later-colons"),
        pytest.param(b"event: \xff\xc3\xa9\ndata: \xff\n\n", [("\ufffd\u00e9", b"\xff", None)], id="not-utf8"),
        pytest.param(b"id: \xff\nevent: \xff\ndata: 1\n\n", [("\ufffd", b"1", "\ufffd")], id="not-utf8-2"),
        pytest.param(b": ping\ndata: 1\n: ping\ndata: 2\n: ping\n\n", [("", b"1\n2", None)], id="comments-inside"),
        pytest.param(b"\n\n\n\n\ndata: 1\n\n\n\n", [("", b"1", None)], id="many-blank-lines"),
    ],
)
def test_an_example_reads_as_it_says(stream, frames):
    assert [tuple(msg) for msg in ((f.name, f.data, f.id) for f in read(SSEReader(), [stream])[0])] == frames


@pytest.mark.parametrize("odd", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"])
def test_only_cr_and_lf_end_a_line(odd):
    data = f"a{odd}b".encode()
    assert read(SSEReader(), [b"data: %b\n\nevent: e\nid: 1\ndata: %b\n\n" % (data, data)])[0] == [
        Frame("", data),
        Frame("e", data, "1"),
    ]


def test_a_cr_at_the_end_of_a_chunk_is_not_waited_on():
    reader = SSEReader()
    assert reader.feed(b"data: 1\r\r") == [Frame("", b"1")]
    assert reader.feed(b"\ndata: 2\r\n\r") == [Frame("", b"2")]
    assert reader.feed(b"") == []
    assert reader.feed(b"\n\rdata: 3\r\r") == [Frame("", b"3")]


@pytest.mark.parametrize("value", [b"", b"-1", b"1.5", b" 1", b"1 ", b"+1", "²".encode(), "٣".encode(), b"9" * 5000])
def test_a_retry_that_is_not_a_plain_number_is_ignored(value):
    reader = SSEReader()
    reader.feed(b"retry: 250\n\nretry: " + value + b"\n\n")
    assert reader.retry == 250


def test_the_last_event_id_changes_with_the_event():
    reader = SSEReader()
    assert reader.last_event_id is None
    reader.feed(b"id: 7\ndata: x\n")
    assert reader.last_event_id is None
    assert reader.feed(b"\n") == [Frame("", b"x", "7")]
    assert reader.last_event_id == "7"
    reader.feed(b"id: 8\n\n")  # an event without data is none, its id holds
    assert reader.last_event_id == "8"
    reader.feed(b"id: 9\n")
    assert reader.finish() == []
    assert reader.last_event_id == "8"


@pytest.mark.parametrize("end", [b"", b"\n", b"\r", b"\r\n"])
def test_a_last_event_without_its_blank_line_is_given(end):
    stream = b"data: 1\n\nevent: e\ndata: [DONE]" + end
    reader = SSEReader()
    assert reader.feed(stream) == [Frame("", b"1")]
    assert reader.finish() == [Frame("e", b"[DONE]")]
    assert reader.finish() == []


@pytest.mark.parametrize(
    "tail", [b"data", b"data:", b"data: ", b"event: x", b"id: 1", b": c", b"dat", b"\xef\xbb", BOM]
)
def test_a_last_event_without_data_is_not(tail):
    assert read(SSEReader(), [tail]) == ([], None)


# -- recorded traffic ------------------------------------------------------------------------------

RECORDED = [
    param
    for param in exchanges("openai_chat", "openai_responses", "anthropic_messages", "google_generate", "cohere_chat")
    if param.marks or "stream" in param.values[0].record
]


@pytest.mark.law(3)
@pytest.mark.parametrize("recording", RECORDED)
def test_a_recorded_stream_is_the_same_byte_by_byte(recording: Exchange):
    stream = recording.record["stream"].encode()
    whole = read(SSEReader(), [stream])
    assert whole[0]
    assert whole[1] is None
    assert read(SSEReader(), bytewise(stream)) == whole
    assert read(SSEReader(), cut(stream, range(0, len(stream), 97))) == whole
    assert [(f.name, f.data.decode(), f.id) for f in whole[0]] == oracle(stream).events


# -- limits and damage -----------------------------------------------------------------------------


@pytest.mark.law(3)
@given(STREAMS, places(), st.integers(min_value=1, max_value=24))
@example(BOM + b"data: 123456\n\n", [5], 12)
@example(BOM + b"data: 123456\n\n", [5], 11)
@example(b"data: 1\ndata: 2\ndata: 3\n\n", [5], 7)
@example(b"data:1\ndata:2\ndata:3\ndata:4\n\n", [5], 6)
@example(b"data:1\ndata:2\ndata:3\ndata:4\n\n", [5], 7)
def test_the_limit_strikes_at_the_same_place_at_any_cut(stream, cuts, limit):
    expected = oracle(stream, limit)
    assert told(SSEReader(limit), [stream]) == expected
    assert told(SSEReader(limit), cut(stream, cuts)) == expected
    assert told(SSEReader(limit), bytewise(stream)) == expected


@pytest.mark.parametrize("chunks", [1, 7, 64], ids="chunks-of-{}".format)
@pytest.mark.parametrize(
    ("stream", "frames"),
    [
        (b"data: 1\n\ndata: 2\n\ndata: " + b"x" * 100 + b"\n\ndata: 4\n\n", 2),
        (b"data: 1\n\n: " + b"x" * 100, 1),
        (b"data: 1\n\n" + b"data: xxxx\n" * 10, 1),
        (b"id: " + b"x" * 100, 0),
    ],
)
def test_an_event_that_is_too_long_comes_after_the_good_ones(stream, frames, chunks):
    reader = SSEReader(limit=32)
    read_frames, error = read(reader, [stream[at : at + chunks] for at in range(0, len(stream), chunks)])
    assert read_frames == [Frame("", b"%d" % (n + 1)) for n in range(frames)]
    assert error == f"sse: frame {frames + 1}: longer than 32 bytes"


def test_an_error_is_known_at_once_and_raised_by_every_later_call():
    reader = SSEReader(limit=8)
    assert reader.feed(b"data: 1\n\ndata: 123456789") == [Frame("", b"1")]
    assert reader.error is not None
    assert (reader.error.source, reader.error.path) == ("sse", "frame 2")
    for call in (lambda: reader.feed(b"\n\n"), lambda: reader.feed(b""), reader.finish, reader.finish):
        with pytest.raises(DecodeError) as caught:
            call()
        assert caught.value is reader.error


def test_a_line_that_does_not_end_is_not_held_for_ever():
    reader = SSEReader(limit=8)
    for _ in range(12):
        reader.feed(b"x")
    assert reader.error is not None
    assert not reader._line


def test_finish_raises_what_it_finds_itself():
    reader = SSEReader(limit=8)
    assert reader.feed(b"data:456\ndata:890\ndata:4") == []
    assert reader.error is None
    with pytest.raises(DecodeError, match="sse: frame 1: longer than 8 bytes"):
        reader.finish()
    with pytest.raises(DecodeError):
        reader.feed(b"")


def test_comments_do_not_add_up_to_the_limit():
    reader = SSEReader(limit=16)
    for _ in range(100):
        assert reader.feed(b": keep alive\n") == []
    assert reader.feed(b"data: 1\n\n") == [Frame("", b"1")]


def test_the_default_limit_is_64_mebibytes():
    assert LIMIT == 64 * 1024 * 1024
    reader = SSEReader()
    reader.feed(b"data: " + b"x" * (LIMIT - 6) + b"\n")
    assert reader.error is None
    reader.feed(b"data: 123456\n")
    assert reader.error is not None


@given(st.binary(max_size=200), places())
def test_any_bytes_are_read(stream, cuts):
    whole = read(SSEReader(), [stream])
    assert whole[1] is None
    assert read(SSEReader(), cut(stream, cuts)) == whole


# -- writing ---------------------------------------------------------------------------------------

NAMES = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=8)
PAYLOADS = st.one_of(st.binary(max_size=40), joined((b"\n", b"\r", b"\r\n", b" ", b":", b"data: ", b"x"), max_size=12))


@given(st.lists(st.tuples(PAYLOADS, NAMES), max_size=5), places())
@example([(b"", ""), (b" x", " e"), (b"a\r\n\r\nb\r", "")], [])
def test_what_was_written_is_read_back(events, cuts):
    stream = b"".join(sse.write(data, name) for data, name in events)
    expected = [Frame(name, data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")) for data, name in events]
    assert read(SSEReader(), cut(stream, cuts)) == (expected, None)
    assert told(SSEReader(), [stream]) == oracle(stream)


def test_an_event_is_written_as_providers_write_it():
    assert sse.write(b'{"a":1}') == b'data: {"a":1}\n\n'
    assert sse.write(b"{}", "ping") == b"event: ping\ndata: {}\n\n"
    assert sse.write(b"a\r\nb\rc\nd") == b"data: a\ndata: b\ndata: c\ndata: d\n\n"


@pytest.mark.parametrize("name", ["a\nb", "a\rb", "\ud800"])
def test_a_name_that_no_line_can_hold_is_refused(name):
    with pytest.raises(EncodeError, match="the name of an event cannot hold"):
        sse.write(b"{}", name)
