"""HTTP: connection pools, the requests to a provider, their retries and refusals. httpx is imported on first use.

Rules:

- Models share one pool per event loop, which closes with the loop. ``async with Http()`` opens a pool of your own.
- HTTP/2 where the server offers it. A body is sent in the chunks in which it was cached, with its length.
- Leaving an answer early, or cancellation, closes its connection at once; over HTTP/2 only the stream is reset.
- httpx errors become ``TransportError`` or ``TimedOutError``. Their text names the host, never the path, the query or
  bytes that were received, since these may hold a key. Nothing of a body is logged (D33).
- Compressed bodies are accepted in ``_ENCODINGS``, once: this bounds the expansion.
- Credentials are read for each attempt, and their values join ``secrets`` before an error can show them.
- ``with_retries`` is the only loop that retries, by the model's ``Retry``. ``raise_error`` turns a refusal into its
  error class (``failures``) and waits a few seconds for the body.

Stability: experimental.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, Self, TypeVar, final

import anyio
from anyio.lowlevel import RunVar
from msgspec import Struct, structs

from palaver.core.errors import DecodeError, MessageError, PalaverError, TimedOutError, TransportError, excerpt
from palaver.core.type_checks import check_arguments
from palaver.models.endpoint import HttpCall
from palaver.models.failures import BODY, failure
from palaver.models.language_model import Notice, OnNotice
from palaver.models.redaction import secrets_of, shown_url

if TYPE_CHECKING:
    from types import TracebackType

    import httpx

    from palaver.models.http_model import Model


# --- http -------------------------------------------------------------------------------------------------------------


_PIECE: Final = 262_144
"""Cached chunks are joined up to this many bytes before they go to the socket."""
_IDLE_CONNECTIONS: Final = 100
_KEEPALIVE_SECONDS: Final = 60.0
_ACCEPT_ENCODING: Final = "gzip, deflate"
_ENCODINGS: Final = frozenset({"", "identity", "gzip", "deflate"})
"""Accepted encodings: a piece of these may grow a thousand times, one of brotli or zstd a hundred thousand times."""
_HEADER_LOGS: Final = ("hpack", "httpcore")
"""Loggers that write headers and invalid HTTP of answers at DEBUG: a server may echo a key there."""
_LOCAL_HOSTS: Final = ("all://127.0.0.1", "all://localhost", "all://[::1]")
"""Hosts on this machine, which are not asked through a proxy."""
_RESET: Final = b"\x00\x00\x04\x03\x00"
"""A frame of four bytes, of type RST_STREAM, without flags."""
_CANCEL: Final = 8
_MAX_PORT: Final = 65_535


class Timeouts(Struct, frozen=True, kw_only=True):
    """How long each step may take, in seconds.

    ``connect`` and ``write`` are for the connection and for each piece of the body. ``first_token`` counts from sending
    to the first event with content, and is long for models that reason in silence. ``idle`` counts from one event to
    the next after that; comments and pings that only keep a connection open count for neither. ``whole`` is for an
    answer that is not streamed, from sending to its end.
    """

    connect: float = 10.0
    write: float = 60.0
    first_token: float = 300.0
    idle: float = 60.0
    whole: float = 600.0

    def __post_init__(self) -> None:
        """Refuse values of another type, and those that are not positive. Raises ``MessageError``."""
        given = structs.asdict(self)
        check_arguments("Timeouts", Timeouts, given)
        for name, seconds in given.items():
            if not seconds > 0:
                raise MessageError(f"Timeouts: {name}: {seconds} is not a positive number of seconds")


class Sender(Protocol):
    """Sends the requests of a model: an ``Http``, or a wrapper that records or answers them."""

    @abstractmethod
    async def send(self, call: HttpCall, timeouts: Timeouts, /) -> HttpResponse:
        """Send ``call`` within ``timeouts``, and return the response as soon as its headers arrive.

        Raises as ``Http.send`` does.
        """
        ...


@final
class Http(Sender):
    """A pool of connections: ``async with Http() as http: Model(..., http=http)``.

    ``client`` is your own client of httpx, with its proxies and certificates; you close it. ``http2`` allows HTTP/2 in
    the pool that is made when no client is given.
    """

    def __init__(self, client: httpx.AsyncClient | None = None, *, http2: bool = True) -> None:
        """Keep the settings; nothing is opened yet. Raises ``MessageError`` for arguments of another type."""
        check_arguments("Http", Http.__init__, locals())
        self._given = client
        self._client = client
        self._http2 = http2

    async def __aenter__(self) -> Http:
        """Open the pool."""
        if self._client is None:
            self._client = _client(http2=self._http2)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the pool and its open connections; your own client stays open."""
        client, self._client = self._client, self._given
        if client is not None and self._given is None:
            with anyio.CancelScope(shield=True):
                await client.aclose()

    async def send(self, call: HttpCall, timeouts: Timeouts, /) -> HttpResponse:
        """Send ``call``, and return the response as soon as its headers arrive. The caller closes it.

        Of ``timeouts``, ``connect`` and ``write`` apply here; the caller limits the reading. Raises ``TransportError``,
        and ``MessageError`` when the pool is not open, or for an invalid URL.
        """
        if self._client is None:
            raise MessageError("Http is not open; use it in an async with block")
        return await _send(self._client, call, timeouts)


