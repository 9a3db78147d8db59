"""Every message, branch, title and record of a conversation is in the file that a format writes, or on its receipt.

Source: docs/spec/laws.md, law 5; docs/spec/dialects.md#17.
"""

# pyright: basic

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

import palaver as p
from palaver import transcripts
from palaver.core import jsontext
from palaver.core.request import Loss
from palaver.threads.thread import MAIN, Entry, Thread
from palaver.transcripts.conversation import COMPACTION, Transcript, hidden_before, transcript_of
from palaver.transcripts.openai_agents import database
from palaver.transcripts.writer import is_record
from tests.folding import over
from tests.generated import examples
from tests.transcripts.samples import FILES, IDS, every_pair, goes_to

WRITTEN = [name for name in transcripts.names() if transcripts.get(name).record_writer is not None]
READ = [name for name in WRITTEN if transcripts.get(name).record_reader is not None]
CLAUDE = transcripts.get("claude_code")
every_format = pytest.mark.parametrize("name", WRITTEN)


def record(uuid, parent, role, text):
    content = text if role == "user" else [{"type": "text", "text": text}]
    return {
        "parentUuid": parent,
        "sessionId": "7d0c1111-0000-4000-8000-00000000abcd",
        "version": "2.0.14",
        "type": role,
        "message": {"role": role, "content": content},
        "uuid": uuid,
        "timestamp": "2026-11-01T10:00:00Z",
    }


def lines(*records):
    return b"".join(jsontext.encode(each) + b"\n" for each in records)


def branched():
    """A session of Claude Code whose first answer was taken back."""
    return lines(
        record("a1", None, "user", "question"),
        record("a2", "a1", "assistant", "FIRST TRY"),
        record("a3", "a2", "user", "FOLLOW UP"),
        record("a4", "a1", "assistant", "second try"),
    )


@st.composite
def trees(draw):
    """A conversation with branches, some of them without a name; every message has a text of its own."""
    parents = draw(st.lists(st.integers(-1, 7), min_size=1, max_size=8))
    thread = Thread("0192f0c4-7777-7000-8000-00000000000b")
    depth: dict[str | None, int] = {None: 0}
    ids: list[str] = []
    for place, before in enumerate(parents):
        parent = None if before < 0 or not ids else ids[before % len(ids)]
        entry = f"0192f0c4-7777-7000-8000-0000000002{place:02d}"
        depth[entry] = depth[parent] + 1
        text = f"wordnumber{place:02d}"
        thread.add([Entry(entry, parent, p.user(text) if depth[parent] % 2 == 0 else p.assistant(text))])
        ids.append(entry)
    named = draw(st.lists(st.sampled_from(ids), max_size=2, unique=True))
    heads = {f"try-{number}": each for number, each in enumerate(named)}
    thread.add((), {**heads, MAIN: draw(st.sampled_from(ids))})
    return Transcript(thread, draw(st.sampled_from([None, "titlewords"])))


def left_out(transcript, losses):
    """The texts that a receipt names, by the branches that it says are not in the file."""
    thread, path = transcript.thread, {entry.id for entry in transcript.thread.path()}
    found = set()
    for loss in losses:
        if loss.what.startswith("branch ") and loss.kind == "dropped":
            named = loss.what.removeprefix("branch ").removeprefix("ending in ")
            found |= {entry.message.text for entry in thread.path(named) if entry.id not in path}
    return found


@pytest.mark.law(5)
@pytest.mark.finding("S-01")
@every_format
@settings(max_examples=examples(25))
@given(transcript=trees())
def test_each_message_and_title_is_in_the_file_or_on_the_receipt_and_not_both(name, transcript):
    written = transcripts.get(name).write(transcript)
    body = written.body + b"".join(written.beside.values())
    named = left_out(transcript, written.losses)
    for entry in transcript.thread.entries:
        assert (entry.message.text.encode() in body) != (entry.message.text in named)
    if transcript.title is not None:
        assert (b"titlewords" in body) != any(loss.what == "title" for loss in written.losses)


@pytest.mark.finding("S-01")
@every_format
def test_a_branch_of_a_session_is_in_the_file_or_raises(name):
    file_format = transcripts.get(name)
    (transcript,) = CLAUDE.read(branched())
    written = file_format.write(transcript)
    assert (b"FIRST TRY" in written.body) == file_format.tree
    if not file_format.tree:
        assert "branch branch-1" in {loss.what for loss in written.losses}
        with pytest.raises(p.LossError):
            file_format.write(transcript, losses="raise")


