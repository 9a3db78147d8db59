"""Consecutive requests begin with the same bytes: on every wire, in another process, with cache marks.

Source: docs/spec/pains.md#10.

Every wire here holds the most there can be: a body, without the brackets that close it, is the beginning of the next.
Three things break that, each for as few bytes as can be, and each has its test:

- a mark that is given up, where the provider moves none by itself: the bytes up to it stay;
- a bridge, where a request brought more than the provider looks back: the bytes up to the end of the one before stay;
- a tool that is called and was not declared, on a wire that must declare it: it stands in the head.
"""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise

import pytest
from bench import prefixes
from hypothesis import given, settings, strategies as st

import palaver as p
from palaver import wires
from palaver.context.marks import BridgeMarks, CachePlan, StableMarks, turn_marks
from palaver.core.messages import SystemMessage
from palaver.store import open_store
from palaver.testing.rules import check_request
from palaver.wires._engine.cache_marks import marking_of
from tests.context.growing import EVERY, TOOLS, conversation, growing, read_again

ON_EVERY_WIRE = pytest.mark.parametrize("wire", EVERY)
SAYS_MARKS = [w for w in EVERY if marking_of(wires.get(w).capabilities.marking, prefixes.MODELS.get(w, "a-model"))]
MOVES_NONE = [w for w in SAYS_MARKS if not wires.get(w).capabilities.marking[0].automatic]
SPARSE = 10**9


def _plan(step: int = SPARSE, key: str | None = "thread-1") -> CachePlan:
    return CachePlan(places=StableMarks(step=step), bridges=BridgeMarks(), key=key)


def _request(wire: str, messages: list[p.Message], plan: CachePlan | None) -> bytes:
    """A body from an encoder that knows nothing yet, without what closes it."""
    system = tuple(each for each in messages if isinstance(each, SystemMessage))
    request = p.Request(
        (*system, *messages[len(system) :]),
        model=prefixes.MODELS.get(wire, "a-model"),
        tools=TOOLS,
        settings=p.Settings(max_tokens=1000, stream=True),
    )
    spoken = wires.get(wire)
    return spoken.encode_request(request if plan is None else spoken.marked(request, plan)).body.removesuffix(b"]}")


def _said(messages: list[p.Message]) -> list[p.Message]:
    return [each for each in messages if not isinstance(each, SystemMessage)]


# -- every wire ------------------------------------------------------------------------------------


@ON_EVERY_WIRE
@pytest.mark.parametrize("marks", [False, True], ids=["plain", "marked"])
def test_each_body_is_the_beginning_of_the_next(wire, marks):
    bodies = list(prefixes.bodies(wire, conversation(wire), _plan() if marks else None, tools=TOOLS))
    assert len(bodies) == 19
    for before, after in pairwise(bodies):
        assert after.startswith(before)


@ON_EVERY_WIRE
@pytest.mark.parametrize("step", [None, SPARSE, 600], ids=["plain", "sparse", "dense"])
def test_another_process_sends_the_same_bytes(wire, step):
    """Each body of a session is what a fresh encoder makes of what was stored, marks and all."""
    messages = conversation(wire, turns=4)
    said = _said(messages)
    ends = prefixes.ends(said)
    sent = prefixes.bodies(wire, messages, None if step is None else _plan(step), tools=TOOLS)
    for end, body in zip(ends, sent, strict=True):
        again = [messages[0], *read_again(said[:end])]
        fresh = _request(wire, again, None if step is None else _plan(step))
        assert _list_of(fresh) == _list_of(body)


def _list_of(body: bytes) -> bytes:
    """The list of messages: the session's head says the model and the stream in its endpoint's way."""
    found = min(at for name in (b'"messages":[', b'"input":[', b'"contents":[') if (at := body.find(name)) >= 0)
    return body[found:]


_STORED = """
import sys
from bench import prefixes
from palaver.store import open_store
from tests.context.growing import TOOLS
from tests.context.test_prefix import _plan
with open_store(sys.argv[1]) as store:
    messages = list(store.open("t").messages)
for wire in sys.argv[2:]:
    *_, last = prefixes.bodies(wire, messages, _plan(600), tools=TOOLS)
    sys.stdout.buffer.write(last + b"\\n")
"""


@pytest.mark.parametrize("seed", ["0", "4711"])
def test_a_process_that_loads_the_thread_goes_on_with_the_same_bytes(tmp_path, seed):
    """For all wires of one stored conversation, with another hash seed; dense marks."""
    messages = conversation("anthropic_messages", turns=4)
    with open_store(tmp_path / "t.db") as store:
        store.open("t").append(*messages)
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    command = [sys.executable, "-c", _STORED, str(tmp_path / "t.db"), *EVERY]
    told = subprocess.run(command, env=environment, capture_output=True, check=True, timeout=120).stdout
    expected = []
    for wire in EVERY:
        *_, last = prefixes.bodies(wire, messages, _plan(600), tools=TOOLS)
        expected.append(last)
    assert told.splitlines() == expected


@pytest.mark.parametrize("wire", EVERY)
@settings(max_examples=15)
@given(data=st.data())
def test_generated_conversations_grow_at_their_end(wire, data):
    messages = data.draw(growing(wire))
    plan = _plan() if data.draw(st.booleans()) else None
    for before, after in pairwise(prefixes.bodies(wire, messages, plan, tools=TOOLS)):
        assert after.startswith(before)


