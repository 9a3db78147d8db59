"""One session with an MCP server, held by a task of its own.

Rules:

- The task enters and leaves the SDK's context managers; calls are sent from whatever task makes them.
- A session is over when the server's side of its stream ends. It is then opened anew, once for a call.
- A call is sent a second time only where that cannot do harm: it was not looked at, or may be repeated.
- Opening never raises: what went wrong stands in ``error``, with the last line that the server wrote to its stderr.
- A line on a server's stdout that is no message of the protocol (a greeting, what a ``print`` left) is passed over. The
  first one is a warning in the log ``palaver.agent.mcp``; of a server that does not open, it stands in ``error``.
- A server sends at most ``LIMIT`` bytes in one answer over HTTP, in one event, and in one line over stdio. One that
  sends more ends the session; what was asked meanwhile is a ``ToolError`` that says so. Answers are not compressed.

Stability: experimental.
"""

from __future__ import annotations

import codecs
import importlib
import logging
import os
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from typing import IO, TYPE_CHECKING, Any, Final, Self, TypeAlias, cast, final

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from palaver.agent.json_schema import drop_patterns
from palaver.core.errors import MissingPackageError, ToolError, excerpt
from palaver.stream.frames import LIMIT, LimitedBytes, LimitedLines

_log = logging.getLogger("palaver.agent.mcp")

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult, Tool

    Transport: TypeAlias = AbstractAsyncContextManager[tuple[Any, Any]]

_PAGES: Final = 100
"""A list of tools that has more pages than this never ends."""
_LAST: Final = 8000
"""How many bytes of the end of a server's stderr are read for its last line."""
_SENT_TOO_MUCH: Final = "SSE stream failed"
"""What the SDK says when a stream of events passes a limit."""
_LINES: Final = "palaver_mcp_lines"
"""The encoding of lines over stdio: UTF-8, in lines of at most ``LIMIT`` bytes."""
_NO_MESSAGE: Final = "Failed to parse JSONRPC message from server"
"""What the SDK logs, with a traceback, for a line that is no message."""
_TERMINATED: Final = "Session terminated"
"""What the SDK says when a server does not know the session any more (404): the call was not looked at."""


