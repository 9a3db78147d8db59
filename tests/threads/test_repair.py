"""Repair of broken tool pairs: law 5 and docs/spec/pains.md#1, before any wire is asked, and as every wire sees it."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st

import palaver as p
from palaver import wires
from palaver.core import canonical
from palaver.core.pairs import MISSING_RESULT, REPAIR, Placed, complete, settle
from palaver.testing import rules
from palaver.threads import repair
from palaver.threads.repair import INTERRUPTED_RESULT, is_whole
from tests.corpus import Exchange
from tests.folding import over, run_each
from tests.generated import fifty
from tests.wires.histories import histories

TARGETS = [*wires.names(), *(f"openai_chat:{name}" for name in wires.variants("openai_chat"))]
PAIR_LOSSES = ("had no result", "moved to its call", "answers no call")
WAYS = [{"unanswered": u, "orphans": o} for u in ("answer", "drop") for o in ("tell", "keep", "drop")]
WHOLE_WAYS = [way for way in WAYS if way["orphans"] != "keep"]
MARKERS = (p.RescueMarker, p.FlushMarker)

ways = st.sampled_from(WAYS)
whole_ways = st.sampled_from(WHOLE_WAYS)


def call(id: str, name: str = "search") -> p.ToolCall:
    return p.ToolCall(id, name, "{}")


def asks(*ids: str, **fields: Any) -> p.AssistantMessage:
    return p.AssistantMessage(content=tuple(map(call, ids)), **fields)


def result(id: str | None, text: str = "found") -> p.ToolMessage:
    return p.tool(text, tool_call_id=id)


def lacking(id: str, text: str = MISSING_RESULT, agent: str | None = None) -> p.ToolMessage:
    return p.ToolMessage(
        content=(p.Text(text),), tool_call_id=id, tool_name="search", is_error=True, source=REPAIR, agent=agent
    )


def receipt(repaired: Any) -> list[tuple[str, str, int | None, int | None]]:
    return [(loss.kind, loss.what, loss.message, loss.part) for loss in repaired.repairs]


def ours(message: p.Message) -> list[str]:
    return [x.id for x in message.content if isinstance(x, p.ToolCall) and not x.provider_executed]


def broken_pairs(messages: Sequence[p.Message]) -> list[str]:
    """What is wrong with the pairs, said without the code under test: ids are unique, and each is answered at once."""
    found: list[str] = []
    seen: set[str] = set()
    open_calls: list[str | None] = []
    for message in messages:
        if isinstance(message, MARKERS):
            continue
        if isinstance(message, p.ToolMessage):
            if message.tool_call_id in open_calls:
                open_calls.remove(message.tool_call_id)
            else:
                found.append(f"orphan {message.tool_call_id}")
            continue
        found += [f"unanswered {each}" for each in open_calls]
        open_calls = list(ours(message))
        found += [f"twice {each}" for each in open_calls if each in seen or open_calls.count(each) > 1]
        seen.update(ours(message))
    return found + [f"unanswered {each}" for each in open_calls]


@st.composite
def broken(draw: Any) -> tuple[p.Message, ...]:
    """Histories with broken pairs, some of whose turns broke off."""
    messages = list(draw(histories()))
    for index, message in enumerate(messages):
        if isinstance(message, p.AssistantMessage) and draw(st.integers(0, 3)) == 0:
            thought = p.Reasoning("hm", signature=draw(st.sampled_from([None, "", "sig"])), wire="anthropic_messages")
            content = (thought, *message.content) if draw(st.booleans()) else message.content
            messages[index] = message.replace(finish_reason="error", content=content)
    return tuple(messages)


@st.composite
def valid(draw: Any) -> tuple[p.Message, ...]:
    """Histories in which every pair is whole, with calls side by side, provider's calls and markers."""
    messages: list[p.Message] = [p.system("Be brief.")] if draw(st.booleans()) else []
    for turn in range(draw(st.integers(1, 4))):
        messages.append(p.user(f"question {turn}"))
        for step in range(draw(st.integers(0, 2))):
            ids = [f"call{turn}{step}{number}" for number in range(draw(st.integers(0, 3)))]
            parts: list[Any] = [p.Text(f"step {step}"), *map(call, ids)]
            if draw(st.booleans()):
                parts.append(p.ToolCall(f"srv{turn}{step}", "web", "{}", provider_executed=True))
            messages.append(p.assistant(*parts))
            messages += [p.rescue("noise")] if draw(st.integers(0, 5)) == 0 else []
            messages += [result(each, f"result of {each}") for each in draw(st.permutations(ids))]
        messages.append(p.assistant(f"answer {turn}"))
    return tuple(messages)


