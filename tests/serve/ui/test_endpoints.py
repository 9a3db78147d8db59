"""Both protocols over a real server: what is streamed, and what is refused."""

import contextlib
import datetime as dt
import json
import re

import anyio
import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palaver import Agent, MessageError, assistant, open_store, tool_call
from palaver.agent import Rule, ToolContext, approve, pending
from palaver.models import FunctionModel, ScriptedModel
from palaver.serve.http.access import Access
from palaver.serve.ui import AgUiEndpoint, AiSdkEndpoint
from palaver.store.memory import MemoryStore
from palaver.swarm import Swarm, SwarmAgent, navigation
from tests.serve.ui.served import agent, answer
from tests.swarm.served import served

pytestmark = pytest.mark.anyio
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{21}")


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
async def server():
    store = MemoryStore()
    routes = [
        *AiSdkEndpoint(agent(), store=store).routes("/chat"),
        *AiSdkEndpoint(agent(), resume=False).routes("/bare"),
        *AgUiEndpoint(agent(), store=store).routes("/agui"),
        *AgUiEndpoint(agent()).routes("/bare-agui"),
        *AiSdkEndpoint(agent(), access=Access(token="t")).routes("/closed"),
    ]
    async with served(Starlette(routes=routes)) as (url, _), httpx.AsyncClient(base_url=url) as client:
        client.store = store
        yield client


def said(text, id="u"):
    return {"id": id, "role": "user", "parts": [{"type": "text", "text": text}]}


def file_of(**fields):
    return {"id": "u", "role": "user", "parts": [{"type": "file", "mediaType": "image/png", **fields}]}


def ui(text, id="c", **more):
    return {"id": id, "messages": [{"id": "u", "role": "user", "parts": [{"type": "text", "text": text}]}], **more}


def agui(text, **more):
    return {"threadId": "t", "runId": "r", "messages": [{"id": "u", "role": "user", "content": text}], **more}


def chunks(response):
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    data = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line and not line.startswith(":")]
    return [json.loads(ID.sub("ID", each)) for each in data if each != "[DONE]"]


async def test_an_answer_of_the_ai_sdk_has_steps_parts_calls_and_results(server):
    response = await server.post("/chat", json=ui("weather"))
    assert response.headers["x-vercel-ai-ui-message-stream"] == "v1"
    assert response.text.endswith("data: [DONE]\n\n")
    assert chunks(response) == [
        {"type": "start", "messageId": "ID"},
        {"type": "start-step"},
        {"type": "reasoning-start", "id": "reasoning-1"},
        {"type": "reasoning-delta", "id": "reasoning-1", "delta": "hm"},
        {"type": "reasoning-end", "id": "reasoning-1"},
        {"type": "text-start", "id": "text-2"},
        {"type": "text-delta", "id": "text-2", "delta": "I look."},
        {"type": "text-end", "id": "text-2"},
        *(
            {"type": "tool-input-available", "toolCallId": city, "toolName": "weather", "dynamic": True}
            | {"input": {"city": city}}
            for city in ("Husum", "Kiel")
        ),
        *(
            {
                "type": "tool-output-available",
                "toolCallId": city,
                "output": {"city": city, "rain": True},
                "dynamic": True,
            }
            for city in ("Husum", "Kiel")
        ),
        {"type": "finish-step"},
        {"type": "start-step"},
        {"type": "text-start", "id": "text-3"},
        {"type": "text-delta", "id": "text-3", "delta": "Done: "},
        {"type": "text-end", "id": "text-3"},
        {"type": "finish-step"},
        {"type": "finish", "finishReason": "stop", "messageMetadata": {"outcome": "completed"}},
    ]


async def test_an_answer_of_ag_ui_has_the_events_of_the_protocol(server):
    found = chunks(await server.post("/agui", json=agui("weather", tools=[], state={"n": 1})))
    assert [each["type"] for each in found] == [
        "RUN_STARTED",
        "STEP_STARTED",
        "REASONING_START",
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_END",
        "REASONING_END",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        *["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"] * 2,
        "TOOL_CALL_RESULT",
        "TOOL_CALL_RESULT",
        "STEP_FINISHED",
        "STEP_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "STEP_FINISHED",
        "RUN_FINISHED",
    ]


FERRY = {"name": "ferry", "description": "Call the ferry.", "parameters": {"type": "object"}}


def tool_results(found):
    return {each["toolCallId"]: each["content"] for each in found if each["type"] == "TOOL_CALL_RESULT"}


