"""Outlines: a value in a form, and what a model is told of an answer that has none."""

import msgspec
import pytest

import palaver as p
from palaver import wires
from palaver.core.errors import MessageError, SwarmError, TransportError
from palaver.models.scripted import ScriptedModel
from palaver.swarm.extras.outline import Outline
from tests.swarm.scripts import told

pytestmark = pytest.mark.anyio

SCHEMA = {
    "title": "Order",
    "type": "object",
    "properties": {"item": {"type": "string"}, "count": {"type": "integer", "minimum": 1}},
    "required": ["item", "count"],
    "additionalProperties": False,
}
GOOD = '{"item": "pen", "count": 2}'


class Order(msgspec.Struct):
    item: str
    count: int


def scripted(*turns):
    return ScriptedModel(list(turns))


def order(model, **more):
    return Outline("order", model, SCHEMA, **more)


@pytest.mark.row("ASK-27")
async def test_an_answer_that_is_right_at_once():
    heard = []
    model = scripted(GOOD)
    outline = order(
        model,
        instructions="Read orders.",
        system=["Be exact."],
        flags=["/no_think"],
        on_attempt=lambda attempt: heard.append(("attempt", attempt.number, told(attempt.messages))),
        on_document=lambda result: heard.append(("document", result.is_valid)),
        on_valid_document=lambda result: heard.append(("valid", result.data)),
        on_invalid_document=lambda _: heard.append("invalid"),
    )
    result = await outline.run("two pens")
    assert (result.is_valid, result.attempt, result.error) == (True, 0, None)
    assert result.data == {"item": "pen", "count": 2}
    assert result.params == ("two pens",)
    (prompt,) = model.asked
    texts = [(each.role, each.text) for each in prompt.messages]
    assert texts == [
        ("system", "Read orders."),
        ("system", "Be exact."),
        ("system", "/no_think"),
        ("user", "two pens"),
    ]
    assert result.history == tuple(prompt.messages)
    assert prompt.settings.output.kind == "json_schema"
    assert prompt.settings.output.name == "Order"
    assert msgspec.json.decode(prompt.settings.output.schema_json) == SCHEMA
    system = ['system"Read orders."', 'system"Be exact."', 'system"/no_think"']
    assert heard == [("attempt", 0, system), ("document", True), ("valid", result.data)]


@pytest.mark.row("ASK-27")
async def test_each_attempt_sees_what_was_wrong_with_the_last():
    model = scripted("no idea", '{"item": "pen", "count": 0}', GOOD)
    asked = []

    async def history(attempt, text):
        asked.append((attempt.number, attempt.outline, attempt.format.kind, attempt.result_id))
        return [p.user(text)]

    result = await order(model, history=history).run("two pens")
    assert (result.is_valid, result.attempt, result.data["count"]) == (True, 2, 2)
    first, second, third = [[(m.role, m.text) for m in prompt.messages] for prompt in model.asked]
    assert first == [("user", "two pens")]
    assert second[:2] == [("user", "two pens"), ("assistant", "no idea")]
    assert second[2][0] == "user"
    assert "there is no JSON value in the answer" in second[2][1]
    assert len(second) == len(third) == 3
    assert third[1] == ("assistant", '{"item": "pen", "count": 0}')
    assert "$.count" in third[2][1]
    assert "less than the minimum" in third[2][1]
    assert asked == [(number, "order", "json_schema", result.result_id) for number in range(3)]


@pytest.mark.row("ASK-27")
async def test_when_no_attempt_is_right_the_last_error_is_kept():
    heard = []
    model = scripted("one", GOOD, '{"item": "cap", "count": 3}')

    def pens_only(data, text):
        if text == "two pens" and data["item"] != "pen":
            raise ValueError("only pens")

    async def even(data, _):
        return None if data["count"] % 2 == 0 and data["count"] > 2 else f"{data['count']} is no good number"

    outline = order(model, attempts=3, validations=[pens_only, even], on_invalid_document=heard.append)
    result = await outline.run("two pens")
    assert (result.is_valid, result.attempt, result.data, result.error) == (False, 3, None, "only pens")
    assert heard == [result]
    assert "2 is no good number" in result.history[-1].text
    assert len(model.asked) == 3