async def send(http: Sender | None, call: HttpCall, timeouts: Timeouts) -> HttpResponse:
    """Send a request through ``http``, or through the pool that all models of this event loop share."""
    return await (http if http is not None else await _shared_pool()).send(call, timeouts)


class HttpResponse:
    """An answer of a server, whose body is arriving. Each client library has a subclass.

    ``tap`` is called with each chunk as it is returned, ``b""`` at the end, and ``None`` when it breaks off.
    """

    def __init__(self, status: int, headers: Mapping[str, str], reason: str) -> None:
        """Begin to read. The names of ``headers`` are in lower case."""
        self._over = False
        self.tap: Callable[[bytes | None], None] | None = None
        self.status = status
        self.headers = headers
        self.reason = reason

    @abstractmethod
    async def _next(self) -> bytes:
        """Return the next bytes; ``b""`` at the end. Raises ``TransportError``, and ``DecodeError`` for bad gzip."""
        raise NotImplementedError

    @abstractmethod
    async def _abort(self) -> None:
        """Give up an answer that is not over."""
        raise NotImplementedError

    @abstractmethod
    async def _release(self) -> None:
        """Let the connection go."""
        raise NotImplementedError

    async def chunk(self) -> bytes:
        """Return the next bytes; ``b""`` at the end. Raises ``TransportError``, and ``DecodeError`` for bad gzip."""
        if self._over:
            return b""
        try:
            data = await self._next()
        except PalaverError:
            self._call_tap(None)
            raise
        self._over = not data
        self._call_tap(data)
        return data

    def _call_tap(self, data: bytes | None) -> None:
        if self.tap is not None:
            self.tap(data)

    async def read(self, limit: int) -> tuple[bytes, bool]:
        """Return the rest, at most about ``limit`` bytes of it, and whether that is all. Raises as ``chunk`` does."""
        held, size = list[bytes](), 0
        while size < limit:
            data = await self.chunk()
            if not data:
                return b"".join(held), True
            held.append(data)
            size += len(data)
        return b"".join(held), False

    async def aclose(self, *, grace: float = 0.0) -> None:
        """Release the connection: to the pool when the answer is over, else close it. Always completes.

        ``grace`` is for an answer whose end mark has come: the seconds in which its body, too, should end.
        """
        if grace:
            with anyio.move_on_after(grace, shield=True), suppress(PalaverError):
                await self.read(_PIECE)
        if not self._over:
            self._over = True
            await self._abort()
        await self._release()


@final
class _HttpxResponse(HttpResponse):
    """An answer that httpx reads."""

    def __init__(self, response: httpx.Response, host: str) -> None:
        """Wrap the response, which this then closes."""
        headers = {name.lower(): text for name, text in response.headers.items()}
        super().__init__(response.status_code, headers, response.reason_phrase)
        self._response = response
        self._host = host
        self._chunks = aiter(response.aiter_bytes())

    async def _next(self) -> bytes:
        with _translate_errors(self._host):
            async for data in self._chunks:
                if data:
                    return data
        return b""

    async def _abort(self) -> None:
        await self._reset()
        with anyio.CancelScope(shield=True) as scope:
            # What is being read is cancelled there, so that every generator down to the socket is closed in order.
            scope.cancel()
            with suppress(Exception):  # nobody waits for this answer any more
                async for _ in self._chunks:
                    pass

    async def _release(self) -> None:
        with anyio.CancelScope(shield=True):
            await self._response.aclose()

    async def _reset(self) -> None:
        """Reset the stream of an HTTP/2 server; httpx does not (RFC 9113, 6.4)."""
        extensions = self._response.extensions
        stream, number = extensions.get("network_stream"), extensions.get("stream_id")
        lock = _write_lock(self._response)
        if stream is None or number is None or lock is None:
            return
        frame = _RESET + number.to_bytes(4, "big") + _CANCEL.to_bytes(4, "big")
        with anyio.move_on_after(1, shield=True), suppress(Exception):  # gone, or busy: the server finds out later
            async with lock:  # two that write at once break the connection, and with it the answers of others
                await stream.write(frame)