async def test_a_tool_of_the_front_end_ends_the_run_and_its_result_goes_on(server):
    first = chunks(await server.post("/agui", json=agui("ferry", tools=[FERRY])))
    assert [each["toolCallName"] for each in first if each["type"] == "TOOL_CALL_START"] == ["ferry"]
    assert first[-1]["outcome"] == {"type": "success"}
    told = agui("ferry", tools=[FERRY])
    call = {"id": "ferry1", "type": "function", "function": {"name": "ferry", "arguments": "{}"}}
    told["messages"] += [
        {"id": "a", "role": "assistant", "toolCalls": [call]},
        {"id": "t", "role": "tool", "toolCallId": "ferry1", "content": "it comes"},
    ]
    for path, body in (("/agui", told), ("/bare-agui", told | {"threadId": "other"})):
        found = chunks(await server.post(path, json=body))
        assert "".join(each["delta"] for each in found if each["type"] == "TEXT_MESSAGE_CONTENT") == "Done: it comes"
    again = chunks(await server.post("/agui", json=agui("hello")))
    assert again[-1]["type"] == "RUN_FINISHED"


async def test_the_result_of_a_front_end_does_not_stand_for_an_approval(server):
    chunks(await server.post("/agui", json=agui("book")))
    told = agui("book")
    call = {"id": "b1", "type": "function", "function": {"name": "book", "arguments": "{}"}}
    told["messages"] += [
        {"id": "a", "role": "assistant", "toolCalls": [call]},
        {"id": "t", "role": "tool", "toolCallId": "b1", "content": "booked"},
    ]
    refused = await server.post("/agui", json=told)
    assert (refused.status_code, refused.json()["error"]["message"]) == (409, "no call waits for the results")
    assert len(pending(server.store.open("chat/t"))) == 1


async def test_a_tool_that_changes_the_state_sends_a_snapshot(server):
    found = chunks(await server.post("/agui", json=agui("count", state={"n": 1})))
    assert [each["snapshot"] for each in found if each["type"] == "STATE_SNAPSHOT"] == [{"n": 2}]
    unchanged = chunks(await server.post("/agui", json=agui("weather", state={"n": 1})))
    assert not [each for each in unchanged if each["type"] == "STATE_SNAPSHOT"]


@pytest.mark.parametrize("more", [{}, {"state": {}}, {"state": None}])
async def test_there_is_a_state_when_the_client_sends_none(server, more):
    found = chunks(await server.post("/agui", json=agui("count", **more)))
    assert [each["snapshot"] for each in found if each["type"] == "STATE_SNAPSHOT"] == [{"n": 1}]
    other = chunks(await server.post("/chat", json=ui("count")))
    assert [each["output"] for each in other if each["type"] == "tool-output-available"] == ["counted"]


def looped():
    made = {"y": []}
    made["x"] = made
    made["y"] += [made["y"], made]
    return made


def deep():
    made = []
    for _ in range(5000):
        made = [made]
    return made


NO_JSON = {
    "a set": {"x": {1}},
    "a time": {"x": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)},
    "an object": {"x": object()},
    "not a number": {"x": float("nan")},
    "a key": {5: 1},
    "a loop": looped(),
    "depth": deep(),
    "text": {"x": b"\xff"},
}


@pytest.mark.parametrize("kind", NO_JSON)
async def test_what_a_tool_shows_that_is_no_json_is_left_out_of_a_whole_answer(kind, caplog):
    async def odd(context: ToolContext) -> str:
        """Show what nobody can read."""
        context.emit("well")
        context.emit(NO_JSON[kind])
        context.values["state"] = NO_JSON[kind]
        return "done"

    async def answer(prompt):
        return "over" if prompt.messages[-1].role == "tool" else assistant(tool_calls=[tool_call("odd", {}, id="o1")])

    store, served_agent = MemoryStore(), Agent(FunctionModel(answer), tools=[odd], policy="allow")
    for endpoint, body, last in (
        (AiSdkEndpoint(served_agent, store=store), ui("hi"), "finish"),
        (AgUiEndpoint(served_agent, store=store), agui("hi", state={"a": 1}), "RUN_FINISHED"),
    ):
        app = Starlette(routes=endpoint.routes("/ui"))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            found = chunks(await client.post("/ui", json=body))
            progress = [each.get("data") or each["value"] for each in found if "progress" in str(each.values())]
            assert [each["value"] for each in progress] == ["well"]
            assert found[-1]["type"] == last
            assert [each["delta"] for each in found if each.get("delta") == "over"] == ["over"]
            assert not [each for each in found if each["type"] == "STATE_SNAPSHOT"]
    for thread in ("chat/c", "chat/t"):
        roles = [each.role for each in store.open(thread).path().messages]
        assert roles == ["user", "assistant", "tool", "assistant"]
    assert "not sent to the client: state" in caplog.text
    assert "not sent to the client: progress" in caplog.text


