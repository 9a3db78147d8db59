"""A swarm as an A2A agent: its card, and an ASGI application over a dispatcher.

- The card is at ``/.well-known/agent-card.json``, JSON-RPC at ``/``, and HTTP+JSON below ``/rest``.
- Access is checked as for ``HttpApp`` (``palaver.serve.a2a.access``).
- Each agent is a skill. Streaming is supported, push notifications are not.
- The last ``tasks`` tasks are remembered in this process. For more, pass a ``store`` of the SDK.

Stability: experimental.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version as installed
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware

from palaver.serve.a2a.access import AccessMiddleware, check_users, with_bearer
from palaver.serve.a2a.executor import Executor
from palaver.serve.a2a.sdk import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    DefaultRequestHandler,
    InMemoryTaskStore,
    ServerCallContext,
    Task,
    TaskStore,
    create_agent_card_routes,
    create_jsonrpc_routes,
    create_rest_routes,
)
from palaver.serve.http.access import Access, Limits

if TYPE_CHECKING:
    from palaver.serve.workers import Dispatcher
    from palaver.swarm.swarm import Swarm

TASKS: Final = 10_000
_PROTOCOL: Final = "1.0"
_REST: Final = "/rest"
_MODES: Final = ("text/plain",)


def card_of(swarm: Swarm, url: str, *, description: str = "", version: str | None = None) -> AgentCard:
    """Return the card of a swarm that is served at a URL."""
    url = url.rstrip("/")
    return AgentCard(
        name=swarm.name,
        description=description or f"A swarm of {len(swarm.agents)} agents",
        version=version or installed("palaver"),
        capabilities=AgentCapabilities(streaming=True, push_notifications=False),
        default_input_modes=_MODES,
        default_output_modes=_MODES,
        supported_interfaces=[
            AgentInterface(url=f"{url}/", protocol_binding="JSONRPC", protocol_version=_PROTOCOL),
            AgentInterface(url=f"{url}{_REST}", protocol_binding="HTTP+JSON", protocol_version=_PROTOCOL),
        ],
        skills=[
            AgentSkill(
                id=agent.name,
                name=agent.name,
                description=agent.description or f"The agent {agent.name}",
                tags=["agent"],
            )
            for agent in swarm.agents.values()
        ],
    )


def a2a_app(
    dispatcher: Dispatcher,
    card: AgentCard,
    *,
    token: str | None = None,
    tokens: Mapping[str, str] | None = None,
    hosts: Collection[str] | None = None,
    origins: Collection[str] = (),
    limits: Limits | None = None,
    swarm: str | None = None,
    tasks: int = TASKS,
    store: TaskStore | None = None,
    middleware: Sequence[Middleware] = (),
) -> Starlette:
    """Return an application that serves a swarm as an A2A agent.

    The dispatcher is open already and outlives the application. ``swarm`` names the swarm, when several share a bus.
    ``token``, ``tokens`` (user: token), ``hosts`` and ``origins`` are as in ``HttpApp``; without any of them only this
    machine has access. Each user with a token has their own tasks and contexts. Of ``limits``, ``body`` and
    ``io_timeout`` apply. Raises ``SwarmError``.
    """
    access = Access(token=token, tokens=tokens, hosts=hosts, origins=origins)
    check_users(tokens or ())
    if access.required:
        card = with_bearer(card)
    handler = DefaultRequestHandler(
        agent_executor=Executor(dispatcher, swarm), task_store=store or _RecentTasks(tasks), agent_card=card
    )

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncGenerator[None]:
        yield
        await handler.aclose()

    return Starlette(
        routes=[
            *create_agent_card_routes(card),
            *create_jsonrpc_routes(handler, "/", enable_v0_3_compat=True),
            *create_rest_routes(handler, path_prefix=_REST),
        ],
        middleware=[
            *access.middleware,
            Middleware(AccessMiddleware, access=access, limits=limits or Limits()),
            *middleware,
        ],
        lifespan=lifespan,
    )


class _RecentTasks(InMemoryTaskStore):
    """The last changed tasks."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit
        self._known: OrderedDict[str, ServerCallContext] = OrderedDict()

    async def save(self, task: Task, context: ServerCallContext) -> None:
        await super().save(task, context)
        self._known[task.id] = context
        self._known.move_to_end(task.id)
        while len(self._known) > self._limit:
            oldest, its = self._known.popitem(last=False)
            await self.delete(oldest, its)
