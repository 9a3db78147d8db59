"""What the messages of a mini-SWE-agent trajectory become."""

from __future__ import annotations

import json

import palaver as p
from palaver import transcripts
from palaver.core.parts import Reasoning
from palaver.core.usage import Usage
from palaver.transcripts.conversation import session_of, transcript_of
from palaver.transcripts.writer import is_record
from tests.transcripts.samples import FOLDER

FILES = FOLDER / "mini_swe_agent"
TRAJ = transcripts.get("mini_swe_agent")


def read(name):
    (transcript,), drift = TRAJ.read_with_unknown((FILES / name).read_bytes())
    assert drift == ()
    return transcript, [entry.message for entry in transcript.thread.path() if not is_record(entry)]


def test_an_answer_has_the_model_usage_and_time_of_its_response():
    transcript, said = read("version2.traj.json")
    answer, result = said[2:]
    assert (answer.model, answer.usage.total, answer.sent_at) == ("deepseek-v4", 1852, 1780680350490)
    assert [part.text for part in answer.content if isinstance(part, Reasoning)] == ["Hm."]
    assert (result.tool_call_id, result.tool_name, result.sent_at) == ("call_1", "bash", 1780680351500)
    session = session_of(transcript.metadata)
    assert (session.cwd, session.format, session.program) == ("/testbed", "1.1", "2.3.0")


def test_version_1_has_texts_only():
    _, said = read("version1.traj.json")
    assert [each.role for each in said] == ["system", "user", "assistant", "user"]


def test_answers_of_the_responses_wire_are_whole_responses():
    _, said = read("responses.traj.json")
    assert [(each.role, each.text) for each in said] == [("user", "Fix it."), ("assistant", ""), ("tool", "a.py")]
    assert (said[1].model, said[1].usage.total, said[2].tool_name) == ("gpt-5", 8, "bash")


def test_a_written_answer_has_a_response_with_its_usage():
    answer = p.AssistantMessage(content=[p.Text("ho")], model="m", usage=Usage(input=3, output=2))
    written = TRAJ.write(transcript_of([p.user("hi"), answer])).body
    said = json.loads(written)["messages"][1]
    assert (said["content"], said["extra"]["response"]["model"]) == ("ho", "m")
    (back,) = TRAJ.read(written)
    assert [entry.message.usage.total for entry in back.thread.path() if entry.message.role == "assistant"] == [5]
