"""Check requests to an A2A agent with ``palaver.serve.http.access``, before the SDK's routes.

- The card is public, as A2A requires. It says that a bearer token is needed, if one is.
- A body must be JSON, and its length and time are limited; the SDK has no limits.
- A token of a client makes its bearer the SDK's user. Tasks and contexts belong to the user: the client of a turn is
  then ``user:context``.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from starlette.authentication import SimpleUser
from starlette.requests import ClientDisconnect, Request

from palaver.core.errors import SwarmError
from palaver.serve.a2a.sdk import (
    AgentCard,
    HTTPAuthSecurityScheme,
    RequestContext,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)
from palaver.serve.http.access import body_of, check_json
from palaver.serve.http.errors import Refused, refusal
from palaver.swarm.names import checked_client, is_name

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from palaver.serve.http.access import Access, Limits

CARD: Final = "/.well-known/agent-card.json"
_BEARER: Final = "bearer"
_BODIES: Final = frozenset({"POST", "PUT", "PATCH"})


class AccessMiddleware:
    """ASGI middleware that checks requests before the SDK reads them."""

    def __init__(self, app: ASGIApp, access: Access, limits: Limits) -> None:
        """Wrap an application."""
        self._app, self._access, self._limits = app, access, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on or refuse it."""
        if scope["type"] != "http" or scope["path"] == CARD:
            await self._app(scope, receive, send)
            return
        try:
            receive = await self._checked(Request(scope, receive))
        except ClientDisconnect:
            return
        except Refused as error:
            await refusal(error).response()(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _checked(self, request: Request) -> Receive:
        """Check a request. Return a receive function that gives the body, already read. Raises ``Refused``."""
        self._access.check_origin(request)
        user = self._access.client_of(request)
        if user is not None:
            request.scope["user"] = SimpleUser(user)
        if request.method not in _BODIES:
            return request.receive
        body = await body_of(request, self._limits)
        if body:
            check_json(request)
        waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            return waiting.pop() if waiting else await request.receive()

        return receive


def context_of(context: RequestContext) -> str:
    """Return the name of the context of a request: that of its task, which a message need not repeat."""
    task = context.current_task
    return (context.context_id or "") if task is None else task.context_id


def client_of(context: RequestContext) -> str:
    """Return the client of a request: its context, prefixed with the user of its token. Raises ``DecodeError``."""
    name = context_of(context)
    user = context.call_context.user
    return checked_client(f"{user.user_name}:{name}" if user.is_authenticated else name)


def check_users(names: Iterable[str]) -> None:
    """Check the names of users with tokens. Raises ``SwarmError`` for a name that could hide a context."""
    for name in names:
        if ":" in name or not is_name(name):
            raise SwarmError(f"the name of an A2A user has letters, digits and . _ ~ @ + -, not {name!r}")


def with_bearer(card: AgentCard) -> AgentCard:
    """Return a copy of a card that requires a bearer token."""
    copy = AgentCard()
    copy.CopyFrom(card)
    scheme = SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme(scheme=_BEARER))
    copy.security_schemes[_BEARER].CopyFrom(scheme)
    copy.security_requirements.append(SecurityRequirement(schemes={_BEARER: StringList()}))
    return copy