async def test_whatever_is_raised_ends_the_answer_as_an_error(monkeypatch):
    store = MemoryStore()
    for endpoint, body, error in (
        (AiSdkEndpoint(agent(), store=store), ui("hi"), {"type": "error", "errorText": "The run failed."}),
        (AgUiEndpoint(agent(), store=store), agui("hi"), {"type": "RUN_ERROR", "message": "The run failed."}),
    ):
        monkeypatch.setattr(store, "load", lambda _: 1 / 0)
        app = Starlette(routes=endpoint.routes("/ui"))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            assert error in chunks(await client.post("/ui", json=body))
            monkeypatch.undo()
            assert error not in chunks(await client.post("/ui", json=body))


async def test_the_context_of_the_front_end_is_part_of_the_system_prompt(server):
    context = [{"description": "The user's boat", "value": "Gesine"}, {"description": "", "value": "It is low tide."}]
    found = chunks(await server.post("/agui", json=agui("system", context=context)))
    text = "".join(each["delta"] for each in found if each["type"] == "TEXT_MESSAGE_CONTENT")
    assert text.endswith("The user's boat: Gesine\nIt is low tide.")


DEEP = json.loads('{"x":' * 300 + "1" + "}" * 300)


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ({"tools": [{"name": 5}]}, "tools[0]"),
        ({"tools": [{"name": "f", "parameters": "x"}]}, "tools[0].parameters"),
        ({"tools": [{"name": "book", "description": ""}]}, "tools[0].name"),
        ({"tools": [{"name": "Book", "description": ""}]}, "tools[0].name"),
        ({"tools": [{"name": "a b", "description": ""}]}, "tools"),
        ({"tools": [{"name": "f", "description": ""}] * 2}, "tools"),
        ({"tools": [{"name": "f", "parameters": {"type": 5}}]}, "tools"),
        ({"tools": [{"name": f"f{number}", "description": ""} for number in range(129)]}, "more than 128 tools"),
        ({"tools": [{"name": "f", "parameters": DEEP}]}, "nested too deeply"),
        ({"state": DEEP}, "nested too deeply"),
        ({"resume": [{"interruptId": "a", "payload": {"arguments": DEEP}}]}, "nested too deeply"),
        ({"context": [{"value": 5}]}, "context[0].value"),
    ],
)
async def test_what_a_front_end_offers_is_checked(server, more, place):
    response = await server.post("/agui", json=agui("hi", **more))
    assert (response.status_code, place in response.text) == (400, True)


async def test_a_client_adds_the_output_of_a_tool_that_it_runs(server):
    waiting = chunks(await server.post("/chat", json=ui("where")))
    assert [each["toolName"] for each in waiting if each["type"] == "tool-input-available"] == ["where"]
    assert not [each for each in waiting if each["type"] == "tool-approval-request"]
    part = {"type": "dynamic-tool", "toolName": "where", "toolCallId": "where1", "input": {}}
    part |= {"state": "output-available", "output": {"at": "Husum"}}
    body = ui("where")
    body["messages"].append({"id": "a", "role": "assistant", "parts": [{"type": "step-start"}, part]})
    found = chunks(await server.post("/chat", json=body))
    assert [each["output"] for each in found if each["type"] == "tool-output-available"] == [{"at": "Husum"}]


async def test_the_store_has_the_conversation_under_a_name_that_no_client_can_leave(server):
    await server.post("/chat", json=ui("one", id="x"))
    await server.post("/chat", json=ui("two", id="x", messages=[said("two", "u2")]))
    path = server.store.open("chat/x").path()
    assert [each.text for each in path.messages] == ["one", "Hello one", "two", "Hello two"]
    assert {info.id for info in server.store.threads()} == {"chat/x"}


async def test_a_call_is_approved_and_rejected_by_the_next_request(server):
    waiting = chunks(await server.post("/chat", json=ui("book")))
    assert {"type": "tool-approval-request", "approvalId": "b1", "toolCallId": "b1"} in waiting
    part = {"type": "dynamic-tool", "toolName": "book", "toolCallId": "b1", "input": {"berth": 7}}
    part |= {"state": "approval-responded", "approval": {"id": "b1", "approved": True}}
    body = ui("book")
    body["messages"].append({"id": "a", "role": "assistant", "parts": [{"type": "step-start"}, part]})
    found = chunks(await server.post("/chat", json=body))
    assert found[0] == {"type": "start", "messageId": "a"}
    assert {"type": "tool-output-available", "toolCallId": "b1", "output": "booked 7", "dynamic": True} in found
    assert (await server.post("/chat", json=body)).status_code == 409  # a second click


def decision(protocol, call, fields):
    """A request that decides a call: an approval of the AI SDK, or an answer to an interrupt of AG-UI."""
    if protocol is AgUiEndpoint:
        return agui("book", resume=[{"interruptId": call, "status": "resolved", "payload": fields}])
    part = {"type": "dynamic-tool", "toolName": "book", "toolCallId": call, "input": {"berth": 7}}
    part |= {"state": "approval-responded", "approval": {"id": call, **fields}}
    return ui("book", id="t") | {
        "messages": [*ui("book")["messages"], {"id": "a", "role": "assistant", "parts": [part]}]
    }


