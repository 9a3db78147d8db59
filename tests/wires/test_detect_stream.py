"""Which wire a recorded stream is of is told by its first frames; what is no stream is not taken for one."""

import base64
import json

import pytest
from hypothesis import given, strategies as st

from palaver.stream import event_stream
from palaver.testing.tables import row
from palaver.wires import detect_stream
from palaver.wires.detect_stream import Streamed
from tests.cli import streams


@pytest.mark.parametrize("wire", streams.STREAMS)
def test_every_wire_is_detected(wire):
    found = detect_stream.detect(row(streams.STREAMS, wire, "STREAMS in tests/cli/streams.py"))
    assert found is not None
    assert found.wire == wire


@pytest.mark.parametrize("wire", streams.STREAMS)
def test_a_stream_that_broke_off_in_its_second_half_is_detected(wire):
    data = row(streams.STREAMS, wire, "STREAMS in tests/cli/streams.py")
    for end in range(len(data) // 2, len(data)):
        assert detect_stream.detect(data[:end]).wire == wire


def test_every_recorded_stream_is_detected(exchange):
    record = exchange.record
    if "stream" in record:
        data = record["stream"].encode()
    elif "stream_base64" in record:
        data = base64.b64decode(record["stream_base64"])
    else:
        return
    assert detect_stream.detect(data).wire == exchange.wire


@pytest.mark.parametrize(
    ("data", "found"),
    [
        pytest.param(b": hello\n\ndata: [DONE]\n\n", Streamed("sse"), id="nothing-tells"),
        pytest.param(b': hello\r\rdata:{"choices":[]}\r\r', Streamed("sse", "openai_chat"), id="a-comment-and-CR"),
        pytest.param(
            b"\xef\xbb\xbf" + streams.ANTHROPIC, Streamed("sse", "anthropic_messages"), id="a-byte-order-mark"
        ),
        pytest.param(
            b'data: 3\n\ndata: {"x":1}\n\n' + streams.COHERE, Streamed("sse", "cohere_chat"), id="after-noise"
        ),
        pytest.param(
            b'event: error\ndata: {"type":"error","error":{}}', Streamed("sse", "anthropic_messages"), id="A!"
        ),
        pytest.param(b'event: error\ndata: {"error":{"message":"no"}}', Streamed("sse", "openai_chat"), id="chat!"),
        pytest.param(b'data: {"error":{"status":"X"}}', Streamed("sse", "google_generate"), id="google!"),
        pytest.param(b'data: {"type":"error","message":"no"}', Streamed("sse", "openai_responses"), id="responses!"),
        pytest.param(
            b'data: {"type":"error","sequence_number":0,"error":{}}', Streamed("sse", "openai_responses"), id="R!"
        ),
        pytest.param(streams.GEMINI_ARRAY, Streamed("array", "google_generate"), id="gemini-array"),
        pytest.param(streams.GEMINI_ARRAY[:40], Streamed("array", "google_generate"), id="a-torn-array"),
        pytest.param(event_stream.write(b"{}", "chunk"), Streamed("eventstream"), id="another-event-stream"),
        pytest.param(event_stream.write(b"{}", "chunk") + b"torn", Streamed("eventstream"), id="a-torn-event-stream"),
        pytest.param(
            event_stream.write(b"{}", "throttlingException", kind="exception"),
            Streamed("eventstream", "bedrock_converse"),
            id="an-exception",
        ),
        pytest.param(b'{"message":{},"done":false}', Streamed("ndjson", "ollama_chat"), id="one-line-that-goes-on"),
        pytest.param(b'\xef\xbb\xbf\n{"error":"no"}\n{}', Streamed("ndjson", "ollama_chat"), id="an-error-first"),
        pytest.param(b'{"message":{},"done":true}\n', None, id="one-line-that-is-all"),
        pytest.param(b'{"palaver":1}\n{"role":"user"}\n', None, id="the-canonical-form"),
        pytest.param(b'{\n  "done": false\n}', None, id="indented"),
        pytest.param(b'[{"role":"user","content":"hi"}]', None, id="messages"),
        pytest.param(b"[[1]]", None, id="lists"),
        pytest.param(b"", None, id="nothing"),
        pytest.param(b"\x7fELF", None, id="binary"),
    ],
)
def test_a_stream_is_detected_as_its_wire(data, found):
    assert detect_stream.detect(data) == found


def test_a_first_event_may_be_long():
    data = streams.sse({"novel": "x" * 300_000}, {"type": "response.created", "instructions": "x" * 300_000})
    assert detect_stream.detect(data) == Streamed("sse", "openai_responses")


@pytest.mark.law(6)
@given(
    st.binary()
    | st.sampled_from([b"data: ", b"{", b"[{", b'[{"candidates":']).flatmap(
        lambda head: st.binary().map(lambda rest: head + rest)
    )
)
def test_any_bytes_can_be_asked(data):
    found = detect_stream.detect(data)
    assert found is None or found.wire is None or found.wire in streams.STREAMS


@pytest.mark.law(6)
def test_a_deep_line_is_no_stream():
    assert detect_stream.detect(b'{"done":' + b"[" * 200_000) is None
    assert detect_stream.detect(b"[{" + json.dumps("x").encode()) is None
