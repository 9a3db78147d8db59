"""What logs of LiteLLM become."""

from __future__ import annotations

from palaver import transcripts
from palaver.transcripts.conversation import session_of
from palaver.transcripts.writer import is_record
from tests.transcripts.samples import FOLDER

FILES = FOLDER / "litellm_logs"
LOGS = transcripts.get("litellm_logs")


def read(name):
    return LOGS.read_with_unknown((FILES / name).read_bytes())


def said(transcript):
    return [entry.message for entry in transcript.thread.path() if not is_record(entry)]


def texts(transcript):
    return [(each.role, each.text) for each in said(transcript)]


def test_calls_of_a_session_are_one_conversation():
    (first, second), drift = read("spend.jsonl")
    assert texts(first) == [("user", "hi"), ("assistant", "ho"), ("user", "more"), ("assistant", "hm")]
    assert [session_of(each.metadata).id for each in (first, second)] == ["s-1", "s-2"]
    assert [(each.line, each.name) for each in drift] == [
        (3, "the messages of the call were not stored"),
        (4, "upstream boom"),
    ]


def test_payloads_have_their_times_and_errors():
    (first, second), drift = read("payloads.json")
    assert [each.sent_at for each in said(first)] == [1767323041500, 1767323041500, 1767323042500]
    assert texts(second) == [("system", "Be brief."), ("user", "hi")]
    assert [each.name for each in drift] == ["boom"]
