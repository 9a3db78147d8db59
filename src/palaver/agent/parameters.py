"""The parameters of a function as JSON Schema, and the arguments of a call as its parameters.

Rules:

- The types of the parameters are the schema: whatever msgspec describes (numbers, text, ``Literal``, enums, unions,
  lists, dictionaries, dataclasses, structs, attrs classes, ``TypedDict``, dates), and pydantic's models and fields
  where the application uses pydantic. A parameter that has no type takes any value.
- A parameter is described by ``Annotated[T, "text"]``, by its ``Meta`` or ``Field``, or by the docstring, in this
  order.
- One of type ``ToolContext``, whatever its name, gets the context of the call and is not in the schema.
- The schema holds all it refers to, in ``$defs``, and allows nothing else: an argument that the function does not know
  is refused, since the model meant something by it.
- Values are taken strictly: ``"3"`` is no number, and ``1`` is no boolean; the model is told, and writes what it means.
  Dates, UUIDs, bytes (base64) and decimals are read from text, whole numbers are floats, and the keys of dictionaries
  may be numbers. A whole float (``1.0``) is a whole number, as it is for JSON Schema. A pydantic model decides for
  itself, and for the dataclass or ``TypedDict`` that holds it.
- ``*args``, ``**kwargs`` and positional-only parameters have no name that a model could use; they are refused when the
  tool is defined, as is a type without a schema.

What a docstring says of a function and of its parameters:

- The description is everything before the first section.
- Parameters are read from sections in the manner of Google (``Args:``), NumPy (``Parameters`` underlined) and
  Sphinx (``:param name:``). What a section says beyond its parameters is left out.
- Pure, and never an error: a docstring that is written in another way has a description and no parameters.

Checking values against JSON Schema in time that is linear in them, whatever patterns the schema has:

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
- A schema inside a schema has no other transcript format than the outermost: its ``$schema`` would bring back ``re``.

Stability: experimental.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import math
import re
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any, Final, NamedTuple, cast

import msgspec
from msgspec import Raw, Struct

from palaver.core import jsontext
from palaver.core.errors import MessageError, PalaverError, excerpt
from palaver.core.parts import ToolCall
from palaver.turn.tool import ToolContext, called, invalid, read_arguments
from palaver.turn.tool_output import plain

# --- docstrings -------------------------------------------------------------------------------------------------------


_GOOGLE: Final = re.compile(
    r"(Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments|Other Parameters|Returns?|Yields?|Raises"
    r"|Examples?|Notes?|Warnings?|See Also|Attributes|References|Todo)\s*:\s*"
)
_PARAMETERS: Final = frozenset(
    ("args", "arguments", "parameters", "params", "keyword args", "keyword arguments", "other parameters")
)
_FIELD: Final = re.compile(r":(?P<kind>\w+)(?:\s+(?P<what>[^:]*))?:\s*(?P<text>.*)")
_PARAM_KINDS: Final = frozenset(("param", "parameter", "arg", "argument", "key", "keyword"))
_ENTRY: Final = re.compile(r"\*{0,2}(?P<name>\w++)\s*+(?:\([^)]*\))?\s*+:\s*+(?P<text>.*)")
_NUMPY_ENTRY: Final = re.compile(r"(?P<names>\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")


class Described(NamedTuple):
    """The description of a function, and those of its parameters by name."""

    description: str | None
    parameters: dict[str, str]


def described(docstring: str | None) -> Described:
    """Read a docstring."""
    lines = inspect.cleandoc(docstring or "").split("\n")
    end = next((index for index in range(len(lines)) if _opens(lines, index)), len(lines))
    parameters: dict[str, str] = {}
    index = end
    while index < len(lines):
        stop = next((after for after in range(index + 1, len(lines)) if _opens(lines, after)), len(lines))
        parameters |= _section(lines[index:stop])
        index = stop
    return Described("\n".join(lines[:end]).strip() or None, parameters)


def _opens(lines: list[str], index: int) -> bool:
    """Whether a section begins at a line."""
    line = lines[index]
    return bool(_GOOGLE.fullmatch(line) or _FIELD.fullmatch(line) or _underlined(lines, index))


def _underlined(lines: list[str], index: int) -> bool:
    under = lines[index + 1] if index + 1 < len(lines) else ""
    return len(under) > 2 and not under.strip("-") and bool(lines[index].strip())  # noqa: PLR2004 (a rule has three)


def _section(lines: list[str]) -> dict[str, str]:
    field = _FIELD.fullmatch(lines[0])
    if field:
        if field["kind"] not in _PARAM_KINDS or not field["what"]:
            return {}
        return {field["what"].split()[-1].lstrip("*"): _joined([field["text"], *lines[1:]])}
    if lines[0].strip(" :").lower() not in _PARAMETERS:
        return {}
    numpy = _underlined(lines, 0)
    body = inspect.cleandoc("\n".join(["", *lines[2 if numpy else 1 :]])).split("\n")
    return _entries(body, _NUMPY_ENTRY if numpy else _ENTRY)


def _entries(body: list[str], pattern: re.Pattern[str]) -> dict[str, str]:
    """Entries that begin at the margin; what is indented belongs to the one above."""
    found: dict[str, str] = {}
    starts = [index for index, line in enumerate(body) if line and not line[0].isspace()]
    for start, stop in zip(starts, [*starts[1:], len(body)], strict=True):
        entry = pattern.fullmatch(body[start])
        if entry is None:
            continue
        groups = entry.groupdict()
        text = _joined([groups.get("text") or "", *body[start + 1 : stop]])
        for name in (groups.get("name") or groups.get("names") or "").split(","):
            found[name.strip(" *")] = text
    return {name: text for name, text in found.items() if text}


def _joined(lines: list[str]) -> str:
    return " ".join(line.strip() for line in lines if line.strip())


# --- parameters -------------------------------------------------------------------------------------------------------


STRUCT_WITH_MODEL: Final = (
    "{place} has a pydantic model, which a Struct or an attrs class cannot hold; make the class a dataclass or a "
    "pydantic model, or the model a Struct"
)
"""Why a type has no schema, and what to do."""
_REFERENCE: Final = "#/$defs/{name}"
_AT: Final = re.compile(r" - at `(?:key in )?\$(?P<path>[^`]*)`$")
_PYDANTIC: Final = frozenset(("pydantic", "annotated_types"))
_UNNAMED: Final = {
    inspect.Parameter.VAR_POSITIONAL: "*{}",
    inspect.Parameter.VAR_KEYWORD: "**{}",
    inspect.Parameter.POSITIONAL_ONLY: "{}, /",
}

Convert: typing.TypeAlias = Callable[[Any], Any]


class Parameter(Struct, frozen=True):
    """One parameter that the model gives: its schema, and how a value of JSON becomes its own."""

    name: str
    type: Any
    default: Any
    description: str | None

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is inspect.Parameter.empty


class Parameters(Struct, frozen=True):
    """What a function takes. ``description`` is that of the function; ``contexts`` get the context of the call."""

    description: str | None
    schema: Raw
    converts: Mapping[str, Convert]
    required: Sequence[str]
    contexts: Sequence[str]
    allowed: Mapping[str, Sequence[Any]]

    def read(self, call: ToolCall, repairs: Sequence[str] = ()) -> dict[str, Any]:
        """Read the arguments of a call. Raises ``InvalidArgumentsError`` with every parameter that does not fit."""
        given = read_arguments(call, repairs)
        issues: list[str] = []
        values: dict[str, Any] = {}
        for name, value in given.items():
            convert = self.converts.get(name)
            if convert is None:
                issues.append(
                    f"{excerpt(name, 40)}: no such parameter; the parameters are {', '.join(self.converts) or 'none'}"
                )
                continue
            try:
                values[name] = convert(value)
            except (ValueError, TypeError, OverflowError, RecursionError) as error:
                issues += self._issues(name, error)
        issues += [f"{name}: required, but missing" for name in self.required if name not in given]
        if issues:
            raise invalid(call, issues)
        return values

    def _issues(self, name: str, error: Exception) -> list[str]:
        listed = getattr(error, "errors", None)
        if callable(listed):  # pydantic's
            found = cast("list[dict[str, Any]]", listed(include_url=False, include_input=False, include_context=False))
            return [f"{name}{_path(each['loc'])}: {each['msg']}" for each in found]
        text = str(error) or type(error).__name__
        place = _AT.search(text)
        reason = text[: place.start()] if place else text
        if place is None and name in self.allowed and reason.startswith("Invalid enum value"):
            reason = f"expected one of {', '.join(map(repr, self.allowed[name]))}"
        reason = reason if reason.startswith("NaN") else f"{reason[:1].lower()}{reason[1:]}"
        return [f"{name}{place['path'] if place else ''}: {reason}"]


def _path(steps: Iterable[object]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


def parameters_of(
    function: Callable[..., Any], name: str, *, strict: bool = False, context: type = ToolContext
) -> Parameters:
    """Read the signature, the types and the docstring of a function; ``context`` is a type that no model gives.

    Raises ``MessageError``, naming the tool and the parameter, for what a model cannot be told.
    """
    text = described(inspect.getdoc(called(function)))
    listed: list[Parameter] = []
    contexts: list[str] = []
    types = _types(function, name)
    for each in inspect.signature(function).parameters.values():
        if each.kind in _UNNAMED:
            shown = _UNNAMED[each.kind].format(each.name)
            raise MessageError(
                f"the tool {name!r}: the parameter “{shown}”: a model gives arguments by name, so a tool cannot have "
                "*args, **kwargs or positional-only parameters; use named ones, such as a list"
            )
        bare, description = _unwrapped(types.get(each.name, Any))
        if bare is context:
            contexts.append(each.name)
        else:
            listed.append(Parameter(each.name, bare, each.default, description or text.parameters.get(each.name)))
    schemas, definitions, converts = _described(listed, name)
    properties = {
        each.name: _property(each, schema, strict=strict) for each, schema in zip(listed, schemas, strict=True)
    }
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    required = [each.name for each in listed if each.required]
    if required:
        schema["required"] = required
    schema["additionalProperties"] = False
    if definitions:
        schema["$defs"] = definitions
    return Parameters(
        text.description,
        jsontext.checked(_typed(schema), f"the tool {name!r}"),
        dict(zip((each.name for each in listed), converts, strict=True)),
        required,
        contexts,
        {key: value for key in properties if (value := _allowed(properties[key], definitions))},
    )


# -- types -------------------------------------------------------------------------------------------------------------


def _types(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(called(function), include_extras=True)
    except NameError as error:
        msg = f"the tool {name!r}: {error}; the types of its parameters must be importable where it is defined"
        raise MessageError(msg) from None
    except TypeError:  # a built-in function, which has no types
        return {}


def _unwrapped(hint: Any) -> tuple[Any, str | None]:
    """The type without the texts that describe it, and the first of these."""
    if typing.get_origin(hint) is not Annotated:
        return hint, None
    bare, *metadata = typing.get_args(hint)
    description = next((each for each in metadata if isinstance(each, str)), None)
    for each in metadata:
        bare = bare if isinstance(each, str) else Annotated[bare, each]
    return bare, description


def is_pydantic(hint: Any) -> bool:
    """Whether pydantic has to read it: a model, a field, or a type that holds one, in arguments or fields."""
    if "pydantic" not in sys.modules:
        return False
    return _is_field(hint) or any(_is_model(each) for each, _ in _nested(hint))


def _is_field(hint: Any) -> bool:
    metadata = getattr(hint, "__metadata__", ())
    return any(type(each).__module__.partition(".")[0] in _PYDANTIC for each in metadata) or any(
        _is_field(each) for each in typing.get_args(hint)
    )


def _is_model(hint: Any) -> bool:
    return "__pydantic_core_schema__" in getattr(hint, "__dict__", ())


def struct_with_model(hint: Any) -> str | None:
    """Return the class and field where a Struct or an attrs class holds a pydantic model, such as ``Offer.price``.

    Neither msgspec nor pydantic reads such a class.
    """
    return next((place for each, place in _nested(hint) if place is not None and _is_model(each)), None)


def _nested(hint: Any) -> Iterator[tuple[Any, str | None]]:
    """A type and all types in it; each with the field of the outermost Struct or attrs class that it stands in."""
    pending: list[tuple[Any, str | None]] = [(hint, None)]
    seen: dict[tuple[int, str | None], Any] = {}  # by identity, and kept, so that no other gets its id
    while pending:
        node, place = pending.pop()
        if (id(node), place) in seen:
            continue
        seen[id(node), place] = node
        yield node, place
        pending += [(each, place) for each in typing.get_args(node)]
        if not isinstance(node, type) or _is_model(node):
            continue
        cls = cast("type[object]", node)
        ours = issubclass(cls, Struct) or hasattr(cls, "__attrs_attrs__")
        for name, each in _fields(cls).items():
            pending.append((each, place or (f"{cls.__name__}.{name}" if ours else None)))


def _fields(cls: type) -> Mapping[str, Any]:
    """The types of the fields of a class that has some."""
    marks = ("__dataclass_fields__", "__attrs_attrs__", "__struct_fields__", "__required_keys__", "_fields")
    if not any(hasattr(cls, mark) for mark in marks):
        return {}
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except (NameError, TypeError):  # whoever reads the type says so
        return {}


def _described(listed: Sequence[Parameter], name: str) -> tuple[list[dict[str, Any]], dict[str, Any], list[Convert]]:
    """The schema of each parameter, what these refer to, and how each is read."""
    schemas: dict[str, dict[str, Any]] = {}
    definitions: dict[str, Any] = {}
    converts: list[Convert] = []
    ours = [each for each in listed if not is_pydantic(each.type)]
    for each in ours:
        _schema_of([each.type], f"the tool {name!r}: the parameter {each.name!r}")
    found, definitions = _schema_of([each.type for each in ours], f"the tool {name!r}")
    schemas = dict(zip((each.name for each in ours), found, strict=True))
    for each in listed:
        if each.name in schemas:
            where = f"the tool {name!r}: the parameter {each.name!r}"
            converts.append(_converter(each.type, pattern_check({**schemas[each.name], "$defs": definitions}, where)))
            continue
        schemas[each.name], convert = _by_pydantic(each.type, definitions, f"the tool {name!r}: {each.name!r}")
        converts.append(convert)
    return [schemas[each.name] for each in listed], definitions, converts


def _schema_of(types: Sequence[Any], where: str) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]]:
    try:
        return msgspec.json.schema_components(types, ref_template=_REFERENCE)
    except (TypeError, ValueError, NameError, RecursionError) as error:
        *_, reason = str(error).strip().split("\n")
        raise MessageError(f"{where} has no schema: {excerpt(reason, 200)}") from None


def _converter(hint: Any, check: Callable[[Any], None] | None) -> Convert:
    def convert(value: Any) -> Any:
        if check is not None:
            check(value)
        try:
            return msgspec.convert(value, hint, str_keys=True)
        except msgspec.ValidationError as error:
            if not wants_int(error):
                raise
        return msgspec.convert(whole_numbers(value), hint, str_keys=True)

    return convert


_WANTS_INT: Final = re.compile(r"Expected `(?:[^`]*\W)?int(?:\W[^`]*)?`, got `float`")


def wants_int(error: msgspec.ValidationError) -> bool:
    """Whether a value does not fit because a float stands where a whole number should."""
    return _WANTS_INT.match(str(error)) is not None


def whole_numbers(value: object) -> Any:
    """Return a JSON value with its whole floats as integers: ``1.0`` is an integer for JSON Schema, not for msgspec."""
    if isinstance(value, list):
        return [whole_numbers(each) for each in cast("list[object]", value)]
    if isinstance(value, dict):
        return {key: whole_numbers(each) for key, each in cast("dict[str, object]", value).items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value


def pydantic_reason(error: Exception) -> str:
    """Return what an error of pydantic says, without the links and hints that follow."""
    return str(error).strip().partition("\n\n")[0]


def _by_pydantic(hint: Any, definitions: dict[str, Any], where: str) -> tuple[dict[str, Any], Convert]:
    from pydantic import TypeAdapter  # noqa: PLC0415 (only for who has imported it already)

    place = struct_with_model(hint)
    if place is not None:
        raise MessageError(f"{where} has no schema: {STRUCT_WITH_MODEL.format(place=place)}")
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(hint)
        schema = adapter.json_schema(ref_template="#/$defs/{model}")
    except Exception as error:  # noqa: BLE001 (pydantic has a dozen errors for what it cannot describe)
        raise MessageError(f"{where} has no schema: {excerpt(pydantic_reason(error), 200)}") from None
    for key, value in schema.pop("$defs", {}).items():
        if definitions.setdefault(key, value) != value:
            raise MessageError(f"{where}: two types have the name {key!r}")

    def convert(value: Any) -> Any:
        return adapter.validate_json(jsontext.encode(value))

    return schema, convert


# -- schemas -----------------------------------------------------------------------------------------------------------


def _property(parameter: Parameter, schema: dict[str, Any], *, strict: bool) -> dict[str, Any]:
    if strict and "$ref" in schema:  # OpenAI: "$ref cannot have keywords {'description'}"
        return {"$ref": schema["$ref"]}
    made = dict(schema)
    if parameter.description and ("description" not in made or "$ref" in made):
        made = {"description": parameter.description, **{k: v for k, v in made.items() if k != "description"}}
    if not parameter.required and "default" not in made:
        try:
            made["default"] = plain(_dataclass_free(parameter.default))
            jsontext.checked(made["default"], "default")
        except PalaverError:
            made.pop("default", None)
    return made


def _dataclass_free(default: Any) -> Any:
    if isinstance(default, Struct):
        return default
    return (
        dataclasses.asdict(default) if dataclasses.is_dataclass(default) and not isinstance(default, type) else default
    )


def _allowed(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Sequence[Any]:
    """The values of an enumeration, which msgspec's errors do not name."""
    reference = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    return cast("Sequence[Any]", {**definitions.get(reference, {}), **schema}.get("enum", ()))


def _typed(schema: object) -> Any:
    """Say ``string`` of enumerations of text: some servers want a type wherever there are values."""
    if isinstance(schema, list):
        return [_typed(each) for each in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    made = {key: _typed(value) for key, value in cast("dict[str, object]", schema).items()}
    values: object = made.get("enum")
    if isinstance(values, list) and "type" not in made and all(map(_is_text, cast("list[object]", values))):
        made["type"] = "string"
    return made


def _is_text(value: object) -> bool:
    return isinstance(value, str)


# -- schema validation -----------------------------------------------------------------------------


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
