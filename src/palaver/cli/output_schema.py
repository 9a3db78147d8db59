"""The schema of ``--schema``: a file, JSON, or a short list of fields.

- ``boat.json`` is a file with a JSON Schema. Text that begins with ``{`` is the schema itself.
- ``"name, year int, tags: list of words"`` is a list of fields, as ``llm`` writes it: a name, a type (``str`` unless it
  is ``int``, ``float`` or ``bool``), and a description after a colon. All fields are required. With line breaks, each
  line is a field, and a description may hold commas.

Source: https://llm.datasette.io/en/stable/schemas.html#concise-llm-schema-syntax

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping
from os.path import isfile
from pathlib import Path
from typing import Any, Final, cast

import click

from palaver.agent.structured import Structured
from palaver.cli.ranges import utf8
from palaver.core import jsontext
from palaver.core.errors import DecodeError, MessageError

_HINT: Final = ", which stand on lines of their own where a description holds commas"
_TYPES: Final = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}


def parse(_context: click.Context, _option: click.Parameter, text: str | None) -> Mapping[str, Any] | None:
    """Read the schema that a user typed: the callback of ``--schema``. Raises ``click.BadParameter``."""
    if text is None:
        return None
    schema = _read(text)
    try:
        Structured(schema)
    except MessageError as error:  # no JSON Schema, or one with a reference that leads nowhere
        raise click.BadParameter(str(error)) from None
    return schema


def _read(text: str) -> Mapping[str, Any]:
    if text.lstrip().startswith("{"):
        return _schema(utf8(text), "the schema")
    if text.endswith(".json") or isfile(text):  # noqa: PTH113 (Path.is_file raises for text that is too long)
        try:
            return _schema(Path(text).read_bytes(), text)
        except OSError as error:
            raise click.BadParameter(f"{text}: {(error.strerror or str(error)).lower()}") from None
    return _fields(utf8(text).decode())


def _schema(data: bytes, place: str) -> Mapping[str, Any]:
    try:
        found: Any = jsontext.value(data)
    except (DecodeError, MessageError) as error:
        raise click.BadParameter(f"{place}: {error}") from None
    if not isinstance(found, Mapping):
        raise click.BadParameter(f"{place}: a JSON Schema is an object")
    return cast("Mapping[str, Any]", found)


def _fields(text: str) -> dict[str, Any]:
    lines = [line for line in (text.split("\n") if "\n" in text else text.split(",")) if line.strip()]
    properties: dict[str, Any] = {}
    for line in lines:
        head, _, description = line.partition(":")
        words = head.split()
        kind = words[1] if len(words) > 1 else "str"
        if len(words) not in {1, 2} or kind not in _TYPES or not words[0].isidentifier():
            hint = "" if "\n" in text or ":" not in text else _HINT
            raise click.BadParameter(
                f"{line.strip()!r} is not NAME [{'|'.join(_TYPES)}][: DESCRIPTION]; "
                f"a schema is a file, JSON, or such fields{hint}"
            )
        if words[0] in properties:
            raise click.BadParameter(f"the field {words[0]!r} stands twice in it")
        properties[words[0]] = {"type": _TYPES[kind]} | (
            {"description": description.strip()} if description.strip() else {}
        )
    if not properties:
        raise click.BadParameter("there is no field in it")
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
