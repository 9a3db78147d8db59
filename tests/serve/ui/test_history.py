"""What a page loads of a conversation: the messages of the protocol, as the stream made them."""

import contextlib
import json

import anyio
import httpx
import pytest
from starlette.applications import Starlette

from palaver import Agent, assistant, tool_call, user
from palaver.agent import client_tool
from palaver.core.parts import File, FileId, Image, Json, Reasoning, Text, Url
from palaver.models import FunctionModel, ScriptedModel
from palaver.serve.http.access import Access
from palaver.serve.ui import AgUiEndpoint, AiSdkEndpoint, ag_ui, ai_sdk
from palaver.store.memory import MemoryStore
from palaver.swarm import Swarm, SwarmAgent
from palaver.transcripts import get
from palaver.transcripts.conversation import transcript_of
from palaver.turn.approvals import approve
from tests.serve.ui.served import agent
from tests.serve.ui.test_client_messages import read
from tests.serve.ui.test_endpoints import ID, agui, chunks, said, ui

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


def client_of(endpoint):
    transport = httpx.ASGITransport(Starlette(routes=endpoint.routes("/ui")))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


async def loaded(client, id="c"):
    response = await client.get(f"/ui/{id}")
    assert response.status_code == 200, response.text
    return response.json()


def plain(messages):
    return [{key: ID.sub("ID", each) if key == "id" else each for key, each in one.items()} for one in messages]


def call(id, name, given, **more):
    return {"type": "dynamic-tool", "toolName": name, "toolCallId": id, "input": given, **more}


async def test_an_ai_sdk_page_loads_its_messages():
    async with client_of(AiSdkEndpoint(agent(), store=MemoryStore())) as client:
        assert await loaded(client) == []
        file = {"type": "file", "mediaType": "application/pdf", "url": "https://x/a.pdf", "filename": "a.pdf"}
        question = said("weather", "u1")
        question["parts"].append(file)
        await client.post("/ui", json=ui("", messages=[question]))
        await client.post("/ui", json=ui("", messages=[said("broken", "u2")]))
        found = await loaded(client)
        weather = [
            call(city, "weather", {"city": city}, state="output-available", output={"city": city, "rain": True})
            for city in ("Husum", "Kiel")
        ]
        assert plain(found) == [
            {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "weather", "state": "done"}, file]},
            {
                "id": "ID",
                "role": "assistant",
                "parts": [
                    {"type": "step-start"},
                    {"type": "reasoning", "text": "hm", "state": "done"},
                    {"type": "text", "text": "I look.", "state": "done"},
                    *weather,
                    {"type": "step-start"},
                    {"type": "text", "text": "Done: ", "state": "done"},
                ],
            },
            {"id": "u2", "role": "user", "parts": [{"type": "text", "text": "broken", "state": "done"}]},
            {
                "id": "ID",
                "role": "assistant",
                "parts": [
                    {"type": "step-start"},
                    call("x1", "broken", {}, state="output-error", errorText="The tool failed."),
                    {"type": "step-start"},
                    found[3]["parts"][3],
                ],
            },
        ]
        assert "no tide" not in str(found[3]["parts"][:2])
        await client.post("/ui", json=ui("", messages=[*found, said("one", "u3")]))  # it goes on with what it loaded
        assert (await loaded(client))[-1]["parts"][-1]["text"] == "Hello one"


def book(berth: int) -> str:
    """Book a berth."""
    return f"booked {berth}"


def booking(prompt):
    """Book a berth, and look before it."""
    last = prompt.messages[-1]
    if last.role == "tool" and last.tool_name == "book":
        return f"Done: {last.text}"
    if last.role == "tool":
        return assistant("I book.", tool_calls=[tool_call("book", {"berth": 7}, id="b1")])
    return assistant("I look.", tool_calls=[tool_call("look", {}, id="l1")])


def look() -> str:
    """Look."""
    return "free"


