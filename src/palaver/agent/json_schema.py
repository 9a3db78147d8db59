"""Check values against JSON Schema in time that is linear in them, whatever patterns the schema has.

Rules:

- Python's ``re`` backtracks: ``^(a+)+$`` takes minutes for thirty letters, and no time limit holds meanwhile, since
  it does not let go of the interpreter. Schemas come from MCP servers and values from models, so that patterns are
  matched by RE2, which takes linear time. https://github.com/google/re2/wiki/WhyRE2
- Patterns are ECMA-262 (JSON Schema 2020-12, 6.4). What RE2 does not know (look-around, references back) is refused
  when the schema is read. ``patternProperties`` beside ``unevaluatedProperties`` is refused too: jsonschema matches
  the one with ``re`` for the other.
- ``multipleOf`` is exact, on the digits that a float is written with: 0.07 is a multiple of 0.01, where dividing the
  floats leaves a remainder.
- A reference that leads nowhere is refused when the schema is read, also where no value would reach it. So is one to
  another document: nothing is fetched.
- A schema inside a schema has no other dialect than the outermost: its ``$schema`` would bring back ``re``.

Stability: experimental.
"""

from __future__ import annotations

import functools
import importlib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any, Final, cast

import msgspec

from palaver.core.errors import MessageError, excerpt

_ESCAPES: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(Z)|.)", re.DOTALL)
"""One escape of a pattern: ``\\u0041`` and Python's ``\\Z`` are spelled otherwise in RE2."""
_OPEN: Final = ("patternProperties", "additionalProperties", "unevaluatedProperties")


def check_patterns(schema: Any, where: str) -> None:
    """Raise ``MessageError`` for a schema with a pattern that cannot be matched in linear time."""
    for node in _nodes(schema):
        own = node.get("pattern")
        named = node.get("patternProperties")
        patterns = [own] if isinstance(own, str) else []
        if isinstance(named, Mapping) and named:
            patterns += cast("Mapping[str, Any]", named)
            if "unevaluatedProperties" in node:
                raise MessageError(f"{where}: patternProperties with unevaluatedProperties is not supported")
        for pattern in patterns:
            try:
                _search(pattern)
            except ValueError as error:
                raise MessageError(
                    f"{where}: the pattern {excerpt(repr(pattern), 80)} is not supported: {error}"
                ) from None


def has_patterns(schema: Any) -> bool:
    """Whether a schema has a pattern anywhere."""
    return any(isinstance(node.get("pattern"), str) or node.get("patternProperties") for node in _nodes(schema))


def drop_patterns(schema: Any) -> None:
    """Take all patterns out of a schema, in place, and what depends on them."""
    for node in list(_nodes(schema)):
        if isinstance(node.get("pattern"), str):
            del node["pattern"]
        if isinstance(node.get("patternProperties"), dict):
            for key in _OPEN:
                node.pop(key, None)


def _nodes(schema: Any) -> Iterator[dict[str, Any]]:
    pending: list[Any] = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield (fields := cast("dict[str, Any]", node))
            pending.extend(fields.values())
        elif isinstance(node, list):
            pending += node


@functools.lru_cache(maxsize=1024)
def _search(pattern: str) -> Callable[[str], Any]:
    """The function that looks for a pattern in a text. Raises ``ValueError`` for a pattern that RE2 does not take."""
    re2: Any = importlib.import_module("re2")
    options = re2.Options()
    options.log_errors = False
    try:
        search: Callable[[str], Any] = re2.compile(_ESCAPES.sub(_respelled, pattern), options=options).search
    except (re2.error, UnicodeError) as error:
        reason = error.args[0]
        raise ValueError(reason.decode(errors="replace") if isinstance(reason, bytes) else str(error)) from None
    return search


def _respelled(escape: re.Match[str]) -> str:
    if escape[2]:
        return r"\z"
    return rf"\x{{{escape[1]}}}" if escape[1] else escape[0]


def _found(pattern: str, text: str) -> bool:
    return _search(pattern)(text.encode(errors="replace").decode()) is not None


