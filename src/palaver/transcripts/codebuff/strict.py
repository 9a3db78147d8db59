"""Check a Codebuff history against the types of its messages: required fields, and the type of each (CBF-01).

Rules (docs/spec/codebuff.md#1.1, #1.2):

- The later form alone: content is a list of parts, a result names its call beside its content.
- ``providerOptions`` are objects of objects. ``file`` needs a media type, ``image`` does not.
- Fields that the types do not name are accepted: a later version may have them.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeAlias, TypeGuard, cast

from palaver.core import jsontext
from palaver.core.errors import DecodeError

Check: TypeAlias = Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _is_anything(_value: Any) -> bool:
    return True


def _are_texts(value: Any) -> bool:
    return _is_list(value) and all(isinstance(each, str) for each in value)


def _are_options(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(each, dict) for each in cast("dict[str, Any]", value).values())


def _is_lifetime(value: Any) -> bool:
    return value in ("agentStep", "userPrompt")


_KINDS: Final[dict[Check, str]] = {
    _is_text: "a string",
    _is_number: "a number",
    _is_flag: "true or false",
    _is_object: "an object",
    _is_anything: "any value",
    _are_texts: "a list of strings",
    _are_options: "an object of objects",
    _is_lifetime: "“agentStep” or “userPrompt”",
}
_OPTIONS: Final[dict[str, Check]] = {"providerOptions": _are_options}

PARTS: Final[dict[str, tuple[dict[str, Check], dict[str, Check]]]] = {
    "text": ({"text": _is_text}, _OPTIONS),
    "image": ({"image": _is_text}, {"mediaType": _is_text, **_OPTIONS}),
    "file": ({"data": _is_text, "mediaType": _is_text}, {"filename": _is_text, **_OPTIONS}),
    "reasoning": ({"text": _is_text}, _OPTIONS),
    "tool-call": (
        {"toolCallId": _is_text, "toolName": _is_text, "input": _is_object},
        {"providerExecuted": _is_flag, **_OPTIONS},
    ),
    "json": ({"value": _is_anything}, {}),
    "media": ({"data": _is_text, "mediaType": _is_text}, {}),
}
"""Of each kind of part: the fields it needs, and those it may have."""

HELD: Final[dict[str, tuple[str, ...]]] = {
    "system": ("text",),
    "user": ("text", "image", "file"),
    "assistant": ("text", "reasoning", "tool-call"),
    "tool": ("json", "media"),
}
"""The kinds of parts that each role holds."""

_NAMED: Final[dict[str, Check]] = {"toolCallId": _is_text, "toolName": _is_text}
AROUND: Final[dict[str, Check]] = {
    **_OPTIONS,
    "tags": _are_texts,
    "sentAt": _is_number,
    "timeToLive": _is_lifetime,
    "keepDuringTruncation": _is_flag,
    "keepLastTags": _are_texts,
}
"""The fields that any message may have."""

_HISTORIES: Final = (
    ("sessionState", "mainAgentState", "messageHistory"),
    ("mainAgentState", "messageHistory"),
    ("messageHistory",),
)


def check(data: bytes) -> None:
    """Check a file. Raises ``DecodeError`` with the path of the first value that is missing or of another type."""
    try:
        value = jsontext.value(data)
    except DecodeError as error:
        error.source = "codebuff"
        raise
    messages, path = _history(value)
    if _is_list(messages):
        for place, message in enumerate(messages):
            _message(message, f"{path}[{place}]")
    else:
        _message(messages, path)


def _history(value: Any) -> tuple[Any, str]:
    """Return the messages of a file, or one alone, and the path to them."""
    for keys in _HISTORIES:
        found = value
        for key in keys:
            found = cast("dict[str, Any]", found).get(key) if isinstance(found, dict) else None
        if found is not None:
            return found, ".".join(keys)
    return value, ""


def _message(message: Any, path: str) -> None:
    if not isinstance(message, dict):
        _refuse("a message must be an object", path)
    fields = cast("dict[str, Any]", message)
    role = fields.get("role")
    if not isinstance(role, str) or role not in HELD:
        _refuse(f"must be one of {', '.join(HELD)}", _join(path, "role"))
    _fields(fields, _NAMED if role == "tool" else {}, AROUND, path)
    content = fields.get("content")
    if not _is_list(content):
        _refuse("must be a list of parts", _join(path, "content"))
    for place, part in enumerate(content):
        _part(part, HELD[role], _join(path, f"content[{place}]"))


def _part(part: Any, stored: tuple[str, ...], path: str) -> None:
    if not isinstance(part, dict):
        _refuse("a part must be an object", path)
    fields = cast("dict[str, Any]", part)
    kind = fields.get("type")
    if not isinstance(kind, str) or kind not in stored:
        _refuse(f"must be one of {', '.join(stored)}", _join(path, "type"))
    _fields(fields, *PARTS[kind], path)


def _fields(fields: dict[str, Any], needed: dict[str, Check], optional: dict[str, Check], path: str) -> None:
    for key, is_right in {**needed, **optional}.items():
        if key not in fields:
            if key in needed:
                _refuse("is missing", _join(path, key))
        elif not is_right(fields[key]):
            _refuse(f"must be {_KINDS[is_right]}", _join(path, key))


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _refuse(reason: str, path: str) -> NoReturn:
    raise DecodeError(reason, path=path, source="codebuff")
