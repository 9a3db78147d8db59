"""Answers in a form: ASK-27, CBF-25."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import Literal, TypedDict

import msgspec
import pydantic
import pytest
import typing_extensions
from hypothesis import given, strategies as st
from jsonschema import Draft202012Validator

import palaver as p
from palaver.agent.structured import OUTPUT, OutputError, Structured, output_tool
from palaver.models.catalogue import Capabilities
from palaver.turn.tool import InvalidArgumentsError, ToolContext


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


class Item(msgspec.Struct):
    name: str
    size: int


class Order(msgspec.Struct):
    """An order."""

    items: list[Item]
    state: Literal["open", "paid"]


class Loose(msgspec.Struct):
    name: str
    note: str | None = None


class Tree(msgspec.Struct):
    children: list[Tree]


@dataclass
class Point:
    x: int
    y: float


class Row(TypedDict):
    key: str


class Model(pydantic.BaseModel):
    name: str
    sizes: list[int]


@dataclass
class Stand:
    model: Model
    count: int


class Shelf(typing_extensions.TypedDict):
    model: Model | None


class Shop(msgspec.Struct):
    stands: list[Stand]


SCHEMA = {
    "title": "A place!",
    "type": "object",
    "properties": {"city": {"type": "string"}, "where": {"type": "array", "items": {"type": "number"}}},
    "required": ["city"],
}

GOOD = [
    (Order, {"items": [{"name": "a", "size": 1}], "state": "open"}, Order([Item("a", 1)], "open"), "Order", True),
    (Loose, {"name": "a"}, Loose("a"), "Loose", None),
    (Tree, {"children": [{"children": []}]}, Tree([Tree([])]), "Tree", True),
    (Point, {"x": 1, "y": 2.5}, Point(1, 2.5), "Point", True),
    (Row, {"key": "a"}, {"key": "a"}, "Row", True),
    (Model, {"name": "a", "sizes": [1]}, Model(name="a", sizes=[1]), "Model", True),
    (
        Stand,
        {"model": {"name": "a", "sizes": [1]}, "count": 2},
        Stand(Model(name="a", sizes=[1]), 2),
        "Stand",
        True,
    ),
    (Shelf, {"model": None}, {"model": None}, "Shelf", True),
    (Point, {"x": 1.0, "y": 2.0}, Point(1, 2.0), "Point", True),
    (list[Item], {"value": [{"name": "a", "size": 1.0}]}, [Item("a", 1)], "list", True),
    (SCHEMA, {"city": "a", "where": [1.5]}, {"city": "a", "where": [1.5]}, "A_place_", None),
    (list[Item], {"value": [{"name": "a", "size": 1}]}, [Item("a", 1)], "list", True),
    (int | None, {"value": None}, None, "output", True),
    (dict[str, int], {"a": 1}, {"a": 1}, "dict", None),
    ({"type": "array", "items": {"type": "integer"}}, {"value": [1]}, [1], "output", True),
]


@pytest.mark.parametrize(("form", "value", "expected", "name", "strict"), GOOD)
def test_a_form_is_asked_for_and_read(form, value, expected, name, strict):
    made = Structured(form)
    asked = made.format
    assert (asked.kind, asked.name, asked.strict) == ("json_schema", name, strict)
    assert asked.schema["type"] == "object"
    Draft202012Validator.check_schema(asked.schema)
    Draft202012Validator(asked.schema).validate(value)
    read = made.read(json.dumps(value))
    assert read == expected
    assert type(read) is type(expected)


def test_settings_ask_for_the_form():
    made = Structured(Order, Capabilities())
    assert made.asked(p.Settings(seed=1)) == p.Settings(seed=1, output=made.format)
    assert Structured(Order, Capabilities(structured="json")).format == made.format.replace(strict=None)


def test_a_description_comes_along():
    assert Structured(Order).format.description == "An order."
    assert Structured(Order, name="x y", description="Say it.").format.description == "Say it."
    assert Structured(Order, name="x y").format.name == "x_y"


def test_a_schema_of_the_caller_is_not_changed():
    assert Structured(SCHEMA).format.schema == SCHEMA
    assert Structured({**SCHEMA, "additionalProperties": False, "required": ["city", "where"]}).format.strict is True


@pytest.mark.parametrize(
    "extra", [{"allOf": [{}]}, {"patternProperties": {}}, {"properties": {"a": {"oneOf": [{}]}}, "required": ["a"]}]
)
def test_what_strict_schemas_may_not_have_is_not_asked_for_strictly(extra):
    assert Structured({"type": "object", "additionalProperties": False, **extra}).format.strict is None


ORDER = '{"items": [{"name": "a } {", "size": 1}], "state": "open"}'


@pytest.mark.row("ASK-27")
@pytest.mark.parametrize(
    "text",
    [
        ORDER,
        f"\n {ORDER}\n",
        f"```json\n{ORDER}\n```",
        f"```\n{ORDER}\n```\n",
        f"Here it is:\n```json\n{ORDER}\n```\nAnything else?",
        f"Here it is: {ORDER}. As in {{braces}} and [1].",
        json.dumps(json.loads(ORDER), indent=2),
    ],
)
def test_one_object_is_found_in_the_text_around_it(text):
    assert Structured(Order).read(text) == Order([Item("a } {", 1)], "open")


@pytest.mark.parametrize(
    "text", ['[{"name":"a","size":1}]', 'Here: [{"name":"a","size":1}]', '{"value":[{"name":"a","size":1}]}']
)
def test_what_is_no_object_is_read_bare_too(text):
    assert Structured(list[Item]).read(text) == [Item("a", 1)]


@pytest.mark.row("ASK-27")
@pytest.mark.parametrize(
    ("form", "text", "path", "reason"),
    [
        (Order, "", "$", "no JSON value in the answer"),
        (Order, "I cannot.", "$", "no JSON value in the answer"),
        (Order, "{broken", "$", "no JSON value in the answer"),
        (Order, ORDER + ORDER, "$", "there are 2 JSON values, not one"),
        (Order, "42", "$", "Expected `object`, got `int`"),
        (Order, '{"items": [{"name": "a", "size": "1"}], "state": "open"}', "$.items[0].size", "Expected `int`"),
        (Order, '{"items": [], "state": "gone"}', "$.state", "Invalid enum value 'gone'"),
        (Point, '{"x": 1.5, "y": 2.0}', "$.x", "Expected `int`, got `float`"),
        (Stand, '{"model": {"name": "a", "sizes": [1, "x"]}, "count": 1}', "$.model.sizes[1]", "valid integer"),
        (Order, '{"items": []}', "$", "missing required field `state`"),
        (Order, '{"items": [{"name": "\\ud800", "size": 1}], "state": "open"}', "$", ""),
        (Model, '{"name": "a", "sizes": [1, "x"]}', "$.sizes[1]", "valid integer"),
        (Model, "[]", "$", "object"),
        (SCHEMA, '{"city": 1}', "$.city", "is not of type 'string'"),
        (SCHEMA, '{"city": "a", "where": [1, "x"]}', "$.where[1]", "is not of type 'number'"),
        (SCHEMA, "{}", "$", "'city' is a required property"),
        (SCHEMA, '{"city": NaN}', "$", "no JSON value"),
    ],
)  # fmt: skip
def test_an_answer_that_does_not_fit_names_the_path(form, text, path, reason):
    with pytest.raises(OutputError) as caught:
        Structured(form).read(text)
    assert caught.value.path == path
    assert reason in caught.value.reason
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize("form", [object(), 3, lambda: None, {"type": "no such"}, {"type": "object", "x": object()}])
def test_what_is_no_form_is_refused(form):
    with pytest.raises(p.PalaverError):
        Structured(form)


class NoForm:
    pass


@pytest.mark.parametrize("form", [NoForm, list[NoForm], complex, "Order", [Order], Order([], "open")])
def test_the_error_of_no_form_says_what_a_form_is(form):
    with pytest.raises(p.MessageError, match=r"^output: .* is not an output type \(.*; use a dataclass") as caught:
        Structured(form)
    assert "hook" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("form", [Shop, list[Shop], dict[str, Shop] | None])
def test_a_struct_with_a_pydantic_model_in_it_is_refused_with_what_to_do(form):
    with pytest.raises(p.MessageError, match=r"\(Shop\.stands has a pydantic model, .*; make the class a dataclass"):
        Structured(form)


def test_a_reference_that_leads_to_itself_is_not_followed_forever():
    form = Structured({"type": "object", "$ref": "#"})
    with pytest.raises(p.PalaverError, match="a reference cannot be followed"):
        form.read("{}")


@pytest.mark.parametrize("text", ["{" * 200_000, "[" * 200_000, '{"a":' * 200_000, "[1," * 200_000, "```" * 200_000])
def test_odd_answers_end_soon(text):
    for form in (Order, list[Item], SCHEMA):
        with pytest.raises(OutputError):
            Structured(form).read(text)  # so long that quadratic time would run for many minutes


@given(st.text() | st.text('{}[]":,1a `'))
def test_any_text_is_read_or_refused(text):
    for form in (Order, list[Item], Model, SCHEMA):
        with contextlib.suppress(OutputError):
            Structured(form).read(text)


values = st.builds(
    Order, st.lists(st.builds(Item, st.text(), st.integers(-(2**53), 2**53))), st.sampled_from(["open", "paid"])
)


@given(values, st.text("abc .\n"), st.text("abc .\n"))
def test_what_is_written_is_read(value, before, after):
    assert Structured(Order).read(before + msgspec.json.encode(value).decode() + after) == value


@pytest.mark.anyio
@pytest.mark.row("CBF-25")
async def test_the_tool_keeps_the_output(anyio_backend):
    for form, arguments, value in [(Order, ORDER, Order([Item("a } {", 1)], "open")), (int, '{"value": 3}', 3)]:
        made = Structured(form)
        tool, call = output_tool(made), p.ToolCall("1", "set_output", arguments)
        context = ToolContext(
            call=call,
            agent="a",
            run="r",
            thread="t",
            path=(),
            values={},
            emit=lambda _: None,
            show=lambda _: None,
            idempotency_key="k",
        )
        assert tool.name == "set_output"
        assert tool.definition.parameters == made.format.schema
        output = await tool.run(tool.check(call), context)
        assert not output.is_error
        assert context.values[OUTPUT] == value
        with pytest.raises(InvalidArgumentsError, match="does not fit the schema: \\$"):
            tool.check(p.ToolCall("1", "set_output", ""))


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/any", "$defs": {"any": True}},
        {"type": "object", "$schema": 5},
    ],
)
def test_an_odd_schema_is_taken_or_refused_with_our_error(schema):
    with contextlib.suppress(p.MessageError):
        Structured(schema)
