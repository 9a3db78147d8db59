"""Streams of the Responses wire, written by hand: items as a provider sends them, event by event."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from palaver import wires
from palaver.core.events import (
    ArgumentsDelta,
    CitationDelta,
    Event,
    Finish,
    PartEnd,
    PartStart,
    ReasoningDelta,
    Start,
    TextDelta,
)
from tests.wires.openai_responses.fixtures import answer

Told = dict[str, Any]
"""Return one event: its data."""

HEAD: Told = answer(status="in_progress", usage=None)


def event(kind: str, **fields: Any) -> Told:
    return {"type": kind, **fields}


def pieces(text: str, size: int = 4) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def said(name: str, whole: str, text: str, **place: Any) -> Iterator[Told]:
    """Yield the deltas of a text, then the whole."""
    for piece in pieces(text):
        yield event(f"{name}.delta", **place, delta=piece, obfuscation="xyz")
    yield event(f"{name}.done", **place, **{whole: text})


def item(index: int, whole: Told) -> Iterator[Told]:
    """Yield one item, as the provider sends it."""
    begun = {**whole, "status": "in_progress"} if "status" in whole else dict(whole)
    place: Told = {"output_index": index, "item_id": whole.get("id", "")}
    inner: list[Told] = []
    match whole["type"]:
        case "message":
            begun["content"] = []
            for n, part in enumerate(whole["content"]):
                inner += _part(part, content_index=n, **place)
        case "reasoning":
            begun |= {"summary": [], "encrypted_content": "other"} | ({"content": []} if "content" in whole else {})
            for n, each in enumerate(whole["summary"]):
                at = {**place, "summary_index": n}
                inner.append(event("response.reasoning_summary_part.added", **at, part={**each, "text": ""}))
                inner += said("response.reasoning_summary_text", "text", each["text"], **at)
                inner.append(event("response.reasoning_summary_part.done", **at, part=each))
            for n, each in enumerate(whole.get("content") or ()):
                inner += said("response.reasoning_text", "text", each["text"], **place, content_index=n)
        case "function_call":
            begun["arguments"] = ""
            inner += said("response.function_call_arguments", "arguments", whole["arguments"], **place)
        case "custom_tool_call":
            begun["input"] = ""
            inner += said("response.custom_tool_call_input", "input", whole["input"], **place)
        case "mcp_call":
            begun |= {"arguments": "", "output": None, "error": None}
            inner.append(event("response.mcp_call.in_progress", **place))
            inner += said("response.mcp_call_arguments", "arguments", whole["arguments"], **place)
        case "code_interpreter_call":
            begun |= {"code": "", "outputs": None}
            if whole["code"] is not None:
                inner += said("response.code_interpreter_call_code", "code", whole["code"], **place)
            inner.append(event("response.code_interpreter_call.interpreting", **place))
        case "image_generation_call":
            begun["result"] = None
            inner.append(event("response.image_generation_call.partial_image", **place, partial_image_b64="AA=="))
        case _:
            pass
    yield event("response.output_item.added", output_index=index, item=begun)
    yield from inner
    yield event("response.output_item.done", output_index=index, item=whole)


def _part(part: Told, **place: Any) -> Iterator[Told]:
    begun = dict(part)
    inner: list[Told] = []
    if part["type"] == "output_text":
        begun |= {"text": "", "annotations": []}
        inner += [event("response.output_text.delta", **place, delta=p, logprobs=[]) for p in pieces(part["text"])]
        for n, each in enumerate(part["annotations"]):
            inner.append(event("response.output_text.annotation.added", **place, annotation_index=n, annotation=each))
        inner.append(event("response.output_text.done", **place, text=part["text"]))
    elif part["type"] == "refusal":
        begun["refusal"] = ""
        inner += said("response.refusal", "refusal", part["refusal"], **place)
    yield event("response.content_part.added", **place, part=begun)
    yield from inner
    yield event("response.content_part.done", **place, part=part)


def begun(**fields: Any) -> list[Told]:
    head = {**HEAD, **fields}
    return [event("response.created", response=head), event("response.in_progress", response=head)]


def stream(*items: Told, **fields: Any) -> list[Told]:
    """Return all events of an answer with these items."""
    body = answer(*items, **fields)
    end = event(f"response.{body['status']}", response=body)
    return [*begun(), *(each for index, whole in enumerate(items) for each in item(index, whole)), end]


def written(events: Iterable[Told], *, named: bool = True) -> bytes:
    """Return the bytes of a stream, numbered as the provider does."""
    out: list[bytes] = []
    for number, each in enumerate(events):
        if named and "type" in each:
            out.append(f"event: {each['type']}\n".encode())
        out.append(b"data: " + json.dumps({**each, "sequence_number": number}).encode() + b"\n\n")
    return b"".join(out)


def decoded(data: bytes | Iterable[Told]) -> tuple[list[Event], Any]:
    """Return the events of a stream, and its decoder, which is closed."""
    decoder = wires.get("openai_responses").stream_decoder()
    events = decoder.feed(data if isinstance(data, bytes) else written(data))
    return [*events, *decoder.close()], decoder


def well_formed(events: list[Event], *, finished: bool = True) -> None:
    """Check the rules for the events of every whole stream."""
    assert isinstance(events[0], Start)
    assert sum(isinstance(each, Start) for each in events) == 1
    begun: dict[int, str] = {}
    ended: dict[int, Any] = {}
    over = False
    for each in events:
        match each:
            case PartStart(index, part):
                assert index not in begun
                begun[index] = ""
                for name in ("text", "arguments_json"):
                    assert getattr(part, name, "") == "", "a part that streams begins empty"
            case TextDelta(index, text) | ReasoningDelta(index, text) | ArgumentsDelta(index, text):
                assert text
                begun[index] += text
                assert index not in ended
            case CitationDelta(index):
                assert index in begun
                assert index not in ended
            case PartEnd(index, part):
                assert index in begun
                assert part is not None or index not in ended
                ended[index] = part
                if part is not None:
                    for name in ("text", "arguments_json", "raw_json"):
                        found = getattr(part, name, None)
                        if isinstance(found, str):
                            assert found == begun[index], "all of it was told in deltas"
            case Finish():
                assert begun.keys() == ended.keys(), "a part ends before the answer does"
                assert not over
                over = True
            case _:
                pass
    assert over == finished
