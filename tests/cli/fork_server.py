"""Commands in processes of their own that need no imports: each is forked from a process that has them.

A process of `python -m palaver` spends 0.6 s of CPU on its imports, and most commands nothing else.
A forked one has its own standard streams, folder, environment, signals and, on request, terminal; it exits through
`palaver.cli.run`, like the real one. Tests of Python's own start-up (its options, closed streams, imported modules)
start the real one.

As a script this module is the process that forks. It has one thread.
"""

import contextlib
import fcntl
import gc
import importlib
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import termios
import time

from palaver.cli import _COMMANDS, run

_PRELOADED = (
    *("anyio._backends._asyncio", "httpx", "rich.live", "rich.progress", "rich.syntax", "rich.table"),
    *("palaver.stream.serialize_parts", "palaver.wires.anthropic_messages", "palaver.wires.openai_chat"),
    *("palaver.models.http", "palaver.store.sqlite", "palaver.swarm"),
)


# -- in the process of the tests ------------------------------------------------------------------------------------


class ForkServer:
    """Fork commands."""

    def __init__(self):
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-P", __file__, str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()])

    def start(self, *args, cwd, env, streams, terminal=False):
        """Start a command with these three file descriptors as its standard streams."""
        request = {"args": args, "cwd": str(cwd), "env": env, "terminal": terminal}
        status, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(self._link, [json.dumps(request).encode()], [*streams, theirs.fileno()])
        return Forked(status, int(status.recv(32)))

    def close(self):
        self._link.close()
        self._process.wait()


class Forked:
    """A forked process, used like `subprocess.Popen`."""

    def __init__(self, status, pid):
        self._status, self.pid, self.returncode = status, pid, None

    def poll(self, seconds=0.0):
        if self.returncode is None and select.select([self._status], [], [], seconds)[0]:
            self.returncode = int(self._status.recv(32))
            self._status.close()
        return self.returncode

    def wait(self, timeout=60.0):
        if self.poll(timeout) is None:
            raise TimeoutError(f"process {self.pid} has not ended")
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


# -- in the process that forks --------------------------------------------------------------------------------------


def _serve(link):
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    running = {}
    while True:
        ready, _, _ = select.select([link, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _tell_ends(running)
        if link in ready:
            data, files, _, _ = socket.recv_fds(link, 1 << 20, 4)
            if not data:
                return
            pid = os.fork()
            if not pid:
                link.close()
                signal.set_wakeup_fd(-1)
                for file in (woken, wakes, files[3], *(status.fileno() for status in running.values())):
                    os.close(file)
                _become(json.loads(data), files[:3])
            status = socket.socket(fileno=files[3])
            status.send(b"%d" % pid)
            running[pid] = status
            for file in files[:3]:
                os.close(file)


def _tell_ends(running):
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with running.pop(pid) as link, contextlib.suppress(OSError):  # the caller is gone
            link.send(b"%d" % os.waitstatus_to_exitcode(status))


def _become(request, files):
    """Run the command in this process, and exit with it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    if request["terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    os.chdir(request["cwd"])
    sys.path.insert(0, request["cwd"])
    sys.argv = ["palaver", *request["args"]]
    _open_streams(os.environ.get("PYTHONIOENCODING", ""))
    try:
        run()
    except BaseException:  # noqa: BLE001 (it is shown, as Python would)
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(1)


def _open_streams(spelled):
    """Open the standard streams as Python does when it starts."""
    encoding, _, handler = spelled.partition(":")
    encoding = encoding or sys.__stdout__.encoding
    handler = handler or ("strict" if spelled else sys.__stdout__.errors)
    sys.stdin = sys.__stdin__ = _stream(0, "r", encoding, handler)
    sys.stdout = sys.__stdout__ = _stream(1, "w", encoding, handler, line_buffering=os.isatty(1))
    sys.stderr = sys.__stderr__ = _stream(2, "w", encoding, "backslashreplace", line_buffering=True)


def _stream(number, mode, encoding, handler, *, line_buffering=False):
    raw = io.FileIO(number, mode, closefd=False)
    buffered = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
    newline = None if mode == "r" else "\n"
    return io.TextIOWrapper(buffered, encoding, handler, newline, line_buffering)


def _preload():
    for name in (*(module for module, _ in _COMMANDS.values()), *_PRELOADED):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    _preload()
    with socket.socket(fileno=int(sys.argv[1])) as link_:
        _serve(link_)
