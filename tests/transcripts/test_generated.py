"""Laws 1, 5 and 6 over generated conversations: any messages, odd ones too, in trees, in every transcript format."""

from __future__ import annotations

import random
from functools import cache

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from msgspec import structs

from palaver import transcripts
from palaver.core.parts import Text
from palaver.testing import strategies
from palaver.threads.thread import MAIN, Entry, Thread
from palaver.transcripts.conversation import Session, Transcript
from palaver.transcripts.extension_slot import without_records
from palaver.transcripts.unknown_fields import UnknownFields
from palaver.transcripts.writer import chosen_history, is_record

NO_BASE64 = UnknownFields(kind="value", name="media", count=1)
"""What is reported of generated media whose base64 is none."""

SLOW = list(HealthCheck)
NAMES = transcripts.names()
WRITTEN = [name for name in NAMES if transcripts.get(name).record_writer is not None]
BOTH = [name for name in WRITTEN if transcripts.get(name).record_reader is not None]
some = pytest.mark.parametrize("many", [20, pytest.param(60, marks=pytest.mark.long)])
CARRYING = ("claude_code", "opencode", "pi", "vercel_ui")
"""The transcript formats that give back any message, markers too."""


@cache
def messages():
    """Some messages of every role, always the same: to make one takes longer than to write it in every format."""
    made = []

    @seed(8)
    @settings(max_examples=150, deadline=None, phases=[Phase.generate], database=None, suppress_health_check=SLOW)
    @given(strategies.any_messages())
    def make(message):
        made.append(message)

    make()
    return made


@cache
def sample(many):
    """Conversations with branches: each message follows one that joined before it, mostly the last one."""
    chance = random.Random(8)
    made = []
    for _ in range(many):
        thread = Thread("0192f0c4-7777-7000-8000-00000000000a")
        ids = []
        for place, message in enumerate(chance.choices(messages(), k=chance.randint(1, 6))):
            before = chance.choice([0, 0, 0, 0, 1, 2])
            parent = ids[place - 1 - before] if place > before else None
            entry = Entry(f"0192f0c4-7777-7000-8000-0000000001{place:02d}", parent, message)
            ids.append(entry.id)
            thread.add([entry], {MAIN: entry.id})
        others = [leaf for leaf in thread.leaves if leaf != thread.head(MAIN)]
        thread.add((), {f"branch-{number}": leaf for number, leaf in enumerate(others)})
        session = Session(id=thread.id, started_at=1_767_323_045_000)
        made.append(Transcript(thread, chance.choice([None, "A title \u2028"]), session.metadata()))
    return made


def bare(message):
    return structs.replace(without_records(message), id=None, sent_at=None)


def main_of(transcript):
    return [bare(entry.message) for entry in transcript.thread.path() if not is_record(entry)]


@pytest.mark.law(5)
@pytest.mark.parametrize("name", WRITTEN)
@some
def test_any_conversation_is_written_and_read_back(name, many):
    for transcript in sample(many):
        check_any_conversation_is_written_and_read_back(transcripts.get(name), transcript)


def check_any_conversation_is_written_and_read_back(file_format, transcript):
    """No exception, the same twice; what is written is of the format and is written back from what was read."""
    written = file_format.write(transcript)
    assert file_format.write(transcript) == written
    if file_format.record_reader is None or not written.body:
        return
    again, drift = file_format.read_with_unknown(written.body)
    assert [each for each in drift if each.kind != "link" and each != NO_BASE64] == []
    if again and file_format.fidelity == "bytes":
        assert file_format.write_many(again).body == written.body


@pytest.mark.law(5)
@pytest.mark.parametrize("name", BOTH)
@some
def test_every_text_is_there_again_or_on_the_receipt(name, many):
    for transcript in sample(many):
        check_every_text_is_there_again_or_on_the_receipt(transcripts.get(name), transcript)


def check_every_text_is_there_again_or_on_the_receipt(file_format, transcript):
    """A text of a message that is written is read again, unless a loss names its message."""
    written = file_format.write(transcript)
    entries = (
        [entry for entry in transcript.thread.entries if not is_record(entry)]
        if file_format.tree
        else list(chosen_history(transcript.thread.path(), file_format.history))
    )
    found = [
        part.text
        for each in file_format.read(written.body)
        for entry in each.thread.entries
        for part in entry.message.content
        if hasattr(part, "text")
    ]
    named = {loss.message for loss in written.losses}
    for message in (entry.message for entry in entries):
        place = next(number for number, entry in enumerate(entries) if entry.message is message)
        if place in named or None in named:
            continue
        for part in message.content:
            if isinstance(part, Text) and part.text.strip():
                assert any(part.text in each for each in found), (part.text, found)


@pytest.mark.law(1)
@pytest.mark.parametrize("name", CARRYING)
@some
def test_what_has_a_free_slot_gives_any_message_back(name, many):
    for transcript in sample(many):
        check_what_has_a_free_slot_gives_any_message_back(transcripts.get(name), transcript)


def check_what_has_a_free_slot_gives_any_message_back(file_format, transcript):
    written = file_format.write(transcript, history="all")
    (back,) = file_format.read(written.body)
    assert main_of(back) == main_of(transcript)


@pytest.mark.law(6)
@pytest.mark.parametrize("name", BOTH)
@some
def test_damaged_files_are_read_and_written_back(name, many):
    """Cut, spliced, turned over, lines doubled and moved: nothing is raised, and no byte is lost."""
    file_format = transcripts.get(name)
    chance = random.Random(name)
    bodies = [body for each in sample(many)[:40] if (body := file_format.write(each).body)]
    for body in bodies:
        for _ in range(4):
            damaged = damage(body, chance.choice(bodies), chance)
            found = file_format.read(damaged)
            if found and file_format.fidelity == "bytes":
                assert file_format.write_many(found).body == damaged


def damage(body, other, chance):
    start, end = sorted(chance.choices(range(len(body) + 1), k=2))
    lines = body.splitlines(keepends=True)
    place = chance.randrange(len(lines))
    return chance.choice(
        (
            body[:end],
            body[start:],
            body[:start] + other[-end:],
            body[:start] + bytes([chance.randrange(256)]) + body[start + 1 :],
            body[:start] + chance.choice((b"[", b"}", b'"', b"\\", b"null", b"\n", b"\x00", b"1e999")) + body[end:],
            b"".join((*lines[: place + 1], *lines[place:])),
            b"".join((*lines[place:], *lines[:place])),
        )
    )
