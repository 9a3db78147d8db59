"""Schemas that a provider compiles are sent with the keywords that it takes, and the receipt names what changed."""

import json

import pytest

from palaver import Request, Settings, Tool, user, wires
from palaver.core.request import OutputFormat

SCHEMA = {
    "type": "object",
    "properties": {
        "euros": {"type": "integer", "exclusiveMinimum": 0, "description": "The price."},
        "tags": {"type": "array", "items": {"type": "string", "minLength": 1}, "uniqueItems": True, "minItems": 2},
        "pet": {"oneOf": [{"$ref": "#/$defs/Cat"}, {"type": "null"}], "discriminator": {"propertyName": "kind"}},
        "on": {"type": "string", "format": "date"},
        "at": {"type": "string", "format": "decimal", "pattern": "^(?!x)"},
    },
    "required": ["euros", "tags", "pet", "on", "at"],
    "additionalProperties": False,
    "$defs": {"Cat": {"type": "object", "properties": {"kind": {"const": "cat"}}, "required": ["kind"]}},
}
COMPILED = ("anthropic", "openai", "responses", "bedrock", "cohere")


def sent(wire, schema=SCHEMA, *, strict=True):
    """The schema of an answer as it is sent, and the losses of it."""
    form = OutputFormat.of(schema, name="pet", strict=strict)
    request = Request((user("Which pet?"),), "m", settings=Settings(output=form, max_tokens=10))
    encoded = wires.get(wire).encode_request(request)
    body = json.loads(encoded.body)
    match wire:
        case "anthropic":
            found = body["output_config"]["format"]["schema"]
        case "openai":
            found = body["response_format"]["json_schema"]["schema"]
        case "responses":
            found = body["text"]["format"]["schema"]
        case "bedrock":
            found = json.loads(body["outputConfig"]["textFormat"]["structure"]["jsonSchema"]["schema"])
        case _:
            found = body["response_format"]["json_schema"]
    return found, [loss.why for loss in encoded.losses if loss.what == "output"]


def keywords(schema):
    """The keywords of every schema in a schema."""
    found = set(schema)
    for inner in (*schema.get("properties", {}).values(), *schema.get("$defs", {}).values()):
        found |= keywords(inner)
    for inner in (*schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else ())):
        found |= keywords(inner)
    return found


@pytest.mark.parametrize("wire", COMPILED)
def test_keywords_that_the_provider_refuses_are_not_sent(wire):
    found, why = sent(wire)
    refused = {"oneOf", "discriminator", "uniqueItems"} | (set() if wire == "bedrock" else {"minLength"})
    refused |= set() if wire in ("openai", "responses") else {"exclusiveMinimum", "minItems"}
    assert refused.isdisjoint(keywords(found))
    assert found["properties"]["on"] == SCHEMA["properties"]["on"]
    assert found["properties"]["pet"] == {"anyOf": SCHEMA["properties"]["pet"]["oneOf"]}
    assert "uniqueItems" in why[-1]


@pytest.mark.parametrize("wire", ["anthropic", "bedrock"])
def test_a_constraint_moves_to_the_description_and_objects_are_closed(wire):
    found, _ = sent(wire)
    assert found["properties"]["euros"] == {"type": "integer", "description": "The price. (exclusiveMinimum: 0)"}
    assert found["properties"]["tags"]["description"] == "(uniqueItems: true, minItems: 2)"
    assert found["$defs"]["Cat"]["additionalProperties"] is False


@pytest.mark.parametrize("wire", ["openai", "responses"])
def test_a_schema_that_is_not_strict_is_sent_as_it_is(wire):
    assert sent(wire, strict=False) == (SCHEMA, [])


@pytest.mark.parametrize("wire", COMPILED)
def test_a_schema_that_is_taken_keeps_its_bytes(wire):
    plain = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
    found, why = sent(wire, plain)
    assert (found, [each for each in why if "enforce " in each]) == (plain, [])


def test_what_a_request_of_the_same_wire_has_goes_back_unchanged():
    body = json.dumps(
        {
            "model": "m",
            "messages": [{"role": "user", "content": "hi"}],
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}},
        }
    ).encode()
    wire = wires.get("openai")
    assert wire.encode_request(wire.decode_request(body)).body == body


@pytest.mark.parametrize("wire", ["anthropic", "openai", "responses", "bedrock"])
@pytest.mark.parametrize("strict", [True, None])
def test_only_tools_that_are_strict_are_fitted(wire, strict):
    tool = Tool.of("price", "Tell it.", SCHEMA, strict=strict)
    request = Request((user("hi"),), "m", tools=(tool,), settings=Settings(max_tokens=9))
    encoded = wires.get(wire).encode_request(request)
    assert (b'"uniqueItems":' in encoded.body.replace(b" ", b"")) is (strict is None)
    assert any(loss.what == "parameters" and "'price'" in loss.why for loss in encoded.losses) is (strict is True)
