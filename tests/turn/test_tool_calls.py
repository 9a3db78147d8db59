"""A batch of tool calls, over a run of an agent and over a turn of a swarm: policy, approvals, limits, output."""

from __future__ import annotations

import anyio
import pytest
from msgspec import structs

import palaver as p
from palaver.agent import Middleware, Rule, answer, approve, edit, function_tool, output_of, reject
from palaver.core.errors import MessageError, SwarmError
from palaver.core.usage import Usage
from palaver.models.scripted import ScriptedModel
from palaver.store.memory import MemoryStore
from palaver.store.sqlite import SQLiteStore
from palaver.swarm import Swarm, SwarmAgent, tool
from palaver.swarm.call import Call
from palaver.threads.view import RECORD
from palaver.turn import events
from palaver.turn.approvals import SOURCE as APPROVAL, DecisionError
from palaver.turn.notes import NOT_RUN_UNDECIDED
from palaver.turn.tool import ToolContext
from palaver.turn.tool_call import WHOLE

pytestmark = pytest.mark.anyio


def call(name="send", id="c1", **arguments):
    return p.tool_call(name, arguments, id=id)


def script(*calls):
    """A model that makes calls, and then says that it is done."""
    return ScriptedModel([p.assistant(tool_calls=calls), "done"])


def sending(sent, **options):
    def send(to: str) -> str:
        """Send."""
        sent.append(to)
        return f"sent to {to}"

    return function_tool(send, **options)


def results(done):
    return [each for each in done.messages if each.role == "tool"]


async def test_a_call_that_the_policy_denies_is_not_run(over):
    sent = []
    done = await over(script(call(to="ann")), tools=[sending(sent)], policy={"send": "deny"})
    assert (done.shown, sent) == ("done", [])
    (result,) = results(done)
    assert result.is_error
    assert result.text == "The send tool may not be called here."


async def test_middleware_judges_before_the_policy(over):
    class Careful(Middleware):
        async def rule(self, call, tool, context):
            return Rule(judgement="deny", text="Not on a Sunday.")

    sent = []
    done = await over(script(call(to="ann")), tools=[sending(sent)], middleware=[Careful()])
    assert sent == []
    assert [each.text for each in results(done)] == ["Not on a Sunday."]


@pytest.mark.parametrize(
    ("decision", "sent", "text"),
    [
        pytest.param(approve(), ["ann"], "sent to ann", id="approve"),
        pytest.param(edit({"to": "bob"}), ["bob"], "sent to bob", id="edit"),
        pytest.param(
            reject("no"),
            [],
            "The user rejected the send tool call. Reason: no. Do not retry it unless the user asks for it.",
            id="reject",
        ),
        pytest.param(answer("later"), [], "later", id="answer"),
    ],
)
async def test_a_call_is_decided_while_the_run_goes_on(over, decision, sent, text):
    ran = []

    async def decide(requests):
        return {each.call.id: decision for each in requests}

    done = await over(script(call(to="ann")), tools=[sending(ran)], policy="ask", decide=decide)
    assert (done.shown, ran) == ("done", sent)
    (result,) = results(done)
    assert result.text == text
    assert result.metadata[APPROVAL]["decision"] == decision.kind
    assert [each.call.id for each in done.of(events.ApprovalGiven)] == ["c1"]


async def test_a_call_that_nobody_decides_waits_in_the_thread(over):
    sent = []
    done = await over(script(call(to="ann")), tools=[sending(sent)], policy="ask")
    assert (done.run.outcome, sent) == ("waiting", [])
    assert [each.call.id for each in done.run.pending] == ["c1"]
    assert [each.payload["pending"][0]["call"] for each in done.messages if RECORD in each.tags] == ["c1"]
    (needed,) = done.of(events.ApprovalNeeded)
    assert needed.requests == done.run.pending


async def test_a_tool_that_takes_too_long_is_cancelled(over):
    async def slow() -> str:
        """Sleep."""
        await anyio.sleep_forever()

    done = await over(script(call("slow")), tools=[function_tool(slow, timeout=0.01)])
    (result,) = results(done)
    assert result.is_error
    assert result.text.startswith("slow took longer than 0.01 seconds")
    assert done.shown == "done"
    assert [each.outcome for each in done.of(events.ToolFinished)] == ["timeout"]