class Stdio(Struct, frozen=True):
    """A server that is a program of this machine. ``env`` comes on top of the few variables that the SDK passes on."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] | None = None
    cwd: str | None = None

    def __repr__(self) -> str:
        """The command; the environment holds keys."""
        return f"Stdio({' '.join((self.command, *self.args))!r})"


class Http(Struct, frozen=True):
    """A server that is reached by streamable HTTP. ``headers`` go with every request."""

    url: str
    headers: Mapping[str, str] = {}

    def __repr__(self) -> str:
        """The URL; headers hold keys."""
        return f"Http({self.url!r})"


McpServer: TypeAlias = Stdio | Http


class Progress(Struct, frozen=True):
    """How far a server says that it is; given to ``ctx.emit``."""

    progress: float
    total: float | None = None
    message: str | None = None


@final
class McpSession:
    """A session that is opened, dies, and is opened again. ``listed`` are the server's own definitions of its tools."""

    def __init__(self, name: str, server: McpServer, tasks: TaskGroup, timeout: float) -> None:
        """Hold what is needed to open it; ``timeout`` is in seconds, for opening and for listing."""
        self.name = name
        self.listed: tuple[Tool, ...] = ()
        self.error: str | None = "not opened"
        self.changed = False
        self._server = server
        self._tasks = tasks
        self._timeout = timeout
        self._lock = anyio.Lock()
        self._client: Client | None = None
        self._over = anyio.Event()
        self._refused: str | None = None
        self._noise: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is a session, as far as one can know without asking."""
        return self._client is not None and not self._over.is_set()

    # -- opening and closing -------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open it, and list the tools; after ``timeout`` it is given up."""
        ready, scope = anyio.Event(), anyio.CancelScope()
        self._client, self._over, self.error, self._refused, self._noise = None, anyio.Event(), None, None, None
        self._tasks.start_soon(self._hold, ready, self._over, scope)
        with anyio.move_on_after(self._timeout):
            await ready.wait()
        if not ready.is_set():
            self.error = self._with_noise(f"no answer within {self._timeout:g} s")
            scope.cancel()

    def close(self) -> None:
        """End it. The task that holds it sees to the rest."""
        self._over.set()

    async def _hold(self, ready: anyio.Event, over: anyio.Event, scope: anyio.CancelScope) -> None:
        from mcp import Client  # noqa: PLC0415 (an extra)

        with tempfile.TemporaryFile() as log, scope:
            error = "the session has ended"

            def exceeded(reason: str) -> None:
                self.error = self._refused = f"the server sent {reason}"
                over.set()
                if not ready.is_set():  # nobody waits for the end yet
                    ready.set()
                    scope.cancel()

            def pass_over(failure: Exception) -> None:
                if self._noise is None:
                    self._noise = f"it printed a line that is no message: {excerpt(_line(failure), 100)!r}"
                    if ready.is_set():
                        _log.warning("MCP server %s: %s", self.name, self._noise)

            _EXCEEDED.set(exceeded)
            try:
                transport = cast("Any", _ending(_transport(self._server, log, self._timeout), over, pass_over))
                async with Client(transport, message_handler=self._heard, cache=None) as client:
                    self.listed = await _listed(client)
                    self._client, self.changed = client, False
                    ready.set()
                    if self._noise is not None:
                        _log.warning("MCP server %s: %s", self.name, self._noise)
                    await self._until(over, client)
            except Exception as failure:  # noqa: BLE001 (whatever a transport raises is the state of the server)
                error = self._refused or self._with_noise(_told(failure, log))
            if self._over is over:  # nobody has opened another one meanwhile
                self.error = self.error or error
            over.set()
            ready.set()

    def _with_noise(self, error: str) -> str:
        """An error of opening, with the line that may be the cause of it."""
        return error if self._noise is None else f"{error}; {self._noise}"

    async def _until(self, over: anyio.Event, client: Client) -> None:
        """Wait for the end; servers of 2026-07-28 say only to who listens that their tools have changed."""
        tools = client.server_capabilities.tools
        async with anyio.create_task_group() as listening:
            if client.session.discover_result is not None and tools is not None and tools.list_changed:
                listening.start_soon(_listen, client)
            await over.wait()
            listening.cancel_scope.cancel()

    async def _heard(self, message: object) -> None:
        if getattr(message, "method", None) == "notifications/tools/list_changed":
            self.changed = True

    # -- asking --------------------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """List the tools again; a session that is over is opened anew."""
        async with self._lock:
            client = self._client
            if client is None or self._over.is_set():
                await self.open()
                return
            try:
                with anyio.fail_after(self._timeout):
                    self.listed, self.changed = await _listed(client), False
            except Exception as error:  # noqa: BLE001 (whatever a transport raises is the state of the server)
                self.error = _told(error)
                self.close()

    async def call(
        self, tool: str, arguments: dict[str, Any], emit: Callable[[Any], None], *, repeatable: bool
    ) -> CallToolResult:
        """Call a tool by the server's own name. Raises ``ToolError``."""
        from mcp import MCPError  # noqa: PLC0415 (an extra)
        from mcp.types import CONNECTION_CLOSED  # noqa: PLC0415

        async def report(progress: float, total: float | None, message: str | None) -> None:
            emit(Progress(progress, total, message))

        client = await self._opened(None)
        for again in (repeatable, False):
            try:
                return await client.call_tool(tool, arguments or None, progress_callback=report)
            except MCPError as error:
                if self._refused is not None or error.message.startswith(_SENT_TOO_MUCH):
                    reason = self._refused or excerpt(error.message, 200)
                    raise ToolError(f"The connection to the MCP server {self.name!r} was closed: {reason}.") from None
                rejected = error.message == _TERMINATED
                if error.code != CONNECTION_CLOSED and not rejected:
                    raise ToolError(error.message or "the server answered with an error") from None
                if not again and not rejected:
                    break
            except RuntimeError as error:  # a structured result that does not fit the server's own schema
                raise ToolError(excerpt(str(error), 300)) from None
            client = await self._opened(client)
        raise ToolError(f"The MCP server {self.name!r} disconnected during the call. The call may have taken effect.")

    async def _opened(self, dead: Client | None) -> Client:
        """The client of a session that is not over, and is not ``dead``."""
        async with self._lock:
            if self._client is None or self._client is dead or self._over.is_set():
                self.close()
                await self.open()
            if self._client is None or self._over.is_set():
                raise ToolError(f"The MCP server {self.name!r} is not available: {self.error}.")
            return self._client


async def _listed(client: Client) -> tuple[Tool, ...]:
    tools: list[Tool] = []
    cursor: str | None = None
    for _ in range(_PAGES):
        page = await client.list_tools(cursor=cursor)
        for each in page.tools:
            drop_patterns(each.output_schema)  # the SDK checks results by them, with a matcher that backtracks
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    return tuple(tools)


async def _listen(client: Client) -> None:
    """Keep a subscription open; what comes is heard as a notification."""
    from mcp import MCPError  # noqa: PLC0415 (an extra)

    try:
        async with client.listen(tools_list_changed=True) as events:
            async for _ in events:
                pass
    except (MCPError, RuntimeError, TimeoutError):  # refused, or lost: then nobody says so, and refresh() still works
        return


