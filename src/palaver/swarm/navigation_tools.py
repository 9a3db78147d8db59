"""Ready-made tools: hand over to another agent, commit an action, fetch information.

Rules (docs/spec/agent-swarm-kit.md#5.4):

- ``navigation`` and ``triage`` take no parameters, stop the rest of their batch, and hand the conversation over. A
  hand-over to an agent that was active since the client's last message ends the cycle instead: everything is flushed,
  and the client is asked to repeat.
- ``commit_action`` and ``fetch_info`` wrap a function: its parameters are the model's, and its return value is the
  result. They continue the turn only as the last call of their batch, and not when the agent has changed.
- A text may be a function, plain or asynchronous, of the ``Call``. Of all calls in one answer, one that navigates or
  commits wins (K11).

The active agent of a client, and the path of the conversation (docs/spec/agent-swarm-kit.md#5.4, #K17):

- The active agent and the stack of those before it are stored in the client's thread, for each swarm, in one record.
  An agent that the swarm no longer has is replaced by the default one.
- The route lists the agents visited since the client's last message: none is visited twice, so agents cannot hand a
  conversation round in a cycle. The agent that it began with is not on it.
- ``previous`` goes back by the stack, regardless of the route. The stack is bounded: the oldest agents are dropped.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, TypeAlias

from palaver.agent.parameters import Parameters, parameters_of
from palaver.core.errors import NavigationError
from palaver.core.parts import ToolCall
from palaver.core.tools import Tool
from palaver.core.type_checks import check_arguments
from palaver.swarm.call import Call, called
from palaver.swarm.log import Values
from palaver.swarm.tool import Kind, SwarmTool
from palaver.turn.tool import invoker, legal, normalized

# -- navigator -------------------------------------------------------------------------------------


KIND: Final = "navigation"
"""The kind of the record."""
STACK: Final = 64
"""The most agents to go back."""


class Navigator:
    """The position of one client in one swarm. Nothing here sends messages to agents."""

    def __init__(self, swarm: str, agents: Collection[str], default: str, values: Values) -> None:
        """Start at the position in the client's thread."""
        self._swarm, self._agents, self._default, self._values = swarm, agents, default, values
        kept: dict[str, Any] = values.get(KIND, swarm, {})
        active = kept.get("active", default)
        self.active: str = active if active in agents else default
        self.stack: list[str] = [each for each in kept.get("stack", ()) if each in agents]
        self.route: dict[str, None] = {}
        """The agents visited since the last message of the client, in order."""

    def enter(self, agent: str, *, again: bool = False) -> None:
        """Put an agent on the route. Raises ``NavigationError`` when it is there already, and not ``again``."""
        if agent in self.route and not again:
            path = "->".join((*self.route, agent))
            raise NavigationError(f"navigation skipped due to recursion: {agent!r} was visited already, route={path}")
        self.route[agent] = None

    def previous(self) -> tuple[str, list[str]]:
        """Return the agent to go back to, and the stack without it and without the active one."""
        stack = list(self.stack)
        if stack and stack[-1] == self.active:
            stack.pop()
        return (stack.pop() if stack else self._default), stack

    async def move(self, agent: str, behind: Sequence[str] | None = None) -> None:
        """Make an agent the active one, on the stack or on ``behind``; when it cannot be stored, nothing changes."""
        stack = [*(self.stack if behind is None else behind), agent][-STACK:]
        kept = {"active": agent, "stack": stack}
        try:
            await self._values.put(KIND, self._swarm, kept)
        finally:  # a stored move counts, even when the caller was cancelled meanwhile
            if self._values.get(KIND, self._swarm) == kept:
                self.active, self.stack = agent, stack


# -- navigation tools ------------------------------------------------------------------------------


REPEAT: Final = "Sorry, I missed that. Could you repeat please"
"""The text to the client at the end of a cycle."""
EMPTY_ACTION: Final = "Action executed but produced no result"
"""The result of an action without a result."""
NOT_AVAILABLE: Final = "The tool named {name} is not available. Do not ever call it again"
"""The result of a tool that fetched nothing."""
NAVIGATED: Final = (
    "Successfully navigated from {left} to {to}. Please do not call the navigate tool to {left} during the next answer"
)
"""The result of a hand-over."""
ALREADY: Final = "Already on {to}. Please do not call the navigate tool to {to} during the next answer"
"""The result of a hand-over to the active agent."""
CHANGED_TOPIC: Final = (
    "User changed conversation topic. The next message received: {text}. Continue conversation based on the last "
    "message without navigating to {left}."
)
"""The message of ``triage`` to the default agent."""