@contextlib.asynccontextmanager
async def booking_page(kind, store, shown):
    """Serve an agent, or a swarm whose texts come as deltas or whole."""
    options = {"tools": [look, book], "policy": {"book": "ask", "look": "allow"}}
    if kind == "agent":
        agent = Agent(FunctionModel(booking), **options)
        async with client_of(AiSdkEndpoint(agent, store=store, show_tools=shown)) as client:
            yield client
        return
    swarm = Swarm("chat", [SwarmAgent("desk", FunctionModel(booking), stream=kind == "streamed", **options)])
    async with swarm.start(store=store) as live, client_of(AiSdkEndpoint(live, show_tools=shown)) as client:
        yield client


@pytest.mark.parametrize(
    ("approval", "state"),
    [
        ({"approved": True}, {"state": "output-available", "output": "booked 7"}),
        ({"approved": False, "reason": "too dear"}, {"state": "output-denied"}),
    ],
)
@pytest.mark.parametrize("shown", [True, False])
@pytest.mark.parametrize("kind", ["agent", "streamed", "whole"])
async def test_a_call_that_waits_is_loaded_and_decided_and_so_is_the_text_beside_it(kind, shown, approval, state):
    store = MemoryStore()

    def parts(messages):
        return [each for each in messages[-1]["parts"] if each["type"] in {"dynamic-tool", "text"}]

    def text(words):
        return {"type": "text", "text": words, "state": "done"}

    def said(answer):
        """The texts of a stream: each part once, and each whole."""
        texts = {}
        for each in chunks(answer):
            if each["type"] == "text-delta":
                texts[each["id"]] = texts.get(each["id"], "") + each["delta"]
        return [*texts.values()]

    async with booking_page(kind, store, shown) as client:
        assert said(await client.post("/ui", json=ui("hi"))) == ["I look.", "I book."]
        before = await loaded(client)
    looked = [call("l1", "look", {}, state="output-available", output="free")] if shown else []
    waiting = call("b1", "book", {"berth": 7}, state="approval-requested", approval={"id": "b1"})
    assert parts(before) == [text("I look."), *looked, text("I book."), waiting]
    async with booking_page(kind, store, shown) as client:  # the server has started again
        assert await loaded(client) == before
        parts(before)[-1].update(state="approval-responded", approval={"id": "b1", **approval})
        answer = await client.post("/ui", json=ui("", messages=before))
        assert [each["toolCallId"] for each in chunks(answer) if each["type"].startswith("tool-output-")] == ["b1"]
        (last,) = said(answer)
        decided = waiting | state | {"approval": {"id": "b1", **approval}}
        assert parts(await loaded(client)) == [text("I look."), *looked, text("I book."), decided, text(last)]