# -- nothing wrong -------------------------------------------------------------------------------------------------


@pytest.mark.law(5)
@fifty
@given(messages=valid(), way=ways)
def test_a_whole_history_is_given_back_as_the_same_object(messages: tuple[p.Message, ...], way: Any) -> None:
    assert broken_pairs(messages) == []
    repaired = repair(messages, **way)
    assert repaired.messages is messages
    assert repaired.repairs == ()
    listed = list(messages)
    assert repair(listed, **way).messages is listed


WHOLE = {
    "nothing": (),
    "no calls": (p.user("a"), p.assistant("b")),
    "results in another order than their calls": (asks("a", "b"), result("b"), result("a")),
    "a call of the provider": (p.assistant(p.ToolCall("srv", "web", "{}", provider_executed=True)), p.user("so?")),
    "a call that did not parse": (p.assistant(p.MalformedToolCall("{", "cut off", "search", "m")), p.user("so?")),
    "a marker between": (asks("a"), p.rescue("failed"), result("a")),
    "an empty answer": (p.user("a"), p.assistant(), p.user("b")),
    "reasoning without proof in a whole turn": (p.assistant(p.Reasoning("hm"), "b"),),
    "proven reasoning in a broken turn": (
        p.AssistantMessage(
            content=(p.Reasoning("hm", signature="s"), p.Reasoning(encrypted="e")), finish_reason="error"
        ),
    ),
    "an empty broken turn": (p.AssistantMessage(finish_reason="error"), p.user("again")),
}


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("name", WHOLE)
def test_what_is_not_broken_is_not_repaired(name: str, way: Any) -> None:
    assert repair(WHOLE[name], **way) == (WHOLE[name], ())
    assert repair(WHOLE[name], **way).messages is WHOLE[name]


# -- one fault at a time -------------------------------------------------------------------------------------------

TOLD = p.UserMessage(content=(p.Text("[Tool result]"), p.Text("found")), source=REPAIR)

