"""A message of the user behind results of the page, or behind decisions: both count, the results first."""

from contextlib import asynccontextmanager

import anyio
import httpx
import pytest
from starlette.applications import Starlette

from palaver import Agent, assistant, tool_call
from palaver.agent import client_tool
from palaver.models import FunctionModel
from palaver.serve.ui import AgUiEndpoint, AiSdkEndpoint
from palaver.store.memory import MemoryStore
from palaver.swarm import Swarm, SwarmAgent, result_tool
from palaver.turn.notes import NOT_RUN_UNDECIDED
from tests.serve.ui.test_endpoints import chunks

pytestmark = pytest.mark.anyio

BOOKED, TOLD, NOT_RUN = ("tool", "booked 7"), ("tool", "in Husum"), ("tool", NOT_RUN_UNDECIDED)
CALLS = {"book": {"berth": 7}, "where": {}}


@pytest.fixture
def anyio_backend():
    return "asyncio"


def book(berth: int) -> str:
    """Book a berth."""
    return f"booked {berth}"


where = client_tool("where", "Say where the user is.", {"type": "object"})


class Desk:
    """A model that calls the tools that the user names, and tells what it was asked."""

    def __init__(self):
        self.prompts = []
        self.asked, self.let = anyio.Event(), anyio.Event()
        self.let.set()

    async def answer(self, prompt):
        said = [(each.role, each.text) for each in prompt.messages if each.role != "system"]
        self.prompts.append(said)
        role, text = said[-1]
        calls = [tool_call(name, CALLS[name], id=name) for name in CALLS if name in text] if role == "user" else []
        if not calls:
            self.asked.set()
            await self.let.wait()
        return assistant(tool_calls=calls) if calls else f"So: {text}"


@asynccontextmanager
async def page(protocol, kind, desk):
    """A client of an endpoint over an agent with a store or without, or over a swarm; and what the log has."""
    model, policy, tools = FunctionModel(desk.answer), {"book": "ask"}, [book, where]
    if kind == "swarm":
        one = SwarmAgent("desk", model, tools=[result_tool(each) for each in tools], policy=policy, max_tool_calls=2)
        async with Swarm("shop", [one]).start() as live, client(protocol(live, show_tools=True)) as http:
            yield http, lambda: live.get("chat:c").messages
    else:
        store = MemoryStore() if kind == "store" else None
        async with client(protocol(Agent(model, tools=tools, policy=policy), store=store)) as http:
            yield http, lambda: store.open("chat/c").path().messages


