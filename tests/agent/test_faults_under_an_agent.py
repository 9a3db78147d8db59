"""What becomes of a run, and of its thread, when the model's server fails in every way of the table of faults."""

from __future__ import annotations

import anyio
import pytest

import palaver as p
from palaver import wires
from palaver.agent import Agent, Limits
from palaver.core.errors import ContextOverflowError, RateLimitError, StreamError
from palaver.models.failures import Retry
from palaver.models.fallback import Fallback
from palaver.testing.rules import check_request
from palaver.threads.thread import Thread
from palaver.turn import events, notes
from tests.agent.over_http import World, agent_of, frames, kind_of, model_at, provider, say
from tests.agent.wholeness import broken_pairs, refused_path
from tests.models.asking import Waits, at
from tests.models.faults import HELLO, error, says, serve, streams
from tests.models.speaking import body_of
from tests.models.test_faults import FAULTS

RECOVERIES = Limits().recoveries
STREAMED = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


def _notes(messages):
    return [each for each in messages if notes.STREAM_INTERRUPTED in each.tags]


async def _spoken(stream=True):
    """A run that used a tool, for the next to go on behind."""
    answers = [
        say("openai_chat", "~Hm.", p.tool_call("look", {"at": "a"}, id="call_0")),
        say("openai_chat", "I saw a."),
    ]
    with provider("openai_chat", answers, stream=stream) as (_, model):
        agent = agent_of(model, World(), stream=stream)
        return agent, await agent.run("Look.")


@pytest.mark.anyio
@pytest.mark.law(7)
@pytest.mark.row("KAI-22")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
@pytest.mark.share(2)
async def test_a_run_survives_every_fault(fault):
    agent, before = await _spoken(fault.stream)
    waits = Waits()
    with serve(*fault.steps) as server:
        failing = at(server.url, waits, wire=fault.wire, timeouts=fault.timeouts)
        run = await agent.replace(model=failing).run("Hi.", previous=before)
        asked = [check_request(fault.wire, each.body) for each in server.asked]
    said = [entry.message for entry in run.path[len(before.path) :]]
    times = 1 + RECOVERIES if fault.kept else 1
    assert not any(asked)
    assert fault.sent(len(asked) / times)
    assert tuple(waits) == (fault.waits or ()) * times
    assert list(run.path[: len(before.path)]) == list(before.path)
    if isinstance(fault.seen, str):
        assert (run.outcome, run.error, run.text) == ("completed", None, fault.seen)
        assert [each.role for each in said] == ["user", "assistant"]
    else:
        assert (run.outcome, type(run.error)) == ("failed", fault.seen)
        assert run.reason == str(run.error)
        assert [each.text for each in said if each.role == "assistant"] == [fault.kept] * (times if fault.kept else 0)
        assert {each.finish_reason for each in said if each.role == "assistant"} <= {"error"}
        assert len(_notes(said)) == (RECOVERIES if fault.kept else 0)
        assert [each.role for each in said][:1] == ["user"]
        assert len(said) == (2 * times if fault.kept else 1)
    assert refused_path(run.path, agent.toolbox.definitions) == {}
    await _goes_on(agent, run, fault.stream, FAULTS.index(fault))


async def _goes_on(agent, run, stream, number):
    """The next run completes, at a provider whose turn it is."""
    wire = wires.names()[number % len(wires.names())]
    call = p.tool_call("look", {"at": "b"}, id="call_9")
    with provider(wire, [say(wire, call), say(wire, "Done.")], stream=stream) as (server, model):
        after = await agent.replace(model=model).run("Again.", previous=run)
        assert (after.outcome, after.text) == ("completed", "Done.")
        assert [check_request(wire, body) for _, body in server.requests] == [[], []]
        assert broken_pairs([entry.message for entry in after.path]) == []


# -- streams that break, on every wire -------------------------------------------------------------------------------

SAID = ("~I think.", "I will look.", p.tool_call("look", {"at": "here"}, id="call_1"))


