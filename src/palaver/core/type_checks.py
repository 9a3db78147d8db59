"""Check values against annotations, where Python code gives them to Palaver.

Values of messages and parts:

- The constructor of a message, part, media source, citation or usage checks each value against the annotation of its
  field, and raises ``MessageError`` with the class, the field and what was expected. ``replace`` checks its changes.
- A list becomes a tuple, and a subclass of ``str`` or ``int`` (an enum's member) the plain value. Nothing else is
  converted; ``True`` is no integer, and ``1`` is not ``True``.
- JSON text (``Raw``) must be one JSON value, in UTF-8, nested at most ``jsontext.DEEPEST`` levels. ``verify`` checks
  values that may have been decoded, and takes ``jsontext.READABLE`` levels.
- msgspec checks what it decodes, and ``msgspec.structs.replace`` checks nothing. ``unchecked`` gives a constructor
  without checks, for decoders that have read the types already.

Arguments of public functions (``check_arguments``):

- A value of the wrong type raises one error with the argument, its value and its type. ``True`` is no number, an
  integer is accepted as a float, text is no list of texts, a list is accepted as a tuple and a set as a frozen set.
- Items of lists, tuples and mappings are checked, but not those of an iterator. A protocol accepts every object with
  its members, except plain values. A name that exists for type checkers only accepts everything.

Stability: experimental.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from operator import attrgetter
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from msgspec import Raw, Struct, StructMeta, UnsetType

from palaver.core import jsontext
from palaver.core.errors import MessageError, PalaverError, excerpt
from palaver.core.slow_path import Extra

# -- values of messages and parts ------------------------------------------------------------------


P = ParamSpec("P")
T = TypeVar("T")

Look: TypeAlias = Callable[[Any], None]
"""Checks a value; raises ``MessageError``."""
Convert: TypeAlias = Callable[[Any, str], object]
"""Returns the value that a field holds for one that was given; the text is the place, for the error."""


class _Field(NamedTuple):
    """What a field takes: exact types that need no look, how to judge any other value, and words for both.

    ``text``: it may hold JSON text. ``items``: the exact types of the items, where it is a tuple.
    """

    exact: frozenset[type]
    convert: Convert
    expected: str
    text: bool = False
    items: frozenset[type] | None = None


_construct: Final = StructMeta.__call__
_NONE: Final = frozenset[type]()


class _Plan(NamedTuple):
    """What the fields of a class take, by name; of their exact types, those of positional fields in order."""

    fields: dict[str, _Field]
    exact: dict[str, frozenset[type]]
    first: tuple[frozenset[type], ...]


_plans: Final[dict[type, _Plan]] = {}
_getters: Final[dict[type, Callable[[Struct], tuple[object, ...]]]] = {}
_looks: Final[dict[tuple[type, ...], tuple[tuple[int, Look], ...]]] = {}
_MOST_LOOKS: Final = 10_000
"""Combinations of types that are remembered: far more than there are, but hostile data could make up others."""


class Checked(StructMeta):
    """The class of classes whose constructors check what they are given."""

    if not TYPE_CHECKING:

        def __call__(cls, *args: object, **given: object) -> Struct:  # noqa: N805 (of a metaclass)
            """Construct a value from checked fields."""
            _, exact, first = _plans.get(cls) or _plan(cls)
            for item, types in zip(args, first, strict=False):
                if type(item) not in types:
                    args = _positional(cls, args)
                    break
            for name, item in given.items():
                if type(item) not in exact.get(name, _NONE):
                    given[name] = checked(cls, name, item)
            return _construct(cls, *args, **given)


def _positional(cls: type[Struct], args: tuple[object, ...]) -> tuple[object, ...]:
    """Check positional arguments; those that are too many are for the constructor to refuse."""
    names = cast("tuple[str, ...]", cast("Any", cls).__match_args__)
    made = [checked(cls, name, item) for name, item in zip(names, args, strict=False)]
    return (*made, *args[len(names) :])


def unchecked(cls: Callable[P, T]) -> Callable[P, T]:
    """Return the constructor of a class without its checks, for values whose types are known."""
    return partial(_construct, cast("Any", cls))


def checked(cls: type[Struct], name: str, item: object) -> object:
    """Return the value that a field of a class holds for ``item``. Raises ``MessageError``."""
    field = (_plans.get(cls) or _plan(cls)).fields.get(name)
    if field is None or type(item) in field.exact:
        return item
    return field.convert(item, f"{cls.__name__}: {name}")


def is_checked(cls: object) -> bool:
    """Whether a class is one whose constructor checks."""
    return isinstance(cls, Checked)


def verify(value: Struct) -> None:
    """Check the types of a whole value that somebody made, down to its last part. Raises ``MessageError``.

    Values whose fields have the same types are looked at alike, so the fields to look at are derived once.
    """
    cls = type(value)
    items = (_getters.get(cls) or _getter(cls))(value)
    types = (cls, *map(type, items))
    looks = _looks.get(types)
    if looks is None:
        looks = _closer(cls, types[1:])
        if len(_looks) < _MOST_LOOKS:
            _looks[types] = looks
    for index, look in looks:
        look(items[index])


def _getter(cls: type[Struct]) -> Callable[[Struct], tuple[object, ...]]:
    """Derive the function that gives the values of all fields."""
    names = cls.__struct_fields__
    getter = attrgetter(*names) if len(names) > 1 else partial(_values, names)
    _getters[cls] = getter
    return getter


def _values(names: tuple[str, ...], value: Struct) -> tuple[object, ...]:
    return tuple([getattr(value, name) for name in names])


def _closer(cls: type[Struct], types: tuple[type, ...]) -> tuple[tuple[int, Look], ...]:
    """The fields whose value must be looked at, when the values of all fields have these types."""
    looks: list[tuple[int, Look]] = []
    for index, (name, given) in enumerate(zip(cls.__struct_fields__, types, strict=True)):
        field = (_plans.get(cls) or _plan(cls)).fields[name]
        if given not in field.exact:
            look = partial(_verify, cls, name, field)
            looks.append((index, look if field.items is None or given is not tuple else _each(field.items, look)))
        elif given not in _SCALARS and is_checked(given):
            looks.append((index, verify))
    return tuple(looks)


def _each(exact: frozenset[type], closer: Look) -> Look:
    """Look at each item of a tuple, and closer at a tuple with an item of another type."""
    nested = frozenset([each for each in exact if is_checked(each)])

    def look(items: tuple[Any, ...]) -> None:
        for each in items:
            if type(each) in nested:
                verify(each)
            elif type(each) not in exact:
                closer(items)

    return look


def _verify(cls: type[Struct], name: str, field: _Field, item: object) -> None:
    """Check a field whose value must be looked at closely."""
    if field.text and type(item) is Raw:
        why = jsontext.unreadable(item, jsontext.READABLE)
        if why is not None:
            raise MessageError(f"{cls.__name__}: {name}: {why}")
        return
    if field.convert(item, f"{cls.__name__}: {name}") is not item:
        raise MessageError(f"{cls.__name__}: {name}: expected {field.expected}, got {_got(item)}")
    if type(item) is tuple:
        for each in cast("tuple[object, ...]", item):
            if is_checked(type(each)):
                verify(cast("Struct", each))


# -- what a field takes --------------------------------------------------------------------------------------------


def _plan(cls: type[Struct]) -> _Plan:
    """Derive what the fields of a class take from its annotations, once."""
    hints = get_type_hints(cls)
    fields = {name: _field(hints[name]) for name in cls.__struct_fields__}
    exact = {name: field.exact for name, field in fields.items()}
    first = tuple([exact[name] for name in cast("Any", cls).__match_args__])
    plan = _plans[cls] = _Plan(fields, exact, first)
    return plan


def _field(hint: Any) -> _Field:
    origin = get_origin(hint)
    if origin is Annotated:
        return _field(get_args(hint)[0])
    if origin in {Union, UnionType}:
        return _any_of([_field(each) for each in get_args(hint)])
    if origin is Literal:
        return _words(get_args(hint))
    if origin is tuple:
        return _many(get_args(hint))
    if hint is Raw:
        return _Field(frozenset(), _json_text, _JSON, text=True)
    if hint in _SCALARS:
        return _SCALARS[hint]
    return _exactly(hint)


def _exactly(cls: type, expected: str | None = None) -> _Field:
    """A field of one class."""
    words = f"{cls.__name__}" if expected is None else expected
    return _Field(frozenset({cls}), _refuse(words), words)


def _refuse(expected: str) -> Convert:
    def convert(item: object, place: str) -> object:
        raise MessageError(f"{place}: expected {expected}, got {_got(item)}{_hint(place, expected)}")

    return convert


_FORM_HINT: Final = "; OutputFormat.of(…) takes a JSON Schema, and Agent(output=…) a type"


def _hint(place: str, expected: str) -> str:
    """What takes a value of a kind that the field does not take."""
    if _JSON in expected:
        return _way(place)
    return _FORM_HINT if "OutputFormat" in expected else ""


def _plain(cls: type, expected: str) -> _Field:
    """A field of strings or integers; a member of an enum is one, ``True`` is none."""

    def convert(item: object, place: str) -> object:
        if not isinstance(item, cls) or isinstance(item, bool):
            raise MessageError(f"{place}: expected {expected}, got {_got(item)}")
        return str.__str__(item) if isinstance(item, str) else int.__int__(cast("int", item))

    return _Field(frozenset({cls}), convert, expected)


def _words(words: tuple[object, ...]) -> _Field:
    expected = f"one of {', '.join(map(repr, words))}"

    def convert(item: object, place: str) -> object:
        word = str.__str__(item) if isinstance(item, str) else None
        if word not in words:
            raise MessageError(f"{place}: expected {expected}, got {_got(item)}")
        return word

    return _Field(frozenset(), convert, expected)


def _many(hints: tuple[Any, ...]) -> _Field:
    """A field of any number of items; with no hint, of none."""
    if not hints or hints == ((),):
        return _Field(frozenset(), _nothing, "nothing")
    inner = _field(hints[0])
    expected = f"a tuple of {inner.expected}"

    def convert(item: object, place: str) -> object:
        if type(item) is not tuple and type(item) is not list:
            raise MessageError(f"{place}: expected {expected}, got {_got(item)}")
        items = cast("list[object] | tuple[object, ...]", item)
        exact = inner.exact
        for each in items:
            if type(each) not in exact:
                break
        else:
            return items if type(items) is tuple else tuple(items)
        return tuple(
            [
                each if type(each) in inner.exact else inner.convert(each, f"{place}[{index}]")
                for index, each in enumerate(items)
            ]
        )

    return _Field(frozenset(), convert, expected, items=inner.exact)


def _nothing(item: object, place: str) -> object:
    if item != () or type(item) is not tuple:
        raise MessageError(f"{place}: must be empty, got {_got(item)}")
    return ()


def _any_of(fields: list[_Field]) -> _Field:
    """A field of several types. Of those that look closer (words, text, many), there is one at most."""
    exact = frozenset[type]().union(*[each.exact for each in fields])
    expected = " or ".join([each.expected for each in fields if each.exact != _UNSET.exact])
    closer = [each for each in fields if not each.exact or each in _SCALARS.values()]
    refuse = _refuse(expected)

    def convert(item: object, place: str) -> object:
        for each in closer:
            try:
                return each.convert(item, place)
            except MessageError:
                if isinstance(item, Raw):
                    raise
        return refuse(item, place)

    return _Field(exact, convert, expected, any(each.text for each in fields))


_JSON: Final = "JSON text (msgspec.Raw)"
_MADE_BY_OF: Final = frozenset({"parameters_json", "schema_json", "value_json"})
"""Fields whose classes have a constructor ``of``, which takes Python values."""


def _way(place: str) -> str:
    """What takes a Python value for a field of JSON text."""
    kind, _, name = place.partition(": ")
    way = f"{kind}.of" if name in _MADE_BY_OF else f"replace({name.removesuffix('_json')}=…)"
    return f"; {way} takes Python values"


def _json_text(item: object, place: str) -> object:
    if type(item) is not Raw:
        raise MessageError(f"{place}: expected {_JSON}, got {_got(item)}{_way(place)}")
    why = jsontext.unreadable(item)
    if why is not None:
        raise MessageError(f"{place}: {why}")
    return item


def _got(item: object) -> str:
    """The type of a value, and the value where it is short to write."""
    if isinstance(item, str):
        return f"{type(item).__name__} {excerpt(item[:41], 40)!r}"
    if isinstance(item, type):
        return f"the class {item.__name__}"
    return f"{type(item).__name__} {item}" if isinstance(item, (bool, float)) else type(item).__name__


_UNSET: Final = _exactly(UnsetType)
_SCALARS: Final[dict[object, _Field]] = {
    str: _plain(str, "a string"),
    int: _plain(int, "an integer"),
    float: _Field(frozenset({float, jsontext.Number}), _refuse("float"), "float"),  # also one that was read
    bool: _exactly(bool, "True or False"),
    NoneType: _exactly(NoneType, "None"),
    UnsetType: _UNSET,
    Extra: _exactly(Extra),
}


# -- arguments of functions ------------------------------------------------------------------------


class _Wrong(NamedTuple):
    """A wrong value: its place, what is accepted there, and what was given."""

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


def read_arguments(
    whose: str,
    owner: Callable[..., Any],
    given: Mapping[str, object],
    read_once: Iterable[str],
    error: type[PalaverError] = MessageError,
) -> dict[str, Any]:
    """Return checked arguments; those that ``read_once`` names may be iterators, and are tuples. Raises ``error``."""
    check_arguments(whose, owner, given, error)
    read: dict[str, Any] = dict(given)
    for name in read_once:
        read[name] = tuple(read[name])
    check_arguments(whose, owner, read, error)
    return read


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
    if hint in _SCALAR_KINDS:
        return _SCALAR_KINDS[hint]
    if origin in {Union, UnionType}:
        return _union_kind([_kind(each) for each in get_args(hint)])
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
    if cls in {bytes, bytearray}:  # iterable, and no list
        return _instance(cls)
    if _derived(cls, Iterable) and cls.__module__ in {"builtins", "collections.abc"}:
        return _items_kind(cls, get_args(hint))
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


def _items_kind(cls: type, args: tuple[Any, ...]) -> _Kind:
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


def _union_kind(kinds: list[_Kind]) -> _Kind:
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
"""Collections that are accepted for a frozen one."""
_CALLABLE: Final[object] = Callable
_PLAIN: Final = (str, bytes, bool, int, float, NoneType, list, tuple, dict, set)
_ANYTHING: Final = _simple(lambda _: True, "")
_FUNCTION: Final = _simple(callable, "a function")
_SCALAR_KINDS: Final[dict[object, _Kind]] = {
    Any: _ANYTHING,
    object: _ANYTHING,
    str: _simple(lambda value: isinstance(value, str), "a text"),
    bool: _simple(lambda value: isinstance(value, bool), "True or False"),
    int: _simple(lambda value: isinstance(value, int) and not isinstance(value, bool), "a whole number"),
    float: _simple(lambda value: isinstance(value, int | float) and not isinstance(value, bool), "a number"),
    NoneType: _simple(lambda value: value is None, "None"),
}
