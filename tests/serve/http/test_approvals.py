"""Calls that wait for a decision, over the plain HTTP API: shown, decided, and decided once."""

import json
from contextlib import asynccontextmanager
from functools import partial

import anyio
import jsonschema
import pytest
from websockets.asyncio.client import connect

from palaver.agent import Rule
from palaver.core.factories import assistant, tool_call
from palaver.models.scripted import ScriptedModel
from palaver.serve.workers import LocalDispatcher, PendingTurn
from palaver.store.memory import MemoryStore
from palaver.store.sqlite import SQLiteStore
from palaver.swarm import Swarm, SwarmAgent, result_tool
from palaver.turn.approvals import DecisionError, approve
from tests.serve.http.test_app import JSON, told
from tests.serve.http.test_websocket import answered, refused, until
from tests.swarm.served import let_others_run

pytestmark = pytest.mark.anyio

APPROVALS, DECISIONS = "/v1/clients/ann/approvals", "/v1/clients/ann/decisions"
ASKED = {
    "call": "c1",
    "tool": "pay",
    "arguments": {"to": "Bob <b>", "euros": 100},
    "reason": "It costs money.",
    "choices": ["approve", "edit", "reject", "answer"],
}


class Till:
    """A desk that pays after an approval, and says what came of it."""

    def __init__(self, *, calls=("c1",), rule=None):
        self.paid = []
        self.asked, self.let = anyio.Event(), anyio.Event()
        self.let.set()

        async def pay(to: str, euros: int) -> str:
            """Pay somebody."""
            self.asked.set()
            await self.let.wait()
            self.paid.append(euros)
            return f"{to} has {euros} EUR"

        def speak(prompt):
            last = prompt.messages[-1]
            if last.role == "tool":
                return f"So: {last.text}"
            if last.text.startswith("Pay"):
                given = {"to": "Bob <b>", "euros": 100}
                return assistant(tool_calls=[tool_call("pay", given, id=each) for each in calls])
            return f"you said {last.text}"

        policy = {"pay": rule or Rule(judgement="ask", reason="It costs money.")}
        model, tools = ScriptedModel([], then=speak), [result_tool(pay)]
        self.agents = [SwarmAgent("desk", model, tools=tools, policy=policy, stream=True, max_tool_calls=2)]


@pytest.fixture
def till():
    return Till()


async def decide(o, decisions, *, headers=None, client="ann", **more):
    body = {"decisions": decisions, **more}
    return await o.http.post(f"/v1/clients/{client}/decisions", json=body, headers=headers)


async def waiting(o):
    return (await o.http.get(APPROVALS)).json()["pending"]


async def test_a_call_that_waits_is_in_the_answer_and_is_decided(office, till):
    async with office(given=till.agents) as o:
        asked = await o.post("ann", "Pay Bob.", run="r1")
        assert asked.json() == {"run": "r1", "answer": "", "agent": "desk", "pending": [ASKED]}
        assert (await o.http.get(APPROVALS)).json() == {"pending": [ASKED], "run": "r1"}
        assert till.paid == []
        answer = await decide(o, {"c1": {"decision": "approve"}})
        assert answer.json() == {"run": "r1", "answer": "So: Bob <b> has 100 EUR", "agent": "desk"}
        assert till.paid == [100]
        assert (await o.http.get(APPROVALS)).json() == {"pending": []}
        shown = (await o.http.get("/v1/clients/ann/messages")).json()["messages"]
        assert [each["text"] for each in shown] == ["Pay Bob.", "So: Bob <b> has 100 EUR"]


@pytest.mark.parametrize(
    ("decision", "said", "paid"),
    [
        ({"decision": "edit", "arguments": {"to": "Bob", "euros": 5}}, "So: Bob has 5 EUR", [5]),
        ({"decision": "reject", "text": "Too much."}, "Too much.", []),
        ({"decision": "reject"}, "So: ", []),
        ({"decision": "answer", "text": "Paid in cash."}, "So: Paid in cash.", []),
    ],
)
async def test_every_kind_of_decision(office, till, decision, said, paid):
    async with office(given=till.agents) as o:
        await o.post("ann", "Pay Bob.")
        answer = await decide(o, {"c1": decision})
        assert answer.status_code == 200
        assert said in answer.json()["answer"]
        assert till.paid == paid


