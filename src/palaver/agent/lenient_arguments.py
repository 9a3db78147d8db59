"""Arguments of a call, read with goodwill: what a model means is taken, however it is shaped.

Rules:

- Text that holds JSON is read, up to three times over (docs/spec/codebuff.md#5); what is no JSON at all is an error.
- A list may be given as a list, as one of its items, or as text that holds either; a list may stand alone, without the
  object around it.
- A field may go by any of its names; the first that holds text counts.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from palaver.core import jsontext
from palaver.core.errors import DecodeError
from palaver.core.parts import ToolCall
from palaver.turn.tool import InvalidArgumentsError

_ROUNDS: Final = 3
_BRACKETS: Final = ("[", "{", '"')


def arguments(call: ToolCall) -> Any:
    """What a call was given. Raises ``InvalidArgumentsError`` for text that is no JSON."""
    text = call.arguments_json.strip() or "{}"
    try:
        return _unwrapped(jsontext.value(text))
    except DecodeError as error:
        raise InvalidArgumentsError(f"the arguments of {call.name!r} are {error.reason}") from None


def _unwrapped(value: Any) -> Any:
    for _ in range(_ROUNDS - 1):
        if not isinstance(value, str) or not value.lstrip().startswith(_BRACKETS):
            break
        try:
            value = jsontext.value(value.strip())
        except DecodeError:
            break
    return value


def items(given: Any, name: str) -> list[Any] | None:
    """The list that goes by ``name`` in ``given``, or that ``given`` is; ``None`` where there is none."""
    inner = _unwrapped(given)
    if isinstance(inner, dict):
        fields = cast("dict[str, Any]", inner)
        if name not in fields:
            return [fields] if fields else None
        inner = _unwrapped(fields[name])
    if isinstance(inner, list):
        return [*cast("Sequence[Any]", inner)]
    return [inner] if isinstance(inner, (dict, str)) else None


def text(given: Any, names: Sequence[str]) -> str | None:
    """``given`` if it is text, else its first field of ``names`` that holds text; ``None`` when all is blank."""
    if isinstance(given, dict):
        fields = cast("dict[str, Any]", given)
        found = (text(fields[name], ()) for name in names if isinstance(fields.get(name), str))
        return next((each for each in found if each is not None), None)
    return (given.strip() or None) if isinstance(given, str) else None