def _write_lock(response: httpx.Response) -> Any:
    """Return the lock under which httpx writes to an HTTP/2 connection, if it is found; there is no public access."""
    held: Any = response.stream
    for name in ("_stream", "_httpcore_stream", "_stream", "_connection", "_write_lock"):
        held = getattr(held, name, None)
    return held


def checked_url(text: str) -> httpx.URL:
    """Return a URL that can be connected to. Raises ``MessageError``."""
    import httpx  # noqa: PLC0415 (as below)

    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise MessageError(f"not a valid URL: {error}") from None
    if (url.port or 0) > _MAX_PORT:
        raise MessageError(f"not a valid URL: port {url.port} is beyond {_MAX_PORT}")
    return url


async def _send(client: httpx.AsyncClient, call: HttpCall, timeouts: Timeouts) -> HttpResponse:
    import httpx  # noqa: PLC0415 (a third of the time that `import palaver` may take)

    url = checked_url(call.url)
    _quiet_loggers()
    host = url.netloc.decode("ascii", "replace")
    length = sum(map(len, call.chunks))
    timeout = httpx.Timeout(None, connect=timeouts.connect, write=timeouts.write)
    with _translate_errors(host):
        request = client.build_request(
            call.method,
            url,
            headers={"accept-encoding": _ACCEPT_ENCODING, **call.headers, "content-length": str(length)},
            timeout=timeout,
        )
        body = _body()(call.chunks)
        sent = httpx.Request(
            request.method, request.url, headers=request.headers, stream=body, extensions=request.extensions
        )
        response = await client.send(sent, stream=True, follow_redirects=False)
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in _ENCODINGS:
        with anyio.CancelScope(shield=True):
            await response.aclose()
        many = "several times over" if "," in encoding else f"with {excerpt(encoding)}, which was not requested"
        raise DecodeError(f"the body is compressed {many}", source=host)
    return _HttpxResponse(response, host)


def _pieces(chunks: Sequence[bytes]) -> Iterator[bytes]:
    """The chunks, small ones gathered."""
    held, size = list[bytes](), 0
    for chunk in chunks:
        held.append(chunk)
        size += len(chunk)
        if size >= _PIECE:
            yield b"".join(held) if len(held) > 1 else held[0]
            held, size = [], 0
    if held:
        yield b"".join(held)


@cache
def _body() -> Callable[[Sequence[bytes]], httpx.AsyncByteStream]:
    """Return a class for bodies that can be abandoned anywhere: httpx's own are generators, which must be closed."""
    import httpx  # noqa: PLC0415 (it is loaded by now)

    class Body(httpx.AsyncByteStream):
        def __init__(self, chunks: Sequence[bytes]) -> None:
            self._chunks = chunks

        def __aiter__(self) -> AsyncIterator[bytes]:
            return _BodyIterator(_pieces(self._chunks))

    return Body