@pytest.mark.parametrize("kind", ["agent", "swarm"])
async def test_decisions_that_are_taken_while_others_wait_are_loaded_and_may_come_again(kind):
    calls = [tool_call("book", {"berth": berth}, id=f"b{berth}") for berth in (1, 2, 3)]
    asked = assistant(tool_calls=[*calls, tool_call("where", {}, id="w1")])
    options = {"tools": [book, client_tool("where", "Where.", {"type": "object"})], "policy": {"book": "ask"}}
    model = ScriptedModel([asked, "done"])
    async with contextlib.AsyncExitStack() as stack:
        if kind == "agent":
            endpoint = AiSdkEndpoint(Agent(model, **options), store=MemoryStore())
        else:
            swarm = Swarm("chat", [SwarmAgent("desk", model, max_tool_calls=4, **options)])
            endpoint = AiSdkEndpoint(await stack.enter_async_context(swarm.start()), show_tools=True)
        client = await stack.enter_async_context(client_of(endpoint))

        def tools(messages):
            return [each for each in messages[-1]["parts"] if each["type"] == "dynamic-tool"]

        await client.post("/ui", json=ui("hi"))
        messages = await loaded(client)
        first, second, third, where = tools(messages)
        first |= {"state": "approval-responded", "approval": {"id": "b1", "approved": True}}
        second |= {"state": "approval-responded", "approval": {"id": "b2", "approved": False, "reason": "no"}}
        where |= {"state": "output-available", "output": "Husum"}
        await client.post("/ui", json=ui("", messages=messages))
        assert tools(await loaded(client)) == [first, second, third, where]
        messages = await loaded(client)
        assert (await client.post("/ui", json=ui("", messages=messages))).status_code == 409  # nothing new
        third = tools(messages)[2]
        third |= {"state": "approval-responded", "approval": {"id": "b3", "approved": True}}
        assert "error" not in (await client.post("/ui", json=ui("", messages=messages))).text
        found = [(each["state"], each.get("output")) for each in tools(await loaded(client))]
    done = "output-available"
    assert found == [(done, "booked 1"), ("output-denied", None), (done, "booked 3"), (done, "Husum")]


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({"state": "output-available", "output": {"lat": 54.5, "n": 2}}, '{"lat":54.5,"n":2}'),
        ({"state": "output-available", "output": [1, None]}, "[1,null]"),
        ({"state": "output-available", "output": None}, "null"),
        ({"state": "output-available", "output": '{"a": 1}'}, '{"a": 1}'),
        ({"state": "output-error", "errorText": "no gps"}, "no gps"),
    ],
)
@pytest.mark.parametrize("kind", ["agent", "swarm"])
async def test_what_a_page_ran_itself_keeps_its_type(kind, state, told):
    prompts = []

    def model(prompt):
        prompts.append(prompt)
        if len(prompts) > 1:
            return "done"
        return assistant(tool_calls=[tool_call("where", {}, id="w1"), tool_call("book", {"berth": 1}, id="b1")])

    options = {"tools": [book, client_tool("where", "Where.", {"type": "object"})], "policy": {"book": "ask"}}
    async with contextlib.AsyncExitStack() as stack:
        if kind == "agent":
            endpoint = AiSdkEndpoint(Agent(FunctionModel(model), **options), store=MemoryStore())
        else:
            swarm = Swarm("chat", [SwarmAgent("desk", FunctionModel(model), max_tool_calls=4, **options)])
            endpoint = AiSdkEndpoint(await stack.enter_async_context(swarm.start()), show_tools=True)
        client = await stack.enter_async_context(client_of(endpoint))
        await client.post("/ui", json=ui("hi"))
        for decided in ("w1", "b1"):
            messages = await loaded(client)
            where, berth = [each for each in messages[-1]["parts"] if each["type"] == "dynamic-tool"]
            if decided == "w1":
                where |= state
            else:
                berth |= {"state": "approval-responded", "approval": {"id": "b1", "approved": True}}
            streamed = chunks(await client.post("/ui", json=ui("", messages=messages)))
            assert where in (await loaded(client))[-1]["parts"]
    (output,) = [each for each in streamed if each.get("toolCallId") == "w1"]
    sent = {"type": f"tool-{state['state']}", "toolCallId": "w1", "dynamic": True, **state}
    assert output == {key: value for key, value in sent.items() if key != "state"}
    (result,) = [each for each in prompts[-1].messages if each.role == "tool" and each.tool_name == "where"]
    (part,) = result.content
    text = bytes(part.value_json).decode() if isinstance(part, Json) else part.text
    assert (text, result.is_error) == (told, "errorText" in state)


async def test_calls_that_a_handler_decides_stay_hidden():
    options = {"tools": [look, book], "policy": {"book": "ask", "look": "allow"}, "decide": lambda _: {"b1": approve()}}
    endpoint = AiSdkEndpoint(Agent(FunctionModel(booking), **options), store=MemoryStore(), show_tools=False)
    async with client_of(endpoint) as client:
        streamed = chunks(await client.post("/ui", json=ui("hi")))
        assert not [each for each in streamed if each["type"].startswith("tool-")]
        assert "dynamic-tool" not in str(await loaded(client))


