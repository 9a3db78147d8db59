"""Cases: the bytes of a stream to a finished message; and events to bytes again.

Rules:

- palaver is fed the chunks, hands out the events of each, and gives the message at the end. Its transport is
  nobody's business: bytes are what it takes (``clients.py`` says how peers get theirs).
- A wire that cannot read streams yet is a row that says so. A wire without a peer here has its own number only.
- The message is compared with the text that was sent, and so is each peer's.
- The anthropic client reads all arguments again for each delta: 20,000 would take half a minute, so it is measured
  at fewer, and multiplied as in ``assembly.py``.
- Writing is measured for each delta: events in, bytes out. What was written is read again, and compared.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import clients
import deltas
import wire_streams
from assembly import PATIENCE, scaled, title
from measure import Case, Contender, Job, Skipped

from palaver import wires

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltas import Kind

PEERS = {"openai_chat": ("openai", 50), "openai_responses": ("openai", 50), "anthropic_messages": ("anthropic", 20)}
"""The client that reads a wire, and how many times palaver's time its ``.stream()`` is to take."""
WRITTEN = ("openai_chat", "anthropic_messages")
KINDS = [
    (wire, kind)
    for wire in wire_streams.STREAMS
    for kind in deltas.KINDS
    if kind == "text" or wire not in wire_streams.TEXT_ONLY
]


def cases(count: int) -> list[Case]:
    """One case for each wire and kind of delta."""
    return [_case(wire, kind, count) for wire, kind in KINDS]


def _case(wire: str, kind: Kind, count: int) -> Case:
    contenders = [Contender("palaver stream_decoder", partial(palaver, wire, kind, count))]
    if wire in PEERS:
        peer, times = PEERS[wire]
        some = min(count, 5000) if (wire, kind) == ("anthropic_messages", "arguments") else count
        contenders += [
            Contender(f"{peer} client .stream()", lambda: scaled(clients.stream(wire, kind, some), some, count), times),
            Contender(f"{peer} client, iterate", partial(clients.iterate, wire, kind, count)),
            Contender("pydantic-ai streamed response", partial(clients.pydantic_ai, wire, kind, count)),
        ]
    return Case(f"2. {wire}, bytes of {title(kind, count)}", "ms", contenders, PATIENCE)


def _streams(wire: str, which: str) -> Callable[[], Any]:
    made = getattr(wires.get(wire), which)
    try:
        made()
    except ModuleNotFoundError as error:
        if (error.name or "").rpartition(".")[2] != "stream":
            raise
        msg = "the wire has no streams yet"
        raise Skipped(msg) from None
    return made


def palaver(wire: str, kind: Kind, count: int) -> Job:
    """Read one stream."""
    decoder = _streams(wire, "stream_decoder")
    chunks = wire_streams.chunks(wire, kind, count)

    def run(_state: object) -> Any:
        stream = decoder()
        for chunk in chunks:
            stream.feed(chunk)
        return stream.finish().message.content

    note = f"{sum(map(len, chunks)) / 1e6:.1f} MB"
    return Job(run, note=note, check=lambda made: deltas.check_part(made, kind, deltas.whole(kind, count)))


def writing(count: int) -> list[Case]:
    """One case for each wire and kind of delta: events to bytes."""
    return [
        Case(
            f"5. {wire}, write {title(kind, count)}; each",
            "µs",
            [Contender("palaver stream_encoder", partial(_written, wire, kind, count))],
        )
        for wire in WRITTEN
        for kind in deltas.KINDS
    ]


def _written(wire: str, kind: Kind, count: int) -> Job:
    encoder = _streams(wire, "stream_encoder")
    decoder = _streams(wire, "stream_decoder")
    events = deltas.events(kind, count)

    def write(said: list[Any]) -> list[bytes]:
        stream = encoder()
        made = [stream.feed(event) for event in said]
        made.append(stream.finish())
        return made

    try:
        write(deltas.events(kind, 1))
    except NotImplementedError:
        msg = "the wire cannot write streams yet"
        raise Skipped(msg) from None

    def check(made: list[bytes]) -> None:
        stream = decoder()
        stream.feed(b"".join(made))
        deltas.check_part(stream.finish().message.content, kind, deltas.whole(kind, count))

    return Job(lambda _: write(events), per=count, check=check)
