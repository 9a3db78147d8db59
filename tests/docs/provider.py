"""A server on loopback that replaces every provider: it greets on the wire of the request, streamed or not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import palaver as p
from palaver import wires
from palaver.core import jsontext
from palaver.stream.replay_events import replay_events

GREETING = p.Response(p.assistant("Hello.").replace(model="m", finish_reason="stop", usage=p.Usage(input=9, output=2)))
PATHS = {
    "/chat/completions": "openai_chat",
    "/responses": "openai_responses",
    "/v1/messages": "anthropic_messages",
    ":generateContent": "google_generate",
    ":streamGenerateContent": "google_generate",
    "/v2/chat": "cohere_chat",
    "/api/chat": "ollama_chat",
    "/converse": "bedrock_converse",
    "/converse-stream": "bedrock_converse",
}
TYPES = {"ollama_chat": "application/x-ndjson", "bedrock_converse": "application/vnd.amazon.eventstream"}
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "CO_API_KEY", "AWS_ACCESS_KEY_ID")
ADDRESSES = (
    "OPENAI_BASE_URL",
    "ANTHROPIC_BASE_URL",
    "GOOGLE_GEMINI_BASE_URL",
    "CO_API_URL",
    "OLLAMA_HOST",
    "AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
)


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        path = self.path.partition("?")[0]
        body: Any = jsontext.value(self.rfile.read(int(self.headers["content-length"])))
        wire = next(wire for end, wire in PATHS.items() if path.endswith(end))
        streamed = bool(body.get("stream")) or "stream" in path
        answer = stream(wire) if streamed else wires.get(wire).encode_response(GREETING).body
        self.send_response(200)
        kind = TYPES.get(wire, "text/event-stream") if streamed else "application/json"
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def stream(wire: str) -> bytes:
    encoder = wires.get(wire).stream_encoder()
    return b"".join([encoder.feed(event) for event in replay_events(GREETING)]) + encoder.finish()


@contextmanager
def provider() -> Iterator[dict[str, str]]:
    """Return the environment in which the official clients send their requests to the server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        more = {"AWS_SECRET_ACCESS_KEY": "-", "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}
        try:
            yield dict.fromkeys(KEYS, "-") | dict.fromkeys(ADDRESSES, url) | more
        finally:
            server.shutdown()
            thread.join()