@pytest.mark.parametrize(
    ("protocol", "wrong", "reason"),
    [
        (AiSdkEndpoint, ("b9", {"approved": True}), "nothing is pending for call 'b9'; pending: b1"),
        (AgUiEndpoint, ("b9", {"approved": True}), "nothing is pending for call 'b9'; pending: b1"),
        (AgUiEndpoint, ("b1", {"arguments": {"berth": "x"}}), "the edited arguments of call 'b1' do not fit 'book'"),
        (AgUiEndpoint, ("b1", {"answer": "7"}), "'answer' is not allowed for call 'b1'"),
    ],
)
@pytest.mark.parametrize("kind", ["agent", "swarm"])
async def test_decisions_that_do_not_fit_are_refused_before_the_stream_and_decide_nothing(
    kind, protocol, wrong, reason, caplog
):
    def book(berth: int) -> str:
        """Book a berth."""
        return f"booked {berth}"

    rule = Rule(judgement="ask", choices=("approve", "edit", "reject"))
    options = {"tools": [book], "policy": {"book": rule}}
    async with contextlib.AsyncExitStack() as stack:
        store = MemoryStore()
        if kind == "agent":
            source = Agent(FunctionModel(answer), **options)
        else:
            swarm = Swarm("chat", [SwarmAgent("desk", FunctionModel(answer), **options)])
            source = await stack.enter_async_context(swarm.start(store=store))
        endpoint = protocol(source, store=store if kind == "agent" else None)
        transport = httpx.ASGITransport(Starlette(routes=endpoint.routes("/ui")))
        client = await stack.enter_async_context(httpx.AsyncClient(transport=transport, base_url="http://localhost"))
        chunks(await client.post("/ui", json=agui("book") if protocol is AgUiEndpoint else ui("book", id="t")))
        refused = await client.post("/ui", json=decision(protocol, *wrong))
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "decision")
        assert reason in refused.json()["error"]["message"]
        approved, name = decision(protocol, "b1", {"approved": True}), "chat/t" if kind == "agent" else "chat:t"
        late = await endpoint.respond(Posted(approved), conversation=name)
        assert "booked 7" in (await client.post("/ui", json=approved)).text
        again = await client.post("/ui", json=approved)
        assert (again.status_code, again.json()["error"]["code"]) == (409, "decision")
        sent = []

        async def send(message):
            sent.append(message)

        await late({"type": "http"}, anyio.sleep_forever, send)
        assert b"nothing is pending for call 'b1'" in b"".join(each.get("body", b"") for each in sent)
        assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("entry", "result"),
    [
        ({"status": "resolved", "payload": True}, "booked 7"),
        ({"status": "resolved", "payload": {"arguments": {"berth": 9}}}, "booked 9"),
        ({"status": "resolved", "payload": {"answer": "ask again"}}, "ask again"),
        ({"status": "resolved", "payload": {"approved": False, "reason": "too dear"}}, "too dear"),
        ({"status": "cancelled"}, "rejected"),
    ],
)
async def test_an_interrupt_is_resumed(server, entry, result):
    first = chunks(await server.post("/agui", json=agui("book")))
    assert [each["id"] for each in first[-1]["outcome"]["interrupts"]] == ["b1"]
    found = chunks(await server.post("/agui", json=agui("book", resume=[{"interruptId": "b1", **entry}])))
    (content,) = [each["content"] for each in found if each["type"] == "TOOL_CALL_RESULT"]
    assert result in content
    assert found[-1]["outcome"] == {"type": "success"}


async def test_errors_are_sent_without_their_text(server):
    sdk, ag = await server.post("/chat", json=ui("fail")), await server.post("/agui", json=agui("fail"))
    assert "secret-key" not in sdk.text + ag.text
    assert {"type": "error", "errorText": "The run failed."} in chunks(sdk)
    assert chunks(ag)[-1] == {"type": "RUN_ERROR", "message": "The run failed."}
    assert '"errorText":"The tool failed."' in (await server.post("/chat", json=ui("broken"))).text


async def test_without_a_store_the_messages_of_the_client_are_the_conversation(server):
    body = ui("one")
    body["messages"] += [
        {"id": "a", "role": "assistant", "parts": [{"type": "text", "text": "Hello one"}]},
        {"id": "v", "role": "user", "parts": [{"type": "text", "text": "two"}]},
    ]
    assert '"Hello two"' in (await server.post("/bare", json=body)).text
    assert '"Hello one"' in (await server.post("/bare", json=ui("one", trigger="regenerate-message"))).text


