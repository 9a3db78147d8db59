"""Messages inside pydantic models and FastAPI bodies, without making pydantic a dependency.

Rules:

- Input is an instance, or the canonical form as a dict; output is the canonical form, in
  ``model_dump`` as in ``model_dump_json``. Unknown fields are kept, as everywhere.
- ``Message`` is one union, discriminated by ``role``. An error names the role and then the place in
  the message: ``("user", "content", 0, "text")``.
- pydantic hands over values that it has parsed already. So a number keeps its value but not its
  spelling (``5e-6`` comes back as ``5e-06``), and a number beyond a double, or a lone surrogate, is
  a validation error here. Where that matters, read the bytes with ``palaver.loads``.
- FastAPI takes a parameter from the body when its class says that it has fields, as dataclasses do.
  ``DataclassFields`` says so.
- pydantic is imported by whoever calls these hooks, hence never by us first.

Stability: experimental.
"""

from __future__ import annotations

import dataclasses
import re
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from msgspec import NODEFAULT, Struct, structs

from palaver.core import codec, jsontext, schema
from palaver.core.errors import DecodeError, EncodeError, PalaverError

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic_core import CoreSchema

_STEP: Final = re.compile(r"\[(\d+)\]|([^.\[]+)")
"""One step of a path like ``messages[3].content[0].text``."""


@dataclasses.dataclass(frozen=True)
class ByTag:
    """Annotates a union of structs whose tag field ``name`` says which one a dict is."""

    name: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Read the one member that the tag names."""
        from pydantic_core import core_schema as build  # noqa: PLC0415 (pydantic is not a dependency)

        choices = {str(each.__struct_config__.tag): handler.generate_schema(each) for each in get_args(source)}
        return build.tagged_union_schema(choices, discriminator=self.name)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Name the tag field for OpenAPI, next to the members."""
        made = handler(core)
        made.setdefault("discriminator", {"propertyName": self.name})
        return made


class DataclassFields:
    """Returns a struct class the fields that ``dataclasses.fields`` lists."""

    def __get__(self, _instance: object, owner: type[Struct]) -> dict[str, Any]:
        """List the fields of ``owner`` by name, in their order."""
        return _dataclass_fields(owner)


@cache
def _dataclass_fields(cls: type[Struct]) -> dict[str, Any]:
    listed = [
        (
            each.name,
            each.type,
            dataclasses.field(default=dataclasses.MISSING if each.default is NODEFAULT else each.default),
        )
        for each in structs.fields(cls)
    ]
    made = dataclasses.make_dataclass(cls.__name__, listed, kw_only=True)
    return {each.name: each for each in dataclasses.fields(made)}


def core_schema(cls: type[Struct]) -> CoreSchema:
    """Tell pydantic how to read and write one class."""
    from pydantic_core import core_schema as build  # noqa: PLC0415 (pydantic is not a dependency)

    read = partial(_validated, cls)
    # pydantic shows this name where the class stands in a union that no tag tells apart.
    read.__qualname__ = read.__name__ = cls.__name__  # type: ignore[attr-defined]
    return build.no_info_plain_validator_function(
        read,
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
    except DecodeError as error:
        raise _at_place(cls, error, table) from None
    except PalaverError as error:
        raise ValueError(str(error)) from None


def _at_place(cls: type[Struct], error: DecodeError, value: object) -> ValueError:
    """The same error, with its path as pydantic's location."""
    from pydantic_core import PydanticCustomError, ValidationError  # noqa: PLC0415 (pydantic is not a dependency)

    place = tuple(int(index) if index else name for index, name in _STEP.findall(error.path))
    kind = PydanticCustomError("palaver", "{reason}", {"reason": str(error)})
    return ValidationError.from_exception_data(cls.__name__, [{"type": kind, "loc": place, "input": value}])


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
            raise EncodeError("a number out of the range of a double cannot pass pydantic")
        case _:
            return