@pytest.mark.anyio
@pytest.mark.law(7)
@pytest.mark.parametrize(("end", "eager"), [("reset", False), ("close", False), ("reset", True)])
@pytest.mark.parametrize("wire", wires.names())
@pytest.mark.share(3)
async def test_a_stream_that_breaks_anywhere_is_recovered_from(wire, end, eager):
    told = frames(wire, say(wire, *SAID))
    healthy = body_of(wire, say(wire, "Recovered."), stream=True)
    kind = kind_of(wire, stream=True)
    for cut in range(1, len(told)):
        world = World()
        steps = (
            streams(*told[:cut], end=end, content_type=kind),
            *[streams(healthy, content_type=kind)] * 2,
        )
        with serve(*steps) as server:
            model = model_at(wire, server.url)
            run = await agent_of(model, world, eager=eager).run("Look.")
            assert (run.outcome, run.text) == ("completed", "Recovered."), cut
            assert [check_request(wire, each.body) for each in server.asked] == [[]] * len(server.asked)
        messages = [entry.message for entry in run.path]
        broke = [each for each in messages if each.role == "assistant" and each.finish_reason == "error"]
        assert len(_notes(messages)) == len(broke) <= 1
        assert broken_pairs(messages) == []
        assert refused_path(run.path, ()) == {}
        if broke:
            assert world.done == [] or eager
            assert "I will look.".startswith(broke[0].text)


@pytest.mark.anyio
async def test_breaks_count_in_a_row_only():
    torn = streams(*frames("openai_chat", say("openai_chat", "Half"))[:2], end="reset")
    call = streams(*frames("openai_chat", say("openai_chat", p.tool_call("look", {"at": "a"}, id="c"))))
    done = streams(*frames("openai_chat", say("openai_chat", "Done.")))
    with serve(torn, torn, torn, call, torn, torn, torn, done) as server:
        run = await agent_of(model_at("openai_chat", server.url), World()).run("Look.")
    assert (run.outcome, run.text) == ("completed", "Done.")
    assert len(_notes([entry.message for entry in run.path])) == 2 * RECOVERIES
    with serve(torn, torn, torn, torn, done) as server:
        run = await agent_of(model_at("openai_chat", server.url), World()).run("Look.")
        assert len(server.asked) == 1 + RECOVERIES
    assert (run.outcome, type(run.error)) == ("failed", StreamError)


# -- told while it happens -------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.row("KAI-22")
async def test_every_wait_is_an_event():
    steps = (says(error("slow down"), 429, retry_after="5"), says(error("oops"), 500), streams(*HELLO))
    waits = Waits()
    with serve(*steps) as server:
        async with Agent(at(server.url, waits)).stream("Hi.") as run:
            seen = [event async for event in run]
    told = [event for event in seen if isinstance(event, events.Retrying)]
    assert [(each.wait, each.attempt, each.fallback, each.model) for each in told] == [
        (5.0, 1, False, "test/m"),
        (2.0, 2, False, "test/m"),
    ]
    assert isinstance(told[0].error, RateLimitError)
    assert tuple(waits) == (5.0, 2.0)
    assert run.result.text == "Hello"
    kinds = [type(event).__name__ for event in seen]
    assert kinds.index("Retrying") < kinds.index("TextDelta")


@pytest.mark.anyio
@pytest.mark.law(5)
async def test_a_chain_takes_over_within_a_run_and_says_so():
    """The first model dies between two steps; the second goes on with what the first began."""
    first, second = "anthropic_messages", "google_generate"
    begun = body_of(first, say(first, "~Look.", p.tool_call("look", {"at": "a"}, id="call_1")), stream=True)
    died = says(error("gone"), 503)
    world = World()
    with (
        serve(streams(begun), died) as dying,
        provider(
            second,
            [say(second, "~Hm.", p.tool_call("look", {"at": "b"}, id="call_2")), say(second, "Done.")],
            stream=True,
        ) as (server, there),
    ):
        chain = Fallback([model_at(first, dying.url, retry=Retry(attempts=1)), there])
        async with agent_of(chain, world).stream("Go.") as running:
            seen = [event async for event in running]
        assert [check_request(first, each.body) for each in dying.asked] == [[]] * len(dying.asked)
        assert [check_request(second, body) for _, body in server.requests] == [[], []]
    assert (running.result.outcome, running.result.text) == ("completed", "Done.")
    assert world.done == ["look a", "look b"]
    falls = [event for event in seen if isinstance(event, events.Retrying)]
    assert {(each.fallback, each.model) for each in falls} == {(True, f"loop/{first}")}
    lost = [
        loss for event in seen if isinstance(event, events.Lost) and event.model == there.name for loss in event.losses
    ]
    assert (1, 0) in [(loss.message, loss.part) for loss in lost if loss.what == "reasoning"]
    assert broken_pairs([entry.message for entry in running.result.path]) == []


