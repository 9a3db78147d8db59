"""The spellings of Gemini bodies that mean the same: `normal` gives all of them one form.

- Names of fields are in camelCase or in snake_case. One that both name has its camelCase value, unless that is `null`.
- `null` is absent, for the fields in `READ`.
- `contents`, `parts` and `tools` are lists, or their only item.
- A content of the conversation without a role is the user's, one of an answer is the model's. No parts, no content and
  no candidates are empty ones; the same holds for arguments, names of allowed functions, and the objects of settings.
- An empty id counts as none.
- Names of a level of thinking may be in lower case.
- Gemini's own schemas: types in either case, counts as numbers or strings, `nullable` or a list with `null`.
"""

from __future__ import annotations

import re
from typing import Any

READ = frozenset(
    {
        "allowedFunctionNames",
        "args",
        "cachedContent",
        "candidates",
        "codeExecutionResult",
        "content",
        "contents",
        "description",
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
        "id",
        "inlineData",
        "maxOutputTokens",
        "mimeType",
        "mode",
        "model",
        "modelVersion",
        "parameters",
        "parametersJsonSchema",
        "parts",
        "presencePenalty",
        "promptFeedback",
        "responseId",
        "responseJsonSchema",
        "responseMimeType",
        "responseSchema",
        "role",
        "seed",
        "stopSequences",
        "systemInstruction",
        "temperature",
        "text",
        "thinkingBudget",
        "thinkingConfig",
        "thinkingLevel",
        "thought",
        "thoughtSignature",
        "toolCall",
        "toolConfig",
        "toolResponse",
        "tools",
        "topK",
        "topP",
        "usageMetadata",
    }
)
SCHEMAS = frozenset({"parameters", "responseSchema"})
USERS = SCHEMAS | {"args", "response", "parametersJsonSchema", "responseJsonSchema", "labels", "partMetadata"}
LISTS = frozenset({"contents", "parts", "tools"})
EMPTY = {
    "tools": [],
    "candidates": [],
    "allowedFunctionNames": [],
    "generationConfig": {},
    "toolConfig": {},
    "functionCallingConfig": {},
    "thinkingConfig": {},
    "id": "",
}
LEVELS = frozenset({"minimal", "low", "medium", "high", "xhigh"})
COUNTS = frozenset({"maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties"})


def normal(body: Any) -> Any:
    """Return a body in the one form."""
    found = _fields(body)
    if not isinstance(found, dict):
        return found
    for key in ("contents", "candidates"):
        if isinstance(found.get(key), list):
            found[key] = [_content(each) if key == "contents" else _candidate(each) for each in found[key]]
    if isinstance(found.get("systemInstruction"), dict):
        found["systemInstruction"] = {"parts": [], **found["systemInstruction"]}
    return found


def _content(found: Any, role: str = "user") -> Any:
    return {"parts": [], "role": role, **found} if isinstance(found, dict) else found


def _candidate(found: Any) -> Any:
    return {**found, "content": _content(found.get("content", {}), "model")} if isinstance(found, dict) else found


def _fields(value: Any) -> Any:
    if isinstance(value, list):
        return [_fields(each) for each in value]
    if not isinstance(value, dict):
        return value
    out: dict[str, Any] = {}
    for key, each in value.items():
        name = re.sub(r"_([a-z])", lambda found: found[1].upper(), key)
        if name != key and value.get(name) is not None:
            name = key
        elif each is None and (name in out or name in READ):
            continue
        out[name] = _field(name, each)
    return {key: each for key, each in out.items() if key not in EMPTY or not _same(each, EMPTY[key])}


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other


def _field(name: str, value: Any) -> Any:
    if name in SCHEMAS:
        return _schema(value)
    if name in USERS:
        return value
    found = _fields([value] if name in LISTS and isinstance(value, dict) else value)
    if name == "thinkingLevel" and isinstance(found, str) and found.lower() in LEVELS:
        return found.upper()
    if name in ("functionCall", "toolCall") and isinstance(found, dict):
        return {"args": {}, **found}
    if name == "functionResponse" and isinstance(found, dict) and found.get("parts") == []:
        return {key: each for key, each in found.items() if key != "parts"}
    return found


def _schema(item: Any) -> Any:
    if isinstance(item, list):
        return [_schema(each) for each in item]
    if not isinstance(item, dict):
        return item
    out: dict[str, Any] = {}
    for key, each in item.items():
        name = re.sub(r"_(of|items|length|properties)$", lambda found: found[1].capitalize(), key)
        value = each
        if name == "properties" and isinstance(each, dict):
            value = {field: _schema(inner) for field, inner in each.items()}
        elif name in ("items", "anyOf", "additionalProperties"):
            value = _schema(each)
        elif name == "type" and isinstance(each, str):
            value = each.lower()
        elif name in COUNTS and isinstance(each, str) and each.isdecimal():
            value = int(each)
        out[name] = value
    if out.get("nullable") is True and isinstance(out.get("type"), str):
        del out["nullable"]
        out["type"] = [out["type"], "null"]
    return out
