"""Streams of our own, and an answer joined from their events by hand, without this library."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any, TypeAlias

from botocore.eventstream import EventStreamBuffer

from palaver.stream import event_stream

Event: TypeAlias = tuple[str, dict[str, Any]]


def stream(*events: Event, padded: bool = False) -> bytes:
    """Return frames, with the service's padding on request."""
    return b"".join(
        frame(name, {**data, "p": "abcdef"} if padded and isinstance(data, dict) else data) for name, data in events
    )


def frame(name: str, data: Any, **kind: Any) -> bytes:
    body = json.dumps(data, separators=(",", ":")).encode() if not isinstance(data, bytes) else data
    return event_stream.write(body, name, **kind)


def split(data: bytes) -> list[Event]:
    """Return the events of a stream, read by botocore, without padding."""
    buffer = EventStreamBuffer()
    buffer.add_data(data)
    found: list[Event] = []
    for message in buffer:
        fields = json.loads(message.payload)
        fields.pop("p", None)
        found.append((message.headers[":event-type"], fields))
    return found


# -- events --

BEGIN: Event = ("messageStart", {"role": "assistant"})


def start(index: int, **block: Any) -> Event:
    return "contentBlockStart", {"contentBlockIndex": index, "start": block}


def delta(index: int, **more: Any) -> Event:
    return "contentBlockDelta", {"contentBlockIndex": index, "delta": more}


def stop(index: int) -> Event:
    return "contentBlockStop", {"contentBlockIndex": index}


def over(word: str = "end_turn", **fields: Any) -> Event:
    return "messageStop", {"stopReason": word, **fields}


def metadata(**fields: Any) -> Event:
    usage = {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}
    return "metadata", {"usage": usage, "metrics": {"latencyMs": 7}, **fields}


def text(index: int, *pieces: str) -> list[Event]:
    return [*(delta(index, text=piece) for piece in pieces), stop(index)]


def thought(index: int, *pieces: str, signature: str | None = None) -> list[Event]:
    signed = [] if signature is None else [delta(index, reasoningContent={"signature": signature})]
    return [*(delta(index, reasoningContent={"text": piece}) for piece in pieces), *signed, stop(index)]


def redacted(index: int, *pieces: str) -> list[Event]:
    return [*(delta(index, reasoningContent={"redactedContent": piece}) for piece in pieces), stop(index)]


def call(index: int, *pieces: str, call_id: str = "t1", name: str = "search", **fields: Any) -> list[Event]:
    begun = start(index, toolUse={"toolUseId": call_id, "name": name, **fields})
    return [begun, *(delta(index, toolUse={"input": piece}) for piece in pieces), stop(index)]


def result(index: int, *lists: list[Any], call_id: str = "s1", **fields: Any) -> list[Event]:
    begun = start(index, toolResult={"toolUseId": call_id, **fields})
    return [begun, *(delta(index, toolResult=items) for items in lists), stop(index)]


def image(index: int, *more: dict[str, Any], form: str = "png") -> list[Event]:
    return [start(index, image={"format": form}), *(delta(index, image=each) for each in more), stop(index)]


CITATION = {"title": "T", "sourceContent": [{"text": "so"}], "location": {"web": {"url": "https://a.example"}}}
SECOND = {"title": "U", "location": {"documentChar": {"documentIndex": 0, "start": 1, "end": 4}}}
PLAIN = [BEGIN, *text(0, "Hel", "lo"), over(), metadata()]