@asynccontextmanager
async def client(endpoint):
    app = Starlette(routes=endpoint.routes("/ui"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
        yield http


def body(protocol, said, *, results=(), approved=(), more=()):
    """The conversation as a page has it: a message, its calls with what came of them, and further messages."""
    users = [(f"u{place}", text) for place, text in enumerate((said, *more))]
    if protocol is AgUiEndpoint:
        messages = [{"id": named, "role": "user", "content": text} for named, text in users]
        calls = [
            {"id": each, "type": "function", "function": {"name": each, "arguments": "{}"}}
            for each in CALLS
            if each in said
        ]
        tools = [{"id": f"t-{each}", "role": "tool", "toolCallId": each, "content": "in Husum"} for each in results]
        messages[1:1] = [{"id": "a", "role": "assistant", "toolCalls": calls}, *tools]
        resume = [{"interruptId": each, "status": "resolved", "payload": True} for each in approved]
        return {"threadId": "c", "runId": "r", "messages": messages, **({"resume": resume} if resume else {})}
    messages = [{"id": named, "role": "user", "parts": [{"type": "text", "text": text}]} for named, text in users]
    parts = [
        {"type": "dynamic-tool", "toolName": each, "toolCallId": each, "input": CALLS[each]}
        | {"state": "input-available"}
        | ({"state": "output-available", "output": "in Husum"} if each in results else {})
        | ({"state": "approval-responded", "approval": {"id": each, "approved": True}} if each in approved else {})
        for each in CALLS
        if each in said
    ]
    messages[1:1] = [{"id": "a", "role": "assistant", "parts": [{"type": "step-start"}, *parts]}]
    return {"id": "c", "messages": messages}


def first(protocol, said):
    whole = body(protocol, said)
    return whole | {"messages": whole["messages"][:1]}


def deltas(found):
    return "".join(each["delta"] for each in found if each["type"] in {"TEXT_MESSAGE_CONTENT", "text-delta"})


def outputs(found):
    """The results that are streamed, by the id of their call; each call is known in the message that has its result."""
    known = {each["toolCallId"] for each in found if each["type"] in {"tool-input-available", "TOOL_CALL_START"}}
    made = {}
    for each in found:
        if each["type"] in {"tool-output-available", "tool-output-error", "TOOL_CALL_RESULT"}:
            made[each["toolCallId"]] = each.get("output") or each.get("content") or each.get("errorText")
            assert each["type"] == "TOOL_CALL_RESULT" or each["toolCallId"] in known
    return made


@pytest.mark.parametrize("protocol", [AgUiEndpoint, AiSdkEndpoint])
@pytest.mark.parametrize("kind", ["store", "swarm"])
@pytest.mark.parametrize(
    ("said", "given", "results"),
    [  # ``results``: what the model is told, and what is shown
        ("where", {"results": ["where"]}, ([TOLD], {})),
        ("book", {"approved": ["book"]}, ([BOOKED], {"book": "booked 7"})),
        ("book where", {"results": ["where"]}, ([NOT_RUN, TOLD], {})),
        ("book where", {"approved": ["book"]}, ([BOOKED, NOT_RUN], {"book": "booked 7"})),
        ("book where", {"approved": ["book"], "results": ["where"]}, ([BOOKED, TOLD], {"book": "booked 7"})),
        ("book where", {}, ([NOT_RUN, NOT_RUN], {})),
    ],
)
async def test_results_and_decisions_come_first_and_the_message_is_asked_next(protocol, kind, said, given, results):
    (told, shown), desk = results, Desk()
    async with page(protocol, kind, desk) as (http, messages):
        chunks(await http.post("/ui", json=first(protocol, said)))
        whole = body(protocol, said, **given, more=["and now?"])
        found = chunks(await http.post("/ui", json=whole))
        assert deltas(found).endswith("So: and now?")
        assert [each["type"] for each in found if each["type"] in {"finish", "RUN_FINISHED"}] == [found[-1]["type"]]
        prompt, size = desk.prompts[-1], 2 + len(told)
        assert prompt[:2] == [("user", said), ("assistant", "")]
        assert sorted(prompt[2:size]) == sorted(told)
        of_results = [("assistant", f"So: {prompt[size - 1][1]}")] if kind == "swarm" and given else []
        assert prompt[size:] == [*of_results, ("user", "and now?")]
        assert {call: each for call, each in outputs(found).items() if each != NOT_RUN_UNDECIDED} == shown
        if kind == "store" and "resume" not in whole:  # the same request again is answered again, and runs nothing
            kept = [each.text for each in messages()]
            assert deltas(chunks(await http.post("/ui", json=whole))) == "So: and now?"
            assert [each.text for each in messages()] == kept


@pytest.mark.parametrize("protocol", [AgUiEndpoint, AiSdkEndpoint])
async def test_without_a_store_results_come_before_the_message_too(protocol):
    desk = Desk()
    async with page(protocol, "bare", desk) as (http, _):
        chunks(await http.post("/ui", json=body(protocol, "book where", results=["where"], more=["and now?"])))
    ((*before, told, stand_in, last),) = desk.prompts
    assert (before, told, last) == ([("user", "book where"), ("assistant", "")], TOLD, ("user", "and now?"))
    assert stand_in[1].startswith("No result")


@pytest.mark.parametrize("protocol", [AgUiEndpoint, AiSdkEndpoint])
async def test_what_a_message_follows_is_taken_also_when_the_message_before_it_was_not_answered(protocol):
    desk = Desk()
    async with page(protocol, "store", desk) as (http, _):
        chunks(await http.post("/ui", json=first(protocol, "where")))
        chunks(await http.post("/ui", json=body(protocol, "where", results=["where"], more=["lost", "and now?"])))
        assert desk.prompts[-1][2:] == [TOLD, ("user", "and now?")]


@pytest.mark.parametrize("kind", ["store", "swarm"])
async def test_a_decision_in_the_history_that_its_call_does_not_allow_does_not_keep_from_the_message(kind):
    desk = Desk()
    async with page(AiSdkEndpoint, kind, desk) as (http, _):
        chunks(await http.post("/ui", json=first(AiSdkEndpoint, "book where")))
        whole = body(AiSdkEndpoint, "book where", approved=["book", "where"], more=["and now?"])
        assert deltas(chunks(await http.post("/ui", json=whole))).endswith("So: and now?")
        assert sorted(desk.prompts[-1][2:4]) == sorted([BOOKED, NOT_RUN])


@pytest.mark.parametrize("kind", ["store", "swarm"])
@pytest.mark.parametrize(("said", "given"), [("where", {"results": ["where"]}), ("book", {"approved": ["book"]})])
async def test_what_a_page_knows_of_earlier_calls_is_not_for_later_ones_with_the_same_ids(kind, said, given):
    desk = Desk()  # its ids are those of a provider that counts the calls of each answer
    async with page(AiSdkEndpoint, kind, desk) as (http, messages):
        chunks(await http.post("/ui", json=first(AiSdkEndpoint, said)))
        chunks(await http.post("/ui", json=body(AiSdkEndpoint, said, **given)))
        again = body(AiSdkEndpoint, said, **given, more=[f"{said} again"])
        assert chunks(await http.post("/ui", json=again))[-1]["finishReason"] == "tool-calls"
        again["messages"][-1]["parts"][0]["text"] = "never mind"  # the message is edited
        assert deltas(chunks(await http.post("/ui", json=again))) == "So: never mind"
        assert [each.text for each in messages()].count({"where": "in Husum", "book": "booked 7"}[said]) == 1
        if kind == "store":
            assert [each.text for each in messages() if each.role == "user"] == [said, "never mind"]


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ({"content": "", "error": "no signal"}, "no signal"),
        ({"content": "half", "error": "no signal"}, "half\nno signal"),
        ({"error": "no signal"}, "no signal"),
        ({"content": "in Husum", "error": None}, "in Husum"),
    ],
)
@pytest.mark.parametrize("kind", ["store", "bare"])
async def test_an_error_of_a_tool_that_an_ag_ui_client_ran_reaches_the_model(kind, result, told):
    desk = Desk()
    async with page(AgUiEndpoint, kind, desk) as (http, _):
        chunks(await http.post("/ui", json=first(AgUiEndpoint, "where")))
        whole = body(AgUiEndpoint, "where", results=["where"])
        whole["messages"][-1] |= {"content": None} | result
        chunks(await http.post("/ui", json=whole))
        assert desk.prompts[-1][-1] == ("tool", told)


