"""The spellings of Responses bodies that mean the same: `normal` gives all of them one form.

- ``input`` is a text or a list of one user message. No items, ``null`` and none are the same, and so are no ``tools``
  and none.
- Content of a message and of a result is a text or a list of one text part of the role's own type. No parts, ``null``,
  an empty text and none are the same.
- ``type`` is optional on a message.
- The known fields in ``DEFAULTS`` hold their default, where they are absent.
- A choice of one tool is that tool, or a list of allowed ones of which one is required.
- An answer without ``output`` has an empty one.
"""

from __future__ import annotations

from typing import Any

DEFAULTS: dict[str, dict[str, Any]] = {
    "output_text": {"annotations": []},
    "input_image": {"detail": "auto"},
    "reasoning": {"content": []},
    "function": {"parameters": None},
    "apply_patch_call_output": {"output": []},
}
RESULTS = {"function_call_output", "custom_tool_call_output", "local_shell_call_output", "apply_patch_call_output"}
TEXTS = {"assistant": "output_text", "user": "input_text", "system": "input_text", "developer": "input_text"}


def normal(body: Any) -> Any:
    """Return a body in the one form."""
    if not isinstance(body, dict):
        return body
    body = dict(body)
    answers = "object" in body or "output" in body
    name = "output" if answers else "input"
    items = body.pop(name, None)
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    body[name] = normal_items(items or []) if isinstance(items, (list, type(None))) else items
    if answers:
        return body
    if isinstance(body.get("tools"), list):
        body["tools"] = [
            _defaults(each, each.get("type")) if isinstance(each, dict) else each for each in body["tools"]
        ]
        if not body["tools"]:
            del body["tools"]
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools" and choice.get("mode") == "required":
        match choice:
            case {"tools": [{**only}]}:
                around = {key: each for key, each in choice.items() if key not in ("type", "mode", "tools")}
                body["tool_choice"] = {**around, **only}
            case _:
                pass
    return body


def normal_items(items: list[Any]) -> list[Any]:
    """Return items in the one form."""
    return [_item(each) for each in items]


def _item(item: Any) -> Any:
    if not isinstance(item, dict):
        return item
    kind, role = (each if isinstance(each, (str, type(None))) else "" for each in map(item.get, ("type", "role")))
    if role in TEXTS and kind in ("message", None) and "content" in item:
        made = {**item, "content": _content(item["content"], TEXTS[role])}
        return {"type": "message", **made}
    if kind in RESULTS and "output" in item:
        item = {**item, "output": _content(item["output"], "input_text")}
    return _defaults(item, kind)


def _content(content: Any, usual: str) -> Any:
    if content is None:
        content = []
    if isinstance(content, str):
        content = [{"type": usual, "text": content}]
    if not isinstance(content, list):
        return content
    parts = [_defaults(each, each.get("type")) if isinstance(each, dict) else each for each in content]
    return [] if parts == [_defaults({"type": usual, "text": ""}, usual)] else parts


def _defaults(table: dict[str, Any], kind: Any) -> dict[str, Any]:
    known = DEFAULTS.get(kind, {}) if isinstance(kind, str) else {}
    return {**known, **table}
