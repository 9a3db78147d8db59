"""Leaving an answer that shares its connection with others."""

import contextlib
import socket
import threading

import anyio
import h2.config
import h2.connection
import h2.events
import pytest

from palaver.models import Http
from tests.models.asking import HI, at, told
from tests.models.faults import HELLO, delta

CANCEL = 8


class Server:
    """Speaks HTTP/2 without TLS. The first stream gets one token, and no more; each later one a whole answer."""

    def __init__(self):
        self.connections = 0
        self.streams = []
        self.resets = []
        self.was_reset = threading.Event()

    def run(self, listener):
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                self.connections += 1
                with client:
                    self.serve(client)

    def serve(self, client):
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        connection.initiate_connection()
        client.sendall(connection.data_to_send())
        while data := client.recv(65536):
            for event in connection.receive_data(data):
                if isinstance(event, h2.events.StreamEnded):
                    self.answer(connection, event.stream_id)
                if isinstance(event, h2.events.StreamReset):
                    self.resets.append((event.stream_id, event.error_code))
                    self.was_reset.set()
            client.sendall(connection.data_to_send())

    def answer(self, connection, number):
        self.streams.append(number)
        connection.send_headers(number, [(":status", "200"), ("content-type", "text/event-stream")])
        if len(self.streams) == 1:
            connection.send_data(number, delta("Hel"))
        else:
            connection.send_data(number, b"".join(HELLO), end_stream=True)


@pytest.mark.anyio
async def test_only_its_own_stream_is_reset(anyio_backend):
    import httpx

    server = Server()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=server.run, args=(listener,))
        thread.start()
        async with httpx.AsyncClient(http1=False, http2=True) as client, Http(client) as http:
            model = at(url, http=http)
            async with model.session().ask(HI) as answer:
                await anext(answer)
            assert await anyio.to_thread.run_sync(lambda: server.was_reset.wait(60))
            _, reply = await told(model)
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert reply.response.message.text == "Hello"
    assert reply.attempts == 1
    assert server.resets == [(server.streams[0], CANCEL)]
    assert (server.connections, len(server.streams)) == (1, 2)
