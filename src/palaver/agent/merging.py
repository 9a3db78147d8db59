"""Two lists of tools, made one: the later of a name wins (CBF-22).

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from palaver.agent.functions import function_tool
from palaver.agent.tool import AgentTool


def merged(
    tools: Sequence[AgentTool | Callable[..., Any]], more: Sequence[AgentTool | Callable[..., Any]]
) -> tuple[AgentTool, ...]:
    """Tools with others, by name: ``agent.replace(tools=merged(tools, more))``.

    What replaces a tool stands in its place, so that as much as can be of a request stays what it was. Raises as
    ``function_tool`` does.
    """
    by_name: dict[str, AgentTool] = {}
    for each in (*tools, *more):
        tool = each if isinstance(each, AgentTool) else function_tool(each)
        by_name[tool.name] = tool
    return tuple(by_name.values())
