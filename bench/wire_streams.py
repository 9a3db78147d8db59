"""One answer as the stream of each wire: the bytes that its provider would send.

Rules:

- The form is the provider's own, as recorded streams have it: what stands beside a delta (ids, sequence
  numbers, ``obfuscation``, padding) is there, since it costs time to skip. The values are ours, from a seed.
- Bytes come in chunks of 4 KiB, cut where they happen to be cut.
- ``google_generate`` and ``ollama_chat`` send the arguments of a call whole, so only their text is streamed.
- Framing is written here, with no part of palaver.
"""

from __future__ import annotations

import json
import struct
import zlib
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any

import deltas
from deltas import CALL_ID, SEED, TOOL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deltas import Kind

CHUNK = 4096
_FILLER = "aZ4kQ9wR1tY7uIo3pL0sDf8gH6jXcV2b"


@cache
def chunks(wire: str, kind: Kind, count: int) -> tuple[bytes, ...]:
    """Give the stream of so many deltas in chunks, as a connection would."""
    data = b"".join(STREAMS[wire](kind, count))
    return tuple(data[start : start + CHUNK] for start in range(0, len(data), CHUNK))


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _fillers() -> Iterator[str]:
    random = Random(SEED)
    while True:
        yield _FILLER[: random.randint(0, 16)]


def _openai_chat(kind: Kind, count: int) -> Iterator[bytes]:
    fillers = _fillers()
    reason = "stop" if kind == "text" else "tool_calls"

    def chunk(delta: Any, finish: str | None = None) -> bytes:
        return _chat_chunk([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}], None, fillers)

    if kind == "text":
        yield chunk({"role": "assistant", "content": "", "refusal": None})
    else:
        call = {"index": 0, "id": CALL_ID, "type": "function", "function": {"name": TOOL, "arguments": ""}}
        yield chunk({"role": "assistant", "content": None, "tool_calls": [call], "refusal": None})
    for piece in deltas.pieces(kind, count):
        if kind == "text":
            yield chunk({"content": piece})
        else:
            yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
    yield chunk({}, reason)
    usage = {"prompt_tokens": 512, "completion_tokens": count, "total_tokens": 512 + count}
    yield _chat_chunk([], usage, fillers)
    yield b"data: [DONE]\n\n"


def _chat_chunk(choices: list[Any], usage: Any, fillers: Iterator[str]) -> bytes:
    head = {
        "id": "chatcmpl-D4rTz8mWq1XvN6bKc0YpLs2Ef",
        "object": "chat.completion.chunk",
        "created": 1754432618,
        "model": "gpt-4o-2024-08-06",
        "service_tier": "default",
        "system_fingerprint": "fp_0a1b2c3d4e",
    }
    body = {**head, "choices": choices, "usage": usage, "obfuscation": next(fillers)}
    return b"data: %b\n\n" % _json(body)


def _openai_responses(kind: Kind, count: int) -> Iterator[bytes]:
    fillers = _fillers()
    text = deltas.whole(kind, count)
    number = 0

    def event(name: str, fields: Any) -> bytes:
        nonlocal number
        number += 1
        return b"event: %b\ndata: %b\n\n" % (
            name.encode(),
            _json({"type": name, **fields, "sequence_number": number - 1}),
        )

    def response(status: str, output: list[Any], usage: Any) -> dict[str, Any]:
        return {"response": {**_RESPONSE, "status": status, "output": output, "usage": usage}}

    yield event("response.created", response("in_progress", [], None))
    yield event("response.in_progress", response("in_progress", [], None))
    if kind == "text":
        item = {"id": "msg_68a1f0c2", "type": "message", "status": "in_progress", "content": [], "role": "assistant"}
        place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        part = {"type": "output_text", "annotations": [], "logprobs": [], "text": ""}
        yield event("response.output_item.added", {"item": item, "output_index": 0})
        yield event("response.content_part.added", {**place, "part": part})
        for piece in deltas.pieces(kind, count):
            fields = {**place, "delta": piece, "logprobs": [], "obfuscation": next(fillers)}
            yield event("response.output_text.delta", fields)
        yield event("response.output_text.done", {**place, "logprobs": [], "text": text})
        part = {**part, "text": text}
        yield event("response.content_part.done", {**place, "part": part})
        item = {**item, "status": "completed", "content": [part]}
    else:
        names = {"id": "fc_68a1f0c2", "type": "function_call", "call_id": CALL_ID, "name": TOOL}
        item = {**names, "status": "in_progress", "arguments": ""}
        place = {"item_id": item["id"], "output_index": 0}
        yield event("response.output_item.added", {"item": item, "output_index": 0})
        for piece in deltas.pieces(kind, count):
            fields = {**place, "delta": piece, "obfuscation": next(fillers)}
            yield event("response.function_call_arguments.delta", fields)
        yield event("response.function_call_arguments.done", {**place, "arguments": text})
        item = {**names, "status": "completed", "arguments": text}
    yield event("response.output_item.done", {"item": item, "output_index": 0})
    usage = {
        "input_tokens": 512,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": count,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 512 + count,
    }
    yield event("response.completed", response("completed", [item], usage))


_RESPONSE: dict[str, Any] = {
    "id": "resp_68a1f0c2b4d3",
    "object": "response",
    "created_at": 1754432618,
    "background": False,
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "max_output_tokens": None,
    "model": "gpt-4o-2024-08-06",
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
    "metadata": {},
}


