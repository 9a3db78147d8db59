"""A gateway in a process of its own under load: the process, the load, a door to its database, and its memory."""

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

FILES = 64
"""The soft limit of open files with which the gateway is started: fewer than its connections."""


@contextmanager
def provider(seconds):
    """Yield the address of a provider whose streams have a word each ``seconds``."""
    script = Path(__file__).with_name("soak_provider.py")
    with subprocess.Popen([sys.executable, script, str(seconds)], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


class GatewayProcess:
    """``palaver gateway`` with a configuration that can be changed. ``m`` is the model of the provider."""

    def __init__(self, folder, provider, text=""):
        self.file, self.provider, self.text = folder / "gateway.toml", provider, text
        self.errors = folder / "errors"
        self.reloads = 0

    def write(self, **breaker):
        """Write the configuration, with other settings of the breaker."""
        fields = ", ".join(f"{name} = {value}" for name, value in ({"rest": 60} | breaker).items())
        target = f'{{ model = "openai/gpt-5.5", wire = "openai_chat", url = "{self.provider}/v1", key = "SOAK_KEY" }}'
        lines = [
            f"breaker = {{ {fields} }}",
            self.text,
            "[telemetry]",
            'access_log = "none"',
            f"[models]\nm = {target}",
        ]
        self.file.write_text("\n".join(lines) + "\n", "utf-8")

    def __enter__(self):
        self.write()
        command = [sys.executable, "-m", "palaver", "gateway", str(self.file), "--port", "0"]
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                ["sh", "-c", f'ulimit -Sn {FILES}; exec "$@"', "sh", *command],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "SOAK_KEY": "k", "NO_PROXY": "127.0.0.1"},
            )
        self.url = self.process.stdout.readline().partition(" ")[0]
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    async def reload(self):
        """Change the configuration, and wait until it is in use."""
        self.reloads += 1
        self.write(rest=60 + self.reloads)
        self.process.send_signal(signal.SIGHUP)
        while self.errors.read_text("utf-8").count("was read again") < self.reloads:
            assert self.process.poll() is None
            await asyncio.sleep(0.02)

    def stop(self):
        """End it, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def memory(self):
        """Return the resident memory in bytes."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text("ascii").split()[1])
        return pages * resource.getpagesize()


CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"


@dataclass
class Load:
    """Asks a gateway, and checks each answer. ``failures`` says what was not whole."""

    url: str
    key: str = "any"
    ids: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    most: int = 0
    """The most requests in progress."""
    _active: int = 0

    @contextmanager
    def _counted(self):
        self._active += 1
        self.most = max(self.most, self._active)
        try:
            yield
        finally:
            self._active -= 1

    async def ask(self, client, name, count, *, path=CHAT, stream=True):
        """Ask for words, and check that all of them come."""
        content = [{"role": "user", "content": f"{name} {count}"}]
        body = {"model": "m", "stream": stream, "max_tokens": 500, "messages": content}
        headers = {"authorization": f"Bearer {self.key}"}
        try:
            with self._counted():
                async with client.post(self.url + path, json=body, headers=headers) as response:
                    data = await response.read()
            assert response.status == 200, data
            got = text_of(data, path, stream=stream)
            assert got == "".join(f"{name}:{each} " for each in range(count)), data[-200:]
            self.ids.append(response.headers["palaver-exchange"])
        except (AssertionError, aiohttp.ClientError, LookupError, ValueError) as error:
            self.failures.append(f"{name}: {error!r}")

    async def run(self, streams, conduct):
        """Keep ``streams`` streams in progress until ``conduct()`` has ended; wait for the end of all."""
        ended = False

        async def worker(client, number):
            turn = 0
            while not ended and len(self.failures) < 20:
                count = 10 + (7 * number + 13 * turn) % 30
                path = (CHAT, MESSAGES)[(number + turn) % 2]
                await self.ask(client, f"boat-{number}-{turn}", count, path=path)
                turn += 1

        async with self.client() as client, asyncio.TaskGroup() as group:
            for number in range(streams):
                group.create_task(worker(client, number))
            await conduct()
            ended = True

    @staticmethod
    def client():
        """Return a client without limits."""
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None, sock_read=120)
        )


def text_of(data, path, *, stream):
    """Return the text of an answer. Raises ``AssertionError`` for a stream without its end."""
    if not stream:
        return json.loads(data)["choices"][0]["message"]["content"]
    assert data.endswith((b"data: [DONE]\n\n", b'data: {"type":"message_stop"}\n\n')), data[-200:]
    events = [json.loads(each[6:]) for each in data.splitlines() if each.startswith(b"data: {")]
    assert not [each for each in events if "error" in each]
    if path == CHAT:
        return "".join(each["choices"][0]["delta"].get("content") or "" for each in events if each["choices"])
    return "".join(each["delta"]["text"] for each in events if each["type"] == "content_block_delta")


class Door:
    """A way to a TCP server, which can be closed: then all its connections break."""

    def __init__(self, host, port):
        self._target = (host, port)
        self._server = None
        self._writers = set()
        self.port = 0

    async def open(self):
        """Let connections through, always at the same port."""
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self):
        """Refuse connections, and break those that there are."""
        self._server.close()
        for each in list(self._writers):
            each.transport.abort()

    async def _pass(self, reader, writer):
        try:
            there, back = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        await asyncio.gather(self._copy(reader, back), self._copy(there, writer))
        self._writers -= {writer, back}

    @staticmethod
    async def _copy(reader, writer):
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()
