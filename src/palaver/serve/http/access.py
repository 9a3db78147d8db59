"""Check the host, the origin and the token of requests, and limit what one client may use.

- ``Host`` must name the server: a loopback name, or one of ``hosts``. This refuses DNS rebinding, where a page
  elsewhere points its own name at this machine.
- A browser's ``Origin`` must be the server's own, or one of ``origins``. Without ``Origin``, a request that
  ``Sec-Fetch-Site`` calls cross-site is refused. Programs that are no browsers send neither header.
- A token is sent as ``Authorization: Bearer …``. ``token`` reads every client; each of ``tokens`` reads one.
- Without a token and ``hosts``, only connections to a loopback address are answered.
- Limits are per client: pending messages, open streams, and requests by a token bucket of ``burst`` that refills with
  ``rate`` a second. A request over a limit gets 429 and the time to wait. The buckets of the ``clients`` most recent
  clients are kept.

Read and check a client's message, ``{"text", "payload"?, "run"?}``, and its decisions about calls that wait,
``{"decisions": {CALL: {"decision": "approve"}}, "run"?}``.

Any other field is an error that names its place. The text may not be empty: no model sees a payload. A body is read
up to the limit and no further. Names of clients and runs follow ``palaver.swarm.names``.

Stability: experimental.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import math
import re
from collections import Counter, OrderedDict
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import anyio
import msgspec
from msgspec import Struct
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request

from palaver.core.errors import DecodeError, MessageError, SwarmError
from palaver.serve.http.errors import Refused
from palaver.swarm.names import checked
from palaver.threads.ids import uuid7
from palaver.turn.approvals import Decision, answer, approve, edit, reject

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection


# -- request body ----------------------------------------------------------------------------------


class UserInput(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A message of a client. ``run`` names its turn: a second message with the same run gets the same answer."""

    text: str
    payload: Any = None
    run: str = msgspec.field(default_factory=uuid7)


class UserDecisions(Struct, frozen=True, kw_only=True):
    """Decisions of a client by call id. ``run`` names the turn that waits for them, if the client named it."""

    decisions: Mapping[str, Decision]
    run: str | None = None


class _Approve(Struct, frozen=True, forbid_unknown_fields=True, tag_field="decision", tag="approve"):
    def made(self) -> Decision:
        return approve()


class _Edit(Struct, frozen=True, forbid_unknown_fields=True, tag_field="decision", tag="edit"):
    arguments: dict[str, Any]

    def made(self) -> Decision:
        return edit(self.arguments)


class _Reject(Struct, frozen=True, forbid_unknown_fields=True, tag_field="decision", tag="reject"):
    text: str = ""

    def made(self) -> Decision:
        return reject(self.text)


class _Answer(Struct, frozen=True, forbid_unknown_fields=True, tag_field="decision", tag="answer"):
    text: str

    def made(self) -> Decision:
        return answer(self.text)


class _Decisions(Struct, frozen=True, forbid_unknown_fields=True):
    decisions: dict[str, _Approve | _Edit | _Reject | _Answer]
    run: str | None = None


_DECODER: Final = msgspec.json.Decoder(UserInput)
_DECISIONS: Final = msgspec.json.Decoder(_Decisions)
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_T = TypeVar("_T")


def parse_input(data: bytes | str) -> UserInput:
    """Decode a message. Raises ``DecodeError``."""
    message = _decoded(_DECODER, data)
    checked(message.run, "run")
    if not message.text.strip():
        raise DecodeError("the text is empty", path="text", source="request")
    return message


def parse_decisions(data: bytes | str) -> UserDecisions:
    """Decode decisions. Raises ``DecodeError``."""
    found = _decoded(_DECISIONS, data)
    if found.run is not None:
        checked(found.run, "run")
    if not found.decisions:
        raise DecodeError("there is no decision", path="decisions", source="request")
    try:
        return UserDecisions(decisions={call: each.made() for call, each in found.decisions.items()}, run=found.run)
    except MessageError as error:  # arguments that a thread cannot store
        raise DecodeError(str(error), path="decisions", source="request") from error


def parse_either(data: bytes | str) -> UserInput | UserDecisions:
    """Decode a message, or decisions where the field ``decisions`` is there. Raises ``DecodeError``."""
    try:
        decides = "decisions" in _FIELDS.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        decides = False
    return parse_decisions(data) if decides else parse_input(data)


def _decoded(decoder: msgspec.json.Decoder[_T], data: bytes | str) -> _T:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        if (field := _field_with_lone_surrogate(data)) is not None:
            raise DecodeError("it has a lone surrogate", path=field, source="request") from error
        raise DecodeError(str(error), source="request") from error