# -- the keywords of jsonschema that use patterns ----------------------------------------------------------------------


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:  # noqa: ARG001 (a keyword)
    if validator.is_type(instance, "string") and not _found(pattern, instance):
        error = importlib.import_module("jsonschema.exceptions").ValidationError
        yield error(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[Any]:  # noqa: ARG001
    if validator.is_type(instance, "object"):
        for pattern, inner in patterns.items():
            for key, value in instance.items():
                if _found(pattern, key):
                    yield from validator.descend(value, inner, path=key, schema_path=pattern)


def _additional_properties(original: Any, validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[Any]:
    patterns = schema.get("patternProperties")
    if patterns and validator.is_type(instance, "object"):
        schema = {key: value for key, value in schema.items() if key != "patternProperties"}
        instance = {
            key: value for key, value in instance.items() if not any(_found(pattern, key) for pattern in patterns)
        }
    yield from original(validator, allowed, instance, schema) or ()


def _multiple_of(validator: Any, step: Any, instance: Any, schema: Any) -> Iterator[Any]:  # noqa: ARG001 (a keyword)
    if not validator.is_type(instance, "number"):
        return
    error = importlib.import_module("jsonschema.exceptions").ValidationError
    if not (_is_finite(instance) and _is_finite(step)):
        yield error(f"{instance!r}: a number is too large to check")
    elif (_exact(instance) / _exact(step)).denominator != 1:
        yield error(f"{instance!r} is not a multiple of {step!r}")


def _is_finite(number: Any) -> bool:
    return not isinstance(number, float) or math.isfinite(number)


def _exact(number: Any) -> Fraction:
    """The number whose digits are written for a float, not the nearest one that a float can be."""
    return Fraction(float.__repr__(number)) if isinstance(number, float) else Fraction(number)


def _evolve(self: Any, **changes: Any) -> Any:
    """As jsonschema's own, but for a ``$schema`` within, which would choose a class that knows nothing of this."""
    for each in importlib.import_module("attrs").fields(type(self)):
        if each.init:
            changes.setdefault(each.alias, getattr(self, each.name))
    return type(self)(**changes)


@functools.lru_cache(maxsize=16)
def _linear(base: Any) -> Any:
    keywords: dict[str, Any] = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "multipleOf": _multiple_of,
        "divisibleBy": _multiple_of,  # its name in draft 3
    }
    original = base.VALIDATORS.get("additionalProperties")
    if original is not None:
        keywords["additionalProperties"] = functools.partial(_additional_properties, original)
    made = importlib.import_module("jsonschema").validators.extend(
        base, {key: value for key, value in keywords.items() if key in base.VALIDATORS}
    )
    made.evolve = _evolve
    return made


def linear_validator(schema: Any, where: str) -> Any:
    """Make a validator of ``jsonschema`` for a schema, of the draft of its ``$schema``, else 2020-12.

    Nothing is fetched for it. Raises ``MessageError``, which begins with ``where``, for a schema that is none, and for
    one with a reference that leads nowhere.
    """
    jsonschema: Any = importlib.import_module("jsonschema")
    referencing: Any = importlib.import_module("referencing")
    if isinstance(schema, dict) and not isinstance(cast("dict[str, Any]", schema).get("$schema", ""), str):
        raise MessageError(f"{where}: $schema: expected a text")
    base = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        base.check_schema(schema, format_checker=None)
    except jsonschema.SchemaError as error:
        raise MessageError(f"{where}: {error.json_path}: {excerpt(error.message, 200)}") from None
    check_patterns(schema, where)
    _check_references(schema, base.META_SCHEMA, where)
    return _linear(base)(schema, registry=referencing.Registry())


def _check_references(schema: Any, dialect: Any, where: str) -> None:
    """Raise ``MessageError`` for a reference in a schema of a ``dialect``, its metaschema, that leads nowhere."""
    referencing: Any = importlib.import_module("referencing")
    kinds: Any = importlib.import_module("referencing.jsonschema")
    known: Any = importlib.import_module("jsonschema_specifications").REGISTRY
    kind = kinds.specification_with(dialect.get("$schema", ""), default=kinds.DRAFT202012)
    root = kind.create_resource(schema)
    seen: set[int] = set()
    pending: list[tuple[Any, Any]] = [(root, known.resolver_with_root(root))]
    while pending:
        resource, resolver = pending.pop()
        if id(resource.contents) in seen:
            continue
        seen.add(id(resource.contents))
        for reference in _references(resource.contents):
            refused = f"{where}: the reference {excerpt(reference)!r} leads"
            try:
                found = resolver.lookup(reference)
                inner = kind.create_resource(found.contents)
                list(inner.subresources())  # what only a reference leads to is in no place of a schema, and may be none
            except (referencing.exceptions.Unresolvable, ValueError, TypeError, AttributeError):
                elsewhere = "" if reference.startswith("#") else "; other documents are not fetched"
                raise MessageError(f"{refused} nowhere{elsewhere}") from None
            if not isinstance(found.contents, dict | bool):
                raise MessageError(f"{refused} to {excerpt(repr(found.contents))}, which is no schema")
            pending.append((inner, found.resolver))
        pending += [(each, resolver.in_subresource(each)) for each in resource.subresources()]


def _references(node: Any) -> list[str]:
    if not isinstance(node, dict):
        return []
    fields = cast("dict[str, Any]", node)
    return [fields[key] for key in ("$ref", "$dynamicRef") if isinstance(fields.get(key), str)]


def pattern_check(schema: Any, where: str) -> Callable[[Any], None] | None:
    """Make a check of a value's patterns, to come before msgspec's own; ``None`` where a schema has none.

    msgspec matches with ``re``. What has passed here matches, and a match is found without backtracking through all
    ways to fail. The check raises ``msgspec.ValidationError``, with the path, as msgspec does.
    Raises ``MessageError``, which begins with ``where``, for a pattern that cannot be checked.
    """
    if not has_patterns(schema):
        return None
    validator = linear_validator(schema, where)

    def check(value: Any) -> None:
        for error in validator.iter_errors(value):
            for each in _leaves(error):
                if each.validator == "pattern":
                    raise msgspec.ValidationError(f"{excerpt(each.message, 200)} - at `{each.json_path}`")

    return check


def _leaves(error: Any) -> Iterator[Any]:
    if not error.context:
        yield error
    for each in error.context:
        yield from _leaves(each)
