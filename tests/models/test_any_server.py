"""Whatever a server does, there is an answer or one error of ours, and soon."""

import gzip

import anyio
import pytest
from hypothesis import given, settings, strategies as st

from palaver import wires
from palaver.core.errors import DecodeError, PalaverError, RateLimitError, StreamError
from palaver.models import Http, Retry, Timeouts
from tests.generated import examples
from tests.models.asking import HI, at
from tests.models.faults import HELLO, WHOLE, delta, endless, says, serve
from tests.models.speaking import TYPES

STATUSES = st.sampled_from([100, 101, 199, 200, 201, 204, 206, 301, 302, 304, 307, 308, 400, 413, 429, 500, 529, 999])
BODIES = st.sampled_from(
    [
        b"".join(HELLO),
        str(WHOLE).replace("'", '"').encode(),
        b'{"error":{"message":"trop \xe9lev\xe9"}}',
        b"[" * 5000,
        b"null",
        b"   " * 500,
        b"data: null\n\ndata: [1]\n\n",
        b'{"choices":{}}',
        b"<html>",
        b"",
    ]
) | st.binary(max_size=200)
WAITS = st.sampled_from(["", "-1", "NaN", "1e309", "9" * 300, "1" * 20_000, "Fri, 31 Dec 9999 23:59:59 GMT", "5, 6"])
TYPE = st.sampled_from(["text/event-stream", "application/json", "text/html", "", "x" * 900, *TYPES.values()])
FRAMING = st.sampled_from(["length", "longer", "shorter", "chunks", "bad chunk", "none"])
ENCODINGS = st.sampled_from([None, None, "gzip", "deflate", "gzip, gzip", "nonsense"])


@settings(max_examples=examples(80), deadline=None)
@given(
    st.sampled_from([*wires.names()]),
    st.tuples(STATUSES, BODIES, WAITS, TYPE, FRAMING, ENCODINGS),
    st.booleans(),
    st.integers(1, 9),
)
def test_any_answer_is_a_value_or_one_error(wire, said, stream, size):
    status, body, wait, kind, framing, encoding = said
    data = gzip.compress(body) if encoding == "gzip" else body
    length = {"length": len(data), "longer": len(data) + 9, "shorter": max(0, len(data) - 3)}.get(framing)
    headers = {"content-type": kind, "retry-after": wait, "location": "http://127.0.0.1:9/"}
    headers |= {"content-encoding": encoding} if encoding else {}
    headers |= {"content-length": str(length)} if length is not None else {}
    headers |= {"transfer-encoding": "chunked"} if "chunk" in framing else {}

    def step(connection):
        connection.head(status, headers)
        pieces = [data[at : at + 1 + len(data) // size] for at in range(0, len(data), 1 + len(data) // size)]
        for piece in pieces:
            connection.chunk(piece) if "chunk" in framing else connection.send(piece)
        connection.send({"chunks": b"0\r\n\r\n", "bad chunk": b"zz\r\n"}.get(framing, b""))
        connection.close()

    found = []

    async def ask():
        with serve(step) as server:
            async with Http() as http:
                waits = Timeouts(connect=2, write=2, first_token=2, idle=2, whole=2)
                model = at(server.url, wire=wire, http=http, retry=Retry(attempts=2), timeouts=waits)
                try:
                    async with model.session().ask(HI, stream=stream) as answer:
                        await answer.finish()
                except PalaverError as error:
                    found.append(error)

    anyio.run(ask)
    assert all(len(str(each)) < 500 for each in found)


@pytest.mark.anyio
async def test_a_body_that_is_compressed_several_times_over_is_not_unpacked(anyio_backend):
    bomb = gzip.compress(gzip.compress(b"\0" * 10_000_000))
    with serve(says(bomb, content_encoding="gzip, gzip")) as server, pytest.raises(DecodeError, match="several times"):
        async with at(server.url).session().ask(HI, stream=False):
            pass


@pytest.mark.anyio
@pytest.mark.finding("F-105")
@pytest.mark.parametrize("encoding", ["br", "zstd", "identity, gzip", "x" * 10_000])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_compression_that_was_not_asked_for_is_not_unpacked(anyio_backend, encoding, stream):
    with serve(says(b"\0" * 100, content_encoding=encoding)) as server, pytest.raises(DecodeError, match="compressed"):
        async with at(server.url).session().ask(HI, stream=stream):
            pass
    assert server.asked[0].headers["accept-encoding"] == ("identity" if stream else "gzip, deflate")


@pytest.mark.anyio
@pytest.mark.finding("F-105")
@pytest.mark.parametrize("packed", [False, True])
async def test_a_stream_without_an_end_ends_at_the_limit(anyio_backend, packed, monkeypatch):
    monkeypatch.setattr("palaver.wires._engine.stream_decoder.LIMIT", 1_000_000)
    frames = delta("a" * 200) * 500
    body = gzip.compress(frames * 100) if packed else b""
    step = says(body, content_type="text/event-stream", content_encoding="gzip") if packed else endless(frames)
    with serve(step) as server:
        async with at(server.url).session().ask(HI) as answer:
            with pytest.raises(StreamError, match="an answer of more than 1000000 bytes"):
                await answer.finish()
            assert 0 < len(answer.so_far.message.text) < 1_000_000


@pytest.mark.anyio
async def test_a_status_counts_when_its_body_does_not_come(anyio_backend, monkeypatch):
    monkeypatch.setattr("palaver.models.http._ERROR_BODY_SECONDS", 0.05)

    def step(connection):
        connection.head(429, {"content-length": "100", "retry-after": "7"})
        connection.stall()

    with serve(step) as server, pytest.raises(RateLimitError) as caught:
        async with at(server.url, retry=Retry(attempts=1)).session().ask(HI):
            pass
    assert caught.value.retry_after == 7
