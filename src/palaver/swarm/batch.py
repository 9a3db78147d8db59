"""The calls of one answer: which of them are run, and in which order.

Rules (docs/spec/agent-swarm-kit.md#3.1, #K5, #K11):

- First the batch is made, without running anything: calls without an id get one, ``map_calls`` changes the list, and
  equal ids are refused. One call that navigates or commits an action wins over all others; of the others, the last
  ``max_tool_calls`` stay.
- A call that is left out is published (``agent tool-skipped``), and if its tool returns, its result says so. When the
  arguments of a tool that returns are invalid, nothing is run: each call has a result with the reason, and the model
  is asked again.
- Then tools start in order, each one when the one before has committed, which may still be running: a commit returns
  when the next one has started. A stop, an error, a rescue, a cancel or a change of agent skips those that have not
  started, and sets ``cancelled`` for the others.
- A batch is settled when its last call has committed, or it was halted; ``on_after_tool_calls`` is called once.
- When every tool has returned and none has continued the turn, the model is asked again if one of them returns its
  result; else the turn fails, and the error names the tool. A tool that defers has until the turn's deadline. A
  turn whose agent was changed from outside meanwhile is answered with ``""``.

The tools that an agent of a swarm is offered at present:

- A source that fails, and a tool whose ``available`` or ``describe`` raises, is left out, and reported (K12).
- Sources are asked at the same time; tools keep their order.

Stability: experimental.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
from msgspec import Struct, structs

from palaver.core.errors import TurnError, excerpt
from palaver.core.messages import AssistantMessage
from palaver.core.pairs import client_calls
from palaver.core.parts import MalformedToolCall, Text, ToolCall
from palaver.swarm.call import CALL, STRAY, Call, CallContext, called, is_cancelled, watched
from palaver.swarm.tool import FIRST, SwarmTool, as_tool
from palaver.turn.calls import PlannedCall, result
from palaver.turn.results import READING
from palaver.turn.tool import Output
from palaver.turn.tool_calls import ToolCalls
from palaver.turn.tool_output import error_output

if TYPE_CHECKING:
    from palaver.swarm.agent import SwarmAgent
    from palaver.swarm.agent_calls import AgentCalls
    from palaver.swarm.turn import Turn


# -- offered ---------------------------------------------------------------------------------------


Report: TypeAlias = Callable[[str, Exception], None]
"""Called with the object that failed, and the error."""


async def offered_tools(agent: SwarmAgent, place: CallContext, report: Report) -> dict[str, SwarmTool]:
    """Return the tools that are offered at a place, by name."""
    tools = list(agent.tools)
    for source in agent.sources:
        try:
            tools += [as_tool(each) for each in await called(source, place)]
        except Exception as error:  # noqa: BLE001 (a source is optional)
            report("a source of tools", error)
    tools += [each for each in agent.middleware_tools if place.session.reads_cut or not _reads_cut(each)]
    if any(tool.available or tool.describe for tool in tools):
        here = await _all_here(place, tools, report)
        return ordered([tool for tool in here if tool is not None])
    return ordered(tools)


def _reads_cut(tool: SwarmTool) -> bool:
    """Return whether a tool reads truncated text, and is useful only when some was truncated."""
    return tool.inner is not None and tool.inner.scope == READING


async def _all_here(place: CallContext, tools: Sequence[SwarmTool], report: Report) -> Sequence[SwarmTool | None]:
    here: list[SwarmTool | None] = list(tools)

    async def ask(at: int) -> None:
        here[at] = await _here(place, tools[at], report)

    async with anyio.create_task_group() as tasks:
        for at, tool in enumerate(tools):
            if tool.available or tool.describe:
                tasks.start_soon(ask, at)
    return here


async def _here(place: CallContext, tool: SwarmTool, report: Report) -> SwarmTool | None:
    """Return a tool as it is offered at a place; ``None`` when it is not."""
    try:
        if tool.available is not None and not await called(tool.available, place):
            return None
        if tool.describe is None:
            return tool
        return tool.replace(definition=await called(tool.describe, place, tool.definition))
    except Exception as error:  # noqa: BLE001 (a tool that cannot say whether it is here is not)
        report(f"the tool {tool.name!r}", error)
        return None


# -- batch -----------------------------------------------------------------------------------------


NOT_RUN: Final = "Not run, since the arguments of another call of the same answer are invalid. Call it again if needed."
"""The result of a call that stood beside an invalid one."""
SKIPPED: Final = "Not run: at most {limit} of the calls of one answer are run, the last ones. Call it again if needed."
"""The result of a call beyond the limit."""

_LETTERS: Final = string.digits + string.ascii_lowercase
_ID_LENGTH: Final = 9


class Planned(Struct, frozen=True):
    """A call that passed every check: its tool, and its arguments as the tool takes them."""

    call: ToolCall
    tool: SwarmTool
    arguments: Any
    planned: PlannedCall


# -- pure ------------------------------------------------------------------------------------------------------------


def call_id() -> str:
    """Return an id for a call: ``call_`` and nine letters."""
    return "call_" + "".join(secrets.choice(_LETTERS) for _ in range(_ID_LENGTH))


def normalised(message: AssistantMessage) -> AssistantMessage:
    """Return an answer whose calls all have an id."""
    if all(call.id for call in client_calls(message)):
        return message
    return message.replace(content=[_named(part) for part in message.content])


def _named(part: Any) -> Any:
    if isinstance(part, ToolCall) and not part.id and not part.provider_executed:
        return structs.replace(part, id=call_id())
    return part


def duplicate(calls: Iterable[ToolCall]) -> str | None:
    """Return an id that two calls share."""
    seen: set[str] = set()
    for call in calls:
        if call.id in seen:
            return call.id
        seen.add(call.id)
    return None


def chosen(calls: Sequence[ToolCall], offered: Mapping[str, SwarmTool], limit: int) -> list[ToolCall]:
    """Return the calls to run: the first that wins over the rest, else the last ``limit`` (K11)."""
    if limit <= 0:
        return []
    first = winner(calls, offered)
    return list(calls[-limit:]) if first is None else [first]


def winner(calls: Sequence[ToolCall], offered: Mapping[str, SwarmTool]) -> ToolCall | None:
    """Return the first call that navigates or commits an action."""
    return next((call for call in calls if call.name in offered and offered[call.name].kind in FIRST), None)


def malformed(message: AssistantMessage, limit: int) -> MalformedToolCall | None:
    """Return a call that could not be parsed, among the last ``limit`` of an answer."""
    made = [
        part
        for part in message.content
        if isinstance(part, MalformedToolCall) or (isinstance(part, ToolCall) and not part.provider_executed)
    ]
    tail = made[-limit:] if limit > 0 else ()
    return next((part for part in tail if isinstance(part, MalformedToolCall)), None)


def returns(name: str | None, offered: Mapping[str, SwarmTool]) -> bool:
    """Return whether a name is that of an offered tool that returns."""
    return name is not None and name in offered and offered[name].returns


def retryable(call: MalformedToolCall, offered: Mapping[str, SwarmTool]) -> bool:
    """Return whether the model can get a result that explains what is wrong with a call, to try again."""
    return bool(call.id) and returns(call.name, offered)


def with_calls(message: AssistantMessage, calls: Sequence[ToolCall]) -> AssistantMessage:
    """Return an answer with these calls and no other calls for us; all other content stays in place."""
    left = {call.id: call for call in calls}
    content: list[Any] = []
    for part in message.content:
        if not isinstance(part, ToolCall) or part.provider_executed:
            content.append(part)
        elif (call := left.pop(part.id, None)) is not None:
            content.append(call)
    return message.replace(content=(*content, *left.values()))


def spoken(place: CallContext, text: str, *tags: str) -> AssistantMessage:
    """Return a message that an agent sends without its model."""
    return AssistantMessage(content=(Text(text),), agent=place.agent, mode="tool", tags=tags)


def with_text(answer: AssistantMessage, text: str) -> AssistantMessage:
    """Return an answer with another text, in place of its first; the original is kept beside it."""
    content: list[Any] = []
    for part in answer.content:
        if not isinstance(part, Text):
            content.append(part)
        elif not any(isinstance(each, Text) for each in content):
            content.append(Text(text))
    if not any(isinstance(each, Text) for each in content):
        content.append(Text(text))
    return answer.replace(content=content, metadata={**answer.metadata, "raw": answer.text})


def ordered(tools: Iterable[SwarmTool]) -> dict[str, SwarmTool]:
    """Return tools by name in the order of the offer: the first of a name, navigation first, one that commits."""
    named: dict[str, SwarmTool] = {}
    for tool in tools:
        named.setdefault(tool.name, tool)
    found: dict[str, SwarmTool] = {}
    commits = False
    for tool in sorted(named.values(), key=lambda each: each.kind != "navigation"):
        if tool.kind == "commit" and commits:
            continue
        commits = commits or tool.kind == "commit"
        found[tool.name] = tool
    return found


def shown(call: ToolCall) -> str:
    """Return a call as text for the reason of a rescue."""
    return f"name={call.name} arguments={excerpt(call.arguments_json, 200)}"


# -- running ---------------------------------------------------------------------------------------------------------


class Batch:
    """The calls of one answer, while they run."""

    def __init__(
        self,
        agent_session: AgentCalls,
        turn: Turn,
        place: CallContext,
        planned: Sequence[Planned],
        *,
        tools: ToolCalls,
        text: str,
    ) -> None:
        """Start without running calls."""
        self._agent_session, self.turn, self._place = agent_session, turn, place
        self._planned, self._tools = tuple(planned), tools
        self.calls = tuple([each.call for each in planned])
        self.text = text
        self._begun: list[tuple[Call, Planned]] = []
        self._release = anyio.Event()
        self._next = anyio.Event()
        self._left = anyio.Event()
        self._open = 0
        self._halted = self._settled = False

    def halt(self) -> None:
        """Start no more tools, and set ``cancelled`` for running ones."""
        self._halted = True
        for call, _ in self._begun:
            call.cancelled.set()
        self._release.set()

    async def released(self, call: Call) -> None:
        """Start the next call after one has committed, and return then."""
        if not self._begun or self._begun[-1][0] is not call:
            return
        if call.is_last:
            await self._settle()
            self._release.set()
        else:
            begun = self._next
            self._release.set()
            await begun.wait()

    async def run(self) -> None:
        """Run the calls, and make sure that the turn continues."""
        session = self._agent_session.session
        try:
            for place, planned in enumerate(self._planned):
                if self._halted:
                    break
                call = Call(self, planned.call, self._place, is_last=place == len(self._planned) - 1)
                self._begun.append((call, planned))
                self._release, before, self._next = anyio.Event(), self._next, anyio.Event()
                self._open += 1
                self.turn.running[call] = planned.tool.name
                session.spawn(self.turn, self._run_one, call, planned, before)
                await self._release.wait()
        finally:
            self._next.set()
        await self._settle()
        while self._open:
            self._left = anyio.Event()
            await self._left.wait()
        await self._go_on()

    async def _settle(self) -> None:
        if not self._settled:
            self._settled = True
            await watched(
                "on_after_tool_calls", self._agent_session.agent.hooks.on_after_tool_calls, self._place, self.calls
            )

    async def _run_one(self, call: Call, planned: Planned, before: anyio.Event) -> None:
        """Run one call; the commit of the call before waits for ``before``."""
        CALL.set(call)
        before.set()
        tool = planned.tool
        try:
            if tool.returns:
                called = await self._tools.called(planned.planned)
                if called.error is not None and not self._reported(call, called.error):
                    return
                if not call.committed:
                    await call.commit_own(called.message, called.records)
                if called.error is not None:
                    return
            else:
                answered = await self._tools.passed_on(planned.planned)
                if isinstance(answered, Output):
                    call.returned = True
                    await call.commit(answered)
            await watched("on_after_call", tool.on_after_call, self._place, planned.call)
        except Exception as error:  # noqa: BLE001 (whatever a tool raises is told, and ends nothing else)
            await self._failed(call, planned, error)
        except anyio.get_cancelled_exc_class():
            if is_cancelled():
                raise
            await self._failed(call, planned, TurnError(STRAY))
        finally:
            if not tool.defers or call.continued:
                self.turn.running.pop(call, None)
            self._open -= 1
            if not tool.defers and self._begun[-1][0] is call:
                self._release.set()
            self._left.set()

    def _reported(self, call: Call, error: Exception) -> bool:
        """Log the exception of a tool; return whether its turn continues."""
        if error is self.turn.error:  # the tool waited for the turn, whose error is known already
            return False
        call.log_error(error)
        return not self.turn.over

    async def _failed(self, call: Call, planned: Planned, error: Exception) -> None:
        turn = self.turn
        if not self._reported(call, error):
            return
        if planned.tool.returns:  # an unrequested cancellation, or the store failed
            try:
                if not call.committed:
                    output = error_output(error)
                    await call.commit_own(result(planned.planned, output.content, is_error=True))
            except Exception as failure:  # noqa: BLE001 (the store failed)
                turn.fail(failure)
            return
        await watched("on_call_error", planned.tool.on_call_error, self._place, planned.call, error)
        await watched("on_tool_error", self._agent_session.agent.hooks.on_tool_error, self._place, planned.call, error)
        self.halt()
        await self._agent_session.rescued(turn, self._place, f"Function call failed with error: {shown(planned.call)}")

    async def _go_on(self) -> None:
        """When all calls are done and none has continued the turn, ask the model again, or fail the turn."""
        turn = self.turn
        if turn.over or any(call.continued for call, _ in self._begun):
            return
        if any(planned.tool.defers for _, planned in self._begun):
            return
        if any(planned.tool.returns or call.returned for call, planned in self._begun):
            await self._agent_session.session.agent_session().go_on(turn)
            return
        if turn.overtaken:
            turn.resolve("")
            return
        name = self._begun[-1][1].tool.name if self._begun else ""
        reason = f"the tool {name!r} returned without execute or emit, so its turn has no answer"
        turn.fail(TurnError(reason, tool=name))
