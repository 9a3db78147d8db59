"""Results that name no call: which call they answer, by history, on every wire, and in a repaired thread."""

from __future__ import annotations

import json

import pytest

import palaver as p
from palaver import wires
from palaver.core.pairs import TIED, tied
from palaver.threads import repair
from palaver.wires._engine.encoder import RequestEncoder
from tests.folding import over

pytestmark = pytest.mark.finding("F-18")

TARGETS = [*wires.names(), *(f"openai_chat:{name}" for name in wires.variants("openai_chat"))]
USER = p.user("Weather and time?")


def call(id: str, name: str = "weather") -> p.ToolCall:
    return p.ToolCall(id, name, "{}")


def calls(*made: p.ToolCall | p.MalformedToolCall) -> p.AssistantMessage:
    return p.AssistantMessage(content=made)


def result(name: str | None = None, id: str | None = None) -> p.ToolMessage:
    return p.tool("18 degrees", tool_name=name, tool_call_id=id)


WEATHER, TIME = call("c1"), call("c2", "time")
BROKEN = p.MalformedToolCall("{", id="c3", name=None, reason="no JSON")

CASES = {
    "its only call": ([USER, calls(WEATHER), result("weather")], {2: "c1"}),
    "its only call, without a name": ([USER, calls(WEATHER), result()], {2: "c1"}),
    "by name among two": ([USER, calls(WEATHER, TIME), result("time"), result("weather")], {2: "c2", 3: "c1"}),
    "what is left behind a name": ([USER, calls(WEATHER, TIME), result(), result("time")], {2: "c1", 3: "c2"}),
    "what is left behind an id": ([USER, calls(WEATHER, call("c2")), result("weather"), result(id="c2")], {2: "c1"}),
    "adjoining messages": ([USER, calls(WEATHER), calls(TIME), result("weather")], {3: "c1"}),
    "behind a marker": ([USER, calls(WEATHER), p.FlushMarker(), result("weather")], {3: "c1"}),
    "the id of an earlier turn": (
        [USER, calls(WEATHER), result(id="c1"), calls(call("c1")), result("weather")],
        {4: "c1"},
    ),
    "two calls of one tool": ([USER, calls(WEATHER, call("c2")), result("weather")], {}),
    "two calls, no name": ([USER, calls(WEATHER, TIME), result()], {}),
    "another tool": ([USER, calls(WEATHER), result("time")], {}),
    "a second one": ([USER, calls(WEATHER), result("weather"), result("weather")], {2: "c1"}),
    "answered by id already": ([USER, calls(WEATHER), result(id="c1"), result("weather")], {}),
    "answered by id later": ([USER, calls(WEATHER), result("weather"), USER, result(id="c1")], {}),
    "behind a user message": ([USER, calls(WEATHER), USER, result("weather")], {}),
    "one id for two calls": ([USER, calls(WEATHER, call("c1", "time")), result("weather")], {}),
    "a call that cannot be read": ([USER, calls(WEATHER, BROKEN), result("weather")], {}),
    "no call": ([USER, result("weather")], {}),
}
ONE = CASES["its only call"][0]
GROWN = [case for case in CASES if case != "adjoining messages"]  # ``google_generate`` marks their first call anew


@pytest.mark.parametrize("case", CASES)
def test_a_result_without_an_id_answers_the_only_call_it_fits(case):
    messages, expected = CASES[case]
    assert tied(messages) == expected


@pytest.mark.parametrize("target", TARGETS)
def test_every_wire_sends_such_a_result_as_the_answer(target):
    encoded = wires.get(target).encode_request(p.Request(tuple(ONE), "m"))
    named = wires.get(target).encode_request(p.Request((*ONE[:2], result("weather", "c1")), "m"))
    assert encoded.body == named.body
    assert [(loss.what, loss.message) for loss in encoded.losses if loss.why == TIED] == [("tool result", 2)]


@pytest.mark.parametrize("target", TARGETS)
@over("case", GROWN)
def test_appended_messages_encode_as_the_whole_request_does(target, case):
    messages = [*CASES[case][0], p.assistant("So."), USER, calls(call("c9")), result("weather"), p.assistant("So.")]
    wire = wires.get(target)
    growing = wire.request_encoder(p.Request(tuple(messages[:1]), "m"))
    for message in messages[1:]:
        growing.append(message)
        growing.chunks()
    whole = wire.encode_request(p.Request(tuple(messages), "m"))
    assert json.loads(b"".join(growing.chunks())) == json.loads(bytes(whole.body))
    assert set(growing.losses) == set(whole.losses)


def test_repair_gives_such_a_result_the_id_of_its_call():
    repaired = repair(ONE)
    assert [message.tool_call_id for message in repaired.messages if isinstance(message, p.ToolMessage)] == ["c1"]
    assert [(loss.kind, loss.why, loss.message) for loss in repaired.repairs] == [("converted", TIED, 2)]
    assert repair(repaired.messages).messages is repaired.messages


def test_a_result_that_two_calls_fit_stays_user_text():
    repaired = repair(CASES["two calls of one tool"][0])
    assert [type(message) for message in repaired.messages][-1] is p.UserMessage


def test_a_recorded_request_goes_back_to_its_wire_as_it_was():
    said = {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "weather", "arguments": "{}"}}]}
    body = json.dumps({"model": "m", "messages": [said, {"role": "tool", "content": "18", "name": "weather"}]})
    wire = wires.get("openai_chat")
    assert json.loads(bytes(wire.encode_request(wire.decode_request(body.encode())).body)) == json.loads(body)


def test_growing_by_such_results_writes_each_turn_once(monkeypatch: pytest.MonkeyPatch):
    rebuilt = []
    rebuild = RequestEncoder._rebuild
    monkeypatch.setattr(RequestEncoder, "_rebuild", lambda self: (rebuilt.append(1), rebuild(self)))
    growing = wires.get("openai_chat").request_encoder(p.Request((USER,), "m"))
    for turn in range(200):
        growing.append(calls(call(f"c{turn}")))
        growing.append(result("weather"))
        growing.chunks()
    assert len(rebuilt) < 10
