"""Feed mutated bytes to every stream decoder (laws 3, 4 and 6). See README.md beside this file."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import atheris
from findings import watch

with atheris.instrument_imports(include=["palaver"]):
    import palaver as p
    from palaver import wires
    from palaver.core.events import ArgumentsDelta, Event, PartEnd, PartStart, ProviderEvent, Start
    from palaver.stream import event_stream, local
    from palaver.stream.argument_repair import repair
    from palaver.stream.assembler import Assembler
    from palaver.stream.replay_events import replay_events
    from palaver.testing.receipts import check_receipt

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


def _try_stream(wire: str, size: int, data: bytes, *, others: bool) -> None:
    if wire == "bedrock_converse":  # a mutated frame has a wrong sum; the events in it are what is mutated
        data = b"".join(map(_frame, data.split(b"\n")))
    whole = _read(wire, [data])
    assert whole == _read(wire, [data[at : at + size] for at in range(0, len(data), size)])
    events, answer = whole
    encoder = wires.get(wire).stream_encoder()
    written = b"".join([encoder.feed(event) for event in events]) + encoder.finish()
    if isinstance(answer, p.Response) and not _headless(answer, events):
        assert encoder.losses or _turned(events) or _said(_read(wire, [written])[1]) == _said(answer)
    spoken = answer if isinstance(answer, p.Response) else answer[1]
    for other in wires.names() if others else (wire,):
        _try_sent_on(other, spoken.message)
    for other in wires.names() if others else ():
        told = wires.get(other).stream_encoder()
        told_bytes = b"".join([told.feed(event) for event in events]) + told.finish()
        found = _read(other, [told_bytes])[1]
        if isinstance(answer, p.Response) and not (_headless(answer, events) or _odd(answer) or _turned(events)):
            body = wires.get(other).encode_response(answer)
            assert isinstance(found, p.Response)
            assert _said(found) == _said(wires.get(other).decode_response(body.body))


def _try_sent_on(wire: str, answer: p.AssistantMessage) -> None:
    """Send an answer in the next request: the body and its receipt account for all of it."""
    request = p.Request(messages=(p.user("q"), answer, p.user("on")), model="m")
    found = check_receipt(wire, request, wires.get(wire).encode_request(request))
    assert found == [], found


def _said(answer: p.Response | tuple[str, p.Response]) -> object:
    """What is said, without how it is divided or marked: a hostile stream interleaves what others do not.

    Its fields may contradict each other too; of these the wire's own tests tell what must stay.
    """
    if not isinstance(answer, p.Response):
        return answer
    found: list[object] = []
    for message in (answer.message, *answer.alternatives):
        text = "".join([part.text for part in message.content if isinstance(part, (p.Text, p.Refusal))])
        thought = "".join([part.text for part in message.content if isinstance(part, p.Reasoning)])
        calls = sorted(
            [
                (part.name, json.dumps(json.loads(part.arguments_json or "{}"), sort_keys=True))
                for part in message.content
                if isinstance(part, p.ToolCall)
            ]
        )
        odd = sorted([part.raw for part in message.content if isinstance(part, p.MalformedToolCall)])
        if text or thought or calls or odd:  # numbers of choices that never came are not kept
            found.append((sorted("".join(text.split())), sorted("".join(thought.split())), calls, odd))
    return found


def _turned(events: list[Event]) -> bool:
    """Whether a part ends as one of another kind, or a call goes on behind its end.

    No provider does that, and a stream cannot unsay what it said: other readers see two parts.
    """
    begun: dict[int, object] = {}
    ended: set[int] = set()
    for event in events:
        match event:
            case PartStart():
                begun[event.index] = type(event.part)
            case PartEnd():
                ended.add(event.index)
                if event.part is not None and type(event.part) is not begun.get(event.index):
                    return True
            case ArgumentsDelta() if event.index in ended:
                return True
            case _:
                pass
    return False


def _headless(answer: p.Response, events: list[Event]) -> bool:
    """Whether parts came before the answer, or its first choice never did: whose, or why it ended, is unknown."""
    first = next((event for event in events if not isinstance(event, ProviderEvent)), None)
    return answer.message.finish_reason == "error" or not isinstance(first, Start)


def _odd(answer: p.Response) -> bool:
    """Whether a call has no JSON: that is known at its end only, when its beginning was told to others as it came."""
    messages = (answer.message, *answer.alternatives)
    return any(isinstance(part, p.MalformedToolCall) for message in messages for part in message.content)


def _frame(line: bytes) -> bytes:
    name, _, payload = line.partition(b" ")
    kind = {b"!": "exception", b"?": "error"}.get(name[:1], "event")
    with contextlib.suppress(p.EncodeError):
        return event_stream.write(payload, name.lstrip(b"!?").decode(errors="replace")[:64], kind=kind)
    return b""


def _try_local(name: str, size: int, data: bytes) -> None:
    text = data.decode(errors="replace")
    parser = local.get(name)
    events = [event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])]
    events += parser.finish()
    gathered = Assembler()
    gathered.extend(events)
    assert gathered.content() == local.read(name, text)


def _try_repair(data: bytes) -> None:
    try:
        repaired = repair(data.decode(errors="replace"))
    except p.ArgumentsError:
        return
    assert isinstance(json.loads(repaired.text), dict)
    assert repair(repaired.text).changes == ()


def _targets() -> dict[str, Callable[[int, bytes, bool], None]]:
    def stream(wire: str) -> Callable[[int, bytes, bool], None]:
        return lambda size, data, others: _try_stream(wire, size, data, others=others)

    def text(name: str) -> Callable[[int, bytes, bool], None]:
        return lambda size, data, _: _try_local(name, size, data)

    found = {name: stream(name) for name in wires.names()} | {name: text(name) for name in local.names()}
    return found | {"repair": lambda _, data, __: _try_repair(data)}


TARGETS = _targets()
CHOSEN = os.environ.get("PALAVER_FUZZ", "")


def test_one_input(data: bytes) -> None:
    """What libFuzzer calls: the first byte chooses what is read, the second the size of the pieces.

    Every fourth input is also told to all other wires, which takes long.
    """
    if len(data) < 2:
        return
    name = CHOSEN or [*TARGETS][data[0] % len(TARGETS)]
    watch(name, data, lambda: TARGETS[name](data[1] % 16 + 1, data[2:], data[1] >= 192))


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
        data = b"".join([encoder.feed(event) for event in replay_events(response)]) + encoder.finish()
        if wire == "bedrock_converse":
            frames = event_stream.EventStreamReader().feed(data)
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
