"""There and back: what a format with a free slot was given, it gives back as it was (docs/spec/dialects.md#17.4)."""

# pyright: basic

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec import structs

from palaver import transcripts
from palaver.core.messages import FlushMarker, RescueMarker
from palaver.core.pairs import tied
from palaver.threads.thread import Thread, usage_once
from palaver.transcripts.conversation import Transcript
from palaver.transcripts.extension_slot import without_records
from palaver.transcripts.writer import is_record
from tests.folding import over
from tests.transcripts.samples import FILES, IDS, every_pair, goes_to, origin

CARRYING = (
    "acp",
    "ag_ui",
    "amp",
    "claude_code",
    "cline",
    "codex",
    "copilot_cli",
    "cursor",
    "droid",
    "gemini_cli",
    "goose",
    "langchain",
    "mini_swe_agent",
    "opencode",
    "otel_genai",
    "pi",
    "qwen_code",
    "swe_agent",
    "vercel_ui",
    "vscode_chat",
)
"""The transcript formats with a place for data of others in every message."""

UNMARKED = frozenset(("ag_ui", "langchain", "mini_swe_agent", "otel_genai", "swe_agent"))
"""Those that have nothing a marker could be, and say so in their receipt. LangChain has one of several."""

every_file = pytest.mark.parametrize(("name", "path"), FILES, ids=IDS)


def told(transcript, *, marked=True):
    """What a conversation says, ids and times aside; a result that names no call has the id of the one it is of."""
    messages = [
        structs.replace(without_records(entry.message), id=None, sent_at=None)
        for entry in transcript.thread.path()
        if not is_record(entry) and (marked or not isinstance(entry.message, FlushMarker | RescueMarker))
    ]
    ties = tied(messages)
    return [each.replace(tool_call_id=ties[place]) if place in ties else each for place, each in enumerate(messages)]


@pytest.mark.law(5)
@every_file
@every_pair
@over("by", CARRYING)
def test_what_was_carried_comes_back(name, path, by, all_targets):
    """By way of another transcript format, and from there into its own: the same messages."""
    if name != by and not goes_to(name, path, by, CARRYING, all_targets):
        return
    file_format, other = transcripts.get(name), transcripts.get(by)
    for transcript in file_format.read(path.read_bytes(), origin(path)):
        marked = by not in UNMARKED
        said = told(transcript, marked=marked)
        if not said:
            continue
        written = other.write(transcript, history="all")
        (back,) = other.read(written.body)
        assert told(back, marked=marked) == said
        markers = [entry for entry in transcript.thread.path() if isinstance(entry.message, RescueMarker)]
        if markers and not marked:
            assert [loss.what for loss in written.losses].count("rescue") == len(markers)
        if name not in CARRYING:
            continue
        home = file_format.write(back, history="all")
        again = file_format.read(home.body)
        assert [told(each, marked=name not in UNMARKED and marked) for each in again] == [
            told(back, marked=name not in UNMARKED and marked)
        ]


@every_file
@every_pair
@over("by", CARRYING)
def test_an_answer_costs_once_by_whatever_way_it_came(name, path, by, all_targets):
    """Compactions keep copies of answers; a copy costs nothing."""
    if name != by and not goes_to(name, path, by, CARRYING, all_targets):
        return
    file_format, other = transcripts.get(name), transcripts.get(by)
    for transcript in file_format.read(path.read_bytes(), origin(path)):
        if not told(transcript):
            continue
        (back,) = other.read(other.write(transcript, history="all").body)
        first, second = (
            usage_once(message.replace(id=None) for message in told(each)).total for each in (transcript, back)
        )
        assert first == second


@pytest.mark.parametrize("name", ["pi", "codex"])
def test_a_copy_of_a_message_is_written_beside_the_original(name: str) -> None:
    """Two messages of one path cannot be one record: neither overwrites the other."""
    codec = transcripts.get(name)
    path = next(iter(sorted((Path(__file__).parent / "files" / name).glob("*.jsonl"))))
    (transcript, *_) = codec.read(path.read_bytes())
    said = [each.message for each in transcript.thread.path() if each.message.text and each.message.role == "user"]
    thread = Thread("t")
    for message in (*said, said[0]):
        thread.append(structs.replace(message, id=None))
    written = codec.write(Transcript(thread)).body
    (again, *_) = codec.read(written)
    texts = [each.message.text for each in again.thread.path() if each.message.text and each.message.role == "user"]
    assert texts == [*[each.text for each in said], said[0].text]


def test_a_copy_that_a_document_cannot_hold_is_on_the_receipt() -> None:
    codec = transcripts.get("openai_messages")
    rows = [{"role": "user", "content": "A"}, {"role": "assistant", "content": "B"}]
    (transcript,) = codec.read(json.dumps({"messages": rows}, indent=1).encode())
    thread = Thread("t")
    for message in (*transcript.thread.path().messages, transcript.thread.path().messages[0]):
        thread.append(structs.replace(message, id=None))
    written = codec.write(Transcript(thread))
    assert "message" in {each.what for each in written.losses}
    (again,) = codec.read(written.body)
    assert [each.text for each in again.thread.path().messages] == ["A", "B"]