OWN: dict[str, list[Event]] = {
    "text": PLAIN,
    "nothing but the end": [BEGIN, over(), metadata()],
    "an empty text before the rest": [
        BEGIN,
        *text(0, ""),
        *thought(1, "Hm."),
        *text(2, "a", "", "b"),
        over(),
        metadata(),
    ],
    "odd text": [BEGIN, *text(0, "\u2028 \u0000", "\ud83d", "\ude00 é", "\ud800"), over(), metadata()],
    "reasoning that is signed": [BEGIN, *thought(0, "a ", "b", signature="c2ln"), *text(1, "x"), over(), metadata()],
    "a signature without text": [BEGIN, *thought(0, signature="c2ln"), over(), metadata()],
    "an empty signature": [BEGIN, *thought(0, "a", signature=""), over(), metadata()],
    "redacted reasoning": [BEGIN, *redacted(0, "cmVk"), *redacted(1, "YQ==", "Yg=="), over(), metadata()],
    "a call": [BEGIN, *text(0, "I look."), *call(1, '{"q":', '"a', 'b"}'), over("tool_use"), metadata()],
    "a call without arguments": [BEGIN, *call(0), over("tool_use"), metadata()],
    "a call with empty arguments": [BEGIN, *call(0, ""), over("tool_use"), metadata()],
    "a call with a type": [BEGIN, *call(0, "{}", type="tool_use", x=[1]), over("tool_use"), metadata()],
    "two calls at once": [
        BEGIN,
        *call(0, '{"a":1}'),
        *call(1, '{"a":', "2}", call_id="t2"),
        over("tool_use"),
        metadata(),
    ],
    "a tool of the service": [
        BEGIN,
        *call(0, '{"x":"1"}', call_id="s1", name="code", type="server_tool_use"),
        *result(1, [{"json": {"out": "2", "n": 1.0}}], [{"text": "done"}], type="code_result", status="success"),
        *text(2, "It is 2."),
        over("tool_use"),
        metadata(),
    ],
    "a result that failed": [BEGIN, *result(0, status="error"), over(), metadata()],
    "a text with citations": [
        BEGIN,
        delta(0, text="It is "),
        delta(0, citation=CITATION),
        delta(0, text="so."),
        delta(0, citation=SECOND),
        stop(0),
        *text(1, " And so on."),
        over(),
        metadata(),
    ],
    "citations before their text": [BEGIN, delta(0, citation=CITATION), *text(0, "so"), over(), metadata()],
    "citations without a text": [BEGIN, delta(0, citation=CITATION), stop(0), over(), metadata()],
    "an image": [BEGIN, *image(0, {"source": {"bytes": "iVBORw=="}}), over(), metadata()],
    "an image in pieces": [
        BEGIN,
        *image(0, {"source": {"bytes": "iVBO"}}, {"source": {"bytes": "Rw=="}}),
        over(),
        metadata(),
    ],
    "an image elsewhere": [
        BEGIN,
        *image(0, {"source": {"s3Location": {"uri": "s3://b/a.png", "bucketOwner": "123456789012"}}}),
        over(),
        metadata(),
    ],
    "an image that failed": [BEGIN, *image(0, {"error": {"message": "no"}}), over(), metadata()],
    "an image of an unknown format": [BEGIN, *image(0, {"source": {"bytes": "iVBO"}}, form="bmp"), over(), metadata()],
    "blocks that nobody ends": [
        BEGIN,
        delta(0, text="a"),
        delta(1, reasoningContent={"text": "b"}),
        over(),
        metadata(),
    ],
    "fields beside the answer": [
        ("messageStart", {"role": "assistant", "x": {"y": 1}}),
        *text(0, "a"),
        over("max_tokens", additionalModelResponseFields={"stop_sequence": None}),
        metadata(
            trace={"guardrail": {"actionReason": "none"}},
            performanceConfig={"latency": "standard"},
            serviceTier={"type": "flex"},
            more=[1],
        ),
    ],
    "cached tokens": [
        BEGIN,
        *text(0, "a"),
        over(),
        (
            "metadata",
            {
                "usage": {
                    "inputTokens": 1,
                    "outputTokens": 2,
                    "totalTokens": 10,
                    "cacheReadInputTokens": 3,
                    "cacheWriteInputTokens": 4,
                    "cacheDetails": [{"ttl": "5m", "inputTokens": 4}],
                },
                "metrics": {"latencyMs": 1},
            },
        ),
    ],
    "usage that says nothing": [BEGIN, *text(0, "a"), over(), ("metadata", {"usage": [], "metrics": None})],
    "no metadata": [BEGIN, *text(0, "a"), over("stop_sequence", additionalModelResponseFields={"a": 1})],
    "another role": [("messageStart", {"role": "user"}), *text(0, "a"), over(), metadata()],
    "no role": [("messageStart", {}), *text(0, "a"), over(), metadata()],
    "a word nobody knows": [BEGIN, *text(0, "a"), over("tired"), metadata()],
    "no word": [BEGIN, *text(0, "a"), ("messageStop", {}), metadata()],
    "a call that is none": [BEGIN, *text(0, "a"), over("tool_use"), metadata()],
}
"""One stream for each kind of content in streams of this wire."""

