"""What the messages of an SWE-agent trajectory become."""

from __future__ import annotations

import json

import palaver as p
from palaver import transcripts
from palaver.core.parts import Reasoning
from palaver.transcripts.conversation import session_of, transcript_of
from palaver.transcripts.writer import is_record
from tests.transcripts.samples import FOLDER

FILES = FOLDER / "swe_agent"
TRAJ = transcripts.get("swe_agent")


def read(name):
    (transcript,), drift = TRAJ.read_with_unknown((FILES / name).read_bytes())
    assert drift == ()
    return transcript, [entry.message for entry in transcript.thread.path() if not is_record(entry)]


def test_a_history_of_version_1_has_calls_results_and_signed_reasoning():
    transcript, said = read("version1.traj")
    assert [each.role for each in said] == ["system", "user", "user", "assistant", "tool", "assistant"]
    assert [part.signature for part in said[3].content if isinstance(part, Reasoning)] == ["c2ln"]
    assert (said[4].tool_call_id, said[4].tool_name, said[4].agent) == ("call_1", "find_file", "main")
    assert said[1].provider["swe_agent"]["is_demo"] is True
    session = session_of(transcript.metadata)
    assert (session.model, session.program, session.more["exit_status"]) == ("gpt-4o", "1.1.0", "submitted")


def test_before_version_1_commands_are_in_the_text():
    _, said = read("version0.traj")
    assert [each.role for each in said] == ["system", "user", "assistant", "user"]
    assert said[2].text == "First a look.\n```\nls\n```"


def test_steps_are_read_when_there_is_no_history():
    _, said = read("steps.traj")
    assert [(each.role, each.text) for each in said][1:] == [("user", "a.py")]


def test_a_conversation_is_written_as_a_history():
    call = p.AssistantMessage(content=[p.Text("Look."), p.ToolCall("c", "ls", "{}")])
    messages = [p.user("hi"), call, p.ToolMessage(content=[p.Text("a.py")], tool_call_id="c")]
    history = json.loads(TRAJ.write(transcript_of(messages)).body)["history"]
    assert [(each["role"], each["message_type"]) for each in history] == [
        ("user", "observation"),
        ("assistant", "action"),
        ("tool", "observation"),
    ]
    assert (history[2]["tool_call_ids"], history[1]["agent"]) == (["c"], "main")