CASES: dict[str, tuple[Sequence[p.Message], Sequence[p.Message], list[Any]]] = {
    "a last call without a result": (
        [p.user("a"), asks("a")],
        [p.user("a"), asks("a"), lacking("a")],
        [("converted", "tool call", 1, 0)],
    ),
    "an earlier call without a result": (
        [asks("a"), p.user("b"), asks("b"), result("b")],
        [asks("a"), lacking("a"), p.user("b"), asks("b"), result("b")],
        [("converted", "tool call", 0, 0)],
    ),
    "one of several calls without a result": (
        [asks("a", "b", "c"), result("c"), result("a"), p.user("b")],
        [asks("a", "b", "c"), result("c"), result("a"), lacking("b"), p.user("b")],
        [("converted", "tool call", 0, 1)],
    ),
    "a call at the end of a failed turn": (
        [asks("a"), p.rescue("failed"), p.user("b")],
        [asks("a"), lacking("a"), p.rescue("failed"), p.user("b")],
        [("converted", "tool call", 0, 0)],
    ),
    "the added result speaks to the agent that called": (
        [asks("a", agent="triage")],
        [asks("a", agent="triage"), lacking("a", agent="triage")],
        [("converted", "tool call", 0, 0)],
    ),
    "a result without a call": (
        [p.user("a"), result("x")],
        [p.user("a"), TOLD],
        [("converted", "tool result", 1, None)],
    ),
    "a result that names no call": (
        [asks("a"), result(None), result("a")],
        [asks("a"), result("a"), TOLD],
        [("converted", "tool result", 1, None)],
    ),
    "a result with an empty id": (
        [asks("a"), result(""), result("a")],
        [asks("a"), result("a"), TOLD],
        [("converted", "tool result", 1, None)],
    ),
    "a result before its call": (
        [result("a"), asks("a")],
        [TOLD, asks("a"), lacking("a")],
        [("converted", "tool result", 0, None), ("converted", "tool call", 1, 0)],
    ),
    "a second result": (
        [asks("a"), result("a", "one"), result("a"), p.user("b")],
        [asks("a"), result("a", "one"), TOLD, p.user("b")],
        [("converted", "tool result", 2, None)],
    ),
    "a result behind a user message": (
        [asks("a"), p.user("b"), result("a"), p.user("c")],
        [asks("a"), result("a"), p.user("b"), p.user("c")],
        [("converted", "tool result", 2, None)],
    ),
    "results behind the wrong assistant message": (
        [asks("a"), asks("b"), result("a"), result("b")],
        [asks("a"), result("a"), asks("b"), result("b")],
        [("converted", "tool result", 2, None)],
    ),
    "an id twice in one message": (
        [asks("a", "a"), result("a", "one"), result("a", "two")],
        [asks("a", "a-2"), result("a", "one"), result("a-2", "two")],
        [("converted", "tool call", 0, 1), ("converted", "tool result", 2, None)],
    ),
    "an id in two messages": (
        [asks("a"), result("a", "one"), asks("a"), result("a", "two"), asks("a-2"), result("a-2")],
        [asks("a"), result("a", "one"), asks("a-3"), result("a-3", "two"), asks("a-2"), result("a-2")],
        [("converted", "tool call", 2, 0), ("converted", "tool result", 3, None)],
    ),
    "an id in two messages, answered once": (
        [asks("a"), p.user("b"), asks("a"), result("a")],
        [asks("a"), lacking("a"), p.user("b"), asks("a-2"), result("a-2")],
        [("converted", "tool call", 0, 0), ("converted", "tool call", 2, 0), ("converted", "tool result", 3, None)],
    ),
    "an id three times, answered once: by the nearest call": (
        [asks("a", "a"), asks("a"), result("a")],
        [asks("a", "a-2"), lacking("a"), lacking("a-2"), asks("a-3"), result("a-3")],
        [("converted", "tool call", 0, 0)]
        + [("converted", "tool call", 0, 1)] * 2
        + [("converted", "tool call", 1, 0), ("converted", "tool result", 2, None)],
    ),
    "an id in two messages, never answered": (
        [asks("a"), asks("a")],
        [asks("a"), lacking("a"), asks("a-2"), lacking("a-2")],
        [("converted", "tool call", 0, 0)] + [("converted", "tool call", 1, 0)] * 2,
    ),
    "a result of a call that did not parse": (
        [p.assistant(p.MalformedToolCall("{", "cut off", "search", "m")), result("m")],
        [p.assistant(p.MalformedToolCall("{", "cut off", "search", "m")), TOLD],
        [("converted", "tool result", 1, None)],
    ),
    "a turn that broke off": (
        [
            p.AssistantMessage(content=(p.Reasoning("hm"), p.Text("on it"), call("a")), finish_reason="error"),
            p.user("go on"),
        ],
        [
            p.AssistantMessage(content=(p.Text("on it"), call("a")), finish_reason="error"),
            lacking("a", INTERRUPTED_RESULT),
            p.user("go on"),
        ],
        [("dropped", "reasoning", 0, 0), ("converted", "tool call", 0, 2)],
    ),
    "a turn that broke off while reasoning": (
        [p.AssistantMessage(content=(p.Reasoning("hm", signature=""),), finish_reason="error"), p.user("again")],
        [p.user("again")],
        [("dropped", "message", 0, None), ("dropped", "reasoning", 0, 0)],
    ),
    "a turn that broke off behind a proof": (
        [
            p.AssistantMessage(
                content=(p.Reasoning("one", signature="s"), p.Reasoning("two", wire="anthropic_messages")),
                finish_reason="error",
            )
        ],
        [p.AssistantMessage(content=(p.Reasoning("one", signature="s"),), finish_reason="error")],
        [("dropped", "reasoning", 0, 1)],
    ),
}


@pytest.mark.row("KAI-16")
@pytest.mark.parametrize("name", CASES)
def test_one_fault_and_its_repair(name: str) -> None:
    before, after, said = CASES[name]
    repaired = repair(before)
    assert list(repaired.messages) == list(after)
    assert receipt(repaired) == said
    assert broken_pairs(after) == []


