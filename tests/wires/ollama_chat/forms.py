"""The spellings of Ollama bodies that mean the same: `normal` gives all of them one form.

- The server does not distinguish a text that is empty, `null` or absent in a message, nor a list. The same holds for
  tools and options. A call without arguments has an empty object, `null` or none.
- A tool without a type is a function. An answer without a role is the assistant's.
"""

from __future__ import annotations

from typing import Any

NONE = (None, "", [])


def normal(body: Any) -> Any:
    """Return a body in the one form."""
    if not isinstance(body, dict):
        return body
    out = {key: each for key, each in body.items() if (key, each) not in (("tools", []), ("options", {}))}
    if isinstance(out.get("tools"), list):
        out["tools"] = [_tool(each) for each in out["tools"]]
    if isinstance(out.get("messages"), list):
        out["messages"] = [_message(each) for each in out["messages"]]
    if isinstance(out.get("message"), dict):
        message = _message(out["message"])
        out["message"] = {**message, "role": "assistant" if message.get("role") is None else message["role"]}
    return out


def _tool(tool: Any) -> Any:
    return {**tool, "type": "function"} if isinstance(tool, dict) and "type" not in tool else tool


def _message(message: Any) -> Any:
    if not isinstance(message, dict):
        return message
    known = ("content", "thinking", "images", "tool_calls")
    out = {key: each for key, each in message.items() if key not in known or each not in NONE}
    if isinstance(out.get("tool_calls"), list):
        out["tool_calls"] = [_call(each) for each in out["tool_calls"]]
    return out


def _call(call: Any) -> Any:
    if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
        return call
    arguments = call["function"].get("arguments")
    return {**call, "function": {**call["function"], "arguments": {} if arguments is None else arguments}}
