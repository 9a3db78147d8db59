"""Calls that are JSON objects: ``{"name": "f", "arguments": {"a": 1}}``.

Rules:

- One object, several one after another (with spaces, ``,`` or ``;`` between them), or an array of them.
- The arguments are ``arguments``, else ``parameters``; their text is taken as the model wrote it. Models also write
  them as a string that holds an object: that object's text is taken then. None at all stay empty.
- A string ``id`` is the id of the call. Other members are kept in ``provider["local"]``.
- An object without a name is malformed, alone. Text that is no JSON object is malformed with everything behind it;
  where no call stands before it, so is the whole block.

Sources: the chat templates of NousResearch/Hermes-3-Llama-3.1-8B, Qwen/Qwen3-8B and
mistralai/Mistral-7B-Instruct-v0.3; vLLM, "Tool Calling" (hermes, mistral and llama3_json parsers).

Stability: experimental.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from msgspec import UNSET, Raw, UnsetType

from palaver.core import jsontext, trusted
from palaver.core.errors import PalaverError
from palaver.core.parts import MalformedToolCall, ToolCall
from palaver.stream.local.pythonic import quoted
from palaver.stream.partial_json import PartialJSON

if TYPE_CHECKING:
    from palaver.stream.local.format import Read, Schemas

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_BETWEEN: Final = re.compile(r"[ \t\r\n,;]*")
NO_NAME: Final = "a call without a name"
_ARGUMENTS: Final = ("arguments", "parameters")


class NotJSON(Exception):  # noqa: N818 (never leaves this package)
    """The text is no JSON where a value was expected."""


def _refuse(text: str) -> NoReturn:
    raise ValueError(text)


# Numbers are only passed over, so they are not converted.
_scan: Final = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=_refuse).raw_decode


def end_of_value(text: str, at: int) -> int:
    """Where the JSON value that begins at ``at`` ends. Raises ``NotJSON``."""
    try:
        return _scan(text, at)[1]
    except json.JSONDecodeError as error:
        raise NotJSON(f"not JSON: {error.msg}") from None
    except ValueError:
        raise NotJSON("not JSON: not a number") from None
    except RecursionError:
        raise NotJSON("nested too deeply") from None


def _skip(text: str, at: int, pattern: re.Pattern[str] = _SPACE) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


def members_of(text: str, at: int = 0) -> tuple[dict[str, str], int]:
    """The members of the object that begins at ``at``, each as it was written, and where it ends.

    Raises ``NotJSON``.
    """
    if not text.startswith("{", at):
        raise NotJSON("expected an object")
    members: dict[str, str] = {}
    at = _skip(text, at + 1)
    while not text.startswith("}", at):
        start, at = at, end_of_value(text, at)
        key = text[start:at]
        at = _skip(text, at)
        if not key.startswith('"') or not text.startswith(":", at):
            raise NotJSON("not JSON: expected a member")
        start = _skip(text, at + 1)
        at = end_of_value(text, start)
        key = jsontext.value(key)
        if key in members:
            raise NotJSON("a member comes twice")
        members[key] = text[start:at]
        at = _skip(text, at)
        if text.startswith(",", at):
            at = _skip(text, at + 1)
            if text.startswith("}", at):
                raise NotJSON("not JSON: expected a member")
        elif not text.startswith("}", at):
            raise NotJSON("not JSON: expected a comma or the end of the object")
    return members, at + 1


def read_object(text: str, at: int = 0) -> tuple[ToolCall | MalformedToolCall, int]:
    """The call that begins at ``at``, and where it ends. Raises ``NotJSON``."""
    members, end = members_of(text, at)
    name = string(members.get("name"))
    if not name:
        return trusted.MalformedToolCall(text[at:end], NO_NAME), end
    arguments = _unwrapped(next((members.pop(key) for key in _ARGUMENTS if key in members), ""))
    id = string(members.get("id"))  # noqa: A001 (the field's own word)
    covered = {"name": True, "id": bool(id), "type": members.get("type") == '"function"'}
    rest = [f"{quoted(key)}:{value}" for key, value in members.items() if not covered.get(key)]
    return trusted.ToolCall(id or "", name, arguments, provider_json=_provider_json(rest)), end


def _provider_json(members: list[str]) -> Raw | UnsetType:
    try:
        return Raw(jsontext.source('{"local":{' + ",".join(members) + "}}")) if members else UNSET
    except PalaverError:
        raise NotJSON("nested too deeply") from None


def string(text: str | None) -> str | None:
    """The value of a JSON string; ``None`` for any other value."""
    return jsontext.value(text) if text is not None and text.startswith('"') else None


def _unwrapped(arguments: str) -> str:
    """Take the object out of the string that holds it; other text stays as it is."""
    inner = string(arguments)
    if inner is None:
        return arguments
    inner = inner.strip()
    return inner if not inner or (inner.startswith("{") and jsontext.is_json(inner)) else arguments


def read(text: str, _schemas: Schemas) -> Read:
    """Read a block of calls."""
    found: Read = []
    at = _skip(text, 0, _BETWEEN)
    in_array = text.startswith("[", at)
    at = _skip(text, at + in_array, _BETWEEN)
    while at < len(text):
        if in_array and text[at] == "]":
            in_array = False
            at += 1
        else:
            try:
                call, at = read_object(text, at)
            except NotJSON as error:
                found.append(unread(text[at:] if found else text, text[at:], str(error)))
                break
            found.append(call)
        at = _skip(text, at, _BETWEEN)
    return found


def unread(text: str, call: str, reason: str, *, key: str = "name") -> MalformedToolCall:
    """Text that holds a call that is no JSON, with the name of the call (under ``key``) as far as it can be read."""
    probe = PartialJSON()
    probe.feed(call)
    seen: Any = probe.value
    name = cast("dict[str, Any]", seen).get(key) if isinstance(seen, dict) else None
    return trusted.MalformedToolCall(text.strip(), reason, name if isinstance(name, str) and name else None)
