"""One tool call: its time limit, its failures, its result as a message, and early reads.

Rules:

- A tool that takes longer than its ``timeout`` is cancelled, and the result says so. An exception of a tool becomes an
  error result; cancellation of the run propagates.
- Text and JSON beyond the limit are cut in the result, with a note, and stored in full in a record for
  ``read_result``. Media are never cut.

Early reads start while their answer is still streaming (KAI-25, D8, D28):

- A call is complete when its part ends, when the next call starts and its own arguments are a JSON object, or when the
  answer ends. If its tool reads and the policy allows it without asking, it runs at once. Writes and calls that need an
  approval wait for the batch.
- The batch takes the result, so a call runs once. The result of a call that the batch does not run (a repeat, the last
  answer of a run, a broken answer) is dropped and nothing of it is in the thread. So a read may run for nothing, and a
  policy that is a function is called twice.
- An early read sees the conversation without its own answer. It ends with its run.
- After a call that cannot be parsed, no later call of that answer starts early.

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
"""The ``source`` of a record with a full result."""

_LOGGER: Final = logging.getLogger("palaver.agent")


class Called(Struct, frozen=True):
    """The outcome of a call."""

    message: ToolMessage
    outcome: Literal["success", "error", "timeout"]
    seconds: float
    records: tuple[SystemMessage, ...] = ()
    error: Exception | None = None
    """What the tool raised, or the reason of a timeout."""


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
    except Exception as error:  # noqa: BLE001 (a hand-made output that cannot be stored)
        raised.append(error)
        called = _called(planned, tool_output.error_output(error), "error", seconds, characters, readable=readable)
    return structs.replace(called, error=raised[-1]) if raised else called


async def run_tool(
    request: ToolRequest,
    run: Callable[[ToolRequest], Awaitable[Output]],
    *,
    raised: Callable[[Exception], None] | None = None,
) -> tuple[Output, Literal["success", "error", "timeout"]]:
    """Run a tool within its time limit. Raises nothing but cancellation: errors are in the output and in ``raised``."""
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
    """The error result of a timeout: whether the tool was started, and whether it ended."""
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
    """Return the record of the full text of a result."""
    return SystemMessage(source=WHOLE, tags=(RECORD,), mode="tool").replace(payload={"call": call, "text": text})


# --- eager ------------------------------------------------------------------------------------------------------------


RunCall: TypeAlias = Callable[[PlannedCall], Awaitable[Called]]
Hears: TypeAlias = Callable[[Event], None]


class _Early:
    """A read that is running. ``called`` is ``None`` at the end if it was not allowed to run."""

    __slots__ = ("call", "called", "done", "error", "scope")

    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self.called: Called | None = None
        self.error: Exception | None = None
        self.done = anyio.Event()
        self.scope = anyio.CancelScope()


@final
class Eager:
    """The early reads of one run. Leaving the async context manager cancels the rest."""

    def __init__(self, toolbox: Toolbox, policy: Policy, run: RunCall) -> None:
        """Start without reads; ``run`` runs a call that is allowed."""
        self._toolbox, self._run = toolbox, run
        self._policy: Policy = policy
        self._early: list[_Early] = []
        self._group: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        """Open the task group."""
        self._group = await anyio.create_task_group().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Cancel the reads that were not taken. An error propagates as it is, not in a group."""
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
        """Return the receiver of an answer's events. Drops the reads of an earlier answer."""
        self.drop()
        return _Answer(self._begin).hear

    def drop(self) -> None:
        """Cancel the reads that were not taken."""
        for early in self._early:
            early.scope.cancel()
        self._early.clear()

    async def take(self, call: ToolCall) -> Called | None:
        """Return the outcome of an early read, ``None`` without one. Raises errors that are not the tool's own."""
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
    """The calls of one streaming answer."""

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
        """End a call. If the end is not ``certain``, a call that cannot be parsed yet stays open."""
        if index not in self._open:
            return
        place, call, pieces = self._open[index]
        part = structs.replace(call, arguments_json="".join((call.arguments_json, *pieces))) if last is None else last
        if isinstance(part, ToolCall):
            part = settled(structs.replace(part, arguments_json=paired(part.arguments_json)))
        if isinstance(part, ToolCall) or certain:
            del self._open[index]
        if not isinstance(part, ToolCall):
            self._over = self._over or certain
        elif not self._over:
            self._begin(part, place)
