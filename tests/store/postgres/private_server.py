"""A PostgreSQL server of the tests' own, in a temporary folder, which may be stopped, killed and filled."""

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import psycopg
import pytest


def _binaries():
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    if not found and on_path is None:
        pytest.skip("no binaries of a PostgreSQL server")
    return (found[-1] if found else Path(on_path)).parent


class PrivateServer:
    def __init__(self):
        self._binaries = _binaries()
        self._user = "postgres" if os.getuid() == 0 else None  # a server does not run as root
        self.folder = Path(tempfile.mkdtemp(prefix="palaver-postgres-"))
        if self._user:
            shutil.chown(self.folder, self._user)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.data = self.folder / "data"
        self._run("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--no-locale")
        self.conninfo = f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres"

    def _run(self, program, *arguments):
        with (self.folder / "out").open("ab") as out:
            subprocess.run(
                [self._binaries / program, *arguments],
                check=True,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                user=self._user,
                cwd=self.folder,
                timeout=60,
            )

    def start(self):
        options = f"-p {self.port} -h 127.0.0.1 -k {self.folder}"
        self._run("pg_ctl", "-D", self.data, "-l", self.folder / "log", "-o", options, "-w", "start")

    def stop(self, mode="fast"):
        self._run("pg_ctl", "-D", self.data, "-m", mode, "-w", "stop")

    def execute(self, statement, *values):
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def remove(self):
        if (self.data / "postmaster.pid").exists():
            self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)
