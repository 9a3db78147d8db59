"""A provider on loopback with scripted answers in Chat Completions, which waits where the test says so."""

import contextlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Provider:
    """`env` points the command here; `asked` are the requests, `keys` their keys; `go` ends a `HOLD`."""

    url: str
    asked: list = field(default_factory=list)
    keys: list = field(default_factory=list)
    go: threading.Event = field(default_factory=threading.Event)
    left: threading.Event = field(default_factory=threading.Event)

    @property
    def env(self):
        return {"VLLM_BASE_URL": f"{self.url}/v1", "NO_PROXY": "*"}


HOLD = object()
MODEL = "vllm/m"


def delta(finish=None, **what):
    choice = {"index": 0, "delta": what, "finish_reason": finish}
    chunk = {"id": "a1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return f"data: {json.dumps(chunk)}\n\n".encode()


def says(*pieces):
    """Return an answer in pieces; at a `HOLD` among them, it waits."""
    return [*(piece if piece is HOLD else delta(content=piece) for piece in pieces), delta("stop"), b"data: [DONE]\n\n"]


def calls(name, arguments, id="call_1"):
    call = {"index": 0, "id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return [delta(tool_calls=[call]), delta("tool_calls"), b"data: [DONE]\n\n"]


@contextlib.contextmanager
def provider(*answers, status=200):
    waiting = list(answers)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            made.keys.append(self.headers.get("Authorization"))
            made.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            self.send_header("Content-Type", "text/event-stream" if status == 200 else "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                for piece in [*waiting.pop(0), b""]:
                    if piece is HOLD:
                        made.go.wait(60)
                    else:
                        self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            except OSError:
                made.left.set()

        def log_message(self, format, *args):
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        made = Provider(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield made
        finally:
            made.go.set()
            server.shutdown()
            thread.join()
