"""One conversation on every wire, and what answers are read as: docs/spec/kairo.md#4.1 and #4.2, with their goldens."""

# pyright: basic, reportOptionalMemberAccess=false, reportAttributeAccessIssue=false, reportArgumentType=false

from __future__ import annotations

import json

import pytest

import palaver as p
from palaver import wires
from palaver.testing.tables import row

PARAMETERS = {
    "type": "object",
    "properties": {"path": {"type": "string", "description": "the path"}},
    "required": ["path"],
}
READ = p.Tool.of("read", "Read a file.", PARAMETERS)
THOUGHT = p.Reasoning("I should look at the file first", wire="anthropic_messages", signature="sig-a")
SAID = (
    p.system("sys msg"),
    p.user("hi"),
    p.assistant(
        THOUGHT,
        "ok",
        p.ToolCall("c1", "read", '{"path":"/a/c1"}'),
        p.ToolCall("c2", "read", '{"path":"/a/c2"}'),
    ),
    p.tool("data", tool_call_id="c1", tool_name="read"),
    p.tool("bad", tool_call_id="c2", tool_name="read", is_error=True),
    p.user("see", p.Image.from_bytes(b"\x01\x02\x03", "image/png"), p.Image.from_url("https://i/x.png")),
)

ANTHROPIC = {
    "model": "m",
    "max_tokens": 100,
    "temperature": 0.5,
    "system": "sys msg",
    "messages": [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "I should look at the file first", "signature": "sig-a"},
                {"type": "text", "text": "ok"},
                {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "/a/c1"}},
                {"type": "tool_use", "id": "c2", "name": "read", "input": {"path": "/a/c2"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "data"},
                {"type": "tool_result", "tool_use_id": "c2", "content": "bad", "is_error": True},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "see"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AQID"}},
                {"type": "image", "source": {"type": "url", "url": "https://i/x.png"}},
            ],
        },
    ],
    "tools": [{"name": "read", "description": "Read a file.", "input_schema": PARAMETERS}],
}
CHAT = {
    "model": "m",
    "max_completion_tokens": 100,
    "temperature": 0.5,
    "messages": [
        {"role": "system", "content": "sys msg"},
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": "ok",
            "tool_calls": [
                {"id": each, "type": "function", "function": {"name": "read", "arguments": f'{{"path":"/a/{each}"}}'}}
                for each in ("c1", "c2")
            ],
        },
        {"role": "tool", "content": "data", "tool_call_id": "c1"},
        {"role": "tool", "content": "Error: bad", "tool_call_id": "c2"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "see"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AQID"}},
                {"type": "image_url", "image_url": {"url": "https://i/x.png"}},
            ],
        },
    ],
    "tools": [
        {"type": "function", "function": {"name": "read", "description": "Read a file.", "parameters": PARAMETERS}}
    ],
}