@pytest.mark.parametrize("path", ["/bare", "/bare-agui"])
async def test_without_a_store_no_approval_is_offered_and_the_model_is_told(server, path):
    told = "Not run: this call needs an approval, and nobody can give one here."
    found = chunks(await server.post(path, json=ui("book") if path == "/bare" else agui("book")))
    assert "approval-request" not in str(found)
    assert told in str([each for each in found if each["type"] in {"tool-output-error", "TOOL_CALL_RESULT"}])
    assert f"Done: {told}" in "".join([each.get("delta", "") for each in found])
    assert found[-1].get("finishReason", found[-1].get("outcome")) in ("stop", {"type": "success"})


@pytest.mark.parametrize("decision", [approve(), None])
async def test_without_a_store_the_function_of_the_agent_decides(decision):
    rule = Rule(judgement="ask", choices=("approve", "reject"))
    options = {
        "tools": [look],
        "policy": {"look": rule},
        "decide": lambda _: {} if decision is None else {"c1": decision},
    }
    script = [assistant(tool_calls=[tool_call("look", {"city": "Kiel"}, id="c1")]), "done"]
    endpoint = AiSdkEndpoint(Agent(ScriptedModel(script), **options))
    transport = httpx.ASGITransport(Starlette(routes=endpoint.routes("/ui")))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        found = chunks(await client.post("/ui", json=ui("hi")))
    (result,) = [each for each in found if each["type"].startswith("tool-output")]
    assert ("rain in Kiel" if decision else "nobody can give one here") in str(result)


async def test_another_answer_is_another_branch_of_the_thread(server):
    await server.post("/chat", json=ui("one", id="y"))
    await server.post("/chat", json=ui("one", id="y", trigger="regenerate-message"))
    thread = server.store.open("chat/y")
    assert [each.text for each in thread.path().messages] == ["one", "Hello one"]
    assert len(server.store.read("chat/y")) == 3


@pytest.mark.parametrize("kind", ["memory", "sqlite.db"])
async def test_the_id_of_a_message_says_where_it_is_answered(kind, tmp_path):
    prompts = []

    async def model(prompt):
        prompts.append([each.text for each in prompt.messages])
        return f"to {prompt.messages[-1].text}"

    with MemoryStore() if kind == "memory" else open_store(tmp_path / kind) as store:
        endpoint = AiSdkEndpoint(Agent(FunctionModel(model)), store=store)
        transport = httpx.ASGITransport(Starlette(routes=endpoint.routes("/chat")))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:

            async def post(*messages, **more):
                found = chunks(await client.post("/chat", json={"id": "c", "messages": messages, **more}))
                assert found[-1]["finishReason"] == "stop"
                return [each.text for each in store.open("chat/c").path().messages]

            one, answer, two = said("one", "u1"), said("to one", "a1") | {"role": "assistant"}, said("two", "u2")
            file = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64," + "aGkh" * 1000}
            two["parts"].append(file)
            assert await post(one) == ["one", "to one"]
            whole = ["one", "to one", "two", "to two"]
            assert await post(one, answer, two) == whole
            assert await post(one, answer, two) == whole  # a retry
            assert await post(one, answer, two, trigger="regenerate-message", messageId="a2") == whole
            assert prompts[1:] == [["one", "to one", "two"]] * 3
            assert len(store.read("chat/c")) == 6
            edited = said("two, edited", "u2")
            assert await post(one, answer, edited) == ["one", "to one", "two, edited", "to two, edited"]
            assert await post(one, trigger="regenerate-message", messageId="a1") == ["one", "to one"]
            assert prompts[-1] == ["one"]
            stored = store.open("chat/c").path()[0].id
            assert await post(said("first", stored)) == ["first", "to first"]  # the id that the store gave it
            assert await post(one, answer, edited) == ["one", "to one", "two, edited", "to two, edited"]
            assert await post(one, answer, said("three", "u3"), trigger="regenerate-message") == [
                *["one", "to one", "two, edited", "to two, edited"],
                *["three", "to three"],
            ]
            without = said("again")
            del without["id"]
            assert (await post(without, trigger="regenerate-message"))[-1] == "to three"
            assert (await post(without))[-2:] == ["again", "to again"]
            assert len({entry.id for entry in store.read("chat/c")}) == len(store.read("chat/c"))


async def test_an_ag_ui_message_that_comes_twice_is_asked_once(server):
    for _ in range(2):
        chunks(await server.post("/agui", json=agui("one")))
    assert [each.text for each in server.store.open("chat/t").path().messages] == ["one", "Hello one"]


async def test_a_stream_is_resumed_while_it_goes_on_and_one_request_is_answered_at_a_time(server):
    async with server.stream("POST", "/chat", json=ui("slow", id="s")) as first:
        await anext(first.aiter_bytes())
        assert (await server.post("/chat", json=ui("slow", id="s"))).status_code == 409
    again = await server.get("/chat/s/stream")
    assert [each["type"] for each in chunks(again)][:2] == ["start", "start-step"]
    assert '"Hello slow"' in again.text
    assert (await server.get("/chat/s/stream")).status_code == 204
    assert [each.text for each in server.store.open("chat/s").path().messages] == ["slow", "Hello slow"]