@pytest.mark.finding("S-01")
def test_other_branches_are_on_the_receipt_of_a_file_that_is_gone_on_with():
    codex = transcripts.get("codex")
    (transcript,) = codex.read(codex.write(transcript_of([p.user("hi"), p.assistant("ho")])).body)
    first = transcript.thread.path()[-2].id
    transcript.thread.add([Entry("other", first, p.assistant("other answer"))], {"other": "other"})
    written = codex.write(transcript)
    assert b"other answer" not in written.body
    assert [(loss.kind, loss.what) for loss in written.losses] == [("dropped", "branch other")]


@pytest.mark.finding("S-01")
def test_the_main_branch_is_on_the_receipt_when_another_is_written():
    (transcript,) = CLAUDE.read(branched())
    written = transcripts.get("codex").write(transcript, branch="branch-1")
    assert b"FIRST TRY" in written.body
    assert b"second try" not in written.body
    assert "branch main" in {loss.what for loss in written.losses}


@pytest.mark.finding("S-01")
def test_messages_that_a_compaction_hid_are_counted():
    hidden = [p.user("old one"), p.assistant("old two")]
    talk = transcript_of([*hidden, hidden_before(), p.user("in short").replace(source=COMPACTION), p.assistant("new")])
    written = transcripts.get("langchain").write(talk)
    assert b"old one" not in written.body
    assert Loss("dropped", "messages", "2 of the branch that the history does not show") in written.losses
    assert "messages" not in {loss.what for loss in transcripts.get("langchain").write(talk, history="all").losses}


@pytest.mark.finding("S-01")
def test_records_of_another_format_are_counted_with_their_types():
    records = [{"type": "summary", "summary": "x"}, {"type": "never-heard-of", "x": 1}]
    (transcript,) = CLAUDE.read(branched() + lines(*records))
    losses = {loss.what: loss.why for loss in transcripts.get("codex").write(transcript).losses}
    assert losses["records"] == "2 of claude_code that are no messages: summary, never-heard-of"
    assert "records" not in {loss.what for loss in CLAUDE.write(transcript).losses}


@pytest.mark.finding("S-01")
def test_reasoning_that_a_record_carries_is_not_dropped():
    talk = transcript_of([p.user("hi"), p.AssistantMessage(content=(p.Reasoning("deep", wire="anthropic_messages"),))])
    carried, bare = (transcripts.get("codex").write(talk, carry=carry) for carry in (True, False))
    assert b"deep" in carried.body
    assert [loss.kind for loss in carried.losses if loss.what == "reasoning"] == ["converted"]
    assert b"deep" not in bare.body
    assert [loss.kind for loss in bare.losses if loss.what == "reasoning"] == ["dropped"]


@pytest.mark.finding("S-01")
def test_branches_are_on_the_receipt_of_a_database(tmp_path):
    (transcript,) = CLAUDE.read(branched())
    losses = database.write_sqlite(tmp_path / "s.db", [transcript])
    assert "branch branch-1" in {loss.what for loss in losses}


@pytest.mark.law(5)
@pytest.mark.finding("S-01")
@pytest.mark.parametrize(("name", "path"), FILES, ids=IDS)
@every_pair
@over("target", READ)
def test_what_a_file_holds_is_in_another_or_on_its_receipt(name, path, target, all_targets):
    """A text of a message, a title and records of a file of one format, written in another."""
    if not goes_to(name, path, target, READ, all_targets):
        return
    file_format = transcripts.get(target)
    for transcript in transcripts.get(name).read(path.read_bytes()):
        written = file_format.write(transcript)
        whats = {loss.what for loss in written.losses}
        again = file_format.read(written.body)
        if transcript.title is not None and "title" not in whats:
            assert transcript.title in {each.title for each in again}
        records = [entry for entry in transcript.thread.path() if is_record(entry)]
        assert "records" in whats or not records or transcripts.get(name).layout != "lines"
        texts = "\0".join(whole(entry.message.text) for each in again for entry in each.thread.entries)
        gone = [each for each in messages(transcript) if whole(each.text) not in texts]
        assert not gone or any(loss.kind == "dropped" or "text" in loss.why for loss in written.losses)


def messages(transcript):
    return [entry.message for entry in transcript.thread.entries if not is_record(entry)]


def whole(text):
    """A text without halves of characters, which not every format holds."""
    return "".join(each for each in text if not 0xD800 <= ord(each) <= 0xDFFF and each != "\ufffd")
