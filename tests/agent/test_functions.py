"""Tools from functions: their schema, their arguments, and how they are run."""

import asyncio
import contextlib
import dataclasses
import datetime as dt
import enum
import functools
import threading
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict

import anyio
import attrs
import jsonschema
import msgspec
import pydantic
import pytest
import typing_extensions
from hypothesis import given, strategies as st
from msgspec import Meta

from palaver import wires
from palaver.agent.functions import function_tool
from palaver.core import jsontext
from palaver.core.errors import MessageError
from palaver.core.factories import user
from palaver.core.parts import Image, Json, Text, ToolCall
from palaver.core.request import Request
from palaver.turn.tool import TIMEOUT, InvalidArgumentsError, ToolContext

START = "Invalid arguments for 'tool': "


@dataclasses.dataclass
class City:
    name: str
    zip: int | None = None


class Spot(msgspec.Struct):
    """A spot on a map."""

    city: City
    colour: "Colour"


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(TypedDict):
    width: int
    height: NotRequired[int]


@attrs.define
class Road:
    length: int


class Inner(pydantic.BaseModel):
    numbers: list[int]


@dataclasses.dataclass
class Stand:
    inner: Inner
    size: int = 1


class Shelf(typing_extensions.TypedDict):
    inner: Inner


class Shop(msgspec.Struct):
    stands: list[Inner]


class Model(pydantic.BaseModel):
    inner: Inner
    day: dt.date = dt.date(2024, 1, 1)


def read(tool, arguments):
    text = arguments if isinstance(arguments, str) else jsontext.encode(arguments).decode()
    return tool.check(ToolCall("c1", "tool", text))


def refused(tool, arguments):
    with pytest.raises(InvalidArgumentsError) as caught:
        read(tool, arguments)
    return str(caught.value).removeprefix(START)


def schema_of(hint, **options):
    def tool(x): ...

    tool.__annotations__ = {"x": hint}
    return function_tool(tool, **options).definition.parameters


# -- definitions -------------------------------------------------------------------------------------------------------


async def weather(
    cities: list[City], ctx: ToolContext, unit: Literal["c", "f"] = "c", *, days: Annotated[int, "How many."] = 3
) -> dict[str, Any]:
    """Tell the weather.

    Args:
        cities: Which places.
        unit: The scale.
        days: Not this text.
    """
    return {"cities": [city.name for city in cities], "unit": unit, "days": days, "deps": ctx.deps}


def test_a_signature_is_a_definition():
    tool = function_tool(weather)
    assert tool.definition.name == "weather"
    assert tool.definition.description == "Tell the weather."
    assert tool.definition.strict is None
    assert (tool.effect, tool.is_repeatable, tool.timeout, tool.limit) == ("write", False, TIMEOUT, None)
    assert tool.definition.parameters == {
        "type": "object",
        "properties": {
            "cities": {"description": "Which places.", "type": "array", "items": {"$ref": "#/$defs/City"}},
            "unit": {"description": "The scale.", "enum": ["c", "f"], "default": "c", "type": "string"},
            "days": {"description": "How many.", "type": "integer", "default": 3},
        },
        "required": ["cities"],
        "additionalProperties": False,
        "$defs": {
            "City": {
                "title": "City",
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "zip": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
                },
                "required": ["name"],
            }
        },
    }


def test_it_is_a_decorator_with_and_without_options():
    @function_tool
    def one():
        """One."""

    @function_tool(
        name="Two",
        description="2",
        effect="read",
        repeatable=True,
        timeout=None,
        limit=10,
        strict=True,
        repairs=["path"],
    )
    def two(path: str):
        """Two."""

    assert (one.name, one.definition.description) == ("one", "One.")
    assert one.definition.parameters == {"type": "object", "properties": {}, "additionalProperties": False}
    assert (two.name, two.definition.description, two.definition.strict) == ("Two", "2", True)
    assert (two.effect, two.is_repeatable, two.timeout, two.limit) == ("read", True, None, 10)
    assert read(two, "{path: src/a.py}") == {"path": "src/a.py"}


