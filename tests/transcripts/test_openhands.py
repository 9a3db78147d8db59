"""What events of OpenHands become."""

from __future__ import annotations

import pytest

from palaver import transcripts
from palaver.core.parts import Reasoning
from palaver.transcripts.conversation import session_of
from palaver.transcripts.writer import is_record
from tests.transcripts.samples import FOLDER

FILES = FOLDER / "openhands"
EVENTS = transcripts.get("openhands")


def read(name):
    found, drift = EVENTS.read_with_unknown((FILES / name).read_bytes())
    assert drift == ()
    return found


def said(transcript):
    return [entry.message for entry in transcript.thread.path() if not is_record(entry)]


ROLES = ["system", "user", "assistant", "tool", "assistant", "tool", "assistant"]


@pytest.mark.parametrize("name", ["trajectory.json", "output.jsonl"])
def test_actions_are_calls_and_observations_their_results(name):
    messages = said(read(name)[0])
    assert [each.role for each in messages] == ROLES
    call, result, edit, failed, last = messages[2:]
    assert [(each.id, each.name, each.arguments_json) for each in call.tool_calls] == [
        ("call_1", "execute_bash", '{"command": "ls"}')
    ]
    assert (call.text, call.model, call.usage.total) == ("I look.", "claude-x", 12)
    assert [part.text for part in call.content if isinstance(part, Reasoning)] == ["Hm."]
    assert (result.tool_call_id, result.text, result.is_error) == ("call_1", "a.py", False)
    assert (failed.tool_call_id, failed.is_error) == (edit.tool_calls[0].id, True)
    assert last.text == "Done."


def test_each_line_of_an_evaluation_is_a_conversation():
    first, second = read("output.jsonl")
    assert [session_of(each.metadata).id for each in (first, second)] == ["a__a-1", "a__a-2"]
    assert [each.role for each in said(second)] == ["user", "assistant", "tool"]


def test_events_of_the_second_generation():
    (transcript,) = read("second.json")
    messages = said(transcript)
    assert [each.role for each in messages] == ["system", "user", "assistant", "tool", "tool", "assistant"]
    assert [call.id for call in messages[2].tool_calls] == ["call_1", "call_2"]
    assert [(each.tool_call_id, each.text, each.is_error) for each in messages[3:5]] == [
        ("call_1", "a.py", False),
        ("call_2", "No shell.", True),
    ]
