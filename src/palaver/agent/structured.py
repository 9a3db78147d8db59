"""Answers in a form: from a Python type or a JSON Schema to what a model is asked for, and back to a value.

Rules:

- A form is a msgspec Struct, dataclass, TypedDict or any other type that msgspec reads; a pydantic model, or a type
  with one in it (``list[Boat]``, ``Boat | None``, a dataclass or TypedDict with such a field), which pydantic's
  ``TypeAdapter`` reads; or a JSON Schema as a dict. A Struct or attrs class with a pydantic model in it is refused.
  What is asked for is always an object, which is what providers take: a form that is none is asked for as
  ``{"value": …}``, and read with or without that.
- Objects of a type are closed (``additionalProperties: false``); a schema of the caller is sent as it is. ``strict`` is
  asked for where providers can enforce the schema: every object closed, all its properties required, and nothing that
  may be anything. The codec of a wire moves constraints that its provider does not take to the descriptions; ``read``
  checks them. https://platform.openai.com/docs/guides/structured-outputs
- ``read`` takes an answer that is one JSON value, in a code fence or not, or has one JSON object in other text. None,
  or two, is an error. An error names the path, and is what the model is told: ``Your answer does not fit …``.
- A schema with a reference that leads nowhere is refused. So is one to another document: nothing is fetched.
- For models that know no form of an answer there is ``output_tool``: the model calls ``set_output`` instead.

Stability: experimental.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Final, cast

import msgspec
from msgspec import structs

from palaver.agent.json_schema import linear_validator, pattern_check
from palaver.agent.parameters import (
    STRUCT_WITH_MODEL,
    is_pydantic,
    pydantic_reason,
    struct_with_model,
    wants_int,
    whole_numbers,
)
from palaver.core import jsontext
from palaver.core.errors import DecodeError, MessageError, excerpt
from palaver.core.parts import Text, ToolCall
from palaver.core.request import OutputFormat, Settings
from palaver.core.tools import Tool
from palaver.models.catalogue import Capabilities
from palaver.turn.tool import AgentTool, InvalidArgumentsError, Output, ToolContext

SET_OUTPUT: Final = "set_output"
OUTPUT: Final = "output"
"""The key in the values of a run under which the tool puts the output."""

_VALUE: Final = "value"
_UNENFORCED: Final = frozenset(
    (
        "allOf",
        "not",
        "if",
        "then",
        "else",
        "prefixItems",
        "dependentRequired",
        "dependentSchemas",
        "patternProperties",
        "propertyNames",
        "unevaluatedProperties",
    )
)
"""Keywords of schemas that no provider enforces, and that no other keyword can replace."""
_TYPED: Final = frozenset(("type", "enum", "const", "anyOf", "oneOf", "$ref"))
"""A schema without one of these allows anything, which no provider enforces."""
_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]+")
_NAME_LENGTH: Final = 64
_FENCED: Final = re.compile(r"```\w*\s(.*)```", re.DOTALL)
_STARTS: Final = 64
"""How many openings of a text are tried as the beginning of a JSON value."""

_Schema = dict[str, Any]
_Reader = Callable[[bytes], Any]


class OutputError(DecodeError):
    """An answer does not have the form that was asked for. ``path`` is the place in it, such as ``$.items[0].name``."""

    error_code = "output"


class Structured:
    """A form: what to ask for, and how to read it."""

    def __init__(
        self,
        form: Any,
        capabilities: Capabilities | None = None,
        *,
        name: str | None = None,
        description: str | None = None,
    ) -> None:
        """Make a form of a type or of a JSON Schema. Raises ``MessageError`` when it cannot be described.

        ``capabilities`` are those of the model: one that cannot be held to a schema is not asked to be strict.
        """
        schema, self._read = _described(form)
        called = name or schema.get("title") or getattr(form, "__name__", OUTPUT)
        schema, self._wrapped = _object(schema)
        held = capabilities is None or capabilities.structured == "json_schema"
        self.format = OutputFormat(
            "json_schema",
            jsontext.checked(schema, "schema"),
            _NAMES.sub("_", str(called))[:_NAME_LENGTH],
            description or schema.get("description"),
            True if held and _is_strict(schema) else None,
        )

    def asked(self, settings: Settings) -> Settings:
        """Settings that ask for the form."""
        return structs.replace(settings, output=self.format)

    def read(self, text: str) -> Any:
        """Read an answer. Raises ``OutputError`` naming the path."""
        value = _found(text, "{[" if self._wrapped else "{")
        if self._wrapped and isinstance(value, dict):
            fields = cast("dict[str, Any]", value)
            value = fields[_VALUE] if fields.keys() == {_VALUE} else fields
        return self._read(jsontext.encode(value))


def _described(form: Any) -> tuple[_Schema, _Reader]:
    if isinstance(form, Mapping):
        given = dict(cast("Mapping[str, Any]", form))
        return jsontext.value(jsontext.checked(given, "schema")), _by_schema(given)
    return _by_pydantic(form) if is_pydantic(form) else _by_msgspec(form)


# -- schemas ---------------------------------------------------------------------------------------------------------


def _object(schema: _Schema) -> tuple[_Schema, bool]:
    """The schema with an object at its root, and whether it had to be wrapped for that."""
    named = re.fullmatch(r"#/\$defs/([^/]+)", schema.get("$ref", ""))
    given = schema.get("$defs")
    defined = cast("_Schema", given) if isinstance(given, dict) else {}
    if named is not None and isinstance(defined.get(named[1]), dict):
        rest = {key: value for key, value in schema.items() if key not in ("$ref", "$defs")}
        schema = {**defined[named[1]], **rest, "$defs": defined}
        if f'"#/$defs/{named[1]}"' not in json.dumps(schema):
            schema["$defs"] = {key: value for key, value in defined.items() if key != named[1]}
        if not schema["$defs"]:
            del schema["$defs"]
    if schema.get("type") == "object":
        return schema, False
    outer: _Schema = {key: schema[key] for key in ("$schema", "$defs", "definitions") if key in schema}
    inner: _Schema = {key: value for key, value in schema.items() if key not in outer}
    wrapped: _Schema = {
        "type": "object",
        "properties": {_VALUE: inner},
        "required": [_VALUE],
        "additionalProperties": False,
        **outer,
    }
    return wrapped, True


def _subschemas(schema: Any) -> Iterator[_Schema]:
    """Every schema in a schema, its own included."""
    pending: list[Any] = [schema]
    while pending:
        node = pending.pop()
        if not isinstance(node, dict):
            continue
        yield (fields := cast("_Schema", node))
        for key, value in fields.items():
            if key in ("properties", "$defs", "definitions") and isinstance(value, dict):
                pending.extend(cast("_Schema", value).values())
            elif key in ("anyOf", "oneOf", "allOf", "prefixItems") and isinstance(value, list):
                pending += value
            elif key in ("items", "additionalProperties"):
                pending.append(value)


def _closed(schema: _Schema) -> _Schema:
    for node in _subschemas(schema):
        if node.get("type") == "object" and isinstance(node.get("properties"), dict):
            node.setdefault("additionalProperties", False)
    return schema


def _is_strict(schema: _Schema) -> bool:
    return all(
        _UNENFORCED.isdisjoint(node)
        and not _TYPED.isdisjoint(node)
        and (
            node.get("type") != "object"
            or (
                node.get("additionalProperties") is False
                and set(node.get("properties", ())) == set(node.get("required", ()))
            )
        )
        for node in _subschemas(schema)
    )


# -- readers ---------------------------------------------------------------------------------------------------------


def _by_msgspec(form: Any) -> tuple[_Schema, _Reader]:
    try:
        schema = _closed(msgspec.json.schema(form))
        decoder = msgspec.json.Decoder(form)
    except (TypeError, NameError, ValueError, RecursionError) as error:
        raise _no_form(form, str(error).strip().rpartition("\n")[2]) from None  # the line that names the type
    check = pattern_check(schema, "output")

    def read(data: bytes) -> Any:
        try:
            if check is not None:
                check(jsontext.value(data))
            try:
                return decoder.decode(data)
            except msgspec.ValidationError as error:
                if not wants_int(error):
                    raise
            return decoder.decode(jsontext.encode(whole_numbers(jsontext.value(data))))
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            reason, _, path = str(error).partition(" - at `")
            raise OutputError(reason, path=path.rstrip("`") or "$") from None

    return schema, read


def _no_form(form: Any, reason: str) -> MessageError:
    """The error for what has no schema, with a library's ``reason``."""
    shown = form.__qualname__ if isinstance(form, type) else repr(form)
    return MessageError(
        f"output: {excerpt(shown, 80)} is not an output type ({excerpt(reason, 160)}); use a dataclass, a TypedDict, "
        "a msgspec Struct, a pydantic model, a list of such types, one of them or None, or a JSON Schema as a dict"
    )


