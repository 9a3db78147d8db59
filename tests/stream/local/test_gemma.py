"""Schemas that Gemma's templates can read."""

import copy

import pytest
from hypothesis import given, strategies as st

from palaver.stream.local.gemma import plain_schema

TYPES = st.sampled_from(["string", "integer", "object", "array", "null"])


def schemas():
    """JSON Schema as tools have it, odd ones too."""
    kind = st.one_of(TYPES, st.lists(TYPES, max_size=3), st.none(), st.just({}))
    leaf = st.one_of(
        st.just({}), st.fixed_dictionaries({}, optional={"type": kind, "enum": st.just(["a"])}), st.booleans()
    )

    def wider(inner):
        properties = st.dictionaries(st.sampled_from(["a", "b", "type"]), inner, max_size=3)
        branches = st.lists(inner, max_size=3)
        return st.fixed_dictionaries(
            {},
            optional={
                "type": kind,
                "properties": st.one_of(properties, st.just([])),
                "items": inner,
                "anyOf": branches,
                "oneOf": branches,
                "additionalProperties": inner,
                "description": st.just("d"),
            },
        )

    return st.recursive(leaf, wider, max_leaves=12)


def nodes(schema):
    yield schema
    if isinstance(schema.get("properties"), dict):
        for each in schema["properties"].values():
            yield from nodes(each)
    for key in ("items", "additionalProperties"):
        if key in schema and not isinstance(schema[key], bool):
            yield from nodes(schema[key])


@pytest.mark.row("DAS-18")
@given(schemas().filter(lambda each: isinstance(each, dict)))
def test_every_node_of_a_schema_gets_a_string_type(schema):
    before = copy.deepcopy(schema)
    plain = plain_schema(schema)
    assert schema == before
    for node in nodes(plain):
        assert isinstance(node["type"], str)
        assert node["type"]
    assert plain_schema(plain) == plain


@pytest.mark.row("DAS-18")
@pytest.mark.parametrize(
    ("schema", "plain"),
    [
        ({}, {"type": "string"}),
        ({"type": "integer"}, {"type": "integer"}),
        ({"type": ["null", "integer", "string"]}, {"type": "integer"}),
        ({"type": ["null"]}, {"type": "string"}),
        ({"properties": {"a": {}}}, {"type": "object", "properties": {"a": {"type": "string"}}}),
        ({"items": {"enum": ["x"]}}, {"type": "array", "items": {"type": "string", "enum": ["x"]}}),
        ({"enum": ["x"], "description": "d"}, {"type": "string", "enum": ["x"], "description": "d"}),
        (
            {"anyOf": [{"type": "null"}, {"$ref": "#"}, {"type": "array", "items": {"type": ["number", "null"]}}]},
            {"type": "array", "items": {"type": "number"}},
        ),
        (
            {"oneOf": [{"type": "object", "properties": {"a": True}, "required": ["a"], "title": "T"}]},
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        ),
        (
            {"anyOf": [{}], "oneOf": [{"type": "string", "enum": ["x"]}]},
            {"anyOf": [{}], "type": "string", "enum": ["x"]},
        ),
        ({"anyOf": [{"type": "null"}]}, {"anyOf": [{"type": "null"}], "type": "string"}),
        (
            {"type": "object", "anyOf": [{"required": ["a"]}], "additionalProperties": False},
            {"type": "object", "anyOf": [{"required": ["a"]}], "additionalProperties": False},
        ),
    ],
)
def test_schemas_are_made_plain(schema, plain):
    assert plain_schema(schema) == plain


def test_deep_schemas_are_made_plain():
    schema = {}
    for _ in range(5000):
        schema = {"items": schema}
    plain = plain_schema(schema)
    assert plain["items"]["items"]["type"] == "array"