async def test_a_conversation_is_answered_once_at_a_time_at_all_endpoints_of_a_store(server):
    async with server.stream("POST", "/chat", json=ui("slow", id="t")) as first:
        pieces = first.aiter_text()
        await anext(pieces)
        assert (await server.post("/agui", json=agui("quick"))).status_code == 409
        assert (await server.get("/agui/t/stream")).status_code == 204  # it is of another protocol
        assert (await server.post("/bare", json=ui("quick", id="t"))).status_code == 200
        assert (await server.delete("/agui/t")).json() == {"stopped": True}
        text = "".join([piece async for piece in pieces])
    assert '"type":"abort"' in text
    assert chunks(await server.post("/agui", json=agui("quick")))[-1]["type"] == "RUN_FINISHED"


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("sent", [0, 1, 2])
async def test_a_send_that_fails_is_a_reader_who_left(resume, sent):
    store, ended = MemoryStore(), []

    async def model(_prompt):
        try:
            await anyio.sleep(0.05)
        finally:
            ended.append("ended")
        return "the answer"

    endpoint = AiSdkEndpoint(Agent(FunctionModel(model)), store=store, resume=resume)
    response = await endpoint.respond(Posted(ui("hi")), conversation="c")
    messages = []

    async def send(message):
        if len(messages) == sent:
            raise OSError("the client has left")
        messages.append(message)

    await response({"type": "http"}, anyio.sleep_forever, send)
    assert not endpoint._answers
    assert len(messages) == sent
    assert [each.text for each in store.open("c").path().messages if each.role == "assistant"] == (
        ["the answer"] if resume else []
    )


@pytest.mark.parametrize("store", [None, MemoryStore()])
async def test_routes_do_not_reach_the_conversations_that_the_application_names(store):
    endpoint = AiSdkEndpoint(agent(), store=store)

    async def own(request):
        return await endpoint.respond(request, conversation="users/ann")

    app = Starlette(routes=[*endpoint.routes("/chat"), Route("/own", own, methods=["POST"])])
    async with (
        served(app) as (url, _),
        httpx.AsyncClient(base_url=url) as client,
        client.stream("POST", "/own", json=ui("slow")) as first,
    ):
        await anext(first.aiter_bytes())
        assert (await client.get("/chat/users/ann/stream")).status_code == 204
        assert (await client.delete("/chat/users/ann")).json() == {"stopped": False}
        assert (await client.post("/chat", json=ui("hi", id="users/ann"))).status_code == 200
        assert (await client.post("/own", json=ui("hi"))).status_code == 409


@pytest.mark.parametrize(("prefix", "name"), [(None, "chat:boss"), ("web-", "web-boss"), ("", "boss")])
async def test_the_prefix_begins_the_names_of_a_swarms_clients(prefix, name):
    async with Swarm("shop", [SwarmAgent("desk", ScriptedModel(["Moin."]))]).start() as live:
        app = Starlette(routes=AiSdkEndpoint(live, prefix=prefix).routes("/chat"))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            assert "Moin." in (await client.post("/chat", json=ui("hi", id="boss"))).text
        assert live.clients == (name,)


async def test_a_response_that_is_never_sent_does_not_block_its_conversation():
    endpoint = AiSdkEndpoint(agent())

    async def lost(request):
        await endpoint.respond(request, conversation="c")
        return Response("something else")

    app = Starlette(routes=[Route("/lost", lost, methods=["POST"])])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        for _ in range(2):
            assert (await client.post("/lost", json=ui("hi"))).text == "something else"
    first, second = [await endpoint.respond(Posted(ui("hi")), conversation="c") for _ in range(2)]
    sent = []

    async def send(message):
        sent.append(message)
        if message["type"] == "http.response.start" and len(sent) == 1:
            await second({"type": "http"}, anyio.sleep_forever, send)

    await first({"type": "http"}, anyio.sleep_forever, send)
    assert [each["status"] for each in sent if each["type"] == "http.response.start"] == [200, 409]


class Posted(Request):
    """A request that was posted."""

    def __init__(self, value):
        body = json.dumps(value).encode()

        async def receive():
            return {"type": "http.request", "body": body, "more_body": False}

        headers = [(b"content-type", b"application/json")]
        super().__init__({"type": "http", "method": "POST", "headers": headers}, receive)


