"""What every message and part has in common: it is a value.

Rules:

- Frozen, deeply. A change is a copy: ``value.replace(text="…")``.
- Equal by value, over all fields. A field that ends in ``_json`` holds JSON text; two such texts are
  equal when they say the same, whatever the order of keys. The property without the ending is the
  parsed, frozen view: ``metadata_json`` and ``metadata``, ``arguments_json`` and ``arguments``.
- Unset, ``None``, ``""`` and ``{}`` differ. A text field that was never set is ``UNSET``.
- The family is closed: nobody else subclasses these classes (C2).
- ``repr`` is short, whatever the value holds.
- Values pickle, and are written to JSON, in the canonical form (``palaver.core.canonical``).

Stability: stable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from msgspec import UNSET, Raw, Struct, UnsetType, field, structs

from palaver.core import jsontext
from palaver.core.errors import MessageError, excerpt

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_REPR_PARTS = 4
_NOTHING = jsontext.FrozenDict()


class Extra:
    """Fields that a newer version wrote and this one does not know: kept, and written back in place."""

    __slots__ = ("json",)

    def __init__(self, json: Raw) -> None:
        """Hold the fields as one JSON object."""
        object.__setattr__(self, "json", json)

    json: Raw

    def __setattr__(self, name: str, _value: object) -> None:
        """Refuse: values do not change."""
        msg = f"cannot assign to {name!r}"
        raise AttributeError(msg)

    def __eq__(self, other: object) -> bool:
        """Compare by what the fields say."""
        return isinstance(other, Extra) and jsontext.equal(self.json, other.json)

    def __hash__(self) -> int:
        """Hash the normal form."""
        return hash(jsontext.normal(self.json))

    def __repr__(self) -> str:
        """Show the names of the fields."""
        return f"Extra({', '.join(jsontext.fields(self.json))})"

    def __reduce__(self) -> tuple[type[Extra], tuple[Raw]]:
        """Pickle as JSON text."""
        return (Extra, (self.json,))


class Value(
    Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True, forbid_unknown_fields=True
):
    """Base of messages and parts. Immutable trees cannot form cycles, so the collector skips them."""

    provider_json: Raw | UnsetType = field(default=UNSET, name="provider")
    extra: Extra | UnsetType = UNSET

    _json_fields: ClassVar[frozenset[str]]

    def __init_subclass__(cls, **config: object) -> None:
        """Close the family: only Palaver itself defines members."""
        super().__init_subclass__(**config)
        if not cls.__module__.startswith("palaver.core."):
            msg = f"{cls.__name__}: messages and parts are a closed union and cannot be subclassed"
            raise TypeError(msg)

    @property
    def provider(self) -> Mapping[str, Mapping[str, Any]]:
        """Fields that only one wire understands: ``provider["anthropic_messages"]["cache_control"]``."""
        return _NOTHING if self.provider_json is UNSET else jsontext.view(self.provider_json)

    def replace(self, **changes: Any) -> Self:  # noqa: ANN401 (any field)
        """Give a copy with some fields changed. ``metadata=``, ``payload=`` and the like take Python values.

        Raises ``MessageError`` for a field that does not exist.
        """
        names = type(self).__struct_fields__
        made: dict[str, object] = {}
        for name, new in changes.items():
            if name in names:
                made[name] = new
            elif f"{name}_json" in names:
                made[f"{name}_json"] = new if new is UNSET else jsontext.checked(new, name)
            else:
                msg = f"{type(self).__name__} has no field {name!r}"
                raise MessageError(msg)
        return structs.replace(self, **made)

    __replace__ = replace

    def __copy__(self) -> Self:
        """A value is its own copy."""
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        """A value is its own copy."""
        return self

    def __eq__(self, other: object) -> bool:
        """Compare all fields; JSON texts by what they say."""
        if self is other:
            return True
        if type(self) is not type(other):
            return NotImplemented
        return all(map(_same, _values(self), _values(cast("Value", other))))

    def __hash__(self) -> int:
        """Hash what cannot be spelled in two ways."""
        plain = (each for each in _values(self) if not isinstance(each, (Raw, Extra)))
        return hash((type(self).__name__, *plain))

    def __repr__(self) -> str:
        """Show what was set, shortened."""
        return f"{type(self).__name__}({', '.join(_shown(self))})"


def _values(value: Value) -> Iterator[object]:
    for name in type(value).__struct_fields__:
        yield getattr(value, name)


def _same(one: object, other: object) -> bool:
    if isinstance(one, Raw) and isinstance(other, Raw):
        return jsontext.equal(one, other)
    return one is other or (type(one) is type(other) and one == other)


def _shown(value: Value) -> Iterator[str]:
    cls = type(value)
    required = len(cls.__struct_fields__) - len(cls.__struct_defaults__)
    for index, name in enumerate(cls.__struct_fields__):
        item = getattr(value, name)
        default = cls.__struct_defaults__[index - required] if index >= required else None
        if index >= required and item is default:
            continue
        text = _short(item)
        yield text if name in cls.__match_args__ else f"{name}={text}"


def _short(item: object) -> str:
    match item:
        case str():
            return repr(excerpt(item, 60))
        case Raw():
            return excerpt(bytes(item).decode(errors="replace"), 60)
        case tuple():
            parts = cast("tuple[object, ...]", item)
            shown = [excerpt(repr(part), 160) for part in parts[:_REPR_PARTS]]
            if len(parts) > _REPR_PARTS:
                shown.append(f"… {len(parts) - _REPR_PARTS} more")
            return f"({', '.join(shown)}{',' if len(parts) == 1 else ''})"
        case _:
            return excerpt(repr(item), 160)
