"""Events and those who observe them: docs/spec/codebuff.md#8, CBF-24."""

from __future__ import annotations

import threading
import time

import anyio
import anyio.lowlevel
import pytest

import palaver as p
from palaver.agent import Agent, function_tool
from palaver.agent.subagents import subagents
from palaver.core.errors import TransportError
from palaver.models.scripted import Broken, ScriptedModel
from palaver.turn import events
from palaver.turn.events import RunFinished, TextDelta, Warned
from palaver.turn.tool import ToolContext


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(events, "GRACE_SECONDS", 0.1)


def call(name, id="c1", arguments="{}"):
    return p.ToolCall(id=id, name=name, arguments_json=arguments)


@function_tool(effect="read")
def look() -> str:
    """Look."""
    return "seen"


def scripted(*script, **how):
    return Agent(ScriptedModel(script), tools=[look], **how)


def kinds(events):
    return [type(event).__name__ for event in events]


# -- the order of events -----------------------------------------------------------------------------------------------

RUN = ["RunStarted", "MessageAdded"]
CALLS = ["ToolStarted", "ToolFinished", "MessageAdded"]
CHILD = ["SubagentEvent"] * 6
TRACES = {
    "an answer": (["hi"], [*RUN, "IterationStarted", "TextDelta", "MessageAdded", "RunFinished"]),
    "a call": (
        [p.assistant("let me", call("look")), "ok"],
        [
            *RUN,
            *["IterationStarted", "TextDelta", "MessageAdded"],
            *CALLS,
            *["IterationStarted", "TextDelta", "MessageAdded"],
            "RunFinished",
        ],
    ),
    "a call that cannot be": (
        [p.assistant(call("nothing")), "ok"],
        [
            *RUN,
            *["IterationStarted", "MessageAdded", "MessageAdded"],
            *["IterationStarted", "TextDelta", "MessageAdded", "RunFinished"],
        ],
    ),
    "a stream that breaks": (
        [Broken(p.assistant("half")), "whole"],
        [
            *RUN,
            *["IterationStarted", "TextDelta", "MessageAdded", "Warned", "MessageAdded"],
            *["IterationStarted", "TextDelta", "MessageAdded", "RunFinished"],
        ],
    ),
    "a failure": ([TransportError("refused")], [*RUN, "IterationStarted", "RunFinished"]),
    "a sub-agent": (
        [p.assistant(call("task", "t", '{"description": "dig", "agent": "digger"}')), "ok"],
        [
            *RUN,
            *["IterationStarted", "MessageAdded", "ToolStarted", *CHILD, "ToolFinished", "MessageAdded"],
            *["IterationStarted", "TextDelta", "MessageAdded", "RunFinished"],
        ],
    ),
}


def team():
    return subagents([Agent(ScriptedModel(["found"]), name="digger")])


@pytest.mark.row("CBF-24")
@pytest.mark.anyio
@pytest.mark.parametrize("scenario", TRACES)
@pytest.mark.parametrize("is_async", [False, True])
async def test_events_come_in_their_order_to_readers_and_observers(scenario, is_async):
    script, expected = TRACES[scenario]
    seen = []

    async def later(event):
        await anyio.lowlevel.checkpoint()
        seen.append(event)

    made = scripted(*script, middleware=[team()], observers=[later if is_async else seen.append])
    async with made.stream("x") as running:
        read = [event async for event in running]
    assert kinds(read) == expected
    assert seen == read


# -- observers that fail -----------------------------------------------------------------------------------------------


def raising(event):
    raise ValueError("mine")


async def raising_later(event):
    raise ValueError("mine")


def forgetful(event):
    return raising_later(event)


