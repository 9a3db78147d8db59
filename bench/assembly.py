"""Cases: events to a finished message, without bytes; and a look at the arguments after each delta.

Rules:

- Each library assembles the same pieces, given as its own event objects, which are made beforehand. Its time
  ends when it has handed out the message, or the part, that holds the joined text.
- Every result is compared with the text that was sent, in the round that is not counted.
- A library whose cost grows faster than the stream is measured at a size at which it ends. Its time is then
  multiplied up to the size of the case, as if it grew in step: a floor, and the note says the size.
- The bare loop appends each text to a list and joins it: what nobody can do without. A second one also judges
  that the arguments are JSON, as palaver does when a call is whole.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import deltas
import msgspec
from deltas import CALL_ID, TOOL
from measure import Case, Contender, Job

from palaver.stream.assembler import Assembler

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltas import Kind

COUNT = 20_000
LOOKS = 100_000
LOOK_WIDTH = 10
PATIENCE = 3.0
WITHIN = 3.0
_NAMES = {"text": "text deltas", "arguments": "arguments deltas, {:.1f} MB"}


def cases(count: int) -> list[Case]:
    """One case for each kind of delta."""
    return [_case(kind, count) for kind in deltas.KINDS]


def title(kind: Kind, count: int) -> str:
    """Say how much of what is streamed."""
    return f"{count:,} {_NAMES[kind].format(len(deltas.whole(kind, count)) / 1e6)}"


def _case(kind: Kind, count: int) -> Case:
    some, few = (count, count) if kind == "text" else (min(count, 5000), min(count, 500))
    contenders = [
        Contender("palaver Assembler", lambda: palaver(kind, count)),
        Contender("bare loop, list and join", lambda: bare(kind, count), 1 / WITHIN),
    ]
    if kind == "arguments":
        contenders.append(Contender("bare loop, and a check that it is JSON", lambda: bare(kind, count, judged=True)))
    contenders += [
        Contender("pydantic-ai parts manager", lambda: pydantic_ai(kind, count)),
        Contender("openai ChatCompletionStreamState", lambda: openai(kind, count)),
        Contender("anthropic accumulate_event", lambda: scaled(anthropic(kind, some), some, count)),
        Contender("langchain-core chunk + chunk", lambda: scaled(langchain(kind, few), few, count)),
        Contender("litellm stream_chunk_builder", lambda: litellm(kind, count)),
    ]
    return Case(f"1. Assemble {title(kind, count)}", "ms", contenders, PATIENCE)


def scaled(job: Job, size: int, count: int) -> Job:
    """Measure at another size, and multiply."""
    if size != count:
        job.per = size / count
        job.note = f"measured at {size:,} deltas, × {count / size:g}"
    return job


def palaver(kind: Kind, count: int) -> Job:
    """Assemble palaver's own events."""
    events = deltas.events(kind, count)

    def run(_state: object) -> object:
        assembler = Assembler()
        assembler.extend(events)
        return assembler.content()

    return Job(run, check=lambda made: deltas.check_part(made, kind, deltas.whole(kind, count)))


def bare(kind: Kind, count: int, *, judged: bool = False) -> Job:
    """Append and join."""
    # Only the deltas among them, which spares this side every question.
    events: list[Any] = [event for event in deltas.events(kind, count) if hasattr(event, "text")]
    decode = msgspec.json.Decoder(msgspec.Raw).decode

    def run(_state: object) -> str:
        pieces: list[str] = []
        for event in events:
            pieces.append(event.text)  # noqa: PERF401 (the loop is what is measured)
        text = "".join(pieces)
        if judged:
            decode(text)
        return text

    return _job(run, kind, count, str)


def _job(run: Callable[[Any], Any], kind: Kind, count: int, text: Callable[[Any], str]) -> Job:
    return Job(run, check=lambda made: deltas.same(text(made), deltas.whole(kind, count)))