class _BodyIterator:
    """A body on its way."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        for piece in self._pieces:
            return piece
        raise StopAsyncIteration


@contextmanager
def _translate_errors(host: str) -> Generator[None]:
    """Convert the errors of httpx to errors of Palaver."""
    import httpx  # noqa: PLC0415 (it is loaded by now)

    try:
        yield
    except httpx.ConnectTimeout as error:
        raise TimedOutError(f"{host}: timed out while connecting", phase="connect") from error
    except httpx.WriteTimeout as error:
        raise TimedOutError(f"{host}: timed out while sending the request", phase="write") from error
    except (httpx.UnsupportedProtocol, httpx.LocalProtocolError, UnicodeEncodeError) as error:
        # Their texts quote headers, and with them keys.
        if isinstance(error, httpx.LocalProtocolError) and "llegal" not in str(error):
            raise TransportError(f"{host}: the connection accepts no more requests") from None
        raise MessageError(f"{host}: the URL or a header cannot be sent ({type(error).__name__})") from None
    except httpx.RemoteProtocolError as error:
        # Its text quotes what came, and a server may answer with what it was sent.
        raise TransportError(f"{host}: {_safe_reason(str(error))}") from None
    except httpx.TransportError as error:
        raise TransportError(f"{host}: {_error_text(error)}") from error
    except httpx.DecodingError as error:
        raise DecodeError(f"the body does not match its Content-Encoding: {_error_text(error)}", source=host) from error


def _safe_reason(text: str) -> str:
    return "the server closed the connection" if text[:1] in ("", "<") else excerpt(text.partition(":")[0])


def _error_text(error: Exception) -> str:
    return excerpt(str(error)) or type(error).__name__


@cache
def _quiet_loggers() -> None:
    for name in _HEADER_LOGS:
        if (logger := logging.getLogger(name)).level == logging.NOTSET:
            logger.setLevel(logging.INFO)
    logging.getLogger("httpx").addFilter(_redact_record)


def _redact_record(record: logging.LogRecord) -> bool:
    """Mask keys in the log records of httpx: they are in the query, or return in the reason."""
    match record.args:
        case (method, url, version, status, _):
            record.args = (method, shown_url(str(url)), version, status, "")
        case _:
            pass
    return True


def _client(*, http2: bool) -> httpx.AsyncClient:
    import httpx  # noqa: PLC0415 (as above)

    limits = httpx.Limits(
        max_connections=None, max_keepalive_connections=_IDLE_CONNECTIONS, keepalive_expiry=_KEEPALIVE_SECONDS
    )
    try:
        return httpx.AsyncClient(http2=http2, limits=limits, mounts=dict.fromkeys(_LOCAL_HOSTS))
    except (ValueError, ImportError, OSError, httpx.InvalidURL) as error:
        # Their texts quote the address of the proxy, and with it a password.
        said = f"{type(error).__name__}; look at HTTPS_PROXY, ALL_PROXY, SSL_CERT_FILE"
        raise MessageError(f"the proxy or certificate settings of the environment are invalid: {said}") from None


_pool: Final[RunVar[tuple[Http, AsyncGenerator[Http, None]]]] = RunVar("palaver_http")


async def _shared_pool() -> Http:
    """The pool of this event loop."""
    held = _pool.get(None)
    if held is None:
        keeper = _open_pool()
        held = (await anext(keeper), keeper)
        _pool.set(held)
    return held[0]


async def _open_pool() -> AsyncGenerator[Http, None]:
    async with Http() as http:
        yield http


# --- sending ----------------------------------------------------------------------------------------------------------


_ERROR_BODY_SECONDS: Final = 5.0
"""The most seconds to wait for the body of an error."""

T = TypeVar("T")


async def build_call(
    model: Model, url: str, chunks: Sequence[bytes], *, secrets: list[str], headers: Mapping[str, str] = {}
) -> HttpCall:
    """Make a request to a model's endpoint. Its secrets are added to ``secrets``, even when this raises."""
    known = model.endpoint.headers
    sent = {"content-type": "application/json", **{name.lower(): text for name, text in known.items()}, **headers}
    call = HttpCall("POST", url, sent, chunks)
    secrets.extend(secrets_of(url, sent))
    if model.credentials is not None:
        shown = await model.credentials.headers(call)
        sent.update((name.lower(), text) for name, text in shown.items())
        secrets.extend(secrets_of("", shown, shown=True))
    return call


async def raise_error(model: Model, wire: str, arriving: HttpResponse) -> NoReturn:
    """Raise the error for an answer with an error status."""
    body = b""
    with anyio.move_on_after(_ERROR_BODY_SECONDS), suppress(PalaverError):
        body, _ = await arriving.read(BODY)
    now = model.clock.date()
    raise failure(wire, arriving.status, arriving.headers, body or arriving.reason.encode(), now=now)


async def with_retries(model: Model, attempt: Callable[[], Awaitable[T]], on_notice: OnNotice | None) -> T:
    """Make attempts until one succeeds. Raises what the last one raised."""
    attempts = 0
    while True:
        attempts += 1
        try:
            return await attempt()
        except PalaverError as error:
            wait = model.retry.wait(attempts, error, model.clock.chance())
            if wait is None:
                raise
            if on_notice is not None:
                on_notice(Notice(kind="retry", model=model.name, error=error, attempt=attempts, wait=wait))
        await model.clock.sleep(wait)