def _told(error: BaseException, log: IO[bytes] | None = None) -> str:
    """One sentence: the innermost error, and what the server said last."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseException", error.exceptions[0])
    text = excerpt(str(error) or type(error).__name__, 200)
    if log is None:
        return text
    log.seek(max(0, log.seek(0, os.SEEK_END) - _LAST))  # a server may have written gigabytes
    written = log.read(_LAST).decode(errors="replace")
    *_, last = ["", *(line for line in written.splitlines() if line.strip())]
    return f"{text} ({excerpt(last.strip(), 200)})" if last else text


# -- transports --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _transport(server: McpServer, log: IO[bytes], connect: float) -> AsyncGenerator[tuple[Any, Any]]:
    match server:
        case Stdio():
            from mcp import StdioServerParameters, stdio_client  # noqa: PLC0415 (an extra)

            env = None if server.env is None else dict(server.env)
            told = StdioServerParameters(
                command=server.command,
                args=list(server.args),
                env=env,
                cwd=server.cwd,
                encoding=_LINES,
                encoding_error_handler="replace",  # a line of other bytes is no message, and ends nothing
            )
            logging.getLogger("mcp.client.stdio").addFilter(_is_news)
            async with stdio_client(told, errlog=cast("Any", log)) as streams:
                yield streams
        case Http():
            import httpx2  # noqa: PLC0415 (what the SDK speaks HTTP with)
            from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415

            limits = httpx2.Timeout(connect, read=None)  # how long a call may take is for the loop to say
            headers = {"accept-encoding": "identity", **server.headers}
            async with (
                httpx2.AsyncClient(headers=headers, timeout=limits, event_hooks={"response": [_limit]}) as client,
                streamable_http_client(server.url, http_client=client, max_sse_event_size=LIMIT) as streams,
            ):
                yield streams


async def _limit(response: Any) -> None:
    """Bound an answer of a server over HTTP, before any of it is read."""
    import httpx2  # noqa: PLC0415 (what the SDK speaks HTTP with)

    class Stream(LimitedBytes, httpx2.AsyncByteStream):
        pass

    events = response.headers.get("content-type", "").startswith("text/event-stream")
    if events and response.request.method == "GET":
        return  # it stays open for as long as the session; its events are bounded
    packed = response.headers.get("content-encoding", "identity").strip().lower() not in {"", "identity"}
    kind = httpx2.SSEError if events else httpx2.StreamError

    def error(reason: str) -> Exception:
        return kind("a compressed answer, which was not requested" if packed else reason)

    response.stream = Stream(response.stream, 0 if packed else LIMIT, error)


def _codec(name: str) -> codecs.CodecInfo | None:
    if name != _LINES:
        return None

    def decoder(errors: str = "strict") -> LimitedLines:
        return LimitedLines(errors, LIMIT, _EXCEEDED.get())

    return codecs.CodecInfo(
        codecs.utf_8_encode, codecs.utf_8_decode, incrementaldecoder=cast("Any", decoder), name=_LINES
    )


_EXCEEDED: Final[ContextVar[Callable[[str], None]]] = ContextVar("palaver.agent.mcp.exceeded")
"""What the session of the running task does when a line is too long: the SDK makes the decoder, by its name."""
codecs.register(_codec)


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a record of the SDK says what a session of this module does not say itself."""
    return record.msg != _NO_MESSAGE or _EXCEEDED.get(None) is None


def _line(failure: Exception) -> str:
    """The line that the SDK could not read: pydantic's error has it."""
    errors: Callable[[], list[dict[str, Any]]] | None = getattr(failure, "errors", None)
    found: object = errors()[0].get("input") if errors is not None else None
    return str(failure) if found is None else str(found)


@asynccontextmanager
async def _ending(
    transport: Transport, over: anyio.Event, pass_over: Callable[[Exception], None]
) -> AsyncGenerator[tuple[Any, Any]]:
    """The transport, with an event that is set when the server's side of it ends, and what is no message."""
    async with transport as (read, write):
        yield _Watched(read, over, pass_over), write


@final
class _Watched:
    """A stream of messages that says when it has ended, and what in it is none."""

    def __init__(self, stream: Any, over: anyio.Event, pass_over: Callable[[Exception], None]) -> None:
        self._stream = stream
        self._over = over
        self._pass_over = pass_over

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def receive(self) -> Any:
        try:
            received = await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self._over.set()
            raise
        if isinstance(received, Exception):
            self._pass_over(received)
        return received

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stream.__aexit__(*error)


def check_installed() -> None:
    """Raise ``MissingPackageError`` when the SDK is not installed."""
    try:
        importlib.import_module("mcp")
    except ImportError as error:
        raise MissingPackageError.of("MCP servers need the official SDK", "mcp", error) from None
