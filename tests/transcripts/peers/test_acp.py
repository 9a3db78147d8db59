"""The protocol's own Python package takes the notifications that we write, and reads them as we meant them."""

from __future__ import annotations

import json

import pytest

from palaver import transcripts
from tests.transcripts.samples import FILES, IDS, origin

schema = pytest.importorskip("acp.schema", reason="no agent-client-protocol")
ACP = transcripts.get("acp")


@pytest.mark.parametrize(("name", "path"), FILES, ids=IDS)
def test_the_schema_takes_every_notification_that_we_write(name, path):
    for transcript in transcripts.get(name).read(path.read_bytes(), origin(path)):
        for line in ACP.write(transcript).body.splitlines() if name != "acp" else ():
            said = json.loads(line)
            assert said["method"] == "session/update"
            given = said["params"]
            read = schema.SessionNotification.model_validate(given)
            back = read.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)
            assert without_null(back["update"]) == without_null(given["update"])
            assert back["sessionId"] == given["sessionId"]


def without_null(value):
    """The package leaves out what is null."""
    if isinstance(value, dict):
        return {key: without_null(each) for key, each in value.items() if each is not None}
    return [without_null(each) for each in value] if isinstance(value, list) else value


def test_what_the_package_writes_is_read_equal():
    updates = [
        schema.UserMessageChunk(session_update="user_message_chunk", content=text("Hello"), message_id="u"),
        schema.AgentThoughtChunk(session_update="agent_thought_chunk", content=text("Hm.")),
        schema.AgentMessageChunk(session_update="agent_message_chunk", content=text("Hi.")),
        schema.ToolCallStart(
            session_update="tool_call", tool_call_id="c", title="Run", kind="execute", raw_input={"a": 1}
        ),
        schema.ToolCallProgress(
            session_update="tool_call_update", tool_call_id="c", status="completed", raw_output="x"
        ),
    ]
    notes = [schema.SessionNotification(session_id="s", update=each) for each in updates]
    data = b"".join(each.model_dump_json(by_alias=True, exclude_none=True).encode() + b"\n" for each in notes)
    (transcript,), drift = ACP.read_with_unknown(data)
    assert drift == ()
    user, answer, result = [entry.message for entry in transcript.thread.path()]
    assert (user.text, answer.text, answer.reasoning, result.text) == ("Hello", "Hi.", "Hm.", "x")
    assert dict(answer.tool_calls[0].arguments) == {"a": 1}


def text(value):
    return schema.TextContentBlock(type="text", text=value)