def pydantic_ai(kind: Kind, count: int) -> Job:
    """Feed the manager that all its models share."""
    from pydantic_ai._parts_manager import ModelResponsePartsManager
    from pydantic_ai.models import ModelRequestParameters

    pieces = deltas.pieces(kind, count)

    def text(_state: object) -> Any:
        manager = ModelResponsePartsManager(ModelRequestParameters())
        for piece in pieces:
            for _ in manager.handle_text_delta(vendor_part_id=0, content=piece):
                pass
        return manager.get_parts()[0]

    def arguments(_state: object) -> Any:
        manager = ModelResponsePartsManager(ModelRequestParameters())
        manager.handle_tool_call_delta(vendor_part_id=0, tool_name=TOOL, args="", tool_call_id=CALL_ID)
        for piece in pieces:
            manager.handle_tool_call_delta(vendor_part_id=0, args=piece)
        return manager.get_parts()[0]

    if kind == "text":
        return _job(text, kind, count, lambda made: made.content)
    return _job(arguments, kind, count, lambda made: made.args)


def _chunks(kind: Kind, count: int) -> list[dict[str, Any]]:
    """Give chunks of chat completions as plain values."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1754432618, "model": "gpt-4o"}
    if kind == "text":
        first: dict[str, Any] = {"role": "assistant", "content": ""}
        grown = [{"content": piece} for piece in deltas.pieces(kind, count)]
    else:
        call = {"index": 0, "id": CALL_ID, "type": "function", "function": {"name": TOOL, "arguments": ""}}
        first = {"role": "assistant", "content": None, "tool_calls": [call]}
        grown = [
            {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in deltas.pieces(kind, count)
        ]
    reason = "stop" if kind == "text" else "tool_calls"
    said = [*((delta, None) for delta in (first, *grown)), ({}, reason)]
    return [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": end}]} for delta, end in said]


def _said(kind: Kind) -> Callable[[Any], str]:
    """Give a function that finds the text in a completion."""
    if kind == "text":
        return lambda made: made.choices[0].message.content
    return lambda made: made.choices[0].message.tool_calls[0].function.arguments


def openai(kind: Kind, count: int) -> Job:
    """Feed the state behind the client's ``.stream()``."""
    from openai._models import construct_type
    from openai.lib.streaming.chat import ChatCompletionStreamState
    from openai.types.chat import ChatCompletionChunk

    chunks: list[Any] = [construct_type(type_=ChatCompletionChunk, value=each) for each in _chunks(kind, count)]

    def run(_state: object) -> Any:
        state: Any = ChatCompletionStreamState()
        for chunk in chunks:
            state.handle_chunk(chunk)
        return state.get_final_completion()

    return _job(run, kind, count, _said(kind))


def anthropic(kind: Kind, count: int) -> Job:
    """Feed the function behind the client's ``.stream()``."""
    from anthropic._models import construct_type
    from anthropic.lib.streaming._messages import accumulate_event
    from anthropic.types import RawMessageStreamEvent

    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": []}
    head |= {"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 512, "output_tokens": 1}}
    if kind == "text":
        block: dict[str, Any] = {"type": "text", "text": ""}
        name, field, reason = "text_delta", "text", "end_turn"
    else:
        block = {"type": "tool_use", "id": CALL_ID, "name": TOOL, "input": {}}
        name, field, reason = "input_json_delta", "partial_json", "tool_use"
    values: list[dict[str, Any]] = [
        {"type": "message_start", "message": head},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": name, field: piece}}
            for piece in deltas.pieces(kind, count)
        ),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": count}},
    ]
    target: Any = RawMessageStreamEvent
    events: list[Any] = [construct_type(type_=target, value=value) for value in values]

    def run(_state: object) -> Any:
        message: Any = None
        buffers: dict[int, bytes] = {}
        for event in events:
            message = accumulate_event(event=event, current_snapshot=message, json_bufs=buffers)
        return message.content[0]

    if kind == "text":
        return _job(run, kind, count, lambda made: made.text)
    return Job(run, check=lambda made: same_object(made.input, kind, count))


