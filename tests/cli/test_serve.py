"""`palaver serve` as a real process: one process, or a front with workers over NATS and PostgreSQL."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from contextlib import ExitStack, suppress
from queue import Empty, Queue

import httpx
import pytest
from websockets.sync.client import connect

from palaver.store import open_store
from tests.serve.workers.stage import fresh_database
from tests.swarm import nats_server

SWARM = """
import os
from palaver.models.scripted import ScriptedModel
from palaver.swarm import Swarm, SwarmAgent

def answer(prompt):
    return f"{{os.getpid()}} heard {{prompt.messages[-1].text}}"

swarm = Swarm("{name}", [SwarmAgent("desk", ScriptedModel([], then=answer))])
"""


class Served:
    """A running command: its output line by line, and what it answers."""

    def __init__(self, *args, cwd, **env):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "palaver", "serve", *map(str, args)],
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PALAVER_STORE": str(cwd / "palaver.db"), "NO_PROXY": "127.0.0.1", **env},
        )
        self.lines, self.seen = Queue(), []
        self.record_reader = threading.Thread(target=self._read, daemon=True)
        self.record_reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip())

    def until(self, pattern, within=60):
        """Wait for a line."""
        deadline = time.monotonic() + within
        while True:
            try:
                line = self.lines.get(timeout=max(0, deadline - time.monotonic()))
            except Empty:
                pytest.fail(f"no {pattern!r} in {self.seen}, exit code {self.process.poll()}")
            self.seen.append(line)
            found = re.search(pattern, line)
            if found:
                return found

    def address(self):
        return self.until(r"POST (http://\S+?)/v1/").group(1)

    def end(self, sent, within=60):
        """Send a signal, and wait for the end."""
        self.process.send_signal(sent)
        return self.process.wait(within)


@pytest.fixture
def served(tmp_path):
    running = []

    def served_(*args, **env):
        running.append(Served(*args, cwd=tmp_path, **env))
        return running[-1]

    yield served_
    for each in running:
        if each.process.poll() is None:
            each.process.kill()
        each.process.wait()
        each.record_reader.join()
        each.process.stdout.close()


@pytest.fixture
def swarm(tmp_path):
    name = f"s{uuid.uuid4().hex[:12]}"
    file = tmp_path / "office.py"
    file.write_text(SWARM.format(name=name))
    return file


def post(address, client, text, **headers):
    answer = httpx.post(
        f"{address}/v1/clients/{client}/messages", json={"text": text}, headers=headers, timeout=60, trust_env=False
    )
    return answer.status_code, answer.json()


def test_one_process_answers_over_http_and_websocket(served, swarm, tmp_path):
    running = served(swarm, "--port", 0)
    assert running.until(r"^swarm s\w+: desk$")
    assert running.until(r"^conversations: .*palaver\.db$")
    address = running.address()
    assert running.until("^no --token")
    status, answer = post(address, "ann", "hi")
    assert (status, answer["agent"]) == (200, "desk")
    assert answer["answer"] == f"{running.process.pid} heard hi"
    with connect(f"{address.replace('http', 'ws')}/v1/clients/ann?events=none", proxy=None) as ws:
        ws.send(json.dumps({"text": "again"}))
        assert json.loads(ws.recv())["answer"].endswith("heard again")
    assert (tmp_path / "palaver.db").exists()
    assert running.end(signal.SIGTERM) == 0


@pytest.mark.finding("S-14")
def test_the_folder_of_the_default_store_is_made(served, swarm, tmp_path):
    running = served(swarm, "--port", 0, PALAVER_STORE="", XDG_DATA_HOME=str(tmp_path / "data"))
    running.until(r"^conversations: .*palaver\.db$")
    assert running.end(signal.SIGTERM) == 0
    assert (tmp_path / "data" / "palaver" / "palaver.db").exists()


def test_names_cannot_steer_the_terminal(served, tmp_path):
    file = tmp_path / "shop.toml"
    file.write_text('name = "sh\\u001bop"\nrealm = "r"\n[agents."a\\u001b[2J"]\nmodel = "openai/gpt-5.2"\n')
    running = served(file, "--port", 0)
    assert running.until("^swarm ").string == "swarm sh␛op: a␛[2J"
    assert running.end(signal.SIGTERM) == 0


def test_ctrl_c_ends_open_streams_and_sets_the_exit_code(served, swarm):
    running = served(swarm, "--port", 0)
    address = running.address()
    with connect(f"{address.replace('http', 'ws')}/v1/clients/ann", proxy=None) as ws:
        assert running.end(signal.SIGINT) == 130
        with pytest.raises(Exception, match="the server is stopping"):
            ws.recv()


SLOW = """
import os, anyio
from palaver.swarm import Swarm, SwarmAgent

async def slow(place, text):
    open("asked", "w").close()
    while not os.path.exists("let"):
        await anyio.sleep(0.01)
    return f"heard {text}"

