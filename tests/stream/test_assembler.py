"""The machine that assembles: law 7, every event in every state, and nothing that came is lost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from msgspec import UNSET, Raw, structs

import palaver as p
from palaver import wires
from palaver.core import canonical
from palaver.core.errors import StreamError
from palaver.core.events import (
    EVENT_CLASSES,
    ArgumentsDelta,
    CitationDelta,
    DataDelta,
    Event,
    Failed,
    Finish,
    PartEnd,
    PartStart,
    ProviderEvent,
    ReasoningDelta,
    SignatureDelta,
    Start,
    TextDelta,
    Update,
    UsageUpdate,
)
from palaver.core.parts import (
    Citation,
    File,
    Image,
    Inline,
    MalformedToolCall,
    Media,
    Opaque,
    Reasoning,
    Refusal,
    ServerToolResult,
    Text,
    ToolCall,
)
from palaver.core.request import Response
from palaver.core.usage import Usage
from palaver.stream.assembler import FIELDS, STATES, Assembler, State
from palaver.stream.replay_events import replay_events
from palaver.testing import rules, strategies as our
from tests.generated import examples

HEAD = Response(p.AssistantMessage(model="m", response_id="r1"), origin="openai_chat")


def assembled(*events: Event) -> p.AssistantMessage:
    """The message that events make, whether or not they end."""
    machine = Assembler()
    machine.extend(events)
    return machine.response().message


# -- law 7 -------------------------------------------------------------------------------------------------------------


def reached(state: State) -> Assembler:
    machine = Assembler("openai_chat")
    if state != "idle":
        machine.feed(Start(HEAD))
        machine.feed(PartStart(0, Text("")))
        machine.feed(TextDelta(0, "so far"))
    if state == "finished":
        machine.feed(Finish("stop", "stop"))
    if state == "failed":
        machine.feed(Failed("provider", "overloaded"))
    assert machine.state == state
    return machine


@pytest.mark.law(7)
def test_the_table_names_every_event_in_every_state():
    assert set(Assembler.TABLE) == set(STATES)
    for state in STATES:
        assert set(Assembler.TABLE[state]) == set(EVENT_CLASSES)


@pytest.mark.law(7)
@pytest.mark.parametrize("state", STATES)
@given(event=our.events())
@settings(max_examples=examples(150))
def test_every_event_is_defined_in_every_state(state: State, event: Event):
    machine = reached(state)
    machine.feed(event)
    assert machine.state in NEXT[state].get(type(event), {state})
    if state in ("open", "finished"):
        assert "so far" in machine.response().message.text or isinstance(event, PartEnd)


NEXT: dict[State, dict[type, set[State]]] = {
    "idle": {kind: {"open"} for kind in EVENT_CLASSES}
    | {Failed: {"failed"}, Finish: {"finished"}, ProviderEvent: {"idle"}},
    "open": {Finish: {"finished"}, Failed: {"failed"}, Start: {"open", "failed"}},
    "finished": {Failed: {"finished", "failed"}, Start: {"finished", "failed"}},
    "failed": {},
}
"""Where each event may lead; an event that is not named leads nowhere."""


@pytest.mark.law(7)
@given(st.lists(our.events(), max_size=14))
@settings(max_examples=examples(100))
def test_any_events_leave_an_answer_that_every_wire_takes(events: list[Event]):
    machine = Assembler("openai_chat")
    for event in events:
        machine.feed(event)
    try:
        answer = machine.finish()
    except StreamError as error:
        answer = error.response
        assert "error" in {message.finish_reason for message in (answer.message, *answer.alternatives)}
    assert answer == machine.response()
    request = p.Request((p.user("Go on."), issued(answer.message), p.user("And?")), model="m")
    for name in wires.names():
        body = wires.get(name).encode_request(request).body
        assert rules.check_request(name, body) == []


def issued(message: p.AssistantMessage) -> p.AssistantMessage:
    """Without blocks and proofs of a real provider that it never issued: those are not ours to mend."""
    proven = (
        structs.replace(part, signature=None)
        if isinstance(part, Reasoning) and part.wire == "google_generate"
        else part
        for part in message.content
        if not (isinstance(part, (ServerToolResult, Opaque)) and part.wire in wires.names())
        if not (isinstance(part, ToolCall) and part.provider_executed)
        if not isinstance(part, Media)  # law 5 has all media, from everywhere
    )
    return structs.replace(message, content=tuple(proven))


@pytest.mark.law(7)
@given(st.lists(our.events(), max_size=14))
def test_one_by_one_is_as_all_at_once(events: list[Event]):
    one, other = Assembler(), Assembler()
    for event in events:
        one.feed(event)
    other.extend(events)
    assert one.response() == other.response()
    assert one.state == other.state


@given(st.lists(our.events(), max_size=14), st.data())
def test_looking_changes_nothing(events: list[Event], data: st.DataObject):
    """A look joins the pieces so far; what follows is added to them."""
    looked, plain = Assembler(), Assembler()
    plain.extend(events)
    for event in events:
        looked.feed(event)
        if data.draw(st.booleans()):
            looked.response()
            _ = [call.arguments_so_far for call in looked.calls]
    assert looked.response() == plain.response()


@given(st.lists(our.events(TextDelta) | our.events(PartStart) | our.events(Finish), max_size=14))
def test_no_text_is_lost(events: list[Event]):
    machine = Assembler()
    machine.extend(events)
    answer = machine.response()
    said: list[str] = []
    for message in (answer.message, *answer.alternatives):
        said += [part.text for part in message.content if isinstance(part, (Text, Refusal, Reasoning))]
    came = [event.text for event in events if isinstance(event, TextDelta)]
    began = [event.part for event in events if isinstance(event, PartStart)]
    came += [part.text for part in began if isinstance(part, (Text, Refusal, Reasoning))]
    assert sorted(utf16("".join(said))) == sorted(utf16("".join(came)))


def utf16(text: str) -> list[bytes]:
    """Code units, so that a pair counts as its two halves."""
    data = text.encode("utf-16-le", "surrogatepass")
    return [data[at : at + 2] for at in range(0, len(data), 2)]


# -- a whole answer ----------------------------------------------------------------------------------------------------


@given(our.responses(), st.integers(1, 30))
def test_a_replayed_answer_is_assembled_again(answer: Response, size: int):
    machine = Assembler()
    machine.extend(replay_events(answer, size=size))
    assert machine.finish() == answer


def test_an_empty_proof_is_not_none():
    answer = Response(
        p.AssistantMessage(content=(Reasoning("hm", "", wire="w"), Reasoning("", None, "", "w")), finish_reason="stop")
    )
    machine = Assembler()
    machine.extend(replay_events(answer))
    assert machine.finish() == answer


def test_every_field_of_an_answer_has_its_event():
    usage = Usage(input=3, output=5)
    citation = Citation(wire="w", url="https://example.org")
    machine = Assembler()
    machine.extend(
        [
            Start(HEAD),
            PartStart(0, Reasoning(wire="w")),
            ReasoningDelta(0, "hm"),
            ReasoningDelta(0, "m"),
            SignatureDelta(0, "si"),
            SignatureDelta(0, "gn"),
            DataDelta(0, "en"),
            PartEnd(0),
            PartStart(1, Text("")),
            TextDelta(1, "Hel"),
            PartStart(2, ToolCall("c", "f")),
            ArgumentsDelta(2, '{"a":'),
            TextDelta(1, "lo"),
            CitationDelta(1, citation),
            ArgumentsDelta(2, "1}"),
            PartStart(3, Image(Inline(""), "image/png")),
            DataDelta(3, "iVBO"),
            DataDelta(3, "Rw=="),
            PartStart(4, Refusal("")),
            TextDelta(4, "no"),
            ProviderEvent("w", "ping", Raw(b"{}")),
            Finish("tool_calls", "tool_use"),
            UsageUpdate(usage),
            Update(structs.replace(HEAD, message=p.AssistantMessage(model="m2", response_id="r1"))),
        ]
    )
    assert machine.finish() == Response(
        p.AssistantMessage(
            content=(
                Reasoning("hmm", "sign", "en", "w"),
                Text("Hello", (citation,)),
                ToolCall("c", "f", '{"a":1}'),
                Image(Inline("iVBORw=="), "image/png"),
                Refusal("no"),
            ),
            model="m2",
            response_id="r1",
            usage=usage,
            finish_reason="tool_calls",
            finish_reason_raw="tool_use",
        ),
        origin="openai_chat",
    )


def test_choices_are_kept_apart():
    machine = Assembler()
    machine.extend(
        [
            Start(HEAD),
            PartStart(0, Text(""), choice=1),
            PartStart(1, Text("")),
            TextDelta(0, "b"),
            TextDelta(1, "a"),
            Finish("stop"),
        ]
    )
    assert not machine.finished
    with pytest.raises(StreamError, match="broke off"):
        machine.finish()
    machine.feed(Finish("length", choice=1))
    answer = machine.finish()
    assert (answer.message.text, answer.alternatives[0].text) == ("a", "b")
    assert (answer.finish_reason, answer.alternatives[0].finish_reason) == ("stop", "length")


def test_place_decides_the_order():
    message = assembled(
        PartStart(0, Text("third"), place=(2,)),
        PartStart(1, Text("first"), place=(0, 5)),
        PartStart(2, Text("second"), place=(1,)),
        PartStart(3, Text("fourth"), place=(2,)),
    )
    assert [part.text for part in message.content] == ["first", "second", "third", "fourth"]


# -- odd orders --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "part"),
    [
        (TextDelta(7, "x"), Text("x")),
        (ReasoningDelta(7, "x"), Reasoning("x")),
        (SignatureDelta(7, "x"), Reasoning(signature="x")),
        (DataDelta(7, "eA=="), File(Inline("eA=="))),
        (ArgumentsDelta(7, "{}"), ToolCall("", "", "{}")),
        (CitationDelta(7, Citation(url="u")), Text("", (Citation(url="u"),))),
    ],
)
def test_a_delta_of_a_part_that_never_began_begins_one(event: Event, part: Any):
    assert assembled(event).content == (part,)


@pytest.mark.parametrize(
    "part",
    [Text("t"), Refusal("t"), ToolCall("i", "f"), Opaque("w", Raw(b"{}")), Image.from_url("https://e.org/i.png")],
)
@pytest.mark.parametrize("kind", [TextDelta, ReasoningDelta, ArgumentsDelta, SignatureDelta, DataDelta])
def test_a_delta_that_its_part_has_no_field_for_begins_a_part_behind_it(part: Any, kind: Any):
    if kind in FIELDS.get(type(part), {}) and not isinstance(part, Image):  # an image by URL does not grow
        return
    first, second = assembled(PartStart(0, part, place=(4,)), kind(0, "x"), kind(0, "y")).content
    assert first == part
    assert b"xy" in canonical.encode(second)


def test_a_number_in_use_names_the_new_part():
    message = assembled(PartStart(0, Text("")), TextDelta(0, "a"), PartStart(0, Text("")), TextDelta(0, "b"))
    assert message.content == (Text("a"), Text("b"))


def test_a_number_that_names_a_part_without_text_no_longer_names_the_text_before():
    opaque = Opaque("w", Raw(b"{}"))
    message = assembled(PartStart(0, Text("a")), PartStart(0, opaque), TextDelta(0, "b"))
    assert message.content == (Text("a"), opaque, Text("b"))


def test_a_final_form_of_another_kind_takes_the_deltas_of_its_kind():
    message = assembled(PartStart(0, Text("")), PartEnd(0, Reasoning("a")), ReasoningDelta(0, "b"), TextDelta(0, "c"))
    assert message.content == (Reasoning("ab"), Text("c"))


def test_a_citation_of_a_part_that_is_no_text_begins_a_text():
    message = assembled(PartStart(0, Refusal("no")), CitationDelta(0, Citation(url="u")))
    assert message.content == (Refusal("no"), Text("", (Citation(url="u"),)))


def test_citations_are_added_to_those_that_are_known_whenever_one_looks():
    first, second, third = (Citation(url=each) for each in "abc")
    machine = Assembler()
    machine.extend([PartStart(0, Text("t", (first,))), CitationDelta(0, second)])
    assert machine.content() == (Text("t", (first, second)),)
    machine.feed(CitationDelta(0, third))
    assert machine.content() == (Text("t", (first, second, third)),)


def test_a_delta_behind_the_end_still_counts():
    message = assembled(PartStart(0, Text("")), TextDelta(0, "a"), PartEnd(0), TextDelta(0, "b"))
    assert message.content == (Text("ab"),)


def test_the_last_word_replaces_what_was_gathered():
    last = Text("whole", provider_json=Raw(b'{"w":{"k":1}}'))
    message = assembled(PartStart(0, Text("")), TextDelta(0, "who"), PartEnd(0, last), TextDelta(0, "!"))
    assert message.content == (last.replace(text="whole!"),)


def test_a_last_word_on_an_unknown_part_is_that_part():
    assert assembled(PartEnd(3, Text("x"))).content == (Text("x"),)
    assert assembled(PartEnd(3)).content == ()


def test_a_second_start_of_the_same_answer_says_nothing():
    machine = Assembler()
    machine.extend([Start(HEAD), PartStart(0, Text("a")), Start(HEAD), Finish("stop")])
    assert machine.finish().message.text == "a"


def test_a_second_start_of_the_same_answer_may_say_more():
    machine = Assembler()
    other = structs.replace(HEAD, message=p.AssistantMessage(model="more exactly m", response_id="r1"))
    machine.extend([Start(HEAD), Start(other), Finish("stop")])
    assert machine.finish().message.model == "m"


def test_a_second_start_of_another_answer_is_a_splice():
    machine = Assembler("w")
    other = structs.replace(HEAD, message=p.AssistantMessage(response_id="r2"))
    machine.extend([Start(HEAD), PartStart(0, Text("a")), Start(other), TextDelta(0, "b"), Finish("stop")])
    with pytest.raises(StreamError, match="w: the stream is corrupt: a second answer") as caught:
        machine.finish()
    assert caught.value.response.message.text == "a"
    assert caught.value.kind == "corrupt"


def test_halves_of_a_pair_in_two_pieces_are_one_character():
    message = assembled(TextDelta(0, "a\ud83d"), TextDelta(0, "\ude00b"), TextDelta(0, "\ud83d"))
    assert message.text == "a\U0001f600b\ud83d"


def test_halves_of_a_pair_in_two_pieces_of_arguments_are_one_character():
    pieces = [ArgumentsDelta(0, '{"q":"\ud83d'), ArgumentsDelta(0, '\ude00"}')]
    message = assembled(PartStart(0, ToolCall("c1", "find")), *pieces)
    assert message.content == (ToolCall("c1", "find", '{"q":"\U0001f600"}'),)


def test_a_call_that_was_torn_is_kept_as_it_came():
    message = assembled(PartStart(0, ToolCall("c1", "find")), ArgumentsDelta(0, '{"q": "a'))
    assert message.content == (MalformedToolCall('{"q": "a', "the arguments are not JSON", "find", "c1"),)


# -- ends --------------------------------------------------------------------------------------------------------------


def test_nothing_at_all_broke_off():
    with pytest.raises(StreamError) as caught:
        Assembler("w").finish()
    assert (caught.value.kind, caught.value.response.message.content) == ("torn", ())


@pytest.mark.parametrize("kind", ["torn", "corrupt"])
def test_damage_behind_the_end_changes_nothing(kind: Any):
    machine = Assembler()
    machine.extend([Start(HEAD), Finish("stop"), Failed(kind, "x")])
    assert machine.finish().finish_reason == "stop"


def test_damage_before_the_end_of_each_choice_is_damage():
    machine = Assembler()
    machine.extend([Start(HEAD), PartStart(0, Text("b"), choice=1), Finish("stop"), Failed("torn", "x")])
    assert (machine.state, machine.response().finish_reason) == ("failed", "error")


def test_a_choice_without_parts_is_an_alternative_with_its_finish_reason():
    machine = Assembler()
    machine.extend([Start(HEAD), Finish("stop"), Finish("length", choice=1)])
    assert [each.finish_reason for each in machine.finish().alternatives] == ["length"]


def test_the_providers_error_fails_even_a_finished_answer():
    machine = Assembler("w")
    machine.extend([Start(HEAD), Finish("stop"), Failed("provider", "too much", "overloaded", Raw(b'{"e":1}'))])
    with pytest.raises(StreamError) as caught:
        machine.finish()
    error = caught.value
    assert str(error) == "w: the provider ended the stream with an error: too much"
    assert (error.kind, error.code, error.body) == ("provider", "overloaded", b'{"e":1}')
    assert error.response.finish_reason == "error"
    assert error.response.message.finish_reason_raw is UNSET


def test_arguments_that_came_with_the_call_are_seen_before_those_that_arrive():
    machine = Assembler()
    machine.extend([PartStart(0, ToolCall("c1", "find", '{"q":')), ArgumentsDelta(0, '"a"}')])
    assert machine.calls[0].arguments_so_far == {"q": "a"}


def test_arguments_are_seen_while_they_arrive():
    machine = Assembler()
    machine.extend([Start(HEAD), PartStart(0, ToolCall("c1", "find"))])
    (call,) = machine.calls
    assert (call.index, call.id, call.name, call.arguments_so_far) == (0, "c1", "find", UNSET)
    machine.feed(ArgumentsDelta(0, '{"q": "a'))
    assert call.arguments_so_far == {"q": "a"}
    machine.response()
    machine.feed(ArgumentsDelta(0, 'b", "n": [1, 2'))
    assert call.arguments_so_far == {"q": "ab", "n": [1]}
    machine.feed(ArgumentsDelta(0, "]}"))
    assert call.arguments_so_far == {"q": "ab", "n": [1, 2]}
    assert machine.response().message.tool_calls[0].arguments == {"q": "ab", "n": [1, 2]}