async def test_the_second_of_two_processes_is_told_and_its_answer_is_kept(tmp_path):
    ours, theirs = (open_store(tmp_path / "a.db") for _ in range(2))
    for endpoint, other, end in (
        (AiSdkEndpoint, AgUiEndpoint, '"type":"error","errorText":"The conversation was continued elsewhere.'),
        (AgUiEndpoint, AiSdkEndpoint, '"type":"RUN_ERROR","message":"The conversation was continued elsewhere.'),
    ):
        began, gone_on = anyio.Event(), anyio.Event()

        async def late(_prompt, began=began, gone_on=gone_on):
            began.set()
            await gone_on.wait()
            return "the late answer"

        first, second = endpoint(Agent(FunctionModel(late)), store=ours), other(agent(), store=theirs)
        app = Starlette(routes=[*first.routes("/first"), *second.routes("/second")])
        transport = httpx.ASGITransport(app)
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
            anyio.create_task_group() as tasks,
        ):
            body = {"threadId": "c", "runId": "r", **ui("x"), "messages": [said("late", "u1") | {"content": "late"}]}
            answers = []

            async def ask(client=client, body=body, answers=answers):
                answers.append(await client.post("/first", json=body))

            tasks.start_soon(ask)
            await began.wait()
            body = body | {"messages": [said("quick", "u2") | {"content": "quick"}]}
            assert "Hello " in (await client.post("/second", json=body)).text
            gone_on.set()
        assert end in answers[0].text
        thread = ours.load("chat/c")
        (kept,) = [name for name in thread.branches if name.startswith("main/late-")]
        assert [each.text for each in thread.path(kept).messages] == ["late", "the late answer"]
        assert [each.text for each in thread.path().messages] == ["late", "quick", "Hello quick"]
        ours.delete("chat/c")
    ours.close()
    theirs.close()


async def test_a_stream_is_stopped(server):
    async with anyio.create_task_group() as tasks, server.stream("POST", "/chat", json=ui("slow", id="s")) as first:
        pieces = first.aiter_text()
        text = await anext(pieces)
        assert (await server.delete("/chat/s")).json() == {"stopped": True}
        async for piece in pieces:
            text += piece
        tasks.cancel_scope.cancel()
    assert '{"type":"abort"}' in text
    assert (await server.delete("/chat/s")).json() == {"stopped": False}


async def test_a_reader_who_leaves_cancels_a_run_that_is_not_resumed(server):
    async with server.stream("POST", "/bare", json=ui("slow", id="s")) as first:
        await anext(first.aiter_bytes())
    for _ in range(100):
        if (await server.get("/bare/s/stream")).status_code == 204:
            break
        await anyio.sleep(0.01)
    assert '"Hello hi"' in (await server.post("/bare", json=ui("hi", id="s"))).text


@pytest.mark.parametrize(
    ("path", "body", "place"),
    [
        ("/chat", b"{", "not JSON"),
        ("/chat", b"[]", "a JSON object"),
        ("/chat", {"messages": []}, "id"),
        ("/chat", {"id": "c", "messages": 5}, "messages"),
        ("/chat", {"id": "c", "messages": []}, "messages"),
        ("/chat", {"id": "c" * 101, "messages": ui("x")["messages"]}, "id"),
        ("/chat", {"id": "a\u0000b", "messages": ui("x")["messages"]}, "id"),
        ("/chat", {"id": "c", "messages": [{"role": "assistant", "parts": []}]}, "messages"),
        (
            "/chat",
            {"id": "c", "messages": [{"role": "usr", "parts": []}]},
            "messages[0].role: expected one of assistant, ",
        ),
        (
            "/chat",
            {"id": "c", "messages": [file_of(url="data:image/png;base64,@@@")]},
            "messages[0].parts[0].url: expected",
        ),
        ("/agui", agui("") | {"messages": [{"role": "usr", "content": "hi"}]}, "messages[0].role: expected one of "),
        ("/agui", agui("") | {"messages": [{"content": "hi"}]}, "messages[0].role: expected one of "),
        *(
            ("/agui", agui("") | {"messages": [{"role": "user", "content": [{"type": kind, **part}]}]}, place)
            for kind, part, place in (
                ("image", {"source": {"type": "data", "value": "@@@"}}, "content[0].source.value: expected base64"),
                ("image", {"source": {"type": "url", "value": "data:;base64,@"}}, "content[0].source.value: expected"),
                ("binary", {"data": "@@@"}, "messages[0].content[0].data: expected base64"),
            )
        ),
        ("/agui", {"threadId": "t", "messages": []}, "runId"),
        ("/agui", {"threadId": "t", "runId": "r", "messages": [], "resume": [{}]}, "resume[0].interruptId"),
        (
            "/bare",
            {
                "id": "c",
                "messages": [
                    {
                        "role": "assistant",
                        "parts": [
                            {
                                "type": "tool-x",
                                "toolCallId": "b",
                                "state": "approval-responded",
                                "approval": {"approved": True},
                            }
                        ],
                    }
                ],
            },
            "decisions need a store",
        ),
    ],
)
async def test_a_wrong_body_is_refused_with_its_place(server, path, body, place):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    response = await server.post(path, content=content, headers={"content-type": "application/json"})
    assert response.status_code == 400, response.text
    assert place in response.json()["error"]["message"]


