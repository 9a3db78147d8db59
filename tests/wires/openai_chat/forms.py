"""The spellings of Chat Completions bodies that mean the same: `normal` gives all of them one form.

- Content is a text or a list of one text; `null`, absent and an empty list are the same, and in a result an empty text.
- `null` and an empty list in the known fields of an answer are the same as their absence, as is a role of `assistant`
  in a choice.
- The type of a call and of a tool is `function` where it is absent. The arguments of a call are an empty text where
  they are `null` or absent. An empty id is none.
- A choice has the index of its place. `null` log probabilities are none.
- A stop sequence is a text or a list of one. An empty list of tools is none. For Mistral's word `any` see the notes.
- A URL is a text or an object with nothing else.
- The text of an item of `reasoning_details` is empty where it is absent. `null` is absent there too.
"""

from __future__ import annotations

from typing import Any

SILENT = ("refusal", "tool_calls", "annotations", "audio", "function_call", "content")
REASONING = ("reasoning", "reasoning_content", "reasoning_details")
DETAIL = ("text", "summary", "signature", "data")
LINKS = ("image_url", "video_url", "document_url")


def normal(body: Any) -> Any:
    """Return a body in the one form."""
    if not isinstance(body, dict):
        return body
    body = dict(body)
    if isinstance(body.get("stop"), str):
        body["stop"] = [body["stop"]]
    if "tools" in body:
        body["tools"] = [_tool(each) for each in body["tools"] or []]
        if not body["tools"]:
            del body["tools"]
    if "messages" in body:
        return {**body, "messages": [_message(each) for each in body["messages"]]}
    if isinstance(body.get("choices"), list):
        return {**body, "choices": [_choice(each, index) for index, each in enumerate(body["choices"])]}
    return body


def _choice(choice: dict[str, Any], index: int) -> dict[str, Any]:
    found = {key: each for key, each in choice.items() if key != "logprobs" or each is not None}
    if found.get("index") is None:
        found["index"] = index
    return {**found, "message": _message({"role": "assistant", **found["message"]})}


def _message(message: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, each in message.items():
        value = _content(each) if key == "content" else each
        if key in SILENT and value in (None, []):
            continue
        if key in REASONING and value is None and message["role"] == "assistant":
            continue
        if key == "tool_calls" and isinstance(value, list):
            value = [_call(one) for one in value]
        if key == "refusal" and value == "":
            continue
        if key == "reasoning_details" and isinstance(value, list):
            value = [_detail(one) for one in value]
        out[key] = value
    if message["role"] == "tool" and out.get("content") == [{"type": "text", "text": ""}]:
        del out["content"]
    return out


def _content(content: Any) -> Any:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [_part(each) for each in content] if isinstance(content, list) else content


def _part(part: dict[str, Any]) -> dict[str, Any]:
    return {key: {"url": each} if key in LINKS and isinstance(each, str) else each for key, each in part.items()}


def _call(call: dict[str, Any]) -> dict[str, Any]:
    out = {"type": "function", **{key: each for key, each in call.items() if key != "id" or each}}
    inner = out.get("function")
    if isinstance(inner, dict) and inner.get("arguments") is None:
        out["function"] = {**inner, "arguments": ""}
    return out


def _tool(tool: Any) -> Any:
    return {"type": "function", **tool} if isinstance(tool, dict) and "function" in tool else tool


def _detail(detail: dict[str, Any]) -> dict[str, Any]:
    out = {key: each for key, each in detail.items() if each is not None or key not in DETAIL}
    return out if "summary" in out else {**out, "text": out.get("text", "")}