@pytest.mark.row("CBF-12")
def test_an_unanswered_call_is_left_out_when_asked() -> None:
    spoken = p.assistant("on it", p.Reasoning("hm"), call("a"), call("b"))
    messages = (spoken, result("b"), asks("c"), p.user("stop"), result("c"))
    repaired = repair(messages, unanswered="drop", orphans="keep")
    assert repaired.messages == (
        p.assistant("on it", p.Reasoning("hm"), call("b")),
        result("b"),
        p.user("stop"),
        result("c"),
    )
    assert [str(loss) for loss in repaired.repairs] == [
        "messages[0].content[2]: tool call dropped (had no result)",
        "messages[2]: message dropped (nothing was left of it)",
        "messages[2].content[0]: tool call dropped (had no result)",
    ]


@pytest.mark.row("CBF-12")
@pytest.mark.parametrize("boundary", [p.user("u"), p.system("s"), p.developer("d"), None])
def test_no_result_crosses_a_boundary_when_calls_are_dropped(boundary: Any) -> None:
    between = [p.rescue("r"), p.assistant("still")] if boundary is None else [boundary]
    messages = [asks("a"), *between, result("a")]
    stays = repair(messages, unanswered="drop", orphans="drop").messages
    assert (asks("a") in stays) == (result("a") in stays) == (boundary is None)
    assert repair(messages).messages == (asks("a"), result("a"), *between)


DROPPING: dict[str, tuple[Sequence[p.Message], Sequence[p.Message], list[Any]]] = {
    "a shared id counts as answered, but takes no result from beyond the boundary": (
        [asks("a", "a"), result("a"), p.user("b"), result("a", "late")],
        [asks("a", "a-2"), result("a"), lacking("a-2"), p.user("b"), result("a", "late")],
        [("converted", "tool call", 0, 1)] * 2,
    ),
    "a message that vanishes parts nothing": (
        [asks("a"), asks("b"), result("a")],
        [asks("a"), result("a")],
        [("dropped", "message", 1, None), ("dropped", "tool call", 1, 0)],
    ),
    "an orphan that is kept stays among the results": (
        [asks("a", "b", "c"), result("a"), result("x"), result("b")],
        [asks("a", "b"), result("a"), result("x"), result("b")],
        [("dropped", "tool call", 0, 2)],
    ),
    "a new id is not that of an orphan": (
        [asks("a"), result("a"), asks("a"), result("a", "two"), result("a-2")],
        [asks("a"), result("a"), asks("a-3"), result("a-3", "two"), result("a-2")],
        [("converted", "tool call", 2, 0), ("converted", "tool result", 3, None)],
    ),
}


@pytest.mark.row("CBF-12")
@pytest.mark.parametrize("name", DROPPING)
def test_one_fault_where_calls_are_dropped_and_orphans_kept(name: str) -> None:
    before, after, said = DROPPING[name]
    repaired = repair(before, unanswered="drop", orphans="keep")
    assert list(repaired.messages) == list(after)
    assert receipt(repaired) == said


@pytest.mark.parametrize(("orphans", "after"), [("tell", (TOLD,)), ("keep", (result("x"),)), ("drop", ())])
def test_an_orphan_is_reported_kept_or_dropped(orphans: Any, after: tuple[p.Message, ...]) -> None:
    messages = (p.user("a"), result("x"), p.user("b"))
    repaired = repair(messages, orphans=orphans)
    assert tuple(repaired.messages) == (p.user("a"), *after, p.user("b"))
    assert [loss.kind for loss in repaired.repairs] == {"tell": ["converted"], "keep": [], "drop": ["dropped"]}[orphans]


# -- what survives -------------------------------------------------------------------------------------------------


