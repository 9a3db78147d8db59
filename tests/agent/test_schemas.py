"""Tools from JSON Schema, and free-text tools."""

import json
import subprocess
import sys

import pytest

from palaver import wires
from palaver.agent.functions import schema_tool
from palaver.agent.structured import OutputError, Structured
from palaver.core.errors import MessageError
from palaver.core.factories import user
from palaver.core.parts import Json, Text, ToolCall
from palaver.core.request import Request
from palaver.turn.tool import InvalidArgumentsError

SCHEMA = {
    "type": "object",
    "properties": {
        "cities": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "kind": {"enum": ["town", "village"]}},
                "required": ["name"],
            },
        },
        "size": {"anyOf": [{"type": "integer"}, {"type": "object", "required": ["width"]}]},
    },
    "required": ["cities"],
    "additionalProperties": False,
}


def tool_of(schema=SCHEMA, run=lambda arguments: arguments, **options):
    return schema_tool("x", "Do it.", schema, run, **options)


def refused(tool, arguments):
    with pytest.raises(InvalidArgumentsError) as caught:
        tool.check(ToolCall("c1", "x", json.dumps(arguments)))
    return str(caught.value).removeprefix("Invalid arguments for 'x': ")


@pytest.mark.row("KAI-18")
def test_a_schema_passes_through_unchanged_byte_for_byte():
    text = '{"type" : "object", "properties": {"a": {"type": "number", "minimum": 5e-06, "items": {"enum": [1.0]}}}}'
    tool = tool_of(text)
    assert bytes(tool.definition.parameters_json) == text.encode()
    body = wires.get("openai_chat").encode_request(Request((user("hi"),), tools=(tool.definition,))).body
    assert text.encode() in body
    assert tool_of(SCHEMA).definition.parameters == SCHEMA
    assert list(tool_of(SCHEMA).definition.parameters) == list(SCHEMA)


ISSUES = {
    "nested": ({"cities": [{"name": "a"}, {"name": "b"}, {"name": 3}]}, "cities[2].name: 3 is not of type 'string'"),
    "required": ({}, "'cities' is a required property"),
    "required inside": ({"cities": [{}]}, "cities[0]: 'name' is a required property"),
    "enum": ({"cities": [{"name": "a", "kind": "x"}]}, "cities[0].kind: 'x' is not one of ['town', 'village']"),
    "any of": ({"cities": [], "size": {}}, "size: 'width' is a required property"),
    "extra": ({"cities": [], "y": 1}, "Additional properties are not allowed ('y' was unexpected)"),
    "two": ({"cities": [{"name": 1}, {"name": 2}]}, "cities[0].name: 1 is not of type 'string'; cities[1].name: 2 is"),
}


@pytest.mark.row("DAS-24")
@pytest.mark.parametrize(("arguments", "issue"), ISSUES.values(), ids=ISSUES)
def test_arguments_are_checked_against_the_whole_schema(arguments, issue):
    assert refused(tool_of(), arguments).startswith(issue)


def test_an_issue_does_not_show_the_whole_input():
    assert len(refused(tool_of(), {"cities": "x" * 10_000})) < 100


def test_many_issues_are_sorted_by_place_and_only_the_first_are_listed():
    told = refused(tool_of(), {"cities": [{"name": number} for number in range(9)]})
    assert told.startswith("cities[0].name: 0 is not")
    assert told.endswith("; and 4 more")


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "thing"}, "the schema of the tool 'x': $.type: 'thing' is not valid under any of the given schemas"),
        ({"minimum": float("nan")}, "the schema of the tool 'x'.minimum: nan is not a JSON number"),
        ("{", "the schema of the tool 'x': not JSON"),
        ("[]", "the schema of the tool 'x': expected an object, got an array"),
    ],
)
def test_a_schema_that_is_none_is_refused_when_it_is_defined(schema, reason):
    with pytest.raises(MessageError) as caught:
        tool_of(schema)
    assert str(caught.value).startswith(reason)


