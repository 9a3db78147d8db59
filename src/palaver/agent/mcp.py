"""Tools of MCP servers, by the official SDK (extra ``mcp``), over stdio or streamable HTTP.

Rules (docs/spec/deepagents-swift.md#10, DAS-30):

- A tool is called ``server__tool``, both normalised; one whose name is taken gets ``_2``, ``_3``. The server is sent
  its own name for it, and no field ``arguments`` when there are none. ``scope`` says which server a tool is of.
- The server's schema goes to the model as the server gave it; one that is no schema of an object is an empty one.
- A server that is dead, or does not answer within ``timeout``, does not hurt the others: ``statuses`` says why.
- A session that has died is opened anew, once for a call. The call is sent again only where that does no harm.
- What a server says of its tools (that one only reads) is believed only with ``trust_hints``: it decides what runs
  without being asked.
- When a server says that its tools have changed, ``changed`` is true until ``refresh()``. Nothing changes by itself:
  a list of tools that changes in the middle of a run costs the prompt cache.
- A task of its own holds each session from its beginning to its end, as the SDK demands. So tools may be called from
  any task, and cancelling a call cancels it at the server; only ``async with mcp_tools(…)`` itself must be entered and
  left in one task.

Stability: experimental.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, final, overload

import anyio
from msgspec import Struct

from palaver.agent.arguments import read_arguments
from palaver.agent.mcp_results import output_of_result
from palaver.agent.mcp_session import Http, McpServer, McpSession, Progress, Stdio, installed
from palaver.agent.schemas import checker
from palaver.agent.tool import TIMEOUT, AgentTool, Output, ToolContext
from palaver.agent.tool_names import normalized
from palaver.core import jsontext
from palaver.core.errors import MessageError
from palaver.core.parts import ToolCall
from palaver.core.tools import Tool

if TYPE_CHECKING:
    from mcp.types import Tool as Listed

__all__ = ["McpServer", "McpStatus", "McpTools", "Progress", "http", "mcp_tools", "stdio"]

_LONGEST: Final = 64
"""Characters of a tool's name that every wire takes (docs/spec/wires.md#1.5)."""
_NO_PARAMETERS: Final[dict[str, Any]] = {"type": "object", "properties": {}}


def stdio(
    command: str | os.PathLike[str],
    *args: str | os.PathLike[str],
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
) -> McpServer:
    """A server that is a program: ``stdio("python", "server.py")``. It gets few variables of ours, and ``env``."""
    return Stdio(
        os.fspath(command), tuple(os.fspath(each) for each in args), env, None if cwd is None else os.fspath(cwd)
    )


def http(url: str, *, headers: Mapping[str, str] | None = None) -> McpServer:
    """A server that is reached by streamable HTTP; ``headers`` go with every request."""
    return Http(url, headers or {})


class McpStatus(Struct, frozen=True, kw_only=True):
    """How a server is: ``error`` says why it has failed, ``tools`` how many it has."""

    server: str
    state: Literal["connected", "failed"]
    tools: int = 0
    error: str | None = None


class _Options(Struct, frozen=True, kw_only=True):
    call_timeout: float | None
    limit: int | None
    trust_hints: bool


@final
class McpTools(Sequence[AgentTool]):
    """The tools of all servers that answered, in the order of the servers."""

    def __init__(self, sessions: Sequence[McpSession], options: _Options) -> None:
        """Name the tools."""
        self._sessions = sessions
        self._options = options
        self.tools: tuple[AgentTool, ...] = ()
        self._name()

    def _name(self) -> None:
        taken: set[str] = set()
        self.tools = tuple(
            _tool(
                session, listed, _free(f"{normalized(session.name)}__{normalized(listed.name)}", taken), self._options
            )
            for session in self._sessions
            if session.is_open
            for listed in session.listed
        )

    @property
    def statuses(self) -> Mapping[str, McpStatus]:
        """How each server is, by name."""
        return {each.name: _status(each) for each in self._sessions}

    @property
    def changed(self) -> bool:
        """Whether a server has said that its tools are others now."""
        return any(each.changed for each in self._sessions)

    async def refresh(self) -> None:
        """Ask every server for its tools again, those that had failed too. The tools are new objects then."""
        async with anyio.create_task_group() as asking:
            for session in self._sessions:
                asking.start_soon(session.refresh)
        self._name()

    @overload
    def __getitem__(self, index: int) -> AgentTool: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[AgentTool, ...]: ...
    def __getitem__(self, index: int | slice) -> AgentTool | tuple[AgentTool, ...]:
        return self.tools[index]

    def __iter__(self) -> Iterator[AgentTool]:
        return iter(self.tools)

    def __len__(self) -> int:
        return len(self.tools)


