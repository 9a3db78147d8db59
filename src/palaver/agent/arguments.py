"""The arguments of a call, read from the text that the model wrote.

Rules (docs/spec/codebuff.md#5, CBF-17):

- The call itself is never changed: it keeps the model's own text. What is read here goes to the tool only.
- No text, and ``null``, are no arguments. A string that holds JSON is read again: three rounds in all.
- The bare-value repair makes ``{"path": src/main.py}`` an object, for those parameters only that a tool names. Nothing
  else is repaired: whoever wants more calls ``palaver.stream.repair`` and builds a new call.
- Each failure has its own message: text that is no JSON, a string that still is one, another type, and issues of the
  schema, of which the first few are listed, each with its path. A message never holds the whole input.
- JSON is taken at its word: NaN and infinities are none; a number beyond a double, and a key that stands twice in one
  object with different values, are refused, because what would be run is not what was shown.
- The arguments of a free-text tool are its text: one JSON string, or the object ``{"input": text}`` that stands for it
  where a wire has no such tools.

Stability: experimental.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn, cast

from palaver.agent.tool import InvalidArgumentsError
from palaver.core.errors import excerpt
from palaver.core.parts import ToolCall

ROUNDS: Final = 3
_SHOWN: Final = 5
_BARE: Final = re.compile(
    r'\s*\{\s*"?(?P<name>[A-Za-z_]\w*)"?\s*:\s*(?P<value>[^\s"\'{}\[\],:][^"\'{}\[\],\n]*+)\s*+\}\s*'
)
_STILL: Final = "expected the tool arguments to be an object, but received a string."
_KINDS: Final[dict[type, str]] = {
    list: "an array",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
}


class _UnfitError(ValueError):
    """JSON that cannot be taken at its word."""


def invalid(call: ToolCall, issues: Iterable[str]) -> InvalidArgumentsError:
    """The error that says what is wrong with a call; of many issues the first few."""
    listed = list(issues)
    text = "; ".join(excerpt(issue, 300) for issue in listed[:_SHOWN])
    more = f"; and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return InvalidArgumentsError(f"Invalid arguments for {excerpt(call.name)!r}: {text}{more}")


def read_arguments(call: ToolCall, repairs: Sequence[str] = ()) -> dict[str, Any]:
    """Read the arguments of a call as an object. Raises ``InvalidArgumentsError``.

    ``repairs`` names the parameters whose value may stand bare, without quotes.
    """
    text = call.arguments_json
    if not text.strip():
        return {}
    rounds = 0
    while True:
        try:
            value = _parsed(text)
        except _UnfitError as error:
            raise invalid(call, [str(error)]) from None
        except RecursionError:
            raise invalid(call, ["nested too deeply"]) from None
        except json.JSONDecodeError as error:
            repaired = _repaired(text, repairs)
            if repaired is not None:
                return repaired
            raise invalid(call, [_not_json(error, within=rounds > 0)]) from None
        rounds += 1
        if isinstance(value, dict):
            return cast("dict[str, Any]", value)
        if value is None:
            return {}
        if not isinstance(value, str):
            raise invalid(call, [f"expected an object, but received {_KINDS[type(value)]}"])
        if rounds == ROUNDS:
            raise invalid(call, [f"{_STILL} After {ROUNDS} rounds of parsing the parsed value was still a string"])
        text = value


def read_text(call: ToolCall) -> str:
    """Read the text of a call of a free-text tool. What is no JSON is the text itself."""
    try:
        value = _parsed(call.arguments_json)
    except (ValueError, RecursionError):
        return call.arguments_json
    match value:
        case str():
            return value
        case {"input": str(text), **rest} if not rest:
            return text
        case _:
            return call.arguments_json


def _not_json(error: json.JSONDecodeError, *, within: bool) -> str:
    where = f" ({error.msg[:1].lower()}{error.msg[1:]} at character {error.pos})"
    if within:
        return f"{_STILL} The string is not JSON{where}; it may be malformed or incomplete"
    return f"expected an object, but received text that is not JSON{where}; it may be malformed or incomplete"


def _repaired(text: str, repairs: Sequence[str]) -> dict[str, Any] | None:
    found = _BARE.fullmatch(text) if repairs else None
    return {found["name"]: found["value"].rstrip()} if found and found["name"] in repairs else None


# -- JSON at its word --------------------------------------------------------------------------------------------------


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        for key, value in pairs:
            if table[key] != value or type(table[key]) is not type(value):
                raise _UnfitError(f"the key {excerpt(key, 40)!r} stands twice in one object, with different values")
    return table


def _float(text: str) -> float:
    number = float(text)
    if number - number != 0:
        raise _UnfitError(f"the number {excerpt(text, 40)} is too large")
    return number


def _int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise _UnfitError(f"the number {excerpt(text, 40)} is too large") from None


def _constant(text: str) -> NoReturn:
    raise _UnfitError(f"{text} is not JSON; use a number or null")


_decoder = json.JSONDecoder(object_pairs_hook=_pairs, parse_float=_float, parse_int=_int, parse_constant=_constant)


def _parsed(text: str) -> Any:
    return _decoder.decode(text)
