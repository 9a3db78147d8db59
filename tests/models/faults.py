"""A server on loopback with faults, on real sockets.

`serve(*steps)` answers the n-th request with the n-th step; the last step answers all later ones, and without steps the
port is closed. A step is a function of the `Connection`; `says`, `streams` and the others make steps.
"""

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

_PATIENCE = 5.0


@dataclass
class Asked:
    """A received request."""

    path: str
    headers: dict[str, str]
    body: bytes
    method: str = "POST"


@dataclass
class Server:
    """Its address, its requests, and whether a client left before the end of its answer (``left``)."""

    url: str
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    sent: int = 0
    arrived: threading.Event = field(default_factory=threading.Event)
    left: threading.Event = field(default_factory=threading.Event)


class Connection:
    """One client."""

    def __init__(self, client: socket.socket, server: Server) -> None:
        self.client = client
        self.server = server
        self.held = b""
        self.closed = False

    def read(self) -> Asked | None:
        while b"\r\n\r\n" not in self.held:
            data = self.client.recv(65536)
            if not data:
                return None
            self.held += data
        head, _, self.held = self.held.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): text.strip() for name, _, text in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", 0))
        while len(self.held) < length:
            data = self.client.recv(65536)
            if not data:
                return None
            self.held += data
        body, self.held = self.held[:length], self.held[length:]
        return Asked(first.split()[1], headers, body, first.split()[0])

    def send(self, data: bytes) -> None:
        self.client.sendall(data)
        self.server.sent += len(data)

    def head(self, status: int, headers: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} Said", *(f"{name}: {text}" for name, text in headers.items())]
        self.send("\r\n".join(lines).encode() + b"\r\n\r\n")

    def chunk(self, data: bytes) -> None:
        self.send(b"%x\r\n%b\r\n" % (len(data), data))

    def stall(self, seconds: float = _PATIENCE) -> None:
        """Send nothing until the client leaves."""
        self.client.settimeout(seconds)
        with contextlib.suppress(TimeoutError):
            if self.client.recv(1) == b"":
                raise ConnectionAbortedError
        self.client.settimeout(None)

    def reset(self) -> None:
        self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        self.closed = True
        self.client.close()


Step = Callable[[Connection], None]


@contextlib.contextmanager
def serve(*steps: Step) -> Iterator[Server]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = Server(f"http://127.0.0.1:{listener.getsockname()[1]}")
        if not steps:
            yield server
            return
        listener.listen()
        waiting = list(steps)
        threads: list[threading.Thread] = []
        clients: list[Connection] = []

        def one(connection: Connection) -> None:
            try:
                while not connection.closed and (asked := connection.read()) is not None:
                    server.asked.append(asked)
                    server.arrived.set()
                    (waiting.pop(0) if len(waiting) > 1 else waiting[0])(connection)
            except OSError:
                server.left.set()
            finally:
                connection.close()

        def listen() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    server.connections += 1
                    clients.append(Connection(client, server))
                    threads.append(threading.Thread(target=one, args=(clients[-1],)))
                    threads[-1].start()

        accepting = threading.Thread(target=listen)
        accepting.start()
        try:
            yield server
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for connection in clients:
                with contextlib.suppress(OSError):
                    connection.client.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()


# -- steps --


def says(body: object, status: int = 200, *, content_type: str = "application/json", **headers: str) -> Step:
    """Return a step with a whole answer. Underscores in names of headers are hyphens."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): text for name, text in headers.items()}

    def step(connection: Connection) -> None:
        connection.head(status, {"content-type": content_type, "content-length": str(len(data)), **named})
        connection.send(data)
        if int(named.get("content-length", len(data))) > len(data):
            connection.reset()

    return step


def streams(
    *frames: bytes | float | threading.Event,
    end: str = "close",
    content_type: str = "text/event-stream",
    **headers: str,
) -> Step:
    """Return a step with a stream of frames, with pauses: of a number of seconds, or until an event is set.

    Then it may `close` in order, `reset`, or `stall`.
    """

    def step(connection: Connection) -> None:
        connection.head(200, {"content-type": content_type, "transfer-encoding": "chunked", **headers})
        for frame in frames:
            if isinstance(frame, threading.Event):
                frame.wait(60)
            elif isinstance(frame, bytes):
                connection.chunk(frame)
            else:
                connection.stall(frame)
        if end == "close":
            connection.send(b"0\r\n\r\n")
        elif end == "reset":
            time.sleep(0.02)  # an early reset loses sent data
            connection.reset()
        elif end == "cut":
            connection.close()
        else:
            connection.stall()

    return step


def endless(*frames: bytes, every: float = 0.0) -> Step:
    """Return a step with the frames, the last one for ever."""

    def step(connection: Connection) -> None:
        connection.head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
        for frame in frames[:-1]:
            connection.chunk(frame)
        while True:
            connection.chunk(frames[-1])
            if every:
                connection.stall(every)

    return step


def resets(connection: Connection) -> None:
    """Reset the connection before the headers."""
    connection.reset()


def stalls(connection: Connection) -> None:
    """Send nothing, ever."""
    connection.stall()


# -- what a provider says --


def sse(data: object, event: str | None = None) -> bytes:
    text = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
    return (f"event: {event}\n" if event else "").encode() + f"data: {text}\n\n".encode()


def delta(text: str, **more: object) -> bytes:
    choice = {"index": 0, "delta": {"content": text} if text else {}, "finish_reason": None, **more}
    return sse({"id": "a1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]})


STOP = delta("", finish_reason="stop")
DONE = sse("[DONE]")
HELLO = (delta("Hel"), delta("lo"), STOP, DONE)
WHOLE = {
    "id": "a1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
}


def error(message: str, **more: object) -> dict[str, object]:
    return {"error": {"message": message, **more}}