async def test_streams_show_what_waits_and_the_answer_of_the_decision(office, till):
    stream = {"accept": "text/event-stream"}
    async with office(given=till.agents) as o:
        body = {"text": "Pay Bob.", "run": "r1"}
        asked = told((await o.http.post("/v1/clients/ann/messages", json=body, headers=stream)).text)
        assert asked[-1][:2] == ("answer", {"run": "r1", "answer": "", "agent": "desk", "pending": [ASKED]})
        events = told((await decide(o, {"c1": {"decision": "approve"}}, headers=stream)).text)
        assert events[-1][:2] == ("answer", {"run": "r1", "answer": "So: Bob <b> has 100 EUR", "agent": "desk"})
        deltas = [data["output"]["text"] for name, data, _ in events if name == "agent.delta"]
        assert "".join(deltas) == "So: Bob <b> has 100 EUR"
        assert {data["run"] for _, data, _ in events} == {"r1"}
        refused = await decide(o, {"c1": {"decision": "approve"}}, headers=stream)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "decision")


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"", 400, "truncated"),
        (b"[]", 400, "Expected `object`"),
        (b"{}", 400, "missing required field `decisions`"),
        (b'{"decisions": {}}', 400, "there is no decision"),
        (b'{"decisions": []}', 400, "Expected `object`"),
        (b'{"decisions": {"c1": "approve"}}', 400, "Expected `object`"),
        (b'{"decisions": {"c1": {"decision": "maybe"}}}', 400, "Invalid value 'maybe'"),
        (b'{"decisions": {"c1": {}}}', 400, "decision"),
        (b'{"decisions": {"c1": {"decision": "approve", "text": "x"}}}', 400, "unknown field `text`"),
        (b'{"decisions": {"c1": {"decision": "edit"}}}', 400, "missing required field `arguments`"),
        (b'{"decisions": {"c1": {"decision": "edit", "arguments": []}}}', 400, "Expected `object`"),
        (b'{"decisions": {"c1": {"decision": "edit", "arguments": {"euros": 1e999}}}}', 400, "request: "),
        (b'{"decisions": {"c1": {"decision": "answer"}}}', 400, "missing required field `text`"),
        (b'{"decisions": {"c1": {"decision": "reject", "text": "\\ud800"}}}', 400, "lone surrogate"),
        (b'{"decisions": {"c1": {"decision": "approve"}}, "run": "a b"}', 400, "run: expected 1 to 128"),
        (b'{"decisions": {"c1": {"decision": "approve"}}, "text": "x"}', 400, "unknown field `text`"),
        (b'{"decisions": {"c2": {"decision": "approve"}}}', 409, "nothing is pending for call 'c2'; pending: c1"),
        (b'{"decisions": {"c1": {"decision": "approve"}, "c2": {"decision": "approve"}}}', 409, "for call 'c2'"),
        (b'{"decisions": {"c1": {"decision": "answer", "text": "x"}}}', 409, "'answer' is not allowed for call 'c1'"),
        (b'{"decisions": {"c1": {"decision": "edit", "arguments": {"to": "Bob"}}}}', 409, "for 'pay': euros: required"),
        (b'{"decisions": {"c1": {"decision": "edit", "arguments": {"x": 1}}}, "run": "r1"}', 409, "do not fit 'pay': "),
        (b'{"decisions": {"c2": {"decision": "approve"}}, "run": "r1"}', 409, "nothing is pending for call 'c2'"),
        (b'{"decisions": {"c1": {"decision": "approve"}}, "run": "r2"}', 409, "belong to the turn 'r1', not 'r2'"),
        (b'{"decisions": {"c1": {"decision": "answer", "text": "x"}}, "run": "r1"}', 409, "'answer' is not allowed"),
    ],
)
async def test_what_does_not_fit_is_refused_and_decides_nothing(office, body, status, said):
    till = Till(rule=Rule(judgement="ask", choices=("approve", "edit", "reject")))
    store = MemoryStore()
    async with office(given=till.agents, store=store) as o:
        await o.post("ann", "Pay Bob.", run="r1")
        before = len(store.path("office/ann"))
        refused = await o.http.post(DECISIONS, content=body, headers=JSON)
        assert refused.status_code == status
        assert refused.json()["error"]["code"] == {400: "decode", 409: "decision"}[status]
        assert set(refused.json()["error"]) == {"code", "message"}
        assert said in refused.json()["error"]["message"]
        assert [each["call"] for each in await waiting(o)] == ["c1"]
        assert till.paid == []
        assert len(store.path("office/ann")) == before
        assert (await decide(o, {"c1": {"decision": "approve"}})).status_code == 200


