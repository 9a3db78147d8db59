"""The page at ``/``: what is served, how it is called, and a box to try it. One file, without scripts from elsewhere.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

from palaver.serve.http.openapi import DocumentedRoute

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'"
)

_FIELD: Final = '<input id="token" type="password" placeholder="Token" aria-label="Token" size="10">'
_ROUTES: Final = (
    ("POST /v1/clients/CLIENT/messages", "send a message; with <code>Accept: text/event-stream</code> as events"),
    ("GET /v1/clients/CLIENT/messages", "the conversation"),
    ("GET /v1/clients/CLIENT/approvals", "calls of tools that wait for a decision"),
    ("POST /v1/clients/CLIENT/decisions", "decide them, and get the answer"),
    ("GET /v1/clients/CLIENT/events", "what happens, as events"),
    ("DELETE /v1/clients/CLIENT/turn", "cancel the turn in progress"),
    ("WebSocket /v1/clients/CLIENT", "both directions"),
)
_PARAMETER: Final = re.compile(r"\{(\w+)[^}]*\}")


def page(title: str, agents: tuple[str, ...], routes: Iterable[BaseRoute], *, origin: str, secured: bool) -> str:
    """Return the page.

    ``origin`` is the server's address. Of ``routes``, those for web pages are shown.
    """
    rows = [*_ROUTES, *_web_routes(routes)]
    words = {
        "title": escape(title),
        "agents": escape(", ".join(agents)) or "—",
        "origin": escape(origin),
        "header": "-H 'authorization: Bearer TOKEN' " if secured else "",
        "token": _FIELD if secured else "",
        "routes": "".join(f"<tr><td><code>{route}</code></td><td>{about}</td></tr>" for route, about in rows),
    }
    return re.sub("%%([a-z]+)%%", lambda found: words[found[1]], _template())


def _web_routes(routes: Iterable[BaseRoute]) -> Iterator[tuple[str, str]]:
    for route in routes:
        if isinstance(route, DocumentedRoute) and not route.path.startswith("/v1/"):
            yield (
                f"{route.method} {escape(_PARAMETER.sub(_in_capitals, route.path))}",
                escape(route.operation["summary"]),
            )


def _in_capitals(parameter: re.Match[str]) -> str:
    return parameter[1].upper()


@cache
def _template() -> str:
    return Path(__file__).with_name("home_page.html").read_text("utf-8")
