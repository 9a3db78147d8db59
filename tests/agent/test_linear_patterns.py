"""Patterns of schemas are matched in linear time: a value of sixty letters would take a backtracking matcher years."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import msgspec
import pytest
from msgspec import Meta, Struct

import palaver as p
from palaver.agent import Agent, InvalidArgumentsError, function_tool, schema_tool
from palaver.agent.json_schema import drop_patterns, linear_validator
from palaver.agent.structured import OutputError, Structured
from palaver.core.errors import MessageError
from palaver.models import ScriptedModel

pytestmark = pytest.mark.finding("F-106")

EVIL = "^(a+)+$"
BAD, GOOD = "a" * 60 + "!", "a" * 60
Text = Annotated[str, Meta(pattern=EVIL)]


def call(arguments: dict[str, Any]) -> p.ToolCall:
    return p.tool_call("look", arguments, id="c")


SCHEMAS = {
    "pattern": ({"properties": {"x": {"pattern": EVIL}}}, {"x": BAD}),
    "in a list": ({"properties": {"x": {"items": {"anyOf": [{"pattern": EVIL}]}}}}, {"x": [BAD]}),
    "by reference": ({"$defs": {"t": {"pattern": EVIL}}, "properties": {"x": {"$ref": "#/$defs/t"}}}, {"x": BAD}),
    "names": ({"propertyNames": {"pattern": EVIL}}, {BAD: 1}),
    "patternProperties": ({"patternProperties": {EVIL: {"type": "integer"}}, "additionalProperties": False}, {BAD: 1}),
    "not": ({"properties": {"x": {"not": {"not": {"pattern": EVIL}}}}}, {"x": BAD}),
    "dependentSchemas": ({"dependentSchemas": {"x": {"properties": {"x": {"pattern": EVIL}}}}}, {"x": BAD}),
    **{
        f"another transcript format, {draft}": (
            {"properties": {"x": {"$schema": f"http{draft}/schema#", "pattern": EVIL}}},
            {"x": BAD},
        )
        for draft in ("://json-schema.org/draft-07", "s://json-schema.org/draft/2019-09")
    },
    "draft 4": (
        {"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"x": {"pattern": EVIL}}},
        {"x": BAD},
    ),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_pattern_of_a_schema_does_not_backtrack(name):
    schema, value = SCHEMAS[name]
    tool = schema_tool("look", None, {"type": "object", **schema}, lambda given: given)
    with pytest.raises(InvalidArgumentsError, match=r"does not match|do not match|unexpected|should not be valid"):
        tool.check(call(value))


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_pattern_of_an_answers_schema_does_not_backtrack(name):
    schema, value = SCHEMAS[name]
    with pytest.raises(OutputError):
        Structured({"type": "object", **schema}).read(msgspec.json.encode(value).decode())


class Boat(Struct):
    name: Text


@dataclass
class Crew:
    names: list[Text]


class Log(TypedDict):
    entry: Text | None


TYPES = {
    "text": (Text, BAD, GOOD),
    "list": (list[Text], [GOOD, BAD], [GOOD]),
    "keys": (dict[Text, int], {BAD: 1}, {GOOD: 1}),
    "union": (Text | int | None, BAD, 3),
    "struct": (Boat, {"name": BAD}, {"name": GOOD}),
    "dataclass": (list[Crew], [{"names": [BAD]}], [{"names": [GOOD]}]),
    "typed dict": (Log, {"entry": BAD}, {"entry": None}),
}


@pytest.mark.parametrize("name", TYPES)
def test_a_pattern_of_a_type_does_not_backtrack(name):
    kind, bad, good = TYPES[name]

    def look(x: Any) -> None:
        """Look."""

    look.__annotations__["x"] = kind
    tool = function_tool(look)
    with pytest.raises(InvalidArgumentsError, match=r"x.*does not match"):
        tool.check(call({"x": bad}))
    assert tool.check(call({"x": good})) == {"x": msgspec.convert(good, kind)}
    form = Structured(kind)
    with pytest.raises(OutputError, match="does not match"):
        form.read(msgspec.json.encode(bad if isinstance(bad, dict) else {"value": bad}).decode())


def test_the_path_of_a_pattern_is_named():
    def look(x: list[Crew]) -> None:
        """Look."""

    look.__annotations__["x"] = list[Crew]
    with pytest.raises(InvalidArgumentsError, match=r"x\[0\]\.names\[1\]: 'b' does not match"):
        function_tool(look).check(call({"x": [{"names": ["a", "b"]}]}))


@pytest.mark.parametrize("pattern", ["(?=a)a", r"(a)\1", "(?<!a)b", "[", "(a{1000}){1000}"])
def test_a_pattern_that_has_no_linear_form_is_refused_where_it_is_given(pattern):
    schema = {"type": "object", "properties": {"x": {"pattern": pattern}}}
    with pytest.raises(MessageError, match=r"the schema of the tool 'look': the pattern .* is not supported"):
        schema_tool("look", None, schema, lambda given: given)
    with pytest.raises(MessageError, match=r"schema: the pattern .* is not supported"):
        Agent(ScriptedModel([]), output=schema)
    if pattern[0] == "(":
        with pytest.raises(MessageError, match=r"the parameter 'x': the pattern .* is not supported"):
            function_tool(_looking(Annotated[str, Meta(pattern=pattern)]))


def _looking(kind: Any) -> Any:
    def look(x: Any) -> None:
        """Look."""

    look.__annotations__["x"] = kind
    return look


def test_patterns_beside_unevaluated_properties_are_refused():
    schema = {"patternProperties": {EVIL: {}}, "unevaluatedProperties": False}
    with pytest.raises(MessageError, match="patternProperties with unevaluatedProperties is not supported"):
        linear_validator(schema, "here")


@pytest.mark.parametrize(
    ("pattern", "matches", "fails"),
    [
        (r"^\u0041\/$", "A/", "B/"),
        (r"^\\u0041$", r"\u0041", "A"),
        (r"^a\Z", "a", "ab"),
        (r"^\p{Lu}$", "Ä", "ä"),
        (r"^(?<name>a)$", "a", "b"),
        ("b", "abc", "\ud800"),
    ],
)
def test_patterns_are_those_of_ecma(pattern, matches, fails):
    validator = linear_validator({"pattern": pattern}, "here")
    assert validator.is_valid(matches)
    assert not validator.is_valid(fails)


def test_patterns_are_dropped_with_what_depends_on_them():
    schema = {
        "properties": {"pattern": {"type": "string", "pattern": EVIL}},
        "items": [{"patternProperties": {EVIL: {}}, "additionalProperties": False}],
    }
    drop_patterns(schema)
    assert schema == {"properties": {"pattern": {"type": "string"}}, "items": [{}]}
