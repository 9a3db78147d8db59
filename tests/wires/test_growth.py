"""A codec's work grows with its input and no faster: counted, not timed, so that a busy machine changes nothing.

Work is every line that runs and every call, and for a method of a list that looks through it, the length of the list.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

import palaver as p
from palaver import wires
from palaver.core import events

SMALL, FACTOR, SLACK = 40, 4, 1.35
SCANS = frozenset({"index", "count", "remove", "copy", "insert", "pop", "reverse"})
SHAPES = ("calls", "messages", "texts", "images", "malformed", "odd ids", "one id", "reasoning", "results apart")


def work(run: Callable[[], object]) -> int:
    """Count what ``run`` does."""
    done = 0

    def traced(_frame: Any, _event: str, _arg: Any) -> Any:
        nonlocal done
        done += 1
        return traced

    def profiled(_frame: Any, event: str, arg: Any) -> None:
        nonlocal done
        if event == "c_call":
            done += 1
            owner = getattr(arg, "__self__", None)
            if isinstance(owner, list) and arg.__name__ in SCANS:
                done += len(owner)  # pyright: ignore[reportUnknownArgumentType]

    tracer, profiler = sys.gettrace(), sys.getprofile()
    sys.settrace(traced)
    sys.setprofile(profiled)
    try:
        run()
    finally:
        sys.setprofile(profiler)
        sys.settrace(tracer)
    return done


def messages(shape: str, count: int) -> tuple[p.Message, ...]:
    each = range(count)
    match shape:
        case "calls" | "odd ids":
            ids = [f"c{i:08d}" if shape == "calls" else f"call:{i}.x y" for i in each]
            calls = p.assistant(tool_calls=[p.tool_call("f", {"i": i}, id=ids[i]) for i in each])
            return (p.user("q"), calls, *(p.tool("r", tool_call_id=i) for i in ids))
        case "one id":
            turns = [
                (p.assistant(tool_calls=[p.tool_call("f", {}, id="c")]), p.tool("r", tool_call_id="c")) for _ in each
            ]
            return (p.user("q"), *(message for turn in turns for message in turn))
        case "results apart":
            turns = [
                (
                    p.assistant(tool_calls=[p.tool_call("f", {}, id=f"c{i:08d}")]),
                    p.tool("r", p.Image.from_bytes(b"\x89PNG\r\n\x1a\n"), tool_call_id=f"c{i:08d}"),
                )
                for i in each
            ]
            return (p.user("q"), *(message for turn in turns for message in turn))
        case "messages":
            return tuple([p.user("q") if i % 2 else p.assistant("a") for i in each])
        case "texts":
            return (p.user("q"), p.assistant(*(p.Text(f"t{i}") for i in each)), p.user(*(p.Text("u") for _ in each)))
        case "images":
            return (p.user(*(p.Image(p.Url(f"https://a.example/{i}.png"), "image/png") for i in each)),)
        case "malformed":
            broken = [p.MalformedToolCall("{", "torn", "f", f"c{i:08d}") for i in each]
            return (p.user("q"), p.assistant("a", *broken), p.user("on"))
        case _:
            return (p.user("q"), p.assistant(*(p.Reasoning(f"r{i}", "sig", wire="x") for i in each), "a"), p.user("on"))


def grows(run: Callable[[Any], object], make: Callable[[int], Any]) -> float:
    """How much more work four times the input is; the first run warms what is kept for later."""
    small, large = make(SMALL), make(SMALL * FACTOR)
    run(small)
    return work(lambda: run(large)) / work(lambda: run(small))


@pytest.mark.finding("F-109")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", wires.names())
@pytest.mark.share(2)
def test_requests_take_work_in_step_with_their_length(name: str, shape: str):
    wire = wires.get(name)

    def request(count: int) -> p.Request:
        return p.Request(messages=messages(shape, count), model="gemini-3-pro")

    assert grows(wire.encode_request, request) < FACTOR * SLACK
    assert grows(wire.decode_request, lambda count: wire.encode_request(request(count)).body) < FACTOR * SLACK
    own = {count: wire.decode_request(wire.encode_request(request(count)).body) for count in (SMALL, SMALL * FACTOR)}
    assert grows(wire.encode_request, own.__getitem__) < FACTOR * SLACK


@pytest.mark.finding("F-109")
@pytest.mark.parametrize("shape", ["calls", "texts", "malformed", "odd ids", "reasoning"])
@pytest.mark.parametrize("name", wires.names())
def test_answers_take_work_in_step_with_their_length(name: str, shape: str):
    wire = wires.get(name)

    def response(count: int) -> p.Response:
        message = messages(shape, count)[1]
        assert isinstance(message, p.AssistantMessage)
        return p.Response(message=message.replace(finish_reason="stop", model="m"))

    assert grows(wire.encode_response, response) < FACTOR * SLACK
    assert grows(wire.decode_response, lambda count: wire.encode_response(response(count)).body) < FACTOR * SLACK


@pytest.mark.finding("F-109")
@pytest.mark.parametrize("many", ["calls", "texts", "pieces of text", "pieces of arguments"])
@pytest.mark.parametrize("name", wires.names())
@pytest.mark.share(2)
def test_streams_take_work_in_step_with_their_length(name: str, many: str):
    wire = wires.get(name)

    def said(count: int) -> list[events.Event]:
        head = p.Response(p.assistant("", model="m", response_id="r").replace(content=()))
        told: list[events.Event] = [events.Start(head)]
        for i in range(count if many in {"calls", "texts"} else 1):
            call = p.ToolCall(f"c{i:08d}", "f")
            told.append(events.PartStart(i, p.Text("") if "text" in many else call))
            if many == "calls":
                told.append(events.ArgumentsDelta(i, "{}"))
            elif many == "pieces of arguments":
                told += [events.ArgumentsDelta(i, '{"a":"'), *[events.ArgumentsDelta(i, "x")] * count]
                told.append(events.ArgumentsDelta(i, '"}'))
            else:
                told += [events.TextDelta(i, "x")] * (1 if many == "texts" else count)
            told.append(events.PartEnd(i))
        return [*told, events.Finish("stop", "stop")]

    def write(told: list[events.Event]) -> bytes:
        encoder = wire.stream_encoder()
        return b"".join([*(encoder.feed(event) for event in told), encoder.finish()])

    def read(data: bytes) -> p.Response:
        decoder = wire.stream_decoder()
        for start in range(0, len(data), 64):
            decoder.feed(data[start : start + 64])
        return decoder.finish()

    assert grows(write, said) < FACTOR * SLACK
    assert grows(read, lambda count: write(said(count))) < FACTOR * SLACK
