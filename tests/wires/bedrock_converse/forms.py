"""The spellings of Converse bodies that mean the same: `normal` gives all of them one form.

- A request without messages has none, `null` or an empty list; the same holds for its system texts.
- An answer without a role is the assistant's. Cited text without content has none, `null`, an empty list or an
  empty text, and no citations are none.
- A document that is given as text is a `txt` where no format is named.
- Thinking that is enabled without a budget is adaptive. `null` is no name or description of an output format.
"""

from __future__ import annotations

from typing import Any

EMPTY = (None, [])


def normal(body: Any) -> Any:
    """Return a body in the one form."""
    if not isinstance(body, dict):
        return body
    if "output" in body:
        return _with(body, ("output", "message"), _answer)
    body = {key: each for key, each in body.items() if not (key in ("messages", "system") and each in EMPTY)}
    body = _with(body, ("additionalModelRequestFields", "thinking"), _thinking)
    body = _with(body, ("additionalModelRequestFields", "reasoning_config"), _thinking)
    body = _with(body, ("outputConfig", "textFormat", "structure", "jsonSchema"), _schema)
    return {key: [_message(each) for each in value] if key == "messages" else value for key, value in body.items()}


def _with(table: Any, path: tuple[str, ...], change: Any) -> Any:
    if not path:
        return change(table) if isinstance(table, dict) else table
    if not isinstance(table, dict) or path[0] not in table:
        return table
    return {**table, path[0]: _with(table[path[0]], path[1:], change)}


def _answer(message: dict[str, Any]) -> dict[str, Any]:
    message = _message(message)
    return message if message.get("role") is not None else {**message, "role": "assistant"}


def _thinking(table: dict[str, Any]) -> dict[str, Any]:
    return {**table, "type": "adaptive"} if table.get("type") == "enabled" and "budget_tokens" not in table else table


def _schema(table: dict[str, Any]) -> dict[str, Any]:
    return {key: each for key, each in table.items() if not (key in ("name", "description") and each is None)}


def _message(message: Any) -> Any:
    if not isinstance(message, dict) or not isinstance(message.get("content"), list):
        return message
    return {**message, "content": [_block(each) for each in message["content"]]}


def _block(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    out = dict(block)
    if isinstance(out.get("toolResult"), dict):
        out["toolResult"] = _message(out["toolResult"])
    if isinstance(out.get("citationsContent"), dict):
        none = {"content": (None, [], [{"text": ""}]), "citations": ([],)}
        out["citationsContent"] = {
            key: each for key, each in out["citationsContent"].items() if each not in none.get(key, ())
        }
    document = out.get("document")
    if isinstance(document, dict) and document.get("format") is None and "text" in (document.get("source") or {}):
        out["document"] = {**document, "format": "txt"}
    return out