Text: TypeAlias = str | Callable[[Call], Any]


async def _text(given: Text, call: Call) -> str:
    return given if isinstance(given, str) else str(await called(given, call))


# -- to another agent --------------------------------------------------------------------------------------------------


def navigation(
    to: str,
    *,
    name: str | None = None,
    description: str | None = None,
    available: Callable[..., Any] | None = None,
    before: Callable[[Call], Any] | None = None,
    execute: Text = "",
    emit: Text | None = None,
    tool_output: Text | None = None,
    flush_message: Text = REPEAT,
) -> SwarmTool:
    """Make the tool that hands over to the agent ``to``; its default name is ``to_<agent>``.

    If another navigation tool of the same agent has that name already, a number is added.

    A swarm is checked for the agent ``to`` when it is made; a tool of a source raises ``NavigationError`` when it is
    called. The other agent gets the message ``execute``; with ``emit`` the client gets that text instead, and no model
    is asked.

    ``name`` and ``description`` are for the model. ``available`` is a function of a ``CallContext``: whether the tool
    is offered there. ``before`` is called with the ``Call``, before anything changes. ``tool_output`` is the result of
    the call; without it, the result names both agents. ``flush_message`` is the text to the client at the end of a
    cycle. Texts may be functions of the ``Call``.
    """
    check_arguments("navigation", navigation, locals())

    async def run(call: Call, _: Any) -> None:
        session = call.session
        session.known_agent(to)
        await call.stop()
        if to in session.navigator.route:
            await _end_circle(call, flush_message)
            return
        if not await _answered(call, to, before, tool_output):
            return
        await session.change_to(to)
        if emit is None:
            await call.execute(await _text(execute, call))
        else:
            await call.emit(await _text(emit, call))

    said = f"Hand the conversation over to {to}." if description is None else description
    return SwarmTool(
        definition=Tool.of(legal(name or f"to_{normalized(to)}"), said, {"type": "object", "properties": {}}),
        check=_anything,
        run=run,
        kind="navigation",
        available=available,
        target=to,
    )


def triage(
    *,
    name: str = "to_default",
    description: str = "Hand the conversation back, when the topic has changed.",
    available: Callable[..., Any] | None = None,
    before: Callable[[Call], Any] | None = None,
    last_message: Text | None = None,
    execute: Text = "",
    tool_output: Text | None = None,
    flush_message: Text | None = None,
) -> SwarmTool:
    """Make the tool that hands over to the swarm's default agent, with the client's last message.

    If the default agent is active already, or was, the result says so and the model continues with ``execute``; with
    ``flush_message`` the cycle is ended instead. ``last_message`` is the message to the default agent; without it, a
    text with the client's last message. ``name``, ``description``, ``available``, ``before`` and ``tool_output`` are
    those of ``navigation``.
    """
    check_arguments("triage", triage, locals())

    async def run(call: Call, _: Any) -> None:
        session = call.session
        to = session.swarm.default
        await call.stop()
        if to in session.navigator.route or to == session.agent:
            if flush_message is not None:
                await _end_circle(call, flush_message)
                return
            await call.commit(ALREADY.format(to=to))
            await call.execute(await _text(execute, call))
            return
        if not await _answered(call, to, before, tool_output):
            return
        await session.change_to_default()
        if last_message is None:
            told = CHANGED_TOPIC.format(text=session.last_user or "", left=call.agent)
        else:
            told = await _text(last_message, call)
        await call.execute(told)

    return SwarmTool(
        definition=Tool.of(legal(name), description, {"type": "object", "properties": {}}),
        check=_anything,
        run=run,
        kind="navigation",
        available=available,
    )


async def _answered(call: Call, to: str, before: Callable[[Call], Any] | None, tool_output: Text | None) -> bool:
    """Answer a call that hands over; ``False`` when its turn is over, and it would change the agent of the next one."""
    if before is not None:
        await called(before, call)
    output = NAVIGATED.format(left=call.agent, to=to) if tool_output is None else await _text(tool_output, call)
    if call.session.is_past(call.turn):
        return False
    await call.commit(output)
    return not call.session.is_past(call.turn)


