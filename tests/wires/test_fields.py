"""Every field of a message, set alone, is in the body that a wire writes, or named on its receipt.

Source: docs/spec/laws.md, law 5; docs/how-to/change-the-core.md.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import pytest

import palaver as p
from palaver import wires
from palaver.core.messages import MESSAGE_CLASSES, Message
from palaver.testing.fields import SingleField, single_fields

if TYPE_CHECKING:
    from palaver.core.request import Encoded

TARGETS: Final = [*wires.names(), *(f"openai_chat:{name}" for name in wires.variants("openai_chat"))]
FIELDS: Final = list(single_fields())

_RECORD: Final = (
    "says what happened in this conversation; no provider asks for it (docs/spec/message-fields.md, MSG-07)"
)
_ANSWER: Final = "a fact about an answer, which a request does not repeat; responses carry it"
NEVER_SENT: Final = {
    **dict.fromkeys(("id", "sent_at", "agent", "mode", "tags", "source", "verbatim", "payload_json"), _RECORD),
    "reason": "markers are never sent",
    "scope": "markers are never sent",
}
"""Fields of messages that no wire sends, with the reason."""
NEVER_ASKED: Final = {
    **dict.fromkeys(("model", "usage", "finish_reason", "finish_reason_raw", "response_id"), _ANSWER),
    "tool_name": "repeats the name of the call that the result answers",
}
"""Fields of messages that stand in answers only."""
RECORDS: Final = {
    f"{name}.metadata_json": "a record of a tool or the runtime, not of the caller (wires._engine.metadata)"
    for name in ("ToolMessage", "RescueMarker", "FlushMarker")
}
"""Metadata that no request copies; responses copy none at all, for it is the caller's."""
REWORDED: Final = {"MalformedToolCall.id": "the call is sent as text, in which an id refers to nothing"}
"""Fields of parts that a request leaves out when it puts the part into other words."""
OURS: Final = {
    "AssistantMessage.metadata_json": "data of the caller's; whoever is answered is the caller",
    "MalformedToolCall.reason": "our word for why a text was not read; whoever gets the answer reads the text again",
    "AssistantMessage.finish_reason_raw": "the provider's spelling of ``finish_reason``, which is carried",
    "AssistantMessage.usage.raw_json": "the provider's own object; its counters are carried",
}
"""Fields that a response does not repeat for another provider."""
GUESSED: Final = {("Image.media_type", "ollama_chat"), ("Audio.media_type", "openai_chat")}
"""Fields that the reader of a wire knows from the data itself, or asked for: the format of a spoken answer."""


def _conversation(field: SingleField, message: Message) -> tuple[Message, ...]:
    """A conversation around a message; a result follows its call."""
    if not isinstance(message, p.ToolMessage):
        return (p.user("begin"), message, p.user("go on"))
    if field.place != "ToolMessage.tool_call_id":
        message = message.replace(tool_call_id="call00001")
    calls = [p.tool_call(name, {}, id=call_id) for name, call_id in (("other", "call00000"), ("weather", "call00001"))]
    return (p.user("begin"), p.assistant(*calls), message, p.user("go on"))


def _own_reasoning(message: Message, target: str) -> Message:
    """The message with its reasoning bound to the wire that it goes to."""
    wire = target.partition(":")[0]
    content: Any = [each.replace(wire=wire) if isinstance(each, p.Reasoning) else each for each in message.content]
    return message.replace(content=content)


def silent(field: SingleField, before: Encoded, after: Encoded, at: int) -> bool:
    """Whether a field changed neither body nor receipt, and was not dropped with its part."""
    body = json.dumps(json.loads(after.body), ensure_ascii=False)
    if field.sign in body or before.body != after.body or set(before.losses) != set(after.losses):
        return False
    if field.part is None:
        return True
    part = field.message.content[field.part]
    words = {type(part).__name__.lower(), *re.findall("[A-Z][a-z]*", type(part).__name__)}
    names = {_name(field.place), *(each.lower() for each in words)}
    return not any(
        loss.kind == "dropped"
        and loss.message == at
        and loss.part in {field.part, None}
        and loss.what.split()[0] in names
        for loss in after.losses
    )


def _name(place: str) -> str:
    return place.split(".")[1]


@pytest.mark.law(5)
@pytest.mark.finding("F-91")
@pytest.mark.parametrize("target", TARGETS)
def test_each_field_alone_is_in_the_request_or_on_the_receipt(target: str) -> None:
    wire, lost = wires.get(target), list[str]()
    for field in FIELDS:
        if (
            field.place in REWORDED
            or field.place in RECORDS
            or (field.place, target) == ("Image.media_type", "ollama_chat")
            or (field.part is None and _name(field.place) in NEVER_SENT | NEVER_ASKED)
        ):
            continue
        asked = [_conversation(field, each) for each in (field.base, field.message)]
        variants = [asked]
        if field.place.startswith("Reasoning.") and field.place != "Reasoning.wire":
            variants.append([tuple(_own_reasoning(each, target) for each in messages) for messages in asked])
        for several in variants:
            before, after = (wire.encode_request(p.Request(messages=each, model="m")) for each in several)
            if silent(field, before, after, 2 if isinstance(field.message, p.ToolMessage) else 1):
                lost.append(f"{field.message.role}: {field.place}")
    assert lost == []


@pytest.mark.law(5)
@pytest.mark.finding("F-91")
@pytest.mark.parametrize("target", TARGETS)
def test_each_field_alone_is_in_the_response_or_on_the_receipt(target: str) -> None:
    wire, lost = wires.get(target), list[str]()
    for field in FIELDS:
        before, after = field.base, field.message
        if not isinstance(before, p.AssistantMessage) or not isinstance(after, p.AssistantMessage):
            continue
        if (
            field.place in OURS
            or (field.place, target.partition(":")[0]) in GUESSED
            or (field.part is None and _name(field.place) in NEVER_SENT)
        ):
            continue
        one, other = (wire.encode_response(p.Response(message=each)) for each in (before, after))
        if silent(field, one, other, 0):
            lost.append(field.place)
    assert lost == []


def test_the_lists_of_exceptions_name_fields_that_exist() -> None:
    names = {name for cls in MESSAGE_CLASSES for name in cls.__struct_fields__}
    assert names >= NEVER_SENT.keys() | NEVER_ASKED.keys()
    assert {field.place for field in FIELDS} >= RECORDS.keys() | REWORDED.keys() | OURS.keys() | {
        place for place, _ in GUESSED
    }