def _field_with_lone_surrogate(data: bytes | str) -> str | None:
    r"""Return the field with a lone surrogate such as ``\ud800``, which msgspec reports as the end of the input."""
    try:
        found = json.loads(data)
        fields = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    except (ValueError, RecursionError):
        return None
    for name, value in fields.items():
        try:
            json.dumps([name, value], ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return name.encode("utf-8", "replace").decode()
    return None


async def body_of(request: Request, limits: Limits) -> bytes:
    """Read a body. Raises ``Refused`` when it is too long or too slow."""
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limits.body:
        raise too_large(limits)
    body = bytearray()
    with anyio.move_on_after(limits.io_timeout) as timeout:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limits.body:
                raise too_large(limits)
    if timeout.cancelled_caught:
        raise Refused(408, "timed_out", f"the body took more than {limits.io_timeout:g} seconds")
    return bytes(body)


def too_large(limits: Limits) -> Refused:
    """Return the refusal of a message that is too long."""
    return Refused(413, "too_large", f"a message may have at most {limits.body:,} bytes")


# -- access ----------------------------------------------------------------------------------------


ANY: Final = "*"
"""In ``hosts``: any name of the server is allowed."""
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[^:/@\[\]]+)(?::\d+)?")
_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^/@\s]+")
_FOREIGN: Final = frozenset({"cross-site", "same-site"})
"""Values of ``Sec-Fetch-Site`` of a page that is not the server's (https://www.w3.org/TR/fetch-metadata/)."""


class Access:
    """Checks the host, the origin and the token of requests."""

    def __init__(
        self,
        *,
        token: str | None = None,
        tokens: Mapping[str, str] | None = None,
        hosts: Collection[str] | None = None,
        origins: Collection[str] = (),
    ) -> None:
        """Set up the checks.

        ``token`` reads every client; ``tokens`` maps the name of a client to the token that reads only that client.
        ``hosts`` are names without a port; the default is any with a token, none without. ``origins`` are written as
        browsers send them, ``https://app.example``. Raises ``SwarmError`` for a token that is empty or that of two, and
        for an origin that is none.
        """
        if isinstance(hosts, str) or isinstance(origins, str):
            raise SwarmError("hosts and origins must be lists of names, not one string")
        if token is not None:
            _checked_token(token, "token")
        for client, each in (tokens or {}).items():
            _checked_token(each, f"the token of {client!r}")
        _check_distinct(token, tokens or {})
        for origin in origins:
            if not _ORIGIN.fullmatch(origin):
                raise SwarmError(f"an origin has the form “https://app.example”, not {origin!r}")
        self._token, self._tokens = token, tokens
        self.required = token is not None or tokens is not None
        """Whether requests need a token."""
        self._loopback_only = hosts is None and not self.required
        self._hosts = _LOOPBACK_NAMES | {each.lower() for each in ([ANY] if self.required else []) if hosts is None}
        self._hosts |= {each.lower() for each in hosts or ()}
        self._origins = frozenset(origins)

    @property
    def middleware(self) -> list[Middleware]:
        """The CORS middleware for the allowed origins."""
        if not self._origins:
            return []
        return [
            Middleware(
                CORSMiddleware,
                allow_origins=sorted(self._origins),
                allow_methods=["GET", "POST", "DELETE"],
                allow_headers=["authorization", "content-type", "last-event-id"],
            )
        ]

    def check_origin(self, connection: HTTPConnection) -> None:
        """Check a request's origin and host. Raises ``Refused``."""
        if self._loopback_only and not _is_local(connection.scope.get("server")):
            raise Refused(403, "forbidden", "without a token, only connections from this machine are answered")
        given = connection.headers.getlist("host")
        if len(given) > 1:
            raise Refused(400, "host", "there are several Host headers")  # RFC 9112, 3.2
        host = given[0].lower() if given else ""
        found = _HOST.fullmatch(host)
        if found is None or (ANY not in self._hosts and found[1].removesuffix(".") not in self._hosts):
            raise Refused(421, "host", f"the server does not have the name {host!r}")
        origin = connection.headers.get("origin")
        if origin is None:
            if connection.headers.get("sec-fetch-site") in _FOREIGN:
                raise Refused(403, "origin", "pages of other sites may not send requests")
        elif origin not in self._origins and origin.partition("://")[2].lower() != host:
            raise Refused(403, "origin", f"pages of {origin!r} may not send requests")

    def check_token(self, connection: HTTPConnection, client: str) -> None:
        """Check that a request has a token that reads a client. Raises ``Refused``."""
        if not self.required:
            return
        presented = _bearer_token(connection)
        own = None if self._tokens is None else self._tokens.get(client)
        if not any(_equal(presented, each) for each in (self._token, own)):
            raise unauthorized()

    def client_of(self, connection: HTTPConnection) -> str | None:
        """Return the client of a request's token; ``None`` for a token that reads all clients. Raises ``Refused``."""
        presented = _bearer_token(connection)
        if not self.required or _equal(presented, self._token):
            return None
        owners = [client for client, each in (self._tokens or {}).items() if _equal(presented, each)]
        if not owners:
            raise unauthorized()
        return owners[0]


def check_json(connection: HTTPConnection) -> None:
    """Check that the content type is JSON: a browser sends that to other sites only after CORS. Raises ``Refused``."""
    kind = connection.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise Refused(415, "media_type", "Content-Type must be application/json")


