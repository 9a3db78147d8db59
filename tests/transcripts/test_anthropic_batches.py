"""What the lines of a batch of Anthropic messages become."""

from __future__ import annotations

from palaver import transcripts
from palaver.core.parts import Reasoning
from palaver.transcripts.conversation import session_of
from palaver.transcripts.writer import is_record
from tests.transcripts.samples import FOLDER

FILES = FOLDER / "anthropic_batches"
BATCHES = transcripts.get("anthropic_batches")


def read(name):
    return BATCHES.read_with_unknown((FILES / name).read_bytes())


def said(transcript):
    return [entry.message for entry in transcript.thread.path() if not is_record(entry)]


def test_each_result_is_a_conversation_with_its_custom_id():
    (first, last), _ = read("results.jsonl")
    (answer,) = said(first)
    assert (session_of(first.metadata).id, session_of(last.metadata).id) == ("ask-1", "ask-4")
    assert (answer.model, answer.usage.total, answer.text) == ("claude-x", 47, "Good day.")
    assert [part.signature for part in answer.content if isinstance(part, Reasoning)] == ["c2ln"]
    assert [call.name for call in answer.tool_calls] == ["look"]
    assert [each.text for each in said(last)] == ["Well."]


def test_results_without_a_message_are_reported():
    _, drift = read("results.jsonl")
    assert [(each.line, each.name) for each in drift] == [
        (2, "errored: invalid_request_error: No content."),
        (3, "expired"),
        (4, "canceled"),
    ]


def test_requests_are_read_with_their_system_prompt():
    (first, second), drift = read("requests.json")
    assert [(each.role, each.text) for each in said(first)] == [("system", "Be brief."), ("user", "Hello")]
    assert [each.text for each in said(second)] == ["Hi"]
    ((third,), _) = read("requests.jsonl")
    assert [each.role for each in said(third)] == ["user", "assistant", "tool"]
    assert drift == ()
