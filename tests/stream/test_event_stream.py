"""AWS event streams: botocore as the other side, every cut, every damaged byte, limits, the writer."""

from __future__ import annotations

import base64
import struct
from binascii import crc32

import pytest
from botocore.eventstream import EventStreamBuffer
from hypothesis import given, strategies as st

from palaver.core.errors import DecodeError, EncodeError
from palaver.stream import event_stream
from palaver.stream.event_stream import EventStreamReader
from palaver.stream.frames import Frame
from tests.corpus import Exchange, exchanges
from tests.stream.chunking import bytewise, cut, places, read

STREAM = event_stream.write(b'{"a":1}', "messageStart") + event_stream.write(b"", "messageStop")
FRAMES = [Frame("messageStart", b'{"a":1}'), Frame("messageStop", b"")]


def header(name: bytes, kind: int, value: bytes) -> bytes:
    return bytes([len(name)]) + name + bytes([kind]) + value


def text(name: bytes, value: bytes) -> bytes:
    return header(name, 7, struct.pack(">H", len(value)) + value)


def message(headers: bytes, payload: bytes = b"", *, total: int | None = None, length: int | None = None) -> bytes:
    """A message with right checksums, and with these lengths in its prelude."""
    total = 16 + len(headers) + len(payload) if total is None else total
    lengths = struct.pack(">II", total, len(headers) if length is None else length)
    body = lengths + struct.pack(">I", crc32(lengths)) + headers + payload
    return body + struct.pack(">I", crc32(body))


def botocore(stream: bytes) -> list[tuple[dict, bytes]]:
    buffer = EventStreamBuffer()
    buffer.add_data(stream)
    return [(found.headers, found.payload) for found in buffer]


# -- reading ---------------------------------------------------------------------------------------


@pytest.mark.row("DAS-15")
@pytest.mark.law(3)
def test_frames_are_the_same_at_every_cut():
    assert read(EventStreamReader(), [STREAM]) == (FRAMES, None)
    assert read(EventStreamReader(), bytewise(STREAM)) == (FRAMES, None)
    for first in range(len(STREAM) + 1):
        assert read(EventStreamReader(), cut(STREAM, [first])) == (FRAMES, None)
        for second in range(first, len(STREAM) + 1, 5):
            assert read(EventStreamReader(), cut(STREAM, [first, second])) == (FRAMES, None)


RECORDED = [
    param for param in exchanges("bedrock_converse") if param.marks or "stream_base64" in param.values[0].record
]


@pytest.mark.row("DAS-15")
@pytest.mark.law(3)
@pytest.mark.parametrize("recording", RECORDED)
def test_a_recorded_stream_reads_as_botocore_reads_it_and_is_written_again(recording: Exchange):
    stream = base64.b64decode(recording.record["stream_base64"])
    frames, error = read(EventStreamReader(), [stream])
    assert error is None
    assert frames
    assert [
        ({":event-type": f.name, ":content-type": "application/json", ":message-type": f.kind}, f.data) for f in frames
    ] == botocore(stream)
    assert read(EventStreamReader(), bytewise(stream)) == (frames, None)
    assert b"".join(event_stream.write(frame.data, frame.name, kind=frame.kind) for frame in frames) == stream


def test_all_types_of_headers_are_read_past():
    headers = b"".join(
        (
            header(b"true", 0, b""),
            header(b"false", 1, b""),
            header(b"byte", 2, b"\x01"),
            header(b"short", 3, b"\x01\x02"),
            header(b"int", 4, b"\x01\x02\x03\x04"),
            header(b"long", 5, bytes(8)),
            header(b"bytes", 6, b"\x00\x03\xff\x07:"),
            header(b"timestamp", 8, bytes(8)),
            header(b"uuid", 9, bytes(16)),
            text(b":event-type", "e\u00e9".encode()),
            text(b":message-type", b"event"),
        )
    )
    stream = message(headers, b"{}")
    assert len(botocore(stream)[0][0]) == 11
    assert read(EventStreamReader(), [stream]) == ([Frame("e\u00e9", b"{}")], None)


