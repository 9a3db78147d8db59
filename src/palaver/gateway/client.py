"""The HTTP client of a gateway: aiohttp, whose parser is in C.

httpx, which all other models use, costs 1.7 ms of CPU for a small request over 32 connections, aiohttp 0.1 ms
(docs/adr/0040-the-server-and-the-client-of-the-gateway.md). Providers need nothing that only httpx has: their HTTP/1.1
is enough for one request at a time on a connection.

Rules:

- It is a ``Sender``, and raises what ``Http.send`` raises, with texts that hold no path, no query and no bytes of an
  answer.
- Answers come uncompressed: nothing else is asked for, and anything else is refused.
- Redirects are not followed, and cookies are not kept. A proxy of the environment is used, but not for this machine.
- asyncio only, as the server is.

Stability: experimental.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Self, final

import aiohttp
from yarl import URL

from palaver.core.errors import DecodeError, MessageError, TimedOutError, TransportError, excerpt
from palaver.gateway.http_io import joined
from palaver.models.http import HttpResponse, Sender, checked_url

if TYPE_CHECKING:
    from types import TracebackType

    from palaver.models.endpoint import HttpCall
    from palaver.models.http import Timeouts

_LARGE: Final = 262_144
"""A body of more bytes goes to the socket in pieces, so that one request does not hold up the others."""
_PIECE: Final = 65_536
_IDLE_SECONDS: Final = 30.0
_MAX_HEADER: Final = 65_536
_LOCAL_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_PLAIN: Final = frozenset({"", "identity", "chunked"})


@final
class AiohttpSender(Sender):
    """A pool of connections, open while the gateway runs."""

    def __init__(self) -> None:
        """Open nothing yet."""
        self._local: aiohttp.ClientSession | None = None
        self._remote: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the pool."""
        self._local, self._remote = _session(proxies=False), _session(proxies=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        for session in (self._local, self._remote):
            if session is not None:
                await session.close()
        self._local = self._remote = None

    async def send(self, call: HttpCall, timeouts: Timeouts, /) -> HttpResponse:
        """Send ``call``, and return the response as soon as its headers arrive. Raises as ``Http.send`` does."""
        url = _url(call.url)
        host = url.raw_authority
        session = self._local if url.host in _LOCAL_HOSTS else self._remote
        if session is None:
            raise MessageError("the client of the gateway is not open")
        if not all(map(str.isascii, call.headers.values())):
            raise MessageError(f"{host}: a header cannot be sent (it is not ASCII)")
        length = sum(map(len, call.chunks))
        headers = {**call.headers, "accept-encoding": "identity", "content-length": str(length)}

        async def attempt() -> aiohttp.ClientResponse:
            return await session.request(
                call.method,
                url,
                data=b"".join(call.chunks) if length <= _LARGE else _pieces(call.chunks),
                headers=headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=timeouts.connect),
            )

        with _translated(host):
            response = await _send_once(attempt)
        coded = (response.headers.get(name, "").strip().lower() for name in ("content-encoding", "transfer-encoding"))
        encoding = next((each for each in coded if each not in _PLAIN), None)
        if encoding is not None:
            response.close()
            raise DecodeError(f"the body is compressed with {excerpt(encoding)}, which was not requested", source=host)
        return _AiohttpResponse(response, host)


@lru_cache(maxsize=1024)
def _url(text: str) -> URL:
    """Return a URL that can be connected to. Raises ``MessageError``."""
    return URL(str(checked_url(text)), encoded=True)


_connected: Final = ContextVar("palaver_connected", default=False)
"""Whether the current request has opened a connection."""


class _Connector(aiohttp.TCPConnector):
    """A pool that tells a request whether it has a connection of its own."""

    async def _create_connection(self, *arguments: Any, **named: Any) -> Any:
        _connected.set(True)
        return await super()._create_connection(*arguments, **named)


async def _send_once(attempt: Callable[[], Awaitable[aiohttp.ClientResponse]]) -> aiohttp.ClientResponse:
    """Send a request, again where the server closed a connection that it had kept open (RFC 9110, 9.2.2)."""
    _connected.set(False)
    try:
        return await attempt()
    except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
        if _connected.get():
            raise
    return await attempt()


def _session(*, proxies: bool) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=_Connector(limit=0, keepalive_timeout=_IDLE_SECONDS, ttl_dns_cache=60),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=proxies,
        skip_auto_headers=("User-Agent",),
        max_line_size=_MAX_HEADER,
        max_field_size=_MAX_HEADER,
    )


async def _pieces(chunks: Sequence[bytes]) -> AsyncGenerator[bytes]:
    for chunk in chunks:
        for start in range(0, len(chunk), _PIECE):
            yield chunk[start : start + _PIECE]


@final
class _AiohttpResponse(HttpResponse):
    """An answer that aiohttp reads."""

    def __init__(self, response: aiohttp.ClientResponse, host: str) -> None:
        super().__init__(response.status, joined(response.headers.items()), response.reason or "")
        self._response = response
        self._content = response.content
        self._host = host

    async def _next(self) -> bytes:
        with _translated(self._host):
            return await self._content.readany()

    async def _abort(self) -> None:
        self._response.close()

    async def _release(self) -> None:
        self._response.release()


@contextmanager
def _translated(host: str) -> Generator[None]:
    """Convert the errors of aiohttp to errors of Palaver. Their own texts may quote what came."""
    try:
        yield
    except (aiohttp.ConnectionTimeoutError, aiohttp.SocketTimeoutError) as error:
        raise TimedOutError(f"{host}: timed out while connecting", phase="connect") from error
    except aiohttp.ClientConnectorError as error:
        raise TransportError(f"{host}: {excerpt(error.strerror or 'cannot connect')}") from error
    except (aiohttp.InvalidURL, UnicodeEncodeError, ValueError) as error:
        raise MessageError(f"{host}: the URL or a header cannot be sent ({type(error).__name__})") from None
    except (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError, ConnectionError) as error:
        raise TransportError(f"{host}: the server closed the connection ({type(error).__name__})") from None
    except (aiohttp.ClientError, asyncio.IncompleteReadError, OSError) as error:
        raise TransportError(f"{host}: {_kind(error)}") from None


def _kind(error: Any) -> str:
    return "an answer that is not HTTP" if isinstance(error, aiohttp.ClientResponseError) else type(error).__name__
