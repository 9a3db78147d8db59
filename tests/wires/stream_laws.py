"""Laws for the streams of every wire, checked on the streams of a test."""

import base64
import json
import random
from collections.abc import Iterable, Sequence
from typing import Any

import palaver as p
from palaver import wires
from palaver.core import events as e
from palaver.core.errors import StreamError
from palaver.core.request import Response
from palaver.stream.assembler import Assembler
from palaver.stream.replay_events import replay_events
from tests.corpus import Exchange

DELTAS = (e.TextDelta, e.ReasoningDelta, e.ArgumentsDelta, e.SignatureDelta, e.DataDelta, e.CitationDelta)


def read(wire: str, *chunks: bytes) -> tuple[list[e.Event], Response | StreamError]:
    """Return the events of a stream, and the answer, or the one error that it may raise."""
    decoder = wires.get(wire).stream_decoder()
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    events += decoder.close()
    try:
        return events, decoder.finish()
    except StreamError as error:
        return events, error


def answer(wire: str, *chunks: bytes) -> Response:
    """Return the answer of a whole stream."""
    _, found = read(wire, *chunks)
    assert isinstance(found, Response), found
    return found


def failure(wire: str, *chunks: bytes) -> StreamError:
    """Return the error of a broken stream; ``Failed`` must have it too."""
    events, found = read(wire, *chunks)
    assert isinstance(found, StreamError), found
    failed = events[-1]
    assert isinstance(failed, e.Failed)
    assert (failed.kind, failed.reason) == (found.kind, found.reason)
    assert found.response.finish_reason == "error"
    return found


def written(wire: str, events: Iterable[e.Event]) -> tuple[bytes, tuple[p.Loss, ...]]:
    """Return the stream of these events, and its receipt."""
    encoder = wires.get(wire).stream_encoder()
    data = b"".join([encoder.feed(event) for event in events])
    return data + encoder.finish(), encoder.losses


def check_order(events: Sequence[e.Event]) -> None:
    """Check ``Start`` first, each part started before it grows and ended before the answer, and one ``Finish``."""
    told = [event for event in events if not isinstance(event, e.ProviderEvent)]
    assert isinstance(told[0], e.Start)
    begun: set[int] = set()
    ended: set[int] = set()
    finished = 0
    for event in told:
        if isinstance(event, e.PartStart):
            assert event.index not in begun
            begun.add(event.index)
        elif isinstance(event, DELTAS):
            assert event.index in begun
        elif isinstance(event, e.PartEnd):
            assert event.index in begun
            assert event.index not in ended or event.part is not None
            ended.add(event.index)
        elif isinstance(event, e.Finish):
            finished += 1
            assert begun == ended
    assert finished == 1


def check_chunks(wire: str, data: bytes, trailing: bytes = b"") -> None:
    """Check law 3: whole, byte by byte, cut at random, and with data behind the end."""
    events, found = read(wire, data)
    pieces = [data[at : at + 1] for at in range(len(data))]
    assert _same(read(wire, *pieces), (events, found))
    dice = random.Random(len(data))
    for _ in range(5):
        cuts = sorted(dice.choices(range(len(data) + 1), k=dice.randint(1, 9)))
        parts = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        assert _same(read(wire, *parts), (events, found))
    if trailing:
        assert _same(read(wire, data, trailing), (events, found))
        assert _same(read(wire, data + trailing), (events, found))


def _same(one: tuple[list[e.Event], Any], other: tuple[list[e.Event], Any]) -> bool:
    (events, found), (others, expected) = one, other
    if isinstance(expected, StreamError):
        return events == others and (str(found), found.response) == (str(expected), expected.response)
    return events == others and found == expected


def check_whole(wire: str, response: Response) -> None:
    """Check that the assembled answer is valid on the wire, without losses."""
    whole = wires.get(wire).encode_response(response)
    assert whole.losses == ()
    assert wires.get(wire).decode_response(whole.body) == response


def check_back(wire: str, events: Sequence[e.Event], response: Response) -> bytes:
    """Check that a stream goes back to its own wire: the same answer, without losses, the provider's own events."""
    data, losses = written(wire, events)
    assert losses == ()
    again, found = read(wire, data)
    assert found == response
    assert _own(again) == _own(events)
    return data


def _own(events: Sequence[e.Event]) -> list[tuple[str, Any]]:
    return [(event.name, json.loads(bytes(event.data_json))) for event in events if isinstance(event, e.ProviderEvent)]


def recorded(exchange: Exchange) -> list[e.Event]:
    """Return a recorded answer as events: of its stream, or of its whole answer; nothing for an error."""
    record, wire = exchange.record, wires.get(exchange.wire)
    if record.get("status") != 200:
        return []
    if "response" in record:
        try:
            return list(replay_events(wire.decode_response(record["response"])))
        except p.PalaverError:
            return []
    data = base64.b64decode(record["stream_base64"]) if "stream_base64" in record else record["stream"].encode()
    try:
        events, found = read(exchange.wire, data)
    except ModuleNotFoundError:  # a wire without stream reading so far
        return []
    return events if isinstance(found, Response) else []


def assembled(events: Iterable[e.Event]) -> Response:
    """Return the events, assembled."""
    assembler = Assembler()
    assembler.extend(events)
    return assembler.finish()