@pytest.mark.row("DAS-15")
@pytest.mark.parametrize(
    ("headers", "payload", "frame"),
    [
        pytest.param(
            text(b":exception-type", b"throttlingException")
            + text(b":content-type", b"application/json")
            + text(b":message-type", b"exception"),
            b'{"message":"slow down"}',
            Frame("throttlingException", b'{"message":"slow down"}', None, "exception"),
            id="exception",
        ),
        pytest.param(
            text(b":error-code", b"500") + text(b":error-message", b"no") + text(b":message-type", b"error"),
            b"",
            Frame("500", b"no", None, "error"),
            id="error",
        ),
        pytest.param(
            text(b":message-type", b"error"), b"what", Frame("", b"what", None, "error"), id="error-without-message"
        ),
        pytest.param(b"", b"{}", Frame("", b"{}"), id="no-headers"),
        pytest.param(
            text(b":event-type", b"e") + text(b":error-message", b"no"), b"{}", Frame("e", b"{}"), id="no-kind"
        ),
    ],
)
def test_the_kind_says_which_headers_count(headers, payload, frame):
    assert read(EventStreamReader(), [message(headers, payload)]) == ([frame], None)


# -- damage ----------------------------------------------------------------------------------------


@pytest.mark.row("DAS-15")
@pytest.mark.law(6)
def test_no_damaged_byte_passes():
    for at in range(len(STREAM)):
        for flip in (1, 0x10, 0x80, 0xFF):
            damaged = bytearray(STREAM)
            damaged[at] ^= flip
            frames, error = read(EventStreamReader(), [bytes(damaged)])
            assert error is not None
            assert error.startswith(f"event stream: frame {len(frames) + 1}: ")
            assert frames == FRAMES[: len(frames)]
            assert read(EventStreamReader(), bytewise(bytes(damaged))) == (frames, error)


@pytest.mark.row("DAS-15")
def test_a_truncated_tail_is_an_error():
    ends = (0, len(event_stream.write(b'{"a":1}', "messageStart")), len(STREAM))
    for end in range(len(STREAM)):
        frames, error = read(EventStreamReader(), [STREAM[:end]])
        assert frames == FRAMES[: sum(whole <= end for whole in ends) - 1]
        if end in ends:
            assert error is None
        else:
            assert error is not None
            assert "the stream ends after" in error


@pytest.mark.row("DAS-15")
@pytest.mark.parametrize(
    ("prelude", "reason"),
    [
        (message(b"", total=15)[:12], "a message cannot have 15 bytes"),
        (message(b"", total=0)[:12], "a message cannot have 0 bytes"),
        (message(b"", total=20, length=5)[:12], "a message of 20 bytes cannot have 5 bytes of headers"),
        (
            message(b"", total=16, length=2**32 - 1)[:12],
            "a message of 16 bytes cannot have 4294967295 bytes of headers",
        ),
        (message(b"", total=1001)[:12], "longer than 1000 bytes"),
        (message(b"", total=2**32 - 1)[:12], "longer than 1000 bytes"),
        (bytes(12), "the prelude CRC is wrong"),
        (b"HTTP/1.1 502", "the prelude CRC is wrong"),
    ],
)
def test_a_bad_prelude_is_an_error_as_soon_as_it_is_there(prelude, reason):
    reader = EventStreamReader(limit=1000)
    assert reader.feed(STREAM + prelude[:11]) == FRAMES
    assert reader.error is None
    assert reader.feed(prelude[11:]) == []
    assert str(reader.error) == f"event stream: frame 3: {reason}"
    for call in (lambda: reader.feed(b""), reader.finish):
        with pytest.raises(DecodeError) as caught:
            call()
        assert caught.value is reader.error


