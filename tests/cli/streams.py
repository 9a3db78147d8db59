"""One short stream of every wire, written by hand: reasoning or text, then a call or none; and how it is cut."""

import json

from palaver.stream import event_stream

CALL = '{"city": "Husum"}'


def sse(*events, named=False, end=b"\n"):
    """Return server-sent events of these objects; `named` also gives each event its `type` as the name."""
    lines = []
    for event in events:
        if named:
            lines.append(f"event: {event['type']}".encode())
        lines += [b"data: " + (event.encode() if isinstance(event, str) else json.dumps(event).encode()), b""]
    return end.join([*lines, b""])


def chunk(**fields):
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5", "choices": [], **fields}


def choice(finish=None, **delta):
    return chunk(choices=[{"index": 0, "delta": delta, "finish_reason": finish}])


def call_of_chat():
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}
    pieces = [CALL[:5], CALL[5:]]
    return [
        choice(tool_calls=[call]),
        *[choice(tool_calls=[{"index": 0, "function": {"arguments": piece}}]) for piece in pieces],
        choice("tool_calls"),
    ]


CHAT = sse(
    choice(role="assistant", content=""), choice(content="I "), choice(content="look."), *call_of_chat(), "[DONE]"
)

_RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "gpt-5",
    "status": "in_progress",
    "output": [],
}
_WORDS = {"type": "output_text", "text": "I look.", "annotations": []}
_ITEM = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [_WORDS]}
_AT = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
RESPONSES = sse(
    {"type": "response.created", "sequence_number": 0, "response": _RESPONSE},
    {
        "type": "response.output_item.added",
        "sequence_number": 1,
        "output_index": 0,
        "item": {**_ITEM, "status": "in_progress", "content": []},
    },
    {"type": "response.content_part.added", "sequence_number": 2, **_AT, "part": {**_WORDS, "text": ""}},
    {"type": "response.output_text.delta", "sequence_number": 3, **_AT, "delta": "I look.", "logprobs": []},
    {"type": "response.output_text.done", "sequence_number": 4, **_AT, "text": "I look.", "logprobs": []},
    {"type": "response.content_part.done", "sequence_number": 5, **_AT, "part": _WORDS},
    {"type": "response.output_item.done", "sequence_number": 6, "output_index": 0, "item": _ITEM},
    {
        "type": "response.completed",
        "sequence_number": 7,
        "response": {**_RESPONSE, "status": "completed", "output": [_ITEM]},
    },
    named=True,
)

_MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "content": []}
_MESSAGE |= {"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 3, "output_tokens": 1}}
ANTHROPIC = sse(
    {"type": "message_start", "message": _MESSAGE},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "I "}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "look."}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 4},
    },
    {"type": "message_stop"},
    named=True,
)


def google(text, **fields):
    said = {"content": {"role": "model", "parts": [{"text": text}]}, "index": 0, **fields}
    return {"candidates": [said], "modelVersion": "gemini-x"}


_GOOGLE = (google("I "), google("look.", finishReason="STOP"))
GOOGLE = sse(*_GOOGLE, end=b"\r\n")
GEMINI_ARRAY = ("[" + ",\r\n".join(map(json.dumps, _GOOGLE)) + "]").encode()

BEDROCK = b"".join(
    event_stream.write(json.dumps(payload).encode(), name)
    for name, payload in (
        ("messageStart", {"role": "assistant"}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "I "}}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "look."}}),
        ("contentBlockStop", {"contentBlockIndex": 0}),
        ("messageStop", {"stopReason": "end_turn"}),
        ("metadata", {"usage": {"inputTokens": 3, "outputTokens": 4, "totalTokens": 7}, "metrics": {"latencyMs": 1}}),
    )
)

_TEXT = {"index": 0, "delta": {"message": {"content": {"type": "text", "text": ""}}}}
COHERE = sse(
    {"type": "message-start", "id": "m1", "delta": {"message": {"role": "assistant"}}},
    {"type": "content-start", **_TEXT},
    {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": "I "}}}},
    {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": "look."}}}},
    {"type": "content-end", "index": 0},
    {"type": "message-end", "delta": {"finish_reason": "COMPLETE"}},
)


def line(content, **fields):
    said = {"role": "assistant", "content": content}
    return {"model": "m", "created_at": "2026-01-01T00:00:00Z", "message": said, "done": False, **fields}


_LINES = (line("I "), line("look."), line("", done=True, done_reason="stop", eval_count=4))
OLLAMA = b"".join(json.dumps(each).encode() + b"\n" for each in _LINES)

STREAMS = {
    "openai_chat": CHAT,
    "openai_responses": RESPONSES,
    "anthropic_messages": ANTHROPIC,
    "google_generate": GOOGLE,
    "bedrock_converse": BEDROCK,
    "cohere_chat": COHERE,
    "ollama_chat": OLLAMA,
}
"""Each has the text “I look.” in two pieces, Chat also a call."""