@pytest.mark.anyio
async def test_more_than_the_model_can_read_leaves_the_thread_as_it_was():
    agent, before = await _spoken()
    steps = says(error("too long", code="context_length_exceeded"), 400)
    with serve(steps) as server:
        run = await agent.replace(model=at(server.url)).run("Hi.", previous=before)
        assert len(server.asked) == 1
    assert (run.outcome, type(run.error)) == ("failed", ContextOverflowError)
    assert list(run.path[:-1]) == list(before.path)
    assert run.path[-1].message.text == "Hi."


# -- cancelled -------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.row("KAI-21")
@pytest.mark.row("CBF-20")
@pytest.mark.parametrize("how", ["cancel", "leave", "scope"])
@pytest.mark.parametrize("wire", wires.names())
@pytest.mark.share(3)
async def test_to_cancel_closes_the_connection_and_keeps_what_came(wire, how):
    told = frames(wire, say(wire, "This is half of a longer answer, and never was more."))
    half = streams(*told[: len(told) - 3], end="stall", content_type=kind_of(wire, stream=True))
    with serve(half) as server:
        agent = agent_of(model_at(wire, server.url), World())
        thread = Thread()
        seen = await _cancelled(agent, thread, how)
        await anyio.to_thread.run_sync(server.left.wait, 5)
        assert server.left.is_set()
    messages = [entry.message for entry in thread.path()]
    assert [each.role for each in messages] == ["user", "assistant", "user"]
    assert messages[1].text.startswith("This is half")
    assert messages[1].text.startswith(seen)
    assert messages[1].finish_reason == "error"
    assert notes.INTERRUPTED in messages[2].tags
    assert refused_path(thread.path(), agent.toolbox.definitions) == {}
    await _completes(agent, thread, wire)


async def _cancelled(agent, thread, how):
    """Cancel a run when its first words have come; gives what was seen."""
    seen = ""
    with anyio.CancelScope() as scope:
        async with agent.stream("Talk.", thread=thread) as run:
            async for event in run:
                seen += event.text if isinstance(event, events.TextDelta) else ""
                if isinstance(event, events.TextDelta) and len(seen) > 10:
                    if how == "leave":
                        break
                    run.cancel("Enough.") if how == "cancel" else scope.cancel()
    assert how == "scope" or run.result.outcome == "cancelled"
    return seen


async def _completes(agent, thread, wire):
    with provider(wire, [say(wire, "Done.")], stream=True) as (server, model):
        after = await agent.replace(model=model).run("Go on.", thread=thread)
        assert (after.outcome, after.text) == ("completed", "Done.")
        assert check_request(wire, server.requests[0][1]) == []


@pytest.mark.anyio
@pytest.mark.row("KAI-21")
@pytest.mark.row("CBF-20")
async def test_to_cancel_before_anything_came_leaves_no_answer():
    with serve(lambda connection: connection.stall()) as server:
        agent = agent_of(model_at("openai_chat", server.url), World())
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def stop():
                    await anyio.to_thread.run_sync(server.arrived.wait, 5)
                    scope.cancel()

                thread = Thread()
                group.start_soon(stop)
                await agent.run("Talk.", thread=thread)
        await anyio.to_thread.run_sync(server.left.wait, 5)
        assert server.left.is_set()
    assert [entry.message.role for entry in thread.path()] == ["user", "user"]
    await _completes(agent, thread, "anthropic_messages")


@pytest.mark.anyio
async def test_the_time_of_a_run_ends_an_endless_answer():
    told = frames("openai_chat", say("openai_chat", "Endless words"))
    with serve(streams(*told[:2], end="stall")) as server:
        agent = agent_of(model_at("openai_chat", server.url), World(), limits=Limits(seconds=4))
        run = await agent.run("Talk.")
        await anyio.to_thread.run_sync(server.left.wait, 5)
        assert server.left.is_set()
    assert run.outcome == "timed_out"
    assert run.path[1].message.text == "Endless words"[:24]
    await _completes(agent.replace(limits=Limits()), run.thread, "google_generate")
