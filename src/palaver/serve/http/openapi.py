"""The OpenAPI document of the server, which ``/openapi.json`` returns.

Source: https://spec.openapis.org/oas/v3.1.1.html

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final

_TEXT: Final = {"type": "string"}
_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"
_ERROR: Final = {
    "type": "object",
    "properties": {
        "error": {"type": "object", "properties": {"code": _TEXT, "message": _TEXT}, "required": ["code", "message"]},
        "run": _TEXT,
    },
    "required": ["error"],
}
_MESSAGE: Final = {
    "type": "object",
    "properties": {"text": _TEXT, "payload": {}, "run": _TEXT},
    "required": ["text"],
    "additionalProperties": False,
}
_KINDS: Final = ["approve", "edit", "reject", "answer"]
_PENDING: Final = {
    "type": "array",
    "description": "Calls that wait for decisions",
    "items": {
        "type": "object",
        "properties": {
            "call": _TEXT,
            "tool": _TEXT,
            "arguments": {},
            "reason": _TEXT,
            "choices": {"type": "array", "items": {"enum": _KINDS}},
        },
        "required": ["call", "tool", "arguments", "reason", "choices"],
    },
}
_ANSWER: Final = {
    "type": "object",
    "properties": {"run": _TEXT, "answer": _TEXT, "agent": _TEXT, "pending": _PENDING},
    "required": ["run", "answer", "agent"],
}
_APPROVALS: Final = {"type": "object", "properties": {"pending": _PENDING, "run": _TEXT}, "required": ["pending"]}


def _decision(kind: str, properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"decision": {"const": kind}, **properties},
        "required": ["decision", *required],
        "additionalProperties": False,
    }


_DECISION: Final = {
    "oneOf": [
        _decision("approve", {}),
        _decision("edit", {"arguments": {"type": "object"}}, "arguments"),
        _decision("reject", {"text": _TEXT}),
        _decision("answer", {"text": _TEXT}, "text"),
    ]
}
_DECISIONS: Final = {
    "type": "object",
    "properties": {
        "decisions": {"type": "object", "additionalProperties": _DECISION, "minProperties": 1},
        "run": _TEXT,
    },
    "required": ["decisions"],
    "additionalProperties": False,
}
_CLIENT: Final = {"name": "client", "in": "path", "required": True, "schema": _TEXT}


def _query(name: str, about: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": _TEXT, "description": about}


def _operation(
    id: str, summary: str, success: Mapping[str, Any], *, parameters: list[Any] | None = None, body: Any = None
) -> dict[str, Any]:
    made: dict[str, Any] = {"operationId": id, "summary": summary}
    if parameters:
        made["parameters"] = parameters
    if body is not None:
        made["requestBody"] = {"required": True, "content": {_JSON: {"schema": body}}}
    content = {kind: {"schema": schema} for kind, schema in success.items()}
    failure = {"description": "An error", "content": {_JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}}
    return made | {"responses": {"200": {"description": summary, "content": content}, "default": failure}}


_OBJECT: Final = {"type": "object"}
_CANCEL: Final = _query("cancel", "“disconnect”: a broken connection cancels the turn")
_PATHS: Final[dict[str, dict[str, Any]]] = {
    "/health": {"get": _operation("health", "Say that the server is up", {_JSON: _OBJECT})},
    "/v1/clients/{client}/messages": {
        "post": _operation(
            "ask",
            "Send a message and get the answer; as events with Accept: text/event-stream",
            {_JSON: _ANSWER, _EVENTS: _TEXT},
            parameters=[_CLIENT, _CANCEL],
            body=_MESSAGE,
        ),
        "get": _operation("messages", "List the messages of a client", {_JSON: _OBJECT}, parameters=[_CLIENT]),
    },
    "/v1/clients/{client}/approvals": {
        "get": _operation(
            "approvals", "List the calls that wait for decisions", {_JSON: _APPROVALS}, parameters=[_CLIENT]
        )
    },
    "/v1/clients/{client}/decisions": {
        "post": _operation(
            "decide",
            "Decide calls by their ids and get the answer of their turn; as events with Accept: text/event-stream",
            {_JSON: _ANSWER, _EVENTS: _TEXT},
            parameters=[_CLIENT, _CANCEL],
            body=_DECISIONS,
        )
    },
    "/v1/clients/{client}/turn": {
        "delete": _operation("cancel", "Cancel the turn in progress", {_JSON: _OBJECT}, parameters=[_CLIENT])
    },
    "/v1/clients/{client}/events": {
        "get": _operation(
            "events",
            "Stream the events of a client",
            {_EVENTS: _TEXT},
            parameters=[_CLIENT, _query("since", "A place in the bus"), _query("run", "Only this turn")],
        )
    },
}
_UI_PATHS: Final[dict[str, dict[str, Any]]] = {
    "/api/chat": {
        "post": _operation("chat", "Answer useChat of the AI SDK: a UI message stream", {_EVENTS: _TEXT}, body=_OBJECT)
    },
    "/ag-ui": {"post": _operation("agUi", "Answer an AG-UI client: its events", {_EVENTS: _TEXT}, body=_OBJECT)},
}


def document(title: str, *, ui: bool, secured: bool) -> dict[str, Any]:
    """Return the document. ``ui``: the protocols of web front ends are served; ``secured``: a token is required."""
    made: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version("palaver")},
        "paths": _PATHS | (_UI_PATHS if ui else {}),
        "components": {"schemas": {"Error": _ERROR}},
    }
    if secured:
        made["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        made["security"] = [{"token": []}]
    return made
