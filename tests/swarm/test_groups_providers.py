"""Acceptance group providers: agents of a swarm and their tools, through the wires of real providers, over HTTP."""

import json

import pytest

import palaver as p
from palaver import wires
from palaver.core import canonical
from palaver.models import Http, Model, OverloadedError, Retry, Timeouts
from palaver.swarm import Call, Custom, Recomplete, navigation, tool
from tests.loopback import serve
from tests.models.speaking import TYPES, body_of, endpoint
from tests.swarm.scripts import PLACEHOLDER, agent, at_work

pytestmark = pytest.mark.anyio

WIRES = ["openai_chat", "openai_responses", "anthropic_messages", "google_generate", "cohere_chat", "ollama_chat"]


def says(text):
    return p.Response(p.assistant(text, finish_reason="stop"))


def calls(*made, said=""):
    asked = [p.tool_call(name, arguments, id=call) for name, arguments, call in made]
    return p.Response(p.assistant(*([said] if said else []), tool_calls=asked, finish_reason="tool_calls"))


def model(http, wire, url, **more):
    timeouts = Timeouts(connect=5, write=5, first_token=5, idle=5, whole=5)
    return Model(name=f"loop/{wire}", id="m", endpoint=endpoint(wire, url), http=http, timeouts=timeouts, **more)


def served(wire, *responses, stream=False):
    bodies = [body_of(wire, response, stream=stream) for response in responses]
    kind = TYPES.get(wire, "text/event-stream") if stream else "application/json"
    return serve(*bodies, content_type=kind)


def requests(server, wire):
    return [wires.get(wire).decode_request(body) for _, body in server.requests]


def berth(ship: str, at: dict[str, int]) -> dict[str, object]:
    """Keep a berth for a ship."""
    return {"ship": ship, "berth": at["number"], "kept": True}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.share(2)
async def test_providers_a_tool_goes_there_and_back(wire, stream):
    """Arguments are an object where the wire has objects, and text where it has text; ids link call and result."""
    arguments = {"ship": "Aurora äöü", "at": {"number": 7}}
    answers = calls(("berth", arguments, "call_1")), says("Berth 7 is kept.")
    with served(wire, *answers, stream=stream) as server:
        async with Http() as http:
            a = agent("A", model(http, wire, server.url), tools=[berth], stream=stream)
            async with at_work(a) as it:
                assert await it.session.complete("A berth for the Aurora!") == "Berth 7 is kept."
                request, result = it.session.messages[1:3]
                assert request.tool_calls[0].arguments == arguments
                assert request.tool_calls[0].id == result.tool_call_id
        first, second = requests(server, wire)
    assert [each.name for each in first.tools] == [each.name for each in second.tools] == ["berth"]
    assert [message.role for message in second.messages] == ["system", "user", "assistant", "tool"]
    call, result = second.messages[2].tool_calls[0], second.messages[3]
    assert (call.name, call.arguments) == ("berth", arguments)
    assert "Aurora äöü" in canonical.encode(result).decode()
    if result.tool_call_id is not None:
        assert result.tool_call_id == call.id


@tool
async def look(call: Call, deck: int) -> None:
    """Look at a deck."""
    await call.commit(f"deck {deck} is dry")
    if call.is_last:
        await call.execute("tell")


@pytest.mark.parametrize("wire", WIRES)
async def test_providers_two_calls_at_once_and_what_a_tool_says_itself(wire):
    answers = calls(("look", {"deck": 1}, "a"), ("look", {"deck": 2}, "b")), says("Both are dry.")
    with served(wire, *answers) as server:
        async with Http() as http:
            a = agent("A", model(http, wire, server.url), tools=[look], max_tool_calls=2)
            async with at_work(a) as it:
                assert await it.session.complete("Look!") == "Both are dry."
        second = requests(server, wire)[1]
    decks = [call.arguments["deck"] for message in second.messages for call in getattr(message, "tool_calls", ())]
    assert decks == [1, 2]
    results = [canonical.encode(message).decode() for message in second.messages if message.role == "tool"]
    assert ["deck 1 is dry" in results[0], "deck 2 is dry" in results[1], len(results)] == [True, True, 2]
    assert second.messages[-1].text == "tell"