def _by_pydantic(form: Any) -> tuple[_Schema, _Reader]:
    import pydantic  # noqa: PLC0415 (whoever has a model has it loaded)

    place = struct_with_model(form)
    if place is not None:
        raise _no_form(form, STRUCT_WITH_MODEL.format(place=place))
    try:
        adapter: Any = pydantic.TypeAdapter(form)
        schema = _closed(adapter.json_schema())
    except Exception as error:  # noqa: BLE001 (pydantic has a dozen errors for what it cannot describe)
        raise _no_form(form, pydantic_reason(error)) from None

    def read(data: bytes) -> Any:
        try:
            return adapter.validate_json(data)
        except pydantic.ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            raise OutputError(first["msg"], path=_path(first["loc"])) from None

    return schema, read


def _by_schema(schema: _Schema) -> _Reader:
    jsonschema: Any = import_module("jsonschema")  # it has no types, and takes long to import
    validator = linear_validator(schema, "schema")

    def read(data: bytes) -> Any:
        value = jsontext.value(data)
        try:
            error = jsonschema.exceptions.best_match(validator.iter_errors(value))
        except RecursionError as failure:  # linear_validator has found all references, but one may lead to itself
            raise MessageError(f"schema: a reference cannot be followed: {excerpt(str(failure), 200)}") from None
        if error is not None:
            raise OutputError(error.message, path=error.json_path)
        return value

    return read


