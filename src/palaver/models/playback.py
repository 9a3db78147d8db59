"""A server on loopback that answers with recorded exchanges: http.server, one thread for each connection.

Stability: experimental.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import zip_longest
from threading import Lock, Thread
from typing import Any, Final, cast, final
from urllib.parse import unquote

from palaver.core import jsontext
from palaver.core.errors import DecodeError, excerpt
from palaver.models.recording import Exchange
from palaver.models.redaction import bare_path

_NOTHING: Final = object()
_SHOWN: Final = 60


@final
class Server:
    """Listens from construction until ``stop``. ``url`` is its address."""

    def __init__(self, exchanges: Sequence[Exchange]) -> None:
        """Begin to listen on a free port of 127.0.0.1."""
        self._player = _Player(exchanges)
        self._server = _HttpServer(self._player)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    @property
    def unplayed(self) -> tuple[Exchange, ...]:
        """The exchanges that no request has used yet."""
        return self._player.unplayed

    def stop(self) -> None:
        """Stop listening, and close every connection. A second time does nothing."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.close_connections()
            self._server.server_close()


class _Player:
    """Finds the answer to a request. Asked from many threads."""

    def __init__(self, exchanges: Sequence[Exchange]) -> None:
        self._lock = Lock()
        self._unplayed = list(exchanges)
        self._played: list[Exchange] = []

    @property
    def unplayed(self) -> tuple[Exchange, ...]:
        with self._lock:
            return tuple(self._unplayed)

    def answer(self, method: str, path: str, body: bytes) -> Exchange | str:
        """Return the exchange that answers a request, which is then used; or why there is none."""
        said = Exchange(method=method, path=bare_path(path), body=body)
        with self._lock:
            for exchange in self._unplayed:
                if difference(exchange, said) is None:
                    self._unplayed.remove(exchange)
                    self._played.append(exchange)
                    return exchange
            return self._why(said)

    def _why(self, said: Exchange) -> str:
        if any(difference(each, said) is None for each in self._played):
            return "this request was recorded, but all of its recorded answers have been used"
        if not self._unplayed:
            return f"this request was not recorded; all {len(self._played)} recorded requests have been answered"
        alike = [each for each in self._unplayed if (each.method, unquote(each.path)) == _place(said)]
        nearest = (alike or self._unplayed)[0]
        return f"this request was not recorded; it differs from the next recorded one in {difference(nearest, said)}"


def _place(exchange: Exchange) -> tuple[str, str]:
    return exchange.method, unquote(bare_path(exchange.path))


def difference(recorded: Exchange, asked: Exchange) -> str | None:
    """Return the first difference of two requests, in words; ``None`` when they are the same."""
    if recorded.method != asked.method:
        return f"method: recorded {recorded.method}, asked {asked.method}"
    path, other = _place(recorded)[1], _place(asked)[1]
    if path != other:
        return f"path: recorded {_brief(path)}, asked {_brief(other)}"
    if recorded.body == asked.body:
        return None
    try:
        one, two = jsontext.value(recorded.body), jsontext.value(asked.body)
    except DecodeError:
        return f"body: recorded {len(recorded.body)} bytes, asked {len(asked.body)}, not JSON both"
    return _differs(one, two, "body")


def _differs(one: Any, two: Any, where: str) -> str | None:
    """Where two JSON values differ first. Numbers are the same when they are equal."""
    if isinstance(one, dict) and isinstance(two, dict):
        first, second = cast("dict[str, Any]", one), cast("dict[str, Any]", two)
        steps = ((f".{key}", first.get(key, _NOTHING), second.get(key, _NOTHING)) for key in {**first, **second})
    elif isinstance(one, list) and isinstance(two, list):
        pairs = zip_longest(cast("Sequence[Any]", one), cast("Sequence[Any]", two), fillvalue=_NOTHING)
        steps = ((f"[{place}]", *pair) for place, pair in enumerate(pairs))
    else:
        same = one == two and isinstance(one, bool) == isinstance(two, bool)
        return None if same else f"{where}: recorded {_brief(one)}, asked {_brief(two)}"
    for step, here, there in steps:
        found = _differs(here, there, where + step)
        if found is not None:
            return found
    return None


def _brief(value: Any) -> str:
    return "nothing" if value is _NOTHING else excerpt(json.dumps(value, ensure_ascii=False), _SHOWN)


@final
class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, player: _Player) -> None:
        self.player = player
        self._open: set[socket.socket] = set()
        self._threads_lock = Lock()
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._threads_lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._threads_lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        """End the connections that clients keep open."""
        with self._threads_lock:
            still = list(self._open)
        for each in still:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:  # it is gone already
                continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing when a client disconnects."""


@final
class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _answer(self) -> None:
        server = cast("_HttpServer", self.server)
        length = int(self.headers.get("Content-Length") or 0)
        found = server.player.answer(self.command, self.path, self.rfile.read(length))
        if isinstance(found, str):
            told = {"type": "error", "error": {"type": "not_recorded", "code": 404, "message": found}, "message": found}
            body = json.dumps(told).encode()
            found = Exchange(
                method="", path="", status=404, headers={"content-type": "application/json"}, chunks=(body,)
            )
        self.send_response_only(found.status)
        for name, text in found.headers.items():
            self.send_header(name, text)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in found.chunks:
            if chunk:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        if found.broken:
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 (http.server's names)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""
