"""``Transcript``: messages, title and metadata are replaced in a copy."""

from __future__ import annotations

import pytest

import palaver as p
from palaver import transcripts
from palaver.core.errors import MessageError, NotFoundError
from palaver.core.parts import Text
from palaver.transcripts.conversation import transcript_of
from palaver.transcripts.writer import is_record
from tests.transcripts.samples import FILES, IDS, origin

PI = next(path for name, path in FILES if name == "pi" and path.suffix == ".jsonl")


def louder(message):
    parts = [part.replace(text=part.text.upper()) if isinstance(part, Text) else part for part in message.content]
    return message.replace(content=parts)


def messages(transcript):
    return [entry.message for entry in transcript.thread.entries if not is_record(entry)]


@pytest.mark.parametrize(("name", "path"), FILES, ids=IDS)
def test_a_map_changes_messages_on_all_branches_and_nothing_else(name, path):
    for transcript in transcripts.get(name).read(path.read_bytes(), origin(path)):
        mapped = transcript.map(louder)
        assert messages(mapped) == [louder(message) for message in messages(transcript)]
        assert mapped.thread.branches == transcript.thread.branches
        assert [(e.id, e.parent) for e in mapped.thread.entries] == [
            (e.id, e.parent) for e in transcript.thread.entries
        ]
        records = [[e.message for e in each.thread.entries if is_record(e)] for each in (mapped, transcript)]
        assert records[0] == records[1]


@pytest.mark.parametrize(("name", "path"), FILES, ids=IDS)
def test_a_map_that_changes_nothing_leaves_the_file_as_it_is(name, path):
    file_format = transcripts.get(name)
    if file_format.record_writer is None:
        return
    sessions = file_format.read(path.read_bytes(), origin(path))
    written = file_format.write_many([each.map(lambda message: message.replace()) for each in sessions])
    assert written.body == file_format.write_many(sessions).body


def test_an_edited_message_keeps_its_id_and_its_records():
    """A message that was built anew is written in the place of the old one, with what its record had beside it."""
    body = PI.read_bytes()
    (transcript,) = transcripts.get("pi").read(body)
    old = next(entry for entry in transcript.thread.entries if entry.message.role == "user")
    new = transcript.edit(old.id, p.user("ZZ"))
    assert new.thread.entry(old.id).message.id == old.message.id
    assert transcript.thread.entry(old.id).message == old.message
    written = transcripts.get("pi").write(new)
    (again,) = transcripts.get("pi").read(written.body)
    assert again.thread.entry(old.id).message.text == "ZZ"
    assert len(written.body.splitlines()) == len(body.splitlines())


def test_a_message_is_found_by_its_own_id_too():
    transcript = transcript_of([p.user("a", id="m1"), p.assistant("b", id="m2")])
    assert [each.text for each in messages(transcript.edit("m2", p.assistant("c")))] == ["a", "c"]


@pytest.mark.parametrize(
    ("edit", "error", "told"),
    [
        (lambda t: t.edit("nobody", p.user("x")), NotFoundError, "no message 'nobody'"),
        (lambda t: t.edit(7, p.user("x")), MessageError, "Transcript.edit: id: expected"),
        (lambda t: t.edit("m1", "x"), MessageError, "expected a message, got str"),
        (lambda t: t.edit("m1", p.user("x", id="m2")), MessageError, "id: expected 'm1', got 'm2'"),
        (lambda t: t.map("x"), MessageError, "Transcript.map: change: expected"),
        (lambda t: t.map(lambda _: None), MessageError, "expected a message, got NoneType"),
        (lambda t: t.replace(title=7), MessageError, "Transcript.replace: title: expected"),
        (lambda t: t.replace(metadata="x"), MessageError, "Transcript.replace: metadata: expected"),
    ],
)
def test_a_wrong_edit_is_refused(edit, error, told):
    with pytest.raises(error, match=told):
        edit(transcript_of([p.user("a", id="m1")]))


def test_a_record_is_no_message_to_edit():
    (transcript,) = transcripts.get("pi").read(PI.read_bytes())
    record = next(entry for entry in transcript.thread.entries if is_record(entry))
    with pytest.raises(NotFoundError, match="no message"):
        transcript.edit(record.id, p.user("x"))


def test_another_title_and_other_metadata():
    transcript = transcript_of([p.user("a")], title="old", metadata={"a": 1})
    assert transcript.replace(title="new").title == "new"
    assert transcript.replace(title=None).title is None
    assert transcript.replace(metadata={"b": 2}).metadata == {"b": 2}
    assert transcript.replace(title="new").metadata == {"a": 1}
    assert b'"new"' in transcripts.get("claude_code").write(transcript.replace(title="new")).body


def test_a_file_that_was_read_keeps_its_title_and_says_so():
    body = PI.read_bytes()
    (transcript,) = transcripts.get("pi").read(body)
    written = transcripts.get("pi").write(transcript.replace(title="new"))
    assert written.body == body
    assert [(loss.kind, loss.what) for loss in written.losses] == [("dropped", "title")]