@pytest.mark.parametrize("headers", [{"content-type": "text/plain"}, {}])
async def test_decisions_are_json(office, till, headers):
    async with office(given=till.agents) as o:
        await o.post("ann", "Pay Bob.")
        refused = await o.http.post(DECISIONS, content=b'{"decisions":{"c1":{"decision":"approve"}}}', headers=headers)
        assert (refused.status_code, refused.json()["error"]["code"]) == (415, "media_type")
        assert till.paid == []


async def test_who_may_not_write_as_a_client_decides_nothing_for_it(office, till):
    async with office(given=till.agents, tokens={"ann": "a", "bob": "b"}) as o:
        ann, bob = {"authorization": "Bearer a"}, {"authorization": "Bearer b"}
        await o.http.post("/v1/clients/ann/messages", json={"text": "Pay Bob."}, headers=ann)
        for headers in ({}, bob):
            assert (await o.http.get(APPROVALS, headers=headers)).status_code == 401
            assert (await decide(o, {"c1": {"decision": "approve"}}, headers=headers)).status_code == 401
        own = await decide(o, {"c1": {"decision": "approve"}}, headers=bob, client="bob")
        assert (own.status_code, own.json()["error"]["code"]) == (409, "decision")
        assert till.paid == []
        assert (await decide(o, {"c1": {"decision": "approve"}}, headers=ann)).status_code == 200


async def test_nothing_waits_for_who_never_came_and_no_thread_is_made(office, till):
    store = MemoryStore()
    async with office(given=till.agents, store=store) as o:
        assert (await o.http.get(APPROVALS)).json() == {"pending": []}
        assert (await decide(o, {"c1": {"decision": "approve"}})).status_code == 409
        assert [*store.threads()] == []
        refused = await o.http.get("/v1/clients/a%20b/approvals")
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "decode")


async def test_a_server_that_starts_again_knows_what_waits(office, tmp_path):
    before, after = Till(), Till()
    with SQLiteStore(str(tmp_path / "threads.db")) as store:
        async with office(given=before.agents, store=store) as o:
            await o.post("ann", "Pay Bob.", run="r1")
    with SQLiteStore(str(tmp_path / "threads.db")) as store:
        async with office(given=after.agents, store=store) as o:
            assert (await o.http.get(APPROVALS)).json() == {"pending": [ASKED], "run": "r1"}
            answer = await decide(o, {"c1": {"decision": "approve"}}, run="r1")
            assert answer.json() == {"run": "r1", "answer": "So: Bob <b> has 100 EUR", "agent": "desk"}
    assert (before.paid, after.paid) == ([], [100])


async def test_a_message_that_is_sent_again_shows_what_its_turn_waits_for(office, till):
    async with office(given=till.agents) as o:
        first = (await o.post("ann", "Pay Bob.", run="r1")).json()
        assert (await o.post("ann", "Pay Bob.", run="r1")).json() == first


async def test_the_calls_of_an_answer_run_when_all_are_decided(office):
    till = Till(calls=("c1", "c2"))
    async with office(given=till.agents) as o:
        assert [each["call"] for each in (await o.post("ann", "Pay Bob.", run="r1")).json()["pending"]] == ["c1", "c2"]
        part = (await decide(o, {"c1": {"decision": "approve"}}, run="r1")).json()
        assert (part["answer"], [each["call"] for each in part["pending"]]) == ("", ["c2"])
        assert till.paid == []
        whole = (await decide(o, {"c2": {"decision": "reject"}}, run="r1")).json()
        assert "pending" not in whole
        assert till.paid == [100]


async def test_another_message_closes_what_waits(office, till):
    async with office(given=till.agents) as o:
        await o.post("ann", "Pay Bob.", run="r1")
        other = (await o.post("ann", "No.", run="r2")).json()
        assert other == {"run": "r2", "answer": "you said No.", "agent": "desk"}
        assert await waiting(o) == []
        assert (await decide(o, {"c1": {"decision": "approve"}}, run="r1")).status_code == 409
        assert till.paid == []


