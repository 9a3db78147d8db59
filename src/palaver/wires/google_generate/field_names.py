"""Field names in camelCase and in snake_case (docs/spec/wires.md#5).

Protobuf reads both spellings, anywhere, also mixed in one object. So do we, and camelCase is the one that we write. A
field that both spellings name is read under its camelCase name, unless that is ``null``. Names that are not ours to
read keep their spelling.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from palaver.core import jsontext
from palaver.core.errors import DecodeError
from palaver.core.jsontext import NULL, Fields
from palaver.wires._engine.shapes import Shape

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgspec import Raw

_T = TypeVar("_T")

_NAMES: Final = [
    "allowedFunctionNames",
    "boolValue",
    "cachedContent",
    "cachedContentTokenCount",
    "candidatesTokenCount",
    "chosenCandidates",
    "citationMetadata",
    "citationSources",
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
    "groundingMetadata",
    "includeServerSideToolInvocations",
    "inlineData",
    "jsonPath",
    "logprobsResult",
    "maxOutputTokens",
    "mimeType",
    "modelVersion",
    "nullValue",
    "numberValue",
    "parametersJsonSchema",
    "partialArgs",
    "presencePenalty",
    "promptFeedback",
    "promptTokenCount",
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
    "thoughtsTokenCount",
    "toolCall",
    "toolConfig",
    "toolResponse",
    "toolType",
    "toolUsePromptTokenCount",
    "topCandidates",
    "topK",
    "topP",
    "totalTokenCount",
    "urlContextMetadata",
    "usageMetadata",
    "willContinue",
]

_CAMEL: Final[dict[str, str]] = {"".join(f"_{c.lower()}" if c.isupper() else c for c in name): name for name in _NAMES}
"""The names of all fields that are read, by their other spelling."""

_is_camel: Final = _CAMEL.keys().isdisjoint


def camel(fields: Fields) -> Fields:
    """Give fields their camelCase names; other fields stay as they are, and all in their order."""
    if _is_camel(fields):
        return fields
    named: Fields = {}
    for key, raw in fields.items():
        name = _CAMEL.get(key, key)
        if name != key and fields.get(name, NULL) != NULL:
            named[key] = raw
        elif raw != NULL or name not in named:
            named[name] = raw
    return named


class Spelled(Shape, rename="camel"):
    """A shape that is read in both spellings."""

    @classmethod
    def canonical(cls, rest: Fields) -> Fields:
        """Give the fields their camelCase names."""
        return camel(rest)


def soft(rest: Fields, name: str, read: Callable[[Fields, str], _T | None]) -> _T | None:
    """Take an optional field out; a value of another type than expected is left in place."""
    try:
        return read(rest, name)
    except DecodeError:
        return None


def pull(rest: Fields, key: str) -> Raw | None:
    """Take a field out as text; ``None``, and left in place, when absent or null."""
    found = rest.get(key)
    if found is None or found == NULL:
        return None
    del rest[key]
    return found


def joined(fields: dict[str, Any], rest: Fields) -> dict[str, Any]:
    """Join written fields and what remained beside them; what was written counts."""
    return {**fields, **rest, **fields} if rest else fields


def inside(rest: Fields, name: str) -> Fields:
    """Take out what remained of an object inside another; empty when nothing did, or when it is no object."""
    raw = rest.get(name)
    if raw is None or jsontext.kind(raw) != "an object":
        return {}
    del rest[name]
    return jsontext.fields(raw)
