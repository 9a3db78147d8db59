"""The OpenAPI document of the server, which ``/openapi.json`` returns: made of its routes.

- A route that is a ``DocumentedRoute`` brings its operation; any other route of an application is listed as it is.
- A WebSocket is the GET that begins it, with the response 101.
- Names of operations are unique, as the specification wants it: those of paths that differ in punctuation get a number.

Source: https://spec.openapis.org/oas/v3.1.1.html

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from starlette.routing import BaseRoute, Route, WebSocketRoute

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    _Endpoint: TypeAlias = "Callable[[Request], Awaitable[Response]]"

TEXT: Final = {"type": "string"}
OBJECT: Final = {"type": "object"}
JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
_HTML: Final = "text/html"
_CONVERTOR: Final = re.compile(r":\w+")
"""What follows the name of a parameter in a path of Starlette."""
_ERROR: Final = {
    "type": "object",
    "properties": {
        "error": {"type": "object", "properties": {"code": TEXT, "message": TEXT}, "required": ["code", "message"]},
        "run": TEXT,
    },
    "required": ["error"],
}
_MESSAGE: Final = {
    "type": "object",
    "properties": {"text": TEXT, "payload": {}, "run": TEXT},
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
            "call": TEXT,
            "tool": TEXT,
            "arguments": {},
            "reason": TEXT,
            "choices": {"type": "array", "items": {"enum": _KINDS}},
        },
        "required": ["call", "tool", "arguments", "reason", "choices"],
    },
}
_ANSWER: Final = {
    "type": "object",
    "properties": {"run": TEXT, "answer": TEXT, "agent": TEXT, "pending": _PENDING},
    "required": ["run", "answer", "agent"],
}
_APPROVALS: Final = {"type": "object", "properties": {"pending": _PENDING, "run": TEXT}, "required": ["pending"]}


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
        _decision("reject", {"text": TEXT}),
        _decision("answer", {"text": TEXT}, "text"),
    ]
}
_DECISIONS: Final = {
    "type": "object",
    "properties": {
        "decisions": {"type": "object", "additionalProperties": _DECISION, "minProperties": 1},
        "run": TEXT,
    },
    "required": ["decisions"],
    "additionalProperties": False,
}
_STATUSES: Final = {
    400: "The request is not of the form that is described",
    401: "The token is missing or wrong",
    403: "The page or the machine has no access",
    409: "The request does not fit the state of the conversation",
    413: "The body is too long",
    415: "The body is not JSON",
    429: "Too many requests; Retry-After has the seconds to wait",
}
READS: Final = (400, 401, 403, 429)
"""The errors of a request that reads."""
WRITES: Final = (400, 401, 403, 409, 413, 415, 429)
"""The errors of a request with a body."""


def parameter(name: str) -> dict[str, Any]:
    """Return the parameter ``name`` of a path."""
    return {"name": name, "in": "path", "required": True, "schema": TEXT}


_CLIENT: Final = parameter("client")


def _query(name: str, about: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": TEXT, "description": about}


def operation(
    id: str,
    summary: str,
    success: Mapping[str, Any],
    *,
    parameters: Sequence[Any] = (),
    body: Any = None,
    errors: Iterable[int] = (),
    others: Mapping[str, str] = {},
) -> dict[str, Any]:
    """Return an operation.

    ``id`` is its name, and ``success`` has the schema of each media type of the response 200; without one, there is no
    such response. ``parameters`` are those of path and query, ``body`` is the schema of the JSON that is sent,
    ``errors`` the statuses of errors, and ``others`` what further statuses mean. ``summary`` is one line.
    """
    made: dict[str, Any] = {"operationId": id, "summary": summary}
    if parameters:
        made["parameters"] = list(parameters)
    if body is not None:
        made["requestBody"] = {"required": True, "content": {JSON: {"schema": body}}}
    content = {kind: {"schema": schema} for kind, schema in success.items()}
    failed = {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}
    responses: dict[str, Any] = {"200": {"description": summary, "content": content}} if content else {}
    responses |= {status: {"description": about} for status, about in others.items()}
    responses |= {str(each): {"description": _STATUSES[each], "content": failed} for each in errors}
    return made | {"responses": {**responses, "default": {"description": "An error", "content": failed}}}


class DocumentedRoute(Route):
    """A route for one method, with its operation in the document."""

    def __init__(self, path: str, endpoint: _Endpoint, *, method: str, operation: Mapping[str, Any]) -> None:
        """Answer ``method`` at ``path`` by ``endpoint``, as ``operation`` describes."""
        super().__init__(path, endpoint, methods=[method])
        self.method, self.operation = method, operation


_CANCEL: Final = _query("cancel", "“disconnect”: a broken connection cancels the turn")
_SINCE: Final = _query("since", "A place in the bus")
_PATHS: Final[dict[str, dict[str, Any]]] = {
    "/": {"GET": operation("home", "Show what is served, for people", {_HTML: TEXT}, errors=(403,))},
    "/openapi.json": {"GET": operation("openapi", "Describe the routes", {JSON: OBJECT}, errors=(403,))},
    "/health": {"GET": operation("health", "Say that the server is up", {JSON: OBJECT})},
    "/v1/clients/{client}": {
        "WEBSOCKET": operation(
            "socket",
            "Send messages and decisions, and get events and answers, over a WebSocket",
            {},
            parameters=[_CLIENT, _SINCE, _query("events", "“none”: no events are sent"), _CANCEL],
            errors=READS,
            others={"101": "The connection is a WebSocket now"},
        )
    },
    "/v1/clients/{client}/messages": {
        "POST": operation(
            "ask",
            "Send a message and get the answer; as events with Accept: text/event-stream",
            {JSON: _ANSWER, EVENTS: TEXT},
            parameters=[_CLIENT, _CANCEL],
            body=_MESSAGE,
            errors=WRITES,
        ),
        "GET": operation(
            "messages", "List the messages of a client", {JSON: OBJECT}, parameters=[_CLIENT], errors=READS
        ),
    },
    "/v1/clients/{client}/approvals": {
        "GET": operation(
            "approvals",
            "List the calls that wait for decisions",
            {JSON: _APPROVALS},
            parameters=[_CLIENT],
            errors=READS,
        )
    },
    "/v1/clients/{client}/decisions": {
        "POST": operation(
            "decide",
            "Decide calls by their ids and get the answer of their turn; as events with Accept: text/event-stream",
            {JSON: _ANSWER, EVENTS: TEXT},
            parameters=[_CLIENT, _CANCEL],
            body=_DECISIONS,
            errors=WRITES,
        )
    },
    "/v1/clients/{client}/turn": {
        "DELETE": operation("cancel", "Cancel the turn in progress", {JSON: OBJECT}, parameters=[_CLIENT], errors=READS)
    },
    "/v1/clients/{client}/events": {
        "GET": operation(
            "events",
            "Stream the events of a client",
            {EVENTS: TEXT},
            parameters=[_CLIENT, _SINCE, _query("run", "Only this turn")],
            errors=READS,
        )
    },
}
_OPERATIONS: Final = {(path, method): each for path, methods in _PATHS.items() for method, each in methods.items()}


def own_route(path: str, endpoint: _Endpoint, method: str = "GET") -> DocumentedRoute:
    """Return a route of the server itself, which answers ``method`` at ``path`` by ``endpoint``."""
    return DocumentedRoute(path, endpoint, method=method, operation=_OPERATIONS[_plain(path), method])


def document(title: str, routes: Iterable[BaseRoute], *, secured: bool) -> dict[str, Any]:
    """Return the document of ``routes``, under a ``title``. ``secured``: a token is required."""
    paths: dict[str, dict[str, Any]] = {}
    names: set[str] = set()
    for path, method, each in _described(routes):
        operations = paths.setdefault(path, {})
        if method.lower() not in operations:  # the first route answers
            operations[method.lower()] = {**each, "operationId": _unique(each["operationId"], names)}
    made: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version("palaver")},
        "paths": paths,
        "components": {"schemas": {"Error": _ERROR}},
    }
    if secured:
        made["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        made["security"] = [{"token": []}]
    return made


def _unique(name: str, names: set[str]) -> str:
    """Return ``name``, with a number behind it where ``names`` has it already, and add it to them."""
    found, number = name, 1
    while found in names:
        number += 1
        found = f"{name}{number}"
    names.add(found)
    return found


def _described(routes: Iterable[BaseRoute]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield path, method and operation of each route."""
    for route in routes:
        if isinstance(route, DocumentedRoute):
            yield _plain(route.path), route.method, route.operation
        elif isinstance(route, WebSocketRoute):
            path = _plain(route.path)
            yield path, "GET", _OPERATIONS.get((path, "WEBSOCKET")) or _undescribed(path, "GET", "101")
        elif isinstance(route, Route):
            path = _plain(route.path)
            for method in sorted((route.methods or set()) - {"HEAD"}):
                yield path, method, _undescribed(path, method, "200")


def _plain(path: str) -> str:
    return _CONVERTOR.sub("", path)


def _undescribed(path: str, method: str, status: str) -> Mapping[str, Any]:
    """Return what is known of a route of the application."""
    named = [parameter(name) for name in re.findall(r"{(\w+)}", path)]
    about = f"{method} {path}"
    return operation(name_of(path, method.lower()), about, {}, parameters=named, others={status: about})


def name_of(path: str, *words: str) -> str:
    """Return the name of the operation at ``path``: its words and further ``words``, such as ``apiChatHistory``."""
    found = [*re.findall(r"[A-Za-z0-9]+", path), *words]
    return "".join([found[0], *(each[:1].upper() + each[1:] for each in found[1:])])
