"""A gateway on loopback, and providers whose servers are on loopback too."""

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from queue import Empty, Queue

import uvicorn

from palaver.gateway import GatewayConfig, Target, gateway_app
from tests.loopback import listening

PROVIDERS = {
    "openai_chat": ("openai", "/v1"),
    "openai_responses": ("openai", "/v1"),
    "anthropic_messages": ("anthropic", ""),
    "google_generate": ("google", ""),
    "bedrock_converse": ("bedrock", ""),
    "cohere_chat": ("cohere", ""),
    "ollama_chat": ("ollama", ""),
}
"""Of each wire: a provider that speaks it, and how its address ends."""


def targets(url: str) -> dict[str, Target]:
    """Return a model of each wire, at a server."""
    return {
        wire: Target(model=f"{provider}/model-1", wire=wire, url=url + suffix, key="PALAVER_TEST_KEY", retries=0)
        for wire, (provider, suffix) in PROVIDERS.items()
    }


@contextlib.contextmanager
def running(config: GatewayConfig | None = None) -> Iterator[str]:
    """Yield the address of a gateway."""
    server = uvicorn.Server(uvicorn.Config(gateway_app(config), port=0, log_level="error", lifespan="on"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            thread.join(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@dataclass
class Upstream:
    """A provider's server: what it answers next, and what it was asked."""

    url: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    respond: Callable[[bytes], tuple[int, dict[str, str], bytes]] | None = None
    """Makes status, headers and body from a request, instead of the three fields."""
    pieces: Queue[bytes | None] | None = None
    """What is sent instead of ``body``, piece by piece as it is put here; ``None`` breaks the connection off."""
    gone: threading.Event = field(default_factory=threading.Event)
    """Set when the gateway closed the connection while pieces were sent."""
    asked: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)


@contextlib.contextmanager
def upstream() -> Iterator[Upstream]:
    """Yield a server that answers each request with what its fields hold at that time."""
    held = Upstream()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            headers = {name.lower(): text for name, text in self.headers.items()}
            held.asked.append((self.path, headers, self.rfile.read(int(headers.get("content-length", "0")))))
            status, own, body = held.status, held.headers, held.body
            if held.respond is not None:
                status, own, body = held.respond(held.asked[-1][2])
            self.send_response(status)
            for name, text in own.items():
                self.send_header(name, text)
            if held.pieces is not None:
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                self.send_pieces(held.pieces)
                return
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def closed(self) -> bool:
            if not select.select([self.connection], [], [], 0)[0]:
                return False
            try:
                return not self.connection.recv(1, socket.MSG_PEEK)
            except ConnectionResetError:
                return True

        def send_pieces(self, pieces: Queue[bytes | None]) -> None:
            self.close_connection = True
            while True:
                try:
                    piece = pieces.get(timeout=0.05)
                except Empty:
                    if self.closed():
                        held.gone.set()
                        return
                    continue
                if piece is None:
                    return
                try:
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                except OSError:
                    held.gone.set()
                    return
                if not piece:
                    return

    with listening(Handler) as url:
        held.url = url
        yield held
