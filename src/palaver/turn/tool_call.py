"""One call of a tool: its time limit, its failures, and its result as a message.

Rules:

- A tool that takes longer than its ``timeout`` is cancelled, and the result says so. An exception of a tool becomes an
  error result; cancellation of the run propagates.
- Text and JSON beyond the limit are cut in the result, with a note, and kept whole in a record, from which
  ``read_result`` reads on. Media are never cut.

Reads that begin while the answer that calls them is still arriving (KAI-25, D8, D28):

- A call is complete when its part ends, when the next call begins and its own arguments are a JSON object, or when the
  answer says that it is finished. Then, if its tool reads and the policy allows it without asking, it is run at once.
  Its text is the model's own, byte for byte. What writes, or must be asked, waits for its turn.
- When its turn comes in the round, the result is taken from here: a call is run once. What is answered otherwise (a
  repeat, the last answer of a run, an answer that broke off) is cancelled, or its result is dropped; nothing of it is
  in the thread. So a read may have been run for nothing, and a policy that is a function is asked twice.
- An early read sees the conversation without the answer that calls it. It lives at most as long as its run.
- Where a call cannot be read, no later call of that answer begins early.

Stability: experimental.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias, final

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct, structs

from palaver.core.errors import ToolError
from palaver.core.events import ArgumentsDelta, Event, Finish, PartEnd, PartStart
from palaver.core.jsontext import paired
from palaver.core.messages import SystemMessage, ToolMessage
from palaver.core.parts import AssistantPart, ToolCall, settled
from palaver.threads.view import RECORD
from palaver.turn import tool_output
from palaver.turn.approvals import plan
from palaver.turn.calls import PlannedCall, result
from palaver.turn.middleware import ToolRequest
from palaver.turn.tool import Output, Policy, Toolbox
from palaver.turn.tool_output import limit

if TYPE_CHECKING:
    from types import TracebackType


# --- calling ----------------------------------------------------------------------------------------------------------


WHOLE: Final = "result"
"""The ``source`` of a record that keeps a whole result."""

_LOGGER: Final = logging.getLogger("palaver.agent")


class Called(Struct, frozen=True):
    """What came of a call."""

    message: ToolMessage
    outcome: Literal["success", "error", "timeout"]
    seconds: float
    records: tuple[SystemMessage, ...] = ()
    error: Exception | None = None
    """What the tool raised, or why it had no time left."""


async def call_tool(
    planned: PlannedCall,
    request: ToolRequest,
    run: Callable[[ToolRequest], Awaitable[Output]],
    *,
    readable: bool = False,
) -> Called:
    """Run one call to its end. Raises nothing but cancellation.

    ``readable`` says that ``read_result`` is offered.
    """
    began = time.perf_counter()
    raised: list[Exception] = []
    output, outcome = await run_tool(request, run, raised=raised.append)
    seconds, characters = time.perf_counter() - began, request.limit
    try:
        called = _called(planned, output, outcome, seconds, characters, readable=readable)
    except Exception as error:  # noqa: BLE001 (a hand-made output that cannot be kept)
        raised.append(error)
        called = _called(planned, tool_output.error_output(error), "error", seconds, characters, readable=readable)
    return structs.replace(called, error=raised[-1]) if raised else called


async def run_tool(
    request: ToolRequest,
    run: Callable[[ToolRequest], Awaitable[Output]],
    *,
    raised: Callable[[Exception], None] | None = None,
) -> tuple[Output, Literal["success", "error", "timeout"]]:
    """Run a tool within its time. Raises nothing but cancellation: what goes wrong is the output, and ``raised``."""
    tool, output = request.tool, None
    with anyio.move_on_after(tool.timeout) as scope:
        try:
            output = await run(structs.replace(request, deadline=scope.deadline))
        except Exception as error:
            _LOGGER.debug("the tool %r raised", tool.name, exc_info=error)
            output = tool_output.error_output(error)
            if raised is not None:
                raised(error)
    if scope.cancelled_caught or output is None:
        text = _late(request)
        if raised is not None:
            raised(ToolError(text))
        return tool_output.error_output(text), "timeout"
    return output, "error" if output.is_error else "success"


def _late(request: ToolRequest) -> str:
    """What the model reads about a call whose time is over: whether the tool was started, and came to its end."""
    name, seconds = request.tool.name, request.tool.timeout
    if request.state.finished:
        return f"{name} has run, but its result was not ready after {seconds:g} seconds. It may have taken effect."
    if request.state.started:
        return f"{name} took longer than {seconds:g} seconds and was not waited for. It may have taken effect."
    return f"{name} was not run: it was not started within {seconds:g} seconds."


def _called(
    planned: PlannedCall,
    output: Output,
    outcome: Literal["success", "error", "timeout"],
    seconds: float,
    characters: int | None,
    *,
    readable: bool,
) -> Called:
    content, whole = output.content, output.whole
    metadata: dict[str, Any] = {**planned.metadata, **output.metadata}
    if characters is not None and whole is None:
        limited = limit(content, characters)
        content, whole = limited.with_handle(planned.call.id) if readable else limited.content, limited.whole
    records = () if whole is None else (whole_record(planned.call.id, whole),)
    message = result(planned, content, is_error=output.is_error)
    if metadata:
        message = message.replace(metadata=metadata)
    return Called(message, outcome, seconds, records)


def whole_record(call: str, text: str) -> SystemMessage:
    """The record that keeps the whole text of a result."""
    return SystemMessage(source=WHOLE, tags=(RECORD,), mode="tool").replace(payload={"call": call, "text": text})


# --- eager ------------------------------------------------------------------------------------------------------------


RunCall: TypeAlias = Callable[[PlannedCall], Awaitable[Called]]
Hears: TypeAlias = Callable[[Event], None]


class _Early:
    """One read under way. ``called`` is ``None`` at the end when it was not to be run."""

    __slots__ = ("call", "called", "done", "error", "scope")

    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self.called: Called | None = None
        self.error: Exception | None = None
        self.done = anyio.Event()
        self.scope = anyio.CancelScope()


@final
class Eager:
    """The early reads of one run. An async context manager: at its end none is left."""

    def __init__(self, toolbox: Toolbox, policy: Policy, run: RunCall) -> None:
        """Begin with nothing; ``run`` runs a call that is allowed."""
        self._toolbox, self._run = toolbox, run
        self._policy: Policy = policy
        self._early: list[_Early] = []
        self._group: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        """Begin."""
        self._group = await anyio.create_task_group().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Cancel what nobody took. An error goes on as it is, not in a group."""
        group, self._group = self._group, None
        self._early.clear()
        if group is None:
            return None
        group.cancel_scope.cancel()
        if isinstance(error, Exception):
            await group.__aexit__(None, None, None)
            return None
        return await group.__aexit__(kind, error, trace)

    def hears(self) -> Hears:
        """What is to hear the events of an answer. What is left of an earlier answer is dropped."""
        self.drop()
        return _Answer(self._begin).hear

    def drop(self) -> None:
        """Cancel what nobody took."""
        for early in self._early:
            early.scope.cancel()
        self._early.clear()

    async def take(self, call: ToolCall) -> Called | None:
        """What came of a call that began early; ``None`` for one that did not. Raises what is no tool's own error."""
        early = next((each for each in self._early if _same(each.call, call)), None)
        if early is None:
            return None
        self._early.remove(early)
        await early.done.wait()
        if early.error is not None:
            raise early.error
        return early.called

    def _begin(self, call: ToolCall, index: int) -> None:
        tool = self._toolbox.find(call.name)
        if self._group is not None and tool is not None and tool.effect == "read":
            early = _Early(call)
            self._early.append(early)
            self._group.start_soon(self._read, early, index)

    async def _read(self, early: _Early, index: int) -> None:
        with early.scope:
            try:
                (planned,) = await plan([(index, early.call)], self._toolbox, self._policy)
                if planned.verdict == "run":
                    early.called = await self._run(planned)
            except Exception as error:  # noqa: BLE001 (raised again where the call has its turn)
                early.error = error
            early.done.set()