def _anthropic(kind: Kind, count: int) -> Iterator[bytes]:
    fillers = _fillers()

    def event(name: str, fields: Any) -> bytes:
        data = _json({"type": name, **fields})
        return b"event: %b\ndata: %b%b}\n\n" % (name.encode(), data[:-1], b" " * len(next(fillers)))

    usage = {"input_tokens": 512, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1}
    head = {"id": "msg_01Tq7RmXw4VzKc9N", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5-20250929"}
    rest = {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    yield event("message_start", {"message": {**head, **rest}})
    if kind == "text":
        block = {"type": "text", "text": ""}
        name, field, reason = "text_delta", "text", "end_turn"
    else:
        block = {"type": "tool_use", "id": "toolu_01Jm3xO9aQ7b", "name": TOOL, "input": {}}
        name, field, reason = "input_json_delta", "partial_json", "tool_use"
    yield event("content_block_start", {"index": 0, "content_block": block})
    yield b'event: ping\ndata: {"type": "ping"}\n\n'
    for piece in deltas.pieces(kind, count):
        yield event("content_block_delta", {"index": 0, "delta": {"type": name, field: piece}})
    yield event("content_block_stop", {"index": 0})
    over = {"delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {**usage, "output_tokens": count}}
    yield event("message_delta", over)
    yield event("message_stop", {})


def _google(kind: Kind, count: int) -> Iterator[bytes]:
    head = {"modelVersion": "gemini-2.5-flash", "responseId": "w1peaMz6INOvnvgP"}
    usage = {"promptTokenCount": 512, "totalTokenCount": 512}
    usage |= {"promptTokensDetails": [{"modality": "TEXT", "tokenCount": 512}]}
    for left, piece in zip(range(count - 1, -1, -1), deltas.pieces(kind, count), strict=True):
        candidate: dict[str, Any] = {"content": {"parts": [{"text": piece}], "role": "model"}, "index": 0}
        if not left:
            candidate["finishReason"] = "STOP"
        yield b"data: %b\r\n\r\n" % _json({"candidates": [candidate], "usageMetadata": usage, **head})


def _bedrock(kind: Kind, count: int) -> Iterator[bytes]:
    fillers = _fillers()

    def event(name: str, fields: Any) -> bytes:
        return _message(name.encode(), _json({**fields, "p": next(fillers)}))

    yield event("messageStart", {"role": "assistant"})
    if kind == "arguments":
        start = {"toolUse": {"name": TOOL, "toolUseId": "tooluse_Jm3xO9aQ7b"}}
        yield event("contentBlockStart", {"contentBlockIndex": 0, "start": start})
    for piece in deltas.pieces(kind, count):
        delta = {"text": piece} if kind == "text" else {"toolUse": {"input": piece}}
        yield event("contentBlockDelta", {"contentBlockIndex": 0, "delta": delta})
    yield event("contentBlockStop", {"contentBlockIndex": 0})
    yield event("messageStop", {"stopReason": "end_turn" if kind == "text" else "tool_use"})
    usage = {"inputTokens": 512, "outputTokens": count, "totalTokens": 512 + count}
    yield event("metadata", {"metrics": {"latencyMs": 1600}, "usage": usage})


def _message(name: bytes, payload: bytes) -> bytes:
    """Frame one message of an AWS event stream."""
    headers = b"".join(
        bytes([len(key)]) + key + b"\x07" + struct.pack(">H", len(value)) + value
        for key, value in (
            (b":event-type", name),
            (b":content-type", b"application/json"),
            (b":message-type", b"event"),
        )
    )
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    body = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return body + struct.pack(">I", zlib.crc32(body))


def _cohere(kind: Kind, count: int) -> Iterator[bytes]:
    def event(name: str, fields: Any) -> bytes:
        return b"event: %b\ndata: %b\n\n" % (name.encode(), _json({"type": name, **fields}))

    empty = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
    yield event("message-start", {"id": "5b3c1d7e-2f4a", "delta": {"message": empty}})
    if kind == "text":
        start: Any = {"content": {"type": "text", "text": ""}}
        name, reason = "content", "COMPLETE"
    else:
        function = {"name": TOOL, "arguments": ""}
        start = {"tool_calls": {"id": CALL_ID, "type": "function", "function": function}}
        name, reason = "tool-call", "TOOL_CALL"
    yield event(f"{name}-start", {"index": 0, "delta": {"message": start}})
    for piece in deltas.pieces(kind, count):
        grown = {"content": {"text": piece}} if kind == "text" else {"tool_calls": {"function": {"arguments": piece}}}
        yield event(f"{name}-delta", {"index": 0, "delta": {"message": grown}})
    yield event(f"{name}-end", {"index": 0})
    tokens = {"input_tokens": 512, "output_tokens": count}
    yield event(
        "message-end", {"delta": {"finish_reason": reason, "usage": {"billed_units": tokens, "tokens": tokens}}}
    )


def _ollama(kind: Kind, count: int) -> Iterator[bytes]:
    head = {"model": "qwen3:8b", "created_at": "2025-08-05T22:23:38.123456Z"}
    for piece in deltas.pieces(kind, count):
        yield _json({**head, "message": {"role": "assistant", "content": piece}, "done": False}) + b"\n"
    over = {"done": True, "done_reason": "stop", "total_duration": 10**9, "load_duration": 10**6}
    counts = {"prompt_eval_count": 512, "prompt_eval_duration": 10**7, "eval_count": count, "eval_duration": 10**9}
    yield _json({**head, "message": {"role": "assistant", "content": ""}, **over, **counts}) + b"\n"


STREAMS: dict[str, Callable[[Kind, int], Iterator[bytes]]] = {
    "openai_chat": _openai_chat,
    "openai_responses": _openai_responses,
    "anthropic_messages": _anthropic,
    "google_generate": _google,
    "bedrock_converse": _bedrock,
    "cohere_chat": _cohere,
    "ollama_chat": _ollama,
}
TEXT_ONLY = frozenset({"google_generate", "ollama_chat"})