def test_the_limit_is_the_length_of_a_message():
    first = event_stream.write(b'{"a":1}', "messageStart")
    assert read(EventStreamReader(limit=len(first)), [STREAM]) == (FRAMES, None)
    assert read(EventStreamReader(limit=len(first) - 1), [STREAM]) == (
        [],
        f"event stream: frame 1: longer than {len(first) - 1} bytes",
    )


def test_good_frames_come_before_the_error_of_the_same_feed():
    reader = EventStreamReader()
    assert reader.feed(STREAM[:-1] + b"?") == FRAMES[:1]
    assert str(reader.error) == "event stream: frame 2: the message CRC is wrong"


@pytest.mark.row("DAS-15")
@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        (b"\x05abc", "a header is longer than the headers"),
        (b"\x03abc", "a header is longer than the headers"),
        (header(b"a", 2, b""), "a header is longer than the headers"),
        (header(b"a", 9, bytes(15)), "a header is longer than the headers"),
        (header(b"a", 7, b"\x00"), "a header is longer than the headers"),
        (header(b"a", 7, b""), "a header is longer than the headers"),
        (header(b"a", 7, b"\x00\x02x"), "a header is longer than the headers"),
        (header(b"a", 6, b"\xff\xffx"), "a header is longer than the headers"),
        (header(b"a", 10, b""), "header a: unknown type 10"),
        (header(b"a", 255, b""), "header a: unknown type 255"),
        (header(b"\xff", 0, b""), "a header is not UTF-8"),
        (text(b"a", b"\xff"), "a header is not UTF-8"),
        (text(b"a", b"1") + text(b"a", b"1"), "header a: comes twice"),
        (text(b":message-type", b"noise"), "header :message-type: unknown kind 'noise'"),
        (text(b":message-type", b""), "header :message-type: unknown kind ''"),
        (header(b":message-type", 0, b""), "header :message-type: expected a text"),
        (header(b":event-type", 2, b"e"), "header :event-type: expected a text"),
        (
            text(b":message-type", b"error") + header(b":error-message", 1, b""),
            "header :error-message: expected a text",
        ),
    ],
)
def test_bad_headers_are_an_error(headers, reason):
    frames, error = read(EventStreamReader(), [STREAM + message(headers, b"{}")])
    assert frames == FRAMES
    assert error is not None
    assert error.removeprefix("event stream: frame 3").lstrip(".: ") == reason


@pytest.mark.law(6)
@given(st.binary(max_size=60), st.binary(max_size=10), places())
def test_any_headers_give_a_frame_or_one_error(headers, payload, cuts):
    stream = message(headers, payload)
    frames, error = read(EventStreamReader(), [stream])
    assert (len(frames) == 1) is (error is None)
    assert read(EventStreamReader(), cut(stream, cuts)) == (frames, error)


HEADERS = st.dictionaries(
    st.one_of(
        st.sampled_from([b":event-type", b":message-type", b":exception-type", b":error-code"]),
        st.text(max_size=5).map(str.encode),
    ),
    st.one_of(
        st.sampled_from([b"event", b"exception", b"error"]).map(
            lambda value: (7, struct.pack(">H", len(value)) + value)
        ),
        st.text(max_size=5).map(str.encode).map(lambda value: (7, struct.pack(">H", len(value)) + value)),
        st.binary(max_size=5).map(lambda value: (6, struct.pack(">H", len(value)) + value)),
        st.sampled_from([(0, 0), (1, 0), (2, 1), (3, 2), (4, 4), (5, 8), (8, 8), (9, 16)]).flatmap(
            lambda kind: st.binary(min_size=kind[1], max_size=kind[1]).map(lambda value: (kind[0], value))
        ),
    ),
    max_size=5,
)


@given(HEADERS, st.binary(max_size=10))
def test_well_formed_headers_are_read_as_botocore_reads_them(headers, payload):
    stream = message(b"".join(header(name, kind, value) for name, (kind, value) in headers.items()), payload)
    [(found, _)] = botocore(stream)
    frames, error = read(EventStreamReader(), [stream])
    kind = found.get(":message-type", "event")
    named = {"event": ":event-type", "exception": ":exception-type", "error": ":error-code"}.get(kind)
    if named is None or any(headers.get(name, (7,))[0] != 7 for name in (b":message-type", named.encode())):
        assert error is not None
    else:
        assert (frames, error) == ([Frame(found.get(named, ""), payload, None, kind)], None)


