"""A tool that wants to end the program ends its call, and nothing else."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys

import anyio
import pytest

import palaver as p
from palaver.agent import Agent
from palaver.agent.guardrails import Guardrail, deny
from palaver.models.scripted import ScriptedModel
from palaver.threads.thread import Thread
from tests.swarm.scripts import agent as swarm_agent, at_work

pytestmark = pytest.mark.finding("S-07")


def leave() -> str:
    sys.exit(3)


def parse() -> str:
    return str(argparse.ArgumentParser(exit_on_error=True).parse_args(["--nothing"]))


def interrupt() -> str:
    raise KeyboardInterrupt


def close() -> str:
    raise GeneratorExit


async def leave_later() -> str:
    sys.exit(3)


async def close_later() -> str:
    raise GeneratorExit


class Other(BaseException):
    """One that is no ``Exception``, as those by which test runners skip."""


async def raise_another_later() -> str:
    raise Other


async def raise_in_a_group_later() -> str:
    raise BaseExceptionGroup("tasks", [SystemExit(3), ValueError("no")])


async def cancel_itself() -> str:
    raise asyncio.CancelledError


async def wait_for_what_is_cancelled() -> str:
    task = asyncio.ensure_future(asyncio.sleep(60))
    asyncio.get_running_loop().call_soon(task.cancel)
    await task
    return "never"


EITHER = [leave, parse, interrupt, close, leave_later, close_later, raise_another_later, raise_in_a_group_later]
ASYNCIO = [cancel_itself, wait_for_what_is_cancelled]


def calling(function, *more):
    return p.assistant(*[p.ToolCall(f"c{at}", each.__name__, "{}") for at, each in enumerate((function, *more))])


def other() -> str:
    return "fine"


@pytest.mark.parametrize("tool", [*EITHER, *ASYNCIO])
def test_a_tool_that_exits_is_a_failed_call_and_the_run_goes_on(tool):
    made = Agent(ScriptedModel([calling(tool, other), "done"]), tools=[tool, other])
    run = made.sync.run("x")
    assert (run.outcome, run.text) == ("completed", "done")
    failed, went_on = run.messages[2:4]
    assert (failed.is_error, went_on.text) == (True, "fine")
    assert ("was cancelled" if tool in ASYNCIO else "The tool ended itself: ") in failed.text
    assert not [m for m in run.messages if "INTERRUPTED" in m.tags]


@pytest.mark.parametrize("tool", EITHER)
def test_a_tool_that_exits_is_a_failed_call_on_trio_too(tool):
    made = Agent(ScriptedModel([calling(tool), "done"]), tools=[tool])
    run = anyio.run(made.run, "x", backend="trio")
    assert (run.outcome, run.messages[2].is_error) == ("completed", True)


def test_middleware_sees_a_tool_that_exits_as_one_that_failed():
    seen = []
    guard = Guardrail(after_tool=lambda output, _c, _r: seen.append(output.is_error) or deny("no"))
    made = Agent(ScriptedModel([calling(leave_later), "done"]), tools=[leave_later], middleware=[guard])
    assert made.sync.run("x").outcome == "completed"
    assert seen == [True]


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("tool", [*EITHER, *ASYNCIO])
async def test_a_tool_of_a_swarm_that_exits_ends_its_call_alone(tool):
    made = swarm_agent("A", [calling(tool), "done"], tools=[tool])
    async with at_work(made) as it:
        assert await it.session.complete("x") == "done"
        result = next(m for m in it.session.messages if isinstance(m, p.ToolMessage))
        assert result.is_error
        assert await it.session.complete("and now?")


@pytest.mark.anyio
@pytest.mark.parametrize(("anyio_backend", "native"), [("asyncio", False), ("asyncio", True), ("trio", False)])
async def test_a_cancellation_from_outside_is_none_of_the_tool(native, anyio_backend):
    entered = anyio.Event()

    async def wait() -> None:
        entered.set()
        await anyio.sleep_forever()

    made = Agent(ScriptedModel([calling(wait), "never"]), tools=[wait])
    thread = Thread()
    if native:
        task = asyncio.ensure_future(made.run("x", thread=thread))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        async with made.stream("x", thread=thread) as running:
            await entered.wait()
            running.cancel()
            await running.wait()
        assert running.result.outcome == "cancelled"
    assert len(made.model.asked) == 1
    assert "User interrupted the response." in thread.path()[-1].message.text


@pytest.mark.parametrize("error", [KeyboardInterrupt(), BaseExceptionGroup("tasks", [KeyboardInterrupt()])])
def test_the_users_own_interrupt_goes_through(error):
    async def interrupted() -> None:
        raise error

    with pytest.raises(type(error)):
        Agent(ScriptedModel([calling(interrupted), "never"]), tools=[interrupted]).sync.run("x")


@pytest.fixture
def interruptible():
    """Python's own handler of Ctrl-C, which a background job starts without."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_key_that_is_pressed_while_a_tool_runs_ends_the_run():
    thread = Thread()

    async def pressed() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await anyio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        Agent(ScriptedModel([calling(pressed), "never"]), tools=[pressed]).sync.run("x", thread=thread)
    assert "User interrupted the response." in thread.path()[-1].message.text
