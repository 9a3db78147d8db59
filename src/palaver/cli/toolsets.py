"""The tools that ``--tools`` names.

Rules:

- ``files`` are the built-in tools for the folder that one is in. ``mcp:URL`` and ``mcp:COMMAND …`` are the tools of an
  MCP server; one that fails is an error, for whoever names it wants it.
- ``FILE.py:name,…`` are functions and ``AgentTool`` values of a Python file, which is run. Without names they are what
  its ``TOOLS`` lists, else its ``AgentTool`` values and the public functions that it defines, in their order.

Stability: experimental.
"""

from __future__ import annotations

import shlex
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from inspect import isfunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from palaver.agent import mcp
from palaver.agent.functions import function_tool
from palaver.agent.tool import AgentTool
from palaver.cli import python_file
from palaver.cli.builtin_tools import file_tools
from palaver.cli.demo_model import demo_tools
from palaver.cli.failure import bad_input

if TYPE_CHECKING:
    from types import ModuleType

_MCP: Final = "mcp:"
_BUILT_IN: Final[dict[str, Callable[[], tuple[AgentTool, ...]]]] = {"files": file_tools, "demo": demo_tools}


@asynccontextmanager
async def toolset(named: Sequence[str]) -> AsyncGenerator[tuple[AgentTool, ...]]:
    """The tools, in order, with their servers running. Raises ``click.ClickException`` naming what is wrong."""
    tools = [tool for name in named if not name.startswith(_MCP) for tool in _local(name)]
    servers = _servers([name.removeprefix(_MCP) for name in named if name.startswith(_MCP)])
    if not servers:
        yield tuple(tools)
        return
    async with mcp.mcp_tools(servers) as theirs:
        failed = [status for status in theirs.statuses.values() if status.state == "failed"]
        if not failed:
            yield (*tools, *theirs)
    if failed:
        bad_input(f"mcp server {failed[0].server}", failed[0].error)


def _servers(named: Iterable[str]) -> dict[str, mcp.McpServer]:
    servers: dict[str, mcp.McpServer] = {}
    for text in named:
        if text.startswith(("http://", "https://")):
            name, server = text.partition("//")[2].partition("/")[0].partition(":")[0], mcp.http(text)
        else:
            try:
                words = shlex.split(text)
            except ValueError as error:
                raise click.UsageError(f"mcp:{text}: {error}") from None
            if not words:
                raise click.UsageError("mcp: names an address, or a command")
            name, server = Path(words[0]).stem, mcp.stdio(*words)
        number = 1
        while (free := name if number == 1 else f"{name}_{number}") in servers:
            number += 1
        servers[free] = server
    return servers


def _local(name: str) -> tuple[AgentTool, ...]:
    if name in _BUILT_IN:
        return _BUILT_IN[name]()
    file, colon, names = name, "", ""
    if not name.endswith(".py"):
        file, colon, names = name.rpartition(":")
    if not file.endswith(".py"):
        known = ", ".join(_BUILT_IN)
        raise click.UsageError(f"--tools {name}: neither FILE.py, FILE.py:name,…, mcp:…, nor one of {known}")
    module = python_file.module(file, "tools")
    chosen = [_attribute(file, module, each) for each in names.split(",")] if colon else _all(module)
    if not chosen:
        bad_input(file, "holds no tools")
    return tuple([each if isinstance(each, AgentTool) else function_tool(each) for each in chosen])


def _attribute(file: str, module: ModuleType, name: str) -> Any:
    found = getattr(module, name.strip(), None)
    if not (isinstance(found, AgentTool) or callable(found)):
        bad_input(file, f"holds no tool {name.strip()!r}")
    return found


def _all(module: ModuleType) -> list[Any]:
    listed = getattr(module, "TOOLS", None)
    if listed is not None:
        return list(listed)
    values = [value for name, value in vars(module).items() if not name.startswith("_")]
    return [
        value
        for value in values
        if isinstance(value, AgentTool) or (isfunction(value) and value.__module__ == module.__name__)
    ]
