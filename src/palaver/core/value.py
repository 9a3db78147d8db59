"""The base classes of messages and parts: immutable values.

Rules:

- Frozen, deeply. A change is a copy: ``value.replace(text="…")``.
- Equal by value, over all fields but ``original``. A field that ends in ``_json`` holds JSON text; two such texts
  are equal when their values are, whatever the order of keys. The property without the ending is
  the parsed, frozen view: ``metadata_json`` and ``metadata``, ``arguments_json`` and ``arguments``.
- Unset, ``None``, ``""`` and ``{}`` differ. A text field that was never set is ``UNSET``.
- The family is closed: no other module subclasses these classes (C2).
- ``repr`` is short, whatever the value holds.
- Values pickle, and are written to JSON, in the canonical form (``palaver.core.canonical``).

Stability: stable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Self, cast

from msgspec import UNSET, Raw, Struct, UnsetType, field, structs

from palaver.core import jsontext, pydantic_schema, type_checks
from palaver.core.errors import DecodeError, MessageError, excerpt
from palaver.core.slow_path import Extra

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic_core import CoreSchema

__all__ = ["Extra", "Record", "Value", "json_text", "mapping", "short_repr"]

_REPR_PARTS = 4
_NOTHING = jsontext.FrozenDict()


class Record(
    Struct,
    frozen=True,
    kw_only=True,
    gc=False,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """Base of every struct that is stored.

    Immutable trees form no cycles: the collector skips them.
    """

    extra: Extra | UnsetType = UNSET

    __dataclass_fields__ = pydantic_schema.DataclassFields()

    def __init_subclass__(cls, **config: Any) -> None:
        """Close the family: only Palaver itself defines members."""
        super().__init_subclass__(**config)
        if not cls.__module__.startswith("palaver.core."):
            msg = f"{cls.__name__}: messages and parts are a closed union and cannot be subclassed"
            raise TypeError(msg)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
        """Let pydantic read and write the canonical form."""
        return pydantic_schema.core_schema(cls)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe the canonical form to pydantic and OpenAPI."""
        return pydantic_schema.json_schema(cls)

    def __copy__(self) -> Self:
        """A value is its own copy."""
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        """A value is its own copy."""
        return self

    def __eq__(self, other: object) -> bool:
        """Compare all fields; JSON texts by their values."""
        if self is other:
            return True
        if type(self) is not type(other):
            return NotImplemented
        return all(map(_same, _values(self), _values(cast("Struct", other))))

    def __hash__(self) -> int:
        """Hash the fields that have one spelling only."""
        plain = (each for each in _values(self) if not isinstance(each, (Raw, Extra)))
        return hash((type(self).__name__, *plain))

    def __repr__(self) -> str:
        """Show what was set, shortened."""
        return short_repr(self)


class Value(Record, frozen=True, kw_only=True):
    """Base of messages, parts, tools and requests: a record with fields for single wires."""

    provider_json: Raw | UnsetType = field(default=UNSET, name="provider")

    @property
    def provider(self) -> Mapping[str, Mapping[str, Any]]:
        """Fields that only one wire understands: ``provider["openai_chat"]["logprobs"]``."""
        return mapping(self.provider_json, "provider")

    def __replace__(self, **changes: object) -> Self:
        """Return a copy with some fields changed: what ``copy.replace`` calls, and ``replace`` of each class.

        ``metadata=``, ``payload=`` and the like take Python values.

        Raises ``MessageError`` for a field that does not exist, and for a value that it cannot hold.
        """
        cls = type(self)
        names = cls.__struct_fields__
        made: dict[str, object] = {}
        for name, new in changes.items():
            if name in names:
                made[name] = type_checks.checked(cls, name, new) if type_checks.is_checked(cls) else _tupled(new)
            elif f"{name}_json" in names:
                made[f"{name}_json"] = self._text(name, new)
            else:
                raise MessageError(f"{cls.__name__} has no field {name!r}")
        return structs.replace(self, **made)

    def _text(self, name: str, new: object) -> object:
        """The JSON text of a Python value, as the field holds it: as a string where it is the model's own text."""
        key = f"{name}_json"
        if new is UNSET:
            return type_checks.checked(type(self), key, new)
        text = json_text(new, name)
        return bytes(text).decode() if isinstance(getattr(self, key), str) else text


