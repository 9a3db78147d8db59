"""Reads that begin while the answer is streaming: each call runs once, and the thread is the same as without."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

import palaver as p
from palaver import wires
from palaver.agent import Agent, Limits, ToolContext, approve, function_tool, reject
from palaver.core.events import Finish, PartEnd
from palaver.models.scripted import Broken, ScriptedModel
from palaver.threads.thread import Thread
from palaver.turn import events, notes
from tests.agent.over_http import frames, kind_of, model_at, say
from tests.agent.wholeness import broken_pairs, refused_path
from tests.models.faults import serve, streams

CALLS = (
    "~I think.",
    "I look.",
    p.ToolCall("c1", "look", '{"at":  "a"}'),
    p.ToolCall("c2", "look", '{ "at":"b" }'),
    p.ToolCall("c3", "note", '{"text":"n"}'),
)


class World:
    """Tools that count, and say when they began; a read may wait for the stream."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.keys: dict[str, str] = {}
        self.gates: dict[str, anyio.Event] = {}
        self.began: dict[str, anyio.Event] = {}

    def saw(self, name: str) -> anyio.Event:
        return self.began.setdefault(name, anyio.Event())

    def tools(self) -> list[Any]:
        @function_tool(effect="read")
        async def look(at: str, ctx: ToolContext) -> str:
            """Look it up."""
            self.log.append(f"look {at} {ctx.call.arguments_json}")
            self.keys[ctx.call.id] = ctx.idempotency_key
            self.saw(at).set()
            try:
                if at in self.gates:
                    await self.gates[at].wait()
            except BaseException:
                self.log.append(f"cancelled {at}")
                raise
            self.log.append(f"looked {at}")
            return f"Seen: {at}"

        @function_tool
        async def note(text: str, ctx: ToolContext) -> str:
            """Write it down."""
            self.log.append(f"note {text}")
            self.keys[ctx.call.id] = ctx.idempotency_key
            return f"Noted: {text}"

        return [look, note]

    def begun(self) -> list[str]:
        return [each for each in self.log if each.startswith(("look ", "note "))]


class Paced:
    """A scripted model whose answers go on only when `pace(event)` says so."""

    def __init__(self, script: list[Any], pace: Any) -> None:
        self.scripted = ScriptedModel(script)
        self.name, self.capabilities, self.pace = "paced", self.scripted.capabilities, pace

    def session(self) -> Any:
        return self

    def ask(self, prompt: Any, **how: Any) -> Any:
        return PacedAnswer(self.scripted.session().ask(prompt, **how), self.pace)


class PacedAnswer:
    def __init__(self, answer: Any, pace: Any) -> None:
        self.answer, self.pace = answer, pace

    async def __aenter__(self) -> Any:
        await self.answer.__aenter__()
        self.events = aiter(self.answer)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.events.aclose()

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        event = await anext(self.events)
        await self.pace(event)
        return event

    async def finish(self) -> Any:
        async for _ in self:
            pass
        return await self.answer.finish()

    @property
    def so_far(self) -> Any:
        return self.answer.so_far


def _script(*more: Any) -> list[Any]:
    return [say("ollama_chat", *CALLS), *(more or ("Done.",))]


def _agent(world: World, script: list[Any], pace: Any, **more: Any) -> Agent:
    return Agent(Paced(script, pace), tools=world.tools(), **{"eager": True, **more})


def _contents(run: Any) -> list[Any]:
    return [(entry.message.role, entry.message.content) for entry in run.path]


@pytest.mark.anyio
@pytest.mark.row("KAI-25")
@pytest.mark.row("D8")
@pytest.mark.row("D28")
async def test_reads_begin_before_the_stream_ends_and_each_call_runs_once():
    world, at_finish = World(), []

    async def pace(event):
        if isinstance(event, Finish) and not at_finish:
            await world.saw("a").wait()  # without eager reads this would be for ever
            await world.saw("b").wait()
            await anyio.wait_all_tasks_blocked()
            at_finish.extend(world.log)

    with anyio.fail_after(60):
        run = await _agent(world, _script(), pace).run("Go.")
    assert (run.outcome, run.text) == ("completed", "Done.")
    assert sorted(at_finish) == sorted(['look a {"at":  "a"}', "looked a", 'look b { "at":"b" }', "looked b"])
    assert world.log[4:] == ["note n"]
    usual = World()
    other = await Agent(ScriptedModel(_script()), tools=usual.tools()).run("Go.")
    assert _contents(run) == _contents(other)
    assert sorted(usual.begun()) == sorted(world.begun())


