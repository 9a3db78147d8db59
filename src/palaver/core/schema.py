"""JSON Schema of structs, as msgspec derives it, made true of the canonical form.

Rules:

- Text that is kept as it is (``Raw``) is any JSON. Unknown fields are allowed everywhere: a newer
  version may have written them (``Extra`` is how they are kept, not a field of its own).
- Where a union has a member that keeps anything, a block of a ``type`` not listed is valid too.
- The schemas follow JSON Schema 2020-12.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, cast

import msgspec

FORMAT: Final = "https://json-schema.org/draft/2020-12/schema"
_REF: Final = "#/$defs/{name}"
_UNKNOWN: Final = {"Opaque": "UnknownPart", "ProviderTool": "UnknownTool"}
"""Members of a union that keep anything, and what we call that anything."""


def components(types: Iterable[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the schema of each type, and the definitions that they refer to."""
    roots, definitions = msgspec.json.schema_components(types, schema_hook=_any_fields, ref_template=_REF)
    siblings: dict[str, set[str]] = {name: set() for name in _UNKNOWN}
    made = {name: _polished(each, siblings) for name, each in definitions.items()}
    polished = [_polished(each, siblings) for each in roots]
    for keeper, members in siblings.items():
        if members:
            tags = {made[name]["properties"]["type"]["enum"][0] for name in members}
            made[_UNKNOWN[keeper]] = _unknown(_UNKNOWN[keeper], tags)
    return polished, dict(sorted(made.items()))


def inlined(hint: Any) -> dict[str, Any]:
    """Return the schema of one type without references; where it recurs, any object will do."""
    (root,), definitions = components([hint])
    return cast("dict[str, Any]", _inline(root, definitions, ()))


def _any_fields(_type: type) -> dict[str, Any]:
    """Stand for ``Extra``, the one type msgspec does not know; ``_polished`` takes it out."""
    return {"title": "Extra"}


def _polished(node: Any, siblings: dict[str, set[str]]) -> Any:
    match node:
        case dict():
            table = cast("dict[str, Any]", node)
            dropped = {"additionalProperties", "discriminator"} if "$ref" not in table else set[str]()
            made = {key: _polished(each, siblings) for key, each in table.items() if key not in dropped}
            if isinstance(made.get("description"), str):  # Python 3.13 indents docstrings otherwise
                made["description"] = " ".join(made["description"].split())
            if made.get("type") == "object" and "properties" in made:
                made["properties"].pop("extra", None)
            _open_union(made, siblings)
            return made
        case list():
            return [_polished(each, siblings) for each in cast("list[object]", node)]
        case _:
            return node


def _open_union(node: dict[str, Any], siblings: dict[str, set[str]]) -> None:
    """Let a union that keeps anything take blocks of unknown types."""
    names = {str(each.get("$ref")).rpartition("/")[2] for each in node.get("anyOf", ())}
    for keeper, unknown in _UNKNOWN.items():
        if keeper in names:
            siblings[keeper] |= names
            node["anyOf"].append({"$ref": _REF.format(name=unknown)})


def _unknown(name: str, tags: set[str]) -> dict[str, Any]:
    return {
        "title": name,
        "description": "A block that a newer version wrote: kept as it is.",
        "type": "object",
        "properties": {"type": {"type": "string", "not": {"enum": sorted(tags)}}},
        "required": ["type"],
    }


def _inline(node: Any, definitions: dict[str, Any], above: tuple[str, ...]) -> Any:
    match node:
        case {"$ref": str(ref)}:
            name = ref.rpartition("/")[2]
            if name in above:
                return {"type": "object"}
            return _inline(definitions[name], definitions, (*above, name))
        case dict():
            table = cast("dict[str, Any]", node)
            return {key: _inline(each, definitions, above) for key, each in table.items()}
        case list():
            return [_inline(each, definitions, above) for each in cast("list[object]", node)]
        case _:
            return node