ELSEWHERE = "http://127.0.0.1:1/schema.json"
DRAFT = "http://json-schema.org/draft-0{}/schema#"


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"properties": {"a": {"$ref": "#/$defs/no"}}}, "'#/$defs/no' leads nowhere"),
        ({"$defs": {"x": {"items": {"$ref": "#nameless"}}}}, "'#nameless' leads nowhere"),
        ({"anyOf": [{"$ref": "#/more/x"}], "more": {"x": {"$ref": "#/no"}}}, "'#/no' leads nowhere"),
        ({"properties": {"a": {"$ref": "#/required/x"}}, "required": ["a"]}, "'#/required/x' leads nowhere"),
        ({"$ref": "#/required", "required": ["a"]}, "'#/required' leads to ['a'], which is no schema"),
        ({"$ref": "#/more", "more": {"properties": 3}}, "'#/more' leads nowhere"),
        ({"properties": {"a": {"$ref": ELSEWHERE}}}, f"{ELSEWHERE!r} leads nowhere; other documents are not fetched"),
        ({"properties": {"a": {"$ref": "http://[::1"}}}, "'http://[::1' leads nowhere; other documents"),
        ({"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": True}}, None),
        ({"properties": {"a": {"$ref": "#"}, "$ref": {"enum": [{"$ref": "#/no"}]}}}, None),
        (
            {"$id": "https://a/b", "properties": {"a": {"$ref": "c#d"}}, "$defs": {"y": {"$id": "c", "$anchor": "d"}}},
            None,
        ),
        ({"items": {"$ref": "https://json-schema.org/draft/2020-12/schema"}}, None),
        ({"$schema": DRAFT.format(7), "not": {"$ref": "#/x"}, "x": {"not": {}}}, None),
    ],
)
def test_a_reference_that_leads_nowhere_is_refused_when_it_is_defined(monkeypatch, schema, reason):
    fetched = []
    monkeypatch.setattr("urllib.request.urlopen", fetched.append)
    schema = {"type": "object", **schema}
    for make, where in ((tool_of, "the schema of the tool 'x'"), (Structured, "schema")):
        if reason is None:
            make(schema)
            continue
        with pytest.raises(MessageError) as caught:
            make(schema)
        assert str(caught.value).startswith(f"{where}: the reference {reason}")
    assert not fetched


@pytest.mark.parametrize("of", [{"multipleOf": 0.01}, {"divisibleBy": 0.01, "$schema": DRAFT.format(3)}], ids=list)
@pytest.mark.parametrize(
    ("number", "fits"),
    [
        ("0.07", True),
        ("0.075", False),
        ("1.1", True),
        ("1e300", True),
        ("1e400", False),
        ("1e-5", False),
        (f"-3{'0' * 400}", True),
    ],
)
def test_a_multiple_is_counted_in_the_digits_that_are_written(of, number, fits):
    form = Structured({"type": "object", "properties": {"n": of}, "$schema": of.get("$schema", DRAFT.format(7))})
    if fits:
        assert form.read(f'{{"n": {number}}}') == {"n": json.loads(number)}
    else:
        with pytest.raises(OutputError, match=r"is not a multiple of 0\.01|too large to check"):
            form.read(f'{{"n": {number}}}')


def test_an_older_draft_is_read_as_it_was_meant():
    old = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "properties": {"a": {"maximum": 3, "exclusiveMaximum": True}},
    }
    assert refused(tool_of(old), {"a": 3}) == "a: 3 is greater than or equal to the maximum of 3"


@pytest.mark.anyio
async def test_a_function_gets_a_dictionary_and_the_context_when_it_takes_one(context):
    async def both(arguments, ctx):
        return {**arguments, "deps": ctx.deps}

    with_context, without = tool_of(run=both), tool_of()
    arguments = with_context.check(ToolCall("c1", "x", '{"cities": []}'))
    assert type(arguments) is dict
    assert (await with_context.run(arguments, context(deps=1))).content == (Json.of({"cities": [], "deps": 1}),)
    assert (await without.run(arguments, context())).content == (Json.of({"cities": []}),)


def test_without_a_schema_there_are_no_parameters():
    assert tool_of(None).definition.parameters == {"type": "object", "properties": {}}


@pytest.mark.anyio
async def test_a_free_text_tool_gets_its_text(context):
    shell = schema_tool("shell", "Run it.", None, lambda text: text.upper(), custom=True, effect="read", scope="os")
    assert (shell.definition.custom, shell.definition.parameters, shell.scope) == (True, None, "os")
    text = shell.check(ToolCall("c1", "shell", '"ls -l"', custom=True))
    assert (await shell.run(text, context())).content == (Text("LS -L"),)
    with pytest.raises(MessageError, match="a free-text tool has no parameters"):
        schema_tool("shell", None, {}, print, custom=True)


def test_what_is_not_used_is_not_imported():
    code = (
        "import palaver.agent.functions, palaver.agent.functions, palaver.agent.mcp, sys;"
        "print({'mcp', 'jsonschema', 'pydantic', 'httpx', 'httpx2'} & set(sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"