async def test_decisions_of_calls_of_an_agent_that_is_not_active_are_refused(office, till):
    async with office(given=[*till.agents, SwarmAgent("other", ScriptedModel([]))]) as o:
        await o.post("ann", "Pay Bob.", run="r1")
        await o.live.get("ann").change_to("other")
        for run in ({}, {"run": "r1"}):
            answer = await decide(o, {"c1": {"decision": "approve"}}, **run)
            assert (answer.status_code, answer.json()["error"]["code"]) == (409, "decision")
            assert "belong to the agent 'desk', but 'other' is active" in answer.json()["error"]["message"]
        assert await waiting(o) == [ASKED]
        await o.live.get("ann").change_to("desk")
        assert (await decide(o, {"c1": {"decision": "approve"}})).status_code == 200
        assert till.paid == [100]


async def test_decisions_with_their_run_are_taken_once_and_answered_again(office, till):
    async with office(given=till.agents) as o:
        await o.post("ann", "Pay Bob.", run="r1")
        first = (await decide(o, {"c1": {"decision": "approve"}}, run="r1")).json()
        assert (await decide(o, {"c1": {"decision": "approve"}}, run="r1")).json() == first
        other = await decide(o, {"c1": {"decision": "reject"}}, run="r1")
        assert (other.status_code, other.json()["error"]["code"]) == (409, "decision")
        assert till.paid == [100]


async def test_decisions_are_taken_once_whoever_sends_them_and_are_found_after_a_timeout(office, till):
    from palaver.serve.http import Limits

    till.let = anyio.Event()
    answers = []
    async with office(given=till.agents, limits=Limits(timeout=0.5)) as o:
        await o.post("ann", "Pay Bob.", run="r1")

        async def ask():
            answers.append(await decide(o, {"c1": {"decision": "approve"}}, run="r1"))

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(ask)
        assert [(each.status_code, each.json()["run"]) for each in answers] == [(504, "r1")] * 3
        assert await waiting(o) == []
        till.let.set()
        with anyio.fail_after(60):
            while (found := await decide(o, {"c1": {"decision": "approve"}}, run="r1")).status_code == 504:
                pass
        assert found.json() == {"run": "r1", "answer": "So: Bob <b> has 100 EUR", "agent": "desk"}
        assert till.paid == [100]


async def test_a_decided_turn_can_be_cancelled(office, till):
    till.let = anyio.Event()
    answers = []
    async with office(given=till.agents) as o, anyio.create_task_group() as tasks:
        await o.post("ann", "Pay Bob.")

        async def ask():
            answers.append((await decide(o, {"c1": {"decision": "approve"}})).json())

        tasks.start_soon(ask)
        await till.asked.wait()
        assert (await o.http.delete("/v1/clients/ann/turn")).json() == {"cancelled": True}
    assert [(each["answer"], "pending" in each) for each in answers] == [("", False)]


async def test_a_broken_connection_cancels_a_decided_turn_where_it_was_asked_for(office, till):
    till.let = anyio.Event()
    async with office(given=till.agents) as o, o.live.bus.subscribe() as events:
        await o.post("ann", "Pay Bob.", run="r1")
        async with anyio.create_task_group() as tasks:
            body = {"decisions": {"c1": {"decision": "approve"}}}
            tasks.start_soon(partial(o.http.post, f"{DECISIONS}?cancel=disconnect", json=body))
            await till.asked.wait()
            await let_others_run()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(60):
            async for event in events:
                if event.type == "cancel-output":
                    break


async def test_over_a_websocket(office, till):
    async with office(given=till.agents) as o, connect(o.ws("ann?events=none"), proxy=None) as ws:
        await ws.send(json.dumps({"text": "Pay Bob.", "run": "r1"}))
        assert (await until(ws, answered))[-1] == {"run": "r1", "answer": "", "agent": "desk", "pending": [ASKED]}
        for wrong, code in (
            ({"decisions": {"c2": {"decision": "approve"}}}, "decision"),
            ({"decisions": {"c1": {"decision": "maybe"}}}, "decode"),
            ({"decisions": {"c1": {"decision": "approve"}}, "text": "hi"}, "decode"),
        ):
            await ws.send(json.dumps(wrong))
            assert (await until(ws, refused))[-1]["error"]["code"] == code
        await ws.send(json.dumps({"run": "r1", "decisions": {"c1": {"decision": "approve"}}}))
        assert (await until(ws, answered))[-1] == {"run": "r1", "answer": "So: Bob <b> has 100 EUR", "agent": "desk"}