async def test_a_text_that_a_check_may_change_is_not_shown_beside_its_call():
    options = {"tools": [look, book], "policy": {"book": "ask", "look": "allow"}, "transform": str.upper}
    swarm = Swarm("chat", [SwarmAgent("desk", FunctionModel(booking), **options)])
    async with swarm.start() as live, client_of(AiSdkEndpoint(live)) as client:
        assert "text-delta" not in (await client.post("/ui", json=ui("hi"))).text
        assert [each["type"] for each in (await loaded(client))[-1]["parts"]] == ["step-start", "dynamic-tool"]


async def test_a_call_looks_alike_in_the_stream_in_a_page_that_loads_it_and_in_an_export():
    store, shown = MemoryStore(), ("type", "toolName", "toolCallId", "state", "input", "output")
    async with client_of(AiSdkEndpoint(agent(), store=store)) as client:
        streamed = chunks(await client.post("/ui", json=ui("weather")))
        page = await loaded(client)
    dynamic = [each for each in streamed if each["type"].startswith("tool-")]
    assert {each["dynamic"] for each in dynamic} == {True}  # the SDK makes them parts of this type
    exported = json.loads(get("vercel_ui").write(transcript_of(store.open("chat/c").path().messages)).body)
    calls = [
        [
            {key: each[key] for key in shown}
            for message in messages
            for each in message["parts"]
            if each["type"] == "dynamic-tool"
        ]
        for messages in (page, exported)
    ]
    assert len(calls[0]) == 2
    assert calls[0] == calls[1]


async def test_an_ag_ui_page_loads_its_messages():
    async with client_of(AgUiEndpoint(agent(), store=MemoryStore())) as client:
        await client.post("/ui", json=agui("weather"))
        found = await loaded(client, "t")
        calls = [
            {"id": city, "type": "function", "function": {"name": "weather", "arguments": f'{{"city":"{city}"}}'}}
            for city in ("Husum", "Kiel")
        ]
        assert [{key: each for key, each in one.items() if key != "id"} for one in found] == [
            {"role": "user", "content": "weather"},
            {"role": "reasoning", "content": "hm"},
            {"role": "assistant", "content": "I look.", "toolCalls": calls},
            *(
                {"role": "tool", "toolCallId": city, "content": f'{{"city":"{city}","rain":true}}'}
                for city in ("Husum", "Kiel")
            ),
            {"role": "assistant", "content": "Done: "},
        ]
        assert len({each["id"] for each in found}) == len(found)


@pytest.mark.parametrize("kind", ["agent", "swarm"])
async def test_an_ag_ui_page_loads_the_interrupts_that_its_stream_had(kind):
    ferry = {"name": "ferry", "description": "Call the ferry.", "parameters": {"type": "object"}}
    calls = [tool_call("book", {"berth": 1}, id="b1"), tool_call("where", {}, id="w1")]
    calls += [tool_call("ferry", {}, id="f1")] if kind == "agent" else []
    options = {"tools": [book, client_tool("where", "Where.", {"type": "object"})], "policy": {"book": "ask"}}
    model = ScriptedModel([assistant(tool_calls=calls), "done"])
    async with contextlib.AsyncExitStack() as stack:
        if kind == "agent":
            endpoint = AgUiEndpoint(Agent(model, **options), store=MemoryStore())
        else:
            swarm = Swarm("chat", [SwarmAgent("desk", model, max_tool_calls=4, **options)])
            endpoint = AgUiEndpoint(await stack.enter_async_context(swarm.start()))
        client = await stack.enter_async_context(client_of(endpoint))
        streamed = chunks(await client.post("/ui", json=agui("hi", tools=[ferry])))
        last = (await loaded(client, "t"))[-1]
        assert [each["id"] for each in streamed[-1]["outcome"]["interrupts"]] == ["b1", "w1"]
        assert last["metadata"] == {"interrupts": streamed[-1]["outcome"]["interrupts"]}
        await client.post("/ui", json=agui("") | {"messages": [{"id": "v", "role": "user", "content": "no"}]})
        assert "interrupts" not in str(await loaded(client, "t"))