ASKED = [{"role": "system", "content": "sys msg"}, {"role": "user", "content": "hi"}]
CALLED = CHAT["messages"][2]["tool_calls"]
RESPONSES = {
    "model": "m",
    "max_output_tokens": 100,
    "temperature": 0.5,
    "input": [
        *ASKED,
        {"role": "assistant", "content": "ok"},
        {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"path":"/a/c1"}'},
        {"type": "function_call", "call_id": "c2", "name": "read", "arguments": '{"path":"/a/c2"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "data"},
        {"type": "function_call_output", "call_id": "c2", "output": "Error: bad"},
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "see"},
                {"type": "input_image", "image_url": "data:image/png;base64,AQID", "detail": "auto"},
                {"type": "input_image", "image_url": "https://i/x.png", "detail": "auto"},
            ],
        },
    ],
    "tools": [
        {
            "type": "function",
            "name": "read",
            "description": "Read a file.",
            "parameters": PARAMETERS,
            "strict": False,
        }
    ],
}
GOOGLE = {
    "systemInstruction": {"parts": [{"text": "sys msg"}]},
    "generationConfig": {"maxOutputTokens": 100, "temperature": 0.5},
    "contents": [
        {"role": "user", "parts": [{"text": "hi"}]},
        {
            "role": "model",
            "parts": [
                {"text": "ok"},
                {
                    "functionCall": {"name": "read", "id": "c1", "args": {"path": "/a/c1"}},
                    "thoughtSignature": "skip_thought_signature_validator",
                },
                {"functionCall": {"name": "read", "id": "c2", "args": {"path": "/a/c2"}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "read", "response": {"output": "data"}, "id": "c1"}},
                {"functionResponse": {"name": "read", "response": {"error": "bad"}, "id": "c2"}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"text": "see"},
                {"inlineData": {"mimeType": "image/png", "data": "AQID"}},
                {"fileData": {"mimeType": "image/png", "fileUri": "https://i/x.png"}},
            ],
        },
    ],
    "tools": [
        {
            "functionDeclarations": [
                {"name": "read", "description": "Read a file.", "parametersJsonSchema": PARAMETERS},
            ]
        }
    ],
}
BEDROCK = {
    "system": [{"text": "sys msg"}],
    "inferenceConfig": {"maxTokens": 100, "temperature": 0.5},
    "messages": [
        {"role": "user", "content": [{"text": "hi"}]},
        {
            "role": "assistant",
            "content": [
                {"text": "ok"},
                {"toolUse": {"toolUseId": "c1", "name": "read", "input": {"path": "/a/c1"}}},
                {"toolUse": {"toolUseId": "c2", "name": "read", "input": {"path": "/a/c2"}}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"toolResult": {"toolUseId": "c1", "content": [{"text": "data"}]}},
                {"toolResult": {"toolUseId": "c2", "content": [{"text": "bad"}], "status": "error"}},
                {"text": "see"},
                {"image": {"format": "png", "source": {"bytes": "AQID"}}},
            ],
        },
    ],
    "toolConfig": {
        "tools": [
            {"toolSpec": {"name": "read", "description": "Read a file.", "inputSchema": {"json": PARAMETERS}}},
        ]
    },
}
COHERE = {
    "model": "m",
    "max_tokens": 100,
    "temperature": 0.5,
    "messages": [
        *ASKED,
        {"role": "assistant", "tool_plan": "ok", "tool_calls": CALLED},
        *CHAT["messages"][3:],
    ],
    "tools": CHAT["tools"],
}
OLLAMA = {
    "model": "m",
    "options": {"num_predict": 100, "temperature": 0.5},
    "messages": [
        *ASKED,
        {
            "role": "assistant",
            "content": "ok",
            "tool_calls": [
                {"id": each, "function": {"name": "read", "arguments": {"path": f"/a/{each}"}}} for each in ("c1", "c2")
            ],
        },
        {"role": "tool", "content": "data", "tool_call_id": "c1", "tool_name": "read"},
        {"role": "tool", "content": "Error: bad", "tool_call_id": "c2", "tool_name": "read"},
        {"role": "user", "content": "see", "images": ["AQID"]},
    ],
    "tools": CHAT["tools"],
}
GOLDENS = {
    "anthropic_messages": (ANTHROPIC, []),
    "openai_chat": (CHAT, [("dropped", "reasoning"), ("converted", "is_error")]),
    "openai_responses": (RESPONSES, [("dropped", "reasoning"), ("converted", "is_error")]),
    "google_generate": (
        GOOGLE,
        [
            ("dropped", "reasoning"),
            ("converted", "tool call"),
            ("converted", "tool result"),
            ("converted", "is_error"),
        ],
    ),
    "bedrock_converse": (BEDROCK, [("dropped", "reasoning"), ("dropped", "image")]),
    "cohere_chat": (COHERE, [("converted", "text"), ("dropped", "reasoning"), ("converted", "is_error")]),
    "ollama_chat": (OLLAMA, [("dropped", "reasoning"), ("converted", "is_error"), ("dropped", "image")]),
}


def plain(value):
    """A list of one text is that text: the provider reads both alike."""
    if isinstance(value, list):
        if len(value) == 1 and isinstance(value[0], dict) and value[0].keys() == {"type", "text"}:
            return value[0]["text"]
        return [plain(each) for each in value]
    return {key: plain(each) for key, each in value.items()} if isinstance(value, dict) else value


@pytest.mark.row("KAI-23")
@pytest.mark.parametrize("wire", wires.names())
def test_a_request_is_the_golden_body_and_tells_what_it_lost(wire):
    body, lost = row(GOLDENS, wire, "GOLDENS in tests/wires/test_one_conversation.py")
    settings = p.Settings(max_tokens=100, temperature=0.5)
    encoded = wires.get(wire).encode_request(p.Request(SAID, "m", tools=(READ,), settings=settings))
    assert plain(json.loads(bytes(encoded.body))) == body
    assert [(loss.kind, loss.what) for loss in encoded.losses] == lost


@pytest.mark.row("KAI-23")
def test_an_answer_is_read_with_all_of_its_parts():
    body = {
        "id": "m1",
        "model": "c",
        "stop_reason": "tool_use",
        "content": [
            {"type": "thinking", "thinking": "hmm", "signature": "S"},
            {"type": "text", "text": "hi"},
            {"type": "tool_use", "id": "t1", "name": "read", "input": {"p": 1}},
            {"type": "redacted_thinking", "data": "zzz"},
        ],
        "usage": {
            "input_tokens": 5,
            "output_tokens": 6,
            "cache_read_input_tokens": 7,
            "cache_creation_input_tokens": 8,
        },
    }
    message = wires.get("anthropic_messages").decode_response(json.dumps(body).encode()).message
    thought, text, call, redacted = message.content
    assert (thought.text, thought.signature, text.text) == ("hmm", "S", "hi")
    assert (call.id, call.name, call.arguments) == ("t1", "read", {"p": 1})
    assert (type(redacted), redacted.text) == (p.Reasoning, "")
    used = message.usage
    assert message.finish_reason == "tool_calls"
    assert (used.input, used.output, used.cache_read, used.cache_write) == (5, 6, 7, 8)