TYPES = {
    "int": (int, [3, -(2**60), 3.0], ["3", 3.5, True, None]),
    "float": (float, [3, 2.5], ["2.5"]),
    "bool": (bool, [True], [1, "true"]),
    "str": (str, ["3", ""], [3]),
    "optional": (Optional[int], [1, None], ["x"]),  # noqa: UP045 (people write it)
    "union": (int | str | None, [1, "a", None, 1.0], [[1]]),
    "literal": (Literal["a", 1], ["a", 1], ["b"]),
    "enum": (Colour, ["red"], ["green"]),
    "list": (list[int], [[], [1], [1.0, 2]], [["a"], {}]),
    "dict": (dict[str, list[int]], [{"a": [1]}], [{"a": ["b"]}]),
    "set": (set[int], [[1, 2]], [["a"]]),
    "tuple": (tuple[int, str], [[1, "a"]], [[1], ["a", 1]]),
    "dataclass": (City, [{"name": "Husum"}, {"name": "Husum", "zip": 1}], [{}, {"name": 1}, "Husum"]),
    "struct": (Spot, [{"city": {"name": "x"}, "colour": "red"}], [{"city": {}, "colour": "red"}]),
    "attrs": (Road, [{"length": 1}], [{}]),
    "typed dict": (Size, [{"width": 1}, {"width": 1, "height": 2}], [{"height": 2}]),
    "meta": (Annotated[int, Meta(ge=1, description="Big.")], [1], [0]),
    "model": (Model, [{"inner": {"numbers": [1]}}], [{"inner": {"numbers": ["a"]}}, {}]),
    "models": (list[Inner] | None, [[{"numbers": []}], None], [[{}]]),
    "model in a dataclass": (Stand, [{"inner": {"numbers": [1]}, "size": 1.0}], [{"inner": {"numbers": ["a"]}}, {}]),
    "model in a typed dict": (dict[str, Shelf], [{"a": {"inner": {"numbers": []}}}], [{"a": {"inner": 1}}]),
    "field": (Annotated[int, pydantic.Field(gt=3)], [4], [3]),
    "any": (Any, [1, "a", [None]], []),
}


@pytest.mark.parametrize(("hint", "good", "bad"), TYPES.values(), ids=TYPES)
def test_the_schema_of_a_type_and_its_reading_agree(hint, good, bad):
    def tool(x): ...

    tool.__annotations__ = {"x": hint}
    made = function_tool(tool)
    validator = jsonschema.Draft202012Validator(made.definition.parameters)
    validator.check_schema(made.definition.parameters)
    for value in good:
        assert validator.is_valid({"x": value})
        read(made, {"x": value})
    for value in bad:
        assert not validator.is_valid({"x": value})
        assert refused(made, {"x": value}).startswith("x")


def test_values_become_what_the_types_say():
    @function_tool
    def tool(at: dt.datetime, city: City, names: set[str], model: Model, data: bytes, counts: dict[int, int]):  # noqa: PLR0917 (one of each)
        """Take one of each."""

    assert read(
        tool,
        {
            "at": "2024-01-02T03:04:05Z",
            "city": {"name": "Husum"},
            "names": ["a"],
            "model": {"inner": {"numbers": [1]}, "day": "2024-02-03"},
            "data": "YWI=",
            "counts": {"1": 2},
        },
    ) == {
        "at": dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
        "city": City("Husum"),
        "names": {"a"},
        "model": Model(inner=Inner(numbers=[1]), day=dt.date(2024, 2, 3)),
        "data": b"ab",
        "counts": {1: 2},
    }


def test_what_a_schema_refers_to_is_in_it():
    text = jsontext.encode(schema_of(dict[str, Spot | None])).decode()
    assert text.count("$ref") == 3
    assert set(schema_of(dict[str, Spot | None])["$defs"]) == {"Spot", "City", "Colour"}
    assert schema_of(Colour)["$defs"]["Colour"]["type"] == "string"
    assert set(schema_of(Model)["$defs"]) == {"Inner"}


def test_a_default_that_json_cannot_say_is_not_in_the_schema():
    @function_tool
    def tool(a: Any = object(), b: City = City("Husum"), c: tuple[int, ...] = (1, 2), d: float = float("inf")): ...  # noqa: B008

    properties = tool.definition.parameters["properties"]
    assert [properties[name].get("default") for name in "abcd"] == [None, {"name": "Husum", "zip": None}, [1, 2], None]
    assert "default" not in properties["a"]
    assert "required" not in tool.definition.parameters


def test_a_strict_schema_has_nothing_beside_a_reference():
    hint = Annotated[City, "Where."]
    assert schema_of(hint)["properties"]["x"] == {"description": "Where.", "$ref": "#/$defs/City"}
    assert schema_of(hint, strict=True)["properties"]["x"] == {"$ref": "#/$defs/City"}


class Host:
    @staticmethod
    def fixed(a: int) -> int:
        """Fixed."""
        return a

    def method(self, a: int) -> int:
        """Method."""
        return a

    def __call__(self, a: int) -> int:
        """Call."""
        return a


@pytest.mark.parametrize(
    ("function", "name", "description"),
    [
        (Host.fixed, None, "Fixed."),
        (Host().method, None, "Method."),
        (Host(), "host", "Call."),
        (functools.partial(Host().method), "part", "Method."),
    ],
)
def test_methods_objects_and_partials_are_functions(function, name, description):
    tool = function_tool(function, name=name)
    assert tool.definition.description == description
    assert list(tool.definition.parameters["properties"]) == ["a"]


def many(*values: int): ...
def more(**values: int): ...
def placed(value: int, /): ...
def odd(value: object): ...
def two(value: City | Spot): ...
def mixed(value: dict[str, Shop]): ...
def missing(value: "Nowhere"): ...  # noqa: F821 (that is the point)
def größe(): ...  # noqa: PLC2401 (that is the point)
def generated():
    yield 1