@asynccontextmanager
async def mcp_tools(
    servers: McpServer | Mapping[str, McpServer],
    *,
    name: str = "mcp",
    timeout: float = 10.0,  # noqa: ASYNC109 (of each session)
    call_timeout: float | None = TIMEOUT,
    limit: int | None = None,
    trust_hints: bool = False,
) -> AsyncGenerator[McpTools]:
    """Open sessions with servers, and give their tools: one server called ``name``, or several by their names.

    ``timeout`` (seconds) is for opening a session and for listing, ``call_timeout`` for a call. ``limit`` is that of
    ``AgentTool``. A server that fails is told in ``statuses``, never raised. Raises ``MessageError`` where the SDK is
    not installed.
    """
    installed()
    named = servers if isinstance(servers, Mapping) else {name: servers}
    failure: BaseException | None = None
    async with anyio.create_task_group() as tasks:
        sessions = [McpSession(key, server, tasks, timeout) for key, server in named.items()]
        try:
            async with anyio.create_task_group() as opening:
                for session in sessions:
                    opening.start_soon(session.open)
            options = _Options(call_timeout=call_timeout, limit=limit, trust_hints=trust_hints)
            yield McpTools(sessions, options)
        except Exception as error:  # noqa: BLE001 (raised again below, not inside a group)
            failure = error
        finally:
            for session in sessions:
                session.close()
    if failure is not None:
        raise failure


# -- one tool ----------------------------------------------------------------------------------------------------------


def _status(session: McpSession) -> McpStatus:
    if session.is_open:
        return McpStatus(server=session.name, state="connected", tools=len(session.listed))
    return McpStatus(server=session.name, state="failed", error=session.error or "the session has ended")


def _free(name: str, taken: set[str]) -> str:
    """A name that nobody has, no longer than wires take."""
    free, count = name[:_LONGEST], 1
    while free in taken:
        count += 1
        suffix = f"_{count}"
        free = name[: _LONGEST - len(suffix)] + suffix
    taken.add(free)
    return free


def _tool(session: McpSession, listed: Listed, name: str, options: _Options) -> AgentTool:
    hints = listed.annotations if options.trust_hints else None
    reads = hints is not None and hints.read_only_hint is True
    repeatable = reads or (hints is not None and hints.idempotent_hint is True)
    schema = listed.input_schema if listed.input_schema.get("type") == "object" else _NO_PARAMETERS
    definition = Tool(name, listed.description or listed.title, jsontext.raw(schema))

    async def run(arguments: dict[str, Any], context: ToolContext) -> Output:
        return output_of_result(await session.call(listed.name, arguments, context.emit, repeatable=repeatable))

    return AgentTool(
        definition=definition,
        run=run,
        check=_Check(definition).check,
        effect="read" if reads else "write",
        repeatable=repeatable,
        timeout=options.call_timeout,
        limit=options.limit,
        scope=session.name,
    )


@final
class _Check:
    """The checker of a tool, made at its first call: a server may have hundreds of tools, of which few are called."""

    def __init__(self, definition: Tool) -> None:
        self._definition = definition

    def check(self, call: ToolCall) -> Any:
        return self._checker(call)

    @cached_property
    def _checker(self) -> Any:
        try:
            return checker(jsontext.raw(self._definition.parameters), self._definition.name)
        except MessageError:  # a schema that is none: the server has to judge
            return read_arguments
