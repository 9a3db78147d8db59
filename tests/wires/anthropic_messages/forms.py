"""The spellings of Messages bodies that mean the same: `normal` gives all of them one form.

- Content is a text or a list of one text; an empty result, `null` and none are the same.
- Neighbouring user messages are one. A leading system message may be in `system` or among the messages.
- `is_error` is false, and the fields in `DEFAULTS` hold their default, where they are absent. `null` is absent.
- A text document is given as text or in base64.
"""

from __future__ import annotations

import base64
from typing import Any

DEFAULTS: dict[str, Any] = {"is_error": False, "disable_parallel_tool_use": False, "citations": [], "tools": []}
ENVELOPE = (("type", "message"), ("role", "assistant"))
LEVELS = ("content", "system")


def normal(body: Any) -> Any:
    """Return a body in the one form."""
    if not isinstance(body, dict):
        return body
    body = _fields(body)
    if "messages" not in body:
        return {
            key: each for key, each in body.items() if (key, each) not in (("type", "message"), ("role", "assistant"))
        }
    messages = [_fields(each) for each in body["messages"]]
    leading = []
    while messages and messages[0].get("role") == "system":
        leading += messages.pop(0).get("content", [])
    system = [*body.get("system", []), *leading]
    joined: list[Any] = []
    for message in messages:
        if joined and message["role"] == joined[-1]["role"] == "user":
            joined[-1] = {
                **joined[-1],
                **message,
                "content": joined[-1].get("content", []) + message.get("content", []),
            }
        else:
            joined.append(message)
    return {**body, "messages": joined, **({"system": system} if system else {})}


def _fields(table: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, each in table.items():
        value = each
        if key in LEVELS and isinstance(value, str):
            value = [{"type": "text", "text": value}]
        if isinstance(value, list) and key in ("content", "messages", "system", "tools"):
            value = [_fields(item) if isinstance(item, dict) else item for item in value]
        elif isinstance(value, dict) and key in ("source", "tool_choice", "thinking", "output_config"):
            value = _fields(value)
        if value is None or (key in DEFAULTS and DEFAULTS[key] == value) or (key in LEVELS and value == []):
            continue
        out[key] = value
    if out.get("type") == "custom" and "name" in out:
        del out["type"]
    if out.get("type") == "text" and "media_type" in out:
        return {**out, "type": "base64", "media_type": "text", "data": base64.b64encode(out["data"].encode()).decode()}
    if out.get("type") == "base64" and str(out.get("media_type")).startswith(("text/", "application/json")):
        return {**out, "media_type": "text"}
    return out
