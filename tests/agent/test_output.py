"""Runs whose answer has a form: ASK-27, CBF-25, issue 5."""

from __future__ import annotations

import json

import msgspec
import pydantic
import pytest

import palaver as p
from palaver.agent.agent import Agent
from palaver.core.errors import RunError
from palaver.models.catalogue import Capabilities
from palaver.models.scripted import ScriptedModel
from palaver.turn import events
from palaver.turn.limits import Limits
from palaver.turn.notes import OUTPUT_ERROR
from palaver.turn.run import Run
from tests.agent.scripts import assert_valid, call, calls, noting
from tests.models.asking import at
from tests.models.faults import says, serve


class City(msgspec.Struct):
    name: str
    people: int


class Town(pydantic.BaseModel):
    name: str
    people: int


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["name", "people"],
}
GOOD = '{"name": "Rome", "people": 3}'
BAD = ["Rome, of course.", '{"name": "Rome", "people": "many"}']


@pytest.mark.anyio
@pytest.mark.row("ASK-27")
@pytest.mark.parametrize(
    ("form", "value"),
    [(City, City("Rome", 3)), (Town, Town(name="Rome", people=3)), (SCHEMA, {"name": "Rome", "people": 3})],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_bad_json_then_a_wrong_schema_then_good(anyio_backend, form, value, stream):
    agent = Agent(ScriptedModel([*BAD, GOOD]), output=form, stream=stream)
    run = await agent.run("Where?")
    assert (run.outcome, run.output, run.iterations) == ("completed", value, 3)
    assert run.text == GOOD
    assert run.check().output == value
    asked = agent.model.asked
    assert [len(prompt.messages) for prompt in asked] == [1, 3, 5]
    assert all(prompt.settings.output.kind == "json_schema" for prompt in asked)
    told = [prompt.messages[-1] for prompt in asked[1:]]
    assert all(each.role == "user" and OUTPUT_ERROR in each.tags for each in told)
    assert "does not fit" in told[0].text
    assert "$.people" in told[1].text
    assert_valid(run.path.messages)


@pytest.mark.anyio
@pytest.mark.row("ASK-27", "CBF-25")
@pytest.mark.parametrize("attempts", [1, 2, 5])
async def test_after_the_last_attempt_the_run_says_what_was_wrong(anyio_backend, attempts):
    script = ["no"] * (attempts - 1) + [BAD[1], "never asked"]
    agent = Agent(ScriptedModel(script), output=City, limits=Limits(output_attempts=attempts))
    run = await agent.run("Where?")
    assert (run.outcome, run.output, run.iterations) == ("invalid_output", None, attempts)
    assert "$.people" in run.reason
    with pytest.raises(RunError, match="invalid_output"):
        run.check()
    assert_valid(run.path.messages)
    assert Run.load(run.dump()).outcome == "invalid_output"
    better = await agent.replace(model=ScriptedModel([GOOD])).run("Once more.", previous=run)
    assert better.output == City("Rome", 3)


@pytest.mark.anyio
async def test_a_form_and_tools_in_one_run(anyio_backend):
    ran = []
    agent = Agent(ScriptedModel([calls(call(to="ann")), BAD[0], calls(call(id="c2", to="ben")), GOOD]), output=City)
    run = await agent.replace(tools=[noting(ran)]).run("Where?")
    assert (run.output, len(ran)) == (City("Rome", 3), 2)
    assert_valid(run.path.messages)


@pytest.mark.anyio
async def test_a_form_while_events_are_read(anyio_backend):
    agent = Agent(ScriptedModel([BAD[0], GOOD]), output=City)
    async with agent.stream("Where?") as running:
        seen = [event async for event in running]
    assert running.result.output == City("Rome", 3)
    assert "".join(each.text for each in seen if isinstance(each, events.TextDelta)) == BAD[0] + GOOD
    assert seen[-1].result.output == City("Rome", 3)


@pytest.mark.anyio
async def test_without_a_form_the_output_is_the_text(anyio_backend):
    run = await Agent(ScriptedModel([GOOD])).run("Where?")
    assert run.output == run.text == GOOD


@pytest.mark.anyio
async def test_an_output_is_read_from_an_answer_that_is_there_already(anyio_backend):
    """A crash between the answer and its reading costs no other call of the model."""
    run = await Agent(ScriptedModel([GOOD])).run("Where?")
    agent = Agent(ScriptedModel(["never asked"]), output=City)
    again = await agent.run(thread=run.thread)
    assert (again.output, again.iterations, agent.model.asked) == (City("Rome", 3), 0, [])


def completion(text):
    message = {"role": "assistant", "content": text}
    return {
        "id": "a1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
    }


@pytest.mark.anyio
@pytest.mark.row("ASK-27")
@pytest.mark.parametrize("held", ["json_schema", "json", None])
async def test_the_bodies_that_are_sent(anyio_backend, held):
    steps = [says(completion(text)) for text in (*BAD, GOOD)]
    with serve(*steps) as server:
        model = at(server.url, capabilities=Capabilities(structured=held))
        run = await Agent(model, output=City, stream=False, instructions="Be short.").run("Where?")
        bodies = [json.loads(each.body) for each in server.asked]
    assert (run.outcome, run.output) == ("completed", City("Rome", 3))
    assert (run.usage, run.cost) == (p.Usage(input=15, output=6), None)
    assert len(bodies) == 3
    for number, body in enumerate(bodies):
        told = [each["content"] for each in body["messages"] if each["role"] == "system"]
        parts = "\n\n".join(told).split("\n\n")
        assert parts[0] == "Be short."
        assert ['"people"' in each for each in parts[1:]] == ([] if held == "json_schema" else [True])
        roles = [each["role"] for each in body["messages"][len(told) :]]
        assert roles == ["user"] + ["assistant", "user"] * number
        kind = body.get("response_format", {}).get("type")
        assert kind == {"json_schema": "json_schema", "json": "json_object", None: None}[held]
        if held == "json_schema":
            schema = body["response_format"]["json_schema"]
            assert (schema["name"], schema["strict"]) == ("City", True)
            assert schema["schema"]["required"] == ["name", "people"]
    assert "does not fit" in json.dumps(bodies[1]["messages"][-1])
    assert "$.people" in json.dumps(bodies[2]["messages"][-1])


@pytest.mark.anyio
@pytest.mark.parametrize("text", ["Rome, of course.", '{"value": "Rome"}'])
async def test_any_text_is_an_output_of_type_str(anyio_backend, text):
    agent = Agent(ScriptedModel([p.assistant(text)]), output=str)
    run = await agent.run("Where?")
    assert (run.outcome, run.output, run.iterations) == ("completed", text, 1)
    assert agent.model.asked[0].settings.output is None