@pytest.mark.law(6)
@given(st.binary(max_size=100), places())
def test_any_bytes_give_one_error_or_nothing(stream, cuts):
    frames, error = read(EventStreamReader(), [stream])
    assert frames == []
    assert (error is None) is (not stream)
    assert read(EventStreamReader(), cut(stream, cuts)) == (frames, error)


def test_remembered_headers_are_those_of_the_message():
    kinds = [("a", "event"), ("b", "event"), ("a", "exception"), ("", "event"), ("a", "event")]
    stream = b"".join(event_stream.write(b"1", name, kind=kind) for name, kind in kinds) + message(b"", b"1")
    assert [(frame.name, frame.kind) for frame in EventStreamReader().feed(stream)] == [*kinds, ("", "event")]


def test_headers_are_remembered_only_so_far():
    reader = EventStreamReader()
    stream = b"".join(event_stream.write(b"", f"e{n}") for n in range(200)) + event_stream.write(b"", "x" * 5000)
    assert [frame.name for frame in reader.feed(stream)] == [*(f"e{n}" for n in range(200)), "x" * 5000]
    assert len(reader._heads) <= 64
    assert max(map(len, reader._heads)) <= 512


# -- writing ---------------------------------------------------------------------------------------

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
KINDS = st.sampled_from(["event", "exception", "error"])


@given(st.lists(st.tuples(st.text(max_size=20).map(str.encode), NAMES, KINDS), max_size=5), places())
def test_what_was_written_is_read_back_here_and_by_botocore(messages, cuts):
    stream = b"".join(event_stream.write(data, name, kind=kind) for data, name, kind in messages)
    expected = [Frame(name, data, None, kind) for data, name, kind in messages]
    assert read(EventStreamReader(), cut(stream, cuts)) == (expected, None)
    for (headers, payload), (data, name, kind) in zip(botocore(stream), messages, strict=True):
        if kind == "error":
            assert headers == {":error-code": name, ":error-message": data.decode(), ":message-type": "error"}
            assert payload == b""
        else:
            assert headers == {f":{kind}-type": name, ":content-type": "application/json", ":message-type": kind}
            assert payload == data


@given(st.binary(max_size=50))
def test_a_payload_is_any_bytes(payload):
    stream = event_stream.write(payload, "e", content_type="application/octet-stream")
    assert read(EventStreamReader(), [stream]) == ([Frame("e", payload)], None)
    assert botocore(stream)[0][0][":content-type"] == "application/octet-stream"


@pytest.mark.parametrize(
    ("payload", "name", "kind", "reason"),
    [
        (b"", "e", "noise", "unknown kind 'noise'"),
        (b"", "x" * 0x8000, "event", "header :event-type of 32768 bytes"),
        (b"", "\ud800", "event", "lone surrogate"),
        (b"\xff", "e", "error", "header :error-message is not UTF-8"),
        (b"x" * 0x8000, "e", "error", "header :error-message of 32768 bytes"),
        (bytes(event_stream.MAX_PAYLOAD + 1), "e", "event", "a payload of 25165825 bytes"),
    ],
    ids=["kind", "long-name", "surrogate", "not-utf8", "long-message", "long-payload"],
)
def test_what_cannot_be_written_is_refused(payload, name, kind, reason):
    with pytest.raises(EncodeError, match=reason):
        event_stream.write(payload, name, kind=kind)


def test_the_longest_that_is_written_is_read_by_botocore():
    stream = event_stream.write(bytes(event_stream.MAX_PAYLOAD), "x" * 0x7FFF)
    assert len(botocore(stream)) == 1
    assert len(read(EventStreamReader(), [stream])[0]) == 1