@fifty
@given(messages=broken(), way=ways)
def test_the_input_is_left_alone_and_what_is_not_said_to_change_does_not(
    messages: tuple[p.Message, ...], way: Any
) -> None:
    messages = tuple(
        message.replace(
            id=f"id{index}",
            tags=(f"tag{index}",),
            sent_at=index,
            verbatim=True,
            provider={"elsewhere": {"at": index}},
            metadata={"at": index},
            payload=[index],
        )
        for index, message in enumerate(messages)
    )
    before = canonical.encode_many(messages)
    listed = list(messages)
    repaired = repair(listed, **way)
    assert listed == list(messages)
    assert canonical.encode_many(listed) == before
    changed = {loss.message for loss in repaired.repairs}
    gone = {
        loss.message for loss in repaired.repairs if loss.kind == "dropped" and loss.what in ("message", "tool result")
    }
    found = {message.id: message for message in repaired.messages if message.id is not None}
    assert set(found) == {f"id{index}" for index in range(len(messages)) if index not in gone}
    for index, message in enumerate(messages):
        if index in gone:
            continue
        now = found[f"id{index}"]
        assert now is message or index in changed
        for name in ("agent", "mode", "tags", "sent_at", "verbatim", "payload", "metadata"):
            assert getattr(now, name) == getattr(message, name)
        assert now.role == "user" if now.role != message.role else now.provider == message.provider
        assert not isinstance(message, MARKERS) or now is message


@fifty
@given(messages=broken(), way=ways)
def test_the_receipt_is_empty_exactly_when_nothing_changed(messages: tuple[p.Message, ...], way: Any) -> None:
    repaired = repair(messages, **way)
    assert bool(repaired.repairs) == (tuple(repaired.messages) != messages)
    assert (repaired.messages is messages) == (not repaired.repairs)
    for loss in repaired.repairs:
        assert loss.message is not None
        assert loss.part is None or loss.part < len(messages[loss.message].content)


@fifty
@given(messages=broken(), way=ways)
def test_a_call_and_its_result_keep_the_same_id_and_ids_that_are_unique_stay(
    messages: tuple[p.Message, ...], way: Any
) -> None:
    repaired = repair(messages, **way).messages
    counts = Counter(each for message in messages for each in ours(message))
    after = Counter(each for message in repaired for each in ours(message))
    assert set(after.values()) <= {1}
    if way["unanswered"] == "answer":
        assert sum(after.values()) == sum(counts.values())
        assert set(counts) <= set(after)


# -- laws ----------------------------------------------------------------------------------------------------------


@pytest.mark.law(5)
@fifty
@given(messages=st.one_of(broken(), valid()))
def test_what_is_plainly_whole_needs_no_repair(messages: tuple[p.Message, ...]) -> None:
    """An orphan at the end makes sure that every pass is made."""
    orphan = p.tool("orphan", tool_call_id="of no call")
    repaired = repair((*messages, orphan), orphans="tell")
    assert not is_whole((*messages, orphan))
    if is_whole(messages):
        assert [loss.message for loss in repaired.repairs] == [len(messages)]
        assert list(repaired.messages[:-1]) == list(messages)


@pytest.mark.parametrize("orphans", ["tell", "drop"])
def test_a_plain_history_is_known_to_be_whole(orphans: Any) -> None:
    said: tuple[p.Message, ...] = (
        p.user("u"),
        p.assistant(call("a"), call("b")),
        result("b"),
        result("a"),
        p.assistant("done"),
    )
    assert is_whole(said)
    faults: tuple[tuple[p.Message, ...], ...] = (
        (*said, p.user("v"), p.assistant(call("a")), result("a")),
        said[:3],
        (*said[:3], p.user("v"), said[3]),
        (*said, result("a")),
        (*said[:4], p.assistant(p.Reasoning("hm"), finish_reason="error")),
    )
    for fault in faults:
        assert not is_whole(fault)
        assert repair(fault, orphans=orphans).repairs


@pytest.mark.law(5)
@pytest.mark.row("KAI-16")
@fifty
@given(messages=broken(), way=whole_ways)
def test_every_pair_is_whole_afterwards(messages: tuple[p.Message, ...], way: Any) -> None:
    assert broken_pairs(repair(messages, **way).messages) == []


@pytest.mark.law(5)
@fifty
@given(messages=broken(), way=ways)
def test_twice_gives_the_same_bytes_and_the_second_time_does_nothing(messages: tuple[p.Message, ...], way: Any) -> None:
    once, again = repair(messages, **way), repair(messages, **way)
    assert canonical.encode_many(once.messages) == canonical.encode_many(again.messages)
    assert once.repairs == again.repairs
    settled = repair(once.messages, **way)
    assert settled.repairs == ()
    assert settled.messages is once.messages


