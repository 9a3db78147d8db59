"""Answers in a form, over a run of an agent and over a turn of a swarm."""

from __future__ import annotations

import pytest
from msgspec import Struct

import palaver as p
from palaver.agent import Limits
from palaver.models.scripted import ScriptedModel
from palaver.swarm import Swarm, SwarmAgent

pytestmark = pytest.mark.anyio


class Tide(Struct):
    hour: int


async def test_an_answer_is_read_in_its_form(over):
    done = await over(ScriptedModel(['{"hour": 18}']), output=Tide)
    assert (done.run.outcome, done.run.output) == ("completed", Tide(18))
    assert done.asked[0].settings.output.name == "Tide"


async def test_an_answer_in_a_wrong_form_is_asked_for_again(over):
    done = await over(ScriptedModel(["at six", '{"hour": 18}']), output=Tide)
    assert (done.run.outcome, done.run.output, done.shown) == ("completed", Tide(18), '{"hour": 18}')
    told = [each.text for each in done.asked[1].messages]
    assert "at six" in told[-2]
    assert "does not fit" in told[-1]


async def test_attempts_at_a_form_are_limited(over):
    model = ScriptedModel([], then="at six")
    done = await over(model, output=Tide, limits=Limits(output_attempts=2))
    assert done.run.outcome == "invalid_output"
    assert len(done.asked) == 2


@pytest.mark.parametrize("limits", [Limits(), Limits(continue_cut=True), Limits(iterations=1)])
@pytest.mark.parametrize("text", ["12", '{"value": 12}', '{"val'])
async def test_a_cut_answer_is_no_output_and_is_not_asked_for_again(over, text, limits):
    done = await over(ScriptedModel([p.assistant(text, finish_reason="length"), "13"]), output=int, limits=limits)
    assert (done.run.outcome, done.run.output, len(done.asked)) == ("length", None, 1)
    assert done.run.reason.startswith("the answer was cut at the model's output limit")
    assert text in done.run.reason + done.run.text


async def test_without_a_form_the_output_is_the_text(over):
    done = await over(ScriptedModel(["well"]))
    assert done.run.output == "well"


async def test_an_answer_in_a_wrong_form_is_no_answer_of_the_session():
    agent = SwarmAgent("A", ScriptedModel(["at six", '{"hour": 18}']), output=Tide)
    async with Swarm("shop", [agent]).start() as live, live.session("ann") as session:
        await session.complete("when?", run="t1")
        assert [each.text for each in session.assistant_history] == ['{"hour": 18}']
        assert await session.complete("when?", run="t1") == '{"hour": 18}'