@pytest.mark.parametrize("other", ["openai_chat", "cohere_chat", "ollama_chat"])
async def test_providers_of_different_wires_share_a_conversation(other):
    """The second agent gets what was said, and nothing of the calls of the first."""
    first = says("Welcome."), calls(("to_b", {}, "x"))
    with served("anthropic_messages", *first) as one, served(other, says("I am B.")) as two:
        async with Http() as http:
            a = agent("A", model(http, "anthropic_messages", one.url), tools=[navigation("B")])
            b = agent("B", model(http, other, two.url))
            async with at_work(a, b) as it:
                assert await it.session.complete("Hello") == "Welcome."
                assert await it.session.complete("The other, please") == "I am B."
        (request,) = requests(two, other)
    assert [(message.role, message.text) for message in request.messages] == [
        ("system", "PB"),
        ("user", "Hello"),
        ("assistant", "Welcome."),
        ("user", "The other, please"),
    ]


@pytest.mark.parametrize(
    ("wire", "where"),
    [("openai_chat", ()), ("ollama_chat", ("options",)), ("cohere_chat", ())],
)
async def test_providers_settings_reach_the_wire(wire, where):
    with served(wire, says("fine")) as server:
        async with Http() as http:
            a = agent("A", model(http, wire, server.url), settings=p.Settings(temperature=0.0, seed=7))
            async with at_work(a) as it:
                assert await it.session.complete("hi") == "fine"
        sent = json.loads(server.requests[0][1])
    for key in where:
        sent = sent[key]
    assert (sent["temperature"], sent["seed"]) == (0.0, 7)


async def test_providers_an_answer_of_ollama_whose_calls_have_no_ids():
    body = {"model": "m", "created_at": "2025-01-01T00:00:00Z", "done": True, "done_reason": "stop"}
    call = {"function": {"name": "look", "arguments": {"deck": 3}}}
    first = {**body, "message": {"role": "assistant", "content": "", "tool_calls": [call]}}
    second = {**body, "message": {"role": "assistant", "content": "It is dry."}}
    with serve(json.dumps(first).encode(), json.dumps(second).encode(), content_type="application/json") as server:
        async with Http() as http, at_work(agent("A", model(http, "ollama_chat", server.url), tools=[look])) as it:
            assert await it.session.complete("Look!") == "It is dry."
            request, result = it.session.messages[1:3]
            assert request.tool_calls[0].id == result.tool_call_id != ""


@pytest.mark.row("ASK-14")
@pytest.mark.parametrize("wire", ["openai_chat", "cohere_chat", "ollama_chat"])
@pytest.mark.parametrize(
    ("rescue", "answer", "asked"),
    [(Recomplete("again"), "better", 2), (Custom(lambda *_: "instead"), "instead", 1)],
    ids=["recomplete", "custom"],
)
async def test_providers_a_rescue(wire, rescue, answer, asked):
    with served(wire, says(""), says("better")) as server:
        async with Http() as http:
            a = agent("A", model(http, wire, server.url), rescue=rescue)
            async with at_work(a) as it:
                assert await it.session.complete("hi") == answer
        assert len(server.requests) == asked


@pytest.mark.row("ASK-17")
@pytest.mark.parametrize("policy", ["raise", "placeholder"])
async def test_providers_one_that_is_overloaded(policy):
    with serve(b'{"error":{"message":"busy"}}', content_type="application/json", status=529) as server:
        async with Http() as http:
            bare = model(http, "openai_chat", server.url, retry=Retry(attempts=1))
            async with at_work(agent("A", bare, on_model_error=policy)) as it:
                if policy == "placeholder":
                    assert await it.session.complete("hi") == PLACEHOLDER
                else:
                    with pytest.raises(OverloadedError):
                        await it.session.complete("hi")
                assert it.log[0] == 'user/user"hi"'
                assert not any(line.startswith("rescue") for line in it.log)