@pytest.mark.law(5)
@fifty
@given(messages=broken(), way=whole_ways)
@over("target", TARGETS)
def test_no_wire_finds_a_pair_to_repair(target: str, messages: tuple[p.Message, ...], way: Any) -> None:
    assert_sendable(target, repair(messages, **way).messages)


@pytest.mark.law(5)
@fifty
@given(messages=valid(), way=whole_ways, data=st.data())
def test_any_piece_of_a_valid_history_can_be_sent(messages: tuple[p.Message, ...], way: Any, data: Any) -> None:
    cut = data.draw(st.integers(0, len(messages)))
    chosen = data.draw(st.lists(st.booleans(), min_size=len(messages), max_size=len(messages)))
    subset = tuple(message for message, stays in zip(messages, chosen, strict=True) if stays)
    repaired = [repair(piece, **way).messages for piece in (messages[:cut], messages[cut:], subset)]
    assert [broken_pairs(each) for each in repaired] == [[], [], []]
    run_each((target, lambda target=target: assert_each_sendable(target, repaired)) for target in TARGETS)


def assert_each_sendable(target: str, pieces: list[tuple[p.Message, ...]]) -> None:
    for each in pieces:
        assert_sendable(target, each)


@pytest.mark.law(5)
@pytest.mark.parametrize("many", [2, pytest.param(len(wires.names()), marks=pytest.mark.long)])
@pytest.mark.recorded(share=8)
def test_any_end_of_a_recorded_conversation_can_be_sent(exchange: Exchange, many: int) -> None:
    """Each piece goes to as many wires, not the same ones for each; a thousand recordings give every wire thousands."""
    rng = random.Random(exchange.file.stem)
    request = wires.get(exchange.wire).decode_request(exchange.record["request"])
    messages = request.messages
    pieces = [messages[:cut] for cut in range(len(messages) + 1)] + [messages[cut:] for cut in range(len(messages) + 1)]
    for piece in pieces:
        repaired = repair(piece)
        assert broken_pairs(repaired.messages) == []
        assert repair(repaired.messages) == (repaired.messages, ())
        for target in rng.sample(wires.names(), many):
            assert_sendable(target, repaired.messages, ruled=target != exchange.wire)


def assert_sendable(target: str, messages: Sequence[p.Message], *, ruled: bool = True) -> None:
    """No pair is left to repair; with ``ruled``, the provider takes the body (some recorded ones were refused)."""
    request = p.Request(messages=tuple(messages), model="some-model")
    encoded = wires.get(target).encode_request(request)
    assert [loss for loss in encoded.losses if loss.why.startswith(PAIR_LOSSES)] == []
    assert wires.get(target).encode_request(request).body == encoded.body
    name, _, variant = target.partition(":")
    assert not ruled or rules.check_request(name, encoded.body, variant or None) == []


@pytest.mark.row("CBF-13")
@pytest.mark.parametrize("target", TARGETS)
def test_an_orphan_that_was_kept_reaches_every_wire_as_user_text(target: str) -> None:
    messages = (p.user("look"), result("x", "what the user ran"), p.assistant("I see"), p.user("well?"))
    repaired = repair(messages, orphans="keep")
    assert repaired.messages is messages
    wire = wires.get(target)
    encoded = wire.encode_request(p.Request(messages=messages, model="some-model"))
    assert [(x.message, x.kind) for x in encoded.losses if x.why.startswith("answers no call")] == [(1, "converted")]
    decoded = wire.decode_request(encoded.body).messages
    assert not any(isinstance(message, p.ToolMessage) for message in decoded)
    assert any(isinstance(message, p.UserMessage) and "what the user ran" in message.text for message in decoded)


# -- the rule for unanswered calls, once more ----------------------------------------------------------------------


