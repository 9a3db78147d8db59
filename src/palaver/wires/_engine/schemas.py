"""JSON Schemas that a provider compiles: those of answers, and of tools that are strict.

Rules:

- A provider that holds a model to a schema compiles it, and answers 400 for a keyword that it cannot compile. ``fit``
  gives a schema that it takes and that allows whatever the original allows; what reads the answer checks the rest.
- A constraint that is not taken goes to the description of its place, where the model reads it: ``(minimum: 1)``.
- ``oneOf`` becomes ``anyOf``, and ``discriminator`` goes. Beside ``$ref`` nothing is taken.
- An object without ``additionalProperties`` is closed where the provider asks for that.
- What has no form that means the same stays as it is, so that the provider's error names it: maps of any keys,
  recursive types, ``allOf``, ``not``, tuples.

Sources: https://platform.openai.com/docs/guides/structured-outputs#supported-schemas,
https://platform.claude.com/docs/en/build-with-claude/structured-outputs#json-schema-limitations,
https://docs.aws.amazon.com/bedrock/latest/userguide/structured-output.html,
https://docs.cohere.com/docs/structured-outputs#schema-constraints
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import UNSET, Raw, Struct, structs

from palaver.core import jsontext
from palaver.core.tools import Tool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.core.request import OutputFormat
    from palaver.core.tools import AnyTool
    from palaver.wires._engine.encode_state import Context

_BOUNDS: Final = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"))
_OF_TEXTS: Final = frozenset(("minLength", "maxLength", "pattern", "format", "contentEncoding", "contentMediaType"))
_OF_LISTS: Final = frozenset(("minItems", "maxItems", "uniqueItems", "contains", "minContains", "maxContains"))
_OF_OBJECTS: Final = frozenset(("minProperties", "maxProperties"))
_CONSTRAINTS: Final = _BOUNDS | _OF_TEXTS | _OF_LISTS | _OF_OBJECTS | {"default"}
"""What only narrows a schema, or only informs: it can be said in words."""
_SILENT: Final = frozenset(("discriminator", "examples", "$comment", "readOnly", "writeOnly", "deprecated"))
_MAPS: Final = frozenset(("properties", "$defs", "definitions"))
_LISTS: Final = frozenset(("anyOf", "allOf", "prefixItems"))
_FORMATS: Final = frozenset(("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"))


class Subset(Struct, frozen=True):
    """What a provider compiles."""

    constraints: frozenset[str]
    """Constraints that it takes."""
    formats: frozenset[str]
    least_items: int | None = None
    """The largest ``minItems``; ``None`` for any."""
    closed: bool = False
    """Whether every object must say ``additionalProperties: false``."""


OPENAI: Final = Subset(_BOUNDS | {"pattern", "format", "minItems", "maxItems"}, _FORMATS)
ANTHROPIC: Final = Subset(frozenset(("format", "minItems", "default")), _FORMATS | {"uri"}, least_items=1, closed=True)
BEDROCK: Final = Subset(
    ANTHROPIC.constraints | {"minLength", "maxLength"}, ANTHROPIC.formats, least_items=1, closed=True
)
"""It takes lengths of texts, whatever its page says: recorded with Claude Sonnet 4.5."""
COHERE: Final = Subset(frozenset(("pattern", "format", "default")), frozenset(("date-time", "date", "time", "uuid")))


def fit(schema: Raw, subset: Subset, context: Context, what: str, tool: str | None = None) -> Raw:
    """Return ``schema`` as ``subset`` takes it; the receipt names what was changed of ``what``, and the ``tool``."""
    if context.own or jsontext.kind(schema) != "an object":
        return schema
    changed: dict[str, None] = {}
    fitted = _fitted(jsontext.value(schema), subset, changed)
    if not changed:
        return schema
    whose = "" if tool is None else f" of {tool!r}"
    context.lose("approximated", what, f"the provider does not enforce {', '.join(changed)}{whose}")
    return jsontext.raw(fitted)


def fit_output(output: OutputFormat, subset: Subset, context: Context, *, strict: bool = False) -> OutputFormat:
    """Return the form of an answer with a schema that is taken; with ``strict``, only where the form asks for that."""
    if output.schema_json is UNSET or (strict and not output.strict):
        return output
    schema = fit(output.schema_json, subset, context, "output")
    return output if schema is output.schema_json else structs.replace(output, schema_json=schema)


def fit_tool(tool: AnyTool, subset: Subset, context: Context) -> AnyTool:
    """Return a tool; the schema of one that is strict is one that is taken."""
    if not isinstance(tool, Tool) or not tool.strict or tool.parameters_json is UNSET:
        return tool
    schema = fit(tool.parameters_json, subset, context, "parameters", tool.name)
    return tool if schema is tool.parameters_json else structs.replace(tool, parameters_json=schema)


def _fitted(node: Any, subset: Subset, changed: dict[str, None]) -> Any:
    if not isinstance(node, dict):
        return node
    fields = cast("dict[str, Any]", node)
    if "$ref" in fields and len(fields) > 1:
        beside = fields.keys() - {"$ref", "$defs", "definitions"}
        changed.update(dict.fromkeys(f"{key} beside $ref" for key in sorted(beside)))
        fields = {key: value for key, value in fields.items() if key not in beside}
    found: dict[str, Any] = {}
    told: list[str] = []
    for key, value in fields.items():
        if key in _SILENT:
            changed[key] = None
        elif key in _CONSTRAINTS and not _is_taken(key, value, subset):
            changed[key] = None
            told.append(f"{key}: {jsontext.encode(value).decode()}")
        elif key in _MAPS and isinstance(value, dict):
            each = cast("dict[str, Any]", value)
            found[key] = {name: _fitted(inner, subset, changed) for name, inner in each.items()}
        elif key == "oneOf" and isinstance(value, list) and "anyOf" not in fields:
            changed[key] = None
            found["anyOf"] = [_fitted(inner, subset, changed) for inner in cast("Sequence[Any]", value)]
        elif key in _LISTS and isinstance(value, list):
            found[key] = [_fitted(inner, subset, changed) for inner in cast("Sequence[Any]", value)]
        elif key in ("items", "additionalProperties"):
            found[key] = _fitted(value, subset, changed)
        else:
            found[key] = value
    if told:
        before = found.get("description")
        found["description"] = " ".join([*([before] if isinstance(before, str) else []), f"({', '.join(told)})"])
    if subset.closed and "properties" in found and found.get("additionalProperties", True) is True:
        changed["additional properties"] = None
        found["additionalProperties"] = False
    return found


def _is_taken(key: str, value: object, subset: Subset) -> bool:
    if key not in subset.constraints:
        return False
    match key:
        case "format":
            return value in subset.formats
        case "pattern":
            return "(?" not in str(value)  # groups that look around, or do not capture
        case "minItems":
            return subset.least_items is None or (isinstance(value, int) and value <= subset.least_items)
        case _:
            return True