def _same(one: ToolCall, other: ToolCall) -> bool:
    return (one.id, one.name, one.arguments_json) == (other.id, other.name, other.arguments_json)


@final
class _Answer:
    """The calls of one answer as they arrive."""

    __slots__ = ("_begin", "_index", "_open", "_over")

    def __init__(self, begin: Callable[[ToolCall, int], None]) -> None:
        self._begin = begin
        self._open: dict[int, tuple[int, ToolCall, list[str]]] = {}
        self._index = 0
        self._over = False

    def hear(self, event: Event) -> None:
        if type(event) is ArgumentsDelta:
            if event.index in self._open:
                self._open[event.index][2].append(event.text)
        elif type(event) is PartStart:
            if isinstance(event.part, ToolCall) and not event.part.provider_executed and not event.choice:
                self._end_all(finished=False)
                self._open[event.index] = (self._index, event.part, [])
                self._index += 1
        elif type(event) is PartEnd:
            self._end(event.index, event.part)
        elif type(event) is Finish:
            self._end_all(finished=True)

    def _end_all(self, *, finished: bool) -> None:
        for index, (_, call, pieces) in list(self._open.items()):
            if finished or "".join((call.arguments_json, *pieces)).rstrip().endswith("}"):
                self._end(index, certain=finished)

    def _end(self, index: int, last: AssistantPart | None = None, *, certain: bool = True) -> None:
        """A call is complete, unless it only seems so (not ``certain``) and cannot be read yet."""
        if index not in self._open:
            return
        place, call, pieces = self._open[index]
        said = structs.replace(call, arguments_json="".join((call.arguments_json, *pieces))) if last is None else last
        if isinstance(said, ToolCall):
            said = settled(structs.replace(said, arguments_json=paired(said.arguments_json)))
        if isinstance(said, ToolCall) or certain:
            del self._open[index]
        if not isinstance(said, ToolCall):
            self._over = self._over or certain
        elif not self._over:
            self._begin(said, place)