# -- marks that move -------------------------------------------------------------------------------


def _moves(messages: list[p.Message], plan: CachePlan, end: int, after: int) -> tuple[int, ...]:
    """The marks of the first request that the second has not."""
    said = _said(messages)
    return tuple(sorted({*plan.places(said[:end])} - {*plan.places(said[:after])}))


@pytest.mark.parametrize("wire", MOVES_NONE)
def test_a_mark_that_is_given_up_costs_the_bytes_behind_it_and_no_more(wire):
    messages = conversation(wire, turns=12)
    said = _said(messages)
    given_up = 0
    bodies = list(prefixes.bodies(wire, messages, _plan(600), tools=TOOLS))
    for (end, before), (after, body) in pairwise(zip(prefixes.ends(said), bodies, strict=True)):
        gone = _moves(messages, _plan(600), end, after)
        both = prefixes.common(before, body)
        if not gone:
            assert both == len(before)
            continue
        given_up += 1
        unmarked = _request(wire, [messages[0], *said[: gone[0] + 1]], None)
        least = _request(wire, [messages[0], *said[: gone[0]]], None)
        assert len(_list_of(before[:both])) >= len(_list_of(least)) - 1
        assert len(_list_of(before[:both])) <= len(_list_of(unmarked)) + 200
    assert given_up >= 5


def _many_calls(count: int) -> list[p.Message]:
    """The second turn asks for so many things at once."""
    calls = [p.ToolCall(f"c{each}", "look", "{}") for each in range(count)]
    results = [p.tool("r", tool_call_id=call.id, tool_name="look") for call in calls]
    return [
        p.user("one"),
        p.assistant("two"),
        p.user("three"),
        p.assistant(*calls),
        *results,
        p.assistant("so"),
        p.user("4"),
    ]


def test_a_bridge_costs_the_end_of_one_message():
    bodies = list(prefixes.bodies("anthropic_messages", _many_calls(12), _plan(), tools=TOOLS))
    first, second, third, fourth = bodies
    assert second.startswith(first)
    assert third.startswith(second.removesuffix(b"}]}"))
    assert third[len(second) - 3 :].startswith(b',"cache_control":{"type":"ephemeral"}}]}')
    assert fourth.startswith(third)
    assert [body.count(b"cache_control") for body in bodies] == [2, 2, 3, 3]  # the top level, the tools


def test_a_turn_that_is_near_needs_no_bridge():
    bodies = list(prefixes.bodies("anthropic_messages", _many_calls(6), _plan(), tools=TOOLS))
    assert all(after.startswith(before) for before, after in pairwise(bodies))


def test_a_tool_that_was_not_declared_changes_the_head_once():
    """Converse refuses a history with calls and no tools (docs/spec/wires.md#6.2), so calling one declares it."""
    bodies = list(prefixes.bodies("bedrock_converse", conversation("bedrock_converse")))
    alike = [after.startswith(before) for before, after in pairwise(bodies)]
    assert alike == [False] + [True] * 17


# -- marks and providers ---------------------------------------------------------------------------


@pytest.mark.parametrize("wire", SAYS_MARKS)
@pytest.mark.parametrize("places", ["stable", "turns"])
def test_what_is_sent_obeys_the_provider(wire, places):
    """At most four marks, at places that the provider takes."""
    base, _, variant = wire.partition(":")
    plan = _plan(600) if places == "stable" else CachePlan(places=turn_marks, head=False, automatic=False)
    for body in prefixes.bodies(wire, conversation(wire), plan, tools=TOOLS):
        assert check_request(base, body + b"]}", variant or None) == []
        marks = body.count(b'"cache_control"') + body.count(b'"cachePoint"')
        assert 1 <= marks <= 4


@pytest.mark.parametrize("wire", [w for w in EVERY if w not in SAYS_MARKS])
def test_a_provider_that_keeps_by_itself_is_sent_no_mark(wire):
    plan = CachePlan(places=_fail, bridges=_fail, key="thread-1")
    bodies = list(prefixes.bodies(wire, conversation(wire), plan, tools=TOOLS))
    assert not any(b"cache_control" in body or b"cachePoint" in body for body in bodies)
    assert all(
        (b'"prompt_cache_key":"thread-1"' in body) == (wires.get(wire).capabilities.cache_key is not None)
        for body in bodies
    )


def _fail(messages: object) -> tuple[int, ...]:
    raise AssertionError("a place was asked for, and nobody has use for it")


def test_what_is_shared_is_counted():
    assert prefixes.shared([b"abc", b"abcd", b"abX", b"abXY"]) == prefixes.Shared(10, 8, 3, 2)
    assert prefixes.common(b"", b"a") == 0
    assert prefixes.shared(prefixes.bodies("openai_chat", conversation("openai_chat"))).share == 1.0
    said = [p.user("x" * 350), p.assistant("y"), p.user("z" * 350)]
    assert prefixes.price(said, [(), ()], [1, 3]) == 1.0
    assert prefixes.price(said, [(0,), (0, 2)], [1, 3]) == pytest.approx((125 + 10 + 101 * 1.25) / 301)
