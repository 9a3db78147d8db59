"""Additions to a client's log without a model: commits; and reading the log.

Rules (docs/spec/agent-swarm-kit.md#2.1, #2.6, #3.7):

- The text of user, system, developer and assistant messages is trimmed; that of tool results is not. An event has the
  original text.
- With ``agent``, a commit is for that agent alone: when it is not active, nothing happens, and ``False`` (or ``None``)
  is returned. Without, it is for the active agent.
- No model is asked. A hook is called before, an event published after.
- A result must answer a call that is in the log (K20), unless ``allow_unknown`` says otherwise.

Stability: experimental.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from palaver.core.errors import SwarmError
from palaver.core.factories import flush, tool_call
from palaver.core.messages import (
    AssistantMessage,
    DeveloperMessage,
    Message,
    Mode,
    Scope,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from palaver.core.pairs import client_calls
from palaver.core.parts import Text, ToolCall
from palaver.swarm.batch import call_id
from palaver.swarm.call import CALL, watched
from palaver.swarm.events import SessionEvents
from palaver.swarm.turn import UNSHOWN
from palaver.swarm.user_input import Content, checked_text, said
from palaver.threads.view import DISCARDED, RECORD
from palaver.turn.tool_output import output_of

if TYPE_CHECKING:
    from palaver.swarm.agent_session import AgentSession
    from palaver.swarm.call import Call, CallContext


_HIDDEN: Final = frozenset((DISCARDED, UNSHOWN))
_Spoken: TypeAlias = UserMessage | AssistantMessage | SystemMessage | DeveloperMessage


def _trimmed(text: object) -> tuple[Text]:
    return (Text(checked_text(text, "text").strip()),)


class Commits(SessionEvents):
    """The part of a session that writes to the log, and reads it."""

    # -- what a session gives -----------------------------------------------------------------------------------------

    @abstractmethod
    def active_agent_session(self, agent: str | None) -> AgentSession | None:
        """Return the active agent's session; ``None`` when ``agent`` names another.

        Raises ``NavigationError`` for an unknown one.
        """

    @abstractmethod
    def place(self, agent: str, *, payload: Any = None, run: str | None = None) -> CallContext:
        """The context for hooks."""

    @property
    @abstractmethod
    def payload(self) -> Any:
        """The payload of the message of the current turn."""

    @abstractmethod
    async def keep(self, *messages: Message) -> None:
        """Add messages to the log."""

    @abstractmethod
    async def close_pending(self) -> None:
        """Answer waiting calls as not run."""

    # -- commits ------------------------------------------------------------------------------------------------------

    async def commit_user(
        self, content: Content, *, mode: Mode = "user", payload: Any = None, agent: str | None = None
    ) -> bool:
        """Add a user message. Without ``payload``, that of the current turn is used."""
        told = said(content)
        payload = told.payload(payload)
        message = told.message.replace(mode=mode)
        if mode == "user":
            message = message.replace(payload=self.payload if payload is None else payload)
        return await self._commit_text(message, told.text, agent)

    async def commit_assistant(self, text: str, *, agent: str | None = None) -> bool:
        """Add an assistant message."""
        message = AssistantMessage(content=_trimmed(text), mode="tool")
        return await self._commit_text(message, text, agent)

    async def commit_system(self, text: str, *, agent: str | None = None) -> bool:
        """Add a system message for the agent alone, before all of its dialogue."""
        message = SystemMessage(content=_trimmed(text), mode="tool")
        return await self._commit_text(message, text, agent)

    async def commit_developer(self, text: str, *, agent: str | None = None) -> bool:
        """Add a developer message for all agents, in its place in the dialogue."""
        message = DeveloperMessage(content=_trimmed(text), mode="tool")
        return await self._commit_text(message, text, agent)

    async def _commit_text(self, message: _Spoken, text: str, agent: str | None) -> bool:
        """Call the hook, store the message, and publish the event of the message's role."""
        agent_session = self.active_agent_session(agent)
        if agent_session is None:
            return False
        name = agent_session.agent.name
        hook = getattr(agent_session.agent.hooks, f"on_{message.role}_message")
        await watched(f"on_{message.role}_message", hook, self.place(name), text)
        kept = message.replace(agent=name)
        return await self._committed(kept, name, f"commit-{message.role}-message", {"message": text})

    async def commit_tool_output(
        self, call: str, content: object, *, agent: str | None = None, allow_unknown: bool = False
    ) -> bool:
        """Add ``content`` as the result of ``call``, an id.

        Raises ``SwarmError`` for an id that no call in the log has, unless ``allow_unknown`` is true.
        """
        found = self._call_named(call)
        if found is None and not allow_unknown:
            raise SwarmError(f"the log of {self.log.id!r} has no call {call!r} for this result")
        output = output_of(content)
        message = ToolMessage(
            content=(Text(""),) if content == "" else output.content,
            tool_call_id=call,
            tool_name=found,
            is_error=output.is_error,
            mode="tool",
        )
        running = CALL.get()
        mine = running if running is not None and running.id == call else self._running(call)
        return await self.keep_tool_output(message, agent=agent, call=mine)

    async def keep_tool_output(self, message: ToolMessage, *, agent: str | None, call: Call | None) -> bool:
        """Add ``message``, a result, and start the next tool of the batch of ``call``."""
        agent_session = self.active_agent_session(agent)
        if agent_session is None:
            return False
        name = message.agent or agent_session.agent.name
        answered = message.tool_call_id or ""
        await watched(
            "on_tool_output", agent_session.agent.hooks.on_tool_output, self.place(name), answered, message.text
        )
        kept = {"toolId": answered, "content": message.text}
        await self._committed(message.replace(agent=name), name, "commit-tool-output", kept)
        if call is not None:
            await call.released()
        return True

    async def commit_tool_request(
        self, calls: Iterable[tuple[str, Mapping[str, Any]]], *, agent: str | None = None
    ) -> Sequence[str] | None:
        """Add ``calls``, as if the agent's model had made them; return their ids.

        Each is the name of a tool and its arguments. Returns ``None`` when ``agent`` is not the active one. Raises
        ``MessageError`` for arguments that are not JSON.
        """
        agent_session = self.active_agent_session(agent)
        if agent_session is None:
            return None
        name = agent_session.agent.name
        made: list[ToolCall] = []
        for tool, arguments in calls:
            made.append(tool_call(tool, arguments, id=call_id()))
        message = AssistantMessage(content=(Text(""), *made), agent=name, mode="tool")
        await watched("on_tool_request", agent_session.agent.hooks.on_tool_request, self.place(name), made)
        told = [{"toolName": each.name, "params": dict(each.arguments)} for each in made]
        await self._committed(message, name, "commit-tool-request", {"request": told})
        return [each.id for each in made]

    async def commit_flush(self, *, agent: str | None = None, scope: Scope = "thread") -> bool:
        """Hide all earlier messages: from all agents, or (``scope="agent"``) from the active one."""
        agent_session = self.active_agent_session(agent)
        if agent_session is None:
            return False
        name = agent_session.agent.name
        await watched("on_flush", agent_session.agent.hooks.on_flush, self.place(name))
        marker = flush(agent=name, mode="tool") if scope == "thread" else flush(agent=name, mode="tool", scope=scope)
        return await self._committed(marker, name, "commit-flush", {})

    async def commit_stop_tools(self, *, agent: str | None = None) -> bool:
        """Start no more tools of running batches."""
        agent_session = self.active_agent_session(agent)
        if agent_session is None:
            return False
        agent_session.halt()
        return await self._committed(None, agent_session.agent.name, "commit-stop-tools", {})

    async def _committed(self, message: Message | None, agent: str, type: str, input: Mapping[str, Any]) -> bool:
        if message is not None:
            if self.turn is None and not isinstance(message, ToolMessage):
                await self.close_pending()  # or the message would separate calls from their results
            await self.keep(message)
        self.publish_event("agent", type, agent, input=input)
        self.publish_event("session", type, input=input)
        return True

    def active_call(self, id: str) -> Call | None:
        """Return the call with the ``id``, while its tool runs or defers; ``None`` when its turn is over.

        Raises ``SwarmError`` for an id that no call has.
        """
        found = self._running(id)
        if found is None and self._call_named(id) is None:
            raise SwarmError(f"the log of {self.log.id!r} has no call {id!r}")
        return found

    def _running(self, id: str) -> Call | None:
        calls = () if self.turn is None else self.turn.running
        return next((each for each in calls if each.id == id), None)

    def _call_named(self, id: str) -> str | None:
        """Return the tool that a call in the log names. Searches from the end."""
        for entry in reversed(self.log.path):
            for call in client_calls(entry.message):
                if call.id == id:
                    return call.name
        return None

    # -- reading ------------------------------------------------------------------------------------------------------

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages of the log, in order, markers included."""
        return self.log.messages

    @property
    def user_history(self) -> tuple[Message, ...]:
        """The messages of the user."""
        return tuple([each for each in self.messages if isinstance(each, UserMessage) and each.mode == "user"])

    @property
    def assistant_history(self) -> tuple[Message, ...]:
        """The messages of the agents, without answers that were not shown (``messages`` has them)."""
        said = (each for each in self.messages if isinstance(each, AssistantMessage))
        return tuple([each for each in said if _HIDDEN.isdisjoint(each.tags)])

    @property
    def last_user(self) -> str | None:
        """The last text of the user."""
        return next((m.text for m in self._backwards() if isinstance(m, UserMessage) and m.mode == "user"), None)

    @property
    def last_assistant(self) -> str | None:
        """The last text of an agent, without answers that were not shown."""
        said = (each for each in self._backwards() if isinstance(each, AssistantMessage))
        return next((each.text for each in said if _HIDDEN.isdisjoint(each.tags)), None)

    @property
    def last_tool(self) -> str | None:
        """The last result of a tool."""
        return next((each.text for each in self._backwards() if isinstance(each, ToolMessage)), None)

    @property
    def last_system(self) -> str | None:
        """The last committed system message."""
        return next((each.text for each in self._backwards() if isinstance(each, SystemMessage)), None)

    def _backwards(self) -> Iterable[Message]:
        """Yield the messages of the log, the newest first; reads only as far as needed."""
        return (entry.message for entry in reversed(self.log.path) if RECORD not in entry.message.tags)
