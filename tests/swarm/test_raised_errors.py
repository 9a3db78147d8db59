"""What an application's code raises inside a turn is logged with its traceback, and published."""

import logging

import pytest

import palaver as p
from palaver.agent import Agent
from palaver.models.scripted import ScriptedModel
from palaver.swarm import Call, Flush, Pipeline, commit_action, fetch_info, fork, result_tool, tool
from palaver.swarm.bus import Where
from palaver.swarm.events import Event
from tests.swarm.scripts import agent, at_work, branching

pytestmark = [pytest.mark.anyio, pytest.mark.finding("F-40")]

calls_pay = branching(hi=p.assistant(tool_calls=[p.tool_call("pay", {"amount": 1}, id="call-pay")]))


async def charge(call: Call, amount: int) -> None:
    raise KeyError("balance")


def charge_and_return(amount: int) -> str:
    raise KeyError("balance")


def refuse(place, arguments):
    raise KeyError("balance")


async def accept(call: Call, amount: int) -> None:
    await call.emit("paid")


RAISING = {
    "a tool that speaks": tool(charge, name="pay"),
    "a tool that returns": result_tool(charge_and_return).replace(
        definition=result_tool(charge_and_return).definition.replace(name="pay")
    ),
    "a validation": tool(accept, name="pay", validate=refuse),
    "an action": commit_action(charge_and_return, name="pay"),
    "a fetch": fetch_info(charge_and_return, name="pay"),
}


def tracebacks(caplog):
    """The errors that were logged with a traceback."""
    return [record.exc_info[1] for record in caplog.records if record.exc_info and record.exc_info[2]]


@pytest.mark.parametrize("raising", RAISING.values(), ids=RAISING)
async def test_what_a_tool_raises_is_logged_with_its_traceback(raising, caplog):
    async with at_work(agent("A", calls_pay, tools=[raising])) as shop:
        await shop.session.complete("hi")
    assert [repr(error) for error in tracebacks(caplog)] == ["KeyError('balance')"]
    assert any("'pay'" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("kind", RAISING)
async def test_a_tool_error_is_published_with_the_name_of_the_tool(kind):
    async with at_work(agent("A", calls_pay, tools=[RAISING[kind]])) as shop:
        await shop.session.complete("hi")
        (event,) = await shop.heard("agent", "tool-error")
    assert event.input == {"toolId": "call-pay", "toolName": "pay"}
    assert event.output == {"error": "KeyError: 'balance'"}


async def test_what_a_tool_raises_after_its_turn_is_logged(caplog):
    @tool
    async def pay(call: Call, amount: int) -> None:
        await call.emit("paid")
        raise KeyError("balance")

    async with at_work(agent("A", calls_pay, tools=[pay])) as shop:
        assert await shop.session.complete("hi") == "paid"
        assert await shop.session.complete("more") == "answer:more"
    assert [repr(error) for error in tracebacks(caplog)] == ["KeyError('balance')"]


async def test_errors_of_optional_sources_are_logged(caplog):
    def raising(*_):
        raise KeyError("balance")

    tools = [tool(accept, name="pay", available=raising), tool(accept, name="send", describe=raising)]
    async with at_work(agent("A", tools=tools, sources=[raising])) as shop:
        assert await shop.session.complete("hi") == "echo:hi"
    assert [repr(error) for error in tracebacks(caplog)] == ["KeyError('balance')"] * 3


async def test_a_model_error_that_becomes_a_placeholder_is_logged(caplog):
    def failing(prompt):
        raise KeyError("balance")

    async with at_work(agent("A", failing, rescue=Flush(), on_model_error="placeholder")) as shop:
        await shop.session.complete("hi")
        await shop.session.run("hi")
    assert [repr(error) for error in tracebacks(caplog)] == ["KeyError('balance')"] * 2


async def test_errors_of_pipelines_and_forks_are_logged_with_their_traceback(caplog):
    async def failing(session, *_):
        raise KeyError("balance")

    async with at_work(agent("A")) as shop:
        await Pipeline("p", failing).run(shop.session)
        await fork(shop.live, "bob", failing)
    assert [repr(error) for error in tracebacks(caplog)] == ["KeyError('balance')"] * 2


async def test_a_filter_that_raises_is_logged(caplog):
    where = Where(test=lambda event: event.input["nothing"])
    assert not where.admits(Event(source="agent", type="run", client="ann"))
    assert [repr(error) for error in tracebacks(caplog)] == ["KeyError('nothing')"]


async def test_a_plain_agent_logs_what_its_tool_raised(caplog):
    caplog.set_level(logging.DEBUG, logger="palaver.agent")
    script = [p.assistant(tool_calls=[p.tool_call("charge_and_return", {"amount": 1}, id="call-1")]), "done"]
    made = Agent(ScriptedModel(script), tools=[charge_and_return])
    assert (await made.run("hi")).text == "done"
    assert [repr(error) for error in tracebacks(caplog)] == ["KeyError('balance')"]
