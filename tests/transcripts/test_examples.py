"""The forms of the specifications, each by the document that shows it: what loads is written back equal (MSG-01).

The specifications show forms (``{function: {…}, id}``) rather than whole messages; a value stands for each name. Only
``a2a_message`` of ``kairo_goldens.json`` is an example to the letter.
"""

from __future__ import annotations

import json

import pytest

from palaver import transcripts
from palaver.core import jsontext
from tests.transcripts.test_listing import bare, items_of

UUID = "6F9619FF-8B86-D011-B42D-00C04FC964F1"
CALL = {"function": {"name": "price", "arguments": {"item": "cat", "n": 2}}, "id": "c1"}
SWARM = {"agentName": "triage"}

EXAMPLES = {
    "docs/spec/agent-swarm-kit.md#2.1": (
        "agent_swarm_kit",
        [
            {"role": "user", **SWARM, "mode": "user", "content": "hi", "payload": {"image_id": 7}},
            {"role": "user", **SWARM, "mode": "user", "content": "hi", "payload": None, "images": ["iVBORw0KGgo="]},
            {"role": "assistant", **SWARM, "mode": "user", "content": "", "tool_calls": [CALL]},
            {"role": "assistant", **SWARM, "mode": "tool", "content": "", "tool_calls": [{**CALL, "type": "function"}]},
            {"role": "tool", **SWARM, "mode": "tool", "content": "12", "tool_call_id": "c1"},
        ],
    ),
    "docs/spec/agent-swarm-kit.md#2.2": (
        "agent_swarm_kit",
        [
            {"role": "system", **SWARM, "mode": "tool", "content": "closed"},
            {"role": "developer", **SWARM, "mode": "tool", "content": "short"},
            {"role": "rescue", **SWARM, "mode": "tool", "content": "_resurrectModel call"},
            {"role": "user", **SWARM, "mode": "tool", "content": "Start the conversation"},
            {"role": "flush", **SWARM, "mode": "tool", "content": ""},
        ],
    ),
    "docs/spec/message-fields.md#F15 (001)": (
        "agent_swarm_kit",
        [{"role": "resque", **SWARM, "mode": "tool", "content": "the model said nothing"}],
    ),
    "docs/spec/kairo.md#1.1": (
        "kairo",
        [
            {"role": "user", "content": "How warm is it?"},
            {"role": "system", "content": "You help.", "metadata": {"session": "s", "trace": "t"}},
            {"role": "tool", "toolName": "weather", "content": "18 degrees"},
            {"role": "assistant", "content": "", "toolCalls": [{"toolId": "c", "toolName": "t", "input": {"a": 1}}]},
        ],
    ),
    "docs/spec/kairo.md#1.2, nudge": (
        "kairo_a2a",
        [
            {
                "id": "n",
                "role": "USER",
                "contents": [{"type": "text", "text": "go on"}],
                "metadata": {"synthetic": True, "source": "continuation:stall"},
                "timestamp": "2026-05-15T12:00:00Z",
                "tokenCount": 0,
                "verbatimPreserved": False,
            }
        ],
    ),
    "kairo_goldens.json, a2a_message": (
        "kairo_a2a",
        [
            {
                "id": "m",
                "role": "ASSISTANT",
                "contents": [
                    {"type": "thinking", "thinking": "th", "budgetTokens": 3, "signature": "SIG"},
                    {"type": "text", "text": "x"},
                    {"type": "tool_use", "toolId": "c", "toolName": "t", "input": {"a": [1, "b"]}},
                    {"type": "image", "url": "u", "mediaType": "image/png"},
                ],
                "metadata": {"k": 1},
                "timestamp": "2026-01-01T00:00:00Z",
                "tokenCount": 42,
                "sourceAgentId": "agent-1",
                "verbatimPreserved": True,
            }
        ],
    ),
    "docs/spec/codebuff.md#1.1": (
        "codebuff",
        [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "see", "providerOptions": {"anthropic": {"k": None}}},
                    {"type": "image", "image": "data:image/png;base64,iVBORw0KGgo=", "mediaType": "image/png"},
                    {"type": "image", "image": "https://example.org/a.png"},
                    {"type": "file", "data": "JVBERi0=", "mediaType": "application/pdf", "filename": "a.pdf"},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "reasoning", "text": "hm"},
                    {"type": "tool-call", "toolCallId": "c", "toolName": "t", "input": {}, "providerExecuted": True},
                ],
            },
            {
                "role": "tool",
                "toolCallId": "c",
                "toolName": "t",
                "content": [
                    {"type": "json", "value": [None, "a", 1, True, {"b": []}]},
                    {"type": "media", "data": "iVBORw0KGgo=", "mediaType": "image/png"},
                ],
            },
        ],
    ),
    "docs/spec/codebuff.md#1.2": (
        "codebuff",
        [
            {"role": "system", "content": [{"type": "text", "text": "x"}], "tags": ["SYSTEM"], "sentAt": 1763000000000},
            {"role": "tool", "toolCallId": "c", "toolName": "t", "content": [], "providerOptions": {"a": {"b": 1}}},
        ],
    ),
    "docs/spec/deepagents-swift.md#1.2 to #1.5": (
        "deepagents",
        [
            {"id": UUID, "role": "system", "content": [{"type": "text", "text": "x"}]},
            {
                "id": UUID[:-1] + "2",
                "role": "human",
                "content": [
                    {"type": "image", "image": {"url": "https://example.org/a.png"}},
                    {"type": "image", "image": {"base64": "iVBORw0KGgo=", "mimeType": "image/png"}},
                    {"type": "image", "image": {"fileID": "file-1"}},
                ],
                "source": "summarization",
            },
            {
                "id": UUID[:-1] + "3",
                "role": "ai",
                "content": [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": ""}],
                "toolCalls": [{"id": UUID, "name": "t", "arguments": {"a": [1, None, True, 2.5, {"b": "c"}]}}],
                "malformedToolCallBlocks": ["t(a="],
            },
            {"id": UUID[:-1] + "4", "role": "tool", "content": [{"type": "text", "text": "x"}], "toolCallID": UUID},
        ],
    ),
    "docs/spec/deepagents-swift.md#5": (
        "deepagents_log",
        [
            {
                "timestamp": "2026-01-02T02:04:07Z",
                "threadId": "trip",
                "modelID": "qwen3",
                "round": 1,
                "generationSeconds": 1.235,
                "role": "ai",
                "content": "",
                "reasoning": "hm",
                "toolCalls": [{"id": UUID, "name": "task", "subagentType": "guide", "arguments": {}}],
                "malformedToolCallBlocks": ["t(a="],
            },
            {
                "timestamp": "2026-01-02T02:04:08Z",
                "role": "tool",
                "content": "x",
                "toolName": "task",
                "subagentType": "guide",
                "toolCallID": UUID,
            },
        ],
    ),
}


@pytest.mark.row("MSG-01", "CBF-02")
@pytest.mark.parametrize("source", EXAMPLES)
def test_what_a_specification_shows_loads_and_is_written_back_equal(source):
    name, records = EXAMPLES[source]
    file_format = transcripts.get(name)
    lines = name == "deepagents_log"
    data = b"".join(jsontext.encode(each) + b"\n" for each in records) if lines else json.dumps(records).encode()
    (transcript,), drift = file_format.read_with_unknown(data)
    assert drift == ()
    assert [each.file_format for each in transcripts.detect(data)][:1] == [name]
    assert file_format.write(transcript).body == data
    written = file_format.write(bare(name, transcript), history="all")
    assert [jsontext.normal(each) for each in items_of(name, written.body)] == [
        jsontext.normal(jsontext.encode(each)) for each in records
    ]
