"""Every field of every message and part, set alone: a format or a wire must carry it or name it on its receipt.

- The fields are read from the classes, so a new one is tested without being listed. A value is made from the field's
  type; ``_FORMS`` has the few that need a certain form.
- ``single_fields`` yields two messages for each field: ``base`` without it (or with another value, if it is required),
  and ``message``, which differs only in that field.
- Each text in a value is the field's unique ``sign``. A flag or a number has no sign; it is carried when the encodings
  of the two messages differ.
- A field with a struct (usage, citations) appears once for each field of the struct, a medium once for each source.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Any, Final, Literal, NamedTuple, Union, cast, get_args, get_origin, get_type_hints

from msgspec import Raw, Struct, UnsetType, structs

from palaver.core import parts
from palaver.core.messages import MESSAGE_CLASSES, Message, holds
from palaver.core.slow_path import Extra
from palaver.core.usage import Usage, UsagePass

_BASE: Final = "base"
_FORMS: Final = {
    ("Inline", "data"): ("aVZCT1J3MEtHZ28=", "c2lnbg=="),
    ("Url", "url"): ("https://example.org/base", "https://example.org/{}"),
    ("Blob", "hash"): ("sha256:" + "0" * 64, "sha256:" + "1" * 64),
    ("ToolCall", "arguments_json"): ('{"a":"base"}', '{"a":"{}"}'),
    ("ToolMessage", "tool_call_id"): ("call00001", "call00001"),
    ("Image", "media_type"): ("image/png", "image/webp"),
    ("Audio", "media_type"): ("audio/wav", "audio/mpeg"),
    ("Video", "media_type"): ("video/mp4", "video/webm"),
    ("File", "media_type"): ("application/pdf", "text/plain"),
}
"""Values that need a form: that of ``base``, and that of ``message``, where ``{}`` is the sign."""


class SingleField(NamedTuple):
    """One field: its ``place`` is ``Class.field``, ``part`` the position of its part (``None``: a message's own)."""

    place: str
    base: Message
    message: Message
    sign: str
    part: int | None = None


def single_fields() -> Iterator[SingleField]:
    """Give every field of every message class, and of every part class in each class of messages that can hold it."""
    for cls in MESSAGE_CLASSES:
        base = _message(cls, ())
        for name, without, value, sign in _values(base):
            field = name.partition(".")[0]
            one, other = (structs.replace(base, **{field: each}) for each in (without, value))
            yield SingleField(f"{cls.__name__}.{name}", one, other, sign)
    for part_class in part_classes():
        part = _struct(part_class)
        for name, without, value, sign in _values(part):
            field = name.partition(".")[0]
            plain, changed = (structs.replace(part, **{field: each}) for each in (without, value))
            for holder in MESSAGE_CLASSES:
                if holds(holder, part):
                    one, other = _message(holder, (plain,)), _message(holder, (changed,))
                    yield SingleField(f"{part_class.__name__}.{name}", one, other, sign, 0)


def part_classes() -> tuple[type[Struct], ...]:
    """All classes of parts, in the order of their union."""
    return get_args(parts.AnyPart)


def _message(cls: type, content: tuple[object, ...]) -> Message:
    fields: dict[str, Any] = {"content": content}
    if not content and holds(cls, parts.Text("")):
        fields["content"] = (parts.Text(_BASE),)
    return cast("Message", cls(**fields))


def _struct(cls: type[Struct]) -> Struct:
    """A value with nothing but the fields that must be given."""
    hints = get_type_hints(cls)
    needed = [each.name for each in structs.fields(cls) if each.required]
    return cls(**{name: _made(cls, name, hints[name], _BASE) for name in needed})


def _values(base: Struct) -> Iterator[tuple[str, object, object, str]]:
    """Each field with its value in ``base``, another value, and the sign of that; of a nested struct each field."""
    cls = type(base)
    hints = get_type_hints(cls)
    for name in cls.__struct_fields__:
        if name == "content":  # the parts have fields of their own
            continue
        inner, several = _structs_in(hints[name])
        sign = _sign(cls.__name__, name)
        if not inner:
            yield name, getattr(base, name), _made(cls, name, hints[name], sign), sign
        for each in inner:
            if each.__name__ in _SOURCES:
                sign = _sign(cls.__name__, name, each.__name__)
                yield f"{name}.{each.__name__}", getattr(base, name), _nested(each, "", sign), sign
                continue
            for field in each.__struct_fields__:
                sign = _sign(cls.__name__, name, each.__name__, field)
                empty, held = _nested(each, "", _BASE), _nested(each, field, sign)
                yield f"{name}.{field}", (empty,) if several else empty, (held,) if several else held, sign


_SOURCES: Final = frozenset(each.__name__ for each in get_args(parts.MediaSource))
"""Where a medium comes from: one class each, whose fields belong together."""


def _sign(*names: str) -> str:
    return "sign" + "".join(names).replace("_", "")


def _nested(cls: type[Struct], name: str, sign: str) -> Struct:
    """A value of a nested class with one field set; with all that are needed where none is named."""
    hints = get_type_hints(cls)
    if name == "passes":
        return cls(**{name: (UsagePass(kind=sign, usage=Usage(input=1)),)})
    needed = {each.name: _made(cls, each.name, hints[each.name], sign) for each in structs.fields(cls) if each.required}
    return cls(**needed) if not name else cls(**needed, **{name: _made(cls, name, hints[name], sign)})


def _structs_in(hint: Any) -> tuple[list[type[Struct]], bool]:
    """The classes that a field may hold, and whether it holds several."""
    if get_origin(hint) is tuple:
        return _structs_in(get_args(hint)[0])[0], True
    found = get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)
    return [each for each in found if _is_struct(each)], False


def _made(cls: type, name: str, hint: Any, sign: str) -> Any:
    form = _FORMS.get((cls.__name__, name))
    if form is None:
        return _of_type(hint, sign)
    return form[0] if sign == _BASE else form[1].replace("{}", sign)


def _of_type(hint: Any, sign: str) -> Any:
    """A value of a type that is not what the field holds anyway."""
    origin = get_origin(hint)
    if origin is Literal:
        return get_args(hint)[-1]
    if origin in {Union, UnionType}:
        inner = [each for each in get_args(hint) if each not in {NoneType, UnsetType}]
        return _of_type(inner[0], sign)
    if origin is tuple:
        return (_of_type(get_args(hint)[0], sign),)
    plain: dict[Any, Any] = {
        str: sign,
        int: 4711,
        bool: True,
        Raw: Raw(f'{{"elsewhere":{{"{sign}":"{sign}"}}}}'.encode()),
        Extra: Extra(Raw(f'{{"x-{sign}":"{sign}"}}'.encode())),
    }
    return _nested(hint, "", sign) if _is_struct(hint) else plain[hint]


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Struct) and hint.__name__ != Extra.__name__
