"""The call of a tool, as the tool sees it.

Rules (docs/spec/agent-swarm-kit.md#3.1, #3.7):

- ``commit`` stores the result and starts the next tool of the batch; ``execute`` sends a message to the active agent
  and returns its answer; ``emit`` answers the turn with a text; ``stop`` skips the rest of the batch.
- ``cancelled`` is set when the tool is not needed any more: the turn was cancelled, the batch stopped or failed, or
  the agent changed. The tool is not interrupted; it may check or await it.
- Requests of a tool to the session go through ``session``, and belong to its turn.
- An exception of a tool is logged with its traceback, and published as ``agent tool-error`` with the tool's name.
- ``flush`` hides earlier messages from this agent alone, and with ``scope="thread"`` from all agents (K8).

The context of a call in a swarm, for every hook, check and tool:

- ``CURRENT`` is the turn of the running code, and ``CALL`` its tool call, both context variables: a task that a tool
  starts belongs to its turn too. A finished turn accepts nothing (K2).
- A hook that only observes is guarded: its exceptions are logged and change nothing. A function that changes an answer
  (``transform``, ``map``, ``validate``, a prompt) is not: its exceptions are the error of its turn.
- A cancellation without a cancelled scope (of asyncio alone: that of a task which an application awaits) is an error
  of the code that raised it, and ends nothing else.

Stability: experimental.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import anyio
from msgspec import Struct

from palaver.core.errors import SwarmError
from palaver.core.messages import Scope, SystemMessage, ToolMessage
from palaver.core.parts import Text, ToolCall
from palaver.turn.tool import Output, ToolContext
from palaver.turn.tool_output import output_of

if TYPE_CHECKING:
    from palaver.swarm.batch import Batch
    from palaver.swarm.session import Session
    from palaver.swarm.turn import Turn
    from palaver.swarm.user_input import Content


# -- call context ----------------------------------------------------------------------------------


LOGGER: Final = logging.getLogger("palaver.swarm")
STRAY: Final = "the awaited work was cancelled"
"""The text about a stray cancellation."""

CURRENT: Final[ContextVar[Turn | None]] = ContextVar("palaver.swarm.turn", default=None)
CALL: Final[ContextVar[Call | None]] = ContextVar("palaver.swarm.call", default=None)


class CallContext(Struct, frozen=True, kw_only=True):
    """A client, its active agent, the session, and the turn (``run``), if any."""

    client: str
    agent: str
    swarm: str
    session: Session
    run: str | None = None
    payload: Any = None
    """The payload of the client's message."""


async def called(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function that may be asynchronous. Raises what it raises."""
    made = function(*arguments)
    return await made if inspect.isawaitable(made) else made


async def watched(what: str, function: Callable[..., Any] | None, *arguments: Any) -> None:
    """Call a hook that only observes; its exceptions are logged."""
    if function is None:
        return
    try:
        await called(function, *arguments)
    except Exception:
        LOGGER.exception("%s raised; the error is ignored", what)


def is_cancelled() -> bool:
    """Return whether a scope around the running code was cancelled; any other cancellation is a stray one."""
    return anyio.current_effective_deadline() == -math.inf


# -- call ------------------------------------------------------------------------------------------


class Call:
    """One call of a tool.

    ``calls`` are all calls of its batch, ``text`` the text of their answer; ``is_last`` says that none follows it.
    """

    def __init__(self, batch: Batch, call: ToolCall, place: CallContext, *, is_last: bool) -> None:
        """Describe ``call``, one of ``batch``. ``place`` is the agent that called it, its client and its turn."""
        self._batch = batch
        self.call, self.place, self.is_last = call, place, is_last
        self.calls: Sequence[ToolCall] = batch.calls
        self.text: str = batch.text
        self.cancelled = anyio.Event()
        self.continued = False
        """Whether the tool continued the turn."""
        self.committed = False
        """Whether its result is stored."""
        self.returned = False
        """Whether middleware answered in place of a tool that speaks."""
        self.context: ToolContext | None = None

    @property
    def id(self) -> str:
        """The id that the model gave the call."""
        return self.call.id

    @property
    def name(self) -> str:
        """The name that the model called."""
        return self.call.name

    @property
    def client(self) -> str:
        """The client of the conversation."""
        return self.place.client

    @property
    def agent(self) -> str:
        """The agent that called it."""
        return self.place.agent

    @property
    def session(self) -> Session:
        """The session; requests to it from here belong to this turn."""
        return self.place.session

    async def commit(self, content: object = "", *, is_error: bool = False) -> None:
        """Store ``content`` as the result, and start the next tool.

        ``content`` is what a function tool may return. ``is_error`` tells the model that the call failed. Does nothing
        when the agent is not active any more.
        """
        output = output_of(content) if content != "" else Output(content=(Text(""),))
        message = ToolMessage(
            content=output.content,
            tool_call_id=self.id,
            tool_name=self.name,
            is_error=is_error or output.is_error,
            agent=self.agent,
            mode="tool",
        )
        if output.metadata:
            message = message.replace(metadata=output.metadata)
        await self.session.keep_tool_output(message, agent=self.agent, call=self)

    async def commit_own(self, message: ToolMessage, records: Sequence[SystemMessage] = ()) -> None:
        """Store ``message``, the result of a tool that returns, behind its ``records``, whichever agent is active."""
        if records:
            await self.session.keep(*records)
        await self.session.keep_tool_output(message.replace(agent=self.agent), agent=None, call=self)

    async def execute(self, content: Content = "") -> str:
        """Send ``content`` to the active agent, as its tools do; return the turn's answer.

        ``content`` is a text, parts or a user message; it may be empty.
        """
        return await self.session.execute(content, call=self)

    async def emit(self, text: str) -> bool:
        """Answer the turn with ``text``, without asking the model; return whether the answer was awaited."""
        return await self.session.emit(text, call=self)

    @property
    def turn(self) -> Turn:
        """The turn of the call."""
        return self._batch.turn

    async def stop(self) -> None:
        """Start no more tools of the batch."""
        await self.session.commit_stop_tools(agent=self.agent)

    async def flush(self, scope: Scope = "agent") -> None:
        """Hide all earlier messages: with the ``scope`` ``"agent"`` from this agent, with ``"thread"`` from all."""
        await self.session.commit_flush(agent=self.agent, scope=scope)

    def log_error(self, error: Exception) -> None:
        """Log ``error``, which the tool raised, with its traceback, and publish it with the tool's name."""
        LOGGER.error("the tool %r of the agent %r raised", self.name, self.agent, exc_info=error)
        self.session.publish_event(
            "agent",
            "tool-error",
            self.agent,
            input={"toolId": self.id, "toolName": self.name},
            output={"error": f"{type(error).__name__}: {error}"},
        )

    async def released(self) -> None:
        """Note that the result is stored, so the next tool may start. Called by the session."""
        self.committed = True
        await self._batch.released(self)

    def tool_context(self) -> ToolContext:
        """Return the context of a tool that returns. Raises ``SwarmError`` when the batch does not run it."""
        if self.context is None:
            raise SwarmError(f"the call {self.id!r} is not running")
        return self.context