def _path(steps: tuple[int | str, ...]) -> str:
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


# -- one JSON value in a text ----------------------------------------------------------------------------------------


def _found(text: str, opening: str) -> Any:
    """The one JSON value of a text. Raises ``OutputError`` when there is none, or several."""
    fenced = _FENCED.fullmatch(text.strip())
    for whole in (text, fenced[1] if fenced else None):
        if whole is not None and jsontext.is_json(whole.strip()):
            return jsontext.value(whole.strip())
    found = list(_values(text, opening))
    if len(found) == 1:
        return found[0]
    reason = f"there are {len(found)} JSON values, not one" if found else "there is no JSON value in the answer"
    raise OutputError(reason, path="$")


def _values(text: str, opening: str) -> Iterator[Any]:
    """The JSON objects (and arrays, when ``opening`` has ``[``) in a text, outermost only."""
    decode = json.JSONDecoder().raw_decode
    starts = re.compile(f"[{re.escape(opening)}]")
    at = 0
    for _ in range(_STARTS):
        start = starts.search(text, at)
        if start is None:
            return
        at = start.start()
        try:
            _, end = decode(text, at)
            yield jsontext.value(text[at:end])
            at = end
        except (ValueError, RecursionError, DecodeError):
            at += 1


# -- by a tool -------------------------------------------------------------------------------------------------------


def output_tool(form: Structured, *, name: str = SET_OUTPUT) -> AgentTool:
    """The tool by which a model gives its output; the last call of it counts."""

    def check(call: ToolCall) -> Any:
        try:
            return form.read(call.arguments_json or "{}")
        except OutputError as error:
            raise InvalidArgumentsError(f"the output does not fit the schema: {error}") from None

    async def run(value: Any, context: ToolContext) -> Output:
        context.values[OUTPUT] = value
        return Output(content=(Text("The output is set."),))

    definition = Tool(
        name,
        form.format.description or "Give the output of the task. Call it once, when the work is done.",
        form.format.schema_json,
        form.format.strict,
    )
    return AgentTool(definition=definition, run=run, check=check, repeatable=True)