def dropped_by_the_rule(messages: Sequence[p.Message]) -> list[p.AssistantMessage]:
    """docs/spec/codebuff.md#2.3, read from front to back: the assistant messages that stay, their ids blanked."""
    pending: dict[str, list[tuple[int, int]]] = {}
    gone: set[tuple[int, int]] = set()
    for index, message in enumerate(messages):
        if isinstance(message, (p.UserMessage, p.SystemMessage, p.DeveloperMessage)):
            gone.update(*pending.values())
            pending = {}
        elif isinstance(message, p.ToolMessage):
            pending.pop(message.tool_call_id, None)
        for position, part in enumerate(message.content):
            if isinstance(part, p.ToolCall) and part.provider_executed is not True:
                pending.setdefault(part.id, []).append((index, position))
    gone.update(*pending.values())
    stay: list[p.AssistantMessage] = []
    for index, message in enumerate(messages):
        if isinstance(message, p.AssistantMessage):
            content = [part for position, part in enumerate(message.content) if (index, position) not in gone]
            if content or not message.content:
                stay.append(blanked(message.replace(content=content)))
    return stay


def blanked(message: p.AssistantMessage) -> p.AssistantMessage:
    parts = [part.replace(id="") if isinstance(part, p.ToolCall) else part for part in message.content]
    return message.replace(content=parts)


@pytest.mark.row("CBF-12")
@fifty
@given(messages=histories(max_size=12))
def test_exactly_the_calls_of_the_rule_are_dropped(messages: tuple[p.Message, ...]) -> None:
    repaired = repair(messages, unanswered="drop", orphans="keep").messages
    assistants = [blanked(message) for message in repaired if isinstance(message, p.AssistantMessage)]
    assert assistants == dropped_by_the_rule(messages)
    results = [m.replace(tool_call_id=None) for m in repaired if isinstance(m, p.ToolMessage) and m.source != REPAIR]
    given_results = [m.replace(tool_call_id=None) for m in messages if isinstance(m, p.ToolMessage)]
    assert Counter(map(canonical.encode, results)) == Counter(map(canonical.encode, given_results))


# -- cost ----------------------------------------------------------------------------------------------------------


class CountedId(str):
    """An id that counts how often it is compared or hashed."""

    __slots__ = ()
    count = 0

    def __eq__(self, other: object) -> bool:
        CountedId.count += 1
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        CountedId.count += 1
        return str.__hash__(self)


def work(do: Callable[[], object]) -> int:
    """Lines run and ids compared."""
    lines = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    CountedId.count = 0
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        do()
    finally:
        sys.settrace(before)
    return lines + CountedId.count


def _turns(size: int) -> list[p.Message]:
    found: list[p.Message] = []
    for number in range(size // 4):
        name = CountedId(f"c{number}")
        found += [p.user("a"), asks(name), result(name), p.assistant("b")]
    return found


def _shuffled(size: int) -> list[p.Message]:
    messages = _turns(size)
    random.Random(7).shuffle(messages)
    return messages


SHAPES = {
    "whole": _turns,
    "shuffled": _shuffled,
    "one id": lambda n: [asks(CountedId("a")), p.user("b"), result(CountedId("a"))] * (n // 3),
    "one id, never answered": lambda n: [result(CountedId("a"))] * (n // 2) + [asks(CountedId("a"))] * (n // 2),
    "one wide turn": lambda n: [
        asks(*[CountedId(f"c{i}") for i in range(n)]),
        *[result(CountedId(f"c{i}")) for i in reversed(range(n))],
    ],
    "one wide turn, results far away": lambda n: [
        asks(*[CountedId("c")] * n),
        p.user("a"),
        *[result(CountedId("c"))] * n,
    ],
}


@pytest.mark.parametrize("way", [WAYS[0], WAYS[-1]], ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_cost_grows_with_the_length(shape: str, way: Any) -> None:
    sizes = [SHAPES[shape](size) for size in (500, 5_000)]
    small, large = (work(lambda each=each: repair(each, **way)) for each in sizes)
    assert small > 500
    assert large < 11 * small


@pytest.mark.parametrize("shape", SHAPES)
def test_the_cost_of_making_pairs_whole_at_encoding_grows_with_the_length(shape: str) -> None:
    sizes = [[Placed(*each) for each in enumerate(SHAPES[shape](size))] for size in (200, 2_000)]
    small, large = (work(lambda each=each: complete(settle(each)[0])) for each in sizes)
    assert small > 200
    assert large < 11 * small
