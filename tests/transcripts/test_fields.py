"""Every field of a message and of its parts, set alone, is in the file that a format writes, or on its receipt.

Source: docs/spec/laws.md, law 5; docs/how-to/change-the-core.md.
"""

# pyright: basic

from __future__ import annotations

from functools import cache
from typing import Final

import pytest

import palaver as p
from palaver import transcripts
from palaver.testing.fields import single_fields
from palaver.threads.thread import MAIN, Entry, Thread
from palaver.transcripts.conversation import Transcript

WRITTEN: Final = [name for name in transcripts.names() if transcripts.get(name).record_writer is not None]
FIELDS: Final = list(single_fields())

EXEMPT: Final = {
    "id": "what is written is the id of the entry, which a thread gives the message as well",
    "tool_name": "repeats the name of the call that the result answers",
}
"""Fields of messages that are not looked at, with the reason."""
PLACES: Final = {
    place: [field.message.role for field in FIELDS if field.place == place] for place in {each.place for each in FIELDS}
}
"""Every field, with the roles whose messages have it: a field of a part stands in several."""
NOON: Final = 1_767_355_200_000
MARKERS: Final = ("rescue", "flush")
"""Markers mark a place. A format whose history is what the model sees has the messages that they leave, not them."""
REWORDED: Final = {
    ("openai_messages", "MalformedToolCall.id"): "the call is told as text, in which an id refers to nothing"
}


def is_in_turn(name, field):
    """Whether a format is asked about a field in a message of this role: in one of those that have it, by turns."""
    roles = PLACES[field.place]
    return roles[(WRITTEN.index(name) + len(field.place)) % len(roles)] == field.message.role


def conversation(field, message):
    """A conversation around a message; a result follows its call."""
    if not isinstance(message, p.ToolMessage):
        return [p.user("begin"), message, p.user("go on")]
    if field.place != "ToolMessage.tool_call_id":
        message = message.replace(tool_call_id="call00001")
    calls = [p.tool_call(name, {}, id=named) for name, named in (("other", "call00000"), ("weather", "call00001"))]
    return [p.user("begin"), p.assistant(*calls), message, p.user("go on")]


def transcript(messages, *, timed=True):
    """A conversation whose ids do not depend on what the messages say; ``timed``: whose times are not those of now."""
    thread, parent = Thread("0192f0c4-7777-7000-8000-00000000000a"), None
    for place, message in enumerate(messages):
        at = NOON + place if timed and message.sent_at is None else message.sent_at
        entry = f"0192f0c4-7777-7000-8000-0000000001{place:02d}"
        thread.add([Entry(entry, parent, message.replace(sent_at=at))], {MAIN: entry})
        parent = entry
    return Transcript(thread)


def is_silent(field, before, after, *, carry=True):
    """Whether a field changed neither file nor receipt, is not named there, and its part or message is not left out.

    Without ``carry``, a part that is put into other words counts as named with all that it holds.
    """
    if before.body != after.body or before.beside != after.beside or set(before.losses) != set(after.losses):
        return False
    name = field.place.split(".")[1].removesuffix("_json")
    if any(name in loss.what.replace(" ", "_") for loss in after.losses):
        return False
    at = 2 if isinstance(field.message, p.ToolMessage) else 1
    left_out = [
        loss
        for loss in after.losses
        if loss.message == at and (loss.kind == "dropped" or "as text" in loss.why or not carry)
    ]
    if field.part is None:
        return field.message.role not in {loss.what for loss in left_out}
    part = type(field.message.content[field.part])
    tag = str(part.__struct_config__.tag)
    whole = {field.message.role, "message", "media", tag, tag.replace("_", " "), f"{tag} part", f"{tag} block"}
    return not any(loss.part in {field.part, None} and loss.what in whole for loss in left_out)


@pytest.mark.law(5)
@pytest.mark.finding("F-91")
@pytest.mark.parametrize(
    "every_role", [False, pytest.param(True, marks=pytest.mark.long)], ids=["a-role", "every-role"]
)
@pytest.mark.parametrize("carry", [True, False], ids=["carried", "not-carried"])
@pytest.mark.parametrize("name", WRITTEN)
def test_each_field_alone_is_in_the_file_or_on_the_receipt(name, carry, every_role):
    file_format, silent = transcripts.get(name), []

    @cache
    def write(messages, timed):
        return file_format.write(transcript(map(p.loads, messages), timed=timed), carry=carry)

    for field in FIELDS:
        if not every_role and not is_in_turn(name, field):
            continue
        if field.message.role in MARKERS and file_format.history == "model":
            continue
        if (field.part is None and field.place.split(".")[1] in EXEMPT) or (name, field.place) in REWORDED:
            continue
        timed = not field.place.endswith(".sent_at")
        made = [write(tuple(map(p.dumps, conversation(field, each))), timed) for each in (field.base, field.message)]
        if is_silent(field, *made, carry=carry):
            silent.append(f"{field.message.role}: {field.place}")
    assert silent == []


@pytest.mark.finding("F-91")
@pytest.mark.parametrize("name", WRITTEN)
def test_the_same_conversation_gives_the_same_file(name):
    """Else two files differ whatever a format does with a field."""
    field = FIELDS[0]
    one, other = (transcripts.get(name).write(transcript(conversation(field, field.message))) for _ in range(2))
    assert (one.body, one.losses) == (other.body, other.losses)