def _tupled(item: object) -> object:
    """Freeze a list that stands where a tuple belongs."""
    return tuple(cast("list[object]", item)) if type(item) is list else item


_OBJECTS = frozenset({"arguments", "metadata", "provider"})


def json_text(item: object, name: str) -> Raw:
    """Write the value of a field that holds JSON text. Raises ``MessageError`` for what it cannot hold."""
    cls = type(item)
    if name in _OBJECTS and not issubclass(cls, dict):
        raise MessageError(f"{name}: expected a dict, got {cls.__name__}")
    if name == "provider":
        for wire, fields in cast("dict[str, object]", item).items():
            if not isinstance(fields, dict):
                place = f"provider[{excerpt(repr(wire), 60)}]"
                raise MessageError(f"{place}: expected a dict of fields, got {type(fields).__name__}")
    return jsontext.checked(item, name)


def mapping(data: Raw | UnsetType, name: str) -> Mapping[str, Any]:
    """Read a field that holds an object; unset and ``null`` read as empty.

    Raises ``DecodeError`` when stored data hold something else there.
    """
    if data is UNSET or jsontext.is_null(data):
        return _NOTHING
    parsed = jsontext.view(data)
    if not isinstance(parsed, jsontext.FrozenDict):
        reason = f"expected an object, got {jsontext.kind(data)}"
        raise DecodeError(reason, path=name, source="palaver")
    return parsed


UNCOMPARED: Final = "original"
"""The field that keeps the spelling of a value and does not count when values are compared."""


def _values(value: Struct) -> Iterator[object]:
    for name in type(value).__struct_fields__:
        if name != UNCOMPARED:
            yield getattr(value, name)


def _is_number(item: object) -> bool:
    return isinstance(item, (int, float)) and not isinstance(item, bool)


def _same(one: object, other: object) -> bool:
    if isinstance(one, Raw) and isinstance(other, Raw):
        return jsontext.equal(one, other)
    if one is other:
        return True
    # True is no 1, but a setting of 1, of 1.0 and of 1.00 is the same setting
    alike = type(one) is type(other) or (_is_number(one) and _is_number(other))
    return alike and one == other


def short_repr(value: Struct) -> str:
    """Show what was set, each field shortened, so that no value prints a megabyte."""
    return f"{type(value).__name__}({', '.join(_shown(value))})"


def _shown(value: Struct) -> Iterator[str]:
    cls = type(value)
    required = len(cls.__struct_fields__) - len(_defaults(cls))
    for index, name in enumerate(cls.__struct_fields__):
        item = getattr(value, name)
        if index >= required and item is _defaults(cls)[index - required]:
            continue
        text = _short(item)
        yield text if name in _positional(cls) else f"{name}={text}"


# Their types are not in msgspec's stubs, or are wrong there.
def _defaults(cls: type[Struct]) -> tuple[object, ...]:
    return cast("tuple[object, ...]", cast("Any", cls).__struct_defaults__)


def _positional(cls: type[Struct]) -> tuple[str, ...]:
    return cast("tuple[str, ...]", cast("Any", cls).__match_args__)


def _short(item: object) -> str:
    match item:
        case str():
            return repr(excerpt(item, 60))
        case Raw():
            return excerpt(bytes(memoryview(item)[:300]).decode(errors="replace"), 60)
        case tuple():
            parts = cast("tuple[object, ...]", item)
            shown = [excerpt(repr(part), 160) for part in parts[:_REPR_PARTS]]
            if len(parts) > _REPR_PARTS:
                shown.append(f"… {len(parts) - _REPR_PARTS} more")
            return f"({', '.join(shown)}{',' if len(parts) == 1 else ''})"
        case _:
            return excerpt(repr(item), 160)