INTERLEAVED = [
    BEGIN,
    delta(0, text="a"),
    start(1, toolUse={"toolUseId": "t1", "name": "f"}),
    delta(1, toolUse={"input": '{"x"'}),
    delta(0, text="b"),
    delta(1, toolUse={"input": ":1}"}),
    stop(1),
    stop(0),
    over("tool_use"),
    metadata(),
]
"""Two blocks at the same time, which the service does not send, but its format allows."""


def joined(events: Iterable[Event]) -> dict[str, Any]:
    """Return the unstreamed answer, joined by hand."""
    message: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    body: dict[str, Any] = {}
    for name, data in events:
        index = data.get("contentBlockIndex", 0)
        match name:
            case "messageStart":
                message.update(data)
            case "contentBlockStart":
                blocks[index] = {key: {**value} for key, value in data["start"].items()}
            case "contentBlockDelta":
                _add(blocks.setdefault(index, {}), data["delta"])
            case "messageStop" | "metadata":
                body.update(data)
    message["content"] = [_block(blocks[index]) for index in sorted(blocks)]
    return {"output": {"message": message}, **body}


def _add(block: dict[str, Any], more: dict[str, Any]) -> None:
    match more:
        case {"text": words}:
            block["text"] = block.get("text", "") + words
        case {"citation": citation}:
            block.setdefault("citations", []).append(citation)
        case {"reasoningContent": {"text": words}}:
            signed = block.setdefault("reasoningContent", {}).setdefault("reasoningText", {"text": ""})
            signed["text"] += words
        case {"reasoningContent": {"signature": proof}}:
            block.setdefault("reasoningContent", {}).setdefault("reasoningText", {"text": ""})["signature"] = proof
        case {"reasoningContent": {"redactedContent": data}}:
            _append(block.setdefault("reasoningContent", {}), "redactedContent", data)
        case {"toolUse": {"input": words}}:
            block["toolUse"]["input"] = block["toolUse"].get("input", "") + words
        case {"toolResult": items}:
            block["toolResult"].setdefault("content", []).extend(items)
        case {"image": {"source": {"bytes": data}}}:
            _append(block["image"].setdefault("source", {}), "bytes", data)
        case {"image": fields}:
            block["image"].update(fields)
        case _:
            raise AssertionError(more)


def _append(fields: dict[str, Any], key: str, data: str) -> None:
    held = base64.b64decode(fields.get(key, "")) + base64.b64decode(data)
    fields[key] = base64.b64encode(held).decode()


def _block(block: dict[str, Any]) -> dict[str, Any]:
    match block:
        case {"citations": citations}:
            content = {"content": [{"text": block["text"]}]} if "text" in block else {}
            return {"citationsContent": {**content, "citations": citations}}
        case {"toolUse": {**use}}:
            return {"toolUse": {**use, "input": json.loads(use.get("input") or "{}")}}
        case {"toolResult": {**found}}:
            return {"toolResult": {"content": [], **found}}
        case _:
            return block