async def _end_circle(call: Call, message: Text) -> None:
    """End a cycle: all its agents start again."""
    await call.flush("thread")
    await call.emit(await _text(message, call))


def _anything(call: ToolCall) -> dict[str, Any]:  # noqa: ARG001 (whatever a model writes here, nothing was asked for)
    return {}


# -- actions and information -------------------------------------------------------------------------------------------


def commit_action(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    available: Callable[..., Any] | None = None,
    validate: Callable[[dict[str, Any]], Any] | None = None,
    success: Text = "",
    failure: Text | None = None,
    empty: Text = EMPTY_ACTION,
    fallback: Callable[[Exception, Call], Any] | None = None,
) -> SwarmTool:
    """Make a tool that does something once, by ``function``.

    ``name`` and ``description`` replace those of the function. ``available`` is a function of a ``CallContext``:
    whether the tool is offered there. ``empty`` is the result when the function returns nothing. ``validate`` returns
    the error in the arguments, or ``None``. Such an error, or an exception of the function, is the result, and the
    model continues with ``failure``; else with ``success``. ``fallback`` gets the exception. Raises ``MessageError``
    as ``tool`` does.
    """
    check_arguments("commit_action", commit_action, locals())

    async def run(call: Call, arguments: dict[str, Any]) -> None:
        wrong: Any = None if validate is None else await called(validate, arguments)
        result: object = None
        if not wrong:
            try:
                result = await made.invoke(call, arguments)
            except Exception as error:  # noqa: BLE001 (the model is told, and goes on)
                call.log_error(error)
                if fallback is not None:
                    await called(fallback, error, call)
                wrong = str(error) or type(error).__name__
        if wrong:
            await call.commit(str(wrong), is_error=True)
            await _last(call, str(wrong) if failure is None else failure)
            return
        await call.commit(await _text(empty, call) if result in (None, "") else result)
        await _last(call, success)

    made = _Function(function, name, description)
    return made.tool(run, "commit", available)


def fetch_info(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    available: Callable[..., Any] | None = None,
    validate: Callable[[dict[str, Any]], Any] | None = None,
    empty: Text | None = None,
) -> SwarmTool:
    """Make a tool that looks something up by ``function``; when it finds nothing, or raises, the result is ``empty``.

    Without ``empty``, the result tells the model not to call the tool again. ``name``, ``description`` and
    ``available`` are those of ``commit_action``. ``validate`` returns the error in the arguments, or ``None``; such an
    error is the result, and nothing is looked up. Raises ``MessageError`` as ``tool`` does.
    """
    check_arguments("fetch_info", fetch_info, locals())

    async def run(call: Call, arguments: dict[str, Any]) -> None:
        wrong: Any = None if validate is None else await called(validate, arguments)
        result: object = None
        if wrong:
            await call.commit(str(wrong), is_error=True)
            await _last(call, "")
            return
        try:
            result = await made.invoke(call, arguments)
        except Exception as error:  # noqa: BLE001 (nothing was fetched)
            call.log_error(error)
        if result in (None, ""):
            result = NOT_AVAILABLE.format(name=call.name) if empty is None else await _text(empty, call)
        await call.commit(result)
        await _last(call, "")

    made = _Function(function, name, description)
    return made.tool(run, "plain", available)


async def _last(call: Call, text: Text) -> None:
    """Continue the turn, if the call is the last of a batch whose agent is still active."""
    if call.is_last and call.session.agent == call.agent:
        await call.execute(await _text(text, call))


class _Function:
    """A function as a tool: its parameters, and how it is called."""

    def __init__(self, function: Callable[..., Any], name: str | None, description: str | None) -> None:
        self.name = legal(str(name or getattr(function, "__name__", "")))
        self.parameters: Parameters = parameters_of(function, self.name, context=Call)
        self.description = self.parameters.description if description is None else description
        self._invoke = invoker(function)

    async def invoke(self, call: Call, arguments: dict[str, Any]) -> Any:
        return await self._invoke(**arguments, **dict.fromkeys(self.parameters.contexts, call))

    def tool(self, run: Callable[..., Any], kind: Kind, available: Callable[..., Any] | None) -> SwarmTool:
        return SwarmTool(
            definition=Tool(self.name, self.description, self.parameters.schema),
            check=self.parameters.read,
            run=run,
            kind=kind,
            available=available,
        )
