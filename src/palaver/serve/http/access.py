"""Who may ask a front, and from where.

Rules:

- A request names the server in ``Host``. The loopback names are always allowed, beside ``hosts``. A page elsewhere
  whose own name was pointed at this machine (DNS rebinding) is refused by this.
- A browser names the page in ``Origin``: the server's own, or one of ``origins``. Without ``Origin``, a request that
  ``Sec-Fetch-Site`` calls a foreign page's is refused. Programs that are no browsers send neither.
- With a token, requests show it: ``Authorization: Bearer …``. ``token`` reads every client; each of ``tokens`` one.
- Without a token and without ``hosts``, only connections to a loopback address are answered.

What one client may ask of a front, and what a reader that is slow may cost.

Rules:

- Everything is for one client: how many of its messages wait at a time, how many streams it reads, and how many
  requests it makes, by a bucket of tokens that holds ``burst`` and is filled with ``rate`` a second.
- What is too much is refused at once (429) and says when to come again.
- The buckets of ``clients`` clients are remembered, those that asked last; nothing else grows.

Stability: experimental.
"""

from __future__ import annotations

import hmac
import ipaddress
import math
import re
from collections import Counter, OrderedDict
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import anyio
from msgspec import Struct
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from palaver.core.errors import SwarmError
from palaver.serve.http.errors import Refused

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection


# --- access -----------------------------------------------------------------------------------------------------------


ANY: Final = "*"
"""Among ``hosts``: the server may be called by any name."""
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
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
        """Check by these rules.

        ``token`` is shown for any client, ``tokens`` are those of single clients, by the client's name. ``hosts`` are
        names without a port; the default is any with a token, none without. ``origins`` are written as browsers send
        them, ``https://app.example``. Raises ``SwarmError`` for a token that is empty or
        that of two, and for an origin that is none.
        """
        if isinstance(hosts, str) or isinstance(origins, str):
            raise SwarmError("hosts and origins are lists of names, not one text")
        if token is not None:
            _checked_token(token, "token")
        for client, each in (tokens or {}).items():
            _checked_token(each, f"the token of {client!r}")
        _check_distinct(token, tokens or {})
        for origin in origins:
            if not _ORIGIN.fullmatch(origin):
                raise SwarmError(f"an origin is written as “https://app.example”, not {origin!r}")
        self._token, self._tokens = token, tokens
        self.asks = token is not None or tokens is not None
        """Whether a token is asked for."""
        self._local = hosts is None and not self.asks
        self._hosts = _LOCAL | {each.lower() for each in ([ANY] if self.asks else []) if hosts is None}
        self._hosts |= {each.lower() for each in hosts or ()}
        self._origins = frozenset(origins)

    @property
    def middleware(self) -> list[Middleware]:
        """What answers the questions of browsers (CORS) for the origins that are allowed."""
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
        """Check where a request comes from, and by which name it calls the server. Raises ``Refused``."""
        if self._local and not _is_local(connection.scope.get("server")):
            raise Refused(403, "forbidden", "without a token, only connections of this machine are answered")
        host = connection.headers.get("host", "").lower()
        found = _HOST.fullmatch(host)
        if found is None or (ANY not in self._hosts and found[1].removesuffix(".") not in self._hosts):
            raise Refused(421, "host", f"the server is not called {host!r}")
        origin = connection.headers.get("origin")
        if origin is None:
            if connection.headers.get("sec-fetch-site") in _FOREIGN:
                raise Refused(403, "origin", "pages of other sites may not ask")
        elif origin not in self._origins and origin.partition("://")[2].lower() != host:
            raise Refused(403, "origin", f"pages of {origin!r} may not ask")

    def check_token(self, connection: HTTPConnection, client: str) -> None:
        """Check that a request shows a token that reads a client. Raises ``Refused``."""
        if not self.asks:
            return
        shown = _shown(connection)
        own = None if self._tokens is None else self._tokens.get(client)
        if not any(_same(shown, each) for each in (self._token, own)):
            raise unauthorized()

    def client_of(self, connection: HTTPConnection) -> str | None:
        """The client to which the token of a request belongs; ``None`` for one that reads all. Raises ``Refused``."""
        shown = _shown(connection)
        if not self.asks or _same(shown, self._token):
            return None
        owners = [client for client, each in (self._tokens or {}).items() if _same(shown, each)]
        if not owners:
            raise unauthorized()
        return owners[0]