async def test_decisions_of_a_message_that_is_edited_are_refused():
    desk = Desk()
    async with page(AgUiEndpoint, "store", desk) as (http, messages):
        chunks(await http.post("/ui", json=first(AgUiEndpoint, "book")))
        edited = first(AgUiEndpoint, "other") | {"resume": body(AgUiEndpoint, "", approved=["book"])["resume"]}
        assert (await http.post("/ui", json=edited)).status_code == 409
        assert [each.text for each in messages() if each.role == "user"] == ["book"]


async def test_results_that_cannot_be_taken_any_more_do_not_keep_a_swarm_from_the_message():
    desk = Desk()
    agents = [
        SwarmAgent("desk", FunctionModel(desk.answer), tools=[result_tool(where)]),
        SwarmAgent("pier", FunctionModel(desk.answer)),
    ]
    async with Swarm("shop", agents).start() as live, client(AiSdkEndpoint(live)) as http:
        chunks(await http.post("/ui", json=first(AiSdkEndpoint, "where")))
        await live.get("chat:c").change_to("pier")
        found = chunks(await http.post("/ui", json=body(AiSdkEndpoint, "where", results=["where"], more=["and?"])))
        assert deltas(found) == "So: and?"


async def test_a_page_that_loads_while_the_message_is_answered_has_the_message():
    desk = Desk()
    desk.let = anyio.Event()
    async with page(AiSdkEndpoint, "store", desk) as (http, _), anyio.create_task_group() as tasks:
        chunks(await http.post("/ui", json=first(AiSdkEndpoint, "book")))
        tasks.start_soon(lambda: http.post("/ui", json=body(AiSdkEndpoint, "book", approved=["book"], more=["and?"])))
        await desk.asked.wait()
        loaded = (await http.get("/ui/c")).json()
        desk.let.set()
    assert [(each["role"], each["parts"][-1].get("text")) for each in loaded][-1] == ("user", "and?")
    assert loaded[1]["parts"][-1]["output"] == "booked 7"