async def test_a_long_result_is_cut_and_kept_whole(over):
    def long() -> str:
        """Say much."""
        return "x" * 500

    done = await over(script(call("long")), tools=[long], result_limit=100)
    (result,) = results(done)
    assert len(result.text) < 500
    (whole,) = [each for each in done.messages if each.source == WHOLE]
    assert whole.payload == {"call": "c1", "text": "x" * 500}


async def test_wrappers_stand_around_the_run_of_a_tool(over):
    class Loud(Middleware):
        async def wrap_tool_call(self, request, context, call):
            output = await call(request)
            return structs.replace(output, metadata={"ran": request.tool.name})

    sent = []
    done = await over(script(call(to="ann")), tools=[sending(sent)], middleware=[Loud()])
    assert [each.metadata["ran"] for each in results(done)] == ["send"]


async def test_what_a_tool_asks_of_a_model_is_spent(over):
    def think(context: ToolContext) -> str:
        """Think."""
        context.host.spend({"other": Usage(input=7)}, 0.25)
        return "thought"

    done = await over(script(call("think")), tools=[think])
    assert done.run.usage_by_model["other"].input == 7


async def test_a_tool_that_fails_is_an_error_result(over):
    def fail() -> str:
        """Fail."""
        raise ValueError("no boat")

    done = await over(script(call("fail")), tools=[fail])
    (result,) = results(done)
    assert result.is_error
    assert "no boat" in result.text
    assert [each.outcome for each in done.of(events.ToolFinished)] == ["error"]


async def test_middleware_tools_are_offered(over):
    def look() -> str:
        """Look."""
        return "a ship"

    class Lookout(Middleware):
        tools = (function_tool(look),)
        instructions = "Look out."

    done = await over(script(call("look")), middleware=[Lookout()])
    assert [each.name for each in done.asked[0].tools] == ["look"]
    assert [each.text for each in results(done)] == ["a ship"]
    told = [each.text for each in (*done.asked[0].system, *done.asked[0].messages)]
    assert "Look out." in told


# -- what only a swarm has ---------------------------------------------------------------------------------------------


def shop(sent, *turns, **options):
    options.setdefault("policy", {"send": "ask"})
    agent = SwarmAgent("A", ScriptedModel(turns), tools=[sending(sent)], **options)
    return Swarm("shop", [agent])


CALLING = p.assistant(tool_calls=[call(to="ann")])


async def test_a_session_decides_what_waits_and_gives_the_answer():
    sent = []
    async with shop(sent, CALLING, "done").start() as live, live.session("ann") as session:
        assert await session.complete("hi") == ""
        assert [(each.tool, each.call.id) for each in session.pending()] == [("send", "c1")]
        assert await session.decide({}) == ""
        assert await session.decide({"c1": approve()}) == "done"
        assert session.pending() == ()
        assert session.last_run.outcome == "completed"
    assert sent == ["ann"]


@pytest.mark.parametrize("named", [False, True], ids=["unnamed", "named"])
async def test_another_process_decides_what_waits(tmp_path, named):
    sent = []
    run = "turn-1" if named else None
    with SQLiteStore(tmp_path / "a.db") as store:
        async with shop(sent, CALLING).start(store=store) as live, live.session("ann") as session:
            assert await session.complete("hi", run=run) == ""
    with SQLiteStore(tmp_path / "a.db") as store:
        async with shop(sent, "done").start(store=store) as live, live.session("ann") as session:
            assert [each.call.id for each in session.pending()] == ["c1"]
            if named:  # asked again, it waits again
                assert await session.complete("hi", run=run) == ""
            assert await session.decide({"c1": approve()}) == "done"
            if named:
                assert await session.complete("hi", run=run) == "done"
    assert sent == ["ann"]