def check_json(connection: HTTPConnection) -> None:
    """Check that a body is said to be JSON; a browser sends no such body to others unasked. Raises ``Refused``."""
    kind = connection.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise Refused(415, "media_type", "Content-Type: application/json is expected")


def unauthorized() -> Refused:
    """The refusal of a request that shows no token, or another one."""
    return Refused(401, "authentication", "the bearer token is missing, or another one")


def is_loopback(address: str) -> bool:
    """Whether an address is one of this machine alone. Raises ``ValueError`` for what is no IP address."""
    found = ipaddress.ip_address(address.partition("%")[0])
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return found.is_loopback if mapped is None else mapped.is_loopback


def _is_local(server: tuple[str, int | None] | None) -> bool:
    """Whether the address that was connected to is loopback; a socket that is a file, and a test's, are."""
    try:
        return server is None or is_loopback(server[0])
    except ValueError:
        return True


def _checked_token(token: object, place: str) -> None:
    if not isinstance(token, str) or not token.strip():
        raise SwarmError(f"{place} is a text that is not empty")


def _shown(connection: HTTPConnection) -> bytes | None:
    scheme, _, shown = connection.headers.get("authorization", "").partition(" ")
    return shown.encode("latin-1").strip() if scheme.lower() == "bearer" else None  # the bytes, as they came


def _same(shown: bytes | None, token: str | None) -> bool:
    if shown is None or token is None:
        return False
    return hmac.compare_digest(shown, token.encode(errors="surrogateescape"))


def _check_distinct(token: str | None, tokens: Mapping[str, str]) -> None:
    """Raise ``SwarmError``, which never shows a token, where one token reads more than its client."""
    owners: dict[str, str] = {}
    for client, each in tokens.items():
        if each == token:
            raise SwarmError(f"the token of {client!r} is also the one for all clients")
        if each in owners:
            raise SwarmError(f"the clients {owners[each]!r} and {client!r} have the same token")
        owners[each] = client


# --- limits -----------------------------------------------------------------------------------------------------------


class Limits(Struct, frozen=True, kw_only=True):
    """How much is enough. Raises ``SwarmError`` for what nobody could live with."""

    waiting: int = 8
    """Messages of a client that wait for their answers at a time."""
    streams: int = 8
    """Streams and WebSockets of a client that are open at a time."""
    rate: float = 10.0
    """Requests of a client a second, in the long run."""
    burst: int = 20
    """Requests of a client at once."""
    body: int = 256 * 1024
    """Bytes of a message, with everything that comes with it."""
    events: int = 256
    """Events that wait for a reader. When there are more, server-sent events lose the oldest and say so, and a
    WebSocket is closed."""
    patience: float = 15.0
    """Seconds that a reader may take for one event, and a writer for its message."""
    timeout: float | None = 600.0
    """Seconds that a request waits for its answer; the turn goes on, and is found again by its name."""
    clients: int = 10_000

    def __post_init__(self) -> None:
        """Check."""
        for name in ("waiting", "streams", "rate", "burst", "body", "events", "patience", "clients"):
            if not getattr(self, name) > 0:
                raise SwarmError(f"limits: {name} is more than 0, not {getattr(self, name)}")
        if self.timeout is not None and not self.timeout > 0:
            raise SwarmError(f"limits: timeout is more than 0, not {self.timeout}")


class Gate:
    """Lets clients in, as far as the limits go."""

    def __init__(self, limits: Limits) -> None:
        """Know nobody yet."""
        self._limits = limits
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._waiting: Counter[str] = Counter()
        self._streams: Counter[str] = Counter()

    def admit(self, client: str) -> None:
        """Count a request. Raises ``Refused``."""
        limits, now = self._limits, anyio.current_time()
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
    def waiting(self, client: str) -> Generator[None]:
        """Count a message while it waits for its answer. Raises ``Refused``."""
        most = self._limits.waiting
        with _counted(self._waiting, client, most, f"{most} messages of the client {client!r} wait already"):
            yield

    @contextmanager
    def stream(self, client: str) -> Generator[None]:
        """Count a stream while it is open. Raises ``Refused``."""
        most = self._limits.streams
        with _counted(self._streams, client, most, f"the client {client!r} reads {most} streams already"):
            yield


@contextmanager
def _counted(counter: Counter[str], client: str, most: int, refusal: str) -> Generator[None]:
    if counter[client] >= most:
        raise Refused(429, "busy", refusal, retry_after=1)
    counter[client] += 1
    try:
        yield
    finally:
        counter[client] -= 1
        if not counter[client]:
            del counter[client]