@pytest.mark.row("CBF-24")
@pytest.mark.anyio
@pytest.mark.parametrize("bad", [raising, raising_later, forgetful])
async def test_an_observer_that_raises_is_reported_once_and_others_still_see_all(bad):
    before, after, calls = [], [], []

    def counted(event):
        calls.append(event)
        return bad(event)

    async def counted_later(event):
        calls.append(event)
        await bad(event)

    def answers(_prompt):
        end = time.monotonic() + 60
        while bad is not raising_later and not calls and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(0.02)  # what was raised is caught
        return "ok"

    made = scripted(
        p.assistant(call("look")),
        answers,
        observers=[before.append, counted_later if bad is raising_later else counted, after.append],
    )
    run = await made.run("x")
    assert run.ok
    assert kinds(before) == kinds(after)
    warned = [event for event in after if isinstance(event, Warned)]
    assert len(warned) == 1
    assert "was removed: " in warned[0].text
    assert len(calls) == 1
    assert type(after[-1]) is RunFinished


@pytest.mark.row("CBF-24")
@pytest.mark.anyio
@pytest.mark.parametrize("is_async", [False, True])
async def test_an_observer_that_hangs_holds_nothing_up(is_async):
    release, seen, waited = threading.Event(), [], []

    def hang(event):
        release.wait(60)
        waited.append(event)

    async def hang_later(event):
        await anyio.sleep(60)
        waited.append(event)

    made = scripted("hi", observers=[hang_later if is_async else hang, seen.append])
    run = await made.run("x", on_event=seen.append)
    assert waited == []  # no observer was waited for to its end
    release.set()
    assert run.ok
    assert kinds(seen).count("RunFinished") == 2


@pytest.mark.anyio
@pytest.mark.parametrize("is_async", [False, True])
async def test_one_that_hangs_is_left_out_while_the_run_goes_on(is_async, monkeypatch):
    monkeypatch.setattr(events, "EVENT_SECONDS", 0.03)
    release, seen = threading.Event(), []

    def hang(event):
        release.wait(60)

    async def hang_later(event):
        await anyio.sleep_forever()

    @function_tool(effect="read")
    async def look(context: ToolContext) -> str:
        """Go on until it was left out."""
        with anyio.fail_after(60):
            while not any(isinstance(event, Warned) for event in seen):
                context.emit("still at it")
                await anyio.sleep(0.001)
        return "seen"

    watch = events.Observing([hang_later if is_async else hang, seen.append], None, seconds=0.03)
    made = Agent(ScriptedModel([p.assistant(call("look")), "ok"]), tools=[look])
    await made.driver("x", watch=watch).drive()
    release.set()
    (warned,) = [event.text for event in seen if isinstance(event, Warned)]
    assert warned.endswith("was removed: took longer than 0.03 seconds")


@pytest.mark.anyio
async def test_one_that_falls_behind_is_left_out(monkeypatch):
    monkeypatch.setattr(events, "BACKLOG", 3)
    release, seen = threading.Event(), []
    made = scripted(p.assistant(call("look")), "ok", observers=[lambda _event: release.wait(60)])
    async with made.stream("x") as running:
        seen = [event.text async for event in running if isinstance(event, Warned)]
    release.set()
    assert len(seen) == 1
    assert seen[0].endswith("is 3 events behind")


@pytest.mark.anyio
async def test_observers_see_the_end_of_a_run_that_is_cancelled():
    seen, seen_later = [], []

    async def later(event):
        seen_later.append(event)

    @function_tool
    async def wait() -> str:
        """Wait."""
        scope.cancel()
        await anyio.sleep_forever()
        return ""

    made = Agent(ScriptedModel([p.assistant(call("wait"))]), tools=[wait], observers=[seen.append, later])
    with anyio.CancelScope() as scope:
        await made.run("x")
    assert scope.cancelled_caught
    assert kinds(seen) == kinds(seen_later)
    assert seen[-1].result.outcome == "cancelled"


@pytest.mark.anyio
async def test_without_observers_there_is_no_thread_and_no_event():
    before = threading.active_count()
    made = scripted("hi")
    driver = made.driver("x")
    assert driver.context.watch is None
    await driver.drive()
    assert threading.active_count() <= before


@pytest.mark.anyio
async def test_text_of_observers_is_what_was_said():
    seen = []
    await scripted("hello").run("x", on_event=seen.append)
    assert [event.text for event in seen if isinstance(event, TextDelta)] == ["hello"]