swarm = Swarm("slow", [SwarmAgent("desk", operator=slow, operator_timeout=60)])
"""


def until_there(file):
    deadline = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def said(served, tmp_path):
    """Ask over WebSocket, stop while the turn is under way, and give what the client was told, and what is kept."""
    (tmp_path / "slow.py").write_text(SLOW)
    running = served("slow.py", "--port", 0)
    address = running.address()

    def said_(*signals):
        with connect(f"{address.replace('http', 'ws')}/v1/clients/ann?events=none", proxy=None) as ws:
            ws.send(json.dumps({"text": "hi"}))
            until_there(tmp_path / "asked")
            running.process.send_signal(signals[0])
            with pytest.raises(Exception, match="the server is stopping"):
                ws.recv()
        for each in signals[1:]:
            running.process.send_signal(each)
        if not signals[1:]:
            with suppress(subprocess.TimeoutExpired):
                running.process.wait(1)
            (tmp_path / "let").touch()
        code = running.process.wait(60)
        with open_store(tmp_path / "palaver.db") as store:
            return code, [entry.message.text for entry in store.path("slow/ann")]

    return said_


def test_a_turn_whose_client_was_sent_away_comes_to_its_end(said):
    assert said(signal.SIGTERM) == (0, ["hi", "heard hi"])


def test_the_second_signal_waits_for_no_turn(said):
    assert said(signal.SIGTERM, signal.SIGTERM) == (0, ["hi"])


def test_the_token_is_asked_for(served, swarm):
    running = served(swarm, "--port", 0, PALAVER_TOKEN="s3cret")
    address = running.address()
    assert post(address, "ann", "hi")[0] == 401
    assert post(address, "ann", "hi", Authorization="Bearer s3cret")[0] == 200
    assert running.end(signal.SIGTERM) == 0


@pytest.mark.finding("F-101")
def test_tokens_of_clients_and_names_of_the_server(served, swarm, tmp_path):
    (tmp_path / "tokens.toml").write_text('ann = "a1"\nbob = "b1"\n')
    running = served(
        swarm, "--port", 0, "--host", "0.0.0.0", "--tokens", "tokens.toml", "--allow-host", "boats.example"
    )
    address = running.address().replace("0.0.0.0", "127.0.0.1")
    assert post(address, "ann", "hi", Authorization="Bearer a1")[0] == 200
    assert post(address, "bob", "hi", Authorization="Bearer a1")[0] == 401
    assert post(address, "bob", "hi", Authorization="Bearer b1", Host="boats.example")[0] == 200
    assert post(address, "bob", "hi", Authorization="Bearer b1", Host="evil.example")[0] == 421
    assert running.end(signal.SIGTERM) == 0


@pytest.mark.finding("F-101")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ann", "lines of CLIENT = "),
        ("", "there is no token in it"),
        pytest.param(f"a = {'[' * 9999}", "lines of CLIENT = ", id="deep"),
        pytest.param(f"a = {'1' * 9999}", "lines of CLIENT = ", id="long"),
        ('ann = ""', "ann: a token must be text and not empty"),
        ("ann = 3", "ann: a token must be text and not empty"),
        ('"a b" = "x"', "'a b': expected 1 to 128 ASCII letters"),
        (None, "no such file"),
    ],
)
def test_a_file_of_tokens_that_cannot_be_used_is_one_line(run, swarm, text, said):
    file = swarm.parent / "tokens.toml"
    if text is not None:
        file.write_text(text)
    ran = run("serve", swarm, "--tokens", file)
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert said in ran.err


@pytest.mark.finding("F-107")
def test_connections_that_send_half_a_head_keep_nobody_out(served, swarm):
    running = served(swarm, "--port", 0, "--connections", 20)
    address = running.address()
    port = int(address.rpartition(":")[2])
    with ExitStack() as held:
        for _ in range(60):
            each = held.enter_context(socket.create_connection(("127.0.0.1", port)))
            each.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nX-a")
        assert httpx.get(f"{address}/health", trust_env=False, timeout=60).status_code == 200
    assert running.end(signal.SIGTERM) == 0


def test_a_conversation_goes_on_after_a_restart(served, swarm):
    for text in ("one", "two"):
        running = served(swarm, "--port", 0)
        address = running.address()
        assert post(address, "ann", text)[0] == 200
        said = httpx.get(f"{address}/v1/clients/ann/messages", trust_env=False).json()["messages"]
        assert running.end(signal.SIGTERM) == 0
    assert [each["text"] for each in said if each["role"] == "user"] == ["one", "two"]


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["nowhere.py"], 1, "palaver: nowhere.py: no such file"),
        (["office.py:none"], 1, "palaver: office.py: there is no 'none' in it"),
        (["office.py", "--workers", "2"], 2, "palaver: --workers need --bus"),
        (["office.py", "--bus", "http://x"], 2, "palaver: --bus http://x: nats://… is expected"),
        (["office.py", "--bus", "nats://a:b@x"], 2, "palaver: workers share --store postgresql://"),
        (["office.py", "--token", ""], 2, "palaver: a token cannot be empty"),
        (
            ["office.py", "--host", "0.0.0.0"],
            2,
            "palaver: --host 0.0.0.0 is reachable from other machines: pass --token",
        ),
        (["office.py", "--host", "::"], 2, "palaver: --host :: is reachable from other machines: pass --token"),
        (["office.py", "--allow-origin", "app.example"], 1, "palaver: an origin has the form"),
        (["office.py", "--host", "256.0.0.1"], 1, "palaver: 256.0.0.1:8000: "),
        (["office.py", "--host", "a..b"], 1, "palaver: a..b:8000: not a host name"),
    ],
)
def test_what_cannot_be_served_is_one_line(run, swarm, args, code, said):
    ran = run("serve", *args)
    assert ran.code == code
    assert ran.err.startswith(said)
    assert ran.err.count("\n") == 1
    assert ran.out == ""


def test_a_port_that_is_taken_is_one_line(run, swarm):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = run("serve", swarm, "--port", port)
    assert (ran.code, ran.err) == (1, f"palaver: 127.0.0.1:{port}: address already in use\n")


@pytest.mark.parametrize(
    ("host", "said"), [("256.0.0.1", "256.0.0.1:{}: "), ("\udcff", "�:{}: not a host name"), ("127.0.0.1", None)]
)
def test_an_address_that_mcp_cannot_have_is_one_line(run, saved, host, said):
    saved("", "palaver.db")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = run("mcp", "--http", f"{host}:{port}", "--allow-host", "x")
    said = (said or "127.0.0.1:{}: address already in use\n").format(port)
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert ran.err.startswith(f"palaver: {said}")


@pytest.mark.finding("S-14")
@pytest.mark.parametrize("name", ["starlette", "uvicorn"])
def test_a_missing_extra_is_one_line(run, swarm, monkeypatch, name):
    from palaver.cli import serve

    real = serve.find_spec
    monkeypatch.setattr(serve, "find_spec", lambda asked: None if asked == name else real(asked))
    ran = run("serve", swarm)
    how = "pip install 'palaver[serve]', or pip install -e '.[serve]' in a clone"
    assert (ran.code, ran.err) == (1, f"palaver: {name}: it is not installed: {how}\n")


@pytest.fixture
def servers(tmp_path):
    """A database and a NATS of its own."""
    nats = nats_server.PrivateServer(tmp_path / "nats")
    nats.start()
    try:
        with fresh_database() as database:
            yield {"--store": database, "--bus": nats.url}
    finally:
        nats.remove()


def shared(servers):
    return [word for pair in servers.items() for word in pair]


@pytest.mark.server
def test_a_front_with_workers_that_are_started_again(served, swarm, servers):
    running = served(swarm, "--port", 0, "--workers", 2, *shared(servers))
    address = running.address()
    first, second = [running.until(r"^worker \d: process (\d+)$").group(1) for _ in range(2)]
    clients = [f"client{number}" for number in range(8)]
    answers = {client: post(address, client, "hi") for client in clients}
    assert {status for status, _ in answers.values()} == {200}
    assert {answer["agent"] for _, answer in answers.values()} == {"desk"}
    assert {answer["answer"].split()[0] for _, answer in answers.values()} <= {first, second}
    os.kill(int(first), signal.SIGKILL)
    assert running.until(rf"^palaver: worker \d \(process {first}\) ended with -9; it is restarted in 1 s$")
    third = running.until(r"^worker \d: process (\d+)$").group(1)
    answers = [post(address, client, "again")[1]["answer"] for client in clients]
    assert {answer.split()[0] for answer in answers} <= {second, third}
    said = httpx.get(f"{address}/v1/clients/client0/messages", trust_env=False).json()["messages"]
    assert [each["text"] for each in said if each["role"] == "user"] == ["hi", "again"]
    assert running.end(signal.SIGTERM, 60) == 0
    for pid in (second, third):
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def alive(process):
    """Whether a process is there, and no mere entry of one that ended."""
    status = subprocess.run(["ps", "-o", "stat=", "-p", process], capture_output=True, text=True, check=False).stdout
    return bool(status.strip()) and not status.startswith("Z")


@pytest.mark.server
def test_workers_end_with_their_front(served, swarm, servers):
    running = served(swarm, "--port", 0, *shared(servers))
    address = running.address()
    worker = running.until(r"^worker 1: process (\d+)$").group(1)
    assert post(address, "ann", "hi")[0] == 200
    running.process.kill()
    deadline = time.monotonic() + 60
    while alive(worker):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.server
def test_a_bus_that_does_not_answer_is_one_line(run, swarm, servers):
    ran = run("serve", swarm, "--port", 0, "--store", servers["--store"], "--bus", "nats://127.0.0.1:1")
    assert ran.code == 1
    assert ran.err.startswith("palaver: nats://127.0.0.1:1: ")
    assert ran.err.count("\n") == 1
