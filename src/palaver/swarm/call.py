"""The call of a tool, as the tool sees it.

Rules (docs/spec/agent-swarm-kit.md#3.1, #3.7):

- ``commit`` keeps the result and lets the next tool of the batch begin; ``execute`` says something to the active
  agent and gives what it answers; ``emit`` answers the turn with a text; ``stop`` skips the rest of the batch.
- ``cancelled`` is set when nobody waits for the tool any more: the turn was cancelled, the batch stopped or failed,
  the agent changed. The tool is not interrupted; it looks, or waits, for it.
- What a tool asks of the session goes through ``session``, and belongs to its turn.
- What a tool raises is logged with its traceback, and published as ``agent tool-error`` with the tool's name.
- ``flush`` hides what was said from this agent alone; from all of them where ``scope="thread"`` asks for it (K8).

Where in a swarm something is called: what every hook, check and tool may know:

- ``CURRENT`` is the turn that the running code belongs to, and ``CALL`` the call of a tool, by context variables: a
  task that a tool begins belongs to its turn too. A turn that is over is nobody's (K2).
- A hook that only looks on is guarded: what it raises is logged and disturbs nothing. What changes an answer
  (``transform``, ``map``, ``validate``, a prompt) is not: what it raises is the error of its turn.
- A cancellation that no scope asked for (of asyncio alone: that of a task which an application awaits) is an error of
  the code that let it out, and ends nothing else.

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
"""What is said of a stray cancellation."""

CURRENT: Final[ContextVar[Turn | None]] = ContextVar("palaver.swarm.turn", default=None)
CALL: Final[ContextVar[Call | None]] = ContextVar("palaver.swarm.call", default=None)


class CallContext(Struct, frozen=True, kw_only=True):
    """A client, the agent that speaks to it, the session, and the turn (``run``) where there is one."""

    client: str
    agent: str
    swarm: str
    session: Session
    run: str | None = None
    payload: Any = None
    """What came with the client's message, beside its text."""


async def called(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function that may be asynchronous. Raises what it raises."""
    made = function(*arguments)
    return await made if inspect.isawaitable(made) else made


async def watched(what: str, function: Callable[..., Any] | None, *arguments: Any) -> None:
    """Call a hook that only looks on; what it raises is logged."""
    if function is None:
        return
    try:
        await called(function, *arguments)
    except Exception:
        LOGGER.exception("%s raised; the error is ignored", what)


def is_cancelled() -> bool:
    """Whether a scope around the running code was cancelled; what is caught else is a stray cancellation."""
    return anyio.current_effective_deadline() == -math.inf


# -- call ------------------------------------------------------------------------------------------


class Call:
    """One call.

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
        """Whether it went on with the turn."""
        self.committed = False
        """Whether its result is kept."""
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
        """Whose conversation it is."""
        return self.place.client

    @property
    def agent(self) -> str:
        """The agent that called it."""
        return self.place.agent

    @property
    def session(self) -> Session:
        """The session; what is asked of it from here belongs to this turn."""
        return self.place.session

    async def commit(self, content: object = "", *, is_error: bool = False) -> None:
        """Keep ``content`` as the result, and let the next tool begin.

        ``content`` is what a function tool may return. ``is_error`` tells the model that the call failed. Nothing
        happens when the agent is not the active one any more.
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
        """Keep ``message``, the result of a tool that returns, whoever is active by now, behind its ``records``."""
        if records:
            await self.session.keep(*records)
        await self.session.keep_tool_output(message.replace(agent=self.agent), agent=None, call=self)

    async def execute(self, content: Content = "") -> str:
        """Send ``content`` to the active agent, as its tools do; return the turn's answer.

        ``content`` is a text, parts or a user message; it may be empty.
        """
        return await self.session.execute(content, call=self)

    async def emit(self, text: str) -> bool:
        """Answer the turn with ``text``, without asking the model; return whether somebody waited for it."""
        return await self.session.emit(text, call=self)

    @property
    def turn(self) -> Turn:
        """The turn that it belongs to."""
        return self._batch.turn

    async def stop(self) -> None:
        """Let no more tools of the batch begin."""
        await self.session.commit_stop_tools(agent=self.agent)

    async def flush(self, scope: Scope = "agent") -> None:
        """Hide what was said so far: with the ``scope`` ``"agent"`` from this agent, with ``"thread"`` from all."""
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
        """The result is kept: the next of the batch may begin. Called by the session."""
        self.committed = True
        await self._batch.released(self)

    def tool_context(self) -> ToolContext:
        """What a tool that returns may know. Raises ``SwarmError`` where the batch does not run it."""
        if self.context is None:
            raise SwarmError(f"the call {self.id!r} is not running")
        return self.context