async def test_access_media_type_and_size_are_checked(server):
    assert (await server.post("/closed", json=ui("x"))).status_code == 401
    assert (await server.post("/closed", json=ui("x"), headers={"authorization": "Bearer t"})).status_code == 200
    assert (await server.get("/closed/c/stream")).status_code == 401
    assert (await server.post("/chat", content=b"{}", headers={"content-type": "text/plain"})).status_code == 415
    assert (await server.post("/chat", json=ui("x" * 5_000_000))).status_code == 413


async def test_a_swarm_is_asked_by_the_name_of_its_client():
    desk = SwarmAgent("desk", ScriptedModel(["Moin, you.", "Again."]), stream=True)
    async with Swarm("shop", [desk]).start() as live:
        routes = [*AiSdkEndpoint(live).routes("/chat"), *AgUiEndpoint(live).routes("/agui")]
        async with served(Starlette(routes=routes)) as (url, _), httpx.AsyncClient(base_url=url) as client:
            found = chunks(await client.post("/chat", json=ui("hi", id="ann")))
            assert "".join(each["delta"] for each in found if each["type"] == "text-delta") == "Moin, you."
            other = chunks(await client.post("/agui", json=agui("hi") | {"threadId": "ann"}))
            assert "".join(each.get("delta", "") for each in other) == "Again."
            assert live.clients == ("chat:ann",)


def look(city: str) -> str:
    """Look at the weather."""
    return f"rain in {city}"


@pytest.mark.parametrize("shown", [True, False])
async def test_calls_results_and_hand_overs_of_a_swarm_are_shown_as_asked(shown):
    calls = [tool_call("look", {"city": "Kiel"}, id="c1")], [tool_call("to_pier", {}, id="c2")]
    script = [assistant("I look.", tool_calls=calls[0]), assistant(tool_calls=calls[1])]
    desk = SwarmAgent("desk", ScriptedModel(script * 2), tools=[look, navigation("pier")], stream=True)
    pier = SwarmAgent("pier", ScriptedModel(["Moin from the pier."] * 2), stream=True)
    async with Swarm("shop", [desk, pier]).start() as live:
        routes = [
            *AiSdkEndpoint(live, show_tools=shown).routes("/chat"),
            *AgUiEndpoint(live, show_tools=shown or None).routes("/agui"),
        ]
        async with served(Starlette(routes=routes)) as (url, _), httpx.AsyncClient(base_url=url) as client:
            found = chunks(await client.post("/chat", json=ui("hi", id="ann")))
            other = chunks(await client.post("/agui", json=agui("hi", state={"a": 1}) | {"threadId": "bob"}))
    outputs = {each["toolCallId"]: each["output"] for each in found if each["type"] == "tool-output-available"}
    assert outputs.get("c1") == ("rain in Kiel" if shown else None)
    assert tool_results(other).get("c1") == outputs.get("c1")
    assert [each["data"]["name"] for each in found if each["type"] == "data-agent"] == ["pier"]
    assert [each["stepName"] for each in other if each["type"] == "STEP_STARTED"] == ["desk 1", "pier 2"]
    for each in (found, other):
        assert "".join(piece.get("delta", "") for piece in each).endswith("Moin from the pier.")
    assert [each["value"] for each in other if each["type"] == "CUSTOM"] == [["state"]]


async def test_a_reader_who_leaves_cancels_a_turn_of_a_swarm_that_is_not_resumed():
    began, left = anyio.Event(), anyio.Event()

    async def wait(_prompt):
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            left.set()

    async with Swarm("shop", [SwarmAgent("desk", FunctionModel(wait))]).start() as live:
        routes = AiSdkEndpoint(live, resume=False).routes("/chat")
        async with served(Starlette(routes=routes)) as (url, _), httpx.AsyncClient(base_url=url) as client:
            async with client.stream("POST", "/chat", json=ui("hi", id="ann")):
                await began.wait()
            with anyio.fail_after(60):
                await left.wait()


async def test_an_agent_keeps_its_calls_to_itself_when_told_to():
    routes = AiSdkEndpoint(agent(), show_tools=False).routes("/chat")
    async with served(Starlette(routes=routes)) as (url, _), httpx.AsyncClient(base_url=url) as client:
        found = chunks(await client.post("/chat", json=ui("weather")))
    assert {each["type"].partition("-")[0] for each in found} == {"start", "reasoning", "text", "finish"}


def test_what_cannot_be_served_is_refused():
    with pytest.raises(MessageError, match="source: expected an Agent"):
        AiSdkEndpoint(5)
    with pytest.raises(MessageError, match="prefix"):
        AiSdkEndpoint(agent(), prefix=5)
