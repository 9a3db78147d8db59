"""What runs of LangSmith become."""

from __future__ import annotations

from palaver import transcripts
from palaver.transcripts.conversation import session_of
from palaver.transcripts.writer import is_record
from tests.transcripts.samples import FOLDER

FILES = FOLDER / "langsmith"
LOGS = transcripts.get("langsmith")


def read(name):
    return LOGS.read_with_unknown((FILES / name).read_bytes())


def said(transcript):
    return [entry.message for entry in transcript.thread.path() if not is_record(entry)]


def texts(transcript):
    return [(each.role, each.text) for each in said(transcript)]


def test_runs_of_models_are_one_conversation_in_the_order_of_their_times():
    (transcript,), drift = read("runs.json")
    assert texts(transcript) == [
        ("system", "Be brief."),
        ("user", "Sea?"),
        ("assistant", ""),
        ("tool", "waves"),
        ("assistant", "Waves."),
    ]
    assert [each.usage.total for each in said(transcript) if each.role == "assistant"] == [13, 23]
    assert list(transcript.thread.branches) == ["main"]
    assert drift == ()


def test_a_thread_goes_on_over_traces_and_an_error_is_reported():
    (transcript,), drift = read("runs.jsonl")
    assert texts(transcript) == [("user", "hi"), ("assistant", "ho"), ("user", "again")]
    assert session_of(transcript.metadata).id == "t-1"
    assert [each.name for each in drift] == ["RateLimitError('slow')"]


def test_a_root_counts_without_runs_inside_it():
    (transcript,), _ = read("root.jsonl")
    assert texts(transcript) == [("user", "Sea?"), ("assistant", "Waves.")]
