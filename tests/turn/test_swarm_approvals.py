"""Calls of a swarm that wait for a decision, and rescues, against middleware, commits, limits and forms."""

from __future__ import annotations

import pytest

import palaver as p
from palaver.agent import Limits, Middleware, approve, reject
from palaver.models.scripted import ScriptedModel
from palaver.store.sqlite import SQLiteStore
from palaver.swarm import Recomplete, Swarm, SwarmAgent
from palaver.threads.thread import MAIN
from palaver.turn.approvals import decided_record
from palaver.turn.middleware import Blocked, Step
from palaver.turn.notes import MAY_HAVE_RUN, NOT_RUN_UNDECIDED
from palaver.turn.open_calls import pending

pytestmark = pytest.mark.anyio

TWO = (p.tool_call("launch", {"boat": "A"}, id="c1"), p.tool_call("sink", {"boat": "B"}, id="c2"))


def launch(boat: str) -> str:
    """Launch."""
    return f"{boat} is afloat"


def sink(boat: str) -> str:
    """Sink."""
    return f"{boat} sank"


def answers(prompt):
    if any(message.role == "assistant" for message in prompt.messages):
        return "done"
    return p.assistant(tool_calls=TWO)


def yard(then=answers, **options):
    model = ScriptedModel([], then=then)
    options = {"policy": "ask", "max_tool_calls": 5, "placeholders": ["PLACEHOLDER"], **options}
    return SwarmAgent("yard", model, tools=[launch, sink], **options)


def ids(session):
    return [each.call.id for each in session.pending()]


def roles(session):
    return [message.role for message in session.messages if "record" not in message.tags]


class Reminds(Middleware):
    async def before_agent(self, context):
        return Step(inject=(p.user("of the agent"),))

    async def before_model(self, context):
        return Step(inject=(p.user("of the model"),))


async def test_what_a_hook_injects_does_not_part_waiting_calls_from_their_results():
    swarm = Swarm("boats", [yard(middleware=[Reminds()])])
    async with swarm.start() as live, live.session("ann") as session:
        assert await session.complete("go") == ""
        assert await session.decide({"c1": approve()}) == ""
        assert ids(session) == ["c2"]
        assert await session.decide({"c2": reject()}) == "done"
        assert roles(session) == ["user"] * 3 + ["assistant", "tool", "tool", "user", "user", "assistant"]


COMMITS = {
    "user": lambda session: session.commit_user("note"),
    "assistant": lambda session: session.commit_assistant("note"),
    "system": lambda session: session.commit_system("note"),
    "developer": lambda session: session.commit_developer("note"),
    "flush": lambda session: session.commit_flush(),
    "calls": lambda session: session.commit_tool_request([("launch", {"boat": "C"})]),
}


@pytest.mark.parametrize("commit", COMMITS.values(), ids=COMMITS)
async def test_a_commit_closes_calls_that_wait(commit):
    async with Swarm("boats", [yard()]).start() as live, live.session("ann") as session:
        await session.complete("go")
        await commit(session)
        assert session.pending() == ()
        assert roles(session)[:4] == ["user", "assistant", "tool", "tool"]
        assert [message.text for message in session.messages if message.role == "tool"] == [NOT_RUN_UNDECIDED] * 2


async def test_the_result_of_a_waiting_call_can_be_committed():
    async with Swarm("boats", [yard()]).start() as live, live.session("ann") as session:
        await session.complete("go")
        await session.commit_tool_output("c1", "afloat already")
        assert ids(session) == ["c2"]
        assert await session.decide({"c2": approve()}) == "done"


