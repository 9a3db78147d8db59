"""What a reader does grows with the lines of its file and not with their square: calls are counted, not time."""

from __future__ import annotations

import json
import sys

import pytest

from palaver import transcripts
from palaver.transcripts.format import Origin

TEXT = [{"type": "text", "text": "x"}]
LINES = {
    "openai_agents": lambda n: {"type": "some_new_item", "n": n},
    "claude_code": lambda n: {
        "type": "user" if n % 2 else "assistant",
        "uuid": f"u{n}",
        "parentUuid": f"u{n - 1}" if n else None,
        "sessionId": "s",
        "timestamp": "2026-01-02T03:04:05.000Z",
        "message": {"id": f"m{n}", "role": "user" if n % 2 else "assistant", "content": TEXT},
    },
    "codex": lambda n: {
        "timestamp": "2026-01-02T03:04:05.000Z",
        "type": "response_item",
        "payload": {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": f"{n}"}]},
    },
    "pi": lambda n: {
        "type": "message",
        "id": f"e{n}",
        "parentId": f"e{n - 1}" if n else None,
        "message": {"role": "user", "content": "x", "timestamp": 1},
    },
    "qwen_code": lambda n: {
        "uuid": f"u{n}",
        "parentUuid": f"u{n - 1}" if n else None,
        "sessionId": "s",
        "timestamp": "2026-01-02T03:04:05.000Z",
        "type": "user",
        "message": {"role": "user", "parts": [{"text": "x"}]},
    },
    "openai_messages": lambda n: {"role": "user", "content": f"{n}"},
    "ag_ui": lambda n: {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": f"{n}"},
    "acp": lambda n: {
        "sessionId": "s",
        "update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": f"{n}"}},
    },
    "langchain": lambda n: {"type": "human", "content": f"{n}"},
    "deepagents_log": lambda n: {"role": "user", "content": f"{n}"},
    "hf_sts": lambda n: {"type": "user", "content": f"{n}"},
    "gemini_cli": lambda n: {"id": f"{n}", "type": "user", "timestamp": "2026-01-02T03:04:05.000Z", "content": "x"},
    "otel_genai": lambda n: {"attributes": {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "x"}, "n": n},
    "kairo": lambda n: {"role": "user", "content": f"{n}"},
    "vercel_ui": lambda n: {"id": f"{n}", "role": "user", "parts": [{"type": "text", "text": "x"}]},
    "opencode": lambda n: {"id": f"{n}", "role": "user", "parts": []},
    "atif": lambda n: {"step_id": n + 1, "source": "user", "message": "x"},
    "inspect": lambda n: {"role": "user", "content": f"{n}"},
    "agent_swarm_kit": lambda n: {"role": "user", "content": f"{n}"},
    "kairo_a2a": lambda n: {"role": "user", "parts": [{"text": f"{n}"}]},
    "codebuff": lambda n: {"role": "user", "content": [{"type": "text", "text": f"{n}"}]},
    "deepagents": lambda n: {"role": "user", "content": [{"type": "text", "text": f"{n}"}]},
    "chatgpt": lambda n: {
        "id": f"n{n}",
        "parent": f"n{n - 1}" if n else None,
        "message": {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["x"]}},
    },
    "claude_ai": lambda n: {
        "uuid": f"n{n}",
        "parent_message_uuid": f"n{n - 1}" if n else None,
        "sender": "human" if n % 2 else "assistant",
        "content": TEXT,
    },
    "aider": lambda n: f"\n#### {n}  \n> x  \n\nanswer {n}\n",
    "specstory": lambda n: f"_**{'User' if n % 2 else 'Agent'}**_\n\nx\n\n---\n",
    "langsmith": lambda n: {"id": f"{n}", "run_type": "llm", "trace_id": f"{n}", "inputs": {"messages": []}},
    "langfuse": lambda n: {"traceId": f"{n}", "type": "GENERATION", "startTime": "x", "input": f"{n}"},
    "litellm_logs": lambda n: {"call_type": "c", "startTime": n, "spend": 0, "messages": f"{n}"},
    "openhands": lambda n: {"id": n, "source": "user", "action": "message", "args": {"content": f"{n}"}},
    "swe_agent": lambda n: {"role": "user", "agent": "main", "content": f"{n}"},
    "mini_swe_agent": lambda n: {"role": "user", "content": f"{n}"},
    "anthropic_batches": lambda n: {
        "custom_id": f"{n}",
        "params": {"messages": [{"role": "user", "content": f"{n}"}]},
    },
    "cline": lambda n: {"role": "user", "content": f"{n}", "ts": n},
    "vscode_chat": lambda n: {"requestId": f"{n}", "message": {"text": "x"}, "response": [{"value": "y"}]},
    "cursor": lambda n: {"role": "user", "message": {"content": TEXT}, "n": n},
    "goose": lambda n: {"role": "user", "created": n, "content": TEXT},
    "amp": lambda n: {"role": "user", "messageId": n, "content": TEXT},
    "droid": lambda n: {"type": "message", "id": f"{n}", "message": {"role": "user", "content": f"{n}"}},
    "copilot_cli": lambda n: {
        "type": "user.message",
        "data": {"content": "x"},
        "id": f"{n}",
        "timestamp": "2026-01-02T03:04:05.000Z",
        "parentId": None,
    },
}  # fmt: skip
KEYED = frozenset(("chatgpt",))
"""Those whose records are the values of an object, by their id."""
DOCUMENTS = {
    "atif": '{"schema_version":"ATIF-v1.4","session_id":"s","agent":{"name":"a","version":"1"},"steps":[%s]}',
    "inspect": '{"version":2,"status":"success","eval":{"task":"t","model":"m"},"samples":[{"id":1,"messages":[%s]}]}',
    **dict.fromkeys(("agent_swarm_kit", "kairo", "kairo_a2a", "codebuff", "deepagents", "vercel_ui", "cline"), "[%s]"),
    "swe_agent": '{"history":[%s]}',
    "mini_swe_agent": '{"messages":[%s]}',
    "vscode_chat": '{"version":3,"responderUsername":"x","requests":[%s]}',
    "amp": '{"v":1,"id":"T-1","messages":[%s]}',
    "opencode": '{"info":{"id":"s"},"messages":[%s]}',
    "chatgpt": '[{"mapping":{%s}}]',
    "claude_ai": '[{"uuid":"c","chat_messages":[%s]}]',
}


def steps_in(name, size):
    """How many lines of Python run while a file of that size is read."""
    made = [LINES[name](number) for number in range(size)]
    records = [each if isinstance(each, str) else json.dumps(each) for each in made]
    if name in KEYED:
        records = [f'"n{number}":{each}' for number, each in enumerate(records)]
    if name in DOCUMENTS:
        data = (DOCUMENTS[name] % ",".join(records)).encode()
    else:
        data = "".join(f"{each}\n" for each in records).encode()
    count = 0

    def counted(frame, event, _):
        nonlocal count
        count += 1
        return counted

    file_format = transcripts.get(name)
    before = sys.gettrace()
    sys.settrace(counted)
    try:
        file_format.read(data, Origin())
    finally:
        sys.settrace(before)
    return count


@pytest.mark.finding("F-109")
@pytest.mark.parametrize(
    "name", [each for each in transcripts.names() if transcripts.get(each).record_reader is not None]
)
def test_reading_twice_as_much_takes_about_twice_the_steps(name):
    steps_in(name, 10)
    small, large = steps_in(name, 100), steps_in(name, 400)
    assert large <= 6 * small
