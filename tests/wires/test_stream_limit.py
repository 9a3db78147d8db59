"""A stream has the limit of an answer that comes whole, on every wire."""

import pytest

from palaver import wires
from palaver.core.errors import StreamError
from palaver.core.events import Failed
from palaver.core.factories import assistant
from palaver.core.request import Response
from palaver.stream.frames import LIMIT
from palaver.stream.replay_events import replay_events
from palaver.wires._engine.stream_decoder import StreamDecoder

pytestmark = pytest.mark.finding("F-105")


def stream(wire, text="word " * 400):
    """The bytes of a streamed answer."""
    encoder = wires.get(wire).stream_encoder()
    message = assistant(text * 3, finish_reason="stop", model="m")
    return b"".join([*(encoder.feed(event) for event in replay_events(Response(message=message))), encoder.finish()])


def read(wire, limit, *chunks):
    """The text, the failures and the frames' end of a stream that is read with a limit."""
    decoder = wires.get(wire).stream_decoder()
    decoder.limit = limit
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    return decoder, [event for event in events if isinstance(event, Failed)]


@pytest.mark.parametrize("wire", wires.names())
def test_a_stream_at_its_limit_is_whole(wire):
    data = stream(wire)
    decoder, failed = read(wire, len(data), data)
    assert failed == []
    assert decoder.finish().message.text


@pytest.mark.parametrize("wire", wires.names())
@pytest.mark.parametrize("size", [1, 1000, 1 << 30])
def test_a_stream_beyond_its_limit_is_damage_however_it_is_cut(wire, size):
    data = stream(wire)
    limit = len(data) // 2
    decoder, failed = read(wire, limit, *(data[at : at + size] for at in range(0, len(data), size)))
    assert decoder.done
    assert [(each.kind, each.reason) for each in failed] == [("corrupt", f"an answer of more than {limit} bytes")]
    assert decoder.feed(data) == []
    with pytest.raises(StreamError, match="an answer of more than") as error:
        decoder.finish()
    assert len(error.value.response.message.text) < len("word " * 1200)


@pytest.mark.parametrize("wire", wires.names())
def test_the_limit_is_that_of_whole_answers(wire):
    assert wires.get(wire).stream_decoder().limit == LIMIT


@pytest.mark.parametrize("wire", wires.names())
def test_a_piece_that_is_long_is_read_bit_by_bit(wire, monkeypatch):
    data = stream(wire)
    whole, _ = read(wire, LIMIT, data)
    monkeypatch.setattr("palaver.wires._engine.stream_decoder._SLICE", 100)
    taken = []
    real = StreamDecoder._take
    monkeypatch.setattr(
        StreamDecoder, "_take", lambda self, frames, *more: (taken.append(frames), real(self, frames, *more))[1]
    )
    sliced, failed = read(wire, LIMIT, data)
    assert failed == []
    assert len(taken) > len(data) // 200
    assert sliced.finish() == whole.finish()