@pytest.mark.anyio
@pytest.mark.row("KAI-25")
@pytest.mark.parametrize("wire", wires.names())
async def test_reads_begin_before_the_stream_ends_on_every_wire(wire):
    looked = threading.Event()
    told = frames(wire, say(wire, *CALLS))
    cut = next(place for place, frame in enumerate(told) if b'"note"' in frame)
    early = []

    def answers(connection):
        connection.head(200, {"content-type": kind_of(wire, stream=True), "transfer-encoding": "chunked"})
        for frame in told[:cut]:
            connection.chunk(frame)
        early.append(looked.wait(60))
        for frame in told[cut:]:
            connection.chunk(frame)
        connection.send(b"0\r\n\r\n")

    log = []

    @function_tool(effect="read")
    async def look(at: str) -> str:
        """Look it up."""
        log.append(f"look {at}")
        looked.set()
        return f"Seen: {at}"

    @function_tool
    async def note(text: str) -> str:
        """Write it down."""
        log.append(f"note {text} {early}")
        return f"Noted: {text}"

    done = streams(*frames(wire, say(wire, "Done.")), content_type=kind_of(wire, stream=True))
    with serve(answers, done) as server:
        async with Agent(model_at(wire, server.url), tools=[look, note], eager=True).stream("Go.") as running:
            seen = [event async for event in running]
    run = running.result
    assert (run.outcome, run.text, early) == ("completed", "Done.", [True])
    assert sorted(log) == ["look a", "look b", "note n [True]"]
    results = [entry.message.text for entry in run.path if entry.message.role == "tool"]
    assert results == ["Seen: a", "Seen: b", "Noted: n"]
    assert "".join(each.text for each in seen if isinstance(each, events.TextDelta)) == "I look.Done."
    kinds = [type(each).__name__ for each in seen]
    assert kinds.count("ToolStarted") == kinds.count("ToolFinished") == 3


@pytest.mark.anyio
@pytest.mark.row("KAI-25")
async def test_a_slow_read_is_waited_for_and_results_stand_in_the_models_order():
    world = World()
    world.gates["a"] = anyio.Event()
    asked = []

    async def pace(event):
        asked.append(event)

    async with anyio.create_task_group() as group:

        async def open_later():
            await world.saw("b").wait()
            await anyio.wait_all_tasks_blocked()
            assert not any(each.startswith("note") for each in world.log)
            world.gates["a"].set()

        group.start_soon(open_later)
        run = await _agent(world, _script(), pace).run("Go.")
    assert [entry.message.text for entry in run.path if entry.message.role == "tool"] == [
        "Seen: a",
        "Seen: b",
        "Noted: n",
    ]
    assert len(world.begun()) == 3


@pytest.mark.anyio
@pytest.mark.law(7)
@pytest.mark.row("KAI-25")
async def test_a_stream_that_breaks_cancels_what_began_early():
    world = World()
    world.gates["a"] = anyio.Event()
    turns = [Broken(say("ollama_chat", *CALLS).message), "Recovered."]

    async def pace(event):
        if isinstance(event, PartEnd) and event.index == 4:
            await world.saw("a").wait()
        if isinstance(event, Finish):  # of the second answer
            await anyio.wait_all_tasks_blocked()
            assert "cancelled a" in world.log

    run = await _agent(world, turns, pace).run("Go.")
    assert (run.outcome, run.text) == ("completed", "Recovered.")
    assert world.log.count("cancelled a") == 1
    assert not any(each.startswith("note") for each in world.log)
    results = [entry.message for entry in run.path if entry.message.role == "tool"]
    assert {each.text for each in results} == {notes.NOT_RUN_INTERRUPTED}
    assert broken_pairs([entry.message for entry in run.path]) == []
    assert refused_path(run.path, ()) == {}


@pytest.mark.anyio
@pytest.mark.law(7)
@pytest.mark.row("KAI-21")
@pytest.mark.row("KAI-25")
@pytest.mark.parametrize("how", ["scope", "time"])
async def test_a_cancelled_run_leaves_no_early_read(how):
    world = World()
    world.gates["a"] = anyio.Event()
    thread = Thread()
    with anyio.CancelScope() as scope:

        async def pace(event):
            if isinstance(event, PartEnd) and event.index == 4:
                await world.saw("a").wait()
                if how == "scope":
                    scope.cancel()
                await anyio.sleep_forever()

        limits = Limits(seconds=3) if how == "time" else Limits()
        run = await _agent(world, _script(), pace, limits=limits).run("Go.", thread=thread)
        assert (how, run.outcome) == ("time", "timed_out")
    assert world.log[-1] == "cancelled a"
    messages = [entry.message for entry in thread.path()]
    assert broken_pairs(messages) == []
    assert notes.INTERRUPTED in messages[-1].tags
    assert refused_path(thread.path(), ()) == {}


async def _at_once(event: Any) -> None:
    """Wait for nothing."""


@pytest.mark.anyio
@pytest.mark.row("KAI-25")
@pytest.mark.parametrize("judgement", ["ask", "deny"])
async def test_what_is_not_allowed_without_asking_does_not_begin_early(judgement):
    world, at_finish = World(), []

    async def pace(event):
        if isinstance(event, Finish):
            await anyio.wait_all_tasks_blocked()
            at_finish.append(len(world.log))

    async def judge(call):
        return judgement if call.name == "look" else "allow"

    def decide(requests):
        return {each.call.id: reject("no") for each in requests}

    run = await _agent(world, _script(), pace, policy=judge, decide=decide).run("Go.")
    assert run.outcome == "completed"
    assert at_finish[0] == 0
    assert world.log == ["note n"]


