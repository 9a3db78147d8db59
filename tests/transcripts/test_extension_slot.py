"""What is carried along: damaged data of ours, many parts, half characters."""

from __future__ import annotations

import json

import pytest
from msgspec import Raw

import palaver as p
from palaver import transcripts
from palaver.core.messages import AssistantMessage
from palaver.core.parts import Opaque, Part
from palaver.transcripts import extension_slot, original_bytes
from palaver.transcripts.conversation import transcript_of


def opaque(number):
    return Opaque("x", Raw(b'{"number":%d}' % number))


def carry(messages, plain):
    """What is carried, as it comes out of a file."""
    return json.loads(json.dumps(extension_slot.carried(messages, plain)))


@pytest.mark.finding("F-111")
@pytest.mark.parametrize(
    "damage",
    [
        {"messages": []},
        {"messages": None},
        {"messages": {}},
        {"messages": "x"},
        {"messages": [7]},
        {"messages": [None]},
        {"messages": [[]]},
        {"messages": [{}]},
        {"messages": [{"role": "user", "content": 7}]},
        {"messages": [{"role": "user", "content": [-1]}]},
        {"messages": [{"role": "user", "content": [9]}]},
        {"messages": [{"role": "user", "content": [True]}]},
        {"messages": [{"role": "user", "content": [None]}]},
        {"sum": 7},
        {"sum": None},
    ],
)
def test_damaged_data_of_ours_is_let_go(damage):
    said = [p.user("hi")]
    slot = carry([p.user("hi", agent="a")], said)
    assert extension_slot.restored(said, slot) == (p.user("hi", agent="a"),)
    assert extension_slot.restored(said, {**slot, **damage}) is None


@pytest.mark.finding("F-111")
def test_a_record_whose_slot_is_empty_keeps_its_message():
    pi = transcripts.get("pi")
    body = pi.write(transcript_of([p.user("hi", agent="a", sent_at=1)])).body
    lines = [json.loads(line) for line in body.splitlines()]
    for line in lines:
        if "palaver" in line:
            line["palaver"]["messages"] = []
    (transcript,) = pi.read(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    assert [each.message.text for each in transcript.thread.path() if each.message.text] == ["hi"]


@pytest.mark.finding("F-78")
def test_what_is_compared_grows_with_the_parts_and_not_with_their_square(monkeypatch):
    compared = 0
    plain = Part.__eq__

    def counted(self, other):
        nonlocal compared
        compared += 1
        return plain(self, other)

    monkeypatch.setattr(Part, "__eq__", counted)
    counts = []
    for size in (100, 200, 400):
        content = tuple(opaque(number) for number in range(size))
        before = compared
        extension_slot.carried([AssistantMessage(content=content, agent="a")], [AssistantMessage(content=content)])
        counts.append(compared - before)
    assert counts[2] <= 4 * counts[0] + 100
    assert counts[2] <= 10 * 400


@pytest.mark.finding("F-78")
def test_parts_that_the_record_says_are_carried_as_numbers():
    content = (opaque(1), opaque(2), opaque(1))
    message = AssistantMessage(content=content, agent="a")
    slot = carry([message], [AssistantMessage(content=(opaque(2), opaque(1)))])
    assert slot["messages"][0]["content"] == [1, 0, 1]
    assert extension_slot.restored([AssistantMessage(content=(opaque(2), opaque(1)))], slot) == (message,)


@pytest.mark.finding("F-111")
@pytest.mark.parametrize(
    "name", [each for each in transcripts.names() if transcripts.get(each).record_writer is not None]
)
def test_half_a_character_can_be_written(name):
    odd = "half \ud83d cut"
    messages = [
        p.user(odd),
        p.assistant(odd, p.tool_call("f", {"a": odd}, id="c"), p.tool_call("f", '{"a": "\ud83d"}', id="d")),
        p.tool(odd, tool_call_id="c", tool_name="f"),
        p.user(Opaque("x", Raw(b'{"a":"\\ud83d"}')), metadata={"error": odd}),
    ]
    assert transcripts.get(name).write(transcript_of(messages)).body


def test_notes_of_a_wire_stay_where_records_go():
    """A note says which feature of a provider a message is; without it the message would be sent otherwise."""
    noted = p.assistant("So.").replace(
        provider={"@openai_chat": {"vendor": "groq"}, "@pi": {"of": 3}, "openai_chat": {"x": 1}}
    )
    bare = extension_slot.without_records(noted)
    assert dict(bare.provider) == {"@openai_chat": {"vendor": "groq"}, "openai_chat": {"x": 1}}
    assert original_bytes.formats(noted) == ["pi"]