async def generated_too():
    yield 1


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (many, "the tool 'many': the parameter “*values”: a model gives arguments by name"),
        (more, "the tool 'more': the parameter “**values”: a model gives arguments by name"),
        (placed, "the tool 'placed': the parameter “value, /”: a model gives arguments by name"),
        (odd, "the tool 'odd': the parameter 'value' has no schema: type <class 'object'> is not supported"),
        (two, "the tool 'two': the parameter 'value' has no schema: Type unions may not contain more than one"),
        (mixed, "the tool 'mixed': 'value' has no schema: Shop.stands has a pydantic model, which a Struct"),
        (missing, "the tool 'missing': name 'Nowhere' is not defined"),
        (größe, "'größe' is not a tool name"),
        (lambda: None, "a function without a name needs name="),
        (generated, "a generator cannot be a tool"),
        (generated_too, "a generator cannot be a tool"),
    ],
)
def test_what_a_model_cannot_call_is_refused_when_it_is_defined(function, reason):
    with pytest.raises(MessageError) as caught:
        function_tool(function)
    assert str(caught.value).startswith(reason)


def test_every_wire_takes_a_definition_and_keeps_its_schema():
    tool = function_tool(weather)
    for name in wires.names():
        body = wires.get(name).encode_request(Request((user("hi"),), tools=(tool.definition,))).body
        assert b"weather" in body
        assert b'"zip"' in body


# -- arguments ---------------------------------------------------------------------------------------------------------


@pytest.mark.row("DAS-24")
@pytest.mark.row("CBF-17")
def test_every_argument_that_does_not_fit_is_named_with_its_path():
    told = refused(
        function_tool(weather), {"cities": [{"name": "x"}, {"name": 1}], "unit": "k", "when": 1, "days": "3"}
    )
    assert told == (
        "cities[1].name: expected `str`, got `int`; unit: expected one of 'c', 'f'; "
        "when: no such parameter; the parameters are cities, unit, days; days: expected `int`, got `str`"
    )
    assert refused(function_tool(weather), "") == "cities: required, but missing"
    assert refused(function_tool(weather), {"ctx": {}, "cities": []}).startswith("ctx: no such parameter")


def test_a_model_says_all_that_is_wrong_in_it():
    def tool(x: Model): ...

    assert refused(function_tool(tool), {"x": {"inner": {"numbers": ["a", 1, "b"]}, "day": 3.5}}).startswith(
        "x.inner.numbers[0]: Input should be a valid integer, unable to parse string as an integer; x.inner.numbers[2]"
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(st.dictionaries(st.sampled_from(["cities", "unit", "days", "ctx", "name"]), JSON))
def test_any_arguments_are_read_or_refused_in_one_way(arguments):
    tool = function_tool(weather)
    with contextlib.suppress(InvalidArgumentsError):
        read(tool, arguments)


# -- running -----------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_an_asynchronous_function_gets_its_arguments_and_the_context(context):
    tool = function_tool(weather)
    output = await tool.run(read(tool, {"cities": [{"name": "Husum"}]}), context(deps="D"))
    assert output.content == (Json.of({"cities": ["Husum"], "unit": "c", "days": 3, "deps": "D"}),)


@pytest.mark.anyio
async def test_any_other_function_runs_in_a_thread(context):
    @function_tool
    def where(ctx: Annotated[ToolContext, "the context"], n: int = 1):
        return [
            Text(str(threading.current_thread() is threading.main_thread())),
            Image.from_bytes(b"GIF89a"),
            ctx.run,
            n,
        ]

    output = await where.run(read(where, ""), context())
    assert output.content == (Text("False"), Image.from_bytes(b"GIF89a"), Text("run"), Json.of(1))


@pytest.mark.anyio
async def test_what_can_be_awaited_is_awaited(context):
    async def inner():
        return "inner"

    tool = function_tool(lambda: inner(), name="outer")  # noqa: PLW0108 (not a coroutine function)
    assert (await tool.run({}, context())).content == (Text("inner"),)


@pytest.mark.anyio
async def test_what_a_function_raises_goes_through(context):
    @function_tool
    def fails():
        raise KeyError("a")

    with pytest.raises(KeyError):
        await fails.run({}, context())


@pytest.mark.anyio
async def test_cancellation_reaches_an_asynchronous_function_at_once(context):
    cancelled = []

    @function_tool
    async def waits():
        scope.cancel()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            cancelled.append(True)
            raise

    with anyio.CancelScope() as scope:
        await waits.run({}, context())
    assert cancelled


@pytest.mark.anyio
async def test_a_thread_is_abandoned_when_the_call_is_cancelled(context):
    go_on, done = threading.Event(), threading.Event()

    @function_tool
    def waits():
        anyio.from_thread.run_sync(scope.cancel)
        go_on.wait(60)
        done.set()

    with anyio.fail_after(60):
        with anyio.CancelScope() as scope:
            await waits.run({}, context())
        assert scope.cancelled_caught
        assert not done.is_set()
        go_on.set()
        await anyio.to_thread.run_sync(done.wait, 60)


def test_asyncio_alone_is_enough(context):
    tool = function_tool(weather)
    assert not asyncio.run(tool.run({"cities": []}, context())).is_error
