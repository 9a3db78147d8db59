"""The tools that an agent of a swarm is offered just now.

Rules:

- A source that fails, and a tool whose ``available`` or ``describe`` raises, is left out, and reported (K12).
- Tools are asked at once, and keep their order.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import anyio

from palaver.swarm.batch import ordered
from palaver.swarm.call import CallContext, called
from palaver.swarm.tool import SwarmTool, as_tool
from palaver.turn.results import READING

if TYPE_CHECKING:
    from palaver.swarm.agent import SwarmAgent

Report: TypeAlias = Callable[[str, Exception], None]
"""Gets what raised, and the error."""


async def offered_tools(agent: SwarmAgent, place: CallContext, report: Report) -> dict[str, SwarmTool]:
    """The tools that are offered at a place, by name."""
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
    """Whether a tool reads what was cut, and is of use only when something was."""
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
    """A tool as it is offered at a place; ``None`` when it is not."""
    try:
        if tool.available is not None and not await called(tool.available, place):
            return None
        if tool.describe is None:
            return tool
        return tool.replace(definition=await called(tool.describe, place, tool.definition))
    except Exception as error:  # noqa: BLE001 (a tool that cannot say whether it is here is not)
        report(f"the tool {tool.name!r}", error)
        return None