@pytest.mark.row("KAI-23")
def test_reasoning_beside_an_answer_without_text_is_reasoning():
    called = {"id": "c1", "function": {"name": "read", "arguments": '{"p":1}'}}
    said = {"content": None, "reasoning_content": "because", "tool_calls": [called]}
    body = {
        "id": "o1",
        "model": "g",
        "choices": [{"finish_reason": "tool_calls", "message": said}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 6},
    }
    message = wires.get("openai_chat").decode_response(json.dumps(body).encode()).message
    assert (message.reasoning, message.text) == ("because", "")
    assert [(each.name, each.arguments_json) for each in message.tool_calls] == [("read", '{"p":1}')]
    assert (message.finish_reason, message.usage.input, message.usage.output) == ("tool_calls", 5, 6)


# -- the same answer on every wire -------------------------------------------------------------------------------------

FUNCTION = {"name": "read", "arguments": '{"p": 1}'}
CHAT_CALL = {"id": "c1", "type": "function", "function": FUNCTION}


def chat_answer(reason="tool_calls", arguments='{"p": 1}', text="hi"):
    call = {**CHAT_CALL, "function": {"name": "read", "arguments": arguments}}
    message = {"role": "assistant", "content": text, "reasoning_content": "hmm", "tool_calls": [call]}
    return {
        "id": "a1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": reason, "message": message}],
        "usage": {
            "prompt_tokens": 15,
            "completion_tokens": 6,
            "total_tokens": 21,
            "prompt_tokens_details": {"cached_tokens": 7},
            "completion_tokens_details": {"reasoning_tokens": 2},
        },
    }


