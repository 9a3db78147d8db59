"""Feed mutated bytes to every stream decoder (laws 3, 4 and 6). See README.md beside this file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import atheris

with atheris.instrument_imports(include=["palaver"]):
    import palaver as p
    from palaver import wires
    from palaver.core.events import Event
    from palaver.stream import eventstream, local
    from palaver.stream.narrate import narrate
    from palaver.stream.repair import repair

    for _name in wires.names():
        wires.get(_name).stream_decoder()
        wires.get(_name).stream_encoder()

if TYPE_CHECKING:
    from collections.abc import Callable


def _read(wire: str, chunks: list[bytes]) -> tuple[list[Event], p.Response | tuple[str, p.Response]]:
    decoder = wires.get(wire).stream_decoder()
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    events += decoder.close()
    try:
        return events, decoder.finish()
    except p.StreamError as error:
        return events, (str(error), error.response)


def _try_stream(wire: str, size: int, data: bytes) -> None:
    if wire == "bedrock_converse":  # a mutated frame has a wrong sum; the events in it are what is mutated
        data = b"".join(map(_frame, data.split(b"\n")))
    whole = _read(wire, [data])
    assert whole == _read(wire, [data[at : at + size] for at in range(0, len(data), size)])
    events, answer = whole
    encoder = wires.get(wire).stream_encoder()
    written = b"".join([encoder.feed(event) for event in events]) + encoder.finish()
    if isinstance(answer, p.Response):
        body = wires.get(wire).encode_response(answer)
        assert body.losses or wires.get(wire).decode_response(body.body) == answer
        assert encoder.losses or _read(wire, [written])[1] == answer
    for other in wires.names():
        told = wires.get(other).stream_encoder()
        told_bytes = b"".join([told.feed(event) for event in events]) + told.finish()
        _read(other, [told_bytes])


def _frame(line: bytes) -> bytes:
    name, _, payload = line.partition(b" ")
    return eventstream.write(payload, name.decode(errors="replace")[:64])


def _try_local(name: str, size: int, data: bytes) -> None:
    text = data.decode(errors="replace")
    parser = local.get(name)
    events = [event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])]
    parser.finish()
    local.read(name, text)
    assert events is not None


def _try_repair(_size: int, data: bytes) -> None:
    try:
        repaired = repair(data.decode(errors="replace"))
    except p.ArgumentsError:
        return
    assert isinstance(json.loads(repaired.text), dict)
    assert repair(repaired.text).changes == ()


def _targets() -> list[Callable[[int, bytes], None]]:
    def stream(wire: str) -> Callable[[int, bytes], None]:
        return lambda size, data: _try_stream(wire, size, data)

    def text(name: str) -> Callable[[int, bytes], None]:
        return lambda size, data: _try_local(name, size, data)

    return [*map(stream, wires.names()), *map(text, local.names()), _try_repair]


TARGETS = _targets()


def test_one_input(data: bytes) -> None:
    """What libFuzzer calls: the first byte chooses what is read, the second the size of the pieces."""
    if len(data) > 1:
        TARGETS[data[0] % len(TARGETS)](data[1] % 16 + 1, data[2:])


# -- seeds -----------------------------------------------------------------------------------------


def write_seeds(folder: Path) -> None:
    """Write one valid stream for each wire."""
    folder.mkdir(parents=True, exist_ok=True)
    look = p.tool_call("look", {"q": [1, 2.5, "é"]}, id="call00001")
    answer = p.assistant("So be it.", p.Reasoning("hm"), tool_calls=[look])
    usage = p.Usage(input=5, cache_read=2, output=3, reasoning=1)
    response = p.Response(message=answer.replace(finish_reason="tool_calls", usage=usage, model="m", response_id="r"))
    for number, wire in enumerate(wires.names()):
        encoder = wires.get(wire).stream_encoder()
        data = b"".join([encoder.feed(event) for event in narrate(response)]) + encoder.finish()
        if wire == "bedrock_converse":
            frames = eventstream.EventStreamReader().feed(data)
            data = b"\n".join(frame.name.encode() + b" " + frame.data for frame in frames)
        (folder / f"stream-{number:02d}").write_bytes(bytes([number, 3]) + data)


def main() -> None:
    """Write seeds, or fuzz until told to stop."""
    if sys.argv[1:2] == ["--seeds"]:
        write_seeds(Path(sys.argv[2]))
        return
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
