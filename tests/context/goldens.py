"""The recorded behaviour of compaction (docs/spec/kairo.md#3.3), read from ``goldens.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import palaver as p

GOLDENS: dict[str, Any] = json.loads((Path(__file__).parent / "goldens.json").read_text())
COMPACTION = GOLDENS["compaction"]
AT = 1_767_225_600_000
"""2026-01-01, the time of all messages."""
_MAKE: dict[str, Any] = {"system": p.system, "user": p.user, "assistant": p.assistant}


def conversation() -> tuple[p.Message, ...]:
    """Return the conversation of the golden ``compaction``."""
    return tuple([_message(each) for each in COMPACTION["input"]])


def _message(row: dict[str, Any]) -> p.Message:
    fields: dict[str, Any] = {"id": row["id"], "sent_at": AT, "verbatim": row.get("verbatim", False)}
    if row["role"] != "tool":
        return _MAKE[row["role"]](*[_part(each) for each in row["parts"]], **fields)
    (result,) = row["parts"]
    text = result["text"]["repeat"] * result["text"]["times"]
    return p.tool(text, tool_call_id=result["tool_call_id"], tool_name="read", is_error=result["is_error"], **fields)


def _part(row: dict[str, Any]) -> Any:
    match row["type"]:
        case "text":
            return p.Text(row["text"])
        case "reasoning":
            return p.Reasoning(row["text"], row["signature"], wire="anthropic_messages")
        case _:
            return p.tool_call(row["name"], row["arguments"], id=row["id"])