def responses_answer(reason="completed", arguments='{"p": 1}', text="hi"):
    spoken = {"type": "output_text", "text": text, "annotations": []}
    partial = {} if reason == "completed" else {"incomplete_details": {"reason": reason}}
    return {
        "id": "a1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": "incomplete" if partial else "completed",
        **partial,
        "output": [
            {"type": "reasoning", "id": "r1", "summary": [{"type": "summary_text", "text": "hmm"}]},
            {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": [spoken]},
            {"type": "function_call", "id": "f1", "call_id": "c1", "name": "read", "arguments": arguments},
        ],
        "usage": {
            "input_tokens": 15,
            "output_tokens": 6,
            "total_tokens": 21,
            "input_tokens_details": {"cached_tokens": 7},
            "output_tokens_details": {"reasoning_tokens": 2},
        },
    }


def anthropic_answer(reason="tool_use", arguments=None, text="hi"):
    return {
        "id": "a1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "stop_reason": reason,
        "stop_sequence": None,
        "content": [
            {"type": "thinking", "thinking": "hmm", "signature": "S"},
            {"type": "text", "text": text},
            {"type": "tool_use", "id": "c1", "name": "read", "input": {"p": 1} if arguments is None else arguments},
        ],
        "usage": {"input_tokens": 8, "output_tokens": 6, "cache_read_input_tokens": 7},
    }


def google_answer(reason="STOP", arguments=None, text="hi"):
    parts = [
        {"text": "hmm", "thought": True},
        {"text": text},
        {"functionCall": {"id": "c1", "name": "read", "args": {"p": 1} if arguments is None else arguments}},
    ]
    return {
        "responseId": "a1",
        "modelVersion": "m",
        "candidates": [{"index": 0, "finishReason": reason, "content": {"role": "model", "parts": parts}}],
        "usageMetadata": {
            "promptTokenCount": 15,
            "candidatesTokenCount": 4,
            "thoughtsTokenCount": 2,
            "cachedContentTokenCount": 7,
            "totalTokenCount": 21,
        },
    }


def bedrock_answer(reason="tool_use", arguments=None, text="hi"):
    given = {"p": 1} if arguments is None else arguments
    return {
        "output": {
            "message": {
                "role": "assistant",
                "content": [
                    {"reasoningContent": {"reasoningText": {"text": "hmm", "signature": "S"}}},
                    {"text": text},
                    {"toolUse": {"toolUseId": "c1", "name": "read", "input": given}},
                ],
            }
        },
        "stopReason": reason,
        "usage": {"inputTokens": 8, "outputTokens": 6, "totalTokens": 21, "cacheReadInputTokens": 7},
        "metrics": {"latencyMs": 1},
    }


def cohere_answer(reason="TOOL_CALL", arguments='{"p": 1}', text="hi"):
    call = {**CHAT_CALL, "function": {"name": "read", "arguments": arguments}}
    spoken = [{"type": "thinking", "thinking": "hmm"}, {"type": "text", "text": text}]
    return {
        "id": "a1",
        "finish_reason": reason,
        "message": {"role": "assistant", "content": spoken, "tool_calls": [call]},
        "usage": {
            "billed_units": {"input_tokens": 3, "output_tokens": 1},
            "tokens": {"input_tokens": 15, "output_tokens": 6},
            "cached_tokens": 7,
        },
    }


def ollama_answer(reason="stop", arguments=None, text="hi"):
    given = {"p": 1} if arguments is None else arguments
    return {
        "model": "m",
        "created_at": "2026-01-01T00:00:00Z",
        "done": True,
        "done_reason": reason,
        "message": {
            "role": "assistant",
            "content": text,
            "thinking": "hmm",
            "tool_calls": [{"id": "c1", "function": {"name": "read", "arguments": given}}],
        },
        "prompt_eval_count": 15,
        "eval_count": 6,
    }


ANSWERS = {
    "openai_chat": chat_answer,
    "openai_responses": responses_answer,
    "anthropic_messages": anthropic_answer,
    "google_generate": google_answer,
    "bedrock_converse": bedrock_answer,
    "cohere_chat": cohere_answer,
    "ollama_chat": ollama_answer,
}
SAYS_NO_CACHE = {"ollama_chat"}
COUNTS_REASONING = {"openai_chat", "openai_responses", "google_generate"}
SAYS_NO_MODEL = {"bedrock_converse", "cohere_chat"}
SAYS_NO_ID = {"bedrock_converse", "ollama_chat"}


def answered(wire, **changes):
    return wires.get(wire).decode_response(json.dumps(ANSWERS[wire](**changes)).encode()).message


@pytest.mark.row("KAI-23")
@pytest.mark.parametrize("wire", wires.names())
def test_one_answer_is_read_alike_on_every_wire(wire):
    message = answered(wire)
    thought, text, call = message.content
    assert (type(thought), thought.text, text.text) == (p.Reasoning, "hmm", "hi")
    assert (type(call), call.id, call.name, call.arguments) == (p.ToolCall, "c1", "read", {"p": 1})
    assert message.text == "hi"
    assert message.finish_reason == "tool_calls"
    assert (message.model, message.response_id) == (
        None if wire in SAYS_NO_MODEL else "m",
        None if wire in SAYS_NO_ID else "a1",
    )
    used = message.usage
    assert (used.input, used.cache_read) == ((15, None) if wire in SAYS_NO_CACHE else (8, 7))
    assert (used.output, used.reasoning) == ((4, 2) if wire in COUNTS_REASONING else (6, None))


@pytest.mark.row("KAI-23")
@pytest.mark.parametrize(
    ("wire", "word", "reason"),
    [
        ("openai_chat", "length", "length"),
        ("openai_chat", "content_filter", "content_filter"),
        ("openai_chat", "made_up", "other"),
        ("openai_responses", "max_output_tokens", "length"),
        ("openai_responses", "content_filter", "content_filter"),
        ("openai_responses", "made_up", "other"),
        ("anthropic_messages", "max_tokens", "length"),
        ("anthropic_messages", "stop_sequence", "stop"),
        ("anthropic_messages", "refusal", "refusal"),
        ("anthropic_messages", "made_up", "other"),
        ("google_generate", "MAX_TOKENS", "length"),
        ("google_generate", "SAFETY", "content_filter"),
        ("google_generate", "MADE_UP", "other"),
        ("bedrock_converse", "max_tokens", "length"),
        ("bedrock_converse", "guardrail_intervened", "content_filter"),
        ("bedrock_converse", "made_up", "other"),
        ("cohere_chat", "MAX_TOKENS", "length"),
        ("cohere_chat", "MADE_UP", "other"),
        ("ollama_chat", "length", "length"),
        ("ollama_chat", "made_up", "other"),
    ],
)
def test_an_end_that_is_no_success_is_never_read_as_one(wire, word, reason):
    message = answered(wire, reason=word)
    assert message.finish_reason == reason
    assert (message.finish_reason_raw == word) or wire == "openai_responses"


@pytest.mark.row("KAI-23")
@pytest.mark.parametrize("wire", ["openai_chat", "openai_responses", "cohere_chat"])
def test_arguments_that_are_no_json_are_a_malformed_call_and_blank_text_stays_no_reasoning(wire):
    message = answered(wire, arguments='{"p": ', text="")
    (bad,) = message.malformed_tool_calls
    assert (bad.id, bad.name, bad.raw) == ("c1", "read", '{"p": ')
    assert message.tool_calls == ()
    assert (message.text, message.reasoning) == ("", "hmm")
