"""Calls that are not run: those with invalid arguments, and those beyond the limit. The model is told."""

import pytest

import palaver as p
from palaver.models.scripted import ScriptedModel
from palaver.swarm import Call, Recomplete, navigation, tool
from tests.swarm.scripts import PLACEHOLDER, agent, at_work, last

pytestmark = [pytest.mark.anyio, pytest.mark.finding("F-44")]

ran = []


def weather(city: str) -> str:
    ran.append(city)
    return f"rain in {city}"


@tool
async def speak(call: Call) -> None:
    ran.append("speak")
    await call.commit("spoken")
    await call.execute("go on")


@pytest.fixture(autouse=True)
def nothing_ran():
    ran.clear()


def making(*calls):
    return p.assistant(tool_calls=[p.tool_call(name, how, id=f"call-{at}") for at, (name, how) in enumerate(calls)])


WRONG = ("weather", {"city": 5})
RIGHT = ("weather", {"city": "Husum"})


@pytest.mark.parametrize("rescue", [None, Recomplete()])
async def test_a_model_gets_the_error_of_invalid_arguments_and_tries_again(rescue):
    more = {} if rescue is None else {"rescue": rescue}
    a = agent("A", [making(WRONG), making(RIGHT), "It rains."], tools=[weather], **more)
    async with at_work(a) as it:
        assert await it.session.complete("weather?") == "It rains."
        (error,) = await it.heard("agent", "tool-error")
        assert error.input == {"toolId": "call-0", "toolName": "weather"}
        results = [message for message in it.session.messages if isinstance(message, p.ToolMessage)]
    assert ran == ["Husum"]
    assert [result.is_error for result in results] == [True, False]
    assert "Invalid arguments for 'weather'" in results[0].text
    assert "Invalid arguments for 'weather'" in last(a.model.asked[1]).text


async def test_a_model_that_repeats_invalid_arguments_is_asked_no_more_than_a_turn_allows():
    a = agent("A", ScriptedModel([], then=lambda _: making(WRONG)), tools=[weather])
    async with at_work(a, nested=4) as it:
        assert await it.session.complete("weather?") == PLACEHOLDER
    assert len(a.model.asked) == 4
    assert ran == []


async def test_calls_beside_an_invalid_one_do_not_run_and_say_so():
    a = agent("A", [making(RIGHT, WRONG, ("speak", {})), "done"], tools=[weather, speak], max_tool_calls=5)
    async with at_work(a) as it:
        assert await it.session.complete("weather?") == "done"
        results = [message for message in it.session.messages if isinstance(message, p.ToolMessage)]
    assert ran == []
    assert [result.text.startswith("Not run") for result in results] == [True, False, True]
    assert "Invalid arguments" in results[1].text
    assert all(result.is_error for result in results)


async def test_a_call_whose_arguments_are_no_json_is_answered_and_may_be_made_again():
    broken = p.assistant(p.MalformedToolCall('{"city": ', "not JSON: it ends early", "weather", "call-0"))
    a = agent("A", [broken, making(RIGHT), "It rains."], tools=[weather])
    async with at_work(a) as it:
        assert await it.session.complete("weather?") == "It rains."
    assert ran == ["Husum"]
    told = last(a.model.asked[1])
    assert (told.tool_call_id, told.is_error) == ("call-0", True)
    assert "it ends early" in told.text


async def test_a_call_beyond_the_limit_is_published_and_its_result_says_that_it_was_not_run():
    other = ("weather", {"city": "Kiel"})
    a = agent("A", [making(other, RIGHT), "done"], tools=[weather])
    async with at_work(a) as it:
        assert await it.session.complete("weather?") == "done"
        (skipped,) = await it.heard("agent", "tool-skipped")
        assert skipped.input == {"toolId": "call-0", "toolName": "weather"}
    assert ran == ["Husum"]
    *_, asked, first, second = a.model.asked[1].messages
    assert [call.id for call in asked.tool_calls] == ["call-0", "call-1"]
    assert first.tool_call_id == "call-0"
    assert first.text.startswith("Not run: at most 1 of the calls")
    assert second.text == "rain in Husum"


@pytest.mark.parametrize("limit", [0, 1])
async def test_every_call_that_is_left_out_is_published(limit):
    calls = [("speak", {}), ("to_B", {}), ("speak", {})]
    tools = [speak, navigation("B", name="to_B")]
    a = agent("A", [making(*calls), "done"], tools=tools, max_tool_calls=limit)
    async with at_work(a, agent("B", lambda _: "from B")) as it:
        await it.session.complete("go")
        left_out = [event.input["toolId"] for event in await it.heard("agent", "tool-skipped")]
    assert left_out == (["call-0", "call-2"] if limit else ["call-0", "call-1", "call-2"])
    assert ran == []