MESSAGES = (
    user("hi", Image(Url("https://x/y")), File.from_bytes(b"%PDF", "application/pdf").replace(name="a.pdf"), id="u"),
    user(File(FileId("file-of-another", "openai_responses")), Image(Url("gs://bucket/a"))),
    user("a note", mode="tool", source="agent"),
    assistant(Reasoning("hm"), Text("I look."), tool_calls=[tool_call("look", {"a": 1}, id="c1")]),
)


@pytest.mark.parametrize(("endpoint", "parse"), [(AiSdkEndpoint, ai_sdk.parse), (AgUiEndpoint, ag_ui.parse)])
async def test_what_a_page_loads_is_what_it_may_send(endpoint, parse):
    store = MemoryStore()
    store.open("chat/c").append(*MESSAGES)
    messages = await endpoint(agent(), store=store).messages("chat/c")
    found = read(parse, messages)
    assert [each.role for each in found] == ["user", "assistant"]
    assert (found[0].id, found[0].text, len(found[0].content)) == ("u", "hi", 3)
    assert (found[1].text, found[1].reasoning, found[1].tool_calls[0].id) == ("I look.", "hm", "c1")
    assert "of-another" not in str(messages)


async def test_an_answer_that_is_under_way_is_left_out():
    began, go_on = anyio.Event(), anyio.Event()

    async def model(prompt):
        if prompt.messages[-1].role == "user":
            return assistant("I look.", tool_calls=[tool_call("wait", {}, id="w1")])
        return "Done."

    async def wait() -> str:
        """Wait."""
        began.set()
        await go_on.wait()
        return "over"

    store = MemoryStore()
    endpoint = AiSdkEndpoint(Agent(FunctionModel(model), tools=[wait], policy="allow"), store=store)
    other = AgUiEndpoint(agent(), store=store)
    async with client_of(endpoint) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: client.post("/ui", json=ui("hi")))
        await began.wait()
        assert [each["role"] for each in await loaded(client)] == ["user"]
        assert [each["role"] for each in await other.messages("chat/c")] == ["user", "assistant"]
        go_on.set()
    async with client_of(endpoint) as client:
        assert (await loaded(client))[1]["parts"][-1]["text"] == "Done."


async def test_nothing_is_loaded_of_what_is_not_kept_or_not_allowed():
    async with client_of(AiSdkEndpoint(agent())) as client:
        await client.post("/ui", json=ui("one"))
        assert await loaded(client) == []
    async with client_of(AiSdkEndpoint(agent(), store=MemoryStore(), access=Access(token="t"))) as client:
        assert (await client.get("/ui/c")).status_code == 401
        assert (await client.get("/ui/c", headers={"authorization": "Bearer t"})).json() == []
    store = MemoryStore()
    store.open("secret").append("hi")
    async with client_of(AiSdkEndpoint(agent(), store=store)) as client:
        for name in ("secret", "chat/secret", "..%2Fsecret"):
            assert await loaded(client, name) == []
        assert (await client.get(f"/ui/{'x' * 101}")).status_code == 400
    assert [each.id for each in store.threads()] == ["secret"]  # reading begins none


@pytest.mark.parametrize("shown", [True, False])
async def test_a_page_of_a_swarm_loads_what_its_client_sees(shown):
    def look() -> str:
        """Look."""
        return "rain"

    script = [assistant("I look.", tool_calls=[tool_call("look", {}, id="c1")]), assistant("Rain.")]
    swarm = Swarm("shop", [SwarmAgent("desk", ScriptedModel(script), tools=[look])])
    async with swarm.start() as live, client_of(AiSdkEndpoint(live, show_tools=shown)) as client:
        assert await loaded(client, "ann") == []
        await client.post("/ui", json=ui("hi", id="ann"))
        messages = await loaded(client, "ann")
    assert [each["role"] for each in messages] == ["user", "assistant"]
    types = [each["type"] for each in messages[1]["parts"]]
    assert types == ["step-start", "text", *(["dynamic-tool"] if shown else []), "step-start", "text"]
