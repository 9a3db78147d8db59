"""Run a command in this process, and return its exit code and both outputs.

Tests of the process itself run it in a process of its own, and a few tests run the real one.
"""

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from tempfile import TemporaryFile

import pytest

from palaver.cli import main
from palaver.store import open_store
from tests.cli.fork_server import ForkServer

HI = {"role": "user", "content": "hi"}


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Run a command in a folder of its own, which contains the store."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("PALAVER_STORE", str(tmp_path / "palaver.db"))

    def run_(*args):
        code = main([str(arg) for arg in args])
        return Ran(code, *capsys.readouterr())

    return run_


@pytest.fixture(scope="session")
def fork_server():
    server = ForkServer()
    yield server
    server.close()


@pytest.fixture
def process(tmp_path, fork_server):
    """Run a forked process in a folder of its own."""

    def process_(*args, data=b"", **env):
        env = {**os.environ, "PALAVER_STORE": str(tmp_path / "palaver.db"), **env}
        with TemporaryFile() as out, TemporaryFile() as err:
            stdin, pipe = os.pipe()
            streams = (stdin, out.fileno(), err.fileno())
            running = fork_server.start(*map(str, args), cwd=tmp_path, env=env, streams=streams)
            os.close(stdin)
            with os.fdopen(pipe, "wb") as there, suppress(BrokenPipeError):
                there.write(data)
            code = running.wait()
            out.seek(0)
            err.seek(0)
            return Ran(code, out.read().decode(), err.read().decode())

    return process_


@pytest.fixture
def real_process(tmp_path):
    """Run the real process, with its own imports, in a folder of its own."""

    def process_(*args, data=b"", **env):
        done = subprocess.run(
            [sys.executable, "-m", "palaver", *map(str, args)],
            cwd=tmp_path,
            input=data,
            capture_output=True,
            env={**os.environ, "PALAVER_STORE": str(tmp_path / "palaver.db"), **env},
            check=False,
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    return process_


@pytest.fixture
def saved(tmp_path):
    """Write a JSON value, or text, into a file of the folder."""

    def saved_(value, name="body.json"):
        file = tmp_path / name
        file.write_text(value if isinstance(value, str) else json.dumps(value), "utf-8")
        return file

    return saved_


@pytest.fixture
def chat():
    """Return a request of Chat Completions with a loss on every other wire: a name."""
    return {"model": "gpt-5", "messages": [{**HI, "name": "ada"}, {"role": "assistant", "content": "yes"}, HI]}


@pytest.fixture
def location(tmp_path):
    """Return the store of the commands."""
    return tmp_path / "palaver.db"


@pytest.fixture
def kept(location):
    """Call a function with the store, and return its result; a missing store is created."""

    def kept_(work):
        with open_store(location) as store:
            return work(store)

    return kept_