async def test_what_is_said_closes_what_waits():
    sent = []
    store = MemoryStore()
    async with shop(sent, CALLING, "well").start(store=store) as live, live.session("ann") as session:
        await session.complete("hi")
        assert await session.complete("never mind") == "well"
        assert session.pending() == ()
        (closed,) = [each for each in session.messages if each.role == "tool"]
        assert (closed.text, closed.tool_call_id, closed.is_error) == (NOT_RUN_UNDECIDED, "c1", True)
        with pytest.raises(MessageError, match="nothing is pending"):
            await session.decide({"c1": approve()})
    assert sent == []


async def test_a_session_decides_some_calls_and_closes_the_others():
    sent = []
    two = p.assistant(tool_calls=[call(to="ann"), call(id="c2", to="ben")])
    async with (
        shop(sent, two, "done", max_tool_calls=2).start() as live,
        live.session("ann") as session,
    ):
        await session.complete("hi")
        assert await session.decide({"c2": approve()}, close=True) == "done"
        assert (session.pending(), sent) == ((), ["ben"])
        found = [(each.tool_call_id, each.text) for each in session.messages if each.role == "tool"]
        assert found == [("c1", NOT_RUN_UNDECIDED), ("c2", "sent to ben")]


async def test_decisions_of_what_nobody_asked_are_refused():
    async with shop([], CALLING).start() as live, live.session("ann") as session:
        await session.complete("hi")
        with pytest.raises(MessageError, match="nothing is pending for call 'c2'; pending: c1"):
            await session.decide({"c2": approve()})


async def test_calls_of_an_agent_that_is_not_active_cannot_be_decided():
    other = SwarmAgent("B", ScriptedModel(["hello"]))
    swarm = shop([], CALLING)
    async with swarm.replace(agents=[*swarm.agents.values(), other]).start() as live, live.session("ann") as session:
        await session.complete("hi")
        await session.change_to("B")
        with pytest.raises(DecisionError, match="the pending calls belong to the agent 'A'"):
            await session.decide({"c1": approve()})


async def test_a_tool_that_speaks_waits_and_has_middleware_around_it():
    ran = []

    class Noting(Middleware):
        async def wrap_tool_call(self, request, context, call):
            ran.append(f"before {request.tool.name}")
            output = await call(request)
            ran.append("after")
            return output

    @tool
    async def speak(call: Call) -> None:
        """Speak."""
        ran.append("speaks")
        await call.commit("said")
        await call.emit("spoken")

    agent = SwarmAgent(
        "A",
        ScriptedModel([p.assistant(tool_calls=[call("speak")])]),
        tools=[speak],
        policy="ask",
        middleware=[Noting()],
    )
    async with Swarm("shop", [agent]).start() as live, live.session("ann") as session:
        assert await session.complete("hi") == ""
        assert ran == []
        assert await session.decide({"c1": approve()}) == "spoken"
    assert ran[:2] == ["before speak", "speaks"]


async def test_middleware_can_answer_in_place_of_a_tool_that_speaks():
    class Answering(Middleware):
        async def wrap_tool_call(self, request, context, call):
            return output_of("not now")

    @tool
    async def speak(call: Call) -> None:
        """Speak."""
        raise AssertionError

    model = ScriptedModel([p.assistant(tool_calls=[call("speak")]), "done"])
    agent = SwarmAgent("A", model, tools=[speak], middleware=[Answering()])
    async with Swarm("shop", [agent]).start() as live, live.session("ann") as session:
        assert await session.complete("hi") == "done"
        assert session.last_tool == "not now"


async def test_a_tool_cannot_decide_within_its_own_turn():
    @tool
    async def bold(call: Call) -> None:
        """Decide."""
        with pytest.raises(SwarmError, match="during a turn"):
            await call.session.decide({"c1": approve()})
        await call.emit("refused")

    agent = SwarmAgent("A", ScriptedModel([p.assistant(tool_calls=[call("bold")])]), tools=[bold])
    async with Swarm("shop", [agent]).start() as live, live.session("ann") as session:
        assert await session.complete("hi") == "refused"


async def test_a_policy_that_names_no_tool_is_refused():
    with pytest.raises(MessageError, match="policy: there is no tool 'fly'"):
        shop([], policy={"fly": "deny"})
