"""An MCP server, by the official SDK (extra ``mcp``): for tools, for threads of a store, for an agent or a swarm.

Rules:

- ``McpServer(tools=…, store=…, ask=…)`` serves any of the three. ``run_stdio`` speaks over standard input and output,
  ``http_app`` is an ASGI application (streamable HTTP).
- A tool keeps its name, its schema and its result. What a policy would ask for is refused, since nobody is asked here:
  only tools that read run, and those that ``policy`` allows. A tool that the model calls with wrong arguments answers
  with an error that says what is wrong.
- What a tool emits is shown to a client that asks for progress, in order and before the result: a text as it is, any
  other value as JSON. What is no JSON, or a ``Progress`` without numbers, is left out, and a warning goes to the log.
- A store can be searched and read, never changed: ``search_conversations``, ``list_threads``, ``read_thread``, and the
  resource ``palaver://thread/ID``, with its ID percent-encoded. Answers are cut at ``LIMIT`` characters, and say so.
- ``ask`` sends a message to an agent or a swarm. ``conversation`` names the conversation, which goes on with the next
  message; its text is shown as progress while it arrives. A call that waits for an approval is told as such. What went
  wrong in a run that failed is for the log, not for clients.
- A lone surrogate, which the protocol's JSON cannot hold, is sent as U+FFFD.

Sources: https://modelcontextprotocol.io/specification/2025-11-25/server/tools, …/server/resources#error-handling and
…/basic/utilities/progress

Stability: experimental.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any, Final, cast
from urllib.parse import quote, unquote

import anyio

from palaver.agent.agent import is_agent
from palaver.agent.functions import function_tool
from palaver.agent.mcp_session import Progress
from palaver.core import jsontext
from palaver.core.errors import MessageError, MissingPackageError, NotFoundError, PalaverError, ToolError, excerpt
from palaver.core.events import TextDelta
from palaver.core.factories import tool_call, user
from palaver.core.jsontext import sayable
from palaver.core.messages import AssistantMessage, Message
from palaver.core.parts import Audio, Image, Inline, Json, Text
from palaver.serve.ui.client_messages import checked_id
from palaver.serve.ui.shapes import error_text
from palaver.serve.ui.sources import turns_of
from palaver.serve.ui.turns import Ended, UiRequest, shown_json
from palaver.store.memory import MemoryStore
from palaver.store.store import Query, Store, ThreadInfo, to_thread
from palaver.swarm.call import LOGGER
from palaver.threads.ids import uuid7
from palaver.threads.view import RECORD
from palaver.turn.events import MessageAdded, ToolProgress, Watch
from palaver.turn.tool import AgentTool, Output, ToolContext, check_policy, own_exits

if TYPE_CHECKING:
    from mcp.server.session import ServerSession
    from starlette.applications import Starlette

    from palaver.core.parts import ToolCall
    from palaver.turn.tool import Policy
try:
    from mcp import MCPError, types
    from mcp.server import Server, ServerRequestContext
    from mcp.server.stdio import stdio_server
    from mcp.server.transport_security import TransportSecuritySettings
except ImportError as error:
    raise MissingPackageError.of("an MCP server needs the official SDK", "mcp", error) from None

LIMIT: Final = 50_000
"""The most characters of a text that a tool of the store answers with."""
PREFIX: Final = "mcp:"
"""How the threads, and the clients of a swarm, that ``ask`` makes are named: a client reaches no others."""
_SCHEME: Final = "palaver://thread/"
_MOST: Final = 100
_Context = ServerRequestContext[Any, Any]


class McpServer:
    """A server for tools, a store, and an agent or a swarm."""

    def __init__(
        self,
        name: str = "palaver",
        *,
        tools: Sequence[AgentTool | Callable[..., Any]] = (),
        policy: Policy = "ask",
        store: Store | None = None,
        ask: object = None,
        instructions: str = "",
    ) -> None:
        """Describe a server.

        ``name`` is what clients call it. ``tools`` are functions and tools; ``policy`` says which of those that do more
        than read may run: ``"allow"``, or a table by name. ``store`` is searched and read. ``ask`` is an ``Agent`` or a
        started swarm; an agent's conversations are kept in ``store``, else in memory. ``instructions`` tell a client's
        model what the server is for. Raises ``MessageError`` for arguments of another type, and for a server of
        nothing.
        """
        own = [each if isinstance(each, AgentTool) else function_tool(each) for each in tools]
        check_policy(policy, {each.name for each in own})
        self._policy: Policy = policy
        self._store = store
        self._turns = None if ask is None else turns_of(ask, (store or MemoryStore()) if is_agent(ask) else None)
        offered = [*own, *(() if store is None else _store_tools(store)), *(() if ask is None else [self._ask_tool()])]
        if not offered:
            raise MessageError("tools: a server needs tools, a store, or somebody to ask")
        self._tools = {each.name: each for each in offered}
        if len(self._tools) < len(offered):
            names = [each.name for each in offered]
            twice = next(each for each in names if names.count(each) > 1)
            raise MessageError(f"tools: two tools are named {twice!r}")
        self._server: Server[Any] = Server(
            name,
            version=version("palaver"),
            instructions=instructions or None,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=None if store is None else self._list_resources,
            on_list_resource_templates=None if store is None else self._list_templates,
            on_read_resource=None if store is None else self._read_resource,
        )

    async def run_stdio(self) -> None:
        """Serve one client over standard input and output, until its input ends."""
        async with stdio_server() as (reading, writing):
            await self._server.run(reading, writing, self._server.create_initialization_options())

    def http_app(self, *, path: str = "/mcp", hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> Starlette:
        """Return an ASGI application that serves over streamable HTTP.

        ``path`` is where. ``hosts`` are names of the server besides those of this machine (``example.org``, or
        ``example.org:8000``), ``origins`` those of pages that may send requests; any other is refused.
        """
        own = [f"{each}:*" for each in ("127.0.0.1", "localhost", "[::1]")]
        security = TransportSecuritySettings(
            allowed_hosts=[*own, *hosts], allowed_origins=[*(f"http://{each}" for each in own), *origins]
        )
        return self._server.streamable_http_app(streamable_http_path=path, transport_security=security)

    # -- tools -------------------------------------------------------------------------------------------------------

    async def _list_tools(
        self, _context: _Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_listed(each) for each in self._tools.values()])

    async def _call_tool(self, context: _Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = self._tools.get(params.name)
        if tool is None:
            return _error(f"There is no tool {params.name!r}; there are {', '.join(self._tools)}.")
        if not self._may_run(tool):
            return _error(f"{tool.name} does more than read, and nobody can approve it here. The server must allow it.")
        call = tool_call(tool.name, params.arguments or {}, id=uuid7())
        watch = Watch()
        made = ToolContext(
            call=call,
            agent=self._server.name,
            run=call.id,
            thread="",
            path=(),
            values={},
            emit=partial(_emit, watch, call),
            show=lambda _: None,
            idempotency_key=call.id,
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_report, watch, context.session)
            try:
                return await _result(tool, call, made)
            finally:
                watch.close()
        raise AssertionError  # not reached: a task group passes on what is raised in it

    def _may_run(self, tool: AgentTool) -> bool:
        if tool.effect == "read" or tool.name == _ASK:
            return True
        policy: object = self._policy
        if isinstance(policy, Mapping):
            policy = cast("Mapping[str, Any]", policy).get(tool.name, "ask")
        return policy == "allow"

    # -- an agent or a swarm -----------------------------------------------------------------------------------------

    def _ask_tool(self) -> AgentTool:
        async def ask(
            message: Annotated[str, "What to say."],
            context: ToolContext,
            conversation: Annotated[str, "The name of the conversation, which goes on with the next message."] = "mcp",
        ) -> str:
            """Send a message and get the answer."""
            assert self._turns is not None  # noqa: S101 (the tool is offered only then)
            request = UiRequest(id=f"{PREFIX}{checked_id(conversation, 'conversation')}", messages=(user(message),))
            answer, ended = "", Ended(outcome="completed")
            try:
                async with aclosing(self._turns.answer(request)) as events:
                    async for event in events:
                        match event:
                            case TextDelta():
                                context.emit(event.text)
                            case MessageAdded(message=AssistantMessage() as said) if said.text:
                                answer = said.text
                            case Ended():
                                ended = event
                            case _:
                                pass
            except Exception as error:  # noqa: BLE001 (the client gets it as a failed run)
                ended = Ended(outcome="failed", error=error)
            return _answer(ended, answer)

        return function_tool(ask, timeout=None)

    # -- resources ---------------------------------------------------------------------------------------------------

    async def _list_resources(
        self, _context: _Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        assert self._store is not None  # noqa: S101 (the handler is set only then)
        try:
            found = await to_thread(_threads, self._store, _MOST, "")
        except PalaverError as error:
            raise _failed(types.INTERNAL_ERROR, error) from None
        return types.ListResourcesResult(
            resources=[
                types.Resource(
                    uri=f"{_SCHEME}{quote(each.id, safe=':')}",
                    name=sayable(each.title or each.id),
                    mime_type="text/plain",
                )
                for each in found
            ]
        )

    async def _list_templates(
        self, _context: _Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(uri_template=f"{_SCHEME}{{id}}", name="thread", mime_type="text/plain")
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def _read_resource(
        self, context: _Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        assert self._store is not None  # noqa: S101 (the handler is set only then)
        uri = str(params.uri)
        try:
            text = await to_thread(_resource_text, self._store, uri)
        except NotFoundError as error:
            code = _NOT_FOUND if context.protocol_version in _OLD else types.INVALID_PARAMS
            raise _failed(code, error, uri) from None
        except PalaverError as error:
            raise _failed(types.INTERNAL_ERROR, error, uri) from None
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=params.uri, mime_type="text/plain", text=sayable(text))]
        )


_ASK: Final = "ask"
_FAILED: Final = "The run failed."
_NOT_FOUND: Final = -32002
"""The code for a resource that does not exist, in ``_OLD`` versions of the protocol. Later ones have invalid params."""
_OLD: Final = frozenset({"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"})


def _failed(code: int, error: PalaverError, uri: str | None = None) -> MCPError:
    return MCPError(code, sayable(str(error)), None if uri is None else {"uri": uri})


async def _result(tool: AgentTool, call: ToolCall, context: ToolContext) -> types.CallToolResult:
    """Run a tool. Whatever it raises is a result that says so: the server goes on for its other calls."""
    try:
        with anyio.fail_after(tool.timeout), own_exits():
            output = await tool.run(tool.check(call), context)
    except TimeoutError:
        return _error(f"{tool.name} took longer than {tool.timeout:g} seconds. It may have taken effect.")
    except PalaverError as error:
        return _error(str(error))
    except Exception as error:  # noqa: BLE001 (a tool may raise anything; the client's model reads what)
        return _error(f"{type(error).__name__}: {error}")
    return types.CallToolResult(
        content=_blocks(output), structured_content=_structured(output), is_error=output.is_error
    )


# -- progress ----------------------------------------------------------------------------------------------------------


def _emit(watch: Watch, call: ToolCall, value: Any) -> None:
    """Take what a tool shows. A tool may call it from a worker thread, and goes on whatever it shows."""
    if isinstance(value, str):
        watch.put(ToolProgress(agent="", run=call.id, call=call, value=sayable(value)))
    elif isinstance(value, Progress):
        if not _can_be_shown(value):
            LOGGER.warning("not sent to the client: %s", excerpt(repr(value), 120))
            return
        watch.put(ToolProgress(agent="", run=call.id, call=call, value=value))
    elif (written := shown_json(value, "progress")) is not None:
        watch.put(ToolProgress(agent="", run=call.id, call=call, value=jsontext.sayable_json(written.decode())))


def _can_be_shown(value: Progress) -> bool:
    """Return whether the protocol can hold a progress, whose numbers every client reads as floats."""
    numbers: list[object] = [value.progress, 0 if value.total is None else value.total]
    texts: list[object] = ["" if value.message is None else value.message]
    return all(map(_is_number, numbers)) and all(isinstance(each, str) for each in texts)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


async def _report(watch: Watch, session: ServerSession) -> None:
    """Send what a tool shows until it ends. A client that asked for no progress gets none.

    The numbers count what was shown, unless a tool has its own (one of another MCP server).
    """
    shown = 0
    async for event in watch:
        match event:
            case ToolProgress(value=Progress() as own):
                message = None if own.message is None else sayable(own.message)
                await session.report_progress(own.progress, own.total, message)
            case ToolProgress():
                shown += 1
                await session.report_progress(shown, message=event.value)
            case _:
                pass


# -- results -----------------------------------------------------------------------------------------------------------


def _answer(ended: Ended, answer: str) -> str:
    """Return the answer of a turn. Raises ``ToolError`` where there is none."""
    if ended.error is not None:
        raise ToolError(error_text(ended.error, _FAILED))
    if ended.pending:
        names = ", ".join(each.tool for each in ended.pending)
        raise ToolError(f"{answer}\n\nIt waits for an approval of {names}, which cannot be given here.".strip())
    return answer


def _listed(tool: AgentTool) -> types.Tool:
    schema: Any = jsontext.value(jsontext.sayable_json(jsontext.encode(tool.definition.parameters or {}).decode()))
    hints = types.ToolAnnotations(read_only_hint=tool.effect == "read", idempotent_hint=tool.is_repeatable)
    return types.Tool(
        name=tool.name,
        description=sayable(tool.definition.description or "") or None,
        input_schema=schema or {"type": "object"},
        annotations=hints,
    )


def _blocks(output: Output) -> list[Any]:
    return [_block(part) for part in output.content]


def _block(part: Any) -> Any:
    match part:
        case Text():
            return types.TextContent(text=sayable(part.text))
        case Json():
            return types.TextContent(text=jsontext.sayable_json(bytes(part.value_json).decode()))
        case Image(source=Inline(data)):
            return types.ImageContent(data=data, mime_type=part.media_type or "")
        case Audio(source=Inline(data)):
            return types.AudioContent(data=data, mime_type=part.media_type or "")
        case _:
            return types.TextContent(text=f"({type(part).__name__.lower()} that cannot be shown here)")


def _structured(output: Output) -> dict[str, Any] | None:
    if len(output.content) == 1 and isinstance(output.content[0], Json):
        value: Any = jsontext.value(jsontext.sayable_json(bytes(output.content[0].value_json).decode()))
        return cast("dict[str, Any]", value) if isinstance(value, dict) else None
    return None


def _error(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=sayable(text))], is_error=True)


# -- a store -----------------------------------------------------------------------------------------------------------


def _store_tools(store: Store) -> list[AgentTool]:
    async def search_conversations(
        words: Annotated[str, 'All words must occur; "two words" is a phrase, be* the beginning of a word.'],
        limit: Annotated[int, "At most so many messages."] = 20,
    ) -> str:
        """Search the messages of all stored conversations, the newest first."""
        hits = await to_thread(store.search, Query(text=words, limit=max(1, min(limit, _MOST))))
        lines = [f"[{hit.thread}] {hit.entry.message.role}: {' '.join(hit.excerpt.split())}" for hit in hits]
        return _cut("\n".join(lines)) or "No message matches."

    async def list_threads(
        limit: Annotated[int, "At most so many threads."] = 20, tag: Annotated[str, "Only with this tag."] = ""
    ) -> str:
        """List the stored conversations, the last changed first: id, title, number of entries."""
        found = await to_thread(_threads, store, limit, tag)
        return _cut("\n".join(f"{each.id}  {each.title or ''}  ({each.length})" for each in found)) or "None."

    async def read_thread(
        thread: Annotated[str, "The id of the conversation."],
        start: Annotated[int, "The number of the first message, from 0."] = 0,
        count: Annotated[int, "At most so many messages."] = 50,
    ) -> str:
        """Read the messages of a stored conversation."""
        return await to_thread(_thread_text, store, thread, max(0, start), max(1, count))

    return [function_tool(each, effect="read") for each in (search_conversations, list_threads, read_thread)]


def _threads(store: Store, limit: int, tag: str) -> list[ThreadInfo]:
    return list(store.threads(tag=tag or None, limit=max(1, min(limit, _MOST))))


def _resource_text(store: Store, uri: str) -> str:
    """Return a thread as text. Raises ``NotFoundError``."""
    if not uri.startswith(_SCHEME):
        raise NotFoundError(f"there is no resource {uri!r}")
    return _thread_text(store, unquote(uri.removeprefix(_SCHEME)), 0, None)


def _thread_text(store: Store, thread: str, start: int, count: int | None) -> str:
    """Return messages of a thread as text. Raises ``NotFoundError``."""
    messages = [entry.message for entry in store.path(thread) if RECORD not in entry.message.tags]
    chosen = messages[start:] if count is None else messages[start : start + count]
    shown = "\n\n".join(f"{start + place} {each.role}: {_message_text(each)}" for place, each in enumerate(chosen))
    behind = len(messages) - start - len(chosen)
    more = f"\n\n({behind} more messages: start={start + len(chosen)})" if behind > 0 else ""
    return _cut(shown) + more


def _message_text(message: Message) -> str:
    calls = message.tool_calls if isinstance(message, AssistantMessage) else ()
    said = [message.text, *(f"(calls {call.name} {call.arguments_json})" for call in calls)]
    return "\n".join(each for each in said if each) or "(no text)"


def _cut(text: str) -> str:
    if len(text) <= LIMIT:
        return text
    return f"{text[:LIMIT]}\n(cut: {len(text) - LIMIT:,} more characters)"