@pytest.mark.parametrize("run", [None, "t1"])
async def test_a_call_that_was_approved_when_the_process_died_may_have_run(tmp_path, run):
    with SQLiteStore(tmp_path / "a.db") as store:
        async with Swarm("boats", [yard()]).start(store=store) as live, live.session("ann") as session:
            await session.complete("go", run=run)
            thread = session.log.id
    with SQLiteStore(tmp_path / "a.db") as store:  # the decision was kept, and no result
        store.open(thread).append(decided_record({"c1": approve(), "c2": approve()}))
        assert pending(store.open(thread), MAIN) == ()
    with SQLiteStore(tmp_path / "a.db") as store:
        async with Swarm("boats", [yard()]).start(store=store) as live, live.session("ann") as session:
            assert await session.complete("go", run=run) == "done"
            assert [each.text for each in session.messages if each.role == "tool"] == [MAY_HAVE_RUN] * 2


def wrong_tool_then(*texts):
    """A model that calls a tool that is not there, and then answers; each answer uses 70 tokens."""
    usage = p.Usage(input=60, output=10)
    answers = [p.assistant(each) if isinstance(each, str) else each for each in texts]
    script = iter([p.assistant(tool_calls=[p.tool_call("nope", {}, id="x")]), *answers])
    return lambda _: next(script).replace(usage=usage)


async def rescued(*texts, **options):
    agent = yard(wrong_tool_then(*texts), rescue=Recomplete(), **options)
    async with Swarm("boats", [agent]).start() as live, live.session("ann") as session:
        return await session.complete("go"), session.last_run


async def test_a_rescue_asks_no_model_beyond_the_limits():
    shown, run = await rescued("late", limits=Limits(tokens=50))
    assert (shown, run.outcome, run.iterations) == ("PLACEHOLDER", "budget", 1)


async def test_a_rescue_has_the_form_that_was_asked_for():
    shown, run = await rescued("no form", output=dict[str, int])
    assert (shown, run.outcome, run.output) == ("PLACEHOLDER", "invalid_output", None)
    shown, run = await rescued('{"boats": 2}', output=dict[str, int])
    assert (shown, run.outcome, run.output) == ('{"boats": 2}', "completed", {"boats": 2})
    shown, run = await rescued(p.assistant('{"boats": 2}', finish_reason="length"), output=dict[str, int])
    assert (shown, run.outcome, run.output) == ("PLACEHOLDER", "length", None)


class Stops(Middleware):
    async def after_model(self, context):
        if "secret" in context.message.text:
            raise Blocked("a secret")


async def test_middleware_behind_the_model_sees_the_answer_of_a_rescue():
    shown, run = await rescued("a secret", middleware=[Stops()])
    assert (shown, run.outcome, run.reason) == ("PLACEHOLDER", "blocked", "a secret")


class Notes(Middleware):
    async def after_model(self, context):
        return Step(inject=(p.user("a note"),)) if context.message.tool_calls else None


@pytest.mark.parametrize("decides", [True, False])
async def test_what_was_injected_behind_a_waiting_answer_joins_behind_its_results(decides):
    async with Swarm("boats", [yard(middleware=[Notes()])]).start() as live, live.session("ann") as session:
        assert await session.complete("go") == ""
        if decides:
            assert await session.decide({"c1": approve()}) == ""
            assert await session.decide({"c2": approve()}) == "done"
        else:
            assert await session.complete("never mind") == "done"
        shown = [message.text for message in session.messages if message.role == "user"]
        assert shown == ["go", "a note", *([] if decides else ["never mind"])]
        assert roles(session)[:5] == ["user", "assistant", "tool", "tool", "user"]


class StopsBefore(Middleware):
    async def before_model(self, context):
        raise Blocked("closed")


@pytest.mark.parametrize("stops", [Stops(), StopsBefore()])
async def test_middleware_around_the_model_sees_what_is_asked_without_a_trace(stops):
    agent = yard(lambda _: "a secret", middleware=[stops])
    async with Swarm("boats", [agent]).start() as live, live.session("ann") as session:
        assert await session.run("tell me") == ""
        assert await session.consult("yard", "tell me") == ""
        assert session.messages == ()
