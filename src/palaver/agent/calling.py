"""One call of a tool: its time limit, what goes wrong in it, and its result as a message.

Rules:

- A tool that takes longer than its ``timeout`` is cancelled, and the call has a result that says so. Whatever a tool
  raises becomes an error result; cancellation of the run goes through.
- What the model is sent of a result is bounded: text and JSON beyond the limit are cut, with a note, and kept whole
  in a record, from which ``read_result`` reads on. Media are never cut.

Stability: experimental.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal

import anyio
from msgspec import Struct, structs

from palaver.agent import outputs
from palaver.agent.calls import PlannedCall, result
from palaver.agent.limiting import limit
from palaver.agent.middleware import ToolRequest
from palaver.agent.tool import Output
from palaver.core.messages import SystemMessage, ToolMessage
from palaver.threads.view import RECORD

WHOLE: Final = "result"
"""The ``source`` of a record that keeps a whole result."""

_LOGGER: Final = logging.getLogger("palaver.agent")


class Called(Struct, frozen=True):
    """What came of a call."""

    message: ToolMessage
    outcome: Literal["success", "error", "timeout"]
    seconds: float
    records: tuple[SystemMessage, ...] = ()


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
    output, outcome = await run_tool(request, run)
    seconds, characters = time.perf_counter() - began, request.limit
    try:
        return _called(planned, output, outcome, seconds, characters, readable=readable)
    except Exception as error:  # noqa: BLE001 (a hand-made output that cannot be kept)
        return _called(planned, outputs.error_output(error), "error", seconds, characters, readable=readable)


async def run_tool(
    request: ToolRequest, run: Callable[[ToolRequest], Awaitable[Output]]
) -> tuple[Output, Literal["success", "error", "timeout"]]:
    """Run a tool within its time. Raises nothing but cancellation: what goes wrong is the output."""
    tool, output = request.tool, None
    with anyio.move_on_after(tool.timeout) as scope:
        try:
            output = await run(structs.replace(request, deadline=scope.deadline))
        except Exception as error:
            _LOGGER.debug("the tool %r raised", tool.name, exc_info=error)
            output = outputs.error_output(error)
    if scope.cancelled_caught or output is None:
        return outputs.error_output(_late(request)), "timeout"
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
