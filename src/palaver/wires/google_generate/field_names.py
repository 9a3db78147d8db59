"""Field names in camelCase and in snake_case (docs/spec/wires.md#5).

Rules:

- Both spellings are read, anywhere, also mixed in one object. camelCase is the one we write.
- A field that is taken out under its snake_case name is noted in the hint ``@@snake`` of its object, a list of
  camelCase names, and ``spelled`` writes it the same way. Fields that are not taken out keep their name anyway.
- What remains of an object inside another stays there under its camelCase name; its hints stand beside it, under
  ``@@`` and the same name, so that an object of which only hints remain does not look like a field of the provider.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Raw

from palaver.core import jsontext
from palaver.core.errors import DecodeError
from palaver.core.jsontext import Fields
from palaver.wires._engine import json_fields
from palaver.wires._engine.json_fields import visible

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")

_NAMES: Final = [
    "allowedFunctionNames",
    "boolValue",
    "codeExecutionResult",
    "displayName",
    "executableCode",
    "fileData",
    "fileUri",
    "finishReason",
    "frequencyPenalty",
    "functionCall",
    "functionCallingConfig",
    "functionDeclarations",
    "functionResponse",
    "generationConfig",
    "inlineData",
    "jsonPath",
    "maxOutputTokens",
    "mimeType",
    "modelVersion",
    "nullValue",
    "numberValue",
    "parametersJsonSchema",
    "partialArgs",
    "presencePenalty",
    "promptFeedback",
    "responseId",
    "responseJsonSchema",
    "responseMimeType",
    "responseSchema",
    "stopSequences",
    "stringValue",
    "systemInstruction",
    "thinkingBudget",
    "thinkingConfig",
    "thinkingLevel",
    "thoughtSignature",
    "toolCall",
    "toolConfig",
    "toolResponse",
    "toolType",
    "topK",
    "topP",
    "usageMetadata",
    "willContinue",
]

SNAKE: Final[dict[str, str]] = {name: "".join(f"_{c.lower()}" if c.isupper() else c for c in name) for name in _NAMES}
"""The other spelling of every field that is taken out and has one."""


# -- reading ---------------------------------------------------------------------------------------


def take(rest: Fields, name: str, read: Callable[[Fields, str], _T | None]) -> _T | None:
    """Take a field out by one of the readers of ``reading``, under either spelling."""
    if name in rest:
        return read(rest, name)
    snake = SNAKE.get(name)
    if snake is None or snake not in rest:
        return None
    found = read(rest, snake)
    if found is not None:
        _note(rest, name)
    return found


def need(rest: Fields, name: str, read: Callable[[Fields, str], _T | None]) -> _T:
    """Take a field out that must be there."""
    found = take(rest, name, read)
    if found is None:
        raise DecodeError("missing", path=name)
    return found


def soft(rest: Fields, name: str, read: Callable[[Fields, str], _T | None]) -> _T | None:
    """Take an optional field out; a value of another type than expected is left in place."""
    try:
        return take(rest, name, read)
    except DecodeError:
        return None


def word(rest: Fields, name: str) -> str | None:
    """Take an optional string out: what ``soft`` does, without the way round for the spelling that answers have."""
    found = rest.get(name)
    if found is None:
        snake = SNAKE.get(name)
        return None if snake is None or snake not in rest else soft(rest, name, json_fields.take_text)
    try:
        text = jsontext.text(found)
    except DecodeError:
        return None
    del rest[name]
    return text


def raw(rest: Fields, name: str) -> Raw | None:
    """Look at a field under either spelling, and leave it in place."""
    found = rest.get(name)
    return rest.get(SNAKE.get(name, name)) if found is None else found


def _note(rest: Fields, name: str) -> None:
    before: list[str] = jsontext.value(rest["@@snake"]) if "@@snake" in rest else []
    rest["@@snake"] = jsontext.raw([*before, name])


def pull(rest: Fields, key: str) -> Raw | None:
    """Take a field out as text; ``None``, and left in place, when absent or null."""
    found = rest.get(key)
    if found is None or found == jsontext.NULL:
        return None
    del rest[key]
    return found


def keep(rest: Fields, name: str, inner: Fields, *, bare: bool = False) -> None:
    """Leave what remains of an inner object in ``rest``. ``bare``: nothing was taken out of it."""
    seen = visible(inner)
    hints = {key: item for key, item in inner.items() if key[:2] == "@@"}
    if seen:
        rest[name] = Raw(jsontext.encode(seen))
    if hints or (bare and not seen):
        rest[f"@@{name}"] = Raw(jsontext.encode(hints))


# -- writing ---------------------------------------------------------------------------------------


def preserved(rest: Fields, name: str) -> Fields | None:
    """Take out what ``keep`` left; ``None`` when there was no such object."""
    hints = rest.pop(f"@@{name}", None)
    seen = rest.get(name)
    if seen is None or jsontext.kind(seen) != "an object":
        return None if hints is None else jsontext.fields(hints)
    del rest[name]
    return {**jsontext.fields(seen), **({} if hints is None else jsontext.fields(hints))}


def spelled(fields: dict[str, Any], rest: Fields) -> dict[str, Any]:
    """Join written fields and what remained beside them, in the spelling that was found."""
    noted = rest.get("@@snake")
    if noted is not None:
        names = jsontext.value(noted)
        fields = {SNAKE.get(key, key) if key in names else key: each for key, each in fields.items()}
    if not rest:
        return fields
    return {**fields, **{key: each for key, each in visible(rest).items() if key not in fields}}