def same_object(found: Any, kind: Kind, count: int, width: int = deltas.WIDTH) -> None:
    """Refuse arguments that say something else, where only their values are kept."""
    if found != msgspec.json.decode(deltas.whole(kind, count, width)):
        msg = "the arguments are not those that were sent"
        raise ValueError(msg)


def langchain(kind: Kind, count: int) -> Job:
    """Add chunk to chunk, as its own models do."""
    from langchain_core.messages import AIMessageChunk

    def call(piece: str, **names: str) -> Any:
        chunk: Any = {"name": None, "id": None, "args": piece, "index": 0, "type": "tool_call_chunk", **names}
        return AIMessageChunk(content="", tool_call_chunks=[chunk])

    pieces = deltas.pieces(kind, count)
    if kind == "text":
        chunks = [AIMessageChunk(content=piece) for piece in pieces]
    else:
        chunks = [call("", name=TOOL, id=CALL_ID), *map(call, pieces)]

    def run(_state: object) -> Any:
        whole = chunks[0]
        for chunk in chunks[1:]:
            whole = whole + chunk
        return whole

    if kind == "text":
        return _job(run, kind, count, lambda made: made.content)
    return _job(run, kind, count, lambda made: made.tool_call_chunks[0]["args"])


def litellm(kind: Kind, count: int) -> Job:
    """Build one response of all chunks at the end."""
    builder, chunk_type = _litellm()
    chunks = [chunk_type(**each) for each in _chunks(kind, count)]
    return _job(lambda _: builder(chunks), kind, count, _said(kind))


@functools.cache
def _litellm() -> tuple[Callable[[Any], Any], Callable[..., Any]]:
    import os

    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else its import asks the network
    from litellm import stream_chunk_builder
    from litellm.types.utils import ModelResponseStream

    return stream_chunk_builder, ModelResponseStream


# -- looking while they arrive ------------------------------------------------------------------------


def looks(count: int, few: int) -> Case:
    """Look at the arguments after each delta; peers parse what came so far anew."""
    size = len(deltas.whole("arguments", count, LOOK_WIDTH)) / 1e6
    return Case(
        f"4. Look at {size:.1f} MB of arguments after each of {count:,} deltas",
        "ms",
        [
            Contender("palaver arguments_so_far", lambda: looking(count)),
            Contender("jiter from_json, partial mode", lambda: scaled(jiter(few), few, count)),
            Contender("pydantic_core from_json, partial mode", lambda: scaled(_pydantic_core(few), few, count)),
        ],
        PATIENCE,
    )


def looking(count: int) -> Job:
    """Feed each event, then look."""
    events = deltas.events("arguments", count, LOOK_WIDTH)

    def run(_state: object) -> Any:
        assembler = Assembler()
        for event in events[:2]:
            assembler.feed(event)
        (call,) = assembler.calls
        seen: Any = None
        for event in events[2:]:
            assembler.feed(event)
            seen = call.arguments_so_far
        return seen

    return Job(run, check=lambda made: same_object(made, "arguments", count, LOOK_WIDTH))


def jiter(count: int) -> Job:
    """Parse all that came so far, each time."""
    from jiter import from_json

    def run(_state: object) -> Any:
        held = b""
        seen: Any = None
        for piece in pieces:
            held += piece
            seen = from_json(held, partial_mode="trailing-strings")
        return seen

    pieces = [piece.encode() for piece in deltas.pieces("arguments", count, LOOK_WIDTH)]
    return Job(run, check=lambda made: same_object(made, "arguments", count, LOOK_WIDTH))


def _pydantic_core(count: int) -> Job:
    from pydantic_core import from_json

    def run(_state: object) -> Any:
        held = ""
        seen: Any = None
        for piece in pieces:
            held += piece
            seen = from_json(held, allow_partial="trailing-strings")
        return seen

    pieces = deltas.pieces("arguments", count, LOOK_WIDTH)
    return Job(run, check=lambda made: same_object(made, "arguments", count, LOOK_WIDTH))