def unauthorized() -> Refused:
    """Return the refusal of a request without a valid token."""
    return Refused(401, "authentication", "the bearer token is missing or wrong")


@lru_cache(maxsize=1024)
def is_loopback(address: str) -> bool:
    """Return whether an IP address is loopback. Raises ``ValueError`` for anything else."""
    found = ipaddress.ip_address(address.partition("%")[0])
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return found.is_loopback if mapped is None else mapped.is_loopback


def _is_local(server: tuple[str, int | None] | None) -> bool:
    """Return whether a connection's address is loopback. A Unix socket counts as loopback."""
    try:
        return server is None or is_loopback(server[0])
    except ValueError:
        return True


def _checked_token(token: object, place: str) -> None:
    if not isinstance(token, str) or not token.strip():
        raise SwarmError(f"{place} must be text and not empty")


def _bearer_token(connection: HTTPConnection) -> bytes | None:
    scheme, _, presented = connection.headers.get("authorization", "").partition(" ")
    return presented.encode("latin-1").strip() if scheme.lower() == "bearer" else None  # the raw bytes


def _equal(presented: bytes | None, token: str | None) -> bool:
    if presented is None or token is None:
        return False
    return hmac.compare_digest(presented, token.encode(errors="surrogateescape"))


def _check_distinct(token: str | None, tokens: Mapping[str, str]) -> None:
    """Check that each token reads one client only. Raises ``SwarmError``, which never shows a token."""
    owners: dict[str, str] = {}
    for client, each in tokens.items():
        if each == token:
            raise SwarmError(f"the token of {client!r} is also the token for all clients")
        if each in owners:
            raise SwarmError(f"the clients {owners[each]!r} and {client!r} have the same token")
        owners[each] = client


class Limits(Struct, frozen=True, kw_only=True):
    """Limits for each client. Raises ``SwarmError`` for a value that is not more than 0."""

    waiting: int = 8
    """Messages of a client that wait for their answer at the same time."""
    streams: int = 8
    """Streams and WebSockets of a client that are open at the same time."""
    rate: float = 10.0
    """Requests of a client per second, on average."""
    burst: int = 20
    """Requests of a client at once."""
    body: int = 256 * 1024
    """Bytes of a request body or a WebSocket message."""
    events: int = 256
    """Events that wait for a reader. Beyond that, server-sent events drop the oldest and report it, and a WebSocket is
    closed."""
    io_timeout: float = 15.0
    """Seconds that a client may take to receive one event, and to send one message."""
    timeout: float | None = 600.0
    """Seconds that a request waits for its answer. The turn goes on; the same ``run`` gets its answer later."""
    clients: int = 10_000

    def __post_init__(self) -> None:
        """Check that every limit is more than 0."""
        for name in ("waiting", "streams", "rate", "burst", "body", "events", "io_timeout", "clients"):
            if not getattr(self, name) > 0:
                raise SwarmError(f"limits: {name} must be more than 0, not {getattr(self, name)}")
        if self.timeout is not None and not self.timeout > 0:
            raise SwarmError(f"limits: timeout must be more than 0, not {self.timeout}")


class ClientLimiter:
    """Counts the requests, messages and streams of clients against ``limits``.

    An ``HttpApp`` and UI endpoints that get the same one count the requests of a client together.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        """Start without any client. The default ``limits`` are those of ``Limits``."""
        self.limits = limits or Limits()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._pending: Counter[str] = Counter()
        self._streams: Counter[str] = Counter()

    def admit(self, client: str) -> None:
        """Count a request. Raises ``Refused``."""
        limits, now = self.limits, anyio.current_time()
        left, since = self._buckets.pop(client, (float(limits.burst), now))
        left = min(float(limits.burst), left + (now - since) * limits.rate)
        admitted = left >= 1
        self._buckets[client] = (left - admitted, now)
        if len(self._buckets) > limits.clients:
            self._buckets.popitem(last=False)
        if not admitted:
            after = math.ceil((1 - left) / limits.rate)
            raise Refused(429, "rate_limit", f"more than {limits.rate:g} requests a second", retry_after=after)

    @contextmanager
    def pending(self, client: str) -> Generator[None]:
        """Count a message while it waits for its answer. Raises ``Refused``."""
        maximum = self.limits.waiting
        with _counted(self._pending, client, maximum, f"the client {client!r} already has {maximum} pending messages"):
            yield

    @contextmanager
    def stream(self, client: str) -> Generator[None]:
        """Count a stream while it is open. Raises ``Refused``."""
        maximum = self.limits.streams
        with _counted(self._streams, client, maximum, f"the client {client!r} already reads {maximum} streams"):
            yield


@contextmanager
def _counted(counter: Counter[str], client: str, maximum: int, refusal: str) -> Generator[None]:
    if counter[client] >= maximum:
        raise Refused(429, "busy", refusal, retry_after=1)
    counter[client] += 1
    try:
        yield
    finally:
        counter[client] -= 1
        if not counter[client]:
            del counter[client]
