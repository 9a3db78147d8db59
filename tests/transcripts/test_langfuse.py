"""What traces and observations of Langfuse become."""

from __future__ import annotations

from palaver import transcripts
from palaver.transcripts.conversation import session_of
from palaver.transcripts.writer import is_record
from tests.transcripts.samples import FOLDER

FILES = FOLDER / "langfuse"
LOGS = transcripts.get("langfuse")


def read(name):
    return LOGS.read_with_unknown((FILES / name).read_bytes())


def said(transcript):
    return [entry.message for entry in transcript.thread.path() if not is_record(entry)]


def texts(transcript):
    return [(each.role, each.text) for each in said(transcript)]


SEA = [("user", "Sea?"), ("assistant", ""), ("tool", "waves"), ("assistant", "Waves.")]


def test_observations_of_a_trace_are_one_conversation():
    (transcript,), drift = read("trace.json")
    assert texts(transcript) == SEA
    assert (transcript.title, session_of(transcript.metadata).id) == ("agent", "s-1")
    assert [(each.model, each.usage.total) for each in said(transcript)[1::2]] == [("qwen3", 18), ("qwen3", 18)]
    assert drift == ()


def test_json_in_a_text_is_read():
    (transcript,), _ = read("observations.jsonl")
    assert texts(transcript) == SEA
    assert said(transcript)[-1].usage.total == 23


def test_a_trace_without_observations_has_its_own_messages():
    (first, second), _ = read("page.json")
    assert texts(first) == [("user", "Sea?"), ("assistant", "Waves.")]
    assert texts(second) == [("user", "Who?"), ("assistant", "Me.")]
