"""Check the arguments of a public function or constructor against its annotations.

Rules:

- A value of the wrong type raises one error that names the argument, what it got and what it takes.
- ``True`` is no number. A whole number is taken where a number is. Text is no list of texts.
- A list is taken where a tuple is, and a set where a frozen set is. Items of lists, tuples and mappings are checked;
  what can be read only once is left for its reader.
- A protocol takes every object that has its members and is no plain value. A name that exists for type checkers only
  takes everything.

Stability: experimental.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import (
    Any,
    Final,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from palaver.core.errors import MessageError, PalaverError, excerpt


class _Wrong(NamedTuple):
    """What is wrong: where, what is taken there, and what was given."""

    place: str
    expected: str
    value: object


class _Kind(NamedTuple):
    """How a value that stands at a place is checked, and in words what is taken."""

    check: Callable[[object, str], _Wrong | None]
    expected: str


def check_arguments(
    whose: str, owner: Callable[..., Any], given: Mapping[str, object], error: type[PalaverError] = MessageError
) -> None:
    """Raise ``error`` when an argument is not of its type; ``owner`` is the function or dataclass that annotates it."""
    for name, kind in _kinds(owner).items():
        if name not in given:
            continue
        wrong = kind.check(given[name], name)
        if wrong is not None:
            raise error(f"{whose}: {wrong.place}: expected {wrong.expected}, got {_shown(wrong.value)}")


class _Unseen(type):
    """The class of ``_Unknown``, for ``module.Class`` where the module was imported for type checkers only."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return cls


class _Unknown(metaclass=_Unseen):
    """Stands for a class that was imported for type checkers only."""

    def __class_getitem__(cls, _: object) -> Any:
        return cls


class _Names(dict[str, object]):
    """What a name in an annotation means."""

    def __init__(self, known: Mapping[str, object]) -> None:
        super().__init__()
        self._known = known

    def __missing__(self, name: str) -> object:
        found = self._known.get(name, getattr(builtins, name, _Unknown))
        return _Unknown if isinstance(found, str) else found  # an alias that is written as a text


@cache
def _kinds(owner: Callable[..., Any]) -> dict[str, _Kind]:
    """What each argument takes."""
    known = vars(sys.modules[owner.__module__])
    hints = get_type_hints(owner, localns=_Names(known))
    return {name: _kind(hint) for name, hint in hints.items() if name != "return"}


def _kind(hint: Any) -> _Kind:
    origin = get_origin(hint)
    if hint in _SCALARS:
        return _SCALARS[hint]
    if origin in {Union, UnionType}:
        return _any_of([_kind(each) for each in get_args(hint)])
    if origin is Literal:
        return _one_of(get_args(hint))
    if hint is _Unknown or origin is type or isinstance(hint, TypeVar | ParamSpec):
        return _ANYTHING
    found: object = hint if origin is None else origin
    if found is _CALLABLE:
        return _FUNCTION
    if not isinstance(found, type):
        return _ANYTHING
    cls: type[Any] = cast("Any", found)
    if _derived(cls, Mapping):
        return _mapping(cls, get_args(hint))
    if _derived(cls, Iterable) and cls.__module__ in {"builtins", "collections.abc"}:
        return _many(cls, get_args(hint))
    return _instance(cls)


def _derived(cls: type, base: type) -> bool:
    return issubclass(cls, base)


def _instance(cls: type) -> _Kind:
    if getattr(cls, "_is_protocol", False):
        return _protocol(cls)
    return _simple(lambda value: isinstance(value, cls), cls.__name__)


def _protocol(cls: type) -> _Kind:
    """A value with the methods and properties that a protocol asks for."""
    bases = [each for each in cls.__mro__ if getattr(each, "_is_protocol", False)]
    names = [name for each in bases for name in vars(each) if not name.startswith("_")]

    def fits(value: object) -> bool:
        return not isinstance(value, _PLAIN) and all(hasattr(value, name) for name in names)

    return _simple(fits, cls.__name__)


def _many(cls: type, args: tuple[Any, ...]) -> _Kind:
    item = _kind(args[0]) if args else _ANYTHING
    taken = _TAKEN.get(cls, cls)
    expected = "a list" if item is _ANYTHING else f"a list, each {item.expected}"

    def check(value: object, place: str) -> _Wrong | None:
        if isinstance(value, str | bytes | bytearray) or not isinstance(value, taken):
            return _Wrong(place, expected, value)
        if isinstance(value, list | tuple | set | frozenset):
            items = enumerate(cast("Iterable[object]", value))
            return _first(item.check(each, f"{place}[{at}]") for at, each in items)
        return None

    return _Kind(check, expected)


def _mapping(cls: type, args: tuple[Any, ...]) -> _Kind:
    inner = _kind(args[1]) if args else _ANYTHING

    def check(value: object, place: str) -> _Wrong | None:
        if not isinstance(value, cls):
            return _Wrong(place, "a mapping", value)
        items = cast("Mapping[object, object]", value).items()
        return _first(inner.check(each, f"{place}[{excerpt(repr(key), 60)}]") for key, each in items)

    return _Kind(check, "a mapping")


def _first(found: Iterable[_Wrong | None]) -> _Wrong | None:
    return next((wrong for wrong in found if wrong is not None), None)


def _any_of(kinds: list[_Kind]) -> _Kind:
    expected = " or ".join(dict.fromkeys(kind.expected for kind in kinds if kind.expected))

    def check(value: object, place: str) -> _Wrong | None:
        inside: _Wrong | None = None
        for kind in kinds:
            wrong = kind.check(value, place)
            if wrong is None:
                return None
            inside = wrong if wrong.place != place else inside
        return inside or _Wrong(place, expected, value)

    return _Kind(check, expected)


def _one_of(words: tuple[object, ...]) -> _Kind:
    return _simple(
        lambda value: any(type(value) is type(word) and value == word for word in words),
        f"one of {', '.join(map(repr, words))}",
    )


def _simple(fits: Callable[[object], bool], expected: str) -> _Kind:
    def check(value: object, place: str) -> _Wrong | None:
        return None if fits(value) else _Wrong(place, expected, value)

    return _Kind(check, expected)


def _shown(value: object) -> str:
    kind = type(value).__name__
    try:
        return f"{kind} {excerpt(repr(cast('object', value)), 60)}" if isinstance(value, _PLAIN) else kind
    except (ValueError, RecursionError):  # Python writes neither any number of digits nor any depth
        return kind


_TAKEN: Final[Mapping[type, tuple[type, ...]]] = {tuple: (tuple, list), frozenset: (frozenset, set)}
"""What is taken where a frozen collection is: nobody means another thing by a list."""
_CALLABLE: Final[object] = Callable
_PLAIN: Final = (str, bytes, bool, int, float, NoneType, list, tuple, dict, set)
_ANYTHING: Final = _simple(lambda _: True, "")
_FUNCTION: Final = _simple(callable, "a function")
_SCALARS: Final[dict[object, _Kind]] = {
    Any: _ANYTHING,
    object: _ANYTHING,
    str: _simple(lambda value: isinstance(value, str), "a text"),
    bool: _simple(lambda value: isinstance(value, bool), "True or False"),
    int: _simple(lambda value: isinstance(value, int) and not isinstance(value, bool), "a whole number"),
    float: _simple(lambda value: isinstance(value, int | float) and not isinstance(value, bool), "a number"),
    NoneType: _simple(lambda value: value is None, "None"),
}
