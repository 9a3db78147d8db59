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

Stability: experimental.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, cast

import msgspec
from msgspec import Raw, Struct

from palaver.agent.docstrings import described
from palaver.agent.json_schema import pattern_check
from palaver.core import jsontext
from palaver.core.errors import MessageError, PalaverError, excerpt
from palaver.core.parts import ToolCall
from palaver.turn.tool import ToolContext, called, invalid, read_arguments
from palaver.turn.tool_output import plain

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
