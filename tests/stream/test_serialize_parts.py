"""Parts are put one after another, and say the same."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

import palaver as p
from palaver.core.events import (
    ArgumentsDelta,
    CitationDelta,
    DataDelta,
    Event,
    Failed,
    Finish,
    PartEnd,
    PartStart,
    ReasoningDelta,
    Start,
    TextDelta,
)
from palaver.core.parts import (
    Audio,
    Citation,
    Inline,
    MalformedToolCall,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
)
from palaver.core.request import Response
from palaver.stream.assembler import Assembler
from palaver.stream.replay_events import replay_events
from palaver.stream.serialize_parts import SerialParts
from palaver.testing import strategies as our
from tests.generated import examples

A, B = ToolCall("a", "f"), ToolCall("b", "g")


def in_turn(*events: Event) -> list[Event]:
    turns = SerialParts()
    return [each for event in events for each in turns.feed(event)] + turns.finish()


def test_a_text_ends_where_another_part_begins_and_goes_on_in_a_new_one():
    assert in_turn(
        PartStart(0, Text("")),
        TextDelta(0, "a"),
        PartStart(1, A),
        ArgumentsDelta(1, "{}"),
        PartEnd(1),
        TextDelta(0, "b"),
    ) == [
        PartStart(0, Text("")),
        TextDelta(0, "a"),
        PartEnd(0),
        PartStart(1, A),
        ArgumentsDelta(1, "{}"),
        PartEnd(1),
        PartStart(2, Text("")),
        TextDelta(2, "b"),
        PartEnd(2),
    ]


def test_calls_wait_for_the_open_one():
    assert in_turn(
        PartStart(0, A),
        ArgumentsDelta(0, "{"),
        PartStart(1, B),
        ArgumentsDelta(1, "["),
        ArgumentsDelta(0, "}"),
        ArgumentsDelta(1, "]"),
        PartEnd(1),
        PartEnd(0),
        Finish("tool_calls"),
    ) == [
        PartStart(0, A),
        ArgumentsDelta(0, "{"),
        ArgumentsDelta(0, "}"),
        PartEnd(0),
        PartStart(1, B),
        ArgumentsDelta(1, "["),
        ArgumentsDelta(1, "]"),
        PartEnd(1),
        Finish("tool_calls"),
    ]


def test_the_last_word_on_a_part_in_pieces_is_not_told_as_one_of_them():
    turns = SerialParts()
    told = [PartStart(0, Text("")), TextDelta(0, "a"), PartStart(1, Text("")), TextDelta(0, "b")]
    told.append(PartEnd(0, Text("ab")))
    gathered = Assembler()
    gathered.extend(out for event in told for out in turns.feed(event))
    assert [part.text for part in gathered.content()] == ["a", "", "b"]


def test_what_never_ends_ends_before_the_finish():
    told = in_turn(PartStart(0, A), PartStart(1, B), TextDelta(2, "x"), Finish("stop"))
    assert told == [
        PartStart(0, A),
        PartEnd(0),
        PartStart(1, B),
        PartEnd(1),
        TextDelta(2, "x"),
        PartEnd(2),
        Finish("stop"),
    ]


def test_more_of_a_part_that_cannot_grow_does_not_tell_it_again():
    whole = MalformedToolCall("{", "cut")
    assert in_turn(PartStart(0, whole), PartEnd(0), TextDelta(0, "a")) == [
        PartStart(0, whole),
        PartEnd(0),
        TextDelta(1, "a"),
        PartEnd(1),
    ]


SOURCE = Citation(url="u")
A_WHOLE = [PartStart(1, A), PartEnd(1)]
ODD_ORDERS = {
    "waiting-parts-follow-in-the-order-in-which-they-began": (
        [PartStart(0, A), PartStart(2, B), PartStart(1, Text("")), PartEnd(0)],
        [PartStart(0, A), PartEnd(0), PartStart(1, B)],
    ),
    "all-that-waited-follows-at-once": (
        [PartStart(0, A), TextDelta(1, "x"), TextDelta(2, "y"), PartEnd(0)],
        [PartStart(0, A), PartEnd(0), TextDelta(1, "x"), PartEnd(1), TextDelta(2, "y")],
    ),
    "a-late-delta-after-the-finish-passes": (
        [PartStart(0, A), TextDelta(1, "x"), Finish("stop"), TextDelta(2, "y"), PartEnd(2)],
        [PartStart(0, A), PartEnd(0), TextDelta(1, "x"), PartEnd(1), Finish("stop"), TextDelta(2, "y"), PartEnd(2)],
    ),
    "the-final-form-of-a-part-in-one-piece-is-emitted": (
        [PartStart(0, Text("")), TextDelta(0, "a"), PartEnd(0, Text("a", (SOURCE,)))],
        [PartStart(0, Text("")), TextDelta(0, "a"), PartEnd(0, Text("a", (SOURCE,)))],
    ),
    "the-final-form-of-a-part-that-ended-before-is-not": (
        [PartStart(0, Text("")), TextDelta(0, "a"), *A_WHOLE, PartEnd(0, Text("a"))],
        [PartStart(0, Text("")), TextDelta(0, "a"), PartEnd(0), *A_WHOLE],
    ),
    "the-final-form-of-an-unknown-part-is-that-part": (
        [PartEnd(7, Text("a"))],
        [PartStart(0, Text("a")), PartEnd(0, Text("a"))],
    ),
    "the-end-of-a-part-that-is-not-open-is-nothing": (
        [PartStart(0, Text("")), PartEnd(7), TextDelta(0, "a")],
        [PartStart(0, Text("")), TextDelta(0, "a")],
    ),
    "a-number-in-use-names-the-new-part": (
        [PartStart(0, Text("a")), PartEnd(0), PartStart(0, Reasoning("b")), *A_WHOLE, ReasoningDelta(0, "c")],
        [
            *[PartStart(0, Text("a")), PartEnd(0), PartStart(1, Reasoning("b")), PartEnd(1)],
            *[PartStart(2, A), PartEnd(2), PartStart(3, Reasoning("")), ReasoningDelta(3, "c")],
        ],
    ),
    "the-final-form-of-a-new-part-under-the-number-of-a-split-one-is-emitted": (
        [PartStart(0, Text("")), *A_WHOLE, TextDelta(0, "a"), PartStart(0, Text("")), PartEnd(0, Text("b"))],
        [
            *[PartStart(0, Text("")), PartEnd(0), *A_WHOLE, PartStart(2, Text("")), TextDelta(2, "a"), PartEnd(2)],
            *[PartStart(3, Text("")), PartEnd(3, Text("b"))],
        ],
    ),
    "a-citation-goes-on-in-a-new-text-without-those-before": (
        [PartStart(0, Text("a", (SOURCE,))), *A_WHOLE, CitationDelta(0, SOURCE)],
        [PartStart(0, Text("a", (SOURCE,))), PartEnd(0), *A_WHOLE, PartStart(2, Text("")), CitationDelta(2, SOURCE)],
    ),
    "a-refusal-ends-where-another-part-begins-and-goes-on-empty": (
        [PartStart(0, Refusal("a")), *A_WHOLE, TextDelta(0, "b")],
        [PartStart(0, Refusal("a")), PartEnd(0), *A_WHOLE, PartStart(2, Refusal("")), TextDelta(2, "b")],
    ),
    "reasoning-goes-on-without-its-proofs": (
        [PartStart(0, Reasoning("a", signature="s", encrypted="e")), *A_WHOLE, ReasoningDelta(0, "b")],
        [
            *[PartStart(0, Reasoning("a", signature="s", encrypted="e")), PartEnd(0), *A_WHOLE],
            *[PartStart(2, Reasoning("")), ReasoningDelta(2, "b")],
        ],
    ),
    "late-arguments-are-a-call-with-no-others": (
        [PartStart(0, ToolCall("a", "f", "{")), PartEnd(0), ArgumentsDelta(0, "}")],
        [
            PartStart(0, ToolCall("a", "f", "{")),
            PartEnd(0),
            PartStart(1, ToolCall("a", "f", "")),
            ArgumentsDelta(1, "}"),
        ],
    ),
    "late-data-are-media-with-no-others": (
        [PartStart(0, Audio(Inline("eA=="))), PartEnd(0), DataDelta(0, "eQ==")],
        [PartStart(0, Audio(Inline("eA=="))), PartEnd(0), PartStart(1, Audio(Inline(""))), DataDelta(1, "eQ==")],
    ),
}


@pytest.mark.parametrize(("events", "emitted"), ODD_ORDERS.values(), ids=ODD_ORDERS)
def test_each_event_is_emitted_as_soon_as_it_may(events: list[Event], emitted: list[Event]):
    turns = SerialParts()
    assert [each for event in events for each in turns.feed(event)] == emitted


@given(our.responses())
def test_parts_that_are_in_turn_already_pass_unchanged(answer: Response):
    events = list(replay_events(answer))
    assert in_turn(*events) == events


@given(st.lists(our.events(), max_size=20))
@settings(max_examples=examples(100))
def test_parts_never_interleave_and_say_the_same(events: list[Event]):
    told = in_turn(*events)
    open_part = None
    for event in told:
        index = getattr(event, "index", None)
        if index is None:
            assert open_part is None or not isinstance(event, (Finish, Failed))
        elif isinstance(event, PartStart):
            assert open_part is None
            open_part = index
        elif open_part is None:
            open_part = index  # a delta without a start
        else:
            assert index == open_part
            if isinstance(event, PartEnd):
                open_part = None
    assert open_part is None


@given(st.lists(our.events(), max_size=20))
@settings(max_examples=examples(100))
def test_nothing_is_lost(events: list[Event]):
    """Pieces of text and of arguments are the same, each kind in its own order within a part."""
    plain = [event for event in events if not isinstance(event, PartEnd)]
    one, other = Assembler(), Assembler()
    live = [event for event in plain if not isinstance(event, (Failed, Start))]
    one.extend(live)
    other.extend(in_turn(*live))
    assert words(one.response()) == words(other.response())


def words(answer: Response) -> tuple[list[str], list[str]]:
    messages: tuple[p.AssistantMessage, ...] = (answer.message, *answer.alternatives)
    parts = [part for message in messages for part in message.content]
    said = [part.text for part in parts if isinstance(part, (Text, Refusal, Reasoning))]
    called = [part.arguments_json if isinstance(part, ToolCall) else part.raw for part in parts
              if isinstance(part, (ToolCall, MalformedToolCall))]  # fmt: skip
    return sorted("".join(said)), sorted("".join(called))
