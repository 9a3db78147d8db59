"""Messages inside pydantic models and FastAPI bodies, without making pydantic a dependency.

Rules:

- Input is an instance, or the canonical form as a dict; output is the canonical form, in
  ``model_dump`` as in ``model_dump_json``. Unknown fields are kept, as everywhere.
- pydantic hands over values that it has parsed already. So a number keeps its value but not its
  spelling (``5e-6`` comes back as ``5e-06``), and a number beyond a double, or a lone surrogate, is
  a validation error here. Where that matters, read the bytes with ``palaver.loads``.
- FastAPI takes a message inside a model as it is; a parameter that is a message needs to be told
  that it is the body: ``message: Annotated[Message, Body()]``.
- pydantic is imported by whoever calls these hooks, hence never by us first.

Stability: experimental.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from palaver.core import codec, jsontext, schema
from palaver.core.errors import EncodeError, PalaverError

if TYPE_CHECKING:
    from pydantic_core import CoreSchema


def core_schema(cls: type[Struct]) -> CoreSchema:
    """Tell pydantic how to read and write one class."""
    from pydantic_core import core_schema as build  # noqa: PLC0415 (pydantic is not a dependency)

    return build.no_info_plain_validator_function(
        partial(_validated, cls),
        ref=f"{cls.__module__}.{cls.__qualname__}",
        serialization=build.plain_serializer_function_ser_schema(_plain),
    )


def json_schema(cls: type[Struct]) -> dict[str, Any]:
    """Describe one class, self-contained, as OpenAPI wants it."""
    return schema.inlined(cls)


def _validated(cls: type[Struct], value: object) -> Struct:
    """Read one value. pydantic takes a ``ValueError`` as the reason why it does not fit."""
    if isinstance(value, cls):
        return value
    if not isinstance(value, dict):
        raise ValueError(f"expected {cls.__name__} or a dict, got {type(value).__name__}")
    table = cast("dict[str, object]", value)
    tag_field = cls.__struct_config__.tag_field
    if tag_field is not None and table.get(tag_field) != cls.__struct_config__.tag:
        raise ValueError(f"{tag_field} is not {cls.__struct_config__.tag!r}")
    try:
        made: Struct = codec.reader(cls)(table)
        return made
    except PalaverError as error:
        raise ValueError(str(error)) from None


def _plain(value: Any) -> Any:
    """Write one value as plain Python; what pydantic would write wrongly is refused."""
    plain = jsontext.value(codec.encode(value))
    _finite(plain)
    return plain


def _finite(item: Any) -> None:
    match item:
        case dict():
            for each in cast("dict[str, object]", item).values():
                _finite(each)
        case list():
            for each in cast("list[object]", item):
                _finite(each)
        case float() if item - item != 0:
            raise EncodeError("a number beyond a double has no form in pydantic")
        case _:
            return
