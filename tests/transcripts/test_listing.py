"""What holds for every format whose records are messages: both directions of docs/spec/message-fields.md#5."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings

from palaver import transcripts
from palaver.core import jsontext
from palaver.testing import strategies
from palaver.threads.view import RECORD
from palaver.transcripts import original_bytes
from palaver.transcripts.conversation import Transcript, transcript_of
from palaver.transcripts.extension_slot import without_records
from palaver.transcripts.writer import is_record
from tests.generated import examples
from tests.transcripts.samples import FILES, IDS

NAMES = ("agent_swarm_kit", "codebuff", "deepagents", "deepagents_log", "kairo", "kairo_a2a")
OURS = [pytest.param(name, path, id=label) for (name, path), label in zip(FILES, IDS, strict=True) if name in NAMES]
ONCE = {"id", "sent_at", "agent", "mode"}
MESSAGES = strategies.any_messages().filter(lambda message: RECORD not in message.tags)
DEPRECATED = {"timeToLive", "keepDuringTruncation", "keepLastTags"}


def items_of(name, data):
    """The records of a file, each as JSON."""
    if name == "deepagents_log":
        return [line for line in data.split(b"\n") if line.strip()]
    value = jsontext.value(data)
    for key in ("sessionState", "mainAgentState", "messageHistory"):
        value = value[key] if isinstance(value, dict) and key in value else value
    return [jsontext.encode(each) for each in (value if isinstance(value, list) else [value])]


def bare(name, transcript):
    """A conversation as if it came from elsewhere: the same messages, without the records."""
    messages = [original_bytes.bare(entry.message, name) for entry in transcript.thread.path() if not is_record(entry)]
    return transcript_of(messages)


def is_legacy(name, record):
    """Whether a record is written anew in a later form, or without keys that nobody writes any more."""
    if name == "codebuff":
        return bool(DEPRECATED & record.keys()) or not isinstance(record.get("content"), list)
    return name == "deepagents" and not isinstance(record.get("content"), list)


def equal_when_bare(name, record):
    """Whether a record that is read as messages is rendered equal without its bytes; ``None`` when it is not read."""
    file_format = transcripts.get(name)
    data = jsontext.encode(record)
    (transcript,) = file_format.read(data + b"\n" if name == "deepagents_log" else b"[" + data + b"]")
    if all(is_record(entry) for entry in transcript.thread.entries) or is_legacy(name, record):
        return None
    written = file_format.write(bare(name, transcript), history="all")
    return [jsontext.normal(each) for each in items_of(name, written.body)] == [jsontext.normal(data)]


@pytest.mark.parametrize(("name", "path"), OURS)
def test_a_record_is_rendered_equal_without_its_bytes(name, path):
    for data in items_of(name, path.read_bytes()):
        if data.startswith(b"{") and data.endswith(b"}"):
            assert equal_when_bare(name, jsontext.value(data)) is not False, data


@pytest.mark.parametrize("name", NAMES)
def test_a_record_that_is_odd_is_rendered_equal_too(name):
    """Keys dropped, added, and given another value: what can be read is written back, and nothing raises."""
    chance = random.Random(name)
    odd = (None, "", "x", 0, 1.5, True, False, [], {}, [1], {"x": 1}, ["x"], [{}], [None], {"a": {"b": 2}})
    records = [
        jsontext.value(data)
        for each, path in FILES
        if each == name
        for data in items_of(name, path.read_bytes())
        if data.startswith(b"{") and data.endswith(b"}")
    ]

    def places(value):
        if isinstance(value, dict):
            yield value
        for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from places(each)

    for _ in range(1000):
        record = jsontext.value(jsontext.encode(chance.choice(records)))
        for _ in range(chance.choice((1, 1, 2))):
            found = chance.choice([each for each in places(record) if each] or [record])
            key = chance.choice([*found, "another"])
            if chance.random() < 0.4 and key in found:
                del found[key]
            else:
                found[key] = jsontext.value(jsontext.encode(chance.choice(odd)))
        assert equal_when_bare(name, record) is not False, jsontext.encode(record).decode()


def differences(message, again):
    """The fields and parts in which a message differs from what was read again."""
    if again is None:
        return {message.role}
    found = set() if message.role == again.role else {message.role}
    for name in type(message).__struct_fields__:
        if name in {"content", "extra", "id"}:
            continue
        if not same(getattr(message, name), getattr(again, name, None)):
            found.add(name.removesuffix("_json"))
    if message.content != again.content:
        found.add("content")
    return found


def same(one, other):
    return one == other or (
        isinstance(one, type(jsontext.NULL)) and isinstance(other, type(jsontext.NULL)) and jsontext.equal(one, other)
    )


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=examples(50), deadline=None)
@given(message=MESSAGES)
def test_what_was_carried_makes_any_message_whole_again(name, message):
    """Export and import give the same message, but for what the receipt says is gone for good."""
    file_format = transcripts.get(name)
    written = file_format.write(transcript_of([message]), history="all")
    if any(loss.kind == "dropped" and loss.what == message.role for loss in written.losses):
        return
    (transcript,) = file_format.read(written.body)
    (again,) = [entry.message for entry in transcript.thread.path() if not is_record(entry)]
    gone = {loss.what for loss in written.losses if loss.message is None}
    assert differences(without_records(message), without_records(again)) <= gone & ONCE


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=examples(50), deadline=None)
@given(message=MESSAGES)
def test_what_is_not_carried_is_named(name, message):
    file_format = transcripts.get(name)
    written = file_format.write(transcript_of([message]), history="all", carry=False)
    named = {loss.what for loss in written.losses}
    (transcript,) = file_format.read(written.body) or (Transcript(transcript_of([]).thread),)
    found = [entry.message for entry in transcript.thread.path() if not is_record(entry)]
    different = differences(without_records(message), without_records(found[0]) if found else None)
    parts = {type(part).__struct_config__.tag for part in message.content} | {"content", "arguments"}
    for each in different:
        assert each in named or (each == "content" and named & parts), (each, named)
