"""A real HTTP server on loopback that answers every request with given bytes, for the official clients to read.

`serve(body, ...)` answers the n-th request with the n-th body and stores the requests in `requests`. Bodies are sent
chunked, in pieces of `piece` bytes, as from a provider.
"""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Loopback:
    """The address of the server, and its requests: path and body of each."""

    url: str
    requests: list[tuple[str, bytes]] = field(default_factory=list)


@contextlib.contextmanager
def listening(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve HTTP/1.1 in a thread of its own, and log nothing; yield the address."""

    class Quiet(handler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else each answer waits 40 ms for the acknowledgement of its headers

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def serve(
    *bodies: bytes, content_type: str = "text/event-stream", status: int = 200, piece: int = 512
) -> Iterator[Loopback]:
    waiting = list(bodies)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            loopback.requests.append((self.path, self.rfile.read(int(self.headers["Content-Length"] or 0))))
            body = waiting.pop(0)
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for start in range(0, len(body), piece):
                part = body[start : start + piece]
                self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")

    with listening(Handler) as url:
        loopback = Loopback(url)
        yield loopback
