"""Results that name no call, written in a format that has them by the ids of calls."""

# pyright: basic

from __future__ import annotations

import pytest

import palaver as p
from palaver import transcripts
from palaver.core.messages import ToolMessage
from palaver.core.pairs import TIED
from palaver.transcripts.conversation import transcript_of

pytestmark = pytest.mark.finding("F-73")

TARGETS = [
    "claude_code", "codex", "openai_messages", "pi", "atif", "openai_agents", "vercel_ui", "langchain", "otel_genai",
    "opencode", "gemini_cli", "qwen_code", "inspect", "ag_ui", "acp", "kairo_a2a", "codebuff", "deepagents",
]  # fmt: skip


def results(name, messages):
    written = transcripts.get(name).write(transcript_of([each.replace(sent_at=1_767_323_045_000) for each in messages]))
    found = [entry.message for each in transcripts.get(name).read(written.body) for entry in each.thread.entries]
    calls = {call.id for message in found for call in message.tool_calls}
    return calls, [each for each in found if isinstance(each, ToolMessage)], written


@pytest.mark.parametrize("name", TARGETS)
def test_a_result_without_an_id_is_of_the_only_call_it_can_be_of(name):
    call = p.tool_call("bash", {"keystrokes": "ls"}, id="c1")
    said = [p.user("hi"), p.assistant("run", tool_calls=[call]), p.tool("file.txt")]
    (named,), (result,), written = results(name, said)
    assert (result.tool_call_id, result.text) == (named, "file.txt")
    assert ("converted", TIED, 2) in [(loss.kind, loss.why, loss.message) for loss in written.losses]


def test_nothing_is_guessed_where_two_calls_can_be_meant():
    calls = [p.tool_call("bash", {}, id=name) for name in ("c1", "c2")]
    said = [p.user("hi"), p.assistant("run", tool_calls=calls), p.tool("file.txt")]
    _, found, written = results("atif", said)
    assert [each.tool_call_id for each in found] == [None] or found == []
    assert TIED not in [loss.why for loss in written.losses]


def test_a_file_with_results_without_ids_is_written_back_as_it_was():
    data = (
        b'{"schema_version":"ATIF-v1.4","session_id":"s","agent":{"name":"terminus-2","version":"1"},"steps":['
        b'{"step_id":1,"source":"user","message":"hi"},{"step_id":2,"source":"agent","message":"run","tool_calls":'
        b'[{"tool_call_id":"c1","function_name":"bash","arguments":{}}],"observation":{"results":'
        b'[{"content":"file.txt"}]}}]}'
    )
    atif = transcripts.get("atif")
    (transcript,) = atif.read(data)
    assert atif.write(transcript).body == data
    (_,), (result,), _ = results(
        "codex", [entry.message for entry in transcript.thread.path() if entry.message.content]
    )
    assert result.text == "file.txt"
