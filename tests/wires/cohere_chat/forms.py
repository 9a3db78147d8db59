"""The spellings of Cohere bodies that mean the same: `normal` gives all of them one form.

- Content is a text or a list of one text. `null`, none, an empty list and an empty text are the same.
- No calls, tools or citations are `null`, none or an empty list. A call is one of a function, and so is a tool
  whose type is absent.
- Arguments are a text or an object. A call without parameters has none, `null`, the text `null` or an empty text.
- An answer without a role is the assistant's. Thinking that is switched off has no budget.
"""

from __future__ import annotations

import json
from typing import Any


def normal(body: Any) -> Any:
    """Return a body in the one form."""
    if not isinstance(body, dict):
        return body
    out = dict(body)
    if isinstance(out.get("messages"), list):
        out["messages"] = [_message(each) for each in out["messages"]]
    if isinstance(out.get("message"), dict):
        out["message"] = _message({"role": "assistant", **_without(out["message"], "role", None)})
    if isinstance(out.get("thinking"), dict) and out["thinking"].get("type") == "disabled":
        out["thinking"] = {key: each for key, each in out["thinking"].items() if key != "token_budget"}
    if isinstance(out.get("tools"), list):
        out["tools"] = [_tool(each) for each in out["tools"]]
    return _without(out, "tools", [])


def _tool(tool: Any) -> Any:
    return {**tool, "type": "function"} if isinstance(tool, dict) and "type" not in tool else tool


def _without(table: dict[str, Any], key: str, *nothing: Any) -> dict[str, Any]:
    return {name: each for name, each in table.items() if name != key or each not in nothing}


def _message(message: Any) -> Any:
    if not isinstance(message, dict):
        return message
    out = dict(message)
    if isinstance(out.get("content"), str):
        out["content"] = [{"type": "text", "text": out["content"]}]
    out = _without(out, "content", None, [], [{"type": "text", "text": ""}])
    if isinstance(out.get("tool_calls"), list):
        out["tool_calls"] = [_call(each) for each in out["tool_calls"]]
    return _without(_without(_without(out, "tool_calls", None, []), "citations", None, []), "tool_plan", None)


def _call(call: Any) -> Any:
    if not isinstance(call, dict):
        return call
    out = {**call, "type": "function"} if call.get("type") is None else dict(call)
    function = out.get("function")
    if isinstance(function, dict):
        arguments = function.get("arguments")
        if isinstance(arguments, dict):
            arguments = json.dumps(arguments)
        out["function"] = {**function, "arguments": "" if arguments in (None, "null") else arguments}
    return _without(out, "id", None)