@pytest.mark.anyio
async def test_what_fails_in_the_policy_fails_the_run_as_it_is():
    def judge(call):
        raise ZeroDivisionError(call.name)

    run = await _agent(World(), _script(), _at_once, policy=judge).run("Go.")
    assert (run.outcome, type(run.error)) == ("failed", ZeroDivisionError)
    assert broken_pairs([entry.message for entry in run.path]) == []


@pytest.mark.anyio
@pytest.mark.row("KAI-25")
async def test_a_read_that_waits_beside_a_question_keeps_its_result_while_the_run_lasts():
    world = World()

    async def decide(requests):
        await world.saw("a").wait()
        return {each.call.id: reject("no") for each in requests}

    run = await _agent(world, _script(), _at_once, policy={"note": "ask"}, decide=decide).run("Go.")
    assert [each.split()[:2] for each in world.begun()] == [["look", "a"], ["look", "b"]]
    assert run.outcome == "completed"


@pytest.mark.anyio
@pytest.mark.row("KAI-25")
async def test_a_run_that_waits_ends_what_began_early_and_whoever_goes_on_reads_again():
    world = World()
    world.gates["a"] = anyio.Event()
    agent = _agent(world, _script(), _at_once, policy={"note": "ask"})
    with anyio.fail_after(60):
        run = await agent.run("Go.")
    assert run.outcome == "waiting"
    assert world.log[-1] == "cancelled a"
    world.gates.clear()
    run = await agent.run(thread=run.thread, decisions={"c3": approve()})
    assert (run.outcome, run.text) == ("completed", "Done.")
    assert world.log[-1] == "note n"
    assert [entry.message.text for entry in run.path if entry.message.role == "tool"] == [
        "Seen: a",
        "Seen: b",
        "Noted: n",
    ]


@pytest.mark.anyio
async def test_a_repeated_round_is_answered_as_ever_and_what_began_is_dropped():
    look = say("ollama_chat", p.ToolCall("c1", "look", '{"at":"a"}'))
    again = say("ollama_chat", p.ToolCall("c2", "look", '{"at":"a"}'))
    eager, usual = World(), World()
    one = await _agent(eager, [look, again, "Done."], _at_once).run("Go.")
    two = await Agent(ScriptedModel([look, again, "Done."]), tools=usual.tools()).run("Go.")
    assert _contents(one) == _contents(two)
    assert len(usual.begun()) == 1
    assert len(eager.begun()) <= 2


@pytest.mark.anyio
async def test_the_key_of_a_call_is_the_same():
    eager, usual = World(), World()
    thread = Thread("t")
    await _agent(eager, _script(), _at_once).run("Go.", thread=thread)
    await Agent(ScriptedModel(_script()), tools=usual.tools()).run("Go.", thread=Thread("t"))
    assert eager.keys == usual.keys


@pytest.mark.anyio
async def test_a_call_that_cannot_be_read_ends_what_begins_early():
    world, at_finish = World(), []
    calls = (p.ToolCall("c1", "look", '{"at": '), p.ToolCall("c2", "look", '{"at":"b"}'))

    async def pace(event):
        if isinstance(event, Finish):
            await anyio.wait_all_tasks_blocked()
            at_finish.append(list(world.log))

    run = await _agent(world, [say("ollama_chat", *calls), "Done."], pace).run("Go.")
    assert (run.outcome, at_finish[0]) == ("completed", [])


def test_nothing_is_there_where_nothing_may_begin_early():
    def driver(**more):
        return Agent(ScriptedModel([]), **more).driver("Hi.")

    tools = World().tools()
    assert driver(tools=tools, eager=True)._tools.eager is not None
    assert driver(tools=tools)._tools.eager is None
    assert driver(tools=tools[1:], eager=True)._tools.eager is None
    assert driver(tools=tools, eager=True, stream=False)._tools.eager is None


@pytest.mark.anyio
@pytest.mark.law(7)
@pytest.mark.row("KAI-21")
async def test_a_run_that_is_cancelled_at_any_event_can_be_gone_on_with():
    total = 0
    for place in range(200):
        world, thread, seen = World(), Thread(), []
        if place % 2:
            world.gates["a"] = anyio.Event()
        with anyio.CancelScope() as scope:

            async def pace(event):
                seen.append(event)  # noqa: B023 (called within the turn of the loop)
                if isinstance(event, Finish) and "a" in world.gates:  # noqa: B023
                    world.gates["a"].set()  # noqa: B023
                if len(seen) == place + 1:  # noqa: B023
                    await anyio.lowlevel.checkpoint()
                    scope.cancel()

            run = await _agent(world, _script(), pace).run("Go.", thread=thread)
        if not scope.cancelled_caught:
            assert run.outcome == "completed"
            break
        total += 1
        assert len(world.begun()) == len(set(world.begun()))
        assert broken_pairs([entry.message for entry in thread.path()]) == []
        assert refused_path(thread.path(), ()) == {}
        after = await Agent(ScriptedModel(["Done."]), tools=world.tools()).run("And?", thread=thread)
        assert (after.outcome, after.text) == ("completed", "Done.")
    assert total > 20