async def test_what_is_described_is_what_is_sent(office, till):
    async with office(given=till.agents) as o:
        paths = (await o.http.get("/openapi.json")).json()["paths"]
        ask, listed, decided = (
            paths[f"/v1/clients/{{client}}/{name}"][method]
            for name, method in (("messages", "post"), ("approvals", "get"), ("decisions", "post"))
        )

        def described(operation):
            return operation["responses"]["200"]["content"]["application/json"]["schema"]

        jsonschema.validate((await o.post("ann", "Pay Bob.")).json(), described(ask))
        jsonschema.validate((await o.http.get(APPROVALS)).json(), described(listed))
        body = {"decisions": {"c1": {"decision": "reject", "text": "No."}}}
        schema = decided["requestBody"]["content"]["application/json"]["schema"]
        jsonschema.validate(body, schema)
        for wrong in ({"decisions": {}}, {"decisions": {"c1": {"decision": "approve", "text": "x"}}}):
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate(wrong, schema)
        jsonschema.validate((await o.http.post(DECISIONS, json=body)).json(), described(decided))


# -- the dispatcher itself --------------------------------------------------------------------------------------------


@asynccontextmanager
async def dispatching(till, store):
    async with Swarm("office", till.agents).start(store=store) as live, LocalDispatcher(live) as dispatcher:
        yield live, dispatcher


@pytest.mark.parametrize("store", [None, MemoryStore()])
async def test_a_dispatcher_says_what_waits_and_decides_it(till, store):
    async with dispatching(till, store) as (_, dispatcher):
        assert await dispatcher.pending("ann") == PendingTurn()
        assert await dispatcher.ask("ann", "Pay Bob.", run="r1") == ""
        waiting = await dispatcher.pending("ann")
        assert (waiting.run, [each.tool for each in waiting.requests]) == ("r1", ["pay"])
        with pytest.raises(DecisionError, match="belong to the turn 'r1', not 'r0'"):
            await dispatcher.decide("ann", {"c1": approve()}, run="r0")
        with pytest.raises(TimeoutError):
            await dispatcher.decide("ann", {"c1": approve()}, run="r1", timeout=0)
        assert await dispatcher.decide("ann", {"c1": approve()}, run="r1") == "So: Bob <b> has 100 EUR"
        assert await dispatcher.pending("ann") == PendingTurn()
        assert till.paid == [100]


async def test_decisions_wait_for_the_turn_in_progress(till):
    order = []
    async with dispatching(till, MemoryStore()) as (_, dispatcher):
        await dispatcher.ask("ann", "Pay Bob.")
        till.let = anyio.Event()

        async def decide():
            order.append(await dispatcher.decide("ann", {"c1": approve()}))

        async def ask():
            order.append(await dispatcher.ask("ann", "hello"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(decide)
            await till.asked.wait()
            tasks.start_soon(ask)
            assert await dispatcher.pending("ann") == PendingTurn()
            till.let.set()
    assert order == ["So: Bob <b> has 100 EUR", "you said hello"]


async def test_a_turn_that_a_program_began_without_a_name_is_decided_too(office, till):
    async with office(given=till.agents) as o:
        session = await o.live.open("ann")
        assert await session.complete("Pay Bob.") == ""
        await session.close()
        assert (await o.http.get(APPROVALS)).json() == {"pending": [ASKED]}
        assert (await decide(o, {"c1": {"decision": "approve"}}, run="r1")).status_code == 409
        assert (await decide(o, {"c1": {"decision": "approve"}})).json()["answer"] == "So: Bob <b> has 100 EUR"


async def test_a_turn_whose_model_failed_behind_a_decision_goes_on_when_it_is_sent_again(office):
    till = Till()
    failures = [1]
    speak = till.agents[0].model._then

    def failing(prompt):
        if prompt.messages[-1].role == "tool" and failures:
            failures.pop()
            raise ZeroDivisionError("a secret")
        return speak(prompt)

    agent = till.agents[0].replace(model=ScriptedModel([], then=failing))
    async with office(given=[agent]) as o:
        await o.post("ann", "Pay Bob.", run="r1")
        assert (await decide(o, {"c1": {"decision": "approve"}}, run="r1")).status_code == 500
        answer = await decide(o, {"c1": {"decision": "approve"}}, run="r1")
        assert answer.json()["answer"] == "So: Bob <b> has 100 EUR"
        assert till.paid == [100]