@pytest.mark.row("ASK-27")
async def test_a_validation_that_gives_false_refuses():
    def pays(_data, _text):
        return False

    result = await order(scripted(GOOD), attempts=1, validations=[pays]).run("two pens")
    assert result.error == "pays returned False"


async def test_a_type_gives_a_value_of_it():
    result = await Outline("order", scripted(GOOD), Order).run("two pens")
    assert result.data == Order("pen", 2)


async def test_an_empty_answer_is_not_sent_back_to_the_model():
    model = scripted("", GOOD)
    assert (await order(model).run("two pens")).attempt == 1
    assert [each.role for each in model.asked[1].messages] == ["user", "user"]


async def test_a_prompt_may_be_a_function_and_a_text_is_a_history():
    model = scripted(GOOD)
    outline = order(model, instructions=lambda item: f"About {item}.", history=lambda _, item: f"how many {item}?")
    assert (await outline.run("pens")).is_valid
    assert told(model.asked[0].messages) == ['system"About pens."', 'user/None"how many pens?"']


@pytest.mark.row("ASK-17")
async def test_a_model_that_fails_raises():
    with pytest.raises(TransportError, match="down"):
        await order(scripted(TransportError("down"))).run("two pens")

    def broken(_, __):
        raise LookupError("no history")

    with pytest.raises(LookupError, match="no history"):
        await order(scripted(GOOD), history=broken).run("two pens")


async def test_an_observer_that_raises_disturbs_nothing(caplog):
    def broken(_):
        raise OSError("disk full")

    outline = order(scripted(GOOD), on_attempt=broken, on_document=broken, on_valid_document=broken)
    assert (await outline.run("two pens")).is_valid
    assert caplog.text.count("the error is ignored") == 3


async def test_a_replaced_outline_is_another():
    first = order(scripted("no", "no"), attempts=1)
    second = first.replace(model=scripted(GOOD), validations=[])
    assert not (await first.run("x")).is_valid
    assert (await second.run("x")).is_valid
    assert (first.name, second.attempts) == ("order", 1)


def test_invalid_arguments_are_refused():
    with pytest.raises(SwarmError, match="an outline needs a name"):
        Outline("", scripted(), SCHEMA)
    with pytest.raises(SwarmError, match="at least one attempt"):
        order(scripted(), attempts=0)
    with pytest.raises(MessageError, match="schema"):
        Outline("bad", scripted(), {"type": "nothing"})


@pytest.mark.row("ASK-27")
async def test_what_a_provider_is_sent_holds_the_schema_and_the_error():
    model = scripted("no idea", GOOD)
    result = await order(model, instructions="Read orders.").run("two pens")
    prompt = model.asked[1]
    wire = wires.get("openai_chat")
    encoded = wire.encode_request(prompt.request("m"))
    body = msgspec.json.decode(encoded.body)
    assert body["response_format"]["type"] == "json_schema"
    assert body["response_format"]["json_schema"]["schema"] == SCHEMA
    assert [each["role"] for each in body["messages"]] == ["system", "user", "assistant", "user"]
    assert body["messages"][-1]["content"].startswith("Your answer cannot be used: $: there is no JSON value")
    assert not encoded.losses
    assert result.is_valid


async def test_a_cut_answer_is_invalid_and_the_last():
    model = scripted(p.assistant(GOOD, finish_reason="length"), GOOD)
    result = await order(model).run("two pens")
    assert (result.is_valid, result.attempt, result.data, len(model.asked)) == (False, 1, None, 1)
    assert result.error == f"the answer was cut at the model's output limit: {GOOD}"
