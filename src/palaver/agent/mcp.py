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

What an MCP server answered a call with, as an output (docs/spec/deepagents-swift.md#10, #13: media are kept as parts):

- Text, images and recordings are parts. An embedded resource is its text, under its URI, or its bytes as media; a link
  to a resource is told as text, and never fetched.
- A structured result is one JSON part where the only text says the same, or where there is nothing else. Otherwise the
  model gets what the server wrote for it, and the application finds the structured result in ``metadata``.
- ``isError`` is an error result.

Source: modelcontextprotocol.io/specification, server/tools, “Tool Result”.

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

from palaver.agent.functions import checker
from palaver.agent.mcp_session import Http, McpServer, McpSession, Progress, Stdio, check_installed
from palaver.core import jsontext
from palaver.core.errors import DecodeError, MessageError, PalaverError
from palaver.core.parts import Audio, File, Image, Inline, Json, Text, ToolCall, ToolPart
from palaver.core.tools import Tool
from palaver.turn.tool import TIMEOUT, AgentTool, Output, ToolContext, normalized, read_arguments
from palaver.turn.tool_output import NO_OUTPUT, media_of

if TYPE_CHECKING:
    from mcp.types import CallToolResult, Tool as Listed


# --- mcp results ------------------------------------------------------------------------------------------------------


def output_of_result(result: CallToolResult) -> Output:
    """Make an output of an answer."""
    parts = tuple(_part(block) for block in result.content)
    structured = result.structured_content
    metadata: dict[str, Any] = {}
    if structured is not None:
        value = _json(structured)
        if value is not None and _says_no_more(parts, structured):
            parts = (value,)
        elif value is not None:
            metadata = {"structured_content": structured}
    return Output(content=parts or (Text(NO_OUTPUT),), is_error=result.is_error, metadata=metadata)


def _json(structured: Any) -> Json | None:
    try:
        return Json.of(structured)
    except PalaverError:
        return None


def _says_no_more(parts: tuple[ToolPart, ...], structured: Any) -> bool:
    """Whether the parts say what the structured result says, or nothing."""
    match parts:
        case ():
            return True
        case (Text(text=text),):
            try:
                return bool(jsontext.value(text) == structured)
            except DecodeError:
                return False
        case _:
            return False


def _part(block: Any) -> ToolPart:
    match block.type:
        case "text":
            return Text(block.text)
        case "image":
            return Image(Inline(block.data), block.mime_type)
        case "audio":
            return Audio(Inline(block.data), block.mime_type)
        case "resource":
            return _resource(block.resource)
        case "resource_link":
            return Text(f"[resource: {block.name} ({block.uri})]")
        case kind:
            return Text(f"[{kind}]")


def _resource(resource: Any) -> ToolPart:
    uri = str(resource.uri)
    text = getattr(resource, "text", None)
    if text is not None:
        return Text(f"[resource: {uri}]\n{text}")
    cls = media_of(resource.mime_type)
    if cls is File:
        return File(Inline(resource.blob), resource.mime_type, name=uri.rstrip("/").rpartition("/")[2] or None)
    return cls(Inline(resource.blob), resource.mime_type)


# --- mcp --------------------------------------------------------------------------------------------------------------


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
    ``AgentTool``. A server that fails is told in ``statuses``, never raised. Raises ``MissingPackageError``
    when the SDK is not installed.
    """
    check_installed()
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
